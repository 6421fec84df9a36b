"""Imports point one way: no module of the package imports a layer above its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal

PACKAGE = Path(shoal.__file__).parent
LAYERS = (
    "core",
    "geometry",
    "noise",
    "models",
    "queries",
    "secrets",
    "loss",
    "mechanisms",
    "streams",
    "ledger",
    "audit",
    "attacks",
    "data",
    "spec",
    "engines",
    "experiments",
)
EDGES = ("service", "studio", "cli")  # nothing below may import these, nor they each other
HEAVY = ("numba", "scipy", "polars", "pyarrow", "sqlalchemy", "networkx", "matplotlib", "pandas")


def imported(source: str, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in `source`, also inside functions and for types.

    `package` is the dotted package of the module, for relative imports. `from a import b` counts
    as a.b, because b may be a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: None if node.level <= 1 else 1 - node.level]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"


def shoal_layers(source: str, package: str) -> list[tuple[int, str]]:
    """Line and layer of every import of Shoal itself; the bare package is "shoal"."""
    found = []
    for line, name in imported(source, package):
        root, _, rest = name.partition(".")
        if root == "shoal":
            layer = rest.partition(".")[0]
            found.append((line, layer if _is_layer(layer) else "shoal"))
    return found


def _is_layer(name: str) -> bool:
    return name == "kinds" or (PACKAGE / name).is_dir()


def rank(layer: str) -> float:
    if layer == "kinds":
        # the table of kinds stands just above the highest layer it lists
        source = (PACKAGE / "kinds.py").read_text()
        return max(LAYERS.index(name) for _, name in shoal_layers(source, "shoal")) + 0.5
    if layer == "shoal":
        return len(LAYERS)
    return len(LAYERS) + 1 if layer in EDGES else LAYERS.index(layer)


def wrong_way(source: str, layer: str, package: str) -> list[str]:
    """The imports in a module of `layer` that do not point to a lower one or to its own."""
    return [
        f"line {line}: {layer} imports {other}"
        for line, other in shoal_layers(source, package)
        if other != layer and rank(other) >= rank(layer)
    ]


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_a_layer_above_its_own(path: Path) -> None:
    inside = path.relative_to(PACKAGE)
    package = ".".join(["shoal", *inside.parts[:-1]])
    assert wrong_way(path.read_text(), inside.parts[0], package) == []


def test_every_folder_is_a_layer_with_a_place() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert folders <= {*LAYERS, *EDGES}


def test_only_the_table_of_kinds_and_the_public_names_stand_outside_the_layers() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "kinds.py"}


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import shoal.mechanisms.group", "core"),
        ("from shoal.mechanisms import group", "loss"),
        ("def f():\n    from shoal.cli import app", "experiments"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shoal.ledger", "models"),
        ("from ..mechanisms import group", "noise"),
        ("from shoal import calibrate", "data"),
        ("from shoal.kinds import dumps", "core"),
        ("from shoal.kinds import loads", "mechanisms"),
        ("from shoal.cli import app", "service"),
    ],
)
def test_the_check_sees_every_way_to_import_upwards(source: str, layer: str) -> None:
    assert wrong_way(source, layer, f"shoal.{layer}")


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("from shoal.core import task", "mechanisms"),
        ("from . import row", "mechanisms"),
        ("from shoal import __version__", "cli"),
        ("from shoal.kinds import dumps", "cli"),
        ("import numpy", "core"),
    ],
)
def test_the_check_lets_downward_imports_pass(source: str, layer: str) -> None:
    assert wrong_way(source, layer, f"shoal.{layer}") == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, shoal; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
