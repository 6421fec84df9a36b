"""What is asked of a stream of places: a measurement of each state, and secrets about events."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np

from shoal.core.charge import Guarantee
from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import Number, common_step, exact, positive, significant, whole
from shoal.core.records import Sequences, checked_states, label, sequences
from shoal.core.task import Model
from shoal.events.automaton import PathLaw, law_of
from shoal.events.event import AtLeast, InOrder, Stay, TimeEvent
from shoal.events.secrets import Events
from shoal.events.window import SlotClock
from shoal.geometry.span import POINT_LIMIT
from shoal.noise.primitives import snap
from shoal.places.walk import SparseChain

Estimate = Literal["squared", "absolute"]
ESTIMATES: tuple[Estimate, ...] = ("squared", "absolute")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement(Value):
    """f: state → R^d on a public lattice: f(state i) = points[i]·step, exactly.

    In a stream it is asked at every step of the state one is in; of a sequence that is released
    once, of its last entry. The table is public, so its rounding to the lattice (`of`) is done
    once, before anything is released, and the sensitivity is that of the rounded answers.
    `estimate` says which expected error the best estimate of a stream minimises: "squared" (it is
    then a mean) or "absolute" (a median).
    Xiao & Xiong 2016, Section 3.3 and Example 3.2.
    """

    kind = "measurement"

    states: tuple[str, ...]
    labels: tuple[str, ...]
    points: Ints
    step: Fraction
    unit: str
    estimate: Estimate = "squared"

    def __post_init__(self) -> None:
        """Refuse points that are not one row of whole lattice steps per state, or that are too
        large.

        Also refuses an unknown kind of estimate, and a measurement without labels.
        """
        states = checked_states(self.states)
        points = np.asarray(self.points)
        if points.dtype.kind not in "iu" or points.shape != (len(states), len(self.labels)):
            raise InputError(
                f"points has shape {points.shape}; {len(states)} states with {len(self.labels)} "
                "numbers each need a row of whole lattice steps per state"
            )
        if self.estimate not in ESTIMATES:
            raise InputError(f"estimate is {self.estimate!r}; it must be one of {list(ESTIMATES)}")
        if not self.labels:
            raise InputError("labels is empty; a measurement needs at least one number")
        if np.abs(points).max() > POINT_LIMIT:
            raise InputError(
                f"points reach {np.abs(points).max()} lattice steps; at most {POINT_LIMIT} are "
                "handled: use a coarser step"
            )
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "points", as_read_only(points, np.int64))
        object.__setattr__(self, "step", positive(self.step, "step"))

    @property
    def lattice(self) -> Fraction:
        return self.step

    @property
    def dimension(self) -> int:
        """d: how many numbers one answer has."""
        return len(self.labels)

    @property
    def lipschitz(self) -> Fraction:
        """max over pairs of states of the l1 distance between their answers."""
        return self.step * _widest_l1(self.points)

    @property
    def values(self) -> Floats:
        """The answers as floats, one row per state: for estimates and plots, never for noise."""
        return np.asarray(self.points * float(self.step))

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states; the last entry of the last chain is measured."""
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """f of the last entry, in lattice steps."""
        last = next(chain for chain in reversed(records.chains) if len(chain))
        return tuple(int(value) for value in self.points[int(last[-1])])

    def describe(self) -> str:
        return (
            f"{' and '.join(self.labels)} of the current state, in {self.unit} "
            f"(multiples of {self.step})"
        )


def measurement(
    states: Sequence[Any],
    values: Mapping[Any, Sequence[Number]] | Sequence[Sequence[Number]],
    *,
    labels: Sequence[str] = (),
    step: Number | None = None,
    unit: str = "units",
    estimate: Estimate = "squared",
) -> Measurement:
    """f from a row of numbers per state, in the order of `states` or by name.

    Without `step` the lattice is the coarsest that holds every value; with it values are rounded
    to its multiples, once and publicly (to the nearest, ties to even).
    """
    names = tuple(label(state) for state in states)
    rows = _value_rows(names, values)
    width = len(rows[0]) if rows else 0
    titles = tuple(labels) or tuple(f"f{axis + 1}" for axis in range(width))
    if any(len(row) != len(titles) for row in rows):
        raise InputError(f"values must give each state {len(titles)} numbers, one per label")
    numbers = [
        [exact(v, f"value of {n!r}") for v in row] for n, row in zip(names, rows, strict=True)
    ]
    chosen = (
        common_step(v for row in numbers for v in row) if step is None else positive(step, "step")
    )
    points = np.array([snap(row, chosen) for row in numbers], dtype=object)
    if np.abs(points).max(initial=0) > POINT_LIMIT:
        raise InputError(
            f"values need {np.abs(points).max()} steps of {chosen}; give a coarser step, at most "
            f"{POINT_LIMIT} are handled"
        )
    return Measurement(
        states=names,
        labels=titles,
        points=points.astype(np.int64),
        step=chosen,
        unit=unit,
        estimate=estimate,
    )


