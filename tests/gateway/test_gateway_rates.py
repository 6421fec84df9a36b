"""Rate limits: who shares a bucket with whom, however a header is written."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.gateway.http.rates import MAX_BUCKETS, Rates
from shoal.gateway.keys import DEVICE, Caller
from tests.gateway.gateway_house import House, running

BURST = 5
PATH = "/v1/people/ada/streams/s/readings"


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[House]:
    """A gateway that lets five requests pass and then hardly any."""
    with running(tmp_path, rate=0.001, burst=BURST) as house:
        yield house


def passed(house: House, headers: list[str]) -> int:
    """How many requests with these Authorization headers were not turned away."""
    answers = [
        house.http.post(PATH, json={"state": "0,0"}, headers={"Authorization": each})
        for each in headers
    ]
    return sum(each.status_code != 429 for each in answers)


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def test_spaces_before_a_key_do_not_pass_the_limit(narrow: House) -> None:
    token = narrow.token("one/ada-phone")
    assert passed(narrow, [f"Bearer {' ' * more}{token}" for more in range(30)]) == BURST


def test_another_user_name_does_not_pass_the_limit(narrow: House) -> None:
    token = narrow.token("one/ada-phone")
    forms = [basic(f"u{each}", token) for each in range(15)]
    forms += [f"bEaReR {token}", f"Bearer  {token}"]
    assert passed(narrow, forms) == BURST


def test_changing_wrong_keys_do_not_pass_the_limit(narrow: House) -> None:
    wrong = [f"Bearer shoal_d_{each:016x}_{'x' * 43}" for each in range(30)]
    assert passed(narrow, wrong) == BURST


def test_requests_without_a_key_turn_nobody_away_who_has_one(narrow: House) -> None:
    answers = [narrow.http.get("/v1/people") for _ in range(60)]
    assert [each.status_code for each in answers].count(401) == BURST
    assert narrow.ask("GET", "/v1/people", "one/operator").status_code == 200


def test_wrong_keys_turn_nobody_away_whose_key_is_known(narrow: House) -> None:
    assert narrow.ask("GET", "/v1/people", "one/operator").status_code == 200
    wrong = [f"Bearer shoal_d_{each:016x}_{'x' * 43}" for each in range(30)]
    assert passed(narrow, wrong) == BURST - 1  # the operator's first request was one of those
    answers = [narrow.ask("GET", "/v1/people", "one/operator") for _ in range(BURST)]
    assert [each.status_code for each in answers] == [200] * (BURST - 1) + [429]


def scope(host: str, token: str = "") -> dict[str, object]:
    headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
    return {"headers": headers, "client": (host, 1)}


def test_addresses_have_buckets_of_their_own_and_of_ipv6_networks() -> None:
    rates = Rates(0.001, 2)
    assert [rates.take(scope("192.0.2.1")) >= 0 for _ in range(3)] == [True, True, False]
    assert rates.take(scope("192.0.2.2")) >= 0
    near = [rates.take(scope(f"2001:db8::{each}")) >= 0 for each in range(3)]
    assert near == [True, True, False]
    assert rates.take(scope("2001:db8:0:1::1")) >= 0


def test_many_addresses_do_not_empty_the_bucket_of_a_busy_key() -> None:
    rates = Rates(1e-9, 3)
    rates.recognise("t", Caller("one", "k", DEVICE, "ada"))
    for each in range(MAX_BUCKETS + 10):
        rates.take(scope(f"10.{each >> 16}.{each >> 8 & 255}.{each & 255}"))
        if each == MAX_BUCKETS // 2:
            rates.take(scope("x", "t"))
    assert 0 <= rates.take(scope("x", "t")) < 1
    assert rates.take(scope("x", "t")) < 0
