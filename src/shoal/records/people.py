"""The people of a town: where each of them is most often, and who is whose friend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.additive.queries import LinearQuery
from shoal.core.codec import Floats, Ints, Value, locked
from shoal.core.errors import InputError
from shoal.records.field import PairwiseField, as_field
from shoal.records.kmeans import Centroids, centroids
from shoal.records.ties import Dependence

EARTH_RADIUS_KM = 6371.0088
CELLS = 20  # a side of the grid over a city, as in the paper
PLACES = 6  # q, the most visited places of a person


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class City(Value):
    """A box of latitudes and longitudes, public, cut into `cells` × `cells` equal parts."""

    south: float
    west: float
    north: float
    east: float
    cells: int = CELLS

    def __post_init__(self) -> None:
        if not (self.south < self.north and self.west < self.east):
            raise InputError(
                f"the city spans {self.south} to {self.north} and {self.west} to {self.east}; "
                "north must lie above south and east beyond west"
            )

    @property
    def size(self) -> int:
        return self.cells**2

    def cell_of(self, places: Floats) -> Ints:
        """The cell of each (latitude, longitude), clipped to the box; row by row from the south."""
        low = np.array([self.south, self.west])
        span = np.array([self.north, self.east]) - low
        steps = np.clip((places - low) / span * self.cells, 0, self.cells - 1).astype(np.int64)
        return np.asarray(steps[..., 0] * self.cells + steps[..., 1])

    def query(self, places: int = PLACES, *, clusters: int = 8, rounds: int = 5) -> Centroids:
        """K-means over location vectors of `places` places, 2 · places numbers in the box.

        It starts from points spread over the city, each repeated for every place: a person's
        places are near each other.
        """
        south, west = str(self.south), str(self.west)  # decimals as a person writes them
        north, east = str(self.north), str(self.east)
        spread = centroids(("lat", "lon"), low=(south, west), high=(north, east), clusters=clusters)
        return centroids(
            [f"{side} {place + 1}" for place in range(places) for side in ("lat", "lon")],
            low=(south, west) * places,
            high=(north, east) * places,
            clusters=clusters,
            rounds=rounds,
            start=np.tile(spread.in_units(spread.start), (1, places)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class People:
    """Location vectors (latitude, longitude of each person's top places) and friendships.

    `vectors` (n, 2q), most visited place first; `friends` (m, 2) numbers of people.
    """

    city: City
    vectors: Floats
    friends: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", locked(self.vectors))
        pairs = np.asarray(self.friends, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "friends", locked(pairs, np.int64))
        if self.vectors.ndim != 2 or self.vectors.shape[1] % 2 or not self.vectors.size:
            raise InputError(
                f"vectors has shape {self.vectors.shape}; each person needs latitude and longitude "
                "of each place, in one row"
            )
        if pairs.size and (pairs.min() < 0 or pairs.max() >= len(self.vectors)):
            raise InputError(f"friends names a person outside 0 … {len(self.vectors) - 1}")

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def places(self) -> int:
        """q: how many places a location vector holds."""
        return int(self.vectors.shape[1]) // 2

    def cells(self) -> Ints:
        """The cell of everybody's most visited place."""
        return self.city.cell_of(self.vectors[:, :2])

    def friends_of(self, person: int) -> Ints:
        """The numbers of a person's friends."""
        here = (self.friends == person).any(axis=1)
        ends = self.friends[here].ravel()
        return np.unique(ends[ends != person])


def km_between(one: Floats, other: Floats) -> Floats:
    """Kilometres on the sphere between (latitude, longitude) pairs in the last axis."""
    a, b = np.radians(one), np.radians(other)
    half = np.sin((a - b) / 2) ** 2
    chord = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0))))


def pattern_km(one: Floats, other: Floats) -> Floats:
    """Dist(d_i, d_j) = (1/q) Σ_l km between their l-th places: Liu et al. 2016, Eq. (5)."""
    places = one.shape[-1] // 2
    split = [v.reshape(*v.shape[:-1], places, 2) for v in (one, other)]
    return np.asarray(km_between(split[0], split[1]).mean(axis=-1))


def all_pattern_km(vectors: Floats, others: Floats | None = None) -> Floats:
    """Eq. (5) between every two rows, block by block."""
    columns = vectors if others is None else others
    rows = [
        pattern_km(vectors[start : start + 256, None, :], columns[None, :, :])
        for start in range(0, len(vectors), 256)
    ]
    return np.concatenate(rows)


def location_vector(places: Sequence[tuple[float, float]], top: int = PLACES) -> list[float]:
    """A person's `top` most visited places, given in that order, as one row of 2·top numbers.

    Someone with fewer places has them repeated in order.
    """
    if not places:
        raise InputError("a person without a place has no location vector; leave them out")
    return [value for k in range(top) for value in places[k % len(places)]]


