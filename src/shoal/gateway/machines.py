"""The one place where the gateway meets the families: contexts, places and counts as bytes and
plain values.

A kind turns stored bytes and a reading into a step for `run_batch`, and its result into new bytes
and what may be seen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.audit.events import slot_beliefs
from shoal.contexts.audit.memories import UNREAD
from shoal.contexts.day import DayChain
from shoal.contexts.online import OnlineMask
from shoal.contexts.stream import ContextDay, advance as mask_step
from shoal.core.charge import SystemRng
from shoal.core.errors import InputError
from shoal.core.plan import Machine, Plan
from shoal.core.registry import dumps, loads
from shoal.core.stream import Slot, Step, StepResult
from shoal.events.automaton import PathLaw
from shoal.events.window import SlotClock
from shoal.mechanisms.queries import Running, RunningState, RunningStream, running
from shoal.places.events import guard_of
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.packed import HEADER, from_bytes, to_bytes
from shoal.places.stream import LocationStream

SHOWN, SUPPRESSED, COUNTING = "shown", "suppressed", "counting"
SILENT, PAUSED, REFUSED = "silent", "paused", "refused"  # why a slot was not read; public
HIDDEN = "hidden"  # a slot that was not read and must look like one that was
PLACE_ROOM = 192  # bytes that an output of places takes on the wire, always the same number
COUNT_ROOM = 32  # bytes of one number of a count
MAX_HEAT_MAP_PLACES = 400  # places of a heat map, the likeliest
WIRE_DIGITS = 6  # of degrees and kilometres on the wire: a tenth of a metre

OTHER_MODEL = (
    "the new plan is for another model; applications remember what was shown under the old one, so "
    "give a plan on the same model, or begin a stream of another name"
)

EVENTS_ON_ONE_SIDE = (
    "one of the stream's plan and the new plan watches events and the other does not, and what one "
    "shows would tell of the events without being counted; give a plan that watches events where "
    "the stream's does, and none where it does not"
)


class ShownSlot(NamedTuple):
    """What a slot shows: how it came about, and its value."""

    status: str
    value: dict[str, Any]


class StateBytes(bytes):
    """A state that can be asked once for what it was packed from: the next slot unpacks nothing.

    Once, because many slots of a batch wait, and only the last of them is gone on from.
    """

    def __new__(cls, content: bytes, whole: Any) -> StateBytes:
        made = super().__new__(cls, content)
        made.whole = [whole]
        return made

    whole: list[Any]


def whole_of(state: bytes) -> Any:
    """What a state was packed from, if this process just did and it was not used; else None."""
    return state.whole.pop() if isinstance(state, StateBytes) and state.whole else None


AfterSlot = tuple[bytes, ShownSlot]  # the state, and what the slot shows


class StreamKind:
    """A family as the gateway sees it."""

    name: str

    def slots(self, plan: Plan) -> int:
        """Slots of a day, after which a machine begins again; 0 for a stream without days."""
        raise NotImplementedError

    def clock(self, plan: Plan) -> SlotClock | None:
        """When the slots of a day are by the wall clock; None where the plan does not say."""
        return None

    def begin(self, plan: Plan) -> bytes:
        """The state before the first slot of a day, or the first step."""
        raise NotImplementedError

    def parse_reading(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        """What the machine takes for a reading; refused in words that do not repeat it."""
        raise NotImplementedError

    def step(self, plan: Plan, state: bytes, observed: Any, slot: Slot, ordinal: int) -> Step[Any]:
        """Return the step of a slot that is drawn from a reading, and charged to the names."""
        raise NotImplementedError

    def after(self, plan: Plan, result: StepResult[Any], *, status: str) -> AfterSlot:
        """Return the state after a step, and what it shows; `status` is that of the slot."""
        raise NotImplementedError

    def skip(self, plan: Plan, state: bytes, *, status: str) -> AfterSlot:
        """Return the state after a slot that draws and costs nothing, and what it shows."""
        raise NotImplementedError

    def stand_in(self, plan: Plan, state: bytes, *, status: str) -> tuple[Any] | None:
        """Return the reading that a slot without one is drawn from; None where it is skipped.

        A HIDDEN slot is charged and shows what one with a reading might.
        """
        raise NotImplementedError

    def hides(self, plan: Plan, state: bytes) -> bool:
        """Whether the next slot may be drawn where nobody is to know which slots were read."""
        return True

    def carry_state(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        """Return the state from which another plan goes on; refused when it cannot.

        Plans are swapped between two days or steps. Days are independent in the model, so a plan
        that has days begins with the law of its day; steps of places go on from what was shown.
        """
        return self.begin(new)

    def room(self, plan: Plan) -> int:
        """Bytes that any state of this plan fits in, so that its length tells nothing."""
        raise NotImplementedError

    def width(self, plan: Plan) -> int:
        """Bytes of JSON that any value of this plan fits in."""
        raise NotImplementedError


class Contexts(StreamKind):
    """Days of contexts, shown or suppressed; a day is charged before its first reading."""

    name = "contexts"

    def slots(self, plan: Plan) -> int:
        return day_of(plan).slots

    def clock(self, plan: Plan) -> SlotClock | None:
        day = day_of(plan)
        return SlotClock(day.slot_minutes, day.start_minute)

    def begin(self, plan: Plan) -> bytes:
        assert isinstance(plan.body, Machine)
        return _pack_state(plan.body.init(), charged=False)

    def parse_reading(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        context = reading.get("context")
        if not isinstance(context, str):
            raise InputError("a reading of contexts needs `context`, a name")
        return context

    def step(
        self, plan: Plan, state: bytes, observed: Any, slot: Slot, ordinal: int
    ) -> Step[ContextDay]:
        before, charged = _unpack_state(state)
        return Step(ContextDay(plan, before, charged), slot, observed)

    def after(self, plan: Plan, result: StepResult[ContextDay], *, status: str) -> AfterSlot:
        (shown,) = result.output.shown
        if status == HIDDEN:
            shown = None
        slot = ShownSlot(SUPPRESSED if shown is None else SHOWN, {"context": shown})
        return _pack_state(result.stream.state, charged=True), slot

    def skip(self, plan: Plan, state: bytes, *, status: str) -> AfterSlot:
        before, charged = _unpack_state(state)
        after, _ = mask_step(plan, before, None, SystemRng())
        return _pack_state(after, charged=charged), ShownSlot(status, {"context": None})

    def stand_in(self, plan: Plan, state: bytes, *, status: str) -> tuple[Any] | None:
        return (None,) if status == HIDDEN else None

    def room(self, plan: Plan) -> int:
        # every other slot may be a gap of its own
        gaps = 1024 + 16 * day_of(plan).slots + 4 * len(self.begin(plan))
        body = plan.body
        return gaps + (body.program().room() if isinstance(body, OnlineMask) else 0)

    def width(self, plan: Plan) -> int:
        return max(len(json.dumps(name)) for name in [*day_of(plan).states, None])


class Places(StreamKind):
    """Streams of places: a noisy point at every step, each charged by itself.

    One that watches events has days: as many slots as the events are about, after which it begins
    anew, as contexts do. All steps of such a day are one charge about the events.
    """

    name = "places"

    def slots(self, plan: Plan) -> int:
        law = _watched_law(plan)
        return 0 if law is None else law.length

    def clock(self, plan: Plan) -> SlotClock | None:
        law = _watched_law(plan)
        return None if law is None else law.clock

    def begin(self, plan: Plan) -> bytes:
        return _place_bytes(LocationStream.begin(plan))

    def parse_reading(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        """Return the reading as the machine takes it; refuse one without `state` or `lat` and
        `lon`.
        """
        given = reading.get("state")
        if given is None:
            point = reading.get("lat"), reading.get("lon")
            if not all(isinstance(each, int | float) for each in point):
                raise InputError("a reading of places needs `state`, or numbers `lat` and `lon`")
            given = point
        return machine_of(plan).known(given)  # refused here, before anything is charged

    def step(
        self, plan: Plan, state: bytes, observed: Any, slot: Slot, ordinal: int
    ) -> Step[LocationStream]:
        watched = (
            _watched_law(plan) is not None
        )  # then a step has a key of its own, for every caller
        slot = replace(slot, key=None) if watched else slot
        return Step(self._stream(plan, state), slot, observed)

    def after(self, plan: Plan, result: StepResult[LocationStream], *, status: str) -> AfterSlot:
        release = result.stream.released()
        shown = SUPPRESSED if release.z is None else SHOWN
        return _place_bytes(result.stream), ShownSlot(shown, _place_on_map(plan, release))

    def skip(self, plan: Plan, state: bytes, *, status: str) -> AfterSlot:
        stream, release = self._stream(plan, state).skip()
        return _place_bytes(stream), ShownSlot(status, _place_on_map(plan, release))

    def stand_in(self, plan: Plan, state: bytes, *, status: str) -> tuple[Any] | None:
        """A place that the step protects: nothing of it depends on where the person is."""
        if status != HIDDEN:
            return None
        noise = machine_of(plan).prior(self._stream(plan, state).state).noise
        members = np.flatnonzero(noise.members)
        word = int(SystemRng().words(1)[0])
        return (int(members[word % len(members)]),)

    def hides(self, plan: Plan, state: bytes) -> bool:
        """Not where some output is impossible from some place: a made-up one would rule it out."""
        noise = machine_of(plan).prior(self._stream(plan, state).state).noise
        return noise.count < 2 or noise.eta is not None

    def carry_state(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        """Return the state from which a new plan goes on; begun again where events are watched.

        Refused when the models differ, or when only one of the plans watches events.
        """
        if machine_of(new).chain != machine_of(plan).chain:
            raise InputError(OTHER_MODEL)
        watched = _watched_law(plan) is not None
        if (_watched_law(new) is not None) != watched:
            raise InputError(EVENTS_ON_ONE_SIDE)
        return self.begin(new) if watched else state

    def room(self, plan: Plan) -> int:
        hidden = machine_of(plan).runtime.motion.hidden
        plain = 1024 + HEADER.size + 4 * hidden + 2 * (hidden // 8 + 1)
        watch = machine_of(plan).watch
        return plain + (0 if watch is None else guard_of(plan, watch).room())

    def width(self, plan: Plan) -> int:
        return PLACE_ROOM

    def _stream(self, plan: Plan, state: bytes) -> LocationStream:
        known = whole_of(state)  # of another plan when the plan was just swapped
        if isinstance(known, LocationStream) and known.plan is plan:
            return known
        return LocationStream.of(plan, from_bytes(state))


class Counts(StreamKind):
    """Sums in steps of a series: a slot is an entry, and the last one of a step shows its sum.

    A step is charged, as a part of the series, when it is drawn. Entries that were not read add
    nothing; a pause over the end of a step drops it.
    """

    name = "counts"

    def slots(self, plan: Plan) -> int:
        return running(plan).query.every

    def begin(self, plan: Plan) -> bytes:
        return self._bytes(running(plan).init())

    def parse_reading(self, plan: Plan, reading: Mapping[str, Any]) -> Any:
        given = reading.get("state")
        if given not in running(plan).query.states:
            raise InputError("a reading of a count needs `state`, a state of the model")
        return given

    def step(
        self, plan: Plan, state: bytes, observed: Any, slot: Slot, ordinal: int
    ) -> Step[RunningStream]:
        over, read, sums = json.loads(state)
        before = RunningState(ordinal - over, over, read, tuple(sums))
        return Step(RunningStream(plan, before), replace(slot, period="", key=None), observed)

    def after(self, plan: Plan, result: StepResult[RunningStream], *, status: str) -> AfterSlot:
        release = result.output.release
        shown = None if release is None else release.as_dict()
        slot = ShownSlot(COUNTING if release is None else SHOWN, {"counts": shown})
        return self._bytes(result.stream.state), slot

    def skip(self, plan: Plan, state: bytes, *, status: str) -> AfterSlot:
        over, read, sums = json.loads(state)
        slot = ShownSlot(COUNTING if status == HIDDEN else status, {"counts": None})
        ends = over + 1 == self.slots(plan)
        return self.begin(plan) if ends else json.dumps([over + 1, read, sums]).encode(), slot

    def stand_in(self, plan: Plan, state: bytes, *, status: str) -> tuple[Any] | None:
        """Nothing, where a step ends that may have been read: it is charged and shows its sum."""
        ends = json.loads(state)[0] + 1 == self.slots(plan)
        return (None,) if ends and status in (HIDDEN, SILENT) else None

    def carry_state(self, plan: Plan, state: bytes, new: Plan) -> bytes:
        if new.task.family != plan.task.family:
            raise InputError(OTHER_MODEL)
        return self.begin(new)  # plans are swapped between two steps

    def room(self, plan: Plan) -> int:
        return 64 + COUNT_ROOM * len(plan.task.query.labels)

    def width(self, plan: Plan) -> int:
        return sum(COUNT_ROOM + len(json.dumps(name)) for name in plan.task.query.labels)

    def _bytes(self, state: RunningState) -> bytes:
        return json.dumps([state.over, state.read, state.sums]).encode()


CONTEXTS, PLACES, COUNTS = Contexts(), Places(), Counts()
STREAM_KINDS: dict[str, StreamKind] = {kind.name: kind for kind in (CONTEXTS, PLACES, COUNTS)}


def kind_of(plan: Plan) -> StreamKind | None:
    """The kind of a stream plan; None for plans that make single releases."""
    if isinstance(plan.body, LocationMachine):
        return PLACES
    if isinstance(plan.body, Running):
        return None if hasattr(plan.body.query, "horizon") else COUNTS  # totals keep more state
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


def _place_bytes(stream: LocationStream) -> bytes:
    return StateBytes(to_bytes(stream.kept()), stream)


def _pack_state(state: Any, *, charged: bool) -> bytes:
    return StateBytes(f"{int(charged)}{dumps(state, indent=None)}".encode(), (state, charged))


def _unpack_state(stored: bytes) -> tuple[Any, bool]:
    return whole_of(stored) or (loads(stored[1:].decode()), stored[:1] == b"1")


def hides_silence(plan: Plan) -> bool:
    """Whether slots that were not read may look like others; silence.md says why some may not."""
    return _watched_law(plan) is None


def _watched_law(plan: Plan) -> PathLaw | None:
    """The law of the slots that a plan of places watches for events; None: it watches none."""
    if not isinstance(plan.body, LocationMachine) or plan.body.watch is None:
        return None
    return plan.body.watch.law(plan.body.chain)


def _place_on_map(plan: Plan, release: Any) -> dict[str, Any]:
    """What may be seen of a step, on the map too where the model has one."""
    point = release.point  # exact, so it is worth asking for once
    value: dict[str, Any] = {
        "point": None if point is None else _round_for_wire(point),
        "estimate": _round_for_wire(release.estimate),
        "unit": release.unit,
        "spread": round(float(release.spread), WIRE_DIGITS),
    }
    grid = getattr(machine_of(plan).chain, "grid", None)
    if grid is not None and len(release.estimate) == 2:
        lat, lon = _round_for_wire(grid.to_degrees(release.estimate))
        value |= {"lat": lat, "lon": lon}
    return value


def _round_for_wire(numbers: Any) -> list[float]:
    return [round(float(each), WIRE_DIGITS) for each in numbers]


def heat_map(plan: Plan, state: bytes) -> list[dict[str, Any]]:
    """The probability of each place after the last closed step, the likeliest first."""
    model: Any = plan.task.family[0]
    belief = np.asarray(from_bytes(state).state.belief, np.float64)
    names = plan.task.query.states
    law = belief.reshape(-1, len(names)).sum(axis=0) if len(belief) != len(names) else belief
    law = law / law.sum()
    grid, cells = getattr(model, "grid", None), getattr(model, "cells", None)
    found = []
    for place in np.argsort(-law)[:MAX_HEAT_MAP_PLACES].tolist():
        cell: dict[str, Any] = {"state": names[place], "belief": float(law[place])}
        if grid is not None and cells is not None:
            lat, lon = grid.centre_of(cells[place]).tolist()
            cell |= {"lat": lat, "lon": lon}
        found.append(cell)
    return found


def context_curves(plan: Plan, statuses: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """P(X_t = s) before and after the outputs of a day so far, for every slot and context.

    `statuses` holds (status, context) of each closed slot of the day, from its first. A slot that
    is not read tells nothing. `after` is None where the model calls the outputs impossible.
    """
    day = day_of(plan)
    outputs = [shown if status in (SHOWN, SUPPRESSED) else UNREAD for status, shown in statuses]
    try:
        after: Any = slot_beliefs(plan, outputs).round(9).tolist()
    except InputError:
        after = None
    return {
        "contexts": list(day.states),
        "closed": len(statuses),
        "before": day.marginals().round(9).tolist(),
        "after": after,
    }
