"""`shoal locations`: many people's trajectories through one location plan, a stream each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.options import (
    AsJson,
    DataPath,
    DemoSeed,
    Force,
    PlanSource,
    PlotPath,
    check_apart,
    check_chart,
    check_output,
    new_app,
)
from shoal.cli.sources import NamedColumns, load_plan
from shoal.core.errors import InputError
from shoal.core.plan import refuse_seed

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan
    from shoal.ledger.store import SqlLedger
    from shoal.places.tracks import TrackColumns

app = new_app()

SUFFIXES = (".csv", ".parquet", ".jsonl", ".ndjson")

EXAMPLES = """\b
Examples:
  shoal locations town.toml tracks.csv -o out.csv --series user --lat lat --lon lon --time t
  shoal locations plan.json tracks.parquet -o out.parquet --series user --lat lat --lon lon \\
      --time t --every 60s --gap 10min --workers 4
  shoal locations town.toml tracks.csv -o out.csv --lat lat --lon lon --plot trace.png
"""


OutPath = Annotated[
    Path,
    typer.Option("--out", "-o", metavar="FILE", help="Written whole: .csv, .parquet, .jsonl."),
]
SeriesColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that tells people apart.")
]
Latitudes = Annotated[
    str | None, typer.Option("--lat", metavar="COLUMN", help="Column with latitudes.")
]
Longitudes = Annotated[
    str | None, typer.Option("--lon", metavar="COLUMN", help="Column with longitudes.")
]
StateColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column with states, instead.")
]
TimeColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column by which a person is ordered.")
]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="Length of a step, such as 60s; steps without are skipped."
    ),
]
NewStream = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="A longer pause starts a new stream, such as 10min."),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes side by side.")]
LedgerPath = Annotated[
    str | None, typer.Option(metavar="FILE", help="Charge each step before it is drawn.")
]
Period = Annotated[
    str,
    typer.Option(metavar="NAME", help="The period the ledger charges; another one for other data."),
]


@app.command(epilog=EXAMPLES)
def locations(
    source: PlanSource,
    data: DataPath,
    *,
    out: OutPath,
    series: SeriesColumn = None,
    latitude: Latitudes = None,
    longitude: Longitudes = None,
    state: StateColumn = None,
    time: TimeColumn = None,
    every: Every = None,
    gap: NewStream = None,
    workers: Workers = 1,
    ledger: LedgerPath = None,
    period: Period = "",
    seed: DemoSeed = None,
    plot: PlotPath = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Release many people's trajectories, a stream for each.

    Every row of the result is a step: the released point, the best estimate given everything
    released so far, how many states were possible, and what the stream has told up to there. With
    --plot the first person's trace is drawn beside the truth, for your eyes only.
    """
    from shoal.data.write import write_table
    from shoal.places.views.fit import check_positions, read_positions

    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out is {str(out)!r}; tables are written as {', '.join(SUFFIXES)}")
    if period and ledger is None:
        raise InputError(f"--period is {period!r} without --ledger; name the ledger too")
    refuse_seed(seed is not None and ledger is not None, "--seed is given with --ledger")
    check_output(out, force=force)
    check_apart(out, source, data)
    for chart in _charts(plot):
        check_chart(chart, force=force)
    plan, own = _plan_of_places(source)
    named = NamedColumns(state, series, time, gap, None, latitude, longitude).over(own)
    with show.working("reading"):
        table = read_positions(
            data,
            series=named.series,
            time=named.time,
            latitude=named.latitude,
            longitude=named.longitude,
            state=named.state,
        )
    columns = _columns(named, every)
    cut = columns.every is not None or columns.gap is not None
    check_positions(table, plan.task.family[0], cut=cut)
    rows = _released(plan, table, columns, workers, ledger, period, seed)
    write_table(out, rows)
    if plot is not None:
        _draw(plan, table, columns, rows, plot)
    _report(plan, rows, out, _charts(plot), as_json=as_json, seeded=seed is not None)


def _plan_of_places(source: Path) -> tuple[Plan, NamedColumns]:
    """The plan, and the columns its spec names."""
    from shoal.core.plan import Machine
    from shoal.places.views.stream import follows_places

    plan, own = load_plan(source)
    if not follows_places(plan):
        command = "stream" if isinstance(plan.body, Machine) else "release"
        raise InputError(f"{plan.mechanism} is not a plan for places; use `shoal {command}`")
    return plan, own


