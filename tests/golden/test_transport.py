"""W-infinity against exact answers on rationals, and the paper's examples."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from shoal.chains.exact.answers import sum_transport
from shoal.chains.exact.sums import chain_sum
from shoal.mechanisms.answer_laws import bottleneck, quantile_gap
from shoal.mechanisms.mixture import mixture_loss

DATA = Path(__file__).parent / "data"
PAIRS: list[dict[str, Any]] = json.loads((DATA / "winf.json").read_text())["cases"]
CHAINS: list[dict[str, Any]] = json.loads((DATA / "wmech.json").read_text())["cases"]


def _on_one_grid(case: dict[str, Any]) -> tuple[list[int], list[Fraction], list[Fraction]]:
    points = {int(value) for side in ("mu", "nu") for value in case[side]}
    values = list(range(min(points), max(points) + 1))
    laws = [[Fraction(case[side].get(str(v), 0)) for v in values] for side in ("mu", "nu")]
    return values, laws[0], laws[1]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: str(case["id"]))
def test_the_distance_is_exact_on_rationals_and_the_same_in_floats(case: dict[str, Any]) -> None:
    values, law, other = _on_one_grid(case)
    exact = quantile_gap(values, law, other)
    assert exact == case["distance"]
    assert isinstance(exact, int | Fraction)
    floats = quantile_gap(values, [float(p) for p in law], [float(p) for p in other])
    assert floats == case["distance"]  # ties of cumulative sums are within the tolerance
    points = [[value] for value in values]
    assert bottleneck(points, law, other) == case["distance"]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: str(case["id"]))
def test_noise_of_that_scale_meets_epsilon_1(case: dict[str, Any]) -> None:
    _, law, other = _on_one_grid(case)
    loss = mixture_loss([[float(p) for p in side] for side in (law, other)], case["distance"])
    assert loss == pytest.approx(case["loss"], abs=1e-9)
    assert case["loss"] - 1e-14 <= loss <= 1 + 1e-9


@pytest.mark.parametrize("case", CHAINS, ids=lambda case: str(case["id"]))
def test_the_sum_of_a_binary_chain(case: dict[str, Any]) -> None:
    initial = [float(Fraction(p)) for p in case["initial"]]
    transition = [[float(Fraction(p)) for p in row] for row in case["transition"]]
    task = chain_sum(initial, transition, [0, 1], case["length"])
    assert sum_transport(task).distance == case["distance"]


def test_flu_status_of_a_clique_of_four() -> None:
    # Song, Wang & Chaudhuri 2017, Section 3.1: W = 2, half of what group privacy needs
    given_0 = [Fraction(p) for p in ("1/5", "9/40", "1/2", "3/40", "0")]
    assert quantile_gap(range(5), given_0, given_0[::-1]) == 2


@pytest.mark.parametrize(("size", "distance"), [(4, 2), (6, 3)])
def test_flu_with_exponential_infections(size: int, distance: int) -> None:
    # Section 2.2: N = j infected with probability ∝ e^{2j}, spread evenly over the clique
    chance = [math.exp(2 * j) for j in range(size + 1)]
    given_1 = [p * j / size for j, p in enumerate(chance)]
    given_0 = [p * (size - j) / size for j, p in enumerate(chance)]
    assert quantile_gap(range(size + 1), given_0, given_1) == distance
