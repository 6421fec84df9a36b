"""Limits, rates, repeated requests, problem documents, logs: what stands before every handler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from shoal.core.errors import SpecError
from shoal.gateway.planning.calibration import check_spec, new_job
from shoal.gateway.store import ALL
from shoal.gateway.tables import JOBS
from shoal.gateway.telemetry import FIELDS
from tests.gateway.gateway_house import COUNT, House, running

ROOT = Path(__file__).parents[2]
EVERY = 1000.0
PATH = "/v1/people/ada/streams/s"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway with small limits."""
    limits: dict[str, Any] = {
        "body_bytes": 5000,
        "readings": 10,
        "connections": 1,
        "people": 2,
        "streams": 1,
        "keys": 4,
        "jobs": 3,
        "dead": 5,
        "page": 3,
        "history": 10,
    }
    with running(tmp_path_factory.mktemp("small"), **limits) as found:
        for person in ("ada", "ben"):
            found.ask("PUT", f"/v1/people/{person}", "one/operator").raise_for_status()
        body = {"plan": "walk", "clock": {"every": EVERY}}
        found.ask("PUT", PATH, "one/ada", body).raise_for_status()
        found.pass_time(EVERY)
        yield found


def refused(answer: Any, status: int, limit: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["limit"] == limit
    assert limit in body["detail"]
    assert {"type", "title", "status", "detail"} <= set(body)


def test_bodies_are_bounded_declared_or_not(small: House) -> None:
    headers = {"Authorization": f"Bearer {small.token('one/ada-phone')}"}
    refused(
        small.ask("POST", f"{PATH}/readings", "one/ada-phone", {"context": "x" * 9000}),
        413,
        "body_bytes",
    )

    def pieces() -> Iterator[bytes]:
        yield b'{"context": "'
        for _ in range(20):
            yield b"x" * 1000

    answer = small.http.post(f"{PATH}/readings", content=pieces(), headers=headers)
    refused(answer, 413, "body_bytes")


def test_readings_of_a_request_people_and_streams_are_bounded(small: House) -> None:
    many = [{"state": "0,0"}] * 11
    refused(small.ask("POST", f"{PATH}/readings", "one/ada-phone", many), 413, "readings")
    refused(small.ask("PUT", "/v1/people/cleo", "one/operator"), 409, "people")
    body = {"plan": "walk", "clock": {"every": EVERY}, "independent": True}
    refused(small.ask("PUT", "/v1/people/ada/streams/t", "one/ada", body), 409, "streams")


def test_keys_of_a_holder_and_jobs_of_a_space_are_bounded(small: House) -> None:
    body = {"kind": "application", "holder": "viewer"}
    made = [small.ask("POST", "/v1/keys", "two/operator", body) for _ in range(4)]
    assert [each.status_code for each in made] == [201, 201, 201, 409]
    refused(made[3], 409, "keys")
    key = made[0].json()["key"]
    assert small.ask("DELETE", f"/v1/keys/{key}", "two/operator").status_code == 204
    assert small.ask("POST", "/v1/keys", "two/operator", body).status_code == 201
    spec = {"spec": COUNT}

    def wait(connection: Any) -> None:
        for state in ("waiting", "working", "done", "working"):
            job = new_job(connection, small.settings, "two", COUNT)
            connection.execute(update(JOBS).where(JOBS.c.job == job).values(state=state, seen=9e9))

    small.gateway.store.write(ALL, wait)
    refused(small.ask("POST", "/v1/plans", "two/operator", spec), 409, "jobs")
    small.gateway.store.write(ALL, lambda c: c.execute(delete(JOBS)))


def test_open_connections_of_a_key_are_bounded(small: House) -> None:
    headers = {"Authorization": f"Bearer {small.token('one/ada')}"}
    with small.http.stream("GET", f"{PATH}/events", headers=headers) as first:
        lines = first.iter_lines()  # kept: the connection ends with it
        assert next(lines).startswith("retry")
        refused(small.ask("GET", f"{PATH}/events", "one/ada"), 429, "connections")


def test_pages_history_and_dead_readings_are_bounded(small: House) -> None:
    long_ago = {"state": "0,0", "at": "2020-01-01T00:00:00Z"}
    for _ in range(3):
        small.ask("POST", f"{PATH}/readings", "one/ada-phone", [long_ago] * 4).raise_for_status()
    streams = small.ask("GET", "/v1/people/ada", "one/ada").json()["streams"]
    assert streams[0]["refused"] == {"closed": 5}
    small.pass_time(30 * EVERY)
    found = small.ask("GET", f"{PATH}/outputs?limit=1000", "one/ada").json()
    assert len(found["outputs"]) == 3
    assert found["outputs"][0]["id"] >= 20
    assert found["after"] == found["outputs"][-1]["id"]


def test_requests_are_counted_and_too_many_are_turned_away(tmp_path: Path) -> None:
    with running(tmp_path, rate=0.001, burst=3) as house:
        answers = [house.ask("GET", "/v1/people", "one/operator") for _ in range(4)]
        assert [each.status_code for each in answers] == [200, 200, 200, 429]
        assert answers[0].headers["ratelimit"].startswith('"key";r=2;')
        assert answers[0].headers["ratelimit-policy"].startswith('"key";q=3;')
        assert "retry-after" in answers[3].headers
        refused(answers[3], 429, "rate")
        assert house.ask("GET", "/v1/people", "two/operator").status_code == 200
        assert house.ask("GET", "/health/live").status_code == 200


def test_a_repeated_request_makes_nothing_twice(small: House) -> None:
    headers = {"Idempotency-Key": "abc"}
    first, second = (
        small.ask("POST", "/v1/plans", "one/operator", {"spec": COUNT}, **headers) for _ in range(2)
    )
    assert first.json() == second.json()
    other = small.ask("POST", "/v1/plans", "one/operator", {"spec": f"{COUNT}#"}, **headers)
    assert other.json() == first.json()  # a comment changes no document
    different = COUNT.replace("1.0", "2.0")
    answer = small.ask("POST", "/v1/plans", "one/operator", {"spec": different}, **headers)
    assert answer.status_code == 422
    assert "another request" in answer.json()["detail"]
    assert (
        small.ask("POST", "/v1/plans", "two/operator", {"spec": COUNT}, **headers).json()
        != first.json()
    )


def test_a_key_is_shown_once_even_to_whoever_repeats(small: House) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"kind": "device", "label": "phone"}
    first = small.ask("POST", "/v1/keys", "one/ada", body, **headers)
    assert first.status_code == 201
    again = small.ask("POST", "/v1/keys", "one/ada", body, **headers)
    assert again.status_code == 409
    listed = small.ask("GET", "/v1/keys", "one/ada").json()["keys"]
    assert [each["label"] for each in listed].count("phone") == 1
    assert not any("hash" in each for each in listed)
    key, token = first.json()["key"], first.json()["token"]
    push = {"Authorization": f"Bearer {token}"}
    assert (
        small.http.post(f"{PATH}/readings", json={"state": "0,0"}, headers=push).status_code == 202
    )
    assert small.ask("DELETE", f"/v1/keys/{key}", "one/ben").status_code == 404
    assert small.ask("DELETE", f"/v1/keys/{key}", "one/ada").status_code == 204
    assert small.http.post(f"{PATH}/readings", json={}, headers=push).status_code == 401


