"""Events as layered automata over the path of a chain, and what the chain says of them.

An automaton has one state per kind of past that may still matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.events.event import AllOf, AnyOf, AtLeast, InOrder, NotOf, Stay, TimeEvent
from shoal.events.window import SlotClock, window

# automaton states of one layer; a slot of a mask then still fits into memory
MOST_AUTOMATON_STATES = 4096


@dataclass(frozen=True, slots=True)
class PathLaw:
    """X_0 … X_{length-1}: a first law, and the matrix from slot t to slot t + 1."""

    states: tuple[str, ...]
    initial: Floats
    matrix: Callable[[int], Any]  # (n, n), dense or sparse
    length: int
    clock: SlotClock | None = None


def law_of(model: Any, *, length: int | None = None) -> PathLaw:
    """The law of a model's path: of a chain, a day, or a sparse chain of places.

    `length` shortens a chain of one matrix, and is needed where the model leaves it open.
    """
    initial = getattr(model, "initial", None)
    if initial is None or not (hasattr(model, "transition") or hasattr(model, "matrix")):
        words = model.describe() if hasattr(model, "describe") else repr(model)
        raise InputError(f"events need a chain with a law of its first slot, not {words}")
    transition = getattr(model, "transition", None)
    slots = _slots(model, length)
    if transition is None:
        rows = model.matrix()
        return PathLaw(model.states, initial, lambda _: rows, slots)
    if transition.ndim == 2:
        return PathLaw(model.states, initial, lambda _: transition, slots)
    minutes = getattr(model, "slot_minutes", 0)
    clock = SlotClock(minutes, model.start_minute) if minutes else None
    return PathLaw(model.states, initial, lambda t: transition[t], slots, clock)


def _slots(model: Any, length: int | None) -> int:
    """Return the number of slots an event covers: `length`, or else the model's own length.

    Refuses a model without a length when none is given, and a length above the model's.
    """
    own: int | None = getattr(model, "slots", None) or getattr(model, "length", None)
    asked = own if length is None else whole(length, "length")
    if asked is None:
        raise InputError(
            f"the model is {model.describe()}; an event needs a length (give the chain one)"
        )
    if own is not None and asked > own:
        raise InputError(f"length is {asked}; the model covers at most {own} slots")
    return asked


@dataclass(frozen=True, slots=True)
class Automaton:
    """q_t = steps[t][q_{t-1}, x_t], from q = 0 before slot 0; event e holds iff accept[q_{T-1}, e].

    Layer 0 holds one state, layer t + 1 the states after slot t. Every state can be reached by
    some path, and no two of a layer have the same future of all events.
    """

    steps: tuple[Ints, ...]
    accept: Bools
    sizes: tuple[int, ...] = field(init=False)  # the states of each layer, length + 1 of them

    def __post_init__(self) -> None:
        sizes = (*(len(step) for step in self.steps), len(self.accept))
        object.__setattr__(self, "sizes", sizes)

    def follow(self, path: Sequence[int]) -> list[int]:
        """The states after each entry of `path`, which may be shorter than the whole."""
        found, q = [], 0
        for step, x in zip(self.steps, path, strict=False):
            q = int(step[q, x])
            found.append(q)
        return found

    def holds(self, path: Sequence[int]) -> Bools:
        """Which events happen on a whole path of state numbers."""
        return np.asarray(self.accept[self.follow(path)[-1]])


def compile_events(events: Sequence[TimeEvent], path: PathLaw) -> Automaton:
    """The least automaton that decides all of `events` on paths of these states and length."""
    for event in events:
        unknown = sorted(event.states() - set(path.states))
        if unknown:
            raise InputError(
                f"an event names {unknown[0]!r}; the states of the model are {list(path.states)}"
            )
    joint = _compiled(events[0], path)
    for event in events[1:]:
        joint = reduced(_product(joint, _compiled(event, path)))
    return joint


def reduced(automaton: Automaton) -> Automaton:
    """The same events with the states of each layer merged that have equal futures.

    States merge by the accept vector of all events, so that one automaton serves them all. Layers
    are gone through once, from the last.
    """
    rows, classes = _classes(automaton.accept)
    steps: list[Ints] = []
    known: dict[tuple[int, bytes], tuple[Ints, Ints]] = {}
    for step in reversed(automaton.steps):
        key = (id(step), classes.tobytes())
        if key not in known:
            known[key] = _classes(classes[step])
        merged, classes = known[key]
        steps.append(merged)
    return Automaton(tuple(reversed(steps)), np.asarray(rows, dtype=np.bool_))


def _classes(rows: Any) -> tuple[Any, Ints]:
    """The different rows, and which of them each row is."""
    if len(rows) == 1:
        return rows, np.zeros(1, dtype=np.int64)
    found, classes = np.unique(rows, axis=0, return_inverse=True)
    return found, np.asarray(classes.reshape(-1), dtype=np.int64)


def _compiled(event: TimeEvent, path: PathLaw) -> Automaton:
    """Return the reduced automaton of one event over the slots of `path`; refuse unknown events.

    Conjunctions and disjunctions are built from products of their parts, reduced after each.
    """
    match event:
        case NotOf(inner):
            plain = _compiled(inner, path)
            return Automaton(plain.steps, ~plain.accept)
        case AllOf(parts) | AnyOf(parts):
            merge = np.all if isinstance(event, AllOf) else np.any
            whole = _compiled(parts[0], path)
            for part in parts[1:]:
                both = _product(whole, _compiled(part, path))
                accept = merge(both.accept, axis=1, keepdims=True)
                whole = reduced(Automaton(both.steps, np.asarray(accept)))
            return whole
        case AtLeast(_, _, between) | Stay(_, _, between) | InOrder(_, between):
            inside, outside = _tables(event, path.states)
            within = window(between, path.length, path.clock)
            last = np.arange(len(inside)) == len(inside) - 1
            return reduced(_reachable([inside if t else outside for t in within], last[:, None]))
    raise InputError(f"{event!r} is not an event")


def _tables(event: AtLeast | Stay | InOrder, states: tuple[str, ...]) -> tuple[Ints, Ints]:
    """Where each (q, x) goes inside the window and outside it; the last state accepts and stays."""
    stages = event.stages if isinstance(event, InOrder) else (event.named,) * event.times
    if len(stages) >= MOST_AUTOMATON_STATES:
        raise InputError(
            f"an event counts to {len(stages)}; at most {MOST_AUTOMATON_STATES - 1} is possible"
        )
    hit = np.array([[name in stage for name in states] for stage in stages])
    here = np.arange(len(stages))[:, None]
    miss = np.zeros_like(here) if isinstance(event, Stay) else here
    done = np.full((1, len(states)), len(stages))
    inside = np.vstack([np.where(hit, here + 1, miss), done])
    outside = np.vstack([np.broadcast_to(miss, hit.shape), done])
    return inside, outside


def _reachable(steps: Sequence[Ints], accept: Bools) -> Automaton:
    """Return the states of a layered automaton that are reachable from 0, renumbered."""
    trivial = Automaton(
        (np.zeros((1, steps[0].shape[1]), dtype=np.int64),) * len(steps),
        np.zeros((1, 0), dtype=np.bool_),
    )
    return _product(trivial, Automaton(tuple(steps), accept))


def _product(one: Automaton, other: Automaton) -> Automaton:
    """Both automata side by side: the pairs that some path reaches."""
    first = second = np.zeros(1, dtype=np.int64)
    steps: list[Ints] = []
    known: dict[tuple[int, int, bytes, bytes], tuple[Ints, Ints, Ints]] = {}
    for a, b in zip(one.steps, other.steps, strict=True):
        key = (id(a), id(b), first.tobytes(), second.tobytes())
        if key not in known:
            width = int(b.max()) + 1
            code, step = np.unique(a[first] * width + b[second], return_inverse=True)
            if len(code) > MOST_AUTOMATON_STATES:
                raise InputError(
                    f"the events need {len(code)} states of memory together, more than "
                    f"{MOST_AUTOMATON_STATES}; "
                    "name fewer events, count to less, or shorten their windows"
                )
            known[key] = (step.reshape(len(first), -1).astype(np.int64), *divmod(code, width))
        step, first, second = known[key]
        steps.append(step)
    return Automaton(tuple(steps), np.hstack([one.accept[first], other.accept[second]]))


def beliefs(automaton: Automaton, law: PathLaw) -> list[Floats]:
    """beta[t][e, q, x] = P(event e | X_t = x, automaton at q after slot t), for every slot t.

    beta_T = accept, beta_t(q, x) = sum over y of P_t(x, y) beta_{t+1}(step_{t+1}(q, y), y).
    """
    columns = np.arange(len(law.states))
    accept = automaton.accept.T.astype(np.float64)
    found = [np.repeat(accept[:, :, None], len(columns), axis=2)]
    for t in range(law.length - 2, -1, -1):
        after = found[-1][:, automaton.steps[t + 1], columns]  # (events, q, y)
        matrix = law.matrix(t)
        found.append(np.stack([np.asarray((matrix @ rows.T).T) for rows in after]))
    return found[::-1]


def priors(automaton: Automaton, law: PathLaw) -> Floats:
    """P(event e) for each event."""
    columns = np.arange(len(law.states))
    first = beliefs(automaton, law)[0][:, automaton.steps[0][0], columns]
    return np.asarray(first @ law.initial)


def began(initial: Any, automaton: Automaton) -> Floats:
    """law[q, x] = P(X_0 = x, automaton at q after slot 0)."""
    return _entered(np.asarray(initial, np.float64)[None, :], automaton, 0)


def moved(law: Floats, matrix: Any, automaton: Automaton, slot: int) -> Floats:
    """The law of (q, x) after slot `slot`, from that after the slot before; `law` is (…, q, x)."""
    if law.ndim == 2:
        return _entered(np.asarray(law @ matrix), automaton, slot)
    return np.stack([moved(one, matrix, automaton, slot) for one in law])


def _entered(arriving: Floats, automaton: Automaton, slot: int) -> Floats:
    """Return the mass at (q after the slot, x) from the mass at (q before it, x)."""
    step = automaton.steps[slot]
    law = np.zeros((automaton.sizes[slot + 1], arriving.shape[1]))
    np.add.at(law, (step, np.broadcast_to(np.arange(arriving.shape[1]), step.shape)), arriving)
    return law


def reached(automaton: Automaton, law: PathLaw) -> list[Bools]:
    """Return which (q, x) are possible after each slot; booleans, so underflow drops none."""
    found = [began(law.initial > 0, automaton) > 0]
    for t in range(1, law.length):
        support = law.matrix(t - 1) > 0
        found.append(moved(found[-1].astype(np.float64), support, automaton, t) > 0)
    return found


def possible(automaton: Automaton, law: PathLaw) -> tuple[Bools, Bools]:
    """For each event whether it can happen, and whether it can fail to; by supports."""
    ends = reached(automaton, law)[-1].any(axis=1)
    held = automaton.accept[ends]
    return np.asarray(held.any(axis=0)), np.asarray((~held).any(axis=0))
