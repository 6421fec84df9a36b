"""Every measure of an attack, for every family of models, against the joint law written out.

Several releases about the same data at once, adversaries of three kinds, and one whose model is
not that of the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from shoal.attacks.beliefs import EntriesSeen, Seen, attack, by_knowledge, laplace_sum, most_likely
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from tests.networks.models import joint_of, random_network
from tests.oracle.enumeration import Law, chain_law, order_law, table_law
from tests.oracle.test_attack_variables import random_crowd, random_rows

Case = tuple[Any, Law, int]
SEEDS = range(25)


def chain(rng: np.random.Generator) -> Case:
    size, entries = int(rng.integers(2, 4)), int(rng.integers(1, 6))
    model = MarkovChain.of(random_rows(rng, size, size), initial=random_rows(rng, size))
    return model, chain_law(model, entries), entries


def order(rng: np.random.Generator) -> Case:
    model = OrderChain(
        states=("0", "1"), order=2, conditional=random_rows(rng, 4, 2), initial=random_rows(rng, 4)
    )
    return model, order_law(model, 5), 5


def day(rng: np.random.Generator) -> Case:
    slots = int(rng.integers(1, 5))
    model = DayChain.of(
        list(random_rows(rng, slots - 1, 3, 3)) if slots > 1 else np.empty((0, 3, 3)),
        initial=random_rows(rng, 3),
    )
    if slots == 1:
        return model, {(x,): float(p) for x, p in enumerate(model.initial) if p > 0}, 1
    same = MarkovChain(
        states=model.states, transition=model.transition, initial=model.initial, length=slots
    )
    return model, chain_law(same, slots), slots


def table(rng: np.random.Generator) -> Case:
    entries = int(rng.integers(1, 5))
    model = JointTable.of(random_rows(rng, 2**entries).reshape((2,) * entries))
    return model, table_law(model), entries


def listed(model: BayesNet | Contagion) -> Law:
    law = joint_of(model)
    return {tuple(map(int, place)): float(law[tuple(place)]) for place in np.argwhere(law > 0)}


def network(rng: np.random.Generator) -> Case:
    entries = int(rng.integers(1, 6))
    model = random_network(int(rng.integers(10**6)), entries, values=2, zeros=0.2)
    return model, listed(model), entries


def crowd(rng: np.random.Generator) -> Case:
    model = random_crowd(rng)
    return model, listed(model), len(model.variables)


FAMILIES: dict[str, Callable[[np.random.Generator], Case]] = {
    "chain": chain,
    "order": order,
    "day": day,
    "table": table,
    "network": network,
    "crowd": crowd,
}


def sights(rng: np.random.Generator, states: tuple[str, ...], entries: int) -> list[Any]:
    """Two or three sums, each with its query, output and scale, and a look at every entry."""
    kinds = [
        count(states, states[-1]),
        weighted_sum(states, dict(zip(states, ("-1/2", 1, 2), strict=False))),
        histogram(states),
    ]
    chosen = [kinds[int(i)] for i in rng.permutation(3)[: rng.integers(2, 4)]]
    looks = rng.normal(size=(entries, len(states)))
    sums = [
        (query, rng.normal(entries / 2, 2, len(query.labels)).tolist(), float(rng.uniform(0.3, 3)))
        for query in chosen
    ]
    return [*sums, looks]


def as_seen(seen: Sequence[Any]) -> list[Seen]:
    return [
        EntriesSeen(one) if isinstance(one, np.ndarray) else laplace_sum(one[0], one[1], one[2])
        for one in seen
    ]


def told(seen: Sequence[Any], path: Sequence[int]) -> float:
    """log P(everything seen | data), from the definition of each release."""
    total = 0.0
    for one in seen:
        if isinstance(one, np.ndarray):
            total += sum(float(one[t, x]) for t, x in enumerate(path))
            continue
        query, output, scale = one
        assert isinstance(query, LinearQuery)
        for j, z in enumerate(output):
            answer = float(sum(query.weights[x][j] for x in path))
            total -= abs(answer - z) / scale
    return total


def marginals(law: Law, values: int) -> Floats:
    out = np.zeros((len(next(iter(law))), values))
    for path, chance in law.items():
        for t, x in enumerate(path):
            out[t, x] += chance
    return np.asarray(out / out.sum(axis=1, keepdims=True))


def updated(law: Law, seen: Sequence[Any]) -> Law:
    return {path: chance * math.exp(told(seen, path)) for path, chance in law.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_several_releases_and_every_measure(name: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        model, law, entries = FAMILIES[name](rng)
        states = model.states
        seen = sights(rng, states, entries)
        found = attack(model, as_seen(seen), entries)
        posterior = updated(law, seen)
        before, after = marginals(law, len(states)), marginals(posterior, len(states))
        assert found.before == pytest.approx(before, abs=1e-12), seed
        assert found.after == pytest.approx(after, abs=1e-10), seed
        possible = before > 0
        ratio = np.log(after[possible] / before[possible])
        assert found.largest_rise().log_ratio == pytest.approx(max(ratio.max(), 0.0), abs=1e-8)
        odds = max(
            abs(math.log(after[t, x] / before[t, x] * before[t, y] / after[t, y]))
            for t in range(entries)
            for x in np.flatnonzero(possible[t])
            for y in np.flatnonzero(possible[t])
        )
        assert found.largest_change().log_odds == pytest.approx(odds, abs=1e-8), seed
        wrong = (float(1 - before.max(axis=1).mean()), float(1 - after.max(axis=1).mean()))
        assert found.expected_errors() == pytest.approx(wrong, abs=1e-9)
        bits = [-sum(p * math.log2(p) for p in row.tolist() if p > 0) for row in (*before, *after)]
        halves = (math.fsum(bits[:entries]) / entries, math.fsum(bits[entries:]) / entries)
        assert found.entropies() == pytest.approx(halves, abs=1e-8)
        truth = max(law, key=lambda path: law[path])
        measured = found.privacy(truth)
        assert measured.correctness == pytest.approx(
            1 - float(np.mean([after[t, x] for t, x in enumerate(truth)])), abs=1e-9
        )
        assert measured.certainty == pytest.approx(halves[1], abs=1e-8)
        right = [after[t, x] >= after[t].max() - 1e-9 for t, x in enumerate(truth)]
        assert measured.accuracy == pytest.approx(float(np.mean(right)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_likeliest_data_as_a_whole(name: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(100 + seed)
        model, law, entries = FAMILIES[name](rng)
        seen = sights(rng, model.states, entries)
        best = most_likely(model, as_seen(seen), entries)
        path = tuple(model.states.index(value) for value in best)
        posterior = updated(law, seen)
        assert posterior[path] == pytest.approx(max(posterior.values()), rel=1e-9), seed


@pytest.mark.parametrize("name", FAMILIES)
def test_weak_standard_and_strong_adversaries(name: str) -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(200 + seed)
        model, law, entries = FAMILIES[name](rng)
        values = len(model.states)
        seen = sights(rng, model.states, entries)
        truth = max(law, key=lambda path: law[path])
        found = by_knowledge(model, as_seen(seen), entries, truth)
        single = marginals(law, values)
        independent = {
            path: math.prod(float(single[t, x]) for t, x in enumerate(path))
            for path in np.ndindex(*(values,) * entries)
        }
        independent = {path: chance for path, chance in independent.items() if chance > 0}
        weak = marginals(updated(independent, seen), values)
        assert found.weak.after == pytest.approx(weak, abs=1e-9), seed
        assert found.weak.before == pytest.approx(single, abs=1e-12)
        for t in range(entries):
            near = {
                p: q for p, q in law.items() if p[:t] + p[t + 1 :] == truth[:t] + truth[t + 1 :]
            }
            assert found.strong.before[t] == pytest.approx(marginals(near, values)[t], abs=1e-12)
            after = marginals(updated(near, seen), values)[t]
            assert found.strong.after[t] == pytest.approx(after, abs=1e-9), seed
        assert found.standard.after == pytest.approx(
            attack(model, as_seen(seen), entries).after, abs=0
        )
        assert all(
            a <= b + 1e-12 for a, b in zip(found.log_ratios(), found.log_odds(), strict=True)
        )


def test_a_strong_adversary_learns_no_more_than_the_entry_level_loss() -> None:
    for seed in SEEDS:
        rng = np.random.default_rng(300 + seed)
        model, law, entries = chain(rng)
        query = count(model.states, model.states[-1])
        truth = max(law, key=lambda path: law[path])
        seen = [laplace_sum(query, [float(rng.normal(2, 3))], 2.0)]
        found = by_knowledge(model, seen, entries, truth)
        assert found.log_odds()[2] <= 0.5 + 1e-12


def test_an_adversary_with_another_prior_and_matrix() -> None:
    """Beliefs are those of the model held, whoever's it is; the truth judges them all alike."""
    own = MarkovChain.of([[0.8, 0.2], [0.2, 0.8]], initial=[0.5, 0.5])
    other = MarkovChain.of([[0.6, 0.4], [0.1, 0.9]], initial=[0.9, 0.1])
    query = count(own.states, "1")
    seen = [(query, [3.0], 0.5)]
    truth = [1, 1, 1, 0]
    for held in (own, other):
        found = attack(held, as_seen(seen), 4)
        after = marginals(updated(chain_law(held, 4), seen), 2)
        assert found.after == pytest.approx(after, abs=1e-12)
        assert found.privacy(truth).correctness == pytest.approx(
            float(np.mean([1 - after[t, x] for t, x in enumerate(truth)]))
        )


def test_data_nobody_could_have_is_refused() -> None:
    model = MarkovChain.of([[1, 0], [0, 1]], initial=[0.5, 0.5])
    seen = [laplace_sum(count(model.states, "1"), [1.0], 1.0)]
    with pytest.raises(InputError, match="the truth is impossible"):
        by_knowledge(model, seen, 3, [0, 1, 0])
    with pytest.raises(InputError, match="truth must hold one of the numbers 0 to 1"):
        by_knowledge(model, seen, 3, [0, 2, 0])
