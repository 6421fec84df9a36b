"""Dependence coefficients: what must be true of any conditional laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.records.coefficients import (
    Contributions,
    dependence_coefficients,
    mean_sensitivities,
    printed_loss,
    printed_losses,
    published_losses,
    ratio_loss,
)
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence
from tests.records.coefficients import rho_exact, rho_printed


@st.composite
def cases(draw: st.DrawFn) -> tuple[Floats, Floats, float]:
    """Conditional laws (x, y), the values of D_j, and a scale."""
    size = draw(st.integers(2, 5))
    rows = draw(st.integers(2, 4))
    weights = st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any)
    law = np.array([draw(weights) for _ in range(rows)], dtype=float)
    points = sorted(draw(st.sets(st.integers(0, 40), min_size=size, max_size=size)))
    scale = draw(st.floats(0.05, 50))
    return law / law.sum(axis=1, keepdims=True), np.array(points, float)[:, None] / 10, scale


@settings(max_examples=200, deadline=None)
@given(cases())
def test_coefficients_lie_between_0_and_1_and_eq_18_is_never_the_smaller(
    case: tuple[Floats, Floats, float],
) -> None:
    law, points, scale = case
    exact, printed = rho_exact(law, points, scale), rho_printed(law, points, scale)
    assert -1e-12 <= exact <= 1 + 1e-9
    assert 0.5 - 1e-9 <= printed <= 1 + 1e-9
    assert exact <= printed + 1e-9


@settings(max_examples=200, deadline=None)
@given(cases())
def test_the_supremum_over_outputs_is_at_a_value(case: tuple[Floats, Floats, float]) -> None:
    """No output of a fine grid around the values gives more."""
    law, points, scale = case
    found = float(ratio_loss(law, points, scale))
    fine = np.linspace(points.min() - scale, points.max() + scale, 400)
    seen = np.log(law @ np.exp(-np.abs(points[:, 0][:, None] - fine[None, :]) / scale))
    assert float(np.ptp(seen, axis=0).max()) <= found + 1e-9


@settings(max_examples=200, deadline=None)
@given(cases(), st.floats(1.01, 4))
def test_losses_fall_with_the_scale_and_the_printed_one_has_a_limit(
    case: tuple[Floats, Floats, float], factor: float
) -> None:
    law, points, scale = case
    assert ratio_loss(law, points, factor * scale) <= ratio_loss(law, points, scale) + 1e-9
    radius = np.abs(points - points.T).max(axis=1)
    near, far = printed_loss(law, radius, scale), printed_loss(law, radius, factor * scale)
    assert far <= near + 1e-12
    assert far * factor * scale <= near * scale + 1e-9


def test_many_laws_at_once_are_the_laws_one_by_one() -> None:
    rng = np.random.default_rng(5)
    laws = rng.dirichlet(np.full(6, 0.4), size=(50, 6))
    points = np.arange(6.0)[:, None]
    together = ratio_loss(laws, points, 0.7)
    for law, value in zip(laws, together, strict=True):
        assert value == pytest.approx(_plain(law, points[:, 0], 0.7), rel=1e-9)


def test_small_scales_do_not_underflow() -> None:
    """A kernel of exp(-2000) is no reason to lose a constraint."""
    law = np.array([[1.0, 0.0], [0.0, 1.0]])
    points = np.array([[0.0], [1.0]])
    assert ratio_loss(law, points, 1 / 2000) == pytest.approx(2000)
    assert printed_loss(law, np.array([1.0, 1.0]), 1 / 2000) == pytest.approx(2000)
    middle = np.array([[0.0, 1.0, 0.0]])
    assert printed_loss(middle, np.array([2.0, 1.0, 2.0]), 1e-4) >= 1e4
    assert printed_loss(middle, np.array([2.0, 1.0, 2.0]), 1e-2) == pytest.approx(100)


def test_values_that_never_occur_are_no_secrets() -> None:
    law = np.array([[0.5, 0.5], [0.0, 0.0], [0.5, 0.5]])
    points = np.array([[0.0], [1.0]])
    assert ratio_loss(law, points, 1.0) == 0
    assert printed_loss(law, np.array([1.0, 1.0]), 1.0) == pytest.approx(1.0)


def test_vectors_have_their_supremum_on_the_grid_of_coordinates() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    law = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    found = float(ratio_loss(law, points, 0.8))
    best = 0.0
    for a in np.linspace(-1, 3, 81):
        for b in np.linspace(-1, 2, 61):
            kernel = np.exp(-np.abs(points - [a, b]).sum(axis=1) / 0.8)
            best = max(best, float(np.ptp(np.log(law @ kernel))))
    assert best == pytest.approx(found, abs=1e-9)


def test_too_many_outputs_are_refused() -> None:
    with pytest.raises(InputError, match="over 68921 outputs; at most 65536"):
        ratio_loss(np.full((2, 41), 1 / 41), np.tile(np.arange(41.0)[:, None], 3), 1.0)


def test_a_single_value_depends_on_nothing() -> None:
    model = Dependence.of(RecordDomain.points([2.0]), 2, [[0, 1]], [[1.0]])
    for printed in (False, True):
        assert (dependence_coefficients(model, 1.0, printed=printed) == 0).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 20))
def test_means_never_ask_for_more_than_eq_18_and_both_at_most_the_component(
    seed: int, scale: float
) -> None:
    """And never for less than half of it, up to the record itself."""
    model, adds = _random_model(seed)
    sizes = model.component_sizes()
    means = mean_sensitivities(model, adds).max(axis=1)
    printed = printed_losses(model, adds, scale) * scale
    assert (means <= printed * (1 + 1e-9)).all()
    assert (printed <= sizes * adds.own * (1 + 1e-9)).all()
    assert (means >= adds.own * (1 + (sizes - 1) / 2) * (1 - 1e-9)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.2, 20), st.sampled_from([0.0, 0.8, 0.9, 1.0]))
def test_a_smaller_share_of_every_coefficient_claims_less(
    seed: int, scale: float, share: float
) -> None:
    model, adds = _random_model(seed)
    for printed in (False, True):
        full = published_losses(model, adds.own, scale, printed=printed)
        less = published_losses(model, adds.own, scale, printed=printed, share=share)
        assert (less <= full + 1e-12).all()
        assert less == pytest.approx((1 - share) * adds.own / scale + share * full, rel=1e-9)


def _random_model(seed: int) -> tuple[Dependence, Contributions]:
    rng = np.random.default_rng(seed)
    size, records = int(rng.integers(2, 5)), int(rng.integers(2, 8))
    pairs = [(i, j) for i in range(records) for j in range(i) if rng.random() < 0.4]
    laws = rng.dirichlet(np.full(size * size, 0.5), size=3).reshape(3, size, size)
    which = rng.integers(0, 3, len(pairs))
    domain = RecordDomain.points(np.arange(size))
    model = Dependence.of(domain, records, np.array(pairs).reshape(-1, 2), laws, which)
    values = rng.integers(0, 10, size).astype(float)[:, None]
    values[0] = values[1:].max() + 1  # never all the same
    return model, Contributions(values, values, float(max(np.ptp(values), 1.0)))


def _plain(law: Floats, points: Floats, scale: float) -> float:
    """Eq. (14) by loops."""
    best = 0.0
    for output in points:
        seen = [
            sum(p * math.exp(-abs(output - y) / scale) for p, y in zip(row, points, strict=True))
            for row in law
        ]
        best = max(best, math.log(max(seen) / min(seen)))
    return best


def test_coefficients_of_a_model_go_both_ways() -> None:
    law = np.array([[0.4, 0.1], [0.0, 0.5]])
    model = Dependence.of(RecordDomain.points([0, 2]), 3, [[1, 0], [1, 2]], law)
    points = np.array([[0.0], [2.0]])
    forth, back = (t / t.sum(axis=1, keepdims=True) for t in (law, law.T))
    for printed, rho in ((False, rho_exact), (True, rho_printed)):
        found = dependence_coefficients(model, 1.5, printed=printed)
        there, away = (float(rho(one, points, 1.5)) for one in (forth, back))
        assert found == pytest.approx(np.array([[away, there], [there, away]]))
    with pytest.raises(InputError, match="scale is 0"):
        dependence_coefficients(model, 0)
