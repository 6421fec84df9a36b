"""Small maps and policies that several tests share: the papers' running example, and grids."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from shoal.chains.model import MarkovChain
from shoal.core.task import Model, Task
from shoal.places.map import SquareGrid
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, coordinates, measurement
from shoal.places.walk import SparseChain

SIX = ("s1", "s2", "s3", "s4", "s5", "s6")
RUNNING = ((1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2))
CATEGORIES = (("s1",), ("s2", "s3"), ("s4", "s5", "s6"))


def running_query() -> Measurement:
    """f of Example 3.2: temperature and noise level of six places."""
    return measurement(SIX, RUNNING, labels=("temperature", "noise"), unit="degrees")


def running_policy(**rest: Any) -> PolicyGraph:
    """Figure 3b: cliques {s1}, {s2, s3}, {s4, s5, s6}."""
    return PolicyGraph.categories(SIX, CATEGORIES, **rest)


def walk(states: tuple[str, ...] = SIX, stay: float = 0.4, **rest: Any) -> MarkovChain:
    """A walk round the states: stay, or one on, or two on."""
    size = len(states)
    matrix = stay * np.eye(size)
    for x in range(size):
        matrix[x, (x + 1) % size] += (1 - stay) * 2 / 3
        matrix[x, (x + 2) % size] += (1 - stay) / 3
    options = {"initial": np.full(size, 1 / size), **rest}
    return MarkovChain.of(matrix, states=states, **options)


def mask(size: int, members: list[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The states of a constraint as booleans."""
    chosen = np.zeros(size, dtype=np.bool_)
    chosen[members] = True
    return chosen


def town(rows: int, columns: int, *, start: int | None = None) -> SparseChain:
    """Cells of 500 m; at each step one stays or moves to any of the cells around."""
    grid = SquareGrid(
        south=Fraction(39), west=Fraction(116), cell_m=Fraction(500), rows=rows, columns=columns
    )
    size = grid.size
    matrix = np.zeros((size, size))
    for cell in range(size):
        near = [cell, *grid.adjacent(cell)]
        matrix[cell, near] = 1 / len(near)
    initial = np.full(size, 1 / size) if start is None else np.eye(size)[start]
    return SparseChain.of(
        matrix,
        initial=initial,
        states=[grid.name_of(cell) for cell in range(size)],
        grid=grid,
        cells=np.arange(size),
    )


def running_task(model: Model | None = None, *, delta: Fraction | None = None) -> Task:
    """The running example as a task, under its policy or on its δ-location set."""
    policy = running_policy()
    secrets = policy if delta is None else LocationSet(policy=policy, delta=delta)
    return Task(query=running_query(), secrets=secrets, family=(model or walk(),))


def town_task(rows: int, columns: int, radius: str = "0.75") -> Task:
    """Coordinates of a small town under a radius policy."""
    model = town(rows, columns)
    query = coordinates(model)
    return Task(query=query, secrets=PolicyGraph.within(query, radius), family=(model,))
