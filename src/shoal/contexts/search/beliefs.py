"""What an adversary believes about a day of which some slots are suppressed.

A day chain is followed from "start" (before slot 0) to "end" (slot T), both always seen. Between
two releases everything is suppressed, and by the Markov property the belief about a slot depends
only on the release before it, the one after it, and the suppression probabilities in between. So
one kind of number decides everything:

    posterior = K(i→s) · p(s) · K(s→j) / K(i→j),

with K(i→j) = P(suppressed at every slot strictly between, state j | state i). Prefixes of an
output need no evaluation of their own: their beliefs are averages of those of its completions.
Götz, Nath & Gehrke 2012, Propositions 1-5 and Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints

EQUALITY = 2e-13  # of delta: bounds are often met exactly, and 1/2 - 1/6 > 1/3 in doubles
IMPOSSIBLE_EXPONENT = -(1 << 40)  # the exponent of 2 that stands for a probability of 0
COIN_LEVELS = 65536  # suppression probabilities are multiples of 1/65536
Codes = npt.NDArray[np.uint16]
Origin = tuple[int, int]  # slot and state of a release; slot -1 is "start"
START: Origin = (-1, 0)


@dataclass(frozen=True, eq=False)
class Day:
    """A day chain and its secrets as arrays, for the loops that evaluate suppression.

    `moves[t]` leads from slot t to t + 1; the last one leads every state to "end", kept as state
    0 of slot T. Secret c is "in state `who[c]` at slot `when[c]`" (sorted by slot); the belief in
    it may reach `bound[c]`, and its rise counts `share[c]` times. Secrets whose bound is 1 or
    more, and states that cannot occur, put no limit on anything and are not listed. Its prior is
    certainly at least `least_prior[c]`; `delta` is the rise that every bound stands for.
    """

    initial: Floats
    moves: Floats
    prior: Floats
    possible: Bools
    when: Ints
    who: Ints
    bound: Floats
    share: Floats
    least_prior: Floats
    delta: float

    @cached_property
    def slots(self) -> int:
        return len(self.moves)

    @cached_property
    def size(self) -> int:
        return len(self.initial)

    @cached_property
    def future(self) -> Floats:
        """f[t, j, c] = P(secret c | X_t = j), for secrets at slot t or later; else 0."""
        table = np.zeros((self.slots, self.size, len(self.when)))
        table[self.when, self.who, np.arange(len(self.when))] = 1.0
        for t in range(self.slots - 2, -1, -1):
            first = int(np.searchsorted(self.when, t, side="right"))
            table[t, :, first:] = self.moves[t] @ table[t + 1, :, first:]
        return table

    @cached_property
    def arrays(self) -> Arrays:
        """Return the day as compiled loops take it, for callers that need past secrets only.

        `future` and `ahead` are empty, and every possible state counts as releasable.

        For callers that need past secrets only.
        """
        future, ahead = np.zeros((0, 0, 0)), np.zeros((0, 1), dtype=np.int64)
        own = self.initial, self.moves, self.when, self.who, self.bound
        return Arrays(*own, future, self.possible, 1, ahead)


def as_family(days: Day | Sequence[Day]) -> tuple[Day, ...]:
    """Return one day as a family of one, and several days as a tuple."""
    return (days,) if isinstance(days, Day) else tuple(days)


def law_after_release(day: Day, origin: Origin) -> Floats:
    """Return P(X_{t+1} = j | release of a state at slot t), or the initial law for the start."""
    slot, state = origin
    return np.asarray(day.initial if slot < 0 else day.moves[slot, state])


def days_allowing(days: Sequence[Day], origin: Origin) -> list[Day]:
    """Return the days on which a release is possible; the start is possible on all of them."""
    return [day for day in days if origin[0] < 0 or day.possible[origin]]


def prepare(
    initial: Floats,
    transition: Floats,
    shares: Floats,
    delta: float,
    *,
    slack: float = EQUALITY,
    everything: bool = False,
    never: Bools | None = None,
    lowered: bool = True,
) -> Day:
    """Return the day as arrays: bound = prior + δ / share for every secret that can be breached.

    A bound is for δ·(1 + slack), so that outputs exactly on it pass; the re-check of a finished
    plan tolerates five times as much as a search and no more. It is `lowered` by what an evaluation
    may be off, so that beliefs computed up to it certainly keep it. With `everything`, secrets
    that no output can breach are listed too: a measure wants them, a search does not. Bounds of
    states of `never` stay below 1, so that no search releases them.
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
    allowed = np.where(shares > 0, delta / np.where(shares > 0, shares, 1.0), np.inf) * (1 + slack)
    low = lower_priors(initial, moves[:-1], prior, possible)
    bound = computed_belief_limit(allowed + low, slots, size) if lowered else prior + allowed
    listed = allowed + low < 1
    if never is not None and never.any():
        bound[:, never] = np.minimum(bound, (1 + prior) / 2)[:, never]
        listed[:, never] = shares[:, never] > 0
    when, who = np.nonzero(((shares > 0) if everything else listed) & possible)
    return Day(
        initial=np.array(initial, dtype=np.float64),  # writable: compiled loops have one signature
        moves=moves,
        prior=prior,
        possible=possible,
        when=when.astype(np.int64),
        who=who.astype(np.int64),
        bound=bound[when, who],
        share=shares[when, who],
        least_prior=low[when, who],
        delta=delta * (1 + slack),
    )


