"""One call for a job over many files, on one machine or on Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.data.times import parse_duration
from shoal.jobs.inputs import Layout
from shoal.jobs.job import MEMORY, Job, calendar
from shoal.jobs.report import JobReport

RAW = ("missing", "bins", "unit", "tz", "where", "sep")  # as in `shoal.read`


def release_files(
    plans: Plan | Mapping[str, Plan],
    data: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    by: str,
    state: str | None = None,
    latitude: str | None = None,
    longitude: str | None = None,
    numbers: tuple[str, ...] = (),
    series: str | None = None,
    time: str | None = None,
    gap: str | timedelta | None = None,
    group: str | None = None,
    period_column: str | None = None,
    every: str | None = None,
    periods: str | None = None,
    engine: str = "local",
    ledger: str | None = None,
    name: str | None = None,
    period: str = "",
    requester: str = "",
    members: str | None = None,
    skip_bad: bool = False,
    memory: int = MEMORY,
    seed: int | None = None,
    **rows: Any,
) -> JobReport:
    """The report of a job that releases every subject of many files, into the new folder `out`.

    `data` is a file, a folder or a pattern such as "in/**/*.parquet" of Parquet, CSV or JSON Lines
    files; columns may also come from hive folders such as day=2024-05-01. `by` names the column of
    the subject, `state` that of the state (on a map perhaps `latitude` and `longitude`; for K-means
    `numbers`, those of each record), `series` what tells chains apart inside a subject, `time`
    their order, `group` and `period_column` the group and period of a row; a pause longer than
    `gap` starts a new chain. `plans` is one plan, or one per value of `group`. A subject's rows may
    be in any number of files. Streams are answered row by row (locations) or day by day (contexts;
    week by week where the model is of a week, and so are locations that watch events by the clock);
    a location row without a state or coordinates is a step at which nothing is released. `every`
    makes a release per subject and day, week, …, each charged as a part of the subject's series;
    what the periods of a column are to each other `periods` must say: "parts" or "independent".
    `rows` are `missing`, `bins`, `unit`, `tz`, `where` and `sep`, as in `shoal.read`.

    With a ledger each release is charged before it is drawn, under the key (name, subject, period,
    plan): the same `name` brings stored values back. Where a subject is an aggregate, `members`
    says whom it charges too: its "series", or "everybody". A job that was stopped is taken up
    again by `shoal job resume OUT`. Bad files stop the job, or with `skip_bad` are named in the
    report.
    """
    pause = parse_duration(gap) if isinstance(gap, str) else gap
    layout = Layout(
        by=by, state=state, latitude=latitude, longitude=longitude, numbers=numbers,
        series=series, time=time, gap=pause, group=group, period=period_column, every=every,
        periods=periods, members=members, **calendar(plans, time, period_column), **_known(rows),
    )  # fmt: skip
    rest: dict[str, Any] = {"ledger": ledger, "period": period, "requester": requester}
    rest |= {"skip_bad": skip_bad, "seed": seed}
    return _run(
        Job.of(plans, data, out=out, layout=layout, name=name, memory=memory, **rest), engine
    )


def _known(rows: dict[str, Any]) -> dict[str, Any]:
    """What is done to raw rows; refused when a keyword is no such thing."""
    unknown = [name for name in rows if name not in RAW]
    if unknown:
        raise InputError(f"{unknown[0]!r} is no keyword of a job; for rows: {', '.join(RAW)}")
    bins = rows.get("bins")
    if bins is not None and not isinstance(bins, str | int):
        rows = {**rows, "bins": ",".join(map(str, bins))}
    return rows


def _run(job: Job, engine: str) -> JobReport:
    if engine == "spark":
        from shoal.jobs.spark import run as run_on_spark

        return run_on_spark(job)
    if engine != "local":
        raise InputError(f"engine is {engine!r}; it must be 'local' or 'spark'")
    from shoal.jobs.local import run

    return run(job)
