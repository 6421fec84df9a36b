"""`shoal release`: data out, with its promise, under a spec or a stored plan."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.options import (
    AsJson,
    BinEdges,
    DataPath,
    DemoSeed,
    Force,
    Gap,
    Missing,
    PlanSource,
    Separator,
    TimeUnit,
    Where,
    Zone,
    check_apart,
    check_output,
    new_app,
)
from shoal.core.errors import DataError, InputError
from shoal.records.views import TOGETHER, asks_for_places, place_records, print_centroids

if TYPE_CHECKING:
    from shoal.cli.sources import Account, NamedColumns
    from shoal.core.plan import Plan, Release
    from shoal.core.rng import Rng
    from shoal.data.table import Dataset

app = new_app()

SUFFIXES = (".json", ".parquet")
DEFAULTS = ("local", "stop")  # engine and bad files of a job
MOST_SHOWN = 12  # values of a single release that are printed, not only written

EXAMPLES = """\b
Examples:
  shoal release shoal.toml days.csv -o release.json
  shoal release plan.json days.parquet -o release.parquet --state activity --series person
  shoal release shoal.toml days.csv -o release.json --ledger budget.db --requester anna
  shoal release shoal.toml 'in/**/*.parquet' -o out --by user --ledger budget.db
"""

DataColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Overrides the column of the spec's [data].")
]
OutPath = Annotated[
    Path,
    typer.Option(
        "--out", "-o", metavar="FILE", help="Written whole: .json or .parquet; --by: a folder."
    ),
]
Together = Annotated[
    bool | None,
    typer.Option("--together/--each", help="One release for all series, or one for each."),
]
LedgerPath = Annotated[
    str | None, typer.Option(metavar="FILE", help="Charge the ledger before anything is drawn.")
]
Subject = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Whose data it is; with one release per series the series's name."
    ),
]
Period = Annotated[str, typer.Option(metavar="NAME", help="The period the ledger charges.")]
Requester = Annotated[str, typer.Option(metavar="NAME", help="Who asks, for the ledger.")]
Key = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Repeat a command with its key without paying twice."),
]
By = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="A job over many files: one release per value of it."),
]
Engine = Annotated[
    str, typer.Option(metavar="local|spark", help="Where a job runs: local or spark.")
]
Group = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="A job with a plan per group; SPEC is a folder."),
]
PeriodColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="A job with a release per period.")
]
Latitude = Annotated[
    str | None, typer.Option("--lat", metavar="COLUMN", help="A job on a map: latitudes.")
]
Longitude = Annotated[
    str | None, typer.Option("--lon", metavar="COLUMN", help="A job on a map: longitudes.")
]
BadFiles = Annotated[
    str, typer.Option(metavar="stop|skip", help="What a job does with files it cannot use.")
]


@app.command(epilog=EXAMPLES)
def release(
    source: PlanSource,
    data: DataPath,
    *,
    out: OutPath,
    state: DataColumn = None,
    series: DataColumn = None,
    time: DataColumn = None,
    gap: Gap = None,
    missing: Missing = None,
    bins: BinEdges = None,
    time_unit: TimeUnit = None,
    tz: Zone = None,
    where: Where = None,
    sep: Separator = None,
    together: Together = None,
    ledger: LedgerPath = None,
    subject: Subject = "",
    period: Period = "",
    requester: Requester = "",
    key: Key = None,
    seed: DemoSeed = None,
    by: By = None,
    engine: Engine = "local",
    group: Group = None,
    period_column: PeriodColumn = None,
    latitude: Latitude = None,
    longitude: Longitude = None,
    bad_files: BadFiles = "stop",
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Release data under a spec or a stored plan.

    Draws noise from the operating system's randomness and writes one release per series, or one
    for all together. All data is checked before anything is charged or drawn. With --by it is a
    job: any number of files, in bounded memory, that can be resumed (`shoal job`).
    """
    from shoal.cli.sources import Account, NamedColumns

    raw: dict[str, Any] = {
        "missing": missing,
        "bins": bins,
        "unit": time_unit,
        "where": where,
        "sep": sep,
    }
    columns = NamedColumns(state, series, time, gap, together, tz=tz, **raw)
    told = {"period": period, "requester": requester}
    if key == "":
        raise InputError("--key is empty; name the release, or drop --key and one is made up")
    if by is not None:
        if columns.raw:
            raise InputError(
                f"--{next(iter(columns.raw))} does not go with --by; make the files tidy first "
                "(shoal.read), or release one file"
            )
        if subject:
            raise InputError(
                f"--subject is {subject!r}, but --by charges each value of {by!r} under its own "
                "name; drop it"
            )
        from shoal.cli.job import JobWish, start

        wish = JobWish(by, engine, group, period_column, bad_files, (latitude, longitude))
        start(source, data, out, wish, columns, ledger, key, seed, as_json=as_json, **told)
        return
    if any((group, period_column, latitude, longitude)) or (engine, bad_files) != DEFAULTS:
        raise InputError(
            "--group, --period-column, --lat, --lon, --engine and --bad-files are for jobs; name "
            "--by too"
        )
    _check_out(out, force=force)
    check_apart(out, source, data)
    account = Account.of(ledger, subject=subject, key=key, seeded=seed is not None, **told)
    _release_once(source, data, out, columns, account, seed, as_json=as_json)


