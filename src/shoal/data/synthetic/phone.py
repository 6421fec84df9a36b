"""Where a phone is through the day: home, commute, work, and now and then somewhere private."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.errors import InputError
from shoal.data.dataset import Dataset
from shoal.data.synthetic.rhythm import MONDAY, at_least_one, generator
from shoal.data.table import from_table

if TYPE_CHECKING:
    import polars as pl

CONTEXTS = ("cafe", "commute", "friends", "gym", "home", "hospital", "shop", "work")
FIRST_HOUR = 6  # the phone is off before; every day is one chain from 6:00 to midnight


def phone_contexts(
    days: int = 56, seed: int = 1, *, people: int = 1, slot_minutes: int = 15
) -> Dataset:
    """A context per slot from 6:00 to midnight; each day is a chain of its own."""
    table = phone_table(days, seed, people=people, slot_minutes=slot_minutes)
    found = from_table(
        table, state="state", series="series", time="time", gap=timedelta(hours=FIRST_HOUR) / 2
    )
    return found.on(CONTEXTS)


def phone_table(
    days: int = 56, seed: int = 1, *, people: int = 1, slot_minutes: int = 15
) -> pl.DataFrame:
    """Columns series ("phone-1", …), time (one row a slot, nights missing) and state."""
    import polars as pl

    at_least_one(days=days, people=people)
    if slot_minutes not in (5, 10, 15):
        raise InputError(f"slot_minutes is {slot_minutes}; it must be 5, 10 or 15")
    slots = (24 - FIRST_HOUR) * 60 // slot_minutes
    frames = []
    for person in range(people):
        draw = generator(seed, person)
        states = [state for day in range(days) for state in _day(day, slots, slot_minutes, draw)]
        frames.append(
            pl.DataFrame({"series": [f"phone-{person + 1}"] * len(states), "state": states})
            .with_row_index("slot")
            .with_columns(
                time=pl.lit(MONDAY + timedelta(hours=FIRST_HOUR))
                + pl.duration(
                    days=pl.col("slot") // slots, minutes=pl.col("slot") % slots * slot_minutes
                )
            )
        )
    return pl.concat(frames).select("series", "time", "state")


def _day(day: int, slots: int, slot_minutes: int, draw: np.random.Generator) -> list[str]:
    """The contexts of one day; visits last minutes drawn around their usual length."""
    plan = _workday(draw) if day % 7 < 5 else _weekend(draw)
    contexts: list[str] = []
    for context, minutes in plan:
        length = max(1, round(draw.normal(minutes, minutes / 8) / slot_minutes))
        contexts += [context] * length
    return (contexts + ["home"] * slots)[:slots]


def _workday(draw: np.random.Generator) -> list[tuple[str, float]]:
    plan: list[tuple[str, float]] = [("home", 100), ("commute", 35)]
    if draw.random() < 0.04:
        plan += [("hospital", 90), ("commute", 20)]
    plan += [("work", 240)]
    if draw.random() < 0.6:
        plan += [("cafe", 30)]
    plan += [("work", 220), ("commute", 35)]
    if draw.random() < 0.25:
        plan += [("shop", 25)]
    if draw.random() < 0.3:
        plan += [("gym", 70), ("commute", 15)]
    elif draw.random() < 0.2:
        plan += [("friends", 130), ("commute", 25)]
    return plan


def _weekend(draw: np.random.Generator) -> list[tuple[str, float]]:
    plan: list[tuple[str, float]] = [("home", 240)]
    for place, chance, minutes in (
        ("shop", 0.7, 45),
        ("gym", 0.3, 75),
        ("hospital", 0.05, 60),
        ("cafe", 0.4, 60),
        ("friends", 0.6, 200),
    ):
        if draw.random() < chance:
            plan += [("commute", 20), (place, minutes), ("commute", 20), ("home", 60)]
    return plan
