"""Laws of an answer given each secret: how far two are apart, and small ones in whole numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import accumulate, chain, pairwise, product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError, Refused
from shoal.core.task import EachEntry, Model, Query, Task
from shoal.core.walk import Walk
from shoal.mechanisms.exact import MAX_ANSWERS, Steps, answer_steps, answer_sums, walk_of
from shoal.mechanisms.mixture import TooLarge
from shoal.mechanisms.plans import eta_above
from shoal.mechanisms.queries import LinearQuery, linear, weighted_sum

# How far mass must move from one law to another at worst: the Wasserstein distance W∞.


Number = float | Fraction
LEVELS_ALIKE = 1e-12  # levels closer than this count as one: thinner slices of mass are not moved
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
    tolerance: float = LEVELS_ALIKE,
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
) -> float:
    """W∞ of two laws on the rows of `points`: the least r such that mass need not move further.

    Bisects the distinct distances (in the l1 norm, which product Laplace noise needs) for the
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
    gaps = np.linalg.norm(places[rows][:, None] - places[columns][None], ord=1, axis=2)
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
        one, two = (_round_to_fixed_point(side) for side in (law, other))
    return (
        {place: mass for place, mass in enumerate(one) if mass},
        {place: mass for place, mass in enumerate(two) if mass},
    )


def _round_to_fixed_point(law: Sequence[Number]) -> list[int]:
    """Whole numbers of 2^-40 that add up to exactly 2^40, by rounding the cumulative sums."""
    levels = [round(level * UNITS) for level in _levels([float(mass) for mass in law], False)]
    return [high - low for low, high in pairwise([0, *levels])]


def _carries_all(sources: dict[int, int], targets: dict[int, int], near: Bools) -> bool:
    """Whether a flow from sources to targets along the pairs marked carries all mass.

    Augmenting paths in whole numbers of any size (Edmonds and Karp 1972). `near` has a row per
    source and a column per target.
    """
    left, room = list(sources.values()), list(targets.values())
    inflow: list[dict[int, int]] = [{} for _ in room]  # of each column: row to mass
    for start in range(len(left)):
        while left[start]:
            path = _augmenting_path(start, room, near, inflow)
            if path is None:
                return False
            columns, rows = path[1::2], path[2::2]
            back = [inflow[column][row] for column, row in zip(columns, rows, strict=False)]
            amount = min(left[start], room[path[-1]], *back)
            for row, column in zip(path[::2], columns, strict=True):
                inflow[column][row] = inflow[column].get(row, 0) + amount
            for column, row in zip(columns, rows, strict=False):
                inflow[column][row] -= amount
            left[start] -= amount
            room[path[-1]] -= amount
    return True


def _augmenting_path(
    start: int, room: list[int], near: Bools, inflow: list[dict[int, int]]
) -> list[int] | None:
    """Return the shortest path of row, column, row, … from a row to a column with room.

    A step from a column back to a row needs flow from that row to that column. None: no path.
    """
    paths = {start: [start]}
    unseen = np.ones(len(room), dtype=bool)
    rows = [start]
    for row in rows:  # grows below: the queue of a breadth-first search
        for column in np.flatnonzero(near[row] & unseen).tolist():
            unseen[column] = False
            path = [*paths[row], column]
            if room[column]:
                return path
            found = [one for one, mass in inflow[column].items() if mass and one not in paths]
            paths |= {one: [*path, one] for one in found}
            rows += found
    return None


# The largest ratio of two laws of one number, over all that may be released about it.
#
# Whatever is released of a number F, by mechanisms that change by at most e^(decay·|c - c'|)
# between F = c and F = c', has together a likelihood g(F) with that property: same_answer.md.


ULP = 2.0**-52  # of a double: what one rounding may cost, twice
BISECTION_END = 1e-13  # relative: where the bisection ends


