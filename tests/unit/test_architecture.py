"""The map is true: every folder of the package is on it, and everything it names is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest
from typer.testing import CliRunner

import shoal
from shoal import LocationStream, MarkovChain, PolicyGraph, calibrate, measurement, open_ledger
from shoal.cli.app import app

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


# Modules of the package that an act needs: what a reader has to open. They rise only with an ADR.
PLAN_MODULES = 64  # of a histogram or a count over a chain; files are smaller than they were
# by the steps before it: the first ones are judged by every rule; no compiled step (ADR 0024)
STEP_MODULES = {8: 25, 3: 30}

# packages that are imported for the record of their family, whatever is planned
OTHERS = ("events", "networks", "records", "places", "contexts", "share")
RECORDS = [f"shoal.{name}" for name in OTHERS]

COUNTED = """
import sys
from shoal.cli.app import app
app(["plan", sys.argv[1], "--json"], standalone_mode=False)
print("MODULES", *(name for name in sys.modules if name.partition(".")[0] == "shoal"))
"""


@pytest.mark.parametrize("query", ["histogram", "count"])
def test_a_plan_of_a_chain_imports_few_modules(tmp_path: Path, query: str) -> None:
    spec = tmp_path / "series.toml"
    assert CliRunner().invoke(app, ["init", str(spec)]).exit_code == 0
    if query == "count":
        written = spec.read_text().replace("relative = true", 'states = ["walk"]')
        spec.write_text(written.replace('kind = "histogram"', 'kind = "count"'))
    done = subprocess.run(
        [sys.executable, "-c", COUNTED, str(spec)], capture_output=True, text=True, check=True
    )
    loaded = [
        name
        for name in done.stdout.rpartition("MODULES ")[2].split()
        if name not in RECORDS and not (name.endswith(".family") or name == "shoal.families")
    ]
    assert len(loaded) <= PLAN_MODULES, sorted(loaded)
    assert [name for name in loaded if name.split(".")[1:2] in [[one] for one in OTHERS]] == []


@pytest.mark.parametrize("before", STEP_MODULES)
def test_a_charged_step_of_places_goes_through_few_modules(tmp_path: Path, before: int) -> None:
    moves = [[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
    chain = MarkovChain.of(moves, states=["a", "b", "c"])
    query = measurement(chain.states, [[0, 0], [1, 0], [0, 1]], labels=("x", "y"))
    policy = PolicyGraph.complete(chain.states)
    plan = calibrate(query, policy, chain, epsilon=1, mechanism="location-knorm")
    touched: set[str] = set()

    def watch(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("shoal."):
            touched.add(name)

    found = []
    others = sys.getprofile()
    with open_ledger(tmp_path / "budget.db") as ledger:
        for name in ("ann", "bob", "cem", "dia", "eva", "fay"):
            stream = LocationStream.begin(plan)
            for _ in range(before):
                stream, _ = stream.read("b", ledger=ledger, subject=name)
            touched.clear()
            sys.setprofile(watch)
            try:
                stream.read("b", ledger=ledger, subject=name)
            finally:
                sys.setprofile(others)
            found.append(sorted(touched))
    # now and then a draw is rejected so often that it takes more words, the slower way
    usual = min(found, key=len)
    assert len(usual) <= STEP_MODULES[before], usual
