"""Readings in, outputs out: the promises one by one, over HTTP, with a clock that is moved."""

from __future__ import annotations

import itertools
import json
import re
import socket
import threading
import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from shoal.gateway.store import ALL
from shoal.gateway.tables import OUTPUTS, PLANS, STREAMS
from tests.gateway.gateway_house import House, wait_until

EVERY = 1000.0  # seconds of a slot: longer than any test takes, so only the test closes slots
HOME = {"context": "home"}
CORNER = {"lat": 52.501, "lon": 13.362}
_names = itertools.count()


def begin(house: House, plan: str, **more: Any) -> str:
    """The path of a new stream of ada's in space one, whose first slot has just begun."""
    path = f"/v1/people/ada/streams/s{next(_names)}"
    body = {"plan": plan, "clock": {"every": EVERY}, "independent": True, **more}
    answer = house.ask("PUT", path, "one/ada", body)
    assert answer.status_code == 201, answer.text
    house.clock.ahead += stored(house, path).closes - EVERY + 1 - house.clock()
    house.pass_time(0)
    return path


def stored(house: House, path: str) -> Any:
    name = path.rpartition("/")[2]
    wanted = select(STREAMS).where(STREAMS.c.stream == name)
    return house.gateway.store.read(ALL, lambda c: c.execute(wanted).one())


def push(house: House, path: str, *readings: dict[str, Any]) -> dict[str, Any]:
    answer = house.ask("POST", f"{path}/readings", "one/ada-phone", list(readings))
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def charges(house: House, path: str) -> list[Any]:
    subject = f"one/ada/{path.rpartition('/')[2]}"
    return [each for each in house.gateway.store.ledger.charges() if each.subject == subject]


def test_nothing_is_seen_before_the_slot_closes(house: House) -> None:
    path = begin(house, "walk")
    assert push(house, path, CORNER) == {"taken": 1, "dead": []}
    assert house.ask("GET", f"{path}/now", "one/ada").status_code == 409
    assert house.outputs(path, "one/ada") == []
    house.pass_time(EVERY)
    (output,) = house.outputs(path, "one/ada")
    assert output["status"] == "shown"
    assert house.ask("GET", f"{path}/now", "one/ada").json() == output


def test_every_slot_has_exactly_one_output_read_or_not(house: House) -> None:
    path = begin(house, "walk")
    push(house, path, CORNER)
    house.pass_time(5 * EVERY)
    found = house.outputs(path, "one/ada")
    first = found[0]["id"]
    assert [each["id"] for each in found] == list(range(first, first + 5))
    assert [each["status"] for each in found] == ["shown", *["silent"] * 4]


def test_a_slot_is_drawn_once_however_often_it_is_read(house: House) -> None:
    path = begin(house, "walk")
    push(house, path, CORNER)
    before = stored(house, path)
    told = push(house, path, CORNER, {"state": "2,2"}, CORNER)
    assert told == {"taken": 3, "dead": []}
    assert stored(house, path).sealed == before.sealed
    assert len(charges(house, path)) == 1


def test_a_closed_slot_stays_closed(house: House) -> None:
    path = begin(house, "day")
    opened = house.clock()
    house.pass_time(EVERY)
    told = push(house, path, {"at": at(opened), **HOME}, HOME)
    assert told["taken"] == 1
    assert [(each["place"], each["reason"]) for each in told["dead"]] == [(0, "closed")]
    early = push(house, path, {"at": at(house.clock() + 3 * EVERY), **HOME})
    assert early["dead"][0]["reason"] == "early"


def test_readings_that_cannot_be_read_are_dead_and_leave_no_content(house: House) -> None:
    path = begin(house, "walk")
    told = push(house, path, {"state": "nowhere-such-place"}, {"context": "home"})
    assert [each["reason"] for each in told["dead"]] == ["unreadable", "unreadable"]
    assert "nowhere-such-place" not in everything_stored(house)


