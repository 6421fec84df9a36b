"""Slots by the wall clock: zones, daylight saving, weeks; and slots of equal length."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from shoal.core.errors import InputError
from shoal.gateway.clock import Clock, day_clock, steady_clock


def whole_day(zone: str, begins: str, minutes: int = 60) -> Clock:
    return day_clock(
        slots=24 * 60 // minutes,
        minutes=minutes,
        start=0,
        zone=zone,
        begins=date.fromisoformat(begins),
    )


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_day_follows_the_wall_clock_of_its_zone() -> None:
    clock = day_clock(slots=16, minutes=30, start=480, zone="Asia/Tokyo", begins=date(2026, 3, 4))
    assert clock.slot(0).opens == utc("2026-03-03T23:00")
    assert clock.slot(15).ends == utc("2026-03-04T07:00")
    assert clock.slot(16).opens == utc("2026-03-04T23:00")
    assert clock.slot(17) == (17, "2026-03-05", 1, utc("2026-03-04T23:30"), utc("2026-03-05T00:00"))
    assert clock.at(utc("2026-03-04T12:00")) is None
    assert clock.at(utc("2026-03-04T23:29:59")) == 16


def test_slots_that_the_clock_jumps_over_have_no_length() -> None:
    clock = whole_day("Europe/Berlin", "2026-03-29")  # 2:00 becomes 3:00
    assert clock.slot(2).opens == clock.slot(2).ends == utc("2026-03-29T01:00")
    assert clock.slot(3).opens == utc("2026-03-29T01:00")
    assert clock.at(utc("2026-03-29T01:00")) == 3
    assert clock.slot(24).opens - clock.slot(0).opens == 23 * 3600
    halves = whole_day("Europe/Berlin", "2026-03-29", 30)
    assert [halves.slot(each).opens - utc("2026-03-29T01:00") for each in (4, 5, 6)] == [0, 0, 0]


def test_the_hour_that_comes_twice_makes_a_slot_longer() -> None:
    clock = whole_day("Europe/Berlin", "2026-10-25")
    lengths = [clock.slot(each).ends - clock.slot(each).opens for each in range(24)]
    assert lengths.count(3600) == 23
    assert lengths[2] == 2 * 3600
    assert clock.at(utc("2026-10-25T01:30")) == 2  # 2:30 for the second time


@given(
    st.sampled_from(["Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.sampled_from([7, 15, 30, 60, 90]),
    st.dates(date(2020, 1, 1), date(2030, 12, 31)),
    st.floats(0, 3 * 86400),
)
def test_slots_follow_each_other_and_are_found_again(
    zone: str, minutes: int, begins: date, later: float
) -> None:
    clock = whole_day(zone, begins.isoformat(), minutes)
    slots = [clock.slot(each) for each in range(3 * clock.slots)]
    assert all(a.opens <= a.ends <= b.opens for a, b in pairwise(slots))
    instant = slots[0].opens + later
    found = clock.at(instant)
    inside = [slot.ordinal for slot in slots if slot.opens <= instant < slot.ends]
    if instant < slots[-1].ends:
        assert inside == ([] if found is None else [found])
    after = clock.after(instant)
    assert clock.slot(after).opens > instant
    assert after == 0 or clock.slot(after - 1).opens <= instant


def test_a_week_is_a_day_of_seven_dates() -> None:
    clock = day_clock(slots=7 * 24, minutes=60, start=0, zone="UTC", begins=date(2026, 3, 2))
    assert clock.slot(7 * 24).day == "2026-03-09"
    assert clock.at(utc("2026-03-08T23:30")) == 7 * 24 - 1


def test_equal_slots_know_nothing_of_zones() -> None:
    clock = steady_clock(seconds=10, slots=6, begins=1000.0)
    assert clock.slot(7).number == 1
    assert clock.slot(7).opens == 1070
    assert clock.at(1069.9) == 6
    assert clock.day_ends(7) == 12
    assert clock.slot(6).day != clock.slot(5).day


@pytest.mark.parametrize(
    ("zone", "seconds", "message"),
    [("Mars/Olympus", 10.0, "timezone is 'Mars/Olympus'"), ("UTC", 1e9, "clock.every is 1e\\+09")],
)
def test_bad_clocks_are_refused(zone: str, seconds: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        steady_clock(seconds=seconds, slots=0, begins=0.0, zone=zone)


def test_a_model_without_minutes_needs_seconds() -> None:
    with pytest.raises(InputError, match=r"give clock\.every"):
        day_clock(slots=4, minutes=0, start=0, zone="UTC", begins=date(2026, 1, 1))
