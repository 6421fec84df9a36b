"""Networks: conditional laws against pgmpy, noise against group privacy, crowds of 10,000.

Run as `python -m benchmarks.network`. Speed is a ratio of two times measured here, both sides
giving the same laws. The networks are the ones that come with pgmpy (extra `peers`).
"""

from __future__ import annotations

import gzip
import sys
import time
import warnings
from collections.abc import Callable
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Query, Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS
from shoal.mechanisms.variables import variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.elimination import plan_elimination
from shoal.networks.quilts import network_quilts, strategy_for

ROWS = ("exact", "wasserstein", "lift", "markov-quilt", "group")


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def example(name: str) -> str:
    """The text of a network that comes with pgmpy, which need not be one that can be imported."""
    found = find_spec("pgmpy")
    if found is None or not found.submodule_search_locations:
        sys.exit("the networks are files of pgmpy's: pip install --no-deps pgmpy")
    folder = Path(found.submodule_search_locations[0], "utils", "example_models")
    return gzip.decompress((folder / f"{name}.bif.gz").read_bytes()).decode()


def compare_laws(targets: int = 40) -> None:
    """P(three variables | a value of a fourth) on ALARM: pgmpy, ours at first, ours again."""
    from pgmpy.inference import VariableElimination
    from pgmpy.readwrite import BIFReader

    theirs = BIFReader(string=example("alarm")).get_model()
    peer = VariableElimination(theirs)
    net = BayesNet.from_object(theirs)
    rng = np.random.default_rng(0)
    cases = []
    for _ in range(targets):
        *names, given = (net.variables[v] for v in rng.choice(len(net.variables), 4, replace=False))
        cases.append((names, given, net.domains[net.number(given)][0]))

    def pgmpy_laws() -> list[Any]:
        return [
            peer.query(names, evidence={given: value}, show_progress=False)
            for names, given, value in cases
        ]

    def our_laws() -> list[Any]:
        return [net.law(*names, where={given: value}) for names, given, value in cases]

    def first_time() -> None:
        plan_elimination.cache_clear()
        our_laws()

    for (names, _, _), law, factor in zip(cases, our_laws(), pgmpy_laws(), strict=True):
        axes = [factor.variables.index(name) for name in names]
        assert np.allclose(law, np.transpose(factor.values, axes), atol=1e-9), names
    slow, first, again = seconds(pgmpy_laws), seconds(first_time), seconds(our_laws)
    print(f"conditional laws of three variables on ALARM, {targets} targets:")
    print(
        f"  pgmpy {1e3 * slow:.1f} ms; ours {1e3 * first:.1f} ms, ratio {slow / first:.1f}", end=""
    )
    print(f"; orders known {1e3 * again:.1f} ms, ratio {slow / again:.1f}")


def compare_noise(name: str, query: Callable[[BayesNet], Query], epsilon: int) -> None:
    """Scale and time of every row on one network."""
    from shoal.networks.interchange import parse_bif

    net = parse_bif(example(name))
    task = Task(query=query(net), secrets=EachEntry(), family=(net,))
    search = seconds(lambda: _search(net), 1)
    print(f"{name}, {len(net.variables)} variables, epsilon {epsilon}, quilts in {search:.2f} s:")
    for row in ROWS:
        begin = time.perf_counter()
        found = choose(task, Fraction(epsilon), row).plan
        spent = time.perf_counter() - begin
        print(f"  {row:14} scale {_scale(found):8.4f}  {spent:6.2f} s")


def compare_rules(stay: float, epsilon: int = 1) -> None:
    """A binary tree of 15 variables, a child equal to its parent with probability `stay`."""
    copy = [[stay, 1 - stay], [1 - stay, stay]]
    tables = {str(v): copy if v else [0.5, 0.5] for v in range(15)}
    net = BayesNet.of(tables, parents={str(v): [str((v - 1) // 2)] for v in range(1, 15)})
    task = Task(query=count(["0", "1"], "1"), secrets=EachEntry(), family=(net,))
    found = choose(task, Fraction(epsilon)).alternatives
    scales = [
        f"{row} {_scale(plan):.4f}" if isinstance(plan := found[row], Plan) else f"{row} none"
        for row in (*ROWS, "influence-matrix")
    ]
    print(f"tree of 15, children equal with probability {stay}: {', '.join(scales)}")


def crowd_of_many(people: int = 10_000) -> None:
    """Groups of 1 to 50 people until there are enough; one plan per row."""
    rng = np.random.default_rng(1)
    sizes: list[int] = []
    while sum(sizes) < people:
        sizes.append(int(rng.integers(1, 51)))
    begin = time.perf_counter()
    model = Contagion.cliques(sizes, exponential_law(0.1))
    task = Task(query=count(model.states, "ill"), secrets=EachEntry(), family=(model,))
    print(f"{model.describe()}, made in {time.perf_counter() - begin:.2f} s:")
    for row in ("exact", "wasserstein", "lift", "group"):
        begin = time.perf_counter()
        found = MECHANISMS[row].calibrate(task, Fraction(1))
        print(f"  {row:14} scale {_scale(found):8.4f}  {time.perf_counter() - begin:6.2f} s")


def unusual(net: BayesNet) -> Query:
    """How many variables are not in their first value."""
    return variable_sum(
        net,
        {
            name: dict.fromkeys(domain[1:], 1)
            for name, domain in zip(net.variables, net.domains, strict=True)
        },
        unit="variables",
    )


def _search(net: BayesNet) -> object:
    network_quilts.cache_clear()
    return network_quilts(net, strategy_for(net))


def _scale(plan: Plan) -> float:
    return float(plan.body.noise.scale)  # type: ignore[union-attr]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    compare_laws()
    for epsilon in (1, 5):
        compare_noise("asia", lambda net: count(net.states or (), "yes"), epsilon)
        compare_noise("alarm", unusual, epsilon)
    for stay in (0.52, 0.55, 0.6, 0.8):
        compare_rules(stay)
    crowd_of_many()