def _columns(named: NamedColumns, every: str | None) -> TrackColumns:
    """Where `read_positions` has put what, and how its times are cut."""
    from shoal.data.times import parse_duration
    from shoal.places.tracks import TrackColumns

    return TrackColumns(
        user="user",
        time="seconds" if named.time else None,
        state="state" if named.state else None,
        latitude="lat" if named.latitude else None,
        longitude="lon" if named.latitude else None,
        every=None if every is None else parse_duration(every, "every").total_seconds(),
        gap=None if named.gap is None else parse_duration(named.gap).total_seconds(),
    )


def _released(
    plan: Plan,
    table: pl.DataFrame,
    columns: TrackColumns,
    workers: int,
    ledger: str | None,
    period: str,
    seed: int | None,
) -> pl.DataFrame:
    from shoal.ledger.store import open_ledger
    from shoal.places.tracks import release_tracks

    with _bar() as notify:
        if ledger is None:
            return release_tracks(plan, table, columns, workers=workers, seed=seed, notify=notify)
        words = "What was charged so far is kept in the ledger: the same command gets it back."
        with show.on_stop(words), open_ledger(ledger) as opened:
            _warn_of_stored(opened, table, period)
            return release_tracks(
                plan, table, columns, ledger=opened, period=period, seed=seed, notify=notify
            )


def _warn_of_stored(opened: SqlLedger, table: pl.DataFrame, period: str) -> None:
    """Tells who was charged in this period before: the same steps come back, not new ones."""
    from shoal.places.tracks import period_of

    charged = {subject for subject, own in opened.accounts() if own == period_of(0, period)}
    again = charged.intersection(table["user"].unique().to_list())
    if again:
        typer.echo(
            f"WARNING: the ledger holds steps of {len(again)} of these people in this period, such "
            f"as {min(again)!r}: what it holds comes back as it was released, whatever the data "
            "says. Other data, if it is independent of that, goes under another --period.",
            err=True,
        )


def _charts(plot: Path | None) -> list[Path]:
    """The files that --plot writes: the trace, and protection and error over time."""
    return [] if plot is None else [plot, plot.with_name(f"{plot.stem}-over-time{plot.suffix}")]


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, fed with the streams that are done and all of them."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    screen = show.console(stderr=True)
    columns = (TextColumn("releasing streams"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def _draw(plan: Plan, table: pl.DataFrame, columns: Any, rows: pl.DataFrame, plot: Path) -> None:
    """The first stream: traces into `plot`, protection and error over time beside it."""
    import numpy as np
    import polars as pl

    from shoal.data.files import atomic_write
    from shoal.places.machine import machine_of
    from shoal.places.tracks import tracks_of
    from shoal.places.views.plan import time_chart, trace_chart

    machine, track = machine_of(plan), next(tracks_of(table, columns))
    own = rows.head(len(track.readings))
    labels = machine.query.labels
    places = [None if r is None else machine.runtime.locator.state_of(r) for r in track.readings]
    nowhere = np.full(len(labels), np.nan)
    truth = np.array([nowhere if p is None else machine.query.values[p] for p in places])
    released = own.select(pl.col(f"z_{name}").cast(pl.Float64) for name in labels).to_numpy()
    estimated = own.select(f"estimate_{name}" for name in labels).to_numpy()
    unit = machine.query.unit
    atomic_write(plot, trace_chart(truth, released, estimated, unit))
    chart = time_chart(truth, released, estimated, own["degree"], own["possible"], unit)
    atomic_write(_charts(plot)[1], chart)


def _report(
    plan: Plan, rows: pl.DataFrame, out: Path, charts: list[Path], *, as_json: bool, seeded: bool
) -> None:
    streams = rows.select("user", "part").unique().height
    if seeded:
        typer.echo(
            "WARNING: --seed makes the noise predictable; these releases protect nothing.", err=True
        )
    if as_json:
        show.print_json(
            {"path": str(out), "secure": not seeded, "streams": streams, "steps": rows.height}
        )
        return
    show.console().print(
        show.paragraphs(
            f"Released: {rows.height} steps of {streams} stream(s) by {plan.mechanism}, in {out}\n"
            f"Promise: {plan.guarantee.describe()}"
        )
    )
    for chart in charts:
        typer.echo(f"The chart is in {chart}")
