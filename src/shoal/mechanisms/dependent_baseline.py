"""The L·ΔQ baseline: noise for all records one record is tied to. Proof: dependent_baseline.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import AsGroupDP, Composition
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.mechanisms.additive import laplace_body, laplace_plan
from shoal.mechanisms.dependent_task import not_tied, pairs_of
from shoal.mechanisms.row import Mechanism

NAME = "dependent-baseline"
CAVEAT = (
    "the dependence size counts the ties of one record, not the records that depend on each other "
    "together; it is sound only when it is the size of the largest component"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BaselineCertificate(Value):
    """L as the paper counts it, and the size of the largest component, which a promise needs."""

    dependence_size: int
    component: int

    @property
    def theorem(self) -> str:
        return (
            f"the baseline L·ΔQ/ε with L = {self.dependence_size} (Liu, Chakraborty & Mittal 2016, "
            f"Theorem 7), which holds when no more than {self.dependence_size} records depend on "
            "each other jointly"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"a component of ties holds at most {self.component} records; nothing is assumed about "
            "how they depend",
        )


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·ΔQ/ε, L one more than the most ties of one record."""
    certificate = _sizes(task)
    enough = certificate.dependence_size >= certificate.component
    guarantee = Guarantee(
        notion="group" if enough else "dependent",
        amount=epsilon,
        over=f"any or all of {certificate.dependence_size} tied records",
        proved=enough,
        caveat="" if enough else CAVEAT,
    )
    rules: tuple[Composition, ...] = (AsGroupDP(epsilon),) if enough else ()
    scale = certificate.dependence_size * task.query.lipschitz / epsilon
    return laplace_plan(task, NAME, guarantee, scale, certificate, rules=lambda eta: rules)


def loss(plan: Plan) -> float:
    """n·ΔQ/scale with n the size of the largest component: what is really promised."""
    return float(_sizes(plan.task).component * laplace_body(plan).eta)


def _sizes(task: Task) -> BaselineCertificate:
    # the task's own count: a table may call independent variables tied, and a ledger goes by it
    return BaselineCertificate(
        dependence_size=max(model.dependence_size for model in pairs_of(task)),
        component=int(task.tied or 1),
    )


ROW = Mechanism(NAME, not_tied, calibrate, loss, notion="group")
