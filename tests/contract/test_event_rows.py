"""Rows for events on chains: every row that applies keeps its promise, the others say why not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.errors import DataError, InputError
from shoal.core.task import Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import MECHANISMS
from tests.event_oracle import happens

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=10)
VISIT = shoal.visit("1", between=(3, 5))
ROWS = ("exact", "wasserstein", "lift", "group")


def scale_of(plan: shoal.Plan) -> float:
    assert plan.scale is not None
    return plan.scale


def exact_loss(plan: shoal.Plan, event: shoal.events.event.TimeEvent) -> float:
    """The loss of what the plan draws, by all paths, in logarithms; one number only."""
    chain, query = plan.task.family[0], plan.task.query
    assert isinstance(chain, shoal.MarkovChain)
    assert isinstance(query, shoal.mechanisms.LinearQuery)
    weights = [float(row[0]) for row in query.weights]
    sides: tuple[dict[float, float], dict[float, float]] = ({}, {})
    assert chain.length is not None
    for path in itertools.product(range(chain.size), repeat=chain.length):
        chance = math.prod(
            [
                chain.initial[path[0]],
                *(chain.matrix(t)[a, b] for t, (a, b) in enumerate(itertools.pairwise(path))),
            ]
        )
        side = sides[0 if happens(event, [chain.states[x] for x in path]) else 1]
        value = sum(weights[x] for x in path)
        side[value] = side.get(value, 0.0) + chance
    worst = 0.0
    for output in {*sides[0], *sides[1]}:
        seen = [
            sum(p * math.exp(-abs(output - v) / scale_of(plan)) for v, p in side.items())
            / sum(side.values())
            for side in sides
        ]
        worst = max(worst, abs(math.log(seen[0] / seen[1])))
    return worst


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    "query",
    [
        shoal.count(CHAIN.states, "1"),
        shoal.weighted_sum(CHAIN.states, {"0": "0.5", "1": 3}),
        shoal.mean(CHAIN.states, {"1": 1}, length=10),
    ],
    ids=["count", "sum", "mean"],
)
def test_rows_keep_their_promise_and_survive_storage(row: str, query: shoal.Query) -> None:
    plan = shoal.calibrate(query, shoal.Events.of(VISIT), CHAIN, epsilon="0.5", mechanism=row)
    assert exact_loss(plan, VISIT) <= 0.5 + 1e-9
    assert shoal.loads(shoal.dumps(plan)) == plan
    assert shoal.mechanisms.table.confirm_plan(plan) is plan
    quieter = shoal.calibrate(query, shoal.Events.of(VISIT), CHAIN, epsilon="1.5", mechanism=row)
    assert scale_of(quieter) < scale_of(plan)


def test_scales_are_those_of_the_paper_trail() -> None:
    """EVENTS, section 3: T = 10, epsilon .5."""
    query = shoal.count(CHAIN.states, "1")
    for event, scale, wide in (
        (shoal.visit("1"), 6.390, 20),
        (VISIT, 5.883, 10),
        (shoal.at_least("1", 4), 8.255, 14),
        (shoal.sequence("1", "0", "1"), 5.010, 6),
    ):
        secrets = shoal.Events.of(event)
        found = scale_of(shoal.calibrate(query, secrets, CHAIN, epsilon=0.5, mechanism="exact"))
        assert found == pytest.approx(scale, abs=6e-4)
        far = scale_of(shoal.calibrate(query, secrets, CHAIN, epsilon=0.5, mechanism="wasserstein"))
        assert far == pytest.approx(wide, abs=1e-9)


def test_best_takes_the_least_noise_of_all_rows() -> None:
    secrets = shoal.Events.of(VISIT, shoal.at_least("1", 4))
    query = shoal.count(CHAIN.states, "1")
    found = choose(Task(query=query, secrets=secrets, family=(CHAIN,)), Fraction(1, 2))
    plans = {name: p for name, p in found.alternatives.items() if isinstance(p, shoal.Plan)}
    assert set(plans) == {"laplace", *ROWS}
    assert found.plan.mechanism == "exact"
    assert scale_of(found.plan) == pytest.approx(8.255, abs=6e-4)
    quick = shoal.calibrate(query, secrets, CHAIN, epsilon=0.5)
    assert quick == found.plan
    # noise that keeps the total of a histogram is known to the lift only
    bars = shoal.MarkovChain.of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], length=6)
    plan = shoal.calibrate(shoal.histogram(bars.states), shoal.Events.of(VISIT), bars, epsilon=1)
    assert plan.mechanism == "lift"


def test_a_family_takes_the_worst_of_its_models() -> None:
    slow = shoal.MarkovChain.of([[0.97, 0.03], [0.03, 0.97]], length=10)
    query, secrets = shoal.count(CHAIN.states, "1"), shoal.Events.of(VISIT)
    alone = [
        scale_of(shoal.calibrate(query, secrets, model, epsilon=0.5, mechanism="exact"))
        for model in (CHAIN, slow)
    ]
    both = scale_of(shoal.calibrate(query, secrets, [CHAIN, slow], epsilon=0.5, mechanism="exact"))
    assert both == max(alone)


def test_pairs_of_events_are_told_apart_no_further() -> None:
    early, late = shoal.visit("1", between=(0, 2)), shoal.visit("1", between=(7, 9))
    secrets = shoal.Events.of((early & ~late, late & ~early))
    plan = shoal.calibrate(
        shoal.count(CHAIN.states, "1"), secrets, CHAIN, epsilon=0.5, mechanism="exact"
    )
    assert 0 < scale_of(plan) < 6


def test_leakage_of_an_event_is_never_above_group_privacy() -> None:
    found = shoal.leakage(CHAIN, 0.1, secrets=shoal.Events.of(VISIT))
    plan = shoal.calibrate(
        shoal.count(CHAIN.states, "1"),
        shoal.Events.of(VISIT),
        CHAIN,
        epsilon=1,
        mechanism="laplace",
    )
    assert found.value <= 10 * 0.1
    assert found.value > 0.1
    assert scale_of(plan) == 1
    assert shoal.leakage(CHAIN, 1, secrets=shoal.Events.of(VISIT)).value >= exact_loss(plan, VISIT)


def test_an_event_needs_all_slots() -> None:
    plan = shoal.calibrate(shoal.count(CHAIN.states, "1"), shoal.Events.of(VISIT), CHAIN, epsilon=1)
    rng = shoal.SeededRng(1)
    assert plan.release([0, 1] * 5, rng=rng).answer.labels == ("1",)
    with pytest.raises(DataError, match="another length than the 10 slots"):
        plan.release([0, 1] * 4, rng=rng)
    with pytest.raises(DataError, match="another length than the 10 slots"):
        plan.release([[0, 1] * 5, [0, 1]], rng=rng)


@pytest.mark.parametrize(
    "model",
    [
        shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]]),
        shoal.AnyInitialLaw.of([[0.9, 0.1], [0.4, 0.6]]),
    ],
)
def test_models_without_a_length_are_refused(model: shoal.Model) -> None:
    query, secrets = shoal.count(("0", "1"), "1"), shoal.Events.of(VISIT)
    with pytest.raises(InputError, match="needs a length"):
        shoal.calibrate(query, secrets, model, epsilon=1)
    with pytest.raises(InputError, match="needs a length"):
        shoal.leakage(model, 1, secrets=secrets)


def test_any_first_law_and_chains_of_higher_order_have_rows_too() -> None:
    wide = shoal.AnyInitialLaw.of([[0.9, 0.1], [0.4, 0.6]], length=10)
    tuples = shoal.chains.OrderChain(
        states=("0", "1"),
        order=2,
        conditional=np.array([[0.9, 0.1], [0.5, 0.5], [0.7, 0.3], [0.3, 0.7]]),
        initial=np.full(4, 0.25),
        length=10,
    )
    query, secrets = shoal.count(("0", "1"), "1"), shoal.Events.of(VISIT)
    for model in (wide, tuples):
        scales = {
            row: scale_of(shoal.calibrate(query, secrets, model, epsilon="0.5", mechanism=row))
            for row in ROWS
        }
        assert scales["exact"] <= min(scales.values())
        assert max(scales.values()) <= scales["group"]
    narrow = scale_of(shoal.calibrate(query, secrets, CHAIN, epsilon="0.5"))
    assert scale_of(shoal.calibrate(query, secrets, wide, epsilon="0.5")) >= narrow
    with pytest.raises(InputError, match="impossible under the model"):
        shoal.leakage(wide, 1, secrets=shoal.Events.of(shoal.at_least("1", 11)))


def test_a_mechanism_from_elsewhere_is_lifted_for_an_event() -> None:
    asked: list[float] = []

    def factory(eta: float) -> Callable[[list[Any]], Any]:
        asked.append(eta)
        return sum

    plan = shoal.lift(factory, CHAIN, epsilon=0.5, secrets=shoal.Events.of(VISIT))
    assert "event lift" in plan.explain()
    assert shoal.leakage(CHAIN, asked[0], secrets=shoal.Events.of(VISIT)).value == pytest.approx(
        0.5, rel=1e-4
    )


def test_noise_does_not_bound_a_rise_of_belief() -> None:
    task = Task(
        query=shoal.count(CHAIN.states, "1"),
        secrets=shoal.Events.of(VISIT).as_rise(),
        family=(CHAIN,),
    )
    for row in ROWS:
        reason = MECHANISMS[row].refuse(task)
        assert reason is not None
        assert "rise of belief" in reason or "delta-privacy" in reason


def test_what_is_told_about_events_is_said_in_words() -> None:
    secrets = shoal.Events.of(VISIT)
    said = shoal.leakage(CHAIN, "0.1", secrets=secrets).describe(secrets)
    assert "may change the odds by a factor of" in said
    assert "whether one was at '1' in slots 3 to 5" in said


def test_every_other_row_refuses_events_in_a_sentence() -> None:
    task = Task(
        query=shoal.count(CHAIN.states, "1"), secrets=shoal.Events.of(VISIT), family=(CHAIN,)
    )
    for name, row in MECHANISMS.items():
        reason = row.refuse(task)
        assert (reason is None) == (name in {"laplace", *ROWS}), (name, reason)
