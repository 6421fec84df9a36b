"""A stream for each value of a key of lines, all in one program (`shoal stream --by KEY`).

Lines that are there together are one batch: one transaction charges them, draws, and stores where
each stream stands. Their answers are printed after it is committed, in the order of the lines. So
after a stop every stream goes on where its last printed answer left it, or one batch later.
"""

from __future__ import annotations

import json
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shoal.core.errors import BudgetError, InputError, LedgerError, StoredError

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from shoal.core.charge import Rng
    from shoal.core.plan import Plan
    from shoal.ledger.store import SqlLedger

MAX_BATCH_LINES = 256  # a batch of two thousand is hardly quicker, and its first line waits
MAX_WAITING_LINES = 4096
LONGEST_KEY = 200  # characters
REFUSED = "the ledger refuses the charge, so nothing is released for this line"
STREAM_TABLES = (
    "CREATE TABLE IF NOT EXISTS stream_states (name TEXT PRIMARY KEY, stream {bytes} NOT NULL, "
    "answer TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS stream_facts (fact TEXT PRIMARY KEY, value TEXT NOT NULL)",
)


class LineReader(Protocol):
    """How a stream of one family reads lines: its beginning, a step, and a warning about one."""

    def begin(self) -> Any: ...
    def step(
        self, runner: Any, reading: dict[str, Any], rng: Rng
    ) -> tuple[Any, dict[str, Any]]: ...
    def doubt(self, runner: Any, reading: dict[str, Any]) -> str: ...


class KeyedState(NamedTuple):
    """Where the stream of one key stands, and its last answer; None before the first."""

    runner: Any
    last: dict[str, Any] | None


class UnstoredStreams:
    """Streams that end with the program: nothing is charged or stored."""

    def __init__(self) -> None:
        self._kept: dict[str, KeyedState] = {}

    def commit(self, keys: Sequence[str], work: BatchWork) -> list[dict[str, Any]]:
        """Return the answers of a batch that is worked on from where its streams stand."""
        known = {key: self._kept[key] for key in keys if key in self._kept}
        answers, after = work(known, None, nullcontext)
        self._kept |= after
        return answers


class StoredStreams:
    """Streams in the database of a ledger, moved on in the transaction of their charges."""

    def __init__(self, ledger: SqlLedger, plan: Plan, begun: Any, *, charged: bool) -> None:
        """Make the tables where they are missing; refuse streams of another plan.

        `begun` is a stream of the plan before its first step.
        """
        self._ledger, self._plan, self._charged = ledger, plan, charged
        self._kind = type(begun)
        self._database = ledger.database
        self._postgres = self._database.engine.dialect.name == "postgresql"
        kind = "BYTEA" if self._postgres else "BLOB"
        begun_with = self._database.migrate(lambda c: self._prepare(c, kind))
        if begun_with != plan.fingerprint:
            raise InputError(
                f"the streams in {self._database.name} belong to another plan; give that plan, or "
                "another file"
            )

    def commit(self, keys: Sequence[str], work: BatchWork) -> list[dict[str, Any]]:
        """Return the answers of a batch, committed with charges, states and the batch's token."""
        token = secrets.token_hex(8)

        def inside(connection: Connection) -> list[dict[str, Any]]:
            known = self._load(connection, keys)
            ledger = self._ledger.within(connection) if self._charged else None
            answers, after = work(known, ledger, connection.begin_nested)
            self._save(connection, after, token)
            return answers

        return self._database.write(inside, lambda c: _fact(c, "batch") == token)

    def _prepare(self, connection: Connection, kind: str) -> str:
        """Make the tables, and return the plan that their streams were begun with."""
        for statement in STREAM_TABLES:
            connection.exec_driver_sql(statement.format(bytes=kind))
        if _fact(connection, "plan") is None:
            _write_fact(connection, "plan", self._plan.fingerprint)
        return _fact(connection, "plan") or ""

    def _load(self, connection: Connection, keys: Sequence[str]) -> dict[str, KeyedState]:
        """Return where the streams of these keys stand, locked until the transaction ends."""
        from sqlalchemy import bindparam, text

        lock = " ORDER BY name FOR UPDATE" if self._postgres else ""
        if self._postgres:  # a key that is new has no row to lock
            connection.exec_driver_sql("LOCK TABLE stream_facts IN EXCLUSIVE MODE")
        wanted = text(f"SELECT name, stream, answer FROM stream_states WHERE name IN :keys{lock}")
        rows = connection.execute(
            wanted.bindparams(bindparam("keys", expanding=True)), {"keys": list(keys)}
        )
        return {
            row.name: KeyedState(
                self._kind.from_bytes(self._plan, bytes(row.stream)), _answer(row.answer)
            )
            for row in rows
        }

    def _save(self, connection: Connection, after: dict[str, KeyedState], token: str) -> None:
        from sqlalchemy import text

        rows = [
            {"name": key, "stream": each.runner.to_bytes(), "answer": json.dumps(each.last)}
            for key, each in after.items()
        ]
        if rows:
            connection.execute(
                text(
                    "INSERT INTO stream_states (name, stream, answer) VALUES (:name, :stream, "
                    ":answer) ON CONFLICT (name) DO UPDATE SET stream = excluded.stream, "
                    "answer = excluded.answer"
                ),
                rows,
            )
        _write_fact(connection, "batch", token)


# what is done with a batch: from where streams stand, a ledger and savepoints, the answers and
# where the streams that moved stand then
BatchWork = Callable[
    [dict[str, KeyedState], Any, Callable[[], Any]],
    tuple[list[dict[str, Any]], dict[str, KeyedState]],
]


