"""Searches on chains that forget next to nothing: they are short, and the clock ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.chains.exact import past_future
from shoal.chains.exact.answers import least_vector_scale
from shoal.chains.exact.blocks import Cell
from shoal.chains.lift import side, solver
from shoal.chains.lift.chain import ChainLift
from shoal.chains.lift.side import limit_worth
from shoal.chains.lift.step import Ahead, hamming, image
from shoal.core.progress import LAST_EVALUATION, OutOfTime, evaluation_in_time, last_evaluation
from shoal.core.task import LiftedModel
from shoal.core.walk import Powers
from shoal.mechanisms.lift import FAILURES_BEFORE_LEAST, largest_eta
from shoal.mechanisms.mixture import grid_worst
from shoal.mechanisms.optimal_table import _program

FAINT = [[1 - 1e-40, 1e-40], [1e-20, 1 - 1e-20]]
SWITCHING = [[1e-40, 1.0], [1 - 4.2e-5, 4.2e-5]]


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many lags were evaluated, by all steps of all fixed points."""
    counted = [0]

    def counting(bound: Any, lags: Any, *rest: Any) -> Any:
        counted[0] += len(lags)
        return image(bound, lags, *rest)

    monkeypatch.setattr("shoal.chains.lift.solver.image", counting)
    return counted


def test_a_chain_that_forgets_slowly_keeps_few_lags(steps: list[int]) -> None:
    """628,000 lags when each that is a little better than the one before was kept."""
    chain = shoal.MarkovChain.of(SWITCHING, initial=[0, 1], length=100)
    told = shoal.leakage(chain, "1e-4").value
    assert told <= 0.01 * (1 + 1e-12)  # group privacy
    assert told > 0.0097
    assert steps[0] < 15_000


@pytest.mark.parametrize("stay", [0.999, 1 - 1e-6])
def test_the_lags_that_are_kept_certify_the_bound(stay: float) -> None:
    """A bound that lies above its own image by the lags it names holds for all lengths."""
    chain = np.array(
        [[stay, 1 - stay, 0.0], [0.0, 0.9 * stay, 1 - 0.9 * stay], [1e-4, 0.0, 0.9999]]
    )
    ahead, entry = (
        Ahead(Powers(chain / chain.sum(axis=1, keepdims=True))),
        hamming(3).scaled_by(1e-3),
    )
    found = solver.limit(ahead, entry, "cone")
    again = image(found.bound, found.lags, ahead, entry, "cone")
    assert len(found.lags) <= solver.MOST_LAGS_KEPT
    assert np.isfinite(found.bound).all()
    assert (again <= found.bound * (1 + 1e-11)).all()


def test_the_best_lag_of_each_pair_certifies_the_image_by_all() -> None:
    """Checked by the image of what is returned: by the first lag alone it fails."""
    turning = 0.8 * np.roll(np.eye(3), 1, axis=1)
    chain = turning + 0.2 * np.random.default_rng(0).dirichlet(np.ones(3), 3)
    entry = hamming(3).scaled_by(0.1)
    ahead, lags = Ahead(Powers(chain)), tuple(range(1, 200))
    bound = solver.limit(ahead, entry, "cone").bound * (1 + 1e-9)
    kept, lowered = solver._without_idle_lags(bound, bound, lags, ahead, entry, "cone")
    assert kept == (1, 2)
    assert (lowered == image(bound, lags, ahead, entry, "cone")).all()
    assert (image(lowered, kept, ahead, entry, "cone") <= lowered).all()
    assert (image(lowered, [1], ahead, entry, "cone") > lowered).any()
    low = bound / 3  # no bound: it lies below its image, so nothing is dropped
    kept, same = solver._without_idle_lags(low, bound, lags, ahead, entry, "cone")
    assert (kept, same is bound) == (lags, True)


