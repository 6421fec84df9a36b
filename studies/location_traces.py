"""Towns and the people who move in them: made-up walks always, GeoLife and Gowalla when present."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.data.synthetic.towns import map_walk
from shoal.places.map import SquareGrid
from shoal.places.queries import Measurement, coordinates
from shoal.places.walk import SparseChain, cut_at_gaps, fit_grid, fit_person
from studies.sources import real_folder

STEPS = 100  # of a track, after a first position that everybody knows
TRACKS = 20
SIDE = 28  # cells of the generated town, each 150 m wide
WALKERS = 12
GEOLIFE_BOX = {"south": "39.85", "west": "116.27", "north": "39.97", "east": "116.47"}
GEOLIFE_GAP = 300.0  # seconds without a reading that end a trajectory
POINTS_OF_INTEREST = 200


class Track(NamedTuple):
    """A person's states, a known first one and STEPS more."""

    person: str
    states: Ints


class Town(NamedTuple):
    """A map with the chain of all who move on it, their tracks, and places worth a visit.

    `radius_km` is the G_util of the papers for this map, `places` are in km on the map's plane.
    """

    name: str
    chain: SparseChain
    query: Measurement
    histories: dict[str, list[Ints]]
    tracks: tuple[Track, ...]
    radius_km: Fraction
    places: Floats

    def own_chain(self, person: str) -> SparseChain:
        """The personal model: the person's own moves, leaning on everybody's."""
        return fit_person(self.chain, self.histories[person])


def towns() -> Iterator[Town]:
    """The generated town, then what is found of the real ones."""
    yield generated()
    folder = real_folder()
    if folder is None:
        return
    geolife = folder / "geolife_beijing_3rdring_60s.parquet"
    if geolife.exists():
        yield _geolife(geolife)
    gowalla = folder / "gowalla_nyc_checkins.parquet"
    if gowalla.exists():
        yield _gowalla(gowalla, folder / "gowalla_nyc_venues.parquet")


def generated() -> Town:
    """Walkers with homes, work and errands of their own; minutes on the way and two in every stay.

    Nights of standing still would make every mechanism look good.
    """
    histories = {}
    for walker in range(WALKERS):
        walk = map_walk(days=6, seed=walker + 1, rows=SIDE, columns=SIDE)
        cells = walk.cells
        moved = np.flatnonzero(np.diff(cells, prepend=-1))
        kept = np.union1d(moved, np.minimum(moved + 1, len(cells) - 1))
        histories[f"walker {walker + 1}"] = [cells[kept]]
    grid = SquareGrid(
        south=Fraction(50), west=Fraction(10), cell_m=Fraction(150), rows=SIDE, columns=SIDE
    )
    return _town("generated town", grid, histories, Fraction(1, 2), None)


def _geolife(path: Path) -> Town:
    """Trajectories inside Beijing's third ring, minute by minute, 0.34 km cells."""
    import polars as pl

    frame = pl.read_parquet(path).filter(~pl.col("shared")).sort("user", "traj", "time_utc")
    grid = SquareGrid.covering(cell_km=Fraction(34, 100), **GEOLIFE_BOX)
    histories: dict[str, list[Ints]] = {}
    for (user, _), rows in frame.group_by(["user", "traj"], maintain_order=True):
        cells = grid.cell_of(rows["lat"].to_numpy(), rows["lon"].to_numpy())
        seconds = rows["time_utc"].dt.epoch("s").to_numpy()
        histories.setdefault(str(user), []).extend(cut_at_gaps(cells, seconds, GEOLIFE_GAP))
    return _town("GeoLife", grid, histories, Fraction(1), None)


def _gowalla(path: Path, venues: Path) -> Town:
    """Consecutive check-ins in New York, whatever the time between them, 0.89 km cells."""
    import polars as pl

    frame = pl.read_parquet(path).sort("user", "time_utc")
    low = frame.select(pl.min("lat"), pl.min("lon")).row(0)
    high = frame.select(pl.max("lat"), pl.max("lon")).row(0)
    corners = dict(zip(("south", "west"), (f"{v:.4f}" for v in low), strict=True))
    corners |= dict(zip(("north", "east"), (f"{v + 1e-4:.4f}" for v in high), strict=True))
    grid = SquareGrid.covering(cell_km=Fraction(89, 100), **corners)
    histories = {}
    for (user,), rows in frame.group_by(["user"], maintain_order=True):
        histories[str(user)] = [grid.cell_of(rows["lat"].to_numpy(), rows["lon"].to_numpy())]
    named = pl.read_parquet(venues).sort("place_id").gather_every(150) if venues.exists() else None
    spots = None if named is None else named.select("lat", "lon").to_numpy()
    return _town("Gowalla", grid, histories, Fraction(2), spots)


def _town(
    name: str,
    grid: SquareGrid,
    histories: dict[str, list[Ints]],
    radius_km: Fraction,
    spots: Any,
) -> Town:
    chain = fit_grid(grid, [cells for own in histories.values() for cells in own]).chain
    assert chain.cells is not None
    number = np.full(grid.size + 1, -1, dtype=np.int64)  # the last place is for cell -1
    number[chain.cells] = np.arange(chain.size)
    query = coordinates(chain)
    places: Floats
    if spots is None:  # the most visited cells stand for points of interest
        busiest = np.argsort(-chain.initial, kind="stable")[:POINTS_OF_INTEREST]
        places = query.values[busiest]
    else:
        cells = grid.cell_of(spots[:, 0], spots[:, 1])
        places = np.asarray(grid.lattice_of(cells[cells >= 0]) * float(grid.step_km), np.float64)
    return Town(
        name=name,
        chain=chain,
        query=query,
        histories=histories,
        tracks=_tracks(histories, number),
        radius_km=radius_km,
        places=places,
    )


def _tracks(histories: dict[str, list[Ints]], number: Ints) -> tuple[Track, ...]:
    """TRACKS stretches of STEPS + 1 readings on the map, from as many people as there are."""
    found: list[Track] = []
    for person, chains in histories.items():
        for cells in chains:
            pieces = np.split(cells, np.flatnonzero(cells < 0))
            for piece in (piece[piece >= 0] for piece in pieces):
                starts = range(0, len(piece) - STEPS, STEPS + 1)
                found += [Track(person, number[piece[at : at + STEPS + 1]]) for at in starts]
    rank: dict[str, int] = {}
    keyed = []
    for track in found:  # everybody's first stretch before anybody's second
        rank[track.person] = rank.get(track.person, 0) + 1
        keyed.append((rank[track.person], track))
    keyed.sort(key=lambda pair: (pair[0], pair[1].person))
    return tuple(track for _, track in keyed[:TRACKS])
