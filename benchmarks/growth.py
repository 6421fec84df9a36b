"""Time and memory of the rows on chains against states, length, order and cells of a map, and of
`exact` on the networks that come with pgmpy (`--networks andes pigs`).

Run as `python -m benchmarks.growth` (`--only states lengths`, `--rows exact lift`, `--states 2 6
20 50`, `--seconds 120`); it prints the table of docs/growth.md. Every cell is a fresh process, so
that one size leaves nothing to the next: processor seconds of one calibration at ε = 1 with its own
check, imports included, the peak of memory beyond what the imports take, and the scale; or what the
row says instead. `best` is the whole choice. Loops are compiled once before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from contextlib import nullcontext
from fractions import Fraction
from itertools import product

import numpy as np

from benchmarks.network import example
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Bools, Floats
from shoal.core.errors import ShoalError
from shoal.core.progress import time_limit
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.plans import additive_body
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.table import calibrate_and_check, row_named
from shoal.mechanisms.variables import variable_sum
from shoal.networks.interchange import parse_bif

ROWS = ("exact", "lift", "markov-quilt")
BEST = "best"
STATES = (2, 6, 20, 50, 100, 200, 500)
LENGTHS = (100, 10_000, 1_000_000, 100_000_000)
REFERENCE = 6  # states while the length varies
LENGTH = 10_000  # entries while the states vary
# what is measured: a kind of chain, its sizes, its lengths, what is asked, and of which rows
SERIES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], str, tuple[str, ...]]] = {
    "states": ("walk", STATES, (LENGTH,), "count", ROWS),
    "lengths": ("walk", (REFERENCE,), LENGTHS, "count", ROWS),
    "slow": ("slow", (REFERENCE,), LENGTHS, "count", ROWS),
    "histograms": ("walk", (3, 20, 50, 100, 500), (LENGTH,), "histogram", (BEST,)),
    "slow histograms": ("slow", (6, 20, 40), (300, LENGTH), "histogram", ("lift",)),
    "starts": ("start", (6, 10, 20, 40), (LENGTH,), "histogram", ("lift",)),
    "orders": ("order", (2, 3, 5, 7), (LENGTH,), "count", (BEST,)),
    "cells": ("map", (64, 256, 1024), (LENGTH,), "count", (BEST,)),
}


def walk_like(states: int, stay: float = 0.9, jump: float = 0.05) -> Floats:
    """Stays, or moves to a neighbour, and now and then jumps anywhere."""
    near = np.abs(np.subtract.outer(np.arange(states), np.arange(states))) == 1
    return _moving(near, stay, jump)


def map_like(cells: int) -> Floats:
    """Stays or moves to one of the cells beside it, on a square map: rows of a few entries."""
    side = round(cells**0.5)
    place = np.stack(np.divmod(np.arange(side * side), side))
    apart = np.abs(place[:, :, None] - place[:, None, :]).max(axis=0)
    return _moving(apart == 1, 0.6, 0.0)


def order_like(states: int) -> OrderChain:
    """The next entry follows the last one, and a little the one before it."""
    walk = walk_like(states)
    rows = (0.7 * walk[None, :, :] + 0.3 * walk[:, None, :]).reshape(states**2, states)
    return OrderChain(
        states=tuple(map(str, range(states))),
        order=2,
        conditional=rows,
        initial=np.full(states**2, states**-2.0),
        length=LENGTH,
    )


def _moving(near: Bools, stay: float, jump: float) -> Floats:
    moves = near / np.maximum(near.sum(axis=1, keepdims=True), 1)
    walk = stay * np.eye(len(near)) + (1 - stay) * moves
    walk /= walk.sum(axis=1, keepdims=True)
    return np.asarray((1 - jump) * walk + jump / len(near))


def chain_of(kind: str, states: int, length: int) -> MarkovChain | OrderChain:
    """One of the chains measured: "slow" seldom jumps, so that it hardly forgets; "start" is the
    same from its first state."""
    if kind == "order":
        return order_like(states)
    if kind == "map":
        return MarkovChain.of(map_like(states), length=length)
    walk = walk_like(states, 0.9, 0.05 if kind == "walk" else 0.001)
    if kind == "start":
        return MarkovChain.of(walk, initial=np.eye(states)[0], length=length)
    return MarkovChain.of(walk, length=length)


def cell(
    row: str, states: int, length: int, asked: str, kind: str = "walk", limit: float | None = None
) -> dict[str, object]:
    """One calibration: processor seconds, megabytes beyond the imports, the scale or why not."""
    chain = chain_of(kind, states, length)
    query = histogram(chain.states) if asked == "histogram" else count(chain.states, "0")
    task = Task(query=query, secrets=EachEntry(), family=(chain,))
    with nullcontext() if limit is None else time_limit(limit):
        return _calibrated(row, task)


def _calibrated(row: str, task: Task) -> dict[str, object]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        if row == BEST:
            plan = choose(task, Fraction(1), prune=True).plan
        else:
            plan = calibrate_and_check(row_named(row), task, Fraction(1))
        found: object = float(additive_body(plan).noise.scale)
    except ShoalError as why:
        found = str(why)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    by = plan.mechanism if isinstance(found, float) else ""
    return {"seconds": seconds, "megabytes": (peak - before) / 1024, "found": found, "by": by}


def network_cell(name: str, values: str) -> dict[str, object]:
    """`exact` at ε = 1 on a network of pgmpy's: how many variables are not in their first value,
    or in their last one."""
    net = parse_bif(example(name))
    counted = {
        variable: dict.fromkeys(domain[-1:] if values == "last" else domain[1:], 1)
        for variable, domain in zip(net.variables, net.domains, strict=True)
    }
    task = Task(query=variable_sum(net, counted), secrets=EachEntry(), family=(net,))
    return {**_calibrated("exact", task), "group": net.tied}


def measured(order: list[str], most: float) -> str:
    """The cell of a fresh process, as text; what took more processor seconds is said so."""
    start = [sys.executable, "-m", "benchmarks.growth"]
    second = round(most)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (second, second + 1))

    done = subprocess.run(
        [*start, *order], capture_output=True, text=True, check=False, preexec_fn=limited
    )
    if done.returncode < 0:
        return f"> {second} s | | ended"
    told = json.loads(done.stdout)
    found = told["found"]
    shown = f"refused: {found}"
    if isinstance(found, float):
        shown = f"scale {found:.4g} by {told['by']}"
        shown += f", {found / told['group']:.3f} of group" if "group" in told else ""
    return f"{told['seconds']:.2f} s | {told['megabytes']:.0f} MB | {shown}"


def main() -> None:
    """Print the table, or one cell as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cell", nargs=5, metavar=("ROW", "STATES", "LENGTH", "QUERY", "KIND"), help="as JSON"
    )
    parser.add_argument("--only", nargs="+", choices=list(SERIES), default=list(SERIES))
    parser.add_argument("--rows", nargs="+", default=[*ROWS, BEST])
    parser.add_argument("--states", nargs="+", type=int, help="instead of the sizes of a series")
    parser.add_argument("--limit", type=float, help="seconds: shoal.time_limit of every cell")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--networks", nargs="+", metavar="NAME", help="instead of chains")
    parser.add_argument("--values", choices=("first", "last"), default="first")
    parser.add_argument("--network-cell", metavar="NAME")
    chosen = parser.parse_args()
    if chosen.network_cell:
        print(json.dumps(network_cell(chosen.network_cell, chosen.values)))
        return
    for name in chosen.networks or ():
        told = measured(["--network-cell", name, "--values", chosen.values], chosen.seconds)
        print(f"{name:12} {told}", flush=True)
    if chosen.networks:
        return
    if chosen.cell:
        row, states, length, asked, kind = chosen.cell
        print(json.dumps(cell(row, int(states), int(length), asked, kind, chosen.limit)))
        return
    for row in ("lift", "exact"):
        cell(row, 20, 200, "count")  # compiles what is compiled, for all processes
    print("| row | chain | asked | k | T | processor | memory | found |\n" + "|---" * 8 + "|")
    more = [] if chosen.limit is None else ["--limit", str(chosen.limit)]
    for name in chosen.only:
        kind, sizes, lengths, asked, rows = SERIES[name]
        for row, states, length in product(rows, chosen.states or sizes, lengths):
            if row in chosen.rows:
                order = ["--cell", row, str(states), str(length), asked, kind, *more]
                told = measured(order, chosen.seconds)
                print(f"| {row} | {kind} | {asked} | {states} | {length:,} | {told} |", flush=True)


if __name__ == "__main__":
    main()
