"""The local engine: every row counted, every subject once, whatever files its rows are in."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.charge import SystemRng
from shoal.core.errors import DataError, InputError
from shoal.jobs import inputs, local
from shoal.jobs.drawing import seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.job import load_job
from tests.engine_jobs import (
    LAYOUT,
    STATES,
    days,
    job,
    plan,
    refused,
    released,
    spread,
    truths,
    write,
)

FEW = 30_000  # bytes of memory per shard: many shards for little data


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("memory", [2**29, FEW], ids=["one-shard", "many-shards"])
def test_seeded_releases_are_those_of_the_plain_api(
    suffix: str, memory: int, tmp_path: Path
) -> None:
    made, frame = plan(), days()
    data = spread(frame, tmp_path / "in", 3, suffix)
    report = local.run(job(data, tmp_path / "out", made, seed=5, memory=memory))
    assert report.adds_up
    assert (report.subjects, report.rows, report.releases) == (20, 600, 20)
    assert (report.shards > 1) == (memory == FEW)
    table = released(tmp_path / "out")
    for row in table.to_dicts():
        own = frame.filter(pl.col("user") == row["subject"]).sort("minute")
        rng = seeded_source(5, made, row["subject"], "")
        wanted = made.release([own["activity"].to_list()], rng=rng)
        assert tuple(row["multiples"].values()) == wanted.answer.multiples
        assert tuple(row["value"].values()) == wanted.values
        assert not row["secure"]


def test_the_promise_is_in_every_row(tmp_path: Path) -> None:
    made = plan()
    local.run(job(spread(days(), tmp_path / "in", 2), tmp_path / "out", made))
    row = released(tmp_path / "out").row(0, named=True)
    assert (row["plan"], row["mechanism"]) == (made.fingerprint, "group")
    assert (row["notion"], row["amount"], row["amount_exact"]) == ("group", 1.0, "1/1")
    assert row["proved"]
    assert row["secure"]
    assert row["over"] == made.guarantee.over
    error = made.error()
    assert error is not None
    assert row["error_expected"] == error.expected


def test_without_noise_the_answers_are_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = days(users=50, minutes=40)
    monkeypatch.setattr(
        "shoal.jobs.drawing.draw_many", lambda noise, n, d, rng: np.zeros((n, d), np.int64)
    )
    local.run(job(spread(frame, tmp_path / "in", 7), tmp_path / "out", memory=FEW))
    found = {
        row["subject"]: list(row["multiples"].values())
        for row in released(tmp_path / "out").to_dicts()
    }
    assert found == truths(frame)


def test_gaps_and_order_are_those_of_the_whole_series_not_of_a_file(tmp_path: Path) -> None:
    # a pause at a file's end is no gap when another file holds the minutes between
    frame = days(users=2, minutes=40)
    even = frame.filter(pl.col("minute").dt.minute() % 2 == 0)
    odd = frame.filter(pl.col("minute").dt.minute() % 2 == 1)
    write(even, tmp_path / "in" / "b.parquet")
    write(odd, tmp_path / "in" / "a.parquet")
    layout = replace(LAYOUT, gap=timedelta(seconds=90))
    report = local.run(
        job(tmp_path / "in", tmp_path / "out", plan(length=39), layout=layout, seed=1)
    )
    assert report.releases == 0
    assert set(refused(tmp_path / "out").values()) == {
        "the longest chain of the data exceeds length 39 of the model; "
        "cut the data at a gap or calibrate for a longer model"
    }
    again = local.run(job(tmp_path / "in", tmp_path / "o2", plan(length=40), layout=layout, seed=1))
    assert again.releases == 2


def test_each_reason_to_refuse_a_subject_is_counted_with_its_rows(tmp_path: Path) -> None:
    frame = days(users=8, minutes=5).with_columns(pl.lit("x").alias("mark"))
    first = pl.col("minute") == frame["minute"].min()

    def at(user: int) -> pl.Expr:
        return (pl.col("user") == f"u{user:04d}") & first

    broken = frame.with_columns(
        pl.when(at(0))
        .then(None)
        .when(at(1))
        .then(pl.lit("fly"))
        .otherwise("activity")
        .alias("activity"),
        pl.when(at(2)).then(None).otherwise("minute").alias("minute"),
        pl.when(at(3)).then(None).otherwise("user").alias("user"),
    )
    twice = broken.filter(at(4))
    single = broken.filter(at(5)).with_columns(pl.lit("alone").alias("user"))
    write(pl.concat([broken, twice, single]), tmp_path / "in.parquet")
    report = local.run(job(tmp_path / "in.parquet", tmp_path / "out"))
    assert report.adds_up
    assert report.rows == 42
    assert report.rows_without_subject == 1
    reasons = refused(tmp_path / "out")
    assert reasons["u0000"] == "a row without a state"
    assert reasons["u0001"] == "a state the model does not know"
    assert reasons["u0002"] == "a row without a time"
    assert reasons["u0004"] == "two rows at the same time"
    assert reasons["alone"].startswith("the data holds 1 entries")
    assert set(released(tmp_path / "out")["subject"]) == {"u0003", "u0005", "u0006", "u0007"}
    assert report.refusals["two rows at the same time"] == (1, 6)
    assert report.rows_refused == 5 + 5 + 5 + 6 + 1


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _without_column(path: Path) -> None:
    pl.read_parquet(path).drop("activity").write_parquet(path)


def _wrong_type(path: Path) -> None:
    pl.read_parquet(path).with_columns(pl.struct("user").alias("activity")).write_parquet(path)


def _other_times(path: Path) -> None:
    pl.read_parquet(path).with_columns(pl.col("minute").dt.epoch("s")).write_parquet(path)


def _bad_times(path: Path) -> None:
    pl.read_parquet(path).with_columns(pl.lit("noon").alias("minute")).write_parquet(path)


@pytest.mark.parametrize(
    ("spoil", "reason", "rows"),
    [
        (_truncated, "cannot be read as parquet", None),
        (_without_column, "it has no column 'activity', named as the state", 200),
        (_wrong_type, "holds Struct", 200),
        (_other_times, "holds numbers of seconds, and in the files before times", 200),
        (_bad_times, "holds 'noon' in row 1", 200),
    ],
    ids=["truncated", "missing-column", "nested", "mixed-times", "no-times"],
)
@pytest.mark.parametrize("memory", [2**29, FEW], ids=["one-shard", "many-shards"])
def test_bad_files_are_named_and_stop_or_are_skipped(
    spoil: object, reason: str, rows: int | None, memory: int, tmp_path: Path
) -> None:
    assert callable(spoil)
    data = spread(days(), tmp_path / "in", 3)
    spoil(data / "f01.parquet")
    with pytest.raises(DataError, match=r"f01\.parquet' cannot be used") as stopped:
        local.run(job(data, tmp_path / "out", memory=memory))
    assert reason in str(stopped.value)
    report = local.run(job(data, tmp_path / "out", memory=memory, skip_bad=True))
    (bad,) = report.bad_files
    assert (Path(bad.path).name, bad.rows) == ("f01.parquet", rows)
    assert reason in bad.reason
    assert report.adds_up
    assert report.rows == 400


def test_a_file_that_fails_late_is_taken_out_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = spread(days(), tmp_path / "in", 2)
    monkeypatch.setattr(inputs, "LARGE", 0)
    monkeypatch.setattr("shoal.jobs.rows.PIECE", 50)
    pieces = inputs.frames

    def torn(file: inputs.InputFile, layout: Layout, piece: int) -> object:
        for number, frame in enumerate(pieces(file, layout, piece)):
            if file.path.endswith("f01.parquet") and number == 2:
                raise DataError("it cannot be read as parquet: page 3 is damaged")
            yield frame

    monkeypatch.setattr("shoal.jobs.rows.frames", torn)
    report = local.run(job(data, tmp_path / "out", memory=FEW, skip_bad=True))
    assert report.rows == 300
    assert report.adds_up
    assert [Path(bad.path).name for bad in report.bad_files] == ["f01.parquet"]


def test_hive_folders_tell_columns(tmp_path: Path) -> None:
    frame = days(users=4, minutes=10)
    for shift in ("day", "night"):
        part = frame.filter(pl.col("shift") == shift).drop("shift")
        write(part, tmp_path / "in" / f"shift={shift}" / "part.parquet")
    layout = replace(LAYOUT, group="shift")
    plans = {"day": plan(), "night": plan("2")}
    report = local.run(job(tmp_path / "in", tmp_path / "out", plans, layout=layout))
    assert report.releases == 4
    assert {spent["releases"] for spent in report.spend} == {2}
    table = released(tmp_path / "out")
    by_group = dict(table.group_by("shift").agg(pl.col("plan").first()).iter_rows())
    assert by_group == {name: made.fingerprint for name, made in plans.items()}
    assert (tmp_path / "out" / "shift=day" / "part-00000.parquet").exists()


def test_groups_without_a_plan_and_subjects_in_two_groups_are_refused(tmp_path: Path) -> None:
    frame = days(users=4, minutes=10).with_columns(
        pl.when(pl.col("user") == "u0003")
        .then(pl.col("minute").dt.minute().cast(pl.String))
        .otherwise("shift")
        .alias("shift")
    )
    write(frame, tmp_path / "in.csv")
    layout = replace(LAYOUT, group="shift")
    local.run(job(tmp_path / "in.csv", tmp_path / "out", {"night": plan()}, layout=layout))
    assert refused(tmp_path / "out") == {
        "u0001": "a group without a plan",
        "u0003": "rows in more than one group",
    }


def test_plans_of_different_states_share_a_job(tmp_path: Path) -> None:
    frame = days(users=4, minutes=10).with_columns(
        pl.when(pl.col("shift") == "day")
        .then(pl.col("activity").replace({"walk": "run"}))
        .otherwise("activity")
        .alias("activity")
    )
    write(frame, tmp_path / "in.parquet")
    plans = {"day": plan(states=("run", "sit", "stand")), "night": plan()}
    layout = replace(LAYOUT, group="shift")
    report = local.run(job(tmp_path / "in.parquet", tmp_path / "out", plans, layout=layout, seed=3))
    assert report.releases == 4
    file = tmp_path / "out" / "shift=day" / "part-00000.parquet"
    for row in pl.read_parquet(file).to_dicts():
        own = frame.filter(pl.col("user") == row["subject"])["activity"].to_list()
        wanted = plans["day"].release(own, rng=seeded_source(3, plans["day"], row["subject"], ""))
        assert tuple(row["multiples"].values()) == wanted.answer.multiples


def test_a_release_per_period_and_an_aggregate_over_series(tmp_path: Path) -> None:
    frame = days(users=4, minutes=20).with_columns(
        pl.when(pl.col("minute").dt.minute() < 10).then(1).otherwise(2).alias("week")
    )
    write(frame, tmp_path / "in.parquet")
    layout = Layout(
        by="user", state="activity", time="minute", period="week", periods="independent"
    )
    report = local.run(job(tmp_path / "in.parquet", tmp_path / "o1", layout=layout))
    assert (report.subjects, report.units, report.releases) == (4, 8, 8)
    assert set(released(tmp_path / "o1")["period"]) == {"1", "2"}
    regions = Layout(by="shift", series="user", state="activity", time="minute")
    again = local.run(job(tmp_path / "in.parquet", tmp_path / "o2", layout=regions, seed=1))
    assert (again.subjects, again.rows_released) == (2, 80)
    (night,) = released(tmp_path / "o2").filter(pl.col("subject") == "night").to_dicts()
    own = frame.filter(pl.col("shift") == "night").sort("user", "minute")
    chains = [part["activity"].to_list() for part in own.partition_by("user", maintain_order=True)]
    made = plan()
    wanted = made.release(chains, rng=seeded_source(1, made, "night", ""))
    assert tuple(night["multiples"].values()) == wanted.answer.multiples


def test_a_stopped_job_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = spread(days(users=40), tmp_path / "in", 3)
    made = job(data, tmp_path / "out", memory=FEW)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    original = local.attempt
    calls: list[object] = []

    def failing(*arguments: object) -> local.Attempt:
        if len(calls) == 2:
            raise RuntimeError("the power went")
        calls.append(arguments[2])
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "attempt", failing)
    with pytest.raises(RuntimeError):
        local.run(made)
    before = released(tmp_path / "out")
    half = local.status(made)
    assert (half.shards_done, half.finished) == (2, False)
    assert half.releases == before.height
    monkeypatch.setattr(local, "attempt", original)
    report = local.resume(load_job(tmp_path / "out"))
    assert report.finished
    assert report.adds_up
    after = released(tmp_path / "out")
    assert after["subject"].to_list() == sorted({f"u{number:04d}" for number in range(40)})
    kept = after.join(before, on="subject", how="semi").sort("subject")
    assert kept.equals(before)
    assert not (tmp_path / "out" / "_shoal" / "rows").exists()


def test_a_lost_last_line_does_not_ask_for_the_data_again(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 2)
    whole = local.run(job(data, tmp_path / "out", memory=20_000))
    assert whole.shards > 1
    before = released(tmp_path / "out")
    journal = tmp_path / "out" / "_shoal" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert b"finished" in lines[-1]
    journal.write_bytes(b"".join(lines[:-1]))
    for file in data.iterdir():
        file.unlink()
    assert not local.status(load_job(tmp_path / "out")).finished
    again = local.resume(load_job(tmp_path / "out"))
    assert again == whole
    assert released(tmp_path / "out").equals(before)


def test_changed_input_is_not_mixed_into_a_stopped_job(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 2)
    made = job(data, tmp_path / "out")
    made.store()
    write(days(seed=1)[:300], data / "f00.parquet")
    with pytest.raises(DataError, match="changed since the job began"):
        local.resume(load_job(tmp_path / "out"))


def test_the_notes_are_private_and_hold_the_report(tmp_path: Path) -> None:
    report = local.run(job(spread(days(), tmp_path / "in", 1), tmp_path / "out"))
    notes = tmp_path / "out" / "_shoal"
    assert notes.stat().st_mode & 0o077 == 0
    assert json.loads((notes / "report.json").read_text()) == json.loads(
        json.dumps(report.as_dict())
    )


def test_an_output_that_is_in_use_is_refused(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 1)
    local.run(job(data, tmp_path / "out"))
    with pytest.raises(DataError, match="holds a job already"):
        local.run(job(data, tmp_path / "out"))
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "file").write_text("x")
    with pytest.raises(DataError, match="not an empty folder"):
        local.run(job(data, tmp_path / "busy"))


def test_jobs_that_cannot_be_are_refused_in_words(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 1)
    with pytest.raises(DataError, match="no file matches"):
        job(tmp_path / "nowhere" / "*.parquet", tmp_path / "out")
    with pytest.raises(InputError, match="need the column that names the group"):
        job(data, tmp_path / "out", {"day": plan()})
    with pytest.raises(InputError, match="a ledger takes only real releases"):
        job(data, tmp_path / "out", seed=1, ledger="budget.db")
    with pytest.raises(InputError, match="named for two purposes"):
        Layout(by="user", state="user")


def test_the_plan_of_wide_noise_is_refused_not_wrapped(tmp_path: Path) -> None:
    chain = shoal.MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states=["a", "b"], length=9)
    query = shoal.weighted_sum(["a", "b"], {"a": 1, "b": "0.00000000000000000001"})
    made = shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="group")
    rows = pl.DataFrame({"user": ["x"] * 4, "activity": ["a", "b", "a", "b"]})
    rows.write_parquet(tmp_path / "in.parquet")
    with pytest.raises(shoal.ShoalError, match="fewer"):
        local.run(
            job(
                tmp_path / "in.parquet",
                tmp_path / "out",
                made,
                layout=Layout(by="user", state="activity"),
            )
        )


def test_system_randomness_is_used_without_a_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    words = SystemRng.words

    def counted(self: SystemRng, count: int) -> object:
        asked.append(count)
        return words(self, count)

    monkeypatch.setattr(SystemRng, "words", counted)
    local.run(job(spread(days(), tmp_path / "in", 1), tmp_path / "out"))
    assert sum(asked) >= 20 * len(STATES)


def test_one_call_runs_a_job(tmp_path: Path) -> None:
    data = spread(days(), tmp_path / "in", 2)
    made = plan()
    columns: dict[str, Any] = {"by": "user", "state": "activity", "time": "minute"}
    report = shoal.release_files(made, data, out=tmp_path / "o1", gap="10min", seed=5, **columns)
    local.run(job(data, tmp_path / "o2", made, seed=5))
    assert isinstance(report, shoal.jobs.JobReport)
    assert released(tmp_path / "o1").equals(released(tmp_path / "o2"))
    with pytest.raises(InputError, match="engine is 'cloud'"):
        shoal.release_files(made, data, out=tmp_path / "o3", engine="cloud", **columns)
