"""Mean and histogram of records that are numbers in an interval, not states with names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints, Value, locked
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, common_step, exact, whole
from shoal.records.domain import RecordDomain

GRID = 1024  # an interval is cut into this many steps, to which numbers are rounded


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """One whole number a record: its step of the interval, or its bin (-1: in no bin)."""

    steps: Ints

    def __len__(self) -> int:
        """How many records there are: a public number."""
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberMean(Value):
    """The mean of `records` numbers, each clipped to low … high and rounded to 1/1024 of that.

    A record that is no number counts as the middle of the interval. Sensitivity
    (high - low) / records, exactly: one number moves by at most the whole interval, in whole
    steps. The number of records is public.
    """

    low: Fraction
    high: Fraction
    records: int
    unit: str = "units"

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", whole(self.records, "records"))
        if not self.low < self.high:
            raise InputError(f"the interval is {self.low} to {self.high}; low must be below high")

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        return ("mean",)

    @property
    def step(self) -> Fraction:
        """What one step of one number moves the mean by."""
        return (self.high - self.low) / (GRID * self.records)

    @property
    def lattice(self) -> Fraction:
        """The largest step of which `low` and `step` are both multiples."""
        return common_step((self.low, self.step))

    @property
    def lipschitz(self) -> Fraction:
        return (self.high - self.low) / self.records

    def describe(self) -> str:
        return (
            f"the mean of {self.records} numbers (in {self.unit}; one number, in "
            f"{float(self.low):g} … {float(self.high):g}, moves it by at most "
            f"{float(self.lipschitz):.4g})"
        )

    def read(self, data: Any) -> Numbers:
        """Numbers, clipped to the interval and rounded to its steps."""
        if isinstance(data, Numbers):
            return data
        values = _values(data, self.records)
        with np.errstate(over="ignore"):  # a warning would tell of the value
            share = (values - float(self.low)) / float(self.high - self.low)
        steps = np.rint(np.clip(share, 0.0, 1.0) * GRID)
        return Numbers(locked(np.where(np.isnan(steps), GRID // 2, steps), np.int64))

    def evaluate(self, records: Numbers) -> tuple[int, ...]:
        """The mean in multiples of `lattice`, in exact integers."""
        return (int((self.low + int(records.steps.sum()) * self.step) / self.lattice),)

    def contributions(self, domain: RecordDomain) -> tuple[Floats, Floats]:
        """Bounds of what a record of each cell adds to the mean above `low`, rounded outwards."""
        low, high = _one_axis(domain)
        start, width = float(self.low), float(self.high - self.low)
        steps = [np.clip((end - start) / width, 0.0, 1.0) * GRID for end in (low, high)]
        most = np.ceil(steps[1] + 0.5) * (1 + 1e-12)
        least = np.maximum(np.floor(steps[0] - 0.5), 0.0)
        unit = float(self.step)
        added = np.minimum(most, GRID * (1 + 1e-12)) * unit
        return np.asarray(least * unit * (1 - 1e-12))[:, None], np.asarray(added)[:, None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberHistogram(Value):
    """How many numbers lie in each bin edges[k] ≤ x < edges[k+1]; the ends take what lies outside.

    A record that is no number is in no bin. Sensitivity 2: a number leaves one bin and enters
    another.
    """

    edges: tuple[Fraction, ...]
    unit: str = "records"

    def __post_init__(self) -> None:
        if len(self.edges) < 3 or any(a >= b for a, b in pairwise(self.edges)):
            raise InputError("edges must be three numbers or more, each above the one before")

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        ends = [f"{float(edge):g}" for edge in self.edges]
        return tuple(f"{a} to {b}" for a, b in pairwise(ends))

    @property
    def lattice(self) -> Fraction:
        return Fraction(1)

    @property
    def lipschitz(self) -> Fraction:
        return Fraction(2)

    def describe(self) -> str:
        return (
            f"how many numbers lie in each of {len(self.labels)} bins (in {self.unit}; one number "
            "moves it by at most 2)"
        )

    def read(self, data: Any) -> Numbers:
        """The bin of each number."""
        if isinstance(data, Numbers):
            return data
        values = _values(data, None)
        return Numbers(locked(np.where(np.isnan(values), -1, self._bins(values)), np.int64))

    def evaluate(self, records: Numbers) -> tuple[int, ...]:
        counts = np.bincount(records.steps[records.steps >= 0], minlength=len(self.labels))
        return tuple(int(count) for count in counts)

    def contributions(self, domain: RecordDomain) -> tuple[Floats, Floats]:
        """1 in the bin that holds a whole cell; between 0 and 1 in bins that hold a part of it."""
        low, high = _one_axis(domain)
        first, last = self._bins(low), self._bins(high)
        bins = np.arange(len(self.labels))
        touched = (first[:, None] <= bins) & (bins <= last[:, None])
        return (touched & (first == last)[:, None]).astype(np.float64), touched.astype(np.float64)

    def _bins(self, values: Floats) -> Ints:
        inner = [float(edge) for edge in self.edges[1:-1]]
        return np.searchsorted(inner, values, side="right").astype(np.int64)


def number_mean(*, low: Number, high: Number, records: int, unit: str = "units") -> NumberMean:
    """The mean of `records` numbers in low … high."""
    return NumberMean(low=exact(low, "low"), high=exact(high, "high"), records=records, unit=unit)


def number_histogram(edges: Sequence[Number], *, unit: str = "records") -> NumberHistogram:
    """How many numbers lie between each two of `edges`."""
    return NumberHistogram(edges=tuple(exact(edge, "edges") for edge in edges), unit=unit)


def numbers_or_missing(data: Any) -> Floats:
    """`data` as doubles in the shape it has; NaN where an element is no number.

    Whatever a record holds, the answer has the same shape and nothing is raised: a refusal would
    tell that such a record is there. Only nested data without any shape is refused.
    """
    try:
        return np.asarray(data, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        elements = np.asarray(data, dtype=object)
    except ValueError:
        raise DataError("the data is not a table; hand over rows of equal length") from None
    return np.array([_number(one) for one in elements.ravel()]).reshape(elements.shape)


def _number(element: Any) -> float:
    try:
        return float(element)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _values(data: npt.ArrayLike, count: int | None) -> Floats:
    values = numbers_or_missing(data)
    if values.ndim != 1 or (count is not None and len(values) != count):
        wanted = "numbers in a row" if count is None else f"{count} numbers in a row"
        raise DataError(f"the data has shape {values.shape}; it must be {wanted}, one per record")
    return values


def _one_axis(domain: RecordDomain) -> tuple[Floats, Floats]:
    if domain.low.shape[1] != 1:
        raise InputError(
            f"the model's values have {domain.low.shape[1]} coordinates; the query is about numbers"
        )
    return domain.low[:, 0], domain.high[:, 0]
