"""Release one shard of subjects as tables, the same on every engine, and report on a job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import numpy as np

from shoal.core.charge import AsEntryDP
from shoal.core.errors import InputError
from shoal.core.family import plan_act
from shoal.core.plan import Plan, Sampler
from shoal.data.write import guarantee_columns, promise_columns
from shoal.jobs.census import Census, take_census
from shoal.jobs.drawing import Charging, Drawn, draw, release_maker
from shoal.jobs.inputs import BadFile
from shoal.jobs.job import ALL, Job

if TYPE_CHECKING:
    import polars as pl

    from shoal.jobs.tidy import Locator


def release_table(drawn: Drawn, census: Census) -> pl.DataFrame:
    """Return one row per release: subject, period, the values by label, and the guarantee.

    `value` and `multiples` are structs with one field per label; a value is its multiple times
    `step`, exactly. Means and shares over fewer entries than the query's length are divided by
    the actual number of entries, so each row has its own step and error.
    """
    import polars as pl

    plan, units = drawn.plan, np.array(drawn.units, dtype=np.int64)
    labels = plan.task.query.labels
    counts, place = np.unique(census.rows[units], return_inverse=True)
    make = release_maker(plan, secure=drawn.secure)
    like = [make((), entries) for entries in counts.tolist()]
    steps = np.array([float(release.answer.step) for release in like])[place.ravel()]
    fields = {name: pl.Series(drawn.multiples[:, axis]) for axis, name in enumerate(labels)}
    values = {name: column.cast(pl.Float64) * steps for name, column in fields.items()}
    kinds: dict[type, Any] = {bool: pl.Boolean, str: pl.String}
    shown = promise_columns(make(()))  # so that the column types are known for an empty table
    promises = pl.DataFrame(
        list(map(promise_columns, like)),
        schema={name: kinds.get(type(value), pl.Float64) for name, value in shown.items()},
    )
    return _name_columns(drawn.units, census).with_columns(
        pl.DataFrame(values).to_struct("value"),
        pl.DataFrame(fields).to_struct("multiples"),
        *promises[place.ravel()],
    )


def _name_columns(units: Sequence[int], census: Census) -> pl.DataFrame:
    """Return the columns subject and period of the units."""
    import polars as pl

    return pl.DataFrame(
        {
            "subject": pl.Series([census.subjects[unit] for unit in units], dtype=pl.String),
            "period": pl.Series([census.periods[unit] for unit in units], dtype=pl.String),
        }
    )


def guarantee_of(plan: Plan) -> dict[str, Any]:
    """Return the columns of the guarantee and of the mechanism that gives it."""
    named = {"mechanism": plan.mechanism, "plan": plan.fingerprint}
    return {**guarantee_columns(plan.guarantee), **named}


def refusal_table(refused: Mapping[int, str], census: Census) -> pl.DataFrame:
    """Return one row per refused unit: subject, period, number of rows, and the reason."""
    import polars as pl

    units = sorted(refused)
    return _name_columns(units, census).with_columns(
        pl.Series("rows", census.rows[np.array(units, dtype=np.int64)], dtype=pl.Int64),
        pl.Series("reason", [refused[unit] for unit in units], dtype=pl.String),
    )


def part_name(shard: int, column: str | None, group: str) -> str:
    """Return a shard's file name inside the output, in the hive folder of its group if any."""
    name = f"part-{shard:05d}.parquet"
    return name if column is None else f"{quote(column, safe='')}={quote(group, safe='')}/{name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The counts of a job. `rows` = `rows_released` + `rows_refused` + `rows_without_subject`.

    `rows_left_out` failed a condition (`where`) or lacked a value; they are not part of `rows`.
    Nor are rows of bad files, whose number may be unknown. `refusals` maps a reason to the number
    of refused units and of their rows; a unit is one subject in one period. `spend` has one entry
    per plan that was used. `rows_off_map` had coordinates that no state of the model covers, and
    were given the nearest state. `bad_rows` counts unusable rows by their reason; the notes list
    them by file and row.
    """

    finished: bool
    files: int
    bad_files: tuple[BadFile, ...]
    rows: int
    rows_released: int
    rows_refused: int
    rows_without_subject: int
    subjects: int
    units: int
    releases: int
    refusals: dict[str, tuple[int, int]]
    spend: tuple[dict[str, Any], ...]
    shards: int
    shards_done: int
    rows_off_map: int = 0
    rows_left_out: int = 0
    bad_rows: Mapping[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "bad_files": [file._asdict() for file in self.bad_files],
            "refusals": {
                reason: {"units": units, "rows": rows}
                for reason, (units, rows) in self.refusals.items()
            },
            "spend": list(self.spend),
        }

    @property
    def adds_up(self) -> bool:
        """Whether every row that was read is released, refused or without a subject."""
        return (
            self.rows == self.rows_released + self.rows_refused + self.rows_without_subject
            and self.units == self.releases + sum(units for units, _ in self.refusals.values())
        )


def report_of(
    events: Iterable[Mapping[str, Any]],
    plans: Iterable[Plan],
    *,
    shards: int,
    files: int,
    parts: bool = False,
) -> JobReport:
    """Return the report of the journal's events; `parts`: units are parts of a series."""
    said = list(events)
    scans = [event for event in said if event["event"] == "scanned"]
    scan: Mapping[str, Any] = scans[-1] if scans else {}
    done = {event["shard"]: event for event in said if event["event"] == "shard"}
    refusals: dict[str, tuple[int, int]] = {}
    releases: Counter[str] = Counter()
    for event in done.values():
        releases.update(event["releases"])
        for reason, (units, rows) in event["refused"].items():
            before = refusals.get(reason, (0, 0))
            refusals[reason] = (before[0] + units, before[1] + rows)
    summed = ("rows_released", "subjects", "units")
    return JobReport(
        finished=any(event["event"] == "finished" for event in said),
        files=files,
        bad_files=tuple(BadFile(*file) for file in scan.get("bad", ())),
        rows=scan.get("rows", 0),
        rows_refused=sum(rows for _, rows in refusals.values()),
        rows_without_subject=scan.get("unowned", 0),
        releases=releases.total(),
        refusals=dict(sorted(refusals.items())),
        spend=tuple(_spend(plans, releases, parts=parts)),
        shards=shards,
        shards_done=len(done),
        rows_off_map=scan.get("off_map") or 0,  # journals of earlier versions do not record it
        rows_left_out=scan.get("left_out") or 0,
        bad_rows=scan.get("faults") or {},
        **{name: sum(event[name] for event in done.values()) for name in summed},
    )


