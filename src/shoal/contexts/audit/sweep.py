"""What a machine does after each release, and the highest belief in any fact over all outputs.

Every machine decides by the slot, the context of that slot and the last release; one of them for
some slots also by a number that the contexts since spell. Their tables are read here in the
auditor's own words, and the machine itself is asked whether it does what they say.

By the Markov property what is believed about a slot depends on the release before it, the release
after it and the gap between. So every release that can come up is followed once, forward through
the gap: a column holds the beliefs in one fact given each context of today. Where a context may be
released, its entry is the belief after that output; where nothing can be released any more, the
average of the column is the belief at the end of the day. Later beliefs are averages of today's, so
a column below the highest rise found is done with, and nothing is lost by that. Prefixes of outputs
are averages too. Götz, Nath & Gehrke 2012, Propositions 1-5 and Theorem 2.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.contexts.audit.gap import (
    END,
    MAX_UNDERFLOW,
    SMALLEST_PLAIN_MASS,
    Facts,
    GapFollower,
    HistoryFollower,
    rounding_error,
)
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, MaskState, SegmentMask, SimulatableMask, VectorMask
from shoal.core.codec import Floats, Ints
from shoal.core.progress import in_time, report_progress as told_of

COARSE, FINE = 2**16, 2**32  # words a machine tells apart: it looks at 16 or at 32 bits
MAX_DECISIONS_ASKED = 6_000  # decisions asked of the machine itself


class Tables:
    """What a machine suppresses after each release, for machines of every kind.

    Releases are slots (-1 is "start") and contexts, in the order of `states`. Slot t after the
    release of context c at slot o suppresses context j by the code at first[o + 1, c] + t·n + j if
    begin[o + 1, c] ≤ t ≤ last[o + 1, c], and always otherwise. After a release in `windows` the
    first slots are decided by histories too: a visit to context j turns history h into
    h · base + digits[j].
    """

    def __init__(self, body: Any) -> None:
        """Read the tables of a vector, simulatable, segment or history machine."""
        self.body, self.states, self.slots = body, body.states, body.slots
        self.size = len(self.states)
        self.digits: Ints = getattr(body, "digits", np.zeros(self.size, dtype=np.int64))
        self.base = int(self.digits.max(initial=0)) + 1
        shape = (self.slots + 1, self.size)
        self.first, self.begin = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.last = np.full(shape, -1)
        self.windows: dict[tuple[int, ...], tuple[int, int]] = {}
        tail = body
        if isinstance(body, VectorMask):  # the same after every release
            codes = body.codes
            self.last[:] = np.flatnonzero((codes < COARSE - 1).any(axis=1)).max(initial=-1)
        elif isinstance(body, SimulatableMask):
            codes = np.where(body.table[1:] >= 0, 0, COARSE - 1)
            self.begin[:], self.last[:] = (
                body.table,
                np.where(body.table < self.slots, body.table, -1),
            )
        else:  # a table of its own after each release that is listed
            if isinstance(body, HistoryMask):
                indices = zip(body.starts.tolist(), body.windows.tolist(), strict=False)
                self.windows = dict(zip(map(tuple, body.origins.tolist()), indices, strict=True))
                tail = body.tail
            codes, (slot, context) = tail.codes, tail.origins.T
            self.first[slot + 1, context] = tail.starts[:-1] - (slot + 1) * self.size
            self.last[slot + 1, context] = slot + np.diff(tail.starts) // self.size
        self.codes = codes.ravel() if codes.size else np.zeros(1, dtype=np.int64)
        self.chances = chances_of(np.arange(COARSE), COARSE)

    def suppression(self, slot: int, origins: Ints, contexts: Ints) -> Floats:
        """Return P(suppressed | last release, context) at `slot`, (contexts, releases)."""
        after = origins + 1, contexts
        inside = (self.begin[after] <= slot) & (slot <= self.last[after])
        index = self.first[after] + slot * self.size + np.arange(self.size)[:, None]
        return np.where(inside, self.chances[self.codes[np.where(inside, index, 0)]], 1.0)

    def window(self, origin: int, context: int) -> list[Floats]:
        """Return P(suppressed | history, context) at the slots in which histories count."""
        begin, length = self.windows.get((origin, context), (0, 0))
        sizes = [self.base**visits * self.size for visits in range(length)]
        ends = begin + np.cumsum([0, *sizes])
        cut = [self.body.codes[a:b].reshape(-1, self.size) for a, b in pairwise(ends)]
        return [chances_of(codes, FINE) for codes in cut]

    def after(self, origin: int, context: int) -> list[Floats]:
        """Return P(suppressed) at each slot after one release, (histories, contexts)."""
        found, release = self.window(origin, context), (np.array([origin]), np.array([context]))
        later = range(origin + 1 + len(found), self.slots)
        return found + [self.suppression(slot, *release).T for slot in later]


def tables_of(body: Any) -> Tables | None:
    """Return the tables of a machine; None for a kind that these tables cannot describe."""
    known = VectorMask, SimulatableMask, SegmentMask, HistoryMask
    return Tables(body) if type(body) in known else None


def chances_of(codes: npt.NDArray[Any], words: int) -> Floats:
    """Return k/words for a code k; the last code stands for 1."""
    return np.where(codes == words - 1, 1.0, codes / words)


def find_disagreement(tables: Tables, releases: Ints) -> tuple[str, int, int]:
    """Return where the machine departs from its tables, or ""; decisions asked; and of how many.

    `releases` are the (slot, context) pairs that can come up. At every decision after them, or at
    MOST_ASKED drawn from all, the machine is stepped just below and just above the word at which it
    should begin to show.
    """
    after = (tables.slots - 1 - releases[:, 0]) * tables.size
    ends, total = np.cumsum(after), int(after.sum())
    rng = np.random.default_rng(0)
    chosen = (
        np.arange(total)
        if total <= MAX_DECISIONS_ASKED
        else rng.integers(total, size=MAX_DECISIONS_ASKED)
    )
    for number in chosen.tolist():
        index = int(np.searchsorted(ends, number, side="right"))
        origin, context = (int(value) for value in releases[index])
        past, now = divmod(number - int(ends[index] - after[index]), tables.size)
        slot = origin + 1 + past
        chance, words, note = _decision(tables, origin, context, slot, now, rng)
        state = MaskState(slot, origin, context, note)
        if not _follows_table(tables, state, tables.states[now], round(chance * words), words):
            words_of = f"{tables.states[now]!r} at slot {slot + 1} with probability {chance:g}"
            return f"the machine does not suppress {words_of}, as its table says", 0, 0
    histories = int(tables.body.codes.size) if tables.windows else 0
    return "", len(chosen), total + histories


def _decision(
    tables: Tables, origin: int, context: int, slot: int, now: int, rng: Any
) -> tuple[float, int, int]:
    """Return the probability of one decision, its number of words, and the history before."""
    window, past = tables.window(origin, context), slot - origin - 1
    if past < len(window):
        note = int(rng.integers(len(window[past])))
        return float(window[past][note, now]), FINE, note
    chance = tables.suppression(slot, np.array([origin]), np.array([context]))[now, 0]
    return float(chance), COARSE, 0


def _follows_table(tables: Tables, state: MaskState, observed: str, level: int, words: int) -> bool:
    """Return whether words below `level` suppress and others release."""

    def hides(word: int) -> bool:
        return tables.body.step(state, observed, ConstantRng(word))[1] is None

    below = level == 0 or hides(level - 1)
    return below and (hides(words - 1) if level == words else not hides(level))


class ConstantRng:
    """Randomness that is always the same word, to ask a machine what it does with it."""

    def __init__(self, word: int) -> None:
        self._word = word

    @property
    def secure(self) -> bool:
        """Return False: this is never used for a release."""
        return False

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Return the word `count` times."""
        return np.full(count, self._word, dtype=np.uint64)


