"""Newton's method for the lift: its slopes are slopes, and its bounds those of plain steps."""

from __future__ import annotations

import numpy as np
import pytest

from shoal.chains.lift import solver
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.step import Ahead, hamming, image
from shoal.core.codec import Floats
from shoal.core.walk import Powers
from shoal.mechanisms.cone import RULES, Rule, leak, prepare, slopes


def growth_of(rng: np.random.Generator, size: int) -> Floats:
    """A random G that obeys the triangle inequality with room to spare."""
    growth = 1.0 + 0.3 * rng.random((size, size))
    np.fill_diagonal(growth, 0.0)
    return growth


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_slopes_are_what_a_little_more_growth_adds(rule: Rule, seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, more = 5, 1e-6
    law = rng.dirichlet(np.ones(size), size)
    law[law < 0.1 * (seed == 2)] = 0.0
    laws, growth = prepare(law / law.sum(axis=1, keepdims=True)), growth_of(rng, size)
    found = slopes(laws, growth, rule, np.ones((size, size), np.bool_))
    assert found is not None
    value, places, shares = found
    apart = ~np.eye(size, dtype=bool)
    assert value[apart] == pytest.approx(leak(laws, growth, rule)[apart], abs=1e-12)
    for place in range(size**2):
        if place % (size + 1) == 0:
            continue
        wider = growth.copy()
        wider.flat[place] += more
        moved = (leak(laws, wider, rule) - leak(laws, growth, rule)) / more
        told = np.where(places == place, shares, 0.0).sum(axis=2)
        assert told[apart] == pytest.approx(moved[apart], abs=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_bounds_are_those_of_plain_steps(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    size = 18
    chain = 0.5 * np.eye(size) + 0.5 * rng.dirichlet(np.full(size, 0.7), size)
    even, metric = np.full(size, 1 / size), 1 - np.eye(size)
    for eta in (0.05, 0.4):
        monkeypatch.setattr(solver, "SLOPES_PAY", 16)
        found = ChainLift.of(even, chain, metric, None).loss(eta, rule)
        monkeypatch.setattr(solver, "SLOPES_PAY", 1_000)
        plain = ChainLift.of(even, chain, metric, None).loss(eta, rule)
        assert found.value == pytest.approx(plain.value, rel=1e-6)
        for one, two in ((found, plain), (plain, found)):  # each is an image of a bound above it
            limit, other = one.future_limit.bound, two.future_limit.bound
            assert (limit >= other * (1 - 1e-6)).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_rests_on_the_lags_it_names(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what covers later entries would not look back far enough."""
    monkeypatch.setattr(solver, "WORTH", 0.3)
    rng = np.random.default_rng(seed)
    chain = 0.8 * np.roll(np.eye(3), 1, axis=1) + 0.2 * rng.dirichlet(np.ones(3), 3)
    ahead, entry = Ahead(Powers(chain)), hamming(3).scaled_by(1.5)
    found = solver.limit(ahead, entry, "cone")
    again = image(found.bound, found.lags, ahead, entry, "cone")
    assert np.isfinite(found.bound).all()
    assert (again <= found.bound * (1 + 1e-11)).all()
