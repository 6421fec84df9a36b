"""Maps: coordinates to cells and back, the lattice of cells, chains fitted on trajectories."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.errors import DataError, InputError
from shoal.core.registry import dumps, loads
from shoal.noise.primitives import SeededRng
from shoal.places.map import HexGrid, SquareGrid
from shoal.places.queries import coordinates
from shoal.places.walk import SparseChain, cut_at_gaps, fit_grid, fit_person
from tests.locations import town


def beijing(rows: int = 12, columns: int = 20) -> SquareGrid:
    return SquareGrid(
        south=Fraction("39.85"),
        west=Fraction("116.3"),
        cell_m=Fraction(340),
        rows=rows,
        columns=columns,
    )


def test_cells_and_their_centres_are_inverse() -> None:
    grid = beijing()
    cells = np.arange(grid.size)
    centres = grid.centre_of(cells)
    assert (grid.cell_of(centres[:, 0], centres[:, 1]) == cells).all()
    assert int(grid.cell_of(*grid.centre_of(37))) == 37


def test_distances_on_the_map_are_those_of_the_sphere() -> None:
    grid = beijing(40, 40)
    a, b = grid.centre_of(0), grid.centre_of(grid.size - 1)
    angles = np.radians([a[0], b[0], b[1] - a[1]])
    cosine = math.sin(angles[0]) * math.sin(angles[1])
    cosine += math.cos(angles[0]) * math.cos(angles[1]) * math.cos(angles[2])
    metres = 6_371_008.8 * math.acos(cosine)
    assert metres == pytest.approx(340 * 39 * math.sqrt(2), rel=2e-4)


def test_what_is_outside_the_map_has_no_cell() -> None:
    grid = beijing()
    south, west = float(grid.south), float(grid.west)
    outside = [(south - 1e-6, west), (south, west - 1e-6), (80, west), (south, 120), (np.nan, west)]
    assert [int(grid.cell_of(*point)) for point in outside] == [-1] * 5
    assert int(grid.cell_of(south, west)) == 0


def test_a_covering_grid_covers_its_box_and_no_row_more() -> None:
    grid = SquareGrid.covering(south=39.85, west=116.3, north=39.98, east=116.48, cell_km="0.34")
    assert int(grid.cell_of(39.98 - 1e-9, 116.48 - 1e-9)) >= 0
    assert grid.rows == math.ceil(0.13 * 6_371_008.8 * math.pi / 180 / 340)
    for box in ({"north": 39.8}, {"east": 116.0}):
        with pytest.raises(InputError, match="the box is empty"):
            SquareGrid.covering(
                **{"south": 39.85, "west": 116.3, "north": 40, "east": 117, "cell_km": 1, **box}
            )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"south": 90}, "south is 90"),
        ({"west": 181}, "west is 181"),
        ({"cell_m": 0}, "cell_m is 0"),
        ({"rows": 0}, "rows is 0"),
        ({"rows": 4000}, "12.2 degrees high"),
    ],
)
def test_maps_that_make_no_sense_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        SquareGrid(**{"south": 39, "west": 116, "cell_m": 340, "rows": 5, "columns": 5, **wrong})  # type: ignore[arg-type]


def test_adjacent_cells_are_mutual_and_the_lattice_holds_every_centre() -> None:
    grid = beijing(4, 5)
    for cell in range(grid.size):
        near = grid.adjacent(cell)
        assert all(cell in grid.adjacent(other) for other in near)
        moves = grid.lattice_of(np.array(near)) - grid.lattice_of(cell)
        assert np.abs(moves).max() == 1
    assert grid.lattice_of(7).tolist() == [2, 1]
    assert grid.name_of(7) == "1,2"
    kilometres = grid.lattice_of(7) * float(grid.step_km)
    assert grid.to_degrees(kilometres) == pytest.approx(grid.centre_of(7), rel=1e-12)
    assert loads(dumps(grid)) == grid


def test_hexagons_are_cells_too() -> None:
    h3 = pytest.importorskip("h3")
    grid = HexGrid.covering(south=39.9, west=116.3, north=39.95, east=116.36, resolution=8)
    cells = np.arange(grid.size)
    centres = grid.centre_of(cells)
    assert (grid.cell_of(centres[:, 0], centres[:, 1]) == cells).all()
    assert int(grid.cell_of(0.0, 0.0)) == -1
    inner = max(range(grid.size), key=lambda cell: len(grid.adjacent(cell)))
    moves = grid.lattice_of(np.array(grid.adjacent(inner))) - grid.lattice_of(inner)
    lengths = np.sqrt((moves**2).sum(axis=1))
    assert len(lengths) == 6
    assert lengths.max() < 1.2 * lengths.min()
    around = [tuple(centres[cell]) for cell in grid.adjacent(inner)]
    sphere = [h3.great_circle_distance(tuple(centres[inner]), c, unit="m") for c in around]
    assert lengths == pytest.approx(sphere, rel=0.005)
    assert grid.to_degrees(grid.lattice_of(3) / 1000) == pytest.approx(centres[3], abs=1e-5)
    assert loads(dumps(grid)) == grid
    fitted = fit_grid(grid, [[inner, *grid.adjacent(inner), inner]]).chain
    assert coordinates(fitted).unit == "km"
    with pytest.raises(InputError, match="at least one hexagon"):
        HexGrid(indexes=np.array([], dtype=np.int64))


@pytest.mark.parametrize("resolution", [-1, 16, 8.5])
def test_resolutions_are_those_of_the_hexagons(resolution: Any) -> None:
    with pytest.raises(InputError, match="resolution is"):
        HexGrid.covering(south=39.9, west=116.3, north=39.95, east=116.36, resolution=resolution)


def test_a_fit_counts_moves_inside_chains_only() -> None:
    grid = beijing(2, 3)
    fit = fit_grid(grid, [[0, 1, 1, 2, -1, 0, 1], [1, 0]])
    chain = fit.chain
    assert chain.states == ("0,0", "0,1", "0,2")
    expected = [[0, 1, 0], [1 / 3, 1 / 3, 1 / 3], [0, 0, 1]]
    assert chain.matrix().toarray() == pytest.approx(np.array(expected))
    assert fit.dead_ends == ("0,2",)
    assert (fit.transitions, fit.chains, fit.outside) == (5, 3, 1)
    assert chain.initial == pytest.approx([3 / 8, 4 / 8, 1 / 8])
    assert "1 dead end" in fit.describe()
    assert "1 reading(s) outside" in fit.describe()
    first = fit_grid(grid, [[0, 1, 1, 2, -1, 0, 1], [1, 0]], initial="first").chain
    assert first.initial == pytest.approx([2 / 3, 1 / 3, 0])
    assert fit_grid(grid, [[0, 1]], initial="uniform").chain.initial == pytest.approx([0.5, 0.5])


def test_smoothing_leads_to_adjacent_cells_and_ends_dead_ends() -> None:
    grid = beijing(2, 3)
    fit = fit_grid(grid, [[0, 1, 1, 2]], smoothing="0.5")
    rows = fit.chain.matrix().toarray()
    assert rows[0] == pytest.approx([0.25, 0.75, 0])
    assert rows[2] == pytest.approx([0, 0.5, 0.5])
    assert fit.dead_ends == ()
    assert fit.transitions == 3


def test_a_personal_model_leans_on_the_popular_one() -> None:
    grid = beijing(2, 3)
    popular = fit_grid(grid, [[0, 1, 2, 1, 0, 0]], smoothing=1).chain
    own = fit_person(popular, [[0, 1, 0, 1, 5, 1]], weight=2)
    expected = (2 * popular.matrix().toarray()[0] + [0, 2, 0]) / 4
    assert own.matrix().toarray()[0] == pytest.approx(expected)
    assert own.matrix().toarray()[2] == pytest.approx(popular.matrix().toarray()[2])
    assert (own.matrix().toarray() > 0).tolist() == (popular.matrix().toarray() > 0).tolist()
    with pytest.raises(InputError, match="weight is 0"):
        fit_person(popular, [[0, 1]], weight=0)
    with pytest.raises(InputError, match="no grid"):
        fit_person(SparseChain.of(np.eye(2), initial=[0.5, 0.5]), [[0, 1]])


def test_gaps_in_time_cut_a_trajectory() -> None:
    pieces = cut_at_gaps([1, 2, 3, 4], [0, 60, 600, 660], 300)
    assert [piece.tolist() for piece in pieces] == [[1, 2], [3, 4]]
    with pytest.raises(DataError, match="times go back"):
        cut_at_gaps([1, 2], [60, 0], 300)
    with pytest.raises(DataError, match="2 cells with 1 times"):
        cut_at_gaps([1, 2], [60], 300)


def test_fits_that_make_no_sense_are_refused() -> None:
    grid = beijing(2, 3)
    with pytest.raises(DataError, match="fewer than 2 readings on the map"):
        fit_grid(grid, [[-1, 3, -1]])
    with pytest.raises(InputError, match="smoothing is -1"):
        fit_grid(grid, [[0, 1]], smoothing=-1)
    with pytest.raises(InputError, match="initial is 'last'"):
        fit_grid(grid, [[0, 1]], initial="last")  # type: ignore[arg-type]


def test_a_sparse_chain_is_the_dense_one_without_its_zeros() -> None:
    chain = town(3, 4)
    dense = chain.dense()
    assert isinstance(dense, MarkovChain)
    assert dense.transition == pytest.approx(chain.matrix().toarray())
    assert loads(dumps(chain)) == chain
    path = chain.sample(200, SeededRng(2))
    assert all(dense.transition[a, b] > 0 for a, b in itertools.pairwise(path))
    assert set(path.tolist()) == set(range(12))
    assert chain.describe().startswith("a sparse Markov chain of any length on 12 states")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"starts": [0, 1]}, "increasing numbers"),
        ({"starts": [0, 0, 2]}, "at least one move"),
        ({"targets": [0, 2, 1]}, "from 0 to 1"),
        ({"targets": [1, 0, 1]}, "ascend in every row"),
        ({"weights": [0.5, 0.0, 1.0]}, "above 0"),
        ({"weights": [0.5, 0.6, 1.0]}, "row 0 sum to 1.1"),
        ({"cells": [0, 1]}, "go together"),
        ({"initial": [0.5, 0.6]}, "initial sums to 1.1"),
    ],
)
def test_sparse_chains_that_make_no_sense_are_refused(
    wrong: dict[str, list[float]], message: str
) -> None:
    fields = {
        "states": ("a", "b"),
        "starts": [0, 2, 3],
        "targets": [0, 1, 1],
        "weights": [0.5, 0.5, 1.0],
        "initial": [0.5, 0.5],
        **wrong,
    }
    with pytest.raises(InputError, match=message):
        SparseChain(**fields)  # type: ignore[arg-type]


def test_cells_must_lie_on_the_grid() -> None:
    grid = beijing(1, 2)
    with pytest.raises(InputError, match="one cell from 0 to 1"):
        SparseChain.of(np.eye(2), initial=[0.5, 0.5], grid=grid, cells=[0, 2])
