"""The files of a deployment: what linters accept, and that they say what the code does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from shoal.gateway.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
NAMED = re.compile(r"SHOAL_([A-Z_]+)")
NOT_SETTINGS = {"SITE"}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return found


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yml", "shoal-gateway.service"])
def test_every_variable_is_a_setting(name: str) -> None:
    named = set(NAMED.findall((DEPLOY / name).read_text())) - NOT_SETTINGS
    assert {each.lower() for each in named} <= set(Settings.model_fields)


def test_the_compose_file_has_a_database_two_workers_and_tls() -> None:
    services = compose()["services"]
    assert set(services) == {"database", "gateway", "proxy"}
    assert services["gateway"]["environment"]["SHOAL_WORKERS"] == "2"
    assert services["gateway"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert "ports" not in services["gateway"], "only the proxy is reached from outside"
    assert "ports" not in services["database"]
    for name, service in services.items():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith(".") or source in compose()["volumes"], (name, volume)
        for secret in service.get("secrets", ()):
            assert secret in compose()["secrets"]
    assert not re.search(r"(?i)password:\s*\S", (DEPLOY / "compose.yml").read_text())


def test_docker_accepts_the_compose_file(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    asked = [docker or "docker", "compose", "version"]
    if docker is None or subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(DEPLOY / "compose.yml"), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_dockerfile_ends_as_a_user_with_a_health_check() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    words = [line.split()[0] for line in lines if line and not line.startswith((" ", "#"))]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}
    assert set(words) <= known
    assert words[0] == "FROM"
    assert words.index("USER") > words.index("RUN")
    assert words[-1] == "CMD"
    assert not any("latest" in line or "ADD " in line for line in lines)
    for line in lines:
        if line.startswith("COPY") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (DEPLOY.parent / source).exists(), source


def test_a_linter_accepts_the_dockerfile() -> None:
    beside = Path(sys.executable).parent / "hadolint"
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip("hadolint is not installed")
    asked = [program, "--no-color", str(DEPLOY / "Dockerfile")]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    text = (DEPLOY / "shoal-gateway.service").read_text()
    unit = tmp_path / "shoal-gateway.service"
    unit.write_text(text.replace("/opt/shoal/bin/shoal", "/bin/true"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert "shoal-gateway.service:" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_proxies_do_not_compress_or_buffer(name: str) -> None:
    text = (DEPLOY / name).read_text()
    assert "encode" not in text
    assert "gzip on" not in text
    assert "flush_interval -1" in text or "proxy_buffering off" in text


@pytest.mark.parametrize("name", ["Caddyfile", "nginx.conf"])
def test_proxies_log_no_paths_and_shut_what_is_inside(name: str) -> None:
    text = (DEPLOY / name).read_text()
    shut = next(line for line in text.splitlines() if "metrics" in line)
    for path in ("metrics", "docs", "openapi"):
        assert path in shut
    if name == "nginx.conf":
        assert "access_log off;" in text
        assert "error_log /dev/null emerg;" in text
        assert "X-Forwarded-For $remote_addr;" in text
    else:
        assert "output discard" in text
        excluded = next(line for line in text.splitlines() if "exclude" in line).split()
        assert {"http.log.error", "http.handlers.reverse_proxy"} <= set(excluded)


@pytest.mark.parametrize(("program", "asked"), [("nginx", "-t"), ("caddy", "validate")])
def test_a_proxy_accepts_its_file(tmp_path: Path, program: str, asked: str) -> None:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed")
    if program == "nginx":
        whole = f"pid {tmp_path}/pid; events {{}} http {{ server {{ listen 127.0.0.1:8471;\n"
        file = tmp_path / "nginx.conf"
        file.write_text(f"{whole}{(DEPLOY / 'nginx.conf').read_text()}}}}}")
        command = [found, asked, "-c", str(file)]
    else:
        command = [found, asked, "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
