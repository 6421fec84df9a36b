"""Where a stream of places stands and what a step shows: the values, and both as bytes.

The bytes are a short header, then the arrays, without the plan. All numbers are little-endian:

    name and version      4 bytes   "SLS" and 1; 2 where what was shown is kept too; 3 with events,
                                    4 with events and their history
    flags                 1 byte    KNOWN_START, SPARSE, OWN_SUPPORT, ANSWERED
    hidden states n       4 bytes
    time                  8 bytes
    last reading taken    8 bytes   0 unless ANSWERED
    loss_here, loss_path  8 bytes each
    belief                n floats of 4 bytes; SPARSE: n bits that say which are not 0, then those
    support               n bits, left out with OWN_SUPPORT: the states that the belief gives weight
    shown                 version 2 to 4: what the last step showed, as JSON, its length in 4 bytes
    watched               version 3, 4: the known first state in 4 bytes (-1: none), 8 of the plan's
                          fingerprint, in version 4 the number of outputs in 8 and the hash of the
                          history in 32, then of each filter pairs k and states in 4 bytes each,
                          lost and rounds in 8 each, 2k numbers of 4 bytes, the masses in 8 bytes
                          each, their support in bits; and the length of all that in 4 bytes
    check                 8 bytes   BLAKE2b of all bytes before

State stores of Spark keep it as base64, because queries of earlier versions stored text, and Spark
refuses a checkpoint whose state has another type. Those stored JSON, which is still read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import struct
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core import value_by_old_name
from shoal.core.charge import Guarantee
from shoal.core.codec import Value, as_read_only
from shoal.core.errors import StoredError
from shoal.core.plan import Plan
from shoal.core.registry import loads
from shoal.events.filter import Held

if TYPE_CHECKING:
    from shoal.places.machine import LocationMachine
    from shoal.places.map import Grid

NAME, VERSION, WITH_SHOWN, WITH_EVENTS, WITH_HISTORY = b"SLS", 1, 2, 3, 4
KNOWN_START, SPARSE, OWN_SUPPORT, ANSWERED = 1, 2, 4, 8
HEADER = struct.Struct("<3sBBIQqdd")
CHECK_BYTES = 8
FLOAT_BYTES = 4
LENGTH = struct.Struct("<I")
START = struct.Struct("<i8s")
HISTORY = struct.Struct("<Q32s")
FILTER = struct.Struct("<IIdQ")
FOREIGN = (
    "what the state store holds is no state of a location stream; does the checkpoint belong to "
    "another query?"
)
DAMAGED = (
    "the stored state of a stream is damaged; restore the checkpoint from a copy, or start a "
    "new one"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationRelease(Value):
    """One step: the noisy answer, the best estimate, what is believed, and what was promised.

    `z` holds whole lattice steps of `step` (None: nothing was released), `estimate` the answer
    that minimises the expected error given everything released so far; it costs no privacy.
    `likely` are the most probable states, `spread` the root mean square distance of the belief
    from the estimate. `possible` = |C|, `degree` the degree of protection of the most probable
    state, `added` the edges the repair added. `loss_here` bounds the log-ratio that all outputs so
    far give away between two current states, `loss_path` between two whole sequences.
    """

    kind = "location-release"

    time: int
    z: tuple[int, ...] | None
    step: Fraction
    labels: tuple[str, ...]
    unit: str
    estimate: tuple[float, ...]
    likely: tuple[tuple[str, float], ...]
    spread: float
    possible: int
    degree: int
    added: tuple[tuple[str, str], ...]
    guarantee: Guarantee | None
    loss_here: float = field(metadata={"stored_as": "about_now"})
    loss_path: float = field(metadata={"stored_as": "about_all"})
    warnings: tuple[str, ...]
    secure: bool

    @property
    def point(self) -> tuple[float, ...] | None:
        """The released point as floats, in the query's unit."""
        return None if self.z is None else tuple(float(k * self.step) for k in self.z)

    def degrees(self, grid: Grid) -> tuple[list[float] | None, list[float]]:
        """Latitude and longitude of point and estimate, in km on `grid`."""
        point = None if self.point is None else grid.to_degrees(self.point).tolist()
        return point, grid.to_degrees(self.estimate).tolist()

    @property
    def about_now(self) -> float:
        """`loss_here`, under the name it had in version 0.1."""
        return value_by_old_name("LocationRelease.about_now", "loss_here", self.loss_here)

    @property
    def about_all(self) -> float:
        """`loss_path`, under the name it had in version 0.1."""
        return value_by_old_name("LocationRelease.about_all", "loss_path", self.loss_path)

    def as_dict(self) -> dict[str, Any]:
        """A line of JSON; infinity is null."""
        return {
            "time": self.time,
            "z": None if self.point is None else list(self.point),
            "estimate": list(self.estimate),
            "unit": self.unit,
            "likely": [[name, round(share, 6)] for name, share in self.likely],
            "spread": self.spread,
            "possible": self.possible,
            "degree_of_protection": self.degree,
            "repaired": [list(pair) for pair in self.added],
            "epsilon": None if self.guarantee is None else float(self.guarantee.amount),
            "loss_here": _finite(self.loss_here),
            "loss_path": _finite(self.loss_path),
            # the names of version 0.1, for one version more
            "about_now": _finite(self.loss_here),
            "about_all": _finite(self.loss_path),
            "warnings": list(self.warnings),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


@dataclass(frozen=True, slots=True, eq=False)
class LocationState(Value):
    """Where a stream stands: made from its outputs alone, so as public as they are.

    `belief` is P(hidden state | outputs so far) in single precision: it steers estimates and
    δ-location sets, never the noise a state gets. `support` is the exact set of hidden states
    still possible, eight to a byte. `time` counts the steps taken; `known_start` says that the
    first of them was no output but a public state.
    """

    kind = "location-state"

    time: int
    belief: npt.NDArray[np.float32]
    support: npt.NDArray[np.uint8]
    loss_here: float = field(default=0.0, metadata={"stored_as": "about_now"})
    loss_path: float = field(default=0.0, metadata={"stored_as": "about_all"})
    known_start: bool = False

    def __post_init__(self) -> None:
        """Make the arrays read-only; those that are so already are shared instead of copied."""
        # arrays that are locked already are shared, not copied: many streams have equal supports
        for name, dtype in (("belief", np.float32), ("support", np.uint8)):
            array = getattr(self, name)
            shared = isinstance(array, np.ndarray) and array.dtype == dtype
            # a view could be unlocked through what it is a view of, and would keep that alive
            if not shared or array.flags.writeable or array.base is not None:
                object.__setattr__(self, name, as_read_only(array, dtype))


class Kept(NamedTuple):
    """Where a stream stands, the place of the last reading taken, and the JSON of what it showed.

    None: no reading was taken by its place; empty: what was shown is not kept. `held` are the
    filters of a stream that watches events, from the first state `start` if it is public;
    `mark` is of the plan they belong to (`mark_of`), `drawn` how many outputs they follow, and
    `history` the hash of these in hexadecimal digits; empty where version 0.2 stored the stream.
    """

    state: LocationState
    last: int | None
    shown: bytes = b""
    held: tuple[Held, ...] = ()
    start: int | None = None
    mark: bytes = b""
    drawn: int = 0
    history: str = ""


def mark_of(plan: Plan) -> bytes:
    """Eight bytes that tell plans apart."""
    return _checksum(plan.fingerprint.encode())


def write_state(kept: Kept) -> str:
    """The text a state store keeps; `read_state` gives exactly the same state again."""
    return base64.b64encode(to_bytes(kept)).decode("ascii")


def read_state(text: str, hidden: int) -> Kept:
    """The state behind a text of this version or of the JSON of earlier ones.

    `hidden` is how many hidden states the plan's model has. Refused is what was damaged, what is
    of another version or of another model, and what is no state at all.
    """
    if text.startswith("{"):
        return refuse_other_size(_from_json(text), hidden)
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise StoredError(FOREIGN) from None
    return refuse_other_size(from_bytes(raw), hidden)


def to_bytes(kept: Kept) -> bytes:
    """The state in the form above, sparse where that is shorter."""
    state, last, shown, held, start, mark, drawn, history = kept
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
    watched = WITH_HISTORY if history else WITH_EVENTS
    version = watched if held else WITH_SHOWN if shown else VERSION
    header = HEADER.pack(
        NAME, version, flags, len(floats), state.time, last or 0, state.loss_here, state.loss_path
    )
    tail = shown + LENGTH.pack(len(shown)) if version > VERSION else b""
    if held:
        head = START.pack(-1 if start is None else start, mark)
        head += HISTORY.pack(drawn, bytes.fromhex(history)) if history else b""
        filters = head + b"".join(map(_filter_bytes, held))
        tail += filters + LENGTH.pack(len(filters))
    whole: bytes = header + belief + support + tail
    return whole + _checksum(whole)


def from_bytes(raw: bytes) -> Kept:
    """What `to_bytes` was given; StoredError when the bytes are not those it made."""
    if len(raw) < HEADER.size + CHECK_BYTES or raw[: len(NAME)] != NAME:
        raise StoredError(FOREIGN)
    version = raw[len(NAME)]
    if not VERSION <= version <= WITH_HISTORY:
        raise StoredError(
            f"the stored state of a stream has version {version}; this program reads versions "
            f"{VERSION} to {WITH_HISTORY}: go on with the program that stored it"
        )
    body, check = raw[:-CHECK_BYTES], raw[-CHECK_BYTES:]
    if _checksum(body) != check:
        raise StoredError(DAMAGED)
    shown = filters = b""
    if version >= WITH_EVENTS:
        body, filters = _cut(body)
    if version > VERSION:
        body, shown = _cut(body)
    _, _, flags, hidden, time, last, loss_here, loss_path = HEADER.unpack_from(body)
    belief, support = _arrays(body[HEADER.size :], hidden, flags)
    known = bool(flags & KNOWN_START)
    state = LocationState(time, belief, support, loss_here, loss_path, known)
    taken = last if flags & ANSWERED else None
    return Kept(state, taken, shown, *_filters(filters, version) if filters else ())


def _cut(body: bytes) -> tuple[bytes, bytes]:
    """What comes before the last part, and that part, whose length ends it."""
    length = LENGTH.unpack(body[-LENGTH.size :])[0] + LENGTH.size
    if len(body) < HEADER.size + length:
        raise StoredError(DAMAGED)
    return body[:-length], body[-length : -LENGTH.size]


def _filter_bytes(held: Held) -> bytes:
    count, states = held.mass.shape
    whole: bytes = FILTER.pack(count, states, held.lost, held.rounds)
    whole += held.pairs.astype("<u4").tobytes() + held.mass.astype("<f8", copy=False).tobytes()
    return whole + np.packbits(held.support).tobytes()


def filter_room(pairs: int, states: int) -> int:
    """Bytes of a filter of so many pairs."""
    return FILTER.size + pairs * (8 + 8 * states) + -(-pairs * states // 8)


def _filters(raw: bytes, version: int) -> tuple[tuple[Held, ...], int | None, bytes, int, str]:
    """The filters behind their bytes, the known first state, the plan's mark and the history."""
    (start, mark), at, found = START.unpack_from(raw), START.size, []
    drawn, digest = 0, b""
    if version == WITH_HISTORY:
        drawn, digest = HISTORY.unpack_from(raw, at)
        at += HISTORY.size
    while at < len(raw):
        count, states, lost, rounds = FILTER.unpack_from(raw, at)
        size, end = count * states, at + filter_room(count, states)
        if end > len(raw):
            raise StoredError(DAMAGED)
        at += FILTER.size
        pairs = np.frombuffer(raw, "<u4", 2 * count, offset=at).reshape(-1, 2)
        mass = np.frombuffer(raw, "<f8", size, offset=at + 8 * count).reshape(count, states)
        support = _unpack_mask(raw[at + 8 * count + 8 * size : end], size).reshape(count, states)
        found.append(Held(pairs, mass, support, lost, rounds))
        at = end
    return tuple(found), None if start < 0 else start, mark, drawn, digest.hex()


def _arrays(
    rest: bytes, hidden: int, flags: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.uint8]]:
    """Belief and support from the bytes after the header."""
    width = -(-hidden // 8)
    begin = width if flags & SPARSE else 0
    weighty = _unpack_mask(rest[:width], hidden) if begin else np.ones(hidden, dtype=np.bool_)
    count = int(np.count_nonzero(weighty))
    end = begin + FLOAT_BYTES * count
    if len(rest) != end + (0 if flags & OWN_SUPPORT else width):
        raise StoredError(DAMAGED)
    belief = np.zeros(hidden, dtype=np.float32)
    belief[weighty] = np.frombuffer(rest, "<f4", count, offset=begin)
    if flags & OWN_SUPPORT:
        return belief, np.packbits(belief.view(np.uint32) != 0)
    return belief, np.frombuffer(rest, np.uint8, width, offset=end)


def _unpack_mask(bits: bytes, hidden: int) -> npt.NDArray[np.bool_]:
    if len(bits) < -(-hidden // 8):
        raise StoredError(DAMAGED)
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=hidden).astype(np.bool_)


def _from_json(text: str) -> Kept:
    """The state as versions up to 0.1 stored it: a document, and the last row."""
    try:
        found = json.loads(text)
        document, last = found["state"], found["last"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise StoredError(FOREIGN) from None
    state = loads(document)
    if not isinstance(state, LocationState) or not isinstance(last, int | None):
        raise StoredError(FOREIGN)
    return Kept(state, last)


def refuse_other_size(kept: Kept, hidden: int) -> Kept:
    """The same; refused when the model has another number of hidden states."""
    if len(kept.state.belief) != hidden or len(kept.state.support) != -(-hidden // 8):
        raise StoredError(
            f"the stored state of a stream has {len(kept.state.belief)} hidden states, and the "
            f"plan's model {hidden}; give a changed model a new checkpoint"
        )
    return kept


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=CHECK_BYTES).digest()


# What a step showed, without what the plan says.


RELEASE_FIELDS = (
    *("time", "z", "estimate", "likely", "spread", "possible", "degree", "added"),
    *("loss_here", "loss_path", "warnings", "secure"),
)


def shown_bytes(release: LocationRelease) -> bytes:
    """A release as `Kept.shown` holds it."""
    fields = {name: getattr(release, name) for name in RELEASE_FIELDS}
    epsilon = None if release.guarantee is None else str(release.guarantee.amount)
    return json.dumps({**fields, "epsilon": epsilon}, separators=(",", ":")).encode()


def shown_again(machine: LocationMachine, stored: bytes) -> LocationRelease | None:
    """The release behind `Kept.shown`; None when nothing was kept."""
    if not stored:
        return None
    fields: dict[str, Any] = json.loads(stored)
    epsilon, query = fields.pop("epsilon"), machine.query
    for name in ("z", "estimate", "likely", "added", "warnings"):
        fields[name] = _tuples(fields[name])
    return LocationRelease(
        **fields,
        step=query.step,
        labels=query.labels,
        unit=query.unit,
        guarantee=None if epsilon is None else machine.promise(Fraction(epsilon)),
    )


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
