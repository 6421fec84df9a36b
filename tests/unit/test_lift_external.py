"""`shoal.lift`, `shoal.attach` and `shoal.leakage` around other libraries' mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

import shoal
from shoal.mechanisms.lift import entry_eta

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]])
DATA = [0, 1, 1, 0, 0, 1]


class Measurement:
    """What an OpenDP measurement states about itself."""

    def __init__(self, eta: float, metric: str = "SymmetricDistance()", distance: int = 2) -> None:
        self.input_metric = metric
        self.output_measure = "MaxDivergence"
        self._per_unit = eta / distance

    def map(self, distance: int) -> float:
        return self._per_unit * distance

    def __call__(self, entries: list[Any]) -> float:
        return float(sum(entries))


def test_the_factory_gets_the_largest_eta() -> None:
    """1/η = 3.33641 for this chain at ε = 1, any length."""
    asked: list[float] = []

    def factory(eta: float) -> Measurement:
        asked.append(eta)
        return Measurement(eta)

    plan = shoal.lift(factory, CHAIN, epsilon=1)
    assert 1 / asked[0] == pytest.approx(3.33641, rel=1e-5)
    assert len(asked) == 1
    assert shoal.leakage(CHAIN, asked[0]).value <= 1
    assert plan.guarantee.gives("pufferfish")
    assert plan.release(DATA).values == (3.0,)


def test_a_stored_plan_needs_its_mechanism_back() -> None:
    plan = shoal.lift(Measurement, CHAIN, epsilon=1, name="count of ones")
    loaded = shoal.loads(shoal.dumps(plan))
    assert loaded == plan
    with pytest.raises(shoal.InputError, match=r"attach it again with shoal\.attach"):
        loaded.release(DATA)
    eta = float(plan.body.eta)  # type: ignore[union-attr]
    assert shoal.attach(loaded, Measurement(eta / 2)).release(DATA).values == (3.0,)
    with pytest.raises(shoal.InputError, match="make the factory use the eta it is given"):
        shoal.attach(loaded, Measurement(eta * 2))


def test_a_factory_that_ignores_its_eta_is_refused() -> None:
    with pytest.raises(shoal.InputError, match="the lift allows"):
        shoal.lift(lambda eta: Measurement(5.0), CHAIN, epsilon=1)


@pytest.mark.parametrize(
    ("metric", "distance"),
    [("SymmetricDistance()", 2), ("InsertDeleteDistance()", 2), ("HammingDistance()", 1)],
)
def test_one_changed_entry_is_counted_as_the_metric_counts_it(metric: str, distance: int) -> None:
    assert entry_eta(Measurement(0.5, metric, distance)) == Fraction(1, 2)


def test_other_metrics_and_measures_are_refused() -> None:
    with pytest.raises(shoal.InputError, match="input metric is L1Distance"):
        entry_eta(Measurement(1.0, "L1Distance(i32)"))
    approximate = Measurement(1.0)
    approximate.output_measure = "ZeroConcentratedDivergence"
    with pytest.raises(shoal.InputError, match="pure DP, MaxDivergence"):
        entry_eta(approximate)
    with pytest.raises(shoal.InputError, match="states no privacy map"):
        shoal.leakage(CHAIN, object())


def test_a_real_opendp_measurement_is_measured_and_lifted() -> None:
    dp = pytest.importorskip("opendp.prelude", reason="OpenDP is an extra")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()

    def factory(eta: float) -> Any:
        counts = space >> dp.t.then_count_by_categories([0, 1], MO="L1Distance<i64>")
        return counts >> dp.m.then_laplace(scale=2 / eta)

    assert entry_eta(factory(1.0)) == 1
    assert shoal.leakage(CHAIN, factory(1.0)).value == pytest.approx(
        shoal.leakage(CHAIN, 1).value, rel=1e-12
    )
    plan = shoal.lift(factory, CHAIN, epsilon=1)
    assert len(plan.release(DATA).values) == 3  # two bars and OpenDP's bar for other values


def test_leakage_says_how_much_weaker_and_when_there_is_no_bound() -> None:
    weak = shoal.leakage(CHAIN, "0.5")
    assert weak.eta == Fraction(1, 2)
    assert 0.5 < weak.value < math.inf
    assert "times weaker" in weak.describe()
    frozen = shoal.MarkovChain.of([[1, 0], [0, 1]], initial=[0.5, 0.5])
    assert math.isinf(shoal.leakage(frozen, 1).value)
    assert "no finite bound" in shoal.leakage(frozen, 1).describe()
    short = shoal.MarkovChain.of([[1, 0], [0, 1]], initial=[0.5, 0.5], length=7)
    assert shoal.leakage(short, 1).value == pytest.approx(7)


def test_every_kind_of_chain_has_a_leakage() -> None:
    models: list[Any] = [
        shoal.chains.IntervalChains.around(0.3, length=50),
        shoal.chains.MixingSummary(pi_min=0.3, gap=0.8, length=50),
        shoal.JointTable.of([[0.4, 0.1], [0.1, 0.4]]),
    ]
    for model in models:
        assert 0.1 <= shoal.leakage(model, "0.1").value <= 5.0 + 1e-9
