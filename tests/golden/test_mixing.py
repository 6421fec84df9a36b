"""Golden numbers of the quilt bound from two constants: Song, Wang & Chaudhuri 2017, 4.4.2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.quilt.scale import (
    ChainConstants,
    bound_loss,
    bound_scale,
    chain_constants,
    interval_constants,
)

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "data" / "quilt.json").read_text()
)


def cases(*prefixes: str) -> list[Any]:
    return [pytest.param(c, id=c["id"]) for c in CASES if c["id"].startswith(prefixes)]


def constants(case: dict[str, Any]) -> ChainConstants:
    return chain_constants(np.array(case["inputs"]["P"], dtype=np.float64))


@pytest.mark.parametrize("case", cases("rnd.mqm_approx", "001.approx.run", "001.lem49"))
def test_bound_scale(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    summary = inputs["pi_min"], inputs["g"], inputs["T"]
    found = bound_scale(*summary, inputs["eps"])
    assert found.sigma == pytest.approx(case["expected"]["sigma_max"], rel=1e-8)
    assert found.sigma >= case["expected"]["sigma_max"]
    assert bound_loss(*summary, 1 / found.sigma) <= inputs["eps"]


@pytest.mark.parametrize("case", cases("001.approx.run"))
def test_first_worst_node_and_its_quilt(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    found = bound_scale(inputs["pi_min"], inputs["g"], inputs["T"], inputs["eps"])
    assert found.node is not None
    assert found.left is not None
    assert found.right is not None
    assert found.node + 1 == expected["node"]
    assert [found.node + 1 - found.left, found.node + 1 + found.right] == expected["quilt"]


@pytest.mark.parametrize("case", cases("001.lem49"))
def test_long_chains_need_no_more_than_the_lemma_allows(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    for length in (inputs["T"], 10_000, 1_000_000, None):
        found = bound_scale(inputs["pi_min"], inputs["g"], length, inputs["eps"])
        assert found.sigma == pytest.approx(expected["sigma_max"], rel=1e-9)
        assert found.left is not None
        assert found.right is not None
        assert found.left + found.right <= 4 * expected["a_star"]


@pytest.mark.parametrize("case", cases("rnd.chainconst", "001.lemC2.cex"))
def test_chain_constants(case: dict[str, Any]) -> None:
    found, expected = constants(case), case["expected"]
    assert found.law == pytest.approx(expected["pi"], abs=1e-6)
    if expected["pi"][0] < 1e-9 or min(expected["pi"]) < 1e-9:
        assert found.refusal is not None
        assert "stationary probability 0" in found.refusal
        return
    assert found.reversible is expected.get("reversible", False)
    field = "gap_eq14_printed" if found.reversible else "gap_PPstar_multiplicity"
    gap = expected.get(field, expected.get("g_with_multiplicity"))
    assert found.gap == pytest.approx(gap, abs=1e-6)
    assert found.gap <= gap + 1e-15


@pytest.mark.parametrize("case", cases("001.approx.breach", "001.lemC2.cex"))
def test_repeated_eigenvalue_is_refused(case: dict[str, Any]) -> None:
    """Erratum S: the printed gap .75 drops a repeated eigenvalue 1; 12 states then lose 3.27."""
    found = constants(case)
    assert found.gap == 0.0
    assert found.refusal is not None
    assert "counted with multiplicity" in found.refusal
    inputs, expected = case["inputs"], case["expected"]
    if "correct_sigma" in expected:
        safe = bound_scale(found.pi_min, found.gap, inputs["T"], inputs["eps"])
        assert safe.sigma == pytest.approx(expected["correct_sigma"], rel=1e-9)
        printed = bound_scale(found.pi_min, 0.75, inputs["T"], inputs["eps"])
        assert printed.sigma == pytest.approx(expected["sigma_printed_g"], rel=1e-9)
        assert expected["exact_loss"] > inputs["eps"]  # of the printed scale


def test_a_gap_of_zero_leaves_no_noise_for_any_length() -> None:
    assert bound_scale(0.1, 0.0, None, 1.0).sigma == float("inf")


GRID = next(case for case in CASES if case["id"] == "001.sec52.grid")["expected"]["rows"]


@pytest.mark.parametrize("row", GRID, ids=lambda row: f"{row['alpha']}-{row['eps']}")
def test_interval_families(row: dict[str, Any]) -> None:
    alpha = row["alpha"]
    summary = interval_constants((alpha, alpha), (1 - alpha, 1 - alpha))
    found = bound_scale(*summary, row["T"], row["eps"])
    assert found.sigma / row["T"] == pytest.approx(row["MQMApprox_reversible"], rel=1e-8)


@pytest.mark.parametrize(
    ("q", "p", "scale"),
    [
        (0.5, 0.5, 8.9730),
        (0.4, 0.6, 11.5368),
        (0.3, 0.7, 15.5724),
        (0.1, 0.9, 49.2202),
        (0.3, 0.4, 11.2505),
    ],
)
def test_reference_scales_of_stationary_chains(q: float, p: float, scale: float) -> None:
    """MATHS section 1: M = [[1-q, q], [1-p, p]], epsilon = 1, T = 100."""
    found = chain_constants(np.array([[1 - q, q], [1 - p, p]]))
    assert bound_scale(found.pi_min, found.gap, 100, 1.0).sigma == pytest.approx(scale, abs=5e-5)


def test_reducible_chains_are_refused() -> None:
    found = chain_constants(np.eye(3))
    assert found.refusal is not None
    assert found.refusal.startswith("the chain is reducible")