def coordinates(
    model: SparseChain, *, parts: int = 1, estimate: Estimate = "squared"
) -> Measurement:
    """Where the current cell of a map lies, in km east and north of its first cell.

    `parts` lattice steps fill the width of a cell: noise is drawn on that lattice.
    """
    if model.grid is None or model.cells is None:
        raise InputError("the model has no grid; give each state its numbers with measurement()")
    fine = whole(parts, "parts")
    return Measurement(
        states=model.states,
        labels=("east", "north"),
        points=model.grid.lattice_of(model.cells) * fine,
        step=model.grid.step_km / fine,
        unit="km",
        estimate=estimate,
    )


def _value_rows(names: tuple[str, ...], values: Any) -> list[Sequence[Number]]:
    """Return the rows of numbers in the order of `names`, from a mapping or a sequence.

    Refused when a state is missing or unknown.
    """
    if not isinstance(values, Mapping):
        rows = list(values)
        if len(rows) != len(names):
            raise InputError(f"values has {len(rows)} rows for {len(names)} states; give each one")
        return rows
    table = {label(key): row for key, row in values.items()}
    missing = [name for name in names if name not in table]
    unknown = [name for name in table if name not in names]
    if missing or unknown:
        name = (missing or unknown)[0]
        raise InputError(f"values must name every state once and no other; look at {name!r}")
    return [table[name] for name in names]


def _widest_l1(points: Ints) -> int:
    """max |p - q|_1: over the 2^(d-1) sign patterns, the widest extent."""
    widest = 0
    for pattern in range(2 ** (points.shape[1] - 1)):
        signs = [1 - 2 * ((pattern >> axis) & 1) for axis in range(points.shape[1])]
        heights = points @ np.array(signs, dtype=np.int64)
        widest = max(widest, int(heights.max() - heights.min()))
    return widest


# The best answer to show, given a belief: post-processing, so it costs no privacy.


WEISZFELD_ROUNDS = 50  # of Weiszfeld's iteration
MEDIAN_CLOSE = 1e-9  # relative step after which it stops


def remap_answer(belief: Floats, values: Floats, error: Estimate) -> tuple[Floats, float]:
    """The answer of least expected error under `belief`, and √E|f(s) - answer|².

    Squared error: the mean Σ p(s) f(s). Absolute error E|f(s) - answer|: the geometric median.
    `values` (n, d) are the answers of the states; `belief` sums to 1.
    """
    answer = belief @ values
    if error == "absolute":
        answer = _median(belief, values, answer)
    squares = ((values - answer) ** 2).sum(axis=1)
    return answer, math.sqrt(max(float(belief @ squares), 0.0))


def _median(belief: Floats, values: Floats, start: Floats) -> Floats:
    """argmin over a of Σ p(s) |f(s) - a|: Weiszfeld's iteration, stopped at a state when best.

    A state is the median when the pull of all others, |Σ p(r) (f(r) - f(s))/|f(r) - f(s)||, is at
    most its own mass; so the most probable state's answer is tried first.
    """
    top = values[int(belief.argmax())]
    offsets = values - top
    away = np.sqrt((offsets**2).sum(axis=1))
    at = away == 0
    pull = (belief[~at, None] * offsets[~at] / away[~at, None]).sum(axis=0)
    if math.sqrt(float(pull @ pull)) <= float(belief[at].sum()):
        return np.array(top)
    answer, scale = start, float(away.max())
    for _ in range(WEISZFELD_ROUNDS):
        distance = np.maximum(np.sqrt(((values - answer) ** 2).sum(axis=1)), 1e-12 * scale)
        weights = belief / distance
        moved: Floats = weights @ values / weights.sum()
        if np.abs(moved - answer).max() <= MEDIAN_CLOSE * scale:
            return moved
        answer = moved
    return answer


# What a stream promises about events, beside what each step promises about states.


# of the plan's ε; finer lists help little: a step between two of these loses a fifth of its ε
SHARES_TRIED = tuple(Fraction(k, 100) for k in (100, 80, 64, 50, 40, 30, 20, 12, 6, 3))


