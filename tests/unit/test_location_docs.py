"""The page on location streams runs as it stands, and names what exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import shoal
from shoal.mechanisms.table import MECHANISMS

PAGE = (Path(__file__).parents[2] / "docs" / "location.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(BLOCKS)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "3/2"


def test_the_page_names_rows_and_functions_that_exist() -> None:
    rows = set(re.findall(r"`(location-[a-z-]+)`", PAGE))
    assert rows == {name for name in MECHANISMS if name.startswith("location-")}
    for name in re.findall(r"`?shoal\.([A-Za-z_]+)\(", PAGE):
        assert hasattr(shoal, name), name
