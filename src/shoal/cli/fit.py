"""What `shoal fit` tells about data that may not mean what it says, and options it cannot use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli import show
from shoal.cli.show import (
    AsJson,
    BinEdges,
    Column,
    DataPath,
    Force,
    Gap,
    Latitude,
    Longitude,
    Missing,
    Separator,
    TimeUnit,
    Where,
    Zone,
    check_output,
    new_app,
)
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.chains.fit_check import FitCheck
    from shoal.chains.held_out import HeldOut
    from shoal.cli.sources import NamedColumns
    from shoal.core.records import Sequences
    from shoal.data.table import Dataset

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


class FitWish(NamedTuple):
    """What `shoal fit` was asked for: rows, law, and what is for maps or days alone."""

    columns: NamedColumns
    law: dict[str, Any]
    maps: dict[str, Any]
    days: dict[str, Any]
    order: int
    group: str | None
    spec: Path | None
    as_json: bool
    force: bool

    @property
    def told(self) -> dict[str, bool]:
        """How to tell of it, and whether files may be replaced."""
        return {"as_json": self.as_json, "force": self.force}

    def check(self) -> None:
        """Refuses options that do not go together, before anything is read."""
        grid, slot, columns = self.maps["grid"], self.days["slot"], self.columns
        only_maps = {"--lat": columns.latitude, "--lon": columns.longitude}
        only_maps |= {f"--{name}": self.maps[name] for name in ("box", "personal")}
        only_days = {f"--{name}": self.days[name] for name in ("hours", "spread")}
        check_kind(grid=grid, slot=slot, maps=only_maps, days=only_days)
        if (grid is not None or slot is not None) and (columns.bins or self.order != 1):
            raise InputError(
                "--bins and --order are for chains of states; drop them with --grid and --slot"
            )
        if grid is not None and (columns.state is not None or self.group is not None):
            raise InputError("--state and --group do not go with --grid; drop them")
        if slot is not None and (self.group is not None or self.law["length"] is not None):
            raise InputError("--group and --length do not go with --slot; drop them")
        if grid is None and slot is None:
            self._check_chains()

    def _check_chains(self) -> None:
        if self.columns.state is None:
            raise InputError(
                "no column of states is named; give --state COLUMN, or --grid for a map"
            )
        if self.order != 1 and self.group is not None:
            raise InputError("--order does not go with --group; fit one group at a time (--where)")

    def fitted(self, data: str, out: Path) -> None:
        """Fits, stores and reports a map, a day or a chain."""
        from shoal.cli.init import check_spec, write_day_spec, write_map_spec, write_spec
        from shoal.core.registry import only_hook

        columns, law = self.columns, self.law
        if self.spec is not None:
            check_output(self.spec, force=self.force)
        if self.maps["grid"] is not None:
            own: dict[str, Any] = {"latitude": columns.latitude, "longitude": columns.longitude}
            own |= {"series": columns.series, "time": columns.time, "gap": columns.gap}
            own |= {**self.maps, **law, "rows": columns.raw}
            only_hook("fit --grid")(data, out, own, **self.told)
            if self.spec is not None:
                write_map_spec(self.spec, out, columns, as_json=self.as_json)
            return
        if self.days["slot"] is not None:
            own = {**self.days, "smoothing": law["smoothing"]}
            only_hook("fit --slot")(data, out, columns, own, **self.told)
            if self.spec is not None:
                write_day_spec(self.spec, out, columns, as_json=self.as_json)
            return
        if self.spec is not None:
            check_spec(self.group, law["length"])
        ordered = law if self.order == 1 else {**law, "order": self.order}
        _fit_chains(data, out, columns, self.group, ordered, **self.told)
        if self.spec is not None:
            write_spec(self.spec, out, columns, as_json=self.as_json)


# `shoal fit`: a Markov chain from data, checked in words, stored as a model.


app = new_app()

EXAMPLES = """\b
Examples:
  shoal fit days.csv -o model.json --state activity --series person --time minute
  shoal fit days.parquet -o model.json --state activity --series user --time time --gap 10min
  shoal fit raw.csv -o model.json --state watts --bins 8 --missing gap --length 1440 --spec s.toml
  shoal fit days.csv -o model.json --state activity --series person --group shift
  shoal fit tracks.csv -o town.json --grid 0.34 --lat lat --lon lon --series user --time t
  shoal fit phone.csv -o day.json --slot 30min --state context --series user --time t
