"""The L·ΔQ baseline: noise for all records one record is tied to. Proof: dependent_baseline.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.composition import AsGroupDP, Composition
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.mechanisms.additive import entry_level, entry_rules, eta_above, laplace_plan
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
    def enough(self) -> bool:
        """Whether L covers the largest component, so that the promise is proved."""
        return self.dependence_size >= self.component

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
    scale = certificate.dependence_size * task.query.lipschitz / epsilon
    return laplace_plan(
        task,
        NAME,
        promise(task, epsilon),
        scale,
        certificate,
        rules=lambda eta: _together(certificate, eta),
    )


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Group privacy for L records; claimed, not proved, where more depend on each other."""
    sizes = _sizes(task)
    return Guarantee(
        notion="group" if sizes.enough else "dependent",
        amount=epsilon,
        over=f"any or all of {sizes.dependence_size} tied records",
        proved=sizes.enough,
        caveat="" if sizes.enough else CAVEAT,
    )


def rules(plan: Plan) -> tuple[Composition, ...]:
    """L·eta for all of a component at once where L is its size, and eta for one record."""
    return (*_together(_sizes(plan.task), entry_level(plan)), *entry_rules(plan))


def loss(plan: Plan) -> float:
    """n·ΔQ/scale with n the size of the largest component: what is really promised. Rounds up."""
    return eta_above(_sizes(plan.task).component * entry_level(plan))


def _together(sizes: BaselineCertificate, eta: Fraction) -> tuple[Composition, ...]:
    return (AsGroupDP(sizes.component * eta),) if sizes.enough else ()


def _sizes(task: Task) -> BaselineCertificate:
    # the task's own count: a table may call independent variables tied, and a ledger goes by it
    return BaselineCertificate(
        dependence_size=max(model.dependence_size for model in pairs_of(task)),
        component=int(task.tied or 1),
    )


ROW = Mechanism(NAME, not_tied, calibrate, loss, promise, rules)
