"""Connections that send half a request: they cost neither descriptors nor answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.gateway_house import PATIENCE, House, running

MOST = 20
HALF = b"GET /health/live HTTP/1.1\r\nHost: a\r\nX-Slow: "


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A gateway of few connections that does not wait long."""
    folder = tmp_path_factory.mktemp("slow")
    with running(folder, sockets=MOST, request_head_seconds=1.0, request_body_seconds=1.0) as house:
        yield house


def begin(house: House, sent: bytes = HALF) -> socket.socket:
    """A connection that has sent some bytes."""
    host, port = house.base.removeprefix("http://").split(":")
    found = socket.create_connection((host, int(port)), timeout=PATIENCE)
    found.sendall(sent)
    return found


def received(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    found = b""
    try:
        while content := connection.recv(65536):
            found += content
    except ConnectionResetError:
        pass
    return found


def test_half_open_connections_give_way_to_requests(
    slow: House, capfd: pytest.CaptureFixture[str]
) -> None:
    half = [begin(slow) for _ in range(4 * MOST)]
    for _ in range(3):
        assert httpx.get(f"{slow.base}/health/live", timeout=PATIENCE).status_code == 200
    assert all(received(each) == b"" for each in half)
    for each in half:
        each.close()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("sent", [b"", HALF, b"GET / HTTP/1.1\r\n"])
def test_a_head_that_does_not_come_in_time_is_not_waited_for(slow: House, sent: bytes) -> None:
    with begin(slow, sent) as connection:
        assert received(connection) == b""


def test_a_second_request_on_a_connection_has_the_same_time(slow: House) -> None:
    whole = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"
    with begin(slow, whole) as connection:
        answer = b""
        while b"alive" not in answer:
            more = connection.recv(65536)
            assert more, answer
            answer += more
        connection.sendall(HALF)
        assert received(connection) == b""


def test_a_body_that_does_not_come_in_time_is_refused_in_words(slow: House) -> None:
    token = slow.token("one/ada-phone")
    for path in ("/v1/people/ada/streams/s/readings", "/v1/releases"):
        head = (
            f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{"
        )
        answer = b""
        with begin(slow, head.encode()) as connection:
            while b"request_body_seconds" not in answer and (part := connection.recv(65536)):
                answer += part  # head and body may come apart
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"request_body_seconds" in answer


def test_event_streams_are_not_closed_by_the_limit(slow: House) -> None:
    slow.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
    body = {"plan": "walk", "clock": {"every": 1000}}
    slow.ask("PUT", "/v1/people/ada/streams/s", "one/ada", body).raise_for_status()
    headers = {"Authorization": f"Bearer {slow.token('one/ada')}"}
    path = "/v1/people/ada/streams/s/events"
    with httpx.stream("GET", slow.base + path, headers=headers, timeout=PATIENCE) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        half = [begin(slow) for _ in range(2 * MOST)]
        for _ in range(8):  # more than a second of comments
            while not next(lines).startswith(":"):
                pass
        for each in half:
            each.close()
