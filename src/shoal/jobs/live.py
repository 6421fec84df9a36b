"""Live streams of many people, with randomness that a replayed step draws again exactly.

A streaming engine that crashed runs its last batch again, perhaps after its outputs were seen.
Fresh noise would then tell more than once. So the words of a step are a function of a secret key
and of everything the step depends on: the same step draws the same words, and any other step,
also the same one with another reading, draws words that are independent of them.
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
BLOCK_WORDS = 4  # of 64 bits in one SHA-256


class KeyedRng:
    """HMAC-SHA-256 of (label, 0), (label, 1), … under a key of 256 bits of system randomness.

    Nobody without the key tells the words from random ones, as far as HMAC-SHA-256 is a
    pseudorandom function; so a release drawn from them counts as secure.
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
        """The next `count` words of this label's stream."""
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
    """The key in a file, made when absent; it is as private as the data, and must outlive restarts.

    Losing it is safe but for the steps that are replayed once: they would draw anew. Of two
    programs that begin at once both get the same.
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
    """A key as it is stored."""
    return secrets.token_hex(KEY_BYTES) + "\n"


def key_of(text: str, where: str) -> bytes:
    """The key behind a stored text; `where` is for the refusal only."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(f"{where!r} does not hold a stream's key; was it changed?")
    return key


# Live streams of many people, one person's rows at a time: pure steps from a stored state.
#
# `advance` takes the state a state store kept and the rows that arrived, and gives the next state
# and what may be shown. It depends on nothing else but the secret key, so a batch that is run again
# after a crash shows the same.


UNUSABLE = "the row is no reading of this stream"
NO_SUBJECT, NO_ORDER, NO_DAY = (
    "a row without a subject",
    "a row without a time",
    "a row without a day",
)


class LiveReading(NamedTuple):
    """One row: its day ("" for locations), its place in the order, and the state observed.

    `at` is None where the row has no place, and then it is bad, as is one without a day.
    """

    day: str | None
    at: int | None
    state: str | None


class LiveRow(NamedTuple):
    """One row out. `late`: it came after a later one was answered, so nothing is shown.

    `error` says why a bad row was not used, without a word of what it holds; `cells` hold the
    family's own columns by name, none where nothing is shown.
    """

    day: str | None
    at: int | None
    late: bool = False
    error: str | None = None
    cells: Mapping[str, Any] = MappingProxyType({})


class LiveKind(Protocol):
    """What a family does with the rows of one person; `days`: rows belong to days."""

    days: bool

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """The state after good rows, and an answer for each, in the order of their times."""
        ...

    def columns(self, plan: Plan) -> dict[str, str]:
        """Name to Spark's type of the columns it shows."""
        ...

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        """The state at each point; None where there is none."""
        ...

    def check_map(self, plan: Plan) -> None:
        """Refuses coordinates for a model without a map."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A plan in the form a worker gets it: a document, the key of the job, and its ledger.

    Days are charged when they begin, location steps one by one, each under a key of its own, so
    that a step run again costs nothing and returns what the ledger stored. What the ledger refuses
    shows nothing, and the stream goes on.
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
        """What a ledger may know this query by: the same after a restart, not after another key."""
        return hmac.digest(self.key, b"name", "sha256").hex()[:32]

    def opened_ledger(self) -> Any:
        """The ledger, opened once per worker."""
        return _ledger(self.ledger)

    def advance(
        self, subject: str, stored: str | None, rows: Iterable[LiveReading]
    ) -> tuple[str, list[LiveRow]]:
        """The state after the rows, and one answer for each of them, the bad ones first.

        The state is empty as long as no row could be used.
        """
        kind = self.kind
        good, told = [], []
        for row in rows:
            error = _wrong_with(subject, row, days=kind.days)
            if error:
                told.append(LiveRow(row.day, row.at, error=error))
            else:
                good.append(row)
        if not good:
            return stored or "", told
        after, answered = kind.advance(self, subject, stored or None, good)
        return after, told + answered


def _wrong_with(subject: str, row: LiveReading, *, days: bool) -> str:
    """Why a row cannot be used, in words that name none of it; empty when it can."""
    if not subject:
        return NO_SUBJECT
    if row.at is None:
        return NO_ORDER
    return NO_DAY if days and not row.day else ""


@lru_cache(maxsize=8)
def _plan(document: str) -> Plan:
    """The plan of a document, built once per worker."""
    found: Plan = loads(document)
    return found


@lru_cache(maxsize=2)
def _ledger(where: str | None) -> Any:
    """The ledger, opened once per worker."""
    from shoal.ledger.store import open_ledger

    assert where is not None
    return open_ledger(where)
