"""`shoal fit --slot`: from timed contexts to a day chain, and on to a stream."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

from shoal.contexts.day import DayChain, fit_day
from shoal.core.registry import loads
from shoal.noise.primitives import SeededRng
from tests.cli.conftest import Run

MONDAY = datetime(2024, 3, 4)
NAMES = ("--state", "place", "--time", "when", "--series", "who")
LAW = DayChain.of(
    [[0.8, 0.18, 0.02], [0.2, 0.75, 0.05], [0.3, 0.1, 0.6]],
    initial=[0.6, 0.3, 0.1],
    states=("clinic", "home", "work"),
    slots=6,
)


def told(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


@pytest.fixture
def traces(folder: Path) -> list[list[str | None]]:
    """The days of two people in phone.csv, with a slot left out and one written twice."""
    days = [[LAW.states[x] for x in LAW.sample(SeededRng(seed))] for seed in range(12)]
    lines = ["when,place,who"]
    kept: list[list[str | None]] = []
    for number, day in enumerate(days):
        kept.append([*day[:2], None, *day[3:]] if number == 5 else [*day])
        for slot, place in enumerate(day):
            if kept[-1][slot] is None:
                continue
            begin = MONDAY + timedelta(days=number // 2, hours=9 + 2 * slot)
            lines.append(f"{begin + timedelta(minutes=7)},{place},p{number % 2}")
            if number == 3:
                lines.append(f"{begin + timedelta(minutes=70)},work,p1")
    lines.append(f"{MONDAY + timedelta(hours=23)},home,p0")
    (folder / "phone.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")
    return kept


def test_a_day_is_what_its_slots_hold(
    run: Run, folder: Path, traces: list[list[str | None]]
) -> None:
    fit = ("fit", "phone.csv", "-o", "day.json", *NAMES, "--slot", "2h", "--hours", "9:00-21:00")
    result = run(*fit, "--json", "--spread", "1", "--smoothing", "0.5")
    assert result.exit_code == 0, result.output
    stored = loads((folder / "day.json").read_text())
    assert isinstance(stored, DayChain)
    wanted = fit_day(traces, smoothing=0.5, spread=1, slot_minutes=120, start_minute=540)
    assert (stored.states, stored.clock(0)) == (wanted.states, "09:00")
    assert np.allclose(stored.transition, wanted.transition, rtol=1e-12, atol=0)
    assert np.allclose(stored.initial, wanted.initial, rtol=1e-12, atol=0)
    found = json.loads(result.stdout)
    assert {name: found[name] for name in ("days", "slots", "slots_missing")} == {
        "days": 12,
        "slots": 6,
        "slots_missing": 1,
    }
    assert (found["rows_outside"], found["rows_further"], found["private"]) == (1, 6, False)


def test_a_fitted_day_goes_into_a_spec(
    run: Run, folder: Path, traces: list[list[str | None]]
) -> None:
    shown = run(
        "fit", "phone.csv", "-o", "day.json", *NAMES, "--slot", "2h", "--hours", "9:00-21:00"
    ).stdout
    assert "1 of 72 slots have no reading" in shown
    assert 'file = "day.json"' in shown
    (folder / "mask.toml").write_text(
        '[[model]]\nfile = "day.json"\n[secrets]\nkind = "contexts"\nsensitive = ["clinic"]\n'
        '[query]\nkind = "current"\n[privacy]\nbelief_delta = 0.3\nmechanism = "mask-adaptive"\n'
    )
    plan = json.loads(run("plan", "mask.toml", "--json").stdout)
    assert plan["loss"] <= 0.3 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--slot", "7min"), "--slot is '7min', which does not divide the 1440 minutes"),
        (("--slot", "90s"), "--slot is '90s'; it must be whole minutes"),
        (("--slot", "soon"), "--slot is 'soon'; it must be a length of time"),
        (("--slot", "1h", "--hours", "9-17"), "--hours is '9-17'; it must be two times of a day"),
        (("--slot", "1h", "--hours", "17:00-9:00"), "--hours is '17:00-9:00'; it must be two"),
        (("--slot", "1h", "--hours", "9:60-11:00"), "--hours is '9:60-11:00'; it must be two"),
        (("--slot", "1h", "--hours", "9:00-10:00"), "--slot is '1h', which does not divide the 60"),
        (("--slot", "1h", "--hours", "1:00-3:00"), "no row lies in the hours of the day (--hours)"),
        (("--slot", "1h", "--hours", "8:00-21:00"), "no day has a reading in its first slot"),
        (("--slot", "1h", "--gap", "9h"), "--gap does not go with --slot"),
        (("--slot", "1h", "--group", "who"), "--group and --length do not go with --slot"),
        (("--hours", "9:00-21:00"), "--hours is for days; name --slot too, or drop it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_days_that_cannot_be_are_told(
    run: Run,
    folder: Path,
    traces: list[list[str | None]],
    options: tuple[str, ...],
    sentence: str,
) -> None:
    result = run("fit", "phone.csv", "-o", "day.json", *NAMES, *options)
    assert told(result).startswith(f"Error: {sentence}")
    assert not (folder / "day.json").exists()


def test_a_day_needs_contexts_and_times(run: Run, folder: Path) -> None:
    assert "name --state and --time" in told(
        run("fit", "days.csv", "-o", "day.json", "--slot", "1h", "--state", "activity")
    )


def test_days_that_follow_each_other_are_attacked_by_the_clock(
    run: Run, folder: Path, traces: list[list[str | None]]
) -> None:
    fit = ("fit", "phone.csv", "-o", "day.json", *NAMES, "--slot", "2h", "--hours", "9:00-21:00")
    assert run(*fit).exit_code == 0
    (folder / "mask.toml").write_text(
        '[[model]]\nfile = "day.json"\n[secrets]\nkind = "contexts"\nsensitive = ["clinic"]\n'
        '[query]\nkind = "current"\n'
        '[privacy]\nbelief_delta = 0.3\nmechanism = "mask-adaptive"\n'
    )
    attack = ("attack", "mask.toml", "phone.csv", *NAMES, "--json")
    for person in (0, 1):
        found = json.loads(run(*attack, "--who", f"p{person}").stdout)
        own = [day for day in traces[person::2] if None not in day]
        wanted = next((day for day in own if "clinic" in day), own[0])
        assert found["truth"] == wanted
        assert found["slots"][0] == "09:00"
    assert "The chart is in day.png" in run(*attack[:-1], "--plot", "day.png").stdout
    assert "--who is 'zed'; it must be one of p" in told(run(*attack, "--who", "zed"))


@pytest.mark.usefixtures("traces")
def test_a_day_brings_a_spec_that_runs(run: Run, folder: Path) -> None:
    """From timed rows to a plan without opening an editor; the rarest context is hidden."""
    fit = ("fit", "phone.csv", "-o", "day.json", *NAMES, "--slot", "2h", "--hours", "9:00-21:00")
    result = run(*fit, "--spec", "mask.toml")
    assert result.exit_code == 0, result.output
    chain = loads((folder / "day.json").read_text())
    rarest = chain.states[int(chain.marginals().sum(axis=0).argmin())]
    assert f"It hides {rarest!r}, the rarest context" in result.output
    plan = run("plan", "mask.toml", "--json")
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.stdout)["guarantee"]["proved"]
    attack = run("attack", "mask.toml", "phone.csv", "--json")  # the spec names the columns
    assert attack.exit_code == 0, attack.output
    assert "exists" in told(run(*fit, "--spec", "mask.toml"))
