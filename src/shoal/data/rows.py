"""Which rows of a raw table count: those a condition keeps, and what becomes of missing values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError

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
    """The rows that meet every part of `where`; refused when none does.

    A value that is a number is compared as a number, anything else as text (dates in ISO form sort
    as they should). A missing value meets nothing.
    """
    if where is None:
        return frame
    kept = frame
    for column, sign, value in parse_where(where):
        if column not in frame.columns:
            shown = ", ".join(frame.columns[:12])
            raise DataError(
                f"{source} has no column {column!r}, named in where; its columns are: {shown}"
            )
        kept = kept.filter(_meets(kept[column], sign, value).fill_null(False))
    if kept.height == 0:
        raise DataError(f"{source} holds no row with {where}; check the condition")
    return kept


def _meets(column: pl.Series, sign: str, value: str) -> Any:
    import polars as pl

    from shoal.core.records import label

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


def emptied(column: pl.Series, way: str, source: str) -> pl.Series:
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


def filled(column: pl.Series, source: str) -> pl.Series:
    """The column with nulls as the state MISSING, which must not be there already."""
    if (column == MISSING).any():
        raise DataError(
            f"{source}: column {column.name!r} already holds the state {MISSING!r}; rename it, or "
            "choose another way than missing='state'"
        )
    return column.fill_null(MISSING)
