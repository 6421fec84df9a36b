"""How far the mechanisms are from the best possible one: a linear program on small grids.

The least mean squared error of any mechanism that keeps ε on every edge of the policy, outputs on
a grid of half cells refined by the posterior means of its own solution. Uniform prior, RMS error
in cells. The papers claim optimality from a bound that does not hold on finite maps (ERRATA).
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.geometry.body import Body, symmetric_hull
from shoal.noise.graph_exponential import graph_exponential
from shoal.noise.knorm import LatticeKNorm, Staircase
from shoal.noise.primitives import LatticeNoise
from studies.report import Report, Table

CASES = (
    (5, "complete", Fraction(1)),
    (5, "complete", Fraction(2)),
    (5, "four neighbours", Fraction(1)),
    (5, "four neighbours", Fraction(2)),
    (5, "eight neighbours", Fraction(1)),
    (5, "eight neighbours", Fraction(2)),
    (7, "four neighbours", Fraction(1)),
)
REACHES = {"complete": 10**6, "four neighbours": 1, "eight neighbours": 2}
TAIL = 30.0  # outputs with less than exp(-TAIL) of the largest weight are left out
REFINED = 1  # rounds in which the program's own posterior means become outputs


def run() -> Report:
    """One table."""
    return Report(
        name="location-optimum",
        source="Beside Xiao 2017, Theorems 3.5 and 3.10: the optimum on small maps.",
        tables=(table(CASES),),
    )


def table(cases: tuple[tuple[int, str, Fraction], ...]) -> Table:
    """RMS errors of every mechanism and of the linear program."""
    return Table(
        title="RMS error in cells, uniform prior",
        columns=(
            *("grid", "policy", "ε", "constant", "K-norm raw", "K-norm + estimate"),
            *("staircase + estimate", "graph + estimate", "optimum"),
        ),
        rows=tuple(_row(*case) for case in cases),
        notes=(
            "graph: tight constants where none is negative, else the calibrated rate",
            "a constant answer beats the raw output of the complete graph at every ε here",
        ),
    )


def _row(side: int, policy: str, epsilon: Fraction) -> tuple[str | float, ...]:
    axis = np.arange(side)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    edges = near(points, REACHES[policy])
    body = symmetric_hull(points[edges[:, 0]] - points[edges[:, 1]])
    noise = LatticeKNorm(body=body, epsilon=epsilon)
    everybody = np.ones(len(points), dtype=np.bool_)
    graph = graph_exponential(points, everybody, np.arange(len(points)), edges, epsilon)
    law = np.exp([graph.log_likelihood(tuple(point)) for point in points.tolist()]).T
    return (
        f"{side} × {side}",
        policy,
        float(epsilon),
        math.sqrt(float(((points - points.mean(axis=0)) ** 2).sum(axis=1).mean())),
        math.sqrt(noise.mse),
        estimate_error(points, lattice_law(noise, body, points)),
        estimate_error(points, lattice_law(Staircase.best(body, epsilon), body, points)),
        estimate_error(points, law),
        least_error(points, edges, float(epsilon)),
    )


def near(points: Ints, squared: int) -> Ints:
    """Pairs within √squared."""
    pairs = combinations(range(len(points)), 2)
    kept = [(a, b) for a, b in pairs if ((points[a] - points[b]) ** 2).sum() <= squared]
    return np.array(kept, dtype=np.int64)


def lattice_law(noise: LatticeNoise, body: Body, points: Ints) -> Floats:
    """P(z | s) over a window that holds all but about e^-30 of the mass: (states, outputs)."""
    reach = TAIL / float(noise.epsilon)
    axes = []
    for axis in range(2):
        extra = math.ceil(reach * int(np.abs(body.vertices[:, axis]).max()))
        axes.append(np.arange(points[:, axis].min() - extra, points[:, axis].max() + extra + 1))
    outputs = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    law = np.exp(np.stack([noise.log_weights(outputs - point) for point in points]))
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def estimate_error(points: Ints, law: Floats) -> float:
    """RMS distance of the posterior mean, uniform prior."""
    joint = law / len(points)
    mass = joint.sum(axis=0)
    means = joint.T @ points / np.maximum(mass, 1e-300)[:, None]
    second = float((joint.T @ (points**2).sum(axis=1)).sum())
    return math.sqrt(max(0.0, second - float(mass @ (means**2).sum(axis=1))))


def least_error(points: Ints, edges: Ints, epsilon: float) -> float:
    """The optimum of the linear program, RMS, refined and then estimated once more."""
    low, high = points.min(), points.max()
    halves = np.arange(2 * low, 2 * high + 1) / 2
    outputs = np.stack(np.meshgrid(halves, halves), axis=-1).reshape(-1, 2)
    for _ in range(REFINED):
        law = _program(points, edges, epsilon, outputs)
        mass = law.sum(axis=0)
        means = (law.T @ points)[mass > 1e-9] / mass[mass > 1e-9][:, None]
        outputs = np.unique(np.round(np.concatenate([outputs, means]), 6), axis=0)
    return estimate_error(points, _program(points, edges, epsilon, outputs))


def _program(points: Ints, edges: Ints, epsilon: float, outputs: Floats) -> Floats:
    """q(z|s) of least mean squared distance with q(z|s) <= e^ε q(z|s') on every edge."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array, eye_array, kron

    states, many = len(points), len(outputs)
    squares = ((points[:, None, :] - outputs[None, :, :]) ** 2).sum(axis=2)
    both = np.concatenate([edges, edges[:, ::-1]])
    rows = np.arange(len(both))
    kept = coo_array((np.ones(len(both)), (rows, both[:, 0])), shape=(len(both), states))
    bound = coo_array((np.full(len(both), math.exp(epsilon)), (rows, both[:, 1])), kept.shape)
    answer = linprog(
        squares.ravel() / states,
        A_ub=kron(kept - bound, eye_array(many)).tocsr(),
        b_ub=np.zeros(len(both) * many),
        A_eq=kron(eye_array(states), np.ones((1, many))).tocsr(),
        b_eq=np.ones(states),
        method="highs-ipm",
    )
    return np.asarray(np.maximum(answer.x, 0.0).reshape(states, many))
