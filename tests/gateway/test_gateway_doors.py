"""Doors: messages of programs people have, as they send them, become readings once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings, strategies as st

from shoal.gateway import doors
from shoal.gateway.doors import overland, owntracks, traccar
from shoal.gateway.problems import Problem
from tests.gateway.gateway_house import House

EVERY = 1000.0
LAT, LON = 52.5031, 13.3652
PATH = "/v1/people/ada/streams/places"
SECRET = "sekrit-wifi"


def from_owntracks(at: float) -> dict[str, Any]:
    return {"_type": "location", "lat": LAT, "lon": LON, "tst": int(at), "acc": 9, "SSID": SECRET}


def from_overland(at: float) -> dict[str, Any]:
    """A batch with a point, as the app sends it, and a feature that is none."""
    local = datetime.fromtimestamp(at, timezone(timedelta(hours=-7)))
    point = {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [LON, LAT]},
        "properties": {
            "timestamp": local.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "altitude": 80,
            "speed": 4,
            "horizontal_accuracy": 30,
            "motion": ["driving"],
            "battery_state": "charging",
            "wifi": SECRET,
            "device_id": "phone",
        },
    }
    visit = {"type": "Feature", "geometry": None, "properties": {"type": "trip"}}
    return {"locations": [visit, point], "trip": {"distance": 1}}


def from_traccar(at: float) -> dict[str, Any]:
    when = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    position = {
        "id": 7,
        "deviceId": 3,
        "protocol": "osmand",
        "serverTime": when,
        "deviceTime": when,
        "fixTime": when,
        "outdated": False,
        "valid": True,
        "latitude": LAT,
        "longitude": LON,
        "altitude": 34.0,
        "speed": 0.0,
        "address": SECRET,
        "attributes": {"batteryLevel": 80},
    }
    return {"position": position, "device": {"id": 3, "name": "car", "uniqueId": "1234"}}


Sender = Callable[[float], dict[str, Any]]
DOORS: dict[str, tuple[Sender, Any]] = {
    "/owntracks": (from_owntracks, []),
    "/overland": (from_overland, {"result": "ok"}),
    "/traccar": (from_traccar, {"result": "ok"}),
}
READERS = {"/owntracks": owntracks.read, "/overland": overland.read, "/traccar": traccar.read}


@pytest.fixture(scope="module")
def home(house: House) -> House:
    """Ada has a stream of places; ben has none."""
    body = {"plan": "walk", "clock": {"every": EVERY}}
    house.ask("PUT", PATH, "one/ada", body).raise_for_status()
    house.pass_time(EVERY)
    return house


def send(home: House, path: str, message: Any, key: str = "one/ada-phone") -> httpx.Response:
    return home.ask("POST", path, key, message)


def refused(home: House) -> dict[str, int]:
    streams = home.ask("GET", "/v1/people/ada", "one/ada").json()["streams"]
    found: dict[str, int] = streams[0]["refused"]
    return found


def test_every_door_is_tried_here() -> None:
    there = {route.path for route in doors.door_router().routes}  # type: ignore[attr-defined]
    assert there == set(DOORS) == set(READERS)


@pytest.mark.parametrize("path", DOORS)
def test_a_message_is_a_reading_and_gets_the_answer_its_program_expects(
    home: House, path: str
) -> None:
    make, expected = DOORS[path]
    answer = send(home, path, make(home.clock()))
    assert answer.status_code == 200, answer.text
    assert answer.json() == expected
    home.pass_time(EVERY)
    assert home.outputs(PATH, "one/ada")[-1]["status"] == "shown"


@pytest.mark.parametrize("path", DOORS)
def test_a_message_that_is_sent_again_draws_once(home: House, path: str) -> None:
    make, expected = DOORS[path]
    message, before = make(home.clock()), len(home.gateway.store.ledger.charges())
    for _ in range(3):
        assert send(home, path, message).json() == expected
    home.pass_time(EVERY)
    first = home.outputs(PATH, "one/ada")[-1]
    assert first["status"] == "shown"
    assert send(home, path, message).json() == expected  # its slot is closed
    home.pass_time(EVERY)
    assert len(home.gateway.store.ledger.charges()) == before + 1
    last, silent = home.outputs(PATH, "one/ada")[-2:]
    assert last == first
    assert silent["status"] == "silent"


def test_a_long_batch_is_taken_in_pieces(home: House) -> None:
    now = home.clock()
    batches = [from_overland(now - EVERY * each)["locations"] for each in range(1500)]
    batch = {"locations": [feature for each in reversed(batches) for feature in each]}
    answer = send(home, "/overland", batch)
    assert answer.status_code == 200, answer.text
    home.pass_time(EVERY)
    assert home.outputs(PATH, "one/ada")[-1]["status"] == "shown"
    assert refused(home)["closed"] == home.settings.dead


def test_a_tracker_without_a_fix_says_nothing(home: House) -> None:
    message = from_traccar(home.clock())
    message["position"]["valid"] = False
    assert send(home, "/traccar", message).status_code == 200
    home.pass_time(EVERY)
    assert home.outputs(PATH, "one/ada")[-1]["status"] == "silent"


def test_times_of_traccar_may_be_numbers(home: House) -> None:
    message = from_traccar(home.clock())
    message["position"]["fixTime"] = int(1000 * home.clock())
    (reading,) = traccar.read(message)
    assert reading.at is not None
    assert abs(datetime.fromisoformat(reading.at).timestamp() - home.clock()) < 5


@pytest.mark.parametrize("path", DOORS)
def test_a_device_without_a_stream_is_told_nothing_else(home: House, path: str) -> None:
    """It would send the same again for ever."""
    make, expected = DOORS[path]
    answer = send(home, path, make(home.clock()), "one/ben-phone")
    assert (answer.status_code, answer.json()) == (200, expected)


@pytest.mark.parametrize("path", DOORS)
def test_only_coordinates_and_time_are_looked_at_and_nothing_is_stored(
    home: House, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = DOORS[path][0](home.clock())
    for reading in READERS[path](message):
        assert set(reading.model_dump(exclude_none=True)) == {"at", "lat", "lon"}
    send(home, path, message).raise_for_status()
    assert SECRET not in capsys.readouterr().err
    for file in Path(home.settings.database).parent.glob("gateway.db*"):
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("path", "message", "sentence"),
    [
        ("/overland", {}, "needs locations"),
        ("/overland", {"locations": {}}, "needs locations"),
        ("/traccar", {"position": [1]}, "needs position"),
        ("/traccar", {"device": {}}, "needs position"),
        ("/owntracks", {"_type": "location"}, "numbers lat and lon"),
    ],
)
def test_what_is_no_message_is_refused_in_words(
    home: House, path: str, message: Any, sentence: str
) -> None:
    answer = send(home, path, message)
    assert answer.status_code == 422
    assert sentence in answer.json()["detail"]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)


@pytest.mark.parametrize("path", DOORS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_value_in_any_place_is_left_out_or_refused(path: str, data: st.DataObject) -> None:
    """A reader answers every object with readings that are whole, or with a problem."""
    message = DOORS[path][0](1_767_225_600.0)
    where: Any = message
    while True:
        keys = list(where) if isinstance(where, dict) else list(range(len(where)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(where[key], dict | list) and where[key] and data.draw(st.booleans()):
            where = where[key]
            continue
        where[key] = data.draw(values)
        break
    found: list[Any] = []
    with contextlib.suppress(Problem):  # any other error is a fault
        found = READERS[path](message)
    for reading in found:
        assert reading.lat is not None
        assert reading.lon is not None
