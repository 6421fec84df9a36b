"""Wasserstein distances against linear programs and subsets written out."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from shoal.chains.exact.answers import sum_transport
from shoal.chains.exact.sums import chain_sum
from shoal.core.errors import InputError
from shoal.mechanisms.answer_laws import bottleneck, quantile_gap
from shoal.mechanisms.mixture import TooLarge, mixture_loss
from tests.oracle.test_exact_loss import given_laws, paths


def hall(points: npt.NDArray[np.float64], law: list[Fraction], other: list[Fraction]) -> float:
    """The least r with law(S) ≤ other(within r of S) for every set S of points."""
    gaps = np.abs(points[:, None] - points[None]).sum(axis=2)
    members = [i for i, mass in enumerate(law) if mass]
    needed = 0.0
    for count in range(1, len(members) + 1):
        for chosen in combinations(members, count):
            near = gaps[list(chosen)].min(axis=0)
            total = sum(law[i] for i in chosen)
            for radius in sorted(set(near)):
                if sum(other[j] for j in range(len(other)) if near[j] <= radius) >= total:
                    needed = max(needed, float(radius))
                    break
    return needed


def random_law(rng: np.random.Generator, count: int) -> list[Fraction]:
    parts = [int(part) for part in rng.integers(0, 5, size=count)]
    parts[int(rng.integers(count))] += 1
    return [Fraction(part, sum(parts)) for part in parts]


@pytest.mark.parametrize("seed", range(25))
def test_vector_transport_meets_hall_s_condition_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = np.unique(rng.integers(0, 5, size=(7, 2)), axis=0).astype(np.float64)
    law, other = random_law(rng, len(points)), random_law(rng, len(points))
    expected = hall(points, law, other)
    assert bottleneck(points, law, other) == expected
    assert bottleneck(points, [float(p) for p in law], [float(p) for p in other]) == expected


@pytest.mark.parametrize("seed", range(25))
def test_on_the_line_quantiles_and_flows_agree(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    values = sorted({int(v) for v in rng.integers(-9, 9, size=8)})
    law, other = random_law(rng, len(values)), random_law(rng, len(values))
    points = np.array(values, dtype=np.float64)[:, None]
    assert quantile_gap(values, law, other) == bottleneck(points, law, other)


@pytest.mark.parametrize("seed", range(10))
def test_sums_of_chains_against_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, length = 2 + seed % 2, int(rng.integers(1, 6))
    initial = rng.dirichlet(np.ones(size))
    matrices = rng.dirichlet(np.ones(size), size=(1, size))
    weights = [0, 2, -3][:size]
    expected = 0.0
    for laws in given_laws(paths(initial, matrices, length), weights, list(range(size))):
        for one, two in combinations(laws, 2):
            values = sorted({*one, *two})
            sides = [[side.get(v, 0.0) for v in values] for side in (one, two)]
            expected = max(expected, float(quantile_gap(values, *sides)))
    found = sum_transport(chain_sum(initial, matrices[0], weights, length, step=0.5))
    assert found.distance == pytest.approx(expected * 0.5, abs=1e-12)


def test_a_tail_of_1e_16_does_not_decide_but_the_loss_still_sees_it() -> None:
    law, other = [1.0, 0.0, 0.0, 1e-16], [0.0, 1.0, 0.0, 0.0]
    assert quantile_gap(range(4), law, other) == 1
    assert quantile_gap(range(4), [Fraction(p) for p in law], [0, 1, 0, 0]) == 2
    assert mixture_loss([law, other], 0.02) > 50 + 1  # so noise of scale W/50 must be refused


def test_rounding_in_the_tails_does_not_decide_the_distance_of_a_sum() -> None:
    # independent entries: one entry moves the sum by exactly 1, however long the tails
    rows = [[0.7, 0.3], [0.7, 0.3]]
    assert sum_transport(chain_sum([0.7, 0.3], rows, [0, 1], 60)).distance == 1


def test_long_chains_and_wide_laws_are_refused_with_the_limit() -> None:
    rows = [[0.9, 0.1], [0.4, 0.6]]
    with pytest.raises(TooLarge, match="length 100000 with 2 states is beyond 5e"):
        sum_transport(chain_sum([0.8, 0.2], rows, [0, 1], 100_000))
    with pytest.raises(TooLarge, match="length None"):
        sum_transport(chain_sum([0.8, 0.2], rows, [0, 1], None))
    with pytest.raises(TooLarge, match="one initial law"):
        sum_transport(chain_sum(None, rows, [0, 1], 5))
    wide = [1 / 300] * 300
    with pytest.raises(TooLarge, match="300 and 300 values"):
        bottleneck([[i] for i in range(300)], wide, wide)
    with pytest.raises(InputError, match="values must increase"):
        quantile_gap([1, 0], [0.5, 0.5], [0.5, 0.5])
