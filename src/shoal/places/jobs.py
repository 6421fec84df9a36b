"""Many people's places in one job, and live: the map of each plan, a whole column at a time.

A point is what it is in a single stream: the state whose cell holds it, off the map the nearest
state, and where a coordinate is missing a step at which nothing is observed. No point is an error
once a plan is drawing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.charge import Rng
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import (
    BudgetError,
    CannotCompose,
    DataError,
    InputError,
    OtherHistory,
    OverBudget,
)
from shoal.core.plan import Plan
from shoal.core.stream import Slot, Step, run_batch
from shoal.data.rows import encode_texts, texts
from shoal.events.automaton import PathLaw
from shoal.jobs.census import Census
from shoal.jobs.drawing import NOT_ADDED, OVER_LIMIT, Charging, OwnStates, fitting, seeded_source
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job
from shoal.jobs.live import UNUSABLE, KeyedRng, Live, LiveReading, LiveRow
from shoal.jobs.report import Made, StreamJob, guarantee_of
from shoal.jobs.tidy import NO_DEGREES, NO_STATE, UNKNOWN
from shoal.places.machine import LocationMachine, grid_in_km, machine_of
from shoal.places.map import Grid
from shoal.places.packed import LocationRelease, read_state, write_state
from shoal.places.runtime import StateLocator
from shoal.places.stream import LocationStream
from shoal.places.tracks import NO_TIMES
from shoal.places.walk import grid_of

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
        for group, rows in self._rows_of_groups(frame, layout, usable):
            locator, own = self._maps[group]
            found, off = locator.states_of(latitudes[rows], longitudes[rows])
            states[rows] = own[found]
            off_map += int(off.sum())
        states[bad | worse] = NO_DEGREES
        return pl.Series("state", states), off_map

    def _rows_of_groups(
        self, frame: pl.DataFrame, layout: Layout, usable: Bools
    ) -> Iterator[tuple[str, Ints]]:
        """The usable rows of each group that has a map."""
        rows = np.flatnonzero(usable)
        if layout.group is None:
            yield from ((group, rows) for group in self._maps)
            return
        named = texts(frame[layout.group], "the group")[rows]
        rows, named = rows[named.is_not_null().to_numpy()], named.drop_nulls()
        codes, names = encode_texts(named)
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
    if not isinstance(machine, LocationMachine) or grid_of(machine.chain) is None:
        raise InputError(
            f"latitude and longitude are given, but the model of {plan.mechanism} has no map; name "
            "the column of the states instead"
        )
    return machine.runtime.locator


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


# Location streams of many people: each chain of rows is a stream, each row a step.


SKIPPED = -1  # in the place of a state
NO_ROW = -1  # in the place of a row
MINUTE = 60_000_000  # microseconds
BY_ROWS = (
    "the plan watches events by the clock, and rows of a live job are steps without one; name the "
    "slots of the events (between = [8, 24]), or use the gateway, whose clock closes slots"
)
OUTSIDE = "a reading before the first slot, or of another day or week than the first one"
IN_PIECES = "its rows are several chains, and the events are about all slots of one"
ONE_OUTPUT = (
    "the plan watches events, so a step has one output whoever asks; leave requester out of the job"
)
OTHER_ROWS = (
    "the ledger holds outputs of this stream that were drawn from other rows (late rows, or rows "
    "left out); give the rows that were released again, and new ones after the last of them only"
)
STREAMS_AT_ONCE = 512  # streams stepped at once: their beliefs stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One stream of a job: whose it is, which chain of theirs, and the row of each step.

    A row of -1 is a step that was not read; `sizes` is how many rows a step answers, where not one
    each.
    """

    unit: int
    chain: int
    rows: Sequence[int]
    sizes: Sequence[int] | None = None

    @property
    def length(self) -> int:
        return len(self.rows)


