"""Convolutions of tables of probabilities that keep the relative accuracy of every tail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.walk import Walk, laws_along
from shoal.mechanisms.mixture import TooLarge

FLUSHED = 1e-154  # smaller entries of a plain table become 0: their products would be subnormal
DEEPEST_TABLE = 300.0  # plain tables serve while every smoothed density is above exp(-300)


def no_mass(shape: tuple[int, ...], logs: bool) -> Floats:
    """A table of probability 0."""
    return np.full(shape, -math.inf) if logs else np.zeros(shape)


def flush_subnormals(table: Floats, smallest: float = FLUSHED) -> Floats:
    """`table` itself with its tiniest entries set to 0, because subnormal arithmetic is slow.

    What is lost, over all steps and entries of a table, is below 1e-145: 1e-14 of a density
    above exp(-300) = 5e-131, the least that plain tables are used for, and far below rounding.
    """
    table[table < smallest] = 0.0
    return table


def join_sides(
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
        law = convolve_rows(before, after, logs=logs, compiled=compiled)
        target = out[..., label[state], weight : weight + count]
        if logs:
            np.logaddexp(target, law, out=target)
        else:
            target += law
    return out if logs else flush_subnormals(out, FLUSHED * 1e-46)


def convolve_rows(left: Floats, right: Floats, *, logs: bool, compiled: bool = False) -> Floats:
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
    """Return the convolution of each row of `left` with the same row of `right`.

    Both are broadcast to `shape` in front of their last axis. `compiled` takes the compiled loop.
    """
    ones = np.broadcast_to(left, (*shape, left.shape[-1])).reshape(-1, left.shape[-1])
    others = np.broadcast_to(right, (*shape, right.shape[-1])).reshape(-1, right.shape[-1])
    if compiled:
        from shoal.chains.exact.kernels import convolved_rows

        return np.asarray(convolved_rows(ones, others)).reshape(*shape, -1)
    out = np.array([np.convolve(one, other) for one, other in zip(ones, others, strict=True)])
    return out.reshape(*shape, -1)


# Laws of a weighted sum over a Markov chain, given one entry: forward and backward convolution.
#
# A table has axes (nodes, held, state, sum): the probability, with the state at one end and one
# held fact at the other (an earlier or later state, or nothing), of each value of the sum strictly
# between them. `nodes` is 1 when all nodes share one table. With `logs` it holds logarithms.


LARGEST_LAW_TABLE = 20_000_000  # numbers a table of laws of several values may hold
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


def walked_sum(path: Walk, weights: Ints) -> ChainSum:
    """The sum of a weight per entry along a walk, of every length it covers."""
    return chain_sum(
        path.initial,
        path.matrices if path.fixed else path.matrices[0],
        weights[path.shown],
        path.length,
        label=path.shown,
        first_weights=sum(weights[values] for values in path.first),
        first_labels=path.first[:-1],
        shorter=not path.fixed,
    )


def check_cells(task: ChainSum, weights: Ints) -> None:
    """TooLarge where the laws of a vector of sums, weights (k, d), cannot be held at once."""
    assert task.length is not None
    counts = [reach * task.length + 1 for reach in np.ptp(weights, axis=0).tolist()]
    lengths = task.length * (task.length if task.shorter else 1)
    cells = math.prod(counts) * lengths * (int(task.label.max()) + 1)
    if cells > LARGEST_LAW_TABLE:
        raise TooLarge(
            f"a sum of {weights.shape[1]} coordinates over {task.length} entries has "
            f"{math.prod(counts)} values; with all nodes that is {cells} numbers of at most "
            f"{LARGEST_LAW_TABLE}: shorten the chain, or ask for one coordinate at a time"
        )


def bounded_by_ends(task: ChainSum) -> bool:
    """Whether every number of entries on both sides is a length of `task`, and every pair asked."""
    return (
        task.homogeneous
        and task.initial is not None
        and (task.length is None or task.shorter)
        and task.offset is None
        and not task.constant
    )


def separable(task: ChainSum) -> bool:
    """Whether past and future are apart given an entry: one law, every pair of states, no ties."""
    return (
        bounded_by_ends(task)
        and not task.first_labels
        and np.array_equal(task.first_weights, task.weights)
        and np.array_equal(task.label, np.arange(task.states))
    )


def extend_by_entry(table: Floats, matrices: Floats, weights: Ints, *, logs: bool) -> Floats:
    """One entry more between the ends: add its weight to the sum, then move by `matrices`.

    out[.., y, c] = Σ_x matrices[.., y, x] table[.., x, c - weights[x]]: transposed transition
    matrices take the state forward in time, plain ones backward.
    """
    moved = add_own_weight(table, weights, logs=logs)
    if not logs:
        return flush_subnormals(np.asarray(np.matmul(matrices[:, None], moved)))
    out = np.full(np.broadcast_shapes(moved.shape, (len(matrices), 1, 1, 1)), -math.inf)
    with np.errstate(divide="ignore"):
        steps = np.log(matrices)
    for state in range(moved.shape[2]):
        np.logaddexp(out, steps[:, None, :, state, None] + moved[:, :, state : state + 1], out=out)
    return out


def add_own_weight(table: Floats, weights: Ints, *, logs: bool) -> Floats:
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
        tables.append(extend_by_entry(tables[-1], onward, task.weights_at(node), logs=logs))
    return tables


def future_tables(task: ChainSum, count: int, *, logs: bool) -> list[Floats]:
    """P(sum of the r entries after = c | X = x) for r = 0 .. count-1 entries left, nothing held."""
    ends = np.full((1, 1, task.states, 1), 0.0 if logs else 1.0)
    tables = [ends]
    for left in range(count - 1):
        step = 0 if task.length is None else task.length - 2 - left
        tables.append(extend_by_entry(tables[-1], task.matrix(step)[None], task.weights, logs=logs))
    return tables


def bridges(task: ChainSum, starts: Ints, steps: int, *, logs: bool) -> Floats:
    """P(X_{t+steps} = x, sum strictly between = c | X_t = y) for t in starts, axes (t, y, x, c)."""
    with np.errstate(divide="ignore"):
        first = task.matrices[starts]
        table = (np.log(first) if logs else first)[..., None]
    for ahead in range(1, steps):
        which = starts + ahead if len(task.matrices) > 1 else starts
        onward = np.swapaxes(task.matrices[which], 1, 2)
        table = extend_by_entry(table, onward, task.weights, logs=logs)
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
            table = extend_by_entry(table, onward, task.weights, logs=logs)
        ended = add_own_weight(table, task.weights, logs=logs)
        total = np.logaddexp.reduce(ended, axis=2) if logs else ended.sum(axis=2)
        tables.append(total[:, None])
    return tables


def supports(task: ChainSum, count: int) -> Bools:
    """Which states each of the first `count` entries can take, (count, k); no underflow."""
    return supports_at(task, np.arange(count))


def supports_at(task: ChainSum, entries: Ints) -> Bools:
    """Which states the entries with these numbers can take, (len(entries), k); no underflow.

    With one matrix the supports repeat themselves sooner or later: what is far is not walked to.
    """
    law = np.ones(task.states, dtype=np.bool_) if task.initial is None else task.initial > 0
    rows, seen, places = [law], {law.tobytes(): 0}, entries
    for node in range(int(entries.max(initial=0))):
        law = np.asarray((task.matrix(node)[law] > 0).any(axis=0))
        before = seen.setdefault(law.tobytes(), len(rows)) if task.homogeneous else len(rows)
        if before < len(rows):
            around = before + (places - before) % (len(rows) - before)
            places = np.where(places < before, places, around)
            break
        rows.append(law)
    return np.array(rows)[places]


def reached_in(edges: Bools, steps: int) -> Bools:
    """Which states can be reached from which in exactly `steps` steps along `edges`, (k, k)."""
    reached, doubled = np.eye(len(edges), dtype=np.float32), edges.astype(np.float32)
    while steps:
        if steps & 1:
            reached = (reached @ doubled > 0).astype(np.float32)
        steps >>= 1
        if steps:
            doubled = (doubled @ doubled > 0).astype(np.float32)
    return np.asarray(reached > 0)


def marginal_laws(task: ChainSum, count: int) -> Floats:
    """The laws of the first `count` entries, (count, k), from the one initial law there must be."""
    assert task.initial is not None
    return laws_along(task.initial, task.matrix, count)


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


# What lies before and after a node: the whole of it, or a window with a state held beyond.


HELD = -1  # in `entries`: a state is held fixed beyond the window


@dataclass(frozen=True, slots=True, eq=False)
class PastOrFuture:
    """One side of a node, for each fact held: `table` (nodes, held, state, sum).

    `reach` (nodes, held, state) says which of its laws are not identically zero, `entries`
    (held,) how many entries the side has, or HELD. `steps` counts the transitions taken.
    """

    table: Floats
    reach: Bools
    entries: Ints
    steps: int

    def holding(self, held: Bools) -> PastOrFuture:
        """Only the held facts marked."""
        return PastOrFuture(
            self.table[:, held], self.reach[:, held], self.entries[held], self.steps
        )


class Sides:
    """The sides of one task's nodes; shared tables are made once."""

    def __init__(self, task: ChainSum) -> None:
        self.task = task
        self._lists: dict[tuple[str, bool], list[Floats]] = {}
        self._bridges: dict[tuple[int, bool], PastOrFuture] = {}
        self._possible = np.empty((0, task.states), dtype=np.bool_)

    def past(self, node: int, count: int, *, logs: bool) -> PastOrFuture:
        """All entries before `node`, one of the first `count` nodes."""
        table = self._tables_up_to("past", count, logs)[node]
        if self.task.initial is None:
            reach = _reachable_states(self.task, np.zeros(1, np.int64), node)
        else:
            if len(self._possible) < count:
                self._possible = supports(self.task, count)
            reach = self._possible[None, node : node + 1]
        return PastOrFuture(table, reach, np.full(table.shape[1], node), node)

    def future(self, node: int, rests: Sequence[int], count: int, *, logs: bool) -> PastOrFuture:
        """All entries after `node`, for each number of them in `rests` (below `count`)."""
        if self.task.shorter and not self.task.homogeneous:
            tables = open_futures(self.task, node, max(rests) + 1, logs=logs)
        else:
            tables = self._tables_up_to("future", count, logs)
        chosen = tables[rests[0]]
        if len(rests) > 1:
            chosen = _stack_tables([tables[rest] for rest in rests], logs)
        reach = np.ones(chosen.shape[:3], dtype=np.bool_)
        return PastOrFuture(chosen, reach, np.asarray(rests, np.int64), max(rests))

    def held_before(self, starts: Ints, size: int, *, logs: bool) -> PastOrFuture:
        """`size` - 1 entries before a node, and the state X_start held before them."""
        if not self.task.homogeneous:
            return self._bridge(starts, size, logs)
        key = (size, logs)
        if key not in self._bridges:
            self._bridges = {k: v for k, v in self._bridges.items() if k[0] == size}
            self._bridges[key] = self._bridge(np.zeros(1, np.int64), size, logs)
        return self._bridges[key]

    def held_after(self, nodes: Ints, size: int, *, logs: bool) -> PastOrFuture:
        """`size` - 1 entries after each node, and the state held after them."""
        side = self.held_before(nodes, size, logs=logs)
        return PastOrFuture(
            np.swapaxes(side.table, 1, 2), np.swapaxes(side.reach, 1, 2), side.entries, side.steps
        )

    def _bridge(self, starts: Ints, size: int, logs: bool) -> PastOrFuture:
        table = bridges(self.task, starts, size, logs=logs)
        entries = np.full(self.task.states, HELD)
        return PastOrFuture(table, _reachable_states(self.task, starts, size), entries, size)

    def _tables_up_to(self, what: str, count: int, logs: bool) -> list[Floats]:
        make = past_tables if what == "past" else future_tables
        if len(self._lists.get((what, logs), ())) < count:
            self._lists[what, logs] = make(self.task, count, logs=logs)
        return self._lists[what, logs]


