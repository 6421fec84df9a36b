"""A studio on a free port, and Debian's browser to look at it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "shoal" / "studio" / "static" / "index.html"
SHOTS = os.environ.get("SHOAL_SHOTS")  # a folder: the tests leave a picture of every room there
PATIENCE_MS = 180_000  # on a busy machine
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Studio(NamedTuple):
    """A running studio: the address with its key, and the process."""

    address: str
    process: subprocess.Popen[str]

    @property
    def home(self) -> str:
        return self.address.partition("/enter")[0]


def started(folder: Path, *options: str) -> Studio:
    """`shoal studio`, begun in `folder`."""
    code = "from shoal.cli import main; main()"
    command = [sys.executable, "-c", code, "studio", "--no-open", *options]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found, "the studio printed no address"
    return Studio(found[0], process)


def stopped(studio: Studio) -> None:
    studio.process.terminate()
    studio.process.wait(60)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, or a skip that says what is missing."""
    pytest.importorskip("playwright", reason="the extra `dev` is not installed")
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium here: install Debian's package chromium")
    if not STATIC.is_file():
        pytest.skip("the studio's page is not built here: run `make views`")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    running = started(tmp_path_factory.mktemp("studio"))
    yield running
    stopped(running)


@pytest.fixture
def page(browser: Any, studio: Studio) -> Iterator[Any]:
    """A fresh page inside the studio; nothing it does may leave the computer or raise an error."""
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    made, asked, errors = context.new_page(), [], []
    made.set_default_timeout(PATIENCE_MS)
    made.on("request", lambda request: asked.append(request.url))
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.goto(studio.address)
    yield made
    context.close()
    away = [url for url in asked if not re.match(r"(http://127\.0\.0\.1:|data:|blob:)", url)]
    assert away == []
    assert errors == []


def enter(page: Any, room: str) -> None:
    """Go to a room by its address."""
    page.goto(f"{page.url.partition('#')[0]}#/{room}")
    page.wait_for_selector("h1")


def shot(page: Any, name: str) -> None:
    """Keep a picture where somebody asked for it."""
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(SHOTS) / f"{name}.png"), full_page=True)
