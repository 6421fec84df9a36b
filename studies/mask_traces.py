"""Days of contexts, slot by slot: made-up phones always, real people when `SHOAL_DATA` is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shoal.data.generate import phone_contexts
from studies.sources import real_folder

SLOT = 30  # minutes of a slot in real traces
SLOTS = 24 * 60 // SLOT
LEAST_DAYS = 4
LEAST_READINGS = 12  # slots of a real day with a reading
NOTHING = "no reading"  # a context of its own: that the phone was silent is seen by everybody
PLACES = {  # the first label that is set names the place
    "loc_home": "home",
    "loc_main_workplace": "work",
    "at_school": "school",
    "in_class": "school",
    "at_the_gym": "gym",
    "fix_restaurant": "restaurant",
    "at_a_bar": "bar",
    "at_a_party": "party",
    "shopping": "shop",
    "in_a_car": "car",
    "on_a_bus": "bus",
    "or_outside": "outside",
}

Trace = list[str]


class Person(NamedTuple):
    """Somebody's days in order of time, each a context per slot."""

    name: str
    days: tuple[Trace, ...]
    home: str | None

    @property
    def contexts(self) -> list[str]:
        return sorted({context for day in self.days for context in day})


def people(kinds: tuple[str, ...] = ("places", "activity", "modes")) -> Iterator[Any]:
    """(source, persons) pairs: generated places, then what is found of the real traces."""
    yield "generated phones", generated(12)
    folder = real_folder()
    if folder is None:
        return
    labels = folder / "extrasensory_labels_1min.parquet"
    if "places" in kinds and labels.exists():
        yield "ExtraSensory places", _extrasensory(labels, places=True)
    if "activity" in kinds and labels.exists():
        yield "ExtraSensory activities", _extrasensory(labels, places=False)
    modes = folder / "geolife_transport_labels.parquet"
    if "modes" in kinds and modes.exists():
        yield "GeoLife modes", _geolife(modes)


def generated(count: int, days: int = 112) -> list[Person]:
    """Made-up phones, 15-minute slots from 6:00 to midnight."""
    data = phone_contexts(days=days, seed=2012, people=count)
    return [
        Person(name, tuple([data.states[i] for i in chain] for chain in chains), "home")
        for name, chains in zip(data.names, data.chains, strict=True)
    ]


def _extrasensory(path: Path, *, places: bool) -> list[Person]:
    import polars as pl

    columns = ["user", "time_utc", *(PLACES if places else ["main_activity"])]
    frame = pl.read_parquet(path, columns=columns)
    if places:
        context = pl.coalesce(
            [pl.when(pl.col(name) == 1).then(pl.lit(place)) for name, place in PLACES.items()]
        )
    else:
        context = pl.col("main_activity").cast(pl.String)
    rows = frame.select(pl.col("user").cast(pl.String), time="time_utc", context=context)
    return _slotted(rows.drop_nulls(), "home" if places else None)


def _geolife(path: Path) -> list[Person]:
    import polars as pl

    frame = pl.read_parquet(path).select(
        pl.col("user").cast(pl.String),
        time=pl.datetime_ranges("start_utc", "end_utc", interval="10m"),
        context="mode",
    )
    return _slotted(frame.explode("time").drop_nulls(), None)


def _slotted(rows: Any, home: str | None) -> list[Person]:
    """Readings to days of slots: the commonest context of each slot."""
    import polars as pl

    commonest = (
        rows.with_columns(
            day=pl.col("time").dt.date(),
            slot=(pl.col("time").dt.hour().cast(pl.Int64) * 60 + pl.col("time").dt.minute())
            // SLOT,
        )
        .group_by("user", "day", "slot", "context")
        .len()
        .sort(["len", "context"], descending=[True, False])
        .group_by("user", "day", "slot", maintain_order=True)
        .first()
        .sort("user", "day", "slot")
    )
    found: dict[str, dict[Any, Trace]] = {}
    for user, day, slot, context in commonest.select("user", "day", "slot", "context").rows():
        days = found.setdefault(user, {})
        days.setdefault(day, [NOTHING] * SLOTS)[slot] = context
    persons = []
    for user, days in found.items():
        full = [d for d in days.values() if sum(c != NOTHING for c in d) >= LEAST_READINGS]
        if len(full) >= LEAST_DAYS:
            persons.append(Person(user, tuple(full), home))
    return persons