def encoded(suppression: npt.ArrayLike, levels: int = COIN_LEVELS, kind: Any = np.uint16) -> Codes:
    """Round suppression probabilities up to multiples of 1/65536 and return 16-bit codes.

    Code k stands for k/65536, except that 65535 stands for 1: every value above 65534/65536
    becomes 1, so that a state that must never be released never is. `levels` may be another power
    of 2.
    """
    level = np.ceil(np.asarray(suppression, dtype=np.float64) * levels)
    codes: Codes = np.where(level >= levels - 1, levels - 1, level).astype(kind)
    return codes


def decoded(codes: npt.NDArray[Any], levels: int = COIN_LEVELS) -> Floats:
    """Return the suppression probabilities that `codes` stand for, exactly."""
    level = codes.astype(np.float64)
    return np.where(level == levels - 1, 1.0, level / levels)


def releasable_states(day: Day, beliefs: Floats) -> Bools:
    """Return the mask (slots, states) of states after which suppressing everything is safe.

    P(X_u = s | X_t = j) ≤ bound for every secret at u ≥ t. Necessary, because beliefs after a
    release are averages over what follows; enough, because suppressing everything tells nothing.
    """
    return np.asarray(day.possible & ~(beliefs > day.bound).any(axis=2))


def jointly_releasable(days: Sequence[Day]) -> Bools:
    """Return the mask of states that may be released whichever of `days` the adversary knows.

    Possible on one of them at least, and releasable on every one on which they are possible.
    """
    fine = np.any([day.possible for day in days], axis=0)
    for day in days:
        fine &= releasable_states(day, day.future) | ~day.possible
    return np.asarray(fine)


def upper_bound(days: Sequence[Day]) -> float:
    """Return Σ P(X_t = j) over releasable states: no check releases more on average.

    Of several days the one with the least counts.
    """
    releasable = jointly_releasable(days)
    return min(float((day.prior * releasable).sum()) for day in days)


def memoryless_rise(day: Day, suppression: Floats) -> float:
    """Return an upper bound of share·(posterior - prior) over all outputs, for one vector p[t, j].

    Rounds up by the bound of `relative_error`. Outputs of probability 0 do not count. 0 when there
    are no secrets.
    """
    highest = _memoryless_highest(day, suppression)
    return max(0.0, float(upper_rises(day, highest).max(initial=0.0)))


def count_breached_secrets(day: Day, suppression: Floats, delta: float) -> int:
    """Count the secrets that some output of one vector p[t, j] raises by more than δ / share."""
    highest = _memoryless_highest(day, suppression)
    rises = day.share * (highest - day.prior[day.when, day.who])
    return int((rises > delta * (1 + 1e-12)).sum())


def _memoryless_highest(day: Day, suppression: Floats) -> Floats:
    """Return the highest belief in each secret: every release begins a segment with one vector."""
    from shoal.contexts.search import kernels

    highest = np.zeros(len(day.when))
    for origin in vector_releases(day, suppression):
        kernels.raise_highest_beliefs(day.arrays, *origin, suppression, highest)
    return highest


def vector_releases(day: Day, suppression: Floats) -> list[Origin]:
    """Return the start and every release that a vector p[t, j] allows."""
    releasable = np.argwhere(day.possible & (suppression < 1)).tolist()
    return [START, *((slot, state) for slot, state in releasable)]


