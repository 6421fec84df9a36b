"""Tables of any library as polars tables, and Parquet files in batches of rows.

pandas, polars, PyArrow, and everything narwhals reads (DuckDB, Ibis, Dask, Modin, …); answers go
back in the library they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl


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
    except ModuleNotFoundError:
        refuse_without_arrow(f"a table of {library_of(data) or 'this library'}")
        raise
    except Exception as error:  # noqa: BLE001 - every library fails in words of its own
        raise DataError(
            f"the {type(data).__name__} cannot be read as a table ({_first_line(error)}); give "
            "columns of text, numbers, truth values or times, such as df.astype(str) makes"
        ) from None


def reading_errors() -> tuple[type[BaseException], ...]:
    """Return what reading a damaged file ends in: errors of polars, of the disk, and of Arrow.

    Those of Arrow only where it is installed.
    """
    import polars as pl

    own = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
    try:
        import pyarrow as pa
    except ImportError:
        return own
    return (*own, pa.ArrowException)


def has_arrow() -> bool:
    """Whether pyarrow, which is an extra, is installed."""
    return find_spec("pyarrow") is not None


def refuse_without_arrow(what: str) -> None:
    """Refuse an act that needs pyarrow where it is not installed."""
    if not has_arrow():
        raise InputError(
            f"{what} needs pyarrow, which is not installed; install it with "
            "`pip install 'shoal[arrow]'`"
        )


def like(table: pl.DataFrame, library: str | None) -> Any:
    """`table` in the library asked for: "pandas", "pyarrow", or None and "polars" for polars."""
    match library:
        case None | "polars":
            return table
        case "pandas":
            refuse_without_arrow("a table of pandas")
            return table.to_pandas()
        case "pyarrow":
            refuse_without_arrow("a table of Arrow")
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
        accessor = getattr(data[column], "cat", None) if column in _column_names(data) else None
        levels = [str(level) for level in getattr(accessor, "categories", ())]
        taken = set(data[column].dropna().astype(str).unique()) if levels else set()
    return tuple(level for level in levels if level not in taken)


def _column_names(data: Any) -> list[str]:
    return list(getattr(data, "columns", ())) if hasattr(data, "loc") else []


def _with_index(data: Any) -> Any:
    """A pandas table with its index as columns, unless it only counts the rows."""
    counting = type(data.index).__name__ == "RangeIndex" or hasattr(data, "npartitions")
    plain = counting and data.index.name is None  # an index of Dask is not looked through
    return data if plain else data.reset_index()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


# Parquet files in batches of rows: a few bytes of one may stand for more than any memory holds.


PIECE = 200_000  # rows handled at a time, so that they stay in the processor's cache
# of a file that is read whole, whose bytes do not tell how many it holds
MOST_ROWS_READ = 100_000_000
MOST_BYTES = 2 * 2**30  # of the columns of such a file in memory
MOST_TEXT = 256 * 2**20  # bytes of text in one batch: a thousand for each row

Choose = Callable[[list[str]], Sequence[str]]


def parquet_whole(file: Path, choose: Choose) -> pl.DataFrame:
    """The chosen columns of all rows; refused where memory may not hold them."""
    import polars as pl

    parts: list[pl.DataFrame] = []
    rows = size = 0
    for part in parquet_frames(file, choose):
        rows += part.height
        size += int(part.estimated_size()) + 16 * part.width * part.height  # a text is pointed at
        if rows > MOST_ROWS_READ or size > MOST_BYTES:
            raise DataError(
                f"{str(file)!r} holds more than {MOST_ROWS_READ:,} rows, or "
                f"{MOST_BYTES:,} bytes when "
                "unpacked; release them as a job (--by)"
            )
        parts.append(part)
    return parts[0] if len(parts) == 1 else pl.concat(parts, rechunk=False)


def parquet_frames(file: str | Path, choose: Choose, rows: int = PIECE) -> Iterator[pl.DataFrame]:
    """The chosen columns, at most `rows` rows at a time; one empty frame where there are none.

    `choose` picks from the names of all columns. A batch is a piece of one row group, so groups of
    any size are never decoded whole. Texts are looked at before they are repeated for their rows:
    broken ones end in an error of Arrow's, where polars would panic.
    """
    if not has_arrow():
        yield from _parquet_by_polars(file, choose, rows)
        return
    import polars as pl
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file, pre_buffer=False) as opened:
            schema = opened.schema_arrow
            names = list(schema.names)
    except UnicodeDecodeError:
        raise DataError(
            f"{str(file)!r} has names that are not text in UTF-8; make it again"
        ) from None
    if len(set(names)) < len(names):
        raise DataError(f"{str(file)!r} has two columns of the same name; make it again")
    wanted = list(choose(names))
    words = [name for name in wanted if _is_text(schema.field(name).type)]
    with pq.ParquetFile(file, pre_buffer=False, read_dictionary=words) as opened:
        seen = False
        for batch in opened.iter_batches(batch_size=rows, columns=wanted):
            batch.validate(full=True)
            found = pl.from_arrow(_written_out(batch.select(wanted), file))
            assert isinstance(found, pl.DataFrame)
            yield found
            seen = True
        if not seen:
            empty = pl.from_arrow(schema.empty_table().select(wanted))
            assert isinstance(empty, pl.DataFrame)
            yield empty


def _parquet_by_polars(file: str | Path, choose: Choose, rows: int) -> Iterator[pl.DataFrame]:
    """`parquet_frames` without pyarrow: groups of rows are decoded whole, and texts not checked."""
    import polars as pl

    try:
        wanted = list(choose(list(pl.read_parquet_schema(file))))
        found = pl.scan_parquet(file).select(wanted)
        seen = False
        for frame in found.collect_batches(chunk_size=rows):
            for part in frame.iter_slices(rows):
                yield part
                seen = True
        if not seen:
            yield found.head(0).collect()
    except pl.exceptions.PanicException:
        raise DataError(f"{str(file)!r} is damaged; make it again") from None


def _is_text(kind: Any) -> bool:
    import pyarrow.types as is_

    return bool(is_.is_string(kind) or is_.is_large_string(kind))


def _written_out(batch: Any, file: str | Path) -> Any:
    """The batch with each text in its row, refused when that is more than memory should hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns, text = [], 0
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray):
            lengths = pc.binary_length(column.dictionary).take(column.indices)
            text += pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0
            if text > MOST_TEXT:
                raise DataError(
                    f"{str(file)!r} unpacks to more than {MOST_TEXT:,} bytes of text in "
                    f"{batch.num_rows:,} rows; leave long texts out of the columns that are read"
                )
            column = column.dictionary_decode()  # noqa: PLW2901 - the same, written out
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
