"""The location experiments: the parts that run in a moment, and known numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shoal.places.policy import PolicyGraph
from studies.location_knn import nearest, shared
from studies.location_optimum import table
from studies.location_study import Run, follow, standard_runs
from studies.location_traces import STEPS, TRACKS, generated


def test_nearest_places_and_what_two_answers_share() -> None:
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [5.0, 5.0]])
    assert nearest(places, np.array([[0.1, 0.0]]), 2).tolist() == [[0, 1]]
    assert nearest(places, np.array([[0.0, 0.0]]), 3).tolist() == [[0, 1, 2]]  # ties by index
    truth, shown = np.array([[0.0, 0.0]]), np.array([[4.0, 4.0]])
    assert shared(places, truth, truth, 2, 2) == 2
    assert shared(places, truth, shown, 1, 1) == 0
    assert shared(places, truth, shown, 1, 4) == 1


def test_the_optimum_on_a_small_map_is_the_known_one() -> None:
    """5 × 5 cells, eight neighbours, ε = 2: tight constants reach the linear program's value."""
    row = table(((5, "eight neighbours", Fraction(2)),)).rows[0]
    constant, raw, estimate, _, graph, optimum = (float(value or 0) for value in row[3:])
    assert optimum == pytest.approx(0.9716, abs=5e-4)
    assert graph == pytest.approx(optimum, abs=1e-3)
    assert optimum < estimate < raw < constant == 2.0


def test_the_generated_town_is_followed() -> None:
    town = generated()
    assert len(town.tracks) == TRACKS
    assert all(len(track.states) == STEPS + 1 for track in town.tracks)
    assert len(standard_runs(town)) == 8
    near = PolicyGraph.within(town.query, town.radius_km)
    trails = follow(town, Run("near", near, Fraction(1, 100)), town.tracks[:2])
    assert trails.raw.shape == (2, STEPS)
    assert trails.estimate.mean() < trails.raw.mean() / 2  # the free estimate is the better answer
    assert (trails.degree >= 2).all()
    own = follow(town, Run("near", near, Fraction(1, 100)), town.tracks[:1], own=True)
    assert own.size.mean() > 1
