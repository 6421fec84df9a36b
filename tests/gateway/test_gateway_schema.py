"""The OpenAPI document against the service: no request, however odd, ends in a 5xx."""

from __future__ import annotations

import time
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from shoal.gateway.store import ALL
from tests.gateway.gateway_house import House, people_keys

CHECKS: Any = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
SECONDS = 600.0  # of the long run
KEYS = ("operator", "ada", "ada-phone", "viewer")


@pytest.fixture(scope="module")
def document(house: House) -> Any:
    """Everything but streams without end, and plans, which take seconds each."""
    return described(house).exclude(path_regex="/events$|/plans|^/v1/people/.person.$")


def described(house: House) -> Any:
    """The whole document, with a person and a stream for it to be about."""
    body: dict[str, Any] = {"plan": "walk", "clock": {"every": 1000}}
    house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
    house.ask("PUT", "/v1/people/ada/streams/s", "one/ada", body)
    return schemathesis.openapi.from_url(f"{house.base}/openapi.json")


def tried(case: Any, house: House, key: str) -> None:
    """One request, with names that are there as often as with names that are not."""
    named = {"person": "ada", "stream": "s", "application": "viewer"}
    for name, value in named.items():
        given_name = case.path_parameters.get(name)
        if isinstance(given_name, str) and len(given_name) % 2:
            case.path_parameters[name] = value
    plan = case.body.get("plan") if isinstance(case.body, dict) else None
    if isinstance(plan, str) and len(plan) % 2:
        case.body["plan"] = ("day", "walk", "steps", "count")[len(plan) % 4]
    headers = {"Authorization": f"Bearer {house.token(f'one/{key}')}"}
    case.call_and_validate(headers=headers, checks=CHECKS, timeout=60)


def run(document: Any, house: House, examples: int, turn: int = 0) -> int:
    """How many operations were tried, each with so many requests of every kind of key."""
    count = 0
    for found in document.get_all_operations():
        operation = found.ok()

        @seed(turn)
        @given(case=operation.as_strategy(), key=st.sampled_from(KEYS))
        @settings(
            max_examples=examples,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def requests(case: Any, key: str) -> None:
            tried(case, house, key)

        requests()
        count += 1
    return count


def test_no_request_breaks_the_service(document: Any, house: House) -> None:
    assert run(document, house, 12) > 20


@pytest.mark.slow
def test_no_request_breaks_the_service_for_long(house: House) -> None:
    """Ten minutes over all endpoints but those without end; who was deleted comes back."""
    end, turn, tokens = time.monotonic() + SECONDS, 0, dict(house.tokens["one"])
    while time.monotonic() < end:
        turn += 1
        every = described(house).exclude(path_regex="/events$")
        assert run(every, house, 6, turn) > 25
        fresh = house.gateway.store.write(ALL, lambda c: people_keys(c, "one"))
        house.tokens["one"] = tokens | fresh
    print(f"{turn} turns over all endpoints")
