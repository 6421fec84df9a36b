"""Time and memory of the rows on chains against the number of states and the length, and of
`exact` on the networks that come with pgmpy (`--networks andes pigs`).

Run as `python -m benchmarks.growth` (`--states 2 6 20 50`, `--lengths 100 10000`, `--rows exact
lift`, `--seconds 120`). Every cell is a fresh process, so that one size leaves nothing to the next:
processor seconds of one calibration at ε = 1 with its own check, the peak of memory beyond what the
imports take, and the scale; or what the row says instead. Kernels are compiled once before.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from fractions import Fraction

import numpy as np

from benchmarks.network import example
from shoal.additive.choice import calibrated, row_named
from shoal.additive.plans import additive_body
from shoal.additive.queries import count, histogram
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import ShoalError
from shoal.core.task import EachEntry, Task
from shoal.networks.interchange import parse_bif
from shoal.networks.queries import variable_sum

ROWS = ("exact", "lift", "markov-quilt")
STATES = (2, 6, 20, 50)
LENGTHS = (100, 10_000, 1_000_000)
REFERENCE = 6  # states while the length varies


def walk_like(states: int, stay: float = 0.9, jump: float = 0.05) -> Floats:
    """Stays, or moves to a neighbour, and now and then jumps anywhere."""
    near = np.abs(np.subtract.outer(np.arange(states), np.arange(states))) == 1
    moves = near / np.maximum(near.sum(axis=1, keepdims=True), 1)
    walk = stay * np.eye(states) + (1 - stay) * moves
    return np.asarray((1 - jump) * walk / walk.sum(axis=1, keepdims=True) + jump / states)


def cell(row: str, states: int, length: int, asked: str) -> dict[str, object]:
    """One calibration: processor seconds, megabytes beyond the imports, the scale or why not."""
    chain = MarkovChain.of(walk_like(states), length=length)
    query = histogram(chain.states) if asked == "histogram" else count(chain.states, "0")
    return _calibrated(row, Task(query=query, secrets=EachEntry(), family=(chain,)))


def _calibrated(row: str, task: Task) -> dict[str, object]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        plan = calibrated(row_named(row), task, Fraction(1))
        found: object = float(additive_body(plan).noise.scale)
    except ShoalError as why:
        found = str(why)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds, "megabytes": (peak - before) / 1024, "found": found}


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
    """The cell of a fresh process, as text; what took longer than `most` seconds is said so."""
    start = [sys.executable, "-m", "benchmarks.growth"]
    try:
        done = subprocess.run(
            [*start, *order], capture_output=True, text=True, timeout=most, check=True
        )
    except subprocess.TimeoutExpired:
        return f"> {most:g} s"
    told = json.loads(done.stdout)
    found = told["found"]
    shown = (
        f"scale {found:.4g}"
        + (f", {found / told['group']:.3f} of group" if "group" in told else "")
        if isinstance(found, float)
        else f"refused: {found[:60]}"
    )
    return f"{told['seconds']:.2f} s, {told['megabytes']:.0f} MB, {shown}"


def main() -> None:
    """Print the table, or one cell as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cell", nargs=4, metavar=("ROW", "STATES", "LENGTH", "QUERY"))
    parser.add_argument("--rows", nargs="+", default=list(ROWS))
    parser.add_argument("--states", nargs="+", type=int, default=list(STATES))
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--query", choices=("count", "histogram"), default="count")
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
        row, states, length, asked = chosen.cell
        print(json.dumps(cell(row, int(states), int(length), asked)))
        return
    for row in chosen.rows:
        cell(row, 3, 50, chosen.query)  # compiles what is compiled, for all processes
        for states in chosen.states:
            told = measured(["--cell", row, str(states), "10000", chosen.query], chosen.seconds)
            print(f"{row:14} k = {states:5}  T = 10,000   {told}", flush=True)
        for length in chosen.lengths:
            order = ["--cell", row, str(REFERENCE), str(length), chosen.query]
            told = measured(order, chosen.seconds)
            print(f"{row:14} k = {REFERENCE:5}  T = {length:,}   {told}", flush=True)


if __name__ == "__main__":
    main()
