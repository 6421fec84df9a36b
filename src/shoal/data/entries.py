"""Data in whatever form it comes, as the entries a model or a plan is about."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.additive.queries import ExternalQuery, LinearQuery
from shoal.core.errors import DataError, InputError
from shoal.core.records import Sequences, labels, sequences, shown_names
from shoal.core.task import Task
from shoal.data.bins import Bins
from shoal.data.frames import is_frame, library_of, to_polars
from shoal.data.read import SUFFIXES, load_columns, matching, read
from shoal.data.rows import MISSING
from shoal.data.table import Columns, Dataset, from_table
from shoal.data.times import parse_duration

if TYPE_CHECKING:
    import polars as pl

KEYWORDS = tuple(field.name for field in fields(Columns))


def entries(data: Any, states: Sequence[Any] | None = None, **columns: Any) -> Sequences:
    """`data` as chains of states: a table, a file, a `Dataset`, sequences, or lists of labels.

    `columns` are those of `shoal.data.table.Columns`, for tables and files. Without `states` they
    are the labels that occur, sorted. All series together; see `by_series` for one of each.
    """
    found = _dataset(data, states, columns)
    if found is not None:
        return found.sequences(None if states is None else labels(states))
    if states is None and not isinstance(data, Sequences):
        one = Dataset.of({"data": _chains(data)})
        return one.sequences()
    return sequences(data, data.states if states is None else labels(states))


def by_series(data: Any, states: Sequence[Any], **columns: Any) -> dict[str, Sequences]:
    """Name of each series to its chains; lists of labels are one series without a name."""
    found = _dataset(data, states, columns)
    if found is None:
        return {"": sequences(data, labels(states))}
    return {name: found.sequences(labels(states), series=name) for name in found.names}


def records_for(
    task: Task, data: Any, columns: dict[str, Any], *, together: bool = False
) -> tuple[Any, str | None]:
    """The records a task takes, from a table, a file or plain values, and the table's library."""
    if not is_source(data):
        if columns:
            _dataset(data, None, columns)  # refuses columns of what has none
        return task.read(data), None
    if not _of_states(task.query):
        return task.read(_rows(task.query, data, columns)), library_of(data)
    found, library = each_series(task, data, columns)
    if len(found) == 1:
        return next(iter(found.values())), library
    if not together:
        raise InputError(
            f"the data holds {len(found)} series; release each by itself with plan.release_each("
            "data, series=…), or all in one release with together=True"
        )
    chains = tuple(chain for records in found.values() for chain in records.chains)
    return task.read(Sequences(task.query.states, chains)), library


def each_series(
    task: Task, data: Any, columns: dict[str, Any]
) -> tuple[dict[str, Any], str | None]:
    """Name of each series to its checked records, and the library of the table."""
    found = {}
    for name, own in by_series(data, task.query.states, **columns).items():
        try:
            found[name] = task.read(own)
        except DataError as error:
            raise DataError(f"series {name!r}: {error}") from None
    return found, library_of(data)


def _of_states(query: Any) -> bool:
    """Whether the query reads chains of states, not numbers."""
    return isinstance(query, LinearQuery | ExternalQuery)


def _rows(query: Any, data: Any, columns: dict[str, Any]) -> Any:
    """Columns of numbers, or the table itself for queries that name what they read."""
    if hasattr(query, "variables"):
        table = to_polars(data) if is_frame(data) else _table(data)
        return {name: table[name].to_list() for name in table.columns}
    more = [name for name in columns if name != "state"]
    if more:
        raise InputError(f"{more[0]} is given, but the query is about records; name state=… only")
    return column_arrays(data, columns.get("state"))


def dataset_of(path: Any, states: Sequence[str] | None = None, **columns: Any) -> Dataset:
    """The data set in files; `states` of a model may be bins, and say then how numbers are cut."""
    if isinstance(columns.get("gap"), str):
        parse_duration(columns["gap"])  # a bare number on the command line is refused
    if columns.get("bins") is None and states is not None:
        columns = {**columns, "bins": _bins_of(path, states, columns)}
    return read(path, **columns)


