"""Tables of any library as polars tables, and answers back in the library they came from.

pandas, polars, PyArrow, and whatever narwhals reads (DuckDB, Ibis, Dask, Modin, …).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError

if TYPE_CHECKING:
    import polars as pl

INDEX = "index"  # what an index without a name is called, as pandas does


def is_frame(data: Any) -> bool:
    """Whether `data` is a table with named columns of some library; cheap for what is not."""
    module = type(data).__module__.partition(".")[0]
    if module in ("builtins", "numpy", "shoal", "collections"):
        return False
    import narwhals as nw

    if isinstance(data, nw.DataFrame | nw.LazyFrame):
        return True
    native = nw.from_native(data, pass_through=True)
    return isinstance(native, nw.DataFrame | nw.LazyFrame)


def to_polars(data: Any) -> pl.DataFrame:
    """The table as polars; an index of pandas that is not plain counting becomes columns."""
    import narwhals as nw
    import polars as pl

    if isinstance(data, pl.DataFrame):
        return data
    if hasattr(data, "reset_index") and hasattr(data, "index"):
        data = _with_index(data)
    try:
        frame = nw.from_native(data)
        whole = frame.collect("polars") if isinstance(frame, nw.LazyFrame) else frame
        return whole.to_polars()
    except Exception as error:  # noqa: BLE001 - every library fails in words of its own
        raise DataError(
            f"the {type(data).__name__} cannot be read as a table ({_first_line(error)}); give "
            "columns of text, numbers, truth values or times, such as df.astype(str) makes"
        ) from None


def like(table: pl.DataFrame, library: str | None) -> Any:
    """`table` in the library asked for: "pandas", "pyarrow", or None and "polars" for polars."""
    match library:
        case None | "polars":
            return table
        case "pandas":
            return table.to_pandas()
        case "pyarrow":
            return table.to_arrow()
    raise DataError(f"library is {library!r}; it must be 'polars', 'pandas' or 'pyarrow'")


def library_of(data: Any) -> str | None:
    """The library `data` is of, where answers can be given in it."""
    module = type(data).__module__.partition(".")[0]
    return module if module in ("pandas", "pyarrow", "polars") else None


def unused_levels(data: Any, column: str) -> tuple[str, ...]:
    """Levels of a categorical column that no row takes; none for other columns."""
    import polars as pl

    if isinstance(data, pl.DataFrame):
        kind = data.schema.get(column)
        levels = kind.categories.to_list() if isinstance(kind, pl.Enum) else []
        taken = set(data[column].cast(pl.String).unique()) if levels else set()
    else:
        accessor = getattr(data[column], "cat", None) if column in _names(data) else None
        levels = [str(level) for level in getattr(accessor, "categories", ())]
        taken = set(data[column].dropna().astype(str).unique()) if levels else set()
    return tuple(level for level in levels if level not in taken)


def _names(data: Any) -> list[str]:
    return list(getattr(data, "columns", ())) if hasattr(data, "loc") else []


def _with_index(data: Any) -> Any:
    """A pandas table with its index as columns, unless it only counts the rows."""
    counting = type(data.index).__name__ == "RangeIndex" or hasattr(data, "npartitions")
    plain = counting and data.index.name is None  # an index of Dask is not looked through
    return data if plain else data.reset_index()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
