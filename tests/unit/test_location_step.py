"""Compiled steps against the plain machine: same sets, same beliefs, exact noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.core.errors import InputError
from shoal.geometry.layers import hull_index
from shoal.loss.location_step import ATTEMPTS, PlanarSteps
from shoal.mechanisms.location_machine import LocationMachine, LocationState
from shoal.models.chain import MarkovChain
from shoal.models.filter import motion_of
from shoal.noise.bits import SeededRng
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.knorm_exact import exact_attempt
from shoal.queries.measurement import Measurement, measurement
from shoal.secrets.location import LocationSet
from shoal.secrets.policy import PolicyGraph

SIDE = 6
ONE = Fraction(1)


def town() -> tuple[MarkovChain, Measurement]:
    """A 6 × 6 map with uneven moves to cells at most one away."""
    cells = [(x, y) for y in range(SIDE) for x in range(SIDE)]
    rng = np.random.default_rng(3)
    moves = np.zeros((SIDE**2, SIDE**2))
    for a, (x, y) in enumerate(cells):
        for b, (u, v) in enumerate(cells):
            if max(abs(x - u), abs(y - v)) <= 1:
                moves[a, b] = rng.gamma(0.4) + 0.01
    chain = MarkovChain.normalised(moves, initial=np.full(SIDE**2, SIDE**-2))
    return chain, measurement(chain.states, cells, labels=("x", "y"))


CHAIN, QUERY = town()
POLICIES = {
    "complete": PolicyGraph.complete(CHAIN.states),
    "radius": PolicyGraph.within(QUERY, 2),
    "transitions": PolicyGraph.transitions(CHAIN),
}


def compiled(policy: PolicyGraph, delta: Fraction | None = None) -> PlanarSteps:
    index = hull_index(QUERY.points, policy.edges, policy.groups)
    return PlanarSteps.of(motion_of(CHAIN).forward[0], index, ONE, delta)


class Scripted:
    """Words given in advance, then those of a seed."""

    secure = False

    def __init__(self, words: list[int]) -> None:
        self._words, self._rest = words, SeededRng(11)

    def words(self, count: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:count], self._words[count:]
        rest = self._rest.words(count - len(taken)).tolist()
        return np.array([*taken, *rest], dtype=np.uint64)


def known(place: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    belief = np.zeros(CHAIN.size)
    belief[place] = 1.0
    return belief, belief > 0


@pytest.mark.parametrize("delta", [None, Fraction(1, 20)], ids=str)
@pytest.mark.parametrize("name", POLICIES)
def test_steps_are_those_of_the_plain_machine(name: str, delta: Fraction | None) -> None:
    policy = POLICIES[name]
    places: Any = policy if delta is None else LocationSet(policy=policy, delta=delta)
    machine = LocationMachine(chain=CHAIN, query=QUERY, places=places, epsilon=ONE)
    steps, rng = compiled(policy, delta), SeededRng(1)
    place = 14
    belief, support = known(place)
    made = 0
    for time in range(1, 25):
        place = int(np.random.default_rng(time).choice(CHAIN.size, p=CHAIN.transition[place]))
        state = LocationState(time, belief.astype(np.float32), np.packbits(support))
        belief = state.belief.astype(np.float64)
        found = steps.step(belief, support, place, rng)
        if found is None:
            plain, _ = machine.step(state, CHAIN.states[place], rng)
        else:
            plain, release = machine.absorb(state, ((machine, found.z.tolist()),))
            made += 1
            assert np.allclose(plain.belief, found.belief, rtol=1e-5, atol=1e-12)
            assert np.allclose(release.estimate, found.estimate, rtol=1e-9)
            assert np.array_equal(plain.support, np.packbits(found.support))
        belief = plain.belief.astype(np.float64)
        support = np.unpackbits(plain.support, count=CHAIN.size).astype(np.bool_)
    assert made > 15


def test_an_undecided_attempt_is_finished_with_its_own_words() -> None:
    """A word of zeros begins a uniform real below every power of e that floats can tell."""
    steps = compiled(POLICIES["radius"])
    words = SeededRng(2).words(3 * ATTEMPTS).tolist()
    words[0] = 2  # 63 bits of value 1: the first magnitude is beyond what floats decide
    found = steps.step(CHAIN.initial, CHAIN.initial > 0, 14, Scripted(words))
    assert found is not None
    machine = LocationMachine(chain=CHAIN, query=QUERY, places=POLICIES["radius"], epsilon=ONE)
    noise = LatticeKNorm(body=machine.scene(machine.init()).stage.protected.body, epsilon=ONE)
    rng = Scripted([*words][3 * ATTEMPTS :])
    row = exact_attempt(words[:3], noise.body, ONE, noise.proposal, rng)
    drawn = noise.draw(rng) if row is None else row
    assert (found.z - QUERY.points[14]).tolist() == list(drawn)


def test_rejected_attempts_are_followed_by_fresh_words() -> None:
    minus_zero = 2**64 - 1
    steps = compiled(POLICIES["radius"])
    rng = Scripted([minus_zero] * 3 * ATTEMPTS)
    found = steps.step(CHAIN.initial, CHAIN.initial > 0, 14, rng)
    assert found is not None
    assert found.belief.sum() == pytest.approx(1.0)


def test_beliefs_that_underflow_are_formed_in_logarithms() -> None:
    """The belief rules the true state out, the support does not, and e^-800 is 0 in doubles."""
    chain = MarkovChain.of(np.eye(3), initial=[0.4, 0.3, 0.3])
    corner = np.array([[0, 0], [1, 0], [0, 1]])
    index = hull_index(corner, np.zeros((0, 2), np.int64), np.zeros(3))
    steps = PlanarSteps.of(motion_of(chain).forward[0], index, Fraction(800))
    everybody = np.ones(3, dtype=np.bool_)
    found = steps.step(np.array([1.0, 0.0, 0.0]), everybody, 1, SeededRng(1))
    assert found is not None
    assert found.z.tolist() == [1, 0]
    assert found.belief.tolist() == [1.0, 0.0, 0.0]
    assert found.estimate.tolist() == [0.0, 0.0]


def test_outputs_beyond_62_bits_are_absorbed() -> None:
    """Noise this wide makes every compiled attempt undecided."""
    chain = MarkovChain.of(np.eye(3), initial=[0.4, 0.3, 0.3])
    index = hull_index([[0, 0], [1, 0], [0, 1]], np.zeros((0, 2), np.int64), np.zeros(3))
    steps = PlanarSteps.of(motion_of(chain).forward[0], index, Fraction(1, 10**25))
    found = steps.step(chain.initial, np.ones(3, dtype=np.bool_), 1, SeededRng(1))
    assert found is not None
    assert max(abs(int(value)) for value in found.z) > 2**64
    assert found.belief == pytest.approx([0.4, 0.3, 0.3])


def test_what_is_not_plain_is_handed_back() -> None:
    chain = MarkovChain.of(np.eye(4), initial=[0.25] * 4)
    forward = motion_of(chain).forward[0]
    points = np.array([[0, 0], [2, 1], [4, 2], [50, 60]])
    support = np.ones(4, dtype=np.bool_)
    nobody = np.full(4, -1)
    cases = {
        "flat": np.array([[0, 1], [1, 2]]),
        "exposed": np.array([[0, 1], [1, 2], [0, 2]]),
    }
    rng = SeededRng(1)
    for edges in cases.values():
        steps = PlanarSteps.of(forward, hull_index(points, edges, nobody), ONE)
        assert steps.step(chain.initial, support, 0, rng) is None
    scattered = np.array([[0, 0], [2, 1], [4, 5], [50, 60]])
    steps = PlanarSteps.of(forward, hull_index(scattered, cases["exposed"], nobody), ONE)
    assert steps.step(chain.initial, support, 0, rng) is None  # the last state is exposed
    everybody = hull_index(scattered, np.zeros((0, 2), np.int64), np.zeros(4))
    assert PlanarSteps.of(forward, everybody, ONE).step(chain.initial, support, 0, rng) is not None
    alone = np.array([True, False, False, False])
    assert PlanarSteps.of(forward, everybody, ONE).step(chain.initial, alone, 0, rng) is None
    half = PlanarSteps.of(forward, everybody, ONE, Fraction(1, 4))
    assert half.step(np.array([0.4, 0.35, 0.2, 0.05]), support, 0, rng) is None  # exactly 3/4
    with pytest.raises(InputError, match="mixes cliques and edges"):
        PlanarSteps.of(forward, hull_index(points, cases["flat"], np.array([0, 0, 1, 1])), ONE)
