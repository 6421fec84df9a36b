"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
Gap = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="A longer pause starts a new chain, such as 10min."),
]
DemoSeed = Annotated[
    int | None,
    typer.Option(metavar="N", help="For demos only: predictable noise, which protects nothing."),
]


def new_app() -> typer.Typer:
    """A command's own typer app: plain help, which needs no heavy import."""
    return typer.Typer(rich_markup_mode=None, add_completion=False)
