"""`shoal fit`: a model from data, checked in words and stored; `shoal check`: one on other data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.cli.show import check_output, see
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import finite

if TYPE_CHECKING:
    from shoal.chains.fit_check import FitCheck
    from shoal.chains.held_out import HeldOut
    from shoal.cli.sources import NamedColumns
    from shoal.core.records import Sequences
    from shoal.data.table import Dataset

app, check_app = options.new_app(), options.new_app()
MOST_STATES_PRINTED = 12  # that are printed

EXAMPLES = """\b
Examples:
  shoal fit days.csv -o model.json --state activity --series person --time minute
  shoal fit days.parquet -o model.json --state activity --series user --time time --gap 10min
  shoal fit raw.csv -o model.json --state watts --range 0,9000 --missing gap --spec s.toml
  shoal fit meter.xml -o model.json --range 0,2kWh --spec s.toml
  shoal fit days.csv -o model.json --state activity --series person --group shift
  shoal fit ride.gpx -o town.json --grid 0.5 --every 1min --spec town.toml
  shoal fit ride.gpx -o town.json --grid 0.5 --spec town.toml --places pois.geojson --same category
  shoal fit tracks.csv -o town.json --grid 0.5 --lat lat --lon lon --series user --time t
  shoal fit phone.csv -o day.json --slot 30min --state context --series user --time t
  shoal fit phone.csv -o day.json --slot 30min --state context --time t --spec d.toml --inline