MAX_NUMBERS_HELD = 2e7  # numbers held for the releases followed together


class SweepPeak(NamedTuple):
    """The highest rise of a kind, rounded up, and where: a release, the next one, and the fact.

    `until` is the slot of the next release and `released` its context, or T and END.
    """

    rise: float
    origin: tuple[int, int] = (-1, 0)
    until: int = 0
    released: int = END
    fact: int = -1


class Sweep:
    """Follows every release of a machine that can come up under one day chain.

    Afterwards `peaks` holds the highest rise of each kind of fact, `seen[t, j]` the releases that
    can come up and `before[t, j]` a release after which that one can be next.
    """

    def __init__(self, day: DayChain, tables: Tables, facts: Facts) -> None:
        """Prepare to follow `facts` under one day chain."""
        self.day, self.tables, self.facts = day, tables, facts
        self.moves = np.concatenate([day.transition, np.zeros((1, day.size, day.size))])
        self.peaks = [SweepPeak(0.0)] * facts.kinds
        self.seen = np.zeros((day.slots, day.size), dtype=np.bool_)
        self.before = np.zeros((day.slots, day.size, 2), dtype=np.int64)
        self.at = np.searchsorted(facts.slot, np.arange(day.slots + 1))
        self.silent_laws: list[list[tuple[Floats, Ints, Floats]]] = [
            [] for _ in range(day.slots + 1)
        ]
        entries = np.concatenate([day.initial, day.transition.ravel()])
        self.has_small_entries = bool(((entries > 0) & (entries < SMALLEST_PLAIN_MASS)).any())

    def run(self) -> None:
        """Follow all releases, some slots of them at a time."""
        day = self.day
        most = max(1, len(self.facts.slot)) * day.size**2
        width = min(day.slots + 1, max(1, int(MAX_NUMBERS_HELD / most)))
        for first in range(-1, day.slots, width):
            self._block(first, min(first + width, day.slots))
        self._note_silent_days()

    def _block(self, first: int, after: int) -> None:
        """Follow the releases at slots first, …, after - 1 until nothing can be released."""
        slots = self.day.slots
        gap = GapFollower(self)
        for t in range(first + 1, slots):
            if t - 1 < after:
                self._join(gap, t)
            elif gap.empty():
                break
            gap.step(t)
            in_time("the audit")
            told_of(slots * max(first, 0) + (t - first) * (after - max(first, 0)), slots**2)

    def _join(self, gap: GapFollower, t: int) -> None:
        """Start to follow the releases of the slot before t."""
        contexts = np.flatnonzero(self.seen[t - 1]) if t else np.zeros(1, dtype=np.int64)
        law = self.moves[t - 1][contexts].T if t else self.day.initial[:, None]
        origins = np.stack([np.full(len(contexts), t - 1), contexts], axis=1)
        plain = np.ones(len(contexts), dtype=np.bool_)
        for index, context in enumerate(contexts.tolist()):
            window = self.tables.window(t - 1, context)
            if window:
                HistoryFollower(self, (t - 1, context), law[:, index]).follow(gap, window)
                plain[index] = False
        gap.join(t, origins[plain], law[:, plain])

    def here(self, t: int) -> Ints:
        """Return the numbers of the facts of slot t."""
        return np.arange(self.at[t], self.at[t + 1])

    def note_release(self, t: int, context: int, origin: tuple[int, int]) -> None:
        """Record that a context may be released at t next after `origin`, with beliefs about t."""
        if not self.seen[t, context]:
            self.seen[t, context] = True
            self.before[t, context] = origin
        beliefs = self.facts.weight[self.here(t), context]
        some = beliefs > 0
        self.note(self.here(t)[some], beliefs[some], 0.0, origin, t, context)

    def note(
        self, facts: Ints, beliefs: Floats, error: Any, origins: Any, until: int, released: Any
    ) -> None:
        """Record the highest rise of each kind: share · (belief - prior), rounded up.

        Each belief with its fact; error, release and outcome are its own or the same for all.
        """
        above = beliefs * (1 + error) + MAX_UNDERFLOW
        rises = self.facts.share[facts] * (above - self.facts.prior[facts]) * (1 + 1e-15)
        for kind in range(self.facts.kinds if len(facts) else 0):
            own = np.where(self.facts.kind[facts] == kind, rises, -np.inf)
            index = int(np.argmax(own))
            if own[index] > self.peaks[kind].rise:
                slot, context = np.broadcast_to(origins, (len(facts), 2))[index].tolist()
                outcome = until, int(np.broadcast_to(released, len(facts))[index])
                fact = int(facts[index])
                self.peaks[kind] = SweepPeak(float(own[index]), (slot, context), *outcome, fact)

    def floors(self, facts: Ints) -> Floats:
        """Return the beliefs at which each fact's rise equals the highest one of its kind."""
        highest = np.array([peak.rise for peak in self.peaks])[self.facts.kind[facts]]
        return np.asarray(self.facts.prior[facts] + highest / self.facts.share[facts])

    def end_releases(self, t: int, law: Floats, origins: Ints, error: Floats) -> None:
        """Record laws from slot t on, after which nothing can be released."""
        if t < self.day.slots and law.shape[1]:
            self.silent_laws[t].append((law, origins, error))

    def _note_silent_days(self) -> None:
        """Note beliefs in facts after the last slot at which anything can be released."""
        law, origins = np.zeros((self.day.size, 0)), np.zeros((0, 2), dtype=np.int64)
        error = np.zeros(0)
        for t, fresh in enumerate(self.silent_laws[:-1]):
            law = np.concatenate([law, *(part[0] for part in fresh)], axis=1)
            origins = np.concatenate([origins, *(part[1] for part in fresh)])
            error = np.concatenate([error, *(part[2] for part in fresh)])
            if not law.shape[1]:
                continue
            total = law.sum(axis=0)
            for fact in self.here(t):
                beliefs = self.facts.weight[fact] @ law / total
                same = np.full(len(beliefs), fact)
                self.note(same, beliefs, error, origins, self.day.slots, END)
            law = self.moves[t].T @ law
            error += rounding_error(1, self.day.size)
