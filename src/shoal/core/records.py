"""The data a release is made from: sequences of states, one per independent chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.registry import load

LONGEST_NAME = 40  # characters of a name in a message


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Chains of state indices; a gap in time starts a new chain, independent of the others."""

    states: tuple[str, ...]
    chains: tuple[Ints, ...]

    def __post_init__(self) -> None:
        if sum(map(len, self.chains)) < 2:
            raise DataError(
                f"the data holds {sum(map(len, self.chains))} entries; "
                "a release needs at least 2 (one entry alone is a single person's single fact)"
            )

    @property
    def longest(self) -> int:
        """Entries of the longest chain: what correlation can tie together."""
        return max(map(len, self.chains))

    @property
    def total(self) -> int:
        """Entries of all chains together."""
        return sum(map(len, self.chains))

    def counts(self) -> Ints:
        """How often each state occurs, over all chains."""
        size = len(self.states)
        total = np.zeros(size, dtype=np.int64)
        for chain in self.chains:
            total += np.bincount(chain, minlength=size)
        return total


class RecordsRead(NamedTuple):
    """Records that a task takes, checked; the library of their table; the series in them, by name.

    `longest` counts the entries of the longest series; None where records are no such entries.
    """

    records: Any
    library: str | None
    series: tuple[str, ...]
    longest: int | None

    @classmethod
    def of(cls, records: Any, library: str | None = None) -> RecordsRead:
        """Records of one series, or of none."""
        counted = isinstance(records, Sequences)
        return cls(records, library, (), records.total if counted else None)


def sequences(data: Any, states: Sequence[str]) -> Sequences:
    """`data` as chains of indices into `states`.

    Takes a sequence of labels, several of them (one per chain), NumPy arrays, and pandas or
    polars series. Labels are compared as text, so 0 and "0" are the same state.
    """
    if isinstance(data, Sequences):
        if data.states != tuple(states):
            raise DataError(
                f"the data has states {list(data.states)}, the model {list(states)}; "
                "encode the data with the model's states"
            )
        return data
    index = {state: i for i, state in enumerate(states)}
    return Sequences(tuple(states), tuple(_encode(chain, index) for chain in chains(data)))


def entries_of(data: Any, states: Sequence[Any] | None = None, **columns: Any) -> Sequences:
    """Return `data` as sequences; it may be lists, arrays, a table or a file with named columns.

    `columns` are those of `shoal.read`. Without `states` they are the labels that occur, sorted.
    """
    if isinstance(data, Sequences) and states is None and not columns:
        return data
    found: Sequences = load("shoal.data.entries:entries")(data, states, **columns)
    return found


def label(value: Any) -> str:
    """The text by which a state is known: 1, 1.0 and "1" are one state."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


def labels(values: Any) -> tuple[str, ...]:
    """The texts of one state, or of each of several."""
    several = isinstance(values, Iterable) and not isinstance(values, str)
    return tuple(label(value) for value in (values if several else (values,)))


def missing(value: Any) -> bool:
    """Return whether `value` is missing: None, NaN, NaT, pandas' NA."""
    if value is None:
        return True
    try:
        return bool(value != value)  # noqa: PLR0124 - only what is no value differs from itself
    except (TypeError, ValueError):  # pandas' NA has no truth value, and arrays have several
        return type(value).__name__ == "NAType"


def chains(data: Any) -> list[list[Any]]:
    """`data` as lists of labels, one per chain; labels by themselves are one chain."""
    _refuse_counts(data)
    rows = _as_list(data)
    if rows and all(_is_chain(row) for row in rows):
        return [_as_list(row) for row in rows]
    return [rows]


def _is_chain(row: Any) -> bool:
    return not isinstance(row, str | bytes) and (
        isinstance(row, Iterable) or hasattr(row, "to_list")
    )


def _as_list(data: Any) -> list[Any]:
    """Return `data` as a list; refuse text and anything that cannot be iterated."""
    for method in ("to_list", "to_pylist", "tolist"):  # series, PyArrow columns, NumPy arrays
        if hasattr(data, method):
            return list(getattr(data, method)())
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise DataError(
            f"the data is a {type(data).__name__}; hand over a sequence of states, or several"
        )
    return list(data)


def _refuse_counts(data: Any) -> None:
    """Refuse a table of states and how often they occur: its keys would be taken for the data."""
    if hasattr(data, "columns"):
        raise DataError(
            f"the data is a {type(data).__name__}, a table with columns; hand over one of them, or "
            "name them: plan.release(table, state=…), shoal.fit_chain(table, state=…)"
        )
    tallied = getattr(data, "name", None) in ("count", "proportion") and hasattr(data, "index")
    if isinstance(data, Mapping) or tallied:
        kind = "value_counts" if tallied else f"a {type(data).__name__}"
        raise DataError(
            f"the data is {kind}, a table of states and numbers, where the entries themselves are "
            "wanted; hand over one state per entry, such as ['sit', 'sit', 'walk']"
        )


def _encode(chain: list[Any], index: dict[str, int]) -> Ints:
    """Return the index of every label of `chain` as int64; refuse missing and unknown labels."""
    # text, as most data are, is its own label and never missing
    names = chain if {*map(type, chain)} == {str} else _entry_labels(chain)
    try:
        return as_read_only([*map(index.__getitem__, names)], np.int64)
    except KeyError as error:
        known = ", ".join(list(index)[:8]) + (", …" if len(index) > 8 else "")
        raise DataError(
            f"the data holds the state {error.args[0]!r}, which is not one of the model's "
            f"states ({known}); add it to the model or drop those rows"
        ) from None


def _entry_labels(chain: list[Any]) -> list[str]:
    """Return the label of every entry; refuse missing entries, naming the first."""
    empty = next((place for place, item in enumerate(chain) if missing(item)), None)
    if empty is not None:
        raise DataError(
            f"entry {empty + 1} of the data is missing ({chain[empty]}); drop such entries, or "
            "hand over a table with missing='drop', 'gap' (the chain is cut there) or 'state' (a "
            "state of its own)"
        )
    return [label(item) for item in chain]


def checked_states(states: Sequence[Any], field: str = "states") -> tuple[str, ...]:
    """Labels as text: at least one, none twice."""
    labels = tuple(label(state) for state in states)
    if not labels:
        raise InputError(f"{field} is empty; name at least one")
    if len(set(labels)) < len(labels):
        twice = next(name for name in labels if labels.count(name) > 1)
        raise InputError(f"{field} names {twice!r} twice; each one needs its own name")
    return labels


def shown_names(names: Sequence[object], most: int = 12) -> str:
    """The first names for a message: short, on one line, with control characters written out.

    A name over several lines is none: an unclosed quote makes one of all rows of a file.
    """
    shown = []
    for name in names[:most]:
        text = str(name)
        short = text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"
        lines = "(text over several lines)" if len(text.splitlines()) > 1 else short
        shown.append("".join(char if char.isprintable() else repr(char)[1:-1] for char in lines))
    return ", ".join(shown) + (", …" if len(names) > most else "")
