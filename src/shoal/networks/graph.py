"""Graphs of who depends on whom: moral graph, connected parts, d-separation, orders of summing.

A directed graph is given as `parents`: for every node, numbered from 0, the nodes it depends on.
An undirected one is a tuple of sets of neighbours.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

Parents = Sequence[Sequence[int]]
Neighbours = tuple[frozenset[int], ...]
DISTURBED_ORDERS, DISTURBANCE = 60, 0.5  # disturbed orders: a few milliseconds each


def topological_order(parents: Parents) -> tuple[int, ...] | None:
    """Return the nodes with every parent before its children, smallest number first; None on a
    cycle.
    """
    waiting = [len(set(own)) for own in parents]
    children = children_of(parents)
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        node = heapq.heappop(ready)
        order.append(node)
        for child in children[node]:
            waiting[child] -= 1
            if waiting[child] == 0:
                heapq.heappush(ready, child)
    return tuple(order) if len(order) == len(parents) else None


def children_of(parents: Parents) -> Neighbours:
    """Return, for every node, the nodes that depend on it."""
    children: list[set[int]] = [set() for _ in parents]
    for node, own in enumerate(parents):
        for parent in own:
            children[parent].add(node)
    return tuple(frozenset(several) for several in children)


def ancestors(parents: Parents, nodes: Iterable[int]) -> frozenset[int]:
    """Return the nodes and everything they depend on, directly or not."""
    found: set[int] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(parents[node])
    return frozenset(found)


def moral_graph(parents: Parents) -> Neighbours:
    """Return the moral graph: every node tied to its parents, and the parents of a node to each
    other.
    """
    tied: list[set[int]] = [set() for _ in parents]
    for node, own in enumerate(parents):
        family = {node, *own}
        for member in family:
            tied[member] |= family - {member}
    return tuple(frozenset(several) for several in tied)


def undirected_graph(count: int, edges: Iterable[tuple[int, int]]) -> Neighbours:
    """Return the neighbours of each of `count` nodes, from pairs of nodes; loops are left out."""
    tied: list[set[int]] = [set() for _ in range(count)]
    for one, two in edges:
        if one != two:
            tied[one].add(two)
            tied[two].add(one)
    return tuple(frozenset(several) for several in tied)


def connected_components(
    neighbours: Neighbours, among: Iterable[int] | None = None
) -> list[list[int]]:
    """Return the connected components, each in increasing order, ordered by their first node.

    With `among`, those of the graph on these nodes only.
    """
    left = set(range(len(neighbours)) if among is None else among)
    parts: list[list[int]] = []
    for start in sorted(left):
        if start not in left:
            continue
        left.remove(start)
        part, waiting = [start], [start]
        while waiting:
            near = neighbours[waiting.pop()] & left
            left -= near
            part.extend(near)
            waiting.extend(near)
        parts.append(sorted(part))
    return parts


def distances(neighbours: Neighbours, start: int) -> dict[int, int]:
    """Return the edges on the shortest path from `start` to every node it is connected with."""
    far = {start: 0}
    layer = [start]
    while layer:
        step = far[layer[0]] + 1
        layer = sorted({near for node in layer for near in neighbours[node]} - far.keys())
        far.update((node, step) for node in layer)
    return far


def d_connected(parents: Parents, start: int, given: Collection[int]) -> frozenset[int]:
    """Return the nodes, `given` left out, that are NOT d-separated from `start` by `given`.

    A path may pass a node in the middle of a chain or below a common cause unless it is given,
    and a collider (two arrows meet) only when it or something below it is given: conditioning on
    a collider opens the path. So a set that cuts every path of the skeleton need not separate.
    By composition, all the others together are independent of `start` given `given`.
    Walks over (node, came from a child or from a parent), each once.
    """
    blocked = frozenset(given)
    opened = ancestors(parents, blocked)
    children = children_of(parents)
    seen: set[tuple[int, bool]] = set()
    waiting = [(start, True)]  # as if from a child: both directions are open at the start
    while waiting:
        node, from_child = waiting.pop()
        if (node, from_child) in seen:
            continue
        seen.add((node, from_child))
        if from_child and node not in blocked:
            waiting += [(parent, True) for parent in parents[node]]
            waiting += [(child, False) for child in children[node]]
        elif not from_child:
            if node not in blocked:
                waiting += [(child, False) for child in children[node]]
            if node in opened:
                waiting += [(parent, True) for parent in parents[node]]
    return frozenset(node for node, _ in seen) - blocked


def d_separated(
    parents: Parents, one: Iterable[int], other: Collection[int], given: Collection[int]
) -> bool:
    """Return whether `given` d-separates every node of `one` from every node of `other`."""
    targets = set(other) - set(given)
    starts = set(one) - set(given)
    return not any(d_connected(parents, start, given) & targets for start in starts)


# In which order variables are summed out: greedily, by the graph alone.


class SummingOrder(NamedTuple):
    """An order of summing out: the cells of all its tables, and the variables in the largest ones.

    Largest are those with at least a hundredth of the cells of the largest.
    """

    cells: int
    order: tuple[int, ...]
    largest: frozenset[int]


def greedy_order(parents: Parents, sizes: Sequence[int], among: Collection[int]) -> SummingOrder:
    """Return the better of two greedy orders for the variables `among`, which hold all their
    parents.

    The one sums out first the variable that adds the fewest edges, the other that of the smallest
    table.
    """
    return min(
        _order_by_rule(parents, sizes, among, rule)
        for rule in (_count_new_edges, _count_table_cells)
    )


def better_order(
    parents: Parents, sizes: Sequence[int], among: Collection[int], known: SummingOrder
) -> SummingOrder:
    """Return the best of `known` and of greedy orders whose rules are disturbed at random, the same
    ones every time: half the tables of MUNIN1's.
    """
    noise = random.Random(len(among))

    def disturbed_cost(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
        return (_count_new_edges(ties, sizes, v) + 1) * math.exp(
            DISTURBANCE * noise.gauss(0.0, 1.0)
        )

    tried = (_order_by_rule(parents, sizes, among, disturbed_cost) for _ in range(DISTURBED_ORDERS))
    return min(known, *tried)


def _order_by_rule(
    parents: Parents,
    sizes: Sequence[int],
    among: Collection[int],
    rule: Callable[[dict[int, set[int]], Sequence[int], int], float],
) -> SummingOrder:
    """Return the order that sums out next the variable of least cost by `rule`."""
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


def _count_new_edges(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
    """Return twice how many edges summing out `v` adds between its neighbours."""
    near = ties[v]
    return sum(len(near - ties[u]) - 1 for u in near)


def _count_table_cells(ties: dict[int, set[int]], sizes: Sequence[int], v: int) -> float:
    return math.prod(sizes[u] for u in ties[v]) * sizes[v]
