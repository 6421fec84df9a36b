"""The discrete Laplace law: closed forms against sums, extreme scales, types and refusals."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pytest

from shoal.noise import laplace
from shoal.noise.laplace import ONE_BY_ONE, LatticeLaplace
from shoal.noise.primitives import SeededRng, SystemRng

SCALES = [Fraction(1, 5), Fraction(1), Fraction(37, 5), Fraction(200)]


def law_by_summing(scale: Fraction, step: Fraction) -> dict[int, float]:
    """P(Z = z) from the definition, normalised by a sum over all z that matter."""
    furthest = math.ceil(60 * scale / step) + 1
    weights = {z: math.exp(-abs(z) * step / scale) for z in range(-furthest, furthest + 1)}
    total = math.fsum(weights.values())
    return {z: weight / total for z, weight in weights.items()}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("step", [Fraction(1), Fraction(3, 4)])
def test_closed_forms_agree_with_sums(scale: Fraction, step: Fraction) -> None:
    noise, law = LatticeLaplace(scale, step), law_by_summing(scale, step)
    error = math.fsum(p * abs(z) for z, p in law.items()) * float(step)
    square = math.fsum(p * z * z for z, p in law.items()) * float(step) ** 2
    assert noise.expected_error() == pytest.approx(error, rel=1e-12)
    assert noise.variance() == pytest.approx(square, rel=1e-12)
    for z in (-7, -1, 0, 1, 4):
        assert noise.pmf(z) == pytest.approx(law.get(z, 0.0), rel=1e-12, abs=1e-26)
        assert noise.log_probability(z) == pytest.approx(
            math.log(math.tanh(step / scale / 2)) - abs(z) * step / scale, rel=1e-12
        )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.5, 0.95, Fraction(999, 1000)])
def test_quantile_is_the_smallest_that_holds(scale: Fraction, confidence: float | Fraction) -> None:
    step = Fraction(1, 3)
    law = law_by_summing(scale, step)
    covered, m = law[0], 0
    while covered < confidence:
        m += 1
        covered += 2 * law[m]
    assert LatticeLaplace(scale, step).quantile(confidence) == m * step


def test_quantile_far_out_is_exact() -> None:
    noise = LatticeLaplace(Fraction(10**12), Fraction(1))
    tail = Fraction(1, 10**40)
    x = int(noise.quantile(1 - tail))
    # -scale log(tail (1 + q) / 2), with q = 1 - 1e-12: 5e-13 relative to the rest
    assert x == pytest.approx(10**12 * 40 * math.log(10), rel=1e-12)


@pytest.mark.parametrize("exponent", range(-6, 13))
def test_errors_are_accurate_at_every_scale(exponent: int) -> None:
    """For r = step / scale small the error is scale (1 - r^2/6 + ...); for r large 2 exp(-r)."""
    scale = Fraction(10) ** exponent
    noise, r = LatticeLaplace(scale, Fraction(1)), float(1 / scale)
    if exponent >= 3:
        assert noise.expected_error() == pytest.approx(float(scale) * (1 - r * r / 6), rel=1e-12)
        assert noise.variance() == pytest.approx(
            2 * float(scale) ** 2 * (1 - r * r / 12), rel=1e-12
        )
        assert noise.pmf(0) == pytest.approx(r / 2 * (1 - r * r / 12), rel=1e-12)
    elif exponent <= -2:
        assert noise.expected_error() == pytest.approx(2 * math.exp(-r), rel=1e-12)
        assert noise.variance() == pytest.approx(2 * math.exp(-r), rel=1e-12)
        assert noise.pmf(0) == pytest.approx(1, rel=1e-15)


def test_ratios_beyond_floats_are_no_trouble() -> None:
    wide = LatticeLaplace(Fraction(10**400), Fraction(1, 10**400))
    assert wide.expected_error() == wide.variance() == math.inf
    assert wide.log_probability(0) == pytest.approx(-800 * math.log(10) - math.log(2), rel=1e-12)
    assert wide.draw(3, SeededRng(1)).dtype == object
    narrow = LatticeLaplace(Fraction(1, 10**400), Fraction(10**400))
    assert narrow.expected_error() == narrow.variance() == 0
    assert narrow.log_probability(0) == 0
    assert narrow.log_probability(1) == -math.inf
    assert narrow.draw(100, SeededRng(1)).tolist() == [0] * 100


@pytest.mark.parametrize("count", [0, 1, ONE_BY_ONE, ONE_BY_ONE + 1, 1000])
@pytest.mark.parametrize("exponent", [-6, -3, 0, 3, 6, 12])
def test_draws_are_int64_of_the_right_size(count: int, exponent: int) -> None:
    noise = LatticeLaplace(Fraction(10) ** exponent, Fraction(1))
    drawn = noise.draw(count, SystemRng())
    assert drawn.dtype == np.int64
    assert drawn.shape == (count,)
    # beyond 60 scales: probability below 1e-22 for all draws together
    assert all(abs(z) <= 60 * noise.scale for z in drawn.tolist())


@pytest.mark.parametrize("count", [10, 100])
def test_wide_draws_are_python_integers(count: int) -> None:
    drawn = LatticeLaplace(Fraction(2**54 + 1), Fraction(1)).draw(count, SeededRng(3))
    assert drawn.dtype == object
    assert all(type(z) is int for z in drawn.tolist())
    narrow = LatticeLaplace(Fraction(2**54), Fraction(1)).draw(count, SeededRng(3))
    assert narrow.dtype == np.int64


def test_a_small_draw_past_62_bits_widens(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, kind in [(2**62 - 1, "int64"), (2**62, "object"), (-(2**62), "object")]:
        monkeypatch.setattr(laplace, "discrete_laplace", lambda *_, value=value: value)
        drawn = plain().draw(2, SeededRng(1))
        assert drawn.dtype == kind
        assert drawn.tolist() == [value, value]


def test_equal_seeds_give_equal_draws_and_batches_join() -> None:
    noise = LatticeLaplace(Fraction(5, 2), Fraction(1))
    assert noise.draw(10**5, SeededRng(6)).tolist() == noise.draw(10**5, SeededRng(6)).tolist()
    assert noise.draw(10**5, SeededRng(6)).size == 10**5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LatticeLaplace(Fraction(0), Fraction(1)), "scale is 0; it must be above 0"),
        (lambda: LatticeLaplace(Fraction(1), Fraction(-2)), "step is -2; it must be above 0"),
        (lambda: LatticeLaplace(cast(Any, 0.5), Fraction(1)), "scale is 0.5; it must be an exact"),
        (lambda: plain().draw(-1, SeededRng(1)), "count is -1; it must be 0 or more"),
        (lambda: plain().quantile(1.0), r"confidence is 1.0; it must lie in \[0, 1\)"),
        (lambda: plain().quantile(-0.1), "confidence is -0.1"),
        (lambda: plain().quantile(float("nan")), "confidence is nan"),
    ],
)
def test_refusals_name_field_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def plain() -> LatticeLaplace:
    return LatticeLaplace(Fraction(1), Fraction(1))


def test_importing_and_drawing_load_nothing_heavy() -> None:
    program = (
        "import sys; from fractions import Fraction as F; "
        "from shoal.noise.primitives import SystemRng; "
        "from shoal.noise.laplace import LatticeLaplace; "
        "LatticeLaplace(F(9), F(1)).draw(1000, SystemRng()); "
        "print(sorted({'numba', 'scipy', 'polars', 'opendp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
