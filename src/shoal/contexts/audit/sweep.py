"""The highest belief in any fact over all outputs of a day, by the auditor's own evaluation.

By the Markov property what is believed about a slot depends on the release before it, the release
after it and the gap between. So every release that can come up is followed once, forward through
the gap: a column holds the beliefs in one fact given each context of today. Where a context may be
shown, its entry is the belief after that output; where nothing can be shown any more, the average
of the column is the belief at the end of the day. Later beliefs are averages of today's, so a
column below the highest rise found is done with, and nothing is lost by that. Prefixes of outputs
are averages too. Götz, Nath & Gehrke 2012, Propositions 1-5 and Theorem 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.contexts.audit.gap import (
    END,
    THIN,
    TINY,
    Facts,
    Gap,
    follow_window,
    labelled_facts,
    rounding,
    sensitive_facts,
    together,
)
from shoal.contexts.audit.tables import Output, Tables, VectorTables, disagreement, told
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats, Ints
from shoal.core.progress import in_time, told as told_of

ROOM = 2e7  # numbers held for the releases followed together


class SweepPeak(NamedTuple):
    """The highest rise of a kind, rounded up, and where: a release, the next one, and the fact.

    `until` is the slot of the next release and `shown` its context, or T and END.
    """

    rise: float
    origin: tuple[int, int] = (-1, 0)
    until: int = 0
    shown: int = END
    fact: int = -1


class Sweep:
    """Follows every release of a machine that can come up under one day chain.

    Afterwards `peaks` holds the highest rise of each kind of fact, `seen[t, j]` the releases that
    can come up and `before[t, j]` a release after which that one can be next.
    """

    def __init__(self, day: DayChain, tables: Tables, facts: Facts) -> None:
        self.day, self.tables, self.facts = day, tables, facts
        self.moves = np.concatenate([day.transition, np.zeros((1, day.size, day.size))])
        self.peaks = [SweepPeak(0.0)] * facts.kinds
        self.seen = np.zeros((day.slots, day.size), dtype=np.bool_)
        self.before = np.zeros((day.slots, day.size, 2), dtype=np.int64)
        self.at = np.searchsorted(facts.slot, np.arange(day.slots + 1))
        self.quiet: list[list[tuple[Floats, Ints, Floats]]] = [[] for _ in range(day.slots + 1)]
        entries = np.concatenate([day.initial, day.transition.ravel()])
        self.thin = bool(((entries > 0) & (entries < THIN)).any())

    def run(self) -> None:
        """Follows all releases, some slots of them at a time."""
        day = self.day
        most = max(1, len(self.facts.slot)) * day.size**2
        width = min(day.slots + 1, max(1, int(ROOM / most)))
        for first in range(-1, day.slots, width):
            self._block(first, min(first + width, day.slots))
        self._quiet()

    def _block(self, first: int, after: int) -> None:
        """The releases at slots first, …, after - 1, each until nothing can be shown any more."""
        slots = self.day.slots
        gap = Gap(self)
        for t in range(first + 1, slots):
            if t - 1 < after:
                self._join(gap, t)
            elif gap.empty():
                break
            gap.step(t)
            in_time("the audit")
            told_of(slots * max(first, 0) + (t - first) * (after - max(first, 0)), slots**2)

    def _join(self, gap: Gap, t: int) -> None:
        """Takes up the releases of the slot before t."""
        contexts = np.flatnonzero(self.seen[t - 1]) if t else np.zeros(1, dtype=np.int64)
        law = self.moves[t - 1][contexts].T if t else self.day.initial[:, None]
        origins = np.stack([np.full(len(contexts), t - 1), contexts], axis=1)
        plain = np.ones(len(contexts), dtype=np.bool_)
        for place, context in enumerate(contexts.tolist()):
            window = self.tables.window(t - 1, context)
            if window is not None:
                follow_window(self, gap, (t - 1, context), law[:, place], window)
                plain[place] = False
        gap.join(t, origins[plain], law[:, plain])

    def here(self, t: int) -> range:
        """The facts of slot t."""
        return range(int(self.at[t]), int(self.at[t + 1]))

    def note_release(self, t: int, context: int, origin: tuple[int, int]) -> None:
        """Context may be shown at t, next after the release `origin`: also tells of t itself."""
        if not self.seen[t, context]:
            self.seen[t, context] = True
            self.before[t, context] = origin
        for fact in self.here(t):
            if self.facts.weight[fact, context] > 0:
                belief = float(self.facts.weight[fact, context])
                self.note(fact, self.rise(fact, belief, 0.0), origin, t, context)

    def rise(self, fact: int, belief: float, error: float) -> float:
        """share · (belief - prior), rounded up."""
        facts = self.facts
        above = belief * (1 + error) + TINY
        return float(facts.share[fact] * (above - facts.prior[fact]) * (1 + 1e-15))

    def note(self, fact: int, rise: float, origin: tuple[int, int], until: int, shown: int) -> None:
        """Keeps a rise if it is the highest of its kind."""
        kind = int(self.facts.kind[fact])
        if rise > self.peaks[kind].rise:
            self.peaks[kind] = SweepPeak(rise, origin, until, shown, fact)

    def note_all(
        self, facts: Ints, beliefs: Floats, error: Floats, origins: Ints, until: int, shown: Ints
    ) -> None:
        """Keeps the highest of many beliefs, each with its fact, its release and its outcome."""
        if not len(facts):
            return
        above = beliefs * (1 + error) + TINY
        rises = self.facts.share[facts] * (above - self.facts.prior[facts]) * (1 + 1e-15)
        for kind in range(self.facts.kinds):
            own = np.where(self.facts.kind[facts] == kind, rises, -np.inf)
            place = int(np.argmax(own))
            if own[place] > self.peaks[kind].rise:
                origin = int(origins[place, 0]), int(origins[place, 1])
                self.note(int(facts[place]), float(own[place]), origin, until, int(shown[place]))

    def floors(self, facts: Ints) -> Floats:
        """The beliefs at which each fact's rise equals the highest one of its kind."""
        highest = np.array([peak.rise for peak in self.peaks])[self.facts.kind[facts]]
        return np.asarray(self.facts.prior[facts] + highest / self.facts.share[facts])

    def silence(self, t: int, law: Floats, origins: Ints, error: Floats) -> None:
        """From slot t on nothing can be shown: only what the law itself says is believed."""
        if t < self.day.slots and law.shape[1]:
            self.quiet[t].append((law, origins, error))

    def _quiet(self) -> None:
        """Facts after the last slot at which anything can be shown."""
        law, origins = np.zeros((self.day.size, 0)), np.zeros((0, 2), dtype=np.int64)
        error = np.zeros(0)
        for t, fresh in enumerate(self.quiet[:-1]):
            law = np.concatenate([law, *(part[0] for part in fresh)], axis=1)
            origins = np.concatenate([origins, *(part[1] for part in fresh)])
            error = np.concatenate([error, *(part[2] for part in fresh)])
            if not law.shape[1]:
                continue
            total = law.sum(axis=0)
            for fact in self.here(t):
                beliefs = self.facts.weight[fact] @ law / total
                place = int(np.argmax(beliefs * (1 + error)))
                rise = self.rise(fact, float(beliefs[place]), float(error[place]))
                origin = int(origins[place, 0]), int(origins[place, 1])
                self.note(fact, rise, origin, self.day.slots, END)
            law = self.moves[t].T @ law
            error += rounding(1, self.day.size)


