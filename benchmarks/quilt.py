"""Markov quilts: the pruned search against plain loops over every quilt, in the same run.

Run as `python -m benchmarks.quilt`. Every figure is a ratio of two times measured here; both sides
must give the same scale. The plain Algorithm 3 on 1,000 entries has 167 million quilts: it runs on
five nodes and the rest is counted at the same time a quilt.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from shoal.chains.model import stationary_law
from shoal.chains.quilt.scale import any_initial_scale, node_scales, quilt_scale
from shoal.core.codec import Floats


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def power_levels(count: int, stay: float) -> Floats:
    """A chain of power levels: it often stays, mostly moves to close levels, sometimes jumps."""
    rng = np.random.default_rng(0)
    distance = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    weights = np.exp(-distance / 8.0) * rng.uniform(0.5, 1.5, (count, count))
    moves = weights / weights.sum(axis=1, keepdims=True)
    return np.asarray(stay * np.eye(count) + (1.0 - stay) * moves)


def plain_stationary(transition: Floats, epsilon: float, reach: int) -> float:
    """The inner node of a long stationary chain by a NumPy double loop over all (a, b)."""
    law = stationary_law(transition)
    future: list[Floats] = []
    past: list[Floats] = []
    power = np.eye(len(law))
    for _ in range(reach):
        power = power @ transition
        back = (power * law[:, None]).T / law[:, None]
        for table, logs in ((future, np.log(power)), (past, np.log(back))):
            table.append((logs[:, None, :] - logs[None, :, :]).max(axis=2))
    best = math.inf
    for a in range(reach):
        for b in range(reach):
            moved = (past[a] + future[b]).max()
            if moved < epsilon:
                best = min(best, (a + b + 1) / (epsilon - moved))
    return best


def plain_node(
    powers: list[list[list[float]]], laws: Floats, node: int, epsilon: float
) -> tuple[float, int]:
    """Algorithm 3 for one node as printed: every quilt, Eq. (5) for each; and how many quilts."""
    length, size = laws.shape
    states, law = range(size), laws[node].tolist()
    best, count = length / epsilon, 0
    for a in range(node + 1):
        for b in range(length - node):
            count += 1
            if a == 0 and b == 0:
                continue
            moved = 0.0
            for x in states:
                for other in states:
                    gap = 0.0
                    if b:
                        gap += max(math.log(powers[b][x][y] / powers[b][other][y]) for y in states)
                    if a:
                        gap += math.log(law[other] / law[x])
                        gap += max(math.log(powers[a][y][x] / powers[a][y][other]) for y in states)
                    moved = max(moved, gap)
            nearby = (a or node + 1) + (b or length - node) - 1
            if moved < epsilon:
                best = min(best, nearby / (epsilon - moved))
    return best, count


def compare_stationary(stay: float, epsilon: float) -> None:
    transition = power_levels(51, stay)
    law = stationary_law(transition)
    expected = plain_stationary(transition, epsilon, 400)
    plain = seconds(lambda: plain_stationary(transition, epsilon, 400), 1)
    ours = seconds(lambda: quilt_scale(transition, law, 1_000_000, epsilon, 400), 5)
    found = quilt_scale(transition, law, 1_000_000, epsilon, 400).sigma
    assert abs(found / expected - 1.0) < 1e-9, (found, expected)
    print(
        f"51 states, stay {stay}, epsilon {epsilon}, reach 400: scale {found:.4f}, "
        f"plain {plain:.2f} s, ours {1e3 * ours:.2f} ms, ratio {plain / ours:.0f}"
    )


def compare_initial_law(initial: list[float], length: int, epsilon: float) -> None:
    transition, start = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array(initial)
    powers = [np.linalg.matrix_power(transition, n).tolist() for n in range(length)]
    laws = np.array([start @ np.array(power) for power in powers])
    nodes = [0, length // 100, length // 4, length // 2, length - 1]
    begin = time.perf_counter()
    answers = [plain_node(powers, laws, node, epsilon) for node in nodes]
    spent = time.perf_counter() - begin
    for node, (expected, _) in zip(nodes, answers, strict=True):
        found = node_scales(transition, start, length, epsilon, range(node, node + 1))[0]
        assert abs(found / expected - 1.0) < 1e-9, (node, found, expected)
    quilts = length * (length + 1) * (length + 2) // 6
    plain = spent * quilts / sum(count for _, count in answers)
    ours = seconds(lambda: quilt_scale(transition, start, length, epsilon), 5)
    print(
        f"2 states, {length} entries, initial law {initial}: plain Algorithm 3 {plain:.0f} s "
        f"(five nodes took {spent:.1f} s), ours {1e3 * ours:.2f} ms, ratio {plain / ours:.0f}"
    )


def compare_lengths() -> None:
    transition, start = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([0.9, 0.1])

    def one(length: int) -> object:
        return quilt_scale(transition, start, length, 1.0)

    def every(length: int) -> object:
        return any_initial_scale(transition, length, 1.0)

    for name, work in (("one initial law", one), ("every initial law", every)):
        short, long = (seconds(partial(work, length), 25) for length in (10_000, 1_000_000))
        print(f"{name}: time at 1,000,000 entries / time at 10,000: {long / short:.2f}")


if __name__ == "__main__":
    for stay, epsilon in ((0.3, 1.0), (0.8, 1.0), (0.8, 5.0)):
        compare_stationary(stay, epsilon)
    compare_initial_law([0.3, 0.7], 1_000, 1.0)
    compare_lengths()
