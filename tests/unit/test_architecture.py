"""The map is true: every folder of the package is on it, and everything it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import shoal

PACKAGE = Path(shoal.__file__).parent
MAP = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()


def folders() -> set[str]:
    return {
        str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if list(path.glob("*.py"))
    }


def test_every_folder_is_on_the_map() -> None:
    named = {name.rstrip("/") for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/)`", MAP)}
    assert folders() - named == set()


def test_every_folder_on_the_map_is_there() -> None:
    named = {name.rstrip("/") for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)*/)`", MAP)}
    assert named - folders() == {"studies", "views"}


def test_every_file_on_the_map_is_there() -> None:
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", MAP)
    assert named
    root = PACKAGE.parents[1]
    missing = [name for name in named if not ((PACKAGE / name).exists() or (root / name).exists())]
    assert missing == []
