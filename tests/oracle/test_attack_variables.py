"""Beliefs after sums with weights per variable, on crowds and chains, against every outcome."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shoal.attacks.beliefs import (
    EntriesSeen,
    Seen,
    attack,
    laplace_sum,
    laplace_variables,
    most_likely,
)
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.variables import VariableSum
from shoal.networks.contagion import Contagion
from tests.networks.models import joint_of
from tests.oracle.enumeration import Law, chain_law, order_law

Weights = list[list[Fraction]]


class Release:
    """Laplace noise on Σ of weights[entry][value], kept as plain numbers."""

    def __init__(self, rng: np.random.Generator, entries: int, values: int, zeros: float) -> None:
        drawn = rng.integers(-3, 4, (entries, values)) * (rng.random((entries, values)) > zeros)
        drawn[0, 0] += (drawn == drawn[:, :1]).all()
        self.weights = [[Fraction(int(w), 2) for w in row] for row in drawn]
        self.output = float(rng.normal(0, 3))
        self.scale = float(rng.choice([0.05, 0.7, 3.0]))

    def seen(self, names: Sequence[str], states: tuple[str, ...]) -> Seen:
        query = VariableSum(
            variables=tuple(names),
            domains=(states,) * len(names),
            weights=tuple(map(tuple, self.weights)),
        )
        return laplace_variables(query, [self.output], self.scale)

    def log_likelihood(self, path: Sequence[int]) -> float:
        answer = sum(self.weights[t][x] for t, x in enumerate(path))
        return -abs(float(answer) - self.output) / self.scale


def posterior(
    law: Law, values: int, releases: Sequence[Release], looks: Floats | None
) -> tuple[Floats, dict[tuple[int, ...], float], float]:
    """Marginals after, log-weights of whole outcomes, and the log-evidence."""
    logs = {}
    for path, chance in law.items():
        told = math.fsum(release.log_likelihood(path) for release in releases)
        own = 0.0 if looks is None else sum(float(looks[t, x]) for t, x in enumerate(path))
        logs[path] = math.log(chance) + told + own
    top = max(logs.values())
    after = np.zeros((len(next(iter(law))), values))
    for path, log in logs.items():
        for t, x in enumerate(path):
            after[t, x] += math.exp(log - top)
    total = after[0].sum()
    return after / total, logs, top + math.log(total)


def random_crowd(rng: np.random.Generator) -> Contagion:
    """Up to eight people in groups, some of them with a table of its own, people shuffled."""
    sizes = [int(s) for s in rng.integers(1, 5, rng.integers(1, 4))]
    while sum(sizes) > 8:
        sizes.pop()
    order = rng.permutation(sum(sizes)).tolist()
    groups, laws = [], []
    for size in sizes:
        groups.append(tuple(sorted(order[:size])))
        order = order[size:]
        shape = (2,) * size if rng.random() < 0.4 else (size + 1,)
        law = rng.dirichlet(np.ones(math.prod(shape)))
        law = np.where(rng.random(len(law)) < 0.3, 0.0, law)
        law[rng.integers(len(law))] += 0.1
        laws.append((law / law.sum()).reshape(shape))
    return Contagion(
        variables=tuple(f"p{i}" for i in range(sum(sizes))),
        groups=tuple(groups),
        which=tuple(range(len(groups))),
        laws=tuple(laws),
    )


@pytest.mark.parametrize("block", range(10))
def test_crowds_with_a_weight_per_person_match_listing(block: int) -> None:
    """250 random crowds: one to three sums, sums alike for all, and looks at single people."""
    for seed in range(25 * block, 25 * block + 25):
        rng = np.random.default_rng(seed)
        model = random_crowd(rng)
        people = len(model.variables)
        table = joint_of(model)
        law = {tuple(map(int, p)): float(table[tuple(p)]) for p in np.argwhere(table > 0)}
        releases = [Release(rng, people, 2, 0.4 * (seed % 3)) for _ in range(rng.integers(1, 4))]
        looks = rng.normal(size=(people, 2)) if seed % 2 else None
        seen = [release.seen(model.variables, model.states) for release in releases]
        seen += [] if looks is None else [EntriesSeen(looks)]
        found = attack(model, seen, people)
        after, _, evidence = posterior(law, 2, releases, looks)
        assert found.after == pytest.approx(after, abs=1e-10), seed
        assert found.log_evidence == pytest.approx(evidence, abs=1e-9), seed
        before, _, _ = posterior(law, 2, [], None)
        assert found.before == pytest.approx(before, abs=1e-12), seed


def random_rows(rng: np.random.Generator, *shape: int) -> Floats:
    rows = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    rows = np.where(rng.random(shape) < 0.2, 0.0, rows)
    rows[..., 0] += rows.sum(axis=-1) == 0
    return np.asarray(rows / rows.sum(axis=-1, keepdims=True))


def random_chain(
    rng: np.random.Generator,
) -> tuple[MarkovChain | OrderChain, Law, int | list[int], int]:
    """A chain (also by step, or of order 2), its law, the lengths of data, and its entries."""
    kind = int(rng.integers(4))
    if kind == 0:
        order = OrderChain(
            states=("0", "1"),
            order=2,
            conditional=random_rows(rng, 4, 2),
            initial=random_rows(rng, 4),
        )
        entries = int(rng.integers(2, 6))
        return order, order_law(order, entries), entries, entries
    size, entries = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    shape = (entries - 1, size, size) if kind == 1 and entries > 1 else (size, size)
    chain = MarkovChain.of(
        random_rows(rng, *shape),
        states=[str(i) for i in range(size)],
        initial=random_rows(rng, size),
        length=entries if len(shape) == 3 else None,
    )
    if kind < 3:
        return chain, chain_law(chain, entries), entries, entries
    both = product(chain_law(chain, entries).items(), chain_law(chain, 2).items())
    law = {(*a, *b): p * q for (a, p), (b, q) in both}
    return chain, law, [entries, 2], entries + 2


@pytest.mark.parametrize("block", range(10))
def test_chains_with_a_weight_per_entry_match_listing(block: int) -> None:
    """400 random chains: beliefs, evidence and the likeliest data as a whole."""
    for seed in range(40 * block, 40 * block + 40):
        rng = np.random.default_rng(1000 + seed)
        model, law, lengths, entries = random_chain(rng)
        values = len(model.states)
        names = [f"entry {t}" for t in range(entries)]
        sums = int(rng.integers(1, 3)) if values > 1 else 0
        releases = [Release(rng, entries, values, 0.3) for _ in range(sums)]
        looks = rng.normal(size=(entries, values)) if seed % 2 else None
        seen = [release.seen(names, model.states) for release in releases]
        seen += [] if looks is None else [EntriesSeen(looks)]
        found = attack(model, seen, lengths)
        after, logs, evidence = posterior(law, values, releases, looks)
        assert found.after == pytest.approx(after, abs=1e-10), seed
        assert found.log_evidence == pytest.approx(evidence, abs=1e-9), seed
        best = most_likely(model, seen, lengths)
        path = tuple(model.states.index(state) for state in best)
        assert logs[path] == pytest.approx(max(logs.values()), abs=1e-9), seed


def test_a_large_crowd_is_not_lost_to_underflow() -> None:
    """2,000 people, each ill half the time by themselves: P(all ill) = 2^-2000 is no double."""
    model = Contagion.cliques([1] * 2000, [0.5, 0.5])
    weights = tuple((Fraction(0), Fraction(1 + p % 2)) for p in range(2000))
    query = VariableSum(variables=model.variables, domains=(model.states,) * 2000, weights=weights)
    found = attack(model, [laplace_variables(query, [3000.0], 0.01)], 2000)
    assert found.after[:, 1] == pytest.approx(np.ones(2000), abs=1e-12)
    assert found.log_evidence == pytest.approx(-2000 * math.log(2), rel=1e-9)


def test_a_histogram_of_a_crowd_is_as_cheap_as_its_count() -> None:
    """Both bars lie on one line, so 800 people need 801 codes and not 801²."""
    model = Contagion.cliques([4] * 200, [0.1, 0.15, 0.5, 0.15, 0.1])
    found = attack(model, [laplace_sum(histogram(model.states), [380.0, 420.0], 5.0)], 800)
    alone = attack(model, [laplace_sum(count(model.states, "ill"), [420.0], 2.5)], 800)
    assert found.after == pytest.approx(alone.after, abs=1e-12)
    assert found.after[0, 1] > 0.51


def test_a_person_who_cannot_be_is_an_error() -> None:
    model = Contagion.cliques([2], [0.5, 0.5, 0.0])
    query = VariableSum(
        variables=model.variables,
        domains=(model.states,) * 2,
        weights=((Fraction(0), Fraction(1)), (Fraction(0), Fraction(2))),
    )
    both = np.array([[-math.inf, 0.0], [-math.inf, 0.0]])
    with pytest.raises(InputError, match="impossible under the model"):
        attack(model, [laplace_variables(query, [3.0], 1.0), EntriesSeen(both)], 2)
