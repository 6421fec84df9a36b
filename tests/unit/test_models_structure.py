"""What a transition matrix implies: stationary law, classes, reversibility and the gap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import (
    MarkovChain,
    communicating_classes,
    is_reversible,
    recurrent_classes,
    spectral_gap,
    stationary_law,
)
from shoal.core.walk import time_reversal

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "data" / "chainconst.json").read_text()
)
CONSTANTS = [case for case in GOLDEN if case["id"].startswith("rnd.chainconst")]


@pytest.mark.parametrize("case", CONSTANTS, ids=lambda case: case["id"])
def test_constants_of_random_chains(case: dict[str, Any]) -> None:
    matrix = MarkovChain.of(case["inputs"]["P"], initial="stationary").transition
    law, expected = stationary_law(matrix), case["expected"]
    assert law == pytest.approx(expected["pi"], abs=case["tolerance"])
    transient = np.array(expected["pi"]) < 1e-12
    assert (law[transient] == 0).all()  # exactly, not within rounding
    if not transient.any():
        assert is_reversible(matrix) == expected["reversible"]
        key = "gap_eq14_printed" if expected["reversible"] else "gap_PPstar_multiplicity"
        assert spectral_gap(matrix) == pytest.approx(expected[key], abs=case["tolerance"])


def test_a_repeated_eigenvalue_counts() -> None:
    # Song, Wang & Chaudhuri 2017, Lemma C.2 as printed drops it and is false (errata 001.lemC2.cex)
    (case,) = (case for case in GOLDEN if case["id"] == "001.lemC2.cex")
    matrix = np.array(case["inputs"]["P"])
    expected = case["expected"]
    assert stationary_law(matrix) == pytest.approx(expected["pi"], abs=1e-12)
    assert expected["g_printed"] == pytest.approx(0.75)
    assert spectral_gap(matrix) == 0.0
    deviation = np.abs(np.linalg.matrix_power(matrix, 4) / stationary_law(matrix) - 1).max()
    assert deviation == pytest.approx(expected["deviation"], abs=1e-12)
    assert deviation > expected["Delta_printed"]  # what the printed lemma would have promised


@pytest.mark.parametrize(
    ("matrix", "gap"),
    [
        ([[1, 0], [0, 1]], 0.0),  # two recurrent classes: it never forgets where it began
        ([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]], 0.0),
        ([[1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]], 0.0),
        ([[0, 1], [1, 0]], 0.0),  # periodic
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], 0.0),
        ([[0.5, 0.5], [0.5, 0.5]], 2.0),
        ([[0.9, 0.1], [0.4, 0.6]], 1.0),
        ([[1.0]], 1.0),
    ],
)
def test_gaps_known_by_hand(matrix: Any, gap: float) -> None:
    found = spectral_gap(np.array(matrix, dtype=float))
    assert found == pytest.approx(gap, abs=1e-9)
    assert found <= gap  # rounds down
    assert (found == 0) == (gap == 0)


def test_a_cycle_among_rare_states_is_not_taken_for_reversible() -> None:
    # flows of 1e-10 around a cycle: an absolute tolerance would call this chain reversible
    away, back = 1e-12, 0.01
    matrix = np.array(
        [[1 - away, away, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [back, 1 - back, 0, 0]], dtype=float
    )
    assert not is_reversible(matrix)
    assert spectral_gap(matrix) == 0.0


def test_the_gap_is_the_one_of_eigenvalues_with_multiplicity() -> None:
    rng = np.random.default_rng(11)
    for size in (2, 3, 5, 8):
        matrix = rng.dirichlet(np.ones(size), size)
        law = stationary_law(matrix)
        backward = (law[:, None] * matrix).T / law[:, None]
        if size > 2:
            values = np.sort(np.linalg.eigvals(matrix @ backward).real)
            assert spectral_gap(matrix) == pytest.approx(1 - values[-2], abs=1e-9)
        symmetric = matrix + matrix.T + np.diag(np.full(size, 2.0))
        reversible = symmetric / symmetric.sum(axis=1, keepdims=True)
        assert is_reversible(reversible)
        moduli = np.sort(np.abs(np.linalg.eigvals(reversible)))
        assert spectral_gap(reversible) == pytest.approx(2 * (1 - moduli[-2]), abs=1e-9)


@pytest.mark.parametrize(
    ("matrix", "classes", "recurrent"),
    [
        ([[1, 0], [0, 1]], ((0,), (1,)), ((0,), (1,))),
        ([[0.5, 0.5], [0, 1]], ((0,), (1,)), ((1,),)),
        ([[0, 1], [1, 0]], ((0, 1),), ((0, 1),)),
        ([[0, 0.5, 0.5], [0, 0.5, 0.5], [0, 1, 0]], ((0,), (1, 2)), ((1, 2),)),
        ([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]], ((0, 2), (1,)), ((0, 2), (1,))),
        ([[1e-300, 1.0], [1.0, 0.0]], ((0, 1),), ((0, 1),)),
    ],
)
def test_classes_known_by_hand(
    matrix: Any, classes: tuple[Any, ...], recurrent: tuple[Any, ...]
) -> None:
    array = np.array(matrix, dtype=float)
    assert communicating_classes(array) == classes
    assert recurrent_classes(array) == recurrent
    chain = MarkovChain.of(array, initial=np.eye(len(array))[0])
    assert chain.communicating_classes() == classes


def test_the_stationary_law_is_kept_and_transient_states_get_none() -> None:
    matrix = np.array([[0.2, 0.4, 0.4], [0.0, 0.6, 0.4], [0.0, 0.3, 0.7]])
    law = stationary_law(matrix)
    assert law[0] == 0.0
    assert law @ matrix == pytest.approx(law, abs=1e-15)
    assert MarkovChain.of(matrix).stationary_law() == pytest.approx(law, abs=0)


def test_small_probabilities_keep_their_relative_accuracy() -> None:
    tiny = 1e-18
    matrix = np.array([[1 - tiny, tiny], [0.5, 0.5]])
    assert stationary_law(matrix)[1] == pytest.approx(tiny / 0.5, rel=1e-12)


def test_reversibility_is_judged_class_by_class() -> None:
    assert MarkovChain.of([[1, 0], [0, 1]], initial=[0.5, 0.5]).reversible
    assert MarkovChain.of([[0.9, 0.1], [0.4, 0.6]]).reversible
    assert not MarkovChain.of([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.0, 0.5]]).reversible
    assert not MarkovChain.of([[[0.5, 0.5], [0.5, 0.5]]], initial=[0.5, 0.5], length=2).reversible


def test_time_reversal_gives_nothing_to_impossible_states() -> None:
    rows = time_reversal(np.array([[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]), np.array([1.0, 0, 0]))
    assert rows.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
