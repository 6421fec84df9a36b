"""A year of a meter and a ward of wearables: two commands each, from the file to the release."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import shoal
from tests.journeys.shell import Shell

BERLIN = ZoneInfo("Europe/Berlin")
SHORT, LONG = "2023-W12", "2023-W43"  # the weeks in which clocks go forward, and back
QUARTERS = {SHORT: 7 * 96 - 4, LONG: 7 * 96 + 4}


def year() -> list[tuple[datetime, int]]:
    """Quarter hours of 2023 as a meter in Berlin counts them: time in UTC, and Wh."""
    draw, level = random.Random(1), 100.0
    moment, end = (datetime(when, 1, 1, tzinfo=BERLIN).astimezone(UTC) for when in (2023, 2024))
    rows = []
    while moment < end:
        evening = 17 <= moment.astimezone(BERLIN).hour < 22
        level = 0.8 * level + 0.2 * (250 if evening else 80) * draw.lognormvariate(0, 0.5)
        rows.append((moment, int(level)))
        moment += timedelta(minutes=15)
    return rows


def green_button(path: Path) -> None:
    readings = "".join(
        f"<IntervalReading><timePeriod><duration>900</duration><start>{int(when.timestamp())}"
        f"</start></timePeriod><value>{value}</value></IntervalReading>"
        for when, value in year()
    )
    path.write_text(
        '<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><entry><content>'
        '<ReadingType xmlns="http://naesb.org/espi"><powerOfTenMultiplier>0</powerOfTenMultiplier>'
        "<uom>72</uom></ReadingType></content></entry><entry><content><IntervalBlock "
        f'xmlns="http://naesb.org/espi">{readings}</IntervalBlock></content></entry></feed>'
    )


def wall_clock(path: Path) -> None:
    """The same as a table whose times say no zone: an hour of October is there twice."""
    lines = (
        f"{when.astimezone(BERLIN).replace(tzinfo=None).isoformat(sep=' ')},{value}"
        for when, value in year()
    )
    path.write_text("\n".join(["time,wh", *lines, ""]))


@pytest.mark.parametrize(
    ("name", "write", "columns"),
    [
        ("meter.xml", green_button, ""),
        ("meter.csv", wall_clock, "--state wh --time time"),
    ],
)
def test_a_year_of_a_meter_is_released_week_by_week(
    shell: Shell, name: str, write: object, columns: str
) -> None:
    write(shell.folder / name)  # type: ignore[operator]
    said = " ".join(shell.run(f"shoal read {name}").out.split())
    if name == "meter.csv":
        assert "clocks were set back then. Say their zone with --tz" in said
    fit = f"shoal fit {name} -o m.json {columns} --range 0,800 --tz Europe/Berlin --spec m.toml"
    shell.run(fit)
    said = " ".join(
        shell.run(f"shoal release m.toml {name} -o weeks.json --every week").out.split()
    )
    assert "all parts of a series promise epsilon = 1 about any entry of it" in said
    released = json.loads((shell.folder / "weeks.json").read_text())["releases"]
    assert len(released) == 53
    for week, quarters in QUARTERS.items():
        values = released[f"meter {week}"]["values"].values()
        # noise of 53 weeks stays far below a thousand quarter hours
        assert sum(values) == pytest.approx(quarters, abs=1000)
    plain = json.loads(
        shell.run(f"shoal release m.toml {name} -o y.json --seed 1 --json").out
    )["releases"]  # fmt: skip
    assert len(plain) == 1


def test_the_weeks_of_a_change_of_clocks_have_their_own_lengths(shell: Shell) -> None:
    green_button(shell.folder / "meter.xml")
    wall_clock(shell.folder / "meter.csv")
    raw = {"bins": "100,200", "tz": "Europe/Berlin", "every": "week"}
    for name, columns in (("meter.xml", {}), ("meter.csv", {"state": "wh", "time": "time"})):
        found = shoal.read(shell.folder / name, **columns, **raw)
        lengths = dict(zip(found.names, map(len, found.sequences().chains), strict=True))
        for week, quarters in QUARTERS.items():
            assert lengths[f"meter {week}"] == quarters
        others = [count for week, count in lengths.items() if week[6:] not in QUARTERS]
        assert set(others) == {672, 96}  # whole weeks, and the Sunday that begins the year


def test_a_ward_of_wearables_is_released_for_each_patient(shell: Shell) -> None:
    draw, begin = random.Random(2), datetime(2023, 3, 24, tzinfo=UTC)
    stay = {
        "lying": (0.97, 0.02, 0.01),
        "sitting": (0.03, 0.95, 0.02),
        "walking": (0.02, 0.08, 0.9),
    }
    lines = ["patient,time,posture"]
    for patient in range(12):
        posture = "lying"
        for minute in range(3 * 1440):
            (posture,) = draw.choices(list(stay), stay[posture])
            lines.append(f"p{patient},{(begin + timedelta(minutes=minute)).isoformat()},{posture}")
    (shell.folder / "ward.csv").write_text("\n".join([*lines, ""]))
    steps = shell.follow(shell.run("shoal read ward.csv"))
    assert [step.split()[1] for step in steps] == ["fit"]
    said = " ".join(shell.run("shoal release ward.toml ward.csv -o ward.json").out.split())
    assert "12 release(s)" in said
    released = json.loads((shell.folder / "ward.json").read_text())["releases"]
    assert set(released) == {f"p{patient}" for patient in range(12)}
    together = shell.run("shoal release ward.toml ward.csv -o all.json --together").out
    assert "1 release(s)" in together
