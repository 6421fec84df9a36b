"""Queries of records without named states: means, histograms, and degrees of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, common_step, exact, whole
from shoal.core.plan import Answer
from shoal.records.domain import RecordDomain

GRID_STEPS = 1024  # an interval is cut into this many steps, to which numbers are rounded


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """One whole number a record: its step of the interval, or its bin (-1: in no bin)."""

    steps: Ints

    def __len__(self) -> int:
        """Return how many records there are: a public number."""
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberMean(Value):
    """The mean of `records` numbers, each clipped to low … high and rounded to 1/1024 of that.

    A record that is no number counts as the middle of the interval. Sensitivity
    (high - low) / records, exactly: one number moves by at most the whole interval, in whole
    steps. The number of records is public.
    """

    kind = "number-mean"

    low: Fraction
    high: Fraction
    records: int
    unit: str = "units"
    states: ClassVar[tuple[str, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ("mean",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", whole(self.records, "records"))
        if not self.low < self.high:
            raise InputError(f"the interval is {self.low} to {self.high}; low must be below high")

    @property
    def step(self) -> Fraction:
        """What one step of one number moves the mean by."""
        return (self.high - self.low) / (GRID_STEPS * self.records)

    @property
    def lattice(self) -> Fraction:
        """The largest step of which `low` and `step` are both multiples."""
        return common_step((self.low, self.step))

    @property
    def lipschitz(self) -> Fraction:
        return (self.high - self.low) / self.records

    def describe(self) -> str:
        return (
            f"the mean of {self.records} numbers (in {self.unit}; one number, in "
            f"{float(self.low):g} … {float(self.high):g}, moves it by at most "
            f"{float(self.lipschitz):.4g})"
        )

    def read(self, data: Any) -> Numbers:
        """Return numbers, clipped to the interval and rounded to its steps."""
        if isinstance(data, Numbers):
            return data
        values = _numbers_of_records(data, self.records)
        with np.errstate(over="ignore"):  # a warning would tell of the value
            share = (values - float(self.low)) / float(self.high - self.low)
        steps = np.rint(np.clip(share, 0.0, 1.0) * GRID_STEPS)
        return Numbers(as_read_only(np.where(np.isnan(steps), GRID_STEPS // 2, steps), np.int64))

    def evaluate(self, records: Numbers) -> tuple[int, ...]:
        """Return the mean in multiples of `lattice`, in exact integers."""
        return (int((self.low + int(records.steps.sum()) * self.step) / self.lattice),)

    def contributions(self, domain: RecordDomain) -> tuple[Floats, Floats]:
        """Return bounds of what a record of each cell adds to the mean above `low`, rounded
        outwards.
        """
        low, high = _cell_ends(domain)
        start, width = float(self.low), float(self.high - self.low)
        steps = [np.clip((end - start) / width, 0.0, 1.0) * GRID_STEPS for end in (low, high)]
        most = np.ceil(steps[1] + 0.5) * (1 + 1e-12)
        least = np.maximum(np.floor(steps[0] - 0.5), 0.0)
        unit = float(self.step)
        added = np.minimum(most, GRID_STEPS * (1 + 1e-12)) * unit
        return np.asarray(least * unit * (1 - 1e-12))[:, None], np.asarray(added)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberHistogram(Value):
    """How many numbers lie in each bin edges[k] ≤ x < edges[k+1]; the ends take what lies outside.

    A record that is no number is in no bin. Sensitivity 2: a number leaves one bin and enters
    another.
    """

    kind = "number-histogram"

    edges: tuple[Fraction, ...]
    unit: str = "records"
    states: ClassVar[tuple[str, ...]] = ()
    lattice: ClassVar[Fraction] = Fraction(1)
    lipschitz: ClassVar[Fraction] = Fraction(2)

    def __post_init__(self) -> None:
        if len(self.edges) < 3 or any(a >= b for a, b in pairwise(self.edges)):
            raise InputError("edges must be three numbers or more, each above the one before")

    @property
    def labels(self) -> tuple[str, ...]:
        ends = [f"{float(edge):g}" for edge in self.edges]
        return tuple(f"{a} to {b}" for a, b in pairwise(ends))

    def describe(self) -> str:
        return (
            f"how many numbers lie in each of {len(self.labels)} bins (in {self.unit}; one number "
            "moves it by at most 2)"
        )

    def read(self, data: Any) -> Numbers:
        """Return the bin of each number."""
        if isinstance(data, Numbers):
            return data
        values = _numbers_of_records(data, None)
        return Numbers(as_read_only(np.where(np.isnan(values), -1, self._bins(values)), np.int64))

    def evaluate(self, records: Numbers) -> tuple[int, ...]:
        counts = np.bincount(records.steps[records.steps >= 0], minlength=len(self.labels))
        return tuple(int(count) for count in counts)

    def contributions(self, domain: RecordDomain) -> tuple[Floats, Floats]:
        """Return bounds per cell and bin: 1 where the bin holds the cell, 0 to 1 where it holds a
        part.
        """
        low, high = _cell_ends(domain)
        first, last = self._bins(low), self._bins(high)
        bins = np.arange(len(self.labels))
        touched = (first[:, None] <= bins) & (bins <= last[:, None])
        return (touched & (first == last)[:, None]).astype(np.float64), touched.astype(np.float64)

    def _bins(self, values: Floats) -> Ints:
        inner = [float(edge) for edge in self.edges[1:-1]]
        return np.searchsorted(inner, values, side="right").astype(np.int64)


def number_mean(*, low: Number, high: Number, records: int, unit: str = "units") -> NumberMean:
    """Return the mean of `records` numbers in low … high."""
    return NumberMean(low=exact(low, "low"), high=exact(high, "high"), records=records, unit=unit)


def number_histogram(edges: Sequence[Number], *, unit: str = "records") -> NumberHistogram:
    """Return how many numbers lie between each two of `edges`."""
    return NumberHistogram(edges=tuple(exact(edge, "edges") for edge in edges), unit=unit)


def numbers_or_missing(data: Any) -> Floats:
    """Return `data` as doubles in the shape it has; NaN where an element is no number.

    For every record the answer has the same shape and nothing is raised: a refusal would
    tell that such a record is there. Only nested data without any shape is refused.
    """
    try:
        return np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        elements = np.asarray(data, dtype=object)
    except ValueError:
        raise DataError("the data is not a table; hand over rows of equal length") from None
    return np.array([_number_or_nan(one) for one in elements.ravel()]).reshape(elements.shape)


def _number_or_nan(element: Any) -> float:
    """Return one element as a double; NaN where it is no number, or several."""
    if _is_nested(element):
        return math.nan  # numpy would take an array of one number for it, and warn
    try:
        return float(element)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _is_nested(element: Any) -> bool:
    """Return whether something is not one value but several, or a list of one."""
    return isinstance(element, list | tuple) or (
        isinstance(element, np.ndarray) and element.ndim > 0
    )


def _numbers_of_records(data: Any, count: int | None) -> Floats:
    """Return one number per record; refused for the shape of the data only."""
    # a list holds records of any kind; the shape of an array is public
    listed = isinstance(data, list | tuple) and any(map(_is_nested, data))
    values = np.array([_number_or_nan(one) for one in data]) if listed else numbers_or_missing(data)
    if values.ndim != 1 or (count is not None and len(values) != count):
        wanted = "numbers in a row" if count is None else f"{count} numbers in a row"
        raise DataError(f"the data has shape {values.shape}; it must be {wanted}, one per record")
    return values


def _cell_ends(domain: RecordDomain) -> tuple[Floats, Floats]:
    if domain.low.shape[1] != 1:
        raise InputError(
            f"the model's values have {domain.low.shape[1]} coordinates; the query is about numbers"
        )
    return domain.low[:, 0], domain.high[:, 0]


PRIVACY_LEVELS = ("edge", "node")


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """`nodes` nodes, numbered from 0, and each edge once: the smaller end first, in order."""

    nodes: int
    edges: Ints

    def __len__(self) -> int:
        """Return how many nodes there are: a public number."""
        return self.nodes

    def degrees(self) -> Ints:
        """Return the number of edges at every node."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DegreeDistribution(Value):
    """How many of `nodes` nodes have degree 0, 1, …, `cap`; or more than 0, …, cap - 1.

    `nodes` is public, and how many edges there are is not. `level` says what one entry is:
    "edge": one pair of nodes, tied or not. Degrees above `cap` count as `cap`.
    "node": one node with all its edges. Edges are taken in the fixed order of their ends, and one
    whose end already has `cap` edges is left out, so no degree exceeds `cap`.

    With `cumulative` the answer is C_k = how many nodes have more than k edges, k = 0 … cap - 1,
    which is less sensitive and can be made monotone afterwards (`histogram`).

    **Sensitivity** in the l1 norm (proof: records/degrees.md):

        level   histogram    cumulative
        edge    4            2
        node    4·cap        2·cap

    Edge: two nodes move by one degree each. Node: each of the d edges that a node keeps before and
    of the d' after (at most cap) changes the degree of at most one other node, by one; the node
    itself moves by |d - d'|, and (d + d') + |d - d'| = 2 max(d, d').
    Day, Li & Lyu 2016, Section 4; Liu, Chakraborty & Mittal 2016, Section VII-B.
    """

    kind = "degree-distribution"

    nodes: int
    cap: int
    level: str
    cumulative: bool = False
    states: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "nodes"
    lattice: ClassVar[Fraction] = Fraction(1)

    def __post_init__(self) -> None:
        """Check the number of nodes, the cap and the level."""
        object.__setattr__(self, "nodes", whole(self.nodes, "nodes", least=2))
        object.__setattr__(self, "cap", whole(self.cap, "cap"))
        if self.level not in PRIVACY_LEVELS:
            raise InputError(f"level is {self.level!r}; it must be one of {list(PRIVACY_LEVELS)}")
        if self.cap >= self.nodes:
            raise InputError(
                f"cap is {self.cap}; a degree is below the number of nodes, {self.nodes}: "
                f"cap must be at most {self.nodes - 1}"
            )

    @property
    def entry(self) -> str:
        """What may change: a ledger adds only what speaks about the same."""
        what = "one pair" if self.level == "edge" else "one node with all its edges, one"
        return f"{what} of {self.nodes} nodes"

    @property
    def labels(self) -> tuple[str, ...]:
        if self.cumulative:
            return tuple(f"more than {k}" for k in range(self.cap))
        return (*(str(k) for k in range(self.cap)), f"{self.cap} or more")

    @property
    def lipschitz(self) -> Fraction:
        """See the table of the class."""
        if self.level == "edge":
            return Fraction(2 if self.cumulative else 4)
        return Fraction((2 if self.cumulative else 4) * self.cap)

    def describe(self) -> str:
        what = "has more than each number of edges" if self.cumulative else "has each degree"
        return (
            f"how many of {self.nodes} nodes {what}, up to {self.cap} (in nodes; one {self.level} "
            f"moves it by at most {self.lipschitz})"
        )

    def read(self, data: Any) -> Graph:
        """Return pairs of node numbers 0 … nodes - 1, in any order, or a networkx graph on them.

        A pair that does not join two of the nodes is left out: refusing it would tell of it. The
        nodes of a networkx graph are public, and refused when they are others.
        """
        if isinstance(data, Graph):
            return data
        if hasattr(data, "edges") and hasattr(data, "nodes"):  # a networkx graph
            if not set(data.nodes) <= set(range(self.nodes)):
                raise DataError(
                    f"the graph has nodes other than 0 … {self.nodes - 1}; number them, or raise "
                    "nodes"
                )
            data = list(data.edges())
        return graph(self.nodes, data)

    def evaluate(self, records: Graph) -> tuple[int, ...]:
        """Return the true counts."""
        kept = capped_degrees(records, self.cap) if self.level == "node" else records.degrees()
        counts = np.bincount(np.minimum(kept, self.cap), minlength=self.cap + 1)
        if self.cumulative:
            counts = self.nodes - np.cumsum(counts)[:-1]
        return tuple(int(count) for count in counts)

    def histogram(self, answer: Answer) -> Floats:
        """Return how many nodes have each degree 0 … cap, from a release: none negative, all nodes
        in sum.

        Post-processing: cumulative counts are made monotone by least squares first.
        """
        values = np.array(answer.values)
        if not self.cumulative:
            values = np.maximum(values, 0.0)
            return np.asarray(values * (self.nodes / max(values.sum(), 1e-9)))
        more = np.clip(non_increasing(values), 0.0, self.nodes)
        ends = np.concatenate([[float(self.nodes)], more, [0.0]])
        return np.asarray(ends[:-1] - ends[1:])


