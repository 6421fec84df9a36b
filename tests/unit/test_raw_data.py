"""Raw tables: nothing is silently wrong. Each case is made right, or refused with the fix."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import shoal
from shoal.core.errors import DataError, InputError
from shoal.data.rows import Bins, parse_where
from shoal.data.table import MOST_STATES_READ, Dataset, from_table
from shoal.data.times import clock, duration, microseconds

ROWS = {
    "user": ["a", "a", "a", "a", "b", "b"],
    "t": [0, 60, 120, 180, 0, 60],
    "what": ["sit", None, "walk", "sit", "walk", "walk"],
}


def texts(data: Dataset) -> dict[str, list[list[str]]]:
    return {
        name: [[data.states[i] for i in chain] for chain in chains]
        for name, chains in zip(data.names, data.chains, strict=True)
    }


def duckdb_table(frame: pd.DataFrame) -> Any:
    import duckdb

    return duckdb.from_df(frame)


LIBRARIES = {
    "pandas": lambda frame: frame,
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": pa.Table.from_pandas,
    "duckdb": duckdb_table,
    "indexed pandas": lambda frame: frame.set_index("t"),
    "shuffled pandas": lambda frame: frame.iloc[[4, 2, 0, 5, 3, 1]],
}


@pytest.mark.parametrize(
    "library",
    [
        pytest.param(name, marks=pytest.mark.engines if name == "duckdb" else ())
        for name in LIBRARIES
    ],
)
@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("drop", {"a": [["sit", "walk", "sit"]], "b": [["walk", "walk"]]}),
        ("gap", {"a": [["sit"], ["walk", "sit"]], "b": [["walk", "walk"]]}),
        ("state", {"a": [["sit", "missing", "walk", "sit"]], "b": [["walk", "walk"]]}),
    ],
)
def test_missing_states_in_every_library(library: str, way: str, expected: Any) -> None:
    frame = LIBRARIES[library](pd.DataFrame(ROWS))
    found = shoal.read(frame, state="what", series="user", time="t", missing=way)
    assert texts(found) == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_states_are_refused_unless_asked_for(library: str) -> None:
    frame = LIBRARIES[library](pd.DataFrame(ROWS))
    with pytest.raises(DataError, match=r"column 'what' is empty in 1 row\(s\).*missing='drop'"):
        shoal.read(frame, state="what", series="user", time="t")


@pytest.mark.parametrize("hole", [None, float("nan"), pd.NaT, pd.NA, "", "NaN", "NA", " null "])
def test_whatever_stands_for_no_value_is_missing(hole: Any) -> None:
    frame = pd.DataFrame({"s": ["x", hole, "y"]}, dtype=object)
    with pytest.raises(DataError, match="is empty"):
        shoal.read(frame, state="s")
    assert texts(shoal.read(frame, state="s", missing="gap")) == {"data": [["x"], ["y"]]}


def test_missing_times_and_series_are_dropped_or_refused() -> None:
    frame = pd.DataFrame(
        {
            "s": list("xyxy"),
            "u": ["a", "a", None, "a"],
            "t": pd.to_datetime([1, None, 3, 4], unit="s"),
        }
    )
    with pytest.raises(DataError, match="column 'u' is empty in 1"):
        shoal.read(frame, state="s", series="u")
    with pytest.raises(DataError, match=r"column 't' is empty in 1 .* or fill in the time"):
        shoal.read(frame, state="s", time="t", missing="gap")
    kept = shoal.read(frame, state="s", series="u", time="t", missing="drop")
    assert texts(kept) == {"a": [["x", "y"]]}


def test_a_state_called_missing_is_not_mixed_with_missing_values() -> None:
    frame = pl.DataFrame({"s": ["missing", None, "x"]})
    with pytest.raises(DataError, match="already holds the state 'missing'"):
        shoal.read(frame, state="s", missing="state")
    with pytest.raises(InputError, match="missing is 'ignore'; it must be one of refuse, drop"):
        shoal.read(frame, state="s", missing="ignore")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"s": pd.Categorical(["x", "y"], categories=["x", "y", "z"])}),
        pl.DataFrame({"s": pl.Series(["x", "y"], dtype=pl.Enum(["x", "y", "z"]))}),
    ],
    ids=["pandas", "polars"],
)
def test_unused_levels_are_refused_with_the_fix(frame: Any) -> None:
    with pytest.raises(
        DataError, match="has the level 'z', which no row takes; drop unused levels"
    ):
        shoal.read(frame, state="s")
    with pytest.raises(DataError, match="the data has the level 'z', which no row takes"):
        shoal.fit_chain(frame["s"])
    used = frame["s"]
    if isinstance(frame, pd.DataFrame):
        frame = frame.assign(s=used.cat.remove_unused_categories())
        assert shoal.read(frame, state="s").states == ("x", "y")


def test_too_many_states_are_refused_before_any_matrix_is_made() -> None:
    watts = pl.DataFrame({"watts": np.arange(MOST_STATES_READ + 1) / 7})
    with pytest.raises(
        DataError, match=r"4,097 different values, and a chain handles 4,096.*bins=8"
    ):
        shoal.read(watts, state="watts")
    with pytest.raises(DataError, match=r"4,097 different values, and a chain handles 4,096"):
        shoal.fit_chain(watts["watts"])
    assert len(shoal.read(watts, state="watts", bins=8).states) == 8


def test_bins_are_named_by_their_edges_and_known_again() -> None:
    bins = Bins.of([100, "500.5"], pl.Series([1.0]))
    assert bins.labels == ("below 100", "100 to 500.5", "500.5 or more")
    assert Bins.named_by(bins.labels[::-1]) == bins
    assert Bins.named_by(("below 100", "sit")) is None
    assert Bins.named_by(("below 100", "500 or more")) is None  # a range is left out
    numbers = pl.Series("w", [99.9, 100, 500.4, 500.5, None])
    assert bins.cut(numbers).to_list() == [
        "below 100", "100 to 500.5", "100 to 500.5", "500.5 or more", None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "values", [[0.0, 1, 2, 3, 4, 5, 6, 7], ["0", "1", "2", "3", "4", "5", "6", "7"]]
)
def test_a_number_of_bins_holds_about_as_many_rows_each(values: list[Any]) -> None:
    found = shoal.read(pl.DataFrame({"w": values}), state="w", bins="4")
    assert np.bincount(np.concatenate(found.chains[0])).tolist() == [2, 2, 2, 2]


def test_every_bin_is_a_state_in_order_also_where_no_row_lies() -> None:
    frame = pl.DataFrame({"w": [900.0, 10.0, None, 20.0], "t": [3, 1, 2, 4]})
    found = shoal.read(frame, state="w", time="t", bins=[100, 500, 1000], missing="state")
    every = ("below 100", "100 to 500", "500 to 1000", "1000 or more", "missing")
    assert found.states == every
    assert texts(found) == {"data": [["below 100", "missing", "500 to 1000", "below 100"]]}
    chain = shoal.fit_chain(
        frame, state="w", time="t", bins=[100, 500, 1000], missing="state", smoothing=1, length=9
    )
    plan = shoal.calibrate(shoal.count(every, "below 100"), shoal.EachEntry(), chain, epsilon=1)
    raw = plan.release(frame, state="w", time="t", missing="state", rng=1)  # the bins are known
    assert raw.as_dict() == plan.release(texts(found)["data"][0], rng=1).as_dict()


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        ([3, 2], "bins is 3, 2; give edges that rise"),
        (1, "bins is 1; it must be from 2 to 512"),
        ("a,b", "bins is 'a'; it must be a finite number"),
        (list(range(600)), "bins has 600 edges"),
    ],
)
def test_odd_bins_are_refused(bins: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shoal.read(pl.DataFrame({"w": [1.0, 2.0, 3.0]}), state="w", bins=bins)


def test_bins_are_for_numbers() -> None:
    with pytest.raises(DataError, match="holds 'x' in row 2, which is no number"):
        shoal.read(pl.DataFrame({"w": ["1", "x"]}), state="w", bins=2)
    with pytest.raises(DataError, match="the column holds one value only"):
        shoal.read(pl.DataFrame({"w": [1.0, 1.0]}), state="w", bins=2)
    with pytest.raises(DataError, match="holds Boolean values; bins are for numbers"):
        shoal.read(pl.DataFrame({"w": [True, False]}), state="w", bins=2)


def test_milliseconds_are_not_taken_for_seconds() -> None:
    frame = pl.DataFrame({"s": ["x", "y"], "t": [1_700_000_000_000, 1_700_000_060_000]})
    with pytest.raises(DataError, match=r"beyond the year 5138.*unit='ms', --time-unit ms"):
        shoal.read(frame, state="s", time="t")
    near = shoal.read(frame, state="s", time="t", unit="ms", gap="1min")
    assert near.longest == 2
    assert shoal.read(frame, state="s", time="t", unit="ms", gap="59s").longest == 1
    assert shoal.read(frame.rename({"t": "time_ms"}), state="s", time="time_ms").longest == 2


@pytest.mark.parametrize("name", ["minute", "minutes", "startMinute", "t_minutes"])
def test_a_column_called_minute_counts_minutes(name: str) -> None:
    frame = pl.DataFrame({"s": list("xyxy"), name: [0, 1, 2, 30]})
    assert texts(shoal.read(frame, state="s", time=name, gap="10min")) == {
        "data": [["x", "y", "x"], ["y"]]
    }
    assert shoal.read(frame, state="s", time=name, gap="10min", unit="s").longest == 4


def test_numbers_that_say_nothing_about_their_unit_cannot_be_cut_at_gaps() -> None:
    frame = pl.DataFrame({"s": list("xyxy"), "t": [0, 1, 2, 30]})
    with pytest.raises(DataError, match="nothing says whether seconds or minutes"):
        shoal.read(frame, state="s", time="t", gap="10min")
    assert shoal.read(frame, state="s", time="t").longest == 4  # the order alone is clear
    assert shoal.read(frame, state="s", time="t", gap="10min", unit="min").longest == 3
    since_1970 = frame.with_columns(pl.col("t") + 1_700_000_000)
    assert shoal.read(since_1970, state="s", time="t", gap="10min").longest == 4
    with pytest.raises(InputError, match="unit is 'weeks'; it must be one of ns, us, ms, s, min"):
        shoal.read(frame, state="s", time="t", unit="weeks")


@pytest.mark.parametrize(
    ("unit", "numbers", "expected"),
    [
        ("ns", [1_500, 499], [2, 0]),
        ("us", [7], [7]),
        ("ms", [2], [2000]),
        ("h", [1.5], [5_400_000_000]),
        ("d", [1], [86_400_000_000]),
    ],
)
def test_every_unit(unit: str, numbers: list[Any], expected: list[int]) -> None:
    assert microseconds(pl.Series("t", numbers), "x", unit=unit).to_list() == expected


def test_times_without_a_zone_are_of_tz_also_where_a_clock_shows_an_hour_twice() -> None:
    times = ["2024-10-27T01:30", "2024-10-27T02:30", "2024-10-27T02:30", "2024-10-27T03:30"]
    frame = pl.DataFrame({"s": list("wxyz"), "u": ["a"] * 4, "t": times})
    with pytest.raises(DataError, match="two rows at time 2024-10-27 02:30:00"):
        shoal.read(frame, state="s", time="t")
    both = pl.concat([frame, frame.with_columns(u=pl.lit("b"))])
    found = shoal.read(both, state="s", series="u", time="t", tz="Europe/Berlin", gap="1h")
    assert texts(found) == {"a": [list("wxyz")], "b": [list("wxyz")]}
    spring = pl.DataFrame({"s": ["x", "y"], "t": ["2024-03-31T01:30", "2024-03-31T02:30"]})
    with pytest.raises(DataError, match="which no clock of Europe/Berlin shows"):
        shoal.read(spring, state="s", time="t", tz="Europe/Berlin")
    with pytest.raises(InputError, match="tz is 'Berlin'; give a zone such as"):
        shoal.read(spring, state="s", time="t", tz="Berlin")


def test_the_wall_clock_is_that_of_the_zone() -> None:
    utc = pl.Series("t", ["2024-07-01T10:00:00Z"])
    hour = 3_600_000_000
    assert clock(utc, "x").to_list()[0] % (24 * hour) == 10 * hour
    assert clock(utc, "x", "Europe/Berlin").to_list()[0] % (24 * hour) == 12 * hour
    zoned = utc.str.to_datetime(time_zone="UTC").dt.convert_time_zone("America/New_York")
    assert clock(zoned, "x").to_list()[0] % (24 * hour) == 6 * hour
    assert clock(zoned, "x", "Europe/Berlin").to_list()[0] % (24 * hour) == 12 * hour
    written = pl.Series("t", ["2024-07-01T10:00:00+05:00"])
    assert clock(written, "x").to_list()[0] % (24 * hour) == 10 * hour
    assert clock(pl.Series("t", ["2024-07-01 10:00"]), "x").to_list()[0] % (24 * hour) == 10 * hour


def test_two_rows_at_one_time_are_refused_in_every_library() -> None:
    frame = pd.DataFrame({"s": ["x", "y"], "t": pd.to_datetime(["2024-05-01", "2024-05-01"])})
    for library in ("pandas", "polars", "pyarrow"):
        with pytest.raises(DataError, match="two rows at time 2024-05-01 00:00:00; a series may"):
            shoal.read(LIBRARIES[library](frame), state="s", time="t")


@pytest.mark.parametrize(
    ("where", "kept"),
    [
        ("watts >= 10", ["b", "c", "d"]),
        ("watts > 9 and what != 'c'", ["b", "d"]),
        ('"the day" < 2024-05-03', ["a", "b"]),
        ("what = b and watts <= 10", ["b"]),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_where_keeps_rows(tmp_path: Path, where: str, kept: list[str], suffix: str) -> None:
    frame = pl.DataFrame(
        {
            "what": list("abcde"),
            "watts": [9, 10, 100, 11, None],
            "the day": ["2024-05-01", "2024-05-02", "2024-05-03", "2024-05-04", "2024-05-09"],
        }
    )
    more = pl.concat([frame, frame])  # at least two rows each
    file = tmp_path / f"x.{suffix}"
    more.write_csv(file) if suffix == "csv" else more.write_parquet(file)
    for source in (more, file):
        assert texts(shoal.read(source, state="what", where=where)).popitem()[1] == [kept * 2]


@pytest.mark.parametrize("where", ["watts", "watts >", "a = 1 or b = 2", "= 3", "a = 1 and"])
def test_conditions_that_cannot_be_read_are_refused(where: str) -> None:
    with pytest.raises(InputError, match=r"where is .*; write conditions such as"):
        parse_where(where)


def test_where_that_keeps_nothing_or_names_nothing_is_refused() -> None:
    frame = pl.DataFrame({"s": ["x", "y"]})
    with pytest.raises(DataError, match="holds no row with s = z"):
        shoal.read(frame, state="s", where="s = z")
    with pytest.raises(DataError, match="has no column 'q', named in where"):
        shoal.read(frame, state="s", where="q = z")


def test_several_columns_tell_series_apart(tmp_path: Path) -> None:
    frame = pl.DataFrame({"u": ["a", "a", "b", "b"], "k": [1, 2, 1, 1], "s": list("xyxy")})
    expected = {"a/1": [["x"]], "a/2": [["y"]], "b/1": [["x", "y"]]}
    assert texts(shoal.read(frame, state="s", series=["u", "k"])) == expected
    frame.write_csv(tmp_path / "x.csv", separator=";")
    assert texts(shoal.read(tmp_path / "x.csv", state="s", series="u,k", sep=";")) == expected
    with pytest.raises(InputError, match="sep is ';;'; it must be one character"):
        shoal.read(tmp_path / "x.csv", state="s", sep=";;")


@pytest.mark.parametrize(
    "gap",
    ["90s", timedelta(seconds=90), 90, 90.0, pd.Timedelta("90s"), np.timedelta64(90, "s")],
    ids=lambda gap: type(gap).__name__,
)
def test_a_length_of_time_may_be_given_in_any_way(gap: Any) -> None:
    assert duration(gap) == timedelta(seconds=90)


@pytest.mark.parametrize("gap", ["90", 0, -1, timedelta(0), float("nan"), "x", 1e300])
def test_odd_lengths_of_time_are_refused(gap: Any) -> None:
    with pytest.raises(InputError, match="gap is"):
        duration(gap)


def test_a_table_that_cannot_be_read_is_refused_in_a_sentence() -> None:
    mixed = pd.DataFrame({"s": [object(), "x"]})
    with pytest.raises(DataError, match=r"cannot be read as a table|holds Object values"):
        from_table(mixed, state="s")


def test_bins_and_numbers_stand_for_themselves_in_sums_and_means() -> None:
    """Nobody has to write fifty weights: the middle of each bin, outer ones as wide as the next."""
    names = ("below 200", "200 to 400", "400 to 1000", "1000 or more")
    query = shoal.mean(names, length=10, unit="W")
    assert [weight * 10 for (weight,) in query.weights] == [100, 300, 700, 1300]
    low = shoal.weighted_sum(("below 100", "100 to 500", "500 or more"))
    assert [weight for (weight,) in low.weights] == [50, 300, 700]  # nothing below zero
    cold = shoal.weighted_sum(("below -10", "-10 to 0", "0 or more"))
    assert [weight for (weight,) in cold.weights] == [-15, -5, 5]
    assert [weight for (weight,) in shoal.weighted_sum([0, 1.5]).weights] == [0, Fraction(3, 2)]
    with pytest.raises(InputError, match="are neither numbers nor bins; say what each stands for"):
        shoal.mean(("sit", "walk"), length=10)
    with pytest.raises(InputError, match="two bins have no middles"):
        shoal.mean(("below 5", "5 or more"), length=10)