def test_fewer_lags_bound_no_less_and_hardly_more(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = np.array([[0.98, 0.02], [0.01, 0.99]])
    few = ChainLift.of([0.5, 0.5], chain, 1 - np.eye(2), None).loss(0.01)
    monkeypatch.setattr(solver, "MOST_LAGS_KEPT", 1_000)
    all_lags = ChainLift.of([0.5, 0.5], chain, 1 - np.eye(2), None).loss(0.01)
    assert few.value == pytest.approx(all_lags.value, rel=1e-5)


def test_a_limit_near_group_privacy_is_not_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_worth(2, 99, 1e-3, 700.0) == pytest.approx(0.98 * 99e-3)
    assert limit_worth(2, None, 1e-3, 700.0) == 700.0
    lift = ChainLift.of([0, 1], SWITCHING, 1 - np.eye(2), 100)
    short = lift.loss(1e-4)
    monkeypatch.setattr(side, "GAIN_WORTH", 1e9)
    assert lift.loss(1e-4).value <= short.value <= lift.loss(1e-4).value / 0.98
    assert short.value <= 100 * 1e-4 * (1 + 1e-12)


@pytest.mark.parametrize("serves", [True, False])
def test_the_least_eta_tells_whether_any_can_serve(serves: bool) -> None:
    """A loss grows with eta: sixteen ever smaller etas are not tried in vain."""
    tried: list[float] = []

    def loss(eta: float, start: LiftedModel | None) -> LiftedModel:
        tried.append(eta)
        value = eta * 1e4 if serves else float("inf")
        return LiftedModel.at(eta, value, None, eta, "cone")

    found = largest_eta([loss], 1.0, 1.0, 1e-9)
    if serves:
        assert found is not None
        assert found.value <= 1.0
        assert found.eta == pytest.approx(1e-4)
    else:
        assert found is None
        assert len(tried) == FAILURES_BEFORE_LEAST + 1


def test_a_chain_that_never_forgets_is_refused_after_few_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, evaluations = ChainLift.loss, [0]

    def counting(self: ChainLift, *given: Any, **named: Any) -> Any:
        evaluations[0] += 1
        return own(self, *given, **named)

    monkeypatch.setattr(ChainLift, "loss", counting)
    chain = shoal.MarkovChain.of(FAINT)
    with pytest.raises(shoal.Refused, match="no finite bound, because the chain never forgets"):
        shoal.calibrate(
            shoal.count("01", "1"), shoal.EachEntry(), chain, epsilon=1, mechanism="lift"
        )
    assert evaluations[0] <= FAILURES_BEFORE_LEAST + 2  # one more tells where to begin


@pytest.mark.parametrize("moves", [[[1, 0], [0, 1]], [[1, 0], [0.5, 0.5]]])
def test_a_chain_that_never_leaves_its_first_state_has_a_lift(moves: list[list[float]]) -> None:
    """Every entry is known beforehand, so no eta tells anything and the least is not divided by."""
    chain = shoal.MarkovChain.of(moves, states="01", initial=[1, 0], length=3)
    query = shoal.count("01", "1")
    plan = shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="lift")
    assert shoal.verify_promise(plan) <= 1


# The clock, inside one evaluation.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on by its second number every time it is looked at."""
    now = [0.0, 0.0]

    def look() -> float:
        now[0] += now[1]
        return now[0]

    monkeypatch.setattr("shoal.core.progress.time.monotonic", look)
    return now


def test_one_evaluation_may_end_a_little_late_whatever_limits_are_inside(
    clock: list[float],
) -> None:
    with shoal.time_limit(1) as outer:
        for _ in range(3):
            with shoal.time_limit(0.5):
                clock[0] = 0.9
                evaluation_in_time("the loss")
        clock[0] = 1 + LAST_EVALUATION - 0.01
        evaluation_in_time("the loss")
        assert not outer.cut
        with shoal.time_limit(1), last_evaluation():
            shoal.core.progress.in_time("the loss")
        clock[0] = 1 + LAST_EVALUATION
        with pytest.raises(OutOfTime, match="the loss was not over within 1 s"):
            evaluation_in_time("the loss")
        with shoal.time_limit(100), pytest.raises(OutOfTime), last_evaluation():
            evaluation_in_time("the loss")
    assert outer.cut
    evaluation_in_time("nothing")
    with last_evaluation():
        evaluation_in_time("nothing")


