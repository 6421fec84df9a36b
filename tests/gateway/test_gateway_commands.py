"""`shoal serve` and `shoal keys` as programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from shoal.cli.app import app
from tests.gateway.gateway_house import wait_until
from tests.gateway.gateway_nursery import free_ports

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_makes_a_space_with_a_key_and_refuses_to_make_it_twice(here: Path) -> None:
    made = run("serve", "--init", "--space", "home", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["token"].startswith("shoal_o_")
    assert (here / "shoal-gateway.key").stat().st_mode & 0o077 == 0
    again = run("serve", "--init", "--space", "home")
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert "space is" in run("serve", "--init", "--space", "no good").stderr


def test_keys_are_made_listed_taken_back_and_rotated(here: Path) -> None:
    run("serve", "--init")
    made = json.loads(run("keys", "make", "person", "ada", "--json").stdout)
    assert made["token"].startswith("shoal_p_")
    assert "ada" in run("keys", "list").stdout
    assert run("keys", "revoke", made["key"]).exit_code == 0
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert next(each for each in listed if each["key"] == made["key"])["revoked"]
    assert run("keys", "rotate").exit_code == 0
    assert len((here / "shoal-gateway.key").read_text().split()) == 2
    for bad, sentence in ((("make", "king"), "kind is 'king'"), (("make", "person"), "holder")):
        refused = run("keys", *bad)
        assert refused.exit_code == 2
        assert sentence in refused.stderr


def test_several_workers_need_postgres(here: Path) -> None:
    run("serve", "--init")
    refused = run("serve", "--workers", "2")
    assert refused.exit_code == 2
    assert "SQLite" in refused.stderr
    bad = run("serve", "--port", "99999")
    assert bad.exit_code == 2
    assert "SHOAL_PORT" in bad.stderr


def test_a_newcomer_copies_a_line_and_sees_the_town(here: Path) -> None:
    """What is printed first is a curl line, and what it asks for is live."""
    (port,) = free_ports(1)
    command = [sys.executable, "-c", "from shoal.cli import main; main()"]
    with subprocess.Popen(
        [*command, "serve", "--town", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        line = next((each for each in server.stdout if each.startswith("  curl -N ")), "")
        *_, key, url = line.split()
        headers = {"Authorization": f"Bearer {key.rstrip(chr(39))}"}
        with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            events = (each for each in answer.iter_lines() if each.startswith("data: "))
            shown = [json.loads(next(events)[6:]) for _ in range(2)]
        server.terminate()
        assert server.stderr.read() == ""
    assert [each["id"] for each in shown] == [0, 1]
    assert {each["status"] for each in shown} <= {"shown", "silent"}
    assert server.returncode in (0, -signal.SIGTERM)


WALKED = """
from shoal.gateway.town import TOWN_PLACES, interpret_kernels, plan_of_spec
from shoal.noise.primitives import SeededRng
{first}
plan, rng = plan_of_spec(TOWN_PLACES), SeededRng(7)
model, state = plan.task.family[0], plan.body.init()
print(plan.fingerprint)
for place in model.sample(100, rng):
    state, shown = plan.body.step(state, model.states[int(place)], rng)
    print(shown.point, *map(float, shown.estimate), shown.degree)
"""


DAYS = """
from shoal.gateway.town import CONTEXTS, interpret_kernels, plan_of_spec
{first}
from shoal.mechanisms.table import verify_promise
plan = plan_of_spec(CONTEXTS)
print(plan.fingerprint, verify_promise(plan))
"""


def test_the_town_checks_days_of_contexts_without_a_compiler() -> None:
    """A plan for days is calibrated and checked again by plain Python, with the same outcome."""
    plain, compiled = (
        subprocess.run(
            [sys.executable, "-W", "error", "-c", DAYS.format(first=first)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        ).stdout
        for first in ("interpret_kernels()", "")
    )
    assert plain == compiled


@pytest.mark.slow
def test_the_town_draws_what_compiled_code_draws() -> None:
    """Kernels run as plain Python give the same outputs, to the last digit."""
    told = []
    for first in ("interpret_kernels()", ""):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", WALKED.format(first=first)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 101


def test_the_service_starts_answers_and_stops_gracefully(here: Path) -> None:
    token = json.loads(run("serve", "--init", "--json").stdout)["token"]
    (port,) = free_ports(1)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SHOAL_PORT": str(port)}
    code = "from shoal.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve"], env=env, stderr=subprocess.PIPE, text=True
    )
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _alive(base))
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/v1/people", headers=headers, timeout=60).json() == {"people": []}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()


def _alive(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
