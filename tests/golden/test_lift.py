"""The lift against numbers computed independently: bounds of every rule, and the linear program."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.side import future_side
from shoal.chains.lift.step import Ahead, EntryMetric
from shoal.core.walk import Powers, time_reversal
from shoal.mechanisms.cone import Rule, leak, prepare

CASES = json.loads((Path(__file__).parent / "data" / "lift.json").read_text())["cases"]
COLUMNS: dict[Rule, str] = {
    "largest": "multi_step_bound",
    "caps": "row_all_bound",
    "cone": "cone_all_bound",
}


def chain(case: dict[str, Any]) -> ChainLift:
    steps = np.array(case["P"] if case["homogeneous"] else case["Ps"])
    return ChainLift.of(case["initial"], steps, 1 - np.eye(case["k"]), case["T"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['id']}-{case['tag']}")
@pytest.mark.parametrize("rule", COLUMNS)
def test_never_below_the_linear_program_and_never_above_its_own_rule(
    case: dict[str, Any], rule: Rule
) -> None:
    found = chain(case).loss(case["eta"], rule).value
    if case["lp_optimum"] is not None:
        assert found >= case["lp_optimum"] - 1e-9
    stored = case.get(COLUMNS[rule])
    if stored is not None:
        assert found <= stored + 1e-6


def test_most_bounds_equal_the_stored_ones() -> None:
    """So that a rule that became looser than documented, or silently another one, is seen."""
    same = {
        rule: sum(
            abs(chain(case).loss(case["eta"], rule).value - case[column]) < 1e-6
            for case in CASES
            if case.get(column) is not None
        )
        for rule, column in COLUMNS.items()
    }
    stored = {
        rule: sum(case.get(column) is not None for case in CASES)
        for rule, column in COLUMNS.items()
    }
    assert all(same[rule] >= stored[rule] - 2 for rule in COLUMNS), (same, stored)


def one_step_loss(case: dict[str, Any], rule: Rule) -> float:
    """The recursion with lag 1 alone, written out: D_n = Λ(P_t; E + D_{n-1}) on either side."""
    size, length = case["k"], case["T"]
    steps = [np.array(case["P"])] * (length - 1) if case["homogeneous"] else case["Ps"]
    metric = case["eta"] * (1 - np.eye(size))
    laws = [np.array(case["initial"])]
    for step in steps:
        laws.append(laws[-1] @ np.array(step))
    after, before = [np.zeros((size, size))], [np.zeros((size, size))]
    for t in range(length - 1):
        backwards = time_reversal(np.array(steps[t]), laws[t])
        before.append(leak(prepare(backwards), metric + before[-1], rule))
        onwards = np.array(steps[length - 2 - t])
        after.append(leak(prepare(onwards), metric + after[-1], rule))
    worst = 0.0
    for t in range(length):
        total = metric + before[t] + after[length - 1 - t]
        worst = max(worst, float(total[np.ix_(laws[t] > 0, laws[t] > 0)].max()))
    return worst


@pytest.mark.parametrize(
    ("rule", "column", "differ"),
    [("largest", "one_step_bound", 2), ("caps", "row_one_bound", 2), ("cone", "cone_one_bound", 0)],
)
def test_one_step_alone(rule: Rule, column: str, differ: int) -> None:
    """Never below the program and never above the stored bound; nearly always equal to it.

    Ours may be lower: `largest` looks only at states that either row can take, and `caps` takes
    the smaller cap prefix by prefix.
    """
    lower = 0
    for case in CASES:
        if case.get(column) is None:
            continue
        found = one_step_loss(case, rule)
        assert found <= case[column] + 1e-9
        assert case["lp_optimum"] is None or found >= case["lp_optimum"] - 1e-9
        lower += found < case[column] - 1e-6
    assert lower <= differ


def test_largest_eta_and_never_more_noise_than_the_quilt() -> None:
    for case in CASES:
        found = chain(case).largest_eta(case["epsilon"], "largest")
        assert found is not None
        assert found.value <= case["epsilon"]
        assert 1 / found.eta <= case["multi_step_scale_at_epsilon"] * (1 + 1e-6)
        assert 1 / found.eta <= case["mqm_exact_scale"] * (1 + 1e-6)


@pytest.mark.parametrize("rule", COLUMNS)
def test_shift_register_needs_every_lag(rule: Rule) -> None:
    """Three bits, one new each step: a grid of lags gives 7, the quilt 5."""
    step = np.zeros((8, 8))
    for state in range(8):
        step[state, [2 * state % 8, 2 * state % 8 + 1]] = 0.5
    found = ChainLift.of(np.full(8, 1 / 8), step, 1 - np.eye(8), 16).largest_eta(1.0, rule)
    assert found is not None
    assert 1 / found.eta == pytest.approx(5.0, rel=1e-6)


@pytest.mark.parametrize(
    ("transition", "scales"),
    [
        ([[0.9, 0.1], [0.4, 0.6]], (15.3903, 3.33641, 0.531618)),
        ([[0.8, 0.2], [0.3, 0.7]], (15.1122, 3.02391, 0.378264)),
    ],
)
def test_reference_scales_of_stationary_chains_of_any_length(
    transition: list[list[float]], scales: tuple[float, ...]
) -> None:
    matrix = np.array(transition)
    law = np.array([matrix[1, 0], matrix[0, 1]]) / (matrix[1, 0] + matrix[0, 1])
    lift = ChainLift.of(law, matrix, 1 - np.eye(2), None)
    for epsilon, scale in zip((0.2, 1.0, 5.0), scales, strict=True):
        found = lift.largest_eta(epsilon)
        assert found is not None
        assert 1 / found.eta == pytest.approx(scale, rel=4e-6)
        assert found.value <= epsilon


def test_temporal_privacy_leakage_of_one_side() -> None:
    """Cao et al. 2017: P = [[.8, .2], [0, 1]], .1 a step, one side only: 1 to 10 entries in all.

    The first entry has no past, so what it loses is its own .1 and what the entries after it add.
    """
    series = [0.1, 0.181, 0.247, 0.302, 0.349, 0.388, 0.422, 0.450, 0.475, 0.496]
    ahead = Ahead(Powers(np.array([[0.8, 0.2], [0.0, 1.0]])))
    entry = EntryMetric.of(0.1 * (1 - np.eye(2)))
    side = future_side(ahead, entry, len(series) - 1, "largest")
    found = [0.1 + float(side.at(n).max()) for n in range(len(series))]
    assert found == pytest.approx(series, abs=6e-4)


def test_chains_that_never_forget_have_no_bound_at_any_length() -> None:
    metric = 1 - np.eye(2)
    for frozen in (np.eye(2), np.array([[0.0, 1.0], [1.0, 0.0]])):
        assert np.isinf(ChainLift.of([0.5, 0.5], frozen, metric, None).loss(0.1).value)
        assert ChainLift.of([0.5, 0.5], frozen, metric, 9).loss(0.1).value == pytest.approx(0.9)


def test_a_longer_chain_never_leaks_less() -> None:
    """Also where explicit steps end and the limit takes over."""
    matrix = np.array([[0.9, 0.1], [0.4, 0.6]])
    losses = [
        ChainLift.of([0.8, 0.2], matrix, 1 - np.eye(2), length).loss(1.0).value
        for length in (1, 2, 5, 20, 100, 258, 1000, 10**6, None)
    ]
    assert all(a <= b * (1 + 1e-8) for a, b in pairwise(losses))
    assert losses[5] == pytest.approx(3.298, abs=1e-3)
