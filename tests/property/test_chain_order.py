"""How the mechanisms for chains compare: what theory orders stays ordered on random chains."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import shoal
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.mechanisms.table import calibrate_and_check, row_named

CLOSE = 1 + 1e-6  # the window of exact and the fixed point of the lift stop at such a tolerance
LENGTH = 6


def random_chain(seed: int, size: int, *, zeros: bool = False) -> shoal.MarkovChain:
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(size, 0.7), size=size)
    if zeros:
        weights[rng.random((size, size)) < 0.3] = 0.0
        weights[np.arange(size), rng.integers(size, size=size)] += 0.3
    start = rng.dirichlet(np.ones(size)) if seed % 2 else "stationary"
    try:
        return shoal.MarkovChain.normalised(weights, initial=start, length=LENGTH)
    except shoal.InputError:  # several stationary laws
        return shoal.MarkovChain.normalised(weights, initial=np.full(size, 1 / size), length=LENGTH)


def plan(chain: shoal.MarkovChain, mechanism: str, epsilon: str = "1") -> Plan | None:
    query = shoal.count(chain.states, chain.states[0])
    task = shoal.Task(query=query, secrets=shoal.EachEntry(), family=(chain,))
    try:
        return calibrate_and_check(row_named(mechanism), task, Fraction(epsilon))
    except Refused:
        return None


def scale(chain: shoal.MarkovChain, mechanism: str, epsilon: str = "1") -> float:
    """The scale of a count; inf where the mechanism does not apply."""
    found = plan(chain, mechanism, epsilon)
    return float("inf") if found is None else float(found.body.noise.scale)  # type: ignore[union-attr]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epsilon", ["0.5", "2"])
def test_least_noise_first(seed: int, epsilon: str) -> None:
    """exact ≤ Wasserstein, exact ≤ lift ≤ quilt ≤ quilt-bound, quilt ≤ group."""
    chain = random_chain(seed, 2 + seed % 3, zeros=seed % 4 == 3)
    exact, lift, quilt = (scale(chain, m, epsilon) for m in ("exact", "lift", "markov-quilt"))
    assert exact <= scale(chain, "wasserstein", epsilon) * CLOSE
    assert exact <= lift * CLOSE
    assert lift <= quilt * CLOSE
    assert quilt <= scale(chain, "markov-quilt-bound", epsilon) * CLOSE
    assert quilt <= scale(chain, "group", epsilon) * CLOSE


@pytest.mark.parametrize("mechanism", ["exact", "lift", "markov-quilt"])
@pytest.mark.parametrize("seed", [0, 5])
def test_merging_equal_states_changes_nothing(mechanism: str, seed: int) -> None:
    """A state split in two halves that behave alike is the same chain for every mechanism.

    The two halves are told apart by the secrets, so the split chain can only need more noise; the
    quilt and the exact loss see the halves only through laws that agree.
    """
    chain = random_chain(seed, 2)
    split = np.column_stack([chain.transition[:, 0], chain.transition[:, 1:] / 2])
    split = np.column_stack([split, chain.transition[:, 1:] / 2])
    rows = np.vstack([split, split[1:]])
    start = np.concatenate([chain.initial[:1], chain.initial[1:] / 2, chain.initial[1:] / 2])
    wider = shoal.MarkovChain.of(rows, initial=start, length=LENGTH)
    assert scale(wider, mechanism) == pytest.approx(scale(chain, mechanism), rel=1e-6)


def test_the_shift_register_does_not_beat_the_lift() -> None:
    """3-bit shift register, T = 16, ε = 1: with all lags no more than the quilt, 5."""
    transition = np.zeros((8, 8))
    for word in range(8):
        for bit in (0, 1):
            transition[word, (word * 2) % 8 + bit] = 0.5
    chain = shoal.MarkovChain.of(transition, length=16)
    task = shoal.Task(
        query=shoal.histogram(chain.states), secrets=shoal.EachEntry(), family=(chain,)
    )
    lift = calibrate_and_check(row_named("lift"), task, Fraction(1))
    assert float(1 / lift.body.eta) <= 5.0 * CLOSE  # type: ignore[union-attr]


def test_a_family_needs_what_its_worst_member_needs() -> None:
    chains = [random_chain(seed, 2) for seed in (1, 2, 4)]
    query = shoal.count(chains[0].states, 0)
    for mechanism in ("exact", "lift", "markov-quilt", "wasserstein"):
        whole = shoal.calibrate(query, shoal.EachEntry(), chains, epsilon=1, mechanism=mechanism)
        single = max(scale(chain, mechanism) for chain in chains)
        assert float(whole.body.noise.scale) == pytest.approx(single, rel=1e-9)  # type: ignore[union-attr]
