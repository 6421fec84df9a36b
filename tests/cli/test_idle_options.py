"""Options that would do nothing are refused, and data that may mean something else is told."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from shoal.core.errors import DataError
from tests.cli.conftest import Run, contents
from tests.cli.test_bad_input import refused

RELEASE = ("release", "spec.toml", "days.csv", "-o", "o.json")
JOB = ("release", "spec.toml", "days.csv", "-o", "out", "--by", "person")
FIT = ("fit", "days.csv", "-o", "m.json")
MAP = ("fit", "tracks.csv", "-o", "m.json", "--lat", "lat", "--lon", "lon")


@pytest.fixture(autouse=True)
def tracks(folder: Path) -> None:
    """Two people's positions, a minute apart, with an hour's pause of one."""
    lines = ["user,t,lat,lon"]
    for user, west in (("ann", 13.36), ("ben", 13.40)):
        for minute in range(20):
            later = 3600 if user == "ben" and minute > 10 else 0
            lines.append(f"{user},{60 * minute + later},{52.5 + minute % 5 * 0.004},{west}")
    (folder / "tracks.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((*RELEASE, "--bad-files", "skip"), "--engine and --bad-files are for jobs; name --by too"),
        ((*RELEASE, "--ledger", "b.db", "--key", ""), "--key is empty; name the release"),
        ((*JOB, "--ledger", "b.db", "--key", ""), "--key is empty; name the release"),
        ((*JOB, "--subject", "all"), "--subject is 'all', but --by charges each value of 'person'"),
        ((*JOB, "--group", "shift"), "so SPEC must be a folder with a spec for each group"),
        ((*FIT, "--state", "activity", "--lat", "x", "--box", "1"), "--lat and --box are for maps"),
        ((*FIT, "--state", "activity", "--spread", "1"), "--spread is for days; name --slot too"),
        ((*FIT, "--grid", "1", "--slot", "1h"), "--grid fits a map and --slot a day; give one"),
        ((*MAP, "--grid", "1", "--state", "user"), "--state and --group do not go with --grid"),
        ((*MAP, "--grid", "1", "--group", "user"), "--state and --group do not go with --grid"),
        ((*MAP, "--grid", "500m"), "--grid is '500m'; it must be the width of a cell in km"),
        ((*MAP, "--grid", "0"), "--grid is '0'; it must be the width of a cell in km, above 0"),
        ((*MAP, "--grid", "1", "--personal", "ann"), "--personal needs the column of people"),
    ],
    ids=lambda value: " ".join(value[-3:]) if isinstance(value, tuple) else "-",
)
def test_an_option_without_effect_is_refused(
    run: Run, folder: Path, command: tuple[str, ...], words: str
) -> None:
    before = sorted(folder.iterdir())
    told = run(*command)
    assert words in told.stderr
    assert (told.exit_code, told.stdout) == (2, "")
    assert sorted(folder.iterdir()) == before


def test_a_job_that_the_ledger_refuses_ends_like_a_release(run: Run) -> None:
    assert run("ledger", "limit", "b.db", "--epsilon", "0.001").exit_code == 0
    alone = run(*RELEASE, "--ledger", "b.db")
    many = run(*JOB, "--ledger", "b.db")
    assert (alone.exit_code, many.exit_code) == (3, 3)
    assert "the ledger's limit does not allow it; `shoal ledger show`" in many.stderr
    assert "mend the data" not in many.stderr


def test_rows_of_several_people_without_a_column_of_people_are_told(run: Run) -> None:
    for command in ((*FIT, "--state", "activity"), (*MAP, "--grid", "1", "--force")):
        done = run(*command)
        assert done.exit_code == 0, done.output
        assert "NOTE: all rows count as one series" in done.stderr
    named = run(*MAP, "--grid", "1", "--series", "user", "--force")
    assert named.stderr == ""


def test_the_fit_of_a_map_tells_of_pauses(run: Run) -> None:
    command = (*MAP, "--grid", "1", "--series", "user", "--time", "t")
    assert "1 pause(s) are longer than the usual 1min" in run(*command).stderr
    assert run(*command, "--gap", "10min", "--force").stderr == ""


def test_states_are_named_and_misspelt_ones_told(run: Run, folder: Path) -> None:
    data = folder / "days.csv"
    data.write_text(data.read_text().replace("walk", "WALK", 1).replace("sit", " sit", 1))
    done = run(*FIT, "--state", "activity", "--series", "person")
    assert "walk" in done.stdout.split("States:")[1].splitlines()[0]
    assert "'WALK' and 'walk'" in done.stderr or "' sit' and 'sit'" in done.stderr
    assert "(and 1 more such) differ only in case or spaces" in done.stderr
    assert json.loads(run(*FIT, "--state", "activity", "--json", "--force").stdout)["models"]


def test_one_chain_is_not_chains(run: Run) -> None:
    assert "in 1 chain (the longest" in run(*FIT, "--state", "activity").stdout


def test_the_sentence_of_bad_columns_is_one_line(run: Run) -> None:
    assert "has no column 'x'" in refused(run(*FIT, "--state", "x"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("-o", "o.xyz", "--ledger", "b.db"), "steps of places as .csv, .parquet, "),
        (("-o", "o.csv", "--ledger", "b.db", "--seed", "1"), "--seed is given with --ledger"),
        (("-o", "o.csv", "--period", "May"), "--period is 'May' without --ledger"),
        (("-o", "tracks.csv", "--force"), "'tracks.csv' is read by this command; write to another"),
        (("-o", "link.csv", "--force"), "'link.csv' is read by this command; write to another"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "-",
)
def test_tables_of_places_are_refused_before_a_step_is_charged(
    run: Run, folder: Path, command: tuple[str, ...], words: str
) -> None:
    assert run("init", "--kind", "location", "town.toml").exit_code == 0
    (folder / "link.csv").symlink_to("tracks.csv")
    before = contents(folder)
    assert words in refused(run("locations", "town.toml", "tracks.csv", *command))
    assert contents(folder) == before


def test_what_is_read_is_not_written_over(run: Run, folder: Path) -> None:
    pl.read_csv(folder / "days.csv").write_parquet(folder / "days.parquet")
    before = contents(folder)
    for command in (
        ("release", "spec.toml", "days.parquet", "-o", "days.parquet", "--force"),
        ("release", "spec.toml", "day*.parquet", "-o", "./days.parquet", "--force"),
        ("plan", "spec.toml", "--save", "spec.toml", "--force"),
    ):
        assert "is read by this command; write to another file" in refused(run(*command))
    assert contents(folder) == before


def test_the_folder_of_results_is_made_before_they_are_computed(run: Run) -> None:
    told = refused(run("reproduce", "chain-synthetic", "--out", "days.csv"))
    assert "'days.csv', which cannot be made a folder" in told


def test_a_charged_release_tells_the_key_that_brings_it_back(run: Run, folder: Path) -> None:
    first = json.loads(run(*RELEASE, "--ledger", "b.db", "--json").stdout)
    again = ("release", "spec.toml", "days.csv", "-o", "again.json", "--ledger", "b.db")
    told = run(*again, "--key", first["key"])
    assert f"with --key {first['key']} the same come back free" in told.stdout
    assert (folder / "again.json").read_bytes() == (folder / "o.json").read_bytes()
    accounts = json.loads(run("ledger", "show", "b.db", "--json").stdout)["accounts"]
    assert [account["charges"] for account in accounts] == [1, 1]
    free = json.loads(run("release", "spec.toml", "days.csv", "-o", "c.json", "--json").stdout)
    assert free["key"] is None


def test_a_job_that_could_not_be_stored_leaves_no_folder(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DataError("no space left")

    monkeypatch.setattr("shoal.jobs.job.atomic_write", full)
    assert "no space left" in refused(run(*JOB))
    assert not (folder / "out").exists()
