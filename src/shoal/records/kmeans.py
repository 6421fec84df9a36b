"""K-means as a query: Lloyd's rounds with noise on every sum and every count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.plan import Answer
from shoal.mechanisms.plans import Answered, split_rounds
from shoal.records.queries import numbers_or_missing
from shoal.records.schema import RecordSchema, column_names

GRID_STEPS = 1024  # each coordinate is rounded to this many steps of its public range
MIDDLE = GRID_STEPS // 2
TYPICAL_OFFSET = 0.225  # of a centroid coordinate from the middle of the box, as a share of it


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """One row of whole numbers 0 … GRID per record: its place in the box of public ranges.

    A row of -1 is a record without a place, which no sum and no count takes in.
    """

    cells: Ints

    def __len__(self) -> int:
        """Return how many records there are: a public number."""
        return len(self.cells)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Centroids(Value):
    """K-means: `rounds` rounds of Lloyd's algorithm, each a noisy question about all records.

    A record x in the box [low, high]^d is scaled to [0, 1]^d and rounded to the grid; one outside
    of it is clipped to it, one with a value that is no number is left out. Round r
    assigns every record to the nearest of the centroids of round r - 1 (ties to the first) and
    asks, for each cluster k,

        S_k = Σ over its records of (x - 1/2)   (d numbers)     and     w · n_k, n_k its records.

    The next centroids are 1/2 + S_k / n_k from the *noisy* answers, clipped to the box; a cluster
    whose noisy count is below 1 keeps its centroid. `start` holds the first centroids, on the
    grid; they are public and must not come from the data. w is `count_weight`.

    **Sensitivity** d + 2w a round, in the l1 norm, in scaled units: a record that changes from x
    to x' inside one cluster moves S_k by |x - x'|_1 ≤ d; one that also changes its cluster moves
    two sums by |x - 1/2|_1 + |x' - 1/2|_1 ≤ d/2 + d/2, and two counts by 1. All in integers.
    Rounds add adaptively: rounds · (d + 2w). Proof: records/kmeans.md.
    Liu, Chakraborty & Mittal 2016, Section IV-B; Su, Cao, Li, Bertino & Jin 2016.
    """

    kind = "centroids"

    columns: tuple[str, ...]
    low: tuple[Fraction, ...]
    high: tuple[Fraction, ...]
    start: Ints
    rounds: int
    count_weight: Fraction
    schema: RecordSchema | None = field(default=None, metadata={"later": True})
    states: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "ranges"
    lattice: ClassVar[Fraction] = Fraction(1, GRID_STEPS)

    def __post_init__(self) -> None:
        """Check columns, ranges, first centroids and the weight of counts."""
        object.__setattr__(self, "rounds", whole(self.rounds, "rounds"))
        object.__setattr__(self, "start", as_read_only(self.start, np.int64))
        width = len(self.columns)
        if width == 0 or len(self.low) != width or len(self.high) != width:
            raise InputError(
                f"{width} columns have {len(self.low)} low and {len(self.high)} high ends; "
                "give every column its public range"
            )
        for name, low, high in zip(self.columns, self.low, self.high, strict=True):
            if not low < high:
                raise InputError(
                    f"column {name!r} ranges from {low} to {high}; low must be below high"
                )
        if self.start.ndim != 2 or self.start.shape[1] != width or not len(self.start):
            raise InputError(
                f"start has shape {self.start.shape}; it needs one row of {width} numbers a cluster"
            )
        if self.start.min() < 0 or self.start.max() > GRID_STEPS:
            raise InputError(f"start must lie on the grid 0 … {GRID_STEPS}; make it with on_grid")
        if self.count_weight <= 0 or (self.count_weight * GRID_STEPS).denominator != 1:
            raise InputError(
                f"count_weight is {self.count_weight}; it must be a positive multiple of "
                f"1/{GRID_STEPS}"
            )

    @property
    def clusters(self) -> int:
        return len(self.start)

    @property
    def labels(self) -> tuple[str, ...]:
        """Per round and cluster: the sum of each column, then the weighted count."""
        return tuple(
            f"round {r + 1} cluster {k + 1} {what}"
            for r in range(self.rounds)
            for k in range(self.clusters)
            for what in (*self.columns, "count")
        )

    @property
    def lipschitz(self) -> Fraction:
        """rounds · (d + 2w): see the class."""
        return self.rounds * (len(self.columns) + 2 * self.count_weight)

    def describe(self) -> str:
        return (
            f"the centroids of {self.clusters} clusters of {len(self.columns)} columns after "
            f"{self.rounds} rounds of K-means, every round's sums and counts (in ranges of a "
            f"column; one record moves all rounds together by at most {self.lipschitz})"
        )

    def read(self, data: Any) -> Points:
        """Return rows of numbers, clipped to the public ranges and rounded to the grid.

        A data frame is read by the query's schema, where it has one.
        """
        if isinstance(data, Points):
            return data
        if self.schema is not None and column_names(data) is not None:
            data = self.schema.values(data)
        return Points(self.on_grid(data))

    def on_grid(self, rows: npt.ArrayLike) -> Ints:
        """Return each row as whole numbers 0 … GRID: its place in the public ranges, clipped to
        them.

        -1 in every column of a row in which something is no number.
        """
        values = numbers_in_rows(rows, len(self.columns))
        low = np.array([float(end) for end in self.low])
        width = np.array([float(high - low) for low, high in zip(self.low, self.high, strict=True)])
        with np.errstate(over="ignore"):  # a warning would tell of the value
            scaled = np.clip((values - low) / width, 0.0, 1.0)
        missing = np.isnan(scaled).any(axis=1, keepdims=True)
        return as_read_only(np.where(missing, -1, np.rint(scaled * GRID_STEPS)), np.int64)

    def evaluate(self, records: Points) -> tuple[int, ...]:
        """Return all rounds without noise: plain K-means from `start`."""
        answered: Answered = ()
        for _ in range(self.rounds):
            answered += (self.ask(records, answered),)
        return tuple(value for answer in answered for value in answer)

    def ask(self, records: Points, answered: Answered) -> tuple[int, ...]:
        """Return the next round's sums and weighted counts, in multiples of `lattice`."""
        cells = records.cells[records.cells[:, 0] >= 0]
        near = nearest(cells, self.path(answered)[-1])
        table = np.zeros((self.clusters, len(self.columns) + 1), dtype=np.int64)
        np.add.at(table, near, self.added(cells))
        return tuple(int(value) for value in table.ravel())

    def added(self, cells: Ints) -> Ints:
        """Return what each record adds to its cluster's row: x - 1/2 and w, in multiples of
        `lattice`.
        """
        weight = np.full((len(cells), 1), int(self.count_weight * GRID_STEPS), dtype=np.int64)
        return np.hstack([cells - MIDDLE, weight])

    def path(self, answered: Answered) -> tuple[Ints, ...]:
        """Return the centroids on the grid before each round and after the last:
        post-processing.
        """
        centres = [self.start]
        weight = int(self.count_weight * GRID_STEPS)
        for answer in answered:
            width = len(self.columns) + 1
            rows = [answer[k * width : (k + 1) * width] for k in range(self.clusters)]
            old = centres[-1].tolist()
            moved = [_next_centre(row, old[k], weight) for k, row in enumerate(rows)]
            centres.append(as_read_only(moved, np.int64))
        return tuple(centres)

    def centroids(self, answer: Answer) -> Floats:
        """Return the centroids after the last round of a release, in the columns' own units."""
        return self.in_units(self.path(split_rounds(answer.multiples, self.rounds))[-1])

    def clamped(self, answer: Answer) -> int:
        """Return how many coordinates of the centroids lie on the edge of the box, put there by
        noise.

        A function of the release alone. A mean of records hardly ever lies on the edge; where many
        coordinates do, the noise is larger than the clusters.
        """
        last = self.path(split_rounds(answer.multiples, self.rounds))[-1]
        return int(((last <= 0) | (last >= GRID_STEPS)).sum())

    def in_units(self, cells: Ints) -> Floats:
        """Return grid numbers in the columns' own units."""
        low, high = (np.array([float(end) for end in side]) for side in (self.low, self.high))
        return np.asarray(low + cells / GRID_STEPS * (high - low))


