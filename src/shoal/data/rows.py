"""Which rows of a raw table count, what becomes of missing values, and numbers as states."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact
from shoal.core.records import label, shown_names

if TYPE_CHECKING:
    import polars as pl


WAYS = ("refuse", "drop", "gap", "state")  # what may be done about a missing state
MISSING = "missing"  # the state that stands for a missing value
WORDS = ("nan", "na", "n/a", "<na>", "nat", "null")  # texts that programs write for no value
_TERM = re.compile(
    r"""\s*(?P<column>"[^"]+"|[^\s=!<>"]+)\s*(?P<sign>==|=|!=|<=|>=|<|>)\s*
        (?P<value>'[^']*'|"[^"]*"|\S+)\s*""",
    re.VERBOSE,
)
_AND = re.compile(r"and\b\s*", re.IGNORECASE)


def parse_where(text: str) -> tuple[tuple[str, str, str], ...]:
    """Column, sign and value of each part of "watts >= 10 and user != 'x'"."""
    terms, place = [], 0
    while True:
        found = _TERM.match(text, place)
        if found is None:
            raise InputError(
                f"where is {text!r}; write conditions such as \"watts >= 10 and user != 'anna'\" "
                "(signs: =, !=, <, <=, >, >=; parts joined by and)"
            )
        column, value = found["column"].strip('"'), found["value"]
        quoted = value[0] in "'\"" and value[-1] == value[0] and len(value) > 1
        terms.append((column, found["sign"], value[1:-1] if quoted else value))
        place = found.end()
        if place == len(text):
            return tuple(terms)
        joined = _AND.match(text, place)
        place = joined.end() if joined else len(text) + 1


def chosen(frame: pl.DataFrame, where: str | None, source: str) -> pl.DataFrame:
    """The rows that meet every part of `where`; refused when none does."""
    if where is None:
        return frame
    kept = frame.filter(meeting(frame, where, source))
    if kept.height == 0:
        raise DataError(f"{source} holds no row with {where}; check the condition")
    return kept


def meeting(frame: pl.DataFrame, where: str, source: str) -> pl.Series:
    """Whether each row meets every part of `where`.

    A value that is a number is compared as a number, anything else as text (dates in ISO form sort
    as they should). A missing value meets nothing.
    """
    import polars as pl

    met = pl.repeat(True, frame.height, eager=True, dtype=pl.Boolean)
    for column, sign, value in parse_where(where):
        if column not in frame.columns:
            shown = ", ".join(frame.columns[:12])
            raise DataError(
                f"{source} has no column {column!r}, named in where; its columns are: {shown}"
            )
        met &= _meets(frame[column], sign, value).fill_null(False)
    return met


def _meets(column: pl.Series, sign: str, value: str) -> Any:
    """Return the mask of rows that meet `column sign value`, as a polars expression's series.

    The comparison is numeric when the value is a number and the column holds numbers or texts of
    numbers; otherwise both are compared as texts.
    """
    import polars as pl

    try:
        number = float(value)
    except ValueError:
        number = None
    left: Any
    right: Any
    if number is not None and (column.dtype.is_numeric() or column.dtype == pl.String):
        left, right = column.cast(pl.Float64, strict=False), number
        if sign in ("=", "==", "!=") and column.dtype == pl.String and left.null_count():
            left, right = column, value  # names such as 7 and 7b are texts
    elif column.dtype.is_float():
        left, right = column.map_elements(label, return_dtype=pl.String), value
    else:
        left, right = column.cast(pl.String), value
    signs = {
        "=": left.__eq__, "==": left.__eq__, "!=": left.__ne__,
        "<": left.__lt__, "<=": left.__le__, ">": left.__gt__, ">=": left.__ge__,
    }  # fmt: skip
    return signs[sign](right)


def check_missing(way: str) -> str:
    """`way` itself, refused when it is none of WAYS."""
    if way not in WAYS:
        raise InputError(f"missing is {way!r}; it must be one of {', '.join(WAYS)}")
    return way


