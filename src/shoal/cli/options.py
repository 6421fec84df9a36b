"""Arguments and options that several commands share, and how a command declares its own.

A command's own options are the fields of a dataclass; `takes` makes a command of a function that
takes one instance of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

W = TypeVar("W")


def option(metavar: str | None, words: str, *names: str, **rules: Any) -> Any:
    """Return an option with the name of its value and its help; `rules` are passed to typer."""
    return typer.Option(*names, metavar=metavar, help=words, **rules)


def flag(name: str, words: str) -> Any:
    """Return an option without a value."""
    return typer.Option(name, help=words)


def argument(metavar: str, words: str) -> Any:
    """Return an argument with this name in the help."""
    return typer.Argument(metavar=metavar, help=words)


def new_app() -> typer.Typer:
    """Return a typer app for one command, with plain help, which needs no heavy import."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)


def takes(options: type[W]) -> Callable[[Callable[[W], None]], Callable[..., None]]:
    """Return a decorator that makes a command from the fields of the dataclass `options`.

    A field without an annotation for typer is no option; it keeps its default.
    """
    hints = get_type_hints(options, include_extras=True)
    parameters = [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(options)  # type: ignore[arg-type]
        if hasattr(hints[field.name], "__metadata__")
    ]

    def make_command(command: Callable[[W], None]) -> Callable[..., None]:
        """Return a function that builds the dataclass of the options and calls `command`."""

        @wraps(command)
        def run(**given: Any) -> None:
            command(options(**given))

        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = hints
        return run

    return make_command


SpecPath = Annotated[Path, argument("SPEC", "The spec, a TOML file; `shoal init` writes one.")]
PlanSource = Annotated[Path, argument("SPEC", "A spec, or a plan from `shoal plan --save`.")]
DATA_WORDS = (
    "Files, folders or patterns: CSV, Parquet, JSON Lines; GPX, GeoJSON, KML, TCX, FIT, Google "
    "Timeline and Takeout, OwnTracks; Green Button, Apple Health, Fitbit."
)
DataPath = Annotated[str, argument("DATA", DATA_WORDS)]
DataPaths = Annotated[list[str], argument("DATA...", DATA_WORDS)]
AsJson = Annotated[bool, flag("--json", "Print one JSON object instead of text.")]
Force = Annotated[bool, flag("--force", "Replace files that exist.")]
PlotPath = Annotated[Path | None, option("PNG", "Also draw a chart into this file.", "--plot")]
TimeLimit = Annotated[
    str | None, option("DURATION", "Compute no longer, such as 30s; what is known is told.")
]

# where the entries are in a data file
Column = Annotated[str | None, option("COLUMN", "The column, where the spec's [data] names none.")]
Latitude = Annotated[str | None, option("COLUMN", "On a map: column with latitudes.", "--lat")]
Longitude = Annotated[str | None, option("COLUMN", "On a map: column with longitudes.", "--lon")]
Gap = Annotated[
    str | None, option("DURATION", "A longer pause starts a new chain or stream, such as 10min.")
]
Missing = Annotated[
    str | None, option("drop|gap|state", "Rows without a state: dropped, cut, a state.")
]
BinEdges = Annotated[
    str | None, option("N|EDGES", "Numbers as states: 8, or edges 100,500,2000.", "--bins")
]
TimeUnit = Annotated[
    str | None, option("UNIT", "What numbers of --time count: ns us ms s min h d.", "--time-unit")
]
Zone = Annotated[str | None, option("ZONE", "Zone of times that name none, Europe/Berlin.", "--tz")]
Where = Annotated[str | None, option("CONDITION", 'Rows that count: "watts > 0 and user = a".')]
Separator = Annotated[
    str | None, option("CHAR", "What separates a CSV's columns, or tab.", "--sep")
]
Every = Annotated[
    str | None, option("UNIT", "A release per hour, day, week, month, …; places: a step, 60s.")
]
Periods = Annotated[
    str | None, option("parts|independent", "What periods of a series are to each other.")
]
SecretsOf = Annotated[
    Path | None,
    option(
        "SPEC",
        "Ask what the plan tells about the events this spec names, which it may not hide.",
        "--secrets",
    ),
]
Start = Annotated[str | None, option("STATE", "For places: a first state that everybody knows.")]

# what is charged, and to whom
LedgerPath = Annotated[str | None, option("FILE", "Charge the ledger before anything is drawn.")]
Subject = Annotated[
    str, option("NAME", "Whose data it is, for the ledger, where no series says so.")
]
Period = Annotated[str, option("NAME", "The period the ledger charges; another for other data.")]
Requester = Annotated[str, option("NAME", "Who asks, for the ledger.")]
DemoSeed = Annotated[
    int | None, option("N", "For demos only: predictable noise, which protects nothing.")
]
