"""`shoal transitions`: a released table of steps, balanced, as a table, a graph or a heat map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    from shoal.chains.transitions import TransitionTable

app = options.new_app()

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
    """Make a table of a release of the query `transitions`.

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
    table, promise = _read(release, total)
    table = table if raw else table.balanced()
    if out is not None:
        _write(out, table)
    if as_json:
        show.print_json(_object(table, promise, out))
    else:
        _print(table, promise, out)
    show.write_chart(plot, None if plot is None else png_of(table), as_json=as_json)


def _read(path: Path, total: int | None) -> tuple[TransitionTable, dict[str, Any]]:
    """Return the table of the only release in a file, and the promise it was made under."""
    from shoal.chains.transitions import TransitionTable
    from shoal.spec.fields import read_text

    try:
        releases = json.loads(read_text(path, "release"))["releases"]
        ((name, found),) = releases.items()
        values = {label: float(value) for label, value in found["values"].items()}
        promise = {**found["guarantee"], "secure": found["secure"], "series": name}
        processed = found["processed"]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise DataError(
            f"{str(path)!r} holds no single release; name what `shoal release SPEC DATA "
            "-o steps.json` wrote, with --together where there are several series"
        ) from None
    return TransitionTable.from_values(values, total, processed), promise


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


def _print(table: TransitionTable, promise: dict[str, Any], out: Path | None) -> None:
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
