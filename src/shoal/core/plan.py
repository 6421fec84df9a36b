"""A plan: calibrated once without data, released from many times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shoal.core.composition import Composition
from shoal.core.errors import InputError
from shoal.core.explain import explain
from shoal.core.guarantee import Guarantee
from shoal.core.ledger import Charge, Ledger
from shoal.core.release import Answer, Error, Release
from shoal.core.rng import Rng, SystemRng
from shoal.core.task import Task
from shoal.core.value import Value

CONFIDENCE = 0.95


@runtime_checkable
class Sampler(Protocol):
    """Turns records into an answer, once per release."""

    def draw(self, records: Any, rng: Rng) -> Answer: ...
    def error(self, confidence: float) -> Error | None: ...
    def describe(self) -> str: ...


@runtime_checkable
class Machine(Protocol):
    """Turns a stream of observations into a stream of answers; states are frozen values."""

    def init(self) -> Any: ...
    def step(self, state: Any, observed: Any, rng: Rng) -> tuple[Any, Any]: ...
    def describe(self) -> str: ...


@runtime_checkable
class Certificate(Protocol):
    """Why the promise holds: one frozen class per mechanism, its fields the numbers to re-check."""

    @property
    def theorem(self) -> str: ...
    @property
    def assumptions(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan(Value):
    """A mechanism calibrated for a task: deterministic, frozen, made without any data.

    `cost` is what "best" minimises: the expected l1 error of one answer in the query's unit;
    for suppression, minus the expected number of releases.
    """

    mechanism: str
    task: Task
    body: Sampler | Machine
    cost: float
    guarantee: Guarantee
    certificate: Certificate
    composition: tuple[Composition, ...]

    def error(self, confidence: float = CONFIDENCE) -> Error | None:
        """How far one released value may be off; None when the sampler cannot say."""
        return self.body.error(confidence) if isinstance(self.body, Sampler) else None

    def release(
        self,
        data: Any,
        *,
        ledger: Ledger | None = None,
        subject: str = "",
        period: str = "",
        requester: str = "",
        key: str | None = None,
        rng: Rng | None = None,
    ) -> Release:
        """One release of `data`. With a ledger: charged first, then drawn, in one transaction."""
        if not isinstance(self.body, Sampler):
            raise InputError(f"{self.mechanism} is a stream plan; use plan.start()")
        source = rng if rng is not None else SystemRng()
        records = self.task.read(data)
        if ledger is None:
            return self._draw(records, source)
        if not source.secure:
            raise InputError("rng is seeded; a ledger takes only releases of system randomness")
        if not subject:
            raise InputError("subject is empty; a ledger needs to know whose data is released")
        charge = Charge(plan=self, subject=subject, period=period, requester=requester, key=key)
        return ledger.settle(charge, lambda: self._draw(records, source))

    def start(self) -> Stream:
        """The stream before its first step."""
        if not isinstance(self.body, Machine):
            raise InputError(f"{self.mechanism} makes single releases; use plan.release(data)")
        return Stream(self, self.body.init())

    def explain(self) -> str:
        """The plan in plain words."""
        return explain(self)

    def _draw(self, records: Any, rng: Rng) -> Release:
        assert isinstance(self.body, Sampler)  # `release` has checked it
        return Release(
            answer=self.body.draw(records, rng),
            plan=self.fingerprint,
            mechanism=self.mechanism,
            guarantee=self.guarantee,
            error=self.body.error(CONFIDENCE),
            secure=rng.secure,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Stream(Value):
    """A stream plan and where it stands; stepping returns the next stream, so it can be stored."""

    plan: Plan
    state: Any

    def step(self, observed: Any, *, rng: Rng | None = None) -> tuple[Stream, Any]:
        """The stream after `observed`, and what may be shown."""
        assert isinstance(self.plan.body, Machine)
        source = rng if rng is not None else SystemRng()
        state, shown = self.plan.body.step(self.state, observed, source)
        return Stream(self.plan, state), shown
