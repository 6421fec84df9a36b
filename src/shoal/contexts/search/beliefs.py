"""What an adversary may come to believe about a day of which some slots are suppressed.

A day chain is followed from "start" (before slot 0) to "end" (slot T), both always seen. Between
two releases everything is suppressed, and by the Markov property the belief about a slot depends
only on the release before it, the one after it, and the suppression probabilities in between. So
one kind of number decides everything:

    posterior = K(i→s) · p(s) · K(s→j) / K(i→j),

with K(i→j) = P(suppressed at every slot strictly between, state j | state i). Prefixes of an
output need no look of their own: their beliefs are averages of those of its completions.
Götz, Nath & Gehrke 2012, Propositions 1-5 and Theorem 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints

EQUALITY = 2e-13  # of delta: bounds are often met exactly, and 1/2 - 1/6 > 1/3 in doubles
LEVELS = 65536  # suppression probabilities are multiples of 1/65536
Codes = npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Day:
    """A day chain and its secrets as arrays, for the loops that evaluate suppression.

    `moves[t]` leads from slot t to t + 1; the last one leads every state to "end", kept as state
    0 of slot T. Secret c is "in state `who[c]` at slot `when[c]`" (sorted by slot); the belief in
    it may reach `bound[c]`, and its rise counts `share[c]` times. Secrets whose bound is 1 or
    more, and states that cannot occur, put no limit on anything and are not listed.
    """

    initial: Floats
    moves: Floats
    prior: Floats
    possible: Bools
    when: Ints
    who: Ints
    bound: Floats
    share: Floats
    _later: list[Floats] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def slots(self) -> int:
        return len(self.moves)

    @property
    def size(self) -> int:
        return len(self.initial)


def prepare(
    initial: Floats,
    transition: Floats,
    shares: Floats,
    delta: float,
    *,
    slack: float = EQUALITY,
    everything: bool = False,
    never: Bools | None = None,
) -> Day:
    """The day as arrays: bound = prior + δ / share, for every secret that can be breached.

    A bound sits δ·slack higher than that, so that outputs exactly on it pass; the re-check of a
    finished plan tolerates five times as much as a search and no more. With `everything`, secrets
    that no output can breach are listed too: a measure wants them, a search does not. Bounds of
    states of `never` stay below 1, so that no search shows them.
    """
    size, slots = len(initial), len(transition) + 1
    moves = np.zeros((slots, size, size))
    moves[:-1] = transition
    moves[-1, :, 0] = 1.0
    prior = np.empty((slots, size))
    possible = np.empty((slots, size), dtype=np.bool_)
    prior[0], possible[0] = initial, initial > 0
    for t in range(1, slots):
        prior[t] = prior[t - 1] @ transition[t - 1]
        possible[t] = (transition[t - 1][possible[t - 1]] > 0).any(axis=0)
    allowed = np.where(shares > 0, delta / np.where(shares > 0, shares, 1.0), np.inf)
    bound = prior + allowed * (1 + slack)
    if never is not None and never.any():
        bound[:, never] = np.minimum(bound, (1 + prior) / 2)[:, never]
    when, who = np.nonzero(((shares > 0) if everything else (bound < 1)) & possible)
    return Day(
        initial=np.ascontiguousarray(initial, dtype=np.float64),
        moves=moves,
        prior=prior,
        possible=possible,
        when=when.astype(np.int64),
        who=who.astype(np.int64),
        bound=bound[when, who],
        share=shares[when, who],
    )


def encoded(suppression: npt.ArrayLike) -> Codes:
    """Suppression probabilities rounded up to multiples of 1/65536, in 16 bits.

    Code k stands for k/65536, except that 65535 stands for 1: whatever is above 65534/65536
    becomes 1, so that a state that must never be shown never is.
    """
    level = np.ceil(np.asarray(suppression, dtype=np.float64) * LEVELS)
    return np.where(level >= LEVELS - 1, LEVELS - 1, level).astype(np.uint16)


def decoded(codes: Codes) -> Floats:
    """The suppression probabilities behind `codes`, exactly."""
    level = codes.astype(np.float64)
    return np.where(level == LEVELS - 1, 1.0, level / LEVELS)


def future_beliefs(day: Day) -> Floats:
    """f[t, j, c] = P(secret c | X_t = j), for secrets at slot t or later; 0 for earlier ones.

    Worked out once for each day.
    """
    if not day._later:
        day._later.append(_future_beliefs(day))
    return day._later[0]


def _future_beliefs(day: Day) -> Floats:
    table = np.zeros((day.slots, day.size, len(day.when)))
    for c, (slot, state) in enumerate(zip(day.when, day.who, strict=True)):
        table[slot, state, c] = 1.0
    for t in range(day.slots - 2, -1, -1):
        first = int(np.searchsorted(day.when, t, side="right"))
        table[t, :, first:] = day.moves[t] @ table[t + 1, :, first:]
    return table


def releasable(day: Day, beliefs: Floats) -> Bools:
    """Which states may be shown at all: those after which suppressing the rest of the day is safe.

    P(X_u = s | X_t = j) ≤ bound for every secret at u ≥ t. Necessary, because beliefs after a
    release are averages over what follows; enough, because suppressing everything tells nothing.
    """
    fine = day.possible.copy()
    for t in range(day.slots):
        first = int(np.searchsorted(day.when, t))
        over = beliefs[t, :, first:] > day.bound[first:]
        fine[t] &= ~over.any(axis=1)
    return fine


def jointly_releasable(days: Sequence[Day]) -> Bools:
    """Which states may be shown whichever of `days` an adversary holds.

    Possible on one of them at least, and releasable on every one on which they are possible.
    """
    fine = np.any([day.possible for day in days], axis=0)
    for day in days:
        fine &= releasable(day, future_beliefs(day)) | ~day.possible
    return np.asarray(fine)


def upper_bound(days: Sequence[Day]) -> float:
    """Σ P(X_t = j) over releasable states: no check whatever releases more on average.

    Of several days the one with the least counts.
    """
    shown = jointly_releasable(days)
    return min(float((day.prior * shown).sum()) for day in days)


def memoryless_rise(day: Day, suppression: Floats) -> float:
    """max over outputs and secrets of share·(posterior - prior), for one vector p[t, j].

    Evaluated in logarithms with exact powers of two, so that nothing underflows; outputs of
    probability 0 do not count. 0 when there are no secrets.
    """
    from shoal.contexts.search import kernels

    highest = kernels.memoryless_highest(day.initial, day.moves, suppression, day.when, day.who)
    return highest_to_rise(day, highest)


def breached_secrets(day: Day, suppression: Floats, delta: float) -> int:
    """How many secrets some output of one vector p[t, j] raises by more than δ / share."""
    from shoal.contexts.search import kernels

    highest = kernels.memoryless_highest(day.initial, day.moves, suppression, day.when, day.who)
    rise = day.share * (highest - day.prior[day.when, day.who])
    return int((rise > delta * (1 + 1e-12)).sum())


def segment_rise(day: Day, slot: int, state: int, suppression: Floats, least: float = 0.0) -> float:
    """As `memoryless_rise`, for what follows the release of `state` at `slot` (-1: "start").

    `suppression[t, j]` holds until the next release, which must not depend on anything before
    this one; entries up to `slot` are ignored. Rises up to `least` are not told apart: whoever
    asks whether a bound is kept, or for the worst of many segments, is answered sooner.
    """
    from shoal.contexts.search import kernels

    floor = floor_of(day, least)
    highest = floor.copy()
    kernels.segment_highest(
        day.initial, day.moves, slot, state, suppression, day.when, day.who, highest
    )
    return rise_above(day, highest, floor, least)


def floor_of(day: Day, least: float) -> Floats:
    """The beliefs at which a rise by `least` ends: prior + least / share; 0 when least is 0."""
    if least <= 0 or not len(day.when):
        return np.zeros(len(day.when))
    return np.asarray(day.prior[day.when, day.who] + least / day.share)


def rise_above(day: Day, highest: Floats, floor: Floats, least: float) -> float:
    """The highest rise of the beliefs that exceed their floor; `least` when none does."""
    over = highest > floor
    if not over.any():
        return max(0.0, least)
    prior = day.prior[day.when, day.who]
    return max(least, float((day.share * (highest - prior))[over].max()))


def released_fraction(day: Day, suppression: Floats) -> float:
    """Σ P(X_t = j)(1 - p[t, j]): the expected number of releases of one vector."""
    return float((day.prior * (1.0 - suppression)).sum())


def highest_to_rise(day: Day, highest: Floats) -> float:
    """max over secrets of share·(highest belief - prior); 0 when there are none."""
    if not len(highest):
        return 0.0
    prior = day.prior[day.when, day.who]
    return max(0.0, float((day.share * (highest - prior)).max()))


# A day as the compiled searches for segments take it: its arrays side by side, under names.


class Arrays(NamedTuple):
    """One day, or several without moves between them.

    `initial`, `moves`, `when`, `who` and `bound` are those of `Day`; `future` are its
    `future_beliefs`, and `shown` says which states may be shown. `copies` is 1, or the number of
    days side by side: states j, j + n, … are then one context. `ahead` is what `limiting` finds.
    """

    initial: Floats
    moves: Floats
    when: Ints
    who: Ints
    bound: Floats
    future: Floats
    shown: Bools
    copies: int
    ahead: Ints


def arrays_of(day: Day, shown: Bools) -> Arrays:
    """One day with nothing `ahead`, for whoever looks at past secrets only."""
    future, nothing = future_beliefs(day), np.zeros((0, 1), dtype=np.int64)
    return Arrays(day.initial, day.moves, day.when, day.who, day.bound, future, shown, 1, nothing)


def limiting(possible: Bools, when: Ints, bound: Floats, beliefs: Floats) -> Ints:
    """For each slot how many later secrets limit what it may show, and then which.

    Those that some possible state makes likelier than their bound. Whatever is shown, no rest of
    the others can exceed theirs.
    """
    slots, count = len(possible), len(when)
    table = np.zeros((slots, count + 1), dtype=np.int64)
    for t in range(slots):
        first = int(np.searchsorted(when, t, side="right"))
        over = beliefs[t][possible[t], first:] > bound[first:] * (1 - 1e-12)
        listed = first + np.flatnonzero(over.any(axis=0))
        table[t, 0], table[t, 1 : 1 + len(listed)] = len(listed), listed
    return table