def path_ratio(
    top: Floats, bottom: Floats, growth: Floats, *, roundings: float = 0.0, known: float = -math.inf
) -> float:
    """max over rows of sup over g of log Σ_j top[r, j] g_j / Σ_j bottom[r, j] g_j, or `known`.

    g > 0 with |log g_j+1 - log g_j| ≤ growth[j]. For a number λ the best g is found from the right:
    R_j = top_j - λ bottom_j + e^{±growth_j} R_j+1, with + when R_j+1 > 0; λ bounds the ratio iff
    R_0 ≤ 0. Every step rounds up, so a λ that passes is proved; λ is bisected and the upper end
    kept. Entries may be off by `roundings` relative errors of 2^-53. `known` comes back when it is
    larger; inf when some row of `bottom` is 0 and that of `top` is not.
    """
    alive = (top > 0).any(axis=1)
    top, bottom = top[alive], bottom[alive]
    if not len(top):
        return known
    if not (bottom > 0).any(axis=1).all():
        return math.inf
    masses = float((np.log(top.sum(axis=1)) - np.log(bottom.sum(axis=1))).max())
    low, high = max(known, masses - 1e-9), masses + float(growth.sum()) + 1e-9
    error = (roundings + 16) * ULP
    top, bottom = top * (1 + error), bottom * (1 - error)
    up, down = np.exp(growth) * (1 + 8 * ULP), np.exp(-growth) * (1 - 8 * ULP)
    if known > -math.inf and not _above(top, bottom, known, up, down).any():
        return known
    if _above(top, bottom, high, up, down).any():
        return math.inf
    while high - low > BISECTION_END * max(1.0, abs(high)):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        over = _above(top, bottom, middle, up, down)
        if over.any():  # the others stay below at every larger number
            low, top, bottom = middle, top[over], bottom[over]
        else:
            high = middle
    return high