def nulls_for_missing(column: pl.Series, way: str, source: str) -> pl.Series:
    """The column with every missing value null, words such as "NaN" too; refused with "refuse"."""
    import polars as pl

    if column.dtype.is_float():
        column = column.fill_nan(None)
    words = 0
    if column.dtype == pl.String:
        worded = column.str.strip_chars().str.to_lowercase().is_in(["", *WORDS]).fill_null(False)
        words = int(worded.sum())
        column = column.set(worded, None) if words else column
    if way != "refuse" or not column.null_count():
        return column
    row = int(column.is_null().arg_max() or 0)
    how = f" (or a word for it such as {WORDS[0]!r})" if words else ""
    raise DataError(
        f"{source}: column {column.name!r} is empty{how} in {column.null_count()} row(s), the "
        f"first is row {row + 1}; drop these rows (missing='drop', --missing drop), cut there "
        "('gap'), or make it a state of its own ('state')"
    )


def fill_missing_state(column: pl.Series, source: str) -> pl.Series:
    """The column with nulls as the state MISSING, which must not be there already."""
    if (column == MISSING).any():
        raise DataError(
            f"{source}: column {column.name!r} already holds the state {MISSING!r}; rename it, or "
            "choose another way than missing='state'"
        )
    return column.fill_null(MISSING)


def texts(column: pl.Series, source: str) -> pl.Series:
    """Each value as its label, as `core.records.label` writes it; nulls and NaN stay null."""
    import polars as pl

    kind = column.dtype
    if kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum, pl.Date, pl.Null):
        return column.cast(pl.String)
    if kind.is_nested() or kind in (pl.Object, pl.Binary):
        raise DataError(
            f"{source}: column {column.name!r} holds {kind} values; a label must be text, "
            "a number or a truth value"
        )
    filled = column.fill_nan(None) if kind.is_float() else column
    distinct = filled.drop_nulls().unique()
    written = pl.Series([label(value) for value in distinct.to_numpy()], dtype=pl.String)
    return filled.replace_strict(distinct, written, default=None, return_dtype=pl.String)


def encode_texts(column: pl.Series) -> tuple[Ints, list[str]]:
    """Each row as an index into the distinct texts, -1 for a null, and those, sorted."""
    import polars as pl

    empty = column.null_count() > 0
    distinct = (column.drop_nulls() if empty else column).unique().sort()
    codes = column.cast(pl.Enum(distinct)).to_physical()
    codes = codes.cast(pl.Int64).fill_null(-1) if empty else codes
    return codes.to_numpy().astype(np.int64), distinct.to_list()


BinSpec = int | str | Sequence[Number]  # how many bins, or their inner edges
MOST_BINS = 512  # a transition matrix of so many states takes 2 MB
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?"
_NAME = re.compile(rf"below ({_NUMBER})|({_NUMBER}) to ({_NUMBER})|({_NUMBER}) or more")


