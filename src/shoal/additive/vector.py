"""The exact loss of product Laplace noise on a vector-valued query with a small support."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shoal.additive.mixture import (
    DEEPEST_LINEAR,
    TooLarge,
    WorstOutput,
    depth_of,
    evaluation_slack,
    largest_finite,
    narrowed,
    smoothed,
    steepest,
)
from shoal.chains.exact.blocks import step_over
from shoal.chains.exact.cover import MAX_WHOLE, NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError

MAX_CELLS = 20_000_000  # numbers a table of laws may hold


@dataclass(frozen=True, slots=True, eq=False)
class VectorSum:
    """F = Σ_t w(X_t) with w(x) a vector of whole numbers; made by `vector_sum`.

    The vector is coded as one number, digit by digit in a base no digit reaches, so its law is
    that of an ordinary sum (`flat`), unfolded to a grid of `shape`.
    """

    flat: ChainSum
    shape: tuple[int, ...]
    steps: tuple[float, ...]


def vector_loss(
    laws: npt.ArrayLike,
    scale: float,
    *,
    steps: npt.ArrayLike = 1.0,
    pairs: npt.ArrayLike | None = None,
) -> float:
    """The largest log-ratio of F + independent Laplace(scale) per coordinate, over all outputs.

    laws[x, j1, .., jd] = P(F = (steps_1 j1, .., steps_d jd) | x). In each coordinate by itself
    the ratio is monotone between neighbouring support coordinates (fix the others: both densities
    are mixtures of K), so the supremum is on the GRID of support coordinates, its faces standing
    for ±∞; support points alone are not enough. Rounds up. TooLarge beyond 2e7 numbers.
    """
    table = np.asarray(laws, dtype=np.float64)
    if table.size > MAX_CELLS:
        raise TooLarge(f"the laws have {table.size} numbers; at most {MAX_CELLS} are handled")
    if not (scale > 0 and math.isfinite(scale)) or not (table >= 0).all():
        raise InputError("laws must be probabilities, and scale positive and finite")
    allowed = None if pairs is None else np.where(np.asarray(pairs, np.bool_), 0.0, -math.inf)
    decays = _decays(np.broadcast_to(steps, table.ndim - 1), scale)
    possible = table.reshape(len(table), -1).any(axis=1)
    return _worst(table[None], decays, np.asarray(possible)[None], allowed, False, 0.0).value


def vector_sum(task: ChainSum, weights: npt.ArrayLike, steps: npt.ArrayLike = 1.0) -> VectorSum:
    """The sum over the chain of `task` of the rows of `weights` (k, d), multiples of `steps`.

    The weights of `task` itself are not used. Only for one length; TooLarge when the grid of
    values over all nodes exceeds 2e7 numbers.
    """
    rows = np.asarray(weights, dtype=np.int64)
    if task.length is None or rows.ndim != 2 or len(rows) != task.states:
        raise InputError("a vector sum needs a length, and weights with one row per state")
    digits = rows - rows.min(axis=0)
    shape = tuple(int(top) * task.length + 1 for top in digits.max(axis=0))
    secrets = int(task.label.max()) + 1
    cells = math.prod(shape) * task.length * secrets * (task.length if task.shorter else 1)
    if cells > MAX_CELLS:
        raise TooLarge(
            f"a sum of {rows.shape[1]} coordinates over {task.length} entries has "
            f"{math.prod(shape)} values; with all nodes that is {cells} numbers of at most "
            f"{MAX_CELLS}: shorten the chain, or ask for one coordinate at a time"
        )
    base = np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))])
    coded: Ints = digits @ base
    flat = replace(task, weights=coded, first_weights=coded, step=1.0)
    if task.initial is None or NodeBlocks(flat).whole_work() > MAX_WHOLE * 10:
        raise TooLarge("the vector sum needs one initial law and a shorter chain")
    return VectorSum(flat, shape, tuple(np.broadcast_to(steps, len(shape)).tolist()))


def vector_sum_loss(task: VectorSum, scale: float, *, cover: NodeBlocks | None = None) -> float:
    """The exact loss of product Laplace(scale) noise on a vector sum, over all nodes; rounds up."""
    cover = cover or NodeBlocks(task.flat)
    decays = _decays(np.array(task.steps), scale)
    return max((found.value for found in _blocks(task, cover, decays)), default=0.0)


def least_vector_scale(task: VectorSum, epsilon: float, *, lower: float | None = None) -> float:
    """The smallest common scale whose `vector_sum_loss` is at most epsilon, rounded up."""
    cover = NodeBlocks(task.flat)
    smallest = min(task.steps) / 64 if lower is None else lower
    extent = sum(step * count for step, count in zip(task.steps, task.shape, strict=True))

    def loss(scale: float) -> float:
        return vector_sum_loss(task, scale, cover=cover)

    high = max(smallest, extent / epsilon)
    below = loss(high)
    if not below <= epsilon:
        return math.inf
    while high > smallest:  # from above: tiny scales need logarithms, and are seldom needed
        low = max(smallest, high / 4)
        above = loss(low)
        if above > epsilon:
            return narrowed(loss, epsilon, (low, above), (high, below), 1e-13)[1]
        high, below = low, above
    return smallest


def _blocks(task: VectorSum, cover: NodeBlocks, decays: Floats) -> Iterator[WorstOutput]:
    deepest = float(decays @ (np.array(task.shape) - 1))
    for cell in cover.whole():
        plain = cell.block(False)
        block = plain if deepest + plain.depth <= DEEPEST_TABLE else cell.block(True)
        groups, secrets, width = block.laws.shape
        table = np.full((groups, secrets, math.prod(task.shape)), -math.inf if block.logs else 0.0)
        table[..., :width] = block.laws
        yield _worst(
            table.reshape(groups, secrets, *task.shape),
            decays,
            block.possible,
            block.offset,
            block.logs,
            block.roundings,
        )


def _worst(
    table: Floats,
    decays: Floats,
    possible: Bools,
    offset: Floats | None,
    logs: bool,
    roundings: float,
) -> WorstOutput:
    """Smooth (groups, secrets, *grid) axis by axis, then compare the secrets at every point."""
    counts = table.shape[2:]
    span = float(decays @ (np.array(counts) - 1))
    if not logs and span + depth_of(table.reshape(*table.shape[:2], -1)) > DEEPEST_LINEAR:
        with np.errstate(divide="ignore"):
            table, logs = np.log(table), True
    slack = 0.0
    for axis, (decay, count) in enumerate(zip(decays.tolist(), counts, strict=True)):
        positions = decay * np.arange(count, dtype=np.float64)
        moved = smoothed(np.moveaxis(table, axis + 2, -1), positions, logs=logs)
        table = np.moveaxis(moved, -1, axis + 2)
        slack += evaluation_slack(span, count, largest_finite(table) if logs else span)
    flat = np.ascontiguousarray(table).reshape(*table.shape[:2], -1)
    if not logs:
        with np.errstate(divide="ignore"):
            flat = np.log(flat)
    found = steepest(flat, possible, offset)
    slack += evaluation_slack(span, max(counts), largest_finite(flat)) + roundings * 2.0**-52
    return found._replace(value=found.value + slack) if math.isfinite(found.value) else found


def _decays(steps: npt.NDArray[np.float64], scale: float) -> Floats:
    return np.array([step_over(float(step), scale) for step in steps])
