"""What lies before and after a node: the whole of it, or a window with a state held beyond."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.loss.exact_convolution import no_mass
from shoal.loss.mixture import Bools, Floats
from shoal.loss.sums import (
    ChainSum,
    Ints,
    bridges,
    future_tables,
    open_futures,
    past_tables,
    supports,
)

HELD = -1  # in `entries`: a state is held fixed beyond the window


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One side of a node, for each fact held: `table` (nodes, held, state, sum).

    `reach` (nodes, held, state) says which of its laws are not identically zero, `entries`
    (held,) how many entries the side has, or HELD. `steps` counts the transitions taken.
    """

    table: Floats
    reach: Bools
    entries: Ints
    steps: int

    def holding(self, held: Bools) -> Side:
        """Only the held facts marked."""
        return Side(self.table[:, held], self.reach[:, held], self.entries[held], self.steps)


class Sides:
    """The sides of one task's nodes; shared tables are made once."""

    def __init__(self, task: ChainSum) -> None:
        self.task = task
        self._lists: dict[tuple[str, bool], list[Floats]] = {}
        self._bridges: dict[tuple[int, bool], Side] = {}
        self._possible = np.empty((0, task.states), dtype=np.bool_)

    def past(self, node: int, count: int, *, logs: bool) -> Side:
        """All entries before `node`, one of the first `count` nodes."""
        table = self._listed("past", count, logs)[node]
        if self.task.initial is None:
            reach = _reach(self.task, np.zeros(1, np.int64), node)
        else:
            if len(self._possible) < count:
                self._possible = supports(self.task, count)
            reach = self._possible[None, node : node + 1]
        return Side(table, reach, np.full(table.shape[1], node), node)

    def future(self, node: int, rests: Sequence[int], count: int, *, logs: bool) -> Side:
        """All entries after `node`, for each number of them in `rests` (below `count`)."""
        if self.task.shorter and not self.task.homogeneous:
            tables = open_futures(self.task, node, max(rests) + 1, logs=logs)
        else:
            tables = self._listed("future", count, logs)
        chosen = tables[rests[0]]
        if len(rests) > 1:
            chosen = _stacked([tables[rest] for rest in rests], logs)
        reach = np.ones(chosen.shape[:3], dtype=np.bool_)
        return Side(chosen, reach, np.asarray(rests, np.int64), max(rests))

    def held_before(self, starts: Ints, size: int, *, logs: bool) -> Side:
        """`size` - 1 entries before a node, and the state X_start held before them."""
        if not self.task.homogeneous:
            return self._bridge(starts, size, logs)
        key = (size, logs)
        if key not in self._bridges:
            self._bridges = {k: v for k, v in self._bridges.items() if k[0] == size}
            self._bridges[key] = self._bridge(np.zeros(1, np.int64), size, logs)
        return self._bridges[key]

    def held_after(self, nodes: Ints, size: int, *, logs: bool) -> Side:
        """`size` - 1 entries after each node, and the state held after them."""
        side = self.held_before(nodes, size, logs=logs)
        return Side(
            np.swapaxes(side.table, 1, 2), np.swapaxes(side.reach, 1, 2), side.entries, side.steps
        )

    def _bridge(self, starts: Ints, size: int, logs: bool) -> Side:
        table = bridges(self.task, starts, size, logs=logs)
        entries = np.full(self.task.states, HELD)
        return Side(table, _reach(self.task, starts, size), entries, size)

    def _listed(self, what: str, count: int, logs: bool) -> list[Floats]:
        make = past_tables if what == "past" else future_tables
        if len(self._lists.get((what, logs), ())) < count:
            self._lists[what, logs] = make(self.task, count, logs=logs)
        return self._lists[what, logs]


def beside(sides: Sequence[Side], *, logs: bool) -> Side:
    """Several sides of the same nodes as one, a fact held in each."""
    if len(sides) == 1:
        return sides[0]
    return Side(
        _stacked([side.table for side in sides], logs),
        np.concatenate([side.reach for side in sides], axis=1),
        np.concatenate([side.entries for side in sides]),
        max(side.steps for side in sides),
    )


def _stacked(tables: Sequence[Floats], logs: bool) -> Floats:
    """Tables of different widths side by side, the short ones padded with probability 0."""
    width = max(table.shape[-1] for table in tables)
    nodes, _, states, _ = tables[0].shape
    held = sum(table.shape[1] for table in tables)
    out = no_mass((nodes, held, states, width), logs)
    place = 0
    for table in tables:
        out[:, place : place + table.shape[1], :, : table.shape[-1]] = table
        place += table.shape[1]
    return out


def _reach(task: ChainSum, starts: Ints, steps: int) -> Bools:
    """Which states can be reached from which in `steps` steps, for each start; (n, k, k)."""
    size = task.states
    reached = np.broadcast_to(np.eye(size, dtype=np.bool_), (len(starts), size, size))
    several = len(task.matrices) > 1
    for ahead in range(steps):
        edges = task.matrices[starts + ahead if several else np.zeros_like(starts)] > 0
        reached = np.matmul(reached.astype(np.float32), edges.astype(np.float32)) > 0
    return np.asarray(reached)
