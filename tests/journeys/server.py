"""Run `shoal` commands for a shell, each in a forked child, so that imports are paid for once.

`python -m tests.journeys.server SOCKET` listens on a Unix socket. A client sends its arguments,
folder and the descriptors of its input and outputs; it gets the exit code back. Polars is not
imported before the fork: its threads do not survive one.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
from contextlib import suppress

# the `shoal` that the shell finds: as small as a Python program can be
CLIENT = """\
#!{python} -IS
import json, os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
said = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(line, [len(said).to_bytes(4, "big")], [0, 1, 2])
line.sendall(said)
sys.exit((line.recv(1) or b"\\1")[0])
"""


def received(line: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < count:
        data += line.recv(count - len(data))
    return data


def answer(line: socket.socket) -> int:
    """Run one command as the client would and return its exit code.

    What it does not catch ends this child with a traceback, and the client with 1.
    """
    size, descriptors, _, _ = socket.recv_fds(line, 4, 3)
    arguments, folder, environment = json.loads(received(line, int.from_bytes(size, "big")))
    for own, theirs in enumerate(descriptors):
        os.dup2(theirs, own)
        os.close(theirs)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["shoal", *arguments]
    for number, mode in enumerate("rww"):
        name = ("stdin", "stdout", "stderr")[number]
        setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
    from shoal.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
    return 0


def note_time(path: str) -> None:
    """Append the processor time of this command, with its children, to a file of lines."""
    seconds = sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{seconds:.2f} shoal {' '.join(sys.argv[1:])}\n")


def serve(address: str) -> None:
    """Answer each client in a child of its own until the server is ended."""
    import numba
    import numpy
    import pydantic
    import rich.console
    import scipy.optimize
    import scipy.sparse
    import sqlalchemy

    import shoal.cli.app
    import shoal.core.family
    import shoal.mechanisms.choice
    import shoal.spec.request

    assert all((numba, numpy, pydantic, rich, scipy, sqlalchemy))
    for family in shoal.core.family.families():
        __import__(family.package)
    assert "polars" not in sys.modules
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(16)
    print("ready", flush=True)
    while True:
        line, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = answer(line)
            note_time(f"{address}.times")
            line.sendall(bytes([code & 0xFF]))
            os._exit(0)
        line.close()


if __name__ == "__main__":
    serve(sys.argv[1])