def test_keys_expire(small: House) -> None:
    past = {"kind": "device", "expires": "2020-01-01T00:00:00Z"}
    assert small.ask("POST", "/v1/keys", "one/ada", past).status_code == 422
    soon = datetime.fromtimestamp(small.clock() + 0.0, UTC).replace(year=2100).isoformat()
    body = {"kind": "device", "expires": soon}
    assert small.ask("POST", "/v1/keys", "one/ada", body).status_code == 201


@pytest.mark.parametrize(
    ("method", "path", "body", "sentence"),
    [
        ("PUT", f"{PATH}x", {"plan": "walk"}, "clock.every is missing"),
        ("PUT", f"{PATH}x", {"plan": "none"}, "plan names none"),
        ("PUT", f"{PATH}x", {"plan": "count"}, "single releases"),
        ("PUT", f"{PATH}x", {"plan": "day", "timezone": "Mars/One"}, "timezone is 'Mars/One'"),
        ("PUT", f"{PATH}x", {"plan": "day", "extra": 1}, "extra"),
        ("PUT", f"{PATH}x", {"plan": "day", "clock": {"begins": "2026-13-45"}}, "clock.begins is"),
        ("PUT", f"{PATH}x", {"plan": "day", "clock": {"begins": "9999-12-31"}}, "within a year"),
        ("POST", "/v1/keys", {"kind": "operator", "holder": "ben"}, "holder is given"),
        ("PUT", "/v1/people/ada/grants/viewer", {"since": "0001-01-01T00:00:00+14:00"}, "1970"),
        ("PUT", "/v1/people/ada/grants/viewer", {"until": "2020-01-01T00:00:00Z"}, "not after"),
        ("PUT", "/v1/people/ada/grants/viewer", {"since": "yesterday"}, "not RFC 3339"),
        ("PUT", "/v1/people/ada/grants/viewer", {"since": "2026-01-01T00:00:00"}, "no zone"),
    ],
)
def test_bad_input_is_told_in_a_sentence(
    tmp_path_factory: pytest.TempPathFactory,
    small: House,
    method: str,
    path: str,
    body: Any,
    sentence: str,
) -> None:
    path = path.replace("ada", "ben") if "streams" in path else path
    key = "one/ben" if "streams" in path else "one/operator" if "keys" in path else "one/ada"
    answer = small.ask(method, path, key, body)
    assert answer.status_code == 422, answer.text
    assert sentence in answer.json()["detail"]


