"""K-norm noise for histograms: entry-level DP that keeps the public total. Proof: knorm.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.additive import Noise
from shoal.core.plan import Plan
from shoal.core.task import Query, Task
from shoal.core.value import Value
from shoal.mechanisms.additive import (
    entry_dp,
    entry_level,
    eta_above,
    keeps_total,
    noisy_plan,
    not_for_numbers,
)
from shoal.mechanisms.row import Mechanism
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.lattice import round_up
from shoal.noise.zero_sum import ZeroSumLaplace

NAME = "knorm"


@dataclass(frozen=True, slots=True, eq=False)
class KNormCertificate(Value):
    """The l1 sensitivity; every change lies in the plane Σv = 0, where the noise lives too."""

    lipschitz: Fraction

    @property
    def theorem(self) -> str:
        return (
            "the K-norm mechanism (Hardt & Talwar 2010) with K = conv{e_i - e_j}, the sensitivity "
            "hull of a histogram (Xiao 2017, Example 3.1)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the total number of entries is public",
            "protects one entry only against an adversary for whom the entries are independent, "
            "or who already knows all others; correlation makes it weaker, see `shoal leak`",
        )


def quietest_noise(query: Query, scale: Fraction | float) -> Noise:
    """The noise of least error that is (L / scale)-DP for one entry: zero-sum where it applies."""
    if keeps_total(query):
        return ZeroSumLaplace(round_up(scale), query.lattice, len(query.labels))
    return LatticeLaplace(round_up(scale), query.lattice)


def refuse(task: Task) -> str | None:
    if not keeps_total(task.query):
        return "the answer has no public total; K-norm noise here is for histograms of all states"
    return not_for_numbers(task)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Zero-sum Laplace noise of scale L/ε: ε-DP for one entry, silent about correlation."""
    lipschitz = task.query.lipschitz
    noise = quietest_noise(task.query, lipschitz / epsilon)
    return noisy_plan(task, NAME, entry_dp(task, epsilon), noise, KNormCertificate(lipschitz))


def loss(plan: Plan) -> float:
    """L / scale, the entry-level epsilon of the noise as drawn. Rounds up."""
    return eta_above(entry_level(plan))


ROW = Mechanism(NAME, refuse, calibrate, loss, entry_dp)
