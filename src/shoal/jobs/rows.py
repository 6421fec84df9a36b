"""All rows of a job, sorted into shards by subject: in memory, or on the disk when there are many.

Files are read one after the other, and each row goes to the shard of its subject. So all rows of a
subject are in one shard, from any files, and only one shard at a time has to fit in
memory.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from shoal.core.codec import Ints
from shoal.core.errors import DataError
from shoal.data.frames import PIECE, refuse_without_arrow
from shoal.data.write import atomic_write
from shoal.jobs.inputs import BadFile, InputFile, Layout, frames, rows_in
from shoal.jobs.job import Job
from shoal.jobs.journal import Journal
from shoal.jobs.tidy import Locator, Tidied, kinds_of, shard_of, tidy

if TYPE_CHECKING:
    import polars as pl

COUNTED = ("rows", "unowned", "off_map", "left_out")
MOST_LISTED = 1000  # most bad rows listed per file; all are counted

Notify = Callable[[str, int, int], None]  # stage, done, of how many
Next = Future["pl.DataFrame | None"]  # reads the next piece; None at the end of the file


class BadRow(NamedTuple):
    """A row that could not be used: its file, its number from 1, and the reason, not its values."""

    path: str
    row: int
    reason: str


@dataclass(slots=True)
class Scan:
    """The counts of reading files: rows read, rows without subject, rows per shard, bad files.

    `off_map` counts the points that no state of the model covers. `left_out` rows failed a
    condition and are not among the rows read. `bad_rows` locates the first unusable rows of each
    file; `faults` counts all of them by reason.
    """

    rows: int = 0
    unowned: int = 0
    off_map: int = 0
    left_out: int = 0
    shard_rows: list[int] = field(default_factory=list)
    bad: list[BadFile] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    bad_rows: list[BadRow] = field(default_factory=list)

    def add(self, file: Scan) -> None:
        """Add the counts of another scan, in place."""
        for name in COUNTED:
            setattr(self, name, getattr(self, name) + getattr(file, name))
        pairs = zip_longest(self.shard_rows, file.shard_rows, fillvalue=0)
        self.shard_rows = [one + other for one, other in pairs]
        self.faults.update(file.faults)
        self.bad_rows += file.bad_rows

    def take(self, path: str, rows: int, part: Tidied, shard_rows: Ints) -> None:
        """Add the counts of a piece of `rows` rows of one file, in place."""
        before = self.rows + self.left_out
        self.faults.update(reason for _, reason in part.bad)
        listed = part.bad[: MOST_LISTED - len(self.bad_rows)]
        self.bad_rows += [BadRow(path, before + at + 1, why) for at, why in listed]
        read, went = rows - part.left_out, shard_rows.tolist()
        self.add(Scan(read, part.unowned, part.off_map, part.left_out, went))

    def write_notes(self, job: Job, journal: Journal) -> Scan:
        """Write the counts to the journal and the bad rows to the notes, and return the scan."""
        said = {name: getattr(self, name) for name in (*COUNTED, "shard_rows", "faults")}
        # if it is lost, the files are read again
        journal.write("scanned", durable=False, **said, bad=[list(file) for file in self.bad])
        if self.bad_rows:
            lines = [json.dumps(row._asdict(), ensure_ascii=False) for row in self.bad_rows]
            atomic_write(job.notes / "bad_rows.jsonl", "\n".join(lines) + "\n", durable=False)
        return self


class RowStore(Protocol):
    """A store of the rows of a job by shard."""

    def add(self, rows: pl.DataFrame) -> Ints:
        """Store these rows, and return how many went to each shard."""
        ...

    def close(self) -> None: ...
    def shard(self, shard: int) -> pl.DataFrame: ...
    def clear(self) -> None: ...


class InMemory:
    """A store in memory, for a job that is small enough to be one shard."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []

    def add(self, rows: pl.DataFrame) -> Ints:
        self._parts.append(rows)
        return np.array([rows.height])

    def close(self) -> None:
        """Do nothing."""

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
        """Append the rows to the files of their shards, and return the new rows of each shard."""
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
        """Return all rows of a shard; the frame is empty when the file is absent or truncated."""
        import polars as pl
        import pyarrow as pa

        path = self._path(shard)
        if not path.exists():
            return pl.DataFrame()
        try:
            with pa.memory_map(str(path)) as source:
                found = pl.from_arrow(pa.ipc.open_stream(source).read_all())
        except pa.ArrowException:
            return pl.DataFrame()  # truncated by a crash: the count of its rows will not match
        assert isinstance(found, pl.DataFrame)
        return found

    def clear(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, shard: int) -> Path:
        return self._folder / f"{shard:05d}.arrow"


