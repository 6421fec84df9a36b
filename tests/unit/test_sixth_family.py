"""A family from another distribution is installed, and planned, stored, released and audited."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "sixth_family"


def test_a_family_from_another_distribution_needs_only_its_entry_point(tmp_path: Path) -> None:
    source, site, work = (tmp_path / name for name in ("source", "site", "work"))
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    work.mkdir()
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *install, "--target", str(site), str(source)], check=True)
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(SOURCE / "session.py")],
        capture_output=True,
        text=True,
        cwd=work,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
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
