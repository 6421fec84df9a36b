"""What `shoal fit` tells about data that may not mean what it says, and options it cannot use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.data.dataset import Dataset

MOST_STATES = 12  # that are printed


def check_kind(
    *, grid: str | None, slot: str | None, maps: Mapping[str, object], days: Mapping[str, object]
) -> None:
    """Refuses options of a map or of a day where another kind of model is fitted.

    `maps` and `days` hold the values of the options that are for one kind alone.
    """
    if grid is not None and slot is not None:
        raise InputError("--grid fits a map and --slot a day; give one of them")
    for kind, wanted, given in (("maps", grid, maps), ("days", slot, days)):
        used = [option for option, value in given.items() if value]
        if wanted is None and used:
            name = "--grid" if kind == "maps" else "--slot"
            verb, them = ("is", "it") if len(used) == 1 else ("are", "them")
            options = " and ".join(used)
            raise InputError(f"{options} {verb} for {kind}; name {name} too, or drop {them}")


def states_line(states: Sequence[str]) -> str:
    """The states that were found, so that a slip in the data is seen."""
    shown = ", ".join(map(str, states[:MOST_STATES]))
    return f"States: {shown}{', …' if len(states) > MOST_STATES else ''}"


def note_twins(states: Iterable[str]) -> None:
    """Tells of states that differ in nothing but case and spaces: mostly one state, misspelt."""
    alike: dict[str, list[str]] = {}
    for state in states:
        alike.setdefault(" ".join(str(state).casefold().split()), []).append(str(state))
    twins = [same for same in alike.values() if len(same) > 1]
    if twins:
        shown = " and ".join(map(repr, twins[0]))
        more = f" (and {len(twins) - 1} more such)" if len(twins) > 1 else ""
        typer.echo(
            f"NOTE: the states {shown}{more} differ only in case or spaces; each counts as a state "
            "of its own. Make them alike in the data if they mean the same.",
            err=True,
        )


def note_one_series(series: str | None, people: int) -> None:
    """Tells that rows of several people would be taken for one."""
    if series is None and people == 1:  # several files are several people
        typer.echo(
            "NOTE: all rows count as one series, one after the other. If they are about several "
            "people, name the column that tells them apart with --series.",
            err=True,
        )


def note_data(dataset: Dataset, series: str | None) -> None:
    """All of it, about a file of states."""
    note_one_series(series, len(dataset.names))
    note_twins(dataset.states)
