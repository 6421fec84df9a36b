"""Suppression: speed against a plain NumPy Algorithm 2, releases against the hybrid, memory.

Run: python -m benchmarks.mask [--quick | --limits | --missing]. All ratios are taken in one run on
one machine; times without a ratio depend on the machine, and are of the process, not of the wall.
`--limits` prints how time limits are kept instead, in some five minutes; `--missing` what is shown
of days on which some slots are not read, and what a slot costs then, in one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.machine import START, SegmentMask
from shoal.contexts.search.adaptive import (
    next_releases,
    occurring_segments,
    search_segments,
    simulatable_segments,
)
from shoal.contexts.search.beliefs import Day, memoryless_rise, prepare, vector_value
from shoal.contexts.search.greedy import keeps_every_bound, prior_order, search_vector
from shoal.contexts.search.window import search_windows
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import advance
from shoal.core.charge import SystemRng
from shoal.core.codec import Floats
from shoal.noise.primitives import SeededRng

TENTHS = np.arange(11) / 10


def plain_check(day: Day, hidden: Floats) -> bool:
    """Algorithm 2 with partial sequences in plain NumPy: one belief at a time, no shortcuts.

    Every output (release or start, ⊥ …, release or end) and every sensitive slot between: forward
    to the slot, backward from it, as in the paper's Equation (3).
    """
    ends = [(t, j) for t, j in np.argwhere((hidden < 1) & day.possible)] + [(day.slots, 0)]
    for slot, state in [(-1, 0), *ends[:-1]]:
        laws = [day.initial if slot < 0 else day.moves[slot, state]]
        for t in range(slot + 1, day.slots):
            laws.append((laws[-1] * hidden[t]) @ day.moves[t])
        for until, last in ends:
            if until <= slot or laws[until - slot - 1][last] == 0:
                continue
            onward = np.zeros(day.size)
            onward[last] = 1.0
            for t in range(until - 1, slot, -1):
                onward = hidden[t] * (day.moves[t] @ onward)
                law = laws[t - slot - 1] * onward
                for c in np.flatnonzero(day.when == t):
                    if law[day.who[c]] > day.bound[c] * law.sum():
                        return False
    return True


def plain_greedy(day: Day, places: int) -> float:
    """Seconds of the paper's greedy search on its first `places` coordinates: binary search."""
    hidden = np.ones((day.slots, day.size))
    begun = time.process_time()
    for place in prior_order(day)[:places]:
        low, high = 0, 10
        while low < high:
            middle = (low + high) // 2
            hidden.flat[place] = middle / 10
            low, high = (low, middle) if plain_check(day, hidden) else (middle + 1, high)
        hidden.flat[place] = low / 10
    return time.process_time() - begun


def dense(states: int, slots: int, sensitive: int, delta: float, seed: int = 3) -> Day:
    """A sticky random day with full support."""
    day = dense_chain(states, slots, seed)
    shares = np.zeros((slots, states))
    shares[:, :sensitive] = 1.0
    return prepare(day.initial, day.transition, shares, delta)


def dense_chain(states: int, slots: int, seed: int = 3) -> DayChain:
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(states, 0.3), size=(slots - 1, states))
    return DayChain.of(0.15 * moves + 0.85 * np.eye(states), initial=rng.dirichlet(np.ones(states)))


