"""A stream of the gateway as a value: readings are taken, the clock closes slots. Pure but for
coins.

`advance` takes a reading for an open slot and draws at once; what was drawn waits in the sealed
part until `close` shows it, with every other slot that ended, read or not. So what can be seen, and
when, follows from the clock and from what was drawn, never from when a device spoke.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from shoal.contexts.stream import DayBegun
from shoal.core.errors import CannotCompose, InputError, OverBudget
from shoal.core.plan import Plan
from shoal.core.stream import Slot as ChargedSlot, Step, StepResult
from shoal.gateway.clock import Clock, ClockSlot
from shoal.gateway.machines import (
    HIDDEN,
    PAUSED,
    REFUSED,
    SHOWN,
    SILENT,
    SUPPRESSED,
    StreamKind,
)

REASONS = {
    "closed": "the slot is closed, and a closed slot stays closed",
    "early": "the slot has not begun by the server's clock",
    "paused": "the stream is paused then",
    "unreadable": "the reading is not one that the stream's plan can take",
    "budget": "the ledger refuses the charge",
    "outside": "no slot of the stream is at that time",
}
CLOSED, EARLY, PAUSE, UNREADABLE, BUDGET, OUTSIDE = REASONS

Drawn = tuple[int, str, dict[str, Any], bytes]  # ordinal, status, value, the machine afterwards
Names = Callable[[str, int], ChargedSlot]  # who is charged, of a period and an ordinal
# work on a stream: hands out each charged step, and is handed its result
T = TypeVar("T")
Work = Generator[Step[Any], StepResult[Any], T]


@dataclass(frozen=True, slots=True)
class Standing:
    """What is sealed at rest: the next slot to be drawn, the machine after the last closed slot,
    and what was drawn since, each with the machine after it.
    """

    decided: int
    seen: bytes
    pending: tuple[Drawn, ...] = ()

    @property
    def state(self) -> bytes:
        """The machine before the next slot to be drawn."""
        return self.pending[-1][3] if self.pending else self.seen

    def to_bytes(self) -> bytes:
        """The bytes that are sealed."""
        waiting = [(o, s, v, _text_of(state)) for o, s, v, state in self.pending]
        whole = [self.decided, _text_of(self.seen), waiting]
        return json.dumps(whole, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Standing:
        decided, seen, waiting = json.loads(stored)
        pending = tuple((o, s, v, base64.b64decode(state)) for o, s, v, state in waiting)
        return cls(decided, base64.b64decode(seen), pending)


@dataclass(frozen=True, slots=True)
class LiveStream:
    """A stream as a transaction finds it; `closed` is the ordinal of the slot that closes next.

    `pauses` are [from, until) in ordinals, the last perhaps without an end (None). `swap` is a plan
    that takes over with the first slot of its clock.
    """

    uid: str
    name: str
    plan_id: str
    plan: Plan
    kind: StreamKind
    clock: Clock
    silence: str
    closed: int
    standing: Standing
    pauses: tuple[tuple[int, int | None], ...] = ()
    swap: tuple[str, Plan, Clock] | None = None

    def is_paused(self, ordinal: int) -> bool:
        """Whether nothing is read in a slot because the person wanted a pause."""
        return any(a <= ordinal and (b is None or ordinal < b) for a, b in self.pauses)


class Reading(NamedTuple):
    """What a device says: when (UTC seconds), and what, as it came."""

    at: float
    content: Mapping[str, Any]


class Output(NamedTuple):
    """A closed slot as it is stored: place in the order, when it opened, and its JSON."""

    ordinal: int
    opens: float
    body: str


class Taken(NamedTuple):
    """The stream after a reading, and why it was dead; `changed` is False for a repeated one."""

    stream: LiveStream
    dead: str | None = None
    ordinal: int | None = None
    changed: bool = False


def advance(
    stream: LiveStream,
    reading: Reading,
    now: float,
    names: Names,
    *,
    early: float = 0.0,
    made: float | None = None,
) -> Work[Taken]:
    """The stream after a reading that came at `now`; a repeated or dead one leaves it as it was.

    The first reading of a slot counts. Slots before it that nobody read become silent: readings
    come in order, and a slot is drawn once. `made` is when the stream was begun: what is read
    before its first slot is kept for that one.
    """
    ordinal = stream.clock.at(reading.at)
    kept = made is not None and _before_first(stream, reading, now, made)
    if kept:
        ordinal = stream.closed
    if ordinal is None:
        late = reading.at < stream.clock.slot(stream.closed).opens
        return Taken(stream, CLOSED if late else OUTSIDE)
    slot = stream.clock.slot(ordinal)
    if ordinal < stream.closed or now >= stream.clock.closes(ordinal):
        return Taken(stream, CLOSED, ordinal)
    if slot.opens > now + early and not kept:
        return Taken(stream, EARLY, ordinal)
    if stream.is_paused(ordinal):
        return Taken(stream, PAUSE, ordinal)
    if ordinal < stream.standing.decided:
        return Taken(stream, None, ordinal)
    if stream.swap is not None and ordinal >= stream.swap[2].first:
        return Taken(stream, EARLY, ordinal)  # another plan takes over before it
    try:
        observed = stream.kind.parse_reading(stream.plan, reading.content)
    except InputError:
        return Taken(stream, UNREADABLE, ordinal)
    before = yield from _silent_until(stream, ordinal, names)
    if _shows_nothing(before, ordinal):  # it is public, so it is no silence
        after = yield from _silent_until(before, ordinal + 1, names)
        return Taken(after, None, ordinal, changed=True)
    after, refused = yield from _draw_slot(before, ordinal, (observed,), SHOWN, names)
    return Taken(after, BUDGET if refused else None, ordinal, changed=True)


def _before_first(stream: LiveStream, reading: Reading, now: float, made: float) -> bool:
    """Whether a reading came after the stream was begun and before its first slot.

    Not under a name or a clock that takes over from another one: those covered the time before.
    """
    opens = stream.clock.slot(stream.closed).opens
    first = stream.clock.first == 0 and stream.closed == stream.clock.after(made)
    return first and made <= reading.at < opens and now < opens


def close(
    stream: LiveStream, now: float, names: Names, most: int
) -> Work[tuple[LiveStream, list[Output]]]:
    """The stream after every slot that has ended is shown, at most `most`, and their outputs."""
    outputs: list[Output] = []
    while len(outputs) < most and stream.clock.closes(stream.closed) <= now:
        stream = yield from _silent_until(stream, stream.closed + 1, names)
        drawn = stream.standing.pending[0]
        assert drawn[0] == stream.closed, "a slot was drawn out of order"
        outputs.append(_output(stream, drawn))
        rest = Standing(stream.standing.decided, drawn[3], stream.standing.pending[1:])
        stream = replace(stream, closed=stream.closed + 1, standing=rest)
        stream = _with_next_plan(stream)
    return stream, outputs


def start_stream(stream: LiveStream) -> LiveStream:
    """A new stream before its first slot, in the middle of a day if it is begun there.

    Slots of the day that are past were not read, which is public; they show nothing.
    """
    state = stream.kind.begin(stream.plan)
    for _ in range(stream.clock.slot(stream.closed).number if stream.clock.slots else 0):
        state, _ = stream.kind.skip(stream.plan, state, status=SILENT)
    return replace(stream, standing=Standing(stream.closed, state))


def _silent_until(stream: LiveStream, ordinal: int, names: Names) -> Work[LiveStream]:
    """The stream with every slot before `ordinal` drawn: those without a reading as silent."""
    while stream.standing.decided < ordinal:
        slot = stream.standing.decided
        published = stream.silence != "hide" or _shows_nothing(stream, slot)
        status = PAUSED if stream.is_paused(slot) else SILENT if published else HIDDEN
        reading = stream.kind.stand_in(stream.plan, _state_at(stream, slot), status=status)
        stream, _ = yield from _draw_slot(stream, slot, reading, status, names)
    return stream


def _shows_nothing(stream: LiveStream, ordinal: int) -> bool:
    """Whether a slot is silent for everybody, read or not: what it shows could not be hidden."""
    if stream.silence != "hide":
        return False
    return not stream.kind.hides(stream.plan, _state_at(stream, ordinal))


def _draw_slot(
    stream: LiveStream, ordinal: int, reading: tuple[Any] | None, status: str, names: Names
) -> Work[tuple[LiveStream, bool]]:
    """The stream after a slot, drawn from a reading or skipped, and whether it was refused.

    A slot that the ledger refuses shows so; so does one whose output was charged and lost.
    """
    kind, plan, before = stream.kind, stream.plan, _state_at(stream, ordinal)
    refused = False
    if reading is None:
        state, shown = kind.skip(plan, before, status=status)
    else:
        slot = names(stream.clock.slot(ordinal).day, ordinal)
        slot = replace(slot, covers=stream.clock.covers(ordinal))
        result = yield kind.step(plan, before, reading[0], slot, ordinal)
        refused = result.lost or isinstance(result.error, OverBudget | CannotCompose | DayBegun)
        if result.error is not None and not refused:
            raise result.error
        if refused:
            state, shown = kind.skip(plan, bytes(before), status=REFUSED)
        else:
            state, shown = kind.after(plan, result, status=status)
    drawn, standing = (ordinal, shown.status, shown.value, state), stream.standing
    standing = Standing(ordinal + 1, standing.seen, (*standing.pending, drawn))
    return replace(stream, standing=standing), refused


def _state_at(stream: LiveStream, ordinal: int) -> bytes:
    """The machine before a slot: a fresh one at the beginning of a day."""
    fresh = stream.clock.slots > 0 and stream.clock.first_of_day(ordinal)
    return stream.kind.begin(stream.plan) if fresh else stream.standing.state


def _with_next_plan(stream: LiveStream) -> LiveStream:
    """Return the stream under its next plan, once all slots before that plan's first are closed."""
    if stream.swap is None or stream.closed < stream.swap[2].first:
        return stream
    assert not stream.standing.pending, "a slot of the next plan was drawn under the old one"
    plan_id, plan, clock = stream.swap
    state = stream.kind.carry_state(stream.plan, stream.standing.state, plan)
    standing = replace(stream.standing, seen=state)
    return replace(stream, plan_id=plan_id, plan=plan, clock=clock, swap=None, standing=standing)


def _output(stream: LiveStream, drawn: Drawn) -> Output:
    """The output of a slot as JSON, as long whether it shows something or not."""
    ordinal, status, value, _ = drawn
    slot = stream.clock.slot(ordinal)
    body, empty = (
        json.dumps(_body(stream, slot, *shown), separators=(",", ":"))
        for shown in ((status, value), (SUPPRESSED, {}))
    )
    widest = len(empty) + len(',"context":') + stream.kind.width(stream.plan)
    return Output(ordinal, slot.opens, f"{body[:-1]}{' ' * (widest - len(body))}}}")


def _body(
    stream: LiveStream, slot: ClockSlot, status: str, value: dict[str, Any]
) -> dict[str, Any]:
    """Return the JSON fields of a slot's output: its time, status, value, plan and guarantee."""
    promise = stream.plan.guarantee
    return {
        "id": slot.ordinal,
        "day": slot.day,
        "slot": slot.number,
        "opens": _text(slot.opens),
        "ends": _text(slot.ends),
        "status": status,
        **value,
        "plan": stream.plan_id,
        "guarantee": {"notion": promise.notion, "amount": str(promise.amount)},
    }


def _text_of(state: bytes) -> str:
    return base64.b64encode(state).decode()


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds")
