"""What `import shoal` offers is exactly what it says, in all three places that say it."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import shoal

SOURCE = Path(shoal.__file__).read_text()
REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


def typed_names() -> dict[str, str]:
    """Public name to module, as the block that type checkers read says it."""
    block = next(node for node in ast.parse(SOURCE).body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name, f"{alias.name} is not exported (write `x as x`)"
            found[alias.name] = str(node.module).removeprefix("shoal.")
    return found


def test_type_checkers_and_the_table_of_homes_agree() -> None:
    assert typed_names() == shoal._HOME


def test_all_lists_every_name_and_dir_shows_them() -> None:
    assert shoal.__all__ == sorted([*shoal._HOME, "__version__"])
    assert dir(shoal) == shoal.__all__


@pytest.mark.parametrize("name", sorted(shoal._HOME))
def test_every_name_is_what_its_home_defines(name: str) -> None:
    home = import_module(f"shoal.{shoal._HOME[name]}")
    assert getattr(shoal, name) is getattr(home, name)


@pytest.mark.parametrize("name", sorted(set(shoal._HOME) - {"MECHANISMS"}))
def test_every_name_has_a_docstring(name: str) -> None:
    assert (getattr(shoal, name).__doc__ or "").strip()


def test_an_unknown_name_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'shoal' has no attribute 'markov'"):
        _ = shoal.markov


def test_the_reference_lists_every_public_name_once() -> None:
    directive = re.compile(
        r"^\.\. auto(?:class|function|data|exception):: shoal\.(\w+)$", re.MULTILINE
    )
    assert sorted(directive.findall(REFERENCE.read_text())) == sorted(shoal._HOME)


def test_the_version_is_the_one_of_the_project_file() -> None:
    project = (REFERENCE.parents[1] / "pyproject.toml").read_text()
    assert f'\nversion = "{shoal.__version__}"\n' in project