def centroids(
    columns: Sequence[str],
    *,
    low: Sequence[Number] | Number,
    high: Sequence[Number] | Number,
    clusters: int = 8,
    rounds: int = 5,
    start: npt.ArrayLike | None = None,
    count_weight: Number | None = None,
    schema: RecordSchema | None = None,
) -> Centroids:
    """Return K-means over records of `columns`, whose public ranges are low … high.

    `start`, in the columns' units, must not come from the data; by default points spread evenly
    over the box. `count_weight` w trades noise on counts against noise on sums; by default
    (d ρ² / 2)^(1/3) with ρ = .225, which minimises the error of a centroid that far from the
    middle (Su et al. 2016, Section 3.1, for this sensitivity). With a `schema` the columns are its
    features, and a data frame is read by it.
    """
    names = tuple(str(name) for name in columns)
    width = len(names)
    weight = (
        Fraction(max(1, round(64 * (width * TYPICAL_OFFSET**2 / 2) ** (1 / 3))), 64)
        if count_weight is None
        else exact(count_weight, "count_weight")
    )
    query = Centroids(
        columns=names,
        low=_range_ends(low, width, "low"),
        high=_range_ends(high, width, "high"),
        start=halton_points(whole(clusters, "clusters"), width),
        rounds=rounds,
        count_weight=weight,
        schema=schema,
    )
    return query if start is None else replace(query, start=query.on_grid(start))


