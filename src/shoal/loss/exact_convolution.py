"""Convolutions of tables of probabilities that keep the relative accuracy of every tail."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from shoal.loss.mixture import Floats

Ints = npt.NDArray[np.int64]
FLUSHED = 1e-154  # smaller entries of a plain table become 0: their products would be subnormal
DEEPEST_TABLE = 300.0  # plain tables serve while every smoothed density is above exp(-300)


def no_mass(shape: tuple[int, ...], logs: bool) -> Floats:
    """A table of probability 0."""
    return np.full(shape, -math.inf) if logs else np.zeros(shape)


def flushed(table: Floats, smallest: float = FLUSHED) -> Floats:
    """`table` itself with its tiniest entries set to 0, because subnormal arithmetic is slow.

    What is lost, over all steps and entries of a table, is below 1e-145: 1e-14 of a density
    above exp(-300) = 5e-131, the least that plain tables are used for, and far below rounding.
    """
    table[table < smallest] = 0.0
    return table


def joined(
    left: Floats,
    right: Floats,
    weights: Ints,
    label: Ints,
    secrets: int,
    *,
    logs: bool,
    compiled: bool = False,
) -> Floats:
    """Joint laws of (held before, held after, sum) for each secret, axes (n, e, f, secret, sum).

    Convolves what lies before the node with what lies after it, adds the node's own weight and
    adds up the states that show the same secret. Not divided by the secret's probability.
    """
    nodes = max(len(left), len(right))
    count = left.shape[-1] + right.shape[-1] - 1
    width = count + int(weights.max())
    out = no_mass((nodes, left.shape[1], right.shape[1], secrets, width), logs)
    for state, weight in enumerate(weights.tolist()):
        before, after = left[:, :, None, state], right[:, None, :, state]
        law = convolved(before, after, logs=logs, compiled=compiled)
        target = out[..., label[state], weight : weight + count]
        if logs:
            np.logaddexp(target, law, out=target)
        else:
            target += law
    return out if logs else flushed(out, FLUSHED * 1e-46)


def convolved(left: Floats, right: Floats, *, logs: bool, compiled: bool = False) -> Floats:
    """Σ_c left[.., c] right[.., u - c] over broadcast rows.

    Only products and sums of non-negative numbers: an entry has a relative error of at most its
    number of terms times 2^-53, however small it is. (A Fourier transform would lose the tails.)
    """
    if left.shape[-1] > right.shape[-1]:
        left, right = right, left
    places, count = left.shape[-1], right.shape[-1]
    shape = np.broadcast_shapes(left.shape[:-1], right.shape[:-1])
    if not logs and (compiled or math.prod(shape) <= 4 * places):
        return _row_by_row(left, right, shape, compiled)
    out = no_mass((*shape, places + count - 1), logs)
    for place in range(places):
        target = out[..., place : place + count]
        if logs:
            np.logaddexp(target, left[..., place, None] + right, out=target)
        else:
            target += left[..., place, None] * right
    return out


def _row_by_row(left: Floats, right: Floats, shape: tuple[int, ...], compiled: bool) -> Floats:
    ones = np.broadcast_to(left, (*shape, left.shape[-1])).reshape(-1, left.shape[-1])
    others = np.broadcast_to(right, (*shape, right.shape[-1])).reshape(-1, right.shape[-1])
    if compiled:
        from shoal.loss.exact_kernels import convolved_rows

        return np.asarray(convolved_rows(ones, others)).reshape(*shape, -1)
    out = np.array([np.convolve(one, other) for one, other in zip(ones, others, strict=True)])
    return out.reshape(*shape, -1)
