"""Policies on any point set, collinear, duplicate and far ones too: what must always hold."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from shoal.core.errors import InputError
from shoal.core.motion import motion_of
from shoal.geometry.body import symmetric_hull
from shoal.places.policy import REPAIRS, PolicyGraph, location_set, surrogates
from shoal.places.queries import Measurement, measurement
from shoal.places.step import (
    PolicyIndex,
    StepQuestion,
    cross_polytope,
    plain_hull,
    protect_together,
    same,
)
from tests.contract.tasks import SPARSE, chain
from tests.policies import against, constrained_factor, degrees, join_all, protect

SHAPES = {"k-norm": same, "laplace": cross_polytope}


@st.composite
def point_sets(draw: Any, dimensions: tuple[int, ...] = (1, 2, 3)) -> np.ndarray[Any, Any]:
    """Up to eight points: random, on a line, equal, or with one far away."""
    d = draw(st.sampled_from(dimensions))
    size = draw(st.integers(2, 8))
    kind = draw(st.sampled_from(["random", "line", "equal", "far"]))
    small = st.integers(-4, 4)
    if kind == "equal":
        return np.tile(draw(st.lists(small, min_size=d, max_size=d)), (size, 1))
    if kind == "line":
        step = np.array(draw(st.lists(small, min_size=d, max_size=d)))
        places = np.array(draw(st.lists(small, min_size=size, max_size=size)))
        return np.asarray(places[:, None] * step)
    rows = draw(st.lists(st.lists(small, min_size=d, max_size=d), min_size=size, max_size=size))
    points = np.array(rows)
    if kind == "far":
        points[-1] = 10**6
    return points


@st.composite
def policies(draw: Any, dimensions: tuple[int, ...] = (1, 2, 3)) -> tuple[PolicyIndex, Any]:
    """A random graph with cliques, and a random constraint of two states or more."""
    points = draw(point_sets(dimensions))
    size = len(points)
    pairs = list(itertools.combinations(range(size), 2))
    edges = draw(st.lists(st.sampled_from(pairs), max_size=6))
    groups = draw(st.lists(st.integers(-1, 2), min_size=size, max_size=size))
    policy = PolicyGraph(
        states=tuple(map(str, range(size))),
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        groups=np.array(groups),
        title="random",
        repair=draw(st.sampled_from(REPAIRS)),
    )
    members = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    assume(members.sum() >= 2)
    return PolicyIndex(policy, points), members


@given(policies(), st.sampled_from(sorted(SHAPES)))
@settings(max_examples=100, deadline=None)
def test_after_the_repair_every_member_is_protected(drawn: Any, shape: str) -> None:
    index, members = drawn
    repaired = protect(index, members, SHAPES[shape])
    points, body = index.points, repaired.body
    assert min(degrees(points, members, body).values()) > 1
    for a, b in [*index.policy.edges_among(members), *repaired.added]:
        assert body.contains((points[a] - points[b])[None, :]).all()
    assert set(repaired.added.ravel().tolist()) <= set(np.flatnonzero(members).tolist())
    # repairs are for exposed states only, and none is needed twice
    assert all({int(a), int(b)} & set(repaired.exposed.tolist()) for a, b in repaired.added)
    assert len(repaired.added) <= len(repaired.exposed)


@given(policies((2,)))
@settings(max_examples=100, deadline=None)
def test_the_compiled_index_agrees_with_the_definitions(drawn: Any) -> None:
    index, members = drawn
    policy, points = index.policy, index.points
    edges = policy.edges_among(members)
    by_hand = symmetric_hull((points[edges[:, 0]] - points[edges[:, 1]]).reshape(-1, 2))
    assert index.hull(members) == by_hand == plain_hull(policy, points, members)
    assert index.alone(members).tolist() == policy.alone(members).tolist()
    lonely = [s for s in np.flatnonzero(members) if s not in edges]
    assert index.alone(members).tolist() == lonely
    assert index.stand_ins(members).tolist() == surrogates(points, members).tolist()


@given(policies())
@settings(max_examples=60, deadline=None)
def test_stand_ins_are_nearest_members_with_ties_by_index(drawn: Any) -> None:
    index, members = drawn
    inside = np.flatnonzero(members)
    for state, answering in enumerate(surrogates(index.points, members).tolist()):
        distances = ((index.points[inside] - index.points[state]) ** 2).sum(axis=1)
        assert answering == (state if members[state] else int(inside[distances.argmin()]))


@given(policies((1, 2)))
@settings(max_examples=60, deadline=None)
def test_joining_all_leaves_nobody_without_an_edge(drawn: Any) -> None:
    index, members = drawn
    joined = join_all(index, members)
    edges = np.concatenate([index.policy.edges_among(members), joined.added])
    assert set(np.flatnonzero(members).tolist()) <= set(edges.ravel().tolist())


@given(policies((1, 2)))
@settings(max_examples=60, deadline=None)
def test_the_factor_of_a_constraint_is_the_largest_norm_between_its_states(drawn: Any) -> None:
    index, members = drawn
    body = protect(index, members).body
    inside = np.flatnonzero(members)
    pairs = list(itertools.combinations(inside, 2))
    norms = body.norm(np.array([index.points[a] - index.points[b] for a, b in pairs]))
    every = [norms.fraction(k) for k in range(len(pairs))]
    largest = float("inf") if None in every else max(n for n in every if n is not None)
    assert constrained_factor(index.points, members, body) == largest
    told = against(index.policy, index.points, members, body, members)
    assert told.holds
    assert told.factor == float(largest)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=9).filter(any), st.fractions(0, 1))
@settings(max_examples=150, deadline=None)
def test_location_sets_are_the_fewest_states_with_their_ties(
    counts: list[int], delta: Fraction
) -> None:
    assume(0 < delta < 1)
    whole = sum(counts)
    prior = np.array([Fraction(count, whole) for count in counts], dtype=object)
    chosen = location_set(prior, delta)
    mass = sum(p for p, taken in zip(prior, chosen, strict=True) if taken)
    assert mass >= 1 - delta
    fewest = next(
        k for k in range(1, len(counts) + 1) if sum(sorted(prior, reverse=True)[:k]) >= 1 - delta
    )
    least = min(p for p, taken in zip(prior, chosen, strict=True) if taken)
    assert int((prior > least).sum()) < fewest <= int(chosen.sum())
    assert all(taken == (p >= least) for p, taken in zip(prior, chosen, strict=True) if p)
    assert not chosen[prior == 0].any()
    floats = np.array([float(p) for p in prior])
    assert floats[~location_set(floats, delta)].sum() <= float(delta) + 1e-12


@given(point_sets((1, 2)), st.integers(1, 6), st.fractions(Fraction(1, 4), 6))
@settings(max_examples=60, deadline=None)
def test_radius_and_nearest_graphs_follow_their_definitions(
    points: np.ndarray[Any, Any], k: int, radius: Fraction
) -> None:
    names = tuple(map(str, range(len(points))))
    query = Measurement(
        states=names,
        labels=tuple("xyz"[: points.shape[1]]),
        points=points,
        step=Fraction(1, 3),
        unit="km",
    )
    pairs = list(itertools.combinations(range(len(points)), 2))
    squared = {p: int(((points[p[0]] - points[p[1]]) ** 2).sum()) for p in pairs}
    near = [list(p) for p in pairs if Fraction(squared[p], 9) <= radius**2]
    assert PolicyGraph.within(query, radius).all_edges().tolist() == near
    chosen = set()
    for state in range(len(points)):
        others = [o for o in range(len(points)) if o != state]
        others.sort(key=lambda o: (squared[min(state, o), max(state, o)], o))
        chosen |= {(min(state, o), max(state, o)) for o in others[:k]}
    assert PolicyGraph.nearest(query, k).all_edges().tolist() == [list(p) for p in sorted(chosen)]


def test_transition_graphs_join_states_that_can_follow_one_state() -> None:
    model = chain(SPARSE, "abc", None)
    assert PolicyGraph.transitions(model).all_edges().tolist() == [[0, 1], [0, 2], [1, 2]]
    path = chain([[0, 1, 0], [0, 0, 1], [0.5, 0.5, 0]], "abc", None)
    assert PolicyGraph.transitions(path).all_edges().tolist() == [[0, 1]]
    assert motion_of(path).size == 3


def test_unions_keep_every_edge_of_both() -> None:
    complete = PolicyGraph.complete("abcd")
    pairs = PolicyGraph.of("abcd", [("a", "b"), ("c", "d")])
    halves = PolicyGraph.categories("abcd", ["ab", "cd"])
    others = PolicyGraph.categories("abcd", ["ac", "bd"])
    assert (pairs | complete).is_complete
    assert (complete | pairs).all_edges().tolist() == complete.all_edges().tolist()
    assert (halves | pairs).all_edges().tolist() == [[0, 1], [2, 3]]
    assert (halves | others).all_edges().tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert (others | halves).all_edges().tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert not halves.is_complete
    with pytest.raises(InputError, match="different states"):
        _ = complete | PolicyGraph.complete("abc")


def test_graphs_come_from_networkx_and_partners_are_preferred() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.path_graph(["a", "b", "c"])
    assert PolicyGraph.from_networkx(graph).all_edges().tolist() == [[0, 1], [1, 2]]
    with pytest.raises(InputError, match="directed"):
        PolicyGraph.from_networkx(networkx.DiGraph([("a", "b")]))
    query = measurement("abc", [[0], [1], [5]])
    alone = PolicyGraph.of("abc", [], partners={"a": "c"})
    everybody = np.ones(3, dtype=np.bool_)
    added = protect(PolicyIndex(alone, query.points), everybody).added
    assert added.tolist()[0] == [0, 2]
    without = np.array([True, True, False])
    assert protect(PolicyIndex(alone, query.points), without).added.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PolicyGraph.of("ab", [("a", "c")]), "names 'c'"),
        (lambda: PolicyGraph.of("ab", [("a", "a")]), "to itself"),
        (lambda: PolicyGraph.of("ab", [], partners={"a": "a"}), "partners must give"),
        (lambda: PolicyGraph.of("ab", [], repair="cheap"), "repair is 'cheap'"),  # type: ignore[arg-type]
        (lambda: PolicyGraph.categories("ab", ["ac"]), "names 'c'"),
        (lambda: PolicyGraph.categories("ab", ["ab", "a"]), "names 'a' twice"),
        (lambda: PolicyGraph.within(measurement("ab", [[0], [1]]), 0), "radius is 0"),
        (lambda: PolicyGraph.nearest(measurement("ab", [[0], [1]]), 0), "k is 0"),
        (lambda: measurement("ab", [[0]]), "1 rows for 2 states"),
        (lambda: measurement("ab", [[0], [1, 2]]), "each state 1 numbers"),
        (lambda: measurement("ab", {"a": [0], "c": [1]}), "look at 'b'"),
        (lambda: measurement("ab", [["1e-12"], ["1"]]), "coarser step"),
    ],
)
def test_policies_and_measurements_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_measurements_are_snapped_once_and_publicly() -> None:
    query = measurement("abc", {"a": ["0.34"], "b": ["0.68"], "c": ["1"]}, step="0.1", unit="km")
    assert query.points.ravel().tolist() == [3, 7, 10]
    exact = measurement("abc", [[0.34], [0.68], [1.02]])
    assert (exact.step, exact.points.ravel().tolist()) == (Fraction("0.34"), [1, 2, 3])
    assert exact.lipschitz == Fraction("0.68")
    assert exact.evaluate(exact.read(["a", "c", "b"])) == (2,)
    wide = measurement("ab", [[0, 0, 0], [1, -2, 3]])
    assert wide.lipschitz == 6


@given(policies(dimensions=(1, 2)), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_one_member_protects_a_state_in_all_questions_of_a_step(case: Any, seed: int) -> None:
    """Who is near in one question only is no protector: the outputs together tell them apart."""
    index, members = case
    rng = np.random.default_rng(seed)
    elsewhere = rng.permutation(index.points) * rng.choice([1, 3], index.points.shape)
    asked = [StepQuestion(index), StepQuestion(PolicyIndex(index.policy, elsewhere))]
    repaired = protect_together(asked, members)
    for state in index.alone(members).tolist():
        near = members.copy()
        for question, found in zip(asked, repaired, strict=True):
            points = question.policy.points
            near[near] = found.body.contains(points[near] - points[state])
        assert near.sum() > 1
