"""Suppression that depends on the last release: the simulatable and the adaptive check.

Given a release, the future is independent of the past. So what may be done between two releases
is decided for each (slot, state) of the first one alone, backwards in time, with the value of
later releases known: V(slot, state) = max Σ P(next release is (t, j)) (1 + V(t, j)).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import (
    LEVELS,
    Codes,
    Day,
    Truths,
    decoded,
    encoded,
    future_beliefs,
    releasable,
    segment_rise,
)

WORK = 2e10  # multiplications spent on a plan unless told otherwise; some 20 seconds
MOST_PASSES = 800  # per segment; more gains next to nothing
LEAST_PASSES = 3
NEGLIGIBLE = 1e-6  # expected releases not worth another slot of search
Origin = tuple[int, int]
START: Origin = (-1, 0)


@dataclass(frozen=True, slots=True)
class Segments:
    """Suppression after each release: `hidden[(slot, state)]` holds the slots after it, in codes.

    Origins without an entry suppress the rest of the day. `expected` is the mean number of
    releases of a day.
    """

    hidden: dict[Origin, Codes]
    expected: float


def next_releases(day: Day) -> Ints:
    """n[slot + 1, state]: when the simulatable check shows a state again; T when it does not.

    Row 0 is for "start". Rows of states that are never shown hold T.
    """
    from shoal.loss import suppression_kernels as kernels

    arrays, shown = _arrays(day)
    table = np.full((day.slots + 1, day.size), day.slots, dtype=np.int64)
    for slot, state in backwards(shown):
        table[slot + 1, state] = kernels.next_release(arrays, slot, state, slot + 1)
    return table


def next_release(day: Day, slot: int, state: int) -> int:
    """One entry of `next_releases`, computed on its own: what a stream needs after a release."""
    from shoal.loss import suppression_kernels as kernels

    return int(kernels.next_release(_arrays(day)[0], slot, state, slot + 1))


def simulatable_segments(day: Day, table: Ints) -> Segments:
    """The simulatable check as suppression after each release: all, until the slot of `table`."""
    hidden: dict[Origin, Codes] = {}
    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    for slot in range(-1, day.slots):
        for state in range(day.size if slot >= 0 else 1):
            until = int(table[slot + 1, state])
            if slot < until < day.slots and (slot < 0 or seen[slot, state]):
                hidden[slot, state] = _until(day, slot, state, until)
                seen[until] |= hidden[slot, state][-1] < LEVELS - 1
    return Segments(hidden, expected_releases(day, hidden))


def adaptive(
    day: Day, delta: float, *, baseline: Floats | None = None, work: float = WORK
) -> Segments:
    """The best segments found: never worse than the simulatable check or the vector `baseline`."""
    return verified(day, delta, search(day, delta, baseline=baseline, work=work))


def search(
    day: Day, delta: float, *, baseline: Floats | None = None, work: float = WORK
) -> dict[Origin, Codes]:
    """A table after each release that may be shown, whether or not it can come up.

    `work` bounds the multiplications; likelier releases get more of them. The same at every call.
    """
    from shoal.loss import suppression_kernels as basic, suppression_segment_kernels as kernels
    from shoal.loss.suppression_climb_kernels import best_segment

    arrays, shown = _arrays(day)
    value = np.zeros((day.slots, day.size))
    policies: dict[Origin, Codes] = {}
    origins = list(backwards(shown))
    edges = float((day.moves > 0).sum()) / day.slots
    budget = passes_for(origins, day.prior, day.when, edges, work)
    found = np.ones((day.slots, day.size))
    habits = [habit_of(day.prior.shape) for _ in range(day.size)]
    for place, ((slot, state), passes) in enumerate(zip(origins, budget, strict=True)):
        weight = day.prior[slot, state] if slot >= 0 else 1.0
        stop = NEGLIGIBLE / max(float(weight), NEGLIGIBLE)
        paces = np.roll(paces_of(day.slots, slot), slot, axis=0)
        best = best_segment(
            arrays, slot, state, value, paces, passes, stop, place, *habits[state], found
        )
        chosen = encoded(found[slot + 1 :])
        until = basic.next_release(arrays, slot, state, slot + 1)
        if slot < until < day.slots:
            simple = _until(day, slot, state, until)
            best, chosen = _better(kernels, arrays, (slot, state), value, best, chosen, simple)
        if baseline is not None:
            given = encoded(baseline[slot + 1 :])
            higher = _better(kernels, arrays, (slot, state), value, best, chosen, given)
            if higher[0] > best and _keeps(day, delta, slot, state, given):
                best, chosen = higher
        if slot >= 0:
            value[slot, state] = best
        if (chosen < LEVELS - 1).any():
            policies[slot, state] = chosen
    return policies


def verified(day: Day, delta: float, policies: dict[Origin, Codes]) -> Segments:
    """The policies that can come up, each looked at again; one that fails suppresses all.

    Suppressing everything after a release is always safe here, since only states that allow it
    are ever shown. The expected releases are those of what is left.
    """
    kept: dict[Origin, Codes] = {}
    for origin in reachable_origins(day, policies):
        codes = policies.get(origin)
        if codes is not None and _keeps(day, delta, *origin, codes):
            kept[origin] = codes
    used = {origin: kept[origin] for origin in reachable_origins(day, kept) if origin in kept}
    return Segments(used, expected_releases(day, used))


def segments_rise(day: Day, policies: dict[Origin, Codes]) -> float:
    """max over outputs and secrets of share·(posterior - prior), over all segments that occur."""
    worst = 0.0
    for slot, state in reachable_origins(day, policies):
        worst = max(worst, segment_rise(day, slot, state, full(day, slot, policies, state)))
    return worst


def expected_releases(day: Day, policies: dict[Origin, Codes]) -> float:
    """The mean number of releases of a day, exactly, backwards from the last origin."""
    from shoal.loss import suppression_segment_kernels as kernels

    arrays, _ = _arrays(day)
    value = np.zeros((day.slots, day.size))
    for slot, state in sorted(policies, reverse=True):
        hidden = full(day, slot, policies, state)
        reached = kernels.policy_value(arrays, slot, state, value, hidden)
        if slot < 0:
            return float(reached)
        value[slot, state] = reached
    return 0.0


def reachable_origins(day: Day, policies: dict[Origin, Codes]) -> list[Origin]:
    """ "start" and every release that can come up, in order of time."""
    from shoal.loss import suppression_kernels as kernels

    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    found = []
    for slot in range(-1, day.slots):
        for state in range(day.size if slot >= 0 else 1):
            if slot >= 0 and not seen[slot, state]:
                continue
            found.append((slot, state))
            codes = policies.get((slot, state))
            if codes is not None:
                law = day.initial > 0 if slot < 0 else day.moves[slot, state] > 0
                kernels.mark_releases(law, day.moves, slot, codes, LEVELS - 1, seen)
    return found


def full(day: Day, slot: int, policies: dict[Origin, Codes], state: int) -> Floats:
    """The probabilities after one release as a (T, n) table; slots up to it hold 1."""
    hidden = np.ones((day.slots, day.size))
    codes = policies.get((slot, state))
    if codes is not None:
        hidden[slot + 1 : slot + 1 + len(codes)] = decoded(codes)
    return hidden


def _keeps(day: Day, delta: float, slot: int, state: int, codes: Codes) -> bool:
    hidden = full(day, slot, {(slot, state): codes}, state)
    return segment_rise(day, slot, state, hidden) <= delta * (1 + 5e-13)


def _better(
    kernels: Any,
    arrays: Any,
    origin: Origin,
    value: Floats,
    best: float,
    chosen: Codes,
    other: Codes,
) -> tuple[float, Codes]:
    hidden = np.ones(value.shape)
    hidden[origin[0] + 1 : origin[0] + 1 + len(other)] = decoded(other)
    reached = kernels.policy_value(arrays, *origin, value, hidden)
    return (reached, other) if reached > best else (best, chosen)


def _until(day: Day, slot: int, state: int, until: int) -> Codes:
    """Suppress up to slot `until`, then show whatever state can have been reached."""
    codes = np.full((until - slot, day.size), LEVELS - 1, dtype=np.uint16)
    law = day.initial > 0 if slot < 0 else day.moves[slot, state] > 0
    for t in range(slot + 1, until):
        law = (day.moves[t][law] > 0).any(axis=0)
    codes[-1][law] = 0
    return codes


def habit_of(shape: tuple[int, ...]) -> tuple[Floats, Floats, Floats]:
    """Pace, caps and worth of waiting to begin with; each state hands them to the slot before."""
    return np.ones(shape[0]), np.ones(shape), np.zeros(shape)


def backwards(shown: Truths) -> Iterator[Origin]:
    """Every release that may be shown, the last first, and then "start"."""
    for slot, state in np.argwhere(shown)[::-1]:
        yield int(slot), int(state)
    yield START


def _arrays(day: Day) -> tuple[Any, Truths]:
    beliefs = future_beliefs(day)
    shown = releasable(day, beliefs)
    return (day.initial, day.moves, day.when, day.who, day.bound, beliefs, shown, 1), shown


def passes_for(
    origins: list[Origin], prior: Floats, when: Ints, edges: float, work: float
) -> list[int]:
    """How many forward passes each origin gets: λ·√prior, λ such that the work is spent.

    `edges` is the number of moves a slot has. At least 3 passes, or 1 when the work does not
    allow that.
    """
    slots, size = prior.shape
    cost = np.empty(len(origins))
    weight = np.empty(len(origins))
    for place, (slot, state) in enumerate(origins):
        later = len(when) - int(np.searchsorted(when, slot, side="right"))
        cost[place] = (slots - slot) * (edges * later / 2 + 2 * size * later) + 1e4
        weight[place] = np.sqrt(prior[slot, state]) if slot >= 0 else 1.0

    least = LEAST_PASSES if (LEAST_PASSES * cost).sum() <= work else 1

    def passes(rate: float) -> Floats:
        return np.clip(np.floor(rate * weight), least, MOST_PASSES)

    low, high = 0.0, 1e9
    for _ in range(60):
        rate = np.sqrt(max(low, 1e-3) * high)
        low, high = (rate, high) if (passes(rate) * cost).sum() <= work else (low, rate)
    return [int(number) for number in passes(low)]


def paces_of(slots: int, origin: int) -> Floats:
    """How fast to spend: all at once, half, evenly over what is left, and every other slot."""
    t = np.arange(slots)
    left = np.maximum(slots - t, 1)
    return np.array(
        [
            np.ones(slots),
            np.full(slots, 0.5),
            np.minimum(1.0, 2.0 / left),
            (t - origin) % 2 == 0,
            1.0 / left,
            np.full(slots, 0.2),
            (t - origin) % 2 == 1,
            (t - origin) % 3 == 0,
        ],
        dtype=np.float64,
    )
