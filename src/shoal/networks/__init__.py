"""Joint tables, Bayesian networks and contagion: laws of named variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.networks.contagion import (
        exponential_law as exponential_law,
    )
    from shoal.networks.queries import (
        VariableSum as VariableSum,
    )

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
    model_sections={
        "table": "shoal.networks.spec:TableModel",
        "bayes-net": "shoal.networks.spec:NetworkModel",
        "contagion": "shoal.networks.spec:ContagionModel",
    },
    secrets_sections={
        "pairs": "shoal.networks.spec:PairSecrets",
    },
    query_sections={
        "variable-sum": "shoal.networks.spec:VariableQuery",
    },
    stored_models={
        "table": ("joint-table",),
        "bayes-net": ("bayes-net",),
        "contagion": ("contagion",),
    },
    files={
        ".bif": "shoal.networks.spec:network_file",
        ".bif.gz": "shoal.networks.spec:network_file",
    },
    adversaries={
        "joint-table": "shoal.networks.attack:TableAdversary",
        "bayes-net": "shoal.networks.attack:NetworkAdversary",
        "contagion": "shoal.networks.attack:CrowdAdversary",
    },
    templates={
        "network": "variables of a Bayesian network",
        "contagion": "people who infect each other",
    },
    hooks={
        "release": "shoal.networks.views:release_view",
    },
)

NAMES = {
    "networks.contagion": ("exponential_law",),
    "networks.queries": ("VariableSum",),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
