"""What must hold of Λ and of the lift built on it, whatever the chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

from shoal.chains.lift.chain import ChainLift, lift_loss
from shoal.chains.lift.families import AnyInitialLift, two_odds
from shoal.chains.lift.solver import certified_fixed_point, limit
from shoal.chains.lift.step import Ahead, EntryMetric, History, hamming, image, next_bound
from shoal.chains.lift.tuples import TupleLift
from shoal.core.codec import Floats
from shoal.core.walk import Powers
from shoal.mechanisms.cone import RULES, Rule, closure, leak, prepare

seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=40, deadline=None)


def random_law(rng: np.random.Generator, rows: int, columns: int) -> Floats:
    """Rows with zeros, tiny entries and near-certain states, as they come."""
    law = rng.dirichlet(np.full(columns, rng.choice([0.1, 0.5, 2.0])), size=rows)
    law[rng.random(law.shape) < rng.choice([0.0, 0.3])] = 0.0
    law[rng.random(law.shape) < rng.choice([0.0, 0.1])] *= 1e-12
    law[np.arange(rows), rng.integers(columns, size=rows)] += 0.05
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def random_growth(rng: np.random.Generator, size: int) -> Floats:
    growth = rng.choice([0.01, 1.0, 8.0]) * rng.random((size, size))
    growth[rng.random((size, size)) < rng.choice([0.0, 0.2])] = np.inf
    np.fill_diagonal(growth, 0.0)
    return np.asarray(growth)


def by_program(p: Floats, q: Floats, growth: Floats) -> float:
    """Λ as the least λ of a coupling: Σ_z f = p, Σ_y f e^G ≤ λ q, solved by HiGHS."""
    rows, columns = np.flatnonzero(p), np.flatnonzero(q)
    cost = np.exp(growth[np.ix_(rows, columns)])
    usable = np.argwhere(np.isfinite(cost))
    equal = np.zeros((len(rows), len(usable) + 1))
    under = np.zeros((len(columns), len(usable) + 1))
    for place, (y, z) in enumerate(usable):
        equal[y, place] = 1.0
        under[z, place] = p[rows[y]] * cost[y, z] / q[columns[z]]
    under[:, -1] = -1.0
    goal = np.eye(len(usable) + 1)[-1]
    found = linprog(goal, under, np.zeros(len(columns)), equal, np.ones(len(rows)))
    return float(np.log(found.fun)) if found.status == 0 else np.inf


@quick
@given(seeds)
def test_no_admissible_function_shows_more_than_any_rule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    law, growth = random_law(rng, 3, size), random_growth(rng, size)
    bounds = {rule: leak(prepare(law), growth, rule) for rule in RULES}
    assert (bounds["cone"] <= bounds["caps"] + 1e-12).all()
    assert (bounds["caps"] <= bounds["largest"] + 1e-12).all()
    cap = np.minimum(closure(growth), 50.0)
    for _ in range(20):
        free = np.exp(rng.normal(scale=rng.choice([0.1, 1.0, 10.0]), size=size))
        v = (np.exp(cap) * free[None, :]).min(axis=1)
        shown = np.log(law @ v)
        assert (shown[:, None] - shown[None, :] <= bounds["cone"] + 1e-12).all()


@quick
@given(seeds)
def test_the_cone_is_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 9))
    law = rng.dirichlet(np.full(size, 0.7), size=2)
    law[:, rng.random(size) < 0.2] *= np.array([[0.0], [1.0]])
    law /= law.sum(axis=1, keepdims=True)
    growth = rng.choice([0.1, 1.0, 3.0]) * rng.random((size, size))
    np.fill_diagonal(growth, 0.0)
    laws = prepare(law)
    truth = by_program(law[0], law[1], closure(growth))
    for _ in range(2):  # the second time from the remembered tree
        assert leak(laws, growth, "cone")[0, 1] == pytest.approx(truth, abs=1e-6)


@quick
@given(seeds, st.sampled_from(RULES))
def test_a_remembered_optimum_of_another_growth_changes_nothing(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 8))
    law = random_law(rng, size, size)
    used = prepare(law)
    for _ in range(3):
        growth = random_growth(rng, size)
        fresh = leak(prepare(law), growth, rule)
        np.testing.assert_allclose(leak(used, growth, rule), fresh, rtol=1e-8, atol=1e-9)


@quick
@given(seeds, st.sampled_from(RULES))
def test_more_growth_shows_more_and_never_more_than_itself(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    law, growth = random_law(rng, size, size), random_growth(rng, size)
    laws = prepare(law)
    shown = leak(laws, growth, rule)
    more = leak(laws, growth + 0.3 * (1 - np.eye(size)), rule)
    assert (shown <= more + 1e-10).all()
    assert (leak(laws, closure(growth) + 0.3 * (1 - np.eye(size)), "cone") <= more + 1e-10).all()
    assert (shown <= growth.max() + 1e-10).all()
    # the step D -> Λ(E + D) never stretches: growth by c adds at most c
    closed = closure(growth)
    wider = closed + 0.3 * (1 - np.eye(size))
    assert (leak(laws, wider, rule) <= leak(laws, closed, rule) + 0.3 + 1e-10).all()


@quick
@given(seeds, st.sampled_from(RULES))
def test_relabelling_the_states_changes_nothing(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 6))
    law, growth = random_law(rng, size, size), random_growth(rng, size)
    law[:, 0] += 0.01
    law[:, -1] = law[:, 0]  # ties in p/p'
    law /= law.sum(axis=1, keepdims=True)
    turn = rng.permutation(size)
    chosen = np.ix_(turn, turn)
    plain = leak(prepare(law), growth, rule)[chosen]
    turned = leak(prepare(law[chosen]), growth[chosen], rule)
    np.testing.assert_allclose(turned, plain, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("rule", RULES)
def test_zeros_infinities_and_equal_rows(rule: Rule) -> None:
    free = np.array([[0.0, np.inf], [np.inf, 0.0]])
    law = np.array([[0.9, 0.1], [0.3, 0.7], [0.0, 1.0], [0.9, 0.1], [0.0, 0.0]])
    shown = leak(prepare(law), free, rule)
    assert shown[0, 1] == pytest.approx(np.log(3.0))  # no growth bound: the largest ratio
    assert np.isinf(shown[0, 2])  # state 0 is impossible under row 2
    assert shown[2, 1] == pytest.approx(np.log(1 / 0.7))
    assert shown[0, 3] == 0.0  # equal rows show nothing, exactly
    assert np.isinf(shown[0, 4])  # an impossible value is compared with nothing
    tight = np.array([[0.0, 0.5], [0.5, 0.0]])
    disjoint = leak(prepare(np.eye(2)), tight, rule)
    assert disjoint[0, 1] == pytest.approx(0.5)


@pytest.mark.parametrize("rule", RULES)
def test_huge_growth_and_tiny_differences_stay_accurate(rule: Rule) -> None:
    law = np.array([[0.5, 0.5], [0.4, 0.6]])
    for growth, truth in ((150.0, np.log(0.5 / 0.4)), (1e-9, 0.1e-9)):
        shown = leak(prepare(law), np.array([[0.0, growth], [growth, 0.0]]), rule)
        assert shown[0, 1] == pytest.approx(truth, rel=1e-4)
        assert shown[0, 1] >= truth * (1 - 1e-9)
    close = np.array([[0.5, 0.5], [0.5 - 1e-12, 0.5 + 1e-12]])
    shown = leak(prepare(close), np.array([[0.0, 1.0], [1.0, 0.0]]), rule)
    assert 0.0 < shown[0, 1] < 1e-11


def test_an_underflowed_probability_stays_a_possibility() -> None:
    law = np.array([[1.0, 0.0], [1.0, 0.0]])
    possible = np.array([[True, True], [True, False]])
    free = np.array([[0.0, np.inf], [np.inf, 0.0]])
    for rule in RULES:
        assert np.isinf(leak(prepare(law, possible=possible), free, rule)[0, 1])


def test_a_tiny_probability_below_the_line_counts_as_none() -> None:
    law = np.array([[0.5, 0.5], [1.0, 1e-120]])
    free = np.array([[0.0, np.inf], [np.inf, 0.0]])
    for rule in RULES:
        assert np.isinf(leak(prepare(law), free, rule)[0, 1])


@quick
@given(seeds)
def test_no_tree_proves_a_ratio_below_the_optimum(seed: int) -> None:
    from shoal.mechanisms.cone_tree import proves, walk

    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 7))
    p, q = rng.dirichlet(np.ones(size), size=2)
    growth = closure(rng.random((size, size)) * (1 - np.eye(size)))
    ratio = np.exp(leak(prepare(np.array([p, q])), growth, "cone")[0, 1])
    for _ in range(10):  # any tree, right or wrong
        parent = np.array([-1, *(rng.integers(i) for i in range(1, size))])
        high = rng.integers(2, size=size)
        order, head, after, balance = (np.zeros(size, dtype=np.int64) for _ in range(4))
        walk(parent, order, head, after, size)
        below = ratio * (1 - 1e-9)
        assert not proves(
            p, q, np.exp(growth), below, parent, high, order, balance.astype(np.float64)
        )


def test_a_step_that_always_grows_is_never_certified() -> None:
    """Also when it grows by little: an iterate that seems to stand still proves nothing."""
    for drift in (1.0, 1e-3, 1e-7):
        found = certified_fixed_point(
            lambda bound, up=drift: bound + up * (1 - np.eye(2)),  # type: ignore[misc]
            1 - np.eye(2),
            1e6,
        )
        assert np.isinf(found[0, 1])
    half = certified_fixed_point(lambda bound: 0.5 * bound + (1 - np.eye(2)), np.zeros((2, 2)), 1e6)
    assert 2.0 <= half[0, 1] <= 2.0 * (1 + 1e-7)


def test_a_value_that_only_later_nodes_take_is_a_secret_too() -> None:
    """0 -> 1 -> 2 or 3 -> 0: the first two entries are certain, the third is not."""
    step = np.array([[0, 1, 0, 0], [0, 0, 0.5, 0.5], [1, 0, 0, 0], [1, 0, 0, 0]], dtype=float)
    metric = 1 - np.eye(4)
    long = ChainLift.of([1, 0, 0, 0], step, metric, 9).loss(0.1)
    endless = ChainLift.of([1, 0, 0, 0], step, metric, None).loss(0.1)
    assert long.value == pytest.approx(0.1)
    assert long.node == 2
    assert endless.value >= long.value


@settings(max_examples=15, deadline=None)
@given(seeds)
def test_longer_memory_of_any_length_covers_long_chains(seed: int) -> None:
    """From the stationary law, where the middle of the chain decides, and from another."""
    rng = np.random.default_rng(seed)
    rows = 0.9 * random_law(rng, 4, 2) + 0.05
    law = np.full(4, 0.25)
    for _ in range(300):
        law = np.array([law[[0, 2]] @ rows[[0, 2]], law[[1, 3]] @ rows[[1, 3]]]).ravel()
    for initial in (law, rng.dirichlet(np.ones(4))):
        lift = TupleLift.of(initial, rows, 1 - np.eye(2), 60)
        assert lift.loss(0.3).value <= lift.endless().loss(0.3).value * (1 + 1e-7)


def test_chains_that_never_forget_leak_on_at_a_steady_pace() -> None:
    """Beyond the steps taken one by one the bound grows linearly, as fast as it must."""
    frozen = ChainLift.of([0.5, 0.5], np.eye(2), 1 - np.eye(2), 1000)
    assert frozen.loss(1e-3).value == pytest.approx(1.0)
    rows = np.array([[0.7, 0.3], [0.2, 0.8]])
    apart = np.kron(np.eye(2), np.ones((2, 1)) @ np.ones((1, 2)))
    step = apart * np.vstack([np.tile(rows[0], (2, 2)), np.tile(rows[1], (2, 2))])
    # two kinds of chain, each without memory: 999 independent entries tell which kind
    metric = np.tile(1 - np.eye(2), (2, 2))
    each = np.log((0.7 * np.exp(0.01) + 0.3) / (0.2 * np.exp(0.01) + 0.8))
    lift = ChainLift.of(np.full(4, 0.25), step, metric, 1000)
    assert lift.loss(0.01).value >= 999 * each
    assert lift.loss(0.01).value <= (999 * each + 0.01) * 1.01


@quick
@given(seeds)
def test_two_odds_is_the_hyperbolic_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    growth, spread = float(rng.uniform(0, 30)), rng.uniform(0, 30, size=5)
    truth = 4 * np.arctanh(np.tanh(growth / 4) * np.tanh(spread / 4))
    found = two_odds(growth, spread)
    np.testing.assert_allclose(found, truth, rtol=1e-8)
    assert (found >= truth * (1 - 1e-8)).all()
    assert np.isinf(two_odds(np.inf, np.array([np.inf])))[0]
    assert two_odds(np.inf, spread) == pytest.approx(spread)


@quick
@given(seeds, st.sampled_from(RULES))
def test_a_certified_limit_lies_above_every_length(seed: int, rule: Rule) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    ahead = Ahead(Powers(random_law(rng, size, size)))
    entry = hamming(size).scaled_by(float(rng.choice([0.05, 0.5, 2.0])))
    found = limit(ahead, entry, rule)
    if np.isfinite(found.bound).all():
        again = image(found.bound, found.lags, ahead, entry, rule)
        assert (again <= found.bound * (1 + 1e-6) + 1e-12).all()
    history = History(np.zeros((size, size)))
    for n in range(1, 30):
        history.append(next_bound(n, history, ahead, entry, rule))
        assert (history.bounds[-1] <= found.bound + 1e-9).all()
        assert (history.bounds[-1] >= history.bounds[-2] - 1e-9).all()


@quick
@given(seeds)
def test_the_lift_grows_with_eta_and_with_length(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4))
    initial, step = random_law(rng, 1, size)[0], random_law(rng, size, size)
    metric = 1 - np.eye(size)
    small, large = (ChainLift.of(initial, step, metric, 6).loss(eta).value for eta in (0.2, 0.3))
    assert small <= large * (1 + 1e-9)
    short = ChainLift.of(initial, step, metric, 3).loss(0.2).value
    assert short <= small * (1 + 1e-9) + 1e-12


@quick
@given(seeds)
def test_relabelling_a_chain_changes_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    initial, step = random_law(rng, 1, size)[0], random_law(rng, size, size)
    weights = rng.random(size)
    metric = np.abs(weights[:, None] - weights[None, :])
    turn = rng.permutation(size)
    chosen = np.ix_(turn, turn)
    plain = lift_loss(initial, step, metric, 5)
    turned = lift_loss(initial[turn], step[chosen], metric[chosen], 5)
    assert turned.value == pytest.approx(plain.value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("length", [3, 40, None])
def test_order_one_tuples_and_a_fixed_first_law_agree_with_the_plain_chain(
    length: int | None,
) -> None:
    step = np.array([[0.7, 0.2, 0.1], [0.3, 0.5, 0.2], [0.1, 0.1, 0.8]])
    initial = np.array([0.2, 0.5, 0.3])
    metric = 1 - np.eye(3)
    plain = ChainLift.of(initial, step, metric, length).loss(0.4).value
    tuples = TupleLift.of(initial, step, metric, length).loss(0.4).value
    family = AnyInitialLift.of(step, metric, length).loss(0.4).value
    assert tuples == pytest.approx(plain, rel=1e-6)
    assert family >= plain * (1 - 1e-9)


def test_a_longer_memory_that_is_not_used_changes_little() -> None:
    """An order-2 chain that ignores the older entry is the order-1 chain."""
    step = np.array([[0.7, 0.3], [0.2, 0.8]])
    initial = np.array([0.4, 0.6])
    pair = (initial[:, None] * step).ravel()
    plain = ChainLift.of(initial, step, 1 - np.eye(2), 9).loss(0.5).value
    longer = TupleLift.of(pair, np.tile(step, (2, 1)), 1 - np.eye(2), 9).loss(0.5).value
    assert plain - 1e-9 <= longer <= plain * 1.001


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: EntryMetric.of([[0.0, -1.0], [1.0, 0.0]]), "non-negative"),
        (lambda: EntryMetric.of([[0.0, 1.0]]), "square"),
        (lambda: ChainLift.of([1.0], np.eye(2), 1 - np.eye(2), 3), "all must have the same"),
        (lambda: ChainLift.of([1, 0], np.ones((2, 2, 2)) / 2, 1 - np.eye(2), 9), "length 3"),
        (lambda: TupleLift.of(np.ones(3) / 3, np.ones((3, 2)) / 2, 1 - np.eye(2), 9), "m-tuples"),
        (lambda: AnyInitialLift.of(np.eye(3), 1 - np.eye(2), 9), "of one size"),
    ],
)
def test_refusals_name_the_rule(build: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()
