"""Exact losses: long chains against short ones, slow chains with past and future apart against
windows, and audits against a search over a fine grid.

Run as `python -m benchmarks.exact`. Every figure is a ratio of two times measured in this run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.extreme_outputs import Ends
from shoal.chains.exact.sums import chain_sum
from shoal.chains.exact.windows import least_scale, sum_loss
from shoal.core.codec import Floats

CHAINS = {
    "theta1": ([1.0, 0.0], [[0.9, 0.1], [0.4, 0.6]]),
    "theta2": ([0.9, 0.1], [[0.8, 0.2], [0.3, 0.7]]),
}
SLOW = (  # states, probability to stay, weights, budget
    (3, (0.97, 0.99), [0, 1, 0], 1.0),
    (4, (0.9, 0.97), [0, 1, 3, 2], 1.0),
    (6, (0.98, 0.999), [1, 0, 0, 0, 0, 0], 1.0),
)
FINE = 100_003  # outputs the search by grid looks at; the whole numbers are not among them


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def grid_loss(initial: list[float], matrix: list[list[float]], length: int, scale: float) -> float:
    """The loss of a count of state 1 by trying many outputs, the laws by plain convolution."""
    step, count = np.array(matrix), length + 1
    ahead = np.zeros((length, 2, count))
    ahead[0, :, 0] = 1.0
    behind = np.zeros((length, 2, count))
    behind[0, 0, 0], behind[0, 1, 1] = initial
    for node in range(1, length):
        moved = ahead[node - 1].copy()
        moved[1] = np.roll(moved[1], 1)
        ahead[node] = step @ moved
        behind[node] = step.T @ behind[node - 1]
        behind[node, 1] = np.roll(behind[node, 1], 1)
    laws = np.zeros((length, 2, count))
    for node in range(length):
        for state in (0, 1):
            whole = np.convolve(behind[node, state], ahead[length - 1 - node, state])
            laws[node, state] = whole[:count] / max(behind[node, state].sum(), 1e-300)
    possible = (behind.sum(axis=2) > 0).all(axis=1)
    worst = 0.0
    for outputs in np.array_split(np.linspace(-scale, length + scale, FINE), 16):
        kernel = np.exp(-np.abs(outputs[:, None] - np.arange(count)) / scale)
        density = np.log(laws[possible].reshape(-1, count) @ kernel.T).reshape(-1, 2, len(outputs))
        worst = max(worst, float(np.abs(density[:, 0] - density[:, 1]).max()))
    return worst


def audits() -> None:
    print(f"\nloss of a count, T = 100: exact against {FINE:,} outputs for every node and pair")
    print("chain       scale        exact     grid below   exact s   grid s   ratio")
    for name, (initial, matrix) in CHAINS.items():
        for epsilon in (0.2, 1.0, 5.0):
            scale = least_scale(chain_sum(initial, matrix, [0, 1], 100), epsilon).scale
            exact = partial(_exact_loss, initial, matrix, 100, scale)
            grid = partial(grid_loss, initial, matrix, 100, scale)
            found, searched = exact(), grid()
            ours, theirs = seconds(exact, 20), seconds(grid, 2)
            lower = "" if found >= searched else "  LOWER THAN THE GRID"
            print(
                f"{name:8} {scale:8.4f} {found:12.9f} {found - searched:12.2e} {ours:9.4f} "
                f"{theirs:8.3f} {theirs / ours:7.0f}{lower}"
            )


def lengths() -> None:
    print("\nleast scale at epsilon 1, a million entries against ten thousand")
    print("chain     10,000 s    10^6 s   ratio  any length s      scale  window")
    for name, (initial, matrix) in CHAINS.items():
        tasks = [chain_sum(initial, matrix, [0, 1], n) for n in (10_000, 1_000_000, None)]
        times = [seconds(partial(least_scale, task, 1.0), 5) for task in tasks]
        found = least_scale(tasks[1], 1.0)
        print(
            f"{name:8} {times[0]:9.3f} {times[1]:9.3f} {times[1] / times[0]:7.2f} {times[2]:13.3f} "
            f"{found.scale:10.6f} {found.loss.window or 0:7d}"
        )


class Windows(NodeBlocks):
    """A cover that knows windows with past and future together only: the reference."""

    apart = None


def slow() -> None:
    print("\nleast scale on slow chains of any length: past and future apart against windows")
    print("states  stay       budget  windows s  apart s   ratio  windows/least  apart/least")
    for states, stay, weights, epsilon in SLOW:
        matrix = lazy(states, stay)
        start = np.linalg.matrix_power(matrix, 1 << 20)[0]
        task = chain_sum(start, matrix, weights, None, shorter=True)
        least_scale(task, epsilon)  # compiled, and the laws' memory warm
        apart = partial(least_scale, task, epsilon)
        began = time.perf_counter()
        windows = least_scale(task, epsilon, cover=Windows(task))
        theirs = time.perf_counter() - began
        ours, least = seconds(apart, 3), Ends(task).least_scale(epsilon)
        gain = f"{theirs / ours:.0f}" if windows.scale < math.inf else "refused"
        print(
            f"{states:6d}  {stay[0]:.2f}-{stay[1]:.3f} {epsilon:6.1f} {theirs:10.2f} {ours:8.3f} "
            f"{gain:>7} {windows.scale / least:14.6f} {apart().scale / least:12.6f}"
        )


def lazy(states: int, stay: tuple[float, float]) -> Floats:
    """A chain that stays where it is with a probability between the two of `stay`."""
    rng = np.random.default_rng(states)
    rows = rng.dirichlet(np.ones(states), size=states)
    np.fill_diagonal(rows, 0.0)
    kept = rng.uniform(*stay, size=states)
    others = (1 - kept)[:, None] * rows / rows.sum(axis=1, keepdims=True)
    return np.asarray(np.diag(kept) + others)


def _exact_loss(
    initial: list[float], matrix: list[list[float]], length: int, scale: float
) -> float:
    return sum_loss(chain_sum(initial, matrix, [0, 1], length), scale).value


def main() -> None:
    lengths()
    slow()
    audits()


if __name__ == "__main__":
    main()
