"""Attacks on people's places: what released centroids and friendships give away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.plan import Answer
from shoal.mechanisms.plans import split_rounds
from shoal.records.attack import entropy_bits, gain_bits
from shoal.records.kmeans import Centroids, centroids, nearest
from shoal.records.sources import FriendModel

EARTH_RADIUS_KM = 6371.0088  # mean radius of the Earth (IUGG)


CELLS_PER_SIDE = 20  # a side of the grid over a city, as in the paper


PLACES_PER_PERSON = 6  # q, the most visited places of a person


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class City(Value):
    """A box of latitudes and longitudes, public, cut into `cells` × `cells` equal parts."""

    kind = "city"

    south: float
    west: float
    north: float
    east: float
    cells: int = CELLS_PER_SIDE

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
        """Return the cell of each (latitude, longitude), clipped to the box; row by row from the
        south.
        """
        low = np.array([self.south, self.west])
        span = np.array([self.north, self.east]) - low
        steps = np.clip((places - low) / span * self.cells, 0, self.cells - 1).astype(np.int64)
        return np.asarray(steps[..., 0] * self.cells + steps[..., 1])

    def query(
        self, places: int = PLACES_PER_PERSON, *, clusters: int = 8, rounds: int = 5
    ) -> Centroids:
        """Return K-means over location vectors of `places` places, 2 · places numbers in the box.

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
        """Check the shapes, and store the arrays locked."""
        object.__setattr__(self, "vectors", as_read_only(self.vectors))
        pairs = np.asarray(self.friends, dtype=np.int64).reshape(-1, 2)
        object.__setattr__(self, "friends", as_read_only(pairs, np.int64))
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
        """Return the cell of each person's most visited place."""
        return self.city.cell_of(self.vectors[:, :2])

    def friends_of(self, person: int) -> Ints:
        """Return the numbers of a person's friends."""
        here = (self.friends == person).any(axis=1)
        ends = self.friends[here].ravel()
        return np.unique(ends[ends != person])


def km_between(one: Floats, other: Floats) -> Floats:
    """Return kilometres on the sphere between (latitude, longitude) pairs in the last axis."""
    a, b = np.radians(one), np.radians(other)
    half = np.sin((a - b) / 2) ** 2
    chord = half[..., 0] + np.cos(a[..., 0]) * np.cos(b[..., 0]) * half[..., 1]
    return np.asarray(2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(chord, 0.0, 1.0))))


def pattern_km(one: Floats, other: Floats) -> Floats:
    """Return (1/q) Σ_l km between the l-th places of two people: Liu et al. 2016, Eq. (5)."""
    places = one.shape[-1] // 2
    split = [v.reshape(*v.shape[:-1], places, 2) for v in (one, other)]
    return np.asarray(km_between(split[0], split[1]).mean(axis=-1))


def all_pattern_km(vectors: Floats, others: Floats | None = None) -> Floats:
    """Return Eq. (5) between every two rows, in kilometres, block by block."""
    columns = vectors if others is None else others
    rows = [
        pattern_km(vectors[start : start + 256, None, :], columns[None, :, :])
        for start in range(0, len(vectors), 256)
    ]
    return np.concatenate(rows)


def location_vector(
    places: Sequence[tuple[float, float]], top: int = PLACES_PER_PERSON
) -> list[float]:
    """Return a person's `top` most visited places, given in that order, as one row of 2·top
    numbers.

    Someone with fewer places has them repeated in order.
    """
    if not places:
        raise InputError("a person without a place has no location vector; leave them out")
    return [value for k in range(top) for value in places[k % len(places)]]


