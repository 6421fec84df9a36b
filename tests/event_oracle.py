"""What an event says of a path, read straight from its words: shares no code with the automata."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import shoal
from shoal.events.event import AllOf, AnyOf, AtLeast, InOrder, NotOf, Stay, TimeEvent


def happens(event: TimeEvent, path: Sequence[str]) -> bool:
    """Whether the event holds on a path of names; windows by slot only."""
    match event:
        case NotOf(inner):
            return not happens(inner, path)
        case AllOf(parts):
            return all(happens(part, path) for part in parts)
        case AnyOf(parts):
            return any(happens(part, path) for part in parts)
        case AtLeast(named, times, between):
            return sum(name in named for name in _window(path, between)) >= times
        case Stay(named, times, between):
            part = _window(path, between)
            runs = (part[k : k + times] for k in range(len(part) - times + 1))
            return any(all(name in named for name in run) for run in runs)
        case InOrder(stages, between):
            chosen = itertools.combinations(_window(path, between), len(stages))
            return any(all(n in s for n, s in zip(c, stages, strict=True)) for c in chosen)
    raise TypeError(type(event))


def _window(path: Sequence[str], between: Any) -> Sequence[str]:
    return path if between is None else path[between[0] : between[1] + 1]


def paths(initial: Any, transitions: Any) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every path of positive probability, as state numbers."""
    size = len(initial)
    for path in itertools.product(range(size), repeat=len(transitions) + 1):
        chance = float(initial[path[0]])
        for t, matrix in enumerate(transitions):
            chance *= float(matrix[path[t]][path[t + 1]])
        if chance > 0:
            yield path, chance


def worded(words: dict[str, Any]) -> TimeEvent:
    """An event from the words of golden/events.json."""
    between = tuple(words["window"]) if "window" in words else None
    match words:
        case {"visit": states}:
            return shoal.visit(states, between=between)
        case {"at_least": times, "states": states}:
            return shoal.at_least(states, times, between=between)
        case {"stay": times, "states": states}:
            return shoal.stay(states, times, between=between)
        case {"sequence": stages}:
            return shoal.sequence(*stages, between=between)
        case {"not": inner}:
            return ~worded(inner)
        case {"any": parts}:
            return AnyOf(tuple(map(worded, parts)))
        case {"all": parts}:
            return AllOf(tuple(map(worded, parts)))
    raise TypeError(str(words))


def random_event(rng: np.random.Generator, size: int, slots: int, depth: int = 1) -> TimeEvent:
    """A random event on states "0", "1", … of a path of `slots` slots."""
    if depth and rng.random() < 0.4:
        one, other = (random_event(rng, size, slots, depth - 1) for _ in range(2))
        return [one & other, one | other, ~one][int(rng.integers(3))]

    def some() -> list[int]:
        return list(rng.choice(size, int(rng.integers(1, max(2, size))), replace=False))

    first = int(rng.integers(slots))
    last = int(rng.integers(first, slots))
    between = None if rng.random() < 0.4 else (first, last)
    match int(rng.integers(4)):
        case 0:
            return shoal.visit(some(), between=between)
        case 1:
            return shoal.at_least(some(), int(rng.integers(1, 4)), between=between)
        case 2:
            return shoal.stay(some(), int(rng.integers(1, 3)), between=between)
        case _:
            return shoal.sequence(some(), some(), between=between)


def random_chain(
    rng: np.random.Generator, size: int, slots: int
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A first law and matrices with zeros and near-deterministic rows."""

    def law() -> np.ndarray[Any, Any]:
        row = rng.dirichlet(np.full(size, rng.choice([0.3, 1.0, 5.0])))
        kind = rng.random()
        if kind < 0.25:
            row[rng.integers(size)] = 0
        elif kind < 0.4:
            row = np.full(size, 1e-6)
            row[rng.integers(size)] = 1.0
        return row / row.sum() if row.sum() > 0 else np.full(size, 1 / size)

    return law(), np.array([[law() for _ in range(size)] for _ in range(slots - 1)])