"""

NOT_PRIVATE = (
    "The model itself is not private: it tells about the data it was fitted on. Fit it on data "
    "that may be public, or that everybody in it agreed to show."
)


OutPath = Annotated[
    Path, typer.Option("--out", "-o", metavar="FILE", help="The model, a .json file.")
]
Smoothing = Annotated[
    str,
    typer.Option(
        metavar="NUMBER",
        help="Added to every transition count; for days also auto: what fits best.",
    ),
]
Length = Annotated[
    int | None, typer.Option(min=1, help="Most entries of a chain; without it any length.")
]
Order = Annotated[
    int, typer.Option(min=1, max=8, help="How many past entries the next one depends on.")
]
SpecOut = Annotated[
    Path | None,
    typer.Option("--spec", metavar="FILE", help="Also write a spec that uses the model."),
]
Initial = Annotated[
    str,
    typer.Option(
        metavar="LAW", help="Law of the first entry: stationary, or empirical (the data's)."
    ),
]
GroupColumn = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Fit one model per value: FILE-VALUE.json each."),
]
GridWidth = Annotated[
    str | None,
    typer.Option(metavar="KM", help="Fit a map instead: width of square cells, or h3:8."),
]
Box = Annotated[
    str | None, typer.Option(metavar="S,W,N,E", help="For maps: the box, else the data's.")
]
Personal = Annotated[
    str | None, typer.Option(metavar="SERIES", help="For maps: one person's own chain.")
]
SlotLength = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Fit a day of contexts instead: length of a slot."),
]
Hours = Annotated[
    str | None,
    typer.Option(metavar="FROM-TO", help="For days: such as 08:00-16:00, else all 24 hours."),
]
Spread = Annotated[
    int,
    typer.Option(min=0, metavar="N", help="For days: count that many slots to either side too."),
]


@app.command(epilog=EXAMPLES)
def fit(
    data: DataPath,
    *,
    out: OutPath,
    state: Column = None,
    series: Column = None,
    time: Column = None,
    gap: Gap = None,
    missing: Missing = None,
    bins: BinEdges = None,
    time_unit: TimeUnit = None,
    tz: Zone = None,
    where: Where = None,
    sep: Separator = None,
    order: Order = 1,
    smoothing: Smoothing = "1",
    length: Length = None,
    initial: Initial = "stationary",
    group: GroupColumn = None,
    grid: GridWidth = None,
    latitude: Latitude = None,
    longitude: Longitude = None,
    box: Box = None,
    personal: Personal = None,
    slot: SlotLength = None,
    hours: Hours = None,
    spread: Spread = 0,
    spec: SpecOut = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Fit a Markov chain to data and store it as a model.

    Counts transitions inside chains, says in words whether a Markov chain is a fair description,
    and writes a model that a spec names with `file`. With --grid it is a map, with --slot the
    contexts of a day.
    """
    from shoal.cli.sources import NamedColumns

    raw = {"missing": missing, "bins": bins, "unit": time_unit, "tz": tz, "where": where}
    columns = NamedColumns(state, series, time, gap, None, latitude, longitude, sep=sep, **raw)
    law: dict[str, Any] = {"smoothing": smoothing, "length": length, "initial": initial}
    maps = {"grid": grid, "box": box, "personal": personal}
    days = {"slot": slot, "hours": hours, "spread": spread}
    wish = FitWish(columns, law, maps, days, order, group, spec, as_json, force)
    wish.check()
    wish.fitted(data, out)


def _fit_chains(
    data: str,
    out: Path,
    columns: NamedColumns,
    group: str | None,
    law: dict[str, Any],
    *,
    as_json: bool,
    force: bool,
) -> None:
    """A chain for all data or for each group: fitted, checked, written and told."""
    from shoal.cli.sources import note_pauses, read_data

    dataset = read_data(data, columns)
    parts = _parts(dataset, data, columns, group)
    paths = _paths(out, list(parts), grouped=group is not None)
    for path in paths.values():
        check_output(path, force=force)
    with show.working("fitting"):
        chains, checks = _fitted(parts, law)
    note_data(dataset, columns.series)
    note_pauses(data, columns)
    _write(paths, chains)
    if as_json:
        rows = [_row(name, paths[name], chains[name], checks[name]) for name in parts]
        show.print_json({"models": rows, "private": False})
        return
    _print(dataset, paths, checks)


def _fitted(
    parts: dict[str, Sequences], law: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, FitCheck]]:
    """A chain for each part, and the check of the chain of order 1."""
    from shoal.chains.fit import fit_groups, fit_order
    from shoal.chains.fit_check import check_fit

    first = {name: value for name, value in law.items() if name != "order"}
    chains = fit_groups(parts, **first)
    checks = {name: check_fit(parts[name], chain) for name, chain in chains.items()}
    if "order" in law:
        return {name: fit_order(data, **law) for name, data in parts.items()}, checks
    return dict(chains), checks


def _parts(
    dataset: Dataset, data: str, columns: NamedColumns, group: str | None
) -> dict[str, Sequences]:
    """Group to its sequences, all on the same states; one nameless group without `group`."""
    if group is None:
        return {"": dataset.sequences()}
    from shoal.cli.sources import NamedColumns, read_data
    from shoal.core.errors import DataError
    from shoal.data.entries import split_by

    try:
        own = NamedColumns(group, columns.series, where=columns.where, sep=columns.sep)
        labels = read_data(data, own)
    except DataError as error:
        raise DataError(str(error).replace("named as the state", "named as the group")) from None
    return split_by(dataset, labels, group)


