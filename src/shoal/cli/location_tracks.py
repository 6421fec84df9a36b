"""`shoal locations`: many people's trajectories through one location plan, a stream each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, DataPath, Force, PlotPath, new_app
from shoal.cli.outputs import check_chart, check_output
from shoal.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan

app = new_app()

EXAMPLES = """\b
Examples:
  shoal locations town.toml tracks.csv -o out.csv --series user --lat lat --lon lon --time t
  shoal locations plan.json tracks.parquet -o out.parquet --series user --lat lat --lon lon \\
      --time t --every 60s --gap 10min --workers 4
  shoal locations town.toml tracks.csv -o out.csv --lat lat --lon lon --plot trace.png
"""


@app.command(epilog=EXAMPLES)
def locations(
    source: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A spec, or a plan from `shoal plan --save`.")
    ],
    data: DataPath,
    *,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="Written whole: .csv, .parquet, .jsonl."),
    ],
    series: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that tells people apart.")
    ] = None,
    latitude: Annotated[
        str | None, typer.Option("--lat", metavar="COLUMN", help="Column with latitudes.")
    ] = None,
    longitude: Annotated[
        str | None, typer.Option("--lon", metavar="COLUMN", help="Column with longitudes.")
    ] = None,
    state: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column with states, instead.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column by which a person is ordered.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Length of a step, such as 60s; steps without are skipped.")
    ] = None,
    gap: Annotated[
        str | None, typer.Option(help="A longer pause starts a new stream, such as 10min.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes side by side.")] = 1,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="Charge each step before it is drawn.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For demos only: predictable noise, which protects nothing.")
    ] = None,
    plot: PlotPath = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Release many people's trajectories, a stream for each.

    Every row of the result is a step: the released point, the best estimate given everything
    released so far, how many states were possible, and what the stream has told up to there. With
    --plot the first person's trace is drawn beside the truth, for your eyes only.
    """
    from shoal.cli.location_table import check_states, off_the_map, read_positions
    from shoal.cli.sources import load_plan
    from shoal.cli.stream_location import follows_places
    from shoal.core.plan import Machine
    from shoal.data.durations import parse_duration
    from shoal.data.write import write_table
    from shoal.streams.batch_location import TrackColumns

    check_output(out, force=force)
    check_chart(plot, force=force)
    plan, _ = load_plan(source)
    if not follows_places(plan):
        command = "stream" if isinstance(plan.body, Machine) else "release"
        raise InputError(f"{plan.mechanism} is not a plan for places; use `shoal {command}`")
    table = read_positions(
        data, series=series, time=time, latitude=latitude, longitude=longitude, state=state
    )
    check_states(table, plan.task.family[0])
    columns = TrackColumns(
        user="user",
        time="seconds" if time else None,
        state="state" if state else None,
        latitude="lat" if latitude else None,
        longitude="lon" if latitude else None,
        every=None if every is None else parse_duration(every, "every").total_seconds(),
        gap=None if gap is None else parse_duration(gap).total_seconds(),
    )
    rows = _released(plan, table, columns, workers, ledger, seed)
    write_table(out, rows)
    outside = off_the_map(table, plan.task.family[0])
    if outside:
        typer.echo(
            f"WARNING: {outside} of {table.height} positions lie off the model's map; they were "
            "released as its nearest state. Check the map, and that --lat and --lon are not "
            "swapped.",
            err=True,
        )
    if plot is not None:
        _draw(plan, table, columns, rows, plot)
    _report(plan, rows, out, as_json=as_json, seeded=seed is not None)


def _released(
    plan: Plan, table: pl.DataFrame, columns: Any, workers: int, ledger: str | None, seed: Any
) -> pl.DataFrame:
    from shoal.ledger.store import open_ledger
    from shoal.streams.batch_location import release_tracks

    with _bar() as notify:
        if ledger is None:
            return release_tracks(plan, table, columns, workers=workers, seed=seed, notify=notify)
        with open_ledger(ledger) as opened:
            return release_tracks(plan, table, columns, ledger=opened, seed=seed, notify=notify)


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

    from shoal.cli.location_charts import time_chart, trace_chart
    from shoal.data.files import atomic_write
    from shoal.mechanisms.location_task import machine_of
    from shoal.streams.batch_location import tracks_of

    machine, track = machine_of(plan), next(tracks_of(table, columns))
    own = rows.head(len(track.readings))
    labels = machine.query.labels
    places = [None if r is None else machine.runtime.atlas.state_of(r) for r in track.readings]
    nowhere = np.full(len(labels), np.nan)
    truth = np.array([nowhere if p is None else machine.query.values[p] for p in places])
    released = own.select(pl.col(f"z_{name}").cast(pl.Float64) for name in labels).to_numpy()
    estimated = own.select(f"estimate_{name}" for name in labels).to_numpy()
    unit = machine.query.unit
    atomic_write(plot, trace_chart(truth, released, estimated, unit))
    beside = plot.with_name(f"{plot.stem}-over-time{plot.suffix}")
    chart = time_chart(truth, released, estimated, own["degree"], own["possible"], unit)
    atomic_write(beside, chart)


def _report(plan: Plan, rows: pl.DataFrame, out: Path, *, as_json: bool, seeded: bool) -> None:
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
