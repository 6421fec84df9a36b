"""Places in `shoal release` and `shoal stream`: tracks of many people, and a position a line."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from shoal.cli import show
from shoal.cli.show import check_chart
from shoal.core.errors import InputError
from shoal.core.records import label
from shoal.data.write import atomic_write, write_table
from shoal.ledger.store import ledger_or_nothing
from shoal.places.formats import check_map, is_track, tracks_geojson, tracks_gpx
from shoal.places.machine import grid_in_km, machine_of
from shoal.places.stream import LocationStream, StepPair, step_key
from shoal.places.tracks import TrackColumns, period_of, release_tracks, tracks_of
from shoal.places.views.fit import check_positions, track_positions
from shoal.places.views.plan import time_chart, trace_chart
from shoal.places.walk import grid_of

if TYPE_CHECKING:
    import polars as pl

    from shoal.cli.release import ReleaseOptions
    from shoal.cli.sources import NamedColumns
    from shoal.cli.stream import StreamOptions
    from shoal.core.charge import Rng
    from shoal.core.plan import Plan
    from shoal.ledger.store import SqlLedger


def release_steps(plan: Plan, named: NamedColumns, options: ReleaseOptions) -> None:
    """`shoal release` of a plan for places: a table with a row for each step of everybody's track.

    A row has the released point, the best estimate given everything released so far, how many
    states were possible, and what the stream has revealed up to there. With --plot the first
    person's trace is drawn beside the truth, for the owner's eyes only.
    """
    for chart in _charts(options.plot):
        check_chart(chart, force=options.force, maps=True)
    with show.working("reading"):
        table, columns = track_positions(plan, options.data, named, options.every)
    table = _under(named.subject, table)
    cut = columns.every is not None or columns.gap is not None
    check_positions(table, plan.task.family[0], cut=cut)
    if is_track(options.out):
        check_map(plan, options.out)
    rows = _release_tracks_with_progress(plan, table, columns, options)
    if is_track(options.out):
        write = tracks_gpx if options.out.suffix.lower() == ".gpx" else tracks_geojson
        atomic_write(options.out, write(rows))
    else:
        write_table(options.out, rows)
    if options.plot is not None:
        _draw(plan, table, columns, rows, options.plot)
    _report_release(plan, rows, options)


def _under(subject: str | None, table: pl.DataFrame) -> pl.DataFrame:
    """The tracks of one person under the name that was given; as they are without one."""
    import polars as pl

    if subject is None:
        return table
    people = table["user"].n_unique()
    if people > 1:
        raise InputError(
            f"the subject is {subject!r}, but the data holds {people} people; drop it, and each "
            "is charged under its own name"
        )
    return table.with_columns(user=pl.lit(subject))


def _release_tracks_with_progress(
    plan: Plan, table: pl.DataFrame, columns: TrackColumns, options: ReleaseOptions
) -> Any:
    """Release the tracks under a progress bar, charged to the ledger if one is named."""
    with show.working("releasing streams") as notify:
        if options.ledger is None:
            return release_tracks(
                plan, table, columns, workers=options.workers, seed=options.seed, notify=notify
            )
        words = "What was charged so far is kept in the ledger: the same command gets it back."
        with show.on_stop(words), ledger_or_nothing(options.ledger) as opened:
            begun = period_of(0, options.period, cut=columns.gap is not None)
            _warn_of_stored(opened, table, begun)
            return release_tracks(
                plan, table, columns, ledger=opened, period=options.period, notify=notify
            )


def _warn_of_stored(opened: SqlLedger, table: pl.DataFrame, period: str) -> None:
    """Tells who was charged in this period before: the same steps come back, not new ones."""
    charged = {subject for subject, own in opened.accounts() if own == period}
    again = charged.intersection(table["user"].unique().to_list())
    if again:
        typer.echo(
            f"WARNING: the ledger holds steps of {len(again)} of these people in this period, such "
            f"as {min(again)!r}: what it holds comes back as it was released, whatever the data "
            "says. Other data, if it is independent of that, goes under another --period.",
            err=True,
        )


def _charts(plot: Path | None) -> list[Path]:
    """What --plot writes: a map as a page; or the trace, and protection and error over time."""
    if plot is None or plot.suffix.lower() == ".html":
        return [] if plot is None else [plot]
    return [plot, plot.with_name(f"{plot.stem}-over-time{plot.suffix}")]


def _draw(plan: Plan, table: pl.DataFrame, columns: Any, rows: pl.DataFrame, plot: Path) -> None:
    """The first stream: traces into `plot`, protection and error over time beside it."""
    import polars as pl

    machine, track = machine_of(plan), next(tracks_of(table, columns))
    own = rows.head(len(track.readings))
    labels = machine.query.labels
    places = [None if r is None else machine.runtime.locator.state_of(r) for r in track.readings]
    nowhere = np.full(len(labels), np.nan)
    truth = np.array([nowhere if p is None else machine.query.values[p] for p in places])
    released = own.select(pl.col(f"z_{name}").cast(pl.Float64) for name in labels).to_numpy()
    estimated = own.select(f"estimate_{name}" for name in labels).to_numpy()
    unit = machine.query.unit
    if plot.suffix.lower() == ".html":
        atomic_write(plot, map_page(plan, rows, truth=truth))
        return
    atomic_write(plot, trace_chart(truth, released, estimated, unit))
    chart = time_chart(truth, released, estimated, own["degree"], own["possible"], unit)
    atomic_write(_charts(plot)[1], chart)


def _report_release(plan: Plan, rows: pl.DataFrame, options: ReleaseOptions) -> None:
    """Print what was released and promised, as JSON or as text with the paths of charts."""
    streams = rows.select("user", "part").unique().height
    options.warn_of_seed()
    if options.as_json:
        fields = {"path": str(options.out), "secure": options.seed is None}
        show.print_json({**fields, "streams": streams, "steps": rows.height})
        return
    show.console().print(
        show.paragraphs(
            f"Released: {rows.height} steps of {streams} stream(s) by {plan.mechanism}, in "
            f"{options.out}\nPromise: {plan.guarantee.describe()}"
        )
    )
    for chart in _charts(options.plot):
        typer.echo(f"The chart is in {chart}")


# A map in one HTML file: cells, released points and estimates over time; it asks no network.


WIDTH = 960  # pixels of the drawing; its height follows from the map
MOST_STREAMS = 50  # drawn: a page of more is no map


def map_page(plan: Plan, rows: pl.DataFrame, *, truth: Any = None, title: str = "") -> str:
    """The page for steps of `release_tracks`; `truth` adds the first stream's own positions.

    With the truth it is for the owner's eyes only, and says so.
    """
    machine = machine_of(plan)
    if len(machine.query.labels) != 2:
        raise InputError("a map needs answers in the plane; this plan has no such query")
    height, at = _frame(machine.query.values)
    dots = map(at, machine.query.values)
    cells = "".join(f'<circle class="cell" r="2" cx="{x}" cy="{y}"/>' for x, y in dots)
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="map">{cells}'
        '<g id="layer"></g></svg>'
    )
    streams = [
        _stream(own, machine.query.labels, at)
        for _, own in rows.group_by(["user", "part"], maintain_order=True)
    ][:MOST_STREAMS]
    if truth is not None:
        streams[0]["truth"] = [None if np.isnan(p).any() else at(p) for p in truth]
    legend = "; green, dashed: the true positions, for the owner's eyes only"
    fields = {
        "title": html.escape(title or f"Places released by {plan.mechanism}"),
        "promise": html.escape(f"Promise: {plan.guarantee.describe()}"),
        "drawing": drawing,
        "legend": legend if truth is not None else "",
        "streams": json.dumps(streams, allow_nan=False).replace("<", "\\u003c"),
    }
    page = files("shoal.places").joinpath("templates", "map.html").read_text(encoding="utf-8")
    return re.sub("@([a-z]+)@", lambda found: fields[found[1]], page)


Pixels = Callable[[Any], list[float]]  # of a point in the plane


def _frame(values: Any) -> tuple[int, Pixels]:
    """The height of a drawing, and answers in the plane to pixels, north up, one scale for both."""
    low, high = values.min(axis=0), values.max(axis=0)
    margin = 0.05 * max(float((high - low).max()), 1e-9)
    low, wide = low - margin, np.maximum(high - low, 1e-9) + 2 * margin
    scale = WIDTH / float(wide[0])
    height = int(min(max(scale * wide[1], 120), 4 * WIDTH))

    def at(point: Any) -> list[float]:
        east, north = (np.asarray(point, np.float64) - low) * scale
        return [round(float(east), 1), round(height - float(north), 1)]

    return height, at


def _stream(own: pl.DataFrame, labels: tuple[str, ...], at: Pixels) -> dict[str, Any]:
    """Return one stream's points, estimates and times for the map page; None where nothing was
    drawn.
    """
    points, estimates, times = [], [], []
    for row in own.iter_rows(named=True):
        shown = [row[f"z_{name}"] for name in labels]
        points.append(None if shown[0] is None else at(shown))
        estimates.append(at([row[f"estimate_{name}"] for name in labels]))
        times.append(str(row.get("time", "")))
    found = {"name": f"{own['user'][0]}/{own['part'][0]}", "points": points, "estimates": estimates}
    return {**found, "times": times} if "time" in own.columns else found


MOST_SKIPPED = 1_000_000  # steps of a line: a slip such as a time in seconds would run for hours


class PlaceLines:
    """Lines of positions: a state, a latitude and longitude, or steps to skip."""

    charged = True

    def __init__(self, plan: Plan, options: StreamOptions) -> None:
        """Keep the plan and the options; refuse --field, --clock and a start that is no state."""
        self._plan, self._options = plan, options
        if options.field != "context":
            raise InputError(
                f"--field is {options.field!r}, but {plan.mechanism} reads lat and lon, or state; "
                "drop it"
            )
        if options.clock is not None:
            raise InputError("--clock is for the contexts of a day; drop it for other streams")
        if options.start is not None:
            initial_stream(plan, options.start)  # refuses a start that is no state

    def begin(self) -> LocationStream:
        if self._options.ledger is not None:
            self._warn_of_stored(self._options.ledger)
        return initial_stream(self._plan, self._options.start)

    def goes_on(self, stored: Plan) -> bool:
        return stored == self._plan

    def step(
        self, runner: LocationStream, reading: dict[str, Any], rng: Rng
    ) -> tuple[LocationStream, dict[str, Any]]:
        """The stream after a line, and the line to write.

        A line holds "state", or "lat" and "lon"; {"skip": 3} passes three steps without a release.
        A time stamp in "at" is written out again, as it is.
        """
        stream, release = self._step_line(runner, reading, rng)
        shown, grid, at = release.as_dict(), grid_in_km(stream.plan), reading.get("at")
        if grid is not None:
            point, estimate = release.degrees(grid)
            shown |= {"estimate_degrees": estimate, "z_degrees": point}
        if stream.watched is not None:
            shown["event_beliefs"] = list(stream.event_beliefs())
        return stream, {"at": at, **shown} if isinstance(at, str | int | float) else shown

    def _step_line(self, runner: LocationStream, reading: dict[str, Any], rng: Rng) -> StepPair:
        """The stream after a line, and what it shows.

        With a ledger the step is charged first, under a key made of its time, so that a line sent
        again after a crash gets the output that was stored.
        """
        if "skip" in reading:
            return runner.skip(_positive_whole(reading["skip"]))
        observed = _position(reading)
        if observed is None:
            return runner.skip()
        if not isinstance(observed, tuple):
            _check_state(runner, observed)
        if self._options.ledger is None:
            return runner.read(observed, rng=rng)
        subject, period = self._options.subject, self._options.period
        account = {"ledger": self._options.ledger, "subject": subject, "period": period}
        if runner.watched is None:  # one that watches events makes its own keys
            account["key"] = step_key(subject, period, runner.plan, runner.state.time)
        elif isinstance(reading.get("at"), str | int | float):
            account["at"] = str(reading["at"])
        return runner.read(observed, rng=None, **account)

    def doubt(self, runner: LocationStream, reading: dict[str, Any]) -> str:
        return place_doubt(runner, reading)

    def _warn_of_stored(self, ledger: SqlLedger) -> None:
        """Tells that a stream begun again gets the outputs its ledger holds, not new ones."""
        subject, period = self._options.subject, self._options.period
        if ledger.has(subject, period):
            typer.echo(
                f"WARNING: the ledger holds steps of {subject!r} in period {period!r}: these are "
                "answered as before, whatever the lines say. A stream that goes on keeps its place "
                "with --state; one that is independent of it has another --period.",
                err=True,
            )


def initial_stream(plan: Plan, start: str | None) -> LocationStream:
    """The stream before its first step, or after one whose state is public."""
    fresh = LocationStream.begin(plan)
    if start is None:
        return fresh
    _check_state(fresh, start, "--start")
    return LocationStream.begin(plan, start)


def place_doubt(runner: LocationStream, reading: dict[str, Any]) -> str:
    """What the owner of the readings should know about a line; empty when nothing is odd."""
    chain: Any = runner.machine.chain
    if grid_of(chain) is None:
        return ""
    latitude, longitude = reading.get("lat"), reading.get("lon")
    if not (isinstance(latitude, int | float) and isinstance(longitude, int | float)):
        return ""
    if int(chain.grid.cell_of(latitude, longitude)) in chain.cells:
        return ""
    return (
        f"lat {latitude:g} and lon {longitude:g} lie off the model's map, so its nearest state "
        "counts; check the map, and that lat and lon are not swapped"
    )


def _position(reading: dict[str, Any]) -> Any:
    """Return what a line says was read: a state, (latitude, longitude) or None.

    Refuses a line with both or neither, or with one coordinate alone.
    """
    if "lat" in reading or "lon" in reading:
        if "state" in reading:
            raise InputError("the line has a state and lat and lon; give one of them")
        if "lat" not in reading or "lon" not in reading:
            raise InputError('lat and lon go together; give both, or {"skip": 1}')
        missing = reading["lat"] is None or reading["lon"] is None
        return None if missing else (_degrees(reading, "lat", 90), _degrees(reading, "lon", 180))
    if "state" in reading:
        return reading["state"]
    raise InputError('the line has neither state nor lat and lon; give one, or {"skip": 1}')


def _degrees(reading: dict[str, Any], key: str, most: int) -> float:
    """Return the number under a key; refuse anything but a number from -`most` to `most`."""
    value = reading[key]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not -most <= value <= most:
        raise InputError(
            f'{key} is {value!r}; it must be a number from -{most} to {most}, or give {{"skip": 1}}'
        )
    return float(value)


def _check_state(runner: LocationStream, name: object, field: str = "state") -> None:
    """Refuse a name that is no state of the model."""
    try:
        runner.machine.runtime.locator.state_of(label(name))
    except InputError:
        states = map(str, (runner.machine.chain.states or ())[:8])
        raise InputError(
            f"{field} is {name!r}, which is not one of the model's states; name one of them "
            f"({', '.join(states)}, …)"
        ) from None


def _positive_whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_SKIPPED:
        raise InputError(f"skip is {value!r}; it must be a whole number from 1 to {MOST_SKIPPED:,}")
    return value
