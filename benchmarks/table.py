"""Optimal tables beside the noise of `exact`: worst-case expected error of a count on short series.

Run as `python -m benchmarks.table` (`--lengths 4 7 12`). For each chain and ε, in entries: the
error of `exact` noise for at most so many entries, of the same noise cut off at the range of the
answer (which anybody may do afterwards), of the table for exactly so many, and the least of any
release of the count; processor seconds of the table, and their ratio to those of `exact` in the
same run.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import replace
from fractions import Fraction

import numpy as np

from shoal.chains.model import MarkovChain
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.optimal_table import least_error
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import calibrate_and_check, row_named

CHAINS = {
    "quick": [[0.8, 0.2], [0.3, 0.7]],
    "slow": [[0.98, 0.02], [0.02, 0.98]],
    "alternating": [[0.1, 0.9], [0.8, 0.2]],
}
EPSILONS = ("0.3", "1", "3")


def timed(row: str, task: Task, epsilon: Fraction) -> tuple[Plan, float]:
    """The row's plan, and the processor seconds it took."""
    start = time.process_time()
    plan = calibrate_and_check(row_named(row), task, epsilon)
    return plan, time.process_time() - start


def cut_off(plan: Plan, most: int) -> float:
    """The largest expected error over answers 0 … most of noise cut off at both."""
    keep = math.exp(-1 / (plan.scale or math.inf))
    z = np.arange(-60 * most, 60 * most + 1)
    law = (1 - keep) / (1 + keep) * keep ** np.abs(z)
    beyond = max(1 - float(law.sum()), 0.0) * most
    return beyond + max(float(law @ np.abs(np.clip(z + a, 0, most) - a)) for a in range(most + 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", nargs="+", type=int, default=[4, 7, 12, 20, 32])
    lengths = parser.parse_args().lengths
    print("chain        entries    ε    exact  cut off   table     any  seconds / exact's")
    for length in lengths:
        for name, matrix in CHAINS.items():
            chain = MarkovChain.of(matrix, length=length)
            task = Task(query=count(chain.states, "1"), secrets=EachEntry(), family=(chain,))
            exact = replace(task, family=(replace(chain, exactly=True),))
            timed("exact", task, Fraction(2))  # compiles what is compiled
            for written in EPSILONS:
                epsilon = Fraction(written)
                table, took = timed("optimal-table", exact, epsilon)
                noisy, usual = timed("exact", task, epsilon)
                print(
                    f"{name:12} {length:7} {written:>4} {noisy.cost:8.3f} "
                    f"{cut_off(noisy, length):8.3f} {table.cost:7.3f} "
                    f"{least_error(task, epsilon):7.4f}  {took:.2f} s, {took / usual:.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
