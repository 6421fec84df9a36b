"""The head of the database: how far it has come, noted in files outside it.

A gateway that went on from an older copy would give ids that applications know other content, and
forget what was charged, taken back or deleted since. So a number in the database, which only
grows, is noted in the head file at least once a minute, with a random token for each number. A
database that is behind its head file, or has another token, is refused at the start.

Beside the head file lies a list of what was taken back: keys, grants, streams, people, pauses. An
act is on the list before it is committed, so that no copy of the database can undo it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, text, update

from shoal.core.errors import LedgerError
from shoal.gateway.problems import RETRY, Problem
from shoal.gateway.tables import HEADS, STREAMS
from shoal.gateway.telemetry import log
from shoal.ledger.schema import HOUSE

if TYPE_CHECKING:
    from shoal.gateway.store import Store

EVERYWHERE = "*"  # the space of the one row
CHECKPOINT = re.compile(r"[0-9a-f]{64}")  # all that a head file held before it was numbered


class NotedHead(NamedTuple):
    """How far a database had come.

    `database` names it, `number` grows by one with every note and `token` is random for each.
    `withdrawn` is the length of the list beside the file, in bytes. `checkpoint` is the hash of the
    ledger's last checkpoint. `at` is when it was noted (UTC seconds), by a clock that was believed.
    """

    database: str
    number: int
    token: str
    withdrawn: int = 0
    checkpoint: str = ""
    at: float = 0.0


class Withdrawals(NamedTuple):
    """What was taken back: marks of rows, and pauses as (uid of the stream, first ordinal)."""

    rows: frozenset[str]
    pauses: frozenset[tuple[str, int]]


class HeadFile:
    """The head file, and the list of what was taken back beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.list = path.with_name(path.name + ".withdrawn")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the file alone among all workers that share it; read it and the database inside."""
        with self._open_file(self.path.with_name(self.path.name + ".lock")) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield

    def read(self) -> NotedHead | None:
        """Return what is noted; None when there is no file.

        A file from before heads were numbered gives a head without a name and a number.
        """
        try:
            content = self.path.read_text().strip()
        except FileNotFoundError:
            return None
        if CHECKPOINT.fullmatch(content):
            return NotedHead("", 0, "", checkpoint=content)
        try:
            found = json.loads(content)
            return NotedHead(**found)
        except (ValueError, TypeError):
            raise LedgerError(
                f"{self.path} is no head of a gateway's database; bring back the file that the "
                "gateway wrote, or name it in SHOAL_HEAD_FILE"
            ) from None

    def write(self, head: NotedHead) -> NotedHead:
        """Note a head, whole or not at all, on the disk when this returns; return it."""
        head = head._replace(withdrawn=self._length())
        beside = self.path.with_name(self.path.name + ".new")
        with self._open_file(beside, os.O_TRUNC) as descriptor:
            os.write(descriptor, json.dumps(head._asdict()).encode() + b"\n")
            os.fsync(descriptor)
        beside.replace(self.path)
        self._sync_folder()
        return head

    def note_withdrawn(self, marks: Sequence[str]) -> None:
        """Put lines on the list of what was taken back, on the disk when this returns.

        Call it before the act is committed: one that fails is then on the list in vain, which costs
        a restore more than it must and never less.
        """
        if not marks:
            return
        try:
            self._append(marks)
        except OSError as error:
            log.error("the list beside the head cannot be written", error=type(error).__name__)
            raise Problem(
                503,
                "the list of what was taken back cannot be written, so nothing was taken back; "
                "try again",
                headers=RETRY,
            ) from error

    def _append(self, marks: Sequence[str]) -> None:
        """Append marks to the list, one per line, and flush them to disk under an exclusive lock.

        A torn last line is ended first, so that it cannot merge with a new mark.
        """
        fresh = not self.list.exists()
        with self._open_file(self.list, os.O_APPEND) as descriptor:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            lines = ("\n" if torn else "") + "".join(f"{mark}\n" for mark in marks)
            os.write(descriptor, lines.encode())
            os.fsync(descriptor)
        if fresh:
            self._sync_folder()

    def read_withdrawn(self, head: NotedHead) -> Withdrawals:
        """Return what was taken back; refuse a list that is shorter than the head says."""
        if self._length() < head.withdrawn:
            raise LedgerError(
                f"{self.list} is shorter than {self.path} says, so grants and keys that were taken "
                "back would count again; bring the whole list back, or remove both files and "
                "repeat: then every grant and key of the copy is taken back"
            )
        lines = self.list.read_text().split("\n") if self.list.exists() else []
        words = [line.split() for line in lines]
        rows = frozenset(each[1] for each in words if len(each) == 2 and each[0] == "row")
        pauses = frozenset(
            (each[1], int(each[2])) for each in words if len(each) == 3 and each[0] == "pause"
        )
        return Withdrawals(rows, pauses)

    def _length(self) -> int:
        return self.list.stat().st_size if self.list.exists() else 0

    @contextmanager
    def _open_file(self, path: Path, flags: int = 0) -> Iterator[int]:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _sync_folder(self) -> None:
        descriptor = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def row_mark(kind: str, *parts: object) -> str:
    """Return the line by which a row is known on the list: a hash of what names it.

    `parts` must name this row and no later one of the same name: with the time it was made.
    """
    return f"row {row_hash(kind, *parts)}"


def row_hash(kind: str, *parts: object) -> str:
    """Return the hash of what names a row, as hex."""
    return hashlib.sha256(json.dumps([kind, *parts]).encode()).hexdigest()


def pause_mark(uid: str, first: int) -> str:
    """Return the line of a pause of a stream from an ordinal on."""
    return f"pause {uid} {first}"


def check_head(store: Store) -> None:
    """Refuse a database that is not the newest that was noted; begin the head of a new one."""
    file = store.head
    with file.lock():
        noted, row = file.read(), store.commit_now(_row)
        if row is None and _may_begin(store, noted):
            file.write(store.commit_now(lambda c: renew_head(c, noted, None)))
            return
        head = _refuse_unless_newest(file, noted, row)
        if head.number != row.seq:  # a crash came between the database and the file
            file.write(_head(row, noted))
        store.restored = row.restored


def advance_head(store: Store, now: float | None = None) -> None:
    """Grow the database's number by one and note it; refuse a database that is behind its file.

    Safe from several workers at once. When the file cannot be written, the next call writes the
    number that the database has by then, and does not grow it further.
    """
    file = store.head
    with file.lock():
        noted = file.read()

        def work(connection: Connection) -> NotedHead:
            row = _row(connection)
            head = _refuse_unless_newest(file, noted, row)
            return _head(row if row.seq != head.number else _grow(connection, row), noted)

        head = store.commit_now(work)
        file.write(head if now is None else head._replace(at=now))


def note_checkpoint(store: Store) -> None:
    """Lay a checkpoint over all charges and note its hash in the head file."""
    with store.patience():
        found = store.ledger.checkpoint(by="gateway")
    with store.head.lock():
        noted = store.head.read()
        if noted is not None:
            store.head.write(noted._replace(checkpoint=found.hash))


def begin_head(store: Store) -> None:
    """Note a head for a database that is the newest for sure."""
    with store.head.lock():
        noted = store.head.read()
        store.head.write(store.commit_now(lambda c: renew_head(c, noted, None)))


def renew_head(
    connection: Connection, noted: NotedHead | None, restored: float | None
) -> NotedHead:
    """Return a head above both the database's and the noted one: every copy is behind it.

    `restored` is when an older copy was taken (UTC seconds); None keeps what is known of that.
    """
    row = _row(connection)
    name = noted.database if noted is not None and noted.database else secrets.token_hex(8)
    if row is None:
        values = {"space": EVERYWHERE, "database": name, "seq": 0, "token": "", "previous": ""}
        connection.execute(insert(HEADS), values | {"restored": None})
        row = _row(connection)
    above = max(row.seq, 0 if noted is None else noted.number) + 1
    more = {} if restored is None else {"restored": restored}
    return _head(_grow(connection, row, seq=above, **more), noted)


def _refuse_unless_newest(
    file: HeadFile, noted: NotedHead | None, row: Row[Any] | None
) -> NotedHead:
    """Return the noted head; refuse when the database does not agree with it.

    The database may be one number ahead: a note is committed before it is written.
    """
    if noted is None:
        raise LedgerError(
            f"the head file {file.path} is missing, so nobody can tell whether the database is the "
            f"newest; bring it back, or name it in SHOAL_HEAD_FILE. {WAYS_ON}"
        )
    if row is not None and noted.database == row.database:
        if (noted.number, noted.token) == (row.seq, row.token):
            return noted
        if (noted.number + 1, noted.token) == (row.seq, row.previous):
            return noted
    if row is not None and noted.database == row.database and noted.number < row.seq:
        raise LedgerError(
            f"the head file {file.path} is older than the database; bring the newest one back (all "
            f"workers of a database share one). {WAYS_ON}"
        )
    raise LedgerError(
        f"the database is behind the head noted in {file.path}: it is an older copy, or another "
        f"one; bring the newest back. {WAYS_ON}"
    )


WAYS_ON = (
    "When the newest database is gone, go on from this copy with `shoal serve --restored`: streams "
    "with days are held until their day is over, what was taken back since stays so, and charges "
    "and outputs since the copy are lost. When this database is the newest for sure, begin its "
    "head with `shoal serve --new-head`"
)


def _may_begin(store: Store, noted: NotedHead | None) -> bool:
    """Whether a database that never had a head may begin one: new, or as its checkpoint says."""
    if noted is None:
        return not store.commit_now(_is_used)
    if noted.database:
        return False
    known = select(HOUSE.c.seq).where(HOUSE.c.hash == noted.checkpoint)
    return store.commit_now(lambda c: c.execute(known).first()) is not None


def _is_used(connection: Connection) -> bool:
    """Return whether the database holds a stream or a charge."""
    if connection.execute(select(STREAMS.c.uid).limit(1)).first() is not None:
        return True
    return connection.execute(text("SELECT 1 FROM shoal_entries LIMIT 1")).first() is not None


def _row(connection: Connection) -> Any:
    return connection.execute(select(HEADS).with_for_update()).first()


def _grow(connection: Connection, row: Row[Any], **more: Any) -> Any:
    """Return the row with the next number, or another one, and a new token."""
    values = {"seq": row.seq + 1, "token": secrets.token_hex(8), "previous": row.token} | more
    connection.execute(update(HEADS).values(values))
    return _row(connection)


def _head(row: Any, noted: NotedHead | None) -> NotedHead:
    found = NotedHead(row.database, row.seq, row.token)
    return found if noted is None else found._replace(checkpoint=noted.checkpoint, at=noted.at)
