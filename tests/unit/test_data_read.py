"""Reading files: what is understood, what is refused and how."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from shoal.core.errors import DataError, InputError
from shoal.data.read import read
from shoal.data.table import Dataset, from_table

TEN = timedelta(minutes=10)
ROWS = pl.DataFrame(
    {
        "user": ["bob", "ann", "bob", "ann", "ann"],
        "when": [datetime(2024, 5, 1, 8, m) for m in (1, 0, 0, 25, 10)],
        "what": ["sit", "walk", "lie", "sit", "walk"],
    }
)
NAMED: dict[str, Any] = {"state": "what", "series": "user", "time": "when"}


def labels(data: Dataset) -> dict[str, list[list[str]]]:
    return {
        name: [[data.states[i] for i in chain] for chain in chains]
        for name, chains in zip(data.names, data.chains, strict=True)
    }


def csv(folder: Path, text: str, **named: Any) -> Dataset:
    file = folder / "in.csv"
    file.write_text(text)
    return read(file, **{"state": "s", **named})


def write(frame: pl.DataFrame, file: Path) -> Path:
    match file.suffix:
        case ".csv":
            frame.write_csv(file)
        case ".parquet":
            frame.write_parquet(file)
        case _:
            frame.write_ndjson(file)
    return file


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl", ".ndjson"])
def test_every_format_is_sorted_and_cut_at_gaps(tmp_path: Path, suffix: str) -> None:
    data = read(write(ROWS, tmp_path / f"in{suffix}"), **NAMED, gap=TEN)
    assert data.states == ("lie", "sit", "walk")
    assert labels(data) == {"ann": [["walk", "walk"], ["sit"]], "bob": [["lie", "sit"]]}
    assert all(not chain.flags.writeable for chains in data.chains for chain in chains)


def test_a_gap_is_a_pause_longer_than_the_gap() -> None:
    times = [0.0, 600.0, 1200.000001]
    frame = pl.DataFrame({"what": ["a", "b", "c"], "when": times})
    cut = from_table(frame, state="what", time="when", gap=TEN)
    assert labels(cut) == {"data": [["a", "b"], ["c"]]}
    assert labels(from_table(frame, state="what", time="when")) == {"data": [["a", "b", "c"]]}
    assert from_table(frame, state="what", time="when", gap=timedelta.max).longest == 3


def test_without_time_the_order_of_rows_counts() -> None:
    frame = pl.DataFrame({"u": [2, 1, 2, 1], "s": ["d", "a", "c", "b"]})
    assert labels(from_table(frame, state="s", series="u")) == {
        "1": [["a", "b"]],
        "2": [["d", "c"]],
    }


def test_the_same_time_in_two_series_is_no_duplicate() -> None:
    frame = pl.DataFrame({"u": ["a", "a", "b", "b"], "t": [1, 2, 2, 3], "s": ["x", "y", "y", "x"]})
    data = from_table(frame, state="s", series="u", time="t")
    assert labels(data) == {"a": [["x", "y"]], "b": [["y", "x"]]}


def test_a_pattern_reads_all_files_and_joins_series(tmp_path: Path) -> None:
    write(ROWS.head(2), tmp_path / "a.csv")
    write(ROWS.tail(3), tmp_path / "b.csv")
    whole = read(write(ROWS, tmp_path / "all.parquet"), **NAMED, gap=TEN)
    assert labels(read(tmp_path / "[ab].csv", **NAMED, gap=TEN)) == labels(whole)


def test_without_series_each_file_is_one(tmp_path: Path) -> None:
    write(pl.DataFrame({"s": ["x", "y"]}), tmp_path / "ann.csv")
    write(pl.DataFrame({"s": ["y", "y"]}), tmp_path / "bob.jsonl")
    assert labels(read(f"{tmp_path}/*", state="s")) == {"ann": [["x", "y"]], "bob": [["y", "y"]]}
    (tmp_path / "more").mkdir()
    write(pl.DataFrame({"s": ["x", "x"]}), tmp_path / "more" / "ann.csv")
    assert len(read(f"{tmp_path}/**/*.*", state="s").names) == 3


def test_a_name_that_looks_like_a_pattern_is_a_file_first(tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet", ".jsonl"):
        file = write(pl.DataFrame({"s": ["x", "y"]}), tmp_path / f"day[1]{suffix}")
        assert read(file, state="s").names == ("day[1]",)


@pytest.mark.parametrize(
    "times",
    [
        ["2024-05-01T08:00:00", "2024-05-01T08:00:01"],
        ["2024-05-01 08:00:00.000", "2024-05-01 08:00:01.000"],
        ["2024-05-01T10:00:00+02:00", "2024-05-01T08:00:01Z"],
        ["2024-05-01T04:30:00-0330", "2024-05-01T08:00:01Z"],
        ["1714550400", "1714550401"],
        ["1714550400.5", "1714550401.5"],
        [1714550400, 1714550401],
        [1714550400.5, 1714550401.5],
        [datetime(2024, 5, 1, 8), datetime(2024, 5, 1, 8, 0, 1)],
        [datetime(2024, 5, 1, 8, tzinfo=UTC), datetime(2024, 5, 1, 8, 0, 1, tzinfo=UTC)],
    ],
)
def test_times_in_every_form_keep_their_distance(times: list[Any]) -> None:
    frame = pl.DataFrame({"s": ["late", "early"], "t": times[::-1]})
    second = timedelta(seconds=1)
    apart = from_table(frame, state="s", time="t", gap=second - timedelta(microseconds=1))
    assert labels(apart) == {"data": [["early"], ["late"]]}
    assert labels(from_table(frame, state="s", time="t", gap=second)) == {
        "data": [["early", "late"]]
    }


def test_offsets_are_brought_to_utc() -> None:
    east = datetime(2024, 5, 1, 8, tzinfo=timezone(timedelta(hours=9)))
    frame = pl.DataFrame({"s": ["a", "b"], "t": [east, east + timedelta(hours=1)]})
    assert from_table(frame, state="s", time="t", gap=timedelta(hours=1)).longest == 2
    days = pl.DataFrame({"s": ["a", "b"], "t": [date(2024, 5, 1), date(2024, 5, 3)]})
    assert from_table(days, state="s", time="t", gap=timedelta(days=1)).longest == 1
    mixed = pl.DataFrame({"s": ["b", "a"], "t": ["2024-05-01T08:00", "2024-05-01"]})
    assert labels(from_table(mixed, state="s", time="t")) == {"data": [["a", "b"]]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], ("1", "2")),
        ([1.0, 2.5], ("1", "2.5")),
        ([True, False], ("False", "True")),
        (["1.0", "01"], ("01", "1.0")),
    ],
)
def test_labels_follow_the_rule_of_the_models(values: list[Any], expected: tuple[str, ...]) -> None:
    assert from_table(pl.DataFrame({"s": values}), state="s").states == expected
    small = pl.DataFrame({"s": pl.Series(["b", "a", "b"], dtype=pl.Categorical)})
    assert from_table(small, state="s").chains[0][0].tolist() == [1, 0, 1]


def test_a_csv_keeps_text_as_written_and_skips_the_mark_of_its_encoding(tmp_path: Path) -> None:
    assert csv(tmp_path, "\ufeffs\n007\n1.0\n").states == ("007", "1.0")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_text_in_utf_16_is_told_apart_from_odd_columns(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes("\ufeffs\na\nb\n".encode(encoding))
    with pytest.raises(DataError, match="not text in UTF-8; save it as UTF-8"):
        read(file, state="s")


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        ("", {}, "'.*in.csv' is empty; at least 2 rows are needed"),
        ("s\n", {}, "holds no rows; at least 2 are needed"),
        ("s\na\n", {}, "the data holds 1 row; at least 2 are needed"),
        ("a,b\n1,2\n", {}, "has no column 's', named as the state; its columns are: a, b$"),
        ("s\na\n", {"series": "u"}, "has no column 'u', named as the series"),
        ("s\na\n", {"time": "t"}, "has no column 't', named as the time"),
        ("s;t\na;b\n", {}, "they are separated by semicolons: say so with --sep"),
        ("S,t\na,b\n", {}, r"its columns are: S, t; did you mean 'S'\?$"),
        ("s,t\na,1\n,2\n", {}, r"column 's' is empty in 1 row\(s\), the first is row 2; drop"),
        ("s,t\na,1\nb\n", {"time": "t"}, "column 't' is empty in 1 .* or fill in the time"),
        (
            "s,t\na,1\nb,2,3\n",
            {},
            "cannot be read as csv: a row has more fields than the first line",
        ),
        ('s\n"a\nb\n', {}, "cannot be read as csv"),
        ("s,t\na,5\nb,5\n", {"time": "t"}, "series 'in' has two rows at time 5 s; a series may"),
        (
            "s,t\na,2024-05-01\nb,2024-05-01T00:00:00\n",
            {"time": "t"},
            "two rows at time 2024-05-01 00:00:00",
        ),
        ("s,t\na,noon\nb,2\n", {"time": "t"}, "holds 'noon' in row 1, which is not a time; write"),
        ("s,t\na,1\nb,noon\n", {"time": "t"}, "'noon' in row 2, which is not a number of seconds"),
        ("s,t\na,1\nb,inf\n", {"time": "t"}, "holds 'inf' in row 2"),
        ("s,t\na,1\nb,1e300\n", {"time": "t"}, "holds '1e300' in row 2"),
        ("s,t\na,2024-02-30\nb,2024-03-01\n", {"time": "t"}, "holds '2024-02-30' in row 1"),
        (
            "s,t\na,2024-05-01T08:00:00Z\nb,2024-05-01T08:00:01\n",
            {"time": "t"},
            "mixes times with an offset",
        ),
    ],
)
def test_bad_tables_are_refused_in_a_sentence(
    tmp_path: Path, text: str, named: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        csv(tmp_path, text, **named)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.csv", b"s\n\xff\nb\n", "cannot be read as csv: it is not text in UTF-8"),
        ("in.jsonl", b'{"s":"a"}\n{"s":"b"', "cannot be read as jsonl"),
        ("in.jsonl", b'{"s":"a"}\n{"t":"b"}\n', r"column 's' is empty in 1 row\(s\)"),
        ("in.jsonl", b'[{"s":"a"},{"s":"b"}]', "cannot be read as jsonl"),
        ("in.jsonl", b'{"s":[1]}\n{"s":[2]}\n', "a label must be text"),
        ("in.parquet", b"PAR1 no more", "cannot be read as parquet"),
        ("in.parquet", b"", "is empty"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message) as refusal:
        read(tmp_path / name, state="s")
    assert "\n" not in str(refusal.value)


def test_a_truncated_parquet_is_refused_wherever_it_ends(tmp_path: Path) -> None:
    whole = write(ROWS, tmp_path / "whole.parquet").read_bytes()
    for kept in range(0, len(whole), 97):
        (tmp_path / "cut.parquet").write_bytes(whole[:kept])
        with pytest.raises(DataError, match=r"cut\.parquet' (is empty|cannot be read)"):
            read(tmp_path / "cut.parquet", **NAMED)


def test_missing_values_of_every_kind_are_refused() -> None:
    for values in ([1.0, float("nan")], [1.0, None], ["a", None]):
        with pytest.raises(DataError, match=r"column 's' is empty in 1 row\(s\).*row 2"):
            from_table(pl.DataFrame({"s": values}), state="s")
    nowhen = pl.DataFrame({"s": ["a", "b"], "t": [True, False]})
    with pytest.raises(DataError, match="column 't' holds Boolean values; a time must be"):
        from_table(nowhen, state="s", time="t")


def test_missing_places_and_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no file is at '.*none\.csv'; check the path"):
        read(tmp_path / "none.csv", state="s")
    with pytest.raises(DataError, match=r"no file matches '.*\*\.csv'"):
        read(tmp_path / "*.csv", state="s")
    with pytest.raises(DataError, match=r"holds no files; name another"):
        read(tmp_path, state="s")
    (tmp_path / "in.txt").write_text("s\na\nb\n")
    with pytest.raises(InputError, match=r"is of no known format; Shoal reads tables"):
        read(tmp_path / "in.txt", state="s")
    with pytest.raises(InputError, match="no time column is named"):
        read(tmp_path / "in.txt", state="s", gap=TEN)
    with pytest.raises(InputError, match=r"gap is .*; it must be longer than 0"):
        read(tmp_path / "in.txt", state="s", time="t", gap=timedelta(0))
