"""Event secrets of context streams: a slot of a live mask, the solver, priors.

Run: python -m benchmarks.events [--quick]. Times are of the process, not of the wall; the solver is
compared with SciPy's HiGHS on the same programs in the same run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from scipy.optimize import linprog

from shoal.contexts.day import DayChain
from shoal.contexts.online import OnlineMask
from shoal.events.event import TimeEvent, at_least, visit
from shoal.events.filter import Program, maximise, slot_program
from shoal.events.secrets import Events
from shoal.noise.primitives import SeededRng

WEEK = 672  # quarters of an hour


def week(size: int = 8, seed: int = 0) -> DayChain:
    """A week of sticky contexts; the first is rare."""
    rng = np.random.default_rng(seed)
    moves = 0.3 * rng.dirichlet(np.full(size, 0.3), size) + 0.7 * np.eye(size)
    moves[:, 0] *= 0.02
    moves /= moves.sum(axis=1, keepdims=True)
    names = ["clinic", *(f"place {i}" for i in range(1, size))]
    first = np.full(size, 1 / size)
    return DayChain.of(moves, initial=first, slots=WEEK, states=names, slot_minutes=15)


def seconds(work: Callable[[], object]) -> float:
    """Time of the process that `work` takes."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def live_slot(day: DayChain, event: TimeEvent, memory: str) -> tuple[float, float, float]:
    """Milliseconds of a slot (mean, and 99 of a hundred are below), and the share shown."""
    mask = OnlineMask((day,), Events.of(event).as_rise(), Fraction(1, 10), memory)
    rng, state = SeededRng(1), mask.init()
    mask.step(state, day.states[1], rng)  # compiles what is compiled
    spent, shown = [], 0
    for x in day.sample(SeededRng(3)):
        begun = time.process_time()
        state, output = mask.step(state, day.states[x], rng)
        spent.append(time.process_time() - begun)
        shown += output is not None
    return 1e3 * float(np.mean(spent)), 1e3 * float(np.quantile(spent, 0.99)), shown / day.slots


def solver(program: Program, slots: int) -> tuple[float, float]:
    """Microseconds of a slot's program by our simplex, and by HiGHS, on the same programs."""
    held, ours, theirs = program.begin(), 0.0, 0.0
    for slot in range(slots):
        held = program.arrive(held, slot, read=True)
        stage = slot_program([program.table(program.tracks[0], held[0], slot)], None)
        ours += seconds(lambda s=stage: maximise(s.gain, s.rows, s.limits, s.most))  # type: ignore[misc]
        bounds = [(0.0, float(m)) for m in stage.most]
        theirs += seconds(
            lambda s=stage, b=bounds: linprog(-s.gain, A_ub=s.rows, b_ub=s.limits, bounds=b)  # type: ignore[misc]
        )
        held = program.after(held, program.allowed(held, slot), None)
    return 1e6 * ours / slots, 1e6 * theirs / slots


def main(quick: bool) -> None:
    """Prints the figures of docs/how-to/hide-events.md."""
    day = week()
    clinic = visit("clinic", between=("tue", "fri"))
    events: dict[str, TimeEvent] = {"at the clinic, tue to fri": clinic}
    if not quick:
        events["at the clinic in 4 slots or more"] = at_least("clinic", 4)
    for name, event in events.items():
        for memory in ("events", "none"):
            mean, high, shown = live_slot(day, event, memory)
            print(
                f"live slot, 8 contexts, a week, {name}, memory={memory}: {mean:.2f} ms "
                f"(99 %: {high:.2f} ms); {shown:.0%} shown, prior {event.prior(day):.2f}"
            )
    mask = OnlineMask((day,), Events.of(clinic).as_rise(), Fraction(1, 10))
    ours, theirs = solver(mask.program(), 40 if quick else 200)
    print(f"program of a slot: {ours:.0f} us, HiGHS {theirs:.0f} us ({theirs / ours:.0f} times)")
    whole: list[TimeEvent] = [
        clinic & at_least("place 1", 40),
        visit("clinic") | visit("place 2", between=(5, 90)),
    ]
    for both in whole:
        spent = seconds(lambda e=both: e.prior(day))  # type: ignore[misc]
        print(f"prior of '{both.describe()}' over a week: {1e3 * spent:.0f} ms")


if __name__ == "__main__":
    main("--quick" in sys.argv)
