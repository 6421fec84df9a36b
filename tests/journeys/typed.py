"""Commands typed as they are printed, and the next steps that their output names."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from typer.testing import CliRunner

from shoal.cli import app

NEXT = re.compile(r"^  (shoal .+)$", re.MULTILINE)


@dataclass
class Typed:
    """A folder, and every command that was typed in it."""

    folder: Path
    lines: list[str] = field(default_factory=list)

    def run(self, line: str) -> str:
        """What a command that must succeed prints, on both streams."""
        code, said = self._typed(line)
        assert code == 0, f"{line}\n{said}"
        return said

    def refused(self, line: str) -> str:
        """The one sentence that refuses a command."""
        code, said = self._typed(line)
        assert code == 2, f"{line}\n{said}"
        return said

    def follow(self, line: str) -> list[str]:
        """Run a command and every next step it prints, once each; all of them in order."""
        waiting, done = [line], list[str]()
        while waiting:
            command = waiting.pop(0)
            if command in done:
                continue
            said = self.run(command)
            done.append(command)
            waiting += NEXT.findall(said)
        return done

    def _typed(self, line: str) -> tuple[int, str]:
        program, *words = shlex.split(line)
        assert program == "shoal"
        self.lines.append(line)
        result = CliRunner().invoke(app, words)
        return result.exit_code, result.output
