"""Contagion: groups, laws, events and samples."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from shoal.core.errors import InputError, Refused
from shoal.core.registry import dumps, loads
from shoal.core.task import EachEntry
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import count
from shoal.mechanisms.variables import variable_sum
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.parts import independent_parts
from shoal.noise.primitives import SeededRng
from tests.contract.network_tasks import FLU, crowd
from tests.networks.models import joint_of

ILL = ("well", "ill")


def test_groups_are_the_connected_components() -> None:
    model = Contagion.from_edges("abcde", [("a", "c"), ("c", "e"), ("b", "b")], exponential_law(1))
    assert model.groups == ((0, 2, 4), (1,), (3,))
    assert model.tied == 3
    assert model.which == (0, 1, 1)  # the two alone follow one law
    assert model.describe() == "contagion among 5 people in 3 independent group(s) of at most 3"


def test_the_exponential_law_of_the_paper() -> None:
    law = exponential_law(2)(4)
    weights = [math.exp(2 * j) for j in range(5)]
    assert law == pytest.approx(np.array(weights) / sum(weights), rel=1e-14)
    assert exponential_law(-1000)(3)[0] == 1.0  # no overflow, whichever way it leans
    assert exponential_law(1000)(3)[3] == 1.0


def test_laws_given_any_event_against_all_outcomes() -> None:
    model = crowd()
    law = joint_of(model)
    assert law.sum() == pytest.approx(1.0)
    ill = np.indices(law.shape).sum(axis=0)
    places = np.indices(law.shape)
    query = count(ILL, "ill")
    for one, two in itertools.permutations(("p0", "p1", "p4", "p8", "p9"), 2):
        event = Event.of("a", {one: "ill", two: "well"})
        other = Event.of("b", {one: "well"})
        task = independent_parts(model, query, SecretPairs.of([(event, other)]))
        part = task.parts[0]
        names = [model.variables.index(name) for name in (one, two)]
        held = np.where((places[names[0]] == 1) & (places[names[1]] == 0), law, 0.0)
        assert part.prior[0] == pytest.approx(held.sum())
        members = [p for c in part.spans for p in model.groups[c]]
        inside = places[members].sum(axis=0)
        expected = np.bincount(inside.ravel(), held.ravel(), len(part.laws.values)) / held.sum()
        assert part.laws.laws[0] == pytest.approx(expected, abs=1e-12)
    assert ill.max() == 10


def test_samples_follow_the_law() -> None:
    model = crowd()
    rng = SeededRng(11)
    ill = np.array([[s == "ill" for s in model.sample(rng)] for _ in range(4000)])
    law = joint_of(model)
    for person in range(10):
        chance = law.sum(axis=tuple(a for a in range(10) if a != person))[1]
        assert ill[:, person].mean() == pytest.approx(chance, abs=5 * 0.5 / math.sqrt(4000))
    pairs = (ill[:, 8] & ill[:, 9]).mean()
    assert pairs == pytest.approx(0.3, abs=5 * 0.5 / math.sqrt(4000))


def test_many_people_are_planned_for_at_once() -> None:
    """10,000 people: the plan of the largest group, whatever the others add."""
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 51, size=400).tolist()
    model = Contagion.cliques(sizes, exponential_law(0.1))
    alone = Contagion.cliques(sorted(set(sizes)), exponential_law(0.1))
    query = count(ILL, "ill")
    one = calibrate(query, EachEntry(), model, epsilon=1, mechanism="exact")
    two = calibrate(query, EachEntry(), alone, epsilon=1, mechanism="exact")
    assert one.body.noise.scale == two.body.noise.scale  # type: ignore[union-attr]
    release = one.release(model.sample(SeededRng(1)), rng=SeededRng(2))
    assert len(release.answer.multiples) == 1


def test_stored_and_loaded_again() -> None:
    assert loads(dumps(crowd())) == crowd()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Contagion.cliques([4], [0.5, 0.5]), "it needs 5 numbers"),
        (lambda: Contagion.cliques([4, 3], {4: FLU}), "no entry for groups of 3"),
        (lambda: Contagion.from_edges("ab", [("a", "x")], FLU), "edges names 'x'"),
        (lambda: Contagion.from_edges("ab", [], [1, 0], tables={"x": [1, 0]}), "tables names 'x'"),
        (lambda: Contagion.cliques([1], [0.5, 0.6]), "sums to 1.1"),
        (lambda: Contagion.cliques([1], [1, 0], states="abc"), "one of two states"),
        (
            lambda: Contagion.from_edges("ab", [("a", "b")], [1, 0, 0], tables={"a": [1, 0]}),
            "the law of group 0 has shape",
        ),
        (
            lambda: Contagion(
                variables=("a", "b"), groups=((0,),), which=(0,), laws=(np.array([1, 0.0]),)
            ),
            "every person exactly once",
        ),
        (lambda: Contagion.cliques([0, 1], {0: [1], 1: [1, 0]}), "group 0 is empty"),
        (
            lambda: Contagion.from_edges(
                "ab", [("a", "b")], FLU, tables={"a": np.eye(2) / 2, "b": np.eye(2) / 2}
            ),
            "'a' and 'b', who are in one group",
        ),
        (lambda: exponential_law(float("nan")), "rate is nan"),
    ],
    ids=range(11),
)
def test_what_is_refused(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("rate", [2.0, -2.0, 1e6])
def test_no_number_of_people_becomes_impossible(rate: float) -> None:
    """e^-800 is 0 as a double; 400 people at rate 2 may still all be well."""
    law = Contagion.cliques([400], exponential_law(rate)).laws[0]
    assert (law > 0).all()
    assert law.sum() == pytest.approx(1, abs=1e-12)


def test_weights_per_person_too_many_to_count_are_refused_in_words() -> None:
    model = Contagion.cliques([60], exponential_law(0.1))
    query = variable_sum(model, {name: {"ill": 1 + i} for i, name in enumerate(model.variables)})
    with pytest.raises(Refused, match="use lift or group, or coarser weights"):
        independent_parts(model, query, EachEntry())
    assert calibrate(query, EachEntry(), model, epsilon=1).mechanism in ("lift", "group")
