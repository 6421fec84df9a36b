"""Whoever waits for compiled loops is told so, once, and only at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

from shoal.cli.show import NOTE

PROGRAM = """
import sys
sys.path.insert(0, {folder!r})
from shoal.cli.show import tell_when_compiling
tell_when_compiling()
import loops
print(loops.twice(2), loops.thrice(2))
"""
LOOPS = """
from numba import njit

@njit(cache=True)
def twice(x):
    return 2 * x

@njit(cache=True)
def thrice(x):
    return 3 * x
"""


def told(folder: Path, *, terminal: bool) -> str:
    """What a run of the loops in `folder` writes to standard error."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(folder=str(folder))],
            stdout=subprocess.PIPE,
            stderr=theirs if terminal else subprocess.PIPE,
            env=os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache")},
            check=True,
        )
        os.set_blocking(ours, False)
        try:
            shown = os.read(ours, 10_000) if terminal else done.stderr
        except BlockingIOError:
            shown = b""
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.stdout.split() == [b"4", b"6"]
    return shown.decode()


def test_a_terminal_is_told_once_and_never_again_when_loops_are_kept(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOPS)
    assert told(tmp_path, terminal=True).split("\r\n") == [NOTE, ""]
    assert told(tmp_path, terminal=True) == ""


def test_a_pipe_is_told_nothing(tmp_path: Path) -> None:
    (tmp_path / "loops.py").write_text(LOOPS)
    assert told(tmp_path, terminal=False) == ""
