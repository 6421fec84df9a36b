"""`shoal audit` fails with exit code 2 and a sentence: 1 says that a claim is violated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

BOXES = """\
class Owner:
    def release(self, data):
        return data.count("walk")

owner = Owner()

def fails(data):
    raise ValueError("first line\\nsecond line")

def nothing():
    return 1

def own(data):
    return 0.0

def no_number(data):
    return float("nan")

def seeded(data, rng):
    return rng.normal()
"""
MODULES = {
    "syntax": "x = (",
    "raises": 'raise RuntimeError("not today")',
    "exits": "raise SystemExit(1)",
    "needs": "import a_module_that_is_not_there",
}


@pytest.fixture
def name(folder: Path, request: pytest.FixtureRequest) -> str:
    """The start of the names of the modules of one test, which no other test has loaded."""
    start = "audit_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    (folder / f"{start}_boxes.py").write_text(BOXES)
    for kind, text in MODULES.items():
        (folder / f"{start}_{kind}.py").write_text(text)
    return start


FEW = ("--draws", "4000", "--length", "1")


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ("syntax:f", "fails to load with SyntaxError"),
        ("raises:f", "fails to load with RuntimeError: not today"),
        ("exits:f", "fails to load with SystemExit: 1"),
        ("needs:f", "fails to load with ModuleNotFoundError"),
        ("boxes:absent", "'absent', which is not in module"),
        ("boxes:owner.absent", "'owner.absent', which is not in module"),
        ("boxes:owner", "cannot be called"),
        ("boxes:nothing", "the black box takes ()"),
        ("boxes:fails", "failed with ValueError: first line second line"),
    ],
)
def test_a_box_that_cannot_be_audited_ends_in_two(
    run: Run, name: str, box: str, message: str
) -> None:
    done = run("audit", "spec.toml", "--black-box", f"{name}_{box}", *FEW)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_a_relative_module_is_told(run: Run) -> None:
    done = run("audit", "spec.toml", "--black-box", ".here:f")
    assert done.exit_code == 2
    assert "fails to load" in done.output


def test_a_method_can_be_audited(run: Run, name: str) -> None:
    done = run("audit", "spec.toml", "--black-box", f"{name}_boxes:owner.release", *FEW)
    assert done.exit_code == 1, done.output
    assert "THE CLAIM IS VIOLATED" in done.output


@pytest.mark.parametrize(
    "options",
    [
        ("--scale", "2", "--sampled"),
        ("--scale", "2", "--black-box", "some:thing"),
        ("--sampled", "--black-box", "some:thing"),
    ],
)
def test_options_that_would_be_ignored_are_refused(run: Run, options: tuple[str, ...]) -> None:
    done = run("audit", "spec.toml", *options)
    assert done.exit_code == 2
    assert "in different ways; give one" in done.output


def test_one_process_is_said_where_several_were_asked_for(run: Run, name: str) -> None:
    done = run("audit", "spec.toml", "--black-box", f"{name}_boxes:own", "--workers", "2", *FEW)
    assert done.exit_code == 0
    assert "called in one process" in done.output
    done = run("audit", "spec.toml", "--black-box", f"{name}_boxes:seeded", "--workers", "2", *FEW)
    assert "called in one process" not in done.output


def test_the_json_of_a_box_without_numbers_is_json(run: Run, name: str) -> None:
    box = f"{name}_boxes:no_number"
    done = run("audit", "spec.toml", "--black-box", box, "--json", *FEW)
    data = json.loads(done.stdout, parse_constant=pytest.fail)
    assert data["lower"] == 0
    assert data["verdict"] == "no violation found"
