"""Policies on points of interest and their combinations, against pairs listed by hand-made loops.

Nothing here uses the library's geometry: distances are those of a plane map in plain Python, and
edges are sets of names.
"""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction

import polars as pl
import pytest

import shoal
from shoal.core.errors import InputError
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.walk import free_walk

SOUTH, WEST, CELL_M, ROWS, COLUMNS = 52.5, 13.3, 300, 6, 7
METRES = 6_371_008.8 * math.pi / 180
GRID = SquareGrid(
    south=Fraction(SOUTH), west=Fraction(WEST), cell_m=Fraction(CELL_M), rows=ROWS, columns=COLUMNS
)
TOWN = free_walk(GRID)
SHRINK = math.cos(math.radians(SOUTH + ROWS * CELL_M / METRES / 2))
Pairs = set[frozenset[str]]


def made_up(seed: int, count: int = 40) -> list[tuple[float, float, str]]:
    """Latitude, longitude and category of points, a few of them off the map."""
    draw = random.Random(seed)
    return [
        (
            SOUTH + draw.uniform(-0.1, 1.05) * ROWS * CELL_M / METRES,
            WEST + draw.uniform(0, 1) * COLUMNS * CELL_M / METRES / SHRINK,
            draw.choice(["bar", "clinic", "school"]),
        )
        for _ in range(count)
    ]


def cell(lat: float, lon: float) -> str | None:
    """The name of the cell that covers a point."""
    row = math.floor((lat - SOUTH) * METRES / CELL_M)
    column = math.floor((lon - WEST) * METRES * SHRINK / CELL_M)
    return f"{row},{column}" if 0 <= row < ROWS and 0 <= column < COLUMNS else None


def metres_apart(a: tuple[float, float, str], b: tuple[float, float, str]) -> float:
    return math.hypot((a[0] - b[0]) * METRES, (a[1] - b[1]) * METRES * SHRINK)


def expected(points: list[tuple[float, float, str]], km: float | None, *, same: bool) -> Pairs:
    """The pairs of cells that hold two points which look alike."""
    found: Pairs = set()
    for a, b in itertools.combinations(points, 2):
        first, second = cell(a[0], a[1]), cell(b[0], b[1])
        if first is None or second is None or first == second or (same and a[2] != b[2]):
            continue
        if km is None or metres_apart(a, b) <= 1000 * km:
            found.add(frozenset((first, second)))
    return found


def pairs(policy: PolicyGraph) -> Pairs:
    names = policy.states
    return {frozenset((names[a], names[b])) for a, b in policy.all_edges().tolist()}


def table(points: list[tuple[float, float, str]]) -> pl.DataFrame:
    lat, lon, category = zip(*points, strict=True)
    return pl.DataFrame({"lat": lat, "lon": lon, "category": category, "name": category})


def _apart_from(
    points: list[tuple[float, float, str]], km: float | None
) -> list[tuple[float, float, str]]:
    """The points without those at the very distance, where whole metres decide in the library."""
    kept: list[tuple[float, float, str]] = []
    for point in points:
        if km is None or all(abs(metres_apart(point, b) - 1000 * km) > 2 for b in kept):
            kept.append(point)
    assert len(kept) > 25
    return kept


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("km", [None, 0.4, 0.75])
def test_places_that_look_alike_are_joined_and_no_others(seed: int, km: float | None) -> None:
    points = _apart_from(made_up(seed), km)
    for same in (True, False):
        column = "category" if same else None
        if column is None and km is None:
            continue
        found = shoal.places.policy_of_points(TOWN, table(points), same=column, within=km)
        assert pairs(found) == expected(points, km, same=same)
    bars = [point for point in points if point[2] == "bar"]
    found = shoal.places.policy_of_points(TOWN, table(points), within=km, only=["bar"])
    assert pairs(found) == expected(bars, km, same=False)


@pytest.mark.parametrize("seed", range(4))
def test_unions_and_intersections_are_those_of_the_sets_of_pairs(seed: int) -> None:
    draw = random.Random(seed)
    query, names = coordinates(TOWN), list(TOWN.states)
    draw.shuffle(names)
    made = [
        PolicyGraph.within(query, Fraction(draw.choice([4, 5, 7]), 10)),
        PolicyGraph.categories(TOWN.states, [names[:9], names[9:14], names[20:27]]),
        PolicyGraph.categories(TOWN.states, [names[4:12], names[22:30]]),
        PolicyGraph.complete(TOWN.states),
        shoal.places.policy_of_points(TOWN, table(made_up(seed)), same="category"),
    ]
    for a, b in itertools.product(made, repeat=2):
        assert pairs(a & b) == pairs(a) & pairs(b)
        assert pairs(a | b) == pairs(a) | pairs(b)


@pytest.mark.parametrize("seed", range(3))
def test_words_about_many_points_are_about_each_of_them(seed: int) -> None:
    inside = [point for point in made_up(seed) if cell(point[0], point[1]) is not None]
    points = _apart_from(inside, 0.6)
    bars = [point for point in points if point[2] == "bar"]
    many = {"bar": {"type": "MultiPoint", "coordinates": [[lon, lat] for lat, lon, _ in bars]}}
    which = shoal.places.policy_in_words(TOWN, "hide which bar within 600 m", many)
    asked = expected(bars, 0.6, same=False)
    assert asked <= pairs(which)
    own = {name for pair in asked for name in pair}
    assert not any(pair <= own for pair in pairs(which) - asked)  # others are with a neighbour
    near = "exact unless within 300 m of bar; there among the 500 m around"
    around = pairs(shoal.places.policy_in_words(TOWN, near, many))
    centres = {name: GRID.centre_of(k) for k, name in enumerate(TOWN.states)}
    groups = []
    for bar in bars:
        around_bar = {
            name
            for name, (lat, lon) in centres.items()
            if math.hypot((lat - bar[0]) * METRES, (lon - bar[1]) * METRES * math.cos(
                math.radians(bar[0]))) <= 500
        } | {str(cell(bar[0], bar[1]))}  # fmt: skip
        groups.append({frozenset(two) for two in itertools.combinations(around_bar, 2)})
    joined: Pairs = set().union(*groups)
    assert joined <= around
    used = {name for pair in joined for name in pair}
    assert not any(pair <= used for pair in around - joined)


def test_graphs_of_other_states_are_not_combined() -> None:
    other = PolicyGraph.complete(["a", "b"])
    with pytest.raises(InputError, match="an intersection needs the same, in order"):
        PolicyGraph.complete(TOWN.states) & other
