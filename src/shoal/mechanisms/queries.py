"""Queries that add up one contribution per entry: counts, weighted sums, means, histograms."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Rational
from typing import Any, NamedTuple, NoReturn, SupportsIndex

import numpy as np

from shoal.core.charge import Charge, Ledger, Part, Rng, source_for
from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, common_step, exact, whole
from shoal.core.plan import Additive, Answer, Noise, Plan, Release, Stream
from shoal.core.records import Sequences, checked_states, label, sequences
from shoal.core.registry import load
from shoal.core.stream import Price, Slot, Step, run_batch
from shoal.core.task import Model, Query

SUMS_ONLY = "the exact loss is computed for sums over entries only"


class LatticeWeights(NamedTuple):
    """Weights in units of their lattice, and the largest l1 distance between two rows."""

    step: Fraction
    multiples: tuple[tuple[int, ...], ...]
    lipschitz: Fraction

    @classmethod
    def of(cls, weights: Sequence[Sequence[Fraction]]) -> LatticeWeights:
        """Exact: sums that might pass what an int64 holds are of Python's own integers."""
        distinct = {weight for row in weights for weight in row}
        step = common_step(distinct)
        steps = {weight: int(weight / step) for weight in distinct}
        rows = tuple(tuple(steps[weight] for weight in row) for row in weights)
        most = max((abs(whole) for whole in steps.values()), default=0)
        wide = most * 2 * max(map(len, rows), default=1) >= 2**52
        gaps = np.zeros((len(rows), len(rows)), dtype=object if wide else np.int64)
        for column in zip(*rows, strict=True):
            values = np.array(column, dtype=gaps.dtype)
            gaps += np.abs(values[:, None] - values[None, :])
        return cls(step, rows, step * int(gaps.max(initial=0)))


class Weighed(Value):
    """A value that keeps what follows from its weights."""

    __slots__ = ("_weighed",)
    _weighed: LatticeWeights
    weights: tuple[tuple[Fraction, ...], ...]

    @property
    def lattice_weights(self) -> LatticeWeights:
        """The weights as integers on their common lattice, computed when first asked for."""
        try:
            return self._weighed
        except AttributeError:
            found = LatticeWeights.of(self.weights)
            object.__setattr__(self, "_weighed", found)
            return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearQuery(Weighed):
    """F = Σ over entries of weights[value of the entry], one row of `weights` per state.

    Exact: weights are rationals, so every answer is an integer multiple of `lattice`. `length` is
    the public number of entries a mean or a relative histogram divides by (already inside the
    weights); data with more entries is refused, and a release of data with fewer is divided by
    their number, which is public too (`Release.over`).
    """

    kind = "linear-query"

    name: str
    states: tuple[str, ...]
    labels: tuple[str, ...]
    weights: tuple[tuple[Fraction, ...], ...]
    unit: str
    length: int | None = None

    def __post_init__(self) -> None:
        """Refuse weights that are not exact rationals with one row per state and one number per
        label.

        Weights that are alike for all states are refused too: the answer would not depend on the
        data.
        """
        object.__setattr__(self, "states", checked_states(self.states))
        if self.length is not None:
            object.__setattr__(self, "length", whole(self.length, "length"))
        if len(self.weights) != len(self.states):
            raise InputError(
                f"weights has {len(self.weights)} rows for {len(self.states)} states; "
                "give each state its row"
            )
        if any(len(row) != len(self.labels) for row in self.weights):
            raise InputError(f"each row of weights needs {len(self.labels)} numbers, one per label")
        if not all(isinstance(weight, Rational) for row in self.weights for weight in row):
            raise InputError("weights must be exact rationals; pass floats through weighted_sum")
        if self.lipschitz == 0:
            raise InputError(
                "all states have the same weight, so the answer does not depend on the data; "
                "publish it as it is"
            )

    @property
    def lipschitz(self) -> Fraction:
        """max over pairs of states of the l1 distance between their weights."""
        return self.lattice_weights.lipschitz

    @property
    def lattice(self) -> Fraction:
        return self.lattice_weights.step

    def multiples(self) -> tuple[tuple[int, ...], ...]:
        """The weights as integers, in units of `lattice`."""
        return self.lattice_weights.multiples

    @property
    def wide(self) -> bool:
        """Whether sums of the weights, in lattice steps, may pass what a double holds exactly."""
        most = max(abs(weight) for row in self.multiples() for weight in row)
        return most * 2 * len(self.labels) >= 2**52

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states; refused when longer than the public length."""
        records = sequences(data, self.states)
        if self.length is not None and records.total > self.length:
            raise DataError(
                f"the data holds more entries than length {self.length}, the public number the "
                f"{self.name} divides by; raise length or release a part"
            )
        return records

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The true answer in multiples of `lattice`, in exact integers."""
        counts = [int(count) for count in records.counts()]
        rows = self.multiples()
        return tuple(
            sum(count * row[axis] for count, row in zip(counts, rows, strict=True))
            for axis in range(len(self.labels))
        )

    def describe(self) -> str:
        """Return in words what is asked, its unit, and how far one entry can move the answer."""
        what = {
            "count": f"how many entries are {_either(self.labels)}",
            "histogram": f"how often each of {len(self.labels)} states occurs",
            "sum": "the sum of a weight per entry",
            "mean": "the mean of a weight per entry",
        }.get(self.name, f"{self.name}, a sum of one contribution per entry")
        share = "over" if self.name == "mean" else "as a share of"
        of = "" if self.length is None else f", {share} {self.length} entries"
        return f"{what}{of} (in {self.unit}; one entry moves it by at most {self.lipschitz})"


