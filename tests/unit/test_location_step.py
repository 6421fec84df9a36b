"""Compiled parts of a step against the plain ones: same stages, same supports, same beliefs."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.mechanisms.choice import choose
from shoal.noise.primitives import SeededRng
from shoal.places import runtime
from shoal.places.machine import LocationMachine
from shoal.places.packed import LocationState
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, measurement
from shoal.places.runtime import posterior_after
from shoal.places.step import PolicyIndex, Question, StepNoise, noises_of, planar_noises
from tests.locations import town_task

SIDE = 6
ONE = Fraction(1)
CORNERS = [(0, 0), (1, 0), (0, 1)]


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
FEW = [("0", "1"), ("0", "6"), ("20", "21"), ("15", "22")]
WISHED = {str(k): str(35 - k) for k in range(9, 18)}
POLICIES = {
    "complete": PolicyGraph.complete(CHAIN.states),
    "radius": PolicyGraph.within(QUERY, 2),
    "transitions": PolicyGraph.transitions(CHAIN),
    "few": PolicyGraph.of(CHAIN.states, FEW),
    "wished": PolicyGraph.of(CHAIN.states, FEW, partners=WISHED),
}


def machine_for(name: str, delta: Fraction | None = None, **given: Any) -> LocationMachine:
    policy = POLICIES[name]
    places: Any = policy if delta is None else LocationSet(policy=policy, delta=delta)
    fields = {"chain": CHAIN, "query": QUERY, "places": places, "epsilon": ONE, **given}
    return LocationMachine(**fields)


def corner_machine(epsilon: Fraction, scale: int = 1) -> LocationMachine:
    chain = MarkovChain.of(np.eye(3), initial=[0.4, 0.3, 0.3])
    corners = [(x * scale, y * scale) for x, y in CORNERS]
    query = measurement(chain.states, corners, labels=("x", "y"), step=1)
    policy = PolicyGraph.complete(chain.states)
    return LocationMachine(chain=chain, query=query, places=policy, epsilon=epsilon)


def same_stage(found: StepNoise, plain: StepNoise) -> None:
    assert np.array_equal(found.members, plain.members)
    assert np.array_equal(found.answering, plain.answering)
    assert np.array_equal(found.law.points, plain.law.points)
    assert np.array_equal(found.protected.body.vertices, plain.protected.body.vertices)
    assert found.protected.before == plain.protected.before
    assert np.array_equal(found.protected.added, plain.protected.added)
    assert np.array_equal(found.protected.exposed, plain.protected.exposed)
    assert found.added == plain.added == plain.protected.added.tolist()
    assert (found.spread, found.joined, found.count) == (plain.spread, plain.joined, plain.count)


@pytest.mark.parametrize("epsilon", [ONE, Fraction(2, 7)], ids=str)
@pytest.mark.parametrize("name", POLICIES)
def test_compiled_stages_are_those_of_the_definitions(name: str, epsilon: Fraction) -> None:
    """On random constraints, repairs too; where there is none, the plain stage begins flat."""
    policy, rng = POLICIES[name], np.random.default_rng(4)
    index = PolicyIndex(policy, QUERY.points)
    stages = planar_noises(policy, index, epsilon, "k-norm")
    assert stages is not None
    made = repaired = 0
    for _ in range(120):
        members = rng.random(CHAIN.size) < rng.random()
        if not members.any():
            continue
        found = stages.noise(members)
        plain = noises_of(policy, members, [Question(index, epsilon, "k-norm")])[0]
        if found is None:
            assert plain.protected.before.dimension < 2
            continue
        made += 1
        repaired += len(found.added) > 0
        same_stage(found, plain)
        assert found.polygon is not None
    assert made > 40
    assert repaired > 12 or name in ("complete", "transitions")


@pytest.mark.parametrize("repair", ["least-area", "least-error"])
def test_repairs_by_area_and_error_are_left_to_the_definitions(repair: Any) -> None:
    policy = PolicyGraph.of(CHAIN.states, FEW, repair=repair)
    stages = planar_noises(policy, PolicyIndex(policy, QUERY.points), ONE, "k-norm")
    assert stages is not None
    members = np.zeros(CHAIN.size, dtype=np.bool_)
    members[[0, 1, 6]] = True
    assert stages.noise(members) is not None
    members[35] = True  # far from the others and joined to none
    assert stages.noise(members) is None


def test_other_stages_are_left_to_the_definitions() -> None:
    def compiled(places: Any, query: Measurement = QUERY, noise: str = "k-norm") -> Any:
        policy = places.policy if isinstance(places, LocationSet) else places
        return planar_noises(places, PolicyIndex(policy, query.points), ONE, noise)

    radius = POLICIES["radius"]
    line = measurement(CHAIN.states, [[k] for k in range(CHAIN.size)], labels=("x",))
    halves = PolicyGraph.categories(CHAIN.states, [CHAIN.states[:20], CHAIN.states[20:]])
    quarter = Fraction(1, 4)
    assert compiled(radius) is not None
    assert compiled(LocationSet(policy=radius, delta=quarter)) is not None
    assert compiled(LocationSet(policy=radius, delta=quarter, everywhere=True)) is None
    assert compiled(radius, noise="laplace") is None
    assert compiled(radius, line) is None
    assert compiled(halves) is None


@pytest.mark.parametrize("noise", ["k-norm", "laplace"])
@pytest.mark.parametrize("delta", [None, Fraction(1, 20)], ids=str)
@pytest.mark.parametrize("name", POLICIES)
def test_compiled_beliefs_are_those_of_the_plain_way(
    name: str, delta: Fraction | None, noise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, rng = machine_for(name, delta, noise=noise), SeededRng(1)
    calls = count_calls(monkeypatch)
    state = machine.init("14")
    for _ in range(25):
        prior = machine.prior(state)
        z = machine.answer(state, "14", rng)
        assert z is not None
        given = [(prior.noise, z)]
        found = posterior_after(machine.runtime, QUERY, state.time, prior, given)
        plain = runtime._posterior_in_logs(machine.runtime, QUERY, state.time, prior, given)
        assert np.allclose(found.belief, plain.belief, rtol=1e-6, atol=0)
        assert np.array_equal(found.support, plain.support)
        assert found.estimate == pytest.approx(plain.estimate, rel=1e-12)
        assert found.spread == pytest.approx(plain.spread, rel=1e-12)
        assert [place for place, _ in found.top] == [place for place, _ in plain.top]
        assert [share for _, share in found.top] == pytest.approx([p for _, p in plain.top])
        assert (found.degree, found.best) == (plain.degree, plain.best)
        state, release = machine.absorb(state, ((machine, z),))
        assert np.array_equal(state.belief, found.belief)
        assert release.estimate == found.estimate
    assert calls["compiled"] >= 40  # steps at which a repair leaves a flat body go the plain way


def count_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often `seen` went the compiled way and was answered."""
    calls, compiled = {"compiled": 0}, runtime._posterior_compiled

    def counted(*given: Any) -> Any:
        found = compiled(*given)
        calls["compiled"] += found is not None
        return found

    monkeypatch.setattr(runtime, "_posterior_compiled", counted)
    return calls


