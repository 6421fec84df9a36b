"""The one place where the gateway meets the families: contexts and places as bytes and plain
values.

A kind turns stored bytes and a reading into new bytes and what may be seen. A step charges first,
then draws; both happen in the transaction of the account it is given.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.stream import advance as mask_step, open_day
from shoal.core.charge import Ledger
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.registry import dumps, loads
from shoal.core.rng import SystemRng
from shoal.places.machine import LocationMachine
from shoal.places.packed import HEADER, Kept, from_bytes, to_bytes
from shoal.places.stream import LocationStream

SHOWN, SUPPRESSED, SILENT, PAUSED, REFUSED = "shown", "suppressed", "silent", "paused", "refused"
PLACE_ROOM = 192  # bytes that an output of places takes on the wire, whatever it says
DIGITS = 6  # of degrees and kilometres on the wire: a tenth of a metre


class ShownSlot(NamedTuple):
    """What a slot shows: how it came about, and its value."""

    status: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Payer:
    """Who is charged for a step, in which transaction."""

    ledger: Ledger
    subject: str
    period: str
    key: str


class StreamKind(Protocol):
    """A family as the gateway sees it."""

    name: str

    def begin(self, plan: Plan) -> bytes:
        """The state before the first slot of a day, or the first step."""
        ...

    def observed(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        """What the machine takes for a reading; refused in words that do not repeat it."""
        ...

    def step(
        self, plan: Plan, state: bytes, observed: Any, account: Payer
    ) -> tuple[bytes, ShownSlot]:
        """The state after a reading that was charged, and what it shows."""
        ...

    def hidden(self, plan: Plan, state: bytes, account: Payer) -> tuple[bytes, ShownSlot]:
        """The same for a slot without a reading that must look like one that has it."""
        ...

    def skip(self, plan: Plan, state: bytes, status: str) -> tuple[bytes, ShownSlot]:
        """The state after a slot without a reading, which everybody may know."""
        ...

    def carried(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        """The state as another plan goes on from it; refused when it cannot."""
        ...

    def room(self, plan: Plan) -> int:
        """Bytes that any state of this plan fits in, so that its length tells nothing."""
        ...

    def width(self, plan: Plan) -> int:
        """Bytes of JSON that any value of this plan fits in."""
        ...


class Contexts:
    """Days of contexts, shown or suppressed; a day is charged before its first reading."""

    name = "contexts"

    def begin(self, plan: Plan) -> bytes:
        assert isinstance(plan.body, Machine)
        return _packed(plan.body.init(), charged=False)

    def observed(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        context = reading.get("context")
        if not isinstance(context, str):
            raise InputError("a reading of contexts needs `context`, a name")
        return context

    def step(
        self, plan: Plan, state: bytes, observed: Any, account: Payer
    ) -> tuple[bytes, ShownSlot]:
        before, charged = _unpacked(state)
        if not charged:
            open_day(plan, account.ledger, subject=account.subject, day=account.period)
        after, shown = mask_step(plan, before, observed, SystemRng())
        status = SUPPRESSED if shown is None else SHOWN
        return _packed(after, charged=True), ShownSlot(status, {"context": shown})

    def hidden(self, plan: Plan, state: bytes, account: Payer) -> tuple[bytes, ShownSlot]:
        after, _ = self.step(plan, state, None, account)
        return after, ShownSlot(SUPPRESSED, {"context": None})

    def skip(self, plan: Plan, state: bytes, status: str) -> tuple[bytes, ShownSlot]:
        before, charged = _unpacked(state)
        after, _ = mask_step(plan, before, None, SystemRng())
        return _packed(after, charged=charged), ShownSlot(status, {"context": None})

    def carried(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        return self.begin(new)  # days are independent, and plans are swapped between two of them

    def room(self, plan: Plan) -> int:
        # every other slot may be a gap of its own; a filter keeps as many numbers as it began with
        return 1024 + 16 * day_of(plan).slots + 4 * len(self.begin(plan))

    def width(self, plan: Plan) -> int:
        return max(len(json.dumps(name)) for name in [*day_of(plan).states, None])


class Places:
    """Streams of places: a noisy point at every step, each charged by itself."""

    name = "places"

    def begin(self, plan: Plan) -> bytes:
        _machine(plan).refuse_events("the gateway")
        return to_bytes(Kept(LocationStream.begin(plan).state, None))

    def observed(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        given = reading.get("state")
        if given is None:
            point = reading.get("lat"), reading.get("lon")
            if not all(isinstance(each, int | float) for each in point):
                raise InputError("a reading of places needs `state`, or numbers `lat` and `lon`")
            given = point
        machine = _machine(plan)
        # refused here, before anything is charged
        return machine.query.states[machine.runtime.locator.state_of(given)]

    def step(
        self, plan: Plan, state: bytes, observed: Any, account: Payer
    ) -> tuple[bytes, ShownSlot]:
        stream, release = self._stream(plan, state).read(
            observed,
            ledger=account.ledger,
            subject=account.subject,
            period=account.period,
            key=account.key,
        )
        status = SUPPRESSED if release.z is None else SHOWN
        return to_bytes(Kept(stream.state, None)), ShownSlot(status, _place(plan, release))

    def hidden(self, plan: Plan, state: bytes, account: Payer) -> tuple[bytes, ShownSlot]:
        """A step from a state that is made up: nothing of it depends on where the person is."""
        prior = _machine(plan).prior(self._stream(plan, state).state)
        members = np.flatnonzero(prior.noise.members)
        word = int(SystemRng().words(1)[0])
        made_up = _machine(plan).query.states[int(members[word % len(members)])]
        return self.step(plan, state, made_up, account)

    def skip(self, plan: Plan, state: bytes, status: str) -> tuple[bytes, ShownSlot]:
        stream, release = self._stream(plan, state).skip()
        return to_bytes(Kept(stream.state, None)), ShownSlot(status, _place(plan, release))

    def carried(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        if _machine(new).chain != _machine(plan).chain:
            raise InputError(
                "the new plan is for another model; applications remember what was shown under the "
                "old one, so give a plan on the same model, or begin a stream of another name"
            )
        return state

    def room(self, plan: Plan) -> int:
        hidden = _machine(plan).runtime.motion.hidden
        return 1024 + HEADER.size + 4 * hidden + 2 * (hidden // 8 + 1)

    def width(self, plan: Plan) -> int:
        return PLACE_ROOM

    def _stream(self, plan: Plan, state: bytes) -> LocationStream:
        return LocationStream(plan, from_bytes(state).state)


CONTEXTS, PLACES = Contexts(), Places()
KINDS: dict[str, StreamKind] = {kind.name: kind for kind in (CONTEXTS, PLACES)}


def kind_of(plan: Plan) -> StreamKind | None:
    """The kind of a stream plan; None for plans that make single releases."""
    if isinstance(plan.body, LocationMachine):
        return PLACES
    return CONTEXTS if isinstance(plan.body, Machine) else None


def stream_kind(plan: Plan) -> StreamKind:
    """The kind of a plan that is known to be a stream's."""
    kind = kind_of(plan)
    assert kind is not None, "only plans of streams are kept for streams"
    return kind


