"""The journal of a job: one durable line per event, written before its effect is visible.

Each attempt at a shard writes its files into its own hidden folder. The shard is done when its
line is in the journal. Only then are the files of that attempt moved into the output; a restart
moves files that a crash left behind. Without the line nothing is visible and the shard is released
again from its rows. An incomplete last line counts as not written.
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

from shoal.core.errors import DataError, StoredError

STAGED = "staged"

# The shapes of stored JSON: a type; a tuple of shapes, any of which will do; a list of one shape
# for each item, or of one for every place; {str: shape} for any keys, else the keys there must be.
Shape = Any
MAYBE = (int, type(None))  # earlier versions did not store it
EVENTS: dict[str, Shape] = {
    "scanned": {
        "rows": int,
        "unowned": int,
        "left_out": MAYBE,
        "off_map": MAYBE,
        "shard_rows": [int],
        "bad": [[str, str, MAYBE]],
        "faults": ({str: int}, type(None)),
    },
    "shard": {
        "shard": int,
        "subjects": int,
        "units": int,
        "rows_released": int,
        "releases": {str: int},
        "refused": {str: [int, int]},
    },
}


def fits(value: Any, shape: Shape) -> bool:
    """Return whether plain JSON data has a shape; the stored file may have been edited."""
    if isinstance(shape, tuple):
        return any(fits(value, one) for one in shape)
    if isinstance(shape, type):
        return type(value) is shape
    if isinstance(shape, list):
        if not isinstance(value, list) or (len(shape) > 1 and len(value) != len(shape)):
            return False
        shapes = shape * len(value) if len(shape) == 1 else shape
        return all(map(fits, value, shapes))
    if not isinstance(value, dict):
        return False
    if str in shape:
        return all(fits(one, shape[str]) for one in value.values())
    return all(fits(value.get(name), one) for name, one in shape.items())


class Journal:
    """The events of one job, and the hidden files of attempts that are not committed."""

    def __init__(self, notes: Path) -> None:
        self._path = notes / "journal.jsonl"
        self._staged = notes / STAGED
        self._out = notes.parent
        self._lock = Lock()

    def events(self) -> list[dict[str, Any]]:
        """Return all events that were written completely."""
        if not self._path.exists():
            return []
        *lines, _ = self._path.read_bytes().split(b"\n")  # the last part is an incomplete line
        return [self._parse_event(line) for line in lines if line]

    def _parse_event(self, line: bytes) -> dict[str, Any]:
        """Return the event on one line of the journal; StoredError when its shape is wrong."""
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if not fits(event, {"event": str}) or not fits(event, EVENTS.get(event["event"], {})):
            raise StoredError(
                f"the journal of the job in {str(self._out)!r} was changed or damaged; start the "
                "job again in another folder, under the same --key if it has a ledger"
            )
        found: dict[str, Any] = event
        return found

    def write(self, event: str, *, durable: bool = True, **said: Any) -> None:
        """Append an event; it is on the disk when this returns, unless `durable` is false."""
        text = json.dumps({"event": event, **said}, ensure_ascii=False) + "\n"
        with self._lock, self._path.open("ab") as stream:
            self._repair(stream)
            stream.write(text.encode())
            stream.flush()
            if durable:
                os.fsync(stream.fileno())

    def attempt(self, shard: int) -> Path:
        """Return a new folder for one attempt at a shard, with the same layout as the output."""
        folder = self._staged / f"{shard:05d}.{secrets.token_hex(6)}"
        folder.mkdir(parents=True)
        return folder

    def commit(self, shard: int, attempt: str | None, **said: Any) -> None:
        """Record that the attempt of this name did the shard (None: it has no files).

        Writes the durable event, then publishes the files. Other attempts are never published.
        """
        chosen = self._staged / f"{shard:05d}"
        if attempt is not None:
            os.replace(self._staged / attempt, chosen)
        self.write("shard", shard=shard, **said)
        self._show(chosen)

    def close(self) -> None:
        """Write that the job is finished, and delete attempts that were not committed.

        If a crash loses the line, resuming finds all shards done and writes it again.
        """
        self.write("finished", durable=False)
        shutil.rmtree(self._staged, ignore_errors=True)

    def recover(self) -> dict[int, dict[str, Any]]:
        """Return the shards that are done, after publishing files that a crash left behind."""
        done = {event["shard"]: event for event in self.events() if event["event"] == "shard"}
        for folder in sorted(self._staged.glob("*")) if self._staged.exists() else []:
            if folder.name in {f"{shard:05d}" for shard in done}:
                self._show(folder)
            else:
                shutil.rmtree(folder)
        return done

    def _show(self, folder: Path) -> None:
        """Move every file of an attempt's folder to its place in the output, and remove the folder.

        Existing files are replaced. Does nothing when the folder does not exist.
        """
        if not folder.exists():
            return
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = self._out / file.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
        shutil.rmtree(folder)

    def _repair(self, stream: Any) -> None:
        """Remove an incomplete last line, so that the next event starts a new line."""
        whole = self._path.read_bytes()
        if whole and not whole.endswith(b"\n"):
            stream.truncate(whole.rfind(b"\n") + 1)


@contextlib.contextmanager
def alone(notes: Path) -> Iterator[None]:
    """Lock the job while inside; refused when another process holds the lock."""
    import fcntl

    with (notes / "lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(
                f"another process works on the job in {str(notes.parent)!r}; let it finish"
            ) from None
        yield
