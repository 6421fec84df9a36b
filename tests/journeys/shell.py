"""A folder and a shell in it: commands are typed as printed, and must succeed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.journeys.pages import ROOT, next_steps
from tests.journeys.server import CLIENT

LIMIT_SECONDS = 300  # of one command: generous, for machines with other work


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    command: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """Both outputs."""
        return self.out + self.err


@dataclass
class Shell:
    """Bash in a folder; `shoal` is answered by the server, so that each command starts quickly."""

    folder: Path
    path: Path
    home: Path = field(init=False)
    done: list[Done] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = self.folder

    def try_command(self, command: str, feed: str = "") -> Done:
        """Run one line; `cd` counts for the lines after it."""
        where = self.home / ".where"
        environment = os.environ | {
            "PATH": f"{self.path}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": "120",
            "SHOAL_WHERE": str(where),
        }
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", f"trap 'pwd > \"$SHOAL_WHERE\"' EXIT\n{command}"],
            cwd=self.folder,
            env=environment,
            input=feed,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
        self.folder = Path(where.read_text().strip())
        where.unlink()
        made = Done(command, ended.returncode, ended.stdout, ended.stderr)
        self.done.append(made)
        return made

    def run(self, command: str, feed: str = "", *, violated: bool = False) -> Done:
        """Run one line that must succeed, or find a claim violated, without a traceback."""
        made = self.try_command(command, feed)
        assert made.code == int(violated), f"{command}\nexit {made.code}\n{made.text}"
        assert violated == ("VIOLATED" in made.out), made.text
        assert "Traceback" not in made.text, made.text
        return made

    def follow(self, made: Done) -> list[str]:
        """Run each next step that a command printed; return them."""
        steps = list(dict.fromkeys(next_steps(made.text)))
        for step in steps:
            self.run(step)
        return steps

    def refused(self, command: str, *words: str) -> Done:
        """Run one line that must be refused in one sentence that contains each of the words."""
        made = self.try_command(command)
        assert made.code in (2, 3), f"{command}\nexit {made.code}\n{made.text}"
        errors = [line for line in made.err.splitlines() if line.startswith("Error: ")]
        assert len(errors) == 1, made.text
        for word in words:
            assert re.search(word, errors[0]), f"{word!r} is not in: {errors[0]}"
        return made


@dataclass(frozen=True, slots=True)
class Server:
    """The process that answers `shoal`, and the folder with the client of that name."""

    process: subprocess.Popen[str]
    path: Path

    @classmethod
    def start(cls, folder: Path) -> Server:
        """Start a server whose socket and client lie in the folder."""
        address = folder / "socket"
        source = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.journeys.server", str(address)],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"},
            cwd=ROOT,
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        client = bin_folder / "shoal"
        client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
        client.chmod(0o755)
        return cls(process, bin_folder)

    def times(self) -> str:
        """Processor seconds of all commands together, and of the five that took most."""
        lines = (self.path.parent / "socket.times").read_text(encoding="utf-8").splitlines()
        seconds = [float(line.split()[0]) for line in lines]
        most = sorted(lines, key=lambda line: -float(line.split()[0]))[:5]
        return "\n".join(
            [f"\n{sum(seconds):.1f} s of processor time in {len(lines)} commands", *most]
        )

    def stop(self) -> None:
        """End the server."""
        self.process.terminate()
        self.process.wait(10)
