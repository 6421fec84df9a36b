"""A location stream's state as a state store keeps it: a short header, then the arrays as bytes.

All numbers are little-endian:

    name and version      4 bytes   "SLS" and 1
    flags                 1 byte    KNOWN_START, SPARSE, OWN_SUPPORT, ANSWERED
    hidden states n       4 bytes
    time                  8 bytes
    last row answered     8 bytes   0 unless ANSWERED
    loss_here, loss_path  8 bytes each
    belief                n floats of 4 bytes; SPARSE: n bits that say which are not 0, then those
    support               n bits, left out with OWN_SUPPORT: the states that the belief gives weight
    check                 8 bytes   BLAKE2b of all bytes before

State stores keep it as base64, because queries of earlier versions stored text, and Spark refuses
a checkpoint whose state has another type. Those stored JSON, which is still read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.jobs import day_of
from shoal.contexts.stream import ContextStream, charge_day, comes_after, day_order
from shoal.core.errors import CannotCompose, InputError, OverBudget, StoredError
from shoal.core.plan import Machine, Plan
from shoal.core.registry import dumps, loads
from shoal.jobs.replayable_rng import KeyedRng
from shoal.places.machine import LocationMachine, LocationState, machine_of
from shoal.places.stream import LocationStream

NAME, VERSION = b"SLS", 1
KNOWN_START, SPARSE, OWN_SUPPORT, ANSWERED = 1, 2, 4, 8
HEADER = struct.Struct("<3sBBIQqdd")
CHECK_BYTES = 8
FLOAT_BYTES = 4


class Kept(NamedTuple):
    """Where a stream stands, and the place of the last row that was answered; None: no row was."""

    state: LocationState
    last: int | None


def write_state(kept: Kept) -> str:
    """The text a state store keeps; `read_state` gives exactly the same state again."""
    return base64.b64encode(to_bytes(kept)).decode("ascii")


def read_state(text: str, hidden: int) -> Kept:
    """The state behind a text of this version or of the JSON of earlier ones.

    `hidden` is how many hidden states the plan's model has. Refused is what was damaged, what is
    of another version or of another model, and what is no state at all.
    """
    if text.startswith("{"):
        return _checked(_from_json(text), hidden)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _foreign() from None
    return _checked(from_bytes(raw), hidden)


def to_bytes(kept: Kept) -> bytes:
    """The state in the form above, sparse where that is shorter."""
    state, last = kept
    flags = KNOWN_START * state.known_start | ANSWERED * (last is not None)
    weighty = state.belief.view(np.uint32) != 0  # by bits: a negative zero is kept too
    bits, floats = np.packbits(weighty).tobytes(), state.belief.astype("<f4", copy=False)
    count = int(np.count_nonzero(weighty))
    if len(bits) + FLOAT_BYTES * count < FLOAT_BYTES * len(floats):
        flags |= SPARSE
        belief = bits + floats[weighty].tobytes()
    else:
        belief = floats.tobytes()
    support = state.support.tobytes()
    if support == bits:
        flags |= OWN_SUPPORT
        support = b""
    header = HEADER.pack(
        NAME, VERSION, flags, len(floats), state.time, last or 0, state.loss_here, state.loss_path
    )
    whole: bytes = header + belief + support
    return whole + _check(whole)


def from_bytes(raw: bytes) -> Kept:
    """What `to_bytes` was given; StoredError when the bytes are not those it made."""
    if len(raw) < HEADER.size + CHECK_BYTES or raw[: len(NAME)] != NAME:
        raise _foreign()
    if raw[len(NAME)] != VERSION:
        raise StoredError(
            f"the stored state of a stream has version {raw[len(NAME)]}; this program reads "
            f"version {VERSION}: go on with the program that stored it"
        )
    body, check = raw[:-CHECK_BYTES], raw[-CHECK_BYTES:]
    if _check(body) != check:
        raise _damaged()
    _, _, flags, hidden, time, last, loss_here, loss_path = HEADER.unpack_from(body)
    belief, support = _arrays(body[HEADER.size :], hidden, flags)
    known = bool(flags & KNOWN_START)
    state = LocationState(time, belief, support, loss_here, loss_path, known)
    return Kept(state, last if flags & ANSWERED else None)


def _arrays(
    rest: bytes, hidden: int, flags: int
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.float32]], np.ndarray[tuple[int], np.dtype[np.uint8]]
]:
    """Belief and support from the bytes after the header."""
    width = -(-hidden // 8)
    belief = np.zeros(hidden, dtype=np.float32)
    if flags & SPARSE:
        weighty = _unpacked(rest[:width], hidden)
        count = int(np.count_nonzero(weighty))
        end = width + FLOAT_BYTES * count
        _check_length(rest, end, width, flags)
        belief[weighty] = np.frombuffer(rest, "<f4", count, offset=width)
    else:
        end = FLOAT_BYTES * hidden
        _check_length(rest, end, width, flags)
        belief[:] = np.frombuffer(rest, "<f4", hidden)
        weighty = belief.view(np.uint32) != 0
    if flags & OWN_SUPPORT:
        return belief, np.packbits(weighty)
    return belief, np.frombuffer(rest, np.uint8, width, offset=end)


def _unpacked(bits: bytes, hidden: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    if len(bits) < -(-hidden // 8):
        raise _damaged()
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=hidden).astype(np.bool_)


def _check_length(rest: bytes, end: int, width: int, flags: int) -> None:
    if len(rest) != end + (0 if flags & OWN_SUPPORT else width):
        raise _damaged()


def _from_json(text: str) -> Kept:
    """The state as versions up to 0.1 stored it: a document, and the last row."""
    try:
        found = json.loads(text)
        document, last = found["state"], found["last"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _foreign() from None
    state = loads(document)
    if not isinstance(state, LocationState) or not isinstance(last, int | None):
        raise _foreign()
    return Kept(state, last)


def _checked(kept: Kept, hidden: int) -> Kept:
    if len(kept.state.belief) != hidden or len(kept.state.support) != -(-hidden // 8):
        raise StoredError(
            f"the stored state of a stream has {len(kept.state.belief)} hidden states, and the "
            f"plan's model {hidden}; give a changed model a new checkpoint"
        )
    return kept


def _check(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECK_BYTES).digest()


def _foreign() -> StoredError:
    return StoredError(
        "what the state store holds is no state of a location stream; does the checkpoint belong "
        "to another query?"
    )


def _damaged() -> StoredError:
    return StoredError(
        "the stored state of a stream is damaged; restore the checkpoint from a copy, or start a "
        "new one"
    )


# Live streams of many people, one person's rows at a time: pure steps from a stored state.
#
# `advance` takes the state a state store kept and the rows that arrived, and gives the next state
# and what may be shown. It depends on nothing else but the secret key, so a batch that is run
# again after a crash shows the same.


class Reading(NamedTuple):
    """One row: its day ("" for locations), its place in the order, and the state observed."""

    day: str
    at: int
    state: str | None


class LiveRow(NamedTuple):
    """One row out. `late`: it came after a later one was answered, so nothing is shown."""

    day: str
    at: int
    late: bool
    shown: str | None
    multiples: tuple[int, ...] | None
    estimate: tuple[float, ...] | None


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
    def labels(self) -> tuple[str, ...]:
        """The coordinates of a location plan; none for contexts."""
        located = isinstance(self.plan.body, LocationMachine)
        return self.plan.task.query.labels if located else ()

    def advance(
        self, subject: str, stored: str | None, rows: Iterable[Reading]
    ) -> tuple[str, list[LiveRow]]:
        """The state after the rows, and one answer for each of them, in their order."""
        ordered = sorted(rows, key=lambda row: (day_order(row.day), row.at))
        if isinstance(self.plan.body, LocationMachine):
            return self._locations(subject, stored, ordered)
        return self._contexts(subject, stored, ordered)

    def _contexts(
        self, subject: str, stored: str | None, rows: Sequence[Reading]
    ) -> tuple[str, list[LiveRow]]:
        plan = self.plan
        slots = day_of(plan).slots
        before = None if stored is None else json.loads(stored)
        stream = ContextStream.begin(plan)
        if before is not None:
            stream = ContextStream(plan, loads(before["state"]), before["day"], before["shown"])
        told = []
        for row in rows:
            if not row.day:
                raise InputError("a reading names no day; name the column of the day")
            today = row.day == stream.day
            passed = (
                row.at < stream.state.slot - 1 if today else not comes_after(row.day, stream.day)
            )
            if passed or not 0 <= row.at < slots:
                told.append(LiveRow(row.day, row.at, True, None, None, None))
                continue
            if not today:
                if not self._begin_day(subject, row.day):
                    told.append(LiveRow(row.day, row.at, False, None, None, None))
                    continue
                stream = ContextStream.begin(plan, row.day)
            rng = KeyedRng(
                self.key,
                [plan.fingerprint, subject, *row, stream.state.fingerprint],
            )
            stream, shown = stream.read(row.state, slot=row.at, rng=rng)
            told.append(LiveRow(row.day, row.at, False, shown, None, None))
        kept = {"state": dumps(stream.state), "day": stream.day, "shown": stream.shown}
        return json.dumps(kept), told

    def _begin_day(self, subject: str, day: str) -> bool:
        """Whether the ledger allows the day; one that it refuses shows nothing."""
        if self.ledger is None:
            return True
        try:
            charge_day(
                self.plan, _ledger(self.ledger), subject=subject, day=day, requester=self.requester
            )
        except (OverBudget, CannotCompose):
            return False
        return True

    def _locations(
        self, subject: str, stored: str | None, rows: Sequence[Reading]
    ) -> tuple[str, list[LiveRow]]:
        plan = self.plan
        machine = machine_of(plan)
        if stored is None:
            kept = Kept(machine.init(), None)
        else:
            kept = read_state(stored, machine.runtime.motion.hidden)
        stream, last = LocationStream(plan, kept.state), kept.last
        told = []
        for row in rows:
            if last is not None and row.at <= last:
                told.append(LiveRow(row.day, row.at, True, None, None, None))
                continue
            last = row.at
            rng = KeyedRng(self.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            try:
                if row.state is None:
                    stream, release = stream.skip()
                else:
                    stream, release = stream.read(
                        row.state, rng=rng, **self._account(subject, stream.state.time)
                    )
            except (OverBudget, CannotCompose):
                stream, release = stream.skip()
            told.append(LiveRow(row.day, row.at, False, None, release.z, release.estimate))
        return write_state(Kept(stream.state, last)), told

    def _account(self, subject: str, step: int) -> dict[str, Any]:
        if self.ledger is None:
            return {}
        key = json.dumps([self.job, subject, "", self.plan.fingerprint, step], ensure_ascii=False)
        return {
            "ledger": _ledger(self.ledger),
            "subject": subject,
            "requester": self.requester,
            "key": key,
        }


@lru_cache(maxsize=8)
def _plan(document: str) -> Plan:
    """The plan of a document, built once per worker."""
    found: Plan = loads(document)
    return found


@lru_cache(maxsize=2)
def _ledger(where: str) -> Any:
    """The ledger, opened once per worker."""
    from shoal.ledger.store import open_ledger

    return open_ledger(where)
