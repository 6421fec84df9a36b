"""Ordinary differential privacy for one entry: what people use today. Proof: laplace.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from shoal.additive.plans import (
    Mechanism,
    entry_dp,
    entry_level,
    entry_rules,
    eta_above,
    keeps_total,
    laplace_plan,
    noisy_plan,
    refuse_noise,
)
from shoal.core.errors import Refused
from shoal.core.guarantee import AsGroupDP, Composition, Guarantee
from shoal.core.plan import Noise, Plan, Proof
from shoal.core.task import Query, Task
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace
from shoal.noise.lattice import round_up

NAME = "laplace"


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceCertificate(Proof):
    """The sensitivity and the scale; epsilon = lipschitz / scale."""

    lipschitz: Fraction

    THEOREM: ClassVar[str] = (
        "the Laplace mechanism (Dwork, McSherry, Nissim & Smith 2006, Proposition 1)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "protects one entry only against an adversary for whom the entries are independent, "
        "or who already knows all others; correlation makes it weaker, see `shoal leak`",
    )


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L/ε: ε-DP for one entry, silent about correlation."""
    lipschitz = task.query.lipschitz
    certificate = LaplaceCertificate(lipschitz)
    return laplace_plan(task, NAME, entry_dp(task, epsilon), lipschitz / epsilon, certificate)


def loss(plan: Plan) -> float:
    """L / scale, the entry-level epsilon of the noise as drawn. Rounds up."""
    return eta_above(entry_level(plan))


ROW = Mechanism(NAME, refuse_noise, calibrate, loss, entry_dp)


# K-norm noise for histograms: entry-level DP that keeps the public total. Proof: knorm.md.


KNORM = "knorm"


@dataclass(frozen=True, slots=True, eq=False)
class KNormCertificate(Proof):
    """The l1 sensitivity; every change lies in the plane Σv = 0, where the noise lives too."""

    lipschitz: Fraction

    THEOREM: ClassVar[str] = (
        "the K-norm mechanism (Hardt & Talwar 2010) with K = conv{e_i - e_j}, the sensitivity "
        "hull of a histogram (Xiao 2017, Example 3.1)"
    )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "the total number of entries is public",
        "protects one entry only against an adversary for whom the entries are independent, "
        "or who already knows all others; correlation makes it weaker, see `shoal leak`",
    )


def quietest_noise(query: Query, scale: Fraction | float) -> Noise:
    """The noise of least error that is (L / scale)-DP for one entry: zero-sum where it applies."""
    if keeps_total(query):
        return ZeroSumLaplace(round_up(scale), query.lattice, len(query.labels))
    return LatticeLaplace(round_up(scale), query.lattice)


def refuse_knorm(task: Task) -> str | None:
    if not keeps_total(task.query):
        return "the answer has no public total; K-norm noise here is for histograms of all states"
    return refuse_noise(task)


def calibrate_knorm(task: Task, epsilon: Fraction) -> Plan:
    """Zero-sum Laplace noise of scale L/ε: ε-DP for one entry, silent about correlation."""
    lipschitz = task.query.lipschitz
    noise = quietest_noise(task.query, lipschitz / epsilon)
    return noisy_plan(task, KNORM, entry_dp(task, epsilon), noise, KNormCertificate(lipschitz))


def knorm_loss(plan: Plan) -> float:
    """L / scale, the entry-level epsilon of the noise as drawn. Rounds up."""
    return eta_above(entry_level(plan))


KNORM_ROW = Mechanism(KNORM, refuse_knorm, calibrate_knorm, knorm_loss, entry_dp)


# Group privacy: noise for all tied entries at once. Proof: group.md.


GROUP = "group"


@dataclass(frozen=True, slots=True, eq=False)
class GroupCertificate(Proof):
    """The number of entries that may change together, and what one of them moves."""

    tied: int
    lipschitz: Fraction

    @property
    def theorem(self) -> str:
        return (
            f"group privacy: changing all {self.tied} tied entries moves the answer by at most "
            f"{self.tied} × {self.lipschitz} (Song, Wang & Chaudhuri 2017, Section 3.1)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"no more than {self.tied} entries depend on each other; separate chains are "
            "independent. Nothing is assumed about how they depend",
        )


def refuse_group(task: Task) -> str | None:
    if task.tied is None:
        return "a model of any length ties unlimited entries together; give it a length"
    return refuse_noise(task)


def calibrate_group(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale n·L/ε for n tied entries: sound under any law whatever."""
    tied, lipschitz = tied_entries(task), task.query.lipschitz
    certificate = GroupCertificate(tied, lipschitz)
    return laplace_plan(
        task,
        GROUP,
        promise(task, epsilon),
        tied * lipschitz / epsilon,
        certificate,
        rules=lambda eta: (AsGroupDP(tied * eta),),
    )


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Group privacy for as many entries as the task ties together."""
    over = f"any or all of {tied_entries(task)} tied entries"
    return Guarantee(notion="group", amount=epsilon, over=over)


def rules(plan: Plan) -> tuple[Composition, ...]:
    """n·eta for all n tied entries at once, and eta for one."""
    return (AsGroupDP(tied_entries(plan.task) * entry_level(plan)), *entry_rules(plan))


def group_loss(plan: Plan) -> float:
    """n·L / scale, n being the tied entries of the plan's own task. Rounds up."""
    return eta_above(tied_entries(plan.task) * entry_level(plan))


def tied_entries(task: Task) -> int:
    """n, the most entries that depend on each other; refused where there is no limit."""
    if task.tied is None:
        raise Refused(f"{GROUP} does not apply: {refuse_group(task)}")
    return task.tied


GROUP_ROW = Mechanism(GROUP, refuse_group, calibrate_group, group_loss, promise, rules)
