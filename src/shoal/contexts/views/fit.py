"""`shoal fit --slot`: the chain of a day from timed contexts, one matrix for every step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.cli import show
from shoal.cli.fit import note_one_series, note_twins
from shoal.cli.show import check_output
from shoal.core.errors import DataError, InputError

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.contexts.day import DayChain
    from shoal.data.positions import Traces


class DayWish(NamedTuple):
    """What `shoal fit --slot` was asked for: how a day is cut, and how counts are smoothed."""

    slot: str
    hours: str | None
    smoothing: str
    spread: int


def fit_contexts(
    data: str,
    out: Path,
    columns: NamedColumns,
    options: dict[str, Any],
    *,
    as_json: bool,
    force: bool,
) -> None:
    """Fits, stores and reports the chain of a day; `options` are the fields of a DayWish."""
    from shoal.contexts.day import fit_day
    from shoal.core.registry import dumps
    from shoal.data.positions import slots_of, timed_rows, traces_of
    from shoal.data.write import atomic_write

    wish = DayWish(**options)
    if columns.state is None or columns.time is None:
        raise InputError("--slot needs the columns of contexts and times; name --state and --time")
    if columns.gap is not None:
        raise InputError("--gap does not go with --slot: slots without a reading are left out")
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    check_output(out, force=force)
    slots = slots_of(_length(wish.slot), wish.hours, dashes="--")
    with show.working("reading"):
        rows = timed_rows(data, **columns.named)
        found = traces_of(rows, slots)
    with show.working("fitting"):
        try:
            chain = fit_day(
                found.days,
                smoothing=wish.smoothing,
                spread=wish.spread,
                slot_minutes=slots.minutes,
                start_minute=slots.start,
            )
        except DataError as error:
            raise DataError(f"{error}; --hours says which hours a day has") from None
    note_one_series(columns.series, rows["person"].n_unique())
    note_twins(rows["context"].drop_nulls().unique().sort())
    atomic_write(out, dumps(chain) + "\n")
    if as_json:
        show.print_json(_object(out, chain, found))
    else:
        _print(out, chain, found)


def _length(slot: str) -> Any:
    """The length of a slot; a bare number on the command line is refused."""
    from shoal.data.times import parse_duration

    parse_duration(slot, "--slot")
    return slot


def _object(out: Path, chain: DayChain, found: Traces) -> dict[str, Any]:
    missing = sum(context is None for day in found.days for context in day)
    return {
        "path": str(out),
        "states": list(chain.states),
        "days": len(found.days),
        "slots": chain.slots,
        "slot_minutes": chain.slot_minutes,
        "start_minute": chain.start_minute,
        "rows": found.readings,
        "rows_outside": found.outside,
        "rows_further": found.further,
        "slots_missing": missing,
        "private": False,
    }


def _print(out: Path, chain: DayChain, found: Traces) -> None:
    from shoal.cli.fit import NOT_PRIVATE

    told = _object(out, chain, found)
    cells = len(found.days) * chain.slots
    screen = show.console()
    screen.print(f"Read {found.readings:,} rows as {len(found.days):,} day(s).")
    screen.print(f"Model in {out}: {chain.describe()}.")
    screen.print(f"{told['slots_missing']:,} of {cells:,} slots have no reading.")
    if found.further:
        screen.print(f"{found.further:,} rows share a slot with an earlier one, which counts.")
    if found.outside:
        screen.print(f"{found.outside:,} rows lie at other hours and were left out.")
    screen.print()
    screen.print(NOT_PRIVATE)
    screen.print(f'In a spec:\n  [[model]]\n  file = "{out.name}"')