def linear(query: Query | None) -> LinearQuery | None:
    """`query` where it is a sum of one contribution per entry; None for any other."""
    return query if isinstance(query, LinearQuery) else None


def too_far(reach: int, query: Query) -> str:
    """Why a sum that one entry moves by so many steps is not followed."""
    return (
        f"the exact loss is computed on the lattice of the weights, whose range is {reach:,} "
        f"steps of {query.lattice}, more than its laws can have; give weights with fewer digits, "
        "or use lift"
    )


def count(states: Sequence[Any], which: Any, *, unit: str = "entries") -> LinearQuery:
    """How many entries are in one of the states `which` (a label, or several)."""
    names = _state_labels(states)
    several = isinstance(which, Sequence | set | frozenset) and not isinstance(which, str)
    chosen = [label(w) for w in which] if several else [label(which)]
    _refuse_unknown_states(chosen, names)
    weights = tuple((Fraction(int(name in chosen)),) for name in names)
    title = " or ".join(name for name in names if name in chosen)
    return LinearQuery(name="count", states=names, labels=(title,), weights=weights, unit=unit)


def weighted_sum(
    states: Sequence[Any], weights: Mapping[Any, Number] | None = None, *, unit: str = "units"
) -> LinearQuery:
    """Σ of a weight per entry; states without a weight count 0.

    Without `weights` states that are numbers stand for themselves and bins for their middles.
    """
    names = _state_labels(states)
    table = _exact_weights(weights, names)
    rows = tuple((table.get(name, Fraction(0)),) for name in names)
    return LinearQuery(name="sum", states=names, labels=("sum",), weights=rows, unit=unit)


def mean(
    states: Sequence[Any],
    weights: Mapping[Any, Number] | None = None,
    *,
    length: int,
    unit: str = "units",
) -> LinearQuery:
    """The mean weight over `length` entries, a public number; weights are those of a sum."""
    total = whole(length, "length")
    names = _state_labels(states)
    table = _exact_weights(weights, names)
    rows = tuple((table.get(name, Fraction(0)) / total,) for name in names)
    return LinearQuery(
        name="mean", states=names, labels=("mean",), weights=rows, unit=unit, length=total
    )


def histogram(
    states: Sequence[Any],
    *,
    relative: bool = False,
    length: int | None = None,
    unit: str | None = None,
) -> LinearQuery:
    """How often each state occurs; with `relative`, as a share of `length` entries."""
    names = _state_labels(states)
    if relative and length is None:
        raise InputError("a relative histogram needs length, the public number of entries")
    if not relative and length is not None:
        raise InputError("length is given, but the histogram is not relative; set relative=True")
    share = Fraction(1) if length is None else Fraction(1, whole(length, "length"))
    rows = tuple(
        tuple(share if row == column else Fraction(0) for column in range(len(names)))
        for row in range(len(names))
    )
    return LinearQuery(
        name="histogram",
        states=names,
        labels=names,
        weights=rows,
        unit=unit or ("share of entries" if relative else "entries"),
        length=length,
    )


def _either(labels: tuple[str, ...]) -> str:
    return " or ".join(f"'{name}'" for name in labels[0].split(" or "))


def _state_labels(states: Sequence[Any]) -> tuple[str, ...]:
    """Return the labels of the states in their order; a mapping, such as one of weights, is
    refused.
    """
    if isinstance(states, Mapping):  # of weights: its keys would be taken for numbers
        raise InputError(
            f"states is {states!r}; it must be the states in their order, such as model.states "
            "(weights come after them, as an argument of their own)"
        )
    return tuple(label(state) for state in states)


