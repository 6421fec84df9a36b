"""`shoal transitions` and `shoal synthesize`: what is made of a released table of steps."""

from __future__ import annotations

import json
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    from shoal.chains.synthetic import Fidelity
    from shoal.chains.transitions import TransitionTable
    from shoal.core.codec import Ints

app, synthesize_app = options.new_app(), options.new_app()

TABLE_SUFFIXES = (".csv", ".parquet")
GRAPH_SUFFIX = ".dot"

EXAMPLES = """\b
Examples:
  shoal transitions steps.json --total 4317 -o steps.csv --plot steps.png
  shoal transitions steps.json --total 4317 -o steps.dot
"""


@app.command(epilog=EXAMPLES)
def transitions(
    release: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="What `shoal release` wrote, .json.")
    ],
    *,
    total: Annotated[
        int | None, option("N", "The number of steps: entries less series; it is public.", min=1)
    ] = None,
    raw: Annotated[bool, options.flag("--raw", "Keep the counts as released.")] = False,
    out: Annotated[
        Path | None, option("FILE", "Written whole: .csv, .parquet or .dot.", "--out", "-o")
    ] = None,
    plot: options.PlotPath = None,
    as_json: options.AsJson = False,
    force: options.Force = False,
) -> None:
    """Make a table, a graph or a picture of released steps.

    Costs no privacy: it reads the release alone. Counts are balanced first, so that each state is
    entered as often as it is left; --raw keeps them.
    """
    from shoal.data.display import png_of

    if out is not None and out.suffix.lower() not in (*TABLE_SUFFIXES, GRAPH_SUFFIX):
        raise InputError(f"--out is {str(out)!r}; it must end in .csv, .parquet or .dot")
    for path in (out, plot):
        if path is not None:
            show.check_apart(path, release)
    if out is not None:
        show.check_output(out, force=force)
    show.check_chart(plot, force=force)
    table, promise, _ = read_table(release, total)
    table = table if raw else table.balanced()
    if out is not None:
        _write(out, table)
    if as_json:
        show.print_json(_object(table, promise, out))
    else:
        _print_table(table, promise, out)
    show.write_chart(plot, None if plot is None else png_of(table), as_json=as_json)


