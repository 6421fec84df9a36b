"""The attack on streams of places against plain passes over the whole matrix, in one run.

Run: python -m benchmarks.attack [--quick]. `attack` is all of `attack_locations`: following the
stream's stages again, the forward, backward and best-path passes. `passes` are the forward and
backward ones alone. The references make the same two passes over the dense matrix: `logs` in
logarithms throughout, as exact as ours, `scaled` with each step divided by its sum, which loses
what underflows. The last column is the largest difference of ours from `logs`, in log-probability.
Seconds of the process, per step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.location import town, walk
from shoal.attacks.codes import follow
from shoal.core.codec import Floats
from shoal.core.motion import motion_of
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.attack import attack_locations
from shoal.places.policy import PolicyGraph
from shoal.places.stream import LocationStream, output_log_likelihoods

STEPS = 300  # of the attack
PLAIN_STEPS = {100: 300, 400: 60, 2025: 6}  # of the references, which take too long for more


def in_logs(matrix: Floats, initial: Floats, rows: Floats) -> Floats:
    """Forward and backward over a dense matrix, logarithms throughout."""
    with np.errstate(divide="ignore"):
        moves, law = np.log(matrix), np.log(initial)
    ahead = [law + rows[0]]
    for row in rows[1:]:
        ahead.append(np.logaddexp.reduce(moves + ahead[-1][:, None], axis=0) + row)
    back = [np.zeros(len(initial))]
    for row in rows[:0:-1]:
        back.append(np.logaddexp.reduce(moves + (row + back[-1])[None, :], axis=1))
    both = np.array(ahead) + np.array(back[::-1])
    return np.asarray(both - np.logaddexp.reduce(both, axis=1, keepdims=True))


def scaled(matrix: Floats, initial: Floats, rows: Floats) -> Floats:
    """The same in plain numbers, every step divided by its sum."""
    likely = np.exp(rows - rows.max(axis=1, keepdims=True))
    ahead = [initial * likely[0]]
    for row in likely[1:]:
        step = (ahead[-1] @ matrix) * row
        ahead.append(step / step.sum())
    back = [np.ones(len(initial))]
    for row in likely[:0:-1]:
        step = matrix @ (row * back[-1])
        back.append(step / step.max())
    both = np.array(ahead) * np.array(back[::-1])
    return np.asarray(both / both.sum(axis=1, keepdims=True))


def timed(work: Callable[[], Any], steps: int) -> tuple[Any, float]:
    """What comes back, and milliseconds a step."""
    begun = time.process_time()
    found = work()
    return found, (time.process_time() - begun) / steps * 1e3


def line(side: int) -> str:
    """One map: milliseconds a step, ratios, and how far the beliefs are apart."""
    chain, query = town(side)
    policy = PolicyGraph.within(query, 3)
    plan = calibrate(query, policy, chain, epsilon=1, mechanism="location-knorm")
    stream, rng, outputs = LocationStream.begin(plan), SeededRng(1), []
    for place in walk(chain, STEPS):
        stream, release = stream.read(chain.states[place], rng=rng)
        outputs.append(release.z)
    attack_locations(plan, outputs[:3])  # the first call loads what is compiled
    _, whole = timed(lambda: attack_locations(plan, outputs), STEPS)
    motion, rows, begin = (
        motion_of(chain),
        output_log_likelihoods(plan, outputs),
        np.log(chain.initial),
    )
    found, passes = timed(lambda: follow(motion, begin, 0, rows), STEPS)
    dense, some = chain.matrix().toarray(), rows[: PLAIN_STEPS[side**2]]
    exact, logs = timed(lambda: in_logs(dense, chain.initial, some), len(some))
    _, plain = timed(lambda: scaled(dense, chain.initial, some), len(some))
    ours = follow(motion, begin, 0, some).smoothed
    assert np.isfinite(found.smoothed).all()
    return (
        f"{side**2:5} {whole:10.3f} {passes:8.3f} {logs:9.2f} {plain:9.3f}"
        f" {logs / passes:12.0f} {plain / passes:8.1f} {np.abs(ours - exact).max():12.1e}"
    )


if __name__ == "__main__":
    print("cells     attack   passes      logs    scaled  logs/passes  scaled/p   difference")
    for side in (10, 20) if "--quick" in sys.argv else (10, 20, 45):
        print(line(side))
