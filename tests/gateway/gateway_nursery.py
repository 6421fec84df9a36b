"""Workers that can be killed: one process that has imported everything forks them in milliseconds.

Run as a program: each line of input is settings as JSON; it answers with the pid of a new worker.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
SAID = Path(tempfile.gettempdir()) / f"shoal-nursery-{os.getpid()}.log"  # what workers said last


class Nursery:
    """Forks workers on ports of its own; kills them without warning."""

    def __init__(self) -> None:
        self._process = _forking()
        self.pids: dict[int, int] = {}

    def start(self, port: int, settings: dict[str, Any]) -> None:
        """A worker on a port; it may take a moment until it answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**settings, "port": port}) + "\n")
        self._process.stdin.flush()
        self.pids[port] = int(self._process.stdout.readline())

    def wait(self, port: int) -> None:
        """Until the worker answers."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/health/live", timeout=5)
            except httpx.HTTPError:
                assert time.monotonic() < end, "a worker did not start within a minute"
                time.sleep(0.02)
            else:
                return

    def kill(self, port: int) -> None:
        """kill -9; fails when the worker had ended by itself, which none may."""
        try:
            os.kill(self.pids.pop(port), signal.SIGKILL)
        except ProcessLookupError:
            said = SAID.read_text(errors="replace")[-4000:]
            raise AssertionError(f"a worker ended by itself:\n{said}") from None

    def stop(self) -> None:
        """Kill all that are left; the process that forks serves the next one."""
        for port in list(self.pids):
            self.kill(port)


@cache
def _forking() -> subprocess.Popen[str]:
    """The process that forks workers, started once in a run and killed at its end."""
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    found = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=SAID.open("w"),
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    atexit.register(SAID.unlink, missing_ok=True)
    atexit.register(found.kill)
    return found


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _serve(settings: dict[str, Any]) -> None:
    import uvicorn

    from shoal.gateway import streams
    from shoal.gateway.app import create
    from shoal.gateway.settings import load_settings

    given = settings.pop("clock", None)
    if given is not None:  # a file that says what time it is
        streams.CLOCK = lambda: float(Path(given).read_text())
    found = load_settings(**settings)
    uvicorn.run(create(found), host="127.0.0.1", port=found.port, log_level="error")


NEEDED = (
    "alembic.command",
    "psycopg",
    "uvicorn",
    "shoal.contexts.stream",
    "shoal.gateway.app",
    "shoal.ledger.engines",
    "shoal.places.stream",
)


def _main() -> None:
    for name in NEEDED:
        import_module(name)
    from tests.gateway.gateway_house import plan, step_once

    for name in ("day", "walk"):
        step_once(plan(name))  # what compiles is compiled before anybody is forked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            sys.stdin = open(os.devnull)  # noqa: SIM115
            _serve(json.loads(line))
            os._exit(0)
        print(pid, flush=True)


if __name__ == "__main__":
    _main()