def beside(sides: Sequence[PastOrFuture], *, logs: bool) -> PastOrFuture:
    """Several sides of the same nodes as one, a fact held in each."""
    if len(sides) == 1:
        return sides[0]
    return PastOrFuture(
        _stack_tables([side.table for side in sides], logs),
        np.concatenate([side.reach for side in sides], axis=1),
        np.concatenate([side.entries for side in sides]),
        max(side.steps for side in sides),
    )


def _stack_tables(tables: Sequence[Floats], logs: bool) -> Floats:
    """Tables of different widths side by side, the short ones padded with probability 0."""
    width = max(table.shape[-1] for table in tables)
    nodes, _, states, _ = tables[0].shape
    held = sum(table.shape[1] for table in tables)
    out = no_mass((nodes, held, states, width), logs)
    place = 0
    for table in tables:
        out[:, place : place + table.shape[1], :, : table.shape[-1]] = table
        place += table.shape[1]
    return out


def _reachable_states(task: ChainSum, starts: Ints, steps: int) -> Bools:
    """Which states can be reached from which in `steps` steps, for each start; (n, k, k)."""
    size = task.states
    if task.homogeneous:
        reached = reached_in(task.matrices[0] > 0, steps)
        return np.broadcast_to(reached, (len(starts), size, size))
    several = np.broadcast_to(np.eye(size, dtype=np.bool_), (len(starts), size, size))
    for ahead in range(steps):
        edges = task.matrices[starts + ahead] > 0
        several = np.matmul(several.astype(np.float32), edges.astype(np.float32)) > 0
    return np.asarray(several)
