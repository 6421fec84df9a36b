"""What the lift says of an eta does not depend on what was asked before, down to the last bit."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.chains import OrderChain
from shoal.chains.lift.chain import any_initial_lift, chain_lift, order_lift
from shoal.core.codec import Floats
from shoal.core.errors import Refused

TINY = (0.0, 1e-300, 1e-12, 1e-3)


def rows_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Random laws along the last axis, half of them with extreme or no probability."""
    law = rng.dirichlet(np.full(shape[-1], rng.choice([0.2, 1.0, 5.0])), size=shape[:-1])
    if rng.random() < 0.5:
        law = np.where(rng.random(shape) < 0.3, rng.choice(TINY, size=shape), law)
        law[law.sum(axis=-1) < 1e-6] = 1.0
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def models(seed: int) -> Iterator[Any]:
    """A chain from its own start, with one matrix per step, from any start, and of order two."""
    rng = np.random.default_rng(seed)
    size, length = int(rng.integers(2, 6)), int(rng.integers(3, 12))
    matrix, start = rows_of(rng, (size, size)), rows_of(rng, (size,))
    turning = np.full((size, size), 0.02) + np.roll(np.eye(size), 1, axis=1)
    turning /= turning.sum(axis=1, keepdims=True)
    states = list("abcdef"[:size])
    yield shoal.MarkovChain.of(matrix, states=states, initial=start, length=length)
    yield shoal.MarkovChain.of([turning] * 3, states=states, initial=start, length=4)
    yield shoal.AnyInitialLaw.of(rows_of(rng, (3, 3)), states=list("abc"), length=9)
    pairs, even = rows_of(rng, (4, 2)), np.full(4, 0.25)
    yield OrderChain(states=("a", "b"), order=2, conditional=pairs, initial=even, length=9)


def forget() -> None:
    """As in a new process."""
    for kept in (chain_lift, any_initial_lift, order_lift):
        kept.cache_clear()


def told(model: Any, eta: float) -> float:
    return float(model.lift_about(None, shoal.EachEntry()).loss(eta))


def calibrated(model: Any, epsilon: float) -> Any:
    try:
        return model.lift_about(None, shoal.EachEntry()).largest(epsilon)
    except Refused as refusal:
        return str(refusal)


@pytest.mark.parametrize("seed", range(4))
def test_losses_and_calibrations_agree_in_every_order(seed: int) -> None:
    rng = np.random.default_rng(seed + 1000)
    etas = [float(eta) for eta in rng.choice([0.01, 0.1, 1 / 3, 0.7, 1.5853, 4.0], 4, False)]
    for model in models(seed):
        alone, budgets = {}, {}
        for eta in etas:
            forget()
            alone[eta] = told(model, eta)
        for epsilon in (0.5,):
            forget()
            budgets[epsilon] = calibrated(model, epsilon)
        for questions in (etas, etas[::-1], etas + etas):
            forget()
            assert [told(model, eta) for eta in questions] == [alone[eta] for eta in questions]
            for epsilon, expected in budgets.items():
                assert calibrated(model, epsilon) == expected
            assert [told(model, eta) for eta in questions] == [alone[eta] for eta in questions]


def test_an_optimum_on_fewer_states_does_not_mislead_the_next_search() -> None:
    """Its remembered links and those of before once made two trees of one: 6.082 for 5.988."""
    turning = np.full((3, 3), 1 / 53) + np.roll(np.eye(3), 1, axis=1) * 50 / 53
    start = [0.0, 0.81318114, 0.18681886]
    chain = shoal.MarkovChain.of([turning] * 3, states="012", initial=start, length=4)
    eta = Fraction(274877906944, 173376650371)
    values = {shoal.leakage(chain, eta).value for _ in range(4)}
    assert len(values) == 1
    assert values.pop() == pytest.approx(5.98781068, rel=1e-8)
