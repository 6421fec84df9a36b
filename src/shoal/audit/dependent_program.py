"""The worst joint law that has given pairwise laws, found by linear programs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.models.dependence import Dependence

MOST_OUTCOMES = 1024
MOST_PROGRAMS = 1500


class WorstLaw(NamedTuple):
    """A joint law of all records (flat, last record fastest) and the log-ratio it was found for.

    `law` is None when no joint law has the pairs. `complete` says that every record, pair of
    values and candidate output was tried.
    """

    law: Floats | None
    log_ratio: float
    complete: bool


def outcomes(model: Dependence) -> Ints:
    """All outcomes as rows of cells, the last record varying fastest."""
    size, count = model.domain.size, model.records
    return np.stack(np.unravel_index(np.arange(size**count), (size,) * count), axis=1)


def worst_law(model: Dependence, answers: Floats, outputs: Floats, scale: float) -> WorstLaw:
    """The joint law with the model's pairs under which noise of `scale` tells most.

    answers (outcomes, labels) and outputs (count, labels) are in one unit. For each record i,
    values a, a' and output o the ratio E[K(o-F) | a] / E[K(o-F) | a'] is linear over linear in
    the joint law, and P(a), P(a') are fixed by the pairs: a linear program after Charnes and
    Cooper. More than 1,500 programs are thinned out evenly, which the result then says.
    """
    grid = outcomes(model)
    rows, known = _pair_equations(model, grid)
    tasks = [
        (record, a, b, place)
        for record in range(model.records)
        for a, b in _value_pairs(model, record)
        for place in range(len(outputs))
    ]
    step = -(-len(tasks) // MOST_PROGRAMS)
    best: WorstLaw | None = None
    for record, a, b, place in tasks[::step]:
        distance = np.abs(answers - outputs[place]).sum(axis=1) / scale
        kernel = np.exp(distance.min() - distance)
        law, ratio = _solve(grid[:, record], (a, b), kernel, rows, known)
        if law is None:
            return WorstLaw(None, -math.inf, True)
        if best is None or ratio > best.log_ratio:
            best = WorstLaw(law, ratio, step == 1)
    return best or WorstLaw(None, -math.inf, True)


def _solve(
    values: Ints, pair: tuple[int, int], kernel: Floats, rows: Floats, known: Floats
) -> tuple[Floats | None, float]:
    """The law with the largest ratio for one record, pair of values and output."""
    from scipy.optimize import linprog

    top, bottom = (np.where(values == v, kernel, 0.0) for v in pair)
    equal = np.block([[rows, -known], [bottom[None], np.zeros((1, 1))]])
    right = np.concatenate([np.zeros(len(rows)), [1.0]])
    found = linprog(-np.append(top, 0.0), A_eq=equal, b_eq=right, method="highs")
    if found.x is None or found.x[-1] <= 0:
        return None, -math.inf
    law = np.maximum(found.x[:-1], 0.0)
    law = law / law.sum()
    seen = [float((law * side).sum()) for side in (top, bottom)]
    mass = [float(law[values == v].sum()) for v in pair]
    return law, math.log(seen[0] / mass[0]) - math.log(seen[1] / mass[1])


def _pair_equations(model: Dependence, grid: Ints) -> tuple[Floats, Floats]:
    """Rows and right sides: the sum over outcomes with (x, y) at a tie is its probability."""
    size = model.domain.size
    rows, known = [np.ones(len(grid))], [1.0]
    for (one, other), which in zip(model.ties.tolist(), model.law_of, strict=True):
        code = grid[:, one] * size + grid[:, other]
        for place, probability in enumerate(model.laws[which].ravel().tolist()):
            rows.append((code == place).astype(np.float64))
            known.append(probability)
    return np.array(rows), np.array(known)[:, None]


def _value_pairs(model: Dependence, record: int) -> list[tuple[int, int]]:
    """The ordered pairs of values the record takes with positive probability."""
    near = model.neighbours()
    mine = np.flatnonzero(near.record == record)
    if not len(mine):  # no tie: any law, every value possible
        possible = np.arange(model.domain.size)
    else:
        law = int(near.law[mine[0]])
        table = model.laws[law % len(model.laws)]
        margin = table.sum(axis=1 if law < len(model.laws) else 0)
        possible = np.flatnonzero(margin > 0)
    return [(int(a), int(b)) for a in possible for b in possible if a != b]
