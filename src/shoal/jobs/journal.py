"""What a job has done, one durable line per event; a line is written before its effect is shown.

Every attempt at a shard makes its files in a hidden folder of its own. The line that says so is
the moment the shard counts as done; only then do the files of one attempt move to their places,
and a restart moves those that were left behind. Before the line nothing is visible and the shard
is done again from its rows; a torn last line was never written.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Any

from shoal.core.errors import DataError

STAGED = "staged"


class Journal:
    """The events of one job, and the files that wait for theirs."""

    def __init__(self, notes: Path) -> None:
        self._path = notes / "journal.jsonl"
        self._staged = notes / STAGED
        self._out = notes.parent
        self._lock = Lock()

    def events(self) -> list[dict[str, Any]]:
        """All events that were written whole."""
        if not self._path.exists():
            return []
        *lines, _ = self._path.read_bytes().split(b"\n")  # what follows the last newline is torn
        return [json.loads(line) for line in lines if line]

    def write(self, event: str, *, durable: bool = True, **said: Any) -> None:
        """Add an event; it is on the disk when this returns, unless it need not be `durable`."""
        text = json.dumps({"event": event, **said}, ensure_ascii=False) + "\n"
        with self._lock, self._path.open("ab") as stream:
            self._repair(stream)
            stream.write(text.encode())
            stream.flush()
            if durable:
                os.fsync(stream.fileno())

    def attempt(self, shard: int) -> Path:
        """A new folder for one attempt at a shard; its files are laid out as in the output."""
        folder = self._staged / f"{shard:05d}.{secrets.token_hex(6)}"
        folder.mkdir(parents=True)
        return folder

    def commit(self, shard: int, attempt: str | None, **said: Any) -> None:
        """The shard is done by the attempt of this name (None: it has no files).

        Says so durably, then shows its files; other attempts at the shard are never shown.
        """
        chosen = self._staged / f"{shard:05d}"
        if attempt is not None:
            os.replace(self._staged / attempt, chosen)
        self.write("shard", shard=shard, **said)
        self._show(chosen)

    def close(self) -> None:
        """Write that the job is finished, and forget attempts that were not chosen.

        A crash that loses the line costs another look at shards that are all done.
        """
        self.write("finished", durable=False)
        shutil.rmtree(self._staged, ignore_errors=True)

    def recover(self) -> dict[int, dict[str, Any]]:
        """The shards that are done, after moving the files a crash left behind."""
        done = {event["shard"]: event for event in self.events() if event["event"] == "shard"}
        for folder in sorted(self._staged.glob("*")) if self._staged.exists() else []:
            if folder.name in {f"{shard:05d}" for shard in done}:
                self._show(folder)
            else:
                shutil.rmtree(folder)
        return done

    def _show(self, folder: Path) -> None:
        if not folder.exists():
            return
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = self._out / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
        shutil.rmtree(folder)

    def _repair(self, stream: Any) -> None:
        """Cut off the torn line a crash left, so that the next one stands by itself."""
        whole = self._path.read_bytes()
        if whole and not whole.endswith(b"\n"):
            stream.truncate(whole.rfind(b"\n") + 1)


@contextlib.contextmanager
def alone(notes: Path) -> Iterator[None]:
    """Holds the job: a second process that tries the same is refused."""
    import fcntl

    with (notes / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"another process works on the job in {str(notes.parent)!r}; let it finish"
            ) from None
        yield
