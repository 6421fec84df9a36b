"""`shoal reproduce`: compute the papers' tables and figures again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.core.errors import DataError
from shoal.core.numbers import finite

if TYPE_CHECKING:
    from studies.report import Report

app = options.new_app()

EPILOG = """\b
Examples:
  shoal reproduce --list
  shoal reproduce chain-synthetic
  SHOAL_DATA=~/data shoal reproduce chain-activity chain-electricity --out tables
"""


@app.command(epilog=EPILOG)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Experiments to run; all by default.")
    ] = None,
    listed: Annotated[bool, options.flag("--list", "List the experiments.")] = False,
    out: Annotated[
        Path | None, options.option(None, "Folder for NAME.md and figures; printed when omitted.")
    ] = None,
    as_json: Annotated[bool, options.flag("--json", "Print one JSON object.")] = False,
) -> None:
    """Make the papers' tables and figures again, with the paper's number beside ours.

    Runs on generated data always, and on real data when the variable SHOAL_DATA names its folder.
    """
    _find_studies()
    from studies import EXPERIMENTS, row_named, run

    if listed:
        rows = {name: row.summary for name, row in EXPERIMENTS.items()}
        width = max(map(len, rows)) + 2
        lines = "\n".join(f"{name:<{width}}{summary}" for name, summary in rows.items())
        show.print_json(rows) if as_json else typer.echo(lines)
        return
    chosen = names or list(EXPERIMENTS)
    for name in chosen:
        row_named(name)
    if out is not None:
        show.make_folder(out)
    reports = []
    for name in chosen:
        with show.working(f"running {name}"):
            reports.append(run(name))
        if out is not None:
            _write(out, reports[-1])
    if as_json:
        show.print_json({"reports": [_finite(report.as_object()) for report in reports]})
    elif out is None:
        typer.echo("\n".join(report.markdown() for report in reports))
    else:
        typer.echo(f"Written to {out}: " + ", ".join(f"{report.name}.md" for report in reports))


def _find_studies() -> None:
    """Make `studies` importable: it lies beside `src` in a checkout and is not in the wheel."""
    checkout = Path(__file__).parents[3]
    if not (checkout / "studies" / "__init__.py").is_file():
        raise DataError(
            "the studies are not installed with the package; run this in a checkout of the "
            "project, after `pip install --editable .`"
        )
    if str(checkout) not in sys.path:
        sys.path.append(str(checkout))


def _finite(value: Any) -> Any:
    """Return the value for JSON, with null for infinity and not-a-number."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return finite(value) if isinstance(value, float) else value


def _write(folder: Path, report: Report) -> None:
    """Write NAME.md and a PNG per figure, each file atomically."""
    from matplotlib.figure import Figure as Canvas

    from shoal.cli.charts import _png
    from shoal.data.write import atomic_write

    shown = folder.name if folder.is_absolute() else folder.as_posix()
    command = f"shoal reproduce {report.name} --out {shown}"
    atomic_write(folder / f"{report.name}.md", f"{report.markdown()}\nMade by `{command}`.\n")
    for figure in report.figures:
        canvas = Canvas(figsize=(11, 3.8), layout="constrained")
        figure.draw(canvas)
        atomic_write(folder / f"{figure.name}.png", _png(canvas, dpi=110))
