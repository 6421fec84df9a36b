"""Many people's places in one job, and live: the map of each plan, a whole column at a time.

A point is what it is in a single stream: the state whose cell holds it, off the map the nearest
state, and where a coordinate is missing a step at which nothing is observed. No point is an error
once a plan is drawing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import BudgetError, CannotCompose, DataError, InputError, OverBudget
from shoal.core.plan import Plan, Release
from shoal.core.rng import Rng, SystemRng
from shoal.jobs.census import Census
from shoal.jobs.drawing import NOT_ADDED, OVER_LIMIT, Charging, OwnStates, fitting, seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.live import UNUSABLE, Live, LiveReading, LiveRow
from shoal.jobs.replayable_rng import KeyedRng
from shoal.jobs.report import guarantee_of
from shoal.jobs.shard import Made, Recipe, StreamJob
from shoal.jobs.tidy import NO_DEGREES, NO_STATE, UNKNOWN, coded, texts
from shoal.places.machine import LocationMachine, LocationRelease, LocationState, machine_of
from shoal.places.map import Grid
from shoal.places.packed import Kept, read_state, write_state
from shoal.places.stream import LocationStream, output
from shoal.places.walk import SparseChain, StateLocator

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
            self._maps[group] = locator_of(plan), own

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
            locator, own = self._maps[group]
            found, off = locator.states_of(latitudes[rows], longitudes[rows])
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
    found, _ = locator_of(plan).states_of(latitudes[usable], longitudes[usable])
    names = np.full(len(latitudes), None, dtype=object)
    names[usable] = np.array(plan.task.query.states, dtype=object)[found]
    listed: list[str | None] = names.tolist()
    return listed


def locator_of(plan: Plan) -> StateLocator:
    """Where the states of a location plan lie; refused when its model has no map."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or _grid(machine) is None:
        raise InputError(
            f"latitude and longitude are given, but the model of {plan.mechanism} has no map; name "
            "the column of the states instead"
        )
    return machine.runtime.locator


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


SKIPPED = -1  # in the place of a state
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
    """Step all streams together, from their first row to the last row of the longest."""
    states: dict[Trace, LocationState] = dict.fromkeys(traces, machine.init())
    system, names = SystemRng(), machine.query.states
    rngs = {t: system if seed is None else _source(seed, plan, census, t) for t in traces}
    for step in range(traces[0].length if traces else 0):
        states = {trace: state for trace, state in states.items() if trace.length > step}
        here = {trace: int(places[trace.begin + step]) for trace in states}
        settled = None
        if charging is not None:
            settled = _charged(plan, census, states, here, step, charging, refused)
            states = {trace: states[trace] for trace in settled}
        for trace, state in states.items():
            if settled is None:
                name = None if here[trace] == SKIPPED else names[here[trace]]
                states[trace], shown = machine.step(state, name, rngs[trace])
            else:
                z = settled[trace]
                states[trace], shown = machine.absorb(state, () if z is None else ((machine, z),))
            columns.add(step, trace, shown)


def _charged(
    plan: Plan,
    census: Census,
    states: Mapping[Trace, LocationState],
    here: Mapping[Trace, int],
    step: int,
    charging: Charging,
    refused: dict[int, str],
) -> dict[Trace, tuple[int, ...] | None]:
    """Who may go on, with the output of the step as the ledger stored it; None: nothing drawn."""
    machine, system = machine_of(plan), SystemRng()
    noises = {trace: machine.prior(state).noise for trace, state in states.items()}
    asked = [t for t, noise in noises.items() if here[t] != SKIPPED and noise.count > 1]
    subjects, periods = census.subjects, census.periods
    charges = [
        replace(
            charging.charge(plan, subjects[trace.unit], periods[trace.unit], trace.chain, step),
            eta=noises[trace].eta,
        )
        for trace in asked
    ]

    def sample(some: list[int]) -> list[Release]:
        drawn = [asked[at] for at in some]
        return [output(plan, noises[t].law.draw(here[t], system)) for t in drawn]

    outputs: dict[Trace, tuple[int, ...] | None] = dict.fromkeys(states)
    for trace, outcome in zip(
        asked, charging.ledger.settle_all(charges, sample) if asked else [], strict=True
    ):
        if isinstance(outcome, BudgetError):
            refused[trace.unit] = OVER_LIMIT if isinstance(outcome, OverBudget) else NOT_ADDED
            del outputs[trace]
        else:
            outputs[trace] = outcome.answer.multiples
    return outputs


