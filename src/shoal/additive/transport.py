"""How far mass must move from one law to another at worst: the Wasserstein distance W∞."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.additive.mixture import TooLarge
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError

Number = float | Fraction
TOLERANCE = 1e-12  # levels closer than this count as one: thinner slices of mass are not moved
MAX_EDGES = 40_000  # pairs of support points a bottleneck problem may have
UNITS = 2**40  # floating masses are whole numbers of 2^-40 in a bottleneck problem


class Transport(NamedTuple):
    """The largest W∞ of a sum over nodes and pairs of secrets, and where it is reached."""

    distance: float
    node: int = 0
    pair: tuple[int, int] = (0, 0)


def quantile_gap(
    values: Sequence[Number],
    law: Sequence[Number],
    other: Sequence[Number],
    *,
    tolerance: float = TOLERANCE,
) -> Number:
    """W∞ of two laws on the line, both on the increasing `values`: their largest quantile gap.

    sup over levels 0 < t < 1 of |Q(t) - Q'(t)|, Q(t) = the least value with mass ≥ t up to it.
    Exact when every mass is a Fraction or int. With floats, slices of levels no longer than
    `tolerance` are skipped, so that rounding and tails of 1e-16 do not decide: the answer may then
    be TOO SMALL for those tails, and a caller must re-certify its noise by the exact loss.
    Song, Wang & Chaudhuri 2017, Definition 3.1; each law is divided by its total.
    """
    if not len(values) == len(law) == len(other) or any(a >= b for a, b in pairwise(values)):
        raise InputError("values must increase, with one mass of each law per value")
    exact = all(isinstance(mass, Fraction | int) for mass in (*law, *other))
    thin = Fraction(0) if exact else tolerance
    first, second = _levels(law, exact), _levels(other, exact)
    cuts = sorted({*first, *second, Fraction(0) if exact else 0.0})
    widest: Number = 0
    for low, high in pairwise(cuts):
        if high - low > thin:
            middle = (low + high) / 2
            one, two = values[bisect_left(first, middle)], values[bisect_left(second, middle)]
            widest = max(widest, one - two if one > two else two - one)
    return widest


def bottleneck(
    points: npt.ArrayLike,
    law: Sequence[Number],
    other: Sequence[Number],
    *,
    norm: float = 1,
) -> float:
    """W∞ of two laws on the rows of `points`: the least r such that mass need not move further.

    Bisects the distinct distances (`norm` 1 is the one product Laplace noise needs) for the
    smallest at which a flow along pairs no further apart carries all mass. Exact for Fractions
    and ints; floats are rounded to multiples of 2^-40, which again may only shrink the answer by
    tails: re-certify. Raises TooLarge beyond 40,000 pairs of support points.
    """
    places = np.asarray(points, dtype=np.float64)
    sources, targets = _masses(law, other)
    if len(sources) * len(targets) > MAX_EDGES:
        raise TooLarge(
            f"the two laws have {len(sources)} and {len(targets)} values; bottleneck transport "
            f"is limited to {MAX_EDGES} pairs of values"
        )
    rows, columns = list(sources), list(targets)
    gaps = np.linalg.norm(places[rows][:, None] - places[columns][None], ord=norm, axis=2)
    candidates = np.unique(gaps)
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if _carries_all(sources, targets, gaps <= candidates[middle]):
            high = middle
        else:
            low = middle + 1
    return float(candidates[low])


def lattice_gap(first: Floats, second: Floats, tolerance: float) -> float:
    """`quantile_gap` on 0, 1, 2, … from cumulative sums, all levels at once."""
    first, second = first / first[-1], second / second[-1]
    cuts = np.unique(np.concatenate([[0.0], first, second]))
    thick = np.flatnonzero(np.diff(cuts) > tolerance)
    middle = (cuts[thick] + cuts[thick + 1]) / 2
    gaps = np.searchsorted(first, middle) - np.searchsorted(second, middle)
    return float(np.abs(gaps).max(initial=0))


def _levels(law: Sequence[Number], exact: bool) -> list[float] | list[Fraction]:
    """Cumulative masses divided by their total; the last is exactly 1."""
    if exact:
        sums = list(accumulate(Fraction(mass) for mass in law))
        return [level / sums[-1] for level in sums]
    rounded = list(accumulate(float(mass) for mass in law))
    return [level / rounded[-1] for level in rounded]


def _masses(
    law: Sequence[Number], other: Sequence[Number]
) -> tuple[dict[int, int], dict[int, int]]:
    """Both laws as whole numbers with one total, by point; points without mass are left out."""
    if all(isinstance(mass, Fraction | int) for mass in (*law, *other)):
        first, second = ([Fraction(mass) for mass in side] for side in (law, other))
        shared = math.lcm(*(mass.denominator for mass in (*first, *second)))
        one, two = ([int(mass * shared) for mass in side] for side in (first, second))
        one, two = [m * sum(two) for m in one], [m * sum(one) for m in two]
    else:
        one, two = (_rounded(side) for side in (law, other))
    return (
        {place: mass for place, mass in enumerate(one) if mass},
        {place: mass for place, mass in enumerate(two) if mass},
    )


def _rounded(law: Sequence[Number]) -> list[int]:
    """Whole numbers of 2^-40 that add up to exactly 2^40, by rounding the cumulative sums."""
    levels = [round(level * UNITS) for level in _levels([float(mass) for mass in law], False)]
    return [high - low for low, high in pairwise([0, *levels])]


def _carries_all(sources: dict[int, int], targets: dict[int, int], near: Bools) -> bool:
    """Whether a flow from sources to targets along the pairs marked carries all mass."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(["from", "to"])
    for place, mass in sources.items():
        graph.add_edge("from", ("s", place), capacity=mass)
    for place, mass in targets.items():
        graph.add_edge(("t", place), "to", capacity=mass)
    for row, source in enumerate(sources):
        for column, target in enumerate(targets):
            if near[row, column]:
                graph.add_edge(("s", source), ("t", target))
    return bool(nx.maximum_flow_value(graph, "from", "to") == sum(sources.values()))
