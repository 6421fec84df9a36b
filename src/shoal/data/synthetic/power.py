"""What a house draws from the grid, minute by minute: fridge, kettle, oven, washing, lights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.core.value import Floats
from shoal.data.dataset import Dataset
from shoal.data.synthetic.rhythm import MINUTES, MONDAY, at_least_one, generator
from shoal.data.table import from_table

if TYPE_CHECKING:
    import polars as pl


def household_power(days: int = 28, seed: int = 1, *, houses: int = 1, bin_w: int = 200) -> Dataset:
    """The bin of watts in each minute, one chain per house; a state is the lower edge of its bin.

    States are in the order of their watts: "0", "200", "400", …
    """
    table = power_table(days, seed, houses=houses, bin_w=bin_w)
    found = from_table(table, state="state", series="series", time="time")
    return found.on(sorted(found.states, key=int))


def power_table(
    days: int = 28, seed: int = 1, *, houses: int = 1, bin_w: int = 200
) -> pl.DataFrame:
    """Columns series ("house-1", …), time, watts, and state: the lower edge of the bin in watts."""
    import polars as pl

    at_least_one(days=days, houses=houses, bin_w=bin_w)
    frames = []
    for house in range(houses):
        watts = _house(days, generator(seed, house))
        frames.append(
            pl.DataFrame({"series": [f"house-{house + 1}"] * len(watts), "watts": watts})
            .with_row_index("minute")
            .with_columns(
                time=pl.lit(MONDAY) + pl.duration(minutes="minute"),
                state=(pl.col("watts") // bin_w * bin_w).cast(pl.Int64).cast(pl.String),
            )
        )
    return pl.concat(frames).select("series", "time", "watts", "state")


def _house(days: int, draw: np.random.Generator) -> Floats:
    minutes = days * MINUTES
    watts = draw.uniform(110, 160) + draw.normal(0, 15, minutes)
    watts += _fridge(minutes, draw)
    for day in range(days):
        _add_day(watts, day * MINUTES, day % 7 >= 5, draw)
    return np.maximum(watts, 0.0).round(1)


def _fridge(minutes: int, draw: np.random.Generator) -> Floats:
    """A compressor that runs a third of the time."""
    on, off = draw.uniform(10, 16), draw.uniform(22, 32)
    lengths = np.maximum(draw.normal([on, off], 2.0, (minutes // 20 + 2, 2)), 1).round()
    levels = np.tile([90.0, 0.0], len(lengths))
    return np.repeat(levels, lengths.astype(np.int64).ravel())[:minutes]


def _add_day(watts: Floats, start: int, weekend: bool, draw: np.random.Generator) -> None:
    """Put a day's appliances on top of the base load."""

    def use(hour: float, spread: float, minutes: float, power: float) -> None:
        begin = start + int(draw.normal(hour, spread) * 60)
        length = max(1, round(draw.normal(minutes, minutes / 6)))
        watts[max(begin, 0) : begin + length] += draw.normal(power, power / 20)

    for hour in (7.2, 10.5, 16.0, 20.5):
        if draw.random() < 0.8:
            use(hour + weekend, 0.5, 3, 2400)  # kettle
    use(7.4 + weekend, 0.3, 8, 1800)  # shower and hair
    use(18.6, 0.5, 12, 2600)  # oven heats
    use(18.9, 0.5, 25, 1100)  # oven keeps
    use(20.3, 0.6, 150, 260)  # lights and television
    if draw.random() < (0.7 if weekend else 0.3):
        use(10.5, 1.5, 16, 2050)  # washing machine heats
        use(10.9, 1.5, 55, 240)  # and turns
    if draw.random() < 0.5:
        use(21.5, 0.5, 35, 1250)  # dishwasher
