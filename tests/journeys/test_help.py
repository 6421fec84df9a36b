"""The examples in every command's help run as printed, each in a folder of its own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import typer
from typer.core import TyperGroup

from shoal.cli import app
from shoal.data.generate import power_table
from tests import app_files
from tests.journeys import files
from tests.journeys.shell import Shell
from tests.journeys.test_docs import (
    READY,
    attacks,
    audits,
    hide_events,
    made_up_series,
    own,
    printed,
    scale,
)

EXAMPLE = re.compile(r"^  ((?:shoal|SHOAL_\w+=\S+ shoal|tail) .+?)(?:\s{3,}.*)?$", re.MULTILINE)
ENDLESS = "tail -f"


def examples(command: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Every example of a command and of those below it, with the command's name."""
    for line in EXAMPLE.findall(str(getattr(command, "epilog", "") or "")):
        yield name, line
    if isinstance(command, TyperGroup):
        context = typer.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            yield from examples(found, f"{name} {below}".strip())


def all_examples() -> dict[str, list[str]]:
    """Command to the examples of its help that neither a page nor another test runs."""
    on_pages = {line.partition("#")[0].strip() for page in READY for line in printed(page)}
    made: dict[str, list[str]] = {}
    for name, line in examples(typer.main.get_command(app)):
        if own(line) and ENDLESS not in line and line not in on_pages:
            made.setdefault(name.split(" ")[0] or "shoal", []).append(line)
    return made


def series(shell: Shell) -> None:
    """`shoal.toml` with its days as CSV and Parquet, and a plan."""
    shell.run("shoal init")
    files.days(shell.folder / "days.csv", "anna", "ben")
    files.days(shell.folder / "june.csv", "anna", "ben")
    files.days(shell.folder / "days.parquet", "anna", "ben")


def anybody(shell: Shell) -> None:
    """The days of one person, whom a ledger charges."""
    series(shell)
    files.days(shell.folder / "days.csv", "anna")


def releases(shell: Shell) -> None:
    series(shell)
    shell.run("shoal plan shoal.toml --save plan.json")


def attacked(shell: Shell) -> None:
    attacks(shell)
    files.days(shell.folder / "days.csv", "p1", "p2")


def fits(shell: Shell) -> None:
    series(shell)
    raw = power_table(days=2).select("time", "watts")
    raw.with_columns(
        watts=pl.when(pl.int_range(pl.len()) % 97 != 0).then("watts"),
    ).write_csv(shell.folder / "raw.csv")
    files.tracks(shell.folder / "tracks.csv", "anna")
    files.tracks(shell.folder / "ride.gpx", "anna")
    files.points(shell.folder)
    (shell.folder / "meter.xml").write_text(app_files.green_button())
    phone = shell.folder / "phone.csv"
    files.phone(phone)
    night = "phone-1,2024-03-04 00:00:00,2024-03-04 00:00:00,home\n"
    phone.write_text(phone.read_text() + night)


def read(shell: Shell) -> None:
    fits(shell)
    shell.run("shoal fit ride.gpx -o town.json --grid 0.5")


def nearest(shell: Shell) -> None:
    files.tracks(shell.folder / "ride.gpx", "anna")
    files.points(shell.folder)
    shell.run("shoal fit ride.gpx -o town.json --grid 0.5 --spec town.toml")
    shell.run("shoal release town.toml ride.gpx -o shared.geojson")


def checked(shell: Shell) -> None:
    series(shell)
    columns = "--state activity --series person --time minute"
    shell.run(f"shoal fit days.csv -o model.json {columns}")


def budgets(shell: Shell) -> None:
    shell.run("shoal init power.toml")
    files.days(shell.folder / "days.csv", "house")
    release = "shoal release power.toml days.csv -o r.json --ledger budget.db"
    shell.run(release)


def streams(shell: Shell) -> None:
    hide_events(shell)
    shutil.move(shell.folder / "slots.toml", shell.folder / "mask.toml")
    times = (f"2024-03-04T{hour:02d}:00" for hour in (8, 9, 10))
    files.lines(shell.folder / "timed.jsonl", "time", *times)
    text = (shell.folder / "timed.jsonl").read_text()
    (shell.folder / "timed.jsonl").write_text(text.replace("}", ', "context": "home"}'))
    files.contexts_day(shell.folder / "contexts.jsonl")


def audited(shell: Shell) -> None:
    audits(shell)
    text = (shell.folder / "shoal.toml").read_text()
    model, rest = text.split("[secrets]")
    asked = rest[rest.index("[query]") :]
    events = 'kind = "events"\n\n[[secrets.event]]\nvisit = "walk"\n\n'
    (shell.folder / "clinic.toml").write_text(f"{model}[secrets]\n{events}{asked}")


def jobs(shell: Shell) -> None:
    scale(shell)


FILES: dict[str, Callable[[Shell], None]] = {
    "shoal": anybody,
    "demo": lambda shell: None,
    "init": series,
    "leak": series,
    "plan": series,
    "release": releases,
    "synthesize": made_up_series,
    "audit": audited,
    "attack": attacked,
    "stream": streams,
    "read": read,
    "nearest": nearest,
    "fit": fits,
    "check": checked,
    "budget": budgets,
    "ledger": anybody,
    "job": jobs,
}
SLOW = ("demo", "audit", "attack")  # pages run the like; a black box takes 50,000 draws


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in all_examples()],
)
def test_the_examples_of_a_help_run(shell: Shell, name: str) -> None:
    FILES[name](shell)
    start = shell.folder
    for number, command in enumerate(all_examples()[name]):
        if name not in ("ledger", "job"):  # whose examples follow one another
            shell.folder = Path(f"{start}-{number}")
            shutil.copytree(start, shell.folder)
        if command.startswith("shoal init"):
            (shell.folder / "shoal.toml").unlink(missing_ok=True)
        shell.run(command, violated="--scale 2" in command)


def test_every_command_with_files_has_examples() -> None:
    from shoal.cli.app import COMMANDS

    with_examples = {name.split(" ")[0] for name, _ in examples(typer.main.get_command(app))}
    assert set(COMMANDS) - with_examples == set()
    assert set(all_examples()) <= set(FILES)
