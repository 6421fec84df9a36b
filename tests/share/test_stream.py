"""The one history of a person's rides: charged, stored, resumed, and never begun twice."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.core.errors import BudgetError, DataError, InputError, OtherHistory, PromiseBroken
from shoal.core.plan import Plan
from shoal.share import Leg, PermanentPlace, PermanentPlaces, Roads, ShareStream, plan_share
from shoal.share.history import ShareRule
from shoal.share.plan import MECHANISM, ShareMachine
from studies.share_towns import Rider, Town, make_town


@pytest.fixture(scope="module")
def town() -> Town:
    return make_town(5, crossings=400, side=3000.0, bridges=1)


@pytest.fixture(scope="module")
def plan(town: Town) -> Plan:
    place = PermanentPlace.of(town.near(0, 0, 300).tolist())
    return plan_share(town.roads(), place, epsilon=4, legs=12)


def rides(town: Town, plan: Plan, count: int, seed: int = 1) -> list[Leg]:
    random = np.random.default_rng(seed)
    (place,) = plan.body.rule.places  # type: ignore[union-attr]
    home = int(random.choice(place.zone))
    goals = random.choice(np.flatnonzero(town.xy[:, 1] > 900), 3, replace=False)
    rider, legs = Rider(town.roads(), 0, random), []
    for number in range(count):
        goal = int(goals[number % 3])
        path = rider.leg(home, goal)
        legs.append(Leg(path[::-1] if number % 2 else path, goal, bool(number % 2)))
    return legs


def test_a_ledger_keeps_one_history(town: Town, plan: Plan, tmp_path: Path) -> None:
    legs = rides(town, plan, 8)
    with shoal.open_ledger(tmp_path / "rides.db") as ledger:
        stream = ShareStream.begin(plan)
        for leg in legs[:4]:
            stream, _ = stream.show(leg, ledger=ledger, subject="ann")
        again = ShareStream.resume(plan, ledger, subject="ann")
        assert again == stream
        assert again.history.worst() == stream.history.worst()
        for leg in legs[4:]:
            again, _ = again.show(leg, ledger=ledger, subject="ann")
        spent = ledger.spent("ann")
        assert spent is not None
        assert (spent.amount, spent.rule, spent.charges) == (Fraction(4), "per pair", 8)
        assert ledger.verify().problems == ()
    assert 0 < again.history.worst() <= 4


def test_the_same_rides_again_give_what_was_stored(town: Town, plan: Plan, tmp_path: Path) -> None:
    legs = rides(town, plan, 3)
    with shoal.open_ledger(tmp_path / "rides.db") as ledger:
        found = []
        for _ in range(2):
            stream = ShareStream.begin(plan)
            shown = [out for _, out in stream.show_all(legs, ledger=ledger, subject="ann")]
            found.append(shown)
        assert found[0] == found[1]
        assert len(ledger.charges("ann")) == 3


def test_a_second_beginning_is_refused(town: Town, plan: Plan, tmp_path: Path) -> None:
    legs = rides(town, plan, 4)
    with shoal.open_ledger(tmp_path / "rides.db") as ledger:
        for _ in ShareStream.begin(plan).show_all(legs[:2], ledger=ledger, subject="ann"):
            pass
        with pytest.raises(OtherHistory, match="published before"):
            ShareStream.begin(plan).show(legs[3], ledger=ledger, subject="ann")
        skipped, _ = ShareStream.begin(plan).show(legs[3])
        with pytest.raises(OtherHistory):
            skipped.show(legs[2], ledger=ledger, subject="ann")


def test_another_zone_map_or_epsilon_is_refused(town: Town, plan: Plan, tmp_path: Path) -> None:
    legs = rides(town, plan, 2)
    rule = plan.body.rule  # type: ignore[union-attr]
    others = [
        plan_share(rule.roads, rule.places[0], epsilon=5, legs=12),
        plan_share(rule.roads, rule.places[0], epsilon=4, legs=13),
        plan_share(
            rule.roads, PermanentPlace.of(rule.places[0].zone[1:].tolist()), epsilon=4, legs=12
        ),
        plan_share(town.roads(mu=31.0), rule.places[0], epsilon=4, legs=12),
    ]
    with shoal.open_ledger(tmp_path / "rides.db") as ledger:
        ShareStream.begin(plan).show(legs[0], ledger=ledger, subject="ann")
        for other in others:
            with pytest.raises(OtherHistory, match="another map, zone, epsilon"):
                ShareStream.resume(other, ledger, subject="ann")
            with pytest.raises(BudgetError):
                ShareStream.begin(other).show(legs[1], ledger=ledger, subject="ann")


def test_a_forged_plan_is_refused(town: Town, plan: Plan, tmp_path: Path) -> None:
    assert isinstance(plan.body, ShareMachine)
    weaker = replace(plan.body, rule=replace(plan.body.rule, epsilon=Fraction(9)))
    roads = plan.body.rule.roads
    other = Roads.of(roads.points, np.column_stack([roads.tails, roads.heads]), roads.weights * 0.9)
    forged = [
        replace(plan, body=weaker),
        replace(plan, body=replace(plan.body, rule=replace(plan.body.rule, roads=other))),
        replace(plan, composition=()),
    ]
    for one in forged:
        assert not MECHANISM.loss(one) <= float(one.guarantee.amount)
    # the numbers of the certificate are notes: nothing is taken from them
    noted = replace(plan, certificate=replace(plan.certificate, laws=2))  # type: ignore[type-var]
    assert MECHANISM.loss(noted) == MECHANISM.loss(plan)
    with shoal.open_ledger(tmp_path / "rides.db") as ledger, pytest.raises(PromiseBroken):
        ShareStream.begin(forged[0]).show(rides(town, plan, 1)[0], ledger=ledger, subject="ann")


def test_a_plan_is_stored_and_read(plan: Plan) -> None:
    assert shoal.loads(shoal.dumps(plan)) == plan


def test_hidden_parts_may_be_replaced(town: Town, plan: Plan) -> None:
    """Whatever leads to the first shown crossing from anywhere in the zone: the same bytes."""
    random = np.random.default_rng(7)
    stream = ShareStream.begin(plan)
    roads, (place,) = plan.body.rule.roads, plan.body.rule.places  # type: ignore[union-attr]
    rider, replaced = Rider(roads, 0, random), 0
    for leg in rides(town, plan, 12, seed=3):
        after, shown = stream.show(leg)
        outward = shown.path[::-1] if shown.homeward else shown.path
        if len(outward) > 1:
            for _ in range(5):
                other = rider.leg(int(random.choice(place.zone)), outward[0])
                if leg.goal in other:
                    continue
                path = (*other[:-1], *outward)
                ridden = path[::-1] if leg.homeward else path
                changed, output = stream.show(leg._replace(path=ridden))
                assert output.encoded == shown.encoded
                assert changed.before == after.before
                replaced += 1
        stream = after
    assert replaced > 10


def test_no_pair_passes_epsilon(town: Town, plan: Plan) -> None:
    stream = ShareStream.begin(plan)
    for after, _ in stream.show_all(rides(town, plan, 30)):
        assert after.history.worst() <= 4
        stream = after
    assert stream.legs == 30


def test_within_allows_more_for_crossings_far_apart(town: Town) -> None:
    zone = town.near(0, 0, 300).tolist()
    place = PermanentPlace.of(zone, within=200)
    scale = place.scale(town.roads())
    assert scale.min() == 1
    far = np.hypot(*(town.xy[zone[0]] - town.xy[zone[-1]]))
    assert scale[0, -1] == pytest.approx(max(1, far / 200), rel=1e-3)
    plan = plan_share(town.roads(), place, legs=12)
    history = plan.body.init()  # type: ignore[union-attr]
    for leg in rides(town, plan, 12):
        history = history.absorb(history.cut(leg))
    assert (history.spent() <= scale).all()


def test_two_places_are_charged_apart(town: Town) -> None:
    zones = [town.near(-700, 0, 250).tolist(), town.near(700, 0, 250).tolist()]
    places = tuple(PermanentPlace.of(zone) for zone in zones)
    plan = plan_share(town.roads(), places, legs=6)
    assert isinstance(plan.task.secrets, PermanentPlaces)
    far = int(np.argmax(town.xy[:, 1]))
    rider = Rider(town.roads(), 0, np.random.default_rng(2))
    history = plan.body.init()  # type: ignore[union-attr]
    for place in (0, 1, 0):
        leg = Leg(rider.leg(zones[place][0], far), far, place=place)
        before = [history.spent(other) for other in (0, 1)]
        history = history.absorb(history.cut(leg))
        assert (history.spent(1 - place) == before[1 - place]).all()
    between = Leg(rider.leg(zones[0][0], zones[1][0]), zones[1][0])
    with pytest.raises(DataError, match="hidden zone"):
        history.cut(between)


def test_what_is_refused(town: Town, plan: Plan) -> None:
    roads, (place,) = plan.body.rule.roads, plan.body.rule.places  # type: ignore[union-attr]
    with pytest.raises(InputError, match="overlaps"):
        ShareRule(roads=roads, places=(place, place), epsilon=Fraction(1), legs=1)
    with pytest.raises(InputError, match="at least 12"):
        PermanentPlace.square(roads, 10.0, 10.0)
    goal = int(np.argmax(town.xy[:, 0]))
    twice = Leg((int(place.zone[0]), goal, goal - 1, goal), goal)
    with pytest.raises(DataError, match="meet its goal"):
        plan.body.init().cut(twice)  # type: ignore[union-attr]


def test_weights_whose_sums_have_no_end_are_refused() -> None:
    pairs = [(0, 1), (1, 0), (1, 2), (2, 1), (0, 2), (2, 0)]
    roads = Roads.of([(0, 0), (0, 1), (1, 0)], pairs, [0.6] * 6)
    with pytest.raises(shoal.core.errors.Refused, match="do not add up"):
        plan_share(roads, PermanentPlace.of((0, 1)))
