"""Which column of a table is likely to hold what: by its name, its type and its values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

NAMES = {  # words of a column's name, by what it is likely to hold
    "latitude": ("lat", "latitude"),
    "longitude": ("lon", "lng", "long", "longitude"),
    "time": ("time", "date", "timestamp", "when", "minute", "datetime", "day"),
    "series": ("series", "user", "person", "id", "subject", "device", "name", "house", "who"),
}


# words of a column's name that say that it is what was observed
STATE_WORDS = (
    "state",
    "activity",
    "context",
    "status",
    "label",
    "watts",
    "kwh",
    "wh",
    "kw",
    "w",
    "power",
    "value",
    "pulse",
)


def guess_columns(table: pl.DataFrame, roles: tuple[str, ...]) -> dict[str, str | None]:
    """The column for each role by its name, its type and what it holds; None where none fits."""
    found: dict[str, str | None] = {}
    for role in (*NAMES, "state"):
        if role not in roles:
            continue
        free = [name for name in table.columns if name not in found.values()]
        found[role] = _state(table, free) if role == "state" else _column_by_name(table, free, role)
    return {role: found[role] for role in roles}


def _column_by_name(table: pl.DataFrame, free: list[str], role: str) -> str | None:
    """Return the first free column whose name has a word of the role, None without one.

    Coordinates must be numeric; a column of times needs no such name.
    """

    def words(name: str) -> set[str]:
        return set(re.split(r"[^a-z]+", name.lower()))

    fits = [name for name in free if words(name) & set(NAMES[role])]
    if role in ("latitude", "longitude"):
        fits = [name for name in fits if table[name].dtype.is_numeric()]
    if role == "time":
        fits += [name for name in free if table[name].dtype.is_temporal()]
    return fits[0] if fits else None


def _state(table: pl.DataFrame, free: list[str]) -> str | None:
    """The column most like states: by its name, else few different texts; never degrees."""
    coordinates = {word for role in ("latitude", "longitude") for word in NAMES[role]}
    fits = [name for name in free if name.lower() not in coordinates]

    def unlike(name: str) -> tuple[bool, float]:
        """Return a key by which columns sort: those named like states first, then words of few
        values.
        """
        column = table[name]
        different = column.n_unique()
        words = str(column.dtype) in ("String", "Categorical", "Boolean", "Enum")
        unnamed = not set(re.split(r"[^a-z]+", name.lower())) & set(STATE_WORDS)
        if not words and not unnamed:  # amounts of one kind: the first column, such as the total
            different = min(different, 2)
        likely = different + (0 if words else 1000) + (10**6 if different < 2 else 0)
        return unnamed, float(likely)

    return min(fits, key=unlike, default=None)
