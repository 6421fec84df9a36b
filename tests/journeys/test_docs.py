"""The commands of README and documentation run exactly as printed, in order, on made-up data.

A page is listed here with what makes its reader's own files. A page with a command that is not
listed fails, so that pages and programs cannot drift apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import app_files
from tests.journeys import files, pages
from tests.journeys.shell import Shell
from tests.journeys.test_share_rides import write_person

# commands that other tests run, by what is in them: pages of browsers, services, whole test runs
ELSEWHERE = (
    r"^make ",  # .ci/run
    r"^shoal (serve|keys)\b|docker compose",  # tests/gateway
    r"^shoal studio\b",  # tests/studio/test_command.py
    r"^shoal reproduce\b",  # tests of the experiments
    r"--engine spark",  # tests/unit/test_jobs_spark.py
    r"^shoal plan --save plan\.json$",  # an option's name in a sentence
    r"^SHOAL_|^pip ",
)


def own(command: str) -> bool:
    """Whether a command is run here."""
    return not any(re.search(pattern, command) for pattern in ELSEWHERE)


def series(shell: Shell, *people: str) -> None:
    """`shoal.toml` of `shoal init`, and the days it describes."""
    shell.run("shoal init")
    files.days(shell.folder / "days.csv", *people)


def readme(shell: Shell) -> None:
    files.days(shell.folder / "shoal-demo" / "days.csv", "anna", "ben", count=1440)


def tutorial(shell: Shell) -> None:
    series(shell, "anna", "ben")


def hide_events(shell: Shell) -> None:
    folder = shell.folder
    shell.run("shoal init --kind contexts slots.toml")
    text = (folder / "slots.toml").read_text()
    quick = text.replace('mechanism = "best"', 'mechanism = "mask-simulatable"')
    data = '[data]\nstate = "context"\nseries = "user"\ntime = "time"\n\n'
    (folder / "slots.toml").write_text(data + quick)
    (folder / "clinic.toml").write_text(
        data + quick[: quick.index("[secrets]")] + '[secrets]\nkind = "events"\n\n'
        '[[secrets.event]]\nvisit = "clinic"\n\n[query]\nkind = "current"\n\n'
        "[privacy]\nbelief_delta = 0.1\n"
    )
    rows = ["user,time,context"]
    for user, clinic in (("anna", 3), ("ben", 20)):
        for slot in range(16):
            context = "clinic" if slot == clinic else "home" if slot < 2 else "work"
            rows.append(f"{user},2024-06-03 {8 + slot // 2:02d}:{slot % 2 * 3}0:00,{context}")
    (folder / "days.csv").write_text("\n".join(rows) + "\n")
    import polars as pl

    (folder / "in").mkdir()
    pl.read_csv(folder / "days.csv").write_parquet(folder / "in" / "june.parquet")


def protect_a_person(shell: Shell) -> None:
    """The spec that the page prints, and a day of three people."""
    page = pages.page("docs/how-to/protect-a-person.md")
    (spec,) = [block for language, block in pages.FENCE.findall(page) if language == "toml"]
    (shell.folder / "person.toml").write_text(spec)
    files.days(shell.folder / "days.csv", "anna", "ben", "cleo", count=1440)


def tables_of_steps(shell: Shell) -> None:
    """The spec that the page prints, and a day of three people."""
    page = pages.page("docs/how-to/tables-of-steps.md")
    (spec,) = [block for language, block in pages.FENCE.findall(page) if language == "toml"]
    (shell.folder / "steps.toml").write_text(spec)
    files.days(shell.folder / "days.csv", "anna", "ben", "cleo", count=1440)


def running_totals(shell: Shell) -> None:
    """The spec that the page prints, and two days of somebody."""
    page = pages.page("docs/how-to/running-totals.md")
    (spec,) = [block for language, block in pages.FENCE.findall(page) if language == "toml"]
    (shell.folder / "totals.toml").write_text(spec)
    files.lines(shell.folder / "in.jsonl", "state", *(["away", "home", "home"] * 32))


def made_up_series(shell: Shell) -> None:
    """The spec that the page prints, and a day of three people."""
    page = pages.page("docs/how-to/made-up-series.md")
    (spec,) = [block for language, block in pages.FENCE.findall(page) if language == "toml"]
    (shell.folder / "steps.toml").write_text(spec)
    files.days(shell.folder / "days.csv", "anna", "ben", "cleo", count=1440)


def contexts(shell: Shell) -> None:
    shell.run("shoal init --kind contexts mask.toml")
    text = (shell.folder / "mask.toml").read_text()
    quick = text.replace('mechanism = "best"', 'mechanism = "mask-simulatable"')
    (shell.folder / "mask.toml").write_text(quick)
    files.contexts_day(shell.folder / "contexts.jsonl")


def fitting(shell: Shell) -> None:
    """Weeks of a phone, which lies still at night."""
    files.phone(shell.folder / "phone.csv")


def location(shell: Shell) -> None:
    folder = shell.folder
    shell.run("shoal init --kind location town.toml")
    files.positions(folder / "in.jsonl", (52.51, 13.39), (52.512, 13.391))
    for name in ("tracks.csv", "track.csv", "walk.gpx", "ride.gpx"):
        files.tracks(folder / name, "anna", hours=1)
    files.points(folder)
    table = (folder / "town.toml").read_text()
    (folder / "plain.toml").write_text(table)
    (folder / "watched.toml").write_text(
        table.replace("[query]", WATCHED) + "event_epsilon = 1.0\n"
    )
    shell.run("shoal plan town.toml --save plan.json")


WATCHED = """\
slots = 60
slot_minutes = 1
places = { home = [52.51, 13.37] }