# Days too long to write out all outputs: a bound over all of them, and one output that shows it.
#
# The bound follows every release by what the machine's tables say; the output it names is then
# given to the machine itself, and its beliefs are found from scratch. So the two ends share no
# line of code beyond the model, and neither shares one with the mechanism that made the plan.


ULPS = 1e-15  # of a belief: columns are dropped by comparisons that round
APART = "the witness lies above the bound over all outputs: one of the two is wrong; report this"


class Highest(NamedTuple):
    """lower ≤ highest rise of a kind of belief ≤ upper, and the output that shows the lower end.

    `before` and `after` are the belief in `fact` at `slot`; `output` is empty when nothing rises.
    """

    lower: float
    upper: float
    fact: str = ""
    slot: int = 0
    before: float = 0.0
    after: float = 0.0
    output: Output = ()


class FollowedDay(NamedTuple):
    """What is found for one day chain: the promise, the labels (LC2, LC1) if any, and notes."""

    promise: Highest
    labels: tuple[Highest, ...]
    notes: tuple[str, ...]


def followed(day: DayChain, secrets: SensitiveContexts, tables: Tables) -> FollowedDay:
    """The highest rises under one day chain, whose contexts are in the order of the tables."""
    facts = sensitive_facts(day, secrets)
    labels = labelled_facts(day, secrets) if secrets.labels else None
    sweep = Sweep(day, tables, facts if labels is None else together(facts, labels))
    sweep.run()
    wrong, asked, total = disagreement(tables, _releases(sweep))
    found = [_shown(sweep, peak) for peak in sweep.peaks]
    if any(one.lower > one.upper for one in found):
        wrong = wrong or APART
    if wrong:
        found = [one._replace(upper=math.inf) for one in found]
    notes = (wrong,) if wrong else ()
    if asked < total:
        notes = (*notes, f"{total - asked:,} of {total:,} decisions were read from the machine's "
                 "tables; it was asked for the others")  # fmt: skip
    return FollowedDay(found[0], tuple(found[1:]), notes)


def frequencies(day: DayChain, secrets: SensitiveContexts, tables: Tables) -> Highest:
    """The same for somebody who takes slots for independent."""
    alone = day.without_memory()
    sweep = Sweep(alone, tables, sensitive_facts(day, secrets))
    sweep.run()
    return _shown(sweep, sweep.peaks[0])


def _releases(sweep: Sweep) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """ "start" and the releases that can come up; where they make no difference "start" alone."""
    if isinstance(sweep.tables, VectorTables):
        return np.array([[-1, 0]])
    return np.concatenate([[[-1, 0]], np.argwhere(sweep.seen)])


def _shown(sweep: Sweep, peak: SweepPeak) -> Highest:
    """The peak with the beliefs of a whole output, by running the machine."""
    day, facts = sweep.day, sweep.facts
    upper = peak.rise + ULPS * float(facts.share.max(initial=0.0))
    if peak.fact < 0:
        return Highest(0.0, upper)
    seen = told(day, sweep.tables.body, output_of(sweep, peak))
    if seen is None:
        return Highest(0.0, math.inf)
    slot, weight = int(facts.slot[peak.fact]), facts.weight[peak.fact]
    before = float(weight @ day.marginals()[slot])
    after = float(weight @ seen.beliefs[slot])
    above = before * (1 + rounding(day.slots, day.size))
    rise = float(facts.share[peak.fact]) * (after * (1 - seen.error) - above) * (1 - 1e-15)
    named = facts.name[peak.fact], slot
    return Highest(max(rise, 0.0), upper, *named, before, after, seen.output)


def output_of(sweep: Sweep, peak: SweepPeak) -> Output:
    """The beginning of a day that leads to the peak: releases, gaps, and the last release."""
    names = sweep.day.states
    output: list[str | None] = [None] * peak.until
    release = peak.origin
    while release[0] >= 0:
        output[release[0]] = names[release[1]]
        slot, context = sweep.before[release]
        release = int(slot), int(context)
    return tuple(output) if peak.shown == END else (*output, names[peak.shown])
