"""A studio on a free port, and Debian's browser to look at it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "shoal" / "studio" / "static" / "index.html"
AXE = ROOT / "views" / "node_modules" / "axe-core" / "axe.min.js"
SHOTS = os.environ.get("SHOAL_SHOTS")  # a folder: the tests leave a picture of every room there
ONLY = os.environ.get("SHOAL_SHOTS_ONLY", "").split()  # names of the pictures wanted; else all
COLOURS, TALLEST = 96, 1500  # of a picture: a screen has few colours, and a page of the docs an end
PATIENCE_MS = int(os.environ.get("SHOAL_PATIENCE_MS", "180000"))  # on a busy machine
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
    folder: Path

    @property
    def home(self) -> str:
        return self.address.partition("/enter")[0]


def started(folder: Path, *options: str, source: Path = ROOT / "src") -> Studio:
    """`shoal studio`, begun in `folder`, from the package in `source`."""
    code = "from shoal.cli import main; main()"
    command = [sys.executable, "-c", code, "studio", "--no-open", *options]
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    found = re.search(r"http://127.0.0.1:(\d+)\S+", process.stdout.readline())
    assert found, "the studio printed no address"
    for _ in range(PATIENCE_MS // 100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(found[1]))):
            return Studio(found[0], process, folder)
        time.sleep(0.1)
    raise AssertionError("the studio does not answer")


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
    """Keep a picture where somebody asked for it; one for the docs is small."""
    if not SHOTS or (ONLY and name not in ONLY):
        return
    path = Path(SHOTS) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(path), full_page=True)
    if ONLY:
        from PIL import Image

        with Image.open(path) as taken:
            whole = taken.convert("RGB").crop((0, 0, taken.width, min(taken.height, TALLEST)))
            small = whole.quantize(COLOURS, dither=Image.Dither.NONE)
        small.save(path, optimize=True)


def one_look(page: Any, name: str) -> None:
    """Light, and as wide as a phone: nobody shut out, nothing beyond the edge."""
    before = page.viewport_size
    shot(page, name)
    assert_open_to_all(page)
    _narrowed(page, name, "phone", (360, 740))
    page.set_viewport_size(before)


def every_look(page: Any, name: str) -> None:
    """Light, dark, at twice the size of its letters and on a phone: whole, and nobody shut out."""
    before = page.viewport_size
    shot(page, name)
    assert_open_to_all(page)
    page.emulate_media(color_scheme="dark")
    assert_open_to_all(page)
    shot(page, f"{name}-dark")
    for look, size in (("large", (600, 450)), ("phone", (360, 740))):
        _narrowed(page, name, look, size)
        shot(page, f"{name}-{look}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(before)


def _narrowed(page: Any, name: str, look: str, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, f"{name} on a {look} screen is {wide} pixels too wide"


# how a room is looked at once it shows something: quickly, and in all ways in the long run
LOOKS = pytest.mark.parametrize(
    "look", [one_look, pytest.param(every_look, marks=pytest.mark.slow)], ids=["once", "every"]
)


def assert_open_to_all(page: Any) -> None:
    """axe-core finds nothing serious."""
    if not AXE.is_file():
        return
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document).then(found => found.violations)")
    serious = {
        one["id"]: one["nodes"][0]["html"][:200]
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert serious == {}
