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

import math
from collections.abc import Callable, Sequence
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
        """As the compiled loops take it: no `future`, nothing `ahead`, all that is possible shown.

        For whoever looks at past secrets only.
        """
        future, ahead = np.zeros((0, 0, 0)), np.zeros((0, 1), dtype=np.int64)
        own = self.initial, self.moves, self.when, self.who, self.bound
        return Arrays(*own, future, self.possible, 1, ahead)


def as_family(days: Day | Sequence[Day]) -> tuple[Day, ...]:
    """One day, or the members of a family, as members."""
    return (days,) if isinstance(days, Day) else tuple(days)


def law_after_release(day: Day, origin: Origin) -> Floats:
    """The law of the slot after a release, or of the first one."""
    slot, state = origin
    return np.asarray(day.initial if slot < 0 else day.moves[slot, state])


def days_allowing(days: Sequence[Day], origin: Origin) -> list[Day]:
    """The days on which a release is possible; "start" is on all of them."""
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
    """The day as arrays: bound = prior + δ / share, for every secret that can be breached.

    A bound is for δ·(1 + slack), so that outputs exactly on it pass; the re-check of a finished
    plan tolerates five times as much as a search and no more. It is `lowered` by what an evaluation
    may be off, so that beliefs computed up to it certainly keep it. With `everything`, secrets
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
    """Suppression probabilities rounded up to multiples of 1/65536, in 16 bits.

    Code k stands for k/65536, except that 65535 stands for 1: whatever is above 65534/65536
    becomes 1, so that a state that must never be shown never is. So for other `levels`.
    """
    level = np.ceil(np.asarray(suppression, dtype=np.float64) * levels)
    codes: Codes = np.where(level >= levels - 1, levels - 1, level).astype(kind)
    return codes


def decoded(codes: npt.NDArray[Any], levels: int = COIN_LEVELS) -> Floats:
    """The suppression probabilities behind `codes`, exactly."""
    level = codes.astype(np.float64)
    return np.where(level == levels - 1, 1.0, level / levels)


def future_beliefs(day: Day) -> Floats:
    return day.future


def releasable_states(day: Day, beliefs: Floats) -> Bools:
    """Which states may be shown at all: those after which suppressing the rest of the day is safe.

    P(X_u = s | X_t = j) ≤ bound for every secret at u ≥ t. Necessary, because beliefs after a
    release are averages over what follows; enough, because suppressing everything tells nothing.
    """
    return np.asarray(day.possible & ~(beliefs > day.bound).any(axis=2))


def jointly_releasable(days: Sequence[Day]) -> Bools:
    """Which states may be shown whichever of `days` an adversary holds.

    Possible on one of them at least, and releasable on every one on which they are possible.
    """
    fine = np.any([day.possible for day in days], axis=0)
    for day in days:
        fine &= releasable_states(day, future_beliefs(day)) | ~day.possible
    return np.asarray(fine)


def upper_bound(days: Sequence[Day]) -> float:
    """Σ P(X_t = j) over releasable states: no check whatever releases more on average.

    Of several days the one with the least counts.
    """
    releasable = jointly_releasable(days)
    return min(float((day.prior * releasable).sum()) for day in days)


def memoryless_rise(day: Day, suppression: Floats) -> float:
    """Upper bound of share·(posterior - prior) over outputs and secrets, for one vector p[t, j].

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
    """ "start", and every release of one vector p[t, j]."""
    releasable = np.argwhere(day.possible & (suppression < 1)).tolist()
    return [START, *((slot, state) for slot, state in releasable)]


