"""The marginals of all variables at once: one elimination forwards, one backwards.

Forwards is variable elimination. Backwards every table on the way gets its *outside*: the sum of
the products of all factors that are not in it. A variable's marginal is its own factor times that
factor's outside. Three times the work of one elimination, for all variables together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.networks.elimination import SMALL, Elimination, Scope, Step
from shoal.networks.graph import Parents

Table = npt.NDArray[Any]
_einsum: Callable[..., Table] = np.einsum
TRIES, DISTURBED = 60, 0.5  # disturbed orders: a few milliseconds each


def marginals(
    chosen: Elimination,
    tables: Sequence[Table],
    tidy: Callable[[Table], Table] = np.asarray,
    wanted: Collection[int] | None = None,
) -> list[Table]:
    """For every factor, its product with all others, summed onto the last variable of its scope.

    `chosen` sums everything out. Every table on the way goes through `tidy`. With `wanted`, only
    these factors have theirs, and the others an empty table: less work on the way back.
    """
    inside = list(tables)
    for step in chosen.steps:
        inside.append(tidy(_joined(inside, step)))
    needed = _needed(chosen, len(tables), wanted)
    outside: list[Table | None] = [None] * len(inside)
    outside[-1] = np.ones((), dtype=inside[-1].dtype)
    for number in range(len(inside) - 1, len(tables) - 1, -1):
        step, told = chosen.steps[number - len(tables)], outside[number]
        if told is not None:
            for turn, place in enumerate(step.places):
                if needed[place]:
                    outside[place] = tidy(_shared(inside, step, told, turn))
        outside[number] = None
        inside[number] = _NOTHING
    return [
        _NOTHING if own is None else _onto_last(table, own)
        for table, own in zip(tables, outside, strict=False)
    ]


_NOTHING: Table = np.empty(0)


def _needed(chosen: Elimination, count: int, wanted: Collection[int] | None) -> list[bool]:
    """Which tables have a wanted factor in them."""
    needed = [wanted is None or number in wanted for number in range(count)]
    for step in chosen.steps:
        needed.append(any(needed[place] for place in step.places))
    return needed


def possible_values(chosen: Elimination, tables: Sequence[Table]) -> list[npt.NDArray[np.bool_]]:
    """Which values the last variable of every factor can take, whatever underflow makes of it."""
    marks = [(table > 0).astype(np.float64) for table in tables]
    return [found > 0 for found in marginals(chosen, marks, lambda table: np.minimum(table, 1.0))]


def roundings(chosen: Elimination, tables: Sequence[Table], sizes: Sequence[int]) -> int:
    """How often a term of any marginal is rounded, at most: forwards in every step, then back.

    The outside of a table adds up as many terms as its step has for each of its cells.
    """
    cells = [table.size for table in tables]
    cells += [math.prod(sizes[v] for v in step.out) for step in chosen.steps]
    back = [0] * len(cells)
    for number in range(len(cells) - 1, len(tables) - 1, -1):
        step = chosen.steps[number - len(tables)]
        for place in step.places:
            back[place] = back[number] + step.terms // cells[place] + 2
    last = max(back[number] + table.size for number, table in enumerate(tables))
    return chosen.roundings + last


def _joined(inside: list[Table], step: Step) -> Table:
    named = zip((inside[place] for place in step.places), step.labels, strict=False)
    taken = [part for pair in named for part in pair]
    return _einsum(*taken, step.kept, optimize=step.terms > SMALL)


def _shared(inside: list[Table], step: Step, told: Table, turn: int) -> Table:
    """The outside of one of the factors a step joined, from that of their product."""
    others = [(told, step.kept)]
    if len(step.places) > 1:
        others.append((inside[step.places[1 - turn]], step.labels[1 - turn]))
    own, large = inside[step.places[turn]], step.terms > SMALL
    return _over(own, step.labels[turn], *others, large=large and len(others) > 1)


def _over(
    own: Table, labels: list[int], *others: tuple[Table, list[int]], large: bool = False
) -> Table:
    """The product of `others` summed onto `labels`, the same for what none of them names."""
    named = {label for _, several in others for label in several}
    kept = [label for label in labels if label in named]
    found = _einsum(*(part for pair in others for part in pair), kept, optimize=large)
    shape = [size if label in named else 1 for size, label in zip(own.shape, labels, strict=True)]
    return np.broadcast_to(found.reshape(shape), own.shape)


def _onto_last(table: Table, outside: Table | None) -> Table:
    assert outside is not None
    axes = list(range(table.ndim))
    return _einsum(table, axes, outside, axes, axes[-1:])


# In which order: greedily, by the graph alone.


class SummingOrder(NamedTuple):
    """An order of summing out: the cells of all its tables, and the variables in the largest ones.

    Largest are those with at least a hundredth of the cells of the largest.
    """

    cells: int
    order: Scope
    largest: frozenset[int]


def good_order(parents: Parents, sizes: Sequence[int], among: Collection[int]) -> SummingOrder:
    """The better of two greedy orders for the variables `among`, which hold all their parents.

    The one sums out first what ties the fewest others anew, the other what has the smallest table.
    """
    return min(_greedy(parents, sizes, among, rule) for rule in (_new_ties, _cells))


def better_order(
    parents: Parents, sizes: Sequence[int], among: Collection[int], known: SummingOrder
) -> SummingOrder:
    """The best of `known` and of greedy orders whose rules are disturbed at random, the same ones
    every time: half the tables of MUNIN1's."""
    noise = random.Random(len(among))

    def disturbed(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
        return (_new_ties(ties, sizes, v) + 1) * math.exp(DISTURBED * noise.gauss(0.0, 1.0))

    tried = (_greedy(parents, sizes, among, disturbed) for _ in range(TRIES))
    return min(known, *tried)


def _greedy(
    parents: Parents,
    sizes: Sequence[int],
    among: Collection[int],
    rule: Callable[[dict[int, set[int]], Sequence[int], int], float],
) -> SummingOrder:
    ties: dict[int, set[int]] = {v: set() for v in among}
    for v in among:
        family = {v, *parents[v]}
        for member in family:
            ties[member] |= family - {member}
    cost = {v: rule(ties, sizes, v) for v in ties}
    tables: list[tuple[int, frozenset[int]]] = []
    order: list[int] = []
    while cost:
        v = min(cost, key=lambda u: (cost[u], u))
        near = ties.pop(v)
        del cost[v]
        order.append(v)
        tables.append((math.prod(sizes[u] for u in near) * sizes[v], frozenset({v, *near})))
        for u in near:
            ties[u] |= near
            ties[u] -= {u, v}
        for u in near.union(*(ties[u] for u in near)):
            cost[u] = rule(ties, sizes, u)
    most = max(cells for cells, _ in tables)
    large = frozenset[int]().union(*(scope for cells, scope in tables if cells * 100 >= most))
    return SummingOrder(sum(cells for cells, _ in tables), tuple(order), large)


def _new_ties(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
    near = ties[v]
    return sum(len(near - ties[u]) - 1 for u in near)


def _cells(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
    return math.prod(sizes[u] for u in ties[v]) * sizes[v]
