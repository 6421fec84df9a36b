"""`shoal fit`: a Markov chain from data, checked in words, stored as a model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.fit_notes import check_kind, note_data, states_line
from shoal.cli.options import AsJson, DataPath, Force, Gap, new_app
from shoal.cli.outputs import check_output
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.cli.sources import Columns
    from shoal.core.records import Sequences
    from shoal.data.dataset import Dataset
    from shoal.models.chain import MarkovChain
    from shoal.models.fit_check import FitCheck

app = new_app()

EXAMPLES = """\b
Examples:
  shoal fit days.csv -o model.json --state activity --series person --time minute
  shoal fit days.parquet -o model.json --state activity --series user --time time --gap 10min
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
StateColumn = Annotated[str | None, typer.Option(metavar="COLUMN", help="Column with the states.")]
SeriesColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column that tells series apart.")
]
TimeColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column by which a series is ordered.")
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
Latitudes = Annotated[
    str | None, typer.Option("--lat", metavar="COLUMN", help="For maps: latitudes.")
]
Longitudes = Annotated[
    str | None, typer.Option("--lon", metavar="COLUMN", help="For maps: longitudes.")
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
    state: StateColumn = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    gap: Gap = None,
    smoothing: Smoothing = "1",
    length: Length = None,
    initial: Initial = "stationary",
    group: GroupColumn = None,
    grid: GridWidth = None,
    latitude: Latitudes = None,
    longitude: Longitudes = None,
    box: Box = None,
    personal: Personal = None,
    slot: SlotLength = None,
    hours: Hours = None,
    spread: Spread = 0,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Fit a Markov chain to data and store it as a model.

    Counts transitions inside chains, says in words whether a Markov chain is a fair description,
    and writes a model that a spec names with `file`. With --grid it is a map, with --slot the
    contexts of a day.
    """
    from shoal.cli.sources import Columns

    columns = Columns(state, series, time, gap)
    law: dict[str, Any] = {"smoothing": smoothing, "length": length, "initial": initial}
    maps = {"--lat": latitude, "--lon": longitude, "--box": box, "--personal": personal}
    check_kind(grid=grid, slot=slot, maps=maps, days={"--hours": hours, "--spread": spread})
    if grid is not None:
        if state is not None or group is not None:
            raise InputError("--state and --group do not go with --grid; drop them")
        from shoal.cli.location_fit import MapWish, fit_map

        wish = MapWish(
            grid, latitude, longitude, series, time, gap, box=box, personal=personal, **law
        )
        fit_map(data, out, wish, as_json=as_json, force=force)
        return
    if slot is not None:
        if group is not None or length is not None:
            raise InputError("--group and --length do not go with --slot; drop them")
        from shoal.cli.day_fit import DayWish, fit_contexts

        day = DayWish(slot, hours, smoothing, spread)
        fit_contexts(data, out, columns, day, as_json=as_json, force=force)
        return
    if state is None:
        raise InputError("no column of states is named; give --state COLUMN, or --grid for a map")
    _fit_chains(data, out, columns, group, law, as_json=as_json, force=force)


def _fit_chains(
    data: str,
    out: Path,
    columns: Columns,
    group: str | None,
    law: dict[str, Any],
    *,
    as_json: bool,
    force: bool,
) -> None:
    """A chain for all data or for each group: fitted, checked, written and told."""
    from shoal.cli.pauses import note_pauses
    from shoal.cli.sources import read_data
    from shoal.models.fit import fit_groups
    from shoal.models.fit_check import check_fit

    dataset = read_data(data, columns)
    parts = _parts(dataset, data, columns.series, group)
    paths = _paths(out, list(parts), grouped=group is not None)
    for path in paths.values():
        check_output(path, force=force)
    with show.working("fitting"):
        chains = fit_groups(parts, **law)
        checks = {name: check_fit(parts[name], chain) for name, chain in chains.items()}
    note_data(dataset, columns.series)
    note_pauses(data, columns)
    _write(paths, chains)
    if as_json:
        rows = [_row(name, paths[name], chains[name], checks[name]) for name in parts]
        show.print_json({"models": rows, "private": False})
        return
    _print(dataset, paths, checks)


def _parts(
    dataset: Dataset, data: str, series: str | None, group: str | None
) -> dict[str, Sequences]:
    """Group to its sequences, all on the same states; one nameless group without `group`."""
    if group is None:
        return {"": dataset.sequences()}
    from shoal.cli.sources import Columns, read_data
    from shoal.core.errors import DataError
    from shoal.data.dataset import Dataset

    try:
        labels = read_data(data, Columns(group, series))
    except DataError as error:
        raise DataError(str(error).replace("named as the state", "named as the group")) from None
    members: dict[str, list[str]] = {}
    for name, chains in zip(labels.names, labels.chains, strict=True):
        values = sorted({labels.states[int(i)] for chain in chains for i in set(chain.tolist())})
        if len(values) != 1:
            raise DataError(
                f"series {name!r} has the values {', '.join(map(repr, values))} in column "
                f"{group!r}; a series must belong to one group"
            )
        members.setdefault(values[0], []).append(name)
    chains_of = dict(zip(dataset.names, dataset.chains, strict=True))
    return {
        value: Dataset(
            dataset.states, tuple(names), tuple(chains_of[name] for name in names)
        ).sequences()
        for value, names in sorted(members.items())
    }


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


def _write(paths: dict[str, Path], chains: dict[str, MarkovChain]) -> None:
    from shoal.data.files import atomic_write
    from shoal.kinds import dumps

    for name, path in paths.items():
        atomic_write(path, dumps(chains[name]) + "\n")


def _row(name: str, path: Path, chain: MarkovChain, check: FitCheck) -> dict[str, Any]:
    return {
        "path": str(path),
        "group": name or None,
        "states": list(chain.states),
        "transition": chain.transition.tolist(),
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
