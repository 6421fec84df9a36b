"""What moves in time: many-step laws, sums followed in logarithms, numbers without underflow."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, ClassVar, NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError, Refused


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A chain on hidden nodes, each of which shows the value of an entry.

    An ordinary chain shows its own states. A chain of order m walks on m-tuples: a node shows the
    last entry of its tuple (`shown`), and the first node holds the first m entries (`first`, one
    array of values per entry, oldest first). `initial` is None for every initial law at once.
    `length` counts nodes: m - 1 fewer than entries; None is any length. Shorter data is covered
    too, unless the length is `fixed` (one matrix per step).
    """

    values: tuple[str, ...]
    initial: Floats | None
    matrices: Floats
    shown: Ints
    first: tuple[Ints, ...]
    length: int | None
    fixed: bool = False

    @property
    def size(self) -> int:
        return len(self.shown)

    @property
    def order(self) -> int:
        return len(self.first)

    @property
    def homogeneous(self) -> bool:
        return len(self.matrices) == 1

    def matrix(self, step: int) -> Floats:
        chosen: Floats = self.matrices[0 if self.homogeneous else step]
        return chosen

    def entries_read_at(self, node: int) -> tuple[tuple[int, Ints], ...]:
        """The entries a node brings, and the value of each in every state."""
        if node == 0:
            return tuple(enumerate(self.first))
        return ((node + self.order - 1, self.shown),)

    def place(self, entry: int) -> tuple[int, Ints]:
        """The node that brings an entry, and the value of that entry in each of its states."""
        if entry < self.order:
            return 0, self.first[entry]
        return entry - self.order + 1, self.shown

    def covers(self, nodes: int) -> bool:
        """Whether data of so many nodes follows this law."""
        if self.fixed or self.length is None:
            return self.length in (nodes, None)
        return nodes <= self.length

    def at_most(self, nodes: int) -> int:
        """The largest length covered that is no more than `nodes`, or the fixed one."""
        if self.length is None:
            return nodes
        return self.length if self.fixed else min(nodes, self.length)

    def cut(self, nodes: int) -> Walk:
        """The same chain, at most `nodes` long: a law the model covers as well."""
        return self if self.at_most(nodes) == self.length else replace(self, length=nodes)

    def cut_to_length(self, query: Any) -> Walk:
        """The walk cut to the entries a query with a public length takes: longer is refused."""
        longest = getattr(query, "length", None)
        if longest is None or self.fixed:
            return self
        return self.cut(self.at_most(max(longest - self.order + 1, 1)))

    def starting(self, initial: Floats) -> Walk:
        """The member with this initial law."""
        return replace(self, initial=initial)

    def laws(self, count: int) -> Floats:
        """The laws of the first `count` nodes, (count, states)."""
        if self.initial is None:
            raise InputError("every initial law at once has no single law; choose a start")
        return laws_along(self.initial, self.matrix, count)


def laws_along(initial: Floats, matrix: Callable[[int], Floats], count: int) -> Floats:
    """The laws of the first `count` nodes, a row each, moved on by the matrix of each step."""
    rows = [initial]
    for step in range(count - 1):
        rows.append(rows[-1] @ matrix(step))
    return np.array(rows)[:count]


# Many-step laws of a chain, with exact zeros and a proved rounding error.


UNIT = 2.0**-53  # half the distance from 1 to the next double
DIGITS_LOST = 1e-280  # below this a double may have lost digits to underflow


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """values[x, y] = P(X_{t+steps} = y | X_t = x); `possible` is its support, exact.

    Every entry of at least TINY has relative error below steps·(k+2)·UNIT: sums of products of
    non-negative numbers have no cancellation, in every order of the products.
    """

    values: Floats
    possible: Bools
    steps: int

    @classmethod
    def of(cls, transition: Floats) -> Kernel:
        return cls(transition, transition > 0, 1)

    def then(self, later: Kernel) -> Kernel:
        """The law after this kernel and then `later`."""
        return Kernel(
            self.values @ later.values,
            _compose_edges(self.possible, later.possible),
            self.steps + later.steps,
        )


class LogBounds(NamedTuple):
    """lower <= log of the true value <= upper, up to `error`; -inf above means impossible."""

    upper: Floats
    lower: Floats
    error: float


class PowerWalk(Protocol):
    """The many-step laws of one chain."""

    size: int

    def kernel(self, start: int, steps: int) -> Kernel: ...