def _spend(
    plans: Iterable[Plan], releases: Counter[str], *, parts: bool
) -> Iterable[dict[str, Any]]:
    """Return what each plan costs one unit, and how many were charged; exact rationals as text.

    Where units are parts of a subject's series, the total of a subject is included.
    """
    from shoal.ledger.budget import total_of_parts_or_none

    for plan in {plan.fingerprint: plan for plan in plans}.values():
        count = releases[plan.fingerprint]
        if not count:
            continue
        etas = [rule.eta for rule in plan.composition if isinstance(rule, AsEntryDP)]
        eta = min(etas, default=None)
        together = total_of_parts_or_none(plan) if parts else None
        yield {
            "plan": plan.fingerprint,
            "mechanism": plan.mechanism,
            "notion": plan.guarantee.notion,
            "amount_each": str(plan.guarantee.amount),
            "amount_together": None if together is None else str(together),
            "eta_each": None if eta is None else str(eta),
            "releases": count,
            "eta_total": None if eta is None else str(Fraction(eta) * count),
        }


NO_PLAN = "a group without a plan"
NO_NAME = "a subject or period whose name no ledger can hold"
CHARGED = 2000  # subjects in one transaction of the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardResult:
    """The releases of a shard by group, its refusals, and the counts for the journal."""

    releases: dict[str, pl.DataFrame]
    refused: pl.DataFrame
    event: dict[str, Any]


class Made(NamedTuple):
    """The result of one group: a table, the rows of each unit in it, and the refusals.

    A stream that the ledger stopped is in both: its earlier rows, and the reason.
    """

    table: pl.DataFrame
    rows: dict[int, int]
    refused: dict[int, str]