@dataclass(frozen=True, slots=True, eq=False)
class EventWatch(Value):
    """What a stream promises about events: log-odds move by at most `amounts`, one for each pair.

    `epsilons` are tried in their order (none: shares of the plan's ε), `slots` is how many slots
    the events are about (None: as many as the model or their windows have), the clock (minutes of a
    slot, minute of the week at which slot 0 begins) is for windows by the clock. `start` is a first
    public state.
    """

    kind = "event-watch"

    events: Events
    amounts: tuple[Fraction, ...]
    epsilons: tuple[Fraction, ...] = ()
    slots: int | None = None
    slot_minutes: int = 0
    start_minute: int = 0
    start: int | None = None

    @classmethod
    def of(
        cls,
        events: Events,
        event_epsilon: Number | Sequence[Number],
        *,
        epsilons: Sequence[Number] = (),
        slots: int | None = None,
        slot_minutes: int = 0,
        start_minute: int = 0,
    ) -> Self:
        """The watch over `events`: one amount for all pairs, or one for each."""
        if not isinstance(events, Events):
            raise InputError(f"events is a {type(events).__name__}; give shoal.Events.of(...)")
        return cls(
            events,
            _amounts(events, event_epsilon),
            tuple(positive(each, "epsilons") for each in epsilons),
            None if slots is None else whole(slots, "slots"),
            whole(slot_minutes, "slot_minutes", least=0),
            whole(start_minute, "start_minute", least=0),
        )

    def held_to(self, event_epsilon: Number | Sequence[Number]) -> EventWatch:
        """The same watch with other amounts."""
        return replace(self, amounts=_amounts(self.events, event_epsilon))

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        """What holds about each pair of events, for all outputs of the stream together."""
        model = "for an adversary who knows the chain, the policy and the list of epsilons"
        return tuple(
            Guarantee(notion="pufferfish", amount=each, over=f"{Events((pair,)).subject}, {model}")
            for each, pair in zip(self.amounts, self.events.pairs, strict=True)
        )

    def levels_to_try(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """What a step may take, in the order in which it is tried, under a plan of `epsilon`."""
        found = self.epsilons or tuple(epsilon * share for share in SHARES_TRIED)
        if list(found) != sorted(found, reverse=True) or found[0] > epsilon:
            raise InputError(
                f"epsilons is {[float(each) for each in found]}; they must descend from at most "
                f"the plan's epsilon of {float(epsilon):g}"
            )
        return found

    def law(self, model: Model) -> PathLaw:
        """The law of the path that the events are about, from its known start if there is one."""
        own: int | None = getattr(model, "slots", None) or getattr(model, "length", None)
        length = self.slots or own or _horizon(self.events)
        law = law_of(model, length=length)
        if self.start is not None:
            first = np.zeros(len(law.states))
            first[self.start] = 1.0
            law = replace(law, initial=first)
        if self.slot_minutes:
            law = replace(law, clock=SlotClock(self.slot_minutes, self.start_minute))
        return law

    def check(self, model: Model) -> None:
        """Refuses a model whose path the events are not about, or that already decides them."""
        _possible(self, model)

    def describe(self) -> str:
        """The events with their amounts, for sentences about a policy."""
        each = zip(self.events.pairs, self.amounts, strict=True)
        words = [f"{Events((p,)).describe()} (epsilon = {significant(a)})" for p, a in each]
        return "; ".join(words)


def _amounts(events: Events, event_epsilon: Number | Sequence[Number]) -> tuple[Fraction, ...]:
    """Return one exact epsilon per event: the same for all, or one each; refuse another number."""
    several = isinstance(event_epsilon, Sequence) and not isinstance(event_epsilon, str)
    given: Any = event_epsilon if several else [event_epsilon] * len(events.pairs)
    if len(given) != len(events.pairs):
        raise InputError(
            f"event_epsilon holds {len(given)} amounts for {len(events.pairs)} events; give "
            "one, or one for each"
        )
    return tuple(positive(each, "event_epsilon") for each in given)


@lru_cache(maxsize=32)
def _possible(watch: EventWatch, model: Model) -> None:
    """As `EventWatch.check`; a ledger asks at every charge."""
    if getattr(model, "order", 1) > 1:
        raise InputError("the chain has a longer memory; events are followed on chains of order 1")
    law = watch.law(model)
    watch.events.check_possible(law, watch.events.compiled(law))


def _horizon(events: Events) -> int:
    """The slots that all windows fit into; refused when one of them is open or by the clock."""

    def last(event: TimeEvent) -> int:
        """Return the number of slots up to the end of the event; refused when it has no last
        slot.
        """
        if event.parts():
            return max(map(last, event.parts()))
        between = event.between if isinstance(event, AtLeast | Stay | InOrder) else None
        if between is None or isinstance(between[1], str):
            raise InputError(
                f"the event '{event.describe()}' has no last slot, and neither has the model; "
                "give slots=, or between=(first, last)"
            )
        return between[1] + 1

    return max(map(last, events.all_events()))
