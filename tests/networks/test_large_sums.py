"""Laws of sums over large networks: bounds hold the loss found by listing every outcome.

The networks that come with pgmpy are read from its package; without it their tests are skipped.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.mechanisms.mixture import TooLarge
from shoal.mechanisms.variables import VariableSum
from shoal.networks import large, large_runs
from shoal.networks.bayesnet import BayesNet
from shoal.networks.exact import network_answers, secret_loss
from shoal.networks.large import LargeSums
from shoal.networks.parts import independent_parts
from tests.networks.models import (
    entry_facts,
    joint_of,
    lattice,
    literature,
    random_network,
    true_loss,
)


def points(net: BayesNet, seed: int) -> VariableSum:
    """A sum with whole weights of its own for every variable."""
    rng = np.random.default_rng(seed)
    weights = {
        name: {value: int(rng.integers(0, 4)) for value in domain} | {domain[-1]: 3}
        for name, domain in zip(net.variables, net.domains, strict=True)
    }
    return shoal.variable_sum(net, weights)


def answers(net: BayesNet, query: VariableSum) -> np.ndarray:
    shape = tuple(len(domain) for domain in net.domains)
    added = np.zeros(shape)
    for axis, row in enumerate(query.multiples()):
        added += np.array(row).reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return added.reshape(-1, 1)


def listed(net: BayesNet, query: VariableSum, scale: float) -> float:
    law = joint_of(net)
    return true_loss(law, answers(net, query), scale, entry_facts(law.shape))


@pytest.mark.parametrize("seed", range(6))
def test_the_loss_lies_between_the_bounds(seed: int) -> None:
    net = random_network(seed, 7, values=2 + seed % 2, zeros=0.2 * (seed % 3), density=0.4)
    query = points(net, seed)
    for scale in (1.5, 6.0, 40.0):
        lower, upper = LargeSums(net, query).interval(scale)
        true = listed(net, query, scale)
        assert lower <= true * (1 + 1e-12) <= upper * (1 + 1e-9)
        if len(net.parts) == 1:
            assert upper - lower < 1e-6


@pytest.mark.parametrize("seed", range(6))
def test_masses_are_those_of_all_outcomes(seed: int) -> None:
    net = random_network(seed + 50, 7, values=2, zeros=0.3 * (seed % 2), density=0.6)
    query = points(net, seed)
    law, sums = joint_of(net), answers(net, query).ravel()
    for part in (followed.laws for followed in large.sum_laws(net, query)):
        own = [v for group in net.parts if int(part.owner[0]) in group for v in group]
        low = sum(min(query.multiples()[v]) for v in own)
        rest = [v for v in range(len(net.variables)) if v not in own]
        places = np.indices(law.shape).reshape(law.ndim, -1)
        others = sum((np.array(query.multiples()[v])[places[v]] for v in rest), np.zeros(law.size))
        code = ((sums - others - low) / part.unit).round().astype(int)
        for low_row, high_row, name in zip(part.low, part.high, part.names, strict=True):
            variable, value = name.split(" = ")
            v = net.variables.index(variable)
            weight = np.where(places[v] == net.domains[v].index(value), law.ravel(), 0.0)
            mass = np.bincount(code, weight, minlength=len(low_row)) / weight.sum()
            assert (low_row <= mass * (1 + 1e-12)).all()
            assert (mass <= high_row * (1 + 1e-12)).all()
            assert (high_row - low_row).max() <= 1e-10


def dense(seed: int) -> BayesNet:
    """A connected network with a variable that ties four others, and what hangs on it."""
    return random_network(seed, 9, values=2, density=0.75)


def test_left_out_variables_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds hold with variables left out, and would not if they cost nothing."""
    missed = used = 0
    for seed in range(12):
        net = dense(seed)
        query = points(net, seed)
        search = large_runs._DroppedVariables(net, net.parts[0], _weights(query))
        whole = search.order(frozenset()).cells
        smaller = large_runs.RunSettings(max_table_cells=whole * 0.6, min_variables_per_dropped=1)
        monkeypatch.setattr(large_runs, "RUNS", smaller)
        large.sum_laws.cache_clear()
        try:
            parts = [followed.laws for followed in large.sum_laws(net, query)]
        except TooLarge:
            continue
        used += any(part.left_out for part in parts)
        asked = {int(v) for part in parts for v in part.owner}
        assert asked == set(range(len(net.variables)))  # every variable is a secret
        for scale in (4.0, 15.0):
            true = listed(net, query, scale)
            lower, upper = LargeSums(net, query).interval(scale)
            assert lower <= true <= upper + 1e-9
            free = max(part._replace(left_out=0).interval(scale)[1] for part in parts)
            missed += free < true - 1e-9
    large.sum_laws.cache_clear()
    assert used >= 5
    assert missed >= 1


