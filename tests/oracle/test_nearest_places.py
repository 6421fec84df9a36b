"""Nearest points of interest of a release, against loops and points drawn inside the cells."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

import shoal
from shoal.core.errors import DataError
from shoal.noise.primitives import SeededRng
from shoal.places.map import HexGrid, RoadMap, SquareGrid
from shoal.places.nearest import (
    NearestCells,
    PlaneMap,
    beliefs,
    corners_of,
    k_nearest,
    lattice_points,
    likely_states,
    nearest_sets,
    recall,
)
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain, free_walk

GRID = SquareGrid(south=Fraction(52), west=Fraction(13), cell_m=Fraction(500), rows=5, columns=6)
TOWN = free_walk(GRID, stay=0.5)


def town_places(seed: int, count: int) -> np.ndarray:
    draw = random.Random(seed)
    return np.array(
        [(52 + draw.uniform(-0.01, 0.03), 13 + draw.uniform(-0.01, 0.05)) for _ in range(count)]
    )


def inside(corners: np.ndarray, draw: random.Random) -> np.ndarray:
    """A point between corners: a mean with random weights."""
    weights = np.array([draw.expovariate(1) ** 3 for _ in corners])
    return np.asarray((weights[:, None] * corners).sum(axis=0) / weights.sum())


def hexagons() -> SparseChain:
    pytest.importorskip("h3")
    return free_walk(HexGrid.covering(south=52, west=13, north=52.02, east=13.03, resolution=9))


def roads() -> SparseChain:
    ends = np.array([[52, 13, 52, 13.01], [52, 13.01, 52.01, 13.02], [52.01, 13.02, 52.02, 13.02]])
    return free_walk(RoadMap(ends=ends, names=("a", "b", "c")))


@pytest.mark.parametrize("chain", [lambda: TOWN, hexagons, roads], ids=["squares", "hex", "roads"])
@pytest.mark.parametrize("count", [1, 4, 60])
def test_no_place_that_is_nearest_somewhere_in_a_cell_is_left_out(
    chain: object, count: int
) -> None:
    own, places = chain(), town_places(count, count)  # type: ignore[operator]
    plane, draw = PlaneMap.around(places), random.Random(count)
    near = plane.km(places)
    cells = NearestCells(own, plane, near)
    for state in range(0, own.size, max(1, own.size // 12)):
        found = cells.of_state(state)
        corners = corners_of(own, state)
        for _ in range(300):
            point = inside(corners, draw)
            away = [math.dist(plane.km(point), place) for place in near]
            assert found[away.index(min(away))]
        assert count < 60 or found.sum() < 40  # it leaves out what is far


def test_corners_are_those_of_the_cell_that_covers_their_middle() -> None:
    for state in range(TOWN.size):
        corners = corners_of(TOWN, state)
        assert int(GRID.cell_of(*corners.mean(axis=0))) == state
        for corner in corners:
            nudged = corner + 1e-6 * (corners.mean(axis=0) - corner)
            assert int(GRID.cell_of(*nudged)) == state


@pytest.mark.parametrize("k", [1, 3, 7])
def test_recall_is_the_share_of_common_places(k: int) -> None:
    draw = random.Random(k)
    places = np.array([(draw.random(), draw.random()) for _ in range(20)])
    truth = np.array([(draw.random(), draw.random()) for _ in range(15)])
    shown = truth + np.array([(draw.gauss(0, 0.1), draw.gauss(0, 0.1)) for _ in range(15)])

    def around(point: np.ndarray) -> set[int]:
        order = sorted(range(20), key=lambda k: (math.dist(places[k], point), k))
        return set(order[:k])

    shares = [len(around(a) & around(b)) / k for a, b in zip(truth, shown, strict=True)]
    assert recall(places, truth, shown, k) == pytest.approx(sum(shares) / 15)
    assert recall(places, truth, truth, k) == 1
    assert k_nearest(places, truth, 30).shape == (15, 20)


def released(seed: int, steps: int = 25) -> tuple[shoal.Plan, list[int], list[tuple[int, ...]]]:
    """A plan, a walk of its own model, and what a stream released of it."""
    query = coordinates(TOWN)
    policy = PolicyGraph.within(query, 1)
    plan = shoal.calibrate(query, policy, TOWN, epsilon=1, mechanism="location-knorm")
    draw, rng = np.random.default_rng(seed), SeededRng(seed)
    state, walk = int(draw.integers(TOWN.size)), []
    for _ in range(steps):
        walk.append(state)
        moves = [state] * 8 + list(GRID.adjacent(state))
        weights = np.array([0.5 / 8] * 8 + [0.5 / (len(moves) - 8)] * (len(moves) - 8))
        state = int(draw.choice(moves, p=weights))
    stream, outputs = LocationStream.begin(plan), []
    for place in walk:
        stream, release = stream.read(TOWN.states[place], rng=rng)
        assert release.z is not None
        outputs.append(release.z)
    return plan, walk, outputs


def test_sets_hold_the_true_nearest_place_as_often_as_they_say() -> None:
    """Over walks of the model's own law; the control, sets of a third of the belief, fails."""
    held = {0.95: 0, 0.3: 0}
    places, steps = town_places(3, 80), 0
    plane = PlaneMap.around(places)
    for seed in range(20):
        plan, walk, outputs = released(seed)
        believed = [belief for belief, _ in beliefs(plan, outputs)]
        draw = random.Random(seed)
        true = [inside(corners_of(TOWN, state), draw) for state in walk]
        nearest = k_nearest(plane.km(places), plane.km(np.array(true)), 1)[:, 0]
        for confidence in held:
            sets = nearest_sets(TOWN, believed, places, confidence=confidence)
            held[confidence] += int(sets[np.arange(len(walk)), nearest].sum())
        steps += len(walk)
    # successes of 500 dependent steps: six deviations below .95 of independent ones, and beyond
    assert held[0.95] / steps > 0.95 - 6 * math.sqrt(0.95 * 0.05 / steps)
    assert held[0.3] / steps < 0.9


def test_beliefs_follow_from_the_outputs_alone() -> None:
    plan, _, outputs = released(7, steps=6)
    chain = np.zeros((TOWN.size, TOWN.size))
    for state in range(TOWN.size):
        around = GRID.adjacent(state)
        chain[state, state] += 0.5
        chain[state, list(around)] += 0.5 / len(around)
    belief = np.full(TOWN.size, 1 / TOWN.size)
    laws = shoal.places.output_log_likelihoods(plan, outputs)
    for (found, _), log_law in zip(beliefs(plan, outputs), laws, strict=True):
        belief = belief * np.exp(log_law - log_law.max())
        belief /= belief.sum()
        assert found == pytest.approx(belief, abs=1e-4)
        belief = belief @ chain


def test_the_likely_states_are_the_fewest_that_hold_the_share() -> None:
    belief = np.array([0.1, 0.5, 0.15, 0.25])
    assert likely_states(belief, 0.7).tolist() == [1, 3]
    assert likely_states(belief, 0.8).tolist() == [1, 3, 2]
    assert likely_states(np.array([0.0, 1.0]), 0.95).tolist() == [1]


def test_points_of_another_lattice_are_refused() -> None:
    plan, _, outputs = released(1, steps=3)
    query = coordinates(TOWN)
    degrees = GRID.to_degrees(np.array(outputs) * float(query.step))
    assert lattice_points(plan, degrees).tolist() == [list(z) for z in outputs]
    with pytest.raises(DataError, match="are not on the lattice of this plan"):
        lattice_points(plan, degrees + 0.001)
