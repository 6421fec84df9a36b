"""Numbers as states: ranges with public edges, whose names tell the edges.

A fitted model knows its bins by their names alone ("below 100", "100 to 500", "500 or more"), so a
release from the same raw numbers needs no further word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Self

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact

if TYPE_CHECKING:
    import polars as pl

Wish = int | str | Sequence[Number]  # how many bins, or their inner edges
MOST_BINS = 512
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_NAME = re.compile(rf"below ({_NUMBER})|({_NUMBER}) to ({_NUMBER})|({_NUMBER}) or more")


@dataclass(frozen=True, slots=True)
class Bins:
    """Ranges of numbers, cut at `edges`, which rise: below the first, …, the last or more."""

    edges: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.edges or any(b <= a for a, b in pairwise(self.edges)):
            shown = ", ".join(map(_written, self.edges)) or "empty"
            raise InputError(f"bins is {shown}; give edges that rise, such as 100,500,2000")
        if len(self.edges) >= MOST_BINS:
            raise InputError(f"bins has {len(self.edges)} edges; at most {MOST_BINS - 1} are taken")

    @classmethod
    def of(cls, wish: Wish | Bins, numbers: pl.Series) -> Bins:
        """The bins asked for: edges as given, or so many that each holds about as many rows.

        Edges found in the data are rounded to two digits; they tell about the data, as a fitted
        model does.
        """
        if isinstance(wish, Bins):
            return wish
        if isinstance(wish, str):
            parts = [part.strip() for part in wish.split(",")]
            wish = int(parts[0]) if len(parts) == 1 and parts[0].isdigit() else parts
        if isinstance(wish, int):
            return cls(_equal_shares(wish, numbers))
        return cls(tuple(exact(edge, "bins") for edge in wish))

    @classmethod
    def named_by(cls, states: Sequence[str]) -> Self | None:
        """The bins whose names `states` are, in any order; None where they are no such names."""
        found = [_NAME.fullmatch(state) for state in states]
        if len(states) < 2 or not all(found):
            return None
        edges = {Fraction(part) for match in found if match for part in match.groups() if part}
        bins = cls(tuple(sorted(edges)))
        return bins if set(bins.labels) == set(states) else None

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for every range, lowest first."""
        texts = [_written(edge) for edge in self.edges]
        middle = [f"{low} to {high}" for low, high in pairwise(texts)]
        return (f"below {texts[0]}", *middle, f"{texts[-1]} or more")

    def cut(self, numbers: pl.Series) -> pl.Series:
        """The name of each number's range; an edge belongs to the range above it."""
        import numpy as np
        import polars as pl

        edges = np.array([float(edge) for edge in self.edges])
        place = np.searchsorted(edges, numbers.fill_null(float("nan")).to_numpy(), side="right")
        names = pl.Series(self.labels)[place].alias(numbers.name)
        return names.set(numbers.is_null(), None)


def numbers_of(column: pl.Series, source: str) -> pl.Series:
    """The column as floats; what is empty or not a number (NaN) is null, any text is refused."""
    import polars as pl

    if column.dtype == pl.String:
        text = column.str.strip_chars()
        empty = text.is_null() | text.str.to_lowercase().is_in(["", "nan", "na", "null"])
        found = text.cast(pl.Float64, strict=False)
        wrong = found.is_null() & ~empty
        if wrong.any():
            row = int(wrong.arg_max() or 0)
            raise DataError(
                f"{source}: column {column.name!r} holds {column[row]!r} in row {row + 1}, which "
                "is no number; bins are for numbers"
            )
    elif column.dtype.is_numeric():
        found = column.cast(pl.Float64)
    else:
        raise DataError(
            f"{source}: column {column.name!r} holds {column.dtype} values; bins are for numbers"
        )
    return found.fill_nan(None)


def _equal_shares(count: int, numbers: pl.Series) -> tuple[Fraction, ...]:
    """Inner edges at the quantiles, rounded to two digits, none twice."""
    if not 2 <= count <= MOST_BINS:
        raise InputError(f"bins is {count}; it must be from 2 to {MOST_BINS}, or edges")
    present = numbers.drop_nulls()
    cuts = [present.quantile(place / count, interpolation="higher") for place in range(1, count)]
    edges = sorted({Fraction(f"{cut:.2g}") for cut in cuts if cut is not None})
    least = present.min()
    edges = [edge for edge in edges if isinstance(least, float) and edge > least]
    if not edges:
        raise DataError("bins cannot be found: the column holds one value only; give edges")
    return tuple(edges)


def _written(edge: Fraction) -> str:
    """The edge as short as it can be read back exactly."""
    if edge.denominator == 1 and abs(edge) < 10**15:
        return str(edge.numerator)
    return repr(float(edge)) if Fraction(repr(float(edge))) == edge else f"{float(edge):.17g}"