def segment_rise(day: Day, slot: int, state: int, suppression: Floats, least: float = 0.0) -> float:
    """As `memoryless_rise`, for what follows the release of `state` at `slot` (-1: "start").

    `suppression[t, j]` holds until the next release, which must not depend on anything before
    this one; entries up to `slot` are ignored. Rises up to `least` are not told apart: whoever
    asks whether a bound is kept, or for the worst of many segments, is answered sooner.
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
    """Return the largest relative error of a belief that a segment of a day is evaluated to.

    A step multiplies twice, divides once and adds up `size` terms; numerator and denominator of a
    belief both err. `rows` histories are added up when an output is shown, and where a window ends.
    """
    steps = (slots + 1) * (size + 4) + 2 * rows + 8
    return 2.02 * UNIT_ROUNDOFF * steps


def computed_belief_limit(limit: Floats, slots: int, size: int, rows: int = 0) -> Floats:
    """Return the computed beliefs up to which the true ones are certainly at most `limit`."""
    bounded = (limit - LOST_TO_UNDERFLOW) / (1.0 + relative_error(slots, size, rows))
    return np.asarray(bounded * (1.0 - 16 * UNIT_ROUNDOFF))


def computed_limits(day: Day, delta: float, rows: int = 0) -> Floats:
    """Return, for each secret, up to which computed belief the rise is certainly at most delta."""
    return computed_belief_limit(delta / day.share + day.least_prior, day.slots, day.size, rows)


def upper_rises(day: Day, highest: Floats, rows: int = 0) -> Floats:
    """Return an upper bound of the rise of each secret whose highest belief was computed so."""
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
    """Σ P(X_t = j)(1 - p[t, j]): the expected number of releases of one vector."""
    return float((day.prior * (1.0 - suppression)).sum())


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
    releasable: Bools
    copies: int
    ahead: Ints


def limiting_secrets(possible: Bools, when: Ints, bound: Floats, beliefs: Floats) -> Ints:
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


# What may be shown after slots that nobody read: an exact filter over the hidden contexts.
#
# Tables of suppression probabilities are calibrated for days on which every earlier coin was
# thrown. A slot without a reading throws none: a public step that tells nothing. From there to the
# next release this follows what an adversary believes, one day chain at a time, and lets a context
# be shown only as often as leaves every belief inside its bound, whichever way the coin falls.
# Proof: contexts/checks/mask_missing.md.


# beliefs remembered: some people's days side by side, of some ten thousand numbers each
BELIEFS_KEPT = 256
LEAST_HIDDEN = (
    2.0**-12
)  # nothing is shown more often than 1 minus this: every output stays possible
BELIEF_MARGIN = 1e-12  # of belief, kept from every bound besides what rounding may add
PACE = 0.3  # of the room is spent at a slot: .15 of 32 slots shown with one not read, .12 with all
SHARES_TRIED = (1.0, 0.9, 0.5, 0.1)  # of the probabilities wished for, tried in turn


class Belief(NamedTuple):
    """What is believed before a slot, given the last release and what followed: all of it public.

    `logs[j]` is log P(X_t = j | …) up to a constant, -inf only where j is impossible, and
    `held[j, c]` = P(secret c | …, X_t = j), for the secrets after the release.
    """

    logs: Floats
    held: Floats


BeliefsBefore = Callable[[Day, Origin, int], Belief | None]


def opening(day: Day, origin: Origin) -> Belief:
    """The belief before the slot after a release (slot -1 is "start")."""
    slot = origin[0]
    later = future_beliefs(day)[slot + 1][:, count_secrets_until(day, slot) :]
    return Belief(logs_of(law_after_release(day, origin)), later)


def onward(day: Day, origin: Origin, t: int, belief: Belief, suppression: Floats) -> Belief | None:
    """The belief before slot t + 1 when slot t was suppressed with probabilities `hidden`.

    All ones for a slot that was not read: nothing is learned. None when nothing could be
    suppressed, so that no law is left. Weights are logarithms, so none underflows; the held
    beliefs are averages by the reversed chain, a stochastic matrix.
    """
    kept = (belief.logs + logs_of(suppression))[None]
    logs, held = pushed(day, origin, t, kept, belief.held[None], np.zeros(day.size, np.int64))
    if not np.isfinite(logs).any():
        return None
    return Belief(logs[0] - logs[np.isfinite(logs)].max(), held[0])


def pushed(
    day: Day, origin: Origin, t: int, kept: Floats, held: Floats, digits: Ints
) -> tuple[Floats, Floats]:
    """Log laws kept[h, j] and beliefs held[h, j, c] at slot t, moved on to slot t + 1.

    Each history h grows by the digit of the state that is left; with digits of 0 there is one.
    """
    first = count_secrets_until(day, origin[0])
    past = count_secrets_until(day, t) - first
    logs, beliefs = [], []
    for digit in range(int(digits.max()) + 1):
        group = np.flatnonzero(digits == digit)
        weight = kept[:, group, None] + logs_of(day.moves[t, group])  # [h, j, k]
        law = np.logaddexp.reduce(weight, axis=1)
        back = np.exp(weight - np.where(np.isfinite(law), law, 0.0)[:, None])
        later = np.repeat(future_beliefs(day)[t + 1][None, :, first:], len(kept), axis=0)
        later[..., :past] = 0.0
        for index, j in enumerate(group):  # in this order everywhere: a stored stream goes on alike
            later[..., :past] += back[:, index, :, None] * held[:, None, j, :past]
        logs.append(law)
        beliefs.append(later)
    shape = (len(logs) * len(kept), day.size)
    joined = np.stack(beliefs, axis=1).reshape(*shape, held.shape[2])
    return np.stack(logs, axis=1).reshape(shape), joined


def codes_after_gap(
    days: Sequence[Day], beliefs: Sequence[Belief | None], origin: Origin, t: int
) -> Codes:
    """Suppression probabilities at slot t, as codes, that keep every bound of every day.

    x may be shown only if P(c | …, X_t = x) stays inside the bound of each secret, and only as
    often as leaves the belief after suppression inside too; what costs the least room comes first.
    Suppressing everything always keeps the bounds. Rounded to more suppression.
    """
    alive = [
        _SlotBounds(d, b, origin, t) for d, b in zip(days, beliefs, strict=True) if b is not None
    ]
    nothing = np.full(days[0].size, COIN_LEVELS - 1, dtype=np.uint16)
    releasable = np.any(
        [np.zeros(len(nothing), np.bool_), *(rows.possible for rows in alive)], axis=0
    )
    for rows in alive:
        releasable &= ~rows.possible | (rows.spare >= 0).all(axis=1)
    if not releasable.any():
        return nothing
    chances = _release_chances(alive, releasable, max(PACE, 1 / (days[0].slots - t)))
    for share in SHARES_TRIED:
        codes = encoded(1.0 - share * chances)
        if all(rows.keep(codes) for rows in alive):
            return codes
    return nothing


class _SlotBounds:
    """One day's bounds at one slot: `spare[j, c]` is the bound less the belief if j is shown."""

    def __init__(self, day: Day, belief: Belief, origin: Origin, t: int) -> None:
        self.logs, self.held = belief.logs, belief.held
        self.possible: Bools = np.isfinite(belief.logs)
        spread = np.abs(belief.logs[self.possible]).max(initial=0.0) + day.size
        rounding = 16 * np.finfo(np.float64).eps * (t - origin[0] + 1) * (spread + 745.0)
        self.bound = day.bound[count_secrets_until(day, origin[0]) :] - BELIEF_MARGIN - rounding
        self.spare = self.bound - belief.held
        weight = np.exp(belief.logs - belief.logs[self.possible].max())
        self.law = weight / weight.sum()

    def keep(self, codes: Codes) -> bool:
        """Whether the belief after a suppression at these codes is inside every bound."""
        logs = self.logs + logs_of(decoded(codes))
        weight = np.exp(logs - logs[np.isfinite(logs)].max())
        return bool(((weight[:, None] * self.held).sum(axis=0) / weight.sum() <= self.bound).all())


