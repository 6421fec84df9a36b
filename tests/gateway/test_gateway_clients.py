"""The typed clients, OwnTracks over HTTP and over MQTT, against a running gateway."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest

from shoal.gateway import client as client_module
from shoal.gateway.client import AsyncClient, Client, GatewayError, Output
from tests.gateway.gateway_house import COUNT, House, wait_until
from tests.gateway.gateway_nursery import free_ports

EVERY = 1000.0
# as the app sends it, version 2.4: https://owntracks.org/booklet/tech/json/
LOCATION = {
    "_type": "location",
    "BSSID": "c0:3f:0e:9a:00:01",
    "SSID": "home",
    "acc": 12,
    "alt": 34,
    "batt": 87,
    "bs": 1,
    "conn": "w",
    "lat": 52.5031,
    "lon": 13.3652,
    "m": 1,
    "t": "u",
    "tid": "ad",
    "topic": "owntracks/ada/phone",
    "vac": 3,
    "vel": 0,
}
OTHERS: list[dict[str, Any]] = [
    {"_type": "transition", "event": "enter", "lat": 52.5, "lon": 13.36, "wtst": 1, "tst": 2},
    {"_type": "waypoint", "desc": "home", "lat": 52.5, "lon": 13.36, "rad": 50, "tst": 1},
    {"_type": "lwt", "tst": 1},
    {"_type": "status"},
    {},
]


@pytest.fixture(scope="module")
def town(house: House) -> House:
    """Ada and ben walk, and let the viewer see."""
    for person in ("ada", "ben"):
        body: dict[str, Any] = {"plan": "walk", "clock": {"every": EVERY}}
        house.ask("PUT", f"/v1/people/{person}/streams/places", f"one/{person}", body)
        house.ask("PUT", f"/v1/people/{person}/grants/viewer", f"one/{person}", {})
    house.pass_time(EVERY)
    return house


def client(town: House, key: str) -> Client:
    return Client(town.base, town.token(key))


def now_of(town: House) -> datetime:
    """The time by the clock that the tests move."""
    return datetime.fromtimestamp(town.clock(), UTC)


def test_a_client_pushes_and_sees(town: House) -> None:
    with client(town, "one/ada-phone") as phone, client(town, "one/viewer") as viewer:
        told = phone.push("ada", "places", at=now_of(town), lat=52.5, lon=13.36)
        assert (told.taken, told.dead) == (1, ())
        town.pass_time(EVERY)
        now = viewer.now("ada", "places")
        assert now.status == "shown"
        assert len(now.value["point"]) == 2
        assert list(viewer.outputs("ada", "places"))[-1] == now
        town.pass_time(EVERY)
        following = viewer.follow("ada", "places", after=now.id)
        assert next(following).id == now.id + 1
        with pytest.raises(GatewayError, match="nothing here") as error:
            phone.push("ben", "places", state="0,0")
        assert error.value.status == 404


def test_a_client_follows_from_an_event_loop(town: House) -> None:
    async def run() -> list[Output]:
        async with (
            AsyncClient(town.base, town.token("one/ada-phone")) as phone,
            AsyncClient(town.base, town.token("one/ada")) as ada,
        ):
            await phone.push("ada", "places", at=now_of(town), state="1,1")
            await asyncio.to_thread(town.pass_time, 2 * EVERY)
            last = await ada.now("ada", "places")
            found = []
            async for output in ada.follow("ada", "places", after=max(last.id - 2, -1)):
                found.append(output)
                if output.id == last.id:
                    return found
            return found

    found = asyncio.run(run())
    assert [each.status for each in found] == ["shown", "silent"]


def test_a_client_follows_from_the_first_output_on(town: House) -> None:
    with client(town, "one/ada-phone") as phone, client(town, "one/ada") as ada:
        phone.push("ada", "places", at=now_of(town), state="1,1")
        town.pass_time(2 * EVERY)
        assert next(iter(ada.follow("ada", "places", after=-1))).id == 0
        with pytest.raises(GatewayError, match="no id of an output"):
            next(iter(ada.follow("ada", "places", after=-2)))


def test_an_operator_sets_a_space_up(town: House) -> None:
    with client(town, "two/operator") as operator:
        operator.put_person("cleo")
        made = operator.make_key("person", "cleo")
        plan = operator.make_plan(COUNT)
        with pytest.raises(GatewayError, match="nothing is read"):
            operator.make_plan(f"[data]\nstate = 'x'\n{COUNT}")
        with pytest.raises(GatewayError, match="transition"):
            operator.make_plan(COUNT.replace("0.7, 0.3", "0.7, 0.7"))
    with Client(town.base, made.token) as cleo:
        body = {"plan": plan, "data": ["a", "b", "a"]}
        first, second = (
            town.http.post(
                "/v1/releases",
                json=body,
                headers={"Authorization": f"Bearer {made.token}", "Idempotency-Key": "r1"},
            ).json()
            for _ in range(2)
        )
        assert first == second
        assert set(first["values"]) == {"a"}
        with pytest.raises(GatewayError, match="single releases"):
            cleo.put_stream("cleo", "s", plan, clock={"every": EVERY})


def test_releases_and_streams_of_one_life_are_not_kept_in_two_accounts(town: House) -> None:
    with client(town, "one/operator") as operator:
        plan = operator.make_plan(COUNT)
        with pytest.raises(GatewayError, match="this person has a stream"):
            operator.release(plan, ["a", "b"], subject="ada")
        assert operator.release(plan, ["a", "b"], subject="ada", independent=True)["values"]
        operator.put_person("dora")
        assert operator.release(plan, ["a", "b"], subject="dora")["values"]
        with pytest.raises(GatewayError, match="single releases were made about this person"):
            operator.put_stream("dora", "s", "walk", clock={"every": EVERY})
        operator.put_stream("dora", "s", "walk", clock={"every": EVERY}, independent=True)


def test_a_person_looks_at_beliefs_and_budget(town: House) -> None:
    with client(town, "one/ada") as ada:
        heat = ada.beliefs("ada", "places")["places"]
        assert sum(each["belief"] for each in heat) == pytest.approx(1)
        assert {"lat", "lon", "state"} <= set(heat[0])
        (spent,) = ada.budget("ada")["streams"]
        assert spent["spent"] == pytest.approx(spent["steps"])
        first = ada.pause("ada", "places")
        assert ada.pause("ada", "places", resume=True) >= first


def basic(town: House, device: str, viewer: str = "") -> httpx.BasicAuth:
    return httpx.BasicAuth(town.token(viewer) if viewer else "ada", town.token(device))


def owntracks(town: House, message: Any, viewer: str = "") -> httpx.Response:
    auth = basic(town, "one/ada-phone", viewer)
    return httpx.post(f"{town.base}/owntracks", json=message, auth=auth, timeout=60)


def test_owntracks_is_a_device_and_sees_its_friends(town: House) -> None:
    town.pass_time(EVERY)
    message = {**LOCATION, "tst": int(town.clock())}
    answer = owntracks(town, message, "one/viewer")
    assert answer.status_code == 200, answer.text
    town.pass_time(EVERY)
    cards = owntracks(town, {"_type": "status"}, "one/viewer").json()
    assert [each["name"] for each in cards if each["_type"] == "card"] == ["ada", "ben"]
    places = [each for each in cards if each["_type"] == "location"]
    assert all({"lat", "lon", "acc", "tst", "tid"} == set(each) - {"_type"} for each in places)
    shown = town.outputs("/v1/people/ada/streams/places", "one/viewer")[-1]
    assert shown["status"] == "shown"
    assert (places[0]["lat"], places[0]["lon"]) == (shown["lat"], shown["lon"])


@pytest.mark.parametrize("message", OTHERS)
def test_other_messages_are_taken_and_ignored(town: House, message: dict[str, Any]) -> None:
    answer = owntracks(town, message)
    assert answer.status_code == 200
    assert answer.json() == []


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ({"_type": "encrypted", "data": "c2VjcmV0"}, "turn encryption off"),
        ({"_type": "location", "lat": "north", "lon": 1}, "numbers lat and lon"),
        ({"_type": "location", "lat": 99.0, "lon": 1.0}, "out of range"),
        ({"_type": "location", "lat": 9.0, "lon": 1.0, "tst": 1e30}, "whole tst"),
    ],
)
def test_what_cannot_be_protected_is_refused_in_words(
    town: House, message: dict[str, Any], sentence: str
) -> None:
    answer = owntracks(town, message)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


def broker_program() -> str | None:
    return shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[int]:
    program = broker_program()
    if program is None:
        pytest.skip("mosquitto is not installed")
    (port,) = free_ports(1)
    settings = tmp_path / "mosquitto.conf"
    settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    process = subprocess.Popen(
        [program, "-c", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_until(lambda: _answers(port))
    yield port
    process.kill()
    process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_owntracks_over_mqtt(town: House, broker: int) -> None:
    aiomqtt = pytest.importorskip("aiomqtt")
    from shoal.gateway.doors.bridge import Bridge

    town.pass_time(EVERY)

    async def run() -> None:
        keys = {"owntracks/ada/phone": town.token("one/ada-phone")}
        bridge = Bridge("127.0.0.1", keys, town.base, port=broker)
        running = asyncio.create_task(bridge.run())
        await asyncio.wait_for(bridge.connected.wait(), 60)
        message = json.dumps({**LOCATION, "tst": int(town.clock())})
        async with aiomqtt.Client("127.0.0.1", broker) as phone:
            await phone.publish("owntracks/ada/phone", b"no json", qos=1)
            await phone.publish("owntracks/eve/phone", message, qos=1)
            await phone.publish("owntracks/ada/phone", message, qos=1)
        while taken() <= before:
            await asyncio.sleep(0.02)
        running.cancel()

    def taken() -> int:
        return len(town.gateway.store.ledger.charges())

    before = taken()
    asyncio.run(asyncio.wait_for(run(), 60))
    town.pass_time(EVERY)
    assert town.outputs("/v1/people/ada/streams/places", "one/ada")[-1]["status"] == "shown"


# one call of every method, with what it needs
CALLS: dict[str, tuple[Any, ...]] = {
    "push": ("ada", "places"),
    "push_many": ("ada", "places", [{"state": "0,0"}, {"lat": 52.5, "lon": 13.36}]),
    "now": ("ada", "places"),
    "outputs": ("ada", "places"),
    "follow": ("ada", "places"),
    "budget": ("ada",),
    "beliefs": ("ada", "places"),
    "refused": ("ada", "places"),
    "overview": (),
    "people": (),
    "person": ("ada",),
    "put_person": ("ada",),
    "forget_person": ("ada",),
    "put_stream": ("ada", "places", "walk"),
    "limit": ("ada", "places", 2.0),
    "pause": ("ada", "places"),
    "forget": ("ada", "places"),
    "grant": ("ada", "viewer"),
    "grants": ("ada",),
    "withdraw": ("ada", "viewer"),
    "make_key": ("device",),
    "keys": (),
    "revoke_key": ("0" * 16,),
    "plans": (),
    "plan": ("walk",),
    "make_plan": (COUNT,),
    "start_plan": (COUNT,),
    "job": ("0" * 16,),
    "estimate": (COUNT,),
    "release": ("count", ["a", "b"]),
}
NOT_OURS = {  # for programs that are not this client
    ("post", "/owntracks"),
    ("get", "/v1/jobs/{job}/events"),
    ("post", "/v1/people/{person}/streams/{stream}/resume"),  # `pause(resume=True)`, tried below
}


class Sent(Exception):
    """A request as it would have gone out."""

    def __init__(self, request: httpx.Request) -> None:
        super().__init__(str(request.url))
        self.request = request


def refuse(request: httpx.Request) -> httpx.Response:
    raise Sent(request)


def sent(name: str, *given: Any, **more: Any) -> httpx.Request:
    """What a method of the client sends first; the method of the other client sends the same."""
    http = httpx.Client(base_url="http://x", transport=httpx.MockTransport(refuse))
    with pytest.raises(Sent) as one:
        list(getattr(Client("", "k", http=http), name)(*given, **more))
    with pytest.raises(Sent) as other:
        asyncio.run(_sent_by_loop(name, given, more))
    ours, theirs = one.value.request, other.value.request
    assert (ours.method, ours.url, ours.content) == (theirs.method, theirs.url, theirs.content)
    assert ours.headers["authorization"] == theirs.headers["authorization"] == "Bearer k"
    return ours


async def _sent_by_loop(name: str, given: tuple[Any, ...], more: dict[str, Any]) -> None:
    async with httpx.AsyncClient(
        base_url="http://x", transport=httpx.MockTransport(refuse)
    ) as http:
        found = getattr(AsyncClient("", "k", http=http), name)(*given, **more)
        await (anext(found) if hasattr(found, "__anext__") else found)


def operation(document: dict[str, Any], request: httpx.Request) -> tuple[str, str]:
    """The method and path of the document that a request goes to."""
    for path in sorted(document["paths"], key=lambda path: path.count("{")):
        pattern = re.sub(r"\{[a-z]+\}", "[^/]+", path)
        if (
            re.fullmatch(pattern, request.url.path)
            and request.method.lower() in document["paths"][path]
        ):
            return request.method.lower(), path
    raise AssertionError(f"{request.method} {request.url.path} is not in the document")


def test_every_method_of_both_clients_is_in_the_document_and_the_other_way_round(
    town: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "now_text", lambda: "2026-03-04T08:30:00+00:00")
    document = town.http.get("/openapi.json").json()
    methods = {name for name in dir(Client) if not name.startswith("_")} - {"close"}
    assert methods == {name for name in dir(AsyncClient) if not name.startswith("_")} - {"close"}
    assert methods == set(CALLS)
    for name in methods:
        ours, theirs = (inspect.signature(getattr(each, name)) for each in (Client, AsyncClient))
        assert ours.parameters == theirs.parameters, name
    reached = {("post", "/v1/people/{person}/streams/{stream}/resume")}
    assert operation(document, sent("pause", "ada", "s", resume=True)) in reached
    for name, given in CALLS.items():
        request = sent(name, *given)
        method, path = operation(document, request)
        reached.add((method, path))
        check_body(document, document["paths"][path][method], request)
    there = {
        (method, path)
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith(("/v1", "/owntracks"))
    }
    assert there - NOT_OURS - reached == set()


def check_body(document: dict[str, Any], described: dict[str, Any], request: httpx.Request) -> None:
    """The body against the document's own schema; none where none is described."""
    content = described.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        assert request.content in (b"", b"null")
        return
    whole = {**content["schema"], "components": document["components"]}
    jsonschema.validate(json.loads(request.content), whole)
    known = {each["name"] for each in described.get("parameters", ()) if each["in"] == "query"}
    assert set(request.url.params) <= known