def _paths(out: Path, names: list[str], *, grouped: bool) -> dict[str, Path]:
    if out.suffix.lower() != ".json":
        raise InputError(f"--out is {str(out)!r}; a model is written as .json")
    if not grouped:
        return {names[0]: out}
    safe = {name: re.sub(r"[^\w.-]+", "_", name) for name in names}
    paths = {name: out.with_name(f"{out.stem}-{safe[name]}{out.suffix}") for name in names}
    if len(set(paths.values())) < len(names):
        raise InputError(
            "two groups have names that give the same file name; rename them in the data"
        )
    return paths


def _write(paths: dict[str, Path], chains: dict[str, Any]) -> None:
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write

    for name, path in paths.items():
        atomic_write(path, dumps(chains[name]) + "\n")


def _row(name: str, path: Path, chain: Any, check: FitCheck) -> dict[str, Any]:
    """A model in JSON: of order 1 its `transition`, of a higher one its `conditional`."""
    matrix = "transition" if hasattr(chain, "transition") else "conditional"
    return {
        "path": str(path),
        "group": name or None,
        "states": list(chain.states),
        matrix: getattr(chain, matrix).tolist(),
        "initial": chain.initial.tolist(),
        "length": chain.length,
        "check": {
            "transitions": check.transitions,
            "bits_per_step": show.finite(check.bits_per_step),
            "excess_bits": show.finite(check.excess_bits),
            "order_two_p": check.order_two.p_value,
            "in_words": check.describe().splitlines(),
        },
    }


def _print(dataset: Dataset, paths: dict[str, Path], checks: dict[str, FitCheck]) -> None:
    screen = show.console()
    screen.print(f"Read {dataset.describe()}.")
    screen.print(states_line(dataset.states))
    for name, path in paths.items():
        screen.print()
        screen.print(f"Model{f' of group {name!r}' if name else ''} in {path}:")
        screen.print(show.paragraphs(checks[name].describe()))
    screen.print()
    screen.print(NOT_PRIVATE)
    screen.print("In a spec:")
    for path in paths.values():
        screen.print(f'  [[model]]\n  file = "{path.name}"')


# `shoal check`: does a model describe data that had no part in it.


check_app = new_app()
CHECK_EXAMPLES = """\b
Examples:
  shoal check model.json june.csv --state activity --series person --time minute --gap 10min
  shoal check model.json days.csv --state activity --where "day >= 2024-06-01"
"""

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A chain, as `shoal fit` writes it.")
]
FitColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="As in `shoal fit`.")]


@check_app.command(epilog=CHECK_EXAMPLES)
def check(
    model: ModelPath,
    data: DataPath,
    *,
    state: FitColumn = None,
    series: FitColumn = None,
    time: FitColumn = None,
    gap: Gap = None,
    missing: Missing = None,
    bins: BinEdges = None,
    time_unit: TimeUnit = None,
    tz: Zone = None,
    where: Where = None,
    sep: Separator = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a model describes data it was not fitted on.

    Says how well the model predicts the data beside chains of order 0, 1 and 2 of the data's own,
    whether its transitions have the chances it says, and whether the data drifts.
    """
    from shoal.chains.held_out import check_held_out
    from shoal.cli.sources import NamedColumns, read_data

    chain = _stored_chain(model)
    columns = NamedColumns(
        state, series, time, gap, missing=missing, bins=bins, unit=time_unit, tz=tz, where=where,
        sep=sep,
    )  # fmt: skip
    dataset = read_data(data, columns, chain.states)
    with show.working("checking"):
        found = check_held_out(dataset.sequences(chain.states), chain)
    if as_json:
        show.print_json(_held_out_json(found))
        return
    screen = show.console()
    screen.print(f"Read {dataset.describe()}.")
    screen.print(show.paragraphs(found.describe()))


def _stored_chain(path: Path) -> Any:
    """The stored chain with one matrix for all steps."""
    from shoal.chains.model import MarkovChain
    from shoal.spec.fields import parse_stored, read_text

    stored = parse_stored(read_text(path, "model"), path, "model")
    if not isinstance(stored, MarkovChain):
        raise InputError(
            f"{str(path)!r} holds a {type(stored).__name__}; check takes a Markov chain of order "
            "1, as `shoal fit` writes it"
        )
    return stored


def _held_out_json(found: HeldOut) -> dict[str, Any]:
    return {
        "steps": found.steps,
        "fair": found.fair,
        "bits_per_step": show.finite(found.bits),
        "orders": [show.finite(bits) for bits in found.orders],
        "chi_square": show.finite(found.chi_square),
        "degrees": found.degrees,
        "p_value": found.p_value,
        "worst": [{name: getattr(cell, name) for name in cell.__slots__} for cell in found.worst],
        "distance": found.distance,
        "in_words": found.describe().splitlines(),
    }
