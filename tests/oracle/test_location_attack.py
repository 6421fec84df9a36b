"""The adversary against streams of places, against adding up every path."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.attack import LocationBeliefs, attack_locations
from shoal.places.audit import sequence_leakage
from shoal.places.machine import machine_of
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import coordinates, measurement
from shoal.places.step import StepNoise
from shoal.places.stream import LocationStream
from tests.contract.tasks import second_order
from tests.locations import SIX, running_policy, running_query, town, walk
from tests.oracle.test_location_oracle import CHAINS, path_law

ROWS = ("location-knorm", "location-laplace", "location-staircase", "location-graph-exponential")


@dataclass(frozen=True, eq=False)
class Drawn:
    """A stream as it was drawn: outputs, stages, and log P(output | state) at each step."""

    outputs: list[tuple[int, ...] | None]
    stages: list[StepNoise]
    rows: Floats
    loss_here: list[float]
    loss_path: list[float]


def drawn(plan: Plan, places: list[int | None], *, start: Any = None, seed: int = 5) -> Drawn:
    """One stream through the plan; the stages are those the draws were made from."""
    machine, rng = machine_of(plan), SeededRng(seed)
    state, outputs, stages, rows, bounds = machine.init(start), [], [], [], []
    for place in places:
        stage = machine.prior(state).noise
        observed = None if place is None else machine.query.states[place]
        state, release = machine.step(state, observed, rng)
        outputs.append(release.z)
        stages.append(stage)
        none = np.zeros(len(machine.query.states))
        rows.append(none if release.z is None else stage.law.log_likelihood(release.z))
        bounds.append((state.loss_here, state.loss_path))
    now, whole = zip(*bounds, strict=True)
    return Drawn(outputs, stages, np.array(rows), list(now), list(whole))


def begun(model: Model, start: int | None) -> Model:
    """The chain whose first entry is a known start, before the first step."""
    if start is None:
        return model
    assert isinstance(model, MarkovChain)
    return replace(model, initial=np.eye(len(model.states))[start])


def brute(model: Model, rows: Floats, start: int | None = None) -> dict[str, Any]:
    """Log-laws of every state at every step, by listing all paths, and the best of them."""
    steps, size = rows.shape
    names = ("before", "predicted", "filtered", "smoothed")
    found: dict[str, Any] = {name: np.full((steps, size), -math.inf) for name in names}
    best = -math.inf
    for path in itertools.product(range(size), repeat=steps):
        whole = path if start is None else (start, *path)
        law = path_law(begun(model, start), whole)
        if law == 0:
            continue
        weights = np.cumsum([rows[t, x] for t, x in enumerate(path)])
        for t, x in enumerate(path):
            # over all ways to go on, which add up to one
            ending = math.log(law)
            for name, seen in (
                ("before", 0.0),
                ("predicted", weights[t - 1] if t else 0.0),
                ("filtered", weights[t]),
                ("smoothed", weights[-1]),
            ):
                found[name][t, x] = np.logaddexp(found[name][t, x], ending + seen)
        best = max(best, math.log(law) + weights[-1])
    found["evidence"] = float(np.logaddexp.reduce(found["smoothed"][0]))
    found["best"] = best
    for name in names:
        found[name] -= np.logaddexp.reduce(found[name], axis=1, keepdims=True)
    return found


def path_weight(model: Model, rows: Floats, path: Any, start: int | None = None) -> float:
    whole = tuple(path) if start is None else (start, *path)
    seen = math.fsum(rows[t, x] for t, x in enumerate(path))
    return math.log(path_law(begun(model, start), whole)) + seen


def assert_agrees(found: LocationBeliefs, expected: dict[str, Any]) -> None:
    for name in ("before", "predicted", "filtered", "smoothed"):
        table, wanted = getattr(found, f"log_{name}"), expected[name]
        assert (np.isneginf(table) == np.isneginf(wanted)).all(), name
        inside = np.isfinite(wanted)
        assert table[inside] == pytest.approx(wanted[inside], abs=1e-9), name
    assert found.log_evidence == pytest.approx(expected["evidence"], abs=1e-9)
    assert found.before == pytest.approx(np.exp(expected["before"]), abs=1e-12)
    assert found.smoothed.after == pytest.approx(np.exp(expected["smoothed"]), abs=1e-12)
    assert found.filtered.after == pytest.approx(np.exp(expected["filtered"]), abs=1e-12)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("delta", [None, Fraction(1, 4)])
def test_beliefs_and_best_path_are_those_of_all_paths(name: str, delta: Fraction | None) -> None:
    chain, query = CHAINS[name]
    policy = PolicyGraph.complete(query.states)
    places = policy if delta is None else LocationSet(policy=policy, delta=delta)
    plan = calibrate(query, places, chain, epsilon=1, mechanism="location-knorm")
    steps = min(5, getattr(chain, "length", None) or 5)
    track: list[int | None] = [t % len(query.states) for t in range(steps)]
    track[1] = None
    for seed in range(3):
        stream = drawn(plan, track, seed=seed)
        found = attack_locations(plan, stream.outputs)
        expected = brute(chain, stream.rows)
        assert_agrees(found, expected)
        weight = path_weight(chain, stream.rows, found.path)
        assert weight == pytest.approx(expected["best"], abs=1e-9)
        assert found.trajectory == tuple(query.states[x] for x in found.path)


@pytest.mark.parametrize("mechanism", ROWS)
def test_every_noise_is_followed_by_its_own_stages(mechanism: str) -> None:
    """A support that shrinks with a known start, and noise that rules states out."""
    query = running_query()
    chain = walk(initial=[1, 0, 0, 0, 0, 0])
    plan = calibrate(query, running_policy(), chain, epsilon=2, mechanism=mechanism)
    stream = drawn(plan, [0, 1, None, 4], seed=2)
    found = attack_locations(plan, stream.outputs)
    assert_agrees(found, brute(chain, stream.rows))
    assert found.loss_here == pytest.approx(stream.loss_here)
    assert found.loss_path == pytest.approx(stream.loss_path)


def test_a_known_start_is_known_to_the_adversary() -> None:
    chain, query = CHAINS["dense"]
    plan = calibrate(query, PolicyGraph.complete("abc"), chain, epsilon=1)
    stream = drawn(plan, [1, 2, None, 1], start="b")
    found = attack_locations(plan, stream.outputs, start="b")
    expected = brute(chain, stream.rows, start=1)
    assert_agrees(found, expected)
    weight = path_weight(chain, stream.rows, found.path, start=1)
    assert weight == pytest.approx(expected["best"], abs=1e-9)


@pytest.mark.parametrize(("by", "names"), [("own", "pf"), ("past", "bf"), ("all", "bs")])
def test_changes_of_odds_are_those_of_all_paths(by: Any, names: str) -> None:
    """From a place everybody knows, where some states are impossible for a while."""
    query, chain = running_query(), walk()
    plan = calibrate(query, running_policy(), chain, epsilon=1, mechanism="location-knorm")
    stream = drawn(plan, [0, 1, None, 4, 5], start="s4")
    odds = attack_locations(plan, stream.outputs, start="s4").odds(by)
    tables = brute(chain, stream.rows, start=3)
    whole = {name[0]: tables[name] for name in ("before", "predicted", "filtered", "smoothed")}
    for t in range(5):
        possible = np.flatnonzero(np.isfinite(whole[names[0]][t]))
        change = whole[names[1]][t][possible] - whole[names[0]][t][possible]
        assert odds.any_two[t] == pytest.approx(np.ptp(change), abs=1e-9)


def test_several_answers_at_a_step_are_taken_together() -> None:
    chain, query = CHAINS["dense"]
    policy = PolicyGraph.complete("abc")
    plan = calibrate(query, policy, chain, epsilon=1, mechanism="location-knorm")
    floor = measurement("abc", [[0], [0], [3]], labels=("floor",))
    floors = calibrate(floor, policy, chain, epsilon=2, mechanism="location-laplace")
    stream, rng, rows, outputs, others = LocationStream.begin(plan), SeededRng(1), [], [], []
    for name in ("a", "b", None, "c"):
        stage = stream.machine.prior(stream.state).noise
        second = machine_of(floors).runtime.noise(stage.members)
        stream, release = stream.ask(name, [floors], rng=rng)
        place = None if name is None else "abc".index(name)
        extra = None if place is None else second.law.draw(place, rng)
        rows.append(np.zeros(3) if release.z is None else stage.law.log_likelihood(release.z))
        rows[-1] = rows[-1] + (0 if extra is None else second.law.log_likelihood(extra))
        outputs.append(release.z)
        others.append(extra)
    found = attack_locations(plan, outputs, others=[(floors, others)])
    assert_agrees(found, brute(chain, np.array(rows)))
    alone = attack_locations(plan, outputs)
    assert found.smoothed.entropies()[1] < alone.smoothed.entropies()[1]
    with pytest.raises(InputError, match="others has 1 outputs; there are 4 steps"):
        attack_locations(plan, outputs, others=[(floors, [None])])
    strangers = calibrate(floor, policy, OTHERS["another-matrix"], epsilon=1)
    with pytest.raises(InputError, match="different models or policies"):
        attack_locations(plan, outputs, others=[(strangers, others)])


OTHERS: dict[str, Model] = {
    "another-matrix": MarkovChain.of(
        [[0.1, 0.9, 0.0], [0.0, 0.2, 0.8], [0.5, 0.5, 0.0]], states="abc", initial=[0.6, 0.3, 0.1]
    ),
    "another-start": replace(walk(("a", "b", "c")), initial=np.array([0.0, 0.1, 0.9])),
}


@pytest.mark.parametrize("name", OTHERS)
def test_an_adversary_may_hold_another_chain(name: str) -> None:
    chain, query = CHAINS["dense"]
    plan = calibrate(query, PolicyGraph.complete("abc"), chain, epsilon=1)
    stream = drawn(plan, [0, 1, 2, None, 0])
    found = attack_locations(plan, stream.outputs, adversary=OTHERS[name])
    assert_agrees(found, brute(OTHERS[name], stream.rows))
    own = attack_locations(plan, stream.outputs)
    assert found.log_evidence != own.log_evidence


def test_an_adversary_may_know_fewer_states_in_another_order() -> None:
    chain, query = CHAINS["dense"]
    plan = calibrate(query, PolicyGraph.complete("abc"), chain, epsilon=1)
    stream = drawn(plan, [0, 2, None, 2])
    less = MarkovChain.of([[0.3, 0.7], [0.4, 0.6]], states="ca", initial=[0.2, 0.8])
    full = MarkovChain.of(
        [[0.6, 0.0, 0.4], [0.0, 1.0, 0.0], [0.7, 0.0, 0.3]], states="abc", initial=[0.8, 0, 0.2]
    )
    found = attack_locations(plan, stream.outputs, adversary=less)
    assert_agrees(found, brute(full, stream.rows))
    assert set(found.trajectory) <= {"a", "c"}


def test_an_adversary_may_remember_more_steps() -> None:
    line = measurement("ab", [[0], [1]], labels=("x",))
    plain = MarkovChain.of([[0.5, 0.5], [0.2, 0.8]], states="ab", initial=[0.5, 0.5])
    plan = calibrate(line, PolicyGraph.complete("ab"), plain, epsilon=1)
    stream = drawn(plan, [0, 1, 1, None, 0, 1])
    memory = replace(second_order(None), states=("a", "b"), initial=np.array([0.1, 0.2, 0.3, 0.4]))
    found = attack_locations(plan, stream.outputs, adversary=memory)
    expected = brute(memory, stream.rows)
    assert_agrees(found, expected)
    weight = path_weight(memory, stream.rows, found.path)
    assert weight == pytest.approx(expected["best"], abs=1e-9)


@pytest.mark.parametrize("start", [None, "s4"])
def test_changes_of_odds_are_those_the_audit_finds(start: str | None) -> None:
    """`sequence_leakage` works them out pair by pair, in another way."""
    query, chain = running_query(), walk()
    plan = calibrate(query, running_policy(), chain, epsilon=1, mechanism="location-knorm")
    stream = drawn(plan, [0, 1, None, 4, 5, 0])
    found = attack_locations(plan, stream.outputs, start=start).odds("all")
    audited = sequence_leakage(plan, stream.outputs, start=start)
    assert max(audited.learned_joined[2:]) > 0
    assert found.joined == pytest.approx(audited.learned_joined, abs=1e-9)
    assert found.any_two == pytest.approx(audited.learned_any_two, abs=1e-9)


POLICIES: dict[str, Any] = {
    "radius": lambda query: PolicyGraph.within(query, "0.75"),
    "complete": lambda query: PolicyGraph.complete(query.states),
    "set": lambda query: LocationSet(
        policy=PolicyGraph.within(query, "0.75"), delta=Fraction(1, 5)
    ),
    "complete-set": lambda query: LocationSet(
        policy=PolicyGraph.complete(query.states), delta=Fraction(1, 5)
    ),
    "set-everywhere": lambda query: LocationSet(
        policy=PolicyGraph.within(query, "0.75"), delta=Fraction(1, 5), everywhere=True
    ),
    "categories": lambda query: PolicyGraph.categories(
        query.states, [query.states[:7], query.states[7:]]
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("other", [False, True], ids=["own-chain", "another-chain"])
def test_no_output_changes_joined_odds_beyond_the_promise(policy: str, other: bool) -> None:
    """Whatever chain the adversary holds; bounds on whole streams are for the plan's chain."""
    chain = town(4, 4)
    query = coordinates(chain)
    plan = calibrate(query, POLICIES[policy](query), chain, epsilon=1, mechanism="location-knorm")
    track: list[int | None] = [int(x) for x in chain.sample(12, SeededRng(3))]
    track[4] = track[5] = None
    held = replace(chain, initial=np.eye(16)[track[0]]) if other else None
    for seed in range(4):
        stream = drawn(plan, track, seed=seed)
        found = attack_locations(plan, stream.outputs, adversary=held)
        assert found.odds("own").joined.max() <= 1 + 1e-9
        assert (found.odds("own").joined[4:6] == 0).all()
        truth = found.odds("own", truth=track)
        known = [x is not None for x in track]
        assert (truth.joined[known] <= found.odds("own").joined[known] + 1e-12).all()
        assert np.isnan(truth.joined[4:6]).all()
        if not other:
            assert (found.odds("past").any_two <= found.loss_here + 1e-9).all()
            assert (found.odds("all").any_two <= found.loss_path[-1] + 1e-9).all()


