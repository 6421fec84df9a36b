"""Mathematics asks values for their numbers, not for their types, and a name has one meaning.

Counted is every `isinstance` on a stored kind (models, secrets, queries, bodies, noises, rules),
except at the edges: where documents, specs, files, commands and jobs come in or go out, where an
argument is checked and refused, and where a type checker is told what is known already.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import shoal
from shoal.core.family import families

PACKAGE = Path(shoal.__file__).parent
KINDS = {part().__name__ for family in families() for part in family.kinds.values()}
EDGES = ("cli", "data", "spec", "jobs", "views", "gateway", "studio")
EDGE_FILES = ("codec.py", "spec.py", "views.py", "jobs.py")
# modules that compute: nothing there may depend on which model, secret or query it is given
MATHEMATICS = ("mechanisms", "chains/exact", "chains/lift", "chains/quilt", "geometry", "noise")
MOST = 60  # may only fall


def dispatches(source: str, kinds: set[str]) -> Iterator[int]:
    """The lines of `source` that ask for one of `kinds`, checks of arguments left out."""
    tree = ast.parse(source)
    checked: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) or (
            isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)
        ):
            checked.update(id(inner) for inner in ast.walk(node.test))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in checked and _asks(node, kinds):
            yield node.lineno


def _asks(call: ast.Call, kinds: set[str]) -> bool:
    if not (isinstance(call.func, ast.Name) and call.func.id == "isinstance"):
        return False
    parts = ast.walk(call.args[1])
    return any(
        isinstance(part, ast.Name | ast.Attribute) and _last(part) in kinds for part in parts
    )


def _last(part: ast.Name | ast.Attribute) -> str:
    return part.id if isinstance(part, ast.Name) else part.attr


def _found() -> Counter[str]:
    found: Counter[str] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = path.relative_to(PACKAGE)
        if not set(inside.parts) & set(EDGES) and path.name not in EDGE_FILES:
            count = len(list(dispatches(path.read_text(), KINDS)))
            if count:
                found[str(inside)] = count
    return found


def test_few_dispatches_on_types_are_left() -> None:
    found = _found()
    assert sum(found.values()) <= MOST, found.most_common()


def test_no_model_secret_or_query_is_asked_for_its_type_where_numbers_are_computed() -> None:
    mathematics = {
        name: count
        for name, count in _found().items()
        if name.startswith(MATHEMATICS) and name not in NARROWING
    }
    assert mathematics == {}


# the one place each where a value is looked at: what it says everybody else uses
NARROWING = (
    "mechanisms/choice.py",
    "mechanisms/table.py",
    "mechanisms/usefulness.py",
    "mechanisms/plans.py",
    "mechanisms/queries.py",
    "mechanisms/quilt.py",
    "mechanisms/variables.py",
    "noise/laplace.py",
)


def test_a_dispatch_is_counted_and_a_check_is_not() -> None:
    asked = "def f(m):\n    return 1 if isinstance(m, Chain | Other) else 2\n"
    checked = "def f(m):\n    if not isinstance(m, Chain):\n        raise ValueError\n"
    assert list(dispatches(asked, {"Chain"})) == [2]
    assert list(dispatches(checked, {"Chain"})) == []
    assert list(dispatches("assert isinstance(m, Chain)", {"Chain"})) == []


# documents of the gateway's interface have the names that the interface gives them
FAMILIES = ("chains", "networks", "records", "places", "contexts", "share")
WIRE = ("gateway/routes/bodies.py", "gateway/client.py")


def test_every_class_name_stands_for_one_thing() -> None:
    assert all((PACKAGE / name).is_file() for name in WIRE)
    homes: dict[tuple[str, str], list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inside = str(path.relative_to(PACKAGE))
        package = inside.partition("/")[0]
        owner = package if package in FAMILIES else ""  # families are plug-ins: each has its names
        if inside not in WIRE:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    homes.setdefault((owner, node.name), []).append(inside)
    assert {name: where for name, where in homes.items() if len(where) > 1} == {}


# what every command, row, audit or page has one of, under one name; and plain machine numbers
SHARED = {
    "EXAMPLES",
    "FAMILY",
    "NAME",
    "ROW",
    "T",
    "ASSUMED",
    "NOT_CHECKED",
    "SUFFIXES",
    "ROUND",
    "UNIT",
}


def test_no_constant_stands_for_many_things() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    homes.setdefault(target.id, []).append(str(path.relative_to(PACKAGE)))
    crowded = {name: where for name, where in homes.items() if len(where) > 3}
    assert {name: where for name, where in crowded.items() if name not in SHARED} == {}
    assert set(crowded) == SHARED


def said_twice(source: str) -> list[str]:
    """The names that a module's own lines bind more than once: the first meaning is lost."""
    said: Counter[str] = Counter()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            said[node.name] += 1
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        said.update(x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name))
    return sorted(name for name, count in said.items() if count > 1 and name != "_")


def test_no_module_gives_a_name_twice() -> None:
    assert said_twice("LEAST = 1e-12\n\n\ndef f():\n    return LEAST\n\n\nLEAST = 2.0") == ["LEAST"]
    found = {
        str(path.relative_to(PACKAGE)): said_twice(path.read_text())
        for path in PACKAGE.rglob("*.py")
    }
    assert {name: twice for name, twice in found.items() if twice} == {}