def halton_points(clusters: int, width: int) -> Ints:
    """Return points of a Halton sequence on the grid: spread over the box, and the same for
    all data.
    """
    primes: list[int] = []
    candidate = 2
    while len(primes) < width:
        if all(candidate % prime for prime in primes):
            primes.append(candidate)
        candidate += 1
    return as_read_only(
        [
            [int(GRID_STEPS * _radical_inverse(k + 1, base)) for base in primes]
            for k in range(clusters)
        ],
        np.int64,
    )


def nearest(cells: Ints, centres: Ints) -> Ints:
    """Return the first of the nearest centres to each record, in exact integers."""
    # |x - c|² - |x|² = |c|² - 2 x·c: products of at most 2^10 · 2^10 · d stay far below 2^63
    scores = (centres**2).sum(axis=1) - 2 * (cells @ centres.T)
    return np.asarray(scores.argmin(axis=1), dtype=np.int64)


def numbers_in_rows(rows: npt.ArrayLike, width: int) -> Floats:
    """Return `rows` as a table of `width` columns, NaN where something is no number.

    Refused for its shape, which is public, and for nothing that a record holds.
    """
    values = numbers_or_missing(rows)
    if values.ndim != 2 or values.shape[1] != width or not len(values):
        raise DataError(
            f"the data has shape {values.shape}; it must be rows of {width} numbers, one per column"
        )
    return values


def _next_centre(row: Sequence[int], old: Sequence[int], weight: int) -> list[int]:
    """Middle + sum / count, rounded and clipped to the grid; the old centre when count < 1."""
    *sums, weighted = row
    if weighted < weight:
        return list(old)
    return [min(max(MIDDLE + round(Fraction(s * weight, weighted)), 0), GRID_STEPS) for s in sums]


def _radical_inverse(index: int, base: int) -> Fraction:
    """Return the digits of `index` in `base`, mirrored behind the point."""
    value, unit = Fraction(0), Fraction(1, base)
    while index:
        index, digit = divmod(index, base)
        value += digit * unit
        unit /= base
    return value


def _range_ends(ends: Sequence[Number] | Number, width: int, field: str) -> tuple[Fraction, ...]:
    if np.ndim(ends) == 0:  # type: ignore[arg-type]  # rationals are numbers too
        return (exact(ends, field),) * width  # type: ignore[arg-type]
    return tuple(exact(end, field) for end in ends)  # type: ignore[union-attr]