def _refuse_unknown_states(chosen: Sequence[str], names: tuple[str, ...]) -> None:
    if not chosen:
        raise InputError("the query names no state; name at least one")
    for name in chosen:
        if name not in names:
            raise InputError(f"the query names state {name!r}; the states are {list(names)}")


def _exact_weights(
    weights: Mapping[Any, Number] | None, names: tuple[str, ...]
) -> dict[str, Fraction]:
    """Return label to exact weight; refused when a label is no state.

    Without weights every state gets its stand-in number.
    """
    if weights is None:
        found: dict[str, Fraction] = load("shoal.data.rows:stand_ins")(names)
        return found
    table = {label(k): exact(v, f"weight of {label(k)!r}") for k, v in weights.items()}
    _refuse_unknown_states(list(table), names)
    return table


# A query that lives inside an external mechanism.


@dataclass(frozen=True, slots=True, eq=False)
class ExternalQuery(Value):
    """What an attached mechanism answers about sequences of `states`.

    Its sensitivity and its lattice are inside the mechanism, so only the mechanism's own
    entry-level eta is known.
    """

    kind = "external-query"

    name: str
    states: tuple[str, ...]
    unit: str = "as the mechanism gives it"

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def lattice(self) -> Fraction:
        self._inside("lattice")

    @property
    def lipschitz(self) -> Fraction:
        self._inside("sensitivity")

    def describe(self) -> str:
        return f"{self.name}, computed inside an external mechanism"

    def read(self, data: Any) -> Sequences:
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        self._inside("true answer")

    def _inside(self, what: str) -> NoReturn:
        raise InputError(
            f"the {what} of {self.name} is inside its mechanism; noise cannot be added to it again"
        )


# Post-processing that is free: functions of a release alone, so no privacy is spent.
#
# Each takes a release and returns one with the name of what was done added to `processed`.


def non_negative(release: Release) -> Release:
    """The release with negative values raised to 0."""
    return release.after("non-negative", tuple(max(v, Fraction(0)) for v in release.answer.exact))


def clipped(release: Release, most: Number, least: Number = 0) -> Release:
    """The release with each value moved into the public range from `least` to `most`.

    A count over at most n entries lies between 0 and n, so no value comes farther from the truth.
    Means of clipped values are biased: clip what is shown, not what is averaged.
    """
    low, high = exact(least, "least"), exact(most, "most")
    if low > high:
        raise InputError(f"least is {least} and most is {most}; give the smaller number as least")
    values = tuple(min(max(value, low), high) for value in release.answer.exact)
    return release.after("clipped", values)


