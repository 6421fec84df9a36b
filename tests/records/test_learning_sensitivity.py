"""What one entry moves a learning query by, against all changes of small data sets."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.mechanisms.plans import Answered
from shoal.records.classifier import LinearClassifier, linear_classifier
from shoal.records.kmeans import GRID_STEPS, Centroids, Points, centroids
from shoal.records.queries import DegreeDistribution, capped_degrees, graph


def apart(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))


def all_graphs(nodes: int) -> list[tuple[tuple[int, int], ...]]:
    pairs = list(itertools.combinations(range(nodes), 2))
    return [
        tuple(pair for pair, kept in zip(pairs, choice, strict=True) if kept)
        for choice in itertools.product((0, 1), repeat=len(pairs))
    ]


def changes(nodes: int, level: str) -> list[list[tuple[tuple[int, int], ...]]]:
    """Sets of graphs of which any two are neighbours: alike but for one pair, or for one node."""
    pairs = list(itertools.combinations(range(nodes), 2))
    free = (
        [{pair} for pair in pairs]
        if level == "edge"
        else [{pair for pair in pairs if node in pair} for node in range(nodes)]
    )
    sets: dict[tuple[int, tuple[tuple[int, int], ...]], list[tuple[tuple[int, int], ...]]] = {}
    for edges in all_graphs(nodes):
        for place, moving in enumerate(free):
            fixed = tuple(pair for pair in edges if pair not in moving)
            sets.setdefault((place, fixed), []).append(edges)
    return list(sets.values())


def largest_move(query: DegreeDistribution, *, nodes: int) -> int:
    """The most any edge, or any node with all its edges, moves the answer on all small graphs."""
    answers = {edges: query.evaluate(query.read(edges)) for edges in all_graphs(nodes)}
    worst = 0
    for alike in changes(nodes, query.level):
        table = np.array([answers[edges] for edges in alike])
        worst = max(worst, int(np.abs(table[:, None] - table[None, :]).sum(axis=2).max()))
    return worst


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize(("nodes", "cap"), [(4, 1), (4, 2), (4, 3), (5, 1), (5, 2), (5, 3), (5, 4)])
@pytest.mark.parametrize("level", ["edge", "node"])
def test_degree_sensitivity_holds_on_all_graphs_of_up_to_five_nodes(
    level: str, nodes: int, cap: int, cumulative: bool
) -> None:
    """Kept on every graph, and reached: by cumulative counts always, by others at small caps."""
    query = DegreeDistribution(nodes=nodes, cap=cap, level=level, cumulative=cumulative)
    stated = {"edge": 2, "node": 2 * cap}[level] * (1 if cumulative else 2)
    assert query.lipschitz == stated
    found = largest_move(query, nodes=nodes)
    assert found <= stated
    if cumulative or level == "edge" or cap <= 2:
        assert found == stated


def test_naive_truncation_would_break_the_node_sensitivity() -> None:
    """Dropping full nodes instead of late edges: one node moves everybody (a control)."""

    def naive(edges: list[tuple[int, int]], cap: int) -> list[int]:
        degrees = np.bincount(np.array(edges, dtype=int).ravel(), minlength=12)
        kept = [e for e in edges if max(degrees[list(e)]) <= cap]
        return [int(d) for d in np.bincount(np.array(kept, dtype=int).ravel(), minlength=12)]

    ring = [(i, i % 11 + 1) if i < i % 11 + 1 else (1, i) for i in range(1, 12)]
    star = [(0, i) for i in range(1, 12)]
    before, after = naive(ring, 2), naive(ring + star, 2)
    moved = sum(abs(a - b) for a, b in zip(before, after, strict=True))
    query = DegreeDistribution(nodes=12, cap=2, level="node")
    assert 2 * moved > query.lipschitz
    answers = [query.evaluate(graph(12, edges)) for edges in (ring, ring + star)]
    assert apart(*answers) <= query.lipschitz


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_degree_sensitivity_holds_on_random_graphs(data: st.DataObject) -> None:
    nodes, cap = data.draw(st.integers(5, 9)), data.draw(st.integers(1, 4))
    pairs = list(itertools.combinations(range(nodes), 2))
    edges = set(data.draw(st.lists(st.sampled_from(pairs), max_size=30)))
    node = data.draw(st.integers(0, nodes - 1))
    at_node = [pair for pair in pairs if node in pair]
    rewired = {e for e in edges if node not in e} | set(
        data.draw(st.lists(st.sampled_from(at_node)))
    )
    for cumulative in (False, True):
        query = DegreeDistribution(nodes=nodes, cap=cap, level="node", cumulative=cumulative)
        moved = apart(
            query.evaluate(graph(nodes, sorted(edges))),
            query.evaluate(graph(nodes, sorted(rewired))),
        )
        assert moved <= query.lipschitz
    assert capped_degrees(graph(nodes, sorted(edges)), cap).max(initial=0) <= cap


def two_clusters(rounds: int = 1) -> Centroids:
    return centroids(
        "xy", low=0, high=1, clusters=2, rounds=rounds, start=[[0, 0], [1, 1]], count_weight="1/2"
    )


def test_one_round_of_kmeans_moves_by_its_stated_sensitivity_and_no_more() -> None:
    """All changes of one record among the corners and edges of the box, two others fixed."""
    query = two_clusters()
    values = [0, GRID_STEPS // 2 - 1, GRID_STEPS // 2, GRID_STEPS]
    places = list(itertools.product(values, repeat=2))
    others = [[0, GRID_STEPS], [GRID_STEPS, GRID_STEPS]]
    worst = 0
    for start in ([[0, 0], [GRID_STEPS, GRID_STEPS]], [[0, GRID_STEPS], [GRID_STEPS, 0]]):
        moved = replace(query, start=np.array(start))
        answers = [moved.ask(Points(np.array([place, *others])), ()) for place in places]
        worst = max(worst, *(apart(a, b) for a, b in itertools.combinations(answers, 2)))
    assert Fraction(worst, GRID_STEPS) == query.lipschitz == 3


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_round_moves_by_no_more_given_the_same_answers(data: st.DataObject) -> None:
    query = two_clusters(rounds=3)
    cell = st.integers(0, GRID_STEPS)
    rows = data.draw(st.lists(st.tuples(cell, cell), min_size=2, max_size=6))
    other = data.draw(st.tuples(cell, cell))
    noise = st.tuples(*[st.integers(-3 * GRID_STEPS, 3 * GRID_STEPS)] * 6)
    answered: Answered = ()
    for _ in range(query.rounds):
        one = query.ask(Points(np.array(rows)), answered)
        two = query.ask(Points(np.array([other, *rows[1:]])), answered)
        assert Fraction(apart(one, two), GRID_STEPS) * query.rounds <= query.lipschitz
        drawn = data.draw(noise)
        answered += (tuple(a + z for a, z in zip(one, drawn, strict=True)),)


def small_classifier(loss: str) -> LinearClassifier:
    return linear_classifier("ab", records=4, loss=loss, regularisation="0.2", norm=1)


@pytest.mark.parametrize("loss", ["huber", "logistic"])
def test_classifier_sensitivity_holds_for_all_changes_of_a_small_data_set(loss: str) -> None:
    query = small_classifier(loss)
    places = [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.6, -0.8), (0.0, 0.0)]
    records = list(itertools.product(places, (-1.0, 1.0)))
    rest = [((0.8, 0.6), 1.0), ((-0.6, 0.8), -1.0), ((0.1, 0.1), 1.0)]
    answers = []
    for first in records:
        rows, classes = zip(first, *rest, strict=True)
        answers.append(query.evaluate(query.read((rows, classes))))
    worst = max(apart(a, b) for a, b in itertools.combinations(answers, 2)) * query.lattice
    assert worst <= query.lipschitz
    # far below would mean that the bound, or this test, looks at something else
    assert worst >= query.lipschitz / 6