def distances_of_pairs(
    people: People, *, strangers: int = 20_000, seed: int = 0
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return Eq. (5) for all friends, and for random pairs of people who are not friends."""
    ends = people.friends
    close = pattern_km(people.vectors[ends[:, 0]], people.vectors[ends[:, 1]])
    draw = np.random.default_rng(seed)
    pairs = draw.integers(0, len(people), (strangers, 2))
    code = {(int(a), int(b)) for a, b in np.sort(ends, axis=1)}
    apart = [(a, b) for a, b in pairs.tolist() if a != b and (min(a, b), max(a, b)) not in code]
    table = np.array(apart, dtype=np.int64).reshape(-1, 2)
    far = pattern_km(people.vectors[table[:, 0]], people.vectors[table[:, 1]])
    return np.sort(close), np.sort(far)


# What friendships give away: locating a person from released centroids and other people.
#
# The inference attack of Liu, Chakraborty & Mittal 2016, Section IV. The adversary sees every
# round of a private K-means over location vectors, knows some or all other people's vectors, and
# perhaps who is whose friend.


MILE_KM = 1.609344  # kilometres of a statute mile


FRIENDSHIP = FriendModel(b=0.196 * MILE_KM, c=1.05)  # Backstrom, Sun & Marlow 2010, in km


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocatedPerson:
    """What the adversary believes about one person's cell, and how far the best guess is off.

    before: P(cell) from other people alone, Eq. (8). prior: what was believed before the release
    was seen, Eq. (8) or, with friendships, Eq. (9). after: Eq. (6). All (cells,).
    """

    before: Floats
    prior: Floats
    after: Floats
    guess: Floats
    error_km: float
    cell_error_km: float

    @property
    def leaked_bits(self) -> float:
        """H(before) - H(after): Eq. (11). With friendships it counts what they tell, too."""
        return entropy_bits(self.before) - entropy_bits(self.after)

    @property
    def ties_bits(self) -> float:
        """H(before) - H(prior): the part of it known before anything was released."""
        return entropy_bits(self.before) - entropy_bits(self.prior)

    @property
    def release_bits(self) -> float:
        """What the release added to the belief: Σ after · log2(after / prior)."""
        return gain_bits(self.after, self.prior)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FriendAdversary:
    """What is known before a release: people's vectors and friendships, and how friends live.

    `known` marks the people whose vectors the adversary has; `ties` whether friendships are known
    (attack 2) or all people count alike (attack 1). The values a person may have are the known
    people's own vectors, as the paper's samples of D_i; a cell collects those whose top place is in
    it, so that the prior of a cell is Eq. (8), the share of known people there, or Eq. (9), that
    share weighted by Σ over known friends of (Dist + b)^-c, Eq. (26).
    """

    people: People
    known: npt.NDArray[np.bool_]
    ties: bool
    friendship: FriendModel = FRIENDSHIP

    def __post_init__(self) -> None:
        if self.known.shape != (len(self.people),) or int(self.known.sum()) < 2:
            raise InputError("known must mark at least two people, one mark for each person")

    def values(self, target: int) -> Ints:
        """Return the numbers of the known people, the target left out."""
        others = self.known.copy()
        others[target] = False
        return np.flatnonzero(others)

    def prior(self, target: int) -> tuple[Floats, Floats]:
        """Return P(D_target = the vector of each known person): alike, and as used by this
        adversary.
        """
        chosen = self.values(target)
        alike = np.full(len(chosen), 1 / len(chosen))
        friends = self.people.friends_of(target)
        friends = friends[self.known[friends]]
        if not self.ties or not len(friends):
            return alike, alike
        vectors = self.people.vectors
        weight = np.zeros(len(chosen))
        for friend in friends:
            weight += affinity(pattern_km(vectors[chosen], vectors[friend]), self.friendship)
        return alike, np.asarray(weight / weight.sum())

    def unseen_friends(self, target: int) -> int:
        """Return how many of the target's friends have vectors the adversary does not know."""
        if not self.ties:
            return 0
        friends = self.people.friends_of(target)
        return int((~self.known[friends]).sum())


class ReleasedCentroids:
    """A release as the adversary reads it: what every person adds to every released number.

    The rounds' centroids follow from the released answers, so each known person's part of every
    sum and count is known exactly, all rounds together: one row of `parts` a person, in units of
    the noise's `scale`.
    """

    def __init__(self, query: Centroids, answer: Answer, scale: float, people: People) -> None:
        """Compute what every person adds to every released number, in units of the noise's
        scale.
        """
        answered = split_rounds(answer.multiples, query.rounds)
        cells = query.on_grid(people.vectors)
        rows = query.added(cells)
        parts = []
        for centres in query.path(answered)[:-1]:
            table = np.zeros((len(cells), query.clusters, rows.shape[1]))
            table[np.arange(len(cells)), nearest(cells, centres)] = rows
            parts.append(table.reshape(len(cells), -1))
        steps = float(query.lattice) / scale
        self.people = people
        self.parts: Floats = np.concatenate(parts, axis=1) * steps
        self.output: Floats = np.array(answer.multiples, dtype=np.float64) * steps
        self._crowds: dict[tuple[bytes, FriendModel], UnknownPeople] = {}

    def log_likelihood(self, adversary: FriendAdversary, target: int) -> Floats:
        """Return log P(output | D_target = each known person's vector), up to a constant.

        With all other people known it is exact: -|output - known sums - the target's part|₁ /
        scale. Otherwise see `UnknownPeople`.
        """
        chosen = adversary.values(target)
        rest = self.output - self.parts[chosen].sum(axis=0)
        unseen = len(self.people) - 1 - len(chosen)
        if unseen == 0:
            return -_l1_changes(rest, self.parts[chosen])
        key = (chosen.tobytes(), adversary.friendship)
        if key not in self._crowds:
            law = self._friendships(adversary, chosen)
            self._crowds[key] = UnknownPeople.of(self.parts[chosen], law, unseen)
        return self._crowds[key].log_likelihood(rest, adversary.unseen_friends(target))

    def _friendships(self, adversary: FriendAdversary, chosen: Ints) -> Floats:
        """Row x: the law of a friend's vector when one's own is that of person x, Eq. (26)."""
        law = affinity(all_pattern_km(self.people.vectors[chosen]), adversary.friendship)
        return np.asarray(law / law.sum(axis=1, keepdims=True))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class UnknownPeople:
    """The `unseen` people an adversary does not know, as the known ones suggest them.

    Each adds `mean` with the covariance C of the known people's parts. With the noise's variance,
    2 in units of its scale, the sums are taken as normal, of covariance 2I + unseen·C = A Aᵀ: exact
    Bayes would average over every vector of every unknown person. A target's unknown friends add
    what friends of that candidate add on average (`friends`): so the dependence tells about the
    target. `own` and `friends` are multiplied by `whiten` = A⁻¹.
    """

    unseen: int
    mean: Floats
    whiten: Floats
    own: Floats
    friends: Floats

    @classmethod
    def of(cls, parts: Floats, friendships: Floats, unseen: int) -> Self:
        """Return the normal law of what `unseen` people add, from the parts of the known ones."""
        count, width = parts.shape
        found = np.cov(parts, rowvar=False, bias=True)
        found += width / count * np.diag(np.diag(found))  # directions few people have shown
        spread = 2 * np.eye(width) + unseen * found
        whiten = np.linalg.inv(np.linalg.cholesky(spread))
        own = parts @ whiten.T
        return cls(
            unseen=unseen,
            mean=parts.mean(axis=0),
            whiten=whiten,
            own=own,
            friends=friendships @ own,
        )

    def log_likelihood(self, rest: Floats, friends: int) -> Floats:
        """Return log P(rest | each candidate): normal around the candidate's own part and its
        friends'.
        """
        point = self.whiten @ (rest - (self.unseen - friends) * self.mean)
        gaps = point - self.own - friends * self.friends
        return np.asarray(-0.5 * (gaps**2).sum(axis=1))


def locate(
    adversary: FriendAdversary, seen: ReleasedCentroids | None, target: int
) -> LocatedPerson:
    """Return the adversary's belief about `target` after a release, Eq. (6); None: before any.

    The guess is the median of the belief in each coordinate, the least expected error there;
    `cell_error_km` is that of the paper's guess, the likeliest cell, Eq. (7).
    """
    people = adversary.people
    chosen = adversary.values(target)
    alike, prior = adversary.prior(target)
    after = prior
    if seen is not None:
        log_odds = np.log(prior) + seen.log_likelihood(adversary, target)
        after = np.exp(log_odds - log_odds.max())
        after /= after.sum()
    cells = people.cells()[chosen]
    laws = [
        np.asarray(np.bincount(cells, weights=law, minlength=people.city.size), np.float64)
        for law in (alike, prior, after)
    ]
    inside = np.where(cells == int(laws[2].argmax()), after, 0.0)
    likeliest = np.asarray(inside @ people.vectors[chosen] / inside.sum())
    guess = weighted_median(people.vectors[chosen], after)
    truth = people.vectors[target]
    return LocatedPerson(
        before=laws[0],
        prior=laws[1],
        after=laws[2],
        guess=guess,
        error_km=float(pattern_km(guess, truth)),
        cell_error_km=float(pattern_km(likeliest, truth)),
    )


def weighted_median(rows: Floats, weights: Floats) -> Floats:
    """Return the least value in each column with at least half of the weight at or below it."""
    order = np.argsort(rows, axis=0, kind="stable")
    below = np.cumsum(weights[order], axis=0)
    place = (below < 0.5 * below[-1] * (1 - 1e-12)).sum(axis=0)
    columns = np.arange(rows.shape[1])
    return np.asarray(rows[order[place, columns], columns])


def affinity(km: Floats, friendship: FriendModel) -> Floats:
    """Return (km/b + 1)^-c: Eq. (26) up to its constant."""
    return np.asarray((km / friendship.b + 1.0) ** -friendship.c)


def _l1_changes(point: Floats, rows: Floats) -> Floats:
    """Return |point - row|₁ for every row, less |point|₁, so that large sums cancel exactly."""
    # only the entries in which a row is not 0 differ from |point|
    base = np.abs(point)
    total = np.zeros(len(rows))
    for start in range(0, len(rows), 256):
        block = rows[start : start + 256]
        total[start : start + 256] = (np.abs(point - block) - base).sum(axis=1)
    return total
