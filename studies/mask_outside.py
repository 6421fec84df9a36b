"""Why checks that look back show less on days unlike those they were fitted on.

An output that the plan itself calls impossible leaves the model: nothing is promised from there
on, and a check that looks at the last release suppresses the rest of the day. The raw chain of
few days is left often. Both checks are measured on the same slots, before and after that moment.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from shoal.contexts.attack import run_day as outputs
from shoal.contexts.checks.rows import compare_checks
from shoal.contexts.checks.task import family_days_in
from shoal.contexts.day import likeliest_smoothing
from shoal.contexts.machine import SegmentMask
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.plan import Plan
from shoal.noise.primitives import SeededRng
from studies.mask_study import DELTA, SECONDS, choose_sensitive, halves
from studies.mask_traces import Person, Trace, people
from studies.report import Report, Table

CHECKS = ("mask-simulatable", "mask-probabilistic", "mask-hybrid", "mask-adaptive")


def run() -> Report:
    """One table of slots, and one of the smoothing that days left out would choose."""
    sources = [
        (source, [(p, s) for p in persons if (s := choose_sensitive(p, 3, seed=4))])
        for source, persons in people()
    ]
    rows = [row for source, chosen in sources for row in _rows(source, chosen)]
    slots = Table(
        title="share of held-out slots shown with the raw chain, in %, all people together",
        columns=("source", "slots", "share of all", "mask-adaptive", "mask-hybrid"),
        rows=tuple(rows),
        notes=("after the adaptive check's output left the model nothing is promised",),
    )
    picks = [(source, len(chosen), _picks([p for p, _ in chosen])) for source, chosen in sources]
    smoothing = Table(
        title='what smoothing "auto" chooses: people for each amount',
        columns=("source", "people", "chosen"),
        rows=tuple(picks),
    )
    return Report(
        name="mask-outside",
        source="Beyond Götz, Nath & Gehrke 2012; three random sensitive contexts, δ = .1.",
        tables=(slots, smoothing),
    )


def _rows(
    source: str, chosen: list[tuple[Person, list[str]]]
) -> list[tuple[str, str, float, float, float]]:
    """Slots, adaptive and hybrid releases, before and after the output left the model."""
    counts = np.zeros((2, 3))
    for person, sensitive in chosen:
        day, held = halves(person)
        secrets = SensitiveContexts.of(sensitive)
        plans = compare_checks(day, secrets, CHECKS, delta=DELTA, seconds=SECONDS)
        adaptive, hybrid, rng = plans["mask-adaptive"], plans["mask-hybrid"], SeededRng(7)
        for trace in held:
            ours, theirs = outputs(adaptive, trace, rng), outputs(hybrid, trace, rng)
            for possible, one, other in zip(
                still_possible(adaptive, trace, ours), ours, theirs, strict=True
            ):
                counts[int(not possible)] += (1, one is not None, other is not None)
    shares = 100 * counts[:, 1:] / np.maximum(counts[:, :1], 1)
    parts = 100 * counts[:, 0] / counts[:, 0].sum()
    names = ("output so far possible", "after it left the model")
    return [
        (source, name, float(part), float(pair[0]), float(pair[1]))
        for name, part, pair in zip(names, parts, shares, strict=True)
    ]


def still_possible(plan: Plan, trace: Trace, output: tuple[str | None, ...]) -> list[bool]:
    """Before each slot: whether the plan and its chain call the output so far possible."""
    body = plan.body
    if not isinstance(body, SegmentMask):
        raise TypeError(f"written for tables after each release, not for {type(body).__name__}")
    day = family_days_in(plan.task, body.states)[0]
    policies, origin = body.policies(), (-1, 0)
    reached, found = day.initial > 0, []
    for t, context in enumerate(trace):
        found.append(bool(reached.any()))
        if t == len(trace) - 1:
            break
        if output[t] is not None:
            origin = (t, body.states.index(context))
            reached = day.transition[t, origin[1]] > 0
            continue
        rows = policies.get(origin, np.empty((0, day.size)))
        row = t - origin[0] - 1
        kept = reached & (rows[row] > 0 if row < len(rows) else True)
        reached = (day.transition[t][kept] > 0).any(axis=0)
    return found


def _picks(persons: list[Person]) -> str:
    found = Counter(
        likeliest_smoothing(p.days[: len(p.days) // 2], states=p.contexts, spread=1)
        for p in persons
    )
    return ", ".join(f"{amount:g}: {found[amount]}" for amount in sorted(found))