def store_for(job: Job) -> RowStore:
    """Return a store in memory for one shard, on the disk for several."""
    if job.shards == 1:
        return InMemory()
    refuse_without_arrow(f"a job of {job.shards} shards")
    return OnDisk(job.notes / "rows", job.shards)


def read_all(job: Job, store: RowStore, notify: Notify) -> Scan:
    """Read every file into the store and return the counts; bad files are skipped or refused.

    If a file fails after some of its rows were stored, all files are read again without it:
    a job uses all rows of a file or none.
    """
    bad: dict[str, BadFile] = {}
    while True:
        store.clear()
        found = _read_once(job, store, bad, notify)
        if found is not None:
            store.close()
            return found


def _read_once(job: Job, store: RowStore, bad: dict[str, BadFile], notify: Notify) -> Scan | None:
    """Read all files that are not in `bad` into the store, and return the counts.

    Returns None when a file failed after some of its rows were stored: the caller must start
    again. Failed files are added to `bad`. `notify` receives bytes read of all bytes.
    """
    whole, maps = Scan(shard_rows=[0] * job.shards), job.maps()
    kinds: dict[str, str] = {}
    files = [file for file in job.inputs if file.path not in bad]
    total, seen = sum(file.size for file in files), 0
    for file, pieces in _read_in_advance(files, job.layout):
        seen += file.size
        own = Scan()
        try:
            read_file(job, file, pieces, store, maps, own, lambda found: check_kinds(found, kinds))
        except DataError as error:
            bad[file.path] = refused_file(job, file, error)
            if own.rows or own.left_out:
                return None
        whole.add(own)
        notify("reading", seen, total)
    whole.bad = list(bad.values())
    return whole


def read_file(
    job: Job,
    file: InputFile,
    pieces: Iterable[pl.DataFrame],
    store: RowStore,
    maps: Locator | None,
    found: Scan,
    check: Callable[[dict[str, str]], None],
) -> None:
    """Put the rows of a file into the store, and add their counts to `found`.

    `check` is called with the kinds of the columns of each piece.
    """
    for frame in pieces:
        if frame.height:
            check(kinds_of(frame, job.layout))
        part = tidy(frame, job.layout, job.states, repr(file.path), maps)
        found.take(file.path, frame.height, part, store.add(part.rows))


def _read_in_advance(
    files: list[InputFile], layout: Layout
) -> Iterator[tuple[InputFile, Iterator[pl.DataFrame]]]:
    """Yield each file with its pieces; a thread reads the next piece in advance."""
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


def check_kinds(found: dict[str, str], kinds: dict[str, str]) -> None:
    """Refuse columns of another kind than in earlier files, and add new ones to `kinds`."""
    for column, kind in found.items():
        known = kinds.get(column, "nothing")
        if "nothing" not in (kind, known) and kind != known:
            raise DataError(
                f"its column {column!r} holds {kind}, and in the files before {known}; "
                "write all files alike"
            )
        kinds[column] = kind if known == "nothing" else known


def refused_file(job: Job, file: InputFile, error: DataError) -> BadFile:
    """Return the file as the report names it; raises when the job must stop at bad files."""
    source = f"{file.path!r}: "
    reason = str(error).removeprefix(source)
    if not job.skip_bad:
        raise DataError(
            f"{file.path!r} cannot be used: {reason}; correct it, or skip bad files "
            "(--bad-files skip)"
        ) from None
    return BadFile(file.path, reason, rows_in(file))


def together(parts: list[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the frames."""
    import polars as pl

    return pl.concat(parts) if parts else pl.DataFrame()


def _oldest() -> Any:
    """Return the oldest Arrow format level, whose plain text every reader knows."""
    import polars as pl

    return pl.CompatLevel.oldest()