ShownStep = tuple[int, Trace, LocationRelease]  # which step of whom, and what it showed


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
    transaction; a stream whose charge is refused stops there. Events whose slots have a length
    put rows into slots by their times, the first of a slot counts; a step is a row otherwise.
    """
    watch = machine_of(plan).watch
    refused = {unit: census.problems[unit] for unit in units if unit in census.problems}
    unusable = census.unusable(UNKNOWN, NO_DEGREES)
    refused |= {unit: unusable[unit] for unit in units if unit in unusable and unit not in refused}
    refused |= _too_long(plan, census, [unit for unit in units if unit not in refused])
    traces = [trace for unit in units if unit not in refused for trace in _traces(census, unit)]
    if watch is not None:
        if charging is not None and charging.requester:
            raise InputError(ONE_OUTPUT)
        if charging is not None and census.times is None:
            raise InputError(NO_TIMES)
        law = watch.law(machine_of(plan).chain)
        traces = _in_slots(_undivided_traces(traces, refused), census, law, refused)
    traces.sort(key=lambda trace: -trace.length)
    places = np.where(census.values < 0, SKIPPED, place[census.values])
    by_rows = watch is not None and watch.law(machine_of(plan).chain).clock is None
    times = census.times if by_rows else None
    batch = TraceBatch(plan, census, places, seed, charging, refused, times)
    for begin in range(0, len(traces), STREAMS_AT_ONCE):
        batch.run(traces[begin : begin + STREAMS_AT_ONCE])
    done = {trace.unit: 0 for trace in traces}
    for step, trace, _ in batch.rows:
        done[trace.unit] += 1 if trace.sizes is None else trace.sizes[step]
    return _step_table(plan, census, batch.rows, secure=seed is None), done, refused


def _undivided_traces(traces: list[Trace], refused: dict[int, str]) -> list[Trace]:
    """The units that are one stream each; the others are refused: an event is about all slots."""
    chains = Counter(trace.unit for trace in traces)
    refused |= {unit: IN_PIECES for unit, count in chains.items() if count > 1}
    return [trace for trace in traces if chains[trace.unit] == 1]


def _in_slots(
    traces: list[Trace], census: Census, law: PathLaw, refused: dict[int, str]
) -> list[Trace]:
    """The traces with their rows in the slots of the events' clock, where there is one."""
    if law.clock is None or census.times is None:
        return traces
    found = []
    for trace in traces:
        rows = np.asarray(trace.rows)
        slots = law.clock.slots_at(census.times[rows] // MINUTE, law.length)
        if slots[0] < 0 or (np.diff(slots) < 0).any():
            refused[trace.unit] = OUTSIDE
            continue
        taken, first = np.unique(slots, return_index=True)
        placed = np.full(int(slots[-1]) + 1, NO_ROW, dtype=np.int64)
        placed[taken] = rows[first]
        found.append(Trace(trace.unit, trace.chain, placed.tolist(), np.bincount(slots).tolist()))
    return found


@dataclass(slots=True)
class TraceBatch:
    """Streams of a plan that are stepped together, and which units were `refused`, with the reason.

    `places` are the states of the census's rows, SKIPPED where there is none; `times` those of the
    rows, where a ledger is to know the steps of a later run by them. `rows` collects what every
    step has shown.
    """

    plan: Plan
    census: Census
    places: Ints
    seed: int | None
    charging: Charging | None
    refused: dict[int, str]
    times: Ints | None = None
    rows: list[ShownStep] = field(default_factory=list)

    def run(self, traces: list[Trace]) -> None:
        """Step all streams, from their first row to the last row of the longest."""
        begun, rngs = LocationStream.begin(self.plan), [self._source(trace) for trace in traces]
        running = [(trace, begun, rng) for trace, rng in zip(traces, rngs, strict=True)]
        ledger = None if self.charging is None else self.charging.ledger
        for number in range(traces[0].length if traces else 0):
            running = [one for one in running if one[0].length > number]
            steps = [self._step_row(trace, stream, number, rng) for trace, stream, rng in running]
            results, running = zip(running, run_batch(steps, ledger), strict=True), []
            for (trace, _, rng), result in results:
                if isinstance(result.error, BudgetError):
                    self.refused[trace.unit] = _reason(result.error)
                    continue
                stream = result.after()
                running.append((trace, stream, rng))
                if trace.rows[number] != NO_ROW:
                    self.rows.append((number, trace, stream.released()))

    def _step_row(
        self, trace: Trace, stream: LocationStream, number: int, rng: Rng | None
    ) -> Step[LocationStream]:
        """Return the step of a stream at its `number`-th row."""
        row = trace.rows[number]
        place = SKIPPED if row == NO_ROW else int(self.places[row])
        at = "" if self.times is None or row == NO_ROW else str(int(self.times[row]))
        slot = Slot(read=place != SKIPPED)
        if self.charging is not None and slot.read:
            subject, period = self.census.subjects[trace.unit], self.census.periods[trace.unit]
            slot = self.charging.slot(self.plan, subject, period, trace.chain, number)
            # an output of a stream that watches events has a key of its own, for every caller
            key = slot.key if stream.watched is None else None
            slot = replace(slot, key=key, at=at, covers=self.census.period_part(trace.unit).covers)
        elif at:
            slot = replace(slot, at=at)
        return Step(stream, slot, None if place == SKIPPED else place, rng)

    def _source(self, trace: Trace) -> Rng | None:
        """Return the predictable source of a stream of a seeded job; None: the system's."""
        if self.seed is None:
            return None
        subject, period = self.census.subjects[trace.unit], self.census.periods[trace.unit]
        return seeded_source(self.seed, self.plan, subject, f"{period}/{trace.chain}")


def _reason(refusal: BudgetError) -> str:
    """Why the ledger does not let a stream of a job go on."""
    if isinstance(refusal, OtherHistory):
        return OTHER_ROWS
    return OVER_LIMIT if isinstance(refusal, OverBudget) else NOT_ADDED


def _step_table(
    plan: Plan, census: Census, rows: Sequence[ShownStep], *, secure: bool
) -> pl.DataFrame:
    """One row per step, ordered by subject, period, chain and step."""
    import polars as pl

    query, drawn = plan.task.query, [shown.z for *_, shown in rows]
    fitting(np.array([z for z in drawn if z is not None], dtype=object))
    columns: dict[str, Any] = {
        "subject": pl.Series([census.subjects[t.unit] for _, t, _ in rows], dtype=pl.String),
        "period": pl.Series([census.periods[t.unit] for _, t, _ in rows], dtype=pl.String),
        "chain": pl.Series([t.chain for _, t, _ in rows], dtype=pl.Int32),
        "step": pl.Series([step for step, _, _ in rows], dtype=pl.Int32),
    }
    if census.times is not None:
        at = np.array([trace.rows[step] for step, trace, _ in rows], dtype=np.int64)
        columns["time"] = pl.Series(census.times[at], dtype=pl.Int64)
    width, step = len(query.labels), float(query.lattice)
    outputs = [  # by coordinate, null where nothing was released
        pl.Series([None if z is None else z[axis] for z in drawn], dtype=pl.Int64)
        for axis in range(width)
    ]
    estimates = np.array([shown.estimate for *_, shown in rows]).reshape(-1, width)
    columns |= {
        "value": _struct(query.labels, [column * step for column in outputs]),
        "multiples": _struct(query.labels, outputs),
        "estimate": _struct(query.labels, [pl.Series(column) for column in estimates.T]),
    }
    grid = grid_in_km(plan)
    if grid is not None:
        points = np.column_stack([column.cast(pl.Float64) * step for column in outputs])
        columns["value_degrees"] = _degrees(grid, points)
        columns["estimate_degrees"] = _degrees(grid, estimates)
    for name in ("spread", "loss_here", "loss_path"):
        numbers = [getattr(shown, name) for *_, shown in rows]
        columns[name] = pl.Series(numbers, dtype=pl.Float64)
    columns["possible"] = pl.Series([shown.possible for *_, shown in rows], dtype=pl.Int64)
    promise = {**guarantee_of(plan), "unit": query.unit, "secure": secure}
    whole = pl.DataFrame(columns).with_columns(
        pl.lit(value).alias(name) for name, value in promise.items()
    )
    return whole.sort("subject", "period", "chain", "step")


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
    """Return the chains of a unit, each with the range of its rows in the census."""
    own = census.starts[census.first_chain[unit] : census.first_chain[unit + 1]].tolist()
    ends = [*own[1:], int(census.bounds[unit + 1])]
    return [
        Trace(unit, chain, range(begin, end))
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


def _job(plan: Plan, census: Census, units: list[int], job: Job, charging: Charging | None) -> Made:
    """Release the units of a job as streams of places; units with unknown states are refused."""
    own = OwnStates.of(plan, job.states)
    outside = own.outside(census, units)
    inside = [unit for unit in units if unit not in outside]
    steps, done, refused = release_traces(
        plan, census, inside, place=own.place, seed=job.seed, charging=charging
    )
    return Made(steps, done, outside | refused)


def _calendar(plan: Plan) -> str | None:
    """The day or week that events by the clock are about; None: a row is a step."""
    machine = machine_of(plan)
    law = None if machine.watch is None else machine.watch.law(machine.chain)
    return None if law is None or law.clock is None else law.clock.calendar(law.length)


JOB = StreamJob(_job, maps=Maps, calendar=_calendar)


class LivePlaces:
    """Live streams of places: rows are steps, in the order of their times."""

    days = False

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """Release new readings in order of time, and return the next state and one row per reading.

        A reading no later than the last one is marked late. A step that the ledger refuses is
        skipped; an unusable reading is marked and takes no step.
        """
        plan = live.plan
        machine = machine_of(plan)
        if machine.watch is not None and machine.watch.slot_minutes:
            raise InputError(BY_ROWS)
        if machine.watch is not None and live.ledger is not None and live.requester:
            raise InputError(ONE_OUTPUT)
        if stored is None:
            stream = LocationStream.begin(plan)
        else:
            stream = LocationStream.of(plan, read_state(stored, machine.runtime.motion.hidden))
        last = stream.last
        rows_out = []
        for row in sorted(rows, key=lambda row: row.at or 0):
            at = int(row.at or 0)
            if last is not None and at <= last:
                rows_out.append(LiveRow(row.day, at, late=True))
                continue
            rng = KeyedRng(live.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            account = _account(live, subject, stream.state.time, at)
            try:
                stream, release = (
                    stream.skip()
                    if row.state is None
                    else stream.read(row.state, rng=rng, **account)
                )
            except (OverBudget, CannotCompose):
                stream, release = stream.skip()
            except InputError:  # a state the model does not know, a name no ledger takes
                rows_out.append(LiveRow(row.day, at, error=UNUSABLE))
                continue
            last, stream = at, replace(stream, last=at)
            rows_out.append(LiveRow(row.day, at, cells=self._step_cells(plan, release)))
        return write_state(stream.kept()), rows_out

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

    def _step_cells(self, plan: Plan, release: LocationRelease) -> dict[str, Any]:
        """Multiples and estimate of a step, and on a map both in degrees."""
        cells: dict[str, Any] = {"multiples": release.z, "estimate": release.estimate}
        grid = grid_in_km(plan)
        if grid is not None:
            cells["value_degrees"], cells["estimate_degrees"] = release.degrees(grid)
        return cells


def _account(live: Live, subject: str, step: int, at: int) -> dict[str, Any]:
    """The charge of one step, under a key of its own: run again, it costs nothing more."""
    if live.ledger is None:
        return {}
    rest: dict[str, Any] = {"subject": subject, "requester": live.requester}
    if machine_of(live.plan).watch is None:  # one that watches events makes its own keys
        parts = [live.job, subject, "", live.plan.fingerprint, step]
        rest["key"] = json.dumps(parts, ensure_ascii=False)
    else:
        rest["at"] = str(at)
    return {"ledger": live.opened_ledger(), **rest}


LIVE = LivePlaces()
