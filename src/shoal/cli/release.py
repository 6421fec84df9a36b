"""`shoal release`: data out, with its promise, under a spec or a stored plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.options import AsJson, DataPath, Force, new_app
from shoal.cli.outputs import check_output
from shoal.cli.release_places import TOGETHER, asks_for_places, place_records, print_centroids

if TYPE_CHECKING:
    from shoal.cli.sources import Columns
    from shoal.core.plan import Plan
    from shoal.core.release import Release
    from shoal.core.rng import Rng
    from shoal.data.dataset import Dataset

app = new_app()

SUFFIXES = (".json", ".parquet")

EXAMPLES = """\b
Examples:
  shoal release shoal.toml days.csv -o release.json
  shoal release plan.json days.parquet -o release.parquet --state activity --series person
  shoal release shoal.toml days.csv -o release.json --ledger budget.db --requester anna
  shoal release shoal.toml 'in/**/*.parquet' -o out --by user --ledger budget.db
"""

Column = typer.Option(metavar="COLUMN", help="Overrides the column of the spec's [data].")


@app.command(epilog=EXAMPLES)
def release(
    source: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A spec, or a plan from `shoal plan --save`.")
    ],
    data: DataPath,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Written whole: .json or .parquet; --by: a folder."
        ),
    ],
    state: Annotated[str | None, Column] = None,
    series: Annotated[str | None, Column] = None,
    time: Annotated[str | None, Column] = None,
    gap: Annotated[
        str | None, typer.Option(help="A longer pause starts a new chain, such as 10min.")
    ] = None,
    together: Annotated[
        bool | None,
        typer.Option("--together/--each", help="One release for all series, or one for each."),
    ] = None,
    ledger: Annotated[
        str | None, typer.Option(metavar="FILE", help="Charge the ledger before anything is drawn.")
    ] = None,
    subject: Annotated[
        str, typer.Option(help="Whose data it is; with one release per series the series's name.")
    ] = "",
    period: Annotated[str, typer.Option(help="The period the ledger charges.")] = "",
    requester: Annotated[str, typer.Option(help="Who asks, for the ledger.")] = "",
    key: Annotated[
        str | None, typer.Option(help="Repeat a command with its key without paying twice.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="For demos only: predictable noise, which protects nothing.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A job over many files: one release per value of it."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Where a job runs: local or spark.")] = "local",
    group: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A job with a plan per group; SPEC is a folder."),
    ] = None,
    period_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A job with a release per period.")
    ] = None,
    bad_files: Annotated[
        str, typer.Option(metavar="stop|skip", help="What a job does with files it cannot use.")
    ] = "stop",
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Release data under a spec or a stored plan.

    Draws noise from the operating system's randomness and writes one release per series, or one
    for all together. All data is checked before anything is charged or drawn. With --by it is a
    job: any number of files, in bounded memory, that can be resumed (`shoal job`).
    """
    if by is not None:
        from shoal.cli.job import start
        from shoal.cli.sources import Columns as Named

        start(
            source,
            data,
            out=out,
            by=by,
            columns=Named(state, series, time, gap, together),
            engine=engine,
            group=group,
            period_column=period_column,
            bad_files=bad_files,
            ledger=ledger,
            key=key,
            period=period,
            requester=requester,
            seed=seed,
            as_json=as_json,
        )
        return
    if group is not None or period_column is not None or engine != "local":
        from shoal.core.errors import InputError

        raise InputError("--group, --period-column and --engine are for jobs; name --by too")
    from shoal.cli.account import Account
    from shoal.cli.sources import Columns, check_single, load_plan, read_data

    _check_out(out, force=force)
    account = Account.of(
        ledger,
        subject=subject,
        period=period,
        requester=requester,
        key=key,
        seeded=seed is not None,
    )
    plan, own = load_plan(source)
    check_single(plan)
    columns = Columns(state, series, time, gap, together).over(own)
    places = asks_for_places(plan)
    if places:
        records = place_records(plan, data, columns)
    else:
        records = _records(plan, read_data(data, columns), columns)
    account.check(list(records), together=places or bool(columns.together))
    releases = account.draw(plan, records, _rng(seed))
    account.write(out, releases)
    _report(plan, releases, out, as_json=as_json, seeded=seed is not None)
    if places and not as_json:
        print_centroids(plan, releases[TOGETHER])


def _check_out(out: Path, *, force: bool) -> None:
    from shoal.core.errors import InputError

    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out is {str(out)!r}; releases are written as .json or .parquet")
    check_output(out, force=force)


def _records(plan: Plan, dataset: Dataset, columns: Columns) -> dict[str, Any]:
    """Name to checked records; every series is checked before the first one is released."""
    from shoal.core.errors import DataError

    states = plan.task.query.states
    if columns.together:
        return {TOGETHER: plan.task.read(dataset.sequences(states))}
    records = {}
    for name in dataset.names:
        try:
            records[name] = plan.task.read(dataset.sequences(states, series=name))
        except DataError as error:
            where = f"series {name!r}"
            text = str(error)
            raise DataError(text if where in text else f"{where}: {text}") from None
    return records


def _rng(seed: int | None) -> Rng | None:
    if seed is None:
        return None
    from shoal.noise.bits import SeededRng

    return SeededRng(seed)


def _report(
    plan: Plan, releases: dict[str, Release], out: Path, *, as_json: bool, seeded: bool
) -> None:
    error = plan.error()
    if seeded:
        typer.echo(
            "WARNING: --seed makes the noise predictable. This release protects nothing; "
            "it is marked secure=false.",
            err=True,
        )
    if as_json:
        from shoal.data.write import release_object

        body = {name: release_object(release) for name, release in releases.items()}
        show.print_json({"path": str(out), "secure": not seeded, "releases": body})
        return
    screen = show.console()
    lines = [
        f"Released: {len(releases)} release(s) by {plan.mechanism}, in {out}",
        f"Promise: {plan.guarantee.describe()}",
    ]
    if error is not None:
        lines.append(f"Error: each value is {error.describe()}.")
    screen.print(show.paragraphs("\n".join(lines)))
