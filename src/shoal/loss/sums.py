"""Laws of a weighted sum over a Markov chain, given one entry: forward and backward convolution.

A table has axes (nodes, held, state, sum): the probability, with the state at one end and one
held fact at the other (an earlier or later state, or nothing), of each value of the sum strictly
between them. `nodes` is 1 when all nodes share one table. With `logs` it holds logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.loss.exact_convolution import flushed, no_mass
from shoal.loss.mixture import Bools, Floats

Ints = npt.NDArray[np.int64]
ROW_TOLERANCE = 1e-6  # rows further from 1 than this are no rounding errors


@dataclass(frozen=True, slots=True, eq=False)
class ChainSum:
    """F = Σ_t w(X_t) on a chain, ready for the tables; made by `chain_sum`.

    `weights` are whole multiples of `step`, least 0, greatest common divisor 1: the loss does not
    see a constant; `lowest` keeps it, for the first entry and for each other. `initial` None
    stands for every initial law. `label[x]` is the secret value a state shows. `first_weights`
    and `first_labels` serve a first state that holds several entries (an order-m chain on
    tuples). `shorter` asks for every length up to `length` as well.
    """

    initial: Floats | None
    matrices: Floats
    weights: Ints
    step: float
    lowest: tuple[float, float]
    length: int | None
    label: Ints
    first_weights: Ints
    first_labels: tuple[Ints, ...]
    offset: Floats | None
    shorter: bool

    @property
    def states(self) -> int:
        return len(self.weights)

    @property
    def homogeneous(self) -> bool:
        return len(self.matrices) == 1

    @property
    def reach(self) -> int:
        """How far one entry can move the sum, in steps."""
        return int(self.weights.max())

    @property
    def first_reach(self) -> int:
        return int(self.first_weights.max())

    @property
    def constant(self) -> bool:
        return self.reach == 0 and self.first_reach == 0

    def matrix(self, step: int) -> Floats:
        chosen: Floats = self.matrices[step if len(self.matrices) > 1 else 0]
        return chosen

    def weights_at(self, node: int) -> Ints:
        return self.first_weights if node == 0 else self.weights


def chain_sum(
    initial: npt.ArrayLike | None,
    transitions: npt.ArrayLike,
    weights: npt.ArrayLike,
    length: int | None,
    *,
    step: float = 1.0,
    label: npt.ArrayLike | None = None,
    first_weights: npt.ArrayLike | None = None,
    first_labels: tuple[npt.ArrayLike, ...] = (),
    pairs: npt.ArrayLike | None = None,
    shorter: bool = False,
) -> ChainSum:
    """The sum Σ_t weights[X_t]·step over a chain of `length` entries (None: of any length).

    `transitions` is (k, k), or (length - 1, k, k) for one matrix per step. `pairs` is a boolean
    table of ordered pairs of secret values, all by default. See `ChainSum` for the rest. Rows
    are divided by their sum: that, to the last bit, is the chain the losses are about.
    """
    matrices = np.asarray(transitions, dtype=np.float64)
    matrices = matrices[None] if matrices.ndim == 2 else matrices
    size = matrices.shape[-1]
    lengths_fit = len(matrices) == 1 or length == len(matrices) + 1
    if matrices.shape[1:] != (size, size) or not (matrices >= 0).all() or not lengths_fit:
        raise InputError(
            f"transitions has shape {matrices.shape} for length {length}; it must be "
            "non-negative (k, k), or (length - 1, k, k)"
        )
    totals = matrices.sum(axis=2, keepdims=True)
    if not (np.abs(totals - 1) <= ROW_TOLERANCE).all():
        raise InputError(
            f"rows of transitions sum to {totals.ravel().tolist()}; they must sum to 1"
        )
    if length is not None and length < 1:
        raise InputError(f"length is {length}; it must be at least 1, or None for any length")
    shown = np.arange(size) if label is None else np.asarray(label, dtype=np.int64)
    plain, first = _on_lattice(weights, size), _on_lattice(first_weights, size, weights)
    divisor = reduce(math.gcd, [*plain.tolist(), *first.tolist()], 0) or 1
    allowed = None if pairs is None else np.where(np.asarray(pairs, np.bool_), 0.0, -math.inf)
    return ChainSum(
        initial=None if initial is None else np.asarray(initial, dtype=np.float64),
        matrices=matrices / totals,
        weights=plain // divisor,
        step=step * divisor,
        lowest=(step * _least(first_weights, weights), step * _least(None, weights)),
        length=length,
        label=shown,
        first_weights=first // divisor,
        first_labels=tuple(np.asarray(other, dtype=np.int64) for other in first_labels),
        offset=allowed,
        shorter=shorter,
    )


def extended(table: Floats, matrices: Floats, weights: Ints, *, logs: bool) -> Floats:
    """One entry more between the ends: add its weight to the sum, then move by `matrices`.

    out[.., y, c] = Σ_x matrices[.., y, x] table[.., x, c - weights[x]]: transposed transition
    matrices take the state forward in time, plain ones backward.
    """
    moved = shifted(table, weights, logs=logs)
    if not logs:
        return flushed(np.asarray(np.matmul(matrices[:, None], moved)))
    out = np.full(np.broadcast_shapes(moved.shape, (len(matrices), 1, 1, 1)), -math.inf)
    with np.errstate(divide="ignore"):
        steps = np.log(matrices)
    for state in range(moved.shape[2]):
        np.logaddexp(out, steps[:, None, :, state, None] + moved[:, :, state : state + 1], out=out)
    return out


def shifted(table: Floats, weights: Ints, *, logs: bool) -> Floats:
    """Each state's own weight added to the sum."""
    *axes, count = table.shape
    out = no_mass((*axes, count + int(weights.max())), logs)
    for state, weight in enumerate(weights.tolist()):
        out[..., state, weight : weight + count] = table[..., state, :]
    return out


