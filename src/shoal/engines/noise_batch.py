"""Noise for many releases of one plan, drawn together: the same exact laws, a fraction of the time.

Releases are independent and so are their draws, so one batch of n·d words serves n releases. The
laws are those of `noise.laplace` and `noise.zero_sum`; nothing is rounded here either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.additive import Noise
from shoal.core.errors import Refused
from shoal.core.rng import Rng
from shoal.core.value import Ints
from shoal.noise.digits import digits_of, geometric_batch, laplace_batch
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.lattice import WIDEST_RATIO
from shoal.noise.zero_sum import ZeroSumLaplace

BATCH = 2**16  # draws at a time, so that their arrays stay in the processor's cache


def draw_many(noise: Noise, count: int, dimension: int, rng: Rng) -> Ints:
    """`count` independent draws of the noise of one release, one row each, in lattice steps."""
    if isinstance(noise, LatticeLaplace):
        flat = _in_batches(noise, count * dimension, rng)
        return flat.reshape(count, dimension)
    if isinstance(noise, ZeroSumLaplace):
        return _zero_sum(noise, count, rng)
    drawn = [noise.draw(dimension, rng) for _ in range(count)]
    return fitting(np.array(drawn, dtype=object).reshape(count, dimension))


def check_width(noise: Noise) -> None:
    """Refuse noise that 64-bit columns may not hold."""
    if noise.scale / noise.step > WIDEST_RATIO:
        raise Refused(
            f"the noise is {float(noise.scale / noise.step):.3g} lattice steps wide, more than a "
            "table of 64-bit numbers holds; use weights with fewer digits, or plan.release"
        )


def fitting(values: Any) -> Ints:
    """`values` as 64-bit integers; refused, never wrapped, when one does not fit."""
    try:
        return np.asarray(values).astype(np.int64, casting="unsafe", copy=False)
    except OverflowError:
        raise Refused("a value does not fit 64 bits; use weights with fewer digits") from None


def _in_batches(noise: LatticeLaplace, total: int, rng: Rng) -> Ints:
    sizes = [min(BATCH, total - done) for done in range(0, total, BATCH)]
    parts = [laplace_batch(noise.rate, size, rng) for size in sizes]
    return fitting(np.concatenate([np.empty(0, np.int64), *parts]))


def _zero_sum(noise: ZeroSumLaplace, count: int, rng: Rng) -> Ints:
    """Rows of independent discrete Laplace draws closed by minus their sum, kept or drawn again.

    A row is kept with probability exp(-r |last|), which is P(G >= |last|) for a geometric G of the
    same rate r; so G is drawn instead of a coin. Rows that are not kept are drawn again whole.
    """
    rows = np.empty((count, noise.dimension), dtype=np.int64)
    left = np.arange(count)
    digits = digits_of(noise.rate)
    while left.size:
        here = left[: max(1, BATCH // noise.dimension)]
        size = here.size * (noise.dimension - 1)
        free = fitting(laplace_batch(noise.rate, size, rng)).reshape(here.size, -1)
        last = -free.sum(axis=1)
        words = (rng.words(here.size) >> np.uint64(2)).astype(np.int64)
        kept = fitting(geometric_batch(words, digits, rng)) >= np.abs(last)
        rows[here[kept]] = np.column_stack([free, last])[kept]
        left = np.concatenate([here[~kept], left[here.size :]])
    return rows
