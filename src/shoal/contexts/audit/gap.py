"""What an adversary may become surer of on a suppressed day, followed slot by slot.

A law is P(X_t = j | last release, suppressed since) up to a factor, one column per release. A
belief is q[j] = P(fact | the same, X_t = j), one column per release and fact. Given suppression at
slot t, with h the probability of that and A the moves,

    law'[j] = Σ_k law[k] h[k] A[k, j],    q'[j] = Σ_k law[k] h[k] A[k, j] q[k] / law'[j],

so q' is an average of q: no later belief in the fact exceeds the largest q of today.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Bools, Floats, Ints

if TYPE_CHECKING:
    from shoal.contexts.audit.sweep import Sweep

HALF_ULP = 2.0**-53  # the relative error of one rounding
MAX_UNDERFLOW = 1e-90  # absolute: what may vanish from a belief
END = -1  # in place of a context: nothing is released up to the end of the day
MAX_LABEL_SETS = 64  # sets of states written out for those who may learn any label


class Facts(NamedTuple):
    """Beliefs to follow: E[weight(X_t)] for fact f, t = slot[f], weight[f] in [0, 1] per context.

    Its rise over `prior[f]` counts share[f] times. `prior` is rounded down. Facts of one `kind`
    compete for the highest rise. Sorted by slot; `name` says what is believed.
    """

    slot: Ints
    weight: Floats
    share: Floats
    prior: Floats
    kind: Ints
    name: tuple[str, ...]
    kinds: int


def rounding_error(steps: float, size: int) -> float:
    """Return a bound of the relative error of a belief carried over so many steps of a day.

    A mass is a sum of products of non-negative numbers: each step adds n + 2 rounding errors to a
    law, and 2n + 6 to a mass that is kept as belief times law; nothing cancels.
    """
    return 1.01 * steps * (3 * size + 10) * HALF_ULP


FactRow = tuple[int, Floats, float, int, str]  # slot, weight, share, kind and name of a fact


def facts_of(day: DayChain, secrets: SensitiveContexts) -> Facts:
    """Return the facts to follow: the promise as kind 0, and those of adversaries unsure of labels.

    Kind 1 is LC2, which takes every label of a state for alike; kind 2 is LC1, which may know any
    of them. Without these where there are no labels, or too many sets of states to write out.
    """
    labelled = _facts_about_contexts(day, secrets) if secrets.labels else None
    return _facts(day, [*_sensitive(day, secrets), *(labelled or ())], 1 if labelled is None else 3)


def sensitive_facts(day: DayChain, secrets: SensitiveContexts) -> Facts:
    """Return being in each sensitive context at each slot where that is possible: the promise."""
    return _facts(day, _sensitive(day, secrets), 1)


def _sensitive(day: DayChain, secrets: SensitiveContexts) -> list[FactRow]:
    shares, weights = secrets.shares(day), np.eye(day.size)
    indices = np.argwhere((shares > 0) & day.support()).tolist()
    return [(t, weights[j], shares[t, j], 0, repr(day.states[j])) for t, j in indices]


def _facts_about_contexts(day: DayChain, secrets: SensitiveContexts) -> list[FactRow] | None:
    """Return the facts about sensitive contexts when states stand for sets of contexts.

    Any set of the states that may hide it counts for LC1. None when there are too many of them.
    """
    found: list[FactRow] = []
    possible = day.support()
    for names, when in secrets.facts(day.slots):
        fair = secrets.fair(names, day)
        hiding = np.flatnonzero(fair > 0)
        if 2 ** len(hiding) > MAX_LABEL_SETS:
            return None
        words, sets = " or ".join(map(repr, names)), _nonempty_sets(hiding.tolist(), day.size)
        for t in when:
            if possible[t, hiding].any():
                found.append((t, fair, 1.0, 1, words))
                found += [(t, one, 1.0, 2, words) for one in sets if one[possible[t]].any()]
    return found


def _nonempty_sets(states: Sequence[int], size: int) -> list[Floats]:
    """Return every non-empty set of states as a row of ones and zeros."""
    sizes = range(1, len(states) + 1)
    chosen = [some for count in sizes for some in combinations(states, count)]
    return [np.isin(np.arange(size), some).astype(np.float64) for some in chosen]


def _facts(day: DayChain, rows: list[FactRow], kinds: int) -> Facts:
    """Return rows as `Facts`, sorted by slot, with priors rounded down."""
    rows = sorted(rows, key=lambda row: row[0])
    slot = np.array([row[0] for row in rows], dtype=np.int64)
    weight = np.array([row[1] for row in rows]).reshape(-1, day.size)
    share, kind = np.array([row[2] for row in rows]), np.array([row[3] for row in rows], np.int64)
    prior = (weight * day.marginals()[slot]).sum(axis=1) * (1 - rounding_error(day.slots, day.size))
    return Facts(slot, weight, share, prior, kind, tuple(row[4] for row in rows), kinds)


SMALLEST_PLAIN_MASS = (
    1e-100  # below it a plain product of law, probability and move might lose digits
)
MAX_LOG_COLUMNS = 4096  # columns moved on together in logarithms


MovedLaw = tuple[Floats, Floats, float]  # laws and beliefs one slot later, and the error added


def plain_step(
    law: Floats, suppression: Floats, beliefs: Floats, owner: Ints, moves: Floats
) -> MovedLaw:
    """Advance laws and beliefs one slot in plain numbers, given suppression.

    Right as long as no positive entry of law and moves is below SMALLEST_PLAIN_MASS. Laws come back
    with their largest entry in [1/2, 1), all 0 where suppression is impossible.
    """
    kept = law * suppression
    after = moves.T @ kept
    carried = moves.T @ (beliefs * np.take(kept, owner, axis=1))
    with np.errstate(divide="ignore"):
        inverse = np.where(after > 0, 1.0 / after, 0.0)
    carried *= np.take(inverse, owner, axis=1)
    power = np.frexp(after.max(axis=0, initial=0.0))[1]
    return np.ldexp(after, -power), carried, rounding_error(1, len(law))


def log_step(
    law: Floats, suppression: Floats, beliefs: Floats, owner: Ints, moves: Floats
) -> MovedLaw:
    """Advance laws and beliefs one slot with laws as natural logarithms, of any size.

    -inf stands for impossible. No factor is taken out.
    """
    with np.errstate(divide="ignore"):
        parts = law, np.log(suppression), np.log(moves)
    terms = (parts[0] + parts[1])[:, None, :] + parts[2][:, :, None]
    after = log_sum(terms)
    safe = np.where(np.isfinite(after), after, 0.0)
    weight = np.exp(terms - safe)
    carried = np.empty_like(beliefs)
    for first in range(0, len(owner), MAX_LOG_COLUMNS):
        some = slice(first, first + MAX_LOG_COLUMNS)
        carried[:, some] = np.einsum("kjp,kp->jp", weight[:, :, owner[some]], beliefs[:, some])
    digits = sum(float(np.abs(part[np.isfinite(part)]).max(initial=0.0)) for part in parts)
    return after, carried, rounding_error(1, len(law)) + 8 * (digits + 1) * HALF_ULP


def log_sum(terms: Floats) -> Floats:
    """Return log Σ e^terms over the first axis; -inf where every term is -inf."""
    top = terms.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(np.log(np.exp(terms - safe).sum(axis=0)) + safe)


def log_laws(law: Floats) -> Floats:
    """Return plain laws as natural logarithms."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(law))


