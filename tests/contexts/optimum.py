"""The most any causal mechanism can show, by linear programs over whole paths: no library code."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array


class _Rows:
    """Rows of a sparse matrix, one at a time."""

    def __init__(self) -> None:
        self.at: list[tuple[int, int, float]] = []
        self.right: list[float] = []

    def add(self, entries: dict[int, float], right: float) -> None:
        self.at += [(len(self.right), column, amount) for column, amount in entries.items()]
        self.right.append(right)

    def given(self, count: int) -> tuple[Any, Any]:
        if not self.right:
            return None, None
        rows, columns, amounts = zip(*self.at, strict=True)
        shape = (len(self.right), count)
        return csr_array((amounts, (rows, columns)), shape=shape), np.array(self.right)


def _best(gains: dict[int, float], bounds: _Rows, flows: _Rows, count: int) -> float:
    """The largest value."""
    goal = np.zeros(count)
    for column, gain in gains.items():
        goal[column] = -gain
    upper, limit = bounds.given(count)
    equal, right = flows.given(count)
    # at the least tolerance HiGHS sometimes does not end well
    for tolerance, presolve in ((1e-10, True), (1e-10, False), (1e-9, True), (1e-7, True)):
        found = linprog(
            goal,
            upper,
            limit,
            equal,
            right,
            bounds=(0, None),
            options={
                "primal_feasibility_tolerance": tolerance,
                "dual_feasibility_tolerance": tolerance,
                "presolve": presolve,
            },
        )
        if found.status == 0:
            return float(-found.fun)
    raise AssertionError(found.message)


def priors(initial: Any, transition: Any) -> Any:
    law = [np.asarray(initial, dtype=float)]
    for matrix in transition:
        law.append(law[-1] @ np.asarray(matrix, dtype=float))
    return np.array(law)


def optimum(initial: Any, transition: Any, sensitive: list[int], delta: float) -> float:
    """The largest expected number of releases: segments between releases, backwards in time.

    In a segment a decision may depend on the whole path since the release before it.
    """
    slots, size = len(transition) + 1, len(initial)
    bound = priors(initial, transition) + delta
    value = np.full((slots, size), -np.inf)
    for slot in range(slots - 1, -1, -1):
        for state in range(size):
            if state in sensitive and bound[slot, state] < 1:
                continue
            worth = _segment(initial, transition, sensitive, bound, value, slot, state)
            value[slot, state] = -np.inf if worth is None else worth
    worth = _segment(initial, transition, sensitive, bound, value, -1, 0)
    assert worth is not None  # suppressing everything is private
    return worth


def _segment(
    initial: Any,
    transition: Any,
    sensitive: list[int],
    bound: Any,
    value: Any,
    slot: int,
    state: int,
) -> float | None:
    slots = len(transition) + 1
    law = initial if slot < 0 else transition[slot][state] if slot < slots - 1 else []
    if not _silent(law, transition, sensitive, bound, slot):
        return None
    mass: dict[tuple[int, ...], float] = {
        (j,): float(p) for j, p in enumerate(law) if p > 0
    }  # columns hold shares of these
    column: dict[tuple[int, ...], int] = {}
    flows, bounds = _Rows(), _Rows()
    gains: dict[int, float] = {}
    ends: dict[tuple[int, int], dict[tuple[int, ...], int]] = defaultdict(dict)
    everything = dict(mass)
    for t in range(slot + 1, slots):
        after: dict[tuple[int, ...], float] = {}
        for path, weight in mass.items():
            column[path] = 2 * len(column)
            kept, shown = column[path], column[path] + 1
            row = {kept: 1.0, shown: 1.0}
            if len(path) > 1:
                row[column[path[:-1]]] = -1.0
            flows.add(row, 1.0 if len(path) == 1 else 0.0)
            if value[t, path[-1]] == -np.inf:
                bounds.add({shown: 1.0}, 0.0)
            else:
                gains[shown] = weight * (1 + value[t, path[-1]])
            ends[t, path[-1]][path] = shown
            if t == slots - 1:
                ends[slots, 0][path] = kept
                continue
            for j, p in enumerate(transition[t][path[-1]]):
                if p > 0:
                    after[(*path, j)] = weight * float(p)
        everything |= after
        mass = after
    for (t, _), paths in ends.items():
        total = sum(everything[path] for path in paths)
        for u, s in product(range(slot + 1, min(t, slots)), sensitive):
            if bound[u, s] < 1:
                bounds.add(
                    {
                        place: everything[path] / total * ((path[u - slot - 1] == s) - bound[u, s])
                        for path, place in paths.items()
                    },
                    0.0,
                )
    if not column:
        return 0.0
    return _best(gains, bounds, flows, 2 * len(column))


def _silent(law: Any, transition: Any, sensitive: list[int], bound: Any, slot: int) -> bool:
    """Whether showing nothing more is private: if not, nothing is, since beliefs are averages."""
    here = np.asarray(law, dtype=float)
    for t in range(slot + 1, len(bound)):
        if any(here[s] > bound[t, s] + 1e-13 for s in sensitive):
            return False
        here = here @ np.asarray(transition[t], dtype=float) if t < len(bound) - 1 else here
    return True


def tree_optimum(initial: Any, transition: Any, sensitive: list[int], delta: float) -> float:
    """The same as one program over all outputs and paths; exponential, for tiny days."""
    slots, size = len(transition) + 1, len(initial)
    bound = priors(initial, transition) + delta
    column: dict[tuple[Any, Any], int] = {}
    flows, bounds = _Rows(), _Rows()
    gains: dict[int, float] = {}
    level: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for t in range(slots):
        following = []
        for shown, path in level:
            for j in range(size):
                p = float(initial[j] if t == 0 else transition[t - 1][path[-1]][j])
                row: dict[int, float] = {}
                for output in (-1, j):
                    node = ((*shown, output), (*path, j))
                    row[column.setdefault(node, len(column))] = 1.0
                    following.append(node)
                    if output >= 0:
                        gains[column[node]] = 1.0
                if t:
                    row[column[shown, path]] = -p
                flows.add(row, p if t == 0 else 0.0)
        level = following
    outputs: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for shown, path in level:
        outputs[shown].append(path)
    for shown, paths in outputs.items():
        for u, s in product(range(slots), sensitive):
            bounds.add({column[shown, p]: (p[u] == s) - bound[u, s] for p in paths}, 0.0)
    return _best(gains, bounds, flows, len(column))
