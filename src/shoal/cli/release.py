"""`shoal release`: release data under a spec or a stored plan, with its guarantee."""

from __future__ import annotations

import errno
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.cli.show import check_apart, check_output, write_chart
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import significant
from shoal.data.times import CALENDAR

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan, Release

app = options.new_app()

SUFFIXES = (".json", ".parquet")
TABLES = (".csv", ".parquet", ".jsonl", ".ndjson", ".geojson", ".gpx")  # of streams: each step
DEFAULTS = ("local", "stop")  # engine and bad files of a job
MOST_SHOWN = 12  # most values of a single release that are printed besides being written

EXAMPLES = """\b
Examples:
  shoal release shoal.toml days.csv -o release.json
  shoal release plan.json days.parquet -o release.parquet --state activity --series person
  shoal release shoal.toml days.csv -o release.json --ledger budget.db --requester anna
  shoal release town.toml tracks.csv -o out.csv --series user --lat lat --lon lon --time t
  shoal release shoal.toml 'in/**/*.parquet' -o out --by user --ledger budget.db
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseOptions:
    """The options of `shoal release`: data, output, the account that is charged, and the report.

    With `by` the release is a job, and the options for jobs apply.
    """

    source: options.PlanSource
    data: options.DataPaths
    out: Annotated[
        Path,
        option(
            "FILE",
            "Written whole: .json or .parquet; steps of places: .csv too; --by: a folder.",
            "--out",
            "-o",
        ),
    ]
    state: options.Column = None
    series: options.Column = None
    time: options.Column = None
    gap: options.Gap = None
    latitude: options.Latitude = None
    longitude: options.Longitude = None
    every: options.Every = None
    missing: options.Missing = None
    bins: options.BinEdges = None
    unit: options.TimeUnit = None
    tz: options.Zone = None
    where: options.Where = None
    sep: options.Separator = None
    periods: options.Periods = None
    together: Annotated[
        bool | None,
        options.flag("--together/--each", "One release for all series, or one for each."),
    ] = None
    ledger: options.LedgerPath = None
    subject: options.Subject = ""
    period: options.Period = ""
    requester: options.Requester = ""
    members: Annotated[
        str | None, option("WHO", "Whom an aggregate charges too: everybody, nobody, or a COLUMN.")
    ] = None
    key: Annotated[
        str | None, option("TEXT", "Repeat a command with its key without paying twice.")
    ] = None
    seed: options.DemoSeed = None
    by: Annotated[
        str | None, option("COLUMN", "A job over many files: one release per value of it.")
    ] = None
    engine: Annotated[str, option("local|spark", "Where a job runs: local or spark.")] = "local"
    group: Annotated[
        str | None, option("COLUMN", "A job with a plan per group; SPEC is a folder.")
    ] = None
    period_column: Annotated[str | None, option("COLUMN", "A job with a release per period.")] = (
        None
    )
    bad_files: Annotated[str, option("stop|skip", "What a job does with files it cannot use.")] = (
        "stop"
    )
    workers: Annotated[int, option(None, "For places: processes side by side.", min=1)] = 1
    plot: options.PlotPath = None
    as_json: options.AsJson = False
    force: options.Force = False

    def warn_of_seed(self) -> None:
        """Print a warning that noise from a seed is predictable and protects nothing."""
        if self.seed is not None:
            typer.echo(
                "WARNING: --seed makes the noise predictable; what is released protects nothing "
                "and is marked secure=false.",
                err=True,
            )


@app.command(epilog=EXAMPLES)
@options.takes(ReleaseOptions)
def release(options: ReleaseOptions) -> None:
    """Release data under a spec or a stored plan.

    Draws noise from the operating system's randomness and writes one release per series, or one
    for all together; under a plan for places a row for each step of everybody's track. All data is
    checked before anything is charged or drawn. With --by it is a job: any number of files, in
    bounded memory, that can be resumed (`shoal job`).
    """
    if options.key == "":
        raise InputError("--key is empty; name the release, or drop --key and one is made up")
    if options.by is not None:
        from shoal.cli.job import start

        start(options, options.by)
        return
    if options.group or options.period_column or (options.engine, options.bad_files) != DEFAULTS:
        raise InputError(
            "--group, --period-column, --engine and --bad-files are for jobs; name --by too"
        )
    check_and_release(options)


def check_and_release(options: ReleaseOptions) -> None:
    """Check the options, then read, check, charge, draw, write and report."""
    _refuse_early(options)
    _release_as_planned(options)


def _refuse_early(options: ReleaseOptions) -> None:
    """Refuse, before the plan is made, options that no release accepts."""
    from shoal.core.charge import refuse_seed

    if options.ledger is None:
        for name in ("subject", "period", "requester", "members", "key"):
            if value := getattr(options, name):
                raise InputError(f"--{name} is {value!r} without --ledger; name the ledger too")
    refuse_seed(
        options.seed is not None and options.ledger is not None, "--seed is given with --ledger"
    )
    if options.out.suffix.lower() not in (*SUFFIXES, *TABLES):
        raise InputError(
            f"--out is {str(options.out)!r}; releases are written as {_either(SUFFIXES)}, and "
            f"steps of places as {_either(TABLES)}"
        )
    check_output(options.out, force=options.force)
    check_apart(options.out, options.source, *options.data)


def _check_suffix(out: Path, suffixes: tuple[str, ...], what: str) -> None:
    if out.suffix.lower() not in suffixes:
        raise InputError(f"--out is {str(out)!r}; {what} are written as {_either(suffixes)}")


def _either(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _release_as_planned(options: ReleaseOptions) -> None:
    """Release the data as the plan requires: all at once, or step by step."""
    from shoal.cli.sources import Source, check_account, columns_in
    from shoal.core.plan import Machine

    calendar = options.every in CALENDAR
    asked = replace(columns_in(options), every=options.every if calendar else None)
    source = Source.read(options.source, asked)
    columns = source.columns.with_own(options.data)
    check_account(options, columns)
    plan = source.plan()
    if not isinstance(plan.body, Machine):
        _check_suffix(options.out, SUFFIXES, "releases")
        if options.every and not calendar:
            raise InputError(
                f"--every is {options.every!r}; for {plan.mechanism} it is one of "
                f"{', '.join(CALENDAR)}: a release for each"
            )
        if options.workers > 1 or options.latitude:
            raise InputError(
                "--lat, --lon and --workers are for streams of places, and "
                f"{plan.mechanism} is none; drop them"
            )
        _release_once(plan, columns, options)
        return
    from shoal.core.family import plan_act

    steps = plan_act("release_steps", plan)
    if steps is None:
        raise InputError(f"{plan.mechanism} answers step by step, not once; use `shoal stream`")
    _check_suffix(options.out, TABLES, "tables")
    if any((options.requester, options.key, options.members)) or options.together is not None:
        raise InputError(
            "--requester, --key, --members, --together and --each are for single releases, and "
            f"{plan.mechanism} answers step by step; drop them"
        )
    steps(plan, columns, options)


def _release_once(plan: Plan, columns: NamedColumns, options: ReleaseOptions) -> None:
    """Release a whole file at once: read, check, charge, draw, write and report."""
    from shoal.cli.sources import ChargedTo, note_pauses, series_in, view_of
    from shoal.noise.primitives import SeededRng

    view = view_of(plan)
    try:
        reads, parts, together = series_in(plan, options.data, columns)
        records = {name: read() for name, read in reads.items()}
    except DataError as error:
        hint = "" if view.hint is None else view.hint(plan, columns)
        raise DataError(f"{error}{hint}") from None
    note_pauses(options.data, columns)
    account = ChargedTo.of(options, columns, parts, together)
    account.check(list(records), together=view.whole or bool(columns.together))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # reported below, with command names
        rng = None if options.seed is None else SeededRng(options.seed)
        releases = account.draw(plan, records, rng)
    account.write(options.out, releases)
    try:
        _print_release(plan, releases, options, account.key, parts=bool(parts) and columns.parts)
        if view.tell is not None and not options.as_json:
            view.tell(plan, releases)
        if options.plot is not None:
            from shoal.core.plan import Releases
            from shoal.data.display import png_of

            write_chart(options.plot, png_of(Releases(releases)), as_json=options.as_json)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        # not "repeat": that would draw and charge again
        raise DataError(
            f"{str(options.out)!r} is written, but no space is left to print it"
        ) from None


def _print_release(
    plan: Plan, releases: dict[str, Release], options: ReleaseOptions, key: str, *, parts: bool
) -> None:
    """Print the result; with a ledger also the key under which it was charged."""
    from shoal.ledger.budget import total_of_parts_or_none, words_of_parts
    from shoal.mechanisms.usefulness import cautions

    error = plan.error()
    options.warn_of_seed()
    if options.as_json:
        from shoal.data.write import release_object

        body = {name: release_object(release) for name, release in releases.items()}
        secure = options.seed is None
        fields = {"path": str(options.out), "secure": secure, "key": key or None, "releases": body}
        together = total_of_parts_or_none(plan) if parts else None
        show.print_json({**fields, "together": None if together is None else float(together)})
        return
    lines = [
        f"Released: {len(releases)} release(s) by {plan.mechanism}, in {options.out}",
        f"Promise: {plan.guarantee.describe()}",
    ]
    if error is not None:
        lines.append(f"Error: each value is {error.describe()}.")
    if parts:
        lines.append(f"Together: {words_of_parts(plan)}.")
    for sentence in cautions(plan):
        typer.echo(f"WARNING: {sentence}", err=True)
    if key:
        lines.append(f"Charged: before they were drawn; with --key {key} the same come back free.")
    if len(releases) == 1:
        lines[1:1] = _values(next(iter(releases.values())))
    show.console().print(show.paragraphs("\n".join(lines)))


def _values(release: Release) -> list[str]:
    """Print the values of a single release in a line, if they are few."""
    values = release.as_dict()
    if not 0 < len(values) <= MOST_SHOWN:
        return []
    shown = ", ".join(f"{name} {significant(value)}" for name, value in values.items())
    return [f"Values: {shown} {release.answer.unit}"]
