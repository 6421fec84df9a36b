"""Counts that go on: a sum for every so many entries of a series, released as they come.

Every entry is in one step, so all steps together are one question that an entry moves no further
than one of them, and the promise of a plan is about the whole series. Proof: running.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, SupportsIndex

from shoal.additive.queries import LinearQuery, linear
from shoal.core.charge import Charge, Ledger, Part, Rng, source_for
from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.plan import Additive, Answer, Noise, Plan, Release, Stream
from shoal.core.records import Sequences, label
from shoal.core.task import Model

Settle = Callable[[Callable[[], Answer]], Answer]  # what charges before it draws


@dataclass(frozen=True, slots=True, eq=False)
class InSteps(Value):
    """The answer of `query` for each `every` entries of a series, one after the other.

    F(x) = (query(x_1 … x_k), query(x_{k+1} … x_{2k}), …) with k = every. One entry moves one of
    these answers, so the sensitivity of all is that of one. `labels` are those of one step.
    """

    query: LinearQuery
    every: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "every", whole(self.every, "every", least=2))
        if linear(self.query) is None or self.query.length is not None:
            raise InputError(
                "query is no count, sum or histogram of counts; ask for one of these in steps, and "
                "divide what is released"
            )

    @property
    def states(self) -> tuple[str, ...]:
        return self.query.states

    @property
    def labels(self) -> tuple[str, ...]:
        return self.query.labels

    @property
    def unit(self) -> str:
        return self.query.unit

    @property
    def lattice(self) -> Fraction:
        return self.query.lattice

    @property
    def lipschitz(self) -> Fraction:
        return self.query.lipschitz

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse models that end: the promise of a stream is about all it will ever read."""
        for model in family:
            if getattr(model, "length", 0) is not None:
                raise InputError(
                    f"every is {self.every}, so the series goes on, and a model is "
                    f"{model.describe()}; give a chain without length"
                )

    def read(self, data: Any) -> Sequences:
        """`data` as one series that holds a whole step at least."""
        records = self.query.read(data)
        if len(records.chains) > 1 or records.total < self.every:
            raise DataError(
                f"the data holds {len(records.chains)} series, the longest of {records.longest} "
                f"entries; steps of {self.every} need one series with that many at least"
            )
        return records

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The answers of all whole steps, in multiples of `lattice`, one step after the other."""
        rows, chain = self.query.multiples(), records.chains[0]
        last = len(chain) - len(chain) % self.every
        steps = [chain[first : first + self.every] for first in range(0, last, self.every)]
        return tuple(
            sum(rows[int(entry)][axis] for entry in step)
            for step in steps
            for axis in range(len(self.labels))
        )

    def sampler(self, noise: Noise) -> Running:
        """What draws it: step by step."""
        return Running(self, noise)

    def describe(self) -> str:
        return f"for every {self.every} entries: {self.query.describe()}"


def in_steps(query: LinearQuery, every: SupportsIndex) -> InSteps:
    """`query` asked of each `every` entries of a series that goes on."""
    return InSteps(query, whole(every, "every", least=2))


@dataclass(frozen=True, slots=True, eq=False)
class RunningState(Value):
    """The open step: number of its first entry, how many are over, how many were read, their sums.

    As private as the entries themselves.
    """

    first: int
    over: int
    read: int
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Running(Additive):
    """The noisy answer of every step, when its last entry is over; a machine and a sampler."""

    query: InSteps

    def init(self, first: int = 0) -> RunningState:
        """Before the entry of that number in the series."""
        return RunningState(first, 0, 0, (0,) * len(self.query.labels))

    def step(
        self, state: RunningState, observed: Any, rng: Rng, settle: Settle | None = None
    ) -> tuple[RunningState, Answer | None]:
        """The state after an entry (None: it was not read), and the answer of a step that ended.

        An entry that was not read adds nothing. That it was not must not depend on the series,
        given what was released before.
        """
        after = self._with(state, observed)
        if after.over < self.query.every:
            return after, None

        def drawn() -> Answer:
            return self._noisy(after.sums, self.query.labels, rng)

        answer = drawn() if settle is None else settle(drawn)
        return self.init(after.first + after.over), replace(answer, entries=after.read)

    def _with(self, state: RunningState, observed: Any) -> RunningState:
        if observed is None:
            return replace(state, over=state.over + 1)
        states = self.query.states
        if label(observed) not in states:
            raise InputError("an entry is no state of the model; give one of its states, or None")
        row = self.query.query.multiples()[states.index(label(observed))]
        sums = tuple(a + b for a, b in zip(state.sums, row, strict=True))
        return replace(state, over=state.over + 1, read=state.read + 1, sums=sums)

    def draw(self, records: Sequences, rng: Rng) -> Answer:
        """The noisy answers of all whole steps of a series that is over."""
        truth, every = self.query.evaluate(records), self.query.every
        count = len(truth) // len(self.query.labels)
        names = tuple(
            f"{name} [{step * every}, {(step + 1) * every})"
            for step in range(count)
            for name in self.query.labels
        )
        return self._noisy(truth, names, rng)

    def _noisy(self, truth: Sequence[int], labels: tuple[str, ...], rng: Rng) -> Answer:
        ratio = int(self.query.lattice / self.noise.step)
        noise = self.noise.draw(len(truth), rng)
        multiples = tuple(ratio * t + int(z) for t, z in zip(truth, noise, strict=True))
        return Answer(labels, multiples, self.noise.step, self.query.unit)


@dataclass(frozen=True, slots=True, eq=False)
class RunningStream(Stream):
    """A series in steps, each charged as a part of it when it ends; reading gives the next stream.

    Entries are counted from `first` on, the same for all streams of one subject and period: a
    ledger knows by their numbers which of them were released before.
    """

    state: RunningState

    @classmethod
    def begin(cls, plan: Plan, first: int = 0) -> RunningStream:
        """The stream before the entry of that number."""
        return cls(plan, running(plan).init(whole(first, "first", least=0)))

    def read(
        self,
        observed: Any,
        *,
        rng: Rng | None = None,
        ledger: Ledger | None = None,
        subject: str = "",
        period: str = "",
        requester: str = "",
    ) -> tuple[RunningStream, Release | None]:
        """The stream after an entry (None: it was not read), and the release of a step that ended.

        With a ledger a step is charged before it is drawn, under a key made of its place: drawn
        again after a stop it gives what was stored.
        """
        source, plan = source_for(ledger, rng), self.plan

        def settle(draw: Callable[[], Answer]) -> Answer:
            if ledger is None:
                return draw()
            span = (self.state.first, self.state.first + running(plan).query.every)
            key = json.dumps([subject, period, plan.fingerprint, *span], ensure_ascii=False)
            who = {"subject": subject, "period": period, "requester": requester, "key": key}
            charge = Charge(plan=plan, part=Part(span=span), **who)  # type: ignore[arg-type]
            return ledger.settle(charge, lambda: plan.released(draw(), secure=True)).answer

        state, answer = running(plan).step(self.state, observed, source, settle)
        shown = None if answer is None else plan.released(answer, secure=source.secure)
        return replace(self, state=state), shown


def running(plan: Plan) -> Running:
    """What a plan of a series in steps draws with."""
    if not isinstance(plan.body, Running):
        raise InputError(f"{plan.mechanism} has no steps; ask for shoal.additive.in_steps(query)")
    return plan.body
