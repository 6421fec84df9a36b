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
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import CannotCompose, InputError, OverBudget, StoredError
from shoal.core.plan import Plan
from shoal.core.registry import loads
from shoal.jobs.live import UNUSABLE, Live, LiveRow, Reading
from shoal.jobs.replayable_rng import KeyedRng
from shoal.places.jobs.traces import grid_in_km, locator_of, names_at
from shoal.places.machine import LocationState, machine_of
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


# A person's rows at a time: one step of the stream for each row that is no bad one.


class LivePlaces:
    """Live streams of places: rows are steps, in the order of their times."""

    days = False

    def advance(
        self, live: Live, subject: str, stored: str | None, rows: Sequence[Reading]
    ) -> tuple[str, list[LiveRow]]:
        plan = live.plan
        machine = machine_of(plan)
        if stored is None:
            kept = Kept(machine.init(), None)
        else:
            kept = read_state(stored, machine.runtime.motion.hidden)
        stream, last = LocationStream(plan, kept.state), kept.last
        told = []
        for row in sorted(rows, key=lambda row: row.at or 0):
            at = int(row.at or 0)
            if last is not None and at <= last:
                told.append(LiveRow(row.day, at, late=True))
                continue
            rng = KeyedRng(live.key, [plan.fingerprint, subject, *row, stream.state.fingerprint])
            account = _account(live, subject, stream.state.time)
            try:
                stream, release = (
                    stream.skip()
                    if row.state is None
                    else stream.read(row.state, rng=rng, **account)
                )
            except (OverBudget, CannotCompose):
                stream, release = stream.skip()
            except InputError:  # a state the model does not know, a name no ledger takes
                told.append(LiveRow(row.day, at, error=UNUSABLE))
                continue
            last = at
            cells = self._cells(plan, release.z, release.estimate)
            told.append(LiveRow(row.day, at, cells=cells))
        return write_state(Kept(stream.state, last)), told

    def columns(self, plan: Plan) -> dict[str, str]:
        """Points on a map in km have degrees too."""
        located = {"multiples": "array<long>", "estimate": "array<double>"}
        if grid_in_km(plan) is not None:
            located |= {"value_degrees": "array<double>", "estimate_degrees": "array<double>"}
        return located

    def states_at(self, plan: Plan, latitudes: Floats, longitudes: Floats) -> list[str | None]:
        return names_at(plan, latitudes, longitudes)

    def check_map(self, plan: Plan) -> None:
        locator_of(plan)

    def _cells(self, plan: Plan, multiples: Any, estimate: Any) -> dict[str, Any]:
        """Multiples and estimate of a step, and on a map both in degrees."""
        cells = {"multiples": multiples, "estimate": estimate}
        grid = grid_in_km(plan)
        if grid is None:
            return cells
        step = float(plan.task.query.lattice)
        point = None if multiples is None else grid.to_degrees(np.array(multiples) * step).tolist()
        return {
            **cells,
            "value_degrees": point,
            "estimate_degrees": grid.to_degrees(estimate).tolist(),
        }


def _account(live: Live, subject: str, step: int) -> dict[str, Any]:
    """The charge of one step, under a key of its own: run again, it costs nothing more."""
    if live.ledger is None:
        return {}
    key = json.dumps([live.job, subject, "", live.plan.fingerprint, step], ensure_ascii=False)
    rest = {"subject": subject, "requester": live.requester, "key": key}
    return {"ledger": live.opened_ledger(), **rest}


LIVE = LivePlaces()
