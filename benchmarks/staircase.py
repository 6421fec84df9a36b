"""What do steps save over an even fall? `python -m benchmarks.staircase`.

A count, calibrated by `exact`, whose noise falls evenly, and by `steps`, both with their proofs and
at the same ε: mean errors in entries, their ratio, and the processor seconds of each (`steps` after
`exact`, which it builds on). A chain "up to" a length covers every shorter one, a chain of
"exactly" one length (a matrix per step) no other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import shoal
from shoal.mechanisms.steps import Stepped
from shoal.networks.contagion import Contagion

# stay in the first and in the second state
CHAINS = {
    "independent": (0.5, 0.5),
    "stays with .9": (0.9, 0.9),
    "stays with .99": (0.99, 0.99),
    "alternates": (0.1, 0.1),
    "uneven": (0.95, 0.6),
    "rare": (0.99, 0.3),
}
BUDGETS = (1, 2, 3, 6)


def models() -> Iterator[tuple[str, str, Any]]:
    """A name, a length in words, a model."""
    for name, (one, two) in CHAINS.items():
        matrix = [[one, 1 - one], [1 - two, two]]
        start = [(1 - two) / (2 - one - two), (1 - one) / (2 - one - two)]
        same = [matrix] * 79
        yield name, "exactly 80", shoal.MarkovChain.of(same, initial=start, length=80)
        for length in (80, 10**6):
            yield name, f"up to {length:,}", shoal.MarkovChain.of(matrix, length=length)
    rng = np.random.default_rng(1)
    for size in (3, 6):
        rows = 0.4 * rng.dirichlet(np.ones(size), size) + 0.6 * np.eye(size)
        yield f"{size} states", "up to 1,440", shoal.MarkovChain.of(rows.tolist(), length=1440)
    ill = Contagion.cliques([4] * 10, {4: [0.1, 0.15, 0.5, 0.15, 0.1]})
    yield "contagion, cliques of 4", "exactly 40", ill


def timed(model: Any, epsilon: int, row: str) -> tuple[shoal.Plan, float]:
    """The row's plan of a count of the last state, and the processor seconds it took."""
    began = time.process_time()
    query = shoal.count(list(model.states), model.states[-1])
    plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=epsilon, mechanism=row)
    return plan, time.process_time() - began


def main() -> None:
    """A table over chains, lengths and ε."""
    timed(shoal.MarkovChain.of([[0.9, 0.1], [0.1, 0.9]], length=10**6), 1, "exact")  # compiles
    print("| chain | entries | ε | exact | steps | saved | law | seconds, exact | and steps |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, entries, model in models():
        for epsilon in BUDGETS:
            even, first = timed(model, epsilon, "exact")
            stepped, second = timed(model, epsilon, "steps")
            body, law = stepped.body, "even"
            if isinstance(body, Stepped):
                law = f"{body.width} wide, {body.lead} before 0"
            saved = f"{max(1 - stepped.cost / even.cost, 0):.0%}"
            numbers = f"{even.cost:.3f} | {stepped.cost:.3f} | {saved} | {law}"
            times = f"{first:.2f} | {second:.2f}"
            print(f"| {name} | {entries} | {epsilon} | {numbers} | {times} |", flush=True)


if __name__ == "__main__":
    main()