def test_no_reading_is_stored_anywhere(house: House) -> None:
    path = begin(house, "day")
    push(house, path, {"context": "clinic"})
    house.pass_time(2 * EVERY)
    left_out = ("gateway_plans", "shoal_plans", "gateway_outputs")
    assert "clinic" not in everything_stored(house, without=left_out)
    assert house.outputs(path, "one/ada")[0]["context"] in (None, "clinic")


def test_states_are_sealed_at_one_length_with_fresh_nonces(house: House) -> None:
    path = begin(house, "day")
    seen = [stored(house, path).sealed]
    for context in ("clinic", "home", "work"):
        push(house, path, {"context": context})
        seen.append(stored(house, path).sealed)
        house.pass_time(EVERY)
        seen.append(stored(house, path).sealed)
    assert len({len(each) for each in seen}) == 1
    assert len({each[:12] for each in seen}) == len(seen)


def test_a_day_is_charged_once_and_a_new_day_begins_by_itself(house: House) -> None:
    path = begin(house, "day")
    for _ in range(6):
        push(house, path, HOME)
        house.pass_time(EVERY)
    assert len({each.period for each in charges(house, path)}) == len(charges(house, path)) == 2
    assert [each["slot"] for each in house.outputs(path, "one/ada")] == [0, 1, 2, 3, 0, 1]


def test_what_the_ledger_refuses_is_shown_as_refused(house: House) -> None:
    path = begin(house, "walk")
    assert house.ask("PUT", f"{path}/limit", "one/ada", {"epsilon": 1.5}).status_code == 200
    push(house, path, CORNER)
    house.pass_time(EVERY)
    assert push(house, path, CORNER)["dead"][0]["reason"] == "budget"
    house.pass_time(EVERY)
    assert [each["status"] for each in house.outputs(path, "one/ada")] == ["shown", "refused"]
    (dead,) = house.ask("GET", f"{path}/refused", "one/ada").json()["refused"]
    assert (dead["id"], dead["reason"]) == (stored(house, path).closed - 1, "budget")


def test_a_limit_may_be_for_all_days_together(house: House) -> None:
    path = begin(house, "walk")
    body = {"epsilon": 2.5, "over": "lifetime"}
    assert house.ask("PUT", f"{path}/limit", "one/ada", body).json()["over"] == "lifetime"
    subject = f"one/ada/{path.rpartition('/')[2]}"
    (limit,) = (each for each in house.gateway.store.ledger.limits() if each.subject == subject)
    assert limit.period is None


def test_a_limit_that_no_charge_could_keep_is_refused(house: House) -> None:
    """It would silence the stream for good, and nobody would have been told."""
    for plan, reading, unit in (("day", HOME, "epsilon"), ("walk", CORNER, "eta")):
        path = begin(house, plan)
        answer = house.ask("PUT", f"{path}/limit", "one/ada", {"epsilon": 9, "unit": unit})
        assert answer.status_code == 422
        assert f"unit is {unit}" in answer.json()["detail"]
        assert push(house, path, reading)["dead"] == []


def test_an_operator_sees_a_space_at_a_glance(house: House) -> None:
    path = begin(house, "walk")
    house.ask("PUT", f"{path}/limit", "one/operator", {"epsilon": 1.1}).raise_for_status()
    push(house, path, CORNER)
    push(house, path, {**CORNER, "at": "2020-01-01T00:00:00Z"})
    house.pass_time(EVERY)
    whole = house.ask("GET", "/v1/overview?limit=1", "one/operator").json()
    (ada,) = whole["page"]
    assert (whole["people"], whole["after"], ada["person"]) == (2, "ada", "ada")
    name = path.rpartition("/")[2]
    (stream,) = (each for each in ada["streams"] if each["stream"] == name)
    assert (stream["refused"], stream["seen"]) == ({"closed": 1}, None)
    assert whole["refused"]["closed"] >= 1
    (spent,) = (each for each in ada["budget"] if each["stream"] == name)
    assert (spent["spent"], spent["limit"], spent["alert"]) == (1.0, 1.1, True)
    rest = house.ask("GET", f"/v1/overview?after={whole['after']}", "one/operator").json()
    assert ([each["person"] for each in rest["page"]], rest["after"]) == (["ben"], None)


