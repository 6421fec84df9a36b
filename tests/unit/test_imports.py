"""Imports point one way: no module of the package imports a storey above its own.

The walls stand between families, and the storeys run inside them: `chains/audit` stands where
`audit` stands, `places/spec` where `spec` stands, and so on.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import shoal

PACKAGE = Path(shoal.__file__).parent
FAMILIES = ("chains", "networks", "records", "places", "contexts", "share")
STOREYS = (
    "core",
    "geometry",
    "noise",
    "events",
    "mechanisms",
    "families",
    "stream",
    "ledger",
    "audit",
    "attacks",
    "data",
    "spec",
    "jobs",
    "edges",
)
# rooms of a family that stand on the storey of that name, or on another one
ROOMS = {
    "stream": "stream",
    "tracks": "ledger",
    "formats": "data",
    "points": "data",
    "words": "data",
    "nearest": "data",
    "spec_places": "spec",
    "spec_queries": "spec",
    "audit": "audit",
    "attack": "attacks",
    "place_attack": "attacks",
    "spec": "spec",
    "jobs": "jobs",
    "views": "edges",
}
EDGES = ("cli", "gateway", "studio")  # nothing below may import these; commands may
# which family may use which, as docs/architecture.md says
NEIGHBOURS = {
    "networks": ("chains",),
    "records": ("chains", "networks"),
    "places": ("chains",),
    "contexts": ("chains",),
}
HEAVY = ("numba", "scipy", "polars", "pyarrow", "sqlalchemy", "networkx", "matplotlib", "pandas")

# modules that know a family by name and should not: there are none, each uses the registry
DOORS: frozenset[str] = frozenset()

Place = tuple[str, str]  # the folder at the top, and the storey


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


def place_of(dotted: str) -> Place:
    """The folder and the storey of `shoal.…`; the bare package stands above the jobs."""
    _, top, room, *_ = [*dotted.split("."), "", ""]
    if top in FAMILIES:
        return top, ROOMS.get(room, "families")
    if top in EDGES:
        return top, "edges"
    return (top, top) if top in STOREYS else ("shoal", "shoal")


def rank(place: Place) -> float:
    """How high a place is: a family's room stands a step above the common storey of its name."""
    folder, storey = place
    if storey == "shoal":
        return STOREYS.index("jobs") + 0.75
    return STOREYS.index(storey) + (0.5 if folder in FAMILIES else 0.0)


def is_record(dotted: str) -> bool:
    """Return whether `dotted` is, or is in, the `family.py` of a package other than core."""
    top, part = [*dotted.split("."), "", ""][1:3]
    return part == "family" and top != "core"


def wrong_way(source: str, module: str) -> list[str]:
    """The imports in `module` that point upwards, or through a wall between families."""
    own, storey = here = place_of(module)
    found = []
    for line, name in imported(source, module.rpartition(".")[0]):
        if name.partition(".")[0] != "shoal":
            continue
        other, above = there = place_of(name)
        if is_record(name):
            found.append(f"line {line}: {own} imports the record of {other}")
        if is_record(module) and (
            other not in FAMILIES or other in (own, *NEIGHBOURS.get(own, ()))
        ):
            continue  # a record names the parts of its family, wherever they stand
        # the face of a family names what its rooms define, and imports it when asked
        if there == here or (other == own and module.endswith("__init__")):
            continue
        if own == "cli" and other in EDGES:  # a command opens every edge, none opens another
            continue
        wall = own in FAMILIES and other in FAMILIES and own != other
        through = wall and other not in NEIGHBOURS.get(own, ())
        upwards = rank(there) > rank(here) or (rank(there) == rank(here) and not wall)
        if upwards or through:
            found.append(f"line {line}: {own} ({storey}) imports {other} ({above})")
    return found


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_a_storey_above_its_own(path: Path) -> None:
    module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    found = wrong_way(path.read_text(), f"shoal.{module}")
    assert found == [] or module in DOORS


def test_every_door_is_still_needed() -> None:
    needed = {
        module
        for module in DOORS
        if wrong_way((PACKAGE / f"{module.replace('.', '/')}.py").read_text(), f"shoal.{module}")
    }
    assert needed == DOORS


def test_every_folder_has_a_place() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and list(path.glob("*.py"))}
    assert folders <= {*STOREYS, *EDGES, *FAMILIES}


def test_no_folder_holds_more_than_25_files() -> None:
    crowded = {
        str(folder.relative_to(PACKAGE)): len(list(folder.glob("*.py")))
        for folder in PACKAGE.rglob("*")
        if folder.is_dir() and len(list(folder.glob("*.py"))) > 25
    }
    assert crowded == {}


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import shoal.mechanisms.group", "shoal.core.task"),
        ("from shoal.chains import model", "shoal.mechanisms.exact"),
        ("def f():\n    from shoal.cli import app", "shoal.jobs.local"),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import shoal.ledger",
            "shoal.networks.bayesnet",
        ),
        ("from ..additive import group", "shoal.noise.laplace"),
        ("from shoal import calibrate", "shoal.data.read"),
        ("from shoal.cli import app", "shoal.gateway.app"),
        ("from shoal.places import map", "shoal.chains.model"),
        ("from shoal.contexts import day", "shoal.places.machine"),
        ("from shoal.chains.audit import walk", "shoal.chains.model"),
        ("from shoal.places.spec import GridWalkModel", "shoal.places.audit"),
        ("from shoal.places.family import FAMILY", "shoal.cli.fit"),
        ("import shoal.contexts.day", "shoal.places.family"),
    ],
)
def test_the_check_sees_every_way_to_import_upwards(source: str, module: str) -> None:
    assert wrong_way(source, module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from shoal.core import task", "shoal.mechanisms.group"),
        ("from . import row", "shoal.mechanisms.group"),
        ("from shoal import __version__", "shoal.cli.app"),
        ("from shoal.chains.model import MarkovChain", "shoal.places.walk"),
        ("from shoal.chains.model import MarkovChain", "shoal.chains.audit.walk"),
        ("import numpy", "shoal.core.task"),
        ("import shoal.places.views.plan", "shoal.places.family"),
        ("import shoal.spec.events", "shoal.events.family"),
    ],
)
def test_the_check_lets_downward_imports_pass(source: str, module: str) -> None:
    assert wrong_way(source, module) == []


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, shoal; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
