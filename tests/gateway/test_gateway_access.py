"""Every endpoint, every kind of key, one's own, another person's and another space's."""

from __future__ import annotations

from typing import Any, NamedTuple

import httpx
import pytest

from shoal.gateway.app import ROUTERS
from tests.gateway.gateway_house import COUNT, House

KEYS = ("operator", "ada", "ada-phone", "viewer", "stranger")
STREAM = "/v1/people/{person}/streams/{stream}"


class Row(NamedTuple):
    """An endpoint, what is sent, and the keys that may when it is about ada."""

    method: str
    path: str
    body: Any = None
    may: tuple[str, ...] = ()
    everybody_of_kind: bool = False  # what it gives is the space's, not a person's


ROWS = (
    Row("GET", "/v1/people", None, ("operator",), True),
    Row("PUT", "/v1/people/{person}", None, ("operator",), True),
    Row("GET", "/v1/people/{person}", None, ("operator", "ada")),
    Row("PUT", STREAM, {"plan": "walk", "clock": {"every": 1000}}, ("ada",)),
    Row("POST", f"{STREAM}/readings", {"state": "0,0"}, ("ada-phone",)),
    Row("GET", f"{STREAM}/now", None, ("ada", "viewer")),
    Row("GET", f"{STREAM}/outputs", None, ("ada", "viewer")),
    Row("GET", f"{STREAM}/events", None, ("ada", "viewer")),
    Row("GET", f"{STREAM}/beliefs", None, ("ada",)),
    Row("GET", f"{STREAM}/refused", None, ("ada",)),
    Row("GET", "/v1/overview", None, ("operator",), True),
    Row("PUT", f"{STREAM}/limit", {"epsilon": 1000}, ("operator", "ada")),
    Row("POST", f"{STREAM}/pause", None, ("ada",)),
    Row("POST", f"{STREAM}/resume", None, ("ada",)),
    Row("GET", "/v1/people/{person}/budget", None, ("operator", "ada")),
    Row("PUT", "/v1/people/{person}/grants/{application}", {"every": 1}, ("ada",)),
    Row("GET", "/v1/people/{person}/grants", None, ("ada",)),
    Row("POST", "/v1/keys", {"kind": "application", "holder": "new"}, ("operator",), True),
    Row("GET", "/v1/keys", None, ("operator", "ada"), True),
    Row("DELETE", "/v1/keys/{key}", None, (), True),
    Row("POST", "/v1/plans", {"spec": COUNT}, ("operator",), True),
    Row("POST", "/v1/plans/estimate", {"spec": COUNT}, ("operator",), True),
    Row("GET", "/v1/plans", None, ("operator", "ada"), True),
    Row("GET", "/v1/plans/{plan}", None, ("operator", "ada", "viewer", "stranger"), True),
    Row("GET", "/v1/jobs/{job}", None, (), True),
    Row("GET", "/v1/jobs/{job}/events", None, (), True),
    Row(
        "POST",
        "/v1/releases",
        {"plan": "count", "data": ["a", "b"], "subject": "ada", "independent": True},
        ("operator", "ada"),
        True,
    ),
    Row(
        "POST", "/owntracks", {"_type": "location", "lat": 52.5, "lon": 13.36}, ("ada-phone",), True
    ),
    Row("POST", "/overland", {"locations": []}, ("ada-phone",), True),
    Row("POST", "/traccar", {"position": {}}, ("ada-phone",), True),
    Row("DELETE", "/v1/people/{person}/grants/{application}", None, ("ada",)),
    Row("DELETE", STREAM, None, ("ada",)),
    Row("DELETE", "/v1/people/{person}", None, ("operator", "ada")),
)


@pytest.fixture(scope="module")
def full(house: House) -> House:
    """Ada of either space has a stream with an output, granted to the viewer."""
    for space in ("one", "two"):
        body: dict[str, Any] = {"plan": "walk", "clock": {"every": 1000}}
        for person in ("ada", "ben"):
            path = f"/v1/people/{person}/streams/s"
            house.ask("PUT", path, f"{space}/{person}", body).raise_for_status()
        since = {"since": "2020-01-01T00:00:00Z"}
        house.ask("PUT", "/v1/people/ada/grants/viewer", f"{space}/ada", since).raise_for_status()
    house.pass_time(1000)
    readings = "/v1/people/ben/streams/s/readings"
    house.ask("POST", readings, "one/ben-phone", {"state": "0,0"}).raise_for_status()
    house.pass_time(1500)
    return house


def asked(house: House, row: Row, key: str, person: str, stream: str = "s") -> httpx.Response:
    """The answer's status and, for event streams, not more than that."""
    path = row.path.format(
        person=person, stream=stream, application="viewer", key="0" * 16, plan="walk", job="0" * 16
    )
    headers = {"Authorization": f"Bearer {house.token(key)}"} if key else {}
    with house.http.stream(row.method, path, json=row.body, headers=headers) as answer:
        if not path.endswith("/events") or answer.status_code != 200:
            answer.read()
        return answer


def test_every_endpoint_has_a_row() -> None:
    there = {
        (method, route.path)  # type: ignore[attr-defined]
        for router in ROUTERS
        for route in router.routes
        for method in route.methods  # type: ignore[attr-defined]
    }
    assert {(row.method, row.path) for row in ROWS} == there


def test_a_key_of_another_space_does_not_reach_a_namesake(full: House) -> None:
    """Both spaces have a ben, and only one of them was read: what each sees is his own."""
    path = "/v1/people/ben/streams/s/outputs"
    ours, theirs = (full.ask("GET", path, f"{space}/ben").json() for space in ("one", "two"))
    assert ours["outputs"]
    assert ours["outputs"] != theirs["outputs"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_a_key_does_what_it_may_and_sees_nothing_else(full: House, row: Row) -> None:
    about_a_person = "{person}" in row.path
    for key in KEYS:
        refused = [
            asked(full, row, f"two/{key}", "nobody", "none") if about_a_person else None,
            asked(full, row, f"one/{key}", "ben") if about_a_person else None,
        ]
        if about_a_person and not row.everybody_of_kind:
            ours = refused[1]
            assert ours is not None
            if key != "operator":  # an operator's space has both ada and ben
                assert ours.status_code in (403, 404), (key, ours.text)
                assert refused[0] is not None
                assert ours.json() == refused[0].json()
    for key in sorted(KEYS, key=lambda each: each in row.may):  # those that may, last
        answer = asked(full, row, f"one/{key}", "ada")
        if key in row.may:
            assert answer.status_code in (200, 201, 202, 204), (key, answer.text)
            if row.method == "DELETE":
                break  # it is gone now
        else:
            assert answer.status_code in (403, 404), (key, answer.status_code)
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method} {row.path}")
def test_without_a_key_there_is_nothing(full: House, row: Row) -> None:
    answer = asked(full, row, "", "ada")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"]
