"""Streams that promise something about events, in the gateway: charged once a week, resumed."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.core.stream import Slot
from shoal.core.task import Task
from shoal.gateway.advance import LiveStream, Reading, Standing, Work, advance, close, start_stream
from shoal.gateway.clock import steady_clock
from shoal.gateway.machines import context_curves, stream_kind
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.problems import Problem
from shoal.gateway.rounds import run_together
from shoal.gateway.store import ALL
from shoal.gateway.windows import clock_of
from shoal.ledger import SqlLedger, open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from tests.gateway.gateway_house import House
from tests.locations import town

EVERY = 10.0
AMOUNT = 0.4
HOUR = 3600.0


@cache
def places(**clock: Any) -> Plan:
    chain = town(3, 3)
    query = coordinates(chain)
    between: Any = ("tue 08:00", "tue 20:00") if clock else (1, 5)
    events = shoal.Events.of(shoal.visit(["0,0", "0,1"], between=between))
    policy = PolicyGraph.within(query, 0.8).watching(events, AMOUNT, **{"slots": 8, **clock})
    task = Task(query=query, secrets=policy, family=(chain,))
    return calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(1))


@cache
def contexts(**more: Any) -> Plan:
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]]
    day = shoal.DayChain.of(
        matrix, initial=[0.8, 0.2, 0], states=["home", "work", "clinic"], slots=4, slot_minutes=360
    )
    week = shoal.DayChain.joined([day] * 7)
    events = shoal.Events.of(
        shoal.at_least("clinic", 3), shoal.visit("clinic", between=("mon", "fri"))
    )
    return shoal.mask(week, events, delta=0.1, ahead=False, **more)


def live(plan: Plan) -> LiveStream:
    kind = stream_kind(plan)
    clock = steady_clock(seconds=EVERY, slots=kind.slots(plan), begins=0.0)
    return start_stream(
        LiveStream("uid", "s", "p", plan, kind, clock, "publish", 0, Standing(0, b""))
    )


@pytest.fixture
def account(tmp_path: Path) -> Iterator[SqlLedger]:
    with open_ledger(tmp_path / "ledger") as ledger:
        yield ledger


def names(period: str, ordinal: int) -> Slot:
    return Slot(subject="one/ada/s", period=period, key=f"{ordinal}")


def done(work: Work[Any], ledger: SqlLedger) -> Any:
    """The result of work on one stream, its steps charged to a ledger."""
    (result,) = run_together([work], ledger)
    if isinstance(result, Exception):
        raise result
    return result


def passed(
    stream: LiveStream, readings: list[dict[str, Any] | None], account: Any
) -> tuple[LiveStream, list[dict[str, Any]]]:
    """The stream and its outputs after slots with these readings, stored after each of them."""
    shown, room = [], 3 * stream.kind.room(stream.plan) + 2048
    for slot, content in enumerate(readings, stream.closed):
        if content is not None:
            reading = Reading(slot * EVERY + 1, content)
            taken = done(advance(stream, reading, slot * EVERY + 2, names), account)
            assert taken.dead is None
            stream = taken.stream
        packed = stream.standing.to_bytes()
        assert len(packed) <= room
        stream = replace(stream, standing=Standing.from_bytes(packed))
        stream, outputs = done(close(stream, (slot + 1) * EVERY, names, 10), account)
        shown += [json.loads(each.body) for each in outputs]
    return stream, shown


def odds(plan: Plan, stream: LiveStream) -> float:
    kind: Any = stream.kind
    found = kind._stream(plan, stream.standing.seen)
    (belief,), (prior,) = found.event_beliefs(), shoal.LocationStream.begin(plan).event_beliefs()
    return abs(math.log(belief / (1 - belief)) - math.log(prior / (1 - prior)))


def test_places_with_events_keep_the_promise_week_after_week(account: Any) -> None:
    plan, stream = places(), live(places())
    walk = ["0,0", "0,1", "1,1", "0,0", None, "1,0", "0,0", "2,2"]
    readings = [None if place is None else {"state": place} for place in walk]
    moved = 0.0
    for week in range(2):
        for reading in readings:
            stream, (output,) = passed(stream, [reading], account)
            assert output["status"] in ("shown", "suppressed") or reading is None
            if stream.clock.first_of_day(stream.closed):
                break
            moved = max(moved, odds(plan, stream))
            assert moved <= AMOUNT * (1 + 1e-9)
        periods = {each.period for each in account.charges()}
        assert len(periods) == week + 1
    assert moved > 0
    spent = account.spent("one/ada/s", min(periods))
    assert "0.4" in spent.explanation
    assert spent.charges <= 7  # steps that were read and not held back, one promise about the event


def test_a_stored_stream_of_places_with_events_is_the_stream_itself(account: Any) -> None:
    plan, stream = places(), live(places())
    stream, _ = passed(stream, [{"state": "0,0"}, {"state": "0,1"}], account)
    kind: Any = stream.kind
    state = stream.standing.seen
    assert kind._stream(plan, state).to_bytes() == state
    after, _ = passed(stream, [None], account)
    direct, _ = kind._stream(plan, state).skip()
    assert kind._stream(plan, after.standing.seen).watched == direct.watched


@pytest.mark.parametrize("memory", ["events", "none"])
def test_a_week_of_contexts_with_events_fits_its_room_and_is_charged_once(
    account: Any, memory: str
) -> None:
    stream = live(contexts(memory=memory))
    names = itertools.cycle(["home", "clinic", "work", None, "home", "clinic", "nowhere"])
    readings = [None if name is None else {"context": name} for name in itertools.islice(names, 28)]
    stream, shown = passed(stream, readings, account)
    assert [each["slot"] for each in shown] == list(range(28))
    assert len(account.charges()) == 1
    told = [(each["status"], each["context"]) for each in shown]
    curves = context_curves(contexts(memory=memory), told[:6])
    assert curves["after"] is not None
    shown_at = [t for t, (status, _) in enumerate(told[:6]) if status == "shown"]
    assert shown_at
    for slot in shown_at:
        place = curves["contexts"].index(told[slot][1])
        assert curves["after"][slot][place] == pytest.approx(1.0)
    assert np.allclose(np.sum(curves["after"], axis=1), 1, atol=1e-6)


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_weeks_begin_on_their_day_of_the_week() -> None:
    now = seconds("2026-03-05T10:30")  # a Thursday
    for plan in (contexts(memory="none"), places(slots=14, slot_minutes=720)):
        clock = clock_of(plan, {}, "UTC", now, 0)
        assert date.fromisoformat(clock.slot(0).day) == date(2026, 3, 2)
        assert clock.slot(clock.slots).opens - clock.slot(0).opens == 7 * 24 * HOUR
        with pytest.raises(Problem, match="3 day"):
            clock_of(plan, {"begins": "2026-03-05"}, "UTC", now, 0)
    with pytest.raises(Problem, match="events of the plan are by the clock"):
        clock_of(places(slots=14, slot_minutes=720), {"every": 60.0}, "UTC", now, 0)
    with pytest.raises(Problem, match=r"clock\.every is missing"):
        clock_of(places(), {}, "UTC", now, 0)


def test_a_forgotten_stream_stays_closed_until_its_events_are_over(house: House) -> None:
    plan = places()
    told = {"plan": "watch", "document": dumps(plan, indent=None), "told": describe_plan(plan)}
    house.gateway.store.write(ALL, lambda c: keep_plan(c, "one", told))
    path = "/v1/people/ada/streams/watched"
    body: dict[str, Any] = {"plan": "watch", "clock": {"every": 1000.0}, "independent": True}
    hidden = house.ask("PUT", path, "one/ada", {**body, "silence": "hide"})
    assert hidden.status_code == 422
    assert "watches events" in hidden.text
    assert house.ask("PUT", path, "one/ada", body).status_code == 201
    house.pass_time(1001)
    answer = house.ask("POST", f"{path}/readings", "one/ada-phone", [{"state": "0,0"}])
    assert answer.json() == {"taken": 1, "dead": []}
    house.pass_time(1000)
    assert house.outputs(path, "one/ada")[-1]["status"] in ("shown", "suppressed")
    begins = house.outputs(path, "one/ada")[0]["day"]
    assert house.ask("DELETE", path, "one/ada").status_code == 200
    refused = house.ask("PUT", path, "one/ada", body)
    assert refused.status_code == 409
    ends = datetime.fromisoformat(begins).timestamp() + 8000
    assert abs(datetime.fromisoformat(refused.json()["until"]).timestamp() - ends) < 2
    house.pass_time(8000)
    assert house.ask("PUT", path, "one/ada", body).status_code == 201


def test_budgets_of_streams_with_events_count_days_and_steps(house: House) -> None:
    """A day of contexts counts from its first slot on, whether or not it was read."""
    day = shoal.DayChain.of(
        [[0.9, 0.1], [0.5, 0.5]], initial=[0.9, 0.1], states=["home", "clinic"], slots=4
    )
    plans = {
        "watched": places(),
        "days": shoal.mask(day, shoal.Events.of(shoal.visit("clinic")), epsilon=0.5),
    }
    for name, plan in plans.items():
        told = {"plan": name, "document": dumps(plan, indent=None), "told": describe_plan(plan)}
        house.gateway.store.write(ALL, lambda c, told=told: keep_plan(c, "one", told))  # type: ignore[misc]
        path = f"/v1/people/ben/streams/{name}"
        body = {"plan": name, "clock": {"every": 1000.0}, "independent": True}
        assert house.ask("PUT", path, "one/ben", body).status_code == 201
        most = {"epsilon": 1.0 if name == "days" else 9.0, "over": "lifetime"}
        assert house.ask("PUT", f"{path}/limit", "one/ben", most).status_code == 200
    house.pass_time(1001)
    found = {each["stream"]: each for each in spending(house)}
    assert (found["days"]["spent"], found["days"]["alert"]) == (0.5, False)
    assert (found["watched"]["spent"], found["watched"]["limit"]) == (0.0, 9.0)
    for name, reading in (("watched", {"state": "2,2"}), ("days", {"context": "home"})):
        path = f"/v1/people/ben/streams/{name}"
        assert house.ask("POST", f"{path}/readings", "one/ben-phone", reading).json()["taken"] == 1
    assert {each["stream"]: each["spent"] for each in spending(house)} == {
        "days": 0.5,
        "watched": 0,
    }
    house.pass_time(1000)
    assert {each["stream"]: each["steps"] for each in spending(house)} == {"days": 1, "watched": 1}
    house.pass_time(4000)
    found = {each["stream"]: each for each in spending(house)}
    assert (found["days"]["spent"], found["days"]["alert"]) == (1.0, True)


def spending(house: House) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = house.ask("GET", "/v1/people/ben/budget", "one/ben").json()[
        "streams"
    ]
    return sorted(told, key=lambda each: str(each["stream"]))
