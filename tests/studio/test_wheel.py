"""The wheel carries the page, so that an installed studio needs no node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.studio.conftest import ROOT, STATIC, Studio, started, stopped

PAGES = ("index.html", "person.html", "views.js")


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
