"""Emission laws by enumeration: the largest log-ratio over every edge, and normalisation."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from shoal.core.codec import Ints
from shoal.core.errors import InputError
from shoal.geometry.body import Body, difference_body, symmetric_hull
from shoal.noise import graph_exponential as graph_noise
from shoal.noise.graph_exponential import graph_exponential, hops
from shoal.noise.knorm import LatticeKNorm, Staircase
from shoal.noise.primitives import LatticeEmission, LatticeNoise
from tests.bodies import log_density

GRID = np.stack(np.meshgrid(np.arange(4), np.arange(3)), axis=-1).reshape(-1, 2)
RUNNING = np.array([[1, 0], [2, 1], [3, 0], [0, 1], [4, 2], [1, 2]])
LINE = np.array([[0, 0], [2, 1], [6, 3], [4, 2]])


def near(points: Ints, squared: int) -> Ints:
    """Pairs within √squared."""
    pairs = combinations(range(len(points)), 2)
    kept = [(a, b) for a, b in pairs if ((points[a] - points[b]) ** 2).sum() <= squared]
    return np.array(kept, dtype=np.int64).reshape(-1, 2)


POLICIES = {
    "four neighbours": (GRID, near(GRID, 1)),
    "eight neighbours": (GRID, near(GRID, 2)),
    "wide": (GRID, near(GRID, 5)),
    "running example": (RUNNING, np.array([[1, 2], [3, 4], [3, 5], [4, 5]])),
    "complete": (RUNNING, near(RUNNING, 10**6)),
    "collinear": (LINE, near(LINE, 10**6)),
    "path on a line": (LINE, np.array([[0, 1], [1, 3], [2, 3]])),
}
NOISES: dict[str, Callable[[Body, Fraction], LatticeNoise]] = {
    "k-norm": lambda body, epsilon: LatticeKNorm(body=body, epsilon=epsilon),
    "staircase": Staircase.best,
    "wide staircase": lambda body, epsilon: Staircase(
        body=body, epsilon=epsilon, width=Fraction(1)
    ),
    "laplace": lambda body, epsilon: LatticeKNorm(
        body=symmetric_hull(body.l1_radius * np.eye(2, dtype=np.int64)), epsilon=epsilon
    ),
}


def window(points: Ints, reach: int) -> Ints:
    axes = [np.arange(points[:, k].min() - reach, points[:, k].max() + reach + 1) for k in (0, 1)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)


def tables(noise: LatticeNoise, points: Ints, reach: int = 60) -> npt.NDArray[np.float64]:
    """log P(z | s) over a window that holds nearly all mass, normalised by its own sum."""
    outputs = window(points, reach)
    logs = np.stack([noise.log_weights(outputs - point) for point in points])
    mass = np.exp(noise.log_weights(window(np.zeros((1, 2), dtype=np.int64), reach))).sum()
    return np.asarray(logs - np.log(mass))


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3)], ids=str)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("policy", POLICIES)
def test_every_edge_loses_at_most_epsilon(policy: str, noise: str, epsilon: Fraction) -> None:
    points, edges = POLICIES[policy]
    body = symmetric_hull(points[edges[:, 0]] - points[edges[:, 1]])
    law = NOISES[noise](body, epsilon)
    emission = LatticeEmission(points=points, noise=law)
    logs = tables(law, points)
    assert np.exp(logs).sum(axis=1) == pytest.approx(1.0, rel=1e-3)
    worst = 0.0
    for a, b in edges:
        possible = np.isfinite(logs[a]) | np.isfinite(logs[b])
        loss = float(np.abs(logs[a][possible] - logs[b][possible]).max())
        worst = max(worst, loss)
        assert loss <= emission.log_ratio(int(a), int(b)) + 1e-12
    assert worst <= float(epsilon) * (1 + 1e-12)
    assert noise == "laplace" or worst == pytest.approx(float(epsilon), rel=1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_any_pair_loses_what_is_said(noise: str) -> None:
    points, edges = POLICIES["running example"]
    body = symmetric_hull(points[edges[:, 0]] - points[edges[:, 1]])
    law = NOISES[noise](body, Fraction(2))
    emission = LatticeEmission(points=points, noise=law)
    logs = tables(law, points)
    for a, b in combinations(range(len(points)), 2):
        loss = float(np.abs(logs[a] - logs[b]).max())
        assert loss <= emission.log_ratio(a, b) + 1e-12
        if noise != "staircase":  # on a coarse lattice a staircase may miss its highest step
            assert loss == pytest.approx(emission.log_ratio(a, b), rel=1e-9)


def test_a_body_too_small_is_noticed() -> None:
    """The control: with one edge left out of the hull, that edge loses more than epsilon."""
    points, edges = POLICIES["running example"]
    short = symmetric_hull(points[edges[:3, 0]] - points[edges[:3, 1]][:, :])
    smaller = symmetric_hull(short.vertices[1:2])
    emission = LatticeEmission(points=points, noise=LatticeKNorm(body=smaller, epsilon=Fraction(1)))
    assert max(emission.log_ratio(int(a), int(b)) for a, b in edges) > 1.5


def log_table(law: object, size: int, points: Ints) -> npt.NDArray[np.float64]:
    assert hasattr(law, "log_likelihood")
    return np.stack([law.log_likelihood(tuple(point)) for point in points], axis=1)[:size]


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)], ids=str)
@pytest.mark.parametrize(
    "policy", ["four neighbours", "eight neighbours", "wide", "complete", "path on a line"]
)
def test_graph_laws_lose_at_most_epsilon(policy: str, epsilon: Fraction) -> None:
    points, edges = POLICIES[policy]
    everybody = np.ones(len(points), dtype=np.bool_)
    law = graph_exponential(points, everybody, np.arange(len(points)), edges, epsilon)
    logs = log_table(law, len(points), points)
    assert np.exp(logs).sum(axis=1) == pytest.approx(1.0, rel=1e-12)
    with np.errstate(invalid="ignore"):
        loss = np.nanmax(np.abs(logs[edges[:, 0]] - logs[edges[:, 1]]))
    assert loss <= float(epsilon)
    assert loss <= law.log_ratios(edges).max() <= float(epsilon)
    for a, b in combinations(range(len(points)), 2):
        with np.errstate(invalid="ignore"):
            pair = np.nanmax(np.abs(logs[a] - logs[b]))
        assert pair <= law.log_ratio(a, b)


def test_tight_constants_reach_the_optimum_on_four_neighbour_grids() -> None:
    """RMS error after the best estimate, 7 × 7 cells, uniform prior: the linear program's value."""
    points = np.stack(np.meshgrid(np.arange(7), np.arange(7)), axis=-1).reshape(-1, 2)
    everybody = np.ones(49, dtype=np.bool_)
    for epsilon, optimum in ((Fraction(1, 2), 2.173), (Fraction(1), 1.465), (Fraction(2), 0.749)):
        law = graph_exponential(points, everybody, np.arange(49), near(points, 1), epsilon)
        assert law.tight
        joint = np.exp(log_table(law, 49, points)) / 49
        means = joint.T @ points / joint.sum(axis=0)[:, None]
        squares = ((points[:, None, :] - means[None, :, :]) ** 2).sum(axis=2)
        assert np.sqrt((joint * squares).sum()) == pytest.approx(optimum, abs=6e-4)
        prior = np.full(49, 1 / 49)
        raw = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
        assert law.expected_error(prior) == pytest.approx(np.sqrt((joint * raw).sum()), rel=1e-9)


