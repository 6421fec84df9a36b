"""The rows a job writes: one per release with its promise, and one per refusal with its reason."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from shoal.core.charge import AsEntryDP
from shoal.core.numbers import ratio
from shoal.core.plan import Plan, Release
from shoal.data.write import atomic_write
from shoal.jobs.census import Census
from shoal.jobs.drawing import Drawn, release_maker
from shoal.jobs.inputs import BadFile

if TYPE_CHECKING:
    import polars as pl


def release_table(drawn: Drawn, census: Census) -> pl.DataFrame:
    """One row per release: subject, period, the values by label, and the promise.

    `value` and `multiples` are structs with one field per label; a value is its multiple times
    `step`, exactly. Means and shares over fewer entries than the query's length are divided by
    those that are there, each row with its own step and error.
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
    promises = pl.DataFrame(
        [_promise(plan, release) for release in like], schema=_promise_kinds(plan)
    )
    return pl.DataFrame(
        {
            "subject": pl.Series([census.subjects[unit] for unit in drawn.units], dtype=pl.String),
            "period": pl.Series([census.periods[unit] for unit in drawn.units], dtype=pl.String),
            "value": pl.DataFrame(values).to_struct("value"),
            "multiples": pl.DataFrame(fields).to_struct("multiples"),
        }
    ).hstack(promises[place.ravel()])


def _promise(plan: Plan, release: Release) -> dict[str, Any]:
    """The columns that say what the values are and what is promised about them."""
    error = release.error
    return {
        "unit": release.answer.unit,
        "step": ratio(release.answer.step),
        **guarantee_of(plan),
        "error_expected": None if error is None else error.expected,
        "error_bound": None if error is None else error.bound,
        "error_confidence": None if error is None else error.confidence,
        "secure": release.secure,
    }


def guarantee_of(plan: Plan) -> dict[str, Any]:
    """The columns of the guarantee alone."""
    return {
        "notion": plan.guarantee.notion,
        "amount": float(plan.guarantee.amount),
        "amount_exact": ratio(plan.guarantee.amount),
        "over": plan.guarantee.over,
        "proved": plan.guarantee.proved,
        "caveat": plan.guarantee.caveat,
        "mechanism": plan.mechanism,
        "plan": plan.fingerprint,
    }


def refusal_table(refused: Mapping[int, str], census: Census) -> pl.DataFrame:
    """One row per refused unit: subject, period, how many rows it has, and the reason."""
    import polars as pl

    units = sorted(refused)
    return pl.DataFrame(
        {
            "subject": pl.Series([census.subjects[unit] for unit in units], dtype=pl.String),
            "period": pl.Series([census.periods[unit] for unit in units], dtype=pl.String),
            "rows": pl.Series(census.rows[np.array(units, dtype=np.int64)], dtype=pl.Int64),
            "reason": pl.Series([refused[unit] for unit in units], dtype=pl.String),
        }
    )


def part_name(shard: int, column: str | None, group: str) -> str:
    """Where a shard's releases go inside the output: in the hive folder of their group, if any."""
    name = f"part-{shard:05d}.parquet"
    return name if column is None else f"{quote(column, safe='')}={quote(group, safe='')}/{name}"


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """The table in `path`, on the disk, whole or not at all; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    atomic_write(path, buffer.getvalue())


def write_lines(path: Path, table: pl.DataFrame) -> None:
    """The same as JSON Lines: refusals, which a pattern for Parquet files must not find."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table.write_ndjson())


def _promise_kinds(plan: Plan) -> dict[str, Any]:
    """The columns of `_promise` and their types, also where there is no row."""
    import polars as pl

    kinds: dict[type, Any] = {bool: pl.Boolean, str: pl.String}
    shown = _promise(plan, release_maker(plan, secure=True)(()))
    return {name: kinds.get(type(value), pl.Float64) for name, value in shown.items()}


