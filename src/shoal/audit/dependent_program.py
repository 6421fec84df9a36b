"""The worst joint law that has given pairwise laws, found by linear programs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.models.dependence import Dependence

MOST_OUTCOMES = 1024
MOST_WORK = 100_000  # programs times outcomes
KEPT = 1e-9  # how exactly a law must have the pairs to count
NEARBY = 4.0  # how much further off a law that has the pairs exactly may be
RARE = 1e-4  # values less likely than this are left out: their laws would drown in rounding


class WorstLaw(NamedTuple):
    """A joint law (flat, last record fastest), and the record and pair of values it gives away.

    `complete` says that every record, pair of values and candidate output was tried. `slack` is
    what the log-ratio may owe to the solver's tolerance: the law has the pairs only up to that.
    """

    law: Floats
    record: int
    pair: tuple[int, int]
    log_ratio: float
    complete: bool
    slack: float = 0.0


def outcomes(model: Dependence) -> Ints:
    """All outcomes as rows of cells, the last record varying fastest."""
    size, count = model.domain.size, model.records
    return np.stack(np.unravel_index(np.arange(size**count), (size,) * count), axis=1)


def has_joint_law(model: Dependence) -> bool:
    """Whether any joint law has the model's pairwise laws, up to the solver's tolerance."""
    from scipy.optimize import linprog

    rows, known = _pair_equations(model, outcomes(model))
    found = linprog(np.zeros(rows.shape[1]), A_eq=rows, b_eq=known, method="highs")
    return bool(found.status != 2)


def worst_law(model: Dependence, answers: Floats, outputs: Floats, scale: float) -> WorstLaw | None:
    """The joint law with the model's pairs under which noise of `scale` tells most.

    answers (outcomes, labels) and outputs (count, labels) are in one unit. For each record i,
    values a, a' and output o the ratio E[K(o-F) | a] / E[K(o-F) | a'] is linear over linear in
    the joint law, and P(a), P(a') are fixed by the pairs: a linear program after Charnes and
    Cooper. When they would take long they are thinned out evenly, which the result then
    says. None when no program has a clean solution.
    """
    grid = outcomes(model)
    equations = _pair_equations(model, grid)
    tasks = [
        (record, pair, place)
        for record in range(model.records)
        for pair in _value_pairs(model, record)
        for place in range(len(outputs))
    ]
    step = max(1, -(-len(tasks) * len(grid) // MOST_WORK))
    best: WorstLaw | None = None
    for record, pair, place in tasks[::step]:
        distance = np.abs(answers - outputs[place]).sum(axis=1) / scale
        kernel = np.exp(distance.min() - distance)
        solved = _solve(grid[:, record], pair, kernel, equations)
        if solved is not None and (best is None or solved[1] > best.log_ratio):
            best = WorstLaw(solved[0], record, pair, solved[1], step == 1, solved[2])
    return best


def _solve(
    values: Ints, pair: tuple[int, int], kernel: Floats, equations: tuple[Floats, Floats]
) -> tuple[Floats, float, float] | None:
    """The law with the largest ratio for one record, pair of values and output, and its slack."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    rows, known = equations
    top, bottom = (np.where(values == v, kernel, 0.0) for v in pair)
    equal = csr_array(np.block([[rows, -known[:, None]], [bottom[None], np.zeros((1, 1))]]))
    right = np.append(np.zeros(len(rows)), bottom.sum() / len(bottom))
    found = linprog(-np.append(top, 0.0), A_eq=equal, b_eq=right, method="highs")
    if found.status != 0 or found.x[-1] <= 0:
        return None
    law = np.maximum(found.x[:-1] / found.x[-1], 0.0)
    amiss = np.abs(rows @ law - known)
    if amiss.max() > KEPT:
        return None
    seen = [float((law * side).sum()) for side in (top, bottom)]
    mass = [float(law[values == v].sum()) for v in pair]
    if min(seen) <= 0:
        return None
    slack = NEARBY * float(amiss.sum()) * (1 / seen[0] + 1 / seen[1] + 1 / mass[0] + 1 / mass[1])
    return law / law.sum(), math.log(seen[0] / mass[0]) - math.log(seen[1] / mass[1]), slack


def _pair_equations(model: Dependence, grid: Ints) -> tuple[Floats, Floats]:
    """Rows and right sides: the sum over outcomes with (x, y) at a tie is its probability."""
    size = model.domain.size
    rows, known = [np.ones(len(grid))], [1.0]
    for (one, other), which in zip(model.ties.tolist(), model.law_of, strict=True):
        code = grid[:, one] * size + grid[:, other]
        for place, probability in enumerate(model.laws[which].ravel().tolist()):
            rows.append((code == place).astype(np.float64))
            known.append(probability)
    return np.array(rows), np.array(known)


def _value_pairs(model: Dependence, record: int) -> list[tuple[int, int]]:
    """The ordered pairs of values the record takes, but for the very rare."""
    near = model.neighbours()
    mine = np.flatnonzero(near.record == record)
    if not len(mine):  # no tie: any law, every value possible
        possible = np.arange(model.domain.size)
    else:
        law = int(near.law[mine[0]])
        table = model.laws[law % len(model.laws)]
        margin = table.sum(axis=1 if law < len(model.laws) else 0)
        possible = np.flatnonzero(margin >= RARE)
    return [(int(a), int(b)) for a in possible for b in possible if a != b]