class Powers:
    """Walk of a time-homogeneous chain: any power from a few stored ones.

    A power is the same product in every order of requests, so all may share the powers `of` a
    matrix.
    """

    _held: ClassVar[WeakValueDictionary[bytes, Powers]] = WeakValueDictionary()

    def __init__(self, transition: Floats) -> None:
        self.size = len(transition)
        self._known = {1: Kernel.of(transition)}

    @classmethod
    def of(cls, transition: Floats) -> Powers:
        """Return the shared powers of a matrix; weak references keep them while they are in use."""
        key = transition.tobytes()
        found = cls._held.get(key)
        if found is None:
            found = cls._held[key] = cls(transition)
        return found

    def kernel(self, start: int, steps: int) -> Kernel:
        """The `steps`-th power, steps at least 1; `start` does not matter."""
        found = self._known.get(steps)
        if found is None:
            highest = 1 << (steps.bit_length() - 1)
            first, rest = (highest, steps - highest) if steps > highest else (steps // 2,) * 2
            found = self._known[steps] = self.kernel(0, first).then(self.kernel(0, rest))
        return found


class KernelSegments:
    """Walk of a chain with one matrix per step: products over blocks of 1, 2, 4, … steps."""

    def __init__(self, transitions: Sequence[Floats] | Floats) -> None:
        self._steps = [Kernel.of(np.asarray(matrix)) for matrix in transitions]
        self.size = self._steps[0].values.shape[0]
        self._blocks: dict[tuple[int, int], Kernel] = {}

    def kernel(self, start: int, steps: int) -> Kernel:
        """The product of the matrices start, …, start + steps - 1, from aligned blocks."""
        level = steps.bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        block, rest = self._block(start >> level, level), steps - (1 << level)
        return block.then(self.kernel(start + (1 << level), rest)) if rest else block

    def _block(self, index: int, level: int) -> Kernel:
        """Return the product of the 2**level matrices from index * 2**level on, cached."""
        if level == 0:
            return self._steps[index]
        found = self._blocks.get((index, level))
        if found is None:
            first = self._block(2 * index, level - 1)
            found = first.then(self._block(2 * index + 1, level - 1))
            self._blocks[index, level] = found
        return found


def log_bounds(values: Floats, possible: Bools, operations: int) -> LogBounds:
    """Logarithms of `values` that underflow cannot push to the wrong side.

    Where `possible` but below DIGITS_LOST, the upper bound is the log of that and the lower bound
    -inf, so a ratio can only grow. `operations` counts the roundings behind each
    value; `error` covers them and those of the logarithm.
    """
    safe = values >= DIGITS_LOST
    if safe.all():
        upper = lower = np.log(values)
        deepest = float(-lower.min())
    else:
        logs = np.log(np.maximum(values, DIGITS_LOST))
        upper = np.where(possible, logs, -np.inf)
        lower = np.where(safe, logs, -np.inf)
        deepest = float(-logs.min())
    return LogBounds(upper, lower, (1.01 * operations + 4.0 * deepest + 4.0) * UNIT)


def kernel_logs(kernel: Kernel) -> LogBounds:
    """Bounds on the logarithms of a kernel's entries."""
    operations = kernel.steps * (len(kernel.values) + 2)
    return log_bounds(kernel.values, kernel.possible, operations)


def reachable_states(start: Bools, edges: Bools) -> Bools:
    """Which states are ever met along `edges` from those of `start`."""
    seen = start
    while True:
        wider = seen | edges[seen].any(axis=0)
        if np.array_equal(wider, seen):
            return np.asarray(seen)
        seen = wider


def next_support(support: Bools, transition: Floats) -> Bools:
    """The values possible one step after a set of possible values."""
    return np.asarray((transition[support] > 0).any(axis=0))


def _compose_edges(first: Bools, second: Bools) -> Bools:
    """Where a two-stage path exists; an exact count of paths in single precision."""
    if first.all() and second.all():
        return first
    return np.asarray(first.astype(np.float32) @ second.astype(np.float32) > 0.5)


# How likely an output is together with each value of an entry: forward and backward in logs.
#
# A sum over the entries is followed as a code: an integer that determines it. Tables hold, for
# each state and code, a logarithm; no value underflows and no tail is dropped.


class Coded(NamedTuple):
    """A walk whose entries add `code` (one whole number ≥ 0 per value of an entry) to a sum.

    `tilt` is the log-likelihood of what is seen of each entry by itself. Both are (values,) for
    all entries alike or (entries, values) for each its own; tilt is None without an observation.
    """

    walk: Walk
    code: Ints
    tilt: Floats | None = None

    def codes(self, node: int) -> Ints:
        rows = [
            _of_entry(self.code, entry)[values] for entry, values in self.walk.entries_read_at(node)
        ]
        return np.asarray(sum(rows))

    def tilts(self, node: int) -> Floats:
        """The log-likelihood of what is seen of the entries a node brings, by state."""
        if self.tilt is None:
            return np.zeros(self.walk.size)
        rows = [
            _of_entry(self.tilt, entry)[values] for entry, values in self.walk.entries_read_at(node)
        ]
        return np.asarray(np.sum(rows, axis=0))

    def width(self, node: int) -> int:
        """How many codes are possible before `node`, or after a whole walk of that many nodes."""
        if node == 0:
            return 1
        if self.code.ndim == 2:
            return int(self.code[: node + self.walk.order - 1].max(axis=1).sum()) + 1
        top = int(self.codes(0).max()) + (node - 1) * int(self.codes(1).max())
        return top + 1


def forward(coded: Coded, initial: Floats) -> Iterator[Floats]:
    """log P(X_t = x, code c and tilts of what came before t) for t = 0, 1, …, (states, codes)."""
    with np.errstate(divide="ignore"):
        table = np.log(initial)[:, None]
    node = 0
    while True:
        yield table
        table = push_step(add_own_entries(coded, table, node), coded.walk.matrix(node))
        node += 1


def add_own_entries(coded: Coded, table: Floats, node: int) -> Floats:
    """`table` with what the node's own entries add and show: (states, more codes)."""
    return add_state_codes(table + coded.tilts(node)[:, None], coded.codes(node))


def backward(coded: Coded, nodes: int, log_likelihood: Floats) -> Iterator[Floats]:
    """log P(output | X_t = x, code before t = c) for t = nodes-1, nodes-2, …, 0.

    What is seen of the entries from t on is part of the output. `log_likelihood` gives the rest of
    the output's log-likelihood for each code of the whole walk.
    """
    size = coded.walk.size
    table = np.broadcast_to(log_likelihood, (size, len(log_likelihood)))
    for node in range(nodes - 1, -1, -1):
        if node < nodes - 1:
            table = push_step(table, coded.walk.matrix(node).T)
        table = _remove_state_codes(table, coded.codes(node), coded.width(node))
        table = table + coded.tilts(node)[:, None]
        yield table


def joint_evidence(coded: Coded, nodes: int, node: int, log_likelihood: Floats) -> Floats:
    """log P(X_node = x, output), one row per initial law: (1, states), or from each first state.

    With every initial law at once the rows are conditional on X_0 = y.
    """
    later = next(table for t, table in _tables_by_node(coded, nodes, log_likelihood) if t == node)
    starts = np.eye(coded.walk.size) if coded.walk.initial is None else coded.walk.initial[None]
    rows = []
    for start in starts:
        earlier = _table_at(forward(coded, start), node)
        rows.append(np.logaddexp.reduce(earlier + later, axis=1))
    return np.array(rows)


def by_value(joint: Floats, shown: Ints, values: int) -> Floats:
    """log-probabilities of states (…, states) added up by the value each shows: (…, values)."""
    out = np.full((*joint.shape[:-1], values), -math.inf)
    for state, value in enumerate(shown.tolist()):
        out[..., value] = np.logaddexp(out[..., value], joint[..., state])
    return out


def push_step(table: Floats, matrix: Floats) -> Floats:
    """One step in logs: out[y] = log Σ_x matrix[x, y] exp(table[x]), column by column."""
    with np.errstate(divide="ignore"):
        steps = np.log(matrix)
    out = np.full((matrix.shape[1], *table.shape[1:]), -math.inf)
    extra = (1,) * (table.ndim - 1)
    for state in range(len(table)):
        np.logaddexp(out, steps[state].reshape(-1, *extra) + table[state], out=out)
    return out


def add_state_codes(table: Floats, codes: Ints) -> Floats:
    """Each state's own code added: (states, codes) grows by the largest of them."""
    width = table.shape[-1]
    out = np.full((len(table), width + int(codes.max())), -math.inf)
    for state, code in enumerate(codes.tolist()):
        out[state, code : code + width] = table[state]
    return out


def _of_entry(rows: Any, entry: int) -> Any:
    return rows if rows.ndim == 1 else rows[entry]


def _remove_state_codes(table: Floats, codes: Ints, width: int) -> Floats:
    """Seen before each state's own code was added."""
    return np.stack([row[code : code + width] for row, code in zip(table, codes, strict=True)])


def _tables_by_node(
    coded: Coded, nodes: int, log_likelihood: Floats
) -> Iterator[tuple[int, Floats]]:
    for back, table in enumerate(backward(coded, nodes, log_likelihood)):
        yield nodes - 1 - back, table


def _table_at(tables: Iterator[Floats], place: int) -> Floats:
    for _ in range(place):
        next(tables)
    return next(tables)


# Non-negative numbers that never underflow: a double each, with an exponent of its own.
#
# What is possible is decided by supports. A product of two hundred numbers of .02 is 0 in a double
# and not 0 in the world, so laws that are products of many factors are kept here: a number is 0
# exactly when it is impossible, and has a small relative error otherwise.


LEAST_NORMAL = sys.float_info.min  # the least double with all its digits
NEVER = -(2**60)  # the power of 0: below any other, and two of them can be added
LOST = 1e-290  # smaller entries may have lost digits to underflow, or all of them
FARTHEST = 2100  # halvings after which any double is 0


class TooUnlikely(InputError, Refused):
    """Something possible is too unlikely for a double, and must not become impossible."""


@dataclass(frozen=True, slots=True, eq=False)
class Wide:
    """part · 2^power, entry by entry; part is 0 or in [1/2, 1)."""

    part: Floats
    power: Ints

    @classmethod
    def of(cls, values: npt.ArrayLike, power: npt.ArrayLike = 0) -> Wide:
        """values · 2^power, exactly; values must not be negative."""
        part, shift = np.frexp(np.asarray(values, dtype=np.float64))
        moved = shift.astype(np.int64) + np.asarray(power, np.int64)
        return cls(np.asarray(part), np.asarray(np.where(part > 0, moved, NEVER)))

    @classmethod
    def whole(cls, numbers: Iterable[int]) -> Wide:
        """A row of whole numbers of any length, one rounding each."""
        listed = [(number, max(number.bit_length() - 64, 0)) for number in numbers]
        tops = [float(number >> shift) for number, shift in listed]
        return cls.of(tops, [shift for _, shift in listed])

    @property
    def shape(self) -> tuple[int, ...]:
        return self.part.shape

    @property
    def possible(self) -> npt.NDArray[np.bool_]:
        """Where the numbers are not 0."""
        return np.asarray(self.part > 0)

    def map_layout(self, how: Callable[[npt.NDArray[np.generic]], object]) -> Wide:
        """The same numbers in another order or shape: `how` picks, moves or reshapes an array."""
        return Wide(np.asarray(how(self.part)), np.asarray(how(self.power)))

    def times(self, other: Wide) -> Wide:
        """The products, one rounding each."""
        return Wide.of(self.part * other.part, self.power + other.power)

    def plus(self, other: Wide) -> Wide:
        """The sums, two roundings each."""
        top = np.maximum(self.power, other.power)
        return Wide.of(_scale_down(self, top) + _scale_down(other, top), top)

    def total(self, axis: int | tuple[int, ...] | None = None, *, keepdims: bool = False) -> Wide:
        """The sum along some axes, a rounding for each number and one more."""
        top = self.power.max(axis=axis, keepdims=True, initial=NEVER)
        added = _scale_down(self, top).sum(axis=axis, keepdims=True)
        found = Wide.of(added, top)
        if keepdims:
            return found
        gone = tuple(range(self.part.ndim)) if axis is None else axis
        return found.map_layout(lambda values: np.squeeze(values, axis=gone))

    def over(self, other: Wide) -> Floats:
        """The quotients as doubles, one rounding each where they are at least LEAST; 0/0 is 0."""
        share = np.divide(
            self.part,
            other.part,
            out=np.zeros(np.broadcast_shapes(self.shape, other.shape)),
            where=other.part > 0,
        )
        far = np.clip(self.power - other.power, -FARTHEST, FARTHEST)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(np.ldexp(share, np.where(share > 0, far, 0)))

    def doubles(self) -> Floats:
        """The numbers as doubles: 0 also where they are too small for one."""
        return self.over(Wide.of(np.ones(())))

    def log_over(self, other: Wide) -> Floats:
        """log self - log other: -inf where self is 0, inf where only other is.

        Off by less than 2^-51 (1 + |result|), and 0 where the two are equal.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.log(self.part / other.part) + (self.power - other.power) * _LOG_2
        there, against = np.broadcast_arrays(self.possible, other.possible)
        return np.asarray(np.where(there, np.where(against, found, np.inf), -np.inf))

    def log(self) -> Floats:
        """Natural logarithms, -inf where impossible; off by less than 2^-51 (1 + |log|)."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.part) + np.where(self.possible, self.power, 0) * _LOG_2)


def product(factors: list[Wide]) -> Wide:
    """The product of some arrays, broadcast against each other."""
    return reduce(Wide.times, factors, Wide.of(np.ones(())))


def is_exact_in_doubles(law: Floats, possible: npt.NDArray[np.bool_]) -> bool:
    """Return whether doubles hold a law: every possible value keeps its full precision."""
    return bool((law[possible] >= LEAST_NORMAL).all())  # false for nan too


_LOG_2 = float(np.log(2.0))


def _scale_down(numbers: Wide, top: Ints) -> Floats:
    """numbers / 2^top, with top no smaller than their powers; what is far below counts as 0."""
    return np.asarray(np.ldexp(numbers.part, np.maximum(numbers.power - top, -FARTHEST)))


def time_reversal(transition: Floats, law: Floats) -> Floats:
    """The law a step earlier, R(x, y) = law(y) P(y, x) / (law P)(x); rows of impossible x are 0."""
    joint = (law[:, None] * transition).T
    total = joint.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(joint, total, out=np.zeros_like(joint), where=total > 0))
