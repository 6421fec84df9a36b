"""Lengths of time as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from shoal.core.errors import InputError
from shoal.data.times import parse_duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", timedelta(seconds=90)),
        ("10min", timedelta(minutes=10)),
        ("1h", timedelta(hours=1)),
        ("1d", timedelta(days=1)),
        ("2w", timedelta(weeks=2)),
        ("250ms", timedelta(milliseconds=250)),
        ("0.1s", timedelta(microseconds=100_000)),
        ("1.5h", timedelta(minutes=90)),
        ("1h30min", timedelta(minutes=90)),
        (" 1 h 30 min ", timedelta(minutes=90)),
    ],
)
def test_lengths_people_write(text: str, expected: timedelta) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "10", "min", "-5min", "0s", "10 minutes", "10m", "1h x", "1e3s", "0.0001ms", "1h,5min"],
)
def test_other_text_is_refused_with_the_units(text: str) -> None:
    with pytest.raises(InputError, match=r"^gap is .*units: ms, s, min, h, d, w\)$"):
        parse_duration(text)


def test_the_refusal_names_the_field() -> None:
    with pytest.raises(InputError, match=r"^data\.gap is '7 moons'"):
        parse_duration("7 moons", "data.gap")


def test_a_length_beyond_the_calendar_is_refused() -> None:
    with pytest.raises(InputError, match="thousand million days"):
        parse_duration("99999999999d")
