"""Context streams of many people: each day of each person is one release, all its slots at once.

A live stream answers slot by slot; a job over days that are past answers with the whole day, by
the same machine step by step, so it tells what the live stream would have told and no more. A
slot without a reading shows nothing, and the stream goes on as a live one would after it
(contexts/checks/mask_missing.md); the answer has all slots of the day.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.stream import (
    ContextStream,
    advance,
    charge_day,
    comes_after,
    day_of,
    day_order,
)
from shoal.core.charge import Rng
from shoal.core.codec import Floats, Ints
from shoal.core.errors import BudgetError, CannotCompose, InputError, OverBudget
from shoal.core.plan import Answer, Plan, Release
from shoal.core.registry import dumps, loads
from shoal.events.window import SlotClock
from shoal.jobs.census import Census
from shoal.jobs.drawing import NOT_ADDED, OVER_LIMIT, Charging, source_of
from shoal.jobs.job import Job
from shoal.jobs.live import UNUSABLE, KeyedRng, Live, LiveReading, LiveRow
from shoal.jobs.report import Made, StreamJob, all_rows, guarantee_of

if TYPE_CHECKING:
    import polars as pl

MICROSECONDS = 1_000_000  # of a second, in which times are counted
MINUTE = 60 * MICROSECONDS
SUPPRESSED = -1  # in place of a context
OUTSIDE = "a reading outside the slots of the day"


def _release(
    plan: Plan, census: Census, units: list[int], job: Job, charging: Charging | None
) -> Made:
    """One row per day, the rows of the data behind them, and the units refused with the reason.

    Where times are of the calendar the model says how long a slot is (one of more than a day is of
    a week, from Monday); else a time is the number of its slot. The first reading of a slot counts,
    as in a live stream.
    """
    model = day_of(plan)
    slots = _slots(census, model, by_clock=job.layout.on_the_wall)
    refused = {unit: census.problems[unit] for unit in units if unit in census.problems}
    outside = _outside(census, slots, model.slots)
    refused |= {unit: OUTSIDE for unit in units if unit in outside and unit not in refused}
    kept = [unit for unit in units if unit not in refused]

    def show_day(unit: int) -> list[int]:
        rng = source_of(job.seed, plan, census.subjects[unit], census.periods[unit])
        mine = slice(census.bounds[unit], census.bounds[unit + 1])
        return _through_day(plan, slots[mine], census.values[mine], job.states, rng)

    if charging is None:
        days = {unit: show_day(unit) for unit in kept}
    else:
        days = _charge_days(plan, census, kept, show_day, charging, refused)
    table = _day_table(plan, census, days, secure=job.seed is None)
    return Made(table, all_rows(census, list(days)), refused)


def _through_day(
    plan: Plan, slots: Ints, contexts: Ints, states: tuple[str, ...], rng: Rng
) -> list[int]:
    """What each slot of a day shows: the index of the context, or SUPPRESSED."""
    machine: Any = plan.body
    own = {name: place for place, name in enumerate(plan.task.query.states)}
    first = dict(zip(slots.tolist()[::-1], contexts.tolist()[::-1], strict=True))
    state, answers = machine.init(), []
    for slot in range(day_of(plan).slots):
        context = first.get(slot, SUPPRESSED)
        observed = states[context] if context >= 0 else None
        state, answer = advance(plan, state, observed, rng)
        answers.append(SUPPRESSED if answer is None else own[answer])
    return answers


def _slots(census: Census, model: DayChain, *, by_clock: bool) -> Ints:
    """The slot of every row."""
    if census.times is None:
        raise InputError("context streams need a time column: a clock time, or the slot's number")
    if not by_clock:
        return census.times // MICROSECONDS
    if not model.slot_minutes:
        raise InputError(
            "the model does not say how many minutes a slot has; give slot_minutes, or number "
            "the slots and name the column of the day"
        )
    clock = SlotClock(model.slot_minutes, model.start_minute)
    return clock.slots_at(census.times // MINUTE, model.slots)


def _outside(census: Census, slots: Ints, most: int) -> set[int]:
    wrong = np.flatnonzero((slots < 0) | (slots >= most))
    return set((np.searchsorted(census.bounds, wrong, side="right") - 1).tolist())


def _charge_days(
    plan: Plan,
    census: Census,
    kept: Sequence[int],
    shown: Any,
    charging: Charging,
    refused: dict[int, str],
) -> dict[int, list[int]]:
    """The days as the ledger stored them; those it refuses are noted in `refused`."""
    charges = [charging.charge_unit(plan, census, unit, None) for unit in kept]
    outcomes = charging.ledger.settle_all(
        charges,
        lambda places: [_release_of_day(plan, shown(kept[place])) for place in places],
    )
    days: dict[int, list[int]] = {}
    for unit, outcome in zip(kept, outcomes, strict=True):
        if isinstance(outcome, BudgetError):
            refused[unit] = OVER_LIMIT if isinstance(outcome, OverBudget) else NOT_ADDED
        else:
            days[unit] = list(outcome.answer.multiples)
    return days


def _release_of_day(plan: Plan, answers: list[int]) -> Release:
    """A day as a release: for each slot the index of the context shown, or -1."""
    labels = tuple(str(slot) for slot in range(len(answers)))
    return plan.released(Answer(labels, tuple(answers), Fraction(1), "context"), secure=True)


def _day_table(
    plan: Plan, census: Census, days: dict[int, list[int]], *, secure: bool
) -> pl.DataFrame:
    """One row per day; `shown` lists the context of each slot, null where it is suppressed."""
    import polars as pl

    names = [*plan.task.query.states, None]  # SUPPRESSED is the last
    shown = [[names[answer] for answer in answers] for answers in days.values()]
    return pl.DataFrame(
        {
            "subject": pl.Series([census.subjects[unit] for unit in days], dtype=pl.String),
            "period": pl.Series([census.periods[unit] for unit in days], dtype=pl.String),
            "shown": pl.Series(shown, dtype=pl.List(pl.String)),
        }
    ).with_columns(
        *(pl.lit(value).alias(name) for name, value in guarantee_of(plan).items()),
        pl.lit(secure).alias("secure"),
    )


def _calendar(plan: Plan) -> str | None:
    """A day; a week where the model is of one."""
    day = day_of(plan)
    return SlotClock(day.slot_minutes, day.start_minute).calendar(day.slots)


JOB = StreamJob(_release, by_days=True, calendar=_calendar)


class LiveContexts:
    """Live streams of contexts: rows are slots of days."""

    days = True

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """Release new readings in order of day and slot; return the next state and one row per
        reading.

        A reading of a past slot is marked late, one under a name no ledger takes unusable. A day
        that the ledger refuses shows nothing.
        """
        plan = live.plan
        slots = day_of(plan).slots
        before = None if stored is None else json.loads(stored)
        stream = ContextStream.begin(plan)
        if before is not None:
            stream = ContextStream(plan, loads(before["state"]), before["day"], before["shown"])
        rows_out = []
        asked: tuple[str, bool] | None = (
            None  # the day about which the ledger was asked here, and whether it allows it
        )
        for row in sorted(rows, key=lambda row: (day_order(str(row.day)), row.at)):
            day, at = str(row.day), int(row.at or 0)
            today = day == stream.day
            passed = at < stream.state.slot - 1 if today else not comes_after(day, stream.day)
            if passed or not 0 <= at < slots:
                rows_out.append(LiveRow(day, at, late=True))
                continue
            try:
                if asked is None or asked[0] != day:
                    asked = day, _begin_day(live, subject, day)
            except InputError:  # a name that no ledger takes
                rows_out.append(LiveRow(day, at, error=UNUSABLE))
                continue
            if not asked[1]:
                rows_out.append(LiveRow(day, at))
                continue
            if not today:
                stream = ContextStream.begin(plan, day)
            rng = KeyedRng(live.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            stream, shown = stream.read(row.state, slot=at, rng=rng)
            rows_out.append(LiveRow(day, at, cells={"shown": shown}))
        kept = {"state": dumps(stream.state), "day": stream.day, "shown": stream.shown}
        return json.dumps(kept), rows_out

    def columns(self, plan: Plan) -> dict[str, str]:
        return {"shown": "string"}

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        raise InputError("contexts have no latitude and longitude; name the column of the state")

    def check_map(self, plan: Plan) -> None:
        raise InputError("contexts have no latitude and longitude; name the column of the state")


def _begin_day(live: Live, subject: str, day: str) -> bool:
    """Whether the ledger allows the day, or its next slots; what it refuses shows nothing.

    The same query may charge its day again, unless a release made under its outputs closed it.
    """
    if live.ledger is None:
        return True
    try:
        ledger = live.opened_ledger()
        names = {"subject": subject, "day": day, "requester": live.requester}
        charge_day(live.plan, ledger, drawer=live.name, **names)
    except (OverBudget, CannotCompose):
        return False
    return True


LIVE = LiveContexts()