def test_absolute_error_is_remapped_the_plain_way() -> None:
    cells = QUERY.points.tolist()
    query = measurement(CHAIN.states, cells, labels=("x", "y"), estimate="absolute")
    machine = machine_for("radius", query=query)
    prior = machine.prior(machine.init())
    found, plain = (
        way(machine.runtime, query, 0, prior, [(prior.noise, (1, 4))])
        for way in (posterior_after, runtime._posterior_in_logs)
    )
    assert found.estimate == pytest.approx(plain.estimate, rel=1e-9)
    assert found.spread == pytest.approx(plain.spread, rel=1e-9)


def test_ties_of_the_most_probable_go_by_index() -> None:
    """All states count alike: those named are the first, on both ways."""
    machine = machine_for("complete")
    prior = machine.prior(machine.init())
    far = (10**6, 3 * 10**6)  # every likelihood differs, but priors of 0 do not
    level = prior._replace(belief=np.zeros(CHAIN.size))
    for way in (posterior_after, runtime._posterior_in_logs):
        found = way(machine.runtime, QUERY, 0, level, [(prior.noise, far)])
        assert [place for place, _ in found.top] == [0, 1, 2]
        assert found.belief == pytest.approx(np.full(CHAIN.size, 1 / CHAIN.size))
    skipped = runtime._posterior_in_logs(machine.runtime, QUERY, 0, prior, [])
    assert [place for place, _ in skipped.top] == [0, 1, 2]


