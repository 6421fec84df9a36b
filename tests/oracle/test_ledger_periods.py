"""Periods that Shoal names itself: acts about the same rows are added up, or one is refused.

The oracle keeps, for every row of a timeline, the sum of what the acts that read it were charged.
It knows nothing of parts, spans or names. What a ledger tells of a period may not be less than the
sum of any row that an act under that period has read.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest

import shoal
from shoal.core.charge import WHOLE, Charge, Part
from shoal.core.errors import BudgetError, CannotCompose, InputError, OverBudget, ShoalError
from shoal.jobs.local import release_files
from shoal.ledger.store import SqlLedger, open_ledger
from shoal.places import release_tracks
from tests.ledger_plans import DATA, laplace

HOURS = 21 * 24  # of a timeline, one row each, from Monday, 2024-04-29, 00:00 UTC
FIRST = datetime(2024, 4, 29, tzinfo=UTC)
ZONES = ("UTC", "Pacific/Auckland", "America/Los_Angeles")
MICROSECONDS = 10**6
Act = Callable[[SqlLedger, shoal.Plan, str], tuple[str, frozenset[int]]]


def micros(row: int) -> int:
    return round((FIRST + timedelta(hours=row)).timestamp()) * MICROSECONDS


def by_name(random: Random) -> tuple[str, Part, frozenset[int]]:
    """Rows of two sources that the caller knows to be independent, and has named."""
    name = random.choice(["phone", "watch"])
    parity = int(name == "watch")
    return name, Part(), frozenset(range(parity, HOURS, 2))


def unnamed(random: Random) -> tuple[str, Part, frozenset[int]]:
    first = random.randrange(HOURS - 1)
    rows = range(first, random.randrange(first + 1, HOURS))
    if random.random() < 0.5:  # a part by its seconds
        span = (micros(rows[0]) // MICROSECONDS, micros(rows[-1]) // MICROSECONDS + 1)
        return "", Part(span=span, seconds=True), frozenset(rows)
    return "", Part(), frozenset(rows)


def by_calendar(random: Random) -> tuple[str, Part, frozenset[int]]:
    """A day, week or month by the clock of a zone, which the charge knows or does not."""
    zone = random.choice(ZONES)
    known = zone != "UTC" or random.random() < 0.5
    written = random.choice(["%Y-%m-%d", "%G-W%V", "%Y-%m"])
    named: dict[str, list[int]] = defaultdict(list)
    for row in range(HOURS):
        local = (FIRST + timedelta(hours=row)).astimezone(ZoneInfo(zone))
        named[local.strftime(written)].append(row)
    name = random.choice(sorted(named))
    rows = named[name]
    covers = (micros(rows[0]), micros(rows[-1]) + 1) if known else None
    return name, Part(covers=covers), frozenset(rows)


def by_gap(random: Random) -> tuple[str, Part, frozenset[int]]:
    """The stretches of some track, numbered from 0 as `release_tracks` does."""
    cuts = sorted(random.sample(range(1, HOURS), random.randrange(1, 6)))
    stretches = list(itertools.pairwise([0, *cuts, HOURS]))
    number = random.randrange(len(stretches))
    first, last = stretches[number]
    rows = frozenset(range(first, last))
    return str(number), Part(covers=(micros(first), micros(last - 1) + 1)), rows


@pytest.mark.parametrize("seed", range(60))
def test_no_row_is_charged_more_than_its_period_tells(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    kinds = random.choice(
        [(unnamed, by_calendar, by_gap), (by_calendar, by_gap), (unnamed, by_name)]
    )
    plan = laplace("0.1")
    eta = Fraction(1, 10)
    truth: dict[int, Fraction] = defaultdict(Fraction)
    under: dict[str, frozenset[int]] = defaultdict(frozenset)
    with open_ledger(tmp_path / "budget.db") as ledger:
        for number in range(random.randrange(2, 9)):
            period, part, rows = random.choice(kinds)(random)
            charge = Charge(plan=plan, subject="ann", period=period, part=part, key=str(number))
            try:
                ledger.settle(charge, lambda: plan.release(DATA))
            except BudgetError:
                continue
            under[period] |= rows
            for row in rows:
                truth[row] += eta
        for period, rows in under.items():
            total = ledger.spent("ann", period)
            assert total is not None
            assert total.eta is not None
            assert total.eta >= max(truth[row] for row in rows)
        ever = ledger.spent("ann", "*")
        assert ever is not None
        assert ever.eta is not None
        assert ever.eta >= max(truth.values(), default=Fraction(0))


def test_days_of_one_zone_stay_apart_and_those_of_two_meet(tmp_path: Path) -> None:
    plan = laplace("0.1")
    noon = micros(0), micros(24)
    next_day, shifted = (micros(24), micros(48)), (micros(13), micros(37))
    with open_ledger(tmp_path / "budget.db") as ledger:
        for key, (name, covers) in enumerate((("2024-04-29", noon), ("2024-04-30", next_day))):
            charge = Charge(
                plan=plan, subject="u", period=name, key=str(key), part=Part(covers=covers)
            )
            ledger.settle(charge, lambda: plan.release(DATA))
        assert ledger.together("u", "2024-04-29") == {"2024-04-29"}
        apart = ledger.spent("u", "2024-04-29")
        moved = Charge(plan=plan, subject="u", period="2024-05-01", part=Part(covers=shifted))
        ledger.settle(moved, lambda: plan.release(DATA))
        everything = ledger.spent("u", "2024-04-29")
        assert ledger.together("u", "2024-05-01") == {"2024-04-29", "2024-04-30", "2024-05-01"}
    assert apart is not None
    assert everything is not None
    assert (apart.eta, everything.eta) == (Fraction(1, 10), Fraction(2, 10))


# the acts themselves, on one person's four rows

PLACES = ["h", "c"]
CHAIN = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=PLACES)
WHERE = shoal.measurement(PLACES, [[0], [1]], labels=["x"])
POLICY = shoal.PolicyGraph.complete(PLACES)
ROWS = pl.DataFrame(
    {
        "user": ["ann"] * 4,
        "time": [datetime(2024, 3, 4) + timedelta(hours=6 * i) for i in range(4)],
        "state": ["h", "c", "h", "h"],
    }
)


def plain() -> shoal.Plan:
    return shoal.calibrate(WHERE, POLICY, CHAIN, epsilon=1, mechanism="location-knorm")


def watched() -> shoal.Plan:
    visits = shoal.Events.of(shoal.visit("c", between=(0, 3)))
    policy = POLICY.watching(visits, "0.5", slots=4)
    return shoal.calibrate(WHERE, policy, CHAIN, epsilon=1, mechanism="location-knorm")


def by_job(ledger: Path, plan: shoal.Plan, number: int) -> None:
    data = ledger.with_name("rows.parquet")
    ROWS.write_parquet(data)
    done = release_files(
        plan, data, out=ledger.with_name(f"out{number}"), by="user", state="state", time="time",
        ledger=ledger, name=f"job{number}",
    )  # fmt: skip
    if done.refusals:
        raise CannotCompose(str(done.refusals), ("none",))


def by_tracks(ledger: Path, plan: shoal.Plan, number: int) -> None:
    with open_ledger(ledger) as opened:
        release_tracks(plan, ROWS, series="user", time="time", state="state", ledger=opened)


def by_cut_tracks(ledger: Path, plan: shoal.Plan, number: int) -> None:
    with open_ledger(ledger) as opened:
        release_tracks(
            plan, ROWS, series="user", time="time", state="state", gap="7h", ledger=opened
        )


def by_stream(ledger: Path, plan: shoal.Plan, number: int) -> None:
    stream = shoal.LocationStream.begin(plan)
    with open_ledger(ledger) as opened:
        for at, place in enumerate(ROWS["state"]):
            key: Any = {"at": str(at)} if stream.watched else {"key": f"{number} {at}"}
            stream, _ = stream.read(place, ledger=opened, subject="ann", **key)


ACTS = (by_job, by_tracks, by_cut_tracks, by_stream)


@pytest.mark.parametrize("acts", list(itertools.permutations(ACTS, 2)))
def test_two_acts_on_the_same_rows_are_added(acts: Any, tmp_path: Path) -> None:
    """Four steps at epsilon 1 are 4; twice is 8, whatever the acts call their periods."""
    ledger = tmp_path / "budget.db"
    for number, act in enumerate(acts):
        act(ledger, plain(), number)
    with open_ledger(ledger) as opened:
        told = [total for _, _, total in opened.totals()]
    assert told
    for total in told:
        assert not isinstance(total, CannotCompose)
        assert total.amount == 8


@pytest.mark.parametrize("acts", list(itertools.permutations((by_job, by_tracks, by_stream), 2)))
def test_what_watches_events_is_refused_beside_other_outputs(acts: Any, tmp_path: Path) -> None:
    """Under any two of the acts, with a plain plan on one side or two histories of one plan."""
    first, second = acts
    for number, (one, other) in enumerate([(watched(), plain()), (plain(), watched())]):
        ledger = tmp_path / str(number) / "budget.db"
        ledger.parent.mkdir()
        first(ledger, one, 0)
        with pytest.raises(ShoalError):
            second(ledger, other, 1)


# days of contexts

DAY = """
[[model]]
kind = "day-chain"
states = ["home", "clinic"]
initial = [0.9, 0.1]
transition = [[0.8, 0.2], [0.5, 0.5]]
slots = {slots}
slot_minutes = 360
[secrets]
kind = "contexts"
sensitive = ["clinic"]
[query]
kind = "current"
[privacy]
belief_delta = 0.2
mechanism = "mask-adaptive"
"""


def mask(slots: int) -> shoal.Plan:
    from shoal.gateway.town import plan_of_spec

    return plan_of_spec(DAY.format(slots=slots))


def contexts_job(ledger: Path, plan: shoal.Plan, name: str, tz: str | None) -> Any:
    times = [datetime(2024, 3, 4, tzinfo=UTC) + timedelta(hours=6 * i) for i in range(8)]
    data = ledger.with_name("days.parquet")
    pl.DataFrame({"user": "ann", "time": times, "state": ["home", "clinic"] * 4}).write_parquet(
        data
    )
    return release_files(
        plan, data, out=ledger.with_name(name), by="user", state="state", time="time", tz=tz,
        ledger=ledger, name=name,
    )  # fmt: skip


def test_days_by_another_clock_are_refused_where_they_share_a_row(tmp_path: Path) -> None:
    ledger, plan = tmp_path / "budget.db", mask(4)
    first = contexts_job(ledger, plan, "utc", "UTC")
    assert first.rows_released == 8
    assert not first.refusals
    again = contexts_job(ledger, plan, "auckland", "Pacific/Auckland")
    assert again.rows_released == 0  # every day of it has a row of a day that was shown


def test_a_week_is_refused_beside_its_days_and_a_count_beside_them(tmp_path: Path) -> None:
    ledger = tmp_path / "budget.db"
    assert contexts_job(ledger, mask(4), "days", None).rows_released == 8
    assert contexts_job(ledger, mask(28), "week", None).rows_released == 0
    with (
        open_ledger(ledger) as opened,
        pytest.raises(CannotCompose, match="may hold the same data as"),
    ):
        laplace("0.1").release(DATA, ledger=opened, subject="ann")


# what limits, lifetimes and names of parts are about


def spend(ledger: SqlLedger, period: str, part: Part = WHOLE, key: str | None = None) -> None:
    plan = laplace("0.1")
    charge = Charge(plan=plan, subject="ann", period=period, part=part, key=key)
    ledger.settle(charge, lambda: plan.release(DATA))


@pytest.mark.parametrize(
    ("limited", "charged"),
    [("may", "may/0"), ("", "2024-03-05"), ("2024-W10", "2024-03-05"), ("2024-03-05", "")],
)
def test_a_limit_on_one_period_holds_for_whatever_may_be_its_data(
    limited: str, charged: str, tmp_path: Path
) -> None:
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.limit("0.1", subject="ann", period=limited)
        spend(ledger, charged)
        with pytest.raises(OverBudget):
            spend(ledger, charged)
        if limited and charged:
            spend(ledger, "of something else")


def test_entries_of_two_periods_are_not_compared_over_a_lifetime(tmp_path: Path) -> None:
    """The same Tuesday is entries 1440 to 2880 of a week and 0 to 1440 of a day."""
    with open_ledger(tmp_path / "budget.db") as ledger:
        spend(ledger, "2024-W10", Part(span=(1440, 2880)))
        spend(ledger, "2024-03-05", Part(span=(0, 1440)))
        for period in ("2024-W10", "2024-03-05", None):
            total = ledger.spent("ann", period)
            assert total is not None
            assert total.eta == Fraction(1, 5)


def test_parts_named_by_the_calendar_lie_in_each_other(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "budget.db") as ledger:
        for name in ("2024-03-04", "2024-03-05", "2024-W10", "ward"):
            spend(ledger, "", Part(name=name))
        total = ledger.spent("ann", "")
        assert total is not None
        assert total.eta == Fraction(3, 10)  # a day, its week, and a ward that may be in it


def test_stretches_without_dates_are_one_account(tmp_path: Path) -> None:
    """Two cuts of one track number the same rows differently; a stretch is known by its begin."""
    later = ROWS.with_columns(time=pl.Series([0.0, 6.0, 12.0, 30.0]))
    earlier = pl.concat([later.head(1).with_columns(time=pl.lit(-20.0)), later])
    with open_ledger(tmp_path / "budget.db") as ledger:
        for rows in (later, earlier):
            release_tracks(
                plain(), rows, series="user", time="time", state="state", unit="h", gap="7h",
                ledger=ledger,
            )  # fmt: skip
        (total,) = (total for _, _, total in ledger.totals())
        assert not isinstance(total, CannotCompose)
        assert total.amount == 5  # the row that came late, and the four that were there


def test_a_whole_person_is_not_apart_from_any_period(tmp_path: Path) -> None:
    chain = shoal.MarkovChain.of(
        [[0.8, 0.2], [0.3, 0.7]], initial=[0.6, 0.4], states=PLACES, length=4
    )
    plan = shoal.calibrate(shoal.count(PLACES, "c"), shoal.EachPerson(), chain, epsilon=1)
    entry = laplace("0.1")
    with open_ledger(tmp_path / "budget.db") as ledger:
        ledger.limit("1", unit="epsilon", subject="ann")
        data: dict[str, Any] = {"ledger": ledger, "subject": "ann"}
        with pytest.raises(InputError, match="leave period out"):
            plan.release(["h", "c", "h", "h"], period="2024-03-04", **data)
        plan.release(["h", "c", "h", "h"], **data)
        with pytest.raises(BudgetError):
            plan.release(["h", "c", "h", "h"], **data)
        with pytest.raises(BudgetError):
            entry.release(DATA, period="2024-03-05", **data)


def test_a_part_that_late_rows_made_longer_is_the_one_that_was_released(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "budget.db") as ledger:
        spend(ledger, "", Part(span=(0, 100), seconds=True), "monday")
        spend(ledger, "", Part(span=(0, 120), seconds=True), "monday")
        assert len(ledger.charges()) == 1
        with pytest.raises(InputError, match="another part"):
            spend(ledger, "", Part(span=(500, 600), seconds=True), "monday")


def test_what_is_told_is_what_was_judged(tmp_path: Path) -> None:
    """A part of one day by the second, and a later day that says when it lies, are apart."""
    with open_ledger(tmp_path / "budget.db") as ledger:
        spend(ledger, "", Part(span=(0, 3_600), seconds=True))
        spend(
            ledger,
            "1970-01-03",
            Part(covers=(2 * 86_400 * MICROSECONDS, 3 * 86_400 * MICROSECONDS)),
        )
        for period in ("", "1970-01-03"):
            total = ledger.spent("ann", period)
            assert total is not None
            assert total.eta == Fraction(1, 10)


def test_a_part_meets_the_week_of_its_day_though_they_share_no_row(tmp_path: Path) -> None:
    """Weeks are independent of each other, and the days of one are not."""
    monday = round(datetime(2024, 3, 4, tzinfo=UTC).timestamp())
    tuesday = (monday + 86_400) * MICROSECONDS, (monday + 2 * 86_400) * MICROSECONDS
    with open_ledger(tmp_path / "budget.db") as ledger:
        spend(ledger, "", Part(span=(monday, monday + 86_400), seconds=True))
        spend(ledger, "2024-W10", Part(covers=tuesday))
        assert ledger.together("ann", "") == {"", "2024-W10"}


def test_days_by_the_clock_of_aware_times_say_when_they_lie() -> None:
    from shoal.contexts.views.day import timed

    model = shoal.DayChain.of(
        [[0.8, 0.2], [0.3, 0.7]], initial=[0.6, 0.4], states=PLACES, slots=4, slot_minutes=360
    )
    read = timed({"time": "2024-03-05T01:00+13:00"}, "time", model)
    begins = round(datetime(2024, 3, 4, tzinfo=UTC).timestamp()) * MICROSECONDS
    assert (read["day"], read["covers"]) == ("2024-03-04", (begins, begins + 86_400 * MICROSECONDS))
    assert timed({"time": "2024-03-05T01:00"}, "time", model)["covers"] is None
