"""Beliefs where probabilities reach 1e-300, noise is next to nothing and evidence contradicts.

Everything is compared in logs with all outcomes listed: a belief of e^-2000 must come out as that,
an impossible sight as an error, and nothing as a number that is none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.attacks.beliefs import EntriesSeen, Seen, attack, laplace_variables, most_likely
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.mechanisms.variables import VariableSum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable

Path = tuple[int, ...]
Case = tuple[Any, int, Callable[[Path], float]]  # a model, its entries, log P(outcome)


def rows(rng: np.random.Generator, *shape: int) -> Floats:
    """Laws down to 10^-depth with zeros, one value of each taking nearly everything."""
    depth = float(rng.choice([1, 20, 150, 300]))
    law = 10.0 ** -rng.uniform(0, depth, shape)
    law[rng.random(shape) < 0.2] = 0.0
    top = (*np.indices(shape[:-1]), rng.integers(shape[-1], size=shape[:-1]))
    law[top] = 0.0
    law = law / np.maximum(2 * law.sum(axis=-1, keepdims=True), 1.0)
    law[top] = 1.0 - law.sum(axis=-1)
    return np.asarray(law)


def log(chance: float) -> float:
    return math.log(chance) if chance > 0 else -math.inf


def total(logs: Iterable[float]) -> float:
    found = list(logs)
    top = max(found)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(one - top) for one in found))


def chain(rng: np.random.Generator) -> Case:
    size, entries = int(rng.integers(1, 4)), int(rng.integers(1, 6))
    model = MarkovChain.of(rows(rng, size, size), initial=rows(rng, size))

    def logs(path: Path) -> float:
        moves = (log(model.transition[a, b]) for a, b in itertools.pairwise(path))
        return log(model.initial[path[0]]) + sum(moves)

    return model, entries, logs


def day(rng: np.random.Generator) -> Case:
    size, slots = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    model = DayChain.of(list(rows(rng, slots - 1, size, size)), initial=rows(rng, size))

    def logs(path: Path) -> float:
        moves = (log(model.transition[t][path[t], path[t + 1]]) for t in range(slots - 1))
        return log(model.initial[path[0]]) + sum(moves)

    return model, slots, logs


def order(rng: np.random.Generator) -> Case:
    entries = int(rng.integers(2, 6))
    model = OrderChain(
        states=("0", "1"), order=2, conditional=rows(rng, 4, 2), initial=rows(rng, 4)
    )

    def logs(path: Path) -> float:
        later = range(2, entries)
        moves = (log(model.conditional[2 * path[t - 2] + path[t - 1], path[t]]) for t in later)
        return log(model.initial[2 * path[0] + path[1]]) + sum(moves)

    return model, entries, logs


def table(rng: np.random.Generator) -> Case:
    entries = int(rng.integers(1, 5))
    model = JointTable.of(rows(rng, 2**entries).reshape((2,) * entries))
    return model, entries, lambda path: log(model.probability[path])


def network(rng: np.random.Generator) -> Case:
    entries = int(rng.integers(1, 6))
    tables, parents = {}, {}
    for v in range(entries):
        own = [p for p in range(v) if rng.random() < 0.5][:2]
        tables[f"v{v}"] = rows(rng, *(2 for _ in own), 2)
        parents[f"v{v}"] = [f"v{p}" for p in own]
    model = BayesNet.of(tables, parents=parents)

    def logs(path: Path) -> float:
        each = zip(model.above, model.tables, path, strict=True)
        return sum(log(law[(*(path[p] for p in above), own)]) for above, law, own in each)

    return model, entries, logs


def crowd(rng: np.random.Generator) -> Case:
    sizes = [int(size) for size in rng.integers(1, 4, rng.integers(1, 3))]
    ends = np.cumsum([0, *sizes]).tolist()
    shapes = [(2,) * size if rng.random() < 0.5 else (size + 1,) for size in sizes]
    model = Contagion(
        variables=tuple(f"p{i}" for i in range(ends[-1])),
        groups=tuple(tuple(range(a, b)) for a, b in itertools.pairwise(ends)),
        which=tuple(range(len(sizes))),
        laws=tuple(rows(rng, math.prod(shape)).reshape(shape) for shape in shapes),
    )

    def logs(path: Path) -> float:
        found = 0.0
        for g, group in enumerate(model.groups):
            states, law = tuple(path[p] for p in group), model.law_of(g)
            if model.exchangeable(g):
                sets = math.comb(len(group), sum(states))
                found += log(law[sum(states)]) - math.log(sets)
            else:
                found += log(law[states])
        return found

    return model, ends[-1], logs


FAMILIES = {
    "chain": chain,
    "day": day,
    "order": order,
    "table": table,
    "network": network,
    "crowd": crowd,
}


def sights(
    rng: np.random.Generator, model: Any, entries: int, values: int
) -> tuple[list[Seen], Callable[[Path], float]]:
    """Up to two sums with a weight per entry, perhaps looks at entries; and how likely both are."""
    names = getattr(model, "variables", tuple(f"e{t}" for t in range(entries)))
    scale = float(10 ** rng.uniform(-4, 3))
    weights = [rng.integers(-3, 4, (entries, values)) for _ in range(rng.integers(0, 3))]
    weights = [one for one in weights if (one != one[:, :1]).any()]
    outputs = [float(rng.normal(0, 5)) for _ in weights]
    looks = np.zeros((entries, values))
    if rng.random() < 0.5:
        looks = rng.normal(size=looks.shape) * float(rng.choice([1, 500]))
        looks[rng.random(looks.shape) < 0.2] = -math.inf
    seen: list[Seen] = [EntriesSeen(looks)]
    for one, output in zip(weights, outputs, strict=True):
        query = VariableSum(
            variables=tuple(names),
            domains=(model.states,) * entries,
            weights=tuple(tuple(Fraction(int(w)) for w in row) for row in one),
        )
        seen.append(laplace_variables(query, [output], scale))

    def told(path: Path) -> float:
        own = sum(float(looks[t, x]) for t, x in enumerate(path))
        for one, output in zip(weights, outputs, strict=True):
            own -= abs(float(sum(one[t, x] for t, x in enumerate(path))) - output) / scale
        return own

    return seen, told


def near(found: float, wanted: float) -> bool:
    if math.isinf(wanted) or math.isinf(found):
        return found == wanted
    return abs(found - wanted) <= 1e-8 * max(1.0, abs(wanted))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", FAMILIES)
def test_beliefs_in_logs_match_listing(name: str) -> None:
    impossible = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        model, entries, logs = FAMILIES[name](rng)
        values = len(model.states)
        seen, told = sights(rng, model, entries, values)
        prior = {p: logs(p) for p in itertools.product(range(values), repeat=entries)}
        joint = {path: one + told(path) for path, one in prior.items()}
        evidence = total(joint.values())
        if evidence == -math.inf:
            impossible += 1
            for adversary in (attack, most_likely):
                with pytest.raises(InputError, match="impossible under the model"):
                    adversary(model, seen, entries)
            continue
        found = attack(model, seen, entries)
        assert found.logs is not None
        assert near(found.log_evidence, evidence), seed
        for t, x in itertools.product(range(entries), range(values)):
            before = total(one for path, one in prior.items() if path[t] == x)
            after = total(one for path, one in joint.items() if path[t] == x) - evidence
            assert near(float(found.logs[0][t, x]), before), (seed, t, x)
            assert near(float(found.logs[1][t, x]), after), (seed, t, x)
        best = tuple(model.states.index(value) for value in most_likely(model, seen, entries))
        assert near(joint[best], max(joint.values())), seed
    assert impossible > 0
