"""Tables of positions for the commands about places: files in, people, seconds and places out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    import polars as pl


def read_positions(
    path: str,
    *,
    series: str | None,
    time: str | None,
    latitude: str | None,
    longitude: str | None,
    state: str | None = None,
) -> pl.DataFrame:
    """Columns user, seconds (when there is a time), and lat and lon, or state.

    Takes a file or a pattern; without `series` each file is one person, named after it.
    """
    import polars as pl

    from shoal.data.read import load, matching
    from shoal.data.times import microseconds

    if (state is None) == (latitude is None) or (latitude is None) != (longitude is None):
        raise InputError("name --lat and --lon, or --state, but not both")
    parts = []
    for file in matching(path):
        names = [name for name in (state, latitude, longitude) if name is not None]
        frame = load(file, state=names[0], series=series, time=time)
        for name in names[1:]:
            frame = frame.with_columns(load(file, state=name, series=None, time=None)[name])
        columns = {"user": pl.lit(file.stem) if series is None else pl.col(series).cast(pl.String)}
        if time is not None:
            seconds = microseconds(frame[time], repr(str(file))).cast(pl.Float64) / 1e6
            columns["seconds"] = pl.lit(seconds)
        if state is not None:
            columns["state"] = pl.col(state).cast(pl.String)
        else:
            columns["lat"] = pl.col(str(latitude)).cast(pl.Float64, strict=False)
            columns["lon"] = pl.col(str(longitude)).cast(pl.Float64, strict=False)
        parts.append(frame.select(**columns))
    table = pl.concat(parts)
    if table.height == 0:
        raise DataError(f"{path!r} holds no rows; at least 2 positions are needed")
    return table