[[secrets.event]]
visit = "within 300 m of home"

[query]"""


def attacks(shell: Shell) -> None:
    folder = shell.folder
    series(shell, "anna", "ben")
    files.model_of(folder / "shoal.toml", folder / "other.json")
    files.tracks(folder / "tracks.csv", "anna", "ben", hours=1)
    fit = "shoal fit tracks.csv --grid 0.5 --lat lat --lon lon --series user --time t"
    shell.run(f"{fit} -o town.json --spec town.toml")
    shell.run(f"{fit} -o anna.json --personal anna")
    files.town(folder)


def audits(shell: Shell) -> None:
    shell.run("shoal init")
    text = (shell.folder / "shoal.toml").read_text()
    short = text.replace("length = 1440 ", "length = 24 ").replace("histogram", "count")
    (shell.folder / "shoal.toml").write_text(short.replace("relative = true", 'states = ["walk"]'))
    shell.run("shoal plan shoal.toml --save plan.json")
    (shell.folder / "mymodule.py").write_text(BLACK_BOX)


BLACK_BOX = '''\
import random


def release(minutes):
    """How often somebody walks, with noise that is meant to be enough."""
    return minutes.count("walk") + random.gauss(0, 30)
'''


def accounts(shell: Shell) -> None:
    series(shell, "user-17")
    contexts(shell)


def scale(shell: Shell) -> None:
    series(shell, "anna", "ben")
    files.days_on_a_map(shell.folder / "in" / "june.parquet", "anna", "ben")
    files.tracks(shell.folder / "past" / "may.parquet", "anna", "ben")


def app_files_here(shell: Shell) -> None:
    """A ride and a meter of somebody."""
    files.tracks(shell.folder / "ride.gpx", "anna")
    (shell.folder / "meter.xml").write_text(app_files.green_button())


def command_line(shell: Shell) -> None:
    """Rides of somebody, and contexts of two people under one plan."""
    write_person(shell.folder)
    contexts(shell)
    shell.run("shoal plan mask.toml --save plan.json")
    lines = [
        json.dumps({"user": user, "day": "2024-06-03", "slot": slot, "context": "home"})
        for slot in range(2)
        for user in ("anna", "ben")
    ]
    (shell.folder / "everybody.jsonl").write_text("\n".join(lines) + "\n")


READY: dict[str, Callable[[Shell], None]] = {
    "README.md": readme,
    "docs/tutorial.md": tutorial,
    "docs/how-to/hide-events.md": hide_events,
    "docs/how-to/use-your-files.md": app_files_here,
    "docs/how-to/protect-a-person.md": protect_a_person,
    "docs/how-to/tables-of-steps.md": tables_of_steps,
    "docs/how-to/running-totals.md": running_totals,
    "docs/how-to/made-up-series.md": made_up_series,
    "docs/how-to/share-rides.md": lambda shell: write_person(shell.folder),
    "docs/context-streams.md": contexts,
    "docs/fitting.md": fitting,
    "docs/location.md": location,
    "docs/attacks.md": attacks,
    "docs/audit.md": audits,
    "docs/audit-other-software.md": audits,
    "docs/ledger.md": accounts,
    "docs/scale.md": scale,
    "docs/command-line.md": command_line,
    "docs/gateway.md": fitting,
}
AUDITED = "shoal audit shoal.toml --scale 2"  # noise that is not enough: exit code 1 says so
SLOW = ("docs/audit-other-software.md",)  # the same commands as in docs/audit.md, and a chart


def printed(name: str) -> list[str]:
    """The commands of a page that are run here; the overview of all commands is not among them."""
    lines = [*pages.commands(name), *pages.spans(name)]
    if name == "docs/command-line.md":
        lines = pages.spans(name)
    return [line for line in lines if own(line) and not pages.synopsis(line)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in READY]
)
def test_the_commands_of_a_page_run_as_printed(shell: Shell, name: str) -> None:
    READY[name](shell)
    ran = printed(name)
    assert ran, name
    for command in ran:
        shell.follow(shell.run(as_advised(shell, command), violated=AUDITED in command))


HOURS = r"with (--hours \d\d:\d\d-\d\d:\d\d)$"


def as_advised(shell: Shell, command: str) -> str:
    """The command; a phone that lies still at night needs the hours that a refusal names."""
    if "phone.csv" not in command:
        return command
    named = re.search(HOURS, shell.refused(command, HOURS).err.strip())
    assert named is not None
    return f"{command} {named[1]}"


def test_no_page_prints_a_command_that_nothing_runs() -> None:
    everywhere = [*pages.ROOT.glob("docs/**/*.md"), pages.ROOT / "README.md"]
    names = [path.relative_to(pages.ROOT).as_posix() for path in everywhere]
    found = {name for name in names if not re.search("_build|/adr/", name) and printed(name)}
    assert found == set(READY)


STANDS_FOR = {
    "KIND": "series",
    "SPEC": "shoal.toml",
    "DATA": "days.csv",
    "OUT": "out.json",
    "COLUMN": "activity",
    "MODEL": "model.json",
    "RELEASE": "steps.json",
    "TRACK": "shared.csv",
    "POIS": "pois.csv",
}


STEPS_QUERY = '[query]\nkind = "transitions"\n\n'


def released(path: Path) -> None:
    """One step of a released track."""
    path.write_text(
        "user,part,step,z_lat,z_lon,estimate_lat,estimate_lon\nanna,0,0,52.5,13,52,13\n"
    )


def overview() -> list[str]:
    """The commands of docs/command-line.md's first block, without what they are for."""
    return [re.split(r"\s{2,}", line)[0] for line in pages.commands("docs/command-line.md")]


