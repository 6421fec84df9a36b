"""Queries that add up one contribution per entry: counts, weighted sums, means, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from numbers import Rational
from typing import Any

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, common_step, exact, whole
from shoal.core.records import Sequences, label, sequences
from shoal.core.value import Value
from shoal.models.chain import checked_states


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearQuery(Value):
    """F = Σ over entries of weights[value of the entry], one row of `weights` per state.

    Exact: weights are rationals, so every answer is an integer multiple of `lattice`. `length` is
    the public number of entries a mean or a relative histogram divides by (already inside the
    weights); data with more entries is refused.
    """

    name: str
    states: tuple[str, ...]
    labels: tuple[str, ...]
    weights: tuple[tuple[Fraction, ...], ...]
    unit: str
    length: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", checked_states(self.states))
        if self.length is not None:
            object.__setattr__(self, "length", whole(self.length, "length"))
        if len(self.weights) != len(self.states):
            raise InputError(
                f"weights has {len(self.weights)} rows for {len(self.states)} states; "
                "give each state its row"
            )
        if any(len(row) != len(self.labels) for row in self.weights):
            raise InputError(f"each row of weights needs {len(self.labels)} numbers, one per label")
        if not all(isinstance(weight, Rational) for row in self.weights for weight in row):
            raise InputError("weights must be exact rationals; pass floats through weighted_sum")
        if self.lipschitz == 0:
            raise InputError(
                "all states have the same weight, so the answer does not depend on the data; "
                "publish it as it is"
            )

    @property
    def lipschitz(self) -> Fraction:
        """max over pairs of states of the l1 distance between their weights."""
        return max(
            (
                sum((abs(a - b) for a, b in zip(x, y, strict=True)), Fraction(0))
                for x, y in combinations(self.weights, 2)
            ),
            default=Fraction(0),
        )

    @property
    def lattice(self) -> Fraction:
        return common_step(weight for row in self.weights for weight in row)

    def multiples(self) -> tuple[tuple[int, ...], ...]:
        """The weights as integers, in units of `lattice`."""
        step = self.lattice
        return tuple(tuple(int(weight / step) for weight in row) for row in self.weights)

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states; refused when longer than the public length."""
        records = sequences(data, self.states)
        if self.length is not None and records.total > self.length:
            raise DataError(
                f"the data holds more entries than length {self.length}, the public number the "
                f"{self.name} divides by; raise length or release a part"
            )
        return records

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The true answer in multiples of `lattice`, in exact integers."""
        counts = [int(count) for count in records.counts()]
        rows = self.multiples()
        return tuple(
            sum(count * row[axis] for count, row in zip(counts, rows, strict=True))
            for axis in range(len(self.labels))
        )

    def describe(self) -> str:
        what = {
            "count": f"how many entries are {_either(self.labels)}",
            "histogram": f"how often each of {len(self.labels)} states occurs",
            "sum": "the sum of a weight per entry",
            "mean": "the mean of a weight per entry",
        }.get(self.name, f"{self.name}, a sum of one contribution per entry")
        share = "over" if self.name == "mean" else "as a share of"
        of = "" if self.length is None else f", {share} {self.length} entries"
        return f"{what}{of} (in {self.unit}; one entry moves it by at most {self.lipschitz})"


def count(states: Sequence[Any], which: Any, *, unit: str = "entries") -> LinearQuery:
    """How many entries are in one of the states `which` (a label, or several)."""
    names = _labels(states)
    several = isinstance(which, Sequence | set | frozenset) and not isinstance(which, str)
    chosen = [label(w) for w in which] if several else [label(which)]
    _known(chosen, names)
    weights = tuple((Fraction(int(name in chosen)),) for name in names)
    title = " or ".join(name for name in names if name in chosen)
    return LinearQuery(name="count", states=names, labels=(title,), weights=weights, unit=unit)


def weighted_sum(
    states: Sequence[Any], weights: Mapping[Any, Number], *, unit: str = "units"
) -> LinearQuery:
    """Σ of a weight per entry; states without a weight count 0."""
    names = _labels(states)
    table = _weights(weights, names)
    rows = tuple((table.get(name, Fraction(0)),) for name in names)
    return LinearQuery(name="sum", states=names, labels=("sum",), weights=rows, unit=unit)


def mean(
    states: Sequence[Any], weights: Mapping[Any, Number], *, length: int, unit: str = "units"
) -> LinearQuery:
    """The mean weight over `length` entries, a public number."""
    total = whole(length, "length")
    names = _labels(states)
    table = _weights(weights, names)
    rows = tuple((table.get(name, Fraction(0)) / total,) for name in names)
    return LinearQuery(
        name="mean", states=names, labels=("mean",), weights=rows, unit=unit, length=total
    )


def histogram(
    states: Sequence[Any],
    *,
    relative: bool = False,
    length: int | None = None,
    unit: str | None = None,
) -> LinearQuery:
    """How often each state occurs; with `relative`, as a share of `length` entries."""
    names = _labels(states)
    if relative and length is None:
        raise InputError("a relative histogram needs length, the public number of entries")
    if not relative and length is not None:
        raise InputError("length is given, but the histogram is not relative; set relative=True")
    share = Fraction(1) if length is None else Fraction(1, whole(length, "length"))
    rows = tuple(
        tuple(share if row == column else Fraction(0) for column in range(len(names)))
        for row in range(len(names))
    )
    return LinearQuery(
        name="histogram",
        states=names,
        labels=names,
        weights=rows,
        unit=unit or ("share of entries" if relative else "entries"),
        length=length,
    )


def _either(labels: tuple[str, ...]) -> str:
    return " or ".join(f"'{name}'" for name in labels[0].split(" or "))


def _labels(states: Sequence[Any]) -> tuple[str, ...]:
    return tuple(label(state) for state in states)


def _known(chosen: Sequence[str], names: tuple[str, ...]) -> None:
    if not chosen:
        raise InputError("the query names no state; name at least one")
    for name in chosen:
        if name not in names:
            raise InputError(f"the query names state {name!r}; the states are {list(names)}")


def _weights(weights: Mapping[Any, Number], names: tuple[str, ...]) -> dict[str, Fraction]:
    table = {label(k): exact(v, f"weight of {label(k)!r}") for k, v in weights.items()}
    _known(list(table), names)
    return table
