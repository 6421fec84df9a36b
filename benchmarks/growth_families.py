"""Time and memory of networks, tied records, places, contexts and many users against their size.

Run as `python -m benchmarks.growth_families` (`--only networks slots`, `--seconds 120`); chains are
in `benchmarks.growth`. Every cell is a fresh process: processor seconds of the work after the
imports, the peak of memory beyond them, and what came of it; or what the row says instead.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import shoal
from benchmarks.network import example
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import ShoalError
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import calibrate_and_check, row_named
from shoal.networks.bayesnet import BayesNet
from shoal.networks.interchange import parse_bif
from shoal.networks.lift import BagLift, NetworkLift, hamming_metrics
from shoal.noise.primitives import SeededRng
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain
from shoal.records.domain import RecordDomain
from shoal.records.sources import FriendModel

Work = Callable[[], str]
STEPS = 10  # of a stream of places
HEPAR2_VARIABLES = 70


def square(side: int, strength: float = 0.05) -> BayesNet:
    """Bits in a square, each tied to those above and to the left: no small blocks."""
    tables: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    for place in range(side * side):
        row, column = divmod(place, side)
        above = [f"v{place - side}"] * (row > 0) + [f"v{place - 1}"] * (column > 0)
        signs = np.indices((2,) * len(above)).sum(axis=0) * 2 - len(above)
        odds = 0.5 + strength * signs / 2
        tables[f"v{place}"] = np.stack([1 - odds, odds], axis=-1)
        parents[f"v{place}"] = above
    return BayesNet.of(tables, parents=parents)


def network(row: str, variables: int) -> Work:
    net = square(round(variables**0.5))
    task = Task(query=shoal.count(("0", "1"), "1"), secrets=EachEntry(), family=(net,))
    return lambda: _scale(calibrate_and_check(row_named(row), task, Fraction(1)))


def ladder(columns: int, strength: float = 0.4) -> BayesNet:
    """Three rows of bits, each tied to those above and to the left: small blocks and bags."""
    tables: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    for column in range(columns):
        for row in range(3):
            above = [f"{row},{column - 1}"] * (column > 0) + [f"{row - 1},{column}"] * (row > 0)
            signs = np.indices((2,) * len(above)).sum(axis=0) * 2 - len(above)
            odds = 0.5 + strength * signs / 2
            tables[f"{row},{column}"] = np.stack([1 - odds, odds], axis=-1)
            parents[f"{row},{column}"] = above
    return BayesNet.of(tables, parents=parents)


def lifts(row: str, size: int) -> Work:
    """The lift at ε = 1, any change of a variable counting 1: on ladders, and HEPAR2 for 70."""
    net = parse_bif(example("hepar2")) if size == HEPAR2_VARIABLES else ladder(size // 3)

    def largest() -> str:
        lift = (BagLift if row == "bags" else NetworkLift)(net, hamming_metrics(net))
        found = lift.largest_eta(1.0)
        return "nothing" if found is None else f"scale {1 / found.eta:.4g}"

    return largest


def ties(row: str, records: int) -> Work:
    """People on a ring, each tied to the next four."""
    domain = RecordDomain.points([0, 1, 2], states="abc")
    edges = [(i, (i + far) % records) for i in range(records) for far in (1, 2, 3, 4)]
    model = FriendModel(b=0.5, c=1.0).ties(domain, records, edges)
    query = shoal.count("abc", "c")
    task = Task(query=query, secrets=EachEntry(), family=(model,))
    return lambda: _scale(choose(task, Fraction(1)).plan)


def cells(row: str, size: int) -> Work:
    """Ten steps of a stream on a square map of 500 m cells: constraint, noise, draw, belief."""
    side = round(size**0.5)
    grid = SquareGrid(
        south=Fraction(39), west=Fraction(116), cell_m=Fraction(500), rows=side, columns=side
    )
    around = [[cell, *grid.adjacent(cell)] for cell in range(grid.size)]
    matrix = np.zeros((grid.size, grid.size))
    for cell, near in enumerate(around):
        matrix[cell, near] = 1 / len(near)
    names = [grid.name_of(cell) for cell in range(grid.size)]
    uniform = np.full(grid.size, 1 / grid.size)
    model = SparseChain.of(
        matrix, initial=uniform, states=names, grid=grid, cells=np.arange(grid.size)
    )
    query = coordinates(model)
    policy = PolicyGraph.within(query, "0.75")
    task = Task(query=query, secrets=policy, family=(model,))

    def steps() -> str:
        stream = LocationStream.begin(calibrate_and_check(row_named(row), task, Fraction(1)))
        for t in range(STEPS):
            stream, _ = stream.read(names[t % side])
        return f"{STEPS} steps"

    return steps


def slots(row: str, count: int) -> Work:
    """Days of three contexts, one of them sensitive, δ = .1."""
    step = [[0.7, 0.27, 0.03], [0.25, 0.72, 0.03], [0.4, 0.3, 0.3]]
    day = DayChain.of(
        step, initial=[0.8, 0.18, 0.02], states=("home", "work", "hospital"), slots=count
    )
    task = Task(
        query=CurrentState(day.states), secrets=SensitiveContexts.of("hospital"), family=(day,)
    )
    return lambda: (
        f"{-calibrate_and_check(row_named(row), task, Fraction(1, 10)).cost / count:.1%} shown"
    )


def users(row: str, people: int) -> Work:
    """A series of 200 entries of each person, released one by one without a ledger."""
    chain = MarkovChain.of([[0.9, 0.1], [0.2, 0.8]], length=200)
    plan = shoal.calibrate(shoal.count(chain.states, "1"), EachEntry(), chain, epsilon=1)
    rng = SeededRng(1)
    series = [[chain.states[int(x)] for x in chain.sample(200, rng)] for _ in range(people)]
    return lambda: f"{len([plan.release(one) for one in series])} releases"


CELLS: dict[str, tuple[Callable[[str, int], Work], tuple[str, ...], tuple[int, ...]]] = {
    "networks": (network, ("exact", "lift", "markov-quilt"), (9, 36, 100, 196, 400)),
    "lifts": (lifts, ("blocks", "bags"), (30, HEPAR2_VARIABLES, 90)),
    "ties": (ties, ("best",), (100, 1_000, 10_000)),
    "cells": (cells, ("location-knorm", "location-laplace"), (16, 100, 400, 900)),
    "slots": (slots, ("mask-simulatable", "mask-adaptive", "mask-optimal"), (12, 24, 48, 96)),
    "users": (users, ("exact",), (100, 1_000, 10_000)),
}


def _scale(plan: Plan) -> str:
    return f"{plan.mechanism}: scale {plan.scale:.4g}"


def cell(kind: str, row: str, size: int) -> dict[str, object]:
    """One measurement: processor seconds, megabytes beyond the imports, what came of it."""
    work = CELLS[kind][0](row, size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        found = work()
    except ShoalError as why:
        found = f"refused: {str(why)[:80]}"
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": (peak - before) / 1024, "found": found}


def measured(kind: str, row: str, size: int, most: float) -> str:
    """The cell of a fresh process, as text; what took longer than `most` seconds is said so."""
    start = [sys.executable, "-m", "benchmarks.growth_families", "--cell", kind, row, str(size)]
    try:
        done = subprocess.run(start, capture_output=True, text=True, timeout=most, check=True)
    except subprocess.TimeoutExpired:
        return f"> {most:g} s"
    told = json.loads(done.stdout)
    return f"{told['seconds']:8.2f} s {told['megabytes']:6.0f} MB  {told['found']}"


def main() -> None:
    """Print the tables, or one cell as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", nargs=3, metavar=("KIND", "ROW", "SIZE"))
    parser.add_argument("--only", nargs="+", choices=list(CELLS), default=list(CELLS))
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args()
    if chosen.cell:
        kind, row, size = chosen.cell
        print(json.dumps(cell(kind, row, int(size))))
        return
    for kind in chosen.only:
        _, rows, sizes = CELLS[kind]
        for row in rows:
            cell(kind, row, sizes[0])  # compiles what is compiled, for all processes
            for size in sizes:
                told = measured(kind, row, size, chosen.seconds)
                print(f"{kind:9} {row:17} {size:7,}  {told}", flush=True)


if __name__ == "__main__":
    main()
