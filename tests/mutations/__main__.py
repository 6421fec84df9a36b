"""Plant each stored fault in a copy of the tree and run its tests: `python -m tests.mutations`.

A fault is killed when a test fails, and survives when all pass. Each set of tests is run once
without a fault first: tests that fail then can kill nothing, and are reported.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutations.mutants import STORED, Lost, Mutant, apply_mutant, read_mutants

HERE = Path(__file__).resolve().parents[2]
TIME_LIMIT = 300  # seconds for the tests of one fault; one that never ends is killed
KILLED, SURVIVED, LOST, BROKEN = "killed", "survived", "lost", "broken tests"
NO_TESTS = 5  # pytest's exit code


def main() -> int:
    """Run the mutants asked for, print and store a line for each; 1 when one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], help="names begin with one of these")
    parser.add_argument("--mutants", type=Path, default=STORED, help="another list of mutants")
    parser.add_argument("--tree", type=Path, default=HERE, help="the tree to plant them in")
    parser.add_argument("--results", type=Path, help="store results as JSON lines here")
    given = parser.parse_args()
    chosen = [m for m in read_mutants(given.mutants) if m.name.startswith(tuple(given.only))]
    with tempfile.TemporaryDirectory() as folder:
        results = run_mutants(chosen, copy_tree(given.tree, Path(folder)), given.results)
    counts = Counter(results.values())
    print(", ".join(f"{counts[one]} {one}" for one in (KILLED, SURVIVED, LOST, BROKEN)))
    return int(counts[KILLED] != len(chosen))


def copy_tree(tree: Path, folder: Path) -> Path:
    """Copy what tests need, with compiled kernels, into a folder."""
    skipped = shutil.ignore_patterns("node_modules", ".git", ".venv", ".mypy_cache", ".ruff_cache")
    return Path(shutil.copytree(tree, folder / "tree", ignore=skipped))


def run_mutants(mutants: list[Mutant], tree: Path, stored: Path | None) -> dict[str, str]:
    """Return what became of each mutant; printed, and stored when asked, as soon as it is known."""
    sound: dict[tuple[str, ...], bool] = {}
    results: dict[str, str] = {}
    for mutant in mutants:
        if mutant.tests not in sound:
            sound[mutant.tests] = tests_pass(mutant.tests, tree)
        result = judge(mutant, tree) if sound[mutant.tests] else BROKEN
        results[mutant.name] = result
        print(f"{result:8} {mutant.name}: {mutant.line}  =>  {mutant.fault}", flush=True)
        if stored is not None:
            with stored.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"name": mutant.name, "result": result}) + "\n")
    return results


def judge(mutant: Mutant, tree: Path) -> str:
    """Return whether a fault is noticed, and take it out again."""
    try:
        path, before = apply_mutant(mutant, tree / "src" / "shoal")
    except Lost as lost:
        print(lost)
        return LOST
    times = path.stat()
    try:
        return SURVIVED if tests_pass(mutant.tests, tree) else KILLED
    finally:
        path.write_text(before, encoding="utf-8")
        # compiled code of other lines is taken again only under the time it was compiled at
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def tests_pass(tests: tuple[str, ...], tree: Path) -> bool:
    """Return whether tests pass in a tree; no when they run over the time limit."""
    paths = os.pathsep.join([str(tree / "src"), str(tree)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, timeout=TIME_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode == NO_TESTS:
        raise SystemExit(f"no tests in {', '.join(tests)}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
