"""A map cut into cells: latitude and longitude to a cell and back, cells to a public lattice."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact, positive, whole

EARTH_RADIUS_M = 6_371_008.8  # mean radius
FURTHEST = 2.0**30  # lattice steps; points beyond count as there, so that squares fit 64 bits
WIDEST_DEGREES = 10.0  # a plane map stretches distances by less than 1 % up to this height
FINEST = 15  # resolution of H3
PRECISION = Fraction(1, 1000)  # km: hexagon centres are rounded to metres, once and publicly


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SquareGrid(Value):
    """Square cells of `cell_m` metres, `rows` × `columns` of them, row 0 in the south.

    A plane map around the middle latitude φ of the grid: x = R cos φ (longitude - west),
    y = R (latitude - south), R = 6,371,008.8 m. The centre of cell (row, column) lies at
    (column, row)·cell_m from that of cell (0, 0), an integer multiple in each coordinate, so
    cells live on a lattice without rounding. Cells are numbered row·columns + column.
    """

    kind = "square-grid"

    south: Fraction
    west: Fraction
    cell_m: Fraction
    rows: int
    columns: int

    def __post_init__(self) -> None:
        """Refuse a corner off the earth, cells or counts not above 0, and a map that is too
        high.
        """
        south, west = exact(self.south, "south"), exact(self.west, "west")
        if not -90 <= south < 90:
            raise InputError(f"south is {float(south):g}; latitudes are from -90 to 90 degrees")
        if not -180 <= west <= 180:
            raise InputError(f"west is {float(west):g}; longitudes are from -180 to 180 degrees")
        object.__setattr__(self, "south", south)
        object.__setattr__(self, "west", west)
        object.__setattr__(self, "cell_m", positive(self.cell_m, "cell_m"))
        object.__setattr__(self, "rows", whole(self.rows, "rows"))
        object.__setattr__(self, "columns", whole(self.columns, "columns"))
        height = float(self.rows * self.cell_m) / EARTH_RADIUS_M * 180 / math.pi
        if height > WIDEST_DEGREES or float(south) + height > 90:
            raise InputError(
                f"rows is {self.rows}; the map would be {height:.3g} degrees high, and a plane map "
                f"covers at most {WIDEST_DEGREES:g} and ends at the pole"
            )

    @classmethod
    def covering(
        cls, *, south: Number, west: Number, north: Number, east: Number, cell_km: Number
    ) -> SquareGrid:
        """The least grid with its south-west corner given that covers the box."""
        cell_m = positive(cell_km, "cell_km") * 1000
        bottom, left = exact(south, "south"), exact(west, "west")
        top, right = exact(north, "north"), exact(east, "east")
        if top <= bottom or right <= left:
            raise InputError("the box is empty; north must lie above south and east beyond west")
        metres = EARTH_RADIUS_M * math.pi / 180
        middle = math.radians(float(bottom + top) / 2)
        rows = math.ceil(float(top - bottom) * metres / float(cell_m))
        columns = math.ceil(float(right - left) * metres * math.cos(middle) / float(cell_m))
        return cls(
            south=bottom, west=left, cell_m=cell_m, rows=max(rows, 1), columns=max(columns, 1)
        )

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.rows * self.columns

    @property
    def step_km(self) -> Fraction:
        """The public lattice of the cells' centres."""
        return self.cell_m / 1000

    def cell_of(self, latitude: Any, longitude: Any) -> Ints:
        """The cell of each point; -1 outside the map and where a coordinate is not a number."""
        metres = EARTH_RADIUS_M * math.pi / 180
        size = float(self.cell_m)
        north = (np.asarray(latitude, np.float64) - float(self.south)) * metres / size
        east = (np.asarray(longitude, np.float64) - float(self.west)) * metres * self._shrink / size
        inside = (north >= 0) & (north < self.rows) & (east >= 0) & (east < self.columns)
        row = np.where(inside, north, 0).astype(np.int64)
        column = np.where(inside, east, 0).astype(np.int64)
        return np.where(inside, row * self.columns + column, -1)

    def centre_of(self, cell: Any) -> Floats:
        """Latitude and longitude of the centre of each cell, in the last axis."""
        return self.to_degrees(self.lattice_of(cell) * float(self.step_km))

    def corners_of(self, cell: int) -> Floats:
        """Latitude and longitude of the four corners of a cell, a row each."""
        half = float(self.step_km) / 2
        ends = np.array([(-half, -half), (-half, half), (half, -half), (half, half)])
        return self.to_degrees(self.lattice_of(cell) * float(self.step_km) + ends)

    def lattice_of(self, cell: Any) -> Ints:
        """(column, row) of each cell: its centre in units of `step_km`."""
        row, column = np.divmod(np.asarray(cell, np.int64), self.columns)
        return np.stack([column, row], axis=-1)

    def lattice_near(self, latitude: Any, longitude: Any) -> Ints:
        """(column, row) of each point in the last axis, also of those beyond the map's edge."""
        metres = EARTH_RADIUS_M * math.pi / 180 / float(self.cell_m)
        column = (np.asarray(longitude, np.float64) - float(self.west)) * metres * self._shrink
        row = (np.asarray(latitude, np.float64) - float(self.south)) * metres
        return _whole_steps(np.floor(np.stack([column, row], axis=-1)))

    def to_degrees(self, kilometres: Any) -> Floats:
        """Latitude and longitude of points given in km east and north of the first centre."""
        moved = np.asarray(kilometres, np.float64) * 1000 + float(self.cell_m) / 2
        degrees = moved / (EARTH_RADIUS_M * math.pi / 180)
        latitude = float(self.south) + degrees[..., 1]
        longitude = float(self.west) + degrees[..., 0] / self._shrink
        return np.stack([latitude, longitude], axis=-1)

    def adjacent(self, cell: int) -> tuple[int, ...]:
        """The up to eight cells around `cell`."""
        row, column = divmod(cell, self.columns)
        return tuple(
            r * self.columns + c
            for r in range(max(row - 1, 0), min(row + 2, self.rows))
            for c in range(max(column - 1, 0), min(column + 2, self.columns))
            if (r, c) != (row, column)
        )

    def name_of(self, cell: int) -> str:
        """ "row,column", counted from the south-west corner."""
        row, column = divmod(cell, self.columns)
        return f"{row},{column}"

    def describe(self) -> str:
        return (
            f"{self.rows} × {self.columns} square cells of {float(self.cell_m):g} m from "
            f"{float(self.south):g}° N, {float(self.west):g}° E"
        )

    @property
    def _shrink(self) -> float:
        """cos φ at the middle latitude: how much shorter a degree of longitude is."""
        half = float(self.rows * self.cell_m) / 2 / EARTH_RADIUS_M
        return math.cos(math.radians(float(self.south)) + half)