def distances_of_pairs(
    people: People, *, strangers: int = 20_000, seed: int = 0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eq. (5) for all friends, and for random pairs of people who are not friends."""
    ends = people.friends
    close = pattern_km(people.vectors[ends[:, 0]], people.vectors[ends[:, 1]])
    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, len(people), (strangers, 2))
    code = {(int(a), int(b)) for a, b in np.sort(ends, axis=1)}
    apart = [(a, b) for a, b in pairs.tolist() if a != b and (min(a, b), max(a, b)) not in code]
    table = np.array(apart, dtype=np.int64).reshape(-1, 2)
    far = pattern_km(people.vectors[table[:, 0]], people.vectors[table[:, 1]])
    return np.sort(close), np.sort(far)


# What ties give away about single records: guessing a value from tied values and a release.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guessed:
    """Beliefs about every record, (records, values): without ties and with them, then released.

    The adversary knows all other records. `alone` is P(value) by the model's own law of the record,
    `tied` that law given the values it is tied to; `alone_after` and `tied_after` have seen the
    release too.
    """

    places: Floats
    truth: Ints
    alone: Floats
    tied: Floats
    alone_after: Floats
    tied_after: Floats

    def right(self, beliefs: Floats) -> float:
        """The share of records whose likeliest value is the true one."""
        return float((beliefs.argmax(axis=1) == self.truth).mean())

    def distance(self, beliefs: Floats) -> float:
        """Mean l1 distance between the true value and the guess of least expected distance."""
        apart = np.abs(self.places[:, None, :] - self.places[None, :, :]).sum(axis=2)
        guess = (beliefs @ apart).argmin(axis=1)
        return float(apart[guess, self.truth].mean())


def guess_values(
    model: Dependence | PairwiseField,
    query: LinearQuery,
    output: Floats,
    scale: float,
    truth: Ints,
) -> Guessed:
    """What somebody who knows everybody else's value believes about each record.

    With ties: P(x | tied values) ∝ P(x) · Π over ties of P(value there | x), exact where ties form
    no loop and the law is that of a field. A release of Σ weights with Laplace noise of `scale`
    adds exp(-|output - others - weight(x)|₁ / scale).
    """
    size = model.domain.size
    if len(truth) != model.records:
        raise InputError(f"truth has {len(truth)} values; the model has {model.records} records")
    own, laws = _laws(model)
    log_tied = np.log(np.maximum(own, 1e-300))
    with np.errstate(divide="ignore"):
        logs = np.log(laws)
    first, second = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    which = model.law_of
    forth = logs[which, :, truth[second]]  # what the second's value tells about the first
    back = np.swapaxes(logs, 1, 2)[which, :, truth[first]]
    np.add.at(log_tied, first, forth)
    np.add.at(log_tied, second, back)
    weights = np.array([[float(w) for w in row] for row in query.weights])
    others = weights[truth].sum(axis=0) - weights[truth]
    gaps = np.abs(output - others[:, None, :] - weights[None, :, :]).sum(axis=2)
    alone = own if len(own) == len(truth) else np.tile(own, (len(truth), 1))
    log_alone = np.log(np.maximum(alone, 1e-300))
    assert alone.shape == (len(truth), size)
    return Guessed(
        places=model.domain.centres,
        truth=truth,
        alone=_normal(log_alone),
        tied=_normal(log_tied),
        alone_after=_normal(log_alone - gaps / scale),
        tied_after=_normal(log_tied - gaps / scale),
    )


def _laws(model: Dependence | PairwiseField) -> tuple[Floats, Floats]:
    """A law of each record by itself, and per tie P(second = y | first = x) up to a constant.

    Of pairwise laws: the record's own margin, and law(x, y) / (margin(x) margin(y)), so that a
    product over ties counts the margin once. Of a field: own and potentials as they are.
    """
    field = as_field(model)
    if field is not None:
        own = np.broadcast_to(field.own, (field.records, field.domain.size))
        return np.asarray(own / own.sum(axis=1, keepdims=True)), field.potentials
    assert isinstance(model, Dependence)
    size = model.domain.size
    rows, columns = model.laws.sum(axis=2), model.laws.sum(axis=1)
    own = np.full((model.records, size), 1 / size)
    first, second = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    own[second] = columns[model.law_of]
    own[first] = rows[model.law_of]
    independent = rows[:, :, None] * columns[:, None, :]
    ratio = np.divide(model.laws, independent, out=np.zeros_like(model.laws), where=independent > 0)
    return own, ratio


def _normal(logs: Floats) -> Floats:
    """Rows of log-weights as laws; a row that rules out everything counts all alike."""
    top = logs.max(axis=1, keepdims=True)
    weights = np.exp(np.where(np.isfinite(top), logs - top, 0.0))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