def test_graph_laws_answer_through_surrogates_and_keep_components_apart() -> None:
    points = np.array([[0, 0], [1, 0], [5, 0], [6, 0], [9, 9]])
    members = np.array([True, True, True, True, False])
    answering = np.array([0, 1, 2, 3, 3])
    edges = np.array([[0, 1], [2, 3]])
    law = graph_exponential(points, members, answering, edges, Fraction(1))
    assert law.log_ratio(0, 2) == np.inf
    assert law.log_ratio(3, 4) == 0.0
    assert law.log_likelihood((6, 0))[3] == law.log_likelihood((6, 0))[4]
    assert law.log_likelihood((9, 9)).max() == -np.inf  # nobody answers with it
    with pytest.raises(InputError, match="without an edge"):
        graph_exponential(points, members, answering, edges[:1], Fraction(1))


def test_hops_count_edges() -> None:
    distances = hops(np.array([[0, 1], [1, 2], [3, 4]]), 5)
    assert distances[0].tolist() == [0, 1, 2, np.inf, np.inf]


@pytest.mark.parametrize(("size", "count"), [(1, 0), (2, 1), (9, 0), (9, 8), (70, 60), (70, 300)])
def test_hops_are_those_of_a_search_from_every_node(
    size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many edges there are: all nodes at once, or one after the other."""
    edges = np.random.default_rng(size + count).integers(0, size, size=(count, 2))
    edges = edges[edges[:, 0] != edges[:, 1]]
    expected = np.full((size, size), np.inf)
    for start in range(size):
        reached, steps = {start}, 0
        while reached:
            expected[start, list(reached)] = steps
            ends = {b for a, b in [*edges.tolist(), *edges[:, ::-1].tolist()] if a in reached}
            reached, steps = {b for b in ends if expected[start, b] == np.inf}, steps + 1
    for most in (graph_noise.MOST_BITS, 0):
        monkeypatch.setattr(graph_noise, "MOST_BITS", most)
        graph_noise._hops.cache_clear()
        assert np.array_equal(hops(edges, size), expected)


@pytest.mark.parametrize(
    "body",
    [
        symmetric_hull([[4, 1], [3, 0], [1, -1]]),
        difference_body([[0, 0], [7, 2], [3, 5]]),
        symmetric_hull([[40, 1], [1, 3]]),
    ],
    ids=["paper", "triangle", "sliver"],
)
def test_the_continuous_density_integrates_to_one_and_has_the_stated_error(body: Body) -> None:
    """By the midpoint rule on a fine grid; norms of sixteenths of a lattice step are exact."""
    epsilon, parts = 2.0, 16
    reach = 11 * parts
    sides = [reach * int(np.abs(body.vertices[:, axis]).max()) for axis in (0, 1)]
    steps = [max(1, side // 700) for side in sides]
    axes = [np.arange(-side, side + 1, step) for side, step in zip(sides, steps, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(log_density(body, epsilon, body.norm_upper(grid) / parts))
    cell = float(np.prod(steps)) / parts**2
    assert density.sum() * cell == pytest.approx(1.0, abs=2e-3)
    squares = (grid.astype(np.float64) ** 2).sum(axis=1) / parts**2
    assert density @ squares * cell == pytest.approx(float(body.mse(2)), rel=3e-3)
