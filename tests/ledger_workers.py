"""Processes that release until they are killed, or until they are done.

A nursery is one Python process that has imported everything; it forks a fresh worker in a few
milliseconds, so that a thousand kills need no thousand starts of the interpreter. Run as a
program it reads one JSON job per line: {"work", "copies", ...arguments}, forks that many workers,
and answers one line per event: "pid N", "ready", and "over STATUS" once all are gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from shoal.core.charge import Charge
from shoal.core.errors import LedgerError, OverBudget
from shoal.core.plan import Release
from shoal.ledger import open_ledger
from tests.ledger_plans import DATA, conversions, laplace

ROOT = Path(__file__).parent.parent
PLAN = laplace("0.1")
SUBJECT = "user-17"
WARM = 2


class Nursery:
    """The other end: start workers, kill them, hear that they are gone."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def start(self, work: str, copies: int = 1, **arguments: Any) -> list[int]:
        """Fork workers; their process ids."""
        assert self._process.stdin is not None
        job = {"work": work, "copies": copies, **arguments}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return [int(self._line("pid")) for _ in range(copies)]

    def ready(self) -> None:
        """Wait until a worker is in full swing."""
        self._line("ready")

    def over(self) -> list[int]:
        """Wait until all workers of the last job are gone; how each ended."""
        return [int(status) for status in self._line("over").split(",")]

    def _line(self, event: str) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        word, _, rest = line.strip().partition(" ")
        assert word == event, f"expected {event!r}, heard {line!r}"
        return rest


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A nursery for the length of a test."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with subprocess.Popen(
        [sys.executable, "-m", "tests.ledger_workers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    ) as process:
        try:
            yield Nursery(process)
        finally:
            process.kill()


def release_until_killed(url: str, emitted: str, run: str) -> None:
    """Release again and again, each under the next key, and write down what came out."""
    ledger = open_ledger(url, conversions=conversions())
    out = os.open(emitted, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in count():
        if number == WARM:  # the first ones take longer, and kills would hit only them
            _say("ready")
        key = f"{run}-{number}"
        os.write(out, f"asked {key}\n".encode())
        release = PLAN.release(DATA, ledger=ledger, subject=SUBJECT, key=key)
        os.write(out, f"told {key} {told(release)}\n".encode())


def release_carelessly(url: str, emitted: str, run: str) -> None:
    """The control that must fail: the value is given out before it is charged."""
    ledger = open_ledger(url, conversions=conversions())
    out = os.open(emitted, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in count():
        if number == WARM:
            _say("ready")
        key = f"{run}-{number}"
        os.write(out, f"asked {key}\n".encode())
        release = PLAN.release(DATA)
        os.write(out, f"told {key} {told(release)}\n".encode())
        ledger.settle(Charge(plan=PLAN, subject=SUBJECT, key=key), partial(_same, release))


def release_many(url: str, emitted: str, times: int) -> None:
    """Release so many times against a limit, and write down every outcome."""
    ledger = open_ledger(url, timeout=120, conversions=conversions())
    out = os.open(emitted, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in range(times):
        key = f"{os.getpid()}-{number}"
        try:
            release = PLAN.release(DATA, ledger=ledger, subject=SUBJECT, key=key)
            line = f"told {key} {told(release)}\n"
        except OverBudget:
            line = f"refused {key}\n"
        os.write(out, line.encode())


def told(release: Release) -> str:
    """The value of a release, short enough to be written at once."""
    return ",".join(map(str, release.answer.multiples))


def _same(release: Release) -> Release:
    return release


WORK: dict[str, Callable[..., None]] = {
    "until-killed": release_until_killed,
    "carelessly": release_carelessly,
    "many": release_many,
}


def _serve() -> None:
    for line in sys.stdin:
        job = json.loads(line)
        work, copies = WORK[job.pop("work")], job.pop("copies")
        pids = [_forked(work, job) for _ in range(copies)]
        for pid in pids:
            _say(f"pid {pid}")
        _say("over " + ",".join(str(os.waitpid(pid, 0)[1]) for pid in pids))


def _forked(work: Callable[..., None], arguments: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work(**arguments)
        status = 0
    except LedgerError as error:
        sys.stderr.write(f"{error}\n")
    except Exception:  # noqa: BLE001 - the exit below would hide whatever it is
        traceback.print_exc()
    finally:
        os._exit(status)


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve()