def consistent(release: Release, total: int) -> Release:
    """Whole, non-negative counts that add up to the public `total`, closest to the release.

    The projection onto the simplex of that size, then rounded by largest remainder.
    """
    total = whole(total, "total", least=0)
    projected = project(release.answer.exact, Fraction(total))
    floors = [value.numerator // value.denominator for value in projected]
    left = total - sum(floors)
    by_remainder = sorted(range(len(projected)), key=lambda i: (floors[i] - projected[i], i))
    counts = [floor + (i in by_remainder[:left]) for i, floor in enumerate(floors)]
    return release.after("consistent", tuple(Fraction(count) for count in counts))


def simplex(release: Release, total: Number = 1) -> Release:
    """Non-negative values that add up to `total`, closest to the release in squared distance."""
    return release.after("simplex", project(release.answer.exact, exact(total, "total")))


def project(values: tuple[Fraction, ...], total: Fraction) -> tuple[Fraction, ...]:
    """The point of {v ≥ 0, Σv = total} nearest to `values`, in exact rationals.

    v_i = max(values_i - shift, 0), the shift found by keeping the largest j values for the largest
    j at which all kept ones stay positive.
    """
    if total < 0:
        raise InputError(f"total is {total}; it must not be negative")
    running, shift = Fraction(0), Fraction(0)
    for kept, value in enumerate(sorted(values, reverse=True), start=1):
        running += value
        candidate = (running - total) / kept
        if kept == 1 or value > candidate:
            shift = candidate
    return tuple(max(value - shift, Fraction(0)) for value in values)


# Counts that go on: a sum for every so many entries of a series, released as they come.
#
# Every entry is in one step, so all steps together are one question that an entry moves no further
# than one of them, and the promise of a plan is about the whole series. Proof: running.md.


@dataclass(frozen=True, slots=True, eq=False)
class InSteps(Value):
    """The answer of `query` for each `every` entries of a series, one after the other.

    F(x) = (query(x_1 … x_k), query(x_{k+1} … x_{2k}), …) with k = every. One entry moves one of
    these answers, so the sensitivity of all is that of one. `labels` are those of one step.
    """

    kind = "in-steps"

    query: LinearQuery
    every: int

    def __post_init__(self) -> None:
        """Refuse `every` below 2, and queries other than counts and sums without a public
        length.
        """
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

    kind = "running-state"

    first: int
    over: int
    read: int
    sums: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Running(Additive):
    """The noisy answer of every step, when its last entry is over; a machine and a sampler."""

    kind = "running"

    query: InSteps

    def begin(self, plan: Plan, first: int = 0) -> RunningStream:
        """Return the stream of `plan` before the entry of that number."""
        return RunningStream.begin(plan, first)

    def init(self, first: int = 0) -> RunningState:
        """Before the entry of that number in the series."""
        return RunningState(first, 0, 0, (0,) * len(self.query.labels))

    def step(
        self, state: RunningState, observed: Any, rng: Rng
    ) -> tuple[RunningState, Answer | None]:
        """Return the state after an entry and, where it ends a step, the noisy answer.

        `observed` is None for an entry that was not read, which adds nothing. That it was not must
        not depend on the series, given what was released before.
        """
        after = self.count(state, observed)
        if after.over < self.query.every:
            return after, None
        answer = self._noisy(after.sums, self.query.labels, rng)
        return self.init(after.first + after.over), replace(answer, entries=after.read)

    def count(self, state: RunningState, observed: Any) -> RunningState:
        """Return the open step with one more entry, None for one that was not read."""
        if observed is None:
            return replace(state, over=state.over + 1)
        row = self.query.query.multiples()[self.state_of(observed)]
        sums = tuple(a + b for a, b in zip(state.sums, row, strict=True))
        return replace(state, over=state.over + 1, read=state.read + 1, sums=sums)

    def state_of(self, observed: Any) -> int:
        """Return the index of the state an entry has; refused when the model has no such state."""
        states = self.query.states
        if label(observed) not in states:
            raise InputError("an entry is no state of the model; give one of its states, or None")
        return states.index(label(observed))

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

    kind = "running-stream"

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
        source = source_for(ledger, rng)
        if observed is not None:
            running(self.plan).state_of(observed)  # refused before anything is charged
        slot = Slot(subject=subject, period=period, requester=requester)
        (result,) = run_batch([Step(self, slot, observed)], ledger, source)
        return result.after(), result.output.release

    def price(self, slot: Slot) -> Price:
        """Return the price of the next entry: only the last one of a step costs something."""
        first, every = self.state.first, running(self.plan).query.every
        if not slot.read or self.state.over + 1 < every or not slot.subject:
            return Price(slot, None)
        span, plan = (first, first + every), self.plan
        key = json.dumps([slot.subject, slot.period, plan.fingerprint, *span], ensure_ascii=False)
        charge = Charge(
            plan=plan,
            subject=slot.subject,
            period=slot.period,
            requester=slot.requester,
            key=key,
            part=Part(span=span, covers=slot.covers),
        )
        return Price(slot, charge)

    def draw(self, price: Price, reading: Any, rng: Rng) -> RunningOutput:
        """Return the step with one more entry, and its noisy sums where that is the last one.

        A step whose last entry is publicly known to be skipped is dropped without a release.
        """
        body = running(self.plan)
        if not price.slot.read and self.state.over + 1 == body.query.every:
            return RunningOutput(body.init(self.state.first + body.query.every), None)
        state, answer = body.step(self.state, reading, rng)
        shown = None if answer is None else self.plan.released(answer, secure=rng.secure)
        return RunningOutput(state, shown)

    def absorb(self, price: Price, output: RunningOutput) -> RunningStream:
        """Return the stream after an entry."""
        return replace(self, state=output.state)

    def to_release(self, price: Price, output: RunningOutput) -> Release:
        """Return the release as a ledger stores it: how many entries were read is not in it."""
        assert output.release is not None  # only steps that end are charged
        answer = replace(output.release.answer, entries=None)
        return self.plan.released(answer, secure=output.release.secure)

    def resume(self, price: Price, reading: Any, stored: Release, rng: Rng) -> RunningOutput:
        """Return the stored sums of a step, with how many entries this stream has read of it."""
        body = running(self.plan)
        after = body.count(self.state, reading)
        answer = replace(stored.answer, entries=after.read)
        state = body.init(after.first + after.over)
        return RunningOutput(state, self.plan.released(answer, secure=True))


class RunningOutput(NamedTuple):
    """The open step after an entry, which is private, and the release of one that ended."""

    state: RunningState
    release: Release | None


def running(plan: Plan) -> Running:
    """What a plan of a series in steps draws with."""
    if not isinstance(plan.body, Running):
        raise InputError(f"{plan.mechanism} has no steps; ask for shoal.mechanisms.in_steps(query)")
    return plan.body