def _release_chances(alive: Sequence[_SlotBounds], releasable: Bools, pace: float) -> Floats:
    """How often to show each context: as often as a share of the room allows, the cheapest first.

    Showing j with probability x takes x·P(j)·(bound - belief) of the room of each secret.
    """
    cost = np.concatenate([(rows.law[:, None] * rows.spare).T for rows in alive])  # [row, j]
    room = np.concatenate([(rows.law[:, None] * rows.spare).sum(axis=0) for rows in alive])
    price = (
        np.concatenate([rows.spare.T for rows in alive])
        / np.maximum(room, BELIEF_MARGIN**2)[:, None]
    )
    room, chances = room * pace, np.zeros(len(releasable))
    for j in sorted(np.flatnonzero(releasable), key=lambda j: float(price[:, j].max(initial=0.0))):
        takes = cost[:, j] > 0
        limit = (room[takes] / cost[takes, j]).min(initial=1.0)
        chances[j] = min(max(float(limit), 0.0), 1.0 - LEAST_HIDDEN)
        room = room - chances[j] * cost[:, j]
    return chances


class AfterGaps:
    """Decides every slot between one that was not read and the next release, for one plan.

    A function of what is public: the last release, which slots were not read since, the slot. So
    a stream keeps only those, and finds the same probabilities again when it is taken up.
    """

    def __init__(self, days: Sequence[Day]) -> None:
        self.days = tuple(days)
        self._kept: dict[tuple[int, ...], list[Belief | None]] = {}

    def codes(
        self, origin: Origin, gaps: tuple[int, ...], slot: int, first: int, go: BeliefsBefore
    ) -> Codes:
        """The codes of `slot`, whose filter begins at slot `first`, `go` giving its beliefs then.

        `gaps` are the slots not read as boundaries: from gaps[0] up to gaps[1], and so on.
        """
        t = slot
        while t > first and _history_key(origin, gaps, t) not in self._kept:
            t -= 1
        known = self._kept.get(_history_key(origin, gaps, t))
        beliefs = known or [
            go(day, origin, t) if days_allowing((day,), origin) else None for day in self.days
        ]
        for u in range(t, slot):
            suppression = np.ones(self.days[0].size)
            if not _in_gap(gaps, u):
                suppression = decoded(codes_after_gap(self.days, beliefs, origin, u))
            beliefs = [
                None if belief is None else onward(day, origin, u, belief, suppression)
                for day, belief in zip(self.days, beliefs, strict=True)
            ]
        while len(self._kept) >= BELIEFS_KEPT:
            self._kept.pop(next(iter(self._kept)))
        self._kept[_history_key(origin, gaps, slot)] = beliefs
        return codes_after_gap(self.days, beliefs, origin, slot)


def count_secrets_until(day: Day, slot: int) -> int:
    """How many of the secrets lie at `slot` or before it."""
    return int(np.searchsorted(day.when, slot, side="right"))


def logs_of(values: Floats) -> Floats:
    """Logarithms, -inf for 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(values))


def log_sums(logs: Floats) -> Floats:
    """log Σ exp over the first axis; -inf where all are."""
    return np.asarray(np.logaddexp.reduce(logs, axis=0))


def _in_gap(gaps: tuple[int, ...], slot: int) -> bool:
    return any(a <= slot < b for a, b in zip(gaps[::2], gaps[1::2], strict=True))


def _history_key(origin: Origin, gaps: tuple[int, ...], slot: int) -> tuple[int, ...]:
    """What decides the belief before a slot: the release, and the slots not read until then."""
    known = [
        edge
        for a, b in zip(gaps[::2], gaps[1::2], strict=True)
        if a < slot
        for edge in (a, min(b, slot))
    ]
    return (*origin, slot, *known)
