"""Sums over networks too large to convolve: laws from characteristic functions. Proof: large.md.

    φ_x(t) = E[ e^{itF} | X_v = x ]   for all variables v at once (`marginals`), at the roots of
    unity, and P(F = c | X_v = x) from them: an absolute error for every mass, not a relative one.

Where tables would still be too large, variables nothing else depends on are left out of the sum:
what they would add lies in an interval of known length, and costs that length over the scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.additive.mixture import NO_NOISE, TooLarge, evaluation_slack, smallest_scale, smoothed
from shoal.additive.queries import LinearQuery
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats, Ints
from shoal.core.task import ScaleFound
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Elimination, elimination
from shoal.networks.graph import ancestors, children_of
from shoal.networks.marginals import SummingOrder, good_order, marginals, possible_values, roundings
from shoal.networks.queries import VariableSum
from shoal.networks.secret_laws import contributions

MAX_WORK = 1e10  # cells of all tables times frequencies, of all runs: a minute or two
MAX_CELLS = 3e7  # of all tables of one run: some hundred megabytes
MOST_LEFT_OUT = 5  # at most one in so many variables is left out of a sum
SMALLEST = 1e-250  # a less likely value has lost digits to underflow
OPERATIONS = 8  # roundings of a double that one complex product and addition take, at most
NO_TAILS = (
    "the furthest any mass moves hangs on tails that are known up to an absolute error only in a "
    "network as large as this one; use exact"
)


class SumLaws(NamedTuple):
    """laws[s, c] = P(F = low + unit·c | secret s) up to `error` each, F over the variables kept.

    `owner` is the variable each secret is about; the variables left out add between 0 and
    `left_out` lattice steps more, wherever 0 is.
    """

    laws: Floats
    owner: Ints
    names: tuple[str, ...]
    unit: int
    error: float
    left_out: int

    def interval(self, steps: float) -> tuple[float, float]:
        """lower ≤ loss ≤ upper of noise of scale `steps`, over all outputs and secrets."""
        positions: Floats = np.arange(self.laws.shape[1], dtype=np.float64) * (self.unit / steps)
        density = smoothed(self.laws, positions)
        off = self.error * smoothed(np.ones((1, len(positions))), positions)
        if not (density > 2.0 * off).all():
            return 0.0, math.inf
        above, below = np.log(density + off), np.log(density - off)
        first = np.flatnonzero(np.diff(self.owner, prepend=-1))
        upper = np.maximum.reduceat(above, first) - np.minimum.reduceat(below, first)
        lower = np.maximum.reduceat(below, first) - np.minimum.reduceat(above, first)
        slack = evaluation_slack(
            float(positions[-1]), len(positions), float(np.abs(below).max())
        ) + self.left_out / steps * (1.0 + 4.0 * UNIT)
        return max(float(lower.max()) - slack, 0.0), float(upper.max()) + slack


class LargeSums:
    """The laws of a sum over a network, for every value of every variable as a secret."""

    def __init__(self, net: BayesNet, query: LinearQuery | VariableSum) -> None:
        self._net, self._query = net, query

    @cached_property
    def parts(self) -> tuple[SumLaws, ...]:
        return sum_laws(self._net, self._query)

    def least_scale(self, epsilon: float) -> ScaleFound:
        widest = max(part.unit * (part.laws.shape[1] - 1) + part.left_out for part in self.parts)
        upper = max(1.001 * widest / epsilon, 1 / NO_NOISE)
        scale = smallest_scale(self.loss, epsilon, 1 / NO_NOISE, upper)
        return ScaleFound(
            scale,
            None,
            "masses of the sum are known up to 1e-11 in a network this large, and so little noise "
            "shows smaller ones",
        )

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        return self.interval(scale)[1]

    def interval(self, scale: float) -> tuple[float, float]:
        """lower ≤ loss ≤ upper; what independent parts add makes the loss no larger.

        The lower end is that of the largest part alone, so it holds where there is one part only.
        """
        found = [part.interval(scale) for part in self.parts]
        alone = len(self._net.parts) == 1
        return max(low for low, _ in found) if alone else 0.0, max(high for _, high in found)

    def floor(self, epsilon: float) -> float | None:
        return None

    def no_distance(self) -> str | None:
        return NO_TAILS

    def distance(self) -> float:
        return math.inf

    def ratio(self, decay: float) -> float:
        return math.inf


@lru_cache(maxsize=8)
def sum_laws(net: BayesNet, query: LinearQuery | VariableSum) -> tuple[SumLaws, ...]:
    """The laws of the sum given each value of each variable, a component after the other.

    Refused where even with variables left out tables would be too large.
    """
    added = contributions(query, net.variables, net.domains)
    if added[0].shape[1] > 1:
        raise TooLarge("laws of several sums at once are not followed in a network this large")
    weights = [np.asarray(rows[:, 0] - rows[:, 0].min()) for rows in added]
    runs = [run for part in net.parts for run in _runs(net, part, weights)]
    work = sum(run.work for run in runs)
    if work > MAX_WORK:
        raise TooLarge(
            f"the laws of a sum over {net.tied} tied variables take {work:.1g} numbers; at most "
            f"{MAX_WORK:.0e} are tried: use group, or a coarser model"
        )
    return tuple(_followed(net, run, weights) for run in runs)


# Which variables are summed over, and which are asked about.


class SumRun(NamedTuple):
    """One elimination: the variables kept, in what order, and those whose secrets it decides."""

    kept: tuple[int, ...]
    order: SummingOrder
    asked: tuple[int, ...]
    left_out: int
    work: float


def _runs(net: BayesNet, part: Sequence[int], weights: list[Ints]) -> list[SumRun]:
    """Eliminations that decide all secrets of a component, each with its own left out.

    The first leaves out what makes its tables small enough. What it left out are secrets too:
    the following ones keep as many of those as stay affordable, with all they depend on.
    """
    search = _LeavingOut(net, part, weights)
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


class _LeavingOut:
    """The search for few variables, with all that depends on them, that make tables large."""

    def __init__(self, net: BayesNet, part: Sequence[int], weights: list[Ints]) -> None:
        self._net, self._part, self._weights = net, tuple(part), weights
        self._children = children_of(net.above)
        self._orders: dict[frozenset[int], SummingOrder] = {}
        width = sum(int(weights[v].max()) for v in part) // _unit(weights, part) + 1
        self.most = min(MAX_WORK / 3 / (width / 2 + 1), MAX_CELLS)  # there may be several runs

    def above(self, nodes: Iterable[int]) -> frozenset[int]:
        return ancestors(self._net.above, nodes)

    def order(self, gone: frozenset[int]) -> SummingOrder:
        if gone not in self._orders:
            kept = [v for v in self._part if v not in gone]
            self._orders[gone] = good_order(self._net.above, self._net.sizes, kept)
        return self._orders[gone]

    def enough(self, gone: frozenset[int], needed: frozenset[int]) -> frozenset[int]:
        """`gone` and as few more as make tables small enough, none of them `needed`."""
        while (now := self.order(gone)).cells > self.most:
            options = [gone | self._below(v) for v in self._blamed(now, gone)]
            options = [
                more
                for more in options
                if more > gone
                and not more & needed
                and len(more) * MOST_LEFT_OUT <= len(self._part)  # before any order is made
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
        """What is left of `gone` when each of `wanted` is kept, with all above it, if it may be."""
        for v in wanted:
            fewer = gone - self.above([v])
            if self.order(fewer).cells <= self.most:
                gone = fewer
        return gone

    def run(self, gone: frozenset[int], asked: Sequence[int]) -> SumRun:
        kept = tuple(v for v in self._part if v not in gone)
        order = self.order(gone)
        width = sum(int(self._weights[v].max()) for v in kept) // _unit(self._weights, kept) + 1
        left_out = sum(int(self._weights[v].max()) for v in gone)
        return SumRun(kept, order, tuple(asked), left_out, order.cells * (width / 2 + 1))

    def _blamed(self, now: SummingOrder, gone: frozenset[int]) -> list[int]:
        """Variables whose tables tie members of the largest table to each other."""
        return [
            v
            for v in self._part
            if v not in gone and len(now.largest & {v, *self._net.above[v]}) > 1
        ]

    def _below(self, v: int) -> frozenset[int]:
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
        weight = sum(int(self._weights[v].max()) for v in more - gone)
        return weight / shrinks if shrinks > 0 else math.inf


def _unit(weights: list[Ints], nodes: Iterable[int]) -> int:
    return math.gcd(*(int(weight) for v in nodes for weight in weights[v])) or 1


# The laws of one run.


def _followed(net: BayesNet, run: SumRun, weights: list[Ints]) -> SumLaws:
    scopes = tuple((*net.above[v], v) for v in run.kept)
    chosen = elimination(scopes, net.sizes, (), run.order.order)
    tables = [net.tables[v] for v in run.kept]
    place = [run.kept.index(v) for v in run.asked]
    prior = [np.asarray(found) for found in marginals(chosen, tables)]
    known = _known(chosen, tables, prior)
    unit = _unit(weights, run.kept)
    codes = [weights[v] // unit for v in run.kept]
    width = 1 + sum(int(code.max()) for code in codes)
    roots = np.exp(2j * math.pi / width * np.arange(width))
    rows = np.empty((sum(int(known[p].sum()) for p in place), width // 2 + 1), dtype=complex)
    for frequency in range(width // 2 + 1):
        turned = [
            t * roots[code * frequency % width] for t, code in zip(tables, codes, strict=True)
        ]
        found = marginals(chosen, turned)
        rows[:, frequency] = np.concatenate(
            [found[p][known[p]] / prior[p][known[p]] for p in place]
        )
    owner = np.concatenate([np.full(int(known[p].sum()), run.kept[p]) for p in place])
    names = tuple(
        f"{net.variables[run.kept[p]]} = {value}"
        for p in place
        for value, can in zip(net.domains[run.kept[p]], known[p], strict=True)
        if can
    )
    error = _error(chosen, tables, net.sizes, width)
    return SumLaws(_masses(rows, width), owner, names, unit, error, run.left_out)


def _known(
    chosen: Elimination, tables: Sequence[Floats], prior: Sequence[Floats]
) -> list[np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """Which values are secrets; refused where one is possible and too unlikely to follow."""
    known = [found >= SMALLEST for found in prior]
    if all(known_one.all() for known_one in known):
        return known
    possible = possible_values(chosen, tables)
    if any((one & ~two).any() for one, two in zip(possible, known, strict=True)):
        raise TooLarge(
            f"some value of a variable has a probability below {SMALLEST:.0e}, which is not "
            "followed in a network this large; leave such values out of the model"
        )
    return possible


def _masses(rows: npt.NDArray[np.complex128], width: int) -> Floats:
    """The law whose characteristic function at the roots of unity is given, half of them."""
    turns = np.outer(np.arange(rows.shape[1]), np.arange(width)) % width
    angles = 2 * math.pi / width * turns
    twice = np.full(rows.shape[1], 2.0)  # with its conjugate, but for 0 and a half turn
    twice[0] = 1.0
    if width % 2 == 0:
        twice[-1] = 1.0
    masses = (rows.real * twice) @ np.cos(angles) + (rows.imag * twice) @ np.sin(angles)
    return np.asarray(np.maximum(masses / width, 0.0), dtype=np.float64)


def _error(
    chosen: Elimination, tables: Sequence[Floats], sizes: Sequence[int], width: int
) -> float:
    """What rounding can hide of a mass given its secret (large.md, Claim 2)."""
    passed = roundings(chosen, tables, sizes) + 2 * len(tables)
    return 2.0 * UNIT * (2 * OPERATIONS * passed + 4 * (width + 16))
