"""The how-to on fitting runs as printed, and its numbers are true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "fitting.md"


def test_every_block_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert "8 series" in shown
    assert "Order: " in shown
    assert names["probability"] == pytest.approx([1 / 6, 2 / 6])
    assert "entry-level DP with eta = 0.5" in shown