def some_edge(**rest: Any) -> PolicyGraph:
    """A policy that leaves four of six states to the repair."""
    return PolicyGraph.of(SIX, [("s1", "s5")], **rest)


PAIRED: dict[str, tuple[Any, bool]] = {
    "cliques": (running_policy(), False),
    "repaired": (some_edge(), False),
    "set": (LocationSet(policy=running_policy(), delta=Fraction(1, 3)), False),
    "set-everywhere": (
        LocationSet(policy=running_policy(), delta=Fraction(1, 3), everywhere=True),
        True,
    ),
    "complete-set": (
        LocationSet(policy=PolicyGraph.complete(SIX), delta=Fraction(1, 3)),
        True,
    ),
}


@pytest.mark.parametrize("name", PAIRED)
def test_joined_odds_are_those_of_the_pairs_the_policy_and_the_repair_join(name: str) -> None:
    places, everywhere = PAIRED[name]
    chain = walk(initial=[0.4, 0.3, 0.2, 0.05, 0.03, 0.02])
    plan = calibrate(running_query(), places, chain, epsilon=1, mechanism="location-knorm")
    track: list[int | None] = [0, 1, 2, 4, 5, 0]
    stream = drawn(plan, track, seed=4)
    found = attack_locations(plan, stream.outputs)
    policy = getattr(places, "policy", places)
    odds, about = found.odds("all"), found.odds("all", truth=track)
    for t, stage in enumerate(stream.stages):
        inside = np.ones(6, dtype=np.bool_) if everywhere else stage.members
        pairs = {tuple(sorted(map(int, pair))) for pair in policy.edges_among(inside)}
        pairs |= {tuple(sorted(map(int, pair))) for pair in stage.protected.added}
        change = found.log_smoothed[t] - found.log_before[t]
        gaps = {pair: abs(change[pair[0]] - change[pair[1]]) for pair in pairs}
        assert odds.joined[t] == pytest.approx(max(gaps.values()), abs=1e-12)
        gained, lost = odds.pairs[t]
        assert change[gained] - change[lost] == pytest.approx(odds.joined[t], abs=1e-12)
        place = track[t]
        assert place is not None
        own = [gap for pair, gap in gaps.items() if place in pair]
        assert about.joined[t] == pytest.approx(max(own, default=0.0), abs=1e-12)
        assert about.any_two[t] == pytest.approx(np.abs(change - change[place]).max())
        assert about.pairs[t, 0] == place


