"""Chains that forget next to nothing: how long they take, and how far a time limit is overrun.

Run as `python -m benchmarks.limits`. Each time is shown beside its ratio to that of a plain
reference measured in the same run: the same call on a chain of the same size that forgets soon.
Compiled loops are loaded before anything is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np

import shoal
from shoal.core.codec import Floats

LIMIT = 0.02  # seconds
ORDINARY_STAY = 0.6  # of the reference chain


def faint(states: int, seed: int) -> Floats:
    """Every state stays but for 1e-9 to 1e-100."""
    moves = 10.0 ** np.random.default_rng(seed).uniform(-100, -9, (states, states))
    np.fill_diagonal(moves, 0.0)
    return np.asarray(moves + np.diag(1.0 - moves.sum(axis=1)))


def spread(states: int, seed: int) -> Floats:
    """Entries of every size down to 1e-19."""
    moves = 10.0 ** np.random.default_rng(seed).uniform(-19, 0, (states, states))
    return np.asarray(moves / moves.sum(axis=1, keepdims=True))


def ordinary(states: int) -> Floats:
    """The reference: it stays with probability 0.6, else it moves anywhere."""
    return np.asarray(ORDINARY_STAY * np.eye(states) + (1 - ORDINARY_STAY) / states)


def seconds(work: Callable[[], object], limit: float | None = None) -> tuple[float, str]:
    """How long one run takes, and what it answers."""
    start = time.perf_counter()
    try:
        with nullcontext() if limit is None else shoal.time_limit(limit):
            told = str(work())
    except shoal.Refused as why:
        told = f"{type(why).__name__}: {why}"
    return time.perf_counter() - start, told


def show(name: str, hard: Callable[[], object], plain: Callable[[], object]) -> None:
    """One line: both times without a limit, and what the hard case answers."""
    took, told = seconds(hard)
    reference, _ = seconds(plain)
    print(f"{name:<44}{took:>8.2f} s {took / reference:>8.1f} x  {told[:48]}")


def show_overrun(name: str, work: Callable[[], object]) -> None:
    """One line: the time taken under the limit."""
    took, told = seconds(work, LIMIT)
    print(f"{name:<44}{took:>8.2f} s for {LIMIT:g} s   {told[:48]}")


def leak(moves: Floats, eta: str, length: int | None = None) -> float:
    initial = "stationary" if length is None else [0.0, 1.0]
    return shoal.leakage(shoal.MarkovChain.of(moves, initial=initial, length=length), eta).value


def noise(moves: Floats, mechanism: str, bars: bool = False, length: int | None = None) -> str:
    chain = shoal.MarkovChain.of(moves, length=length)
    query = shoal.histogram(chain.states) if bars else shoal.count(chain.states, "1")
    plan = shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism=mechanism)
    return f"{plan.mechanism}, cost {plan.cost:.4g}"


def main() -> None:
    leak(ordinary(3), "0.01")
    noise(ordinary(3), "best")
    print("no limit; ratio to the reference chain")
    switching = np.array([[1e-40, 1.0], [1 - 4.2e-5, 4.2e-5]])
    for name, moves, eta, length in (
        ("leakage, two states, 100 entries", switching, "1e-4", 100),
        ("leakage, four states, any length", spread(4, 3), "0.003", None),
    ):
        plain = partial(leak, ordinary(len(moves)), eta, length)
        show(name, partial(leak, moves, eta, length), plain)
    for states in (2, 3):
        for seed in range(2):
            show(
                f"best, {states} states, 1e-9 to 1e-100, seed {seed}",
                partial(noise, faint(states, seed), "best"),
                partial(noise, ordinary(states), "best"),
            )
    print(f"\nunder a limit of {LIMIT:g} s")
    for states in (2, 3):
        show_overrun(
            f"exact, {states} states, 1e-9 to 1e-100", partial(noise, faint(states, 0), "exact")
        )
    show_overrun("exact, three states down to 1e-19", partial(noise, spread(3, 0), "exact"))
    for length in (10, 20, 30):
        show_overrun(
            f"best, histogram of 3 bars, {length} entries",
            partial(noise, ordinary(3), "best", True, length),
        )
    show_overrun("best, count, 200 entries", partial(noise, spread(3, 1), "best", False, 200))


if __name__ == "__main__":
    main()