class _Columns:
    """The rows of the output while they are made."""

    def __init__(self, plan: Plan, census: Census) -> None:
        self._plan, self._census = plan, census
        self._rows: list[tuple[int, Trace, LocationRelease]] = []
        self.steps_of: dict[int, int] = {}

    def add(self, step: int, trace: Trace, shown: LocationRelease) -> None:
        self._rows.append((step, trace, shown))
        self.steps_of[trace.unit] = self.steps_of.get(trace.unit, 0) + 1

    def table(self, *, secure: bool) -> pl.DataFrame:
        """One row per step, ordered by subject, period, chain and step."""
        import polars as pl

        query, census, rows = self._plan.task.query, self._census, self._rows
        columns: dict[str, Any] = {
            "subject": pl.Series([census.subjects[t.unit] for _, t, _ in rows], dtype=pl.String),
            "period": pl.Series([census.periods[t.unit] for _, t, _ in rows], dtype=pl.String),
            "chain": pl.Series([t.chain for _, t, _ in rows], dtype=pl.Int32),
            "step": pl.Series([step for step, _, _ in rows], dtype=pl.Int32),
        }
        if census.times is not None:
            at = np.array([trace.begin + step for step, trace, _ in rows], dtype=np.int64)
            columns["time"] = pl.Series(census.times[at], dtype=pl.Int64)
        width, step = len(query.labels), float(query.lattice)
        outputs = self._outputs(width)
        estimates = np.array([shown.estimate for *_, shown in rows]).reshape(-1, width)
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
        for name in ("spread", "loss_here", "loss_path"):
            numbers = [getattr(shown, name) for *_, shown in rows]
            columns[name] = pl.Series(numbers, dtype=pl.Float64)
        columns["possible"] = pl.Series([shown.possible for *_, shown in rows], dtype=pl.Int64)
        promise = {**guarantee_of(self._plan), "unit": query.unit, "secure": secure}
        whole = pl.DataFrame(columns).with_columns(
            pl.lit(value).alias(name) for name, value in promise.items()
        )
        return whole.sort("subject", "period", "chain", "step")

    def _outputs(self, width: int) -> list[pl.Series]:
        """The outputs by coordinate; null where nothing was released."""
        import polars as pl

        drawn = [shown.z for *_, shown in self._rows]
        fitting(np.array([z for z in drawn if z is not None], dtype=object))
        return [
            pl.Series([None if z is None else z[axis] for z in drawn], dtype=pl.Int64)
            for axis in range(width)
        ]


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


def _job(
    plan: Plan, census: Census, units: list[int], recipe: Recipe, charging: Charging | None
) -> Made:
    own = OwnStates.of(plan, recipe.states)
    outside = own.outside(census, units)
    inside = [unit for unit in units if unit not in outside]
    steps, done, refused = release_traces(
        plan, census, inside, place=own.place, seed=recipe.seed, charging=charging
    )
    return Made(steps, done, outside | refused)


JOB = StreamJob(_job, maps=Maps)


class LivePlaces:
    """Live streams of places: rows are steps, in the order of their times."""

    days = False

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        plan = live.plan
        machine = machine_of(plan)
        machine.refuse_events("a live job")
        if stored is None:
            kept = Kept(machine.init(), None)
        else:
            kept = read_state(stored, machine.runtime.motion.hidden)
        stream, last = LocationStream(plan, kept.state), kept.last
        told = []
        for row in sorted(rows, key=lambda row: row.at or 0):
            at = int(row.at or 0)
            if last is not None and at <= last:
                told.append(LiveRow(row.day, at, late=True))
                continue
            rng = KeyedRng(live.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            account = _account(live, subject, stream.state.time)
            try:
                stream, release = (
                    stream.skip()
                    if row.state is None
                    else stream.read(row.state, rng=rng, **account)
                )
            except (OverBudget, CannotCompose):
                stream, release = stream.skip()
            except InputError:  # a state the model does not know, a name no ledger takes
                told.append(LiveRow(row.day, at, error=UNUSABLE))
                continue
            last = at
            cells = self._cells(plan, release.z, release.estimate)
            told.append(LiveRow(row.day, at, cells=cells))
        return write_state(Kept(stream.state, last)), told

    def columns(self, plan: Plan) -> dict[str, str]:
        """Points on a map in km have degrees too."""
        located = {"multiples": "array<long>", "estimate": "array<double>"}
        if grid_in_km(plan) is not None:
            located |= {"value_degrees": "array<double>", "estimate_degrees": "array<double>"}
        return located

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        return names_at(plan, latitudes, longitudes)

    def check_map(self, plan: Plan) -> None:
        locator_of(plan)

    def _cells(self, plan: Plan, multiples: Any, estimate: Any) -> dict[str, Any]:
        """Multiples and estimate of a step, and on a map both in degrees."""
        cells = {"multiples": multiples, "estimate": estimate}
        grid = grid_in_km(plan)
        if grid is None:
            return cells
        step = float(plan.task.query.lattice)
        point = None if multiples is None else grid.to_degrees(np.array(multiples) * step).tolist()
        return {
            **cells,
            "value_degrees": point,
            "estimate_degrees": grid.to_degrees(estimate).tolist(),
        }


def _account(live: Live, subject: str, step: int) -> dict[str, Any]:
    """The charge of one step, under a key of its own: run again, it costs nothing more."""
    if live.ledger is None:
        return {}
    key = json.dumps([live.job, subject, "", live.plan.fingerprint, step], ensure_ascii=False)
    rest = {"subject": subject, "requester": live.requester, "key": key}
    return {"ledger": live.opened_ledger(), **rest}


LIVE = LivePlaces()
