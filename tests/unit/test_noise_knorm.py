"""Lattice K-norm noise: compiled attempts mean what exact ones do, and edge cases."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.core.errors import InputError
from shoal.geometry.body import Body, symmetric_hull
from shoal.noise import knorm_kernels as kernels
from shoal.noise.knorm import (
    LatticeKNorm,
    Staircase,
    Uniform,
    best_width,
    exact_attempt,
    geometric,
    radial_moment,
)
from shoal.noise.primitives import LatticeEmission, SeededRng, SystemRng, exp_bounds

BODIES = {
    "paper": symmetric_hull([[4, 1], [3, 0], [1, -1], [1, 1]]),
    "sliver": symmetric_hull([[1000, 3], [1001, 4]]),
    "fine": symmetric_hull(np.array([[3, 4], [5, 1], [0, 5]]) * 10**5),
    "far": symmetric_hull([[2**29, 1], [5, 2**29 - 7], [2**28, -(2**28)]]),
    "unit": symmetric_hull([[1, 0], [0, 1]]),
    "tilted plane in space": symmetric_hull([[3, 1, 0], [0, 2, 5]]),
}
EPSILONS = [Fraction(1, 7), Fraction(1), Fraction(5)]


def compiled(noise: LatticeKNorm, words: NDArray[np.uint64]) -> tuple[int, int, int]:
    proposal = noise.proposal
    verdict, x, y = kernels.plane_attempt(
        words, float(noise.epsilon), proposal.shares, proposal.outwards, noise.body.flat
    )
    return int(verdict), int(x), int(y)


@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
@pytest.mark.parametrize("name", BODIES)
def test_compiled_attempts_are_the_exact_ones(name: str, epsilon: Fraction) -> None:
    noise = LatticeKNorm(body=BODIES[name], epsilon=epsilon)
    rng = SeededRng(3)
    verdicts = []
    for words in rng.words(3 * 300).reshape(-1, 3):
        verdict, x, y = compiled(noise, words)
        verdicts.append(verdict)
        if verdict == kernels.UNDECIDED:
            continue
        row = exact_attempt(words.tolist(), noise.body, epsilon, noise.proposal, rng)
        assert row == (None if verdict == kernels.REJECTED else (x, y))
    if name != "far":  # beyond 2^31 attempts are handed back
        assert kernels.UNDECIDED not in verdicts
        assert verdicts.count(kernels.ACCEPTED) > 45


@pytest.mark.parametrize("rate", [Fraction(1, 10**6), Fraction(1, 3), Fraction(7), Fraction(900)])
def test_geometric_on_chosen_words(rate: Fraction) -> None:
    """Words next to the break points e^(-rk), where a rounded comparison would go wrong."""
    rng = SeededRng(5)
    undecided = 0
    for k in (1, 2, 3, 5):
        low, _ = exp_bounds(rate * k, 63)
        for word in {max(0, min(2**63 - 1, low + shift)) for shift in (-9000, -2, -1, 0, 1, 9000)}:
            found = int(kernels.geometric(np.int64(word), float(rate)))
            undecided += found == kernels.UNDECIDED
            if found != kernels.UNDECIDED:
                assert found == geometric(Uniform(word, 63), rate, rng)
    assert undecided  # the closest words are not decided by floats


@pytest.mark.parametrize("x", [0.0, 1e-9, 0.3465, 0.3466, 1.0, 17.3, 300.0, 689.9])
def test_exponential_is_within_its_stated_error(x: float) -> None:
    exact = Fraction(x)
    low, high = exp_bounds(exact, 1200)
    found = Fraction(kernels.exp_minus(x)) * 2**1200
    assert low * (1 - Fraction(1, 2**48)) <= found <= high * (1 + Fraction(1, 2**48))


def test_minus_zero_is_rejected() -> None:
    body = symmetric_hull([[2, 0]])
    zero, minus_zero = 2**64 - 2, 2**64 - 1  # U near 1: magnitude 0, sign in the lowest bit
    noise = LatticeKNorm(body=body, epsilon=Fraction(1))
    words = np.array([[zero], [minus_zero], [zero]], dtype=np.uint64)
    out = np.empty((2, 1), dtype=np.int64)
    assert kernels.line_attempts(words, 0.5, out, 0) == (2, 3, 0)
    assert exact_attempt([minus_zero], body, Fraction(1), noise.proposal, SeededRng(1)) is None


def test_the_point_body_adds_nothing_and_a_segment_stays_on_its_line() -> None:
    point = LatticeKNorm(body=symmetric_hull([[0, 0]]), epsilon=Fraction(1))
    assert point.draw(SystemRng()) == (0, 0)
    assert point.mse == 0
    segment = LatticeKNorm(body=symmetric_hull([[4, 6]]), epsilon=Fraction(1))
    drawn = segment.draws(200, SystemRng())
    assert (drawn[:, 0] * 3 == drawn[:, 1] * 2).all()
    assert (np.abs(drawn[:, 0]) % 4 == 2).any()  # every lattice point of the line, not multiples
    assert segment.log_weight((1, 0)) == -np.inf
    assert segment.log_ratios(np.array([[1, 0], [4, 6], [2, 3]]))[0] == np.inf


@pytest.mark.parametrize("epsilon", [Fraction(1, 10**25), Fraction(1, 10**12), Fraction(10**9)])
def test_extreme_epsilons_are_drawn_without_wrapping(epsilon: Fraction) -> None:
    noise = LatticeKNorm(body=BODIES["paper"], epsilon=epsilon)
    drawn = noise.draws(3, SeededRng(1))
    size = max(abs(int(value)) for value in drawn.ravel())
    if epsilon > 1:
        assert size == 0
    else:
        assert Fraction(1, 100) / epsilon < size < 1000 / epsilon


def test_draws_are_reproducible_and_depend_on_their_words_only() -> None:
    noise = LatticeKNorm(body=BODIES["paper"], epsilon=Fraction(1))
    assert np.array_equal(noise.draws(50, SeededRng(9)), noise.draws(50, SeededRng(9)))
    assert noise.draw(SeededRng(9)) == tuple(noise.draws(1, SeededRng(9))[0])
    assert noise.draws(0, SeededRng(9)).shape == (0, 2)


def test_emission_adds_the_noise_to_the_answer() -> None:
    points = np.array([[0, 0], [4, 1], [100, 100]])
    noise = LatticeKNorm(body=BODIES["paper"], epsilon=Fraction(1))
    law = LatticeEmission(points=points, noise=noise)
    shift = np.array(law.draw(2, SeededRng(4))) - np.array(law.draw(0, SeededRng(4)))
    assert shift.tolist() == [100, 100]
    assert law.log_likelihood((4, 1))[1] == 0.0
    assert law.log_likelihood((4, 1))[0] == pytest.approx(-1.0)
    assert 1.0 <= law.log_ratio(0, 1) <= 1.0 + 1e-12
    assert law.log_likelihood((2**70, 0)).max() < -(2**60)


def test_staircase_widths_are_checked_and_save_what_was_measured() -> None:
    with pytest.raises(InputError, match="at most 1"):
        Staircase(body=BODIES["paper"], epsilon=Fraction(1), width=Fraction(5, 4))
    savings = {}
    for epsilon in (1, 2, 4, 6):
        width = best_width(Fraction(epsilon), 2)
        radial = radial_moment(epsilon, float(width), 2)
        savings[epsilon] = 1 - radial * epsilon**2 / 6  # E r² of Gamma(2) is 6/ε²
    assert savings == pytest.approx({1: 0.007, 2: 0.051, 4: 0.273, 6: 0.544}, abs=0.001)


@pytest.mark.parametrize("kind", [LatticeKNorm, Staircase.best])
def test_epsilon_must_be_positive(kind: Any) -> None:
    with pytest.raises(InputError, match="greater than 0"):
        kind(body=BODIES["paper"], epsilon=Fraction(0))


@pytest.mark.parametrize(
    "vectors",
    [[[3], [2]], [[1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]], [[5, 1, 0], [1, 5, 0]]],
    ids=["line", "four dimensions", "plane in space"],
)
def test_noise_of_any_dimension_has_the_error_it_states(vectors: list[list[int]]) -> None:
    body = symmetric_hull(vectors)
    for noise in (
        LatticeKNorm(body=body, epsilon=Fraction(2)),
        Staircase.best(body, Fraction(3)),
    ):
        drawn = noise.draws(400, SeededRng(2))
        assert drawn.shape == (400, len(vectors[0]))
        assert float((drawn**2).sum(axis=1).mean()) == pytest.approx(noise.mse, rel=0.3)
        assert np.isfinite(noise.log_weights(drawn)).all()
        assert (noise.log_ratios(np.array(vectors)) <= float(noise.epsilon) * (1 + 1e-12)).all()


def test_a_body_in_space_is_drawn_from() -> None:
    body: Body = symmetric_hull([[3, 0, 0], [0, 2, 0], [1, 1, 1]])
    noise = LatticeKNorm(body=body, epsilon=Fraction(2))
    drawn = noise.draws(400, SeededRng(2))
    assert float((drawn**2).sum(axis=1).mean()) == pytest.approx(noise.mse, rel=0.25)