def test_silence_can_be_hidden_among_what_is_suppressed(house: House) -> None:
    path = begin(house, "day", silence="hide")
    house.pass_time(2 * EVERY)
    found = house.outputs(path, "one/ada")
    assert {(each["status"], each["context"]) for each in found} == {("suppressed", None)}
    places = begin(house, "walk", silence="hide")
    house.pass_time(3 * EVERY)
    assert {each["status"] for each in house.outputs(places, "one/ada")} == {"shown"}
    assert len(charges(house, places)) == 3


def test_a_pause_begins_at_the_end_of_a_slot_and_shows(house: House) -> None:
    path = begin(house, "day")
    push(house, path, HOME)
    assert house.ask("POST", f"{path}/pause", "one/ada").status_code == 200
    house.pass_time(EVERY)
    assert push(house, path, HOME)["dead"][0]["reason"] == "paused"
    house.pass_time(EVERY)
    house.ask("POST", f"{path}/resume", "one/ada").raise_for_status()
    house.pass_time(EVERY)
    push(house, path, HOME)
    house.pass_time(EVERY)
    found = [each["status"] for each in house.outputs(path, "one/ada")]
    assert found[1:3] == ["paused", "paused"]
    assert "paused" not in (found[0], found[3])


def test_a_plan_is_swapped_at_the_end_of_a_day(house: House) -> None:
    path = begin(house, "day")
    push(house, path, HOME)
    assert house.ask("PUT", path, "one/ada", {"plan": "day2"}).status_code == 422
    give_plan(house, "day", "day2")
    answer = house.ask("PUT", path, "one/ada", {"plan": "day2"})
    assert answer.status_code == 200, answer.text
    for _ in range(6):
        house.pass_time(EVERY)
        push(house, path, HOME)
    found = house.outputs(path, "one/ada")
    assert [each["plan"] for each in found] == ["day"] * 4 + ["day2"] * 2
    first = found[0]["id"]
    assert [each["id"] for each in found] == list(range(first, first + 6))
    assert [each["slot"] for each in found] == [0, 1, 2, 3, 0, 1]


def test_a_stream_is_forgotten_and_its_name_stays_closed_until_the_day_ends(house: House) -> None:
    path = begin(house, "day")
    push(house, path, HOME)
    house.pass_time(EVERY)
    last = house.outputs(path, "one/ada")[-1]["id"]
    uid = stored(house, path).uid
    assert house.ask("DELETE", path, "one/ada").status_code == 200
    assert house.ask("GET", f"{path}/now", "one/ada").status_code == 404
    kept = select(OUTPUTS).where(OUTPUTS.c.uid == uid)
    assert house.gateway.store.read(ALL, lambda c: c.execute(kept).first()) is None
    again = {"plan": "day", "clock": {"every": EVERY}, "independent": True}
    refused = house.ask("PUT", path, "one/ada", again)
    assert refused.status_code == 409
    assert "until" in refused.json()
    house.pass_time(4 * EVERY)
    assert house.ask("PUT", path, "one/ada", again).status_code == 201
    house.pass_time(2 * EVERY)
    assert house.outputs(path, "one/ada")[0]["id"] > last


def test_a_second_stream_of_one_life_is_refused_unless_it_is_said_to_be_apart(house: House) -> None:
    body: dict[str, Any] = {"plan": "day", "clock": {"every": EVERY}}
    assert house.ask("PUT", "/v1/people/ben/streams/a", "one/ben", body).status_code == 201
    answer = house.ask("PUT", "/v1/people/ben/streams/b", "one/ben", body)
    assert answer.status_code == 409
    assert "independent" in answer.json()["detail"]


