"""`shoal job`: show the progress of a job of many subjects, or resume one that stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Annotated, Any

from shoal.cli import options, show
from shoal.core.errors import BudgetError, DataError, InputError
from shoal.core.numbers import significant

if TYPE_CHECKING:
    from shoal.cli.release import ReleaseOptions
    from shoal.cli.sources import NamedColumns
    from shoal.core.plan import Plan
    from shoal.jobs.inputs import Layout
    from shoal.jobs.job import Job
    from shoal.jobs.report import JobReport
    from shoal.jobs.rows import Notify
    from shoal.spec.request import DataSection

app = options.new_app()

Folder = Annotated[Path, options.argument("OUT", "The output folder of the job.")]
LedgerAgain = Annotated[
    str | None, options.option("URL", "Only when the ledger's address has a password.", "--ledger")
]

EXAMPLES = """\b
Examples:
  shoal release shoal.toml 'in/**/*.parquet' -o out --by user
  shoal job status out
  shoal job resume out
"""
STATUS_EXAMPLES = """\b
Examples:
  shoal job status out
  shoal job status out --json
"""
PER_STEP = ("policy", "location-set")  # notions of streams of places
RESUME_EXAMPLES = """\b
Examples:
  shoal job resume out
"""


@app.callback(epilog=EXAMPLES)
def job() -> None:
    """Look at a job of many subjects, or go on with it.

    `shoal release SPEC 'in/**/*.parquet' -o OUT --by COLUMN` starts one.
    """


@app.command(epilog=STATUS_EXAMPLES)
def status(folder: Folder, as_json: options.AsJson = False) -> None:
    """Say how far a job is, from its journal."""
    from shoal.jobs.job import load_job
    from shoal.jobs.local import status as found

    stored = load_job(folder)
    tell(stored, found(stored), as_json=as_json)


@app.command(epilog=RESUME_EXAMPLES)
def resume(folder: Folder, ledger: LedgerAgain = None, as_json: options.AsJson = False) -> None:
    """Do what is left of a job that was stopped; each subject is released once."""
    from shoal.jobs.job import load_job, recheck_plan

    stored = load_job(folder, ledger=ledger)
    for plan in stored.plans.values():
        recheck_plan(plan, stored.notes / "plans")
    with _print_resume_on_stop(folder):
        report = _done(stored, stored.engine, "resume")
    tell(stored, report, as_json=as_json)
    check_released(report)


def _done(made: Job, engine: str, act: str) -> JobReport:
    """Run the act "run" or "resume" on this machine or on Spark, and return the report."""
    if engine == "spark":
        from shoal.jobs import spark

        with show.working("running on Spark"):
            return spark.run(made) if act == "run" else spark.resume(made)
    from shoal.jobs import local

    with progress() as notify:
        return getattr(local, act)(made, notify=notify)  # type: ignore[no-any-return]


def start(options: ReleaseOptions, by: str) -> None:
    """Run `shoal release --by`: one release for each value of a column."""
    from shoal.cli.sources import NamedColumns, columns_in
    from shoal.jobs.job import Job, job_plans

    _refuse_inapplicable_options(options)
    if len(options.data) > 1:
        raise InputError(
            f"{len(options.data)} files are named, and a job takes one pattern or folder; put the "
            "pattern in quotes, such as 'in/*.parquet'"
        )
    columns = columns_in(options)

    def parts(data: DataSection | None) -> bool:
        said = columns.over(NamedColumns.of(data))
        return said.parts or (options.period_column is not None and said.periods == "parts")

    with show.working("calibrating"):
        plans, section = job_plans(options.source, parts=parts)
    named = columns.over(NamedColumns.of(section))
    layout = _layout(named, options, plans, by)
    with _no_empty_folder(options.out):
        made = Job.of(
            plans[""] if options.group is None and "" in plans else plans,
            options.data[0],
            out=options.out,
            layout=layout,
            name=options.key,
            ledger=options.ledger,
            period=options.period,
            requester=options.requester,
            skip_bad=options.bad_files == "skip",
            seed=options.seed,
        )
        options.warn_of_seed()
        with _print_resume_on_stop(options.out):
            report = _done(made, options.engine, "run")
    tell(made, report, as_json=options.as_json)
    check_released(report)


def _refuse_inapplicable_options(options: ReleaseOptions) -> None:
    """Refuse options that do not apply to a job, and names that mean nothing."""
    if options.bad_files not in ("stop", "skip"):
        raise InputError(f"--bad-files is {options.bad_files!r}; it must be 'stop' or 'skip'")
    if options.engine not in ("local", "spark"):
        raise InputError(f"--engine is {options.engine!r}; it must be 'local' or 'spark'")
    if options.subject:
        raise InputError(
            f"--subject is {options.subject!r}, but --by charges each value of {options.by!r} "
            "under its own name; drop it"
        )
    if options.together is not None:
        raise InputError("--together and --each do not go with --by: each subject gets a release")
    if options.plot or options.workers > 1:
        raise InputError("--plot and --workers do not go with --by; drop them")
    if options.every and options.period_column:
        raise InputError("--every and --period-column both name periods; drop one of them")
    if options.ledger is None and (
        options.key or options.period or options.requester or options.members
    ):
        raise InputError(
            "--key, --period, --requester and --members are the ledger's; name --ledger too"
        )
    if options.group is not None and not options.source.is_dir():
        raise InputError(
            f"--group is {options.group!r}, so SPEC must be a folder with a spec for each group, "
            f"named after it; {str(options.source)!r} is none"
        )


def _charged_members(who: str | None, series: str | None) -> str | None:
    """Return whom a job charges beside its subjects: "series", "everybody" or None."""
    if who is None or who in ("everybody", "nobody"):
        return who if who == "everybody" else None
    if who != series:
        raise InputError(
            f"--members is {who!r}; in a job it is everybody, nobody or the column of --series"
        )
    return "series"


@contextmanager
def _no_empty_folder(out: Path) -> Iterator[None]:
    """Remove the new folder of a job that was refused or not stored completely."""
    from shoal.jobs.job import NOTES

    new = not out.exists()
    try:
        yield
    except InputError:
        if new and out.is_dir() and not (out / NOTES / "job.json").exists():
            rmtree(out)
        raise


def _print_resume_on_stop(out: Path) -> AbstractContextManager[None]:
    return show.on_stop(f"Go on with `shoal job resume {out}`; no subject is released twice.")


def _layout(
    columns: NamedColumns, options: ReleaseOptions, plans: Mapping[str, Plan], by: str
) -> Layout:
    """Return the layout of a job from the columns, the options and what its plans ask for.

    `by` is the column of the subject. Refused when no column of states, coordinates or numbers
    is named.
    """
    from shoal.data.times import parse_duration
    from shoal.jobs.inputs import Layout
    from shoal.jobs.job import calendar

    # K-means asks about columns of numbers, which the query itself names
    numbers = getattr(next(iter(plans.values())).task.query, "columns", ())
    if columns.state is None and columns.latitude is None and not numbers:
        raise InputError(
            "no column of states is named; give [data] state (on a map: lat and lon) in the spec, "
            "or --state COLUMN (--lat and --lon)"
        )
    columns_and_calendar: dict[str, Any] = {
        **columns.raw,
        **calendar(plans, columns.time, options.period_column),
    }
    return Layout(
        by=by,
        members=_charged_members(options.members, columns.series),
        state=None if numbers else columns.state,
        latitude=columns.latitude,
        longitude=columns.longitude,
        numbers=numbers,
        series=columns.series,
        time=columns.time,
        gap=None if columns.gap is None else parse_duration(columns.gap),
        group=options.group,
        period=options.period_column,
        periods=columns.periods,
        **columns_and_calendar,
    )


@contextmanager
def progress() -> Iterator[Notify]:
    """Show a progress bar on stderr with the rate and the remaining time; yield its callback."""
    from rich.progress import TextColumn, TimeRemainingColumn

    rate = (TextColumn("{task.percentage:>3.0f}%"), TextColumn("{task.fields[rate]}", markup=False))
    bar = show.progress_bar(*rate, left=(TextColumn("left"), TimeRemainingColumn()))
    tasks: dict[str, Any] = {}
    units = {"reading": "MB", "releasing": "rows"}

    def notify(stage: str, done: int, total: int) -> None:
        """Update the bar of one stage; its rate is MB per second for "reading", else rows."""
        if stage not in tasks:
            tasks[stage] = bar.add_task(stage, total=total, rate="")
        shown = next(task for task in bar.tasks if task.id == tasks[stage])
        speed = (shown.speed or 0) / (1e6 if stage == "reading" else 1)
        rate = f"{speed:,.0f} {units.get(stage, '')}/s" if speed else ""
        bar.update(tasks[stage], completed=done, total=total, rate=rate)

    with bar:
        yield notify


def tell(made: Job, report: JobReport, *, as_json: bool) -> None:
    """Print the report as text or as one JSON object."""
    if as_json:
        show.print_json({"path": str(made.out), "job": made.name, **report.as_dict()})
        return
    screen = show.console()
    screen.print(show.paragraphs("\n".join(_report_lines(made, report))))
    if report.refusals:
        rows = [
            (f"{units:,}", f"{rows:,}", reason) for reason, (units, rows) in report.refusals.items()
        ]
        screen.print(show.table(("refused", "rows", "reason"), rows, numbers=(0, 1)))
    for file in report.bad_files:
        count = "an unknown number of rows" if file.rows is None else f"{file.rows:,} rows"
        screen.print(f"skipped {file.path} ({count}): {file.reason}")


def check_released(report: JobReport) -> None:
    """Raise an error when every subject was refused, so that the exit code shows it."""
    from shoal.jobs.drawing import NOT_ADDED, OVER_LIMIT

    if report.finished and report.refusals and not report.releases:
        reason = max(report.refusals, key=lambda why: report.refusals[why])  # subjects, then rows
        if reason in (OVER_LIMIT, NOT_ADDED):
            raise BudgetError(
                f"nothing was released: {reason}; `shoal ledger show` tells what was spent and the "
                "limits"
            )
        raise DataError(f"nothing was released: {reason}; mend the data and start another job")


def _report_lines(made: Job, report: JobReport) -> Iterator[str]:
    """Yield the report of a job as titled lines: progress, rows, faults and the privacy spent."""
    state = "finished" if report.finished else "not finished; go on with `shoal job resume`"
    yield f"Job: {made.name}, {state}, in {made.out}"
    yield f"Shards: {report.shards_done:,} of {report.shards:,} done"
    yield f"Subjects: {report.subjects:,}, {report.releases:,} release(s)"
    yield (
        f"Rows: {report.rows:,} read: {report.rows_released:,} released, "
        f"{report.rows_refused:,} refused, {report.rows_without_subject:,} of no subject; "
        f"{report.files:,} file(s), {len(report.bad_files):,} bad"
    )
    if report.rows_left_out:
        yield f"Left out: {report.rows_left_out:,} row(s), by a condition or for what they lack"
    if report.rows_off_map:
        yield (
            f"Off the map: {report.rows_off_map:,} of {report.rows:,} positions, taken as the "
            "nearest state; check the map, and that latitudes and longitudes are not swapped"
        )
    if report.bad_rows:
        bad_counts = ", ".join(f"{count:,} with {why}" for why, count in report.bad_rows.items())
        yield f"Bad rows: {bad_counts}; listed by file and row in {made.notes / 'bad_rows.jsonl'}"
    for spent in report.spend:
        eta = "" if spent["eta_each"] is None else f", eta {float(Fraction(spent['eta_each'])):.4g}"
        # a stream of places is charged at every step, not once
        each = "each step of" if spent["notion"] in PER_STEP else "each of"
        yield (
            f"Spend: {spent['notion']} {float(Fraction(spent['amount_each'])):g}{eta} for {each} "
            f"{spent['releases']:,} release(s) by {spent['mechanism']}"
        )
        if spent["amount_together"] is not None:
            total = significant(Fraction(spent["amount_together"]))
            yield f"Together: all parts of a subject's series come to epsilon = {total}"
