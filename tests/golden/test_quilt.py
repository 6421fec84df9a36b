"""Published numbers of Markov quilts on chains: Song, Wang & Chaudhuri 2017, Sections 4 and 5."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import stationary_law
from shoal.chains.quilt.influence_matrix import influence_matrix_scale
from shoal.chains.quilt.nodes import max_influence
from shoal.chains.quilt.scale import interval_scale, node_scales, quilt_loss, quilt_scale, two_state
from shoal.core.codec import Floats

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "quilt.json").read_text()
)


def cases(prefix: str) -> list[Any]:
    return [pytest.param(c, id=c["id"]) for c in CASES if c["id"].startswith(prefix)]


def array(values: Any) -> Floats:
    return np.array(values, dtype=np.float64)


@pytest.mark.parametrize("case", cases("rnd.mqm_exact"))
def test_every_node_of_short_chains(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    largest = 0.0
    for theta, scores in zip(inputs["thetas"], expected["sigma_i"], strict=True):
        found = quilt_scale(array(theta["P"]), array(theta["q"]), inputs["T"], inputs["eps"])
        assert found.scores == pytest.approx(scores, rel=case["tolerance"])
        assert found.sigma == max(found.scores)
        largest = max(largest, found.sigma)
    assert largest == pytest.approx(expected["sigma_max"], rel=case["tolerance"])


@pytest.mark.parametrize("case", cases("rnd.influence"))
def test_influence_on_any_set_of_nodes(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    quilt = [node - 1 for node in inputs["quilt"]]
    found = max_influence(array(inputs["P"]), array(inputs["q"]), inputs["node"] - 1, quilt)
    assert found == pytest.approx(case["expected"]["e"], abs=case["tolerance"])


@pytest.mark.parametrize("case", cases("001.run"))
def test_running_example_is_the_true_minimum(case: dict[str, Any]) -> None:
    """The paper prints 13.0219 for theta 1; Definition 4.1 gives 12.9341 with {X1, X13}."""
    inputs, expected = case["inputs"], case["expected"]
    chain = array(inputs["P"]), array(inputs["q"]), inputs["T"]
    found = quilt_scale(*chain, inputs["eps"])
    assert found.sigma == pytest.approx(expected["sigma_max_def41"], rel=1e-9)
    node = expected["node_def41"]
    assert found.node == node - 1
    ends = [node - found.left] if found.left else []
    ends += [node + found.right] if found.right else []
    assert ends == expected["quilt_def41"]
    first = node_scales(*chain, inputs["eps"], range(12))
    assert first == pytest.approx(expected["sigma_i_def41"], rel=1e-9)
    assert quilt_loss(*chain, 1 / found.sigma) <= inputs["eps"]


@pytest.mark.parametrize("length", [1_000, 10_000, 1_000_000, None])
@pytest.mark.parametrize("case", cases("001.run"))
def test_running_example_does_not_change_with_length(
    case: dict[str, Any], length: int | None
) -> None:
    inputs = case["inputs"]
    found = quilt_scale(array(inputs["P"]), array(inputs["q"]), length, inputs["eps"])
    assert found.sigma == pytest.approx(case["expected"]["sigma_max_def41"], rel=1e-9)
    assert len(found.runs) < 10


@pytest.mark.parametrize("case", cases("001.ell"))
def test_reach_is_the_distance_of_the_end_points(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    chain = array(inputs["P"]), array(inputs["q"]), inputs["T"]
    found = quilt_scale(*chain, inputs["eps"], inputs["ell"])
    assert found.sigma == pytest.approx(expected["sigma_endpoint_distance"], rel=1e-9)
    assert found.node == expected["node_endpoint"] - 1


@pytest.mark.parametrize("case", cases("001.comp"))
def test_scores_of_the_composition_example(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    transition, initial, node = array(inputs["P"]), array(inputs["q"]), inputs["node"] - 1
    sizes = [3, 2, 2, 1]
    for quilt, influence, score, size in zip(
        expected["quilts"], expected["influences"], expected["scores"], sizes, strict=True
    ):
        found = max_influence(transition, initial, node, [other - 1 for other in quilt])
        assert found == pytest.approx(influence, abs=1e-9)
        assert size / (inputs["eps"] - found) == pytest.approx(score, rel=1e-9)
    least = node_scales(transition, initial, inputs["T"], inputs["eps"], range(node, node + 1))
    assert least == pytest.approx([min(expected["scores"])], rel=1e-9)


def test_two_releases_cost_less_than_their_sum() -> None:
    """MATHS section 1: plans at epsilon 1 and 2 on this chain cost 2.485 together, not 4."""
    transition = array([[0.9, 0.1], [0.4, 0.6]])
    chain = transition, stationary_law(transition), 100
    eta = sum(1 / quilt_scale(*chain, epsilon).sigma for epsilon in (1.0, 2.0))
    assert quilt_loss(*chain, eta) == pytest.approx(2.485, abs=5e-4)


GRID = next(case for case in CASES if case["id"] == "001.sec52.grid")["expected"]["rows"]


@pytest.mark.parametrize("row", GRID, ids=lambda row: f"{row['alpha']}-{row['eps']}")
def test_interval_families_with_every_initial_law(row: dict[str, Any]) -> None:
    """Section 5.2: p0, p1 in [alpha, 1 - alpha], T = 100; the supremum is at a corner."""
    alpha, length = row["alpha"], row["T"]
    found = interval_scale((alpha, alpha), (1 - alpha, 1 - alpha), length, row["eps"])
    assert found.result.sigma / length == pytest.approx(row["MQMExact_sigma_over_T"], rel=1e-9)
    assert found.corner in {(alpha, alpha), (1 - alpha, 1 - alpha)}


REFERENCE = [
    ((0.5, 0.5), 1.0000, 2.0000),
    ((0.4, 0.6), 3.5718, 3.8873),
    ((0.3, 0.7), 6.7236, None),
    ((0.1, 0.9), 31.7378, None),
    ((0.3, 0.4), 2.3550, 2.8683),
]


@pytest.mark.parametrize(("chain", "exact", "matrix"), REFERENCE)
def test_reference_scales_of_stationary_chains(
    chain: tuple[float, float], exact: float, matrix: float | None
) -> None:
    """MATHS section 1: M = [[1-q, q], [1-p, p]], epsilon = 1, T = 100."""
    q, p = chain
    transition = array([[1 - q, q], [1 - p, p]])
    law = stationary_law(transition)
    assert quilt_scale(transition, law, 100, 1.0).sigma == pytest.approx(exact, abs=5e-5)
    found = influence_matrix_scale(transition, law, 100, 1.0)
    if matrix is None:
        assert found.refusal is not None
        assert found.refusal.endswith("it must be below 1")
    else:
        assert found.scale == pytest.approx(matrix, abs=5e-5)


@pytest.mark.parametrize("row", [r for r in GRID if r["eps"] == 1.0], ids=lambda r: r["alpha"])
def test_influence_matrix_on_the_worst_corner(row: dict[str, Any]) -> None:
    found = influence_matrix_scale(
        two_state(1 - row["alpha"], 1 - row["alpha"]), array([0.5, 0.5]), row["T"], 1.0
    )
    assert found.norm == pytest.approx(row["GK16_norm_half"], rel=1e-8)
    if row["GK16_scale_half"] is None:
        assert found.refusal is not None
    else:
        assert found.scale / row["T"] == pytest.approx(row["GK16_scale_half"], rel=1e-8)


def test_threshold_of_the_influence_matrix() -> None:
    """001.gk16.threshold: applies from alpha = 0.3218593 on, T = 100."""
    case = next(case for case in CASES if case["id"] == "001.gk16.threshold")
    threshold = case["expected"]["alpha_half"]
    for alpha, applies in ((threshold - 1e-6, False), (threshold + 1e-6, True)):
        chain = two_state(1 - alpha, 1 - alpha), array([0.5, 0.5])
        assert (influence_matrix_scale(*chain, 100, 1.0).refusal is None) is applies