def test_a_reading_at_the_end_of_the_calendar_is_no_fault_of_ours(small: House) -> None:
    """By the wall clock, on which no date is before the year 1 or after 9999."""
    path = "/v1/people/ben/streams/wall"
    body = {"plan": "day", "timezone": "Europe/Berlin"}
    small.ask("PUT", path, "one/ben", body).raise_for_status()
    for at in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        reading = {"context": "home", "at": at}
        answer = small.ask("POST", f"{path}/readings", "one/ben-phone", reading)
        assert answer.status_code == 422
        assert "before 1970 or after 2999" in answer.json()["detail"]
    small.ask("DELETE", path, "one/ben").raise_for_status()


def test_a_person_makes_keys_for_devices_of_their_own_only(small: House) -> None:
    body = {"kind": "device", "holder": "ben"}
    assert small.ask("POST", "/v1/keys", "one/ada", body).status_code == 404
    made = small.ask("POST", "/v1/keys", "one/ben", body)
    assert made.status_code == 201


def dictionaries(document: Any) -> Iterator[dict[str, Any]]:
    if isinstance(document, dict):
        yield document
    if isinstance(document, dict | list):
        for each in document.values() if isinstance(document, dict) else document:
            yield from dictionaries(each)


def test_no_part_of_a_spec_reads_a_file_of_the_server() -> None:
    """Every key of every section that names one, however deep."""
    schema = json.loads((ROOT / "docs" / "spec.schema.json").read_text())
    named = {name for each in dictionaries(schema) for name in each.get("properties", ())}
    named = {name for name in named if "file" in name or name == "from"}
    assert {"file", "edges_file", "ties_file", "from"} <= named
    for name in named:
        for model in ({name: "/etc/passwd"}, {"within": [{name: "/etc/passwd"}]}):
            with pytest.raises(SpecError, match=f"the spec has {name}"):
                check_spec({"model": [model]})
        with pytest.raises(SpecError, match=f"the spec has {name}"):
            check_spec(f'[[model]]\n{name} = "x"')


@pytest.mark.parametrize("depth", [60, 900])
def test_a_spec_that_is_nested_too_deeply_is_told_so(depth: int) -> None:
    nest: Any = 1
    for _ in range(depth):
        nest = {"a": [nest]}
    for spec in (nest, f"a = {'[' * depth}{']' * depth}"):
        with pytest.raises(SpecError, match="nested more than 50"):
            check_spec(spec)


def test_what_is_wrong_with_a_reading_is_told_without_repeating_it(small: House) -> None:
    answer = small.ask("POST", f"{PATH}/readings", "one/ada-phone", {"lat": "my-secret-place"})
    assert answer.status_code == 422
    assert "my-secret-place" not in answer.text


def test_logs_have_no_field_for_a_name_or_a_reading(
    small: House, capsys: pytest.CaptureFixture[str]
) -> None:
    small.ask("POST", f"{PATH}/readings", "one/ada-phone", {"state": "0,0"})
    small.ask("GET", f"{PATH}/outputs", "one/ada")
    small.ask("GET", "/v1/people/nobody-such-name", "one/operator")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert lines
    for line in lines:
        told = json.loads(line)
        assert set(told) <= FIELDS
        assert not any(word in line for word in ("ada", "nobody-such-name", "0,0", "viewer"))
