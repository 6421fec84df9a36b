"""Mechanisms that need only a model's numbers, and the choice among all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes
from shoal.core.registry import Family

if TYPE_CHECKING:
    from shoal.additive.choice import (
        choose as choose,
    )
    from shoal.additive.lift import Leakage as Leakage
    from shoal.additive.plans import (
        accuracy as accuracy,
    )
    from shoal.additive.queries import (
        LinearQuery as LinearQuery,
        RunningStream as RunningStream,
        consistent as consistent,
        in_steps as in_steps,
        non_negative as non_negative,
        simplex as simplex,
    )

FAMILY = Family(
    name="additive",
    about="data of any kind",
    kinds=(
        "shoal.core.task:Task",
        "shoal.core.plan:Plan",
        "shoal.core.plan:Stream",
        "shoal.core.plan:Release",
        "shoal.core.plan:Answer",
        "shoal.core.plan:Error",
        "shoal.core.charge:Guarantee",
        "shoal.core.charge:AsEntryDP",
        "shoal.core.charge:SameQuilts",
        "shoal.core.charge:AsGroupDP",
        "shoal.core.charge:PerStep",
        "shoal.core.charge:OneStream",
        "shoal.core.charge:Alone",
        "shoal.core.plan:Additive",
        "shoal.noise.laplace:LatticeLaplace",
        "shoal.noise.laplace:ZeroSumLaplace",
        "shoal.geometry.body:Body",
        "shoal.noise.knorm:LatticeKNorm",
        "shoal.noise.knorm:Staircase",
        "shoal.additive.queries:LinearQuery",
        "shoal.core.task:EachEntry",
        "shoal.additive.plans:LaplaceCertificate",
        "shoal.additive.plans:GroupCertificate",
        "shoal.additive.quilt:ActiveQuilt",
        "shoal.additive.quilt:QuiltCertificate",
        "shoal.additive.quilt:MixingCertificate",
        "shoal.additive.quilt:InfluenceCertificate",
        "shoal.additive.plans:KNormCertificate",
        "shoal.additive.exact:ExactCertificate",
        "shoal.additive.exact:WassersteinCertificate",
        "shoal.core.task:LiftedModel",
        "shoal.additive.lift:LiftCertificate",
        "shoal.additive.plans:Measured",
        "shoal.additive.lift:Leakage",
        "shoal.additive.queries:ExternalQuery",
        "shoal.additive.queries:InSteps",
        "shoal.additive.queries:Running",
        "shoal.additive.queries:RunningState",
        "shoal.additive.queries:RunningStream",
        "shoal.additive.optimal_table:Tabulated",
        "shoal.additive.optimal_table:OptimalTableCertificate",
    ),
    rows={
        "laplace": "shoal.additive.plans:LAPLACE_ROW",
        "knorm": "shoal.additive.plans:KNORM_ROW",
        "exact": "shoal.additive.exact:ROW",
        "wasserstein": "shoal.additive.exact:WASSERSTEIN_ROW",
        "optimal-table": "shoal.additive.optimal_table:ROW",
        "lift": "shoal.additive.lift:ROW",
        "markov-quilt": "shoal.additive.quilt:ROW",
        "markov-quilt-bound": "shoal.additive.quilt:BOUND_ROW",
        "influence-matrix": "shoal.additive.quilt:INFLUENCE_ROW",
        "group": "shoal.additive.plans:GROUP_ROW",
    },
    bodies={
        "additive": "shoal.audit.exact:additive_audit",
        "measured": "shoal.audit.exact:measured_audit",
        "running": "shoal.audit.exact:running_audit",
        "tabulated": "shoal.audit.exact:tabulated_audit",
    },
    secrets_sections={
        "each-entry": "shoal.spec.fields:EachEntrySecrets",
    },
    query_sections={
        "count": "shoal.spec.fields:CountQuery",
        "sum": "shoal.spec.fields:SumQuery",
        "mean": "shoal.spec.fields:MeanQuery",
        "histogram": "shoal.spec.fields:HistogramQuery",
    },
    hooks={
        "stream": "shoal.cli.stream:CountLines",
    },
)

NAMES = {
    "additive.choice": ("choose",),
    "additive.lift": ("Leakage",),
    "additive.plans": ("accuracy",),
    "additive.queries": (
        "LinearQuery",
        "consistent",
        "non_negative",
        "simplex",
        "RunningStream",
        "in_steps",
    ),
}

__all__ = ["FAMILY", *homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