@dataclass(frozen=True, slots=True)
class Bins:
    """Ranges of numbers, cut at `edges`, which rise: below the first, …, the last or more."""

    edges: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.edges or any(b <= a for a, b in pairwise(self.edges)):
            shown = ", ".join(map(write_edge, self.edges)) or "empty"
            raise InputError(f"bins is {shown}; give edges that rise, such as 100,500,2000")
        if len(self.edges) >= MOST_BINS:
            raise InputError(f"bins has {len(self.edges)} edges; at most {MOST_BINS - 1} are taken")

    @classmethod
    def of(cls, spec: BinSpec | Bins, numbers: pl.Series) -> Bins:
        """The bins asked for: edges as given, or so many that each holds about as many rows.

        Edges found in the data are rounded to two digits; they tell about the data, as a fitted
        model does.
        """
        if isinstance(spec, Bins):
            return spec
        if isinstance(spec, str):
            parts = [part.strip() for part in spec.split(",")]
            spec = int(parts[0]) if len(parts) == 1 and parts[0].isdigit() else parts
        if isinstance(spec, int):
            return cls(_equal_shares(spec, numbers))
        return cls(tuple(exact(edge, "bins") for edge in spec))

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
        texts = [write_edge(edge) for edge in self.edges]
        middle = [f"{low} to {high}" for low, high in pairwise(texts)]
        return (f"below {texts[0]}", *middle, f"{texts[-1]} or more")

    @property
    def middles(self) -> dict[str, Fraction]:
        """The number that stands for each range: its middle; an outer one is as wide as the next.

        Below a positive first edge nothing is taken to be negative.
        """
        if len(self.edges) < 2:
            raise InputError("two bins have no middles; say what each stands for with weights")
        low, high = self.edges[0], self.edges[-1]
        first = 2 * low - self.edges[1]
        first = max(first, Fraction(0)) if low > 0 else first
        ends = (first, *self.edges, 2 * high - self.edges[-2])
        return {name: (a + b) / 2 for name, (a, b) in zip(self.labels, pairwise(ends), strict=True)}

    def cut(self, numbers: pl.Series) -> pl.Series:
        """The name of each number's range; an edge belongs to the range above it."""
        import polars as pl

        edges = np.array([float(edge) for edge in self.edges])
        place = np.searchsorted(edges, numbers.fill_null(float("nan")).to_numpy(), side="right")
        names = pl.Series(self.labels)[place].alias(numbers.name)
        return names.set(numbers.is_null(), None)


DEFAULT_BINS = 8  # of a range
_RANGE = re.compile(rf"\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([A-Za-z%°/0-9]*)\s*", re.IGNORECASE)
_PREFIXES = {prefix: Fraction(10) ** n for prefix, n in (("", 0), ("k", 3), ("M", 6), ("m", -3))}


def edges_of_range(text: str, count: int = DEFAULT_BINS, unit: str = "") -> tuple[Fraction, ...]:
    """The inner edges that cut a public range such as "0,10kW" into `count` bins of one width.

    A unit in the text is `unit`, that of the data, or one with another prefix (kW for W). What lies
    beyond the range falls into the first or the last bin.
    """
    found = _RANGE.fullmatch(text)
    if found is None:
        raise InputError(f"range is {text!r}; write two numbers and perhaps a unit, such as 0,10kW")
    if not 2 <= count <= MOST_BINS:
        raise InputError(f"bins is {count}; it must be from 2 to {MOST_BINS} for a range")
    low, high = (exact(found[k], "range") * _factor(found[3], unit) for k in (1, 2))
    if high <= low:
        raise InputError(f"range is {text!r}; the second number must be larger than the first")
    return tuple(low + (high - low) * k / count for k in range(1, count))


def _factor(said: str, unit: str) -> Fraction:
    """How many of `unit` one of the unit that was said is."""
    if said in ("", unit):
        return Fraction(1)
    if not unit:
        raise InputError(
            f"range is in {said}, and the data names no unit; write it in the numbers of its column"
        )
    for own, worth in _PREFIXES.items():
        for other, value in _PREFIXES.items():
            bare = unit.removeprefix(own)
            if unit.startswith(own) and bare and said == other + bare:
                return value / worth
    raise InputError(f"range is in {said}, and the data is in {unit}; write the range in {unit}")


def stand_ins(states: Sequence[str]) -> dict[str, Fraction]:
    """The number each state stands for: states that are numbers, or middles of bins."""
    try:
        return {state: Fraction(state) for state in states}
    except (ValueError, ZeroDivisionError):
        bins = Bins.named_by(states)
    if bins is None:
        raise InputError(
            f"weights are missing, and the states ({shown_names(states)}) are neither numbers nor "
            "bins; say what each stands for, such as weights = { sit = 1.3, walk = 3.5 }"
        )
    return bins.middles


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


def write_edge(edge: Fraction) -> str:
    """The edge as short as it can be read back exactly."""
    if edge.denominator == 1 and abs(edge) < 10**15:
        return str(edge.numerator)
    return repr(float(edge)) if Fraction(repr(float(edge))) == edge else f"{float(edge):.17g}"