"""

NOT_PRIVATE = (
    "The model itself is not private: it tells about the data it was fitted on. Fit it on data "
    "that may be public, or that everybody in it agreed to show."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions:
    """The options of `shoal fit`: rows, model, output, and those of maps or days alone."""

    data: options.DataPaths
    out: Annotated[Path, option("FILE", "The model, a .json file.", "--out", "-o")]
    state: options.Column = None
    series: options.Column = None
    time: options.Column = None
    gap: options.Gap = None
    missing: options.Missing = None
    bins: options.BinEdges = None
    range: Annotated[
        str | None,
        option("LOW,HIGH", "Public range of numbers, cut into bins: 0,100; 0,10kW.", "--range"),
    ] = None
    unit: options.TimeUnit = None
    tz: options.Zone = None
    where: options.Where = None
    sep: options.Separator = None
    order: Annotated[
        int, option(None, "How many past entries the next one depends on.", min=1, max=8)
    ] = 1
    smoothing: Annotated[
        str,
        option("NUMBER", "Added to every transition count; for days also auto: what fits best."),
    ] = "1"
    length: Annotated[
        int | None, option(None, "Most entries of a chain; without it any length.", min=1)
    ] = None
    initial: Annotated[
        str, option("LAW", "Law of the first entry: stationary, or empirical (the data's).")
    ] = "stationary"
    group: Annotated[
        str | None, option("COLUMN", "Fit one model per value: FILE-VALUE.json each.")
    ] = None
    grid: Annotated[
        str | None, option("KM", "Fit a map instead: width of square cells, or h3:8.")
    ] = None
    latitude: options.Latitude = None
    longitude: options.Longitude = None
    every: Annotated[
        str | None, option("DURATION", "For maps: even steps of this length, such as 1min.")
    ] = None
    box: Annotated[str | None, option("S,W,N,E", "For maps: the box, else the data's.")] = None
    places: Annotated[
        Path | None,
        option("FILE", "For maps: points of interest that the spec hides among each other."),
    ] = None
    same: Annotated[
        str | None, option("COLUMN", "For --places: what look alike, such as category.")
    ] = None
    within: Annotated[
        str | None, option("LENGTH", "For --places: how near those are, such as 1km.")
    ] = None
    personal: Annotated[str | None, option("SERIES", "For maps: one person's own chain.")] = None
    slot: Annotated[
        str | None, option("DURATION", "Fit a day of contexts instead: length of a slot.")
    ] = None
    hours: Annotated[
        str | None, option("FROM-TO", "For days: such as 08:00-16:00, else all 24 hours.")
    ] = None
    spread: Annotated[
        int, option("N", "For days: count that many slots to either side too.", min=0)
    ] = 0
    spec: Annotated[
        Path | None, option("FILE", "Also write a spec that uses the model.", "--spec")
    ] = None
    inline: Annotated[
        bool, options.flag("--inline", "Put the model inside the spec, which then needs no file.")
    ] = False
    as_json: options.AsJson = False
    force: options.Force = False

    def some(self, *names: str) -> dict[str, Any]:
        """Return the options of these names, to pass them to a fit function."""
        return {name: getattr(self, name) for name in names}

    def check(self) -> None:
        """Refuse options that do not go together, before any file is read."""
        if self.grid is not None and self.slot is not None:
            raise InputError("--grid fits a map and --slot a day; give one of them")
        if self.inline and self.spec is None:
            raise InputError("--inline puts the model inside a spec; name one with --spec FILE")
        maps: dict[str, object] = {"--lat": self.latitude, "--lon": self.longitude}
        maps |= {"--box": self.box, "--personal": self.personal, "--every": self.every}
        maps |= {"--places": self.places}
        looks: dict[str, object] = {"--same": self.same, "--within": self.within}
        if self.places is None:
            _refuse_idle(looks, "points of interest", "--places")
        elif self.spec is None:
            raise InputError("--places is for a spec; name one with --spec, or drop --places")
        elif not any(looks.values()):
            raise InputError("--places needs --same COLUMN, --within LENGTH, or both")
        if self.grid is None:
            _refuse_idle(maps, "maps", "--grid")
        if self.slot is None:
            _refuse_idle({"--hours": self.hours, "--spread": self.spread}, "days", "--slot")
        if self.grid is None and self.slot is None:
            self._check_chains()
        elif self.bins or self.range or self.order != 1:
            raise InputError(
                "--bins, --range and --order are for chains of states; drop them with --grid and "
                "--slot"
            )
        elif self.grid is not None and (self.state is not None or self.group is not None):
            raise InputError("--state and --group do not go with --grid; drop them")
        elif self.slot is not None and (self.group is not None or self.length is not None):
            raise InputError("--group and --length do not go with --slot; drop them")

    def _check_chains(self) -> None:
        """Refuse --bins with edges beside --range, and --order beside --group."""
        if self.range is not None and self.bins is not None and not self.bins.isdigit():
            raise InputError(
                f"--bins is {self.bins!r} and --range {self.range!r}; give edges, or a range and a "
                "number of bins"
            )
        if self.order != 1 and self.group is not None:
            raise InputError("--order does not go with --group; fit one group at a time (--where)")


def _refuse_idle(given: dict[str, object], kind: str, option: str) -> None:
    """Refuse options of one kind of model where another is fitted."""
    used = [name for name, value in given.items() if value]
    if used:
        verb, them = ("is", "it") if len(used) == 1 else ("are", "them")
        raise InputError(
            f"{' and '.join(used)} {verb} for {kind}; name {option} too, or drop {them}"
        )


@app.command(epilog=EXAMPLES)
@options.takes(FitOptions)
def fit(options: FitOptions) -> None:
    """Fit a Markov chain to data and store it as a model.

    Counts transitions inside chains, says in words whether a Markov chain is a fair description,
    and writes a model that a spec names with `file`. With --grid it is a map, with --slot the
    contexts of a day. Files of apps, watches and meters name their own columns; `shoal read` shows
    what is in a file.
    """
    from shoal.cli.init import (
        check_spec,
        policy_of_places,
        put_model_inside,
        write_day_spec,
        write_map_spec,
        write_spec,
    )
    from shoal.cli.sources import columns_in
    from shoal.core.family import only_act

    options.check()
    named = replace(columns_in(options), every=None)  # of maps a step, not the calendar
    columns, spec = named.with_own(options.data), options.spec
    if spec is not None:
        check_output(spec, force=options.force)
    if options.grid is options.slot is None:
        columns = _with_bin_edges(options, columns)
    if options.grid is not None:
        only_act("fit_map")(options, columns)
        write: Any = write_map_spec
    elif options.slot is not None:
        own = options.some("slot", "hours", "spread", "smoothing")
        flags = options.some("as_json", "force")
        only_act("fit_contexts")(options.data, options.out, columns, own, **flags)
        write = write_day_spec
    else:
        if spec is not None:
            check_spec(options.group)
        _fit_chains(options, columns)
        write = write_spec
    if spec is not None:
        if options.places is not None:
            own = options.some("places", "same", "within")
            write = partial(write_map_spec, policy=policy_of_places(spec, **own))
        write(spec, options.out, columns, options.data, as_json=options.as_json)
        if options.inline:
            put_model_inside(spec, options.out)


MAX_NUMBERS = {False: 64, True: 256}  # as states without bins: of any numbers, of whole ones


def _with_bin_edges(options: FitOptions, columns: NamedColumns) -> NamedColumns:
    """Return the columns with the edges of equal bins of a public range."""
    if columns.state is None:
        raise InputError(
            "no column of states is named; give --state COLUMN, or --grid KM for a map of "
            f"positions ({see(options.data)})"
        )
    if options.range is None:
        if options.bins is not None and options.bins.isdigit():
            typer.echo(
                "NOTE: the edges of the bins are found in the data and tell about it; state what "
                "can occur with --range LOW,HIGH, and they do not.",
                err=True,
            )
        return columns
    from shoal.data.read import unit_in
    from shoal.data.rows import DEFAULT_BINS, edges_of_range, write_edge

    count = DEFAULT_BINS if options.bins is None else int(options.bins)
    edges = edges_of_range(options.range, count, unit_in(options.data, options.where))
    return replace(columns, bins=",".join(map(write_edge, edges)))


def _refuse_many_numbers(states: Sequence[str], columns: NamedColumns) -> None:
    """Refuse numbers as states when there are so many values that they must be amounts."""
    if columns.bins is not None or len(states) <= MAX_NUMBERS[False]:
        return
    try:
        whole = all(float(state).is_integer() for state in states)
    except ValueError:
        return
    if len(states) > MAX_NUMBERS[whole]:
        raise DataError(
            f"column {columns.state!r} holds {len(states):,} different numbers, and each would be "
            "a state; say what can occur, such as --range 0,10, and it is cut into 8 bins, or give "
            "edges such as --bins 1,2,5 (numbers that are names need a letter, such as c17)"
        )


def states_line(states: Sequence[str]) -> str:
    """Return a line that lists the states, so that a typing error in the data is noticed."""
    shown = ", ".join(map(str, states[:MOST_STATES_PRINTED]))
    return f"States: {shown}{', …' if len(states) > MOST_STATES_PRINTED else ''}"


def note_twins(states: Iterable[str]) -> None:
    """Print a note about states that differ only in case and spaces, which are likely the same."""
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
    """Print a note when rows of several people would be read as one series."""
    if series is None and people == 1:  # several files are several people
        typer.echo(
            "NOTE: all rows count as one series, one after the other. If they are about several "
            "people, name the column that tells them apart with --series.",
            err=True,
        )


def _fit_chains(options: FitOptions, columns: NamedColumns) -> None:
    """Fit, check, write and report a chain for all data, or one for each group."""
    from shoal.cli.sources import note_pauses, read_data
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write

    dataset = read_data(options.data, columns)
    _refuse_many_numbers(dataset.states, columns)
    if options.spec is not None and options.length is None:
        options = replace(options, length=dataset.longest)
        typer.echo(
            f"NOTE: the model covers chains of up to {dataset.longest:,} entries, as many as the "
            "longest one of the data; a release of a longer one is refused. Give --length to cover "
            "longer ones.",
            err=True,
        )
    parts = _sequences_by_group(dataset, options.data, columns, options.group)
    paths = _model_paths(options.out, list(parts), grouped=options.group is not None)
    for path in paths.values():
        check_output(path, force=options.force)
    with show.working("fitting"):
        chains, checks = _fit_parts(parts, options)
    note_one_series(columns.series, len(dataset.names))
    note_twins(dataset.states)
    note_pauses(options.data, columns)
    for name, path in paths.items():
        atomic_write(path, dumps(chains[name]) + "\n")
    if options.as_json:
        rows = [_model_object(name, paths[name], chains[name], checks[name]) for name in parts]
        show.print_json({"models": rows, "private": False})
    else:
        _print_models(dataset, paths, checks)


def _fit_parts(
    parts: dict[str, Sequences], options: FitOptions
) -> tuple[dict[str, Any], dict[str, FitCheck]]:
    """Return a chain for each part, and the check of the chain of order 1."""
    from shoal.chains.fit import fit_groups, fit_order
    from shoal.chains.fit_check import check_fit

    law = options.some("smoothing", "length", "initial")
    chains: dict[str, Any] = dict(fit_groups(parts, **law))
    checks = {name: check_fit(parts[name], chain) for name, chain in chains.items()}
    if options.order != 1:
        chains = {name: fit_order(data, order=options.order, **law) for name, data in parts.items()}
    return chains, checks


def _sequences_by_group(
    dataset: Dataset, data: list[str], columns: NamedColumns, group: str | None
) -> dict[str, Sequences]:
    """Return the sequences of each group over the same states; without `group`, of the group ""."""
    if group is None:
        return {"": dataset.sequences()}
    from shoal.cli.sources import NamedColumns, read_data
    from shoal.data.entries import split_by

    try:
        own = NamedColumns(group, columns.series, where=columns.where, sep=columns.sep)
        labels = read_data(data, own)
    except DataError as error:
        raise DataError(str(error).replace("named as the state", "named as the group")) from None
    return split_by(dataset, labels, group)


def _model_paths(out: Path, names: list[str], *, grouped: bool) -> dict[str, Path]:
    """Return the file of each group's model: `out` itself, or with --group one file per name.

    Refuses a suffix other than .json, and groups whose names give the same file name.
    """
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


def _model_object(name: str, path: Path, chain: Any, check: FitCheck) -> dict[str, Any]:
    """Return a model's JSON object: `transition` for order 1, `conditional` for higher orders."""
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
            "bits_per_step": finite(check.bits_per_step),
            "excess_bits": finite(check.excess_bits),
            "order_two_p": check.order_two.p_value,
            "in_words": check.describe().splitlines(),
        },
    }


