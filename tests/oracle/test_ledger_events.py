"""Several releases about one event: etas add and are lifted once, epsilons do not add."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.core.errors import CannotCompose, InputError
from shoal.ledger.rules import EVENTS, compose
from shoal.places.rows import KNORM_ROW
from tests.event_oracle import happens
from tests.locations import town_task

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=6)
VISIT = shoal.visit("1")
COUNT = shoal.count(CHAIN.states, "1")


def plan_for(secrets: shoal.Secrets, mechanism: str = "best", epsilon: str = "0.5") -> shoal.Plan:
    return shoal.calibrate(COUNT, secrets, CHAIN, epsilon=epsilon, mechanism=mechanism)


def joint_loss(plans: list[shoal.Plan], event: shoal.events.event.TimeEvent) -> float:
    """The loss of all counts together, at every grid of answers, by all paths."""
    scales = [plan.scale or 0.0 for plan in plans]
    sides: list[dict[int, float]] = [{}, {}]
    for path in itertools.product(range(2), repeat=6):
        chance = CHAIN.initial[path[0]] * math.prod(
            CHAIN.transition[a, b] for a, b in itertools.pairwise(path)
        )
        side = sides[0 if happens(event, [str(x) for x in path]) else 1]
        side[sum(path)] = side.get(sum(path), 0.0) + chance
    worst = 0.0
    for outputs in itertools.product(range(7), repeat=len(plans)):
        seen = []
        for side in sides:
            told = sum(
                p * math.exp(-sum(abs(o - c) / s for o, s in zip(outputs, scales, strict=True)))
                for c, p in side.items()
            )
            seen.append(told / sum(side.values()))
        worst = max(worst, abs(math.log(seen[0] / seen[1])))
    return worst


def test_two_exact_plans_cost_more_than_their_budgets_and_no_more_than_the_rule_says() -> None:
    plans = [plan_for(shoal.Events.of(VISIT), "exact")] * 2
    total = compose(plans)
    truth = joint_loss(plans, VISIT)
    assert truth > 1.0
    assert total.rule == EVENTS
    assert truth <= float(total.amount) <= truth * 1.01
    assert float(compose(plans[:1]).amount) <= 0.5


def test_what_was_made_for_entries_counts_for_the_event_too() -> None:
    plans = [plan_for(shoal.Events.of(VISIT)), plan_for(shoal.EachEntry(), epsilon="0.3")]
    total = compose(plans)
    assert total.rule == EVENTS
    eta = sum(plan.body.eta for plan in plans)  # type: ignore[union-attr]
    entries = shoal.leakage(CHAIN, eta).value
    event = shoal.leakage(CHAIN, eta, secrets=shoal.Events.of(VISIT)).value
    assert float(total.amount) == max(entries, event)
    assert joint_loss(plans, VISIT) <= float(total.amount)


def test_random_sets_of_releases_never_tell_more_than_the_total() -> None:
    rng = np.random.default_rng(3)
    events = [VISIT, shoal.visit("1", between=(2, 3)), shoal.at_least("1", 2)]
    for _ in range(12):
        secrets = [
            shoal.Events.of(events[int(rng.integers(3))])
            if rng.random() < 0.7
            else shoal.EachEntry()
            for _ in range(int(rng.integers(2, 4)))
        ]
        plans = [plan_for(s, epsilon=str(rng.choice(["0.2", "0.7"]))) for s in secrets]
        total = compose(plans)
        for asked in secrets:
            if isinstance(asked, shoal.Events):
                assert joint_loss(plans, asked.pairs[0][0]) <= float(total.amount) + 1e-9


def test_other_lengths_and_parts_fall_back_on_the_group() -> None:
    longer = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=8)
    mixed = [
        plan_for(shoal.Events.of(VISIT)),
        shoal.calibrate(COUNT, shoal.EachEntry(), longer, epsilon=1),
    ]
    assert compose(mixed).rule == "group"
    parts = [shoal.ledger.Part(span=(0, 6)), shoal.ledger.Part(span=(0, 3))]
    assert compose([plan_for(shoal.Events.of(VISIT))] * 2, parts=parts).rule == "group"


def test_a_mask_for_an_event_adds_to_nothing_and_says_the_way_out() -> None:
    day = shoal.DayChain.of(np.full((3, 2, 2), 0.5), initial=[0.5, 0.5])
    mask = shoal.mask(day, shoal.Events.of(shoal.visit("1")), delta=0.2)
    with pytest.raises(CannotCompose) as refusal:
        compose([mask, mask])
    assert any("mask-online" in way for way in refusal.value.ways_out)


def test_a_watched_stream_is_one_charge_about_the_event_and_adds_to_nothing_else(
    tmp_path: Path,
) -> None:
    plan = KNORM_ROW.calibrate(town_task(3, 3), Fraction(1))
    events = shoal.Events.of(shoal.visit("1,1", between=(0, 2)))
    stream = shoal.LocationStream.begin(plan, events=events, event_epsilon=1)
    total = compose([stream.plan] * 3)
    assert total.rule == "per step"
    assert total.amount == 3
    assert "having been at '1,1'" in total.explanation
    with pytest.raises(CannotCompose, match="does not add to anything else") as refusal:
        compose([stream.plan, plan])
    assert any("event_epsilon" in way for way in refusal.value.ways_out)
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        after, release = stream.read("1,1", ledger=ledger, subject="ann")
        again, same = stream.read("0,0", ledger=ledger, subject="ann")  # drawn once, whoever asks
        assert same == release
        assert again == after
        with pytest.raises(InputError, match="leave key and requester out"):
            stream.read("1,1", ledger=ledger, subject="ann", key="mine")
        with pytest.raises(InputError, match="leave key and requester out"):
            stream.read("1,1", ledger=ledger, subject="ann", requester="shop")
        with pytest.raises(CannotCompose):
            shoal.LocationStream.begin(plan).read("1,1", ledger=ledger, subject="ann")
        shoal.LocationStream.begin(plan).read("1,1", ledger=ledger, subject="bob")
        found = ledger.spent("ann", "")
        assert found is not None
        assert "having been at '1,1'" in found.explanation