# What came of a job: every input row accounted for, every refusal counted by its reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """The counts of a job. `rows` = `rows_released` + `rows_refused` + `rows_without_subject`.

    `rows_left_out` met no condition (`where`) or were dropped for what they lack, and come on top.
    So do rows of bad files: they were not read, and a file that cannot be opened does not
    tell how many it holds. `refusals` maps a reason to the units refused and their rows; a unit
    is one subject in one period. `spend` has one entry per plan that was used. `rows_off_map` had
    coordinates that no state of the model covers, and were taken as its nearest state. `bad_rows`
    counts rows that could not be used by their reason; the notes list them by file and row.
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
        """Plain JSON data."""
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
        """Whether every row that was read is accounted for."""
        return (
            self.rows == self.rows_released + self.rows_refused + self.rows_without_subject
            and self.units == self.releases + sum(units for units, _ in self.refusals.values())
        )


def shard_event(
    *,
    subjects: int,
    units: int,
    rows_released: int,
    releases: Mapping[str, int],
    refused: Iterable[tuple[str, int]],
) -> dict[str, Any]:
    """What the journal says about a shard; `refused` holds a reason and rows for each unit."""
    by_reason: dict[str, list[int]] = {}
    for reason, rows in refused:
        entry = by_reason.setdefault(reason, [0, 0])
        entry[0] += 1
        entry[1] += rows
    return {
        "subjects": subjects,
        "units": units,
        "rows_released": rows_released,
        "releases": dict(releases),
        "refused": by_reason,
    }


def report_of(
    events: Iterable[Mapping[str, Any]], plans: Iterable[Plan], *, shards: int, files: int
) -> JobReport:
    """The report of what the journal holds so far."""
    said = list(events)
    scan = next((event for event in reversed(said) if event["event"] == "scanned"), None)
    done = {event["shard"]: event for event in said if event["event"] == "shard"}
    refusals: dict[str, tuple[int, int]] = {}
    releases: Counter[str] = Counter()
    for event in done.values():
        releases.update(event["releases"])
        for reason, (units, rows) in event["refused"].items():
            before = refusals.get(reason, (0, 0))
            refusals[reason] = (before[0] + units, before[1] + rows)
    return JobReport(
        finished=any(event["event"] == "finished" for event in said),
        files=files,
        bad_files=tuple(BadFile(*file) for file in (scan or {}).get("bad", ())),
        rows=(scan or {}).get("rows", 0),
        rows_released=sum(event["rows_released"] for event in done.values()),
        rows_refused=sum(rows for _, rows in refusals.values()),
        rows_without_subject=(scan or {}).get("unowned", 0),
        subjects=sum(event["subjects"] for event in done.values()),
        units=sum(event["units"] for event in done.values()),
        releases=releases.total(),
        refusals=dict(sorted(refusals.items())),
        spend=tuple(_spend(plans, releases)),
        shards=shards,
        shards_done=len(done),
        rows_off_map=(scan or {}).get("off_map") or 0,
        rows_left_out=(scan or {}).get("left_out") or 0,
        bad_rows=(scan or {}).get("faults") or {},
    )


def _spend(plans: Iterable[Plan], releases: Counter[str]) -> Iterable[dict[str, Any]]:
    """What each plan costs one unit, and how many were charged it; exact rationals as text."""
    for plan in {plan.fingerprint: plan for plan in plans}.values():
        count = releases[plan.fingerprint]
        if not count:
            continue
        etas = [rule.eta for rule in plan.composition if isinstance(rule, AsEntryDP)]
        eta = min(etas, default=None)
        yield {
            "plan": plan.fingerprint,
            "mechanism": plan.mechanism,
            "notion": plan.guarantee.notion,
            "amount_each": str(plan.guarantee.amount),
            "eta_each": None if eta is None else str(eta),
            "releases": count,
            "eta_total": None if eta is None else str(Fraction(eta) * count),
        }
