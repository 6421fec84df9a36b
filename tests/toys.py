"""Small stand-ins for what later layers bring: a stream machine, a ledger, a broken row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shoal.chains.model import MarkovChain
from shoal.core.charge import Charge, Guarantee, PerStep, Rng
from shoal.core.codec import Value
from shoal.core.errors import OverBudget
from shoal.core.plan import Plan, Release
from shoal.core.registry import KINDS
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count
from shoal.noise.laplace import LatticeLaplace
from tests.settling import Settling

CHAIN = MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["rest", "run"], length=4)
TASK = Task(query=count(CHAIN.states, "run"), secrets=EachEntry(), family=(CHAIN,))


@dataclass(frozen=True, slots=True, eq=False)
class ToyState(Value):
    """How many steps were made, and the noisy total so far."""

    kind = "toy-state"

    steps: int
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class ToyMachine(Value):
    """A running total with fresh noise at every step."""

    kind = "toy-machine"

    noise: LatticeLaplace

    def init(self) -> ToyState:
        return ToyState(0, 0)

    def step(self, state: ToyState, observed: int, rng: Rng) -> tuple[ToyState, int]:
        total = state.total + observed + int(self.noise.draw(1, rng)[0])
        return ToyState(state.steps + 1, total), total

    def describe(self) -> str:
        return f"a running total with discrete Laplace noise of scale {self.noise.scale}"


@dataclass(frozen=True, slots=True, eq=False)
class ToyCertificate(Value):
    """Nothing to re-check."""

    kind = "toy-certificate"

    @property
    def theorem(self) -> str:
        return "a theorem made up for tests"

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("that this is a test",)


TOY_KINDS = {
    **KINDS,
    "toy-state": ToyState,
    "toy-machine": ToyMachine,
    "toy-certificate": ToyCertificate,
}


def stream_plan() -> Plan:
    """A plan whose body is a machine."""
    return Plan(
        mechanism="toy",
        task=TASK,
        body=ToyMachine(LatticeLaplace(scale=Fraction(3), step=Fraction(1))),
        cost=1.0,
        guarantee=Guarantee(notion="policy", amount=Fraction(1), over="each step"),
        certificate=ToyCertificate(),
        composition=(PerStep(Fraction(1)),),
    )


@dataclass
class RecordingLedger(Settling):
    """Writes down what happens, in order; takes at most `limit` charges."""

    limit: int = 10
    events: list[str] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    stored: dict[str, Release] = field(default_factory=dict)

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        if charge.key is not None and charge.key in self.stored:
            self.events.append("returned")
            return self.stored[charge.key]
        if len(self.charges) >= self.limit:
            raise OverBudget("over", spent=str(self.limit), requested="1", limit=str(self.limit))
        self.charges.append(charge)
        self.events.append("charged")
        release = sample()
        self.events.append("sampled")
        self.stored[charge.key or str(len(self.stored))] = release
        return release


@dataclass(frozen=True)
class WatchedRng:
    """Randomness that reports when it is asked, and claims to be the system's."""

    inner: Rng
    events: list[str]
    secure: bool = True

    def words(self, count: int) -> Any:
        self.events.append("drew")
        return self.inner.words(count)
