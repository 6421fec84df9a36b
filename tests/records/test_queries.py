"""Learning queries: exact lattices, certified solvers, post-processing, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression

import shoal
from shoal.core.errors import DataError, InputError, PromiseBroken
from shoal.core.plan import Additive
from shoal.core.registry import dumps, loads
from shoal.mechanisms.plans import Rounds, sampler_for, split_rounds
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.primitives import SeededRng
from shoal.records.classifier import (
    LOSSES,
    Objective,
    SolverSettings,
    linear_classifier,
    minimise,
    root_above,
)
from shoal.records.kmeans import GRID_STEPS, centroids, halton_points
from shoal.records.pairwise import RecordGroups
from shoal.records.queries import degree_accuracy, degree_distribution, graph, non_increasing

ALONE = RecordGroups(1)


def planned(query: Any, epsilon: float = 1, mechanism: str = "best") -> shoal.Plan:
    return shoal.calibrate(query, shoal.EachEntry(), ALONE, epsilon=epsilon, mechanism=mechanism)


def blobs() -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(0)
    places = np.repeat([[0.2, 0.2], [0.8, 0.3], [0.5, 0.8]], 200, axis=0)
    return np.asarray(draw.normal(places, 0.05))


def test_without_noise_the_rounds_are_lloyds() -> None:
    rows = np.clip(np.rint(blobs() * GRID_STEPS) / GRID_STEPS, 0, 1)
    start = np.array([[0.25, 0.25], [0.75, 0.25], [0.5, 0.75]])
    query = centroids("xy", low=0, high=1, clusters=3, rounds=4, start=start)
    answered = split_rounds(query.evaluate(query.read(rows)), 4)
    ours = query.in_units(query.path(answered)[-1])
    theirs = KMeans(3, init=start, n_init=1, max_iter=4, tol=0).fit(rows).cluster_centers_
    assert ours == pytest.approx(theirs, abs=2 / GRID_STEPS)


def test_a_release_in_rounds_is_on_the_lattice_and_follows_its_own_answers() -> None:
    query = centroids("xy", low=0, high=1, clusters=3, rounds=4)
    plan = planned(query, 0.05)
    assert isinstance(plan.body, Rounds)
    release = plan.release(blobs(), rng=SeededRng(1))
    assert release.answer.step == Fraction(1, GRID_STEPS)
    assert len(release.answer.multiples) == 4 * 3 * 3 == len(query.labels)
    path = query.path(split_rounds(release.answer.multiples, 4))
    assert len(path) == 5
    assert query.centroids(release.answer) == pytest.approx(path[-1] / GRID_STEPS)
    # the second round was asked about the noisy centroids of the first: take the noise off again
    noise = LatticeLaplace(plan.body.noise.scale, plan.body.noise.step)
    source = SeededRng(1)
    drawn = [noise.draw(9, source) for _ in range(4)]
    answers = split_rounds(release.answer.multiples, 4)
    records = query.read(blobs())
    second = query.ask(records, answers[:1])
    assert second != query.ask(records, (query.ask(records, ()),))  # noisy, not true, centroids
    assert tuple(int(a) - int(z) for a, z in zip(answers[1], drawn[1], strict=True)) == second


def test_rounds_survive_storage_and_state_their_error() -> None:
    plan = planned(centroids("xy", low=0, high=1))
    again = loads(dumps(plan))
    assert again == plan
    assert isinstance(again.body, Rounds)
    error = plan.error()
    assert error is not None
    assert error.expected == pytest.approx(float(plan.task.query.lipschitz), rel=1e-3)


def test_noise_of_another_lattice_is_refused_for_rounds() -> None:
    query = centroids("xy", low=0, high=1)
    with pytest.raises(InputError, match="noise step is 1/2048"):
        sampler_for(query, LatticeLaplace(Fraction(5), Fraction(1, 2048)))
    other = shoal.count("ab", "a")
    assert type(sampler_for(other, LatticeLaplace(Fraction(5), Fraction(1)))) is Additive


def test_clusters_without_records_keep_their_centre() -> None:
    query = centroids("x", low=0, high=8, clusters=2, start=[[1], [7]], count_weight=1)
    gone = query.path(((0, 512, -300 * GRID_STEPS, 0),))
    assert gone[-1].tolist() == [[128], [7 * 128]]
    far = query.path(((10**9, GRID_STEPS, -(10**9), GRID_STEPS),))
    assert far[-1].tolist() == [[GRID_STEPS], [0]]


def test_starting_points_are_spread_and_public() -> None:
    points = halton_points(64, 3)
    assert points.min() >= 0
    assert points.max() <= GRID_STEPS
    assert len({tuple(p) for p in points.tolist()}) == 64
    for axis in range(3):
        assert np.histogram(points[:, axis], bins=4, range=(0, GRID_STEPS))[0].min() >= 14


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"low": 1, "high": 1}, "low must be below high"),
        ({"rounds": 0}, "rounds is 0"),
        ({"clusters": 0}, "clusters is 0"),
        ({"count_weight": "1/3"}, "positive multiple of 1/1024"),
        ({"low": [0, 0, 0]}, "every column its public range"),
        ({"start": [[1, 2, 3]]}, "rows of 2 numbers"),
    ],
)
def test_centroids_refuse_by_name(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        centroids("xy", **{"low": 0, "high": 1, **change})


def test_data_that_is_no_table_is_refused() -> None:
    query = centroids("xy", low=0, high=1)
    for data, match in (
        ([[1, 2, 3]], "rows of 2 numbers"),
        ([[1, 2], [3]], "rows of 2 numbers"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "not a table; hand over rows of equal length"),
    ):
        with pytest.raises(DataError, match=match):
            query.read(data)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_losses_are_convex_with_their_stated_slopes(loss: str) -> None:
    value, slope, curvature, most = LOSSES[loss]
    z = np.linspace(-6, 6, 4001)
    width = 1e-5
    assert slope(z) == pytest.approx((value(z + width) - value(z - width)) / (2 * width), abs=1e-4)
    assert (slope(z) <= 0).all()
    assert (slope(z) >= -1).all()
    assert (np.diff(slope(z)) >= -1e-12).all()
    assert curvature(z).max() <= most + 1e-12
    assert np.abs(np.diff(slope(z)) / np.diff(z)).max() <= most + 1e-9


def problem(loss: str, count: int = 300, size: int = 4, strength: float = 0.01) -> Objective:
    draw = np.random.default_rng(2)
    rows = draw.normal(size=(count, size))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
    classes = np.where(rows[:, 0] + draw.normal(0, 0.3, count) > 0, 1.0, -1.0)
    return Objective(rows=rows, classes=classes, loss=loss, regularisation=strength)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_the_certificate_covers_the_true_distance(loss: str) -> None:
    objective = problem(loss)
    best = minimise(objective, 1e-9)
    draw = np.random.default_rng(0)
    for size in (1e-6, 1e-3, 1.0):
        for _ in range(20):
            near = best + size * draw.normal(size=4)
            assert np.linalg.norm(near - best) <= objective.distance(near) + 1e-9
    assert objective.distance(best) <= 1e-9


def test_logistic_regression_agrees_with_another_solver() -> None:
    objective = problem("logistic")
    theirs = LogisticRegression(C=1 / (300 * 0.01), fit_intercept=False, tol=1e-10)
    theirs.fit(objective.rows, objective.classes)
    assert minimise(objective, 1e-8) == pytest.approx(theirs.coef_[0], abs=1e-5)


def test_descent_takes_over_where_newton_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = problem("huber")
    wanted = minimise(objective, 1e-9)
    monkeypatch.setattr("shoal.records.classifier.SOLVER", SolverSettings(newton_max_steps=0))
    assert minimise(objective, 1e-6) == pytest.approx(wanted, abs=2e-6)
    with pytest.raises(PromiseBroken, match="below what double precision can certify"):
        minimise(problem("huber", count=20), 1e-300)


def test_a_wrong_answer_has_no_certificate() -> None:
    """A control: a solver that stops early is noticed."""
    objective = problem("huber")
    assert objective.distance(np.zeros(4)) > 1
    assert objective.distance(1.001 * minimise(objective, 1e-9)) > 1e-4


def test_long_rows_are_scaled_into_the_norm() -> None:
    query = linear_classifier("ab", records=3, norm="0.1", intercept=False)
    records = query.read(([[3, 4], [0, 0.05], [1e300, 0]], [1, 0, 1]))
    lengths = [math.hypot(*row) for row in records.rows.tolist()]
    assert max(Fraction(length) for length in lengths) <= Fraction(1, 10)
    assert lengths[1] == 0.05
    assert records.classes.tolist() == [1, -1, 1]


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (1, "not a pair"),
        (([[1, 2]], [1]), "public number of records is 3"),
        (([[1, 2]] * 3, [1, 1]), "pair them"),
    ],
)
def test_classifier_data_is_refused_by_name(data: Any, match: str) -> None:
    with pytest.raises(DataError, match=match):
        linear_classifier("ab", records=3).read(data)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'"),
        ({"regularisation": 0}, "regularisation is 0"),
        ({"records": 0}, "records is 0"),
    ],
)
def test_classifiers_refuse_by_name(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        linear_classifier("ab", **{"records": 3, **change})


@given(st.fractions(min_value=Fraction(1, 10**12), max_value=10**12))
def test_roots_round_up(value: Fraction) -> None:
    root = root_above(value)
    assert root**2 >= value
    assert root**2 <= value * (1 + Fraction(1, 2**30)) + Fraction(1, 2**60)


def test_degrees_of_a_known_graph() -> None:
    star = [(0, i) for i in range(1, 6)]
    at_edges = degree_distribution(6, cap=3, cumulative=False)
    assert at_edges.evaluate(at_edges.read(star)) == (0, 5, 0, 1)
    at_nodes = degree_distribution(6, cap=3, level="node", cumulative=False)
    assert at_nodes.evaluate(at_nodes.read(star)) == (2, 3, 0, 1)
    more = degree_distribution(6, cap=3)
    assert more.evaluate(more.read(networkx.star_graph(5))) == (6, 1, 1)
    assert graph(3, [(2, 0), (0, 2), (1, 1)]).edges.tolist() == [[0, 2]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-50, 50), min_size=1, max_size=12))
def test_monotone_regression_is_monotone_and_keeps_the_mean(values: list[float]) -> None:
    found = non_increasing(np.array(values))
    assert (np.diff(found) <= 1e-9).all()
    assert found.mean() == pytest.approx(np.mean(values), abs=1e-9)
    assert non_increasing(found) == pytest.approx(found)


def test_released_degrees_are_a_distribution() -> None:
    edges = np.random.default_rng(0).integers(0, 200, (900, 2))
    for cumulative in (True, False):
        query = degree_distribution(200, cap=20, cumulative=cumulative)
        truth = degree_distribution(200, cap=20, cumulative=False).evaluate(query.read(edges))
        found = query.histogram(planned(query, 2).release(edges, rng=SeededRng(0)).answer)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(200)
        assert 0.4 < degree_accuracy(truth, found) <= 1


def test_accuracy_is_one_minus_relative_distance() -> None:
    assert degree_accuracy([3, 1], [3, 1]) == 1
    assert degree_accuracy([1, 0], [0, 1]) == 0
    assert degree_accuracy([3, 1], [1, 3]) == pytest.approx(0.5)
    assert degree_accuracy([0], [0]) == 0


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"cap": 9}, "cap must be at most 4"),
        ({"level": "face"}, "level is 'face'"),
        ({"nodes": 1}, "nodes is 1"),
    ],
)
def test_degree_queries_refuse_by_name(change: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        degree_distribution(**{"nodes": 5, "cap": 2, **change})
    with pytest.raises(DataError, match="hand over pairs of node numbers"):
        graph(3, [(0, 1, 2)])
    with pytest.raises(DataError, match=r"nodes other than 0 … 4"):
        degree_distribution(5, cap=2).read(networkx.path_graph(6))


def test_pairs_that_join_no_two_nodes_are_left_out() -> None:
    odd: Any = [(0, 1), (0, 3), (-1, 2), (1.5, 2), (2, 2), ("x", 1), (None, 0), (1, 2), (2.0, 1)]
    assert graph(3, odd).edges.tolist() == [[0, 1], [1, 2]]
    assert graph(3, []).edges.tolist() == []


def test_groups_of_records() -> None:
    query = degree_distribution(5, cap=2)
    plans = [
        shoal.calibrate(query, shoal.EachEntry(), RecordGroups(size), epsilon=1) for size in (1, 3)
    ]
    assert [plan.mechanism for plan in plans] == ["group", "group"]
    assert plans[1].body.noise.scale == 3 * plans[0].body.noise.scale  # type: ignore[union-attr]
    assert "independent records" in RecordGroups().describe()
    with pytest.raises(InputError, match="largest is 0"):
        RecordGroups(0)
