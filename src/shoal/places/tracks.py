"""Many people's trajectories through one location plan: a stream each, in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.core.charge import Ledger, Rng, SystemRng, refuse_seed
from shoal.core.codec import Floats
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.plan import Plan
from shoal.core.records import shown_names
from shoal.core.registry import load
from shoal.noise.primitives import SeededRng
from shoal.places.machine import machine_of
from shoal.places.packed import LocationRelease
from shoal.places.stream import LocationStream
from shoal.places.walk import grid_of

if TYPE_CHECKING:
    import polars as pl

NO_TIMES = (
    "the plan watches events, and with a ledger its readings need times, by which a later run "
    "knows them again; name the column of times"
)
BATCHES = 8  # of people per worker, small, for smooth progress and balanced workers

Notify = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackColumns:
    """Where a table of readings keeps what: people, times, and states or coordinates.

    `every` is the length of a step in seconds: readings are put on steps by their time, the last
    of a step counts, steps without one are skipped. Without it every reading is a step. A pause
    longer than `gap` seconds ends a stream and begins another, independent one.
    """

    user: str
    time: str | None = None
    state: str | None = None
    latitude: str | None = None
    longitude: str | None = None
    every: float | None = None
    gap: float | None = None

    @classmethod
    def of(cls, table: pl.DataFrame, *, every: float | None, gap: float | None) -> TrackColumns:
        """Those of a table that `shoal.data.positions` made."""
        there = {name: name for name in table.columns}
        return cls(
            user="user",
            time=there.get("time", there.get("seconds")),
            state=there.get("state"),
            latitude=there.get("lat"),
            longitude=there.get("lon"),
            every=every,
            gap=gap,
        )

    def __post_init__(self) -> None:
        """Refuse columns that name neither or both of a state and coordinates, or a gap without
        times.

        `every` and `gap` are in seconds and must be above 0.
        """
        places = (self.latitude is None, self.longitude is None)
        if (self.state is None) == (places == (True, True)) or len(set(places)) > 1:
            raise InputError("name the column state, or both latitude and longitude, but not all")
        if self.time is None and (self.every is not None or self.gap is not None):
            raise InputError("every and gap need the column of times; name it (--time)")
        for field, value in (("every", self.every), ("gap", self.gap)):
            if value is not None and not value > 0:
                raise InputError(f"{field} is {value}; it must be above 0 seconds")


class Track(NamedTuple):
    """One independent stretch of a person's readings: steps in order, None where one is missing.

    `times` are those of the steps: of their readings, or on even steps of their beginnings. `part`
    counts the stretches of one person from 0, where a gap `cut` them. `covers` is when a stretch
    lies, from its first microsecond since 1970 to the one after its last; None where that is not
    known or nothing was cut.
    """

    user: str
    part: int
    readings: tuple[Any, ...]
    times: tuple[Any, ...] | None = None
    covers: tuple[int, int] | None = None
    cut: bool = False


def release_tracks(
    plan: Plan,
    data: Any,
    columns: TrackColumns | None = None,
    *,
    workers: int = 1,
    notify: Notify = lambda done, total: None,
    ledger: Ledger | None = None,
    period: str = "",
    seed: int | None = None,
    every: Any = None,
    gap: Any = None,
    **named: Any,
) -> Any:
    """One row per step of every stream: the released point, the estimate, what was promised.

    `data` is a table of any library or a file. `columns` say where it keeps what; else names do:
    `series`, `time`, `latitude` and `longitude` or `state`, and `where`, `tz`, `unit`, `missing` of
    `shoal.read`; `every` and `gap` are lengths of time. A track (`read_track`, GPX, …) names its
    own columns, and a model with a step of its own is `every`. The answer is a table of the same
    library.

    Streams run side by side in `workers` processes. With a ledger every step is charged to its
    person first, in this process; what was charged in the same `period` under the same plan comes
    back as stored. `seed` makes outputs predictable, for tests only: it gives
    each stream a seed of its own. `notify(done, total)` is called as streams finish.
    """
    import polars as pl

    count = whole(workers, "workers")
    table, library = data, None
    if not isinstance(data, pl.DataFrame) or columns is None:
        library = load("shoal.data.frames:library_of")(data)
        table, columns = _table_and_columns(plan, data, columns, named, every=every, gap=gap)
    tracks = list(tracks_of(table, columns))
    if not tracks:
        raise DataError("the table holds no readings; nothing was released")
    refuse_seed(seed is not None and ledger is not None)
    if machine_of(plan).watch is not None:
        _check_watched(tracks, charged=ledger is not None)
    parts: dict[int, list[dict[str, Any]]] = {}
    done = 0
    for first, rows in _release_batches(plan, tracks, count, ledger, seed, period):
        parts[first] = rows
        done += len({(row["user"], row["part"]) for row in rows})
        notify(done, len(tracks))
    ordered = [row for first in sorted(parts) for row in parts[first]]
    return load("shoal.data.frames:like")(pl.DataFrame(ordered, infer_schema_length=None), library)


def _check_watched(tracks: list[Track], *, charged: bool) -> None:
    """Refuse tracks that a plan which watches events cannot follow as one stream of each person."""
    cut = next((track.user for track in tracks if track.part), None)
    if cut is not None:
        raise InputError(
            f"gap cuts the readings of {cut!r} into several streams, and the plan watches events, "
            "which are about one; leave gap out (every puts readings on steps, pauses and all)"
        )
    if charged and any(track.times is None for track in tracks):
        raise InputError(NO_TIMES)


def step_of(plan: Plan, asked: float | None) -> float | None:
    """The length of a step in seconds: the model's own, where it has one, else the one asked for.

    Refused when both are there and differ: the model is about moves in its own step.
    """
    own = getattr(machine_of(plan).chain, "step_seconds", None)
    if own is not None and asked not in (None, own):
        raise InputError(
            f"every is {asked:g} s, and a step of the model is {own:g} s; drop it, or fit a model "
            "with steps of that length (`shoal fit --grid … --every`)"
        )
    return asked if own is None else float(own)


def _table_and_columns(
    plan: Plan,
    data: Any,
    columns: TrackColumns | None,
    named: dict[str, Any],
    *,
    every: Any,
    gap: Any,
) -> tuple[pl.DataFrame, TrackColumns]:
    """Any table or file as one of polars, and where it keeps what."""
    if columns is not None:
        if named:
            raise InputError(f"{next(iter(named))} is given beside columns; name them in one place")
        return load("shoal.data.frames:to_polars")(data), columns
    table = load("shoal.data.positions:positions")(data, **named)
    length = load("shoal.data.times:duration")
    asked = None if every is None else length(every, "every").total_seconds()
    track_columns = TrackColumns.of(
        table,
        every=step_of(plan, asked),
        gap=None if gap is None else length(gap).total_seconds(),
    )
    return table, track_columns


def tracks_of(table: pl.DataFrame, columns: TrackColumns) -> Iterator[Track]:
    """The stretches of every person, in the order of their first appearance, sorted by time."""
    import polars as pl

    for name in (columns.user, columns.time, columns.state, columns.latitude, columns.longitude):
        if name is not None and name not in table.columns:
            raise DataError(
                f"column {name!r} is not in the data; its columns are {shown_names(table.columns)}"
            )
    for (user,), own in table.group_by([columns.user], maintain_order=True):
        rows = own.sort(columns.time, maintain_order=True) if columns.time else own
        readings = _readings(rows, columns)
        if columns.time is None:
            yield Track(str(user), 0, tuple(readings))
            continue
        times, kind = rows[columns.time], rows[columns.time].dtype
        if kind.is_temporal():
            times = times.cast(pl.Datetime("us")).cast(pl.Int64) / 1e6
        seconds = times.cast(pl.Float64).to_numpy()
        pauses = np.diff(seconds) > (np.inf if columns.gap is None else columns.gap)
        for part, cut in enumerate(np.split(np.arange(len(seconds)), np.flatnonzero(pauses) + 1)):
            placed, at = [readings[k] for k in cut], seconds[cut]
            if columns.every is not None:
                placed, at = _on_steps(placed, at, columns.every)
            stamps = _stamps(at, kind) if kind.is_temporal() else at.tolist()
            gap = columns.gap is not None
            lies = _covers(seconds[cut]) if kind.is_temporal() and gap else None
            yield Track(str(user), part, tuple(placed), tuple(stamps), lies, gap)


def _covers(seconds: Floats) -> tuple[int, int] | None:
    """Return the microseconds from the first to the last of these times; None before 1970."""
    first, last = (round(float(end) * 1e6) for end in (seconds[0], seconds[-1]))
    return (first, last + 1) if first >= 0 else None


def _readings(rows: pl.DataFrame, columns: TrackColumns) -> list[Any]:
    """Return one reading per row: a state's name, (latitude, longitude), or None where it is
    missing.
    """
    if columns.state is not None:
        return [None if value is None else str(value) for value in rows[columns.state].to_list()]
    assert columns.latitude is not None
    assert columns.longitude is not None
    pairs = zip(rows[columns.latitude].to_list(), rows[columns.longitude].to_list(), strict=True)
    finite = [(a, b) if a is not None and b is not None else None for a, b in pairs]
    return [None if pair is None or np.isnan(pair).any() else pair for pair in finite]


def _on_steps(readings: list[Any], seconds: Floats, every: float) -> tuple[list[Any], Floats]:
    """Readings by step, of several in a step the last, None for a step without one; its times."""
    steps = ((seconds - seconds[0]) // every).astype(np.int64)
    placed: list[Any] = [None] * (int(steps[-1]) + 1)
    for step, reading in zip(steps.tolist(), readings, strict=True):
        placed[step] = reading
    return placed, seconds[0] + every * np.arange(len(placed))


def _stamps(seconds: Floats, kind: Any) -> list[Any]:
    """Times in seconds as what the column held: dates and times, in its zone."""
    import polars as pl

    whole_ones = pl.Series([round(each * 1e6) for each in seconds.tolist()], dtype=pl.Int64)
    return whole_ones.cast(pl.Datetime("us", getattr(kind, "time_zone", None))).to_list()


def period_of(part: int, period: str = "", *, cut: bool = True) -> str:
    """Return the period under which a ledger is charged for one stretch of a person's readings.

    Readings that are not `cut` by a gap are one stretch, and the period is the one given. So are
    stretches whose times are unknown: nothing says that two of them are apart.
    """
    if not cut:
        return period
    return f"{period}/{part}" if period else str(part)


def _release_batches(
    plan: Plan,
    tracks: list[Track],
    workers: int,
    ledger: Ledger | None,
    seed: int | None,
    period: str,
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Rows of batches of streams, with the number of their first stream."""
    size = max(1, -(-len(tracks) // (workers * BATCHES)))
    batches = [(first, tracks[first : first + size]) for first in range(0, len(tracks), size)]
    if workers == 1 or ledger is not None or len(batches) == 1:
        for first, batch in batches:
            yield first, _release_rows(plan, first, batch, ledger, seed, period)
        return
    # spawned, not forked: forking a process with running threads can lock up
    with ProcessPoolExecutor(workers, get_context("spawn"), _receive, (plan,)) as pool:
        jobs = {pool.submit(_in_worker, first, batch, seed): first for first, batch in batches}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


_PLAN: list[Plan] = []  # of a worker process, sent once


def _receive(plan: Plan) -> None:
    _PLAN[:] = [plan]


def _in_worker(first: int, batch: list[Track], seed: int | None) -> list[dict[str, Any]]:
    return _release_rows(_PLAN[0], first, batch, None, seed)


def _release_rows(
    plan: Plan,
    first: int,
    tracks: list[Track],
    ledger: Ledger | None,
    seed: int | None,
    period: str = "",
) -> list[dict[str, Any]]:
    """Release each track through its plan, and return one row per step.

    `first` is the number of the first track, from which a seeded source follows. With a ledger
    every step is charged before it is drawn.
    """
    rows = []
    for number, track in enumerate(tracks, first):
        rng: Rng = SystemRng() if seed is None else SeededRng(seed * 1_000_003 + number)
        stream = LocationStream.begin(plan)
        for step, reading in enumerate(track.readings):
            if reading is None:
                stream, release = stream.skip()
            elif ledger is None:
                stream, release = stream.read(reading, rng=rng)
            else:
                charged = period_of(track.part, period, cut=track.covers is not None)
                account: dict[str, Any] = {"subject": track.user, "period": charged}
                account["covers"] = track.covers
                if track.times is not None and stream.watched is not None:
                    account["at"] = str(track.times[step])  # its own keys, and readings by time
                else:
                    # late rows may change the number of a stretch, not when it begins
                    begins = f"@{track.times[0]}" if track.cut and track.times else ""
                    stretch = f"{charged}{begins}"
                    account["key"] = f"{track.user}/{stretch}/{step}/{plan.fingerprint}"
                stream, release = stream.read(reading, ledger=ledger, **account)
            row = {"user": track.user, "part": track.part, **_step_row(plan, release)}
            rows.append(row if track.times is None else {**row, "time": track.times[step]})
    return rows


def _step_row(plan: Plan, release: LocationRelease) -> dict[str, Any]:
    """The columns of one step; on a map also latitude and longitude of point and estimate."""
    point = release.point or (None,) * len(release.labels)
    row: dict[str, Any] = {"step": release.time - 1}
    row |= {f"z_{name}": value for name, value in zip(release.labels, point, strict=True)}
    pairs = zip(release.labels, release.estimate, strict=True)
    row |= {f"estimate_{name}": value for name, value in pairs}
    grid = grid_of(machine_of(plan).chain)
    if grid is not None and len(release.labels) == 2:
        shown, place = release.degrees(grid)
        row["estimate_lat"], row["estimate_lon"] = place
        row["z_lat"], row["z_lon"] = shown or (None, None)
    return row | {
        "spread": release.spread,
        "possible": release.possible,
        "degree": release.degree,
        "loss_here": release.loss_here,
        "loss_path": release.loss_path,
        "warnings": "; ".join(release.warnings),
    }