@dataclass(slots=True)
class KeyedLines:
    """Lines of many keys, each of which has its value of the key `by`.

    `parse` reads a line; `reader` returns how the lines of a subject are read, with the ledger that
    is charged; `report` and `warn` are given the lines that cannot be used, and those that are odd.
    """

    by: str
    parse: Callable[[str], dict[str, Any]]
    reader: Callable[[str, Any], LineReader]
    rng: Rng
    report: Callable[[int, InputError], dict[str, Any]]
    warn: Callable[[int, str], None]
    _doubtful: bool = True

    def answers(
        self, texts: Iterable[str], kept: UnstoredStreams | StoredStreams
    ) -> Iterator[dict[str, Any]]:
        """Yield the answer of each line, after its batch is committed."""
        for batch in batches(texts):
            named = [(number, self._keyed(text)) for number, text in batch if text.strip()]
            keys = list(dict.fromkeys(key for _, (key, _, _) in named if key))
            found: list[Any] = []

            def work(
                known: dict[str, KeyedState],
                ledger: Any,
                savepoint: Callable[[], Any],
                named: list[Any] = named,
            ) -> Any:
                """Return answers, and the streams that moved; it may run again from the start."""
                after: dict[str, KeyedState] = {}
                told = [self._line(each, known | after, after, ledger, savepoint) for each in named]
                return told, after

            found = kept.commit(keys, work)
            for (number, _), answer in zip(named, found, strict=True):
                yield self._shown(number, answer)

    def _keyed(self, text: str) -> tuple[str, dict[str, Any], InputError | None]:
        """Return the key of a line and its reading; "" and why where it has none."""
        try:
            reading = dict(self.parse(text))
        except InputError as error:
            return "", {}, error
        key = reading.pop(self.by, None)
        if not isinstance(key, str | int) or isinstance(key, bool) or not _usable(str(key)):
            return (
                "",
                {},
                InputError(f"{self.by} is {str(key)[:40]!r}; give a text or a whole number"),
            )
        return str(key), reading, None

    def _line(
        self,
        named: tuple[int, tuple[str, dict[str, Any], InputError | None]],
        known: dict[str, KeyedState],
        after: dict[str, KeyedState],
        ledger: Any,
        savepoint: Callable[[], Any],
    ) -> dict[str, Any] | Exception:
        """Return the answer of a line or why it has none, and put its stream into `after`."""
        number, (key, reading, error) = named
        if error is not None:
            return error
        lines = self.reader(key, ledger)
        standing = known.get(key) or KeyedState(self.begun(), None)
        last = standing.last
        if last is not None and "id" in reading and reading["id"] == last.get("id"):
            return last  # a repeated request: nothing is drawn
        try:
            with savepoint():
                runner, out = lines.step(standing.runner, reading, self.rng)
        except LedgerError:
            raise
        except (InputError, BudgetError) as refused:
            return refused
        if self._doubtful and (doubt := lines.doubt(standing.runner, reading)):
            self.warn(number, doubt)
            self._doubtful = False
        answer = {self.by: key, **out}
        answer = {"id": reading["id"], **answer} if "id" in reading else answer
        after[key] = KeyedState(runner, answer)
        return answer

    def begun(self) -> Any:
        """Return a stream before its first step."""
        return self.reader("", None).begin()

    def _shown(self, number: int, answer: dict[str, Any] | Exception) -> dict[str, Any]:
        """Return the line to print; one that was refused says no more than that."""
        if isinstance(answer, InputError):
            return self.report(number, answer)
        if isinstance(answer, BudgetError):
            return {"line": number, "error": REFUSED}
        assert isinstance(answer, dict)
        return answer


def batches(texts: Iterable[str]) -> Iterator[list[tuple[int, str]]]:
    """Yield numbered lines, all that are there at once; the first of them is waited for."""
    waiting: queue.Queue[tuple[int, str] | Exception | None] = queue.Queue(MAX_WAITING_LINES)

    def read() -> None:
        try:
            for each in enumerate(texts, 1):
                waiting.put(each)
            waiting.put(None)
        except Exception as error:  # noqa: BLE001 - raised where lines are used
            waiting.put(error)

    threading.Thread(target=read, name="lines", daemon=True).start()
    while True:
        found: list[tuple[int, str]] = []
        end: tuple[int, str] | Exception | None = waiting.get()
        while isinstance(end, tuple):
            found.append(end)
            if len(found) == MAX_BATCH_LINES or waiting.empty():
                break
            end = waiting.get()
        if found:
            yield found
        if isinstance(end, Exception):
            raise end
        if end is None:
            return


def _usable(key: str) -> bool:
    """Return whether a key can name a stream and a subject of a ledger."""
    from shoal.ledger.entries import can_hold

    return 0 < len(key) <= LONGEST_KEY and can_hold(key)


def _fact(connection: Connection, name: str) -> str | None:
    from sqlalchemy import text

    asked = text("SELECT value FROM stream_facts WHERE fact = :fact")
    found = connection.execute(asked, {"fact": name}).scalar()
    return None if found is None else str(found)


def _write_fact(connection: Connection, name: str, value: str) -> None:
    from sqlalchemy import text

    connection.execute(
        text(
            "INSERT INTO stream_facts (fact, value) VALUES (:fact, :value) "
            "ON CONFLICT (fact) DO UPDATE SET value = excluded.value"
        ),
        {"fact": name, "value": value},
    )


def _answer(stored: str) -> dict[str, Any] | None:
    """Return a stored answer; refuse one that was changed."""
    found = json.loads(stored)
    if not isinstance(found, dict | None):
        raise StoredError("a stored answer of a stream was changed; restore the file from a copy")
    return found
