"""The lift against the worst of ALL entry-level mechanisms, found by a linear program.

For a chain written out, the largest E[h | X_i = x] / E[h | X_i = x'] over h > 0 that changes by at
most e^eta when one entry changes is a linear program over the sequences. Its optimum is closed
under the constraints before it is compared, so it is a value some mechanism really has.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.chains.families import OrderChain
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.families import AnyInitialLift
from shoal.chains.lift.tuples import TupleLift
from shoal.core.codec import Floats
from shoal.mechanisms.cone import RULES

Law = tuple[list[tuple[int, ...]], Floats]


def chain_law(initial: Floats, steps: list[Floats]) -> Law:
    paths = list(itertools.product(range(len(initial)), repeat=len(steps) + 1))
    weights = [
        initial[path[0]] * np.prod([step[path[t], path[t + 1]] for t, step in enumerate(steps)])
        for path in paths
    ]
    return paths, np.array(weights)


def worst_mechanism(law: Law, eta: float, metric: Floats | None = None) -> float:
    """The largest log-ratio any entry-level eta-DP mechanism has about any entry.

    With a metric, changing an entry from y to z moves the density by at most e^{eta·metric}.
    """
    paths, weights = law
    seen = np.array(paths)
    metric = 1 - np.eye(seen.max() + 1) if metric is None else metric
    distance = metric[seen[:, None, :], seen[None, :, :]].sum(axis=-1)
    near = np.argwhere((seen[:, None, :] != seen[None, :, :]).sum(axis=-1) == 1)
    rows = np.zeros((len(near), len(paths)))
    rows[np.arange(len(near)), near[:, 0]] = 1.0
    rows[np.arange(len(near)), near[:, 1]] = -np.exp(eta * distance[near[:, 0], near[:, 1]])
    worst = 0.0
    for node in range(len(paths[0])):
        given = _conditionals(paths, weights, node)
        for top, bottom in itertools.permutations(given, 2):
            found = linprog(-top, A_ub=rows, b_ub=np.zeros(len(near)), A_eq=[bottom], b_eq=[1.0])
            closed = (np.exp(eta * distance) * found.x[None, :]).min(axis=1)
            worst = max(worst, float(np.log(top @ closed) - np.log(bottom @ closed)))
    return worst


def _conditionals(paths: list[tuple[int, ...]], weights: Floats, node: int) -> list[Floats]:
    laws = []
    for value in sorted({path[node] for path in paths}):
        own = np.where([path[node] == value for path in paths], weights, 0.0)
        if own.sum() > 0:
            laws.append(own / own.sum())
    return laws


def random_rows(rng: np.random.Generator, rows: int, size: int, zeros: bool) -> Floats:
    weights = rng.dirichlet(np.full(size, 0.6), size=rows)
    if zeros:
        weights[rng.random((rows, size)) < 0.35] = 0.0
        weights[np.arange(rows), rng.integers(size, size=rows)] += 0.2
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("seed", range(16))
def test_never_below_the_worst_mechanism(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = (2, 4) if seed % 2 else (3, 3)
    step = random_rows(rng, size, size, zeros=seed % 4 == 0)
    initial = random_rows(rng, 1, size, zeros=seed % 3 == 0)[0]
    eta = float(rng.choice([0.1, 0.5, 2.0]))
    truth = worst_mechanism(chain_law(initial, [step] * (length - 1)), eta)
    lift = ChainLift.of(initial, step, 1 - np.eye(size), length)
    bounds = [lift.loss(eta, rule).value for rule in ("cone", "caps", "largest")]
    assert truth <= bounds[0] + 1e-9
    assert bounds[0] <= bounds[1] + 1e-9 <= bounds[2] + 2e-9
    if size == 2:  # exact for two states
        assert bounds[0] == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_one_matrix_per_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    steps = [random_rows(rng, 2, 2, zeros=False) for _ in range(3)]
    initial = random_rows(rng, 1, 2, zeros=False)[0]
    truth = worst_mechanism(chain_law(initial, steps), 0.7)
    found = ChainLift.of(initial, np.array(steps), 1 - np.eye(2), 4).loss(0.7).value
    assert truth <= found + 1e-9
    assert found == pytest.approx(truth, abs=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_three_states_one_matrix_per_step_with_zeros(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    steps = [random_rows(rng, 3, 3, zeros=True) for _ in range(2)]
    steps[seed % 2] = np.eye(3)[rng.permutation(3)] * 0.999 + random_rows(rng, 3, 3, True) * 0.001
    initial = random_rows(rng, 1, 3, zeros=seed % 2 == 0)[0]
    truth = worst_mechanism(chain_law(initial, steps), 0.4)
    for rule in RULES:
        found = ChainLift.of(initial, np.array(steps), 1 - np.eye(3), 3).loss(0.4, rule).value
        assert truth <= found + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_weighted_sums_have_their_own_metric(seed: int) -> None:
    """Laplace noise on Σ w(X_t) tells close weights apart less: E = |w(y) - w(z)|."""
    rng = np.random.default_rng(200 + seed)
    weights = rng.random(3)
    metric = np.abs(weights[:, None] - weights[None, :])
    step = random_rows(rng, 3, 3, zeros=seed % 2 == 0)
    initial = random_rows(rng, 1, 3, zeros=False)[0]
    truth = worst_mechanism(chain_law(initial, [step] * 2), 0.8, metric)
    found = ChainLift.of(initial, step, metric, 3).loss(0.8).value
    assert truth <= found + 1e-9
    assert found <= ChainLift.of(initial, step, metric.max() * (1 - np.eye(3)), 3).loss(0.8).value


@pytest.mark.parametrize("seed", range(6))
def test_any_length_covers_every_length(seed: int) -> None:
    rng = np.random.default_rng(300 + seed)
    step = random_rows(rng, 2, 2, zeros=seed % 3 == 0)
    initial = random_rows(rng, 1, 2, zeros=seed % 2 == 0)[0]
    endless = ChainLift.of(initial, step, 1 - np.eye(2), None).loss(0.3)
    for length in (2, 5):
        truth = worst_mechanism(chain_law(initial, [step] * (length - 1)), 0.3)
        assert truth <= endless.value + 1e-9
    far = ChainLift.of(initial, step, 1 - np.eye(2), 5000).loss(0.3)
    assert far.value <= endless.value * (1 + 1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_every_initial_law_is_covered(seed: int) -> None:
    rng = np.random.default_rng(seed)
    step = random_rows(rng, 2, 2, zeros=seed % 4 == 3)
    found = AnyInitialLift.of(step, 1 - np.eye(2), 4).loss(0.6).value
    for initial in ([1.0, 0.0], [0.5, 0.5], [1e-3, 1 - 1e-3], rng.dirichlet(np.ones(2)).tolist()):
        truth = worst_mechanism(chain_law(np.array(initial), [step] * 3), 0.6)
        assert truth <= found + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_longer_memory(seed: int) -> None:
    """Order 2: sequences of four entries from tuples of two."""
    rng = np.random.default_rng(seed)
    chain = OrderChain(
        states=("0", "1"),
        order=2,
        conditional=random_rows(rng, 4, 2, zeros=seed % 3 == 2),
        initial=random_rows(rng, 1, 4, zeros=False)[0],
        length=4,
    )
    paths = list(itertools.product(range(2), repeat=4))
    weights = np.array(
        [
            chain.initial[2 * a + b]
            * chain.conditional[2 * a + b, c]
            * chain.conditional[2 * b + c, d]
            for a, b, c, d in paths
        ]
    )
    truth = worst_mechanism((paths, weights), 0.5)
    found = TupleLift.of(chain.initial, chain.conditional, 1 - np.eye(2), 4).loss(0.5).value
    assert truth <= found + 1e-9
