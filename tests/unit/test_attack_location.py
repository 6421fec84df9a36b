"""Errors of an adversary against streams of places: best guesses, correctness, certainty."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.attack import attack_locations, best_guess, errors_of, path_distance
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from tests.locations import town

CORNERS = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("numbers", [1, 2, 3])
def test_no_guess_is_expected_nearer_than_the_best(seed: int, numbers: int) -> None:
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    values = rng.integers(0, 6, size=(12, numbers)).astype(float)
    law = rng.dirichlet(np.full(12, 0.3))

    def expected(guess: np.ndarray) -> float:
        return float(law @ np.sqrt(((values - guess) ** 2).sum(axis=1)))

    guess, least = best_guess(law, values)
    assert least == pytest.approx(expected(guess))
    tried = [minimize(expected, value, method="Nelder-Mead").fun for value in values[:4]]
    tried += [expected(value) for value in values]
    assert least <= min(tried) * (1 + 1e-4) + 1e-9


def test_a_guess_is_the_place_of_who_is_there_for_sure() -> None:
    guess, least = best_guess(np.array([0.0, 1.0, 0.0]), CORNERS)
    assert guess.tolist() == [4.0, 0.0]
    assert least == 0
    half = best_guess(np.array([0.6, 0.4, 0.0]), CORNERS)
    assert half[0].tolist() == [0.0, 0.0]
    assert half[1] == pytest.approx(1.6)


def test_measures_of_privacy_by_hand() -> None:
    laws = np.array([[0.6, 0.4, 0.0], [0.2, 0.2, 0.6], [0.5, 0.5, 0.0]])
    found = errors_of(laws, CORNERS, [0, 1, None])
    assert found.correctness[:2] == pytest.approx([0.4 * 4, 0.2 * 4 + 0.6 * 5])
    assert found.distance[0] == 0
    assert found.right[:2].tolist() == [1, 0]
    assert found.belief[:2].tolist() == [0.6, 0.2]
    assert np.isnan(
        [found.distance[2], found.correctness[2], found.right[2], found.belief[2]]
    ).all()
    bits = [-(0.6 * math.log2(0.6) + 0.4 * math.log2(0.4))]
    bits += [-(0.4 * math.log2(0.2) + 0.6 * math.log2(0.6)), 1.0]
    assert found.bits == pytest.approx(bits)
    measured = found.privacy()
    assert measured.correctness == pytest.approx((1.6 + 3.8) / 2)
    assert measured.certainty == pytest.approx(np.mean(bits))
    assert measured.accuracy == 0.5
    assert found.mean == pytest.approx(found.distance[:2].mean())
    assert path_distance([0, 1, 2], CORNERS, [0, 2, None])[:2].tolist() == [0, 5]


@pytest.mark.parametrize(
    ("truth", "message"), [([0], "truth has 1 steps"), ([None, None], "truth knows no step")]
)
def test_a_truth_that_says_nothing_is_refused(truth: list[int | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        errors_of(np.full((2, 3), 1 / 3), CORNERS, truth)


@pytest.mark.parametrize("delta", [None, Fraction(1, 10)])
@pytest.mark.parametrize("start", [None, "2,2"])
def test_the_belief_as_it_goes_on_is_the_one_the_stream_keeps(
    delta: Fraction | None, start: str | None
) -> None:
    """The machine follows it in single precision for its estimates, in code of its own."""
    chain = town(6, 6)
    query = coordinates(chain)
    policy = PolicyGraph.within(query, "0.75")
    places = policy if delta is None else LocationSet(policy=policy, delta=delta)
    plan = calibrate(query, places, chain, epsilon=1, mechanism="location-knorm")
    stream, rng, outputs, estimates = LocationStream.begin(plan, start), SeededRng(7), [], []
    for t, place in enumerate(chain.sample(25, SeededRng(3))):
        reading = None if t % 5 == 4 else chain.states[place]
        stream, release = stream.read(reading, rng=rng)
        outputs.append(release.z)
        estimates.append(release.estimate)
    found = attack_locations(plan, outputs, start=start)
    assert found.filtered.after[-1] == pytest.approx(stream.state.belief, abs=1e-5)
    assert found.filtered.after @ query.values == pytest.approx(np.array(estimates), abs=1e-4)


def test_more_outputs_and_more_epsilon_bring_the_adversary_nearer() -> None:
    """Means over 20 streams of 20 steps on a map of 36 cells; the seeds are fixed."""
    chain = town(6, 6)
    query = coordinates(chain)
    policy = PolicyGraph.within(query, "0.75")
    means = {}
    for epsilon in ("0.5", "2"):
        plan = calibrate(query, policy, chain, epsilon=epsilon, mechanism="location-knorm")
        errors = []
        for seed in range(20):
            track = [int(x) for x in chain.sample(20, SeededRng(seed))]
            stream, rng, outputs = LocationStream.begin(plan), SeededRng(100 + seed), []
            for place in track:
                stream, release = stream.read(chain.states[place], rng=rng)
                outputs.append(release.z)
            beliefs = attack_locations(plan, outputs)
            found = [beliefs.errors(track, by) for by in ("nothing", "past", "all")]
            errors.append([one.mean for one in found] + [one.expected.mean() for one in found])
        means[epsilon] = np.mean(errors, axis=0)
    for nothing, past, everything, *believed in means.values():
        assert nothing > past > everything
        # with the chain the person follows, the adversary's own view of the error is right
        assert believed == pytest.approx([nothing, past, everything], rel=0.15)
    assert means["0.5"][2] > means["2"][2] * 1.5
