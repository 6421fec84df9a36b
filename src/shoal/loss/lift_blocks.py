"""Blocks of variables whose quotient of the moral graph is a forest: where messages may run.

Messages along the edges of a network's skeleton are unsound through a collider. A partition into
blocks such that blocks, tied when some of their variables are tied in the moral graph, form a
forest has no such trouble: given a block, everything on one side is independent of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from shoal.models.bayesnet import BayesNet
from shoal.models.graph import Neighbours, connected_parts, distances, moral

Block = tuple[int, ...]
MOST_ROOTS = 128  # of a component, evenly spread, are tried


class Forest(NamedTuple):
    """Blocks of variables, and for every block the number of its parent (None for a root).

    Parents come before their children.
    """

    blocks: tuple[Block, ...]
    parent: tuple[int | None, ...]

    def neighbours(self, block: int) -> list[int]:
        """The blocks next to one."""
        above = self.parent[block]
        below = [b for b, p in enumerate(self.parent) if p == block]
        return below if above is None else [above, *below]

    def home(self) -> dict[int, int]:
        """The block of every variable."""
        return {v: b for b, block in enumerate(self.blocks) for v in block}


@lru_cache(maxsize=32)
def tree_blocks(net: BayesNet) -> Forest:
    """A forest of small blocks: of the roots tried, the best for each component."""
    graph = moral(net.above)
    blocks: list[Block] = []
    parent: list[int | None] = []
    for part in connected_parts(graph):
        roots = part[:: -(-len(part) // MOST_ROOTS)]
        options = (_layered(graph, root) for root in roots)
        chosen = min(options, key=lambda option: _size(net.sizes, option[0]))
        offset = len(blocks)
        blocks += chosen[0]
        parent += [None if p is None else p + offset for p in chosen[1]]
    return Forest(tuple(blocks), tuple(parent))


def _layered(graph: Neighbours, root: int) -> tuple[list[Block], list[int | None]]:
    """Layers by distance from a root, split where nothing farther out connects them.

    Variables of one layer that are connected through the same or later layers form a block; what
    such a set is tied to one layer further in is connected through it, so lies in one block.
    """
    far = distances(graph, root)
    blocks: list[Block] = []
    parent: list[int | None] = []
    home: dict[int, int] = {}
    for depth in range(max(far.values()) + 1):
        outside = [v for v, distance in far.items() if distance >= depth]
        for part in connected_parts(graph, outside):
            block = tuple(v for v in part if far[v] == depth)
            above = {home[near] for v in block for near in graph[v] if far[near] < depth}
            home.update((v, len(blocks)) for v in block)
            blocks.append(block)
            parent.append(min(above) if above else None)
    return blocks, parent


def _size(sizes: Sequence[int], blocks: list[Block]) -> tuple[int, int]:
    """The states of the largest block, then of all together."""
    states = [math.prod(sizes[v] for v in block) for block in blocks]
    return max(states), sum(states)
