"""A stored fault: one line of one function, and what stands there instead.

A mutant is found by its function and the text of its line, not by a number, so that it survives
code moving up, down or into another file. One that is found in no place, or in several, is
reported as lost and has to be stored anew.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

STORED = Path(__file__).with_name("mutants.jsonl")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    `file` is below `src/shoal`; `inside` is the function, with its class; `line` is the stripped
    source line and `fault` what replaces it; `tests` are the files of tests that should notice.
    """

    name: str
    file: str
    inside: str
    line: str
    fault: str
    tests: tuple[str, ...]


def read_mutants(path: Path = STORED) -> list[Mutant]:
    """Return the stored mutants, in the order they were chosen in."""
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [Mutant(**{**one, "tests": tuple(one["tests"])}) for one in found]


def write_mutants(mutants: list[Mutant], path: Path = STORED) -> None:
    """Store mutants, one a line."""
    path.write_text("".join(json.dumps(asdict(one)) + "\n" for one in mutants), encoding="utf-8")


class Lost(Exception):
    """The line of a mutant is in no function of this name, or in several places."""


def locate(mutant: Mutant, package: Path) -> tuple[Path, int]:
    """Return the file and the index of the line that a mutant changes; Lost when none is it.

    Its own file is looked at first, then every file of the package.
    """
    own = package / mutant.file
    places = list(_places(mutant, own)) if own.exists() else []
    if not places:
        places = [one for path in sorted(package.rglob("*.py")) for one in _places(mutant, path)]
    if len(places) != 1:
        raise Lost(f"{mutant.name}: {mutant.line!r} is in {len(places)} places; store it anew")
    return places[0]


def _places(mutant: Mutant, path: Path) -> Iterator[tuple[Path, int]]:
    text = path.read_text(encoding="utf-8")
    if mutant.line not in text:
        return
    lines = text.splitlines()
    for qualified, node in functions(ast.parse(text)):
        if qualified == mutant.inside:
            for index in range(node.lineno - 1, node.end_lineno or node.lineno):
                if lines[index].strip() == mutant.line:
                    yield path, index


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions of a module and the methods of its classes, by qualified name."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def apply_mutant(mutant: Mutant, package: Path) -> tuple[Path, str]:
    """Write the fault into the package; return the file and its text before, to restore it."""
    path, index = locate(mutant, package)
    before = path.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    lines[index] = lines[index].replace(mutant.line, mutant.fault)
    after = "".join(lines)
    ast.parse(after)
    path.write_text(after, encoding="utf-8")
    return path, before