def read_table(path: Path, total: int | None) -> tuple[TransitionTable, dict[str, Any], float]:
    """Return the table of the only release in a file, its promise, and the scale of its noise."""
    from shoal.chains.transitions import TransitionTable
    from shoal.spec.fields import read_text

    try:
        releases = json.loads(read_text(path, "release"))["releases"]
        ((name, found),) = releases.items()
        values = {label: float(value) for label, value in found["values"].items()}
        promise = {**found["guarantee"], "secure": found["secure"], "series": name}
        processed, scale = found["processed"], float(found["error"]["expected"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(
            f"{str(path)!r} holds no single release; name what `shoal release SPEC DATA "
            "-o steps.json` wrote, with --together where there are several series"
        ) from None
    return TransitionTable.from_values(values, total, processed), promise, scale


def _write(out: Path, table: TransitionTable) -> None:
    """Write the table, or its graph."""
    from shoal.data.write import atomic_write, write_table

    if out.suffix.lower() == GRAPH_SUFFIX:
        atomic_write(out, table.dot())
        return
    write_table(out, table.to_frame("polars"))


def _object(table: TransitionTable, promise: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Return the JSON object of a table."""
    return {
        "path": None if out is None else str(out),
        "states": list(table.states),
        "total": table.total,
        "processed": list(table.processed),
        "counts": table.counts.tolist(),
        "rows": table.rows().tolist(),
        "shares": table.shares().tolist(),
        "guarantee": promise,
    }


def _print_table(table: TransitionTable, promise: dict[str, Any], out: Path | None) -> None:
    """Print the law of the next state after each state, and how much time is spent in each."""
    screen = show.console()
    rows, shares = table.rows().tolist(), table.shares().tolist()
    cells = [
        (state, *(f"{chance:.3f}" for chance in row), f"{share:.3f}")
        for state, row, share in zip(table.states, rows, shares, strict=True)
    ]
    titles = ("after", *table.states, "share")
    screen.print(f"{table.describe()}; the law of the next state, and the share of all entries:")
    screen.print(show.table(titles, cells, numbers=tuple(range(1, len(titles)))))
    lines = [f"Promise: {promise['in_words']}"]
    if not promise["secure"]:
        lines.append("WARNING: the noise was seeded, so it protects nothing.")
    if out is not None:
        lines.append(f"Written: {out}")
    screen.print(show.paragraphs("\n".join(lines)))


# Made-up series, drawn from a released table.


SERIES_SUFFIXES = (".parquet", ".csv")
ROWS_SHOWN = 12  # most states whose shares are printed

SYNTHESIZE_EXAMPLES = """\b
Examples:
  shoal synthesize steps.toml days.csv -o made.parquet --people 1000 --length 1440
  shoal synthesize made.steps.json -o more.parquet --people 10000 --length 1440 --total 4317
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesizeOptions:
    """The options of `shoal synthesize`: the table or what it is released from, and the output."""

    source: Annotated[
        Path, options.argument("SPEC|RELEASE", "A spec or plan of steps, or a release of one.")
    ]
    data: Annotated[
        list[str] | None, options.argument("[DATA] ...", "With a spec or plan: the files to read.")
    ] = None
    out: Annotated[Path, option("FILE", "Written whole: .parquet or .csv.", "--out", "-o")]
    people: Annotated[int, option("N", "How many series to make up.", min=1)]
    length: Annotated[int, option("N", "Entries of each of them.", min=1)]
    total: Annotated[
        int | None, option("N", "Steps of the data, entries less series; they are public.", min=1)
    ] = None
    release: Annotated[
        Path | None, option("FILE", "Where the released table goes: OUT with .steps.json.")
    ] = None
    state: options.Column = None
    series: options.Column = None
    time: options.Column = None
    gap: options.Gap = None
    missing: options.Missing = None
    where: options.Where = None
    ledger: options.LedgerPath = None
    subject: options.Subject = ""
    requester: options.Requester = ""
    key: Annotated[
        str | None, option("TEXT", "Repeat a command with its key without paying twice.")
    ] = None
    seed: options.DemoSeed = None
    plot: options.PlotPath = None
    as_json: options.AsJson = False
    force: options.Force = False


@synthesize_app.command(epilog=SYNTHESIZE_EXAMPLES)
@options.takes(SynthesizeOptions)
def synthesize(options: SynthesizeOptions) -> None:
    """Make up series that follow a private table of steps.

    With a spec or plan and data the table is released, charged once and stored first. Series are
    drawn from the table alone: more of them, from the stored release, cost nothing.
    """
    from shoal.chains.synthetic import draw_series, fidelity
    from shoal.data.display import png_of
    from shoal.noise.primitives import SeededRng

    _check_synthesis(options)
    stored = _table_path(options)
    if options.data:
        _release_table(options, stored)
    table, promise, scale = read_table(stored, options.total)
    table = table.balanced()
    rng = None if options.seed is None else SeededRng(options.seed)
    with show.working("drawing"):
        drawn = draw_series(table, options.people, options.length, rng)
        found = fidelity(table, drawn, scale)
        _write_series(options.out, table, drawn, promise)
    if options.as_json:
        show.print_json(_series_object(options, found, promise, stored))
    else:
        _print_series(options, found, promise, stored)
    show.write_chart(
        options.plot, None if options.plot is None else png_of(found), as_json=options.as_json
    )


def _check_synthesis(options: SynthesizeOptions) -> None:
    """Refuse outputs that cannot be written, and options without the data they are for."""
    if options.out.suffix.lower() not in SERIES_SUFFIXES:
        raise InputError(
            f"--out is {str(options.out)!r}; made-up series are written as .parquet or .csv"
        )
    show.check_output(options.out, force=options.force)
    show.check_apart(options.out, options.source, *(options.data or ()))
    show.check_chart(options.plot, force=options.force)
    if options.data:
        _check_query(options.source)
        return
    for name in ("release", "state", "series", "time", "gap", "missing", "where", "ledger"):
        if getattr(options, name) is not None:
            raise InputError(
                f"--{name} is for a release of data, and none is named; name DATA after the spec"
            )
    if options.subject or options.requester or options.key:
        raise InputError(
            "--subject, --requester and --key are for a ledger; name DATA and --ledger"
        )


def _check_query(source: Path) -> None:
    """Refuse, before anything is charged, a spec or plan that does not ask for steps."""
    from shoal.cli.sources import Source
    from shoal.core.codec import kind_of

    read = Source.read(source)
    task = read.plan().task if isinstance(read.document, str) else read.document.task
    if kind_of(type(task.query)) != "transitions":
        raise InputError(
            f"{str(source)!r} asks for {task.query.describe()}; series are made up from a table of "
            'steps: say kind = "transitions" in [query]'
        )


def _table_path(options: SynthesizeOptions) -> Path:
    """Return where the released table is, or will be."""
    if not options.data:
        return options.source
    return options.release or options.out.with_suffix(".steps.json")


def _release_table(options: SynthesizeOptions, stored: Path) -> None:
    """Release the table of all series together, and print what `shoal release` prints."""
    from shoal.cli.release import ReleaseOptions, check_and_release

    own = ReleaseOptions(
        source=options.source,
        data=list(options.data or ()),
        out=stored,
        state=options.state,
        series=options.series,
        time=options.time,
        gap=options.gap,
        missing=options.missing,
        where=options.where,
        together=True,
        ledger=options.ledger,
        subject=options.subject,
        requester=options.requester,
        key=options.key,
        seed=options.seed,
        force=options.force,
        as_json=options.as_json,
    )
    with redirect_stdout(StringIO()) if options.as_json else nullcontext():
        check_and_release(own)


def _write_series(out: Path, table: TransitionTable, drawn: Ints, promise: dict[str, Any]) -> None:
    """Write a row for each entry of each made-up person, with the promise of the table."""
    import numpy as np
    import polars as pl

    from shoal.data.write import write_table

    people, length = drawn.shape
    states = pl.Series("state", list(table.states))
    frame = pl.DataFrame(
        {
            "person": np.repeat(np.arange(1, people + 1), length),
            "entry": np.tile(np.arange(length), people),
            "state": states.gather(drawn.ravel()),
        }
    )
    said = f"made up from a table of steps: {promise['in_words']}"
    write_table(out, frame.with_columns(promise=pl.lit(said, dtype=pl.Categorical)))


def _series_object(
    options: SynthesizeOptions, found: Fidelity, promise: dict[str, Any], stored: Path
) -> dict[str, Any]:
    """Return the JSON object of made-up series."""
    return {
        "path": str(options.out),
        "release": str(stored),
        "people": options.people,
        "length": options.length,
        "guarantee": promise,
        "states": found.shown_rows(),
        "rows_apart": found.rows_apart,
        "shares_apart": found.shares_apart,
        "row_noise": found.row_noise,
        "share_noise": found.share_noise,
    }


def _print_series(
    options: SynthesizeOptions, found: Fidelity, promise: dict[str, Any], stored: Path
) -> None:
    """Print how near the series are to the table, what they promise, and how to draw more."""
    screen = show.console()
    cells = [
        (
            str(row["state"]),
            f"{row['share']:.3f}",
            f"{row['drawn_share']:.3f}",
            f"{row['stay']:.1f}",
            f"{row['drawn_stay']:.1f}",
        )
        for row in found.shown_rows()[:ROWS_SHOWN]
    ]
    titles = ("state", "share", "as drawn", "stay, entries", "as drawn")
    screen.print(
        f"{options.people:,} made-up people of {options.length:,} entries, in {options.out}:"
    )
    screen.print(show.table(titles, cells, numbers=(1, 2, 3, 4)))
    lines = [
        f"Fidelity: {found.describe()}",
        f"Promise: {promise['in_words']}",
        f"More: `shoal synthesize {stored} -o FILE --people N --length N` draws any number of "
        "further people from the same release, at no further cost.",
    ]
    if not promise["secure"]:
        lines.append("WARNING: the noise was seeded, so it protects nothing.")
    screen.print(show.paragraphs("\n".join(lines)))
