"""How fast the lift is: seconds for a whole calibration, and each rule against a plain loop.

Run: python -m benchmarks.lift
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from shoal.chains.lift.chain import ChainLift
from shoal.chains.model import stationary_law
from shoal.core.codec import Floats
from shoal.mechanisms.cone import Rule, leak, prepare


def walk(size: int, seed: int = 1) -> Floats:
    """A chain like a household's power: mostly stays near, now and then jumps anywhere."""
    rng = np.random.default_rng(seed)
    places = np.arange(size)
    near = np.exp(-np.abs(places[:, None] - places[None, :]) / 2.0)
    weights = near * rng.gamma(1.0, size=(size, size)) + 0.01
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def plain_largest(p: Floats, q: Floats, growth: Floats) -> float:
    """Λ with the largest growth, prefix by prefix."""
    order = np.argsort(-(p / q))
    top, factor = 0.0, np.exp(growth.max())
    for size in range(1, len(p)):
        v = np.ones(len(p))
        v[order[:size]] = factor
        top = max(top, float(np.log((p @ v) / (q @ v))))
    return top


def plain_caps(p: Floats, q: Floats, growth: Floats) -> float:
    """Λ with row and column caps, prefix by prefix, the smaller of the two for each."""
    order = np.argsort(-(p / q))
    best = 0.0
    for size in range(1, len(p)):
        inside, outside = order[:size], order[size:]
        block = growth[np.ix_(inside, outside)]
        rows, columns = np.ones(len(p)), np.ones(len(p))
        rows[inside] = np.exp(block.max(axis=1))
        columns[outside] = np.exp(-block.max(axis=0))
        best = max(best, min(float(np.log((p @ v) / (q @ v))) for v in (rows, columns)))
    return best


def plain(rule: Callable[[Floats, Floats, Floats], float], law: Floats, growth: Floats) -> Floats:
    size = len(law)
    return np.array(
        [
            [rule(law[x], law[y], growth) if x != y else 0.0 for y in range(size)]
            for x in range(size)
        ]
    )


def seconds(
    work: Callable[[], object],
    times: int = 3,
    clock: Callable[[], float] = time.process_time,
) -> float:
    best = float("inf")
    for _ in range(times):
        start = clock()
        work()
        best = min(best, clock() - start)
    return best


def main() -> None:
    print("one evaluation of Λ for all pairs of states, against a plain NumPy loop")
    rules: list[tuple[Rule, Callable[[Floats, Floats, Floats], float], int]] = [
        ("largest", plain_largest, 51),
        ("caps", plain_caps, 31),
    ]
    for rule, reference, size in rules:
        law = walk(size)
        growth = 0.1 + np.random.default_rng(2).random((size, size))
        np.fill_diagonal(growth, 0.0)
        laws = prepare(law)
        leak(laws, growth, rule)  # compile before timing
        ours = seconds(lambda r=rule, w=laws, g=growth: leak(w, g, r), 9)  # type: ignore[misc]
        theirs = seconds(lambda f=reference, w=law, g=growth: plain(f, w, g), 1)  # type: ignore[misc]
        print(f"  {rule:8} {size} states: {ours * 1e3:8.2f} ms, ratio {theirs / ours:7.0f}")
    print("a whole calibration at epsilon = 1, any length, compiled code warm (best of 3)")
    for rule, size in (("largest", 51), ("caps", 31), ("cone", 31)):
        matrix = walk(size)
        law = stationary_law(matrix)
        metric = 1 - np.eye(size)
        ChainLift.of([0.8, 0.2], [[0.9, 0.1], [0.4, 0.6]], 1 - np.eye(2), None).largest_eta(
            1.0, rule
        )
        took = seconds(
            lambda m=matrix, w=law, e=metric, r=rule: ChainLift.of(w, m, e, None).largest_eta(
                1.0, r
            ),  # type: ignore[misc]
            3,
            time.perf_counter,
        )
        print(f"  {rule:8} {size} states: {took:6.2f} s")


if __name__ == "__main__":
    main()