def normalise_logs(law: Floats) -> Floats:
    """Return laws in logarithms with the largest entry of each column 0."""
    top = law.max(axis=0)
    return np.asarray(law - np.where(np.isfinite(top), top, 0.0))


def exponentiate(law: Floats) -> Floats:
    """Return plain laws from logarithms; what vanishes is below 1e-300 of the largest entry."""
    return np.asarray(np.exp(normalise_logs(law)))


# The first slots after a release of a machine that remembers what was visited since.
#
# Each history is followed as if it were a release of its own: its law, and the beliefs given its
# contexts. Where something is released, and where the memory ends, histories are averaged by their
# masses. In logarithms throughout: windows are short.


class HistoryFollower:
    """Follows the first slots after a release of a machine that remembers visits since then.

    Laws are (contexts, histories) in logarithms, beliefs (facts, contexts, histories).

    `law` is that of the slot after the release.
    """

    def __init__(self, sweep: Sweep, origin: tuple[int, int], law: Floats) -> None:
        self.sweep, self.origin = sweep, origin
        self.law = log_laws(law)[:, None]
        self.facts: Ints = np.zeros(0, dtype=np.int64)
        self.beliefs = np.zeros((0, len(law), 1))
        self.error = 0.0

    def follow(self, gap: GapFollower, window: list[Floats]) -> None:
        """Note what the slots of the window may release, then hand what follows to `gap`."""
        sweep, t = self.sweep, self.origin[0] + 1
        for table in window:
            releases, kept = (self.law + log_laws(part) for part in (1 - table.T, table.T))
            for context in np.flatnonzero(np.isfinite(releases).any(axis=1)).tolist():
                sweep.note_release(t, context, self.origin)
                self._note(releases[context], self.beliefs[:, context], t, context)
            here = sweep.here(t)  # facts of slot t depend on its context alone
            fresh = np.repeat(sweep.facts.weight[here][:, :, None], self.law.shape[1], axis=2)
            self.facts = np.concatenate([self.facts, here])
            self.beliefs = np.concatenate([self.beliefs, fresh])
            if t == sweep.day.slots - 1 and np.isfinite(kept).any():
                beliefs = self.beliefs.reshape(len(self.facts), kept.size)
                self._note(kept.ravel(), beliefs, t + 1, END)
            if t == sweep.day.slots - 1:
                return
            self._suppress(t, table.T)
            if not np.isfinite(self.law).any():
                return
            t += 1
        self._hand_on(t, gap)

    def _suppress(self, t: int, suppression: Floats) -> None:
        """Advance one suppressed slot: each history splits into one for each digit."""
        base, (size, histories) = self.sweep.tables.base, self.law.shape
        digit = self.sweep.tables.digits[:, None] == np.arange(base)[None, :]
        split = (suppression[:, :, None] * digit[:, None, :]).reshape(size, -1)
        columns = np.repeat(self.beliefs, base, axis=2).transpose(1, 0, 2).reshape(size, -1)
        owner = np.tile(np.arange(histories * base), len(self.facts))
        laws = np.repeat(self.law, base, axis=1)
        self.law, moved, added = log_step(laws, split, columns, owner, self.sweep.moves[t])
        shape = (size, len(self.facts), histories * base)
        self.beliefs = moved.reshape(shape).transpose(1, 0, 2)
        self.error += added

    def _hand_on(self, t: int, gap: GapFollower) -> None:
        """Merge histories and let `gap` follow the release from slot t on."""
        law = log_sum(self.law.T)
        safe = np.where(np.isfinite(law), law, 0.0)
        beliefs = (self.beliefs * np.exp(self.law - safe[:, None])).sum(axis=2)
        error = np.array([self.error + self._average()])
        owner = np.zeros(len(self.facts), dtype=np.int64)
        gap.wait(t, np.array([self.origin]), law[:, None], error, (beliefs.T, owner, self.facts))

    def _note(self, masses: Floats, beliefs: Floats, until: int, released: int) -> None:
        """Note the average of beliefs (facts, …) by their masses, which are logarithms."""
        weight = np.exp(masses - log_sum(masses[:, None]))
        error = self.error + self._average()
        self.sweep.note(self.facts, beliefs @ weight, error, self.origin, until, released)

    def _average(self) -> float:
        """Return the relative error of one more average over contexts and histories."""
        top = np.abs(self.law[np.isfinite(self.law)]).max(initial=0.0)
        return rounding_error(1, self.law.size) + 8 * (float(top) + 50) * HALF_ULP


