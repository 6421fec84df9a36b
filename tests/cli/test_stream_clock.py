"""Days of `shoal stream`: by times instead of slots, and never begun twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app
from tests.specs import CONTEXTS, PLACES

HOURS = "slots = 4\nslot_minutes = 60\nstart_minute = 540"


@pytest.fixture
def spec(folder: Path) -> Path:
    """A day from 9:00 to 13:00 in hours."""
    text = CONTEXTS.format(slots=4).replace("slots = 4", HOURS)
    (folder / "mask.toml").write_text(text)
    return folder


def streamed(lines: list[dict[str, Any]], *options: str) -> Result:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return CliRunner().invoke(app, ["stream", "mask.toml", "--seed", "5", *options], input=text)


def answers(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_times_stand_for_days_and_slots(spec: Path) -> None:
    at = ["2024-03-04T09:10", "2024-03-04T11:59:59", "2024-03-05 09:00", "2024-03-05T13:30+01:00"]
    slots = [("2024-03-04", 0), ("2024-03-04", 2), ("2024-03-05", 0), ("2024-03-05", 3)]
    clocked = answers(streamed([{"t": time, "context": "home"} for time in at], "--clock", "t"))
    named = answers(
        streamed([{"day": day, "slot": slot, "context": "home"} for day, slot in slots])
    )
    assert clocked == named
    assert [(line["day"], line["slot"]) for line in clocked] == slots


def test_nothing_is_shown_at_other_hours_and_the_day_goes_on(spec: Path) -> None:
    lines = [{"t": f"2024-03-04T{hour}", "context": "home"} for hour in ("08:59", "09:00", "13:00")]
    found = answers(streamed(lines, "--clock", "t"))
    nothing = {"day": "2024-03-04", "slot": None, "shown": None}
    assert [found[0], found[2]] == [nothing, nothing]
    assert found[1]["slot"] == 0


def test_a_repeated_time_gives_the_same_answer(spec: Path) -> None:
    lines = [{"t": "2024-03-04T10:00", "context": c} for c in ("home", "clinic", "work")]
    assert len({json.dumps(line) for line in answers(streamed(lines, "--clock", "t"))}) == 1


@pytest.mark.parametrize("time", [None, 36, "soon", "9:00"])
def test_a_line_without_a_time_is_refused(spec: Path, time: object) -> None:
    result = streamed([{"t": time, "context": "home"}], "--clock", "t", "--strict")
    assert result.exit_code == 2
    assert f"line 1: t is {time!r}; it must be a time such as" in result.stderr


def test_a_clock_needs_slots_with_a_length(spec: Path) -> None:
    (spec / "mask.toml").write_text(CONTEXTS.format(slots=4))
    result = streamed([], "--clock", "t")
    assert result.exit_code == 2
    assert "--clock needs a model whose slots have a length" in result.stderr
    (spec / "mask.toml").write_text(PLACES.format(side=3))
    assert "--clock is for the contexts of a day" in streamed([], "--clock", "t").stderr


@pytest.mark.parametrize(
    "days", [("a", "b", "a"), ("2024-03-05", "2024-03-04"), ("", "a", "")], ids=" ".join
)
def test_a_day_that_was_left_is_not_drawn_again(spec: Path, days: tuple[str, ...]) -> None:
    lines = [{"day": day, "slot": 1, "context": "home"} for day in days]
    result = streamed(lines, "--strict")
    assert result.exit_code == 2
    assert len(result.stdout.splitlines()) == len(days) - 1
    assert (
        f"line {len(days)}: day is {days[-1]!r}, which does not come after {days[-2]!r}"
        in result.stderr
    )


def test_a_stored_stream_does_not_go_back_to_an_earlier_date(spec: Path) -> None:
    def at(time: str) -> Result:
        return streamed([{"t": time, "context": "home"}], "--clock", "t", "--state", "s.json")

    assert at("2024-03-05T09:00").exit_code == 0
    assert (
        "day is '2024-03-04', which does not come after '2024-03-05'"
        in at("2024-03-04T09:00").stderr
    )
    assert at("2024-03-06T09:00").exit_code == 0
