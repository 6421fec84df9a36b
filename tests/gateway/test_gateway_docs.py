"""What the documentation says is done as it stands; /docs needs no other server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.gateway_house import House, running
from tests.gateway.gateway_nursery import free_ports

ROOT = Path(__file__).parents[2]
SHOAL = [sys.executable, "-c", "from shoal.cli import main; main()"]


def test_a_day_with_it_works_as_it_is_pasted(tmp_path: Path) -> None:
    """The block of the page, with the key and port of this test, up to its first event."""
    if any(shutil.which(program) is None for program in ("bash", "curl", "jq")):
        pytest.skip("bash, curl or jq is not installed")
    page = (ROOT / "docs" / "gateway.md").read_text()
    block = page.partition("## A day with it")[2].split("```")[1].strip()
    (port,) = free_ports(1)
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SHOAL_PORT": str(port)}

    def shoal(*arguments: str) -> str:
        command = [*SHOAL, *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    shoal("init", "--kind", "contexts")
    token = json.loads(shoal("serve", "--init", "--json"))["token"]
    block = re.sub(r"op=\S+", f"op={token}", block, count=1).replace("8470", str(port))
    assert block.splitlines()[-1].startswith("curl -N ")
    block = f"{block} | grep -m1 '^data:'"
    with subprocess.Popen([*SHOAL, "serve"], cwd=tmp_path, env=given) as server:
        try:
            done = subprocess.run(
                ["bash", "-c", block],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )
        finally:
            server.terminate()
    event = json.loads(done.stdout.rpartition("data:")[2])
    assert '{"taken": 1, "dead": []}' in done.stdout
    assert event["status"] in ("shown", "suppressed", "silent"), done.stdout


def test_the_page_of_the_api_names_every_endpoint_and_loads_nothing(house: House) -> None:
    answer = house.ask("GET", "/docs")
    assert answer.status_code == 200
    for path in house.ask("GET", "/openapi.json").json()["paths"]:
        assert path in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for loading in ("<script", "<link", "src=", "http://", "https://"):
        assert loading not in answer.text
    assert house.ask("GET", "/redoc").status_code == 404


def test_a_page_that_was_not_built_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.gateway.app.files", lambda _: tmp_path)
    with running(tmp_path) as house:
        answer = house.ask("GET", "/page/")
        assert answer.status_code == 404
        assert "make views" in answer.json()["detail"]
        assert house.ask("GET", "/page/other").status_code == 404
