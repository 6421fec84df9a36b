"""Latitudes and longitudes to states: the map of each plan of a job, a whole column at a time.

A point is what it is in a single stream: the state whose cell holds it, off the map the nearest
state, and where a coordinate is missing a step at which nothing is observed. No point is an error
once a plan is drawing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import BudgetError, DataError, InputError, OverBudget
from shoal.core.plan import Answer, Plan, Release
from shoal.core.rng import Rng
from shoal.jobs.census import Census
from shoal.jobs.drawing import NOT_ADDED, OVER_LIMIT, Charging, fitting, seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.report import guarantee_of
from shoal.jobs.tidy import NO_DEGREES, NO_STATE, UNKNOWN, coded, texts
from shoal.places.jobs.fleet import SKIPPED, Draw, Etas, Fleet, Shown
from shoal.places.locate import StateLocator
from shoal.places.machine import LocationMachine
from shoal.places.map import Grid
from shoal.places.walk import SparseChain

if TYPE_CHECKING:
    import polars as pl

LATITUDES, LONGITUDES = 90, 180  # degrees on either side of zero


class Maps:
    """The maps of a job's plans, by group; a state is its index among `states`, those of all."""

    def __init__(self, plans: Mapping[str, Plan], states: Sequence[str]) -> None:
        index = {name: place for place, name in enumerate(states)}
        self._maps: dict[str, tuple[StateLocator, Ints]] = {}
        for group, plan in plans.items():
            own = np.array([index[name] for name in plan.task.query.states], dtype=np.int64)
            self._maps[group] = atlas_of(plan), own

    def codes(self, frame: pl.DataFrame, layout: Layout, source: str) -> tuple[pl.Series, int]:
        """The state of each row, and how many points no state covers.

        NO_STATE where a coordinate is missing (and in a group without a plan), NO_DEGREES where
        one is no number of degrees.
        """
        import polars as pl

        assert layout.latitude is not None
        assert layout.longitude is not None
        latitudes, bad = degrees(frame[layout.latitude], source, LATITUDES)
        longitudes, worse = degrees(frame[layout.longitude], source, LONGITUDES)
        states = np.full(frame.height, NO_STATE, dtype=np.int32)
        off_map = 0
        usable = np.isfinite(latitudes) & np.isfinite(longitudes) & ~bad & ~worse
        for group, rows in self._parts(frame, layout, usable):
            atlas, own = self._maps[group]
            found, off = atlas.states_of(latitudes[rows], longitudes[rows])
            states[rows] = own[found]
            off_map += int(off.sum())
        states[bad | worse] = NO_DEGREES
        return pl.Series("state", states), off_map

    def _parts(
        self, frame: pl.DataFrame, layout: Layout, usable: Bools
    ) -> Iterator[tuple[str, Ints]]:
        """The usable rows of each group that has a map."""
        rows = np.flatnonzero(usable)
        if layout.group is None:
            yield from ((group, rows) for group in self._maps)
            return
        named = texts(frame[layout.group], "the group")[rows]
        rows, named = rows[named.is_not_null().to_numpy()], named.drop_nulls()
        codes, names = coded(named)
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names) + 1))
        for place, group in enumerate(names):
            if group in self._maps:
                yield group, rows[order[bounds[place] : bounds[place + 1]]]


