"""Location streams against enumeration: every path for beliefs, every output for ratios."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.motion import motion_of
from shoal.core.task import Model, Task
from shoal.noise.primitives import SeededRng
from shoal.places.machine import LocationMachine
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, coordinates, measurement
from shoal.places.step import NOISES, Places, edge_loss
from tests.contract.tasks import second_order
from tests.locations import SIX, running_policy, running_query, town, town_task, walk
from tests.policies import degrees

STEPS = 4
PER_STEP = np.array(
    [[[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0, 0, 1]], [[0, 1, 0], [1, 0, 0], [0.3, 0, 0.7]]]
)
CORNERS = ((0, 0), (2, 1), (1, 3))


def machine(
    chain: Model, query: Measurement, places: Places, noise: str = "k-norm", epsilon: str = "1"
) -> LocationMachine:
    return LocationMachine(
        chain=chain, query=query, places=places, epsilon=Fraction(epsilon), noise=noise
    )


def path_law(model: Model, path: Sequence[int]) -> float:
    """P(X_1 = x_1, …, X_n = x_n), straight from the definition."""
    if isinstance(model, OrderChain):
        law = model.initial.reshape((len(model.states),) * model.order)
        chance = float(law[tuple(path[: model.order])].sum())  # over what is still to come
        for k, after in enumerate(path[model.order :]):
            row = np.ravel_multi_index(tuple(path[k : k + model.order]), law.shape)
            chance *= float(model.conditional[row, after])
        return chance
    assert isinstance(model, MarkovChain)
    chance = float(model.initial[path[0]])
    for t in range(1, len(path)):
        chance *= float(model.matrix(t - 1)[path[t - 1], path[t]])
    return chance


def brute_belief(
    model: Model, weights: list[np.ndarray[Any, Any]], size: int
) -> np.ndarray[Any, Any]:
    """P(X_n = x | outputs) by adding up all paths; `weights[t][x]` = likelihood of output t."""
    total = np.zeros(size)
    for path in itertools.product(range(size), repeat=len(weights)):
        chance = path_law(model, path)
        for state, row in zip(path, weights, strict=True):
            chance *= row[state]
        total[path[-1]] += chance
    return np.asarray(total / total.sum())


def three(points: Any = CORNERS) -> Measurement:
    return measurement("abc", points, labels=("x", "y"))


CHAINS: dict[str, tuple[Model, Measurement]] = {
    "dense": (walk(("a", "b", "c")), three()),
    "certain-start": (walk(("a", "b", "c"), initial=[1, 0, 0]), three()),
    "matrix-per-step": (
        MarkovChain(states=tuple("abc"), transition=PER_STEP, initial=np.full(3, 1 / 3), length=3),
        three(),
    ),
    "order-2": (
        replace(second_order(None), initial=np.array([0.1, 0.2, 0.3, 0.4])),
        measurement("ab", [[0], [1]], labels=("x",)),
    ),
    "on-a-line": (walk(("a", "b", "c")), three([[0, 0], [2, 2], [3, 3]])),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("delta", [None, Fraction(1, 4)])
def test_beliefs_are_those_of_bayes_over_all_paths(name: str, delta: Fraction | None) -> None:
    chain, query = CHAINS[name]
    policy = PolicyGraph.complete(query.states)
    places = policy if delta is None else LocationSet(policy=policy, delta=delta)
    runner = machine(chain, query, places)
    state, rng = runner.init(), SeededRng(5)
    weights: list[np.ndarray[Any, Any]] = []
    for t in range(min(STEPS, getattr(chain, "length", None) or STEPS)):
        stage = runner.prior(state).noise
        state, release = runner.step(state, query.states[t % len(query.states)], rng)
        row = np.ones(len(query.states))
        if release.z is not None:
            row = np.exp(stage.law.log_likelihood(release.z))
        weights.append(row)
        brute = brute_belief(chain, weights, len(query.states))
        found = runner.runtime.motion.on_states(t, state.belief)
        assert found == pytest.approx(brute, rel=1e-5, abs=1e-7)  # kept in single precision
        assert release.estimate == pytest.approx(brute @ query.values, rel=1e-5, abs=1e-6)
        possible = np.unpackbits(state.support, count=runner.runtime.motion.hidden)
        seen = runner.runtime.motion.states_possible(t, possible.astype(np.bool_))
        assert (seen == (brute > 0)).all()


def box(query: Measurement, reach: int) -> np.ndarray[Any, Any]:
    """Every lattice point within `reach` of the answers."""
    low, high = query.points.min(axis=0) - reach, query.points.max(axis=0) + reach
    return np.array(
        list(itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))))
    )


def constraints(size: int) -> list[list[int]]:
    return [list(c) for n in (2, 3, 4, 6) for c in itertools.combinations(range(size), n)]


@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize("repair", ["nearest", "least-area", "least-error"])
def test_no_output_tells_joined_states_apart_by_more_than_epsilon(noise: str, repair: Any) -> None:
    """Every constraint of the running example, every edge, every output of a wide box."""
    query, epsilon = running_query(), 1.25
    runner = machine(walk(), query, running_policy(repair=repair), noise, "5/4")
    outputs = box(query, 9)
    for members in constraints(6)[::3]:
        chosen = np.zeros(6, dtype=np.bool_)
        chosen[members] = True
        stage = runner.runtime.noise(chosen)
        weights = np.array([stage.law.log_likelihood(z.tolist()) for z in outputs])
        edges = [*runner.runtime.index.policy.edges_among(chosen), *stage.protected.added]
        for a, b in edges:
            either = np.isfinite(weights[:, a]) | np.isfinite(weights[:, b])
            gap = np.abs(weights[either, a] - weights[either, b])
            assert gap.max() <= epsilon * (1 + 1e-12)
        covered = {int(s) for edge in edges for s in edge}
        for lonely in set(members) - covered:  # protected by somebody within the noise
            others = [m for m in members if m != lonely]
            best = min(_gap(weights, lonely, m) for m in others)
            assert best <= epsilon * (1 + 1e-12)
        assert edge_loss(runner.places, query, stage) <= epsilon * (1 + 1e-12)
        if noise != "graph-exponential":
            found = degrees(query.points, chosen, stage.protected.body)
            assert {s: stage.degree(s) for s in members} == found
        every = [_gap(weights, a, b) for a, b in itertools.combinations(members, 2)]
        assert max(every) <= stage.spread * (1 + 1e-12)


def _gap(weights: np.ndarray[Any, Any], a: int, b: int) -> float:
    either = np.isfinite(weights[:, a]) | np.isfinite(weights[:, b])
    with np.errstate(invalid="ignore"):
        return float(np.abs(weights[either, a] - weights[either, b]).max(initial=0.0))


def test_a_hull_too_small_by_one_edge_is_noticed() -> None:
    """The control: noise shaped without one clique breaks the promise, and the check says so."""
    query = running_query()
    smaller = PolicyGraph.categories(SIX, [("s1",), ("s2", "s3")])
    runner = machine(walk(), query, smaller)
    everybody = np.ones(6, dtype=np.bool_)
    stage = runner.runtime.noise(everybody)
    assert edge_loss(running_policy(), query, stage) > 1.2
    assert edge_loss(smaller, query, stage) <= 1 + 1e-12


@pytest.mark.parametrize("everywhere", [False, True])
def test_edges_outside_a_location_set_are_covered_only_when_asked(everywhere: bool) -> None:
    """Surrogates of two joined states outside the set may lie far apart: ERRATA 004, Thm 3.6."""
    names = tuple("abcdef")
    query = measurement(names, [[0], [10], [4], [6], [1], [9]], labels=("x",))
    policy = PolicyGraph.of(names, [("a", "e"), ("b", "f"), ("c", "d")])
    places = LocationSet(policy=policy, delta=Fraction(1, 10), everywhere=everywhere)
    runner = machine(walk(names), query, places)
    members = np.array([True, True, False, False, True, True])
    law = runner.runtime.noise(members).law
    told = law.log_ratio(2, 3)  # c and d are joined and answer as e and f
    assert (told <= 1 + 1e-12) == everywhere
    for a, b in policy.edges:
        if members[a] and members[b]:
            assert law.log_ratio(int(a), int(b)) <= 1 + 1e-12


def test_what_is_known_about_the_current_state_is_bounded_over_all_outputs() -> None:
    """loss_here against log P(z_1..z_t | X_t = x) / P(… | X_t = x') by all paths and outputs."""
    chain = walk(("a", "b", "c"), stay=0.5, initial=[0.5, 0.25, 0.25])
    query = measurement("abc", [[0], [1], [2]], labels=("x",))
    runner = machine(chain, query, PolicyGraph.within(query, 1), epsilon="1/2")
    outputs = range(-12, 15)
    worst = np.zeros(3)
    state = runner.init()
    noises, bounds = [], []
    for _ in range(3):
        noises.append(runner.prior(state).noise)
        state, release = runner.absorb(state, ((runner, (1,)),))
        bounds.append((release.loss_here, release.loss_path))
    rows = [{z: np.exp(s.law.log_likelihood((z,))) for z in outputs} for s in noises]
    for t in range(3):
        for zs in itertools.product((-12, 0, 1, 2, 14), repeat=t + 1):
            joint = np.zeros(3)
            mass = np.zeros(3)
            for path in itertools.product(range(3), repeat=t + 1):
                chance = path_law(chain, path)
                mass[path[-1]] += chance
                joint[path[-1]] += chance * math.prod(rows[k][z][path[k]] for k, z in enumerate(zs))
            given = joint / mass
            worst[t] = max(worst[t], math.log(given.max() / given.min()))
    for t in range(3):
        assert worst[t] <= bounds[t][0] <= bounds[t][1]
    assert bounds[2][0] < bounds[2][1]  # forgetting makes the bound on the present smaller
    assert worst[2] > worst[0]  # and correlation does tell more than one output


def test_a_map_keeps_its_promise_over_a_whole_random_stream() -> None:
    task = town_task(4, 4)
    chain, query = town(4, 4, start=5), coordinates(town(4, 4))
    assert isinstance(task.secrets, PolicyGraph)
    for places in (task.secrets, LocationSet(policy=task.secrets, delta=Fraction(1, 20))):
        runner = machine(chain, query, places)
        state, rng = runner.init(), SeededRng(8)
        for x in chain.sample(12, SeededRng(3)):
            stage = runner.prior(state).noise
            assert edge_loss(places, query, stage) <= 1 + 1e-12
            state, release = runner.step(state, chain.states[x], rng)
            assert release.possible == stage.count
            assert (release.z is None) == (stage.count == 1)


def test_motion_of_a_chain_of_higher_order_shows_entries_one_by_one() -> None:
    model = second_order(6)
    motion = motion_of(model)
    belief = motion.begin()
    for t in range(6):
        belief = motion.predict(t, belief) if t else belief
        brute = brute_belief(model, [np.ones(2)] * (t + 1), 2)
        assert motion.on_states(t, belief) == pytest.approx(brute, rel=1e-12)
    Task(query=CHAINS["order-2"][1], secrets=PolicyGraph.complete("ab"), family=(model,))
