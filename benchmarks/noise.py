"""Exact lattice Laplace draws against OpenDP's integer Laplace and numpy's float Laplace.

Run as `python -m benchmarks.noise`. Every row times the three in turn, several times over, and
compares the best of each: ratios, not seconds, are what carries over to another machine.
OpenDP is called as its users call it, on a list; about a twelfth of its time is the conversion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from statistics import median

import numpy as np
import opendp.prelude as dp

from shoal.noise.laplace import LatticeLaplace, digits_of
from shoal.noise.primitives import SystemRng

BATCH = 100_000
SCALES = [0.5, 1.0, 7.4, 1024.0, 1900.7, 1e6, 1e12]
ROUNDS = 5


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def best_in_turn(*works: Callable[[], object]) -> list[float]:
    """The shortest time of each, all measured in every round."""
    rounds = [[seconds(work) for work in works] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


def opendp_laplace(scale: float) -> Callable[[list[int]], object]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement: Callable[[list[int]], object] = dp.m.make_laplace(*space, scale=scale)
    return measurement


def batch_row(scale: float) -> str:
    noise, rng = LatticeLaplace(Fraction(scale), Fraction(1)), SystemRng()
    digits_of.cache_clear()
    tables = seconds(lambda: digits_of(noise.rate))
    measurement, zeros = opendp_laplace(scale), [0] * BATCH
    floats = np.random.default_rng()
    ours, theirs, numpy_float = best_in_turn(
        lambda: noise.draw(BATCH, rng),
        lambda: measurement(zeros),
        lambda: floats.laplace(scale=scale, size=BATCH),
    )
    words = min(seconds(lambda: rng.words(BATCH)) for _ in range(ROUNDS))
    return (
        f"{scale:>8g} {BATCH / ours / 1e6:>9.1f} {theirs / ours:>9.0f}"
        f" {theirs / (ours + tables):>11.0f} {ours / numpy_float:>9.1f}"
        f" {words / ours:>9.0%} {tables * 1e3:>8.1f}"
    )


def single_row(scale: float, repeats: int = 300) -> str:
    noise, rng = LatticeLaplace(Fraction(scale), Fraction(1)), SystemRng()
    measurement, floats = opendp_laplace(scale), np.random.default_rng()
    times = [
        (
            seconds(lambda: noise.draw(1, rng)),
            seconds(lambda: measurement([0])),
            seconds(lambda: floats.laplace(scale=scale, size=1)),
        )
        for _ in range(repeats)
    ]
    ours, theirs, numpy_float = (median(column) for column in zip(*times, strict=True))
    return f"{scale:>8g} {1 / ours / 1e3:>9.1f} {theirs / ours:>9.2f} {ours / numpy_float:>9.1f}"


def main() -> None:
    print(f"Batches of {BATCH:,} draws, operating system's randomness, step 1")
    print("   scale  M draws/s  x OpenDP  with tables  x numpy  randomness  tables ms")
    for scale in SCALES:
        print(batch_row(scale))
    print()
    print("Single draws (median), measured in turn")
    print("   scale  k draws/s  x OpenDP  x numpy")
    for scale in SCALES:
        print(single_row(scale))
    print()
    print("x OpenDP: how many times faster than OpenDP (i64). x numpy: how many times slower than")
    print("numpy's float Laplace, the price of exactness. randomness: share of the time that")
    print("os.urandom takes for one word a draw. with tables: the first batch at a new scale.")


if __name__ == "__main__":
    main()
