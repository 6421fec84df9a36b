"""Ordinary differential privacy for one entry: what people use today. Proof: laplace.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.core.value import Value
from shoal.mechanisms.additive import (
    entry_dp,
    entry_level,
    eta_above,
    laplace_plan,
    not_for_numbers,
)
from shoal.mechanisms.row import Mechanism

NAME = "laplace"


@dataclass(frozen=True, slots=True, eq=False)
class LaplaceCertificate(Value):
    """The sensitivity and the scale; epsilon = lipschitz / scale."""

    lipschitz: Fraction

    @property
    def theorem(self) -> str:
        return "the Laplace mechanism (Dwork, McSherry, Nissim & Smith 2006, Proposition 1)"

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
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


ROW = Mechanism(NAME, not_for_numbers, calibrate, loss, entry_dp)
