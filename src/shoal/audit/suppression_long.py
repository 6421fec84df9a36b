"""Days too long to write out all outputs: a bound over all of them, and one output that shows it.

The bound follows every release by what the machine's tables say; the output it names is then given
to the machine itself, and its beliefs are found from scratch. So the two ends share no line of
code beyond the model, and neither shares one with the mechanism that made the plan.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.audit.suppression_facts import (
    END,
    labelled_facts,
    rounding,
    sensitive_facts,
    together,
)
from shoal.audit.suppression_sweep import Peak, Sweep
from shoal.audit.suppression_tables import Tables, VectorTables, disagreement
from shoal.audit.suppression_witness import Output, told
from shoal.models.day import DayChain
from shoal.secrets.contexts import SensitiveContexts

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


class Followed(NamedTuple):
    """What is found for one day chain: the promise, the labels (LC2, LC1) if any, and notes."""

    promise: Highest
    labels: tuple[Highest, ...]
    notes: tuple[str, ...]


def followed(day: DayChain, secrets: SensitiveContexts, tables: Tables) -> Followed:
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
    return Followed(found[0], tuple(found[1:]), notes)


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


def _shown(sweep: Sweep, peak: Peak) -> Highest:
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


def output_of(sweep: Sweep, peak: Peak) -> Output:
    """The beginning of a day that leads to the peak: releases, gaps, and the last release."""
    names = sweep.day.states
    output: list[str | None] = [None] * peak.until
    release = peak.origin
    while release[0] >= 0:
        output[release[0]] = names[release[1]]
        slot, context = sweep.before[release]
        release = int(slot), int(context)
    return tuple(output) if peak.shown == END else (*output, names[peak.shown])
