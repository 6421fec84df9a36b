"""The ways of chains with many states, taken by chains small enough to know the truth of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import shoal
from shoal.additive.cone import Rule
from shoal.chains.lift import fixed_point, row, search
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.fixed_point import FixedPoint, limit
from shoal.chains.lift.laws import Ahead
from shoal.chains.lift.step import hamming, image, off_diagonal
from shoal.chains.walk import Powers
from shoal.core.codec import Floats


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if three states were many."""
    for module in (fixed_point, search):
        monkeypatch.setattr(module, "MANY", 3)
    row.chain_lift.cache_clear()
    yield
    row.chain_lift.cache_clear()


def dense(seed: int, size: int = 6) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(0.4 * np.eye(size) + 0.6 * rng.dirichlet(np.full(size, 1.5), size))


@pytest.mark.parametrize("seed", range(6))
def test_one_number_bounds_every_length(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never below the certified limit of the same rule, and near the least such number."""
    chain, entry = dense(seed), hamming(6).scaled(0.1)
    ahead = Ahead(Powers(chain))
    plain = limit(ahead, entry, "largest")
    monkeypatch.setattr(fixed_point, "MANY", 3)
    monkeypatch.setattr(fixed_point, "certified_fixed_point", None)  # not the way taken
    found = limit(ahead, entry, "largest")
    assert found.bound.max() >= plain.bound.max() * (1 - 1e-9)
    assert found.bound.max() <= plain.bound.max() * (1 + 2e-3)
    level = off_diagonal(6, float(found.bound.max()) * (1 + 1e-12))
    again = image(level, found.lags, ahead, entry, "largest")
    assert (again <= level).all()  # what holds for n entries holds for one more
    monkeypatch.undo()
    truth = limit(Ahead(Powers(chain)), entry, "cone")
    assert (found.bound >= truth.bound * (1 - 1e-9)).all()


def test_a_chain_that_never_forgets_has_no_number() -> None:
    slow = 0.999999 * np.eye(5) + 0.000001 / 5
    found = fixed_point._one_number(Ahead(Powers(slow)), hamming(5).scaled(1.0), None, 4.0)
    assert np.isinf(found.bound[0, 1])
    assert isinstance(found, FixedPoint)


@pytest.mark.parametrize("rule", ["caps", "largest"])
@pytest.mark.parametrize("length", [5, 60, None])
@pytest.mark.usefixtures("few")
def test_many_states_never_show_less_than_the_truth(rule: Rule, length: int | None) -> None:
    for seed in range(3):
        chain = dense(seed)
        even, metric = np.full(6, 1 / 6), 1 - np.eye(6)
        found = ChainLift.of(even, chain, metric, length).loss(0.15, rule)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fixed_point, "MANY", 64)
            patch.setattr(search, "MANY", 64)
            truth = ChainLift.of(even, chain, metric, length).loss(0.15, "cone")
            plain = ChainLift.of(even, chain, metric, length).loss(0.15, rule)
        assert found.value >= truth.value * (1 - 1e-9)
        assert found.value <= plain.value * 1.01


@pytest.mark.usefixtures("few")
def test_plans_of_many_states_keep_their_promise() -> None:
    """Noise by the coarse search is never below that of the exact loss, and says how it ended."""
    for seed in range(2):
        chain = shoal.MarkovChain.of(dense(seed), states="abcdef", length=12)
        asked = (shoal.count("abcdef", "a"), shoal.EachEntry(), chain)
        lifted = shoal.calibrate(*asked, epsilon=1, mechanism="lift")
        exact = shoal.calibrate(*asked, epsilon=1, mechanism="exact")
        assert lifted.cost >= exact.cost * (1 - 1e-9)
        assert shoal.verify_promise(lifted) <= 1 + 1e-12
        assert "the search ends within .2 % of the budget" in lifted.certificate.theorem
        assert "within .2 %" not in exact.certificate.theorem
