"""Suppression that is private whichever of several day chains an adversary holds.

A plan does not know which chain is true, so its probabilities are the same under all of them,
and the bounds of every chain must hold: P_θ(X_t = s | output) ≤ P_θ(X_t = s) + δ for each member
θ under which the output is possible. What a check decides from the chain (reachable states,
rooms) is therefore decided for all members at once; utilities are those of the member that shows
least. Proof: contexts/checks/mask_family.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.contexts.search.adaptive import (
    WORK,
    Origin,
    Segments,
    backwards,
    coming_to,
    expected_releases,
    forwards,
    keeps,
    reachable_origins,
    table_value,
    until_shown,
)
from shoal.contexts.search.beliefs import (
    Arrays,
    Codes,
    Day,
    arrays_of,
    encoded,
    future_beliefs,
    jointly_releasable,
    limiting,
)
from shoal.contexts.search.pacing import Climb, Effort
from shoal.core.codec import Bools, Floats, Ints


def family_next_releases(days: Sequence[Day], work: float | Effort = np.inf) -> Ints:
    """As `next_releases`: the first slot that every member lets be shown, whatever it holds.

    Members under which the last release is impossible have no say. Once the clock of `work`, if
    any, has run out, nothing more is shown.
    """
    effort = Effort.of(work)
    shown = jointly_releasable(days)
    slots, size = shown.shape
    table = np.full((slots + 1, size), slots, dtype=np.int64)
    for slot, state in forwards(shown):
        if effort.late():
            break
        table[slot + 1, state] = _next(days, shown, (slot, state), slot + 1)
    return table


def next_for_all(days: Sequence[Day], origin: Origin, earliest: int) -> int:
    """One entry of `family_next_releases`, of slots from `earliest` on; T when there is none.

    What a stream needs after a release, or when the slot that was due is not read.
    """
    return _next(days, jointly_releasable(days), origin, earliest)


def _next(days: Sequence[Day], shown: Bools, origin: Origin, earliest: int) -> int:
    """The first slot after a release that each day that can come to it lets be shown."""
    from shoal.contexts.search import kernels

    slot, state = origin
    asked, slots = [arrays_of(day, shown) for day in coming_to(days, origin)], len(shown)
    while earliest < slots:
        found = {int(kernels.next_release(given, slot, state, earliest)) for given in asked}
        if len(found) == 1:
            return found.pop()
        earliest = max(found)
    return slots


def family_search(
    days: Sequence[Day],
    delta: float,
    *,
    baseline: Floats,
    table: Ints,
    work: float | Effort = WORK,
) -> dict[Origin, Codes]:
    """A private table after each release that may be shown; see `suppression_adaptive.search`.

    The members stand side by side in one chain without moves between them, their copies of a
    context tied to one probability. What is maximised is the mean over the members that can come
    to the release. `baseline` and `table` are those of the probabilistic and the simulatable
    check, which are candidates for every segment.
    """
    shown = jointly_releasable(days)
    side = _side_by_side(days, shown)
    origins = list(backwards(shown))
    prior = np.asarray(sum(day.prior for day in days)) / len(days)
    effort = Effort.of(work)
    climb = Climb(side, origins, prior, effort)
    values = np.zeros((len(days), *shown.shape))
    policies: dict[Origin, Codes] = {}
    for place, origin in enumerate(origins):
        effort.on_time()
        slot, state = origin
        found = climb.segment(place, origin, np.concatenate(list(values), axis=1))
        candidates = [] if found is None else [encoded(found[:, : days[0].size])]
        candidates.append(encoded(baseline[slot + 1 :]))
        if (until := int(table[slot + 1, state])) < days[0].slots:
            candidates.append(until_shown(days, origin, until))
        chosen = _best(days, delta, origin, values, candidates)
        if chosen is not None:
            policies[origin] = chosen
        climb.note(place)
    return policies


def family_occurring(days: Sequence[Day], policies: dict[Origin, Codes]) -> Segments:
    """The policies that can come up under some member.

    `expected` is the mean number of releases under the member that shows least.
    """
    reached = {origin for day in days for origin in reachable_origins(day, policies)}
    used = {origin: codes for origin, codes in policies.items() if origin in reached}
    return Segments(used, min(expected_releases(day, used) for day in days))


def _best(
    days: Sequence[Day],
    delta: float,
    origin: Origin,
    values: Floats,
    candidates: Sequence[Codes],
) -> Codes | None:
    """The candidate of highest mean value that keeps every bound; its values are noted."""
    slot = origin[0]
    asked = [g for g, day in enumerate(days) if slot < 0 or day.possible[origin]]
    best, chosen, noted = 0.0, None, np.zeros(len(days))
    for codes in candidates:
        reached = np.zeros(len(days))
        for g in asked:
            reached[g] = table_value(days[g], origin, codes, values[g])
        if reached.sum() > best and keeps(days, delta, origin, codes):
            best, chosen, noted = float(reached.sum()), codes, reached
    if slot >= 0:
        values[:, slot, origin[1]] = noted
    return chosen


def _side_by_side(days: Sequence[Day], shown: Bools) -> Arrays:
    """All members as one block-diagonal chain, for the compiled search."""
    size, copies = days[0].size, len(days)
    moves = np.zeros((days[0].slots, copies * size, copies * size))
    when = np.concatenate([day.when for day in days])
    order = np.argsort(when, kind="stable")
    owner = np.concatenate([np.full(len(day.when), g) for g, day in enumerate(days)])[order]
    who = np.concatenate([day.who + g * size for g, day in enumerate(days)])[order]
    future = np.zeros((days[0].slots, copies * size, len(when)))
    for g, day in enumerate(days):
        block = slice(g * size, (g + 1) * size)
        moves[:, block, block] = day.moves
        future[:, block, owner == g] = future_beliefs(day)
    bound = np.concatenate([day.bound for day in days])[order]
    possible = np.concatenate([day.possible for day in days], axis=1)
    return Arrays(
        initial=np.concatenate([day.initial for day in days]),
        moves=moves,
        when=when[order],
        who=who,
        bound=bound,
        future=future,
        shown=np.concatenate([shown & day.possible for day in days], axis=1),
        copies=copies,
        ahead=limiting(possible, when[order], bound, future),
    )
