"""A schema of records that is declared in advance: columns with ranges or categories.

What is declared is public. Records are encoded by it and by nothing else, so that no column, no
range and no category is read off the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from shoal.core.codec import Floats, Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import exact
from shoal.records.queries import numbers_or_missing

Range = tuple[float, float]
Column = Range | tuple[str, ...]
FEWEST_CATEGORIES = 2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordSchema(Value):
    """The public columns of a table of records, in the order in which they are encoded.

    A column is a range `(low, high)` of numbers or its categories as text. `encode` gives numbers
    from 0 to 1: a number by its position in its range, clipped to it, and a category as one
    column each, 1 for the category of the record. `label` names one more column, with the two
    `classes` of a classifier; "" where there is none.
    """

    kind = "record-schema"

    names: tuple[str, ...]
    columns: tuple[Column, ...]
    label: str = ""
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a label that is a column too, and classes that are not two different texts."""
        if bool(self.label) != bool(self.classes):
            raise InputError("label and classes go together; declare both, or neither")
        if self.label in self.names:
            raise InputError(f"label is {self.label!r}, which is a column too; name it once")
        if self.label and (len(self.classes) != 2 or len(set(self.classes)) < 2):
            raise InputError(f"classes is {list(self.classes)}; name two different classes")

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Sequence[Any]],
        *,
        label: str = "",
        classes: Sequence[Any] = (),
    ) -> Self:
        """Declare columns: `{"age": (17, 90), "work": ["private", "public"]}`."""
        if not columns:
            raise InputError("columns is empty; declare at least one column of the records")
        return cls(
            names=tuple(columns),
            columns=tuple(_checked_column(*item) for item in columns.items()),
            label=label,
            classes=tuple(str(name) for name in classes),
        )

    @property
    def all_names(self) -> tuple[str, ...]:
        """The columns of a table that the schema declares, that of the label included."""
        return (*self.names, self.label) if self.label else self.names

    @property
    def ends(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The low and the high end of each of `features` as `values` gives them."""
        ends = [
            each
            for column in self.columns
            for each in ([column] if not isinstance(column[0], str) else [(0.0, 1.0)] * len(column))
        ]
        low, high = zip(*ends, strict=True)
        return tuple(float(end) for end in low), tuple(float(end) for end in high)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the encoded columns: `age`, `work is private`, `work is public`."""
        named: list[str] = []
        for name, column in zip(self.names, self.columns, strict=True):
            texts = [one for one in column if isinstance(one, str)]
            named += [f"{name} is {text}" for text in texts] or [name]
        return tuple(named)

    def encode(self, table: Any) -> Floats:
        """Return a row of numbers from 0 to 1 per record, NaN where a cell is not as declared.

        `table` is a data frame with exactly the declared columns, in any order, or rows with one
        cell for each column in the declared order. Other columns are refused. No refusal depends
        on what a record holds: a category that is not declared becomes NaN in its row.
        """
        low, high = (np.array(ends) for ends in self.ends)
        with np.errstate(over="ignore"):  # a warning would tell of the value
            return np.asarray(np.clip((self.values(table) - low) / (high - low), 0, 1))

    def values(self, table: Any) -> Floats:
        """Return a row of numbers per record, NaN where a cell is not as declared.

        As `encode`, but numbers in their own units and not clipped.
        """
        parts = []
        for cells, column in zip(self._cells(table), self.columns, strict=True):
            if isinstance(column[0], str):
                parts.append(_one_hot(cells, column))
            else:
                parts.append(numbers_or_missing(list(cells))[:, None])
        return np.concatenate(parts, axis=1)

    def sides(self, table: Any) -> list[float]:
        """Return -1 for records of the first class, 1 for the second, NaN for any other label."""
        numbers = {name: 2.0 * number - 1 for number, name in enumerate(self.classes)}
        self._cells(table)
        return [numbers.get(str(cell), np.nan) for cell in table[self.label]]

    def _cells(self, table: Any) -> list[Sequence[Any]]:
        """The cells of each declared column; refused for names and shape only."""
        given = column_names(table)
        if given is not None:
            if set(given) != set(self.all_names) or len(given) != len(self.all_names):
                shown = ", ".join(map(str, given))
                raise DataError(
                    f"the columns of the table are {shown}; the schema declares "
                    f"{', '.join(self.all_names)}: give exactly those columns"
                )
            return [list(table[name]) for name in self.names]
        rows = [list(row) for row in table]
        if not rows or any(len(row) != len(self.names) for row in rows):
            raise DataError(
                f"the data is not rows of {len(self.names)} cells, one for each column that the "
                f"schema declares ({', '.join(self.names)}); give such rows"
            )
        return list(zip(*rows, strict=True))


def _checked_column(name: str, column: Sequence[Any]) -> Column:
    """One column of a schema, checked."""
    values = [column] if isinstance(column, str) else list(column)
    if values and all(isinstance(value, str) for value in values):
        if len(values) < FEWEST_CATEGORIES or len(set(values)) < len(values):
            raise InputError(
                f"column {name!r} has the categories {values}; declare two or more, each once"
            )
        return tuple(values)
    if len(values) != 2:
        raise InputError(
            f"column {name!r} is {values}; declare a range (low, high) of numbers, or categories "
            "as text"
        )
    low, high = (float(exact(end, f"an end of column {name!r}")) for end in values)
    if not low < high:
        raise InputError(
            f"column {name!r} is {low:g} … {high:g}; the low end must be below the high"
        )
    return (low, high)


def _one_hot(cells: Sequence[Any], categories: Sequence[Any]) -> Floats:
    """A column for each category; NaN in all of them for any other cell."""
    made = np.full((len(cells), len(categories)), np.nan)
    numbers = {category: number for number, category in enumerate(categories)}
    for row, cell in enumerate(cells):
        number = numbers.get(cell) if isinstance(cell, str) else None
        if number is not None:
            made[row] = 0.0
            made[row, number] = 1.0
    return made


def column_names(table: Any) -> list[Any] | None:
    """The names of the columns of a data frame; None for anything else."""
    names = getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__"):
        return None
    return list(names)


def refuse_text(table: Any) -> None:
    """Refuse a data frame with a column that is not of numbers, by the type of the column.

    A column's type is part of a frame as its name is, and known to its author. Cells are not
    looked at: an array or a list with a cell that is no number is not refused.
    """
    names = column_names(table)
    if names is None:
        return
    for name in names:
        kind = str(getattr(table[name], "dtype", "")).lower()
        if kind.startswith(("str", "utf8", "object", "categor", "enum", "date", "large_str")):
            raise InputError(
                f"column {name!r} is of type {kind}, and no schema is declared; declare the "
                f"categories or the range of every column, such as "
                f"schema=RecordSchema.of({{{name!r}: [...]}})"
            )
