"""Audits against joint laws written out in logarithms: lower ≤ truth ≤ upper, whatever the task.

Zeros, nearly certain and periodic chains, weights of every sign, scales from 1/1000 to 10,000. The
truth is enumerated here, path by path; nothing is shared with the package but its models.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from shoal.audit.exact import audit, audit_noise
from shoal.audit.result import Audit
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.task import EachEntry
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import LinearQuery, histogram
from shoal.networks.table import JointTable

ROUNDING = 1e-9
Laws = tuple[Floats, Floats]  # paths (n, entries), log-probabilities (n,)
seeds = st.integers(0, 2**32 - 1)


def holds(found: Audit, truth: float) -> bool:
    slack = ROUNDING * max(1.0, truth)
    return found.lower <= truth + slack and found.upper >= truth - slack


def rows(rng: np.random.Generator, *shape: int) -> Floats:
    """Laws along the last axis: plain ones, with zeros, nearly certain, or certain."""
    law = rng.dirichlet(np.full(shape[-1], rng.choice([0.05, 0.3, 1.0, 10.0])), shape[:-1])
    kind = rng.choice(["plain", "zeros", "nearly certain", "certain"])
    if kind == "zeros":
        law = np.where(rng.random(shape) < 0.35, 0.0, law)
    elif kind != "plain":
        law *= 10.0 ** -rng.integers(3, 15) if kind == "nearly certain" else 0.0
        place = rng.integers(shape[-1], size=shape[:-1])[..., None]
        np.put_along_axis(law, place, 1.0, -1)
    law = np.where(law.sum(axis=-1, keepdims=True) > 0, law, 1.0)
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def query_of(rng: np.random.Generator, size: int, labels: int) -> LinearQuery:
    weights = [
        [Fraction(int(rng.integers(-4, 5)), int(rng.choice([1, 2, 3]))) for _ in range(labels)]
        for _ in range(size)
    ]
    weights[0][0] = weights[1][0] + 1  # never all the same
    return LinearQuery(
        name="sum",
        states=tuple(map(str, range(size))),
        labels=tuple(f"label {i}" for i in range(labels)),
        weights=tuple(map(tuple, weights)),
        unit="units",
    )


def scale_of(rng: np.random.Generator) -> Fraction:
    return Fraction(float(10 ** rng.uniform(-3, 4))).limit_denominator(10**6) + Fraction(1, 10**6)


def paths_of(size: int, length: int, log_chance: Any) -> Laws:
    paths = np.array(list(product(range(size), repeat=length)))
    logs = np.array([log_chance(path) for path in paths.tolist()])
    return paths[logs > -math.inf], logs[logs > -math.inf]


def log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def chain_paths(chain: MarkovChain, length: int) -> Laws:
    many = chain.transition.ndim == 3

    def log_chance(path: list[int]) -> float:
        steps = [
            log(float((chain.transition[t] if many else chain.transition)[a, b]))
            for t, (a, b) in enumerate(pairwise(path))
        ]
        return log(float(chain.initial[path[0]])) + sum(steps)

    return paths_of(len(chain.states), length, log_chance)


def order_paths(chain: OrderChain, length: int) -> Laws:
    def log_chance(path: list[int]) -> float:
        steps = [
            log(float(chain.conditional[2 * a + b, c]))
            for a, b, c in zip(path, path[1:], path[2:], strict=False)
        ]
        return log(float(chain.initial[2 * path[0] + path[1]])) + sum(steps)

    return paths_of(2, length, log_chance)


def densities(laws: Laws, given: Any, answers: Floats, outputs: Floats, scale: float) -> Floats:
    """log P(output | given) up to what is common to all."""
    logs = laws[1][given]
    distance = np.abs(outputs[:, None, :] - answers[given][None]).sum(axis=2) / scale
    seen = np.logaddexp.reduce(logs - distance, axis=1)
    return np.asarray(seen - np.logaddexp.reduce(logs))


def answers_of(laws: Laws, query: LinearQuery) -> Floats:
    steps = np.array(query.multiples(), dtype=np.float64)
    return np.asarray(steps[laws[0]].sum(axis=1))


def grid(answers: Floats) -> Floats:
    return np.array(list(product(*(np.unique(column) for column in answers.T))))


def plane(answers: Floats) -> Floats:
    """Every lattice point with the total of the answers, well beyond them."""
    total, reach = answers[0].sum(), np.ptp(answers) + 2
    axes = [np.arange(c.min() - reach, c.max() + reach + 1) for c in answers.T[:-1]]
    free = np.array(list(product(*axes)))
    return np.hstack([free, total - free.sum(axis=1, keepdims=True)])


def entry_truth(laws: Laws, query: LinearQuery, scale: Fraction, where: Any = grid) -> float:
    answers, worst = answers_of(laws, query), 0.0
    outputs, steps = where(answers), float(scale / query.lattice)
    for column in laws[0].T:
        values = np.unique(column)
        seen = [densities(laws, column == v, answers, outputs, steps) for v in values]
        for one, two in permutations(seen, 2):
            worst = max(worst, float((one - two).max()))
    return worst


@settings(max_examples=80, deadline=None)
@given(seeds)
def test_chains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(1, 5))
    query, scale = query_of(rng, size, int(rng.choice([1, 1, 2]))), scale_of(rng)
    if length > 1 and rng.random() < 0.3:
        steps = rows(rng, length - 1, size, size)
        chain = MarkovChain.of(steps, initial=rows(rng, size), length=length)
        lengths = [length]
    else:
        chain = MarkovChain.of(rows(rng, size, size), initial=rows(rng, size), length=length)
        lengths = list(range(1, length + 1))
    truth = max(entry_truth(chain_paths(chain, n), query, scale) for n in lengths)
    assert holds(audit_noise(query, EachEntry(), chain, scale=scale), truth)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_chains_of_order_two(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(2, 6))
    query, scale = query_of(rng, 2, 1), scale_of(rng)
    chain = OrderChain(
        states=("0", "1"),
        order=2,
        conditional=rows(rng, 4, 2),
        initial=rows(rng, 4),
        length=length,
    )
    truth = max(entry_truth(order_paths(chain, n), query, scale) for n in range(2, length + 1))
    assert holds(audit_noise(query, EachEntry(), chain, scale=scale), truth)


@settings(max_examples=40, deadline=None)
@given(seeds)
def test_histograms_with_zero_sum_noise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    chain = MarkovChain.of(rows(rng, size, size), initial=rows(rng, size), length=length)
    epsilon = Fraction(int(rng.integers(1, 400)), 100)
    query = histogram(chain.states)
    plan = calibrate(query, EachEntry(), chain, epsilon=epsilon, mechanism="knorm")
    body: Any = plan.body
    laws = [chain_paths(chain, n) for n in range(1, length + 1)]
    truth = max(entry_truth(law, query, body.noise.scale, plane) for law in laws)
    assert holds(audit(plan), truth)


@settings(max_examples=60, deadline=None)
@given(seeds)
def test_tables_with_pairs_of_overlapping_facts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    table = JointTable.of(rows(rng, size**count).reshape((size,) * count))
    query, scale = query_of(rng, size, int(rng.choice([1, 2]))), scale_of(rng)
    events = [_event(rng, size, count, f"fact {i % 2}") for i in range(4)]  # names are shared
    pairs = [(events[0], events[1]), (events[2], events[3])]
    laws = paths_of(size, count, lambda path: log(float(table.probability[tuple(path)])))
    answers = answers_of(laws, query)
    outputs, truth = grid(answers), 0.0
    for one, two in [*pairs, *((b, a) for a, b in pairs)]:
        given = [table.event(e.mapping())[tuple(laws[0].T)] for e in (one, two)]
        if given[0].any() and given[1].any():
            steps = float(scale / query.lattice)
            seen = [densities(laws, held, answers, outputs, steps) for held in given]
            truth = max(truth, float((seen[0] - seen[1]).max()))
    found = audit_noise(query, SecretPairs.of(pairs), table, scale=scale)
    assert holds(found, truth)
    assert found.exact


def _event(rng: np.random.Generator, size: int, count: int, name: str) -> Event:
    chosen = rng.choice(count, int(rng.integers(1, count + 1)), replace=False)
    where = {}
    for variable in chosen.tolist():
        values = np.flatnonzero(rng.random(size) < 0.6).tolist() or [0]
        where[f"X{variable + 1}"] = [str(value) for value in values]
    return Event.of(name, where)
