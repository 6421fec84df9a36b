"""Arguments and options that several commands share, each said once."""

from __future__ import annotations

from glob import glob
from pathlib import Path
from typing import Annotated

import typer

from shoal.core.errors import DataError

SpecPath = Annotated[
    Path, typer.Argument(metavar="SPEC", help="The spec, a TOML file; `shoal init` writes one.")
]
PlanSource = Annotated[
    Path, typer.Argument(metavar="SPEC", help="A spec, or a plan from `shoal plan --save`.")
]
DataPath = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help='A CSV, Parquet or JSON Lines file, or a pattern like "days/*.csv".'
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that exist.")]
PlotPath = Annotated[
    Path | None, typer.Option("--plot", metavar="PNG", help="Also draw a chart into this file.")
]

TimeLimit = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Compute no longer, such as 30s; what is known is told."),
]

# where the entries are in a data file
Column = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The column, where the spec's [data] names none."),
]
Latitude = Annotated[
    str | None, typer.Option("--lat", metavar="COLUMN", help="On a map: column with latitudes.")
]
Longitude = Annotated[
    str | None, typer.Option("--lon", metavar="COLUMN", help="On a map: column with longitudes.")
]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION", help="A longer pause starts a new chain or stream, such as 10min."
    ),
]
Missing = Annotated[
    str | None,
    typer.Option(metavar="drop|gap|state", help="Rows without a state: dropped, cut, a state."),
]
BinEdges = Annotated[
    str | None,
    typer.Option("--bins", metavar="N|EDGES", help="Numbers as states: 8, or edges 100,500,2000."),
]
TimeUnit = Annotated[
    str | None,
    typer.Option(metavar="UNIT", help="What numbers of --time count: ns us ms s min h d."),
]
Zone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="Zone of times that name none, Europe/Berlin."),
]
Where = Annotated[
    str | None, typer.Option(metavar="CONDITION", help='Rows that count: "watts > 0 and user = a".')
]
Separator = Annotated[
    str | None,
    typer.Option("--sep", metavar="CHAR", help="What separates a CSV's columns, or tab."),
]
Every = Annotated[
    str | None,
    typer.Option(
        metavar="UNIT", help="A release per hour, day, week, month, …; places: a step, 60s."
    ),
]
Periods = Annotated[
    str | None,
    typer.Option(metavar="parts|independent", help="What periods of a series are to each other."),
]
SecretsOf = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="SPEC",
        help="Ask what the plan tells about the events this spec names, which it may not hide.",
    ),
]
Start = Annotated[
    str | None,
    typer.Option(metavar="STATE", help="For places: a first state that everybody knows."),
]

# what is charged, and to whom
LedgerPath = Annotated[
    str | None, typer.Option(metavar="FILE", help="Charge the ledger before anything is drawn.")
]
Subject = Annotated[
    str, typer.Option(metavar="NAME", help="Whose data it is, for the ledger; else the series.")
]
Period = Annotated[
    str, typer.Option(metavar="NAME", help="The period the ledger charges; another for other data.")
]
Requester = Annotated[str, typer.Option(metavar="NAME", help="Who asks, for the ledger.")]
DemoSeed = Annotated[
    int | None,
    typer.Option(metavar="N", help="For demos only: predictable noise, which protects nothing."),
]


def new_app() -> typer.Typer:
    """A command's own typer app: plain help, which needs no heavy import."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


# Checks on the files a command will write, made before it works or charges anything.


def check_output(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, or that exists unless `force`."""
    from shoal.data.write import check_writable

    if path.exists() and not path.is_dir() and not force:
        raise DataError(f"{str(path)!r} exists; choose another name, or replace it with --force")
    check_writable(path)


def check_apart(path: Path, *inputs: str | Path) -> None:
    """Refuse an output that is one of the files read, even with --force; patterns are followed."""
    if not path.exists():
        return
    for given in inputs:
        files = [given] if Path(given).exists() else glob(str(given), recursive=True)
        if any(Path(file).samefile(path) for file in files):
            raise DataError(f"{str(path)!r} is read by this command; write to another file")


def check_chart(path: Path | None, *, force: bool, maps: bool = False) -> None:
    """`check_output` for a chart, and that it can be drawn at all; `maps` may be pages too."""
    if path is None:
        return
    from shoal.cli.charts import check_charts

    page = maps and path.suffix.lower() == ".html"
    if path.suffix.lower() != ".png" and not page:
        other = ", or in .html for a map" if maps else ""
        raise DataError(f"--plot is {str(path)!r}; it must end in .png{other}")
    if not page:
        check_charts()
    check_output(path, force=force)


def write_chart(path: Path | None, drawn: bytes | None, *, as_json: bool) -> None:
    """The chart in its file, and a line that says so unless only JSON may be printed."""
    if path is None or drawn is None:
        return
    from shoal.data.write import atomic_write

    atomic_write(path, drawn)
    if not as_json:
        typer.echo(f"\nThe chart is in {path}")