def segment_rise(day: Day, slot: int, state: int, suppression: Floats, least: float = 0.0) -> float:
    """Return `memoryless_rise` of what follows the release of `state` at `slot` (-1: the start).

    `suppression[t, j]` holds until the next release, which must not depend on anything before
    this one; entries up to `slot` are ignored. Rises up to `least` are returned as `least`: that
    is faster for callers that only compare with a bound or keep the worst of many segments.
    """
    from shoal.contexts.search import kernels

    floor = computed_limits(day, max(least, 0.0))
    highest = floor.copy()
    kernels.raise_highest_beliefs(day.arrays, slot, state, suppression, highest)
    over = highest > floor
    if not over.any():
        return max(0.0, least)
    return max(least, float(upper_rises(day, highest)[over].max()))


# How far the evaluation of a segment may be off: a bound that is known before it starts.
#
# Proof: contexts/checks/mask_rounding.md.


UNIT_ROUNDOFF = 2.0**-53  # the relative error of one rounding of doubles
LOST_TO_UNDERFLOW = 1e-60  # more than a belief can lose to products below the smallest double


def relative_error(slots: int, size: int, rows: int = 0) -> float:
    """Return an upper bound of the relative rounding error of a belief in one segment.

    A step multiplies twice, divides once and adds up `size` terms; numerator and denominator of a
    belief both err. `rows` histories are added up at a release, and where a window ends.
    """
    steps = (slots + 1) * (size + 4) + 2 * rows + 8
    return 2.02 * UNIT_ROUNDOFF * steps


def computed_belief_limit(limit: Floats, slots: int, size: int, rows: int = 0) -> Floats:
    """Return the largest computed belief for which the true belief is certainly at most `limit`."""
    bounded = (limit - LOST_TO_UNDERFLOW) / (1.0 + relative_error(slots, size, rows))
    return np.asarray(bounded * (1.0 - 16 * UNIT_ROUNDOFF))


def computed_limits(day: Day, delta: float, rows: int = 0) -> Floats:
    """Return, for each secret, the computed belief whose rise is certainly at most delta."""
    return computed_belief_limit(delta / day.share + day.least_prior, day.slots, day.size, rows)


def upper_rises(day: Day, highest: Floats, rows: int = 0) -> Floats:
    """Return an upper bound of the rise of each secret from its highest computed belief."""
    error = relative_error(day.slots, day.size, rows)
    upper = np.minimum(1.0, highest * (1.0 + error) + LOST_TO_UNDERFLOW)
    return np.asarray(day.share * (upper - day.least_prior) * (1.0 + 8 * UNIT_ROUNDOFF))


def lower_priors(initial: Floats, transition: Floats, prior: Floats, possible: Bools) -> Floats:
    """Return lower bounds of P(X_t = j) by the weights of whole paths, for computed priors[t, j].

    The rows of a chain in doubles sum to 1 only nearly, so a path weighs what its entries multiply
    to, divided by the sum over all paths. What may follow a state weighs at least the product of
    the least row sums, and all paths at most that of the largest.
    """
    rows = [
        [math.fsum(row) for row in matrix[here].tolist()]
        for matrix, here in zip(transition, possible[:-1], strict=True)
    ]
    onward = np.cumprod([1.0, *(min(sums) for sums in reversed(rows))])[::-1]
    total = math.fsum(initial.tolist()) * math.prod(max(sums) for sums in rows)
    roundings = np.arange(1, len(prior) + 1) * (len(initial) + 2) + 4 * len(prior) + 16
    factor = (onward / total) * (1.0 - 1.01 * UNIT_ROUNDOFF * roundings)
    return np.asarray(prior * factor[:, None])


def vector_value(day: Day, suppression: Floats) -> float:
    """Return Σ P(X_t = j)(1 - p[t, j]), the expected number of releases of one vector."""
    return float((day.prior * (1.0 - suppression)).sum())


class Arrays(NamedTuple):
    """One day, or several without moves between them.

    `initial`, `moves`, `when`, `who` and `bound` are those of `Day`; `future` are its
    `future`, and `releasable` masks the states that may be released. `copies` is 1, or the
    number of days side by side: states j, j + n, … are then one context. `ahead` is what `limiting`
    finds.
    """

    initial: Floats
    moves: Floats
    when: Ints
    who: Ints
    bound: Floats
    future: Floats
    releasable: Bools
    copies: int
    ahead: Ints


def limiting_secrets(possible: Bools, when: Ints, bound: Floats, beliefs: Floats) -> Ints:
    """Return a table that lists, for each slot, the later secrets that limit what it may release.

    Column 0 holds how many there are and the next columns their numbers: secrets that some possible
    state makes likelier than their bound. No release can take another secret above its
    bound.

    Those that some possible state makes likelier than their bound. Whatever is released, no rest of
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
