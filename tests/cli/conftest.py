"""A folder with a spec and data that work, and a way to run a command inside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app

SPEC = """\
[data]
state = "activity"
series = "person"
time = "minute"
gap = "10min"

[[model]]
kind = "markov-chain"
states = ["sit", "walk"]
transition = [[0.9, 0.1], [0.4, 0.6]]
initial = "stationary"
length = 30

[secrets]
kind = "each-entry"

[query]
kind = "count"
states = ["walk"]

[privacy]
epsilon = 1.0
mechanism = "group"
"""
PATTERN = ("sit", "sit", "walk", "sit", "walk", "walk")

Run = Callable[..., Result]


def csv_of(people: int = 2, minutes: int = 20) -> str:
    """Rows of a data file: minutes as times of a day."""
    lines = ["person,minute,activity,shift"]
    for person in range(people):
        for minute in range(minutes):
            state = PATTERN[(minute + person) % len(PATTERN)]
            time = f"2024-01-01 08:{minute:02d}:00"
            lines.append(f"p{person},{time},{state},{'day' if person % 2 else 'night'}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with spec.toml and days.csv."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "days.csv").write_text(csv_of())
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs `shoal ARGUMENTS…` in the folder."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return call


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