def _release_once(
    source: Path,
    data: str,
    out: Path,
    columns: NamedColumns,
    account: Account,
    seed: int | None,
    *,
    as_json: bool,
) -> None:
    """All of a file released at once: read, checked, charged, drawn, written, told."""
    from shoal.cli.sources import check_single, load_plan

    plan, own = load_plan(source)
    check_single(plan)
    columns = columns.over(own)
    places = asks_for_places(plan)
    records = _read(plan, data, columns)
    account.check(list(records), together=places or bool(columns.together))
    releases = account.draw(plan, records, _rng(seed))
    account.write(out, releases)
    try:
        _report(plan, releases, out, account.key, as_json=as_json, seeded=seed is not None)
        if places and not as_json:
            print_centroids(plan, releases[TOGETHER])
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # not "repeat": that would draw, and charge, once more
        raise DataError(f"{str(out)!r} is written, but no space is left to print it") from None


def _read(plan: Plan, data: str, columns: NamedColumns) -> dict[str, Any]:
    """Name to checked records of a file, in the form that the plan's query asks for."""
    from shoal.cli.pauses import note_pauses
    from shoal.cli.sources import read_data
    from shoal.networks.views import has_variables, variable_records

    if asks_for_places(plan):
        return place_records(plan, data, columns)
    if columns.state is None and has_variables(plan):
        return variable_records(plan, data, columns)
    try:
        states = plan.task.query.states
        records = _records(plan, read_data(data, columns, states), columns)
    except DataError as error:
        raise DataError(f"{error}{_people_hint(plan, columns)}") from None
    note_pauses(data, columns)
    return records


def _people_hint(plan: Plan, columns: NamedColumns) -> str:
    """What is likely wrong when rows of people are told apart, but people are the entries."""
    from shoal.networks.contagion import Contagion
    from shoal.records.field import PairwiseField
    from shoal.records.ties import Dependence

    model = plan.task.family[0]
    if columns.series is None or not isinstance(model, Contagion | Dependence | PairwiseField):
        return ""
    return (
        f" (the rows of one series are this model's records: name no column of people, now "
        f"{columns.series!r}, and give a row for each in the model's order)"
    )


def _check_out(out: Path, *, force: bool) -> None:
    if out.suffix.lower() not in SUFFIXES:
        raise InputError(f"--out is {str(out)!r}; releases are written as .json or .parquet")
    check_output(out, force=force)


def _records(plan: Plan, dataset: Dataset, columns: NamedColumns) -> dict[str, Any]:
    """Name to checked records; every series is checked before the first one is released."""
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
    from shoal.noise.primitives import SeededRng

    return SeededRng(seed)


def _report(
    plan: Plan,
    releases: dict[str, Release],
    out: Path,
    key: str,
    *,
    as_json: bool,
    seeded: bool,
) -> None:
    """What came of it; with a ledger also the key under which it was charged."""
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
        told = {"path": str(out), "secure": not seeded, "key": key or None, "releases": body}
        show.print_json(told)
        return
    screen = show.console()
    lines = [
        f"Released: {len(releases)} release(s) by {plan.mechanism}, in {out}",
        f"Promise: {plan.guarantee.describe()}",
    ]
    if error is not None:
        lines.append(f"Error: each value is {error.describe()}.")
    if key:
        lines.append(f"Charged: before they were drawn; with --key {key} the same come back free.")
    if len(releases) == 1 and not asks_for_places(plan):
        lines[1:1] = _values(next(iter(releases.values())))
    screen.print(show.paragraphs("\n".join(lines)))


def _values(release: Release) -> list[str]:
    """The values of a single release in a line, when they are few enough to be read."""
    from shoal.core.numbers import significant

    values = release.as_dict()
    if not 0 < len(values) <= MOST_SHOWN:
        return []
    shown = ", ".join(f"{name} {significant(value)}" for name, value in values.items())
    return [f"Values: {shown} {release.answer.unit}"]