def past_tables(task: ChainSum, count: int, *, logs: bool) -> list[Floats]:
    """P(X_d = x, sum of the d entries before = c) for d = 0 .. count-1, nothing held.

    With every initial law, the held fact is the first state: P(X_d = x, sum = c | X_0 = y).
    """
    size = task.states
    start = np.eye(size) if task.initial is None else task.initial[None]
    with np.errstate(divide="ignore"):
        tables = [(np.log(start) if logs else start)[None, :, :, None]]
    for node in range(count - 1):
        onward = task.matrix(node).T[None]
        tables.append(extended(tables[-1], onward, task.weights_at(node), logs=logs))
    return tables


def future_tables(task: ChainSum, count: int, *, logs: bool) -> list[Floats]:
    """P(sum of the r entries after = c | X = x) for r = 0 .. count-1 entries left, nothing held."""
    ends = np.full((1, 1, task.states, 1), 0.0 if logs else 1.0)
    tables = [ends]
    for left in range(count - 1):
        step = 0 if task.length is None else task.length - 2 - left
        tables.append(extended(tables[-1], task.matrix(step)[None], task.weights, logs=logs))
    return tables


def bridges(task: ChainSum, starts: Ints, steps: int, *, logs: bool) -> Floats:
    """P(X_{t+steps} = x, sum strictly between = c | X_t = y) for t in starts, axes (t, y, x, c)."""
    with np.errstate(divide="ignore"):
        first = task.matrices[starts]
        table = (np.log(first) if logs else first)[..., None]
    for ahead in range(1, steps):
        which = starts + ahead if len(task.matrices) > 1 else starts
        onward = np.swapaxes(task.matrices[which], 1, 2)
        table = extended(table, onward, task.weights, logs=logs)
    return table


def open_futures(task: ChainSum, node: int, count: int, *, logs: bool) -> list[Floats]:
    """P(sum of the r entries after = c | X_node = x) for r = 0 .. count-1, were it to end there."""
    tables = [np.full((1, 1, task.states, 1), 0.0 if logs else 1.0)]
    table = np.empty(0)
    for rest in range(1, count):
        if rest == 1:
            table = bridges(task, np.array([node]), 1, logs=logs)
        else:
            onward = task.matrix(node + rest - 1).T[None]
            table = extended(table, onward, task.weights, logs=logs)
        ended = shifted(table, task.weights, logs=logs)
        total = np.logaddexp.reduce(ended, axis=2) if logs else ended.sum(axis=2)
        tables.append(total[:, None])
    return tables


def supports(task: ChainSum, count: int) -> Bools:
    """Which states each of the first `count` entries can take, (count, k); no underflow."""
    law = np.ones(task.states, dtype=np.bool_) if task.initial is None else task.initial > 0
    rows = np.empty((count, task.states), dtype=np.bool_)
    for node in range(count):
        rows[node:] = law
        if node + 1 < count:
            law = np.asarray((task.matrix(node)[law] > 0).any(axis=0))
            if task.homogeneous and np.array_equal(law, rows[node]):
                break
    return rows


def marginal_laws(task: ChainSum, count: int) -> Floats:
    """The laws of the first `count` entries, (count, k), from the one initial law there must be."""
    assert task.initial is not None
    laws = [task.initial]
    for node in range(count - 1):
        laws.append(laws[-1] @ task.matrix(node))
    return np.array(laws)


def secrets_of(task: ChainSum, label: Ints) -> int:
    return int(label.max()) + 1 if task.offset is None else len(task.offset)


def by_secret(states: Bools, label: Ints, secrets: int) -> Bools:
    """Which secrets have a possible state, from (.., k) to (.., secrets)."""
    out = np.zeros((*states.shape[:-1], secrets), dtype=np.bool_)
    for state, secret in enumerate(label.tolist()):
        out[..., secret] |= states[..., state]
    return out


def _least(weights: npt.ArrayLike | None, default: npt.ArrayLike) -> float:
    return float(np.min(np.asarray(default if weights is None else weights)))


def _on_lattice(
    weights: npt.ArrayLike | None, size: int, default: npt.ArrayLike | None = None
) -> Ints:
    """Whole weights less their minimum."""
    given = np.asarray(default if weights is None else weights)
    if given.shape != (size,) or not np.array_equal(given, np.round(given.astype(np.float64))):
        raise InputError(f"weights are {given.tolist()}; give one whole number per state")
    whole = given.astype(np.int64)
    return np.asarray(whole - whole.min())
