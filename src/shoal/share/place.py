"""The secret: a permanent place, one of several crossings of a public zone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive, significant
from shoal.share.roads import Roads, metres_between, plane

if TYPE_CHECKING:
    from shoal.core.task import Model

LEAST_CANDIDATES = 12  # fewer crossings hide nobody: the odds of 2.7 would be most of the map
SQUARE_METRES = 1000.0  # side of the usual public square
GRID_DEGREES = 0.01  # the usual squares begin at multiples of this latitude


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PermanentPlace(Value):
    """A place that never moves during a history of tracks: one of the crossings `zone`.

    `hidden` are the crossings that are never shown, those of the zone among them. With `within`
    (metres) the promise is the metric one: two crossings further apart than that may be told apart
    by epsilon for each such length. `about` says which zone it is, in public words.
    """

    kind = "permanent-place"

    zone: Ints
    hidden: Ints
    about: str = "the zone"
    within: Fraction | None = None

    @classmethod
    def of(
        cls,
        zone: Sequence[int],
        *,
        hidden: Sequence[int] | None = None,
        about: str = "the zone",
        within: Number | None = None,
    ) -> PermanentPlace:
        """Build from the crossings of a zone; `hidden` is the zone itself unless it is given."""
        return cls(
            zone=as_read_only(sorted(zone), np.int64),
            hidden=as_read_only(sorted(zone if hidden is None else hidden), np.int64),
            about=about,
            within=None if within is None else positive(within, "within"),
        )

    @classmethod
    def square(
        cls,
        roads: Roads,
        latitude: float,
        longitude: float,
        *,
        within: Number | None = None,
    ) -> PermanentPlace:
        """Build from the public square of about one kilometre that holds a point.

        Squares lie on one fixed grid for everybody, so that a square says nothing but that the
        place is in it. Refused below 12 crossings.
        """
        south, west, height, width = square_at(latitude, longitude)
        lat, lon = roads.points.T
        inside = (lat >= south) & (lat < south + height) & (lon >= west) & (lon < west + width)
        about = f"square {south:.2f}N {west:.3f}E of {height:.2f} by {width:.3f} degrees"
        found = np.flatnonzero(inside).tolist()
        refuse_small_zone(len(found), about)
        return cls.of(found, about=about, within=within)

    @classmethod
    def district(
        cls,
        roads: Roads,
        rings: Sequence[Sequence[tuple[float, float]]],
        *,
        about: str = "the district",
        within: Number | None = None,
    ) -> PermanentPlace:
        """Build from a polygon: rings of (longitude, latitude), the first one the outer ring.

        Draw it without thinking of the place it hides. Refused below 12 crossings.
        """
        inside = np.zeros(roads.size, dtype=bool)
        for ring in rings:
            inside ^= _in_ring(roads.points, np.asarray(ring, dtype=float))
        found = np.flatnonzero(inside).tolist()
        refuse_small_zone(len(found), about)
        return cls.of(found, about=about, within=within)

    def __post_init__(self) -> None:
        zone = self.zone.tolist()
        if len(set(zone)) < 2:
            raise InputError("zone must hold at least 2 different crossings; name all candidates")
        if not set(zone) <= set(self.hidden.tolist()):
            raise InputError("hidden must hold every crossing of the zone; add those of the zone")
        if self.within is not None and self.within <= 0:
            raise InputError(f"within is {self.within}; it must be greater than 0 metres")

    @property
    def places(self) -> tuple[PermanentPlace, ...]:
        """This place alone, as `PermanentPlaces` names several."""
        return (self,)

    @property
    def notion(self) -> str:
        """Odds between two crossings, whatever the adversary believed before."""
        return "pufferfish"

    @property
    def subject(self) -> str:
        """What is hidden, as a short noun phrase."""
        return f"which of {len(self.zone)} crossings of {self.about} is the place"

    def describe(self) -> str:
        metric = (
            ""
            if self.within is None
            else f", epsilon for every {significant(self.within)} m between two crossings"
        )
        return f"{self.subject}; it does not move while tracks are published{metric}"

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse models that are no road maps, and maps without the zone's crossings."""
        for model in family:
            if not isinstance(model, Roads):
                raise InputError(
                    f"a permanent place is hidden on a map of roads, not by {model.describe()}"
                )
            if self.hidden.min() < 0 or self.hidden.max() >= model.size:
                raise InputError(
                    f"zone names crossing {self.hidden.max()}; the map has crossings 0 to "
                    f"{model.size - 1}"
                )

    def tied_under(self, model: Model) -> int | None:
        """None: every leg ever published depends on the place."""
        return None

    def scale(self, roads: Roads) -> Floats:
        """Return by what factor each ordered pair of crossings may pass epsilon; at least 1."""
        first, second = np.meshgrid(self.zone, self.zone, indexing="ij")
        if self.within is None:
            return np.ones(first.shape)
        distance = metres_between(roads.points, first, second)
        return np.asarray(np.maximum(1.0, distance / float(self.within) * (1 - 1e-9)))


def refuse_small_zone(count: int, about: str) -> None:
    """Refuse a zone with too few crossings to hide among."""
    if count < LEAST_CANDIDATES:
        raise InputError(
            f"{about} holds {count} crossings of the map; at least {LEAST_CANDIDATES} are needed "
            "to hide among (give a larger district with --hide-zone, or a fuller map)"
        )


def square_at(
    latitude: float, longitude: float, side: float = GRID_DEGREES
) -> tuple[float, float, float, float]:
    """Return south, west, height and width in degrees of the public square that holds a point.

    Rows are `side` degrees of latitude high, 0.01 for the usual squares. The width in degrees is
    chosen by the row, so that a square is about as wide as high.
    """
    if not (-85 <= latitude <= 85 and -180 <= longitude <= 180):
        raise InputError(
            f"the place is {latitude}, {longitude}; give latitude (-85 to 85) and longitude"
        )
    row = math.floor(latitude / side)
    width = side / max(math.cos(math.radians((row + 0.5) * side)), 0.08)
    width = 360 / round(360 / width)
    column = math.floor((longitude + 180) / width)
    return row * side, column * width - 180, side, width


def centre_offset(roads: Roads, zone: Ints, latitude: float, longitude: float) -> float:
    """Return how far a point lies from the middle of a zone, as a share of the zone's radius."""
    x, y = plane(np.vstack([roads.points[zone], [[latitude, longitude]]]))
    middle = np.array([(x[:-1].min() + x[:-1].max()) / 2, (y[:-1].min() + y[:-1].max()) / 2])
    radius = max(np.hypot(x[:-1] - middle[0], y[:-1] - middle[1]).max(), 1.0)
    return float(np.hypot(x[-1] - middle[0], y[-1] - middle[1]) / radius)


def _in_ring(points: Floats, ring: Floats) -> Floats:
    """Return the mask of points (latitude, longitude) inside one ring, by counting crossings."""
    lat, lon = points.T
    inside = np.zeros(len(points), dtype=bool)
    for (x, y), (next_x, next_y) in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        if y == next_y:
            continue
        between = (lat >= min(y, next_y)) & (lat < max(y, next_y))
        inside ^= between & (lon < x + (lat - y) / (next_y - y) * (next_x - x))
    return inside
