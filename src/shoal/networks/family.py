"""What common code knows of `shoal.networks`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Acts, Family, LazyModules

if TYPE_CHECKING:
    import shoal.events.pairs
    import shoal.mechanisms.variables
    import shoal.networks.attack
    import shoal.networks.audit
    import shoal.networks.bayesnet
    import shoal.networks.closeness
    import shoal.networks.contagion
    import shoal.networks.quilts
    import shoal.networks.spec
    import shoal.networks.table
    import shoal.networks.views
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.networks",
    about="variables of a network, people of a contagion model, or a table",
    kinds={
        "joint-table": lambda: shoal.networks.table.JointTable,
        "bayes-net": lambda: shoal.networks.bayesnet.BayesNet,
        "contagion": lambda: shoal.networks.contagion.Contagion,
        "variable-sum": lambda: shoal.mechanisms.variables.VariableSum,
        "event": lambda: shoal.events.pairs.Event,
        "secret-pairs": lambda: shoal.events.pairs.SecretPairs,
        "network-quilt": lambda: shoal.networks.quilts.NetworkQuilt,
        "network-quilt-certificate": lambda: shoal.networks.quilts.NetworkQuiltCertificate,
        "secret-closeness": lambda: shoal.networks.closeness.SecretCloseness,
    },
    model_audits={
        "joint-table": lambda: shoal.networks.audit.table_finding,
        "bayes-net": lambda: shoal.networks.audit.network_finding,
        "contagion": lambda: shoal.networks.audit.network_finding,
    },
    adversaries={
        "joint-table": lambda: shoal.networks.attack.TableAdversary,
        "bayes-net": lambda: shoal.networks.attack.NetworkAdversary,
        "contagion": lambda: shoal.networks.attack.ContagionAdversary,
    },
    model_sections={
        "table": lambda: shoal.networks.spec.TableModel,
        "bayes-net": lambda: shoal.networks.spec.NetworkModel,
        "contagion": lambda: shoal.networks.spec.ContagionModel,
    },
    secrets_sections={
        "pairs": lambda: shoal.networks.spec.PairSecrets,
    },
    query_sections={
        "variable-sum": lambda: shoal.networks.spec.VariableQuery,
    },
    model_files={
        ".bif": lambda: shoal.networks.spec.network_file,
        ".bif.gz": lambda: shoal.networks.spec.network_file,
    },
    stored_models={
        "table": ("joint-table",),
        "bayes-net": ("bayes-net",),
        "contagion": ("contagion",),
    },
    templates={
        "network": "variables of a Bayesian network",
        "contagion": "people who infect each other",
    },
    acts=Acts(
        show_release=lambda: shoal.networks.views.release_view,
    ),
)
