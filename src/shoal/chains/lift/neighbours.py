"""The lift of chains of very many states of which few follow each: only neighbours are compared.

What a release makes of the state, log v, changes from x to x' by no more than the sum of its
changes along any way from x to x'. So D of neighbours, that is of states one of which may follow
the other, is enough: between others the shortest way serves, and a bound on neighbours that lies
above its own image holds for every number of entries. Proof: shoal/mechanisms/lift.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.chains.lift.solver import Tangent, certified_fixed_point
from shoal.chains.lift.step import NEIGHBOURS
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import in_time
from shoal.core.walk import UNIT
from shoal.mechanisms.cone import UNKNOWN, PairLaws

WIDEST = 48  # states that two neighbours may lead to together
MOST_PAIRS = 60_000  # of neighbours: a step takes a second
LITTLE = 2.0**-8  # the largest entry of a metric small enough to tell how near ways come
USELESS_FACTOR = 64.0  # times that: a bound this large is of no use
TIGHT = 1.25  # times what the means differ by: ways this near are near enough
WAYS_TOGETHER = 16  # ends of ways looked at together
ENTRIES = 3  # slopes kept for each of these states: ways among them are short


class NeighbourSide:
    """Laws of the next entry, compared between neighbours only."""

    def __init__(self, transition: Floats, laws: PairLaws, neighbours: Bools) -> None:
        """Keep the laws of all pairs of neighbouring states; `neighbours` is a mask (states,
        states).
        """
        from scipy.sparse import csr_array

        self.first, self.second = np.nonzero(neighbours)
        self._transition, self._slack = transition, laws.slack
        self._graph = csr_array(neighbours.astype(np.float64))  # the same order of pairs
        self._index = np.full(neighbours.shape, -1, dtype=np.int64)
        self._index[self.first, self.second] = np.arange(len(self.first))
        self._pairs = _rows_on_their_states(laws, self.first, self.second)

    def bound(self, metric: Floats, enough: float, start: Floats | None = None) -> Floats | None:
        """D of each pair of neighbours, certified for any number of entries; None if it is not.

        `start` is a guess that may save time.
        """
        trees = np.full(self._pairs[0].shape, UNKNOWN, dtype=np.int16)
        metric = np.ascontiguousarray(metric)
        guess = self.little(metric) if start is None else start
        found = certified_fixed_point(
            lambda known: self.image(known, metric, trees),
            guess,
            enough,
            lambda known: self._tangent(known, metric, trees),
        )
        return found if np.isfinite(found).all() else None

    def image(self, known: Floats, metric: Floats, trees: Any) -> Floats:
        """What one more entry makes of the bound on neighbours. Rounds up."""
        in_time("the lift")
        value, _, _, count = *self._slopes(known, metric, trees, 0), self._pairs[1]
        extra = self._slack + 16.0 * (self._pairs[0].shape[1] + 8) * UNIT
        rounded = value + 32.0 * (count + 4) * UNIT + extra
        return np.where(np.isnan(value), np.inf, np.where(value == 0.0, 0.0, rounded))

    def everywhere(self, known: Floats) -> Floats:
        """The shortest way between all pairs of states. Rounds up."""
        from scipy.sparse.csgraph import dijkstra

        ways = dijkstra(self.ways(known))
        return np.asarray(ways * (1.0 + 2.0 * len(ways) * UNIT))

    def ways(self, known: Floats) -> Any:
        """The graph of neighbours with these lengths."""
        graph = self._graph.copy()
        graph.data = np.maximum(known, 1e-300)  # a length of 0 would count as no edge
        return graph

    def little(self, metric: Floats) -> Floats:
        """About D where the metric is small: Σ over later entries of how their means differ.

        Of each of the functions metric(·, r); no promise, only where a search begins.
        """
        size = len(metric)
        system = np.eye(size) - self._transition + 1.0 / size
        try:
            sums = np.linalg.solve(system, self._transition @ metric)
        except np.linalg.LinAlgError:  # it never forgets
            return np.zeros(len(self.first))
        apart = np.zeros(len(self.first))
        for column in sums.T:
            np.maximum(apart, np.abs(column[self.first] - column[self.second]), out=apart)
        return apart

    def _slopes(
        self, known: Floats, metric: Floats, trees: Any, entries: int
    ) -> tuple[Floats, Ints, Floats]:
        """Λ of each pair, not rounded, and what it hangs on: so many slopes for each state."""
        from shoal.mechanisms.cone_tree import neighbour_slopes

        count, width = self._pairs[0].shape
        value, places = np.empty(count), np.full((count, entries * width), -1, dtype=np.int64)
        found = value, places, np.zeros(places.shape)
        neighbour_slopes(self._pairs, known, metric, self._index, trees, *found)
        return found

    def _tangent(self, known: Floats, metric: Floats, trees: Any) -> Tangent | None:
        """Return the tangent of one step at `known`: its values and a sparse matrix of slopes.

        None where a value is not a number.
        """
        from scipy.sparse import csr_array

        value, places, shares = self._slopes(known, metric, trees, ENTRIES)
        if np.isnan(value).any():
            return None
        count, real = len(value), places >= 0
        starts = np.concatenate([[0], np.cumsum(real.sum(axis=1))])
        return Tangent(value, csr_array((shares[real], places[real], starts), (count, count)))


def _rows_on_their_states(
    laws: PairLaws, first: Ints, second: Ints
) -> tuple[Ints, Ints, Floats, Floats]:
    """Per pair: the states either row can take, how many, and both rows there."""
    taken = (laws.upper[first] > 0.0) | (laws.lower[second] > 0.0)
    count = taken.sum(axis=1)
    states = np.zeros((len(first), int(count.max())), dtype=np.int64)
    filled = np.arange(states.shape[1]) < count[:, None]
    states[filled] = np.nonzero(taken)[1]
    p = np.where(filled, laws.upper[first[:, None], states], 0.0)
    q = np.where(filled, laws.lower[second[:, None], states], 0.0)
    return states, count, p, q


def between_neighbours(
    transition: Floats, possible: Bools, laws: PairLaws, metric: Floats
) -> NeighbourSide | None:
    """The laws between neighbours near enough to serve; None where there are none.

    Where rows of neighbours differ much, sums along ways run away; then states two, three, …
    steps apart count as neighbours too, until a small metric shows about what the means differ by.
    """
    linked = neighbours_of(possible)
    if linked is None or not metric.any():
        return None
    small, reach, side = metric * (LITTLE / metric.max()), linked, None
    one_more = (linked | np.eye(len(linked), dtype=np.bool_)).astype(np.float32)
    while reach.sum() <= MOST_PAIRS:
        tried = NeighbourSide(transition, laws, reach)
        known = tried.bound(small, USELESS_FACTOR * LITTLE)
        if known is not None:
            side = tried
            least = tried.ways(tried.little(small))
            if _worst(small, tried.ways(known)) <= TIGHT * _worst(small, least):
                return side
        wider = reach.astype(np.float32) @ one_more > 0.5
        np.fill_diagonal(wider, False)
        if np.array_equal(wider, reach):
            break
        reach = wider
    return side


def _worst(metric: Floats, ways: Any) -> float:
    return worst_way(metric, ways, ways).value


def neighbours_of(possible: Bools) -> Bools | None:
    """Pairs of states of which one may follow the other; None where they do not serve.

    possible marks what may follow what. Neighbours have to link all states, and two of them may
    lead to WIDEST states at most, and to no more than there are.
    """
    size, most = len(possible), int(possible.sum(axis=1).max())
    if size < NEIGHBOURS or 2 * most > min(WIDEST, size):
        return None
    from scipy.sparse.csgraph import connected_components

    linked = possible | possible.T
    np.fill_diagonal(linked, False)
    return np.asarray(linked) if connected_components(linked)[0] == 1 else None


@dataclass(frozen=True, slots=True)
class WorstWay:
    """The largest sum over sides of the shortest ways between two states, plus the metric."""

    value: float
    pair: tuple[int, int]
    at_node: float
    future: float
    past: float


def worst_way(metric: Floats, future: Any, past: Any) -> WorstWay:
    """max over x, x' of metric + way(x, x') in either graph. Rounds up.

    Through a hub c every way is at most that to c and that from c. Only states that are far
    from it, one way or the other, are looked at as ends of their own: the rest cannot be worse.
    """
    from scipy.sparse.csgraph import dijkstra

    def ways(sources: Sequence[int] | Ints, *, back: bool) -> tuple[Floats, Floats]:
        graphs = [graph.T.tocsr() if back else graph for graph in (future, past)]
        found = [np.atleast_2d(dijkstra(graph, indices=sources)) for graph in graphs]
        return found[0], found[1]

    best = WorstWay(0.0, (0, 0), 0.0, 0.0, 0.0)

    def look(sources: Ints, *, back: bool) -> None:
        """Compare the ways from these states, or to them with `back`, and keep the worst in
        `best`.
        """
        nonlocal best
        ahead, behind = ways(sources, back=back)
        near = metric[:, sources].T if back else metric[sources]
        total = near + ahead + behind
        row, other = np.unravel_index(int(total.argmax()), total.shape)
        if total[row, other] > best.value:
            pair = int(sources[row]), int(other)
            parts = near[row, other], ahead[row, other], behind[row, other]
            best = WorstWay(
                float(total[row, other]), pair[::-1] if back else pair, *map(float, parts)
            )

    look(np.array([0]), back=False)
    hub = best.pair[1]
    look(np.array([hub]), back=False)
    away = [np.add(*ways([hub], back=back))[0] for back in (True, False)]
    most, order = float(metric.max()), np.argsort(-np.maximum(*away), kind="stable")
    done = 0
    while done < len(order):
        rest = order[done:]
        if most + away[0][rest].max() + away[1][rest].max() <= best.value:
            break
        chosen = rest[:WAYS_TOGETHER]
        look(chosen, back=False)
        look(chosen, back=True)
        done += len(chosen)
    up = 1.0 + 2.0 * len(metric) * 2.0 * UNIT
    return WorstWay(best.value * up, best.pair, best.at_node, best.future * up, best.past * up)
