"""Tokens of an OpenID provider: only those that are whole, in time and for us."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from shoal.core.errors import InputError
from shoal.gateway.app import Gateway
from shoal.gateway.keys import PERSON, Caller, ask_for_key
from shoal.gateway.problems import Problem
from tests.gateway.gateway_house import House, running, settings_in

ISSUER, AUDIENCE = "https://id.example", "shoal"
OURS, THEIRS = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The provider's keys, on loopback."""
    own = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(OURS.public_key()))
    body = json.dumps({"keys": [{**own, "kid": "one", "use": "sig", "alg": "ES256"}]}).encode()

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Keys)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/keys"
    server.shutdown()


@pytest.fixture(scope="module")
def signed_in(provider: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    given = {"oidc_issuer": ISSUER, "oidc_audience": AUDIENCE, "oidc_jwks": provider}
    with running(tmp_path_factory.mktemp("oidc"), **given) as house:
        yield house


def token(key: Any = OURS, algorithm: str = "ES256", **changed: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "u1",
        "exp": time.time() + 600,
        "shoal_space": "one",
        "shoal_kind": "operator",
        **changed,
    }
    kept = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(kept, key, algorithm, headers={"kid": "one"})


def status(house: House, text: str, path: str = "/v1/people") -> int:
    headers = {"Authorization": f"Bearer {text}"}
    return house.http.get(path, headers=headers).status_code


def test_a_token_stands_for_an_operator_or_a_person(signed_in: House) -> None:
    assert status(signed_in, token()) == 200
    signed_in.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
    ada = token(shoal_kind="person", shoal_person="ada")
    assert status(signed_in, ada, "/v1/people/ada") == 200
    assert status(signed_in, ada, "/v1/people/ben") == 404
    assert status(signed_in, ada) == 403


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"exp": 1.0},
        {"exp": None},
        {"sub": None},
        {"shoal_space": None},
        {"shoal_space": "no good"},
        {"shoal_kind": "device"},
        {"shoal_kind": "application"},
        {"shoal_kind": "person"},
        {"key": THEIRS},
        {"key": "a-shared-secret-that-is-long-enough-for-it", "algorithm": "HS256"},
    ],
    ids=[
        *("issuer", "audience", "expired", "endless", "nobody", "nowhere", "bad space", "device"),
        *("application", "person without name", "another key", "a shared secret"),
    ],
)
def test_any_other_token_is_refused_alike(signed_in: House, changed: dict[str, Any]) -> None:
    assert status(signed_in, token(**changed)) == 401


def test_a_token_for_a_space_that_does_not_exist_is_refused(signed_in: House) -> None:
    gone = token(shoal_space="three")
    assert status(signed_in, gone) == 401
    body = {"kind": "application", "holder": "viewer"}
    headers = {"Authorization": f"Bearer {gone}"}
    assert signed_in.http.post("/v1/keys", json=body, headers=headers).status_code == 401


def test_a_token_of_a_forgotten_person_makes_no_key(signed_in: House) -> None:
    signed_in.ask("PUT", "/v1/people/cleo", "one/operator").raise_for_status()
    headers = {"Authorization": f"Bearer {token(shoal_kind='person', shoal_person='cleo')}"}
    made = signed_in.http.post("/v1/keys", json={"kind": "device"}, headers=headers)
    assert made.status_code == 201
    signed_in.http.delete("/v1/people/cleo", headers=headers).raise_for_status()
    again = signed_in.http.post("/v1/keys", json={"kind": "device"}, headers=headers)
    assert again.status_code == 401
    device = {"Authorization": f"Bearer {made.json()['token']}"}
    path = "/v1/people/cleo/streams/s/readings"
    assert signed_in.http.post(path, json={"state": "0,0"}, headers=device).status_code == 401


def test_a_person_forgotten_in_another_worker_makes_no_key(signed_in: House) -> None:
    """The transaction looks, not only what this worker remembers of the caller."""
    caller = Caller("one", "oidc:u1", PERSON, "nobody")
    with pytest.raises(Problem):
        signed_in.gateway.store.write("one", lambda c: ask_for_key(c, caller, {"kind": "device"}))


def test_half_a_setting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="oidc_audience"):
        Gateway(settings_in(tmp_path, oidc_issuer=ISSUER))
