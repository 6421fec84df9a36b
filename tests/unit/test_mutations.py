"""The stored faults can still be planted, and the runner tells killed from survived."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import shoal
from tests.mutations.__main__ import BROKEN, KILLED, LOST, SURVIVED, run_mutants
from tests.mutations.mutants import Lost, Mutant, apply_mutant, locate, read_mutants

ROOT = Path(__file__).parents[2]
PACKAGE = Path(shoal.__file__).parent
MUTANTS = read_mutants()
MOST_LOST = 5  # after code moved; then they are stored anew


def toy(folder: Path, test: str = "assert larger(1, 2) == 2") -> Path:
    """A tree with one function and one test."""
    package = folder / "src" / "shoal"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sizes.py").write_text(
        "def larger(a, b):\n    return max(a, b)\n\n\ndef unused(a, b):\n    return max(a, b)\n"
    )
    (folder / "test_sizes.py").write_text(
        f"from shoal.sizes import larger\n\n\ndef test_larger():\n    {test}\n"
    )
    return folder


def mutant(name: str, inside: str, file: str = "sizes.py") -> Mutant:
    return Mutant(name, file, inside, "return max(a, b)", "return min(a, b)", ("test_sizes.py",))


def test_most_stored_faults_can_be_planted() -> None:
    lost = []
    for one in MUTANTS:
        try:
            path, index = locate(one, PACKAGE)
        except Lost as error:
            lost.append(str(error))
            continue
        lines = path.read_text().splitlines()
        lines[index] = lines[index].replace(one.line, one.fault)
        ast.parse("\n".join(lines))
        assert one.fault != one.line
    assert len(lost) <= MOST_LOST, lost


def test_there_are_a_hundred_faults_and_their_tests_exist() -> None:
    assert len({one.name for one in MUTANTS}) == len(MUTANTS) >= 100
    missing = {test for one in MUTANTS for test in one.tests if not (ROOT / test).exists()}
    assert not missing, "name the tests that took their place in mutants.jsonl"


def test_a_fault_is_killed_survives_or_is_lost(tmp_path: Path) -> None:
    tree, stored = toy(tmp_path / "tree"), tmp_path / "results.jsonl"
    faults = [mutant("seen", "larger"), mutant("unseen", "unused"), mutant("gone", "smaller")]
    before = (tree / "src" / "shoal" / "sizes.py").read_text()
    results = run_mutants(faults, tree, stored)
    assert results == {"seen": KILLED, "unseen": SURVIVED, "gone": LOST}
    assert (tree / "src" / "shoal" / "sizes.py").read_text() == before
    assert len(stored.read_text().splitlines()) == 3


def test_tests_that_fail_without_a_fault_kill_none(tmp_path: Path) -> None:
    tree = toy(tmp_path, "assert larger(1, 2) == 3")
    assert run_mutants([mutant("seen", "larger")], tree, None) == {"seen": BROKEN}


def test_a_fault_is_found_after_its_code_moved(tmp_path: Path) -> None:
    package = toy(tmp_path) / "src" / "shoal"
    path, _ = apply_mutant(mutant("moved", "larger", file="elsewhere.py"), package)
    assert path == package / "sizes.py"
    assert path.read_text().count("min(a, b)") == 1
    with pytest.raises(Lost, match="is in 0 places"):
        locate(mutant("again", "larger"), package)
