"""The pages about audits and attacks run as they stand, and their figures are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from studies.scenarios import SCENARIOS, kinds_of_adversary, wrong_model

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("audit", "attacks", "audit-other-software")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name: str, tmp_path: Path) -> None:
    if name == "audit-other-software":
        pytest.importorskip("opendp")
    code = "\n".join(BLOCK.findall((DOCS / f"{name}.md").read_text(encoding="utf-8")))
    path = os.pathsep.join(filter(None, [str(DOCS.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},  # the scenarios are in the checkout's studies
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_page_of_attacks_lists_every_scenario() -> None:
    page = (DOCS / "attacks.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)
    assert listed == list(SCENARIOS)


def test_the_figures_of_the_scenarios_are_those_the_code_gives() -> None:
    page = (DOCS / "attacks.md").read_text(encoding="utf-8")
    standard = dict(kinds_of_adversary().figures)["standard"]
    assert f"standard {standard:.2f}" in page
    kept = dict(wrong_model().figures)["keeps 0.9"]
    assert f"{kept:.1f} if states are kept with 0.9" in page
