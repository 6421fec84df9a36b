"""Streams of many people, for `benchmarks.engines`: jobs of locations, and live steps."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import polars as pl

import shoal
from shoal.core.plan import Plan
from shoal.jobs import local
from shoal.jobs.inputs import Layout
from shoal.jobs.job import Job
from shoal.jobs.live import KeyedRng, Live, LiveReading
from shoal.jobs.spark import advance_subject
from shoal.places.machine import grid_in_km
from shoal.places.packed import read_state
from shoal.places.stream import LocationStream

SHORT = 0.8  # seconds below which a neighbour's burst would spoil a single measurement


class Taken(NamedTuple):
    """Seconds by the clock, and of work."""

    clock: float
    work: float


def medians(rounds: int, *works: Callable[[Path], object]) -> list[Taken]:
    """What each took, the median of alternating rounds; short works come three times a round."""
    times: list[list[Taken]] = [[] for _ in works]
    for _ in range(rounds):
        for place, work in enumerate(works):
            times[place].append(once(work))
            if times[place][-1].clock < SHORT:
                times[place] += [once(work), once(work)]
    return [Taken(*map(statistics.median, zip(*each, strict=True))) for each in times]


def once(work: Callable[[Path], object]) -> Taken:
    """What the work takes, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        begin, before = time.perf_counter(), time.process_time()
        work(Path(folder))
        return Taken(time.perf_counter() - begin, time.process_time() - before)


def town_plan(side: int = 20) -> Plan:
    """Positions on a map of side × side cells, neighbours indistinguishable."""
    from shoal.core.task import Task
    from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
    from shoal.places.map import SquareGrid
    from shoal.places.policy import PolicyGraph
    from shoal.places.queries import coordinates
    from shoal.places.walk import SparseChain

    grid = SquareGrid(
        south=Fraction(39), west=Fraction(116), cell_m=Fraction(500), rows=side, columns=side
    )
    matrix = np.zeros((grid.size, grid.size))
    for cell in range(grid.size):
        near = [cell, *grid.adjacent(cell)]
        matrix[cell, near] = 1 / len(near)
    chain = SparseChain.of(
        matrix,
        initial=np.full(grid.size, 1 / grid.size),
        states=[grid.name_of(cell) for cell in range(grid.size)],
        grid=grid,
        cells=np.arange(grid.size),
    )
    query = coordinates(chain)
    task = Task(query=query, secrets=PolicyGraph.within(query, 1), family=(chain,))
    return calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(1))


def traces(users: int, steps: int, rounds: int) -> None:
    """Location steps per second of a whole job, against one stream stepped by itself."""
    made = town_plan()
    by_name = Layout(by="user", state="cell", time="t")
    by_degrees = Layout(by="user", latitude="lat", longitude="lon", time="t")
    rng = np.random.default_rng(1)
    names = np.array(made.task.query.states)
    grid = grid_in_km(made)
    assert grid is not None
    with tempfile.TemporaryDirectory() as folder:
        cells = rng.integers(0, len(names), users * steps)
        points = grid.centre_of(cells)
        frame = pl.DataFrame(
            {
                "user": np.repeat(np.arange(users), steps),
                "t": np.tile(np.arange(steps), users),
                "cell": names[cells],
                "lat": points[:, 0],
                "lon": points[:, 1],
            }
        )
        frame.write_parquet(Path(folder) / "in.parquet")

        def whole(at: Path, layout: Layout = by_name) -> None:
            local.run(Job.of(made, Path(folder) / "in.parquet", out=at / "out", layout=layout))

        def located(at: Path) -> None:
            whole(at, by_degrees)

        def single(at: Path) -> None:
            stream = shoal.LocationStream.begin(made)
            for cell in names[:500].tolist() * 2:
                stream, _ = stream.read(cell)

        medians(1, single)
        job, degrees, one = (took.clock for took in medians(rounds, whole, located, single))
    print(f"\nlocation streams, {len(names)} cells, {users:,} users × {steps} steps")
    print(f"  job on {os.cpu_count()} cores       {users * steps / job:>10,.0f} steps/s")
    print(f"  from coordinates     {users * steps / degrees:>10,.0f} steps/s")
    print(f"  one stream by itself {1000 / one:>10,.0f} steps/s")


def live(steps: int, rounds: int) -> None:
    """A live step with its state read from a store and written back, as JSON was and as bytes are.

    The last line is all that a Spark worker does for a batch of one row: frames in and out.
    """
    made = town_plan()
    states = made.task.query.states
    cells = np.random.default_rng(2).integers(0, len(states), steps + 1)
    rows = [LiveReading("", place, states[cell]) for place, cell in enumerate(cells.tolist())]
    frames = [pd.DataFrame([row], columns=LiveReading._fields) for row in rows]
    streams = Live.of(made, bytes(32))
    first, _ = streams.advance("ann", None, rows[:1])
    kept = read_state(first, len(states))
    document = json.dumps({"state": shoal.dumps(kept.state), "last": kept.last})

    def by_json(at: Path) -> None:
        text = document
        for row in rows[1:]:
            text = _json_step(streams, text, row)

    def by_bytes(at: Path) -> None:
        text = first
        for row in rows[1:]:
            text, _ = streams.advance("ann", text, [row])

    def by_frames(at: Path) -> None:
        text = first
        for frame in frames[1:]:
            text, _ = advance_subject(streams, "ann", text, [frame])

    works = (by_json, by_bytes, by_frames)
    medians(1, *works)
    old, new, framed = (1e6 * took.work / steps for took in medians(rounds, *works))
    print(f"\nlive location steps, {len(states)} cells, µs of work a step; bytes of state")
    print(f"  state as JSON        {old:>10,.0f} µs {len(document):>10,}")
    print(f"  state as bytes       {new:>10,.0f} µs {len(first):>10,}")
    print(f"  JSON / bytes         {old / new:>10.2f}    {len(document) / len(first):>10.2f}")
    print(f"  with Spark's frames  {framed:>10,.0f} µs")


def _json_step(streams: Live, text: str, row: LiveReading) -> str:
    """A step as it was when states were stored as JSON documents."""
    before = json.loads(text)
    stream = LocationStream(streams.plan, shoal.loads(before["state"]))
    label = [streams.plan.fingerprint, "ann", *row, stream.state.fingerprint]
    stream, _ = stream.read(row.state, rng=KeyedRng(streams.key, label))
    return json.dumps({"state": shoal.dumps(stream.state), "last": row.at})