def degree_distribution(
    nodes: int, *, cap: int, level: str = "edge", cumulative: bool = True
) -> DegreeDistribution:
    """Return the degree distribution of a graph of `nodes` nodes; see DegreeDistribution."""
    return DegreeDistribution(nodes=nodes, cap=cap, level=level, cumulative=cumulative)


def degree_accuracy(truth: npt.ArrayLike, released: npt.ArrayLike) -> float:
    """Return 1 - |C - C'|₁ / |C + C'|₁ for two degree distributions C = truth and C' = released.

    1 when equal; 0 when they share nothing, and when both are empty.
    Liu, Chakraborty & Mittal 2016, Section VII-B.3.
    """
    a, b = np.asarray(truth, dtype=np.float64), np.asarray(released, dtype=np.float64)
    whole_mass = float(np.abs(a + b).sum())
    return 1.0 - float(np.abs(a - b).sum()) / whole_mass if whole_mass > 0 else 0.0


def graph(nodes: int, pairs: npt.ArrayLike | Sequence[tuple[int, int]]) -> Graph:
    """Return a graph from pairs of node numbers; repeated pairs count once.

    Loops and pairs with an end that is none of the numbers 0 … nodes - 1 are left out. Only the
    shape of the table can be refused.
    """
    table = numbers_or_missing(pairs)
    table = table.reshape(0, 2) if table.size == 0 else table
    if table.ndim != 2 or table.shape[1] != 2:
        raise DataError(f"the edges have shape {table.shape}; hand over pairs of node numbers")
    known = ((table >= 0) & (table < nodes) & (table == np.floor(table))).all(axis=1)
    ordered = np.sort(table[known & (table[:, 0] != table[:, 1])], axis=1)
    return Graph(nodes, as_read_only(np.unique(ordered, axis=0).reshape(-1, 2), np.int64))


def capped_degrees(records: Graph, cap: int) -> Ints:
    """Return degrees after leaving out, in the order of the edges, those with an end that is
    full.
    """
    degrees = [0] * records.nodes
    for a, b in records.edges.tolist():
        if degrees[a] < cap and degrees[b] < cap:
            degrees[a] += 1
            degrees[b] += 1
    return as_read_only(degrees, np.int64)


def non_increasing(values: Floats) -> Floats:
    """Return the non-increasing sequence nearest to `values` in squared distance: pooled
    averages.
    """
    sums: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        sums.append(value)
        sizes.append(1)
        while len(sums) > 1 and sums[-1] * sizes[-2] > sums[-2] * sizes[-1]:
            last, count = sums.pop(), sizes.pop()
            sums[-1] += last
            sizes[-1] += count
    return np.repeat(np.array(sums) / np.array(sizes), sizes)