def names_at(plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
    """The name of the state at each point; None where a coordinate is missing or no degrees."""
    usable = (np.abs(latitudes) <= LATITUDES) & (np.abs(longitudes) <= LONGITUDES)
    found, _ = atlas_of(plan).states_of(latitudes[usable], longitudes[usable])
    names = np.full(len(latitudes), None, dtype=object)
    names[usable] = np.array(plan.task.query.states, dtype=object)[found]
    listed: list[str | None] = names.tolist()
    return listed


def atlas_of(plan: Plan) -> StateLocator:
    """Where the states of a location plan lie; refused when its model has no map."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or _grid(machine) is None:
        raise InputError(
            f"latitude and longitude are given, but the model of {plan.mechanism} has no map; name "
            "the column of the states instead"
        )
    return machine.runtime.atlas


def grid_in_km(plan: Plan) -> Grid | None:
    """The map on which a plan's answers are points in km, so that they have degrees too."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or len(machine.query.labels) != 2:
        return None
    return _grid(machine) if machine.query.unit == "km" else None


def degrees(column: pl.Series, source: str, most: int) -> tuple[Floats, Bools]:
    """The numbers of a column, NaN where it is empty, and which values are no number of degrees."""
    import polars as pl

    if column.dtype == pl.String:
        text = column.str.strip_chars()
        column = text.set(text == "", None)
    elif not (column.dtype.is_numeric() or column.dtype == pl.Null):
        raise DataError(
            f"{source}: column {column.name!r} holds {column.dtype} values, not degrees"
        )
    numbers = column.cast(pl.Float64, strict=False)
    unread = (numbers.is_null() & column.is_not_null()).to_numpy()
    values = numbers.fill_null(np.nan).to_numpy()
    return values, unread | (np.abs(values) > most)


def _grid(machine: LocationMachine) -> Grid | None:
    chain = machine.chain
    return chain.grid if isinstance(chain, SparseChain) else None


# Location streams of many people: each chain of rows is a stream, each row a step.


TOGETHER = 512  # streams stepped at once: their beliefs stay in the processor's cache


class Trace:
    """One stream of a job: whose it is, which chain of theirs, and its rows."""

    __slots__ = ("begin", "chain", "length", "unit")

    def __init__(self, unit: int, chain: int, begin: int, length: int) -> None:
        self.unit, self.chain, self.begin, self.length = unit, chain, begin, length


def release_traces(
    plan: Plan,
    census: Census,
    units: Sequence[int],
    *,
    place: Ints,
    seed: int | None = None,
    charging: Charging | None = None,
) -> tuple[pl.DataFrame, dict[int, int], dict[int, str]]:
    """One row per step, the steps released of each unit, and the units refused with the reason.

    `place` maps the states of the census to those of the plan; a row without a state is a step
    at which nothing is released. With `charging` step t of all streams is charged in one
    transaction; a stream whose charge is refused stops there.
    """
    machine = plan.body
    assert isinstance(machine, LocationMachine)
    refused = {unit: census.problems[unit] for unit in units if unit in census.problems}
    unusable = census.unusable(UNKNOWN, NO_DEGREES)
    refused |= {unit: unusable[unit] for unit in units if unit in unusable and unit not in refused}
    refused |= _too_long(plan, census, [unit for unit in units if unit not in refused])
    traces = [trace for unit in units if unit not in refused for trace in _traces(census, unit)]
    traces.sort(key=lambda trace: -trace.length)
    places = np.where(census.values < 0, SKIPPED, place[census.values])
    columns = _Columns(plan, census)
    done: dict[int, int] = {trace.unit: 0 for trace in traces}
    for begin in range(0, len(traces), TOGETHER):
        some = traces[begin : begin + TOGETHER]
        _sail(machine, some, census, places, columns, plan, seed, charging, refused)
    for unit, steps in columns.steps_of.items():
        done[unit] += steps
    return columns.table(secure=seed is None), done, refused


def _sail(
    machine: LocationMachine,
    traces: list[Trace],
    census: Census,
    places: Ints,
    columns: _Columns,
    plan: Plan,
    seed: int | None,
    charging: Charging | None,
    refused: dict[int, str],
) -> None:
    """Step a fleet from its first row to the last row of its longest stream."""
    fleet = Fleet(machine, len(traces))
    rngs = None if seed is None else [_source(seed, plan, census, trace) for trace in traces]
    active = list(range(len(traces)))
    for step in range(traces[0].length if traces else 0):
        active = [stream for stream in active if traces[stream].length > step]
        here = places[[traces[stream].begin + step for stream in active]]

        def decide(
            drawing: Sequence[int],
            etas: Etas,
            draw: Draw,
            step: int = step,
            active: list[int] = active,
        ) -> tuple[list[int], Ints]:
            if charging is None:
                return list(drawing), draw(drawing) if drawing else _none(plan)
            asked = [traces[active[at]] for at in drawing]
            return _charged(plan, census, asked, drawing, etas, draw, step, charging, refused)

        own = None if rngs is None else [rngs[stream] for stream in active]
        moved = []
        for shown in fleet.step(active, here, own, decide):
            columns.add(step, [traces[stream] for stream in shown.streams], shown)
            moved += shown.streams
        active = sorted(moved)


def _charged(
    plan: Plan,
    census: Census,
    asked: Sequence[Trace],
    drawing: Sequence[int],
    etas: Etas,
    draw: Draw,
    step: int,
    charging: Charging,
    refused: dict[int, str],
) -> tuple[list[int], Ints]:
    """Who may go on, and their outputs as the ledger stored them."""
    from shoal.ledger.batch import settle_many

    subjects, periods = census.subjects, census.periods
    charges = [
        replace(
            charging.charge(plan, subjects[trace.unit], periods[trace.unit], trace.chain, step),
            eta=eta,
        )
        for trace, eta in zip(asked, etas, strict=True)
    ]

    def sample(some: list[int]) -> list[Release]:
        outputs = draw([drawing[at] for at in some])
        return [_release(plan, tuple(int(value) for value in row)) for row in outputs.tolist()]

    chosen, rows = [], []
    for at, trace, outcome in zip(
        drawing, asked, settle_many(charging.ledger, charges, sample), strict=True
    ):
        if isinstance(outcome, BudgetError):
            refused[trace.unit] = OVER_LIMIT if isinstance(outcome, OverBudget) else NOT_ADDED
        else:
            chosen.append(at)
            rows.append(outcome.answer.multiples)
    return chosen, np.array(rows) if rows else _none(plan)


def _release(plan: Plan, output: tuple[int, ...]) -> Release:
    """The output of a step as a ledger stores it."""
    query = plan.task.query
    return plan.released(Answer(query.labels, output, query.lattice, query.unit), secure=True)


class _Columns:
    """The rows of the output while they are made."""

    def __init__(self, plan: Plan, census: Census) -> None:
        self._plan, self._census = plan, census
        self._rows: list[tuple[int, Sequence[Trace], Shown]] = []
        self.steps_of: dict[int, int] = {}

    def add(self, step: int, traces: Sequence[Trace], shown: Shown) -> None:
        self._rows.append((step, traces, shown))
        for trace in traces:
            self.steps_of[trace.unit] = self.steps_of.get(trace.unit, 0) + 1

    def table(self, *, secure: bool) -> pl.DataFrame:
        """One row per step, ordered by subject, period, chain and step."""
        import polars as pl

        query, census = self._plan.task.query, self._census
        flat = [(step, trace) for step, traces, _ in self._rows for trace in traces]
        columns: dict[str, Any] = {
            "subject": pl.Series([census.subjects[t.unit] for _, t in flat], dtype=pl.String),
            "period": pl.Series([census.periods[t.unit] for _, t in flat], dtype=pl.String),
            "chain": pl.Series([t.chain for _, t in flat], dtype=pl.Int32),
            "step": pl.Series([step for step, _ in flat], dtype=pl.Int32),
        }
        if census.times is not None:
            rows = np.array([trace.begin + step for step, trace in flat], dtype=np.int64)
            columns["time"] = pl.Series(census.times[rows], dtype=pl.Int64)
        width, step = len(query.labels), float(query.lattice)
        outputs = self._outputs(width)
        estimates = self._stacked("estimates", width)
        columns |= {
            "value": _struct(query.labels, [column * step for column in outputs]),
            "multiples": _struct(query.labels, outputs),
            "estimate": _struct(query.labels, [pl.Series(column) for column in estimates.T]),
        }
        grid = grid_in_km(self._plan)
        if grid is not None:
            points = np.column_stack([column.cast(pl.Float64) * step for column in outputs])
            columns["value_degrees"] = _degrees(grid, points)
            columns["estimate_degrees"] = _degrees(grid, estimates)
        for name in ("spreads", "now", "ever"):
            columns[NAMES[name]] = pl.Series(self._stacked(name, 0), dtype=pl.Float64)
        counts = [shown.possible for _, traces, shown in self._rows for _ in traces]
        columns["possible"] = pl.Series(counts, dtype=pl.Int64)
        promise = {**guarantee_of(self._plan), "unit": query.unit, "secure": secure}
        whole = pl.DataFrame(columns).with_columns(
            pl.lit(value).alias(name) for name, value in promise.items()
        )
        return whole.sort("subject", "period", "chain", "step")

    def _outputs(self, width: int) -> list[pl.Series]:
        """The outputs by coordinate; null where nothing was released."""
        import polars as pl

        columns: list[list[int | None]] = [[] for _ in range(width)]
        for _, traces, shown in self._rows:
            for axis in range(width):
                if shown.outputs is None:
                    columns[axis] += [None] * len(traces)
                else:
                    columns[axis] += fitting(shown.outputs)[:, axis].tolist()
        return [pl.Series(column, dtype=pl.Int64) for column in columns]

    def _stacked(self, name: str, width: int) -> Any:
        empty = np.empty((0, width) if width else 0)
        return np.concatenate([empty, *(getattr(shown, name) for _, _, shown in self._rows)])


NAMES = {"spreads": "spread", "now": "about_now", "ever": "about_all"}


def _struct(labels: Sequence[str], columns: Sequence[pl.Series]) -> pl.Series:
    import polars as pl

    return pl.DataFrame(dict(zip(labels, columns, strict=True))).to_struct()


def _degrees(grid: Grid, kilometres: Floats) -> pl.Series:
    """Latitude and longitude of points in km; null where there is none."""
    import polars as pl

    found = grid.to_degrees(kilometres)
    columns = [pl.Series(found[:, axis]).fill_nan(None) for axis in (0, 1)]
    return _struct(("lat", "lon"), columns)


def _traces(census: Census, unit: int) -> list[Trace]:
    own = census.starts[census.first_chain[unit] : census.first_chain[unit + 1]].tolist()
    ends = [*own[1:], int(census.bounds[unit + 1])]
    return [
        Trace(unit, chain, begin, end - begin)
        for chain, (begin, end) in enumerate(zip(own, ends, strict=True))
    ]


def _too_long(plan: Plan, census: Census, units: Sequence[int]) -> dict[int, str]:
    """The units with a chain beyond the length of the model."""
    found = {}
    limits = [getattr(model, "length", None) for model in plan.task.family]
    most = min((limit for limit in limits if limit is not None), default=None)
    if most is None:
        return {}
    lengths = census.lengths()
    for unit in units:
        if lengths[census.first_chain[unit] : census.first_chain[unit + 1]].max() > most:
            found[unit] = f"a chain is longer than length {most} of the model"
    return found


def _source(seed: int, plan: Plan, census: Census, trace: Trace) -> Rng:
    period = f"{census.periods[trace.unit]}/{trace.chain}"
    return seeded_source(seed, plan, census.subjects[trace.unit], period)


def _none(plan: Plan) -> Ints:
    return np.empty((0, len(plan.task.query.labels)), dtype=np.int64)