@pytest.mark.parametrize("scale", [0.7, 5.0, 2e6])
def test_what_is_left_out_costs_all_it_can_move(scale: float) -> None:
    """A copy of three times the weight: 4 / scale is lost, and no smaller price would cover it."""
    net = BayesNet.of({"a": [0.5, 0.5], "b": [[1.0, 0.0], [0.0, 1.0]]}, parents={"b": ["a"]})
    query = shoal.variable_sum(net, {"a": {"1": 1}, "b": {"1": 3}})
    weights = _weights(query)
    run = large_runs._DroppedVariables(net, net.parts[0], weights).run(frozenset({1}), [0])
    lower, upper = large.TiltedSumLaws(net, run, weights).laws.interval(scale)
    assert lower <= 4 / scale <= upper <= 4 / scale * (1 + 1e-6)


def _weights(query: VariableSum) -> list[np.ndarray]:
    return [np.array(row) - min(row) for row in query.multiples()]


def test_what_is_left_out_holds_all_that_depends_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_runs, "RUNS", large_runs.RunSettings(min_variables_per_dropped=1))
    net = dense(3)
    search = large_runs._DroppedVariables(net, net.parts[0], _weights(points(net, 3)))
    search.most = search.order(frozenset()).cells * 0.7
    gone = search.enough(frozenset(), frozenset())
    assert gone
    assert all(not set(net.above[v]) & gone or v in gone for v in range(len(net.variables)))


def test_too_unlikely_a_value_is_refused() -> None:
    net = BayesNet.of(
        {"a": [1 - 1e-300, 1e-300], "b": [[0.5, 0.5], [0.2, 0.8]]}, parents={"b": ["a"]}
    )
    query = shoal.variable_sum(net, {"a": {"1": 1}, "b": {"1": 1}})
    with pytest.raises(TooLarge, match="below 1e-250"):
        large.sum_laws(net, query)
    sure = BayesNet.of({"a": [1.0, 0.0], "b": [[0.5, 0.5], [0.2, 0.8]]}, parents={"b": ["a"]})
    assert LargeSums(sure, query).loss(5.0) > 0  # what is impossible is no secret


def test_so_little_noise_that_rounding_shows_is_refused() -> None:
    net = random_network(5, 7, density=0.4)
    assert LargeSums(net, points(net, 5)).loss(1e-3) == math.inf