def day_of(plan: Plan) -> DayChain:
    """The model of a day; refused when the plan has none."""
    model = plan.task.family[0]
    if not isinstance(model, DayChain):
        raise InputError(f"{plan.mechanism} is not a plan for the contexts of a day")
    return model


@lru_cache(maxsize=256)
def plan_of(document: str) -> Plan:
    """The plan of a stored document, built once in a process."""
    found = loads(document)
    if not isinstance(found, Plan):
        raise InputError("the stored document is no plan")
    return found


def _packed(state: Any, *, charged: bool) -> bytes:
    return f"{int(charged)}{dumps(state, indent=None)}".encode()


def _unpacked(stored: bytes) -> tuple[Any, bool]:
    return loads(stored[1:].decode()), stored[:1] == b"1"


def _machine(plan: Plan) -> LocationMachine:
    assert isinstance(plan.body, LocationMachine)
    return plan.body


def _place(plan: Plan, release: Any) -> dict[str, Any]:
    """What may be seen of a step, on the map too where the model has one."""
    value: dict[str, Any] = {
        "point": None if release.point is None else [round(each, DIGITS) for each in release.point],
        "estimate": [round(each, DIGITS) for each in release.estimate],
        "unit": release.unit,
        "spread": round(release.spread, DIGITS),
    }
    grid = getattr(_machine(plan).chain, "grid", None)
    if grid is not None and len(release.estimate) == 2:
        lat, lon = grid.to_degrees(release.estimate).tolist()
        value |= {"lat": round(lat, DIGITS), "lon": round(lon, DIGITS)}
    return value
