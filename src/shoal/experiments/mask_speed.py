"""Table 1 of the MaskIt paper: how long a calibration and a decision take."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import Any

from shoal.experiments.mask_traces import generated
from shoal.experiments.report import Report, Table
from shoal.mechanisms.mask_choice import mask
from shoal.mechanisms.mask_machine_simulatable import LiveSimulatable
from shoal.models.day_fit import fit_day
from shoal.noise.bits import SystemRng
from shoal.secrets.contexts import SensitiveContexts

PAPER = {
    "mask-simulatable": "- / 36 ms",
    "mask-probabilistic": "15 min / < 1 ms",
    "mask-hybrid": "18 min / ≤ 36 ms",
}


def run() -> Report:
    """One table: 72 slots, 8 contexts, one sensitive; seconds depend on the machine."""
    person = generated(1)[0]
    day = fit_day(person.days, states=person.contexts, spread=1)
    secrets = SensitiveContexts.of("hospital")
    mask(day, secrets, delta=Fraction(1, 10), check="mask-adaptive", seconds=0.1)  # compiles
    rows = []
    for check in ("simulatable", "probabilistic", "hybrid", "adaptive", "optimal"):
        name = f"mask-{check}"
        begun = time.process_time()
        plan = mask(day, secrets, delta=Fraction(1, 10), check=name, seconds=2)
        seconds = time.process_time() - begun
        rows.append((name, seconds, 1e6 * _step(plan.body, person.days[0]), PAPER.get(name, "")))
    live = LiveSimulatable(day, secrets, 0.1)
    rows.append(("simulatable, no table", 0.0, 1e6 * _step(live, person.days[0]), "- / 36 ms"))
    table = Table(
        title=f"{day.slots} slots, {day.size} contexts: seconds to calibrate, µs a decision",
        columns=("check", "initialise (s)", "decide (µs)", "paper"),
        rows=tuple(rows),
        notes=("the search of a plan was limited to 2 nominal seconds",),
    )
    return Report(name="mask-speed", source="Götz, Nath & Gehrke 2012, Table 1.", tables=(table,))


def _step(body: Any, trace: list[str]) -> float:
    rng, state = SystemRng(), body.init()
    begun = time.process_time()
    for context in trace:
        state, _ = body.step(state, context, rng)
    return (time.process_time() - begun) / len(trace)
