"""Group privacy: noise for all tied entries at once. Proof: group.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import AsGroupDP
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.mechanisms.additive import laplace_body, laplace_plan, not_for_numbers
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
    tied = task.tied
    if tied is None:
        raise ValueError("calibrate called on a task that `refuse` refuses")
    guarantee = Guarantee(notion="group", amount=epsilon, over=f"any or all of {tied} tied entries")
    lipschitz = task.query.lipschitz
    certificate = GroupCertificate(tied, lipschitz)
    scale = tied * lipschitz / epsilon
    return laplace_plan(
        task, NAME, guarantee, scale, certificate, rules=lambda eta: (AsGroupDP(epsilon),)
    )


def loss(plan: Plan) -> float:
    """n·L / scale, n being the tied entries of the plan's own task."""
    tied = plan.task.tied
    if tied is None:
        return float("inf")
    return float(tied * laplace_body(plan).eta)


ROW = Mechanism(NAME, refuse, calibrate, loss, notion="group")