CONVERSION_ERROR = (
    8 * (1 - math.log(SMALLEST_PLAIN_MASS)) * HALF_ULP
)  # relative error of logarithms made plain
Columns = tuple[Floats, Ints, Ints]  # beliefs, the releases they belong to, their facts


class GapGroup:
    """Releases whose laws are kept in one number format, and the beliefs still followed.

    Columns of `law` belong to releases, those of `beliefs` to (release, fact) pairs.
    """

    def __init__(self, size: int, *, logs: bool) -> None:
        self.logs = logs
        self.origins = np.zeros((0, 2), dtype=np.int64)
        self.law, self.error = np.zeros((size, 0)), np.zeros(0)
        self.beliefs = np.zeros((size, 0))
        self.owner, self.fact = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.origins)

    def add(self, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """Add releases; `columns` are beliefs, the index of their release here, and facts."""
        beliefs, owner, fact = columns
        self.owner = np.concatenate([self.owner, owner + len(self.origins)])
        self.origins = np.concatenate([self.origins, origins])
        self.law = np.concatenate([self.law, law], axis=1)
        self.error = np.concatenate([self.error, error])
        self.beliefs = np.concatenate([self.beliefs, beliefs], axis=1)
        self.fact = np.concatenate([self.fact, fact])

    def part(self, which: Bools) -> tuple[Ints, Floats, Floats, Columns]:
        """Return the chosen releases with their columns, in the form that `add` takes."""
        number = np.cumsum(which) - 1
        columns = which[self.owner]
        owner = number[self.owner[columns]]
        own = self.beliefs[:, columns], owner, self.fact[columns]
        return self.origins[which], self.law[:, which], self.error[which], own

    def keep(self, which: Bools) -> None:
        """Drop all but the chosen releases."""
        if not which.all():
            kept = self.part(which)
            self.origins, self.law, self.error = kept[:3]
            self.beliefs, self.owner, self.fact = kept[3]

    def keep_columns(self, which: Bools) -> None:
        """Drop all but the chosen beliefs."""
        if not which.all():
            self.beliefs, self.owner = self.beliefs[:, which], self.owner[which]
            self.fact = self.fact[which]

    def follow(self, facts: Ints, weight: Floats) -> None:
        """Start to follow the facts of this slot, which its context decides."""
        if len(facts):
            count = len(self)
            fresh = np.repeat(weight.T, count, axis=1)
            self.beliefs = np.concatenate([self.beliefs, fresh], axis=1)
            self.owner = np.concatenate([self.owner, np.tile(np.arange(count), len(facts))])
            self.fact = np.concatenate([self.fact, np.repeat(facts, count)])

    def possible(self) -> Bools:
        """Return the mask (contexts, releases) of contexts possible at this slot."""
        return np.asarray(np.isfinite(self.law) if self.logs else self.law > 0)

    def suppressed_laws(self, suppression: Floats) -> Floats:
        """Return the laws of this slot given suppression, plain and up to a factor each."""
        return (
            exponentiate(self.law + log_laws(suppression)) if self.logs else self.law * suppression
        )


class GapFollower:
    """All releases followed at one slot, in plain numbers or, if those underflow, in logarithms."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        size = sweep.day.size
        self.plain, self.logs = GapGroup(size, logs=False), GapGroup(size, logs=True)
        self.waiting: dict[int, list[tuple[Ints, Floats, Floats, Columns]]] = {}

    def empty(self) -> bool:
        """Return whether nothing is left to follow."""
        return not (len(self.plain) or len(self.logs) or self.waiting)

    def _last(self, origins: Ints) -> Ints:
        """Return, for each release, a slot after which nothing can be released."""
        return self.sweep.tables.last[origins[:, 0] + 1, origins[:, 1]]

    def join(self, t: int, origins: Ints, law: Floats) -> None:
        """Start to follow releases with these laws at slot t, if any later release is possible."""
        mute = self._last(origins) < t
        begun = np.full(len(mute), rounding_error(1, len(law)))
        self.sweep.end_releases(t, law[:, mute], origins[mute], begun[mute])
        none = np.zeros((len(law), 0)), np.zeros(0, np.int64), np.zeros(0, np.int64)
        error, law = np.zeros(int((~mute).sum())), law[:, ~mute]
        if self.sweep.has_small_entries:
            self.logs.add(origins[~mute], log_laws(law), error, none)
        else:
            self.plain.add(origins[~mute], law, error, none)

    def wait(self, t: int, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """Keep releases that join at slot t: laws in logarithms, and beliefs in earlier facts."""
        self.waiting.setdefault(t, []).append((origins, normalise_logs(law), error, columns))

    def _rejoin(self, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """Add waiting releases in plain numbers, unless an entry is too small for them."""
        thin = np.isfinite(law) & (law < np.log(SMALLEST_PLAIN_MASS))
        if self.sweep.has_small_entries or thin.any():
            self.logs.add(origins, law, error, columns)
        else:
            self.plain.add(origins, np.exp(law), error + CONVERSION_ERROR, columns)

    def step(self, t: int) -> None:
        """Note what slot t may release, and advance by its suppression."""
        for part in self.waiting.pop(t, []):
            self._rejoin(*part)
        for group in (self.plain, self.logs):
            if len(group):
                self._step(t, group)
        law = self.plain.law
        thin = np.asarray(((law > 0) & (law < SMALLEST_PLAIN_MASS)).any(axis=0))
        if thin.any():
            origins, thin_law, error, columns = self.plain.part(thin)
            self.logs.add(origins, log_laws(thin_law), error, columns)
            self.plain.keep(~thin)

    def _step(self, t: int, group: GapGroup) -> None:
        """Note what one group may release at slot t, end its silent releases, and advance the
        rest.
        """
        tables = self.sweep.tables
        suppression = tables.suppression(t, *group.origins.T)
        self._note_releases(t, group, group.possible() & (suppression < 1))
        here = self.sweep.here(t)
        group.follow(here, self.sweep.facts.weight[here])
        mute = (self._last(group.origins) <= t) | (t == tables.slots - 1)
        if mute.any():
            self._finish(t, group, suppression, mute)
            suppression = suppression[:, ~mute]
            group.keep(~mute)
        if len(group):
            self._suppress(t, group, suppression)

    def _note_releases(self, t: int, group: GapGroup, released: Bools) -> None:
        """Note the beliefs after each context that may be released at t."""
        sweep = self.sweep
        for context in np.flatnonzero(released.any(axis=1)).tolist():
            origin = group.origins[int(np.argmax(released[context]))]
            sweep.note_release(t, context, (int(origin[0]), int(origin[1])))
        if not len(group.owner):
            return
        beliefs = np.where(np.take(released, group.owner, axis=1), group.beliefs, -1.0)
        highest = beliefs.max(axis=0)
        above = np.flatnonzero(highest > sweep.floors(group.fact) * (1 - 1e-8))
        own = group.owner[above]
        contexts = beliefs[:, above].argmax(axis=0)
        sweep.note(
            group.fact[above], highest[above], group.error[own], group.origins[own], t, contexts
        )

    def _finish(self, t: int, group: GapGroup, suppression: Floats, mute: Bools) -> None:
        """End the releases of `mute`: their beliefs are averages over the context of slot t."""
        sweep = self.sweep
        origins, _, error, (beliefs, owner, fact) = group.part(mute)
        kept = group.suppressed_laws(suppression)[:, mute]
        total = kept.sum(axis=0)
        there = total > 0
        kept = kept / np.where(there, total, 1.0)
        averages = (beliefs * np.take(kept, owner, axis=1)).sum(axis=0)
        error = error + rounding_error(2, len(kept))
        sweep.note(fact, averages, error[owner], origins[owner], sweep.day.slots, END)
        after = sweep.moves[t].T @ kept
        sweep.end_releases(t + 1, after[:, there], origins[there], error[there])

    def _suppress(self, t: int, group: GapGroup, suppression: Floats) -> None:
        """Advance laws and beliefs of a group over slot t, given suppression."""
        sweep = self.sweep
        step = log_step if group.logs else plain_step
        law, group.beliefs, added = step(
            group.law, suppression, group.beliefs, group.owner, sweep.moves[t]
        )
        group.law = normalise_logs(law) if group.logs else law
        group.error = group.error + added
        top = (
            group.beliefs.max(axis=0, initial=0.0) * (1 + group.error[group.owner]) + MAX_UNDERFLOW
        )
        group.keep_columns(top > sweep.floors(group.fact))
        group.keep(np.asarray(group.possible().any(axis=0)))
