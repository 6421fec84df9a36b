"""Who may ask the studio, and what it does with a question it does not like."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from fastapi.testclient import TestClient

from shoal.studio import app as studio
from shoal.studio.app import COOKIE, MOST_BYTES, make_app

PORT, TOKEN = 8600, "a key of this test"
HOME = f"http://127.0.0.1:{PORT}"


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    (tmp_path / "index.html").write_text("<h1>page</h1>")
    monkeypatch.setattr(studio, "static_folder", lambda: tmp_path)
    with TestClient(make_app(token=TOKEN, port=PORT), base_url=HOME) as made:
        yield made


@pytest.fixture
def inside(client: TestClient) -> TestClient:
    client.cookies.set(COOKIE, TOKEN)
    return client


def answer(client: TestClient, room: str, act: str, params: dict[str, Any]) -> dict[str, Any]:
    """The last word of an act."""
    begun = client.post(f"/api/{room}/{act}", json=params)
    assert begun.status_code == 202, begun.text
    told: dict[str, Any] = {}
    with client.stream("GET", f"/api/work/{begun.json()['work']}") as lines:
        for line in lines.iter_lines():
            if line.startswith("data: "):
                told = json.loads(line.removeprefix("data: "))
    return told


def test_nobody_enters_without_the_key(client: TestClient) -> None:
    assert client.get("/").status_code == 401
    assert client.get("/api/start").status_code == 401
    assert client.get("/enter?token=guess", follow_redirects=False).status_code == 401


def test_the_key_becomes_a_cookie_that_no_other_site_sends(client: TestClient) -> None:
    entered = client.get(f"/enter?token={TOKEN}", follow_redirects=False)
    assert entered.status_code == 303
    assert entered.headers["location"] == "/"
    cookie = entered.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert client.get("/").text == "<h1>page</h1>"


def test_other_hosts_and_other_pages_are_turned_away(inside: TestClient) -> None:
    assert inside.get("/", headers={"host": "evil.example"}).status_code == 421
    assert inside.get("/", headers={"origin": "http://evil.example"}).status_code == 403
    assert inside.get("/", headers={"origin": HOME}).status_code == 200


def test_every_answer_forbids_what_the_page_does_not_need(inside: TestClient) -> None:
    for path in ("/", "/api/start", "/no-such-page"):
        headers = inside.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"


def test_a_file_too_large_is_refused_at_once(inside: TestClient) -> None:
    headers = {"x-file-name": "big.csv", "content-length": str(MOST_BYTES + 1)}
    begun = time.monotonic()
    refused = inside.post("/api/uploads", headers=headers, content=b"a,b\n")
    assert refused.status_code == 422
    assert "larger than 64 MB" in refused.json()["sentence"]
    assert time.monotonic() - begun < 60


def test_a_file_that_is_no_table_ends_in_a_sentence(inside: TestClient) -> None:
    refused = inside.post("/api/uploads", headers={"x-file-name": "a.exe"}, content=b"MZ")
    assert "the file ends in .exe; the studio reads .csv" in refused.json()["sentence"]
    taken = inside.post("/api/uploads", headers={"x-file-name": "a.parquet"}, content=b"no table")
    told = answer(inside, "data", "look", {**taken.json(), "room": "leak"})
    assert told == {
        "kind": "failed",
        "sentence": "the file is no table that can be read; give a CSV with a line of names, or a "
        "Parquet file",
    }


@pytest.mark.parametrize("name", ["/etc/passwd", "../../etc/passwd", "..", "", "x/../../y.csv"])
def test_no_file_of_the_computer_can_be_named(inside: TestClient, name: str) -> None:
    refused = inside.post("/api/data/look", json={"file": name})
    assert refused.json() == {"sentence": "the file is not here any more; open it again"}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[" * 100_000, "no JSON object"),
        (b"[1]", "no JSON object"),
        (b"{" + b" " * 2**24 + b"}", "larger than 16 MB"),
    ],
)
def test_a_question_that_is_none_ends_in_a_sentence(
    inside: TestClient, body: bytes, words: str
) -> None:
    assert words in inside.post("/api/data/look", content=body).json()["sentence"]


def test_an_act_that_is_not_there_is_refused_by_name(inside: TestClient) -> None:
    refused = inside.post("/api/leak/forge", json={})
    assert refused.json() == {"sentence": "there is no 'forge' in the room 'leak'"}


def test_an_act_can_be_cancelled(inside: TestClient) -> None:
    begun = inside.post("/api/day/plan", json={}).json()["work"]
    assert inside.delete(f"/api/work/{begun}").status_code == 204
    with inside.stream("GET", f"/api/work/{begun}") as lines:
        assert '"kind": "cancelled"' in list(lines.iter_lines())[-2]


def test_a_file_keeps_its_plain_name_in_a_folder_of_its_own_until_the_studio_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "index.html").write_text("<h1>page</h1>")
    monkeypatch.setattr(studio, "static_folder", lambda: tmp_path)
    kept = tmp_path / "uploads"
    monkeypatch.setattr("shoal.studio.app.tempfile.mkdtemp", lambda prefix: str(kept))
    kept.mkdir(mode=0o700)
    with TestClient(make_app(token=TOKEN, port=PORT), base_url=HOME) as client:
        client.cookies.set(COOKIE, TOKEN)
        for name, plain in {"..%2f..%2fa%20b.csv": "a b.csv", "%3Cimg%3E.csv": "_img_.csv"}.items():
            sent = client.post("/api/uploads", headers={"x-file-name": name}, content=b"a\n1\n")
            folder, _, stored = sent.json()["file"].partition("/")
            assert stored == plain
            assert (kept / folder / plain).read_bytes() == b"a\n1\n"
            assert (kept / folder).stat().st_mode & 0o77 == 0
    assert not kept.exists()


def test_a_refusal_names_a_file_as_its_owner_does(inside: TestClient) -> None:
    sent = inside.post("/api/uploads", headers={"x-file-name": "bad.gpx"}, content=b"<gpx").json()
    told = answer(inside, "places", "plan", sent)
    assert told["sentence"].startswith("'bad.gpx' is not XML as it should be: line 1 cannot")