def release_shard(rows: pl.DataFrame, job: Job, charging: Charging | None) -> ShardResult:
    """Release one shard's rows and return the result; `charging` charges before drawing."""
    import polars as pl

    lenient = any(not isinstance(plan.body, Sampler) for plan in job.plans.values())
    census = take_census(rows, job.layout, len(job.states), lenient=lenient)
    names = zip(census.subjects, census.periods, census.members, strict=True)
    if charging is not None:  # found before the first unit is charged
        unnamable = (unit for unit, own in enumerate(names) if not charging.can_name(*own))
        census.problems.update(dict.fromkeys(unnamable, NO_NAME))
    groups: dict[str, list[int]] = defaultdict(list)
    for unit in range(census.units):
        groups[census.groups[unit]].append(unit)
    tables: dict[str, pl.DataFrame] = {}
    refused: dict[int, str] = {}
    counts: dict[str, int] = defaultdict(int)
    done: dict[int, int] = {}
    for group, units in sorted(groups.items()):
        plan = job.plans.get(group if job.layout.group is not None else ALL)
        if plan is None:
            refused |= {unit: census.problems.get(unit, NO_PLAN) for unit in units}
            continue
        parts = [
            _release_units(plan, census, some, job, charging)
            for some in _batches(units, plan, charging)
        ]
        tables[group] = pl.concat([part.table for part in parts])
        for part in parts:
            refused |= part.refused
            done |= part.rows
            counts[plan.fingerprint] += sum(unit not in part.refused for unit in part.rows)
    return ShardResult(
        releases={group: table for group, table in tables.items() if table.height},
        refused=refusal_table(refused, census),
        event=_shard_event(census, done, counts, refused),
    )


class StreamJob(NamedTuple):
    """How a family's streams are released, many people at a time.

    `by_days`: a unit is charged as a whole. `calendar` says of a plan which part of the calendar
    one stream covers, a "day" or a "week", whose name is then a row's period; None: rows are steps.
    `maps` makes the locator that turns coordinates into states of the plans.
    """

    release: Callable[[Plan, Census, list[int], Job, Charging | None], Made]
    by_days: bool = False
    calendar: Callable[[Plan], str | None] = lambda plan: None
    maps: Callable[[Mapping[str, Plan], tuple[str, ...]], Locator] | None = None


def stream_job(plan: Plan) -> StreamJob:
    """Return how the plan's family runs jobs of streams; refused where it has none."""
    found: StreamJob | None = plan_act("job", plan)
    if found is None:
        raise InputError(f"{plan.mechanism} answers step by step and has no jobs; use a stream")
    return found


def _release_units(
    plan: Plan, census: Census, units: list[int], job: Job, charging: Charging | None
) -> Made:
    """Return the releases of these units, by the kind of their plan."""
    if not isinstance(plan.body, Sampler):
        return stream_job(plan).release(plan, census, units, job, charging)
    options: dict[str, Any] = {"seed": job.seed, "charging": charging, "layout": job.layout}
    drawn, refused = draw(plan, census, units, job.states, **options)
    return Made(release_table(drawn, census), all_rows(census, drawn.units), refused)


def all_rows(census: Census, units: list[int]) -> dict[int, int]:
    """Return the released units, each with its number of rows."""
    return dict(zip(units, census.read[units].tolist(), strict=True))


def _shard_event(
    census: Census, done: Mapping[int, int], counts: Mapping[str, int], refused: Mapping[int, str]
) -> dict[str, Any]:
    """Return the journal's event of a shard: its counts, and refused units and rows by reason."""
    by_reason: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for unit, reason in refused.items():
        by_reason[reason][0] += 1
        by_reason[reason][1] += int(census.read[unit]) - done.get(unit, 0)
    return {
        "subjects": len(set(census.subjects)),
        "units": census.units,
        "rows_released": sum(done.values()),
        "releases": counts,
        "refused": by_reason,
    }


def _batches(units: list[int], plan: Plan, charging: Charging | None) -> list[list[int]]:
    """Split the units into batches of one ledger transaction each.

    All units are one batch without a ledger, and for streams that are charged step by step."""
    single = isinstance(plan.body, Sampler) or stream_job(plan).by_days
    size = CHARGED if charging is not None and single else len(units)
    return [units[begin : begin + size] for begin in range(0, len(units), size)]
