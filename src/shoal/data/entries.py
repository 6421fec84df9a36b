"""Data in any supported form, as the entries a model or a plan is about."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.charge import PartOf
from shoal.core.codec import Ints
from shoal.core.errors import DataError, InputError
from shoal.core.records import (
    RecordsRead,
    Sequences,
    chains,
    label,
    labels,
    missing,
    sequences,
    shown_names,
)
from shoal.core.task import Task
from shoal.data.formats import format_of, read_known
from shoal.data.frames import (
    is_frame,
    library_of,
    parquet_whole,
    reading_errors,
    to_polars,
    unused_levels,
)
from shoal.data.read import (
    SUFFIXES,
    TRACK_SUFFIXES,
    Paths,
    load_columns,
    matching,
    raw_tables,
    read,
    reason_of,
)
from shoal.data.rows import MISSING, Bins
from shoal.data.table import (
    MOST_STATES_READ,
    Columns,
    Dataset,
    check_columns,
    from_table,
    refuse_levels,
)
from shoal.data.times import parse_duration
from shoal.mechanisms.person import check_persons
from shoal.mechanisms.queries import ExternalQuery, LinearQuery
from shoal.records.place_attack import PLACES_PER_PERSON, City, People, location_vector

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


class EachSeries(NamedTuple):
    """Name of each series to its checked records, the library of the table, and calendar parts."""

    records: dict[str, Any]
    library: str | None
    parts: Mapping[str, PartOf]


def records_for(
    task: Task, data: Any, columns: dict[str, Any], *, together: bool = False
) -> RecordsRead:
    """The records a task takes, from a table, a file or plain values.

    They name the series of a table only where these are released `together`.
    """
    if not is_source(data):
        if columns:
            _dataset(data, None, columns)  # refuses columns of what has none
        return RecordsRead.of(task.read(data))
    if not _of_states(task.query):
        return RecordsRead.of(
            task.read(_number_columns(task.query, data, columns)), library_of(data)
        )
    found, library, _ = each_series(task, data, columns)
    names = tuple(found) if together and names_subjects(data, columns) else ()
    longest = max(records.total for records in found.values())
    if len(found) == 1:
        return RecordsRead(next(iter(found.values())), library, names, longest)
    if not together:
        raise InputError(
            f"the data holds {len(found)} series; release each by itself with plan.release_each("
            "data, series=…), or all in one release with together=True"
        )
    chains = tuple(chain for records in found.values() for chain in records.chains)
    return RecordsRead(task.read(Sequences(task.query.states, chains)), library, names, longest)


def names_subjects(data: Any, columns: Mapping[str, Any]) -> bool:
    """Whether the data says itself whose each series is: by a column, or as a data set of names.

    The name of a file says nothing: the same data may lie in a file of another name.
    """
    if isinstance(data, Dataset):
        return data.named
    return columns.get("series") is not None and is_source(data)


def each_series(task: Task, data: Any, columns: dict[str, Any]) -> EachSeries:
    """Every series of a table, a file or a data set; lists of labels are one without a name."""
    states = labels(task.query.states)
    whole = _dataset(data, states, columns)
    if whole is None:
        return EachSeries({"": task.read(sequences(data, states))}, None, {})
    check_persons(task, whole.entries)
    found = {}
    for name in note_small(whole, lambda note: warnings.warn(note, stacklevel=4)):
        try:
            found[name] = task.read(whole.sequences(states, series=name))
        except DataError as error:
            shown, text = f"series {name!r}", str(error)
            raise DataError(text if shown in text else f"{shown}: {text}") from None
    return EachSeries(found, library_of(data), whole.parts)


def sequences_by_group(
    data: Any, group: str | None, states: Sequence[Any] | None, columns: dict[str, Any]
) -> dict[str, Sequences]:
    """Value of the column `group` to its sequences, all on the same states; see `fit_groups`."""
    if group is None:
        raise InputError("group is missing; name the column that tells groups apart with group=…")
    whole = _dataset(data, states, columns)
    owners = columns.get("series")
    if whole is None or owners is None:
        raise InputError("groups are of series of a table or a file; name series=… too")
    own: dict[str, Any] = {name: columns[name] for name in ("where", "sep") if name in columns}
    labelled = _dataset(data, None, {"state": group, "series": owners, **own})
    assert labelled is not None  # it was one above
    return split_by(whole if states is None else whole.on(labels(states)), labelled, group)


def split_by(dataset: Dataset, labelled: Dataset, group: str) -> dict[str, Sequences]:
    """The series of each value that `labelled` holds for them; each must have one."""
    members: dict[str, list[str]] = {}
    for name, own in zip(labelled.names, labelled.chains, strict=True):
        values = sorted({labelled.states[int(i)] for chain in own for i in set(chain.tolist())})
        if len(values) != 1:
            raise DataError(
                f"series {name!r} has the values {', '.join(map(repr, values))} in column "
                f"{group!r}; a series must belong to one group"
            )
        members.setdefault(values[0], []).append(name)
    chains_of = dict(zip(dataset.names, dataset.chains, strict=True))
    return {
        value: Dataset(
            dataset.states, tuple(names), tuple(chains_of[name] for name in names)
        ).sequences()
        for value, names in sorted(members.items())
    }


def values_in(path: Paths, column: str, where: str | None, sep: str | None) -> tuple[str, ...]:
    """The values of a column in the rows that count, each once, sorted."""
    wanted = Columns(state=column, where=where)
    tables = raw_tables(path, wanted, sep=sep or ",", role="members")
    found = {value for table, _, _ in tables for value in table[column].unique()}
    if any(missing(value) for value in found):
        raise DataError(f"column {column!r} is empty in some rows; name somebody in every row")
    return tuple(sorted(map(label, found)))


def note_small(dataset: Dataset, tell: Callable[[str], None]) -> list[str]:
    """The names that can be released; parts of a single entry are left out, and noted."""
    sizes = [sum(map(len, chains)) for chains in dataset.chains]
    small = [n for n, size in zip(dataset.names, sizes, strict=True) if size < 2]
    if not small or not dataset.parts or len(small) == len(sizes):
        return list(dataset.names)
    tell(f"{len(small)} part(s) hold fewer than 2 entries and are left out, {small[0]!r} first")
    return [name for name in dataset.names if name not in set(small)]


def _of_states(query: Any) -> bool:
    """Whether the query reads chains of states, not numbers."""
    return isinstance(query, LinearQuery | ExternalQuery) or getattr(query, "reads_series", False)


def _number_columns(query: Any, data: Any, columns: dict[str, Any]) -> Any:
    """Columns of numbers, or the table itself for queries that name what they read."""
    if hasattr(query, "variables"):
        table = as_table(data)
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
        isinstance(data, str) and Path(data).suffix.lower() in (*SUFFIXES, *TRACK_SUFFIXES)
    )


def as_table(data: Any) -> pl.DataFrame:
    """A table of any library, or the columns of a file."""
    return to_polars(data) if is_frame(data) else read_table(data)


def column_arrays(data: Any, state: str | Sequence[str] | None) -> Any:
    """Columns of a table or a file as numbers: a list for one, rows for several."""
    table = as_table(data)
    names = _state_columns(table, state)
    if isinstance(state, str) or (state is None and len(names) == 1):
        return table[names[0]].to_numpy()
    return table.select(names).to_numpy()


def values_and_ties(
    values: Any, edges: Any, series: str | None, state: str | Sequence[str] | None
) -> tuple[Any, Any]:
    """Values of records and pairs of their places, from tables, files or arrays.

    With `series` the two columns of `edges` are names, each of which `values` must hold once.
    """
    if not is_source(values) and (series is not None or state is not None):
        raise InputError("series and state name columns; give the values as a table or a file")
    if series is None:
        found = column_arrays(values, state) if is_source(values) else values
        return found, _ends(edges).to_numpy() if is_source(edges) else edges
    table = as_table(values)
    names = [label(name) for name in check_named(table, series).to_list()]
    place = {name: at for at, name in enumerate(names)}
    if len(place) < len(names):
        raise DataError(f"column {series!r} names a record twice; give each one row")
    state = [name for name in table.columns if name != series] if state is None else state
    ends = _ends(edges).rows() if is_source(edges) else edges
    lacking = next((n for pair in ends for n in pair if label(n) not in place), None)
    if lacking is not None:
        raise DataError(f"edges name {label(lacking)!r}, which column {series!r} does not hold")
    pairs = [[place[label(a)], place[label(b)]] for a, b in ends]
    several = column_arrays(values, [state] if isinstance(state, str) else state)
    return several[:, 0] if several.shape[1] == 1 else several, pairs


def check_named(table: pl.DataFrame, column: str) -> pl.Series:
    """The column of that name; refused when there is none."""
    if column not in table.columns:
        raise DataError(
            f"the table has no column {column!r}; its columns are {shown_names(table.columns)}"
        )
    return table[column]


def _ends(edges: Any) -> pl.DataFrame:
    table = as_table(edges)
    if table.width < 2:
        raise DataError("the ties need two columns, one for each end")
    return table.select(table.columns[:2])


def likelihoods(
    data: Any, states: Sequence[str], series: str | None, time: str | None
) -> list[Any]:
    """Rows of numbers of each series: a column for every state; see `baum_welch`."""
    table = as_table(data)
    if time is not None:
        check_named(table, time)
        table = table.sort(time, maintain_order=True)
    if series is None:
        parts = [table]
    else:
        check_named(table, series)
        parts = table.partition_by(series, maintain_order=True)
    return [part.select(_state_columns(part, list(states))).to_numpy() for part in parts]


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
    refuse_levels(_unused_levels(data), "the data")
    found = {label(item) for chain in chains(data) for item in chain}
    if len(found) > MOST_STATES_READ:
        raise DataError(
            f"the data holds {len(found):,} different values, and a chain handles "
            f"{MOST_STATES_READ:,} "
            "states at most; hand numbers over as a column of a table, with bins=8 or "
            "bins=[100, 500]"
        )
    probe = sequences(data, sorted(found))
    return [[probe.states[i] for i in chain] for chain in probe.chains]


def _unused_levels(data: Any) -> tuple[str, ...]:
    """Levels of a categorical series of pandas or polars that no entry takes."""
    if not hasattr(data, "cat") or not hasattr(data, "to_frame"):
        return ()
    return unused_levels(data.to_frame("state"), "state")


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
    sep = columns.get("sep", ",")
    table = to_polars(data) if is_frame(data) else load_columns(matching(data)[0], named, sep=sep)
    raw = table[named.state].drop_nulls()
    return None if set(raw.cast(str).unique()) <= set(states) else bins


def _state_columns(table: pl.DataFrame, state: str | Sequence[str] | None) -> list[str]:
    """Return the named columns, or all; refuse a column that holds no numbers."""
    names = table.columns if state is None else [state] if isinstance(state, str) else list(state)
    wrong = [name for name in names if not check_named(table, name).dtype.is_numeric()]
    if wrong:
        raise DataError(
            f"column {wrong[0]!r} holds {table[wrong[0]].dtype} values; name columns of numbers "
            "with state=…"
        )
    return names


LEAST_VISITS = 10


def people_of(
    checkins: pl.DataFrame,
    friends: pl.DataFrame | None,
    city: City,
    *,
    user: str = "user",
    latitude: str = "latitude",
    longitude: str = "longitude",
    place: str = "place",
    top: int = PLACES_PER_PERSON,
    least: int = LEAST_VISITS,
) -> tuple[People, tuple[str, ...]]:
    """The people with at least `least` check-ins in the city, and their names.

    A person's vector holds the coordinates of the `top` places visited most often, ties by name.
    `friends` has two columns of names, or is None; pairs with somebody left out are dropped.
    Liu, Chakraborty & Mittal 2016, Section IV-A, Eq. (4).
    """
    import polars as pl

    check_columns(checkins.columns, "the check-ins", Columns(state=place, series=user))
    for role, name in (("latitude", latitude), ("longitude", longitude)):
        check_columns(checkins.columns, "the check-ins", Columns(state=name), role=role)
    inside = checkins.filter(
        pl.col(latitude).is_between(city.south, city.north)
        & pl.col(longitude).is_between(city.west, city.east)
    )
    counted = (
        inside.group_by(user, place)
        .agg(pl.len().alias("visits"), pl.col(latitude).first(), pl.col(longitude).first())
        .with_columns(pl.col(user).cast(pl.String), pl.col(place).cast(pl.String))
        .sort(user, "visits", place, descending=[False, True, False])
    )
    rows = (
        counted.group_by(user, maintain_order=True)
        .agg(pl.col("visits").sum().alias("total"), latitude, longitude)
        .filter(pl.col("total") >= least)
    )
    if rows.height < 3:
        raise DataError(
            f"{rows.height} people have {least} check-ins in the city; the attack needs three or "
            "more: widen the city, or ask for fewer check-ins"
        )
    names = tuple(rows[user].to_list())
    vectors = [
        location_vector(list(zip(lats, lons, strict=True)), top)
        for lats, lons in zip(rows[latitude].to_list(), rows[longitude].to_list(), strict=True)
    ]
    return People(city, np.array(vectors), _friend_pairs(friends, names)), names


def read_table(path: Paths) -> pl.DataFrame:
    """All columns of one file, with their types."""
    import polars as pl

    files = matching(path)
    if len(files) > 1:
        raise DataError(f"{len(files)} files are named, such as {str(files[0])!r}; give one")
    file, known = files[0], format_of(files[0])
    if known.shape != "table":
        return read_known(file, known)
    try:
        match known.kind:
            case "csv":
                return pl.read_csv(file, infer_schema_length=10_000)
            case "tsv":
                return pl.read_csv(file, infer_schema_length=10_000, separator="\t")
            case "parquet":
                return parquet_whole(file, list)
        return pl.read_ndjson(file)
    except reading_errors() as error:
        raise DataError(f"{str(file)!r} cannot be read: {reason_of(error)}") from None


def _friend_pairs(friends: pl.DataFrame | None, names: tuple[str, ...]) -> Ints:
    """Friendships as pairs of numbers, each once, between people who are there."""
    if friends is None:
        return np.empty((0, 2), dtype=np.int64)
    if friends.width < 2:
        raise DataError("the friendships need two columns, one for each friend")
    place = {name: number for number, name in enumerate(names)}
    ends = [friends.to_series(column).cast(str).to_list() for column in (0, 1)]
    pairs = {
        (min(place[a], place[b]), max(place[a], place[b]))
        for a, b in zip(*ends, strict=True)
        if a in place and b in place and a != b
    }
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
