"""Table 1 of the MaskIt paper: how long a calibration and a decision take."""

from __future__ import annotations

import time
from fractions import Fraction
from statistics import median
from typing import Any

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.machine import LiveSimulatable
from shoal.contexts.secrets import SensitiveContexts
from shoal.noise.primitives import SystemRng
from studies.mask_study import choose_sensitive, halves
from studies.mask_traces import Person, people
from studies.report import Report, Table

LIVE = "simulatable, no table"
PAPER = {
    "mask-simulatable": "- / 36 ms",
    "mask-probabilistic": "15 min / < 1 ms",
    "mask-hybrid": "18 min / ≤ 36 ms",
    "mask-adaptive": "",
    "mask-optimal": "",
    LIVE: "- / 36 ms",
}
CHECKS = tuple(PAPER)


def run() -> Report:
    """One table per source, of everybody; seconds depend on the machine."""
    tables = tuple(_table(source, persons) for source, persons in people())
    return Report(name="mask-speed", source="Götz, Nath & Gehrke 2012, Table 1.", tables=tables)


def _table(source: str, persons: list[Person]) -> Table:
    """The middle and the longest of all people, one random sensitive context each."""
    first: dict[str, list[float]] = {check: [] for check in CHECKS}
    decide: dict[str, list[float]] = {check: [] for check in CHECKS}
    persons = [person for person in persons if choose_sensitive(person, 1, 6)]
    for number, person in enumerate(persons):
        day, held = halves(person)
        secrets = SensitiveContexts.of(choose_sensitive(person, 1, 6))
        for check in CHECKS:
            if number == 0:
                _plan(day, secrets, check)  # loads what is compiled
            begun = time.process_time()
            body: Any = _plan(day, secrets, check)
            first[check].append(time.process_time() - begun)
            decide[check].append(1e6 * _step(body, held[0]))
    days = [halves(person)[0] for person in persons]
    most = max(day.size for day in days)
    return Table(
        title=(
            f"{source}, {len(persons)} people, {days[0].slots} slots, up to {most} contexts: "
            "seconds to calibrate (middle and longest), µs a decision (middle)"
        ),
        columns=("check", "initialise (s)", "longest (s)", "decide (µs)", "paper"),
        rows=tuple(
            (check, median(first[check]), max(first[check]), median(decide[check]), PAPER[check])
            for check in CHECKS
        ),
        notes=("the search of a plan was limited to 1 nominal second",),
    )


def _plan(day: DayChain, secrets: SensitiveContexts, check: str) -> Any:
    """What decides: the machine of a plan, or the simulatable check without any table."""
    if check == LIVE:
        return LiveSimulatable(day, secrets, 0.1)
    return mask(day, secrets, delta=Fraction(1, 10), check=check, seconds=1, clock=None).body


def _step(body: Any, trace: list[str]) -> float:
    rng, state = SystemRng(), body.init()
    begun = time.process_time()
    for context in trace:
        state, _ = body.step(state, context, rng)
    return (time.process_time() - begun) / len(trace)
