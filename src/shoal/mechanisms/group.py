"""Group privacy: noise for all tied entries at once. Proof: group.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import AsGroupDP, Composition
from shoal.core.errors import Refused
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.mechanisms.additive import (
    entry_level,
    entry_rules,
    eta_above,
    laplace_plan,
    not_for_numbers,
)
from shoal.mechanisms.row import Mechanism

NAME = "group"


@dataclass(frozen=True, slots=True, eq=False)
class GroupCertificate(Value):
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


def refuse(task: Task) -> str | None:
    if task.tied is None:
        return "a model of any length ties unlimited entries together; give it a length"
    return not_for_numbers(task)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale n·L/ε for n tied entries: sound under any law whatever."""
    tied, lipschitz = tied_entries(task), task.query.lipschitz
    certificate = GroupCertificate(tied, lipschitz)
    return laplace_plan(
        task,
        NAME,
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


def loss(plan: Plan) -> float:
    """n·L / scale, n being the tied entries of the plan's own task. Rounds up."""
    return eta_above(tied_entries(plan.task) * entry_level(plan))


def tied_entries(task: Task) -> int:
    """n, the most entries that depend on each other; refused where there is no limit."""
    if task.tied is None:
        raise Refused(f"{NAME} does not apply: {refuse(task)}")
    return task.tied


ROW = Mechanism(NAME, refuse, calibrate, loss, promise, rules)