def _above(
    top: Floats, bottom: Floats, log_ratio: float, up: Floats, down: Floats
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For which rows e^log_ratio is not proved to bound the ratio."""
    bound = math.exp(log_ratio) * (1 - 1e-12)
    reached = _round_array_up(top[:, -1] - bound * bottom[:, -1])
    for j in range(top.shape[1] - 2, -1, -1):
        carried = reached * np.where(reached > 0, up[j], down[j])
        reached = _round_array_up(top[:, j] - bound * bottom[:, j] + carried)
    return np.asarray(reached > 0)


def _round_array_up(values: Floats) -> Floats:
    return np.asarray(values + np.abs(values) * ULP)


# What any number of releases tell that read the data through one and the same number.
#
# Proof: same_answer.md.


def one_number(query: Query) -> LinearQuery | None:
    """The sum that determines the answer of `query` on data of a public size, and no more.

    Weights are whole, from 0, without a common factor, and not turned round: equal for a count of
    either of two states, for their histogram, for a sum and its mean. None for other queries.
    """
    asked = linear(query)
    if asked is None:
        return None
    if len(asked.states) == 2:
        column = [0, 1]
    elif len(asked.labels) == 1:
        column = [row[0] for row in asked.multiples()]
    else:
        return None
    raised = [weight - min(column) for weight in column]
    divisor = reduce(math.gcd, raised)
    weights = [weight // divisor for weight in raised]
    least = min(weights, [max(weights) - weight for weight in weights])
    return weighted_sum(asked.states, dict(zip(asked.states, least, strict=True)))


def same_answer_loss(number: LinearQuery, model: Model, eta: Fraction) -> float:
    """What releases about `number`, together eta-DP for one entry, tell about one entry.

    Each must read all entries of the same data, and only through the answer. Rounds up; inf where
    it is not known.
    """
    laws = model.answer_laws(number, EachEntry())
    if isinstance(laws, str):
        return math.inf
    return laws.ratio(math.nextafter(eta_above(eta) / int(number.lipschitz), math.inf))


# The laws of one small number given each secret, in whole numbers: no probability is rounded.
#
#     weights[a] / Σ weights = P(F = a | X_i = x)
#
# A double is a whole number over a power of two, so products and sums of the numbers of a model are
# whole numbers over one power of two, which cancels. Walks are followed entry by entry, tables
# outcome by outcome.


ROUNDED = 2.0**-44  # relative; a network written out rounds each outcome fewer than 256 times

Weights = dict[int, int]  # an answer in lattice steps to its weight; absent where it is 0


class ValueWeights(NamedTuple):
    """One entry of one model: a law of the answer for every value the entry can take.

    `rows[x][a]` is the weight of the answer `answers[a]`, `totals[x]` the sum of a row, and every
    weight may be off by `error`, relatively.
    """

    rows: tuple[tuple[int, ...], ...]
    totals: tuple[int, ...]
    error: float

    def as_floats(self) -> Floats:
        """P(answer | value), a row per value."""
        return np.array(
            [
                [weight / total for weight in row]
                for row, total in zip(self.rows, self.totals, strict=True)
            ]
        )


class AnswerWeights(NamedTuple):
    """All answers data of `entries` entries can have, possible or not, and the laws of them.

    Where shorter data is meant too, `entries` is the most, and each size has laws of its own.
    """

    answers: tuple[int, ...]
    entries: int
    laws: tuple[ValueWeights, ...]

    def prior(self) -> Floats:
        """How likely each answer is, averaged over the models."""
        rows = []
        for law in self.laws:
            whole = [sum(column) for column in zip(*law.rows, strict=True)]
            rows.append([weight / sum(law.totals) for weight in whole])
        return np.asarray(np.mean(rows, axis=0))


@lru_cache(maxsize=32)
def answer_weights(task: Task, shorter: bool = False) -> AnswerWeights:
    """The laws of the answer given each value of each entry, under every model.

    With `shorter` also those of every smaller size of data that the models, which are series,
    cover. The size is public, so each size has secrets of its own.
    """
    steps = answer_steps(task.family[0], task.query)
    sizes = _sizes(task, len(steps)) if shorter else [len(steps)]
    answers = _union(steps, sizes)
    if answers is None:
        raise Refused(f"the answer can take more than {MAX_ANSWERS} values")
    laws: list[ValueWeights] = []
    for model in task.family:
        walk = walk_of(model)
        if walk is None:
            table, error = _written(model)
            found = _table_weights(table.probability, steps)
        else:
            error = 0.0
            found = chain.from_iterable(_walk_weights(walk, steps[:size]) for size in sizes)
        laws += [_secret_laws(several, answers, error) for several in found]
    return AnswerWeights(answers, len(steps), tuple(laws))


def _sizes(task: Task, most: int) -> range:
    """The sizes of data that every model covers, up to `most` entries."""
    walks = [walk_of(model) for model in task.family]
    if any(walk is None or walk.fixed for walk in walks):
        raise Refused("a model fixes the number of entries, so there is no shorter data")
    return range(max(walk.order for walk in walks if walk is not None), most + 1)


def _union(steps: Steps, sizes: Iterable[int]) -> tuple[int, ...] | None:
    """All answers data of these sizes can have; None where they are too many."""
    found = set[int]()
    for size in sizes:
        answers = answer_sums(steps[:size])
        if answers is None:
            return None
        found |= set(answers)
    return tuple(sorted(found)) if len(found) <= MAX_ANSWERS else None


def _secret_laws(by_value: Iterable[Weights], answers: Sequence[int], error: float) -> ValueWeights:
    """Rows of the values that are possible."""
    rows = tuple(tuple(own.get(a, 0) for a in answers) for own in by_value if any(own.values()))
    return ValueWeights(rows, tuple(map(sum, rows)), error)


# Walks, entry by entry.


def _walk_weights(walk: Walk, steps: Steps) -> Iterator[list[Weights]]:
    """For every entry of a walk, the weights of the answers for each of its values."""
    nodes = len(steps) - walk.order + 1
    past, future = _pasts(walk, steps, nodes), _futures(walk, steps, nodes)
    for entry in range(len(steps)):
        node, values = walk.place(entry)
        found: list[Weights] = [{} for _ in walk.values]
        for state, value in enumerate(values.tolist()):
            _add(found[value], _convolve(past[node][state], future[node][state]))
        yield found


def _pasts(walk: Walk, steps: Steps, nodes: int) -> list[list[Weights]]:
    """For every node and state, the weights of the sums up to it, its own entries included."""
    assert walk.initial is not None
    first: list[Weights] = [{0: weight} for weight in _scale_to_integers(walk.initial)]
    rows = [_add_own_entries(first, walk, steps, 0)]
    for node in range(1, nodes):
        arrived = _mix_rows(_scale_to_integers(walk.matrix(node - 1).T), rows[-1])
        rows.append(_add_own_entries(arrived, walk, steps, node))
    return rows


def _futures(walk: Walk, steps: Steps, nodes: int) -> list[list[Weights]]:
    """For every node and state, the weights of the sums after it."""
    rows: list[list[Weights]] = [[{0: 1} for _ in range(walk.size)]]
    for node in range(nodes - 1, 0, -1):
        shifted_rows = _add_own_entries(rows[-1], walk, steps, node)
        rows.append(_mix_rows(_scale_to_integers(walk.matrix(node - 1)), shifted_rows))
    return rows[::-1]


def _mix_rows(matrix: list[list[int]], rows: list[Weights]) -> list[Weights]:
    """Return matrix @ rows, where each row is a mapping from a sum to its whole-number weight."""
    found: list[Weights] = [{} for _ in matrix]
    for own, shares in zip(found, matrix, strict=True):
        for share, row in zip(shares, rows, strict=True):
            _add(own, row, share)
    return found


def _add_own_entries(rows: list[Weights], walk: Walk, steps: Steps, node: int) -> list[Weights]:
    """The sums of each state moved on by what the node's own entries add in it."""
    moved = []
    for state, row in enumerate(rows):
        own = sum(steps[entry][int(values[state])] for entry, values in walk.entries_read_at(node))
        moved.append({total + own: weight for total, weight in row.items()})
    return moved


def _convolve(one: Weights, two: Weights) -> Weights:
    found: Weights = {}
    for (a, left), (b, right) in product(one.items(), two.items()):
        found[a + b] = found.get(a + b, 0) + left * right
    return found


def _add(into: Weights, more: Weights, times: int = 1) -> None:
    if times:
        for total, weight in more.items():
            into[total] = into.get(total, 0) + weight * times


# Tables, outcome by outcome.


def _written(model: Model) -> tuple[Any, float]:
    """The joint law of a model as a table, and how far its numbers may be off, relatively."""
    table: Any = model.written_out()
    if isinstance(table, str):
        raise Refused(f"a table of laws is not made: {table}")
    return table, 0.0 if table is model else ROUNDED


def _table_weights(probability: Floats, steps: Steps) -> Iterator[list[Weights]]:
    """For every variable of a table, the weights of the answers for each of its values."""
    answers = np.zeros(probability.shape, dtype=np.int64)
    for axis, own in enumerate(steps):
        answers += np.array(own).reshape([-1 if a == axis else 1 for a in range(len(steps))])
    outcomes = list(
        zip(_scale_to_integers(probability.ravel()), answers.ravel().tolist(), strict=True)
    )
    for axis, own in enumerate(steps):
        values = np.broadcast_to(
            np.arange(len(own)).reshape([-1 if a == axis else 1 for a in range(len(steps))]),
            probability.shape,
        )
        found: list[Weights] = [{} for _ in own]
        for (weight, answer), value in zip(outcomes, values.ravel().tolist(), strict=True):
            if weight:
                found[value][answer] = found[value].get(answer, 0) + weight
        yield found


def _scale_to_integers(numbers: Floats) -> Any:
    """The doubles times the least power of two that makes them all whole, nested as they are."""
    flat = [float(number).as_integer_ratio() for number in numbers.ravel()]
    most = max(below for _, below in flat)
    whole = np.empty(len(flat), dtype=object)
    whole[:] = [above * (most // below) for above, below in flat]
    return whole.reshape(numbers.shape).tolist()
