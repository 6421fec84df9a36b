"""The degree distribution of a graph, for edges or whole nodes as what may change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, Value, locked
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.plan import Answer
from shoal.records.numbers import numbers_or_missing

LEVELS = ("edge", "node")


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """`nodes` nodes, numbered from 0, and each edge once: the smaller end first, in order."""

    nodes: int
    edges: Ints

    def __len__(self) -> int:
        """How many nodes there are: a public number."""
        return self.nodes

    def degrees(self) -> Ints:
        """The number of edges at every node."""
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

    nodes: int
    cap: int
    level: str
    cumulative: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", whole(self.nodes, "nodes", least=2))
        object.__setattr__(self, "cap", whole(self.cap, "cap"))
        if self.level not in LEVELS:
            raise InputError(f"level is {self.level!r}; it must be one of {list(LEVELS)}")
        if self.cap >= self.nodes:
            raise InputError(
                f"cap is {self.cap}; a degree is below the number of nodes, {self.nodes}: "
                f"cap must be at most {self.nodes - 1}"
            )

    @property
    def states(self) -> tuple[str, ...]:
        return ()

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
    def unit(self) -> str:
        return "nodes"

    @property
    def lattice(self) -> Fraction:
        return Fraction(1)

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
        """Pairs of node numbers 0 … nodes - 1, in any order, or a networkx graph on them.

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
        """The true counts."""
        kept = capped_degrees(records, self.cap) if self.level == "node" else records.degrees()
        counts = np.bincount(np.minimum(kept, self.cap), minlength=self.cap + 1)
        if self.cumulative:
            counts = self.nodes - np.cumsum(counts)[:-1]
        return tuple(int(count) for count in counts)

    def histogram(self, answer: Answer) -> Floats:
        """How many nodes have each degree 0 … cap, from a release: none negative, all nodes in sum.

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
    """The degree distribution of a graph of `nodes` nodes; see DegreeDistribution."""
    return DegreeDistribution(nodes=nodes, cap=cap, level=level, cumulative=cumulative)


def degree_accuracy(truth: npt.ArrayLike, released: npt.ArrayLike) -> float:
    """1 - |C - C'|₁ / |C + C'|₁ for two degree distributions C = truth and C' = released.

    1 when equal; 0 when they share nothing, and when both are empty.
    Liu, Chakraborty & Mittal 2016, Section VII-B.3.
    """
    a, b = np.asarray(truth, dtype=np.float64), np.asarray(released, dtype=np.float64)
    whole_mass = float(np.abs(a + b).sum())
    return 1.0 - float(np.abs(a - b).sum()) / whole_mass if whole_mass > 0 else 0.0


def graph(nodes: int, pairs: npt.ArrayLike | Sequence[tuple[int, int]]) -> Graph:
    """A graph from pairs of node numbers; repeated pairs count once.

    Loops and pairs with an end that is none of the numbers 0 … nodes - 1 are left out. Only the
    shape of the table can be refused.
    """
    table = numbers_or_missing(pairs)
    table = table.reshape(0, 2) if table.size == 0 else table
    if table.ndim != 2 or table.shape[1] != 2:
        raise DataError(f"the edges have shape {table.shape}; hand over pairs of node numbers")
    known = ((table >= 0) & (table < nodes) & (table == np.floor(table))).all(axis=1)
    ordered = np.sort(table[known & (table[:, 0] != table[:, 1])], axis=1)
    return Graph(nodes, locked(np.unique(ordered, axis=0).reshape(-1, 2), np.int64))


def capped_degrees(records: Graph, cap: int) -> Ints:
    """Degrees after leaving out, in the order of the edges, those with an end that is full."""
    degrees = [0] * records.nodes
    for a, b in records.edges.tolist():
        if degrees[a] < cap and degrees[b] < cap:
            degrees[a] += 1
            degrees[b] += 1
    return locked(degrees, np.int64)


def non_increasing(values: Floats) -> Floats:
    """The non-increasing sequence nearest to `values` in squared distance: pooled averages."""
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