def test_the_overview_of_commands_runs_with_files_for_its_words(shell: Shell) -> None:
    shell.run("shoal init")
    files.days(shell.folder / "days.csv", "anna")
    shell.run("shoal init --kind contexts mask.toml")
    files.points(shell.folder)
    released(shell.folder / "shared.csv")
    steps = (shell.folder / "shoal.toml").read_text()
    steps = re.sub(r"\[query\].*?(?=\[privacy\])", STEPS_QUERY, steps, flags=re.DOTALL)
    (shell.folder / "steps.toml").write_text(steps)
    shell.run("shoal release steps.toml days.csv -o steps.json")
    (shell.folder / "in.jsonl").write_text('{"context": "home"}\n')
    ran = 0
    for line in overview():
        if not own(line) or "…" in line or "|" in line:
            continue
        command = re.sub(r"\b[A-Z]{3,}\b", lambda word: STANDS_FOR[word[0]], line)
        if command.startswith("shoal stream"):
            command = command.replace("shoal.toml", "mask.toml")
        if command.startswith("shoal synthesize"):
            command = command.replace("shoal.toml", "steps.toml").replace("out.json", "made.csv")
        if command.startswith("shoal init"):
            command += " --force"
        shell.run(command)
        ran += 1
    assert ran >= 12


def test_the_overview_has_every_command_and_no_other() -> None:
    from shoal.cli.app import COMMANDS

    assert {line.split()[1] for line in overview()} == set(COMMANDS)


def test_a_spec_that_is_missing_is_written_as_its_refusal_says(shell: Shell) -> None:
    refused = shell.refused("shoal plan mine.toml", "check the path, or write one with")
    (advised,) = pages.next_steps(refused.err)
    assert shell.follow(shell.run(advised))
    shell.run("shoal plan mine.toml")


def test_a_page_with_a_wrong_command_would_be_found(shell: Shell) -> None:
    """The control: the harness sees a command that fails."""
    with pytest.raises(AssertionError, match="nothing-like-it"):
        shell.run("shoal plan nothing-like-it.toml")
