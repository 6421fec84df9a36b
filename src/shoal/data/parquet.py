"""Parquet files in batches of rows: a few bytes of one may stand for more than any memory holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import DataError

if TYPE_CHECKING:
    import polars as pl

PIECE = 200_000  # rows handled at a time, so that they stay in the processor's cache
MOST_ROWS = 100_000_000  # of a file that is read whole, whose bytes do not tell how many it holds
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
        if rows > MOST_ROWS or size > MOST_BYTES:
            raise DataError(
                f"{str(file)!r} holds more than {MOST_ROWS:,} rows, or {MOST_BYTES:,} bytes when "
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