def random_days(count: int) -> list[tuple[Day, float]]:
    """Random dense chains: n 4–8, T 6–12, 1–3 sensitive, sticky or not, delta .05, .1, .3."""
    rng = np.random.default_rng(0)
    found = []
    for number in range(count):
        states, slots = int(rng.integers(4, 9)), int(rng.integers(6, 13))
        moves = rng.dirichlet(np.ones(states), size=(slots - 1, states))
        if number % 2 == 0:
            moves = 0.3 * moves + 0.7 * np.eye(states)
        initial = rng.dirichlet(np.ones(states))
        shares = np.zeros((slots, states))
        chosen = rng.choice(states, size=int(rng.integers(1, 4)), replace=False)
        shares[:, chosen] = 1.0
        delta = (0.05, 0.1, 0.3)[number // 2 % 3]
        found.append((prepare(initial, moves, shares, delta), delta))
    return found


def timed(work: Callable[[], Any], runs: int = 1) -> tuple[Any, float]:
    """What comes back, and the mean processor time of some runs."""
    begun = time.process_time()
    for _ in range(runs):
        found = work()
    return found, (time.process_time() - begun) / runs


def speed() -> None:
    warm = dense(3, 4, 1, 0.1)
    occurring_segments(
        warm,
        search_segments(
            warm, 0.1, baseline=search_vector(warm, prior_order(warm), TENTHS), work=1e5
        ),
    )
    memoryless_rise(warm, np.ones((4, 3)))
    keeps_every_bound(warm, np.ones((4, 3)))  # what is loaded or compiled on first use is not timed
    day = dense(19, 96, 1, 0.1)
    hidden, ours = timed(lambda: search_vector(day, prior_order(day), TENTHS))
    few = 40
    plain = plain_greedy(day, few)
    each = plain / few * day.slots * day.size
    print(f"greedy n=19 T=96          {ours:8.2f} s   plain NumPy {few} coordinates {plain:.1f} s,")
    print(f"                          all {each:.0f} s or more: ratio {each / ours:.0f}")
    verdict, ours = timed(lambda: keeps_every_bound(day, hidden), runs=20)
    same, plain = timed(lambda: plain_check(day, hidden))
    assert verdict == same
    print(
        f"check of that vector      {ours:8.4f} s   plain {plain:.2f} s: ratio {plain / ours:.0f}"
    )
    easy = dense(19, 96, 1, 0.45)
    wide = search_vector(easy, prior_order(easy), TENTHS)
    verdict, ours = timed(lambda: keeps_every_bound(easy, wide), runs=20)
    same, plain = timed(lambda: plain_check(easy, wide))
    assert verdict == same
    ratio = f"plain {plain:.2f} s: ratio {plain / ours:.0f}"
    print(f"check, {int((wide < 1).sum()):4} states open  {ours:8.4f} s   {ratio}")
    found, ours = timed(
        lambda: occurring_segments(day, search_segments(day, 0.1, baseline=hidden, work=1e10))
    )
    share = vector_value(day, hidden) / day.slots
    print(f"adaptive n=19 T=96        {ours:8.2f} s   shows {found.expected / 96:.3f}")
    print(f"                          greedy shows {share:.3f} of the slots")


def long_days() -> None:
    day = dense(19, 288, 1, 0.1)
    found, ours = timed(lambda: occurring_segments(day, search_segments(day, 0.1, work=1e9)))
    print(f"adaptive n=19 T=288       {ours:8.1f} s   shows {found.expected / 288:.3f}")
    size = sum(codes.nbytes for codes in found.hidden.values()) / 1e6
    print(f"                          plan {size:.0f} MB, {len(found.hidden)} tables")
    full = {
        (t, j): np.zeros((287 - t, 40), dtype=np.uint16)
        for t in range(-1, 288)
        for j in range(40 if t >= 0 else 1)
    }
    body = SegmentMask.of(tuple(map(str, range(40))), 288, full)
    print(f"largest plan n=40 T=288   {body.codes.nbytes / 1e6:8.0f} MB  (every release open)")


def long_programs() -> None:
    """What linear programs add to the adaptive check on a day of 96 slots."""
    day = dense(19, 96, 1, 0.1)
    base = search_segments(
        day, 0.1, baseline=search_vector(day, prior_order(day), TENTHS), work=1e9
    )
    plain = occurring_segments(day, base).expected
    found, ours = timed(lambda: search_windows(day, 0.1, base, programs=100, nodes=140))
    print(f"optimal n=19 T=96         {ours:8.1f} s   100 programs: {found.expected / 96:.3f}")
    print(f"                          adaptive alone {plain / 96:.3f} of the slots")


def releases(count: int) -> None:
    hybrid = found = best = 0.0
    begun = time.process_time()
    for day, delta in random_days(count):
        baseline = search_vector(day, prior_order(day), TENTHS)
        simple = simulatable_segments(day, next_releases(day)).expected
        hybrid += max(simple, vector_value(day, baseline))
        policies = search_segments(day, delta, baseline=baseline, work=1e9)
        found += occurring_segments(
            day, search_segments(day, delta, baseline=baseline, work=1e9)
        ).expected
        if day.slots <= 8:
            best += search_windows(day, delta, policies, programs=10**6, nodes=300).expected
    each = (time.process_time() - begun) / count
    print(f"{count} random dense chains: hybrid {hybrid:.2f}, adaptive {found:.2f} releases,")
    print(f"                          ratio {found / hybrid:.3f} ({each:.2f} s a chain)")


def stream_speed() -> None:
    day = dense_chain(19, 96)
    rng = SystemRng()
    for check in ("mask-probabilistic", "mask-simulatable", "mask-adaptive"):
        plan = mask(day, SensitiveContexts.of("0"), delta=Fraction(1, 10), check=check, seconds=1)
        body: Any = plan.body
        contexts = [str(c) for c in day.sample(rng)] * 1000
        state = body.init()
        begun = time.process_time()
        for context in contexts:
            state, _ = body.step(state, context, rng)
        rate = len(contexts) / (time.process_time() - begun)
        print(f"{check:<25} {rate:8.0f} steps a second")


def limits(allowed: tuple[float, ...] = (0.5, 2.0, 10.0)) -> None:
    """Seconds used of a time limit, by the wall and by the clock of the process alone."""
    checks = ("mask-hybrid", "mask-adaptive", "mask-optimal", "best")
    for check in checks:  # loads what is compiled
        limited(dense_chain(3, 4), check, 0.2)
    print("time limits               used by the wall (by the process), shown of the slots")
    for states, slots in ((8, 48), (19, 96), (19, 288), (40, 288)):
        day = dense_chain(states, slots)
        for seconds in allowed:
            cells = "   ".join(limited(day, check, seconds) for check in checks)
            print(f"n={states:2} T={slots:3} {seconds:4g} s   {cells}", flush=True)


def limited(day: DayChain, check: str, seconds: float) -> str:
    """One cell of that table: the same search once by each of the two clocks."""
    used, secret = [], SensitiveContexts.of("0")
    for clock in (time.monotonic, time.process_time):
        begun = clock()
        plan = mask(day, secret, delta=Fraction(1, 10), check=check, seconds=seconds, clock=clock)
        used.append(clock() - begun)
    shown = -plan.cost / day.slots
    return f"{check.removeprefix('mask-')} {used[0]:.2f} ({used[1]:.2f}) {shown:.3f}"


def missing(days: int = 300) -> None:
    """Share of the slots read that are shown, and milliseconds a slot, by which are not read."""
    lucky, day = np.random.default_rng(3), dense_chain(6, 32)
    left_out: dict[str, Callable[[], Any]] = {
        "none": lambda: np.zeros(day.slots, dtype=np.bool_),
        "one": lambda: np.arange(day.slots) == lucky.integers(day.slots),
        "a tenth": lambda: lucky.random(day.slots) < 0.1,
        "half": lambda: lucky.random(day.slots) < 0.5,
        "the first quarter": lambda: np.arange(day.slots) < day.slots // 4,
    }
    for check in ("mask-probabilistic", "mask-adaptive", "mask-optimal"):
        plan = mask(day, SensitiveContexts.of("0"), delta=Fraction(1, 10), check=check)
        for name, absent in left_out.items():
            shown, read, begun = 0, 0, time.process_time()
            for number in range(days):
                rng, skip = SeededRng(number), absent()
                state = START
                for t, context in enumerate(day.sample(rng)):
                    observed = None if skip[t] else day.states[context]
                    state, out = advance(plan, state, observed, rng)
                    shown, read = shown + (out is not None), read + (not skip[t])
            each = (time.process_time() - begun) / days / day.slots * 1e3
            print(f"{check:<20} {name:<18} {shown / read:.3f}  {each:.2f} ms", flush=True)


if __name__ == "__main__":
    if "--missing" in sys.argv:
        missing()
        sys.exit()
    if "--limits" in sys.argv:
        limits()
        sys.exit()
    quick = "--quick" in sys.argv
    speed()
    releases(40 if quick else 200)
    stream_speed()
    if not quick:
        long_days()
        long_programs()
