"""Joint tables, Bayesian networks and contagion: laws of named variables."""

from __future__ import annotations

from shoal.core.registry import Family

FAMILY = Family(
    name="networks",
    about="variables of a network, a crowd or a table",
    kinds=(
        "shoal.networks.table:JointTable",
        "shoal.networks.bayesnet:BayesNet",
        "shoal.networks.contagion:Contagion",
        "shoal.networks.queries:VariableSum",
        "shoal.networks.pairs:Event",
        "shoal.networks.pairs:SecretPairs",
        "shoal.networks.quilts:NetworkQuilt",
        "shoal.networks.quilts:NetworkQuiltCertificate",
        "shoal.networks.closeness:SecretCloseness",
    ),
    models={
        "joint-table": "shoal.networks.audit:table_finding",
        "bayes-net": "shoal.networks.audit:network_finding",
        "contagion": "shoal.networks.audit:network_finding",
    },
)