def is_source(data: Any) -> bool:
    """Whether `data` is a table, a path or a data set: something with columns to name."""
    return isinstance(data, Dataset | Path) or is_path(data) or is_frame(data)


def is_path(data: Any) -> bool:
    """Whether `data` names files: a path, or a text that ends as data files do."""
    return isinstance(data, os.PathLike) or (
        isinstance(data, str) and Path(data).suffix.lower() in SUFFIXES
    )


def column_arrays(data: Any, state: str | Sequence[str] | None) -> Any:
    """Columns of a table or a file as numbers: a list for one, rows for several."""
    table = to_polars(data) if is_frame(data) else _table(data)
    names = _named(table, state)
    if isinstance(state, str) or (state is None and len(names) == 1):
        return table[names[0]].to_numpy()
    return table.select(names).to_numpy()


def _dataset(data: Any, states: Sequence[Any] | None, columns: dict[str, Any]) -> Dataset | None:
    """The data set of a table or a file; None for lists, which need no columns."""
    _check_keywords(columns)
    if isinstance(data, Dataset):
        return data
    frame, path = is_frame(data), is_path(data)
    if not frame and not path:
        if columns:
            raise InputError(
                f"{next(iter(columns))} is given, but the data is a {type(data).__name__}; columns "
                "are named for tables and files only"
            )
        return None
    if columns.get("state") is None:
        columns = {**columns, "state": _only_column(data)}
    if columns.get("bins") is None and states is not None:
        columns = {**columns, "bins": _bins_of(data, labels(states), columns)}
    return from_table(data, **columns) if frame else read(data, **columns)


def _chains(data: Any) -> list[list[Any]]:
    """Plain lists as one or several chains, told apart as `sequences` does."""
    found = {str(item) for item in _flat(data)}
    probe = sequences(data, sorted(found))
    return [[probe.states[i] for i in chain] for chain in probe.chains]


def _flat(data: Any) -> list[Any]:
    from shoal.core.records import chains, label

    return [label(item) for chain in chains(data) for item in chain]


def _check_keywords(columns: dict[str, Any]) -> None:
    unknown = [name for name in columns if name not in (*KEYWORDS, "sep")]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no keyword for data; there are {', '.join(KEYWORDS)}")


def _only_column(data: Any) -> str:
    """The name of the one column a table has; refused when there are several."""
    if not is_frame(data):
        raise InputError(f"{str(data)!r} is a file; name the column of states with state=…")
    names = to_polars(data).columns
    if len(names) != 1:
        raise InputError(
            f"the data is a table with columns {', '.join(names[:12])}; name the one with the "
            "states by state=… (and series=…, time=… where there are such)"
        )
    return names[0]


def _bins_of(data: Any, states: Sequence[str], columns: dict[str, Any]) -> Bins | None:
    """The bins a model's states are named after, where the data holds the raw numbers."""
    bins = Bins.named_by([state for state in states if state != MISSING])
    if bins is None:
        return None
    named = Columns(**{name: value for name, value in columns.items() if name in KEYWORDS})
    table = (
        to_polars(data)
        if is_frame(data)
        else load_columns(matching(data)[0], named, sep=columns.get("sep", ","))
    )
    raw = table[named.state].drop_nulls()
    return None if set(raw.cast(str).unique()) <= set(states) else bins


def _table(data: Any) -> pl.DataFrame:
    from shoal.data.places import read_table

    return read_table(data)


def _named(table: pl.DataFrame, state: str | Sequence[str] | None) -> list[str]:
    names = table.columns if state is None else [state] if isinstance(state, str) else list(state)
    lacking = [name for name in names if name not in table.columns]
    if lacking:
        raise DataError(
            f"the table has no column {lacking[0]!r}; its columns are {shown_names(table.columns)}"
        )
    wrong = [name for name in names if not table[name].dtype.is_numeric()]
    if wrong:
        raise DataError(
            f"column {wrong[0]!r} holds {table[wrong[0]].dtype} values; name columns of numbers "
            "with state=…"
        )
    return names
