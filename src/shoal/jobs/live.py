"""Live streams of many people, with randomness that a replayed step draws again exactly.

A streaming engine that crashed runs its last batch again, perhaps after its outputs were seen.
Fresh noise would then be a second release. So the random words of a step are a function of a
secret key and of everything the step depends on. A replayed step draws the same words. Any other
step, even one that differs in its reading alone, draws independent words.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.core.charge import check_count
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.family import plan_act
from shoal.core.plan import Machine, Plan
from shoal.core.registry import dumps, loads
from shoal.data.write import atomic_write

KEY_BYTES = 32
BLOCK_WORDS = 4  # words of 64 bits in one SHA-256 digest


class KeyedRng:
    """Random words from HMAC-SHA-256 of (label, 0), (label, 1), … under a secret 256-bit key.

    If HMAC-SHA-256 is a pseudorandom function, the words are indistinguishable from random ones
    without the key. So a release drawn from them counts as secure.
    """

    def __init__(self, key: bytes, label: list[Any]) -> None:
        """Derive the source's own key from `key` (32 bytes) and a label that JSON can hold.

        Refuses a key of another length.
        """
        if len(key) != KEY_BYTES:
            raise InputError(f"key has {len(key)} bytes; it must have {KEY_BYTES}")
        text = json.dumps(label, separators=(",", ":")).encode()
        self._key = hmac.digest(key, text, "sha256")
        self._block = 0
        self._left = np.empty(0, dtype=np.uint64)

    @property
    def secure(self) -> bool:
        """True: the key is the operating system's randomness and stays secret."""
        return True

    def words(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words of 64 bits for this label."""
        check_count(count)
        parts = [self._left]
        held = len(self._left)
        while held < count:
            block = hashlib.sha256(self._key + self._block.to_bytes(8, "big")).digest()
            parts.append(np.frombuffer(block, dtype=">u8").astype(np.uint64))
            self._block += 1
            held += BLOCK_WORDS
        joined = np.concatenate(parts)
        self._left = joined[count:]
        return joined[:count]


def stream_key(path: Path) -> bytes:
    """Return the key in a file, which is created when absent.

    The key is as private as the data and must survive restarts. If it is lost, steps that are
    replayed afterwards draw new noise. Two programs that begin at once get the same key.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        atomic_write(made, new_key(), private=True)
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return key_of(path.read_text(encoding="ascii"), str(path))


def new_key() -> str:
    """Return a new random key in its stored form."""
    return secrets.token_hex(KEY_BYTES) + "\n"


def key_of(text: str, where: str) -> bytes:
    """Parse a stored key; `where` is used in the refusal only."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(f"{where!r} does not hold a stream's key; was it changed?")
    return key


# Live streams of many people, one person's rows per call: pure functions of a stored state.
#
# `advance` takes the state a state store kept and the rows that arrived, and gives the next state
# and the answers to release. It depends on nothing else but the secret key, so a batch that is run
# again after a crash gives the same answers.


UNUSABLE = "the row is no reading of this stream"
NO_SUBJECT, NO_ORDER, NO_DAY = (
    "a row without a subject",
    "a row without a time",
    "a row without a day",
)


class LiveReading(NamedTuple):
    """One input row: its day ("" for locations), its position in time, and the observed state.

    A row whose `day` or `at` is None is bad.
    """

    day: str | None
    at: int | None
    state: str | None


class LiveRow(NamedTuple):
    """One output row. `late`: a later row was answered before it, so nothing is released.

    `error` says why a bad row was not used, without its values. `cells` are the family's own
    columns by name, empty where nothing is released.
    """

    day: str | None
    at: int | None
    late: bool = False
    error: str | None = None
    cells: Mapping[str, Any] = MappingProxyType({})


class LiveKind(Protocol):
    """How a family processes the rows of one person; `days`: rows belong to days."""

    days: bool

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """Return the state after valid rows, and one answer for each, in order of time."""
        ...

    def columns(self, plan: Plan) -> dict[str, str]:
        """Return the Spark type of each output column by name."""
        ...

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        """Return the state at each pair of coordinates; None where there is none."""
        ...

    def check_map(self, plan: Plan) -> None:
        """Refuse coordinates for a model without a map."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A plan as it is sent to a worker: a stored document, the secret key, and the ledger.

    Days are charged when they begin, location steps one by one. Each charge has its own key, so
    a replayed step costs nothing and returns the stored output. A step that the ledger refuses
    releases nothing, and the stream goes on.
    """

    document: str
    key: bytes
    job: str = ""
    ledger: str | None = None
    requester: str = ""

    @classmethod
    def of(cls, plan: Plan, key: bytes, **rest: Any) -> Live:
        if not isinstance(plan.body, Machine):
            raise InputError(f"{plan.mechanism} makes single releases; run it as a job")
        return cls(document=dumps(plan, indent=None), key=key, **rest)

    @property
    def plan(self) -> Plan:
        return _plan(self.document)

    @property
    def kind(self) -> LiveKind:
        found: LiveKind | None = plan_act("live", self.plan)
        if found is None:
            raise InputError(f"{self.plan.mechanism} has no live stream of many people")
        return found

    @property
    def name(self) -> str:
        """The name of this query in the ledger, derived from the key: it survives restarts."""
        return hmac.digest(self.key, b"name", "sha256").hex()[:32]

    def opened_ledger(self) -> Any:
        """The ledger, opened once per worker."""
        return _ledger(self.ledger)

    def advance(
        self, subject: str, stored: str | None, rows: Iterable[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """Return the state after the rows, and one answer for each row, bad rows first.

        The state is empty until a row could be used.
        """
        kind = self.kind
        good, rows_out = [], []
        for row in rows:
            error = _wrong_with(subject, row, days=kind.days)
            if error:
                rows_out.append(LiveRow(row.day, row.at, error=error))
            else:
                good.append(row)
        if not good:
            return stored or "", rows_out
        after, answered = kind.advance(self, subject, stored or None, good)
        return after, rows_out + answered


def _wrong_with(subject: str, row: LiveReading, *, days: bool) -> str:
    """Return why a row cannot be used, without its values; empty when it can."""
    if not subject:
        return NO_SUBJECT
    if row.at is None:
        return NO_ORDER
    return NO_DAY if days and not row.day else ""


@lru_cache(maxsize=8)
def _plan(document: str) -> Plan:
    """Return the plan of a document, built once per worker."""
    found: Plan = loads(document)
    return found


@lru_cache(maxsize=2)
def _ledger(where: str | None) -> Any:
    """The ledger, opened once per worker."""
    from shoal.ledger.store import open_ledger

    assert where is not None
    return open_ledger(where)
