"""All rows of a job, sorted into shards by subject: in memory, or on the disk when there are many.

Files are read one after the other and their rows handed to the shard of their subject, so a
subject spread over many files comes together in one place, and only one shard at a time has to
fit in memory.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError
from shoal.data.frames import PIECE
from shoal.jobs.inputs import BadFile, InputFile, Layout, frames, rows_in
from shoal.jobs.job import Job
from shoal.jobs.tidy import kinds_of, shard_of, tidy

if TYPE_CHECKING:
    import polars as pl

MOST_LISTED = 1000  # bad rows of a file that are listed one by one; all are counted

Notify = Callable[[str, int, int], None]  # stage, done, of how many
Next = Future["pl.DataFrame | None"]  # the piece after this one; None: the file is at its end


class BadRow(NamedTuple):
    """A row that could not be used: its file, its place from 1, and why; not what it holds."""

    path: str
    row: int
    reason: str


class Faults:
    """All bad rows counted by their reason, and the first of each file by name."""

    def __init__(self) -> None:
        self.rows: list[BadRow] = []
        self.counts: Counter[str] = Counter()
        self._listed: Counter[str] = Counter()

    def add(self, path: str, before: int, bad: Sequence[tuple[int, str]]) -> None:
        """Take the bad rows of a piece that comes after `before` rows of its file."""
        self.counts.update(reason for _, reason in bad)
        room = MOST_LISTED - self._listed[path]
        self.rows += [BadRow(path, before + at + 1, why) for at, why in bad[:room]]
        self._listed[path] += len(bad[:room])


class Scan(NamedTuple):
    """What reading the input came to: rows read, rows of nobody, rows per shard, bad files.

    `off_map` counts the points that no state of the model covers; `bad_rows` says of rows that
    could not be used in which file and where they are and why, `faults` how many there are of each
    kind. `left_out` met no condition, and are not among the rows read.
    """

    rows: int
    unowned: int
    shard_rows: list[int]
    bad: list[BadFile]
    off_map: int = 0
    bad_rows: list[BadRow] = []  # noqa: RUF012 - a tuple's field, never changed
    faults: Mapping[str, int] = MappingProxyType({})
    left_out: int = 0


class RowStore(Protocol):
    """Where the rows of a job wait, shard by shard."""

    def add(self, rows: pl.DataFrame) -> Ints:
        """Take these rows; how many went to each shard."""
        ...

    def close(self) -> None: ...
    def shard(self, shard: int) -> pl.DataFrame: ...
    def clear(self) -> None: ...


class InMemory:
    """The rows of a job that is small enough to be one shard."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> Ints:
        self._parts.append(rows)
        return np.array([rows.height])

    def close(self) -> None:
        """Nothing to finish."""

    def shard(self, shard: int) -> pl.DataFrame:
        return together(self._parts)

    def clear(self) -> None:
        self._parts = []


class OnDisk:
    """One Arrow stream per shard in a private folder, which the job removes at its end."""

    def __init__(self, folder: Path, shards: int) -> None:
        self._folder = folder
        self._shards = shards
        self._writers: dict[int, Any] = {}

    def add(self, rows: pl.DataFrame) -> Ints:
        import pyarrow as pa

        place = shard_of(rows["subject"], self._shards)
        order = np.argsort(place, kind="stable")
        bounds = np.searchsorted(place[order], np.arange(self._shards + 1))
        table = rows[order].to_arrow(compat_level=_oldest())
        for shard in np.flatnonzero(np.diff(bounds)).tolist():
            if shard not in self._writers:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                sink = pa.OSFile(str(self._path(shard)), "wb")
                self._writers[shard] = sink, pa.ipc.new_stream(sink, table.schema)
            part = table.slice(bounds[shard], bounds[shard + 1] - bounds[shard])
            self._writers[shard][1].write_table(part)
        return np.diff(bounds)

    def close(self) -> None:
        for sink, writer in self._writers.values():
            writer.close()
            sink.close()
        self._writers = {}

    def shard(self, shard: int) -> pl.DataFrame:
        import polars as pl
        import pyarrow as pa

        path = self._path(shard)
        if not path.exists():
            return pl.DataFrame()
        try:
            with pa.memory_map(str(path)) as source:
                found = pl.from_arrow(pa.ipc.open_stream(source).read_all())
        except pa.ArrowException:
            return pl.DataFrame()  # cut short by a crash: the count of its rows will not match
        assert isinstance(found, pl.DataFrame)
        return found

    def clear(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}.arrow"


