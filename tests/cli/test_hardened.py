"""Bad names, bad rows, rivals and bombs: jobs, releases and streams lose and tell nothing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app
from shoal.core.errors import DataError, InputError
from shoal.data import frames as tables
from shoal.data.frames import PIECE
from shoal.jobs import local
from shoal.jobs.inputs import InputFile, Layout, frames
from shoal.jobs.job import load_job
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.engine_jobs import LAYOUT, days, job, spread
from tests.specs import CONTEXTS, PLACES

JOB = ("release", "spec.toml", "days.csv", "-o", "out", "--by", "person", "--ledger", "b.db")


def told(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def charges(run: Run) -> list[tuple[str, int]]:
    accounts = json.loads(told(run("ledger", "show", "b.db", "--json")))["accounts"]
    return [(row["subject"], row["charges"]) for row in accounts]


def renamed(folder: Path, old: str, new: str) -> None:
    data = folder / "days.csv"
    data.write_bytes(data.read_bytes().replace(old.encode(), new.encode()))


@pytest.mark.parametrize("name", ["*", "zz\0", "a" * 501], ids=["star", "nul", "long"])
def test_a_name_no_ledger_holds_costs_nobody_else_anything(
    run: Run, folder: Path, name: str
) -> None:
    renamed(folder, "p1,", f"{name},")
    found = json.loads(told(run(*JOB, "--json")))
    assert (found["releases"], found["finished"]) == (1, True)
    assert list(found["refusals"]) == ["a subject or period whose name no ledger can hold"]
    assert charges(run) == [("p0", 1)]


@pytest.mark.parametrize("name", ["*", "zz\0"])
def test_a_series_no_ledger_holds_is_refused_before_anybody_is_charged(
    run: Run, folder: Path, name: str
) -> None:
    renamed(folder, "p1,", f"{name},")
    words = refused(run("release", "spec.toml", "days.csv", "-o", "o.json", "--ledger", "b.db"))
    assert "a name no ledger can hold" in words
    assert "\0" not in words
    assert not (folder / "b.db").exists()
    assert not (folder / "o.json").exists()


def test_a_text_in_the_times_spoils_its_subject_alone(run: Run, folder: Path) -> None:
    renamed(folder, "p1,2024-01-01 08:07:00", "p1,my own diary")
    found = json.loads(told(run(*JOB, "--json")))
    assert (found["releases"], found["bad_rows"]) == (1, {"a row without a time": 1})
    listed = [json.loads(line) for line in (folder / "out/_shoal/bad_rows.jsonl").open()]
    assert listed == [
        {"path": str(folder / "days.csv"), "row": 28, "reason": "a row without a time"}
    ]
    kept = [path for path in (folder / "out").rglob("*") if path.is_file()]
    assert all(b"diary" not in path.read_bytes() for path in kept)


def test_rows_of_nobody_and_unknown_states_are_listed(run: Run, folder: Path) -> None:
    renamed(folder, "p1,2024-01-01 08:00:00,sit", "p1,2024-01-01 08:00:00,swim")
    renamed(folder, "p1,2024-01-01 08:01:00", ",2024-01-01 08:01:00")
    found = json.loads(told(run(*JOB, "--json")))
    listed = [json.loads(line) for line in (folder / "out/_shoal/bad_rows.jsonl").open()]
    assert [row["row"] for row in listed] in ([21, 22], [22])
    assert sum(found["bad_rows"].values()) == len(listed)
    assert (found["releases"], found["rows"]) == (1 + (len(listed) == 1), 40)


def test_a_job_that_charged_keeps_its_name_and_its_folder(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DataError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(local, "write_table", fail)
        words = refused(run(*JOB))
    assert "what was charged is kept: mend that, and go on with `shoal job resume out`" in words
    before = charges(run)
    assert before == [("p0", 1), ("p1", 1)]
    assert "finished" in told(run("job", "resume", "out"))
    assert charges(run) == before


def test_a_command_that_is_refused_leaves_no_empty_ledger_or_folder(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise InputError("something about the data")

    monkeypatch.setattr("shoal.core.plan.Plan.release", fail)
    before = sorted(folder.iterdir())
    refused(run("release", "spec.toml", "days.csv", "-o", "o.json", "--ledger", "b.db"))
    refused(run("release", "spec.toml", "none*.csv", "-o", "out", "--by", "person"))
    (folder / "mask.toml").write_text(CONTEXTS.format(slots=4))
    refused(streamed("mask.toml", [{"context": "home"}], *CHARGED, "--strict"))
    assert sorted(folder.iterdir()) == [*before[:1], folder / "mask.toml", *before[1:]]


def test_of_two_jobs_in_one_new_folder_one_wins(tmp_path: Path) -> None:
    made = job(spread(days(4), tmp_path / "in", 1), tmp_path / "out")

    def begin(_: int) -> str:
        try:
            made.store()
        except DataError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as threads:
        said = sorted(threads.map(begin, range(8)))
    assert said[0] == ""
    assert all("another job" in words or "holds a job already" in words for words in said[1:])
    assert local.resume(load_job(made.out)).finished


def test_a_job_goes_on_where_it_was_begun(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(run(*JOB[:-2]))
    stored = folder / "out/_shoal/job.json"
    stored.write_text(stored.read_text().replace('"local"', '"spark"'))
    monkeypatch.setattr("shoal.jobs.spark.resume", local.resume)
    monkeypatch.setattr("shoal.jobs.local.resume", None)
    assert "finished" in told(run("job", "resume", "out"))


def test_a_small_file_of_many_rows_is_read_in_pieces(tmp_path: Path) -> None:
    rows = 10 * PIECE
    table = pl.select(
        user=pl.repeat("ann", rows), activity=pl.repeat("sit", rows), minute=pl.repeat(0, rows)
    )
    table.write_parquet(tmp_path / "bomb.parquet", row_group_size=rows)
    file = InputFile.of(tmp_path / "bomb.parquet")
    assert file.size < 100_000
    sizes = [frame.height for frame in frames(file, LAYOUT, PIECE)]
    assert sum(sizes) == rows
    assert max(sizes) <= PIECE


def test_a_small_file_of_many_rows_is_not_read_whole(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 3 * PIECE
    table = pl.select(
        person=pl.repeat("ann", rows), activity=pl.repeat("sit", rows), minute=pl.repeat(0, rows)
    )
    table.write_parquet(folder / "bomb.parquet", row_group_size=rows)
    sizes: list[int] = []

    def seen(*asked: Any) -> Any:
        for frame in read(*asked):
            sizes.append(frame.height)
            yield frame

    read = tables.parquet_frames
    monkeypatch.setattr(tables, "parquet_frames", seen)
    monkeypatch.setattr(tables, "MOST_BYTES", 100 * PIECE)
    command = ("release", "spec.toml", "bomb.parquet", "-o", "o.json")
    assert "bytes when unpacked; release them as a job" in refused(run(*command))
    assert sizes == [PIECE, PIECE]
    assert not (folder / "o.json").exists()


def test_a_text_is_looked_at_before_it_is_repeated_for_every_row(tmp_path: Path) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), ["a" * 2**20])
    table = pa.table({"user": long, "activity": ["sit"] * 5000})  # 5 GB if every row held its own
    pq.write_table(table, tmp_path / "bomb.parquet", store_schema=False)
    file = InputFile.of(tmp_path / "bomb.parquet")
    assert file.size < 2 * 2**20
    with pytest.raises(DataError, match="unpacks to more than 268,435,456 bytes of text"):
        list(frames(file, Layout(by="user", state="activity"), PIECE))


@pytest.mark.parametrize("command", [("fit",), ("release", "spec.toml")])
def test_text_that_is_not_utf8_in_a_parquet_file_is_a_sentence(
    run: Run, folder: Path, command: tuple[str, ...]
) -> None:
    broken = pa.array([b"sit", b"\xc4("], pa.binary()).view(pa.string())
    table = pa.table({"person": ["ann", "ann"], "activity": broken, "minute": [0, 1]})
    pq.write_table(table, folder / "broken.parquet")
    words = refused(run(*command, "broken.parquet", "-o", "o.json", "--state", "activity"))
    assert "cannot be read as parquet" in words


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_files_without_rows_and_with_odd_types_are_read(tmp_path: Path, suffix: str) -> None:
    layout = Layout(by="user", state="activity")
    none = pl.DataFrame({"user": [], "activity": []}, schema={"user": str, "activity": str})
    path = tmp_path / f"none.{suffix}"
    if suffix == "csv":
        none.write_csv(path)
    elif suffix == "parquet":
        none.write_parquet(path)
    else:
        path.write_text('{"user": "a", "activity": "sit"}\n')
    found = list(frames(InputFile.of(path), layout, 10))
    assert [frame.columns for frame in found] == [["user", "activity"]] * len(found)
    assert sum(frame.height for frame in found) == (suffix == "jsonl")


def test_a_file_with_an_unclosed_quote_is_not_printed(run: Run, folder: Path) -> None:
    data = folder / "days.csv"
    data.write_text('"' + data.read_text())
    for command in (
        ("release", "spec.toml", "days.csv", "-o", "o.json"),
        JOB,
        ("fit", "days.csv", "-o", "m.json", "--state", "activity"),
    ):
        words = refused(run(*command))
        assert "2024-01-01" not in words
        assert len(words) < 1000


def test_control_characters_of_names_are_written_out(run: Run, folder: Path) -> None:
    renamed(folder, "activity", "activ\x1b[2Jity")
    words = refused(run("release", "spec.toml", "days.csv", "-o", "o.json"))
    assert "\x1b" not in words
    assert "\\x1b" in words


def test_control_characters_in_names_do_not_reach_the_terminal(run: Run, folder: Path) -> None:
    renamed(folder, "p1,", "\x1b[2Jp1,")
    told(run("release", "spec.toml", "days.csv", "-o", "o.json", "--ledger", "b.db"))
    told(run("ledger", "limit", "b.db", "--eta", "9", "--subject", "\x1b[2Jp1"))
    for command in ("show", "changes", "verify"):
        shown = told(run("ledger", command, "b.db"))
        assert all(char.isprintable() or char == "\n" for char in shown)
        assert ("\\x1b[2Jp1" in shown) == (command != "verify")


def test_a_job_is_gone_on_with_only_under_the_plan_it_was_begun_with(
    run: Run, folder: Path
) -> None:
    told(run(*JOB))
    notes = folder / "out/_shoal"
    (plan,) = (notes / "plans").iterdir()
    weaker = (folder / "spec.toml").read_text().replace("epsilon = 1.0", "epsilon = 9.0")
    (folder / "weaker.toml").write_text(weaker)
    told(run("plan", "weaker.toml", "--save", str(plan), "--force"))
    assert "another plan than the job was begun with" in refused(run("job", "resume", "out"))


def test_a_device_is_not_read_for_ever(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.spec.fields.LARGEST_FILE", 1000)
    assert "has more than 1,000 bytes: is it data?" in refused(run("plan", "/dev/zero"))


CHARGED = ("--ledger", "b.db", "--subject", "ann")


def streamed(spec: str, lines: list[Any], *options: str) -> Result:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return CliRunner().invoke(app, ["stream", spec, *options], input=text)


def answers(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told(result).splitlines()]


BAD = [
    {"day": "2024-03-03", "slot": 0, "context": "clinic"},
    {"day": "2024-03-04", "slot": 99, "context": "clinic"},
    {"slot": "first", "context": "clinic"},
    "[1, 2]",
    "clinic {",
    '{"a": ' * 9999,
    '{"slot": ' + "9" * 5000 + "}",
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_bad_line_is_answered_without_its_content_and_the_stream_goes_on(
    folder: Path, bad: Any
) -> None:
    (folder / "mask.toml").write_text(CONTEXTS.format(slots=4))
    good = [{"day": "2024-03-04", "slot": slot, "context": "home"} for slot in (0, 1)]
    found = answers(streamed("mask.toml", [good[0], bad, good[1]], *CHARGED))
    assert [line.get("slot") for line in found] == [0, None, 1]
    assert (found[1]["line"], list(found[1])) == (2, ["line", "error"])
    assert "clinic" not in found[1]["error"]
    stopped = streamed("mask.toml", [good[0], bad, good[1]], "--strict")
    assert (stopped.exit_code, len(stopped.stdout.splitlines())) == (2, 1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--subject", "*"), "--subject is '*', which no ledger can hold"),
        (("--subject", "ann", "--period", "p" * 501), "which no ledger can hold"),
    ],
)
def test_names_no_charge_can_have_end_a_stream_before_its_first_line(
    folder: Path, options: tuple[str, ...], words: str
) -> None:
    (folder / "mask.toml").write_text(CONTEXTS.format(slots=4))
    result = streamed("mask.toml", [{"context": "home"}], "--ledger", "b.db", *options)
    assert words in refused(result)
    assert not (folder / "b.db").exists()


@pytest.mark.parametrize("number", ["NaN", "1e999", "[-Infinity]"])
def test_an_id_that_json_has_not_is_a_bad_line(folder: Path, number: str) -> None:
    (folder / "mask.toml").write_text(CONTEXTS.format(slots=4))
    lines = [f'{{"id": {number}, "context": "home"}}', {"id": 1, "context": "home"}]
    bad, good = answers(streamed("mask.toml", lines))
    assert (list(bad), good["id"]) == (["line", "error"], 1)


def test_the_last_answer_is_printed_once_more_and_found_by_its_id(folder: Path) -> None:
    (folder / "town.toml").write_text(PLACES.format(side=3))
    kept = ("--state", "s.json", *CHARGED)
    lines = [{"id": place, "state": f"0,{place}"} for place in (0, 1)]
    first = answers(streamed("town.toml", lines, *kept))
    assert [line["id"] for line in first] == [0, 1]
    assert answers(streamed("town.toml", [], *kept, "--resume")) == first[1:]
    again = answers(streamed("town.toml", [{"id": 1, "state": "2,2"}, {"state": "1,1"}], *kept))
    assert again[0] == first[1]
    assert again[1]["time"] == 3
    accounts = CliRunner().invoke(app, ["ledger", "show", "b.db", "--json"]).stdout
    assert [row["charges"] for row in json.loads(accounts)["accounts"]] == [3]
    words = streamed("town.toml", [], "--resume")
    assert "--resume is given without --state" in words.stderr


def test_a_step_that_was_charged_and_not_stored_is_answered_when_sent_again(folder: Path) -> None:
    """A kill between the ledger's commit and the file of the state loses no answer."""
    (folder / "town.toml").write_text(PLACES.format(side=3))
    kept = ("--state", "s.json", *CHARGED)
    answers(streamed("town.toml", [{"state": "0,0"}], *kept))
    before = (folder / "s.json").read_bytes()
    lost = answers(streamed("town.toml", [{"state": "0,1"}], *kept))
    (folder / "s.json").write_bytes(before)
    assert answers(streamed("town.toml", [{"state": "2,2"}], *kept)) == lost
