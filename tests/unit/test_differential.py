"""The comparison of two trees finds a change of one word, and none between a tree and itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.differential.__main__ import differences, report

ROOT = Path(__file__).parents[2]
FEW = ("--only", "ledger", "--histories", "6")


def compare(base: Path, head: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.differential", "--base-folder", str(base)]
    return subprocess.run(
        [*command, "--head", str(head), *FEW], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_a_tree_equals_itself_and_differs_from_one_with_a_change(tmp_path: Path) -> None:
    for part in ("src", "tests"):
        shutil.copytree(
            ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("static", "data")
        )
    done = compare(ROOT, tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "7 acts bit-identical, 0 different, 0 in one tree only\n",
    ), done.stderr
    rules = tmp_path / "src" / "shoal" / "ledger" / "rules.py"
    text = rules.read_text()
    assert "etas add to" in text
    rules.write_text(text.replace("etas add to", "etas come to"))
    done = compare(ROOT, tmp_path)
    assert done.returncode == 1, done.stderr
    assert '.explanation: "etas add to' in done.stdout
    assert "0 in one tree only" in done.stdout


def test_every_part_that_differs_is_named() -> None:
    base = {"a": 1, "b": [1, {"c": "x"}], "d": 0}
    head = {"a": 1, "b": [1, {"c": "y"}], "e": 0}
    assert list(differences(base, head)) == [
        '.b[1].c: "x" -> "y"',
        '.d: 0 -> "absent"',
        '.e: "absent" -> 0',
    ]
    assert list(differences([1], [1, 2])) == [": [1] -> [1, 2]"]
    assert list(differences(base, base)) == []


def test_a_missing_act_counts_as_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert report({"x": 1, "y": 1}, {"x": 1}) == 1
    assert "only in the base: y" in capsys.readouterr().out
    assert report({"x": None}, {"x": None}) == 0
