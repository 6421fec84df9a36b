"""The wheel carries the page, so that an installed studio needs no node."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest

from tests.studio.conftest import ROOT, STATIC, Studio, started, stopped

PAGES = ("index.html", "person.html", "views.js")
MOST_MB = 700  # of a plain install, 688 when measured: llvmlite 173, polars 181, scipy 143
PATIENCE_S = 120  # for a service to answer, on a machine with other work


@pytest.mark.skipif(not STATIC.is_file(), reason="the page is not built here: run `make views`")
def test_all_that_the_page_names_is_where_the_wheel_looks_for_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert STATIC.parent.relative_to(ROOT).as_posix() in settings["artifacts"]
    for page in PAGES:
        assert (STATIC.parent / page).is_file()
    for page in ("index.html", "person.html"):
        named = re.findall(r'(?:src|href)="\./([^"]+)"', (STATIC.parent / page).read_text())
        assert named
        assert [name for name in named if not (STATIC.parent / name).is_file()] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout; built by pip, which fetches what builds it."""
    if not STATIC.is_file():
        pytest.skip("the page is not built here: run `make views`")
    folder = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        str(ROOT),
        "--no-deps",
        "-q",
        "-w",
        str(folder),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"pip cannot build here: {made.stderr.strip().splitlines()[-1][:200]}")
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_carries_the_page(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    built = {f"shoal/studio/static/{file.name}" for file in STATIC.parent.iterdir()}
    assert built <= names
    assert not [name for name in names if "node_modules" in name]


@pytest.mark.slow
def test_an_unpacked_wheel_serves_the_page_without_node(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wheel's own files, with the libraries of this environment, and no program on the path."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("node") is None
    running: Studio = started(tmp_path, "--port", "0", source=tmp_path / "site")
    import httpx

    with httpx.Client(follow_redirects=True) as client:
        page = client.get(running.address)
        assert "<h1" in page.text or 'id="app"' in page.text
        assert client.get(f"{running.home}/studio.js").status_code == 200
    stopped(running)
    assert os.environ["PATH"] == str(tmp_path)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an empty environment into which the wheel was installed, without extras."""
    home = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(home, with_pip=True)
    install(home / "bin" / "python", str(wheel))
    return home / "bin" / "python"


def install(python: Path, *names: str) -> None:
    """Install packages by pip, or skip where there is no index."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr.strip().splitlines()[-1][:200]}")


def shoal(python: Path, folder: Path, *words: str) -> str:
    """What the installed command prints; it must succeed."""
    done = subprocess.run(
        [str(python.parent / "shoal"), *words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_plain_install_is_small_and_releases_a_table(installed: Path, tmp_path: Path) -> None:
    files = [path for path in installed.parents[1].rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 2**20
    print(f"a plain install takes {megabytes:.0f} MB")
    assert megabytes < MOST_MB
    assert not [path for path in files if path.parts[-2] in ("pyarrow", "networkx")]
    shoal(installed, tmp_path, "init")
    rows = [f"anna,{minute},{('sit', 'walk')[minute % 3 == 0]}" for minute in range(240)]
    (tmp_path / "days.csv").write_text("person,minute,activity\n" + "\n".join(rows) + "\n")
    shoal(installed, tmp_path, "release", "shoal.toml", "days.csv", "-o", "out.parquet")
    assert (tmp_path / "out.parquet").read_bytes()[:4] == b"PAR1"


@pytest.mark.slow
def test_an_installed_wheel_opens_studio_and_gateway(
    installed: Path, wheel: Path, tmp_path: Path, browser: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a browser, from an environment that has nothing but the wheel and its two extras."""
    install(installed, f"{wheel}[studio,serve]")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with service(installed, tmp_path, "studio", "--no-open", "--port", "0") as said:
        opened = browser.new_page()
        opened.goto(re.findall(r"http://127.0.0.1:\S+", said)[0])
        opened.wait_for_selector("h1", timeout=PATIENCE_S * 1000)
        opened.close()
    made = json.loads(shoal(installed, tmp_path, "serve", "--init", "--space", "home", "--json"))
    assert made["token"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with service(installed, tmp_path, "serve", "--port", str(port)):
        answers(port)
        opened = browser.new_page()
        assert opened.goto(f"http://127.0.0.1:{port}/page/").status == 200
        opened.wait_for_selector("h1", timeout=PATIENCE_S * 1000)
        opened.close()


@contextlib.contextmanager
def service(python: Path, folder: Path, *words: str) -> Iterator[str]:
    """A service of the installed command; the first line that it prints, for the studio."""
    running = subprocess.Popen(
        [str(python.parent / "shoal"), *words],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if words[0] == "studio" else subprocess.DEVNULL,
        text=True,
    )
    try:
        assert running.stdout is not None
        yield running.stdout.readline() if words[0] == "studio" else ""
    finally:
        running.terminate()
        running.wait(60)


def answers(port: int) -> None:
    """Wait until somebody listens."""
    for _ in range(PATIENCE_S * 10):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.1)
    raise AssertionError("the service does not answer")


@pytest.mark.slow
def test_what_the_wheel_asks_for_is_what_every_install_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [one for one in opened.namelist() if one.endswith(".dist-info/METADATA")]
        asked = Parser().parsestr(opened.read(name).decode()).get_all("Requires-Dist") or []
    core = {re.split(r"[^\w-]", one)[0].lower() for one in asked if "extra ==" not in one}
    assert core == {
        *("numpy", "scipy", "numba", "opt-einsum", "opt_einsum", "pydantic", "typer", "rich"),
        *("polars", "narwhals", "sqlalchemy"),
    } - ({"opt-einsum"} if "opt_einsum" in core else {"opt_einsum"})
