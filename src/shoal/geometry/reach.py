"""How far a body given by facets reaches in a direction, with a certificate on integers."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product as patterns

import numpy as np

from shoal.geometry.facets import Facets
from shoal.geometry.integers import Integers
from shoal.geometry.span import determinant, span_of

MOST_PATTERNS = 6  # dimensions up to which every sign pattern is bounded on its own


def facet_reach(
    facets: Facets, rates: Sequence[Fraction], rows: Sequence[Sequence[int]]
) -> Fraction:
    """An upper bound on max Σ rate_j |row_j·x| over the body; exact up to six dimensions.

    The sum is the largest of its 2^d sign patterns, each linear. Beyond six dimensions the
    coordinates are bounded one by one and added up, which is looser.
    """
    d = len(rates)
    directions = [[rate * value for value in row] for rate, row in zip(rates, rows, strict=True)]
    if d > MOST_PATTERNS:
        return sum((support(facets, direction) for direction in directions), Fraction(0))
    reach = Fraction(0)
    for signs in patterns((1, -1), repeat=d - 1):
        signed = zip((1, *signs), directions, strict=True)
        mixed = [[sign * value for value in direction] for sign, direction in signed]
        total = [sum(column, Fraction(0)) for column in zip(*mixed, strict=True)]
        reach = max(reach, support(facets, total))
    return reach


def support(facets: Facets, direction: Sequence[Fraction]) -> Fraction:
    """An upper bound on max direction·x over the body, exact when the linear program is right.

    Whenever direction = Σ λ_i n_i with d facets n_i, direction·x <= Σ |λ_i| offset_i, because
    the body is symmetric. The program only chooses which d facets; λ is solved on rationals.
    """
    chosen = _independent(facets, _ranked(facets, direction))
    normals = [[int(value) for value in facets.normals[i]] for i in chosen]
    weights = _solve([list(column) for column in zip(*normals, strict=True)], direction)
    return sum(
        (abs(weight) * int(facets.offsets[i]) for weight, i in zip(weights, chosen, strict=True)),
        Fraction(0),
    )


def _ranked(facets: Facets, direction: Sequence[Fraction]) -> Integers:
    """Facets in the order in which the linear program max direction·x leans on them."""
    from scipy.optimize import linprog

    scaled = facets.normals.astype(float) / facets.offsets.astype(float)[:, None]
    goal = np.array([float(value) for value in direction])
    size = np.abs(goal).max()
    answer = linprog(
        -goal / (size or 1.0), A_ub=scaled, b_ub=np.ones(len(scaled)), bounds=(None, None)
    )
    if answer.x is None:
        return np.arange(len(scaled))
    return np.lexsort((1 - scaled @ answer.x, answer.ineqlin.marginals))


def _independent(facets: Facets, order: Integers) -> list[int]:
    """The first d facets in `order` whose normals are independent."""
    chosen: list[int] = []
    for index in order:
        trial = facets.normals[[*chosen, int(index)]]
        if span_of(trial).dimension == len(trial):
            chosen.append(int(index))
        if len(chosen) == facets.normals.shape[1]:
            break
    return chosen


def _solve(matrix: list[list[int]], right: Sequence[Fraction]) -> list[Fraction]:
    """The solution of matrix x = right, by Cramer's rule on integers."""
    common = int(np.lcm.reduce([value.denominator for value in right], dtype=object))
    whole = [int(value * common) for value in right]
    below = determinant(matrix) * common
    solution = []
    for column in range(len(matrix)):
        replaced = [
            [*row[:column], value, *row[column + 1 :]]
            for row, value in zip(matrix, whole, strict=True)
        ]
        solution.append(Fraction(determinant(replaced), below))
    return solution