@pytest.mark.parametrize("seed", range(4))
def test_tilts_and_windows_hold_every_mass(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masses far out are known relatively, under tilts towards them, and what a window leaves out
    is within the bounds; the true masses are those of a convolution."""
    monkeypatch.setattr(large, "LARGE_SUMS", large.LargeSumSettings(max_narrow_width=8))
    large.sum_laws.cache_clear()
    rng = np.random.default_rng(seed)
    count = 40
    chances = rng.uniform(0.02, 0.5, count)
    tables: dict[str, Any] = {"v0": [1 - chances[0], chances[0]]}
    for v in range(1, count):
        tied = np.array([chances[v], min(chances[v] * 1.5, 0.9)])
        tables[f"v{v}"] = np.stack([1 - tied, tied], axis=-1)
    net = BayesNet.of(tables, parents={f"v{v}": [f"v{v - 1}"] for v in range(1, count)})
    query = shoal.count(("0", "1"), "1")
    (followed,) = large.sum_laws(net, query)
    convolved = independent_parts(net, query, shoal.EachEntry()).parts[0].laws
    assert followed.laws.names == convolved.names
    wide = LargeSums(net, query).interval(0.4)
    true = secret_loss(convolved, 0.4)
    assert wide[0] <= true <= wide[1] <= true * (1 + 1e-4)
    assert len(followed._tilts_used) > 1  # rounding hides the tails: tilts were needed
    low, high = followed.laws.low, followed.laws.high
    assert (low <= convolved.laws * (1 + 1e-9)).all()
    assert (convolved.laws <= high * (1 + 1e-9)).all()
    assert (high < 1e-14).any()  # far below what one law is known up to
    large.sum_laws.cache_clear()


def test_a_window_that_leaves_out_too_much_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with half of the values left out unseen, the bounds miss true masses."""
    monkeypatch.setattr(large.TiltedSumLaws, "_window", lambda self, tilt: (0, 11, 1e-12))
    large.sum_laws.cache_clear()
    net = dense(5)
    query = points(net, 5)
    (followed,) = large.sum_laws(net, query)
    convolved = independent_parts(net, query, shoal.EachEntry()).parts[0].laws
    assert (convolved.laws > followed.laws.high[:, : convolved.laws.shape[1]] + 1e-9).any()
    large.sum_laws.cache_clear()


# The networks of the literature.


def counted(net: BayesNet, *, last: bool = False) -> VariableSum:
    """How many variables are not in their first value, or in their last one."""
    values = {
        name: domain[-1:] if last else domain[1:]
        for name, domain in zip(net.variables, net.domains, strict=True)
    }
    return shoal.variable_sum(net, {name: dict.fromkeys(own, 1) for name, own in values.items()})


@pytest.mark.parametrize("name", ["hailfinder", "win95pts", "hepar2"])
def test_both_ways_agree_on_networks_of_the_literature(name: str) -> None:
    """By convolution and by characteristic functions: two ways to the same loss."""
    net = literature(name)
    query = counted(net)
    convolved = network_answers(net, query, shoal.EachEntry())
    assert not isinstance(convolved, str | LargeSums)
    scale = convolved.least_scale(1.0).scale
    lower, upper = LargeSums(net, query).interval(scale)
    assert lower <= convolved.loss(scale) <= upper
    assert upper - lower < 1e-4
    assert scale * 5 <= net.records


def test_andes_needs_a_twentieth_of_group_noise() -> None:
    net = literature("andes")
    plan = shoal.calibrate(counted(net), shoal.EachEntry(), net, epsilon=1)
    assert plan.mechanism == "exact"
    assert float(plan.body.noise.scale) == pytest.approx(8.827, abs=0.01)  # type: ignore[union-attr]
    assert shoal.audit(plan).upper <= 1.0


def test_an_audit_of_little_noise_takes_the_bound_of_the_lift(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without tilts masses below 1e-11 are not followed, and walks of influence bound what such
    noise tells; with them the loss itself is known."""
    monkeypatch.setattr(large, "LARGE_SUMS", large.LargeSumSettings(tilts=()))
    large.sum_laws.cache_clear()
    net = lattice(12, 0.05)
    query = shoal.count("01", "1")
    plan = shoal.calibrate(query, shoal.EachEntry(), net, epsilon=1, mechanism="lift")
    laws = network_answers(net, query, shoal.EachEntry())
    assert isinstance(laws, LargeSums)
    found = shoal.audit(plan)
    assert found.upper == pytest.approx(1.0, abs=1e-6)
    monkeypatch.undo()
    large.sum_laws.cache_clear()
    known = shoal.audit(plan)
    assert found.lower <= known.lower <= known.upper <= found.upper
    assert known.upper - known.lower < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "last", "scale"), [("pigs", False, 47.07), ("munin1", True, 37.2)]
)
def test_large_networks_need_a_fifth_of_group_noise(name: str, last: bool, scale: float) -> None:
    net = literature(name)
    query = counted(net, last=last)
    plan = shoal.calibrate(query, shoal.EachEntry(), net, epsilon=1, mechanism="exact")
    assert float(plan.body.noise.scale) <= scale + 0.01  # type: ignore[union-attr]
    assert scale * 5 <= net.records