class AroundFirst(Value):
    """A plane map around the centre of its first cell, rounded to the metre, once and publicly."""

    __slots__ = ()

    @property
    def step_km(self) -> Fraction:
        """The public lattice the centres are rounded to."""
        return PRECISION

    def centre_of(self, cell: Any) -> Floats:
        """Latitude and longitude of the centre of each cell, in the last axis."""
        raise NotImplementedError

    def lattice_of(self, cell: Any) -> Ints:
        """(east, north) of each centre from the first one, in metres."""
        return _whole_steps(np.rint(self._plane(self.centre_of(cell))))

    def lattice_near(self, latitude: Any, longitude: Any) -> Ints:
        """(east, north) of each point, any at all, from the first centre, in metres."""
        return _whole_steps(np.rint(self._plane(np.stack([latitude, longitude], axis=-1))))

    def to_degrees(self, kilometres: Any) -> Floats:
        """Latitude and longitude of points given in km east and north of the first centre."""
        origin = self.centre_of(0)
        degrees = np.asarray(kilometres, np.float64) * 1000 / (EARTH_RADIUS_M * math.pi / 180)
        longitude = origin[1] + degrees[..., 0] / math.cos(math.radians(float(origin[0])))
        return np.stack([origin[0] + degrees[..., 1], longitude], axis=-1)

    def _plane(self, places: Floats) -> Floats:
        """Metres east and north of the first centre."""
        origin = self.centre_of(0)
        degrees = (np.asarray(places, np.float64) - origin) * (EARTH_RADIUS_M * math.pi / 180)
        shrink = math.cos(math.radians(float(origin[0])))
        return np.stack([degrees[..., 1] * shrink, degrees[..., 0]], axis=-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HexGrid(AroundFirst):
    """H3 hexagons of one resolution; needs the `h3` extra.

    `indexes` are the 64-bit H3 indexes of the cells, in ascending order.
    """

    kind = "hex-grid"

    indexes: Ints

    def __post_init__(self) -> None:
        indexes = np.unique(np.asarray(self.indexes, np.int64))
        if not len(indexes):
            raise InputError("indexes is empty; a map needs at least one hexagon")
        object.__setattr__(self, "indexes", as_read_only(indexes, np.int64))

    @classmethod
    def covering(
        cls, *, south: float, west: float, north: float, east: float, resolution: int
    ) -> HexGrid:
        """The hexagons whose centres lie in the box."""
        if whole(resolution, "resolution", least=0) > FINEST:
            raise InputError(
                f"resolution is {resolution}; it must be 0 to {FINEST}, as H3 numbers its hexagons"
            )
        library = _h3()
        box = library.LatLngPoly([(south, west), (north, west), (north, east), (south, east)])
        cells = library.polygon_to_cells(box, resolution)
        return cls(indexes=np.array(list(cells), dtype=np.int64))

    @property
    def size(self) -> int:
        """How many cells there are."""
        return len(self.indexes)

    def cell_of(self, latitude: Any, longitude: Any) -> Ints:
        """The place of each point's hexagon among `indexes`; -1 outside the map."""
        library = _h3()
        resolution = library.get_resolution(int(self.indexes[0]))
        latitudes, longitudes = np.atleast_1d(latitude), np.atleast_1d(longitude)
        found = [
            library.latlng_to_cell(float(a), float(b), resolution)
            if math.isfinite(a) and math.isfinite(b)
            else -1
            for a, b in zip(latitudes, longitudes, strict=True)
        ]
        places = np.searchsorted(self.indexes, found).clip(max=self.size - 1)
        cells = np.where(self.indexes[places] == found, places, -1).astype(np.int64)
        return cells if np.ndim(latitude) else cells[0]

    def centre_of(self, cell: Any) -> Floats:
        """Latitude and longitude of the centre of each cell, in the last axis."""
        chosen = self.indexes[np.atleast_1d(cell)].tolist()
        centres = np.array(list(map(_h3().cell_to_latlng, chosen)))
        return centres if np.ndim(cell) else np.asarray(centres[0])

    def corners_of(self, cell: int) -> Floats:
        """Latitude and longitude of the corners of a hexagon, a row each."""
        return np.array(_h3().cell_to_boundary(int(self.indexes[cell])))

    def adjacent(self, cell: int) -> tuple[int, ...]:
        """The up to six hexagons of the map around `cell`."""
        around = np.array(list(_h3().grid_ring(int(self.indexes[cell]), 1)), dtype=np.int64)
        return tuple(np.flatnonzero(np.isin(self.indexes, around)).tolist())

    def name_of(self, cell: int) -> str:
        """The H3 index in hexadecimal."""
        return str(_h3().int_to_str(int(self.indexes[cell])))

    def describe(self) -> str:
        return f"{self.size} H3 hexagons"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoadMap(AroundFirst):
    """Straight pieces of road as cells: `ends` (n, 4) holds latitude, longitude of both ends.

    A point belongs to the nearest piece, so no point is off the map; the centre of a piece is its
    middle. Pieces that share an end are adjacent. `names` are those of the pieces, in their order.
    """

    kind = "road-map"

    ends: Floats
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse ends that are not four finite degrees a piece, and names that are missing or
        repeated.
        """
        ends = np.asarray(self.ends, np.float64)
        if ends.ndim != 2 or ends.shape[1] != 4 or not len(ends) or not np.isfinite(ends).all():
            raise InputError("ends must hold four finite numbers of degrees for each piece of road")
        names = tuple(map(str, self.names))
        if len(names) != len(ends) or len(set(names)) != len(names):
            raise InputError(
                f"names holds {len(names)} names for {len(ends)} pieces; name each once"
            )
        object.__setattr__(self, "ends", as_read_only(ends))
        object.__setattr__(self, "names", names)

    @classmethod
    def of_graph(cls, graph: Any) -> RoadMap:
        """From a networkx graph as osmnx makes it: nodes with x (longitude) and y (latitude).

        Both directions of a road are one piece, called "from-to" after its nodes.
        """
        pairs = sorted({tuple(sorted((str(a), str(b)))) for a, b in graph.edges() if a != b})
        places = {str(node): (data.get("y"), data.get("x")) for node, data in graph.nodes.items()}
        if not pairs:
            raise InputError("the graph has no edge between two nodes; a road needs both ends")
        missing = [node for pair in pairs for node in pair if None in places[node]]
        if missing:
            raise InputError(f"node {missing[0]!r} has no x and y; a road needs both in degrees")
        ends = [(*places[a], *places[b]) for a, b in pairs]
        return cls(ends=np.array(ends, np.float64), names=tuple(f"{a}-{b}" for a, b in pairs))

    @classmethod
    def of_extract(cls, path: str) -> RoadMap:
        """From an OpenStreetMap extract (.osm); needs the `roads` extra, and no network."""
        try:
            import osmnx
        except ImportError:
            raise InputError(
                "OpenStreetMap extracts need osmnx; install it with `pip install 'shoal[roads]'`, "
                "or make the map of a networkx graph with RoadMap.of_graph"
            ) from None
        # not simplified: a road with bends would be one straight piece between its ends
        return cls.of_graph(osmnx.graph_from_xml(path, simplify=False))

    @property
    def size(self) -> int:
        """How many cells there are."""
        return len(self.ends)

    def cell_of(self, latitude: Any, longitude: Any) -> Ints:
        """The piece nearest to each point, ties by index; -1 where a coordinate is no number."""
        points = self._plane(np.stack(np.broadcast_arrays(latitude, longitude), axis=-1))
        first, last = self._plane(self.ends[:, :2]), self._plane(self.ends[:, 2:])
        along = last - first
        squares = np.maximum((along**2).sum(axis=1), 1e-12)
        offsets = points[..., None, :] - first
        share = np.clip((offsets * along).sum(axis=-1) / squares, 0.0, 1.0)
        away = ((offsets - share[..., None] * along) ** 2).sum(axis=-1)
        known: Any = np.isfinite(points).all(axis=-1)
        return np.where(known, np.where(known[..., None], away, 0.0).argmin(axis=-1), -1)

    def centre_of(self, cell: Any) -> Floats:
        """Latitude and longitude of the middle of each piece, in the last axis."""
        chosen = self.ends[np.asarray(cell, np.int64)]
        return np.asarray((chosen[..., :2] + chosen[..., 2:]) / 2)

    def corners_of(self, cell: int) -> Floats:
        """Latitude and longitude of both ends of a piece, a row each."""
        return np.asarray(self.ends[cell].reshape(2, 2))

    def adjacent(self, cell: int) -> tuple[int, ...]:
        """The pieces that share an end with `cell`."""
        own = self.ends[cell]
        met = np.zeros(self.size, dtype=np.bool_)
        for mine in (own[:2], own[2:]):
            met |= (self.ends[:, :2] == mine).all(axis=1) | (self.ends[:, 2:] == mine).all(axis=1)
        met[cell] = False
        return tuple(np.flatnonzero(met).tolist())

    def name_of(self, cell: int) -> str:
        """The name of a piece."""
        return self.names[cell]

    def describe(self) -> str:
        return f"{self.size} pieces of road"


Grid = SquareGrid | HexGrid | RoadMap


def _whole_steps(steps: Floats) -> Ints:
    return np.clip(steps, -FURTHEST, FURTHEST).astype(np.int64)


def _h3() -> Any:
    """Return the h3 module; refused with how to install it when it is missing."""
    try:
        from h3.api import basic_int as h3  # cells by number
    except ImportError:
        raise InputError(
            "hexagons need the h3 library; install it with `pip install 'shoal[h3]'`, or use "
            "square cells"
        ) from None
    return h3
