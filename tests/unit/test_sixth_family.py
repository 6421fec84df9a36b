"""A sixth family is one folder and one line: planned, stored, released, charged, audited, spelt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SESSION = Path(__file__).parents[1] / "sixth_family" / "session.py"


def test_a_sixth_family_is_one_folder_and_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SESSION)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["mechanism"], found["released"], found["schema"]) == ("coin-noise", True, True)
    assert found["scale"] == 1  # one coin moves the count by 1, and epsilon is 1
    assert found["loss"] == pytest.approx(1, rel=1e-9, abs=0)
    assert found["eta"] == 1
    assert found["fits"] == "3 coins thrown apart"
    assert "model.chances holds a number outside 0 to 1" in found["refused"]
    assert "model.kind is 'coin'; it must be one of 'markov-chain'" in found["unknown"]
    assert "'coins'" in found["unknown"]
