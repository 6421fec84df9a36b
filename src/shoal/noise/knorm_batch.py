"""Batches of K-norm draws: compiled attempts, and exact ones where those are undecided."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from shoal.core.rng import Rng
from shoal.geometry.body import Body
from shoal.geometry.integers import Integers
from shoal.noise.knorm_exact import exact_attempt
from shoal.noise.knorm_proposal import Proposal

SPARE = 8  # attempts asked for beyond the expected number
MOST_ATTEMPTS = 2**15  # at once, so that the words stay in the processor's cache


def compiled_draws(
    body: Body, epsilon: Fraction, proposal: Proposal, count: int, rng: Rng
) -> Integers:
    """`count` draws in the coordinates of the span of a segment or a planar body.

    Words are read in blocks; what is left of the last block is thrown away.
    """
    from shoal.noise import knorm_kernels

    width = 1 if body.dimension == 1 else 3
    drawn: Integers = np.empty((count, body.dimension), dtype=np.int64)
    rate = float(epsilon * proposal.rates[0]) if width == 1 else float(epsilon)
    filled = 0
    while filled < count and drawn.dtype != object:
        size = min(MOST_ATTEMPTS, 3 * (count - filled) + SPARE)
        words = rng.words(size * width).reshape(size, width)
        start = 0
        while start < size and filled < count and drawn.dtype != object:
            block = words[start:]
            if width == 1:
                state = knorm_kernels.line_attempts(block, rate, drawn, filled)
            else:
                state = knorm_kernels.plane_attempts(
                    block,
                    rate,
                    proposal.shares,
                    proposal.outwards,
                    body.flat,
                    drawn,
                    filled,
                )
            filled, used, undecided = state
            start += used + undecided
            if undecided:
                row = exact_attempt(block[used].tolist(), body, epsilon, proposal, rng)
                drawn, filled = _put(drawn, filled, row)
    if filled < count:  # a draw beyond 62 bits: the rest one by one, on the same terms
        drawn[filled:] = exact_draws(body, epsilon, proposal, count - filled, rng)
    return drawn


def exact_draws(
    body: Body, epsilon: Fraction, proposal: Proposal, count: int, rng: Rng
) -> Integers:
    """The same in any dimension, every attempt on Python's integers."""
    drawn: Integers = np.empty((count, body.dimension), dtype=np.int64)
    filled = 0
    while filled < count:
        words = rng.words(body.dimension + (body.dimension > 1)).tolist()
        row = exact_attempt(words, body, epsilon, proposal, rng)
        drawn, filled = _put(drawn, filled, row)
    return drawn


def _put(drawn: Integers, filled: int, row: tuple[int, ...] | None) -> tuple[Integers, int]:
    """`drawn` with the row added, if there is one; widened to Python's integers if it must be."""
    if row is None:
        return drawn, filled
    if drawn.dtype != object and any(abs(value) >= 2**62 for value in row):
        drawn = drawn.astype(object)
    drawn[filled] = row
    return drawn, filled + 1
