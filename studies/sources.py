"""The data experiments run on: generated always, real when `SHOAL_DATA` names a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from shoal.data.generate import activity_days, household_power
from shoal.data.table import Dataset, from_table

GAP = timedelta(minutes=10)


def real_folder() -> Path | None:
    """The folder of real data, or None."""
    folder = os.environ.get("SHOAL_DATA")
    return Path(folder) if folder else None


def activity() -> Iterator[tuple[str, Dataset]]:
    """Activities of several people, minute by minute, gaps over 10 minutes cut."""
    yield "generated", activity_days(people=24, days=7, seed=1)
    folder = real_folder()
    path = folder / "extrasensory_labels_1min.parquet" if folder else None
    if path is not None and path.exists():
        import polars as pl

        frame = pl.read_parquet(path, columns=["user", "time_utc", "main_activity"]).drop_nulls()
        data = from_table(frame, series="user", time="time_utc", state="main_activity", gap=GAP)
        yield "ExtraSensory", data


def power() -> Iterator[tuple[str, Dataset]]:
    """A household's power in bins of 200 W, minute by minute."""
    yield "generated", household_power(days=120, seed=1)
    folder = real_folder()
    path = folder / "household_power_1min.parquet" if folder else None
    if path is not None and path.exists():
        import polars as pl

        frame = (
            pl.scan_parquet(path)
            .filter((pl.col("dataset") == "REFIT") & (pl.col("house") == 2))
            .filter(pl.col("quality") == "ok")
            .select("time", (pl.col("aggregate_w") // 200).clip(0, 30).cast(pl.Int64).alias("bin"))
            .collect()
        )
        gap = timedelta(seconds=60)
        yield "REFIT house 2", from_table(frame, time="time", state="bin", gap=gap)
