"""Independent coins, noise that is enough for them, and an audit that tries both values."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.audit.case import AuditCase
from shoal.audit.result import Finding
from shoal.core.charge import Guarantee
from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Additive, Plan
from shoal.core.task import Law, Task
from shoal.mechanisms.plans import Mechanism, eta_above, laplace_plan


@dataclass(frozen=True, slots=True, eq=False)
class Coins(Law):
    """A number of coins, each heads with its own chance, thrown apart."""

    kind = "coins"

    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        if not all(0 < chance < 1 for chance in self.chances):
            raise InputError("chances holds a number outside 0 to 1; both sides must be possible")

    @property
    def states(self) -> tuple[str, ...]:
        return ("tails", "heads")

    @property
    def tied(self) -> int:
        return 1

    def describe(self) -> str:
        return f"{len(self.chances)} coins thrown apart"

    def admit(self, records: Any) -> None:
        if records.total != len(self.chances):
            raise DataError(f"the data holds {records.total} throws of {len(self.chances)} coins")


@dataclass(frozen=True, slots=True, eq=False)
class CoinCertificate(Value):
    """The most one coin moves the answer."""

    kind = "coin-certificate"

    lipschitz: Fraction

    @property
    def theorem(self) -> str:
        return "coin_noise.md"

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("the coins are thrown apart",)


def refuse(task: Task) -> str | None:
    return None if all(isinstance(m, Coins) for m in task.family) else "it is for coins"


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    return Guarantee(notion="pufferfish", amount=epsilon, over=task.secrets.subject, proved=True)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    lipschitz = task.query.lipschitz
    certificate = CoinCertificate(lipschitz)
    scale = lipschitz / epsilon
    return laplace_plan(task, MECHANISM.name, promise(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    assert isinstance(plan.body, Additive)
    return eta_above(plan.body.eta)


MECHANISM = Mechanism("coin-noise", refuse, calibrate, loss, promise)


def finding(case: AuditCase) -> Finding:
    """The largest difference between the weights of two values of a coin, over the scale."""
    rows = [sum(map(abs, row)) for row in case.query.multiples()]
    apart = case.finer * (max(rows) - min(rows)) / case.scale
    return Finding(lower=float(apart), upper=float(apart))
