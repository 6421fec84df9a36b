"""Suppression that depends on the last release: the simulatable and the adaptive check.

Given a release, the future is independent of the past. So what may be done between two releases
is decided for each (slot, state) of the first one alone, backwards in time, with the value of
later releases known: V(slot, state) = max Σ P(next release is (t, j)) (1 + V(t, j)).

With several day chains a plan does not know which is true: its probabilities are the same under
all of them, and the bounds of every chain must hold: P_θ(X_t = s | output) ≤ P_θ(X_t = s) + δ for
each member θ under which the output is possible. What is decided from the chain (reachable states,
rooms) is then decided for all members at once; utilities are those of the member that releases
least. Proof: contexts/checks/mask_family.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    START,
    Arrays,
    Codes,
    Day,
    Origin,
    as_family,
    days_allowing,
    decoded,
    encoded,
    jointly_releasable,
    law_after_release,
    limiting_secrets,
    segment_rise,
)
from shoal.contexts.search.limits import LONG_DAY, Effort
from shoal.contexts.search.pacing import LOOKS, SegmentSearch, likeliest_states, look_costs
from shoal.core.codec import Bools, Floats, Ints

PLAN_WORK = 2e10  # multiplications spent on a plan unless set otherwise; some 20 seconds
TIMED_SEGMENTS = 12  # segments timed to know how fast the machine is


@dataclass(frozen=True, slots=True)
class Segments:
    """Suppression after each release: `hidden[(slot, state)]` holds a row of codes per later slot.

    Origins without an entry suppress the rest of the day. `expected` is the mean number of
    releases of a day.
    """

    hidden: dict[Origin, Codes]
    expected: float


def next_releases(days: Day | Sequence[Day], work: float | Effort = np.inf) -> Ints:
    """Return n[slot + 1, state]: the slot the simulatable check releases next after that release.

    That is the first slot that every day on which the last release is possible allows to be
    released. Row 0 is for the start; T stands for never. Rows of states that are never released
    hold T. When `work` has a clock, so do releases that cannot occur and those not reached in time.
    """
    family, effort = as_family(days), Effort.of(work)
    releasable = jointly_releasable(family)
    slots, size = releasable.shape
    table = np.full((slots + 1, size), slots, dtype=np.int64)
    seen = releasable & (effort.clock is None)
    for slot, state in releases_forward(seen):
        if effort.late():
            break
        until = next_release(family, releasable, (slot, state), slot + 1)
        table[slot + 1, state] = until
        if effort.clock is not None and until < slots:
            seen[until] |= suppress_until(family, (slot, state), until)[-1] < COIN_LEVELS - 1
    return table


def next_release(days: Sequence[Day], releasable: Bools, origin: Origin, earliest: int) -> int:
    """Return the first slot from `earliest` on that every day allows to be released.

    One entry of `next_releases`; `releasable` is the mask of `jointly_releasable`. T for none.
    """
    from shoal.contexts.search import kernels

    slots = len(releasable)
    asked = [day.arrays._replace(releasable=releasable) for day in days_allowing(days, origin)]
    while earliest < slots:
        found = {int(kernels.next_release(given, *origin, earliest)) for given in asked}
        if len(found) == 1:
            return found.pop()
        earliest = max(found)
    return slots


def simulatable_segments(day: Day, table: Ints) -> Segments:
    """Return the simulatable check as tables: suppress until the slot that `table` names."""
    tables: dict[Origin, Codes] = {}
    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    for slot, state in releases_forward(seen):
        until = int(table[slot + 1, state])
        if slot < until < day.slots:
            tables[slot, state] = suppress_until((day,), (slot, state), until)
            seen[until] |= tables[slot, state][-1] < COIN_LEVELS - 1
    return Segments(tables, expected_releases(day, tables))


def search_segments(
    days: Day | Sequence[Day],
    delta: float,
    *,
    baseline: Floats | None = None,
    work: float | Effort = PLAN_WORK,
) -> dict[Origin, Codes]:
    """Search a suppression table for every release that may be made, backwards in time.

    Never worse than the simulatable check or the vector `baseline`, which are candidates for every
    segment of a day of up to LONG_DAY slots. Each table is evaluated over all its outputs. A
    release after which no private table was found has one without rows, which suppresses the rest
    of the day; that is safe, because only states that allow it are ever released. `work` bounds
    the multiplications; likelier releases get more of them. Equal calls give equal tables unless
    there is a clock. With a clock only the likeliest states, as many as can be evaluated in time,
    are released, and what the search does not reach is suppressed. SearchEnded is raised when it
    reaches nothing.

    Several days stand side by side in one chain without moves between them, their copies of a
    context tied to one probability. What is maximised is the mean over those that allow the
    release.
    """
    family, effort = as_family(days), Effort.of(work)
    size, copies = family[0].size, len(family)
    releasable = jointly_releasable(family)
    prior = np.asarray(sum(day.prior for day in family)) / copies
    plain = family[0].slots <= LONG_DAY
    if effort.clock is not None:
        measure_speed(family[0], effort)
        few = likeliest_states(prior, releasable, effort, copies)
        baseline = baseline if few.sum() == releasable.sum() else None
        releasable = few
        effort = effort.without(0.0)
    values = np.zeros((copies, *releasable.shape))
    policies: dict[Origin, Codes] = {}
    nothing = np.empty((0, size), dtype=np.uint16)
    origins = list(releases_backward(releasable))
    side = block_diagonal(family, releasable)
    climb = SegmentSearch(side, origins, prior, effort)
    for index, origin in enumerate(origins):
        slot, state = origin
        if slot >= 0 and effort.late():
            releasable[origin] = side.releasable[slot, state::size] = (
                False  # what has no table is not released
            )
            continue
        found = climb.segment(index, origin, np.concatenate(list(values), axis=1))
        candidates = [] if found is None else [encoded(found[:, :size])]
        begun = effort.clock() if effort.clock is not None else 0.0
        if plain:
            candidates += paper_candidates(family, releasable, origin, baseline)
        worth, chosen = _best_private(family, delta, origin, values, candidates)
        if effort.clock is not None:
            effort.reserved += LOOKS * (effort.clock() - begun)
        policies[origin] = nothing if chosen is None else trimmed(chosen)
        if slot >= 0:
            values[:, slot, state] = worth
        climb.note(index)
    return policies


def measure_speed(day: Day, effort: Effort) -> None:
    """Time the evaluation of some segments to measure this machine's multiplications a second."""
    from shoal.contexts.search import segment_kernels as kernels

    assert effort.clock is not None
    arrays = block_diagonal((day,), jointly_releasable((day,)))
    shape = arrays.releasable.shape
    listed = list(releases_forward(arrays.releasable))
    some = listed[:: max(1, len(listed) // TIMED_SEGMENTS)]
    nothing = np.zeros(shape)
    at_once = kernels.SpendingRule(np.ones(day.slots), np.ones(shape), nothing, np.zeros(day.slots))
    slowness = []
    for cost, (slot, state) in zip(look_costs(some, *shape), some, strict=True):
        effort.on_time()
        suppression, spent = np.ones(shape), np.zeros(1)
        kernels.forward_pass(arrays, (slot, state), nothing, at_once, 0.0, suppression, spent)
        begun = effort.clock()
        codes = encoded(suppression[slot + 1 :])
        value_of_table(day, (slot, state), codes, nothing)
        keeps_bounds((day,), 1.0, (slot, state), codes)
        slowness.append((effort.clock() - begun) / cost)
    effort.gauge.note(1.0, float(np.median(slowness)))  # the middle one: pauses do not count


def paper_candidates(
    days: Sequence[Day], releasable: Bools, origin: Origin, baseline: Floats | None
) -> list[Codes]:
    """Return what the simulatable check and the vector `baseline` do after a release, as tables."""
    slot, slots = origin[0], len(releasable)
    until = next_release(days, releasable, origin, slot + 1)
    found = [suppress_until(days, origin, until)] if slot < until < slots else []
    return found if baseline is None else [*found, encoded(baseline[slot + 1 :])]


def _best_private(
    days: Sequence[Day], delta: float, origin: Origin, values: Floats, candidates: Sequence[Codes]
) -> tuple[Floats, Codes | None]:
    """Return the private candidate with the highest mean value, and its value on each day.

    The first of equal candidates wins. The table is None, and the values are 0, when no private
    candidate releases anything. Days on which the release is impossible count 0.

    With what it is worth on each of the days, 0 on those that cannot come to the release.
    """
    asked = [origin[0] < 0 or bool(day.possible[origin]) for day in days]
    worth = np.array(
        [
            [
                value_of_table(day, origin, codes, values[g]) if asked[g] else 0.0
                for codes in candidates
            ]
            for g, day in enumerate(days)
        ]
    ).reshape(len(days), len(candidates))
    for index in np.argsort(-worth.sum(axis=0), kind="stable").tolist():
        if worth[:, index].sum() > 0 and keeps_bounds(days, delta, origin, candidates[index]):
            return worth[:, index], candidates[index]
    return np.zeros(len(days)), None


def block_diagonal(days: Sequence[Day], releasable: Bools) -> Arrays:
    """Return all days as one block-diagonal chain for the compiled search."""
    size, copies = days[0].size, len(days)
    if copies == 1:  # as it is: beliefs about the future of long days fill a fifth of a gigabyte
        day, future = days[0], days[0].future
        ahead = limiting_secrets(day.possible, day.when, day.bound, future)
        return day.arrays._replace(future=future, releasable=releasable & day.possible, ahead=ahead)
    moves = np.zeros((days[0].slots, copies * size, copies * size))
    when = np.concatenate([day.when for day in days])
    order = np.argsort(when, kind="stable")
    owner = np.concatenate([np.full(len(day.when), g) for g, day in enumerate(days)])[order]
    who = np.concatenate([day.who + g * size for g, day in enumerate(days)])[order]
    future = np.zeros((days[0].slots, copies * size, len(when)))
    for g, day in enumerate(days):
        block = slice(g * size, (g + 1) * size)
        moves[:, block, block] = day.moves
        future[:, block, owner == g] = day.future
    bound = np.concatenate([day.bound for day in days])[order]
    possible = np.concatenate([day.possible for day in days], axis=1)
    return Arrays(
        initial=np.concatenate([day.initial for day in days]),
        moves=moves,
        when=when[order],
        who=who,
        bound=bound,
        future=future,
        releasable=np.concatenate([releasable & day.possible for day in days], axis=1),
        copies=copies,
        ahead=limiting_secrets(possible, when[order], bound, future),
    )


def value_of_table(day: Day, origin: Origin, codes: Codes, value: Floats) -> float:
    """Return the expected releases after `origin`; value[t, j] follows a release of j at t."""
    from shoal.contexts.search import segment_kernels as kernels

    slot = origin[0]
    return float(
        kernels.policy_value(law_after_release(day, origin), day.moves, slot, value, decoded(codes))
    )


def occurring_segments(days: Day | Sequence[Day], policies: dict[Origin, Codes]) -> Segments:
    """Keep the tables of releases that can occur and that release something later.

    `expected` is that of the day that releases least.
    """
    family = as_family(days)
    reached = {origin for day in family for origin in reachable_origins(day, policies)}
    used = {o: codes for o, codes in policies.items() if o in reached and len(codes)}
    return Segments(used, min(expected_releases(day, used) for day in family))


def segments_rise(day: Day, policies: dict[Origin, Codes]) -> float:
    """Return the largest share·(posterior - prior) over all segments that occur."""
    worst = 0.0
    for origin in reachable_origins(day, policies):
        worst = segment_rise(day, *origin, full_table(day, origin[0], policies.get(origin)), worst)
    return worst


def expected_releases(
    day: Day, policies: Mapping[Origin, Any], value_of: Callable[..., float] = value_of_table
) -> float:
    """Return the expected number of releases of a day, computed backwards from the last origin.

    `value_of` gives the releases that follow one, of the form of `table_value`.
    """
    value = np.zeros((day.slots, day.size))
    for origin in sorted(policies, reverse=True):
        reached = value_of(day, origin, policies[origin], value)
        if origin[0] < 0:
            return reached
        value[origin] = reached
    return 0.0


def reachable_origins(day: Day, policies: dict[Origin, Codes]) -> list[Origin]:
    """Return the start and every release that can occur, in order of time."""
    from shoal.contexts.search import kernels

    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    found = []
    for origin in releases_forward(seen):
        found.append(origin)
        codes = policies.get(origin)
        if codes is not None:
            law = law_after_release(day, origin) > 0
            kernels.mark_releases(law, day.moves, origin[0], codes, COIN_LEVELS - 1, seen)
    return found


def full_table(day: Day, slot: int, codes: Codes | None) -> Floats:
    """Return the suppression after a release at `slot` as a (T, n) table; rows up to it hold 1."""
    suppression = np.ones((day.slots, day.size))
    if codes is not None:
        suppression[slot + 1 : slot + 1 + len(codes)] = decoded(codes)
    return suppression


def trimmed(codes: Codes) -> Codes:
    """Return a copy of the table without the rows at its end that suppress everything."""
    releasing = np.flatnonzero((codes < COIN_LEVELS - 1).any(axis=1))
    return codes[: int(releasing[-1]) + 1].copy() if len(releasing) else codes[:0]


def keeps_bounds(days: Sequence[Day], delta: float, origin: Origin, codes: Codes) -> bool:
    """Return whether a table keeps every bound after a release, on each day that allows it."""
    slot, state = origin
    return all(
        segment_rise(day, slot, state, full_table(day, slot, codes), delta) <= delta * (1 + 5e-13)
        for day in days_allowing(days, origin)
    )


def suppress_until(days: Sequence[Day], origin: Origin, until: int) -> Codes:
    """Return codes that suppress up to slot `until` and then release every possible state."""
    slot = origin[0]
    codes = np.full((until - slot, days[0].size), COIN_LEVELS - 1, dtype=np.uint16)
    for day in days_allowing(days, origin):
        law = law_after_release(day, origin) > 0
        for t in range(slot + 1, until):
            law = (day.moves[t][law] > 0).any(axis=0)
        codes[-1][law] = 0
    return codes


def releases_forward(releasable: Bools | Floats) -> Iterator[Origin]:
    """Yield the start, then every marked release in order of time.

    The caller may mark later releases while it iterates.

    Whoever goes along may mark later ones on the way.
    """
    yield START
    for slot, row in enumerate(releasable):
        for state in np.flatnonzero(row).tolist():
            yield slot, state


def releases_backward(releasable: Bools) -> Iterator[Origin]:
    """Yield every release that may be made, the last first, and then the start."""
    yield from ((slot, state) for slot, state in np.argwhere(releasable)[::-1].tolist())
    yield START
