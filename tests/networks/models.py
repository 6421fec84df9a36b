"""Random networks and the loss of a release under them by listing every outcome."""

from __future__ import annotations

import itertools
import math
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion


def random_network(
    seed: int, count: int, *, values: int = 2, zeros: float = 0.0, density: float = 0.5
) -> BayesNet:
    """A network of up to `values` values each, with about that share of zeros in its tables."""
    rng = np.random.default_rng(seed)
    tables: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    for v in range(count):
        own = [p for p in range(v) if rng.random() < density][:3]
        shape = (*(values for _ in own), values)
        table = rng.dirichlet(np.ones(values), size=shape[:-1])
        table = np.where(rng.random(shape) < zeros, 0.0, table)
        table[..., 0] += table.sum(axis=-1) == 0
        tables[f"v{v}"] = table / table.sum(axis=-1, keepdims=True)
        parents[f"v{v}"] = [f"v{p}" for p in own]
    return BayesNet.of(tables, parents=parents)


def literature(name: str) -> BayesNet:
    """A network of the literature, from the file that comes with pgmpy, which is not imported.

    `pip install --no-deps pgmpy` (2.4 MB) is enough; with all it depends on it would be a hundred.
    """
    found = find_spec("pgmpy")
    folder = Path(((found and found.submodule_search_locations) or [""])[0], "utils/example_models")
    file = folder / f"{name}.bif.gz"
    if not file.exists():
        pytest.skip(f"{name} is read from pgmpy's files: pip install --no-deps pgmpy")
    return BayesNet.from_bif(file)


def lattice(side: int, strength: float) -> BayesNet:
    """A square of bits, each tied to those above and to the left: no small blocks."""
    tables: dict[str, Any] = {}
    parents: dict[str, list[str]] = {}
    for i, j in itertools.product(range(side), repeat=2):
        above = [f"{a},{b}" for a, b in ((i - 1, j), (i, j - 1)) if a >= 0 and b >= 0]
        odds = np.full((2,) * len(above), 0.5)
        for places in itertools.product(range(2), repeat=len(above)):
            odds[places] = 0.5 + strength * sum(2 * x - 1 for x in places) / 2
        tables[f"{i},{j}"] = np.stack([1 - odds, odds], axis=-1)
        parents[f"{i},{j}"] = above
    return BayesNet.of(tables, parents=parents)


def joint_of(model: BayesNet | Contagion) -> np.ndarray:
    """The joint law, outcome by outcome, from the definition of the model alone."""
    shape = [len(domain) for domain in model.domains]
    law = np.zeros(shape)
    for outcome in itertools.product(*map(range, shape)):
        law[outcome] = (
            _crowd(model, outcome) if isinstance(model, Contagion) else _net(model, outcome)
        )
    return law


def _net(net: BayesNet, outcome: tuple[int, ...]) -> float:
    place = {name: i for i, name in enumerate(net.variables)}
    return math.prod(
        float(table[(*(outcome[place[p]] for p in own), outcome[v])])
        for v, (own, table) in enumerate(zip(net.parents, net.tables, strict=True))
    )


def _crowd(model: Contagion, outcome: tuple[int, ...]) -> float:
    chance = 1.0
    for group, which in zip(model.groups, model.which, strict=True):
        law, ill = model.laws[which], [outcome[person] for person in group]
        alike = law.shape == (len(group) + 1,)
        chance *= law[sum(ill)] / math.comb(len(group), sum(ill)) if alike else law[tuple(ill)]
    return chance


def true_loss(
    law: np.ndarray, answers: np.ndarray, scale: float, facts: list[tuple[np.ndarray, np.ndarray]]
) -> float:
    """The loss of Laplace noise over all outputs, for pairs of facts given as masks on outcomes.

    `answers` (outcomes, numbers) are those of the outcomes of `law` in order. The supremum is on
    the grid of the answers' coordinates (MATHS section 2); outputs far outside stand for ±∞.
    """
    flat = law.ravel()
    axes = [np.unique(column) for column in answers.T]
    far = 50 * scale + float(np.ptp(answers)) + 1
    axes = [np.concatenate([[axis[0] - far], axis, [axis[-1] + far]]) for axis in axes]
    outputs = np.array(list(itertools.product(*axes)))
    kernel = np.exp(-np.abs(outputs[:, None, :] - answers[None]).sum(axis=2) / scale)
    worst = 0.0
    for one, two in facts:
        p, q = np.where(one.ravel(), flat, 0.0), np.where(two.ravel(), flat, 0.0)
        if p.sum() <= 0 or q.sum() <= 0:
            continue
        ratio = np.log(kernel @ (p / p.sum())) - np.log(kernel @ (q / q.sum()))
        worst = max(worst, float(np.abs(ratio).max()))
    return worst


def entry_facts(shape: tuple[int, ...]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Every pair of values of every variable, as masks."""
    places = np.indices(shape)
    return [
        (places[axis] == x, places[axis] == y)
        for axis, size in enumerate(shape)
        for x, y in itertools.combinations(range(size), 2)
    ]
