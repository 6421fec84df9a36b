"""Which variables a sum over a large network runs over, and which are asked about."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shoal.core.codec import Ints
from shoal.core.progress import in_time
from shoal.mechanisms.mixture import TooLarge
from shoal.networks.bayesnet import BayesNet
from shoal.networks.graph import SummingOrder, ancestors, better_order, children_of, greedy_order


@dataclass(frozen=True)
class RunSettings:
    """What a sum over a large network may cost, and how many variables it may leave out."""

    max_run_cells: float = 1e10  # cells of all tables times frequencies: a minute or two
    max_table_cells: float = 3e7  # cells of all tables of one run: some hundred megabytes
    min_cells_to_seek: float = 2e6  # cells of an order that is worth a longer search
    max_cells_gain: int = 8  # the most by which a longer search shrinks the tables, measured
    min_variables_per_dropped: int = 5  # at most one in so many variables is left out of a sum


RUNS = RunSettings()


LAW_OF_SUM = "the law of the sum over the network"


# Which variables are summed over, and which are asked about.


class SumRun(NamedTuple):
    """One elimination: the variables kept, in what order, and those whose secrets it decides."""

    kept: tuple[int, ...]
    order: SummingOrder
    asked: tuple[int, ...]
    left_out: int
    work: float


def plan_runs(net: BayesNet, part: Sequence[int], weights: list[Ints]) -> list[SumRun]:
    """Return eliminations that decide all secrets of a component, each with its own left out.

    The first leaves out what makes its tables small enough. What it left out are secrets too:
    the following ones keep as many of those as stay affordable, with all they depend on.
    """
    search = _DroppedVariables(net, part, weights)
    gone = search.enough(frozenset(), frozenset())
    runs = [search.run(gone, [v for v in part if v not in gone])]
    left = sorted(gone)
    while left:
        needed = search.above(left[:1])
        starts = (gone - needed, frozenset[int]())
        own = min((search.enough(start, needed) for start in starts), key=len)
        own = search.put_back(own, left)
        runs.append(search.run(own, [v for v in left if v not in own]))
        left = [v for v in left if v in own]
    return runs


class _DroppedVariables:
    """The search for few variables, with all that depends on them, that make tables large."""

    def __init__(self, net: BayesNet, part: Sequence[int], weights: list[Ints]) -> None:
        """Hold the component and the most cells a run may take, from the width of the sum."""
        self._net, self._part, self._integer_weights = net, tuple(part), weights
        self._children = children_of(net.above)
        self._orders: dict[frozenset[int], SummingOrder] = {}
        self._sought = set[frozenset[int]]()
        width = sum(int(weights[v].max()) for v in part) // weight_unit(weights, part) + 1
        self.most = min(
            RUNS.max_run_cells / 3 / (width / 2 + 1), RUNS.max_table_cells
        )  # there may be several runs

    def above(self, nodes: Iterable[int]) -> frozenset[int]:
        return ancestors(self._net.above, nodes)

    def order(self, gone: frozenset[int]) -> SummingOrder:
        if gone not in self._orders:
            kept = [v for v in self._part if v not in gone]
            self._orders[gone] = greedy_order(self._net.above, self._net.sizes, kept)
        return self._orders[gone]

    def best_order(self, gone: frozenset[int]) -> SummingOrder:
        """Return `order`, searched longer where its tables are large or somewhat too large."""
        known = self.order(gone)
        if (
            gone not in self._sought
            and RUNS.min_cells_to_seek < known.cells <= self.most * RUNS.max_cells_gain
        ):
            kept = [v for v in self._part if v not in gone]
            known = better_order(self._net.above, self._net.sizes, kept, known)
            self._orders[gone] = known
            self._sought.add(gone)
        return known

    def enough(self, gone: frozenset[int], needed: frozenset[int]) -> frozenset[int]:
        """Return `gone` and as few more as make tables small enough, none of them `needed`."""
        while (now := self.order(gone)).cells > self.most:
            in_time(LAW_OF_SUM)
            options = [gone | self._below(v) for v in self._variables_to_drop(now, gone)]
            options = [
                more
                for more in options
                if more > gone
                and not more & needed
                and len(more) * RUNS.min_variables_per_dropped
                <= len(self._part)  # before any order is made
            ]
            best = min(options, key=lambda more: self._price(now, gone, more), default=gone)
            if best == gone:
                raise TooLarge(
                    f"the laws of a sum over {len(self._part)} tied variables need tables of "
                    f"{now.cells:.2g} numbers; {self.most:.2g} at most: use group, or a "
                    "coarser model"
                )
            gone = best
        return self.put_back(gone, sorted(gone))

    def put_back(self, gone: frozenset[int], wanted: Iterable[int]) -> frozenset[int]:
        """Return what is left of `gone` when each of `wanted`, with all above it, is kept if it may
        be.
        """
        for v in wanted:
            fewer = gone - self.above([v])
            if self.order(fewer).cells <= self.most:
                gone = fewer
        return gone

    def run(self, gone: frozenset[int], asked: Sequence[int]) -> SumRun:
        """Return the run over the variables that are not `gone`, about the secrets of `asked`."""
        kept = tuple(v for v in self._part if v not in gone)
        order = self.best_order(gone)
        width = (
            sum(int(self._integer_weights[v].max()) for v in kept)
            // weight_unit(self._integer_weights, kept)
            + 1
        )
        left_out = sum(int(self._integer_weights[v].max()) for v in gone)
        return SumRun(kept, order, tuple(asked), left_out, order.cells * (width / 2 + 1))

    def _variables_to_drop(self, now: SummingOrder, gone: frozenset[int]) -> list[int]:
        """Return variables whose tables tie members of the largest table to each other."""
        return [
            v
            for v in self._part
            if v not in gone and len(now.largest & {v, *self._net.above[v]}) > 1
        ]

    def _below(self, v: int) -> frozenset[int]:
        """Return a variable and all that depends on it, directly or not."""
        found, waiting = set[int](), [v]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting.extend(self._children[node])
        return frozenset(found)

    def _price(self, now: SummingOrder, gone: frozenset[int], more: frozenset[int]) -> float:
        """Weight left out for each factor of e the tables shrink by; least is best."""
        shrinks = math.log(now.cells / self.order(more).cells)
        weight = sum(int(self._integer_weights[v].max()) for v in more - gone)
        return weight / shrinks if shrinks > 0 else math.inf


def weight_unit(weights: list[Ints], nodes: Iterable[int]) -> int:
    return math.gcd(*(int(weight) for v in nodes for weight in weights[v])) or 1
