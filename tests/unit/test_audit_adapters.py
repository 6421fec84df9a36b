"""Other libraries' releases, by what they look like and not by what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.audit.black_box import MeasurementRelease, RandomisedQuery
from shoal.audit.statistical import audit_black_box
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.task import EachEntry
from shoal.mechanisms.queries import count, histogram, weighted_sum

STATES = ["sit", "walk"]
CHAIN = MarkovChain.of([[0.95, 0.05], [0.1, 0.9]], states=STATES, length=1440)


class LaplaceLike:
    """A mechanism in the manner of diffprivlib: built with epsilon, called with a number."""

    def __init__(self, epsilon: float, seed: int = 0) -> None:
        self.epsilon = epsilon
        self._rng = np.random.default_rng(seed)

    def randomise(self, value: float) -> float:
        return float(value + self._rng.laplace(0, 1 / self.epsilon))


class MeasurementLike:
    """Looks like an OpenDP measurement."""

    def __init__(self, metric: str = "SymmetricDistance()", measure: str = "MaxDivergence") -> None:
        self.input_metric, self.output_measure = metric, measure

    def map(self, distance: int) -> float:
        return 0.5 * distance

    def __call__(self, rows: list[Any]) -> float:
        return float(sum(rows))


def test_a_count_of_a_day_leaks_a_multiple_about_one_minute() -> None:
    """The documented example: 1-DP noise on a count, several times 1 about a single entry."""
    release = RandomisedQuery(LaplaceLike(1.0), count(STATES, "walk"))
    found = audit_black_box(release, EachEntry(), CHAIN, draws=20_000, lengths=(8, 20), seed=4)
    assert found.promised == 1.0
    assert found.notion == "entry-dp"
    assert found.lower > 2
    assert found.exceeded
    assert not found.violated  # entry-level DP promises nothing about that
    assert found.verdict == "kept, but"
    assert "loses at least" in found.describe()


def test_a_measurement_is_handed_numbers_and_states_its_claim() -> None:
    release = MeasurementRelease(MeasurementLike(), {"sit": 0, "walk": 1})
    assert release(["sit", "walk", "walk"]) == 2.0
    assert release.claimed() == 1.0  # one changed entry is distance 2
    assert MeasurementRelease(MeasurementLike("HammingDistance()")).claimed() == 0.5


@pytest.mark.parametrize(
    ("measurement", "message"),
    [
        (MeasurementLike(metric="AbsoluteDistance(f64)"), "input metric is AbsoluteDistance"),
        (MeasurementLike(measure="ZeroConcentratedDivergence"), "output measure is ZeroConc"),
    ],
)
def test_other_metrics_and_measures_are_refused(measurement: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        MeasurementRelease(measurement).claimed()


def test_a_mechanism_must_randomise_one_number() -> None:
    with pytest.raises(InputError, match="int has no randomise"):
        RandomisedQuery(3, count(STATES, "walk"))
    with pytest.raises(InputError, match="the query has 2 numbers"):
        RandomisedQuery(LaplaceLike(1.0), histogram(STATES))


@pytest.mark.parametrize(
    ("sensitivity", "weight", "claimed"), [(1, 1, 0.5), (1, 3, 1.5), (2, 3, 1.0), (5, 3, 0.5)]
)
def test_a_sensitivity_smaller_than_the_query_claims_less(
    sensitivity: float, weight: int, claimed: float
) -> None:
    """Laplace(epsilon=0.5, sensitivity=1) on steps of 3: 1.5 for one entry, by group privacy."""
    mechanism: Any = LaplaceLike(0.5)
    mechanism.sensitivity = sensitivity
    query = weighted_sum(STATES, {"walk": weight})
    assert RandomisedQuery(mechanism, query).claimed() == claimed


def test_claims_that_limit_no_ratio_are_refused() -> None:
    mechanism: Any = LaplaceLike(1.0)
    mechanism.delta = 1e-6
    with pytest.raises(InputError, match="has delta = "):
        RandomisedQuery(mechanism, count(STATES, "walk")).claimed()
    mechanism.delta = 0.0
    assert RandomisedQuery(mechanism, count(STATES, "walk")).claimed() == 1.0
    mechanism.epsilon = 0
    with pytest.raises(InputError, match="epsilon of the mechanism is 0"):
        RandomisedQuery(mechanism, count(STATES, "walk")).claimed()


def test_a_measurement_that_promises_nothing_says_so() -> None:
    measurement: Any = MeasurementLike()
    measurement.map = lambda distance: float("inf")
    with pytest.raises(InputError, match="promises nothing"):
        MeasurementRelease(measurement).claimed()


def test_a_measurement_without_noise_is_unmasked() -> None:
    """The claim is infinite, so one is given, and found to be broken."""
    release = MeasurementRelease(MeasurementLike(), {"sit": 0, "walk": 1})
    found = audit_black_box(
        release, EachEntry(), CHAIN, claimed=2, draws=4000, lengths=(1, 2), seed=1
    )
    assert found.violated


def test_an_opendp_measurement_is_audited() -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
    counted = space >> dp.t.then_clamp((0, 1)) >> dp.t.then_sum() >> dp.m.then_laplace(scale=2.0)
    release = MeasurementRelease(counted, {"sit": 0, "walk": 1})
    assert release.claimed() == pytest.approx(1.0)
    found = audit_black_box(
        release, EachEntry(), CHAIN, draws=3000, lengths=(20,), workers=2, seed=1
    )
    assert found.exceeded
