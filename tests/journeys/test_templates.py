"""Every template runs as it is: its header's commands, and what `shoal init` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.init import TEMPLATE_KINDS
from tests.journeys.pages import header
from tests.journeys.shell import Shell

CONTEXTS = "".join(json.dumps({"context": name}) + "\n" for name in ["home"] * 4 + ["work"] * 12)


@pytest.mark.parametrize("kind", TEMPLATE_KINDS)
def test_a_template_runs_as_it_says(shell: Shell, kind: str) -> None:
    (shell.folder / "contexts.jsonl").write_text(CONTEXTS)
    made = shell.run(f"shoal init --kind {kind} {kind}.toml")
    steps = shell.follow(made)
    printed = header(Path(shell.folder, f"{kind}.toml").read_text())
    assert {f"shoal plan {kind}.toml"} <= set(steps) & set(printed)
    for command in printed:
        if command not in steps:
            shell.run(command)