def test_events_come_when_slots_close_and_go_on_where_they_ended(house: House) -> None:
    path = begin(house, "walk")
    with Listening(house, path) as heard:
        push(house, path, CORNER)
        house.pass_time(2 * EVERY)
        heard.wait(2)
    first = [each["id"] for each in heard.found]
    house.pass_time(2 * EVERY)
    with Listening(house, path, last=first[-1]) as heard:
        house.pass_time(EVERY)
        heard.wait(3)
    assert [each["id"] for each in heard.found] == [first[-1] + n for n in (1, 2, 3)]
    assert heard.found == house.outputs(path, "one/ada", after=first[-1])


def test_all_applications_see_one_stream_and_a_grant_can_be_rarer(house: House) -> None:
    path = begin(house, "walk")
    grant = "/v1/people/ada/grants"
    house.ask("PUT", f"{grant}/viewer", "one/ada", {"every": 1}).raise_for_status()
    house.ask("PUT", f"{grant}/stranger", "one/ada", {"every": 2}).raise_for_status()
    for _ in range(5):
        push(house, path, CORNER)
        house.pass_time(EVERY)
    whole, rare = (house.outputs(path, key) for key in ("one/viewer", "one/stranger"))
    assert rare == [each for each in whole if each["id"] % 2 == 0]
    assert 0 < len(rare) < len(whole)
    house.ask("DELETE", f"{grant}/stranger", "one/ada").raise_for_status()
    assert house.ask("GET", f"{path}/now", "one/stranger").status_code == 404


def test_an_event_stream_ends_when_its_grant_does(house: House) -> None:
    path = begin(house, "walk")
    house.ask("PUT", "/v1/people/ada/grants/viewer", "one/ada", {}).raise_for_status()
    with Listening(house, path, key="one/viewer") as heard:
        house.ask("DELETE", "/v1/people/ada/grants/viewer", "one/ada").raise_for_status()
        heard.thread.join(60)
        assert heard.ended


def test_an_event_stream_that_never_rests_ends_with_its_grant(house: House) -> None:
    """Slots that close more often than hearts beat do not put the look at the grant off."""
    path = begin(house, "walk")
    house.ask("PUT", "/v1/people/ada/grants/viewer", "one/ada", {}).raise_for_status()
    with Listening(house, path, key="one/viewer") as heard:
        house.ask("DELETE", "/v1/people/ada/grants/viewer", "one/ada").raise_for_status()
        end = time.monotonic() + 60
        while not heard.ended and time.monotonic() < end:
            house.pass_time(EVERY)
        assert heard.ended


def test_a_slow_client_holds_nobody_up(house: House) -> None:
    path = begin(house, "walk")
    raw = socket.create_connection(house.base.removeprefix("http://").split(":"))  # type: ignore[arg-type]
    head = f"GET {path}/events HTTP/1.1\r\nHost: x\r\n"
    raw.sendall(f"{head}Authorization: Bearer {house.token('one/ada')}\r\n\r\n".encode())
    assert raw.recv(100)  # and then it reads nothing more
    with Listening(house, path) as heard:
        for _ in range(5):
            house.pass_time(4 * EVERY)
        heard.wait(20)
    assert [each["id"] for each in heard.found] == list(range(20))
    raw.close()


def test_a_clock_that_jumps_closes_nothing_twice(house: House) -> None:
    path = begin(house, "walk")
    push(house, path, CORNER)
    house.pass_time(3 * EVERY)
    before = house.outputs(path, "one/ada")
    house.clock.ahead -= 2 * EVERY
    dead = push(house, path, CORNER)["dead"]
    assert [each["reason"] for each in dead] == ["closed"]
    assert house.outputs(path, "one/ada") == before
    house.pass_time(2 * EVERY)
    assert push(house, path, CORNER)["taken"] == 1
    house.pass_time(30 * EVERY)  # a jump ahead: every slot in between has its one output
    found = house.outputs(path, "one/ada")
    assert [each["id"] for each in found] == list(range(len(found)))
    assert len(found) > 30