def _print_models(dataset: Dataset, paths: dict[str, Path], checks: dict[str, FitCheck]) -> None:
    """Print the data, each model's file and checks, and the lines that name it in a spec."""
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


CHECK_EXAMPLES = """\b
Examples:
  shoal check model.json june.csv --state activity --series person --time minute --gap 10min
  shoal check model.json days.csv --state activity --where "day >= 2024-06-01"
"""

FitColumn = Annotated[str | None, option("COLUMN", "As in `shoal fit`.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The options of `shoal check`: a stored model and the data it is compared with."""

    model: Annotated[Path, options.argument("MODEL", "A chain, as `shoal fit` writes it.")]
    data: options.DataPaths
    state: FitColumn = None
    series: FitColumn = None
    time: FitColumn = None
    gap: options.Gap = None
    missing: options.Missing = None
    bins: options.BinEdges = None
    unit: options.TimeUnit = None
    tz: options.Zone = None
    where: options.Where = None
    sep: options.Separator = None
    as_json: options.AsJson = False


@check_app.command(epilog=CHECK_EXAMPLES)
@options.takes(CheckOptions)
def check(options: CheckOptions) -> None:
    """Say whether a model describes data it was not fitted on.

    Says how well the model predicts the data beside chains of order 0, 1 and 2 of the data's own,
    whether its transitions have the chances it says, and whether the data drifts.
    """
    from shoal.chains.held_out import check_held_out
    from shoal.cli.sources import columns_in, read_data

    chain = _stored_chain(options.model)
    dataset = read_data(options.data, columns_in(options).with_own(options.data), chain.states)
    with show.working("checking"):
        found = check_held_out(dataset.sequences(chain.states), chain)
    if options.as_json:
        show.print_json(_held_out_json(found))
        return
    screen = show.console()
    screen.print(f"Read {dataset.describe()}.")
    screen.print(show.paragraphs(found.describe()))


def _stored_chain(path: Path) -> Any:
    """Load a stored Markov chain of order 1; refuses any other stored value."""
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
    """Return the JSON object of a check on held-out data; likelihoods are in bits per step."""
    return {
        "steps": found.steps,
        "fair": found.fair,
        "bits_per_step": finite(found.bits),
        "orders": [finite(bits) for bits in found.orders],
        "chi_square": finite(found.chi_square),
        "degrees": found.degrees,
        "p_value": found.p_value,
        "worst": [{name: getattr(cell, name) for name in cell.__slots__} for cell in found.worst],
        "distance": found.distance,
        "in_words": found.describe().splitlines(),
    }