def test_beliefs_that_underflow_are_formed_in_logarithms() -> None:
    """The belief rules the true state out, the support does not, and e^-800 is 0 in doubles."""
    machine = corner_machine(Fraction(800))
    known = LocationState(1, np.array([1.0, 0.0, 0.0], np.float32), np.packbits([True] * 3))
    after, release = machine.step(known, machine.query.states[1], SeededRng(1))
    assert release.z == (1, 0)
    assert after.belief.tolist() == [1.0, 0.0, 0.0]
    assert release.estimate == (0.0, 0.0)
    assert np.array_equal(after.support, known.support)


def test_outputs_beyond_62_bits_are_absorbed() -> None:
    machine = corner_machine(Fraction(1, 10**25))
    after, release = machine.step(machine.init(), machine.query.states[1], SeededRng(1))
    assert release.z is not None
    assert max(map(abs, release.z)) > 2**64
    assert after.belief.tolist() == pytest.approx([0.4, 0.3, 0.3])


@pytest.mark.parametrize("size", [2**31 - 2**28 - 1, 2**31 - 2**28, 2**31, 2**40])
def test_outputs_at_the_reach_of_compiled_norms(size: int) -> None:
    """The body is as wide as they come: int64 overflows beyond the reach."""
    machine = corner_machine(Fraction(1, 10), 2**28)
    assert machine.query.points.max() == 2**28
    prior = machine.prior(machine.init())
    both = [
        way(machine.runtime, machine.query, 0, prior, [(prior.noise, (size, -size))])
        for way in (posterior_after, runtime._posterior_in_logs)
    ]
    assert both[0].belief == pytest.approx(both[1].belief, rel=1e-6)
    assert both[0].best == pytest.approx(both[1].best, rel=1e-12)


def test_priors_are_made_again_for_another_state() -> None:
    machine, rng = machine_for("radius", Fraction(1, 20)), SeededRng(2)
    first = machine.init("14")
    second, _ = machine.step(first, "14", rng)
    prior = machine.prior(second)
    assert machine.prior(second) is prior
    copied = LocationState(second.time, second.belief.copy(), second.support.copy())
    again = machine.prior(copied)
    assert again is not prior
    assert np.array_equal(again.belief, prior.belief)
    other = machine.prior(first)
    assert not np.array_equal(other.belief, prior.belief)
    later = LocationState(second.time + 1, second.belief, second.support)
    assert machine.prior(later) is not machine.prior(second)


def test_longer_memories_go_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch)
    even = np.full(9, 1 / 9)
    thirds = np.full((9, 3), 1 / 3)
    chain = OrderChain(states=("a", "b", "c"), order=2, conditional=thirds, initial=even)
    query = measurement(chain.states, CORNERS, labels=("x", "y"))
    policy = PolicyGraph.complete(chain.states)
    machine = LocationMachine(chain=chain, query=query, places=policy, epsilon=ONE)
    state = machine.init()
    for _ in range(3):
        state, release = machine.step(state, chain.states[0], SeededRng(3))
        assert sum(share for _, share in release.likely) == pytest.approx(1.0)
    assert calls["compiled"] == 0


def test_a_near_tie_goes_to_k_norm_noise() -> None:
    """Staircase noise is better by less than a thousandth here, which 200 draws cannot tell."""
    found = choose(town_task(4, 4), Fraction(1))
    errors = {
        name: found.alternatives[name].certificate.estimate_error  # type: ignore[union-attr]
        for name in ("location-knorm", "location-staircase")
    }
    assert errors["location-staircase"] < errors["location-knorm"]
    assert found.plan.mechanism == "location-knorm"