def store_for(job: Job) -> RowStore:
    """Memory for one shard, the disk for several."""
    return InMemory() if job.shards == 1 else OnDisk(job.notes / "rows", job.shards)


def read_all(job: Job, store: RowStore, notify: Notify) -> Scan:
    """Every file into the store; a bad file is named and skipped, or stops the job.

    A file that turns out to be bad after some of its rows were taken makes the reading start
    again without it: a job takes all of a file or nothing.
    """
    bad: dict[str, BadFile] = {}
    while True:
        store.clear()
        found = _read_once(job, store, bad, notify)
        if found is not None:
            store.close()
            return found


def _read_once(job: Job, store: RowStore, bad: dict[str, BadFile], notify: Notify) -> Scan | None:
    rows, unowned, off_map, left_out = 0, 0, 0, 0
    faults = Faults()
    maps = job.maps()
    shard_rows = np.zeros(job.shards, dtype=np.int64)
    kinds: dict[str, str] = {}
    files = [file for file in job.inputs if file.path not in bad]
    total = sum(file.size for file in files)
    seen = 0
    for file, pieces in _ahead(files, job.layout):
        seen += file.size
        taken, at = False, 0
        try:
            for whole in _checked(job, pieces, kinds):
                part = tidy(whole, job.layout, job.states, repr(file.path), maps)
                shard_rows += store.add(part.rows)
                taken = True
                faults.add(file.path, at, part.bad)
                at += whole.height
                rows += whole.height - part.left_out
                left_out += part.left_out
                unowned += part.unowned
                off_map += part.off_map
        except DataError as error:
            bad[file.path] = refused_file(job, file, error)
            if taken:
                return None
        notify("reading", seen, total)
    return Scan(
        rows,
        unowned,
        shard_rows.tolist(),
        list(bad.values()),
        off_map,
        faults.rows,
        faults.counts,
        left_out,
    )


def _ahead(
    files: list[InputFile], layout: Layout
) -> Iterator[tuple[InputFile, Iterator[pl.DataFrame]]]:
    """Each file with its pieces; while one is worked on, a thread reads the next."""
    with ThreadPoolExecutor(1) as reader:

        def rest(pieces: Iterator[pl.DataFrame], first: Next) -> Iterator[pl.DataFrame]:
            coming = first
            while (piece := coming.result()) is not None:
                coming = reader.submit(next, pieces, None)
                yield piece

        def begin(file: InputFile) -> Iterator[pl.DataFrame]:
            pieces = frames(file, layout, PIECE)
            return rest(pieces, reader.submit(next, pieces, None))

        begun = begin(files[0]) if files else iter(())
        for file, after in zip_longest(files, files[1:]):
            waiting = begun
            begun = begin(after) if after is not None else iter(())
            yield file, waiting


def _checked(
    job: Job, pieces: Iterator[pl.DataFrame], kinds: dict[str, str]
) -> Iterator[pl.DataFrame]:
    """The pieces of a file whose columns hold what they hold in the files before it."""
    for frame in pieces:
        if frame.height:
            check_kinds(kinds_of(frame, job.layout), kinds)
        yield frame


def check_kinds(found: dict[str, str], kinds: dict[str, str]) -> None:
    """Refuse columns of another kind than in the files before; note those seen first."""
    for column, kind in found.items():
        known = kinds.get(column, "nothing")
        if "nothing" not in (kind, known) and kind != known:
            raise DataError(
                f"its column {column!r} holds {kind}, and in the files before {known}; "
                "write all files alike"
            )
        kinds[column] = kind if known == "nothing" else known


def refused_file(job: Job, file: InputFile, error: DataError) -> BadFile:
    """The file as the report names it; raises when the job is to stop at bad files."""
    source = f"{file.path!r}: "
    reason = str(error).removeprefix(source)
    if not job.skip_bad:
        raise DataError(
            f"{file.path!r} cannot be used: {reason}; correct it, or skip bad files "
            "(--bad-files skip)"
        ) from None
    return BadFile(file.path, reason, rows_in(file))


def together(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """The frames as one."""
    import polars as pl

    return pl.concat(parts) if parts else pl.DataFrame()


def _oldest() -> Any:
    """Plain Arrow text, which every reader knows."""
    import polars as pl

    return pl.CompatLevel.oldest()
