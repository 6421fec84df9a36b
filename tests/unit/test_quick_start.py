"""A command loads what it needs: no other family's modules, nothing heavy for help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzzing import SERIES

MOST = 115  # modules of ours for the plan of a chain: chains have some 35, of 173 before
RUN = """
import sys
from shoal.cli import app
try:
    app(sys.argv[1:], prog_name="shoal")
except SystemExit as stopped:
    assert not stopped.code, stopped.code
print("LOADED", *sorted(name for name in sys.modules), file=sys.stderr)
"""


def loaded(folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    return done.stderr.partition("LOADED ")[2].split()


def test_the_plan_of_a_chain_loads_no_other_family(tmp_path: Path) -> None:
    (tmp_path / "chain.toml").write_text(SERIES)
    ours = [name for name in loaded(tmp_path, "plan", "chain.toml") if name.startswith("shoal.")]
    others = ("networks", "records", "places", "contexts", "share")
    inside = [name for name in ours if name.startswith(tuple(f"shoal.{one}." for one in others))]
    assert {name.rpartition(".")[2] for name in inside} == {"family"}  # the typed records alone
    assert len(ours) <= MOST, len(ours)


@pytest.mark.parametrize("command", ["", "plan", "release", "stream", "attack", "fit", "leak"])
def test_help_loads_nothing_heavy(tmp_path: Path, command: str) -> None:
    found = loaded(tmp_path, *filter(None, [command]), "--help")
    heavy = {"numpy", "scipy", "numba", "polars", "pyarrow", "sqlalchemy", "rich"}
    assert heavy.intersection(found) == set()
    assert sum(name.startswith("shoal") for name in found) <= 16
