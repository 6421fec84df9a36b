"""The marginals of all variables at once: one elimination forwards, one backwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.networks.elimination import (
    TERMS_WITHOUT_BLAS,
    Elimination,
    Step,
    _einsum,
    multiply_factors,
)

# The marginals of all variables at once: one elimination forwards, one backwards.
#
# Forwards is variable elimination. Backwards every table on the way gets its *outside*: the sum of
# the products of all factors that are not in it. A variable's marginal is its own factor times that
# factor's outside. Three times the work of one elimination, for all variables together.


AnyTable = npt.NDArray[Any]  # of doubles, or of complex numbers


_FREED: AnyTable = np.empty(0)


def marginals(
    chosen: Elimination,
    tables: Sequence[AnyTable],
    tidy: Callable[[AnyTable], AnyTable] = np.asarray,
    wanted: Collection[int] | None = None,
) -> list[AnyTable]:
    """Return, for every factor, its product with all others, summed onto the last variable of its
    scope.

    `chosen` sums everything out. Every table on the way goes through `tidy`. With `wanted`, only
    these factors have theirs, and the others an empty table: less work on the way back.
    """
    inside = list(tables)
    for step in chosen.steps:
        inside.append(tidy(_join(inside, step)))
    needed = _mark_needed_tables(chosen, len(tables), wanted)
    outside: list[AnyTable | None] = [None] * len(inside)
    outside[-1] = np.ones((), dtype=inside[-1].dtype)
    for number in range(len(inside) - 1, len(tables) - 1, -1):
        step, whole_outside = chosen.steps[number - len(tables)], outside[number]
        if whole_outside is not None:
            for turn, place in enumerate(step.inputs):
                if needed[place]:
                    outside[place] = tidy(_outside_of_input(inside, step, whole_outside, turn))
        outside[number] = None
        inside[number] = _FREED
    return [
        _FREED if own is None else _marginal_of_last_axis(table, own)
        for table, own in zip(tables, outside, strict=False)
    ]


def _mark_needed_tables(
    chosen: Elimination, count: int, wanted: Collection[int] | None
) -> list[bool]:
    """Return which tables have a wanted factor in them."""
    needed = [wanted is None or number in wanted for number in range(count)]
    for step in chosen.steps:
        needed.append(any(needed[place] for place in step.inputs))
    return needed


def possible_values(chosen: Elimination, tables: Sequence[AnyTable]) -> list[npt.NDArray[np.bool_]]:
    """Return which values the last variable of every factor can take, also where doubles
    underflow.
    """
    marks = [(table > 0).astype(np.float64) for table in tables]
    return [found > 0 for found in marginals(chosen, marks, lambda table: np.minimum(table, 1.0))]


def count_roundings(chosen: Elimination, tables: Sequence[AnyTable], sizes: Sequence[int]) -> int:
    """Return how often a term of any marginal is rounded, at most: forwards in every step, then
    back.

    The outside of a table adds up as many terms as its step has for each of its cells.
    """
    cells = [table.size for table in tables]
    cells += [math.prod(sizes[v] for v in step.out) for step in chosen.steps]
    back = [0] * len(cells)
    for number in range(len(cells) - 1, len(tables) - 1, -1):
        step = chosen.steps[number - len(tables)]
        for place in step.inputs:
            back[place] = back[number] + step.terms // cells[place] + 2
    last = max(back[number] + table.size for number, table in enumerate(tables))
    return chosen.roundings + last


def _join(inside: list[AnyTable], step: Step) -> AnyTable:
    """Return the product of the tables a step joins."""
    one, *other = (inside[number] for number in step.inputs)
    return multiply_factors(one, other[0] if other else None, step)


def _outside_of_input(
    inside: list[AnyTable], step: Step, whole_outside: AnyTable, turn: int
) -> AnyTable:
    """Return the outside of one of the factors a step joined, from that of their product."""
    others = [(whole_outside, step.kept)]
    if len(step.inputs) > 1:
        others.append((inside[step.inputs[1 - turn]], step.labels[1 - turn]))
    own, large = inside[step.inputs[turn]], step.terms > TERMS_WITHOUT_BLAS
    return _sum_onto(own, step.labels[turn], *others, large=large and len(others) > 1)


def _sum_onto(
    own: AnyTable, labels: list[int], *others: tuple[AnyTable, list[int]], large: bool = False
) -> AnyTable:
    """Return the product of `others` summed onto `labels`, the same for what none of them names."""
    named = {label for _, several in others for label in several}
    kept = [label for label in labels if label in named]
    found = _einsum(*(part for pair in others for part in pair), kept, optimize=large)
    shape = [size if label in named else 1 for size, label in zip(own.shape, labels, strict=True)]
    return np.broadcast_to(found.reshape(shape), own.shape)


def _marginal_of_last_axis(table: AnyTable, outside: AnyTable | None) -> AnyTable:
    assert outside is not None
    axes = list(range(table.ndim))
    return _einsum(table, axes, outside, axes, axes[-1:])
