"""The ways of chains with many states, taken by chains small enough to know the truth of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import shoal
from shoal.chains.lift import chain, neighbours, side, solver
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.solver import FixedPoint, limit
from shoal.chains.lift.step import Ahead, hamming, image, off_diagonal
from shoal.core.codec import Floats
from shoal.core.walk import Powers
from shoal.mechanisms.cone import Rule


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if three states were many."""
    for module in (chain, side, solver):
        monkeypatch.setattr(module, "MANY_STATES", 3)
    chain.chain_lift.cache_clear()
    yield
    chain.chain_lift.cache_clear()


def dense(seed: int, size: int = 6) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(0.4 * np.eye(size) + 0.6 * rng.dirichlet(np.full(size, 1.5), size))


@pytest.mark.parametrize("seed", range(6))
def test_one_number_bounds_every_length(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never below the certified limit of the same rule, and near the least such number."""
    step, entry = dense(seed), hamming(6).scaled_by(0.1)
    ahead = Ahead(Powers(step))
    plain = limit(ahead, entry, "largest")
    monkeypatch.setattr(solver, "MANY_STATES", 3)
    monkeypatch.setattr(solver, "certified_fixed_point", None)  # not the way taken
    found = limit(ahead, entry, "largest")
    assert found.bound.max() >= plain.bound.max() * (1 - 1e-9)
    assert found.bound.max() <= plain.bound.max() * (1 + 2e-3)
    level = off_diagonal(6, float(found.bound.max()) * (1 + 1e-12))
    again = image(level, found.lags, ahead, entry, "largest")
    assert (again <= level).all()  # what holds for n entries holds for one more
    monkeypatch.undo()
    truth = limit(Ahead(Powers(step)), entry, "cone")
    assert (found.bound >= truth.bound * (1 - 1e-9)).all()


def test_a_chain_that_never_forgets_has_no_number() -> None:
    slow = 0.999999 * np.eye(5) + 0.000001 / 5
    found = solver._one_number(Ahead(Powers(slow)), hamming(5).scaled_by(1.0), None, 4.0)
    assert np.isinf(found.bound[0, 1])
    assert isinstance(found, FixedPoint)


@pytest.mark.parametrize("rule", ["caps", "largest"])
@pytest.mark.parametrize("length", [5, 60, None])
@pytest.mark.usefixtures("few")
def test_many_states_never_show_less_than_the_truth(rule: Rule, length: int | None) -> None:
    for seed in range(3):
        step = dense(seed)
        even, metric = np.full(6, 1 / 6), 1 - np.eye(6)
        found = ChainLift.of(even, step, metric, length).loss(0.15, rule)
        with pytest.MonkeyPatch.context() as patch:
            for module in (chain, side, solver):
                patch.setattr(module, "MANY_STATES", 64)
            truth = ChainLift.of(even, step, metric, length).loss(0.15, "cone")
            plain = ChainLift.of(even, step, metric, length).loss(0.15, rule)
        assert found.value >= truth.value * (1 - 1e-9)
        assert found.value <= plain.value * 1.01


@pytest.mark.usefixtures("few")
def test_plans_of_many_states_keep_their_promise() -> None:
    """Noise by the coarse search is never below that of the exact loss, and says how it ended."""
    for seed in range(2):
        model = shoal.MarkovChain.of(dense(seed), states="abcdef", length=12)
        asked = (shoal.count("abcdef", "a"), shoal.EachEntry(), model)
        lifted = shoal.calibrate(*asked, epsilon=1, mechanism="lift")
        exact = shoal.calibrate(*asked, epsilon=1, mechanism="exact")
        assert lifted.cost >= exact.cost * (1 - 1e-9)
        assert shoal.verify_promise(lifted) <= 1 + 1e-12
        assert "the search ends within .2 % of the budget" in lifted.certificate.theorem
        assert "within .2 %" not in exact.certificate.theorem


def cells(side: int, seed: int = 0) -> Floats:
    """A walk on a square map: each cell, and those beside it, with uneven chances."""
    place = np.stack(np.divmod(np.arange(side * side), side))
    apart = np.abs(place[:, :, None] - place[:, None, :]).sum(axis=0)
    rng = np.random.default_rng(seed)
    moves = np.where(apart <= 1, 0.2 + rng.random(apart.shape), 0.0) + np.eye(side * side)
    return np.asarray(moves / moves.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("asked", ["count", "histogram"])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("few")
def test_neighbours_never_show_less_than_all_pairs(asked: str, seed: int) -> None:
    step = cells(4, seed)
    initial = shoal.MarkovChain.of(step, length=9).initial
    weights = np.eye(16) if asked == "histogram" else np.eye(16)[:, :1]
    metric = np.abs(weights[:, None] - weights[None]).sum(axis=-1) / weights.shape[1] ** 0.25
    for eta in (0.02, 0.1):
        lift = ChainLift.of(initial, step, metric, None)
        assert lift._between_neighbours is not None
        found = lift.loss(eta)
        assert found.future_limit.bound.ndim == 1
        truth = ChainLift.of(initial, step, metric, None).loss(eta, "cone")
        assert found.value >= truth.value * (1 - 1e-9)
        assert found.value <= truth.value * 1.3


def test_what_neighbours_certify_bounds_all_pairs() -> None:
    """The shortest ways lie above their own image: so they hold for every number of entries."""
    ahead, entry = Ahead(Powers(cells(4))), hamming(16).scaled_by(0.05)
    beside = ahead.beside(entry.metrics[0])
    assert beside is not None
    known = beside.bound(entry.metrics[0], 8.0)
    assert known is not None
    everywhere = beside.everywhere(known)
    assert (image(everywhere, (1,), ahead, entry, "cone") <= everywhere * (1 + 1e-9)).all()


def test_the_worst_way_is_that_of_all_pairs() -> None:
    """Though most ends are never looked at."""
    ahead = Ahead(Powers(cells(6)))
    beside = ahead.beside(1 - np.eye(36))
    assert beside is not None
    rng = np.random.default_rng(5)
    for flat in (False, True):
        sides = [rng.random(len(beside.first)) ** (1 if flat else 6) for _ in range(2)]
        metric = np.abs(np.subtract.outer(*[rng.random(36)] * 2))
        every = metric + sum(beside.everywhere(side) for side in sides)
        found = neighbours.worst_way(metric, *(beside.ways(side) for side in sides))
        assert found.value == pytest.approx(every.max(), rel=1e-12)
        assert every[found.pair] == pytest.approx(every.max(), rel=1e-12)
        assert found.value >= every.max() * (1 - 1e-13)


@pytest.mark.usefixtures("few")
def test_plans_by_neighbours_keep_their_promise() -> None:
    states = [str(cell) for cell in range(16)]
    model = shoal.MarkovChain.of(cells(4), states=states, length=6)
    asked = (shoal.count(states, "0"), shoal.EachEntry(), model)
    lifted = shoal.calibrate(*asked, epsilon=1, mechanism="lift")
    exact = shoal.calibrate(*asked, epsilon=1, mechanism="exact")
    assert lifted.cost >= exact.cost * (1 - 1e-9)
    assert shoal.verify_promise(lifted) <= 1 + 1e-12


def test_states_that_are_not_linked_have_no_neighbours() -> None:
    apart = np.kron(np.eye(2), cells(4)) > 0
    assert neighbours.neighbours_of(apart) is None
    assert neighbours.neighbours_of(np.ones((20, 20), bool)) is None
    assert neighbours.neighbours_of(cells(4) > 0) is not None


@pytest.mark.parametrize("length", [40, 120, 2_000])
def test_dear_steps_are_left_to_the_limit_which_never_shows_less(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without steps one by one the bound is no smaller, and the same on chains that are long."""
    near = np.eye(4, k=1) + np.eye(4, k=-1)
    step = 0.9 * np.eye(4) + 0.1 * near / near.sum(axis=1, keepdims=True)
    even = near.sum(axis=1) / near.sum()
    metric = 1 - np.eye(4)
    stepped = ChainLift.of(even, step, metric, length).loss(0.02, "cone")
    monkeypatch.setattr(side, "MOST_STEP_WORK", 0.0)
    alone = ChainLift.of(even, step, metric, length).loss(0.02, "cone")
    assert alone.value >= stepped.value * (1 - 1e-9)
    if length == 2_000:
        assert alone.value == pytest.approx(stepped.value, rel=1e-6)
    elif length == 40:
        assert alone.value > stepped.value * 1.05  # so the steps are worth taking
