"""Suppression that depends on the last release: the simulatable and the adaptive check.

Given a release, the future is independent of the past. So what may be done between two releases
is decided for each (slot, state) of the first one alone, backwards in time, with the value of
later releases known: V(slot, state) = max Σ P(next release is (t, j)) (1 + V(t, j)).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.contexts.search.beliefs import (
    LEVELS,
    Arrays,
    Codes,
    Day,
    arrays_of,
    decoded,
    encoded,
    future_beliefs,
    limiting,
    releasable,
    segment_rise,
)
from shoal.contexts.search.pacing import LOOKS, Climb, Effort, likeliest, look_costs
from shoal.core.codec import Bools, Floats, Ints

WORK = 2e10  # multiplications spent on a plan unless told otherwise; some 20 seconds
SAMPLE = 12  # segments timed to know how fast the machine is
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


def next_releases(day: Day, work: float | Effort = np.inf) -> Ints:
    """n[slot + 1, state]: when the simulatable check shows a state again; T when it does not.

    Row 0 is for "start". Rows of states that are never shown hold T, and when `work` has a clock,
    so do those that cannot come up, and what was not reached in time: all is suppressed there.
    """
    from shoal.contexts.search import kernels

    effort = Effort.of(work)
    arrays = _arrays(day)
    table = np.full((day.slots + 1, day.size), day.slots, dtype=np.int64)
    seen = arrays.shown & (effort.clock is None)
    for slot, state in forwards(arrays.shown):
        if effort.late():
            break
        if slot < 0 or seen[slot, state]:
            until = int(kernels.next_release(arrays, slot, state, slot + 1))
            table[slot + 1, state] = until
            if effort.clock is not None and until < day.slots:
                seen[until] |= until_shown((day,), (slot, state), until)[-1] < LEVELS - 1
    return table


def simulatable_segments(day: Day, table: Ints) -> Segments:
    """The simulatable check as suppression after each release: all, until the slot of `table`."""
    hidden: dict[Origin, Codes] = {}
    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    for slot in range(-1, day.slots):
        for state in range(day.size if slot >= 0 else 1):
            until = int(table[slot + 1, state])
            if slot < until < day.slots and (slot < 0 or seen[slot, state]):
                hidden[slot, state] = until_shown((day,), (slot, state), until)
                seen[until] |= hidden[slot, state][-1] < LEVELS - 1
    return Segments(hidden, expected_releases(day, hidden))


def adaptive(
    day: Day, delta: float, *, baseline: Floats | None = None, work: float | Effort = WORK
) -> Segments:
    """The best segments found: never worse than the simulatable check or the vector `baseline`."""
    return occurring(day, search(day, delta, baseline=baseline, work=work))


def search(
    day: Day, delta: float, *, baseline: Floats | None = None, work: float | Effort = WORK
) -> dict[Origin, Codes]:
    """A table after each release that may be shown, whether or not it can come up.

    Each was looked at over all its outputs; a release after which nothing private was found has one
    without rows, and suppresses the rest of the day, which is always safe here: only states that
    allow it are ever shown. `work` bounds the multiplications; likelier releases get more of them.
    The same at every call, unless there is a clock: then only as many states are ever shown as can
    be looked at in time, the likeliest; what the search does not come to, early in the day, is
    suppressed, and OutOfTime says that it came to nothing.
    """
    effort = Effort.of(work)
    arrays = _arrays(day)
    arrays = arrays._replace(ahead=limiting(day.possible, day.when, day.bound, arrays.future))
    if effort.clock is not None:
        gauge(day, arrays, effort)
        few = likeliest(day.prior, arrays.shown, effort)
        baseline = baseline if few.sum() == arrays.shown.sum() else None
        arrays = arrays._replace(shown=few)
        effort = effort.without(LOOKS * look_costs(backwards(few), *few.shape).sum())
    value = np.zeros((day.slots, day.size))
    policies: dict[Origin, Codes] = {}
    nothing = np.empty((0, day.size), dtype=np.uint16)
    origins = list(backwards(arrays.shown))
    climb = Climb(arrays, origins, day.prior, effort)
    for place, origin in enumerate(origins):
        slot = origin[0]
        if slot >= 0 and effort.late():
            arrays.shown[origin] = False  # what has no table is not shown
            continue
        candidates = published(day, arrays, origin, baseline)
        found = climb.segment(place, origin, value)
        if found is not None:
            candidates.insert(0, encoded(found))
        best, chosen = _best(day, delta, origin, value, candidates)
        policies[origin] = nothing if chosen is None else chosen
        if slot >= 0:
            value[origin] = best
        climb.note(place)
    return policies


def gauge(day: Day, arrays: Arrays, effort: Effort) -> None:
    """Times a look at some segments, to know how fast this machine is now."""
    from shoal.contexts.search import segment_kernels as kernels

    assert effort.clock is not None
    shape = arrays.shown.shape
    listed = list(forwards(arrays.shown))
    some = listed[:: max(1, len(listed) // SAMPLE)]
    pace, free, nothing = np.ones(day.slots), np.ones(shape), np.zeros(shape)
    costs = look_costs(some, *shape)
    slowness = []
    for cost, (slot, state) in zip(costs, some, strict=True):
        effort.on_time()
        hidden, spent = np.ones(shape), np.zeros(1)
        kernels.forward_pass(arrays, slot, state, nothing, nothing, pace, free, 0.0, hidden, spent)
        begun = effort.clock()
        codes = encoded(hidden[slot + 1 :])
        table_value(day, (slot, state), codes, nothing)
        keeps((day,), 1.0, (slot, state), codes)
        slowness.append((effort.clock() - begun) / cost)
    effort.gauge.note(1.0, float(np.median(slowness)))  # the middle one: pauses do not count


def published(day: Day, arrays: Arrays, origin: Origin, baseline: Floats | None) -> list[Codes]:
    """What the simulatable check, and the vector `baseline`, do after a release."""
    from shoal.contexts.search import kernels

    slot, state = origin
    until = int(kernels.next_release(arrays, slot, state, slot + 1))
    found = [until_shown((day,), origin, until)] if slot < until < day.slots else []
    if baseline is not None:
        found.append(encoded(baseline[slot + 1 :]))
    return found


def _best(
    day: Day, delta: float, origin: Origin, value: Floats, candidates: list[Codes]
) -> tuple[float, Codes | None]:
    """The private candidate of highest value, the first of equals; None when nothing is shown."""
    worth = [table_value(day, origin, codes, value) for codes in candidates]
    for place in np.argsort(-np.array(worth), kind="stable"):
        if worth[place] > 0 and keeps((day,), delta, origin, candidates[place]):
            return worth[place], candidates[place]
    return 0.0, None


def table_value(day: Day, origin: Origin, codes: Codes, value: Floats) -> float:
    """Expected releases after one release, value[t, j] following a release of j at t."""
    from shoal.contexts.search import segment_kernels as kernels

    slot, state = origin
    law = day.initial if slot < 0 else day.moves[slot, state]
    hidden = full(day, slot, {origin: codes}, state)
    return float(kernels.policy_value(law, day.moves, slot, value, hidden))


def occurring(day: Day, policies: dict[Origin, Codes]) -> Segments:
    """The policies that can come up and show something, and the releases they lead to."""
    reached = reachable_origins(day, policies)
    used = {o: policies[o] for o in reached if o in policies and len(policies[o])}
    return Segments(used, expected_releases(day, used))


def segments_rise(day: Day, policies: dict[Origin, Codes]) -> float:
    """max over outputs and secrets of share·(posterior - prior), over all segments that occur."""
    return _rise_after(day, policies, reachable_origins(day, policies), 0.0)


def unread_rise(day: Day, policies: dict[Origin, Codes], least: float) -> float:
    """As `segments_rise`, also after releases that only slots not read lead to; `least` or more.

    Those that have a table, and what follows them; `least` is what `segments_rise` found.
    """
    occurring = set(reachable_origins(day, policies))
    all_of_them = reachable_origins(day, policies, listed_origins(day, policies))
    return _rise_after(day, policies, [o for o in all_of_them if o not in occurring], least)


def _rise_after(
    day: Day, policies: dict[Origin, Codes], origins: Sequence[Origin], worst: float
) -> float:
    for slot, state in origins:
        worst = segment_rise(day, slot, state, full(day, slot, policies, state), worst)
    return worst


def listed_origins(day: Day, policies: Mapping[Origin, object]) -> Bools:
    """Which releases have a table and are possible."""
    found = np.zeros((day.slots, day.size), dtype=np.bool_)
    for origin in policies:
        if origin[0] >= 0:
            found[origin] = day.possible[origin]
    return found


def expected_releases(day: Day, policies: dict[Origin, Codes]) -> float:
    """The mean number of releases of a day, exactly, backwards from the last origin."""
    value = np.zeros((day.slots, day.size))
    for origin in sorted(policies, reverse=True):
        reached = table_value(day, origin, policies[origin], value)
        if origin[0] < 0:
            return reached
        value[origin] = reached
    return 0.0


def reachable_origins(
    day: Day, policies: dict[Origin, Codes], known: Bools | None = None
) -> list[Origin]:
    """ "start", the releases of `known`, and every release that can come up, in order of time."""
    from shoal.contexts.search import kernels

    seen = np.zeros((day.slots, day.size), dtype=np.bool_) if known is None else known.copy()
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


def keeps(days: Sequence[Day], delta: float, origin: Origin, codes: Codes) -> bool:
    """Whether a table is private after a release under each of `days` that can come to it."""
    slot, state = origin
    return all(
        segment_rise(day, slot, state, full(day, slot, {origin: codes}, state), delta)
        <= delta * (1 + 5e-13)
        for day in coming_to(days, origin)
    )


def until_shown(days: Sequence[Day], origin: Origin, until: int) -> Codes:
    """Suppress up to slot `until`, then show whatever can have been reached on one of `days`."""
    slot, state = origin
    codes = np.full((until - slot, days[0].size), LEVELS - 1, dtype=np.uint16)
    for day in coming_to(days, origin):
        law = day.initial > 0 if slot < 0 else day.moves[slot, state] > 0
        for t in range(slot + 1, until):
            law = (day.moves[t][law] > 0).any(axis=0)
        codes[-1][law] = 0
    return codes


def coming_to(days: Sequence[Day], origin: Origin) -> list[Day]:
    """The days on which a release is possible; "start" is on all of them."""
    return [day for day in days if origin[0] < 0 or day.possible[origin]]


def forwards(shown: Bools) -> Iterator[Origin]:
    """ "start", and then every release that may be shown, the first first."""
    yield START
    for slot, state in np.argwhere(shown):
        yield int(slot), int(state)


def backwards(shown: Bools) -> Iterator[Origin]:
    """Every release that may be shown, the last first, and then "start"."""
    for slot, state in np.argwhere(shown)[::-1]:
        yield int(slot), int(state)
    yield START


def _arrays(day: Day) -> Arrays:
    return arrays_of(day, releasable(day, future_beliefs(day)))