def test_sparse_and_dense_chains_give_the_same_beliefs() -> None:
    chain = town(3, 4)
    query = coordinates(chain)
    policy = PolicyGraph.within(query, "0.75")
    sparse, dense = (
        calibrate(query, policy, model, epsilon=1, mechanism="location-knorm")
        for model in (chain, chain.dense())
    )
    stream = drawn(sparse, [int(x) for x in chain.sample(30, SeededRng(1))])
    one, two = (attack_locations(plan, stream.outputs) for plan in (sparse, dense))
    assert one.log_smoothed == pytest.approx(two.log_smoothed, abs=1e-9)
    assert (one.path == two.path).all()


def test_what_cannot_be_attacked_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, query = CHAINS["dense"]
    plan = calibrate(query, PolicyGraph.complete("abc"), chain, epsilon=1)
    with pytest.raises(InputError, match="outputs is empty"):
        attack_locations(plan, [])
    with pytest.raises(InputError, match="3 numbers at step 2; the query has 2"):
        attack_locations(plan, [None, (1, 2, 3)])
    with pytest.raises(InputError, match="a state 'z' that the plan does not"):
        attack_locations(plan, [(0, 0)], adversary=walk(("a", "b", "z")))
    less = MarkovChain.of([[0.3, 0.7], [0.4, 0.6]], states="ab", initial=[0.2, 0.8])
    with pytest.raises(InputError, match="'c', which is not a state of the adversary's chain"):
        attack_locations(plan, [(0, 0)], adversary=less, start="c")
    memory = replace(second_order(None), states=("a", "b"))
    with pytest.raises(InputError, match="the adversary's chain has a longer memory"):
        attack_locations(plan, [(0, 0)], adversary=memory, start="a")
    lines = calibrate(
        running_query(), running_policy(), walk(), epsilon=1, mechanism="location-graph-exponential"
    )
    with pytest.raises(InputError, match="impossible under the adversary's model"):
        attack_locations(lines, [(3, 0)], adversary=walk(("s4", "s5", "s6")))
    monkeypatch.setattr("shoal.places.attack.LARGEST_PASS", 10)
    with pytest.raises(Refused, match="attack a shorter stretch"):
        attack_locations(plan, [None] * 4)
