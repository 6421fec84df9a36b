"""`shoal release --by` and `shoal job`: jobs from the command line, and what stops them."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from shoal.jobs import local
from shoal.ledger import open_ledger
from tests.cli.conftest import SPEC, Run, csv_of

WEEK = ("week.toml", "days.csv", "-o", "out", "--by", "person")


@pytest.fixture(autouse=True)
def lake(folder: Path) -> None:
    """Six people in two files, and a spec of its own name."""
    (folder / "week.toml").write_text(SPEC)
    lines = csv_of(people=6).splitlines(keepends=True)
    (folder / "in").mkdir()
    (folder / "in" / "a.csv").write_text("".join(lines[:70]))
    (folder / "in" / "b.csv").write_text("".join([lines[0], *lines[70:]]))


def table(folder: Path) -> pl.DataFrame:
    return pl.read_parquet(folder / "out" / "**" / "*.parquet").sort("subject")


def test_a_job_releases_everybody_from_all_files(folder: Path, run: Run) -> None:
    done = run("release", "week.toml", "in/*.csv", "-o", "out", "--by", "person", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert (report["subjects"], report["releases"], report["rows"]) == (6, 6, 120)
    assert report["finished"]
    assert table(folder)["subject"].to_list() == [f"p{number}" for number in range(6)]


def test_the_text_says_what_came_of_it(folder: Path, run: Run) -> None:
    lines = csv_of(people=2).splitlines(keepends=True)
    (folder / "days.csv").write_text("".join([*lines, lines[1]]))
    done = run("release", *WEEK)
    assert done.exit_code == 0, done.output
    assert "1 release(s)" in done.stdout
    assert "41 read: 20 released, 21 refused, 0 of no subject" in done.stdout
    assert "two rows at the same time" in done.stdout
    assert "group 1" in done.stdout


def test_a_job_that_releases_nothing_does_not_end_well(folder: Path, run: Run) -> None:
    lines = csv_of(people=1).splitlines(keepends=True)
    (folder / "days.csv").write_text("".join([*lines, lines[1]]))
    done = run("release", *WEEK)
    assert done.exit_code == 2
    assert "21 refused" in done.stdout
    assert "nothing was released: " in done.stderr
    assert "two rows at the same time" in done.stderr


def test_status_and_resume(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(local, "read_all", lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("release", *WEEK).exit_code != 0
    waiting = run("job", "status", "out", "--json")
    assert json.loads(waiting.stdout)["finished"] is False
    assert "go on with `shoal job resume`" in run("job", "status", "out").stdout
    again = run("job", "resume", "out", "--json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["releases"] == 2
    assert "finished" in run("job", "status", "out").stdout


def test_a_key_brings_the_stored_values_back(folder: Path, run: Run) -> None:
    for out in ("o1", "o2"):
        rest = ("--ledger", "budget.db", "--key", "monday", "--requester", "anna")
        done = run("release", "week.toml", "in", "-o", out, "--by", "person", *rest)
        assert done.exit_code == 0, done.output
    one, two = (pl.read_parquet(folder / out / "*.parquet") for out in ("o1", "o2"))
    assert one.equals(two)
    with open_ledger(folder / "budget.db") as ledger:
        assert ledger.verify().charges == 6
        assert {entry.requester for entry in ledger.charges()} == {"anna"}


def test_a_plan_per_group(folder: Path, run: Run) -> None:
    (folder / "specs").mkdir()
    (folder / "specs" / "day.toml").write_text(SPEC)
    (folder / "specs" / "night.toml").write_text(SPEC.replace("epsilon = 1.0", "epsilon = 2.0"))
    done = run(
        "release", "specs", "in", "-o", "out", "--by", "person", "--group", "shift", "--json"
    )
    assert done.exit_code == 0, done.output
    assert {part["releases"] for part in json.loads(done.stdout)["spend"]} == {3}
    assert (folder / "out" / "shift=day" / "part-00000.parquet").exists()


def test_bad_files_stop_a_job_or_are_skipped(folder: Path, run: Run) -> None:
    (folder / "in" / "c.csv").write_text("who,what\nx,y\n")
    rest = ("release", "week.toml", "in", "-o", "out", "--by", "person")
    stopped = run(*rest)
    assert stopped.exit_code == 2
    assert "c.csv' cannot be used: it has no column 'person'" in stopped.output
    skipped = run(*rest, "--bad-files", "skip")
    assert skipped.exit_code == 0, skipped.output
    assert "1 bad" in skipped.stdout
    assert "an unknown number of rows" in skipped.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--bad-files", "eat"), "--bad-files is 'eat'"),
        (("--engine", "cloud"), "--engine is 'cloud'"),
        (("--together",), "do not go with --by"),
        (("--key", "monday"), "name --ledger too"),
        (("--ledger", "budget.db", "--seed", "1"), "a ledger takes only real releases"),
        (("--group", "shift"), "--group is 'shift', so SPEC must be a folder"),
        (("--state", "nothing"), "it has no column 'nothing', named as the state"),
    ],
    ids=["bad-files", "engine", "together", "key", "seed", "group", "column"],
)
def test_bad_options_are_one_sentence(options: tuple[str, ...], reason: str, run: Run) -> None:
    done = run("release", *WEEK, *options)
    assert done.exit_code == 2, done.output
    assert reason in done.output
    assert "Traceback" not in done.output


def test_options_of_jobs_need_a_subject(run: Run) -> None:
    done = run("release", "week.toml", "days.csv", "-o", "r.json", "--group", "shift")
    assert done.exit_code == 2
    assert "name --by too" in done.output


def test_a_folder_without_a_job_is_refused(run: Run) -> None:
    done = run("job", "status", "in")
    assert done.exit_code == 2
    assert "holds no job" in done.output


def test_a_job_over_regions_charges_the_people_in_them(folder: Path, run: Run) -> None:
    rows = ["region,person,minute,activity\n"]
    for number in range(6):
        rows += [
            f"r{number % 2},p{number},{minute},{'sit' if minute % 3 else 'walk'}\n"
            for minute in range(20)
        ]
    (folder / "regions.csv").write_text("".join(rows))
    job = ("release", "week.toml", "regions.csv", "--by", "region", "--series", "person")
    ledger = ("--ledger", "budget.db", "--members", "person")
    with open_ledger(folder / "budget.db") as account:
        account.limit("0.01", unit="epsilon", subject="p3")
    done = run(*job, "-o", "out", *ledger)
    assert "1 release(s)" in done.stdout, done.output
    with open_ledger(folder / "budget.db") as account:
        charged = sorted(entry.subject for entry in account.charges())
    assert charged == ["p0", "p2", "p4", "r0"]  # r1 holds p3, whose limit is too small
    assert run(*job, "-o", "all", "--ledger", "b.db", "--members", "everybody").exit_code == 0
    with open_ledger(folder / "b.db") as account:
        assert [account.charges(name)[0].members for name in ("r0", "r1")] == ["*", "*"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--members", "everybody"), "--members are the ledger's; name --ledger too"),
        (("--members", "minute", "--ledger", "b.db"), "the column of --series"),
        (("--members", "person", "--ledger", "b.db"), "no column of series is named beside"),
    ],
)
def test_members_of_a_job_that_fit_nothing(run: Run, options: tuple[str, ...], words: str) -> None:
    done = run("release", *WEEK, *options)
    assert done.exit_code == 2
    assert words in done.stderr
