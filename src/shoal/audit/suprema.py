"""The largest log-ratio of noisy vectors with finitely many answers: a finite maximum."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import numpy as np

from shoal.additive.mixture import evaluation_slack, smoothed
from shoal.core.codec import Bools, Floats, Ints


class VectorPeak(NamedTuple):
    """The largest log-ratio, what rounding may hide, the two secrets, and where (lattice steps)."""

    value: float
    slack: float = 0.0
    pair: tuple[int, int] = (0, 0)
    output: Floats = np.zeros(0)


NOTHING = VectorPeak(-math.inf)


def product_size(answers: Ints) -> int:
    """How many points the grid of support coordinates has."""
    return math.prod(len(np.unique(column)) for column in answers.T)


def product_peak(
    answers: Ints, laws: Floats, decay: float, pairs: Bools | None = None
) -> VectorPeak:
    """The loss of independent Laplace noise on each coordinate, over all outputs.

    max over pairs (s, s') and outputs z of log Σ_c P(c|s) K(z-c) / Σ_c P(c|s') K(z-c), with
    K(v) = exp(-decay·|v|_1), answers (n, labels) in lattice steps and laws (secrets, n) in logs.
    In one coordinate, between two neighbouring answers, both sums have the form A e^w + B e^-w,
    so their ratio is monotone: the supremum is on the grid of the answers' coordinates, whose
    outermost points stand for everything beyond. All pairs by default. MATHS section 2.
    """
    axes = [np.unique(column) for column in answers.T]
    place = tuple(
        np.searchsorted(axis, column) for axis, column in zip(axes, answers.T, strict=True)
    )
    grid = np.full((len(laws), *map(len, axes)), -math.inf)
    grid[(slice(None), *place)] = laws
    for number, axis in enumerate(axes, start=1):
        along = np.moveaxis(grid, number, -1)
        grid = np.moveaxis(smoothed(along, decay * axis.astype(np.float64), logs=True), -1, number)
    found = _steepest(grid.reshape(len(laws), -1), pairs)
    if found is None:
        return NOTHING
    value, pair, flat = found
    where = np.unravel_index(flat, grid.shape[1:])
    output = np.array(
        [
            -math.inf if i == 0 else math.inf if i == len(axis) - 1 else float(axis[i])
            for axis, i in zip(axes, where, strict=True)
        ]
    )
    return VectorPeak(value, _slack(answers, grid, decay), pair, output)


def plane_size(answers: Ints) -> int:
    """How many outputs `plane_peak` looks at, before those off the plane are dropped."""
    low, high = _box(answers)
    return math.prod((high - low + 1)[:-1].tolist())


def plane_peak(answers: Ints, laws: Floats, decay: float, pairs: Bools | None = None) -> VectorPeak:
    """The loss of Laplace noise that adds up to 0 over the coordinates, over all its outputs.

    Outputs z are lattice points with the total of the answers. Where z_i is above every answer's
    coordinate i and z_j below every coordinate j, one step of each towards the answers changes all
    densities alike; so it is enough to look at z with no coordinate above all answers, or none
    below: a finite set, and every one of its points is tried.
    """
    low, high = _box(answers)
    total = int(answers[0].sum())
    free = [np.arange(a, b + 1) for a, b in zip(low[:-1], high[:-1], strict=True)]
    points = np.array(list(product(*free)), dtype=np.int64).reshape(-1, len(free))
    last = total - points.sum(axis=1, keepdims=True)
    outputs = np.hstack([points, last])[((last >= low[-1]) & (last <= high[-1]))[:, 0]]
    distance = np.abs(outputs[:, None, :] - answers[None]).sum(axis=2)
    density = np.stack([np.logaddexp.reduce(law - decay * distance, axis=1) for law in laws])
    found = _steepest(density, pairs)
    if found is None:
        return NOTHING
    value, pair, flat = found
    output = outputs[flat].astype(np.float64)
    return VectorPeak(value, _slack(answers, density, decay), pair, output)


def _box(answers: Ints) -> tuple[Ints, Ints]:
    """The least and largest coordinates an output need have, given the total."""
    total = int(answers[0].sum())
    low, high = answers.min(axis=0), answers.max(axis=0)
    return (
        np.minimum(low, total - (high.sum() - high)),
        np.maximum(high, total - (low.sum() - low)),
    )


def _steepest(density: Floats, pairs: Bools | None) -> tuple[float, tuple[int, int], int] | None:
    """The largest difference of two rows of log-densities, and where; impossible rows are -inf."""
    possible = (density > -math.inf).any(axis=1)
    best: tuple[float, tuple[int, int], int] | None = None
    for top in np.flatnonzero(possible).tolist():
        for bottom in np.flatnonzero(possible).tolist():
            if top == bottom or (pairs is not None and not pairs[top, bottom]):
                continue
            gap = density[top] - density[bottom]
            place = int(np.argmax(gap))
            if best is None or gap[place] > best[0]:
                best = (float(gap[place]), (top, bottom), place)
    return best


def _slack(answers: Ints, density: Floats, decay: float) -> float:
    """What rounding can hide: that of one smoothing per coordinate."""
    labels = answers.shape[1]
    span = decay * float(np.ptp(answers, axis=0).max())
    largest = float(np.abs(density[np.isfinite(density)]).max(initial=0.0))
    return float(labels * evaluation_slack(span, len(answers), largest))
