"""Run the acts of the rooms in their own processes, with progress and cancellation.

A calibration may take much time or memory. The server must stay responsive, and "cancel" must end
the work.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shoal.core.errors import InputError, ShoalError

Say = Callable[[str, float], None]  # the activity, and the finished share of it from 0 to 1
Act = Callable[[Mapping[str, Any], Say], dict[str, Any]]

# room and act to the function that does it
ACTS: dict[tuple[str, str], str] = {
    ("data", "look"): "shoal.studio.tables:look",
    ("leak", "open"): "shoal.studio.rooms.leak:open_series",
    ("leak", "curve"): "shoal.studio.rooms.leak:curve",
    ("leak", "simulate"): "shoal.studio.rooms.leak:simulate",
    ("leak", "release"): "shoal.studio.rooms.leak:release",
    ("places", "plan"): "shoal.studio.rooms.places:plan",
    ("places", "play"): "shoal.studio.rooms.places:play",
    ("day", "plan"): "shoal.studio.rooms.day:plan",
    ("day", "play"): "shoal.studio.rooms.day:play",
    ("ties", "plan"): "shoal.studio.rooms.ties:plan",
    ("budget", "open"): "shoal.studio.rooms.budget:open_ledger",
    ("audit", "read"): "shoal.studio.rooms.audit:read",
    ("audit", "run"): "shoal.studio.rooms.audit:run",
    ("live", "ask"): "shoal.studio.rooms.live:ask",
    ("take", "away"): "shoal.studio.bench:take_away",
}
# modules that every process needs: imported once, by the process that all others are forked from
# (not polars and pyarrow, which start threads that a fork would lose)
PRELOADED = [
    *sorted({place.partition(":")[0] for place in ACTS.values()}),
    *("shoal.cli", "numba", "networkx", "scipy.optimize", "scipy.sparse"),
]
MOST_TASKS = 32  # most acts remembered; the oldest finished one is dropped first
MOST_RUNNING = 4  # most acts at once: two cores, and two that wait for a disk


@dataclass
class Piece:
    """One act: the events it has sent so far, and how it ended."""

    process: BaseProcess
    said: list[dict[str, Any]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def over(self) -> bool:
        return bool(self.said) and self.said[-1]["kind"] in ("done", "failed", "cancelled")

    def tell(self, message: dict[str, Any]) -> None:
        if not self.over:
            self.said.append(message)
        self.changed.set()


class Work:
    """The acts under way in this studio."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self._pieces: dict[str, Piece] = {}

    def prepare(self) -> None:
        """Begin to import what acts need, so that the first one does not wait for it."""
        forkserver.ensure_running()

    def start(self, room: str, act: str, params: Mapping[str, Any]) -> str:
        """Begin an act in a new process and return its name."""
        if (room, act) not in ACTS:
            raise InputError(f"there is no {act!r} in the room {room!r}")
        if sum(not piece.over for piece in self._pieces.values()) >= MOST_RUNNING:
            raise InputError(f"{MOST_RUNNING} things are being computed; wait or cancel one")
        self._forget()
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_run_act, args=(ACTS[room, act], dict(params), theirs), daemon=True
        )
        process.start()
        theirs.close()
        name = secrets.token_urlsafe(12)
        piece = self._pieces[name] = Piece(process)
        loop = asyncio.get_running_loop()
        loop.add_reader(ours.fileno(), self._hear, piece, ours)
        return name

    async def events(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """Yield all events of the act, from its beginning to its end."""
        piece = self._pieces.get(name)
        if piece is None:
            yield {"kind": "failed", "sentence": "this was forgotten; begin again"}
            return
        sent = 0
        while True:
            while sent < len(piece.said):
                yield piece.said[sent]
                sent += 1
            if piece.over:
                return
            piece.changed.clear()
            await piece.changed.wait()

    def cancel(self, name: str) -> None:
        """Kill the process of an act that runs, and record the cancellation."""
        piece = self._pieces.get(name)
        if piece is not None and not piece.over:
            piece.process.kill()
            piece.tell({"kind": "cancelled"})

    def close(self) -> None:
        """Stop all acts."""
        for name in self._pieces:
            self.cancel(name)

    def _hear(self, piece: Piece, pipe: Connection) -> None:
        """Record one message of the process; when the act is over, stop listening to its pipe.

        A pipe that ends without an answer is recorded as a failure.
        """
        try:
            piece.tell(pipe.recv())
        except EOFError:
            piece.tell({"kind": "failed", "sentence": "the computation ended without an answer"})
        if piece.over:
            asyncio.get_running_loop().remove_reader(pipe.fileno())
            pipe.close()

    def _forget(self) -> None:
        finished = [name for name, piece in self._pieces.items() if piece.over]
        for name in finished[: max(0, len(self._pieces) - MOST_TASKS)]:
            del self._pieces[name]


def _run_act(place: str, params: dict[str, Any], pipe: Connection) -> None:
    """Run an act in its process, and send progress and result through the pipe."""

    def say(words: str, share: float) -> None:
        pipe.send({"kind": "progress", "words": words, "share": share})

    try:
        module, _, name = place.partition(":")
        act: Act = getattr(import_module(module), name)
        pipe.send({"kind": "done", "result": act(params, say)})
    except ShoalError as error:
        pipe.send({"kind": "failed", "sentence": _named_plainly(str(error), params)})
    except MemoryError:
        pipe.send({"kind": "failed", "sentence": "this needs more memory than there is"})
    finally:
        pipe.close()


def _named_plainly(words: str, params: Mapping[str, Any]) -> str:
    """Return a refusal with the user's file names instead of the paths of stored copies."""
    for value in params.values():
        if isinstance(value, str) and value.startswith(os.sep):
            words = words.replace(str(Path(value).parent) + os.sep, "")
    return words
