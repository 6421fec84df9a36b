"""The social attack against Bayes' rule carried out by hand on a handful of people."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import shoal
from shoal.core.errors import InputError
from shoal.core.plan import Additive
from shoal.mechanisms.plans import split_rounds
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.primitives import SeededRng
from shoal.records.attack import bits_allowed, entropy_bits, gain_bits, largest_fall_bits
from shoal.records.kmeans import Centroids, Points
from shoal.records.pairwise import RecordGroups
from shoal.records.place_attack import (
    FRIENDSHIP,
    City,
    FriendAdversary,
    People,
    ReleasedCentroids,
    UnknownPeople,
    distances_of_pairs,
    km_between,
    locate,
    location_vector,
    pattern_km,
    weighted_median,
)

CITY = City(south=0.0, west=0.0, north=1.0, east=1.0, cells=4)


def small_town(count: int = 7, places: int = 2, seed: int = 0) -> People:
    draw = np.random.default_rng(seed)
    friends = [(0, 1), (0, 2), (3, 4)]
    return People(CITY, draw.random((count, 2 * places)), np.array(friends))


def planned(query: Centroids, epsilon: float) -> shoal.Plan:
    return shoal.calibrate(query, shoal.EachEntry(), RecordGroups(1), epsilon=epsilon)


def everybody(people: People) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ones(len(people), dtype=bool)


def by_hand(
    people: People, query: Centroids, plan: shoal.Plan, answer: Any, target: int
) -> list[float]:
    """log P(answer | the target's vector is that of each other person), by the noise's own law."""
    assert isinstance(plan.body, Additive)
    noise = plan.body.noise
    assert isinstance(noise, LatticeLaplace)
    found = []
    rounds = split_rounds(answer.multiples, query.rounds)
    for other in (k for k in range(len(people)) if k != target):
        rows = people.vectors.copy()
        rows[target] = people.vectors[other]
        records = Points(query.on_grid(rows))
        total = 0.0
        for r, released in enumerate(rounds):
            truth = query.ask(records, rounds[:r])
            total += sum(noise.log_probability(o - t) for o, t in zip(released, truth, strict=True))
        found.append(total)
    return found


@pytest.mark.parametrize("target", [0, 5])
@pytest.mark.parametrize("ties", [False, True])
def test_the_posterior_is_bayes_rule(target: int, ties: bool) -> None:
    people = small_town()
    query = CITY.query(2, clusters=2, rounds=3)
    plan = planned(query, 40)
    answer = plan.release(people.vectors, rng=SeededRng(3)).answer
    scale = float(plan.body.noise.scale)  # type: ignore[union-attr]
    adversary = FriendAdversary(people=people, known=everybody(people), ties=ties)
    seen = ReleasedCentroids(query, answer, scale, people)
    log = seen.log_likelihood(adversary, target)
    expected = by_hand(people, query, plan, answer, target)
    assert log - log[0] == pytest.approx(np.array(expected) - expected[0], abs=1e-9)

    others = [k for k in range(7) if k != target]
    friends = {0: [1, 2], 5: []}[target]
    weight = [
        sum(
            float(pattern_km(people.vectors[k], people.vectors[f]) / FRIENDSHIP.b + 1)
            ** -FRIENDSHIP.c
            for f in friends
        )
        if ties and friends
        else 1.0
        for k in others
    ]
    joint = [w * math.exp(e - expected[0]) for w, e in zip(weight, expected, strict=True)]
    after = np.zeros(CITY.size)
    for k, mass in zip(others, joint, strict=True):
        after[people.cells()[k]] += mass / sum(joint)
    found = locate(adversary, seen, target)
    assert found.after == pytest.approx(after, abs=1e-9)
    assert found.before.sum() == pytest.approx(1)
    assert found.before[people.cells()[others[0]]] >= 1 / 6 - 1e-12  # Eq. (8): a share of people


def test_before_a_release_the_adversary_has_the_prior_only() -> None:
    people = small_town()
    found = locate(FriendAdversary(people=people, known=everybody(people), ties=True), None, 0)
    assert found.release_bits == 0
    assert found.leaked_bits == found.ties_bits != 0
    alone = locate(FriendAdversary(people=people, known=everybody(people), ties=True), None, 6)
    assert alone.ties_bits == 0  # somebody without friends


def test_no_single_release_tells_more_than_epsilon_about_somebody_whose_neighbours_are_known() -> (
    None
):
    """Every output moves every belief by a factor of e^ε at most, ties or not."""
    people = small_town(count=6)
    query = CITY.query(2, clusters=2, rounds=2)
    for epsilon, seed in itertools.product((0.5, 3.0), range(5)):
        plan = planned(query, epsilon)
        answer = plan.release(people.vectors, rng=SeededRng(seed)).answer
        seen = ReleasedCentroids(query, answer, float(plan.body.noise.scale), people)  # type: ignore[union-attr]
        for ties in (False, True):
            adversary = FriendAdversary(people=people, known=everybody(people), ties=ties)
            for target in range(6):
                log = seen.log_likelihood(adversary, target)
                assert log.max() - log.min() <= epsilon * (1 + 1e-9)
                found = locate(adversary, seen, target)
                assert found.release_bits <= bits_allowed(epsilon) + 1e-9
                assert found.leaked_bits - found.ties_bits <= largest_fall_bits(
                    found.prior, epsilon
                )


def test_noise_too_small_would_tell_more() -> None:
    """A control: the attack notices noise divided by fifty."""
    people = small_town(count=6)
    query = CITY.query(2, clusters=2, rounds=2)
    plan = planned(query, 50)
    answer = plan.release(people.vectors, rng=SeededRng(1)).answer
    seen = ReleasedCentroids(query, answer, float(plan.body.noise.scale), people)  # type: ignore[union-attr]
    adversary = FriendAdversary(people=people, known=everybody(people), ties=False)
    log = seen.log_likelihood(adversary, 0)
    assert log.max() - log.min() > 1


def test_the_bound_in_expectation_is_in_nats_not_bits() -> None:
    """Three values, randomised response at ε = 1: the golden mutual information."""
    high = math.e / (math.e + 2)
    law = np.array([high, (1 - high) / 2, (1 - high) / 2])
    told = entropy_bits(np.full(3, 1 / 3)) - entropy_bits(law)
    assert told == pytest.approx(0.1778618783420497, abs=1e-12)
    assert bits_allowed(1) == pytest.approx(1 / math.log(2))
    # k-ary randomised response at ε = 20 tells 23.09 bits: more than 20, less than the true bound
    k, epsilon = 10**8, 20.0
    share = math.exp(epsilon) / (math.exp(epsilon) + k - 1)
    spread = -share * math.log2(share) - (1 - share) * math.log2((1 - share) / (k - 1))
    assert epsilon < math.log2(k) - spread < bits_allowed(epsilon)


def test_one_output_can_take_more_than_the_mean() -> None:
    prior = np.concatenate([[0.5], np.full(10**6, 0.5e-6)])
    fall = largest_fall_bits(prior, 1.0)
    assert fall * math.log(2) == pytest.approx(3.3031363042427797, abs=1e-6)
    assert fall > bits_allowed(1.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=7), st.floats(0.05, 4), st.data())
def test_the_largest_fall_is_found_by_trying_all(
    masses: list[float], epsilon: float, data: st.DataObject
) -> None:
    prior = np.array(masses) / sum(masses)
    best = 0.0
    for choice in itertools.product((1.0, math.exp(epsilon)), repeat=len(masses)):
        law = prior * np.array(choice)
        best = max(best, entropy_bits(prior) - entropy_bits(law / law.sum()))
    assert largest_fall_bits(prior, epsilon) == pytest.approx(best, abs=1e-9)
    loose = np.array([data.draw(st.floats(1, math.exp(epsilon))) for _ in masses]) * prior
    assert entropy_bits(prior) - entropy_bits(loose / loose.sum()) <= best + 1e-9


def test_gain_is_infinite_from_nothing() -> None:
    assert math.isinf(gain_bits(np.array([0.5, 0.5]), np.array([1.0, 0.0])))
    assert gain_bits(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == 1


def test_unknown_people_widen_the_sums_and_unknown_friends_move_with_the_target() -> None:
    people = small_town(count=40)
    known = everybody(people)
    known[[0, 1, 2, 7, 8]] = False
    query = CITY.query(2, clusters=2, rounds=2)
    plan = planned(query, 30)
    answer = plan.release(people.vectors, rng=SeededRng(0)).answer
    seen = ReleasedCentroids(query, answer, float(plan.body.noise.scale), people)  # type: ignore[union-attr]
    friend = FriendAdversary(people=people, known=known, ties=True)
    blind = FriendAdversary(people=people, known=known, ties=False)
    assert (friend.unseen_friends(0), blind.unseen_friends(0)) == (2, 0)
    tied, untied = (seen.log_likelihood(one, 0) for one in (friend, blind))
    assert np.ptp(tied) > np.ptp(untied)  # three people move instead of one
    # a normal density written out
    parts = seen.parts[friend.values(0)]
    spread = np.cov(parts, rowvar=False, bias=True)
    spread += parts.shape[1] / len(parts) * np.diag(np.diag(spread))
    full = 2 * np.eye(parts.shape[1]) + 4 * spread
    gaps = seen.output - parts.sum(axis=0) - 4 * parts.mean(axis=0) - parts
    expected = [-0.5 * gap @ np.linalg.solve(full, gap) for gap in gaps]
    assert untied - untied[0] == pytest.approx(np.array(expected) - expected[0], abs=1e-7)
    crowd = UnknownPeople.of(parts, np.eye(len(parts)), 4)
    assert crowd.friends == pytest.approx(crowd.own)


def test_distances_are_those_of_the_globe() -> None:
    degree = math.pi / 180 * 6371.0088
    assert km_between(np.array([0.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(degree)
    assert km_between(np.array([60.0, 0.0]), np.array([60.0, 1.0])) == pytest.approx(
        degree / 2, rel=1e-3
    )
    one, two = np.array([0.0, 0.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0, 0.0])
    assert pattern_km(one, two) == pytest.approx(degree / 2)  # Eq. (5) is a mean over places


def test_people_and_their_vectors() -> None:
    assert location_vector([(1.0, 2.0), (3.0, 4.0)], top=3) == [1.0, 2.0, 3.0, 4.0, 1.0, 2.0]
    with pytest.raises(InputError, match="without a place"):
        location_vector([])
    with pytest.raises(InputError, match="friends names a person outside"):
        People(CITY, np.zeros((2, 4)), np.array([[0, 2]]))
    with pytest.raises(InputError, match="vectors has shape"):
        People(CITY, np.zeros((2, 3)), np.zeros((0, 2), np.int64))
    with pytest.raises(InputError, match="north must lie above south"):
        City(south=1, west=0, north=0, east=1)
    with pytest.raises(InputError, match="at least two people"):
        FriendAdversary(people=small_town(), known=np.zeros(7, bool), ties=True)
    assert CITY.cell_of(np.array([[0.0, 0.0], [0.99, 0.3], [2.0, 2.0]])).tolist() == [0, 13, 15]
    close, far = distances_of_pairs(small_town(), strangers=200)
    assert len(close) == 3
    assert (np.diff(far) >= 0).all()


def test_the_weighted_median_splits_the_weight() -> None:
    rows = np.array([[1.0, 9.0], [2.0, 8.0], [3.0, 7.0]])
    assert weighted_median(rows, np.array([0.2, 0.2, 0.6])).tolist() == [3, 7]
    assert weighted_median(rows, np.ones(3)).tolist() == [2, 8]