def slowed(clock: list[float], own: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def slow(*given: Any, **named: Any) -> Any:
        clock[0] += seconds
        return own(*given, **named)

    return slow


def spread_chain(length: int | None = None) -> shoal.MarkovChain:
    """Three states whose probabilities lie nineteen orders of magnitude apart."""
    moves = 10.0 ** np.random.default_rng(0).uniform(-19, 0, (3, 3))
    return shoal.MarkovChain.normalised(moves, length=length)


MECHANISMS = ["exact", "wasserstein"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_sums_over_a_whole_chain_end_with_the_clock(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, mechanism: str
) -> None:
    """Each table of one entry takes a tenth of a second: the limit is kept but for one."""
    monkeypatch.setattr(Cell, "at", slowed(clock, Cell.at, 0.1))
    chain = spread_chain(12 if mechanism == "wasserstein" else 40)
    query = shoal.count(chain.states, "1")
    with (
        shoal.time_limit(0.2),
        pytest.raises(OutOfTime, match=r"was not over within 0.2 s; allow more time"),
    ):
        shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism=mechanism)
    assert clock[0] <= 0.2 + LAST_EVALUATION + 0.1 + 1e-9


def test_several_sums_at_once_end_with_the_clock(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.chains.exact.answers.grid_worst", slowed(clock, grid_worst, 0.1))
    chain = shoal.MarkovChain.of([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], length=10)
    query = shoal.histogram(chain.states)
    with (
        shoal.time_limit(0.02),
        pytest.raises(OutOfTime, match=r"the exact loss was not over within 0.02 s"),
    ):
        shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="exact")
    assert clock[0] <= 0.02 + LAST_EVALUATION + 0.1 + 1e-9


def test_several_sums_at_once_keep_the_scale_that_was_evaluated(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit of a third of the time: some evaluations end within it, and the best one stands."""
    monkeypatch.setattr("shoal.chains.exact.answers.grid_worst", slowed(clock, grid_worst, 0.1))
    chain = shoal.MarkovChain.of([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]], length=5)
    query = shoal.histogram(chain.states)

    def plan() -> shoal.Plan:
        return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="exact")

    whole = plan()
    with shoal.time_limit(clock[0] / 3):
        cut = plan()
    assert "ended by its time limit" in cut.explain()
    assert cut.cost > whole.cost
    assert shoal.verify_promise(cut) <= 1


@pytest.mark.parametrize("evaluations", [1, 2, 4])
def test_a_scale_stands_once_it_was_evaluated(
    monkeypatch: pytest.MonkeyPatch, evaluations: int
) -> None:
    """Losses fall as 1 over the scale; the clock ends the search after so many of them."""
    chain = shoal.MarkovChain.of([[0.5, 0.5], [0.4, 0.6]], length=3)
    laws: Any = chain.answer_laws(shoal.histogram(chain.states), shoal.EachEntry())
    asked: list[float] = []

    def loss(task: object, scale: float, *, cover: object) -> float:
        if len(asked) == evaluations:
            raise OutOfTime("the exact loss was not over")
        asked.append(scale)
        return 1.7 / scale

    monkeypatch.setattr("shoal.chains.exact.answers.vector_sum_loss", loss)
    found = least_vector_scale(laws.vector, 1.0)
    assert found == min(scale for scale in asked if 1.7 / scale <= 1.0)


def test_past_and_future_apart_end_with_the_clock(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = past_future.PastFutureBound
    monkeypatch.setattr(bound, "_held_ends", slowed(clock, bound._held_ends, 0.1))
    chain = spread_chain()
    query = shoal.count(chain.states, "1")
    with shoal.time_limit(0.02), pytest.raises(OutOfTime, match="the exact loss was not over"):
        shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism="exact")
    assert clock[0] <= 0.02 + LAST_EVALUATION + 0.1 + 1e-9


def test_tables_are_small_under_a_limit() -> None:
    chain = spread_chain()
    laws = chain.answer_laws(shoal.count(chain.states, "1"), shoal.EachEntry())
    apart = laws._apart  # type: ignore[union-attr]
    assert apart is not None
    widest = apart.widest(past_future.MOST_TABLE)
    with shoal.time_limit(1):
        assert apart.widest(past_future.MOST_TABLE) < widest


def test_a_program_that_takes_too_long_is_refused(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    from scipy import optimize

    monkeypatch.setattr(optimize, "linprog", slowed(clock, optimize.linprog, 1.0))
    chain = shoal.MarkovChain.of([[0.7, 0.3], [0.2, 0.8]], length=6)
    _program.cache_clear()
    with shoal.time_limit(0.02), pytest.raises(OutOfTime, match="the linear program was not over"):
        shoal.calibrate(
            shoal.count("01", "1"), shoal.EachEntry(), chain, epsilon=1, mechanism="optimal-table"
        )
    assert clock[0] <= 1.0 + 1e-9