def test_shown_and_suppressed_slots_have_one_length(house: House) -> None:
    path = begin(house, "day")
    lengths: dict[str, set[int]] = {}
    for turn in range(40):
        push(house, path, {"context": ("home", "work", "clinic")[turn % 3]})
        house.pass_time(EVERY)
        answer = house.ask("GET", f"{path}/now", "one/ada")
        body = answer.json()
        lengths.setdefault(body["status"], set()).add(len(answer.content) - len(str(body["id"])))
    assert set(lengths) == {"shown", "suppressed"}
    assert len(set.union(*lengths.values())) == 1


def test_who_saw_what_is_told_to_the_person_alone(house: House) -> None:
    path = begin(house, "walk")
    house.ask("PUT", "/v1/people/ada/grants/viewer", "one/ada", {}).raise_for_status()
    house.pass_time(3 * EVERY)
    seen = len(house.outputs(path, "one/viewer"))

    def told(key: str) -> Any:
        streams = house.ask("GET", "/v1/people/ada", key).json()["streams"]
        return next(each["seen"] for each in streams if path.endswith(f"/{each['stream']}"))

    wait_until(lambda: bool(told("one/ada")))
    assert [(each["application"], each["outputs"]) for each in told("one/ada")] == [
        ("viewer", seen)
    ]
    assert told("one/operator") is None


class Listening:
    """An event stream read in the background."""

    def __init__(
        self, house: House, path: str, *, key: str = "one/ada", last: int | None = None
    ) -> None:
        self.found: list[dict[str, Any]] = []
        self.ended = False
        headers = {"Authorization": f"Bearer {house.token(key)}"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        self._client = httpx.Client(base_url=house.base, timeout=60)
        self._response = self._client.send(
            self._client.build_request("GET", f"{path}/events", headers=headers), stream=True
        )
        self._response.raise_for_status()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self._begun = threading.Event()

    def __enter__(self) -> Listening:
        self.thread.start()
        assert self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._response.close()
        self._client.close()

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.found) >= count)

    def _read(self) -> None:
        event = ""
        try:
            for line in self._response.iter_lines():
                self._begun.set()
                name, _, rest = line.partition(": ")
                event = rest if name == "event" else event
                if name == "data" and event == "output":
                    self.found.append(json.loads(rest))
                self.ended = self.ended or event == "end"
        except (httpx.HTTPError, httpx.StreamError, OSError):
            return


def give_plan(house: House, old: str, new: str) -> None:
    """The same plan under another name."""

    def work(connection: Any) -> None:
        row = connection.execute(
            select(PLANS).where(PLANS.c.plan == old, PLANS.c.space == "one")
        ).one()
        connection.execute(PLANS.insert(), {**row._mapping, "plan": new})

    house.gateway.store.write(ALL, work)


def everything_stored(house: House, without: tuple[str, ...] = ()) -> str:
    """The whole database as text, tables left out by name."""

    def work(connection: Any) -> str:
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = [row[0] for row in names if row[0] not in without]
        rows = [
            row for name in tables for row in connection.exec_driver_sql(f"SELECT * FROM {name}")
        ]
        return repr(rows)

    return house.gateway.store.read(ALL, work)


def at(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat()


@pytest.mark.parametrize("path", ["/health/live", "/health/ready", "/metrics", "/openapi.json"])
def test_health_and_numbers_need_no_key_and_name_nobody(house: House, path: str) -> None:
    answer = house.ask("GET", path)
    assert answer.status_code == 200
    assert not re.search(r"\b(ada|ben)\b", answer.text)
