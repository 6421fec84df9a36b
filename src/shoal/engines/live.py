"""Live streams of many people, one person's rows at a time: pure steps from a stored state.

`advance` takes the state a state store kept and the rows that arrived, and gives the next state
and what may be shown. It depends on nothing else but the secret key, so a batch that is run again
after a crash shows the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from shoal.core.errors import CannotCompose, InputError, OverBudget
from shoal.core.plan import Machine, Plan
from shoal.engines.context_days import day_of
from shoal.engines.keyed import KeyedRng
from shoal.engines.live_state import Kept, read_state, write_state
from shoal.kinds import dumps, loads
from shoal.mechanisms.location_machine import LocationMachine
from shoal.mechanisms.location_task import machine_of
from shoal.streams.location import LocationStream
from shoal.streams.mask import ContextStream, charge_day, comes_after, day_order


class Reading(NamedTuple):
    """One row: its day ("" for locations), its place in the order, and the state observed."""

    day: str
    at: int
    state: str | None


class Told(NamedTuple):
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
    ) -> tuple[str, list[Told]]:
        """The state after the rows, and one answer for each of them, in their order."""
        ordered = sorted(rows, key=lambda row: (day_order(row.day), row.at))
        if isinstance(self.plan.body, LocationMachine):
            return self._locations(subject, stored, ordered)
        return self._contexts(subject, stored, ordered)

    def _contexts(
        self, subject: str, stored: str | None, rows: Sequence[Reading]
    ) -> tuple[str, list[Told]]:
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
                told.append(Told(row.day, row.at, True, None, None, None))
                continue
            if not today:
                if not self._begin_day(subject, row.day):
                    told.append(Told(row.day, row.at, False, None, None, None))
                    continue
                stream = ContextStream.begin(plan, row.day)
            rng = KeyedRng(
                self.key,
                [plan.fingerprint, subject, *row, stream.state.fingerprint],
            )
            stream, shown = stream.read(row.state, slot=row.at, rng=rng)
            told.append(Told(row.day, row.at, False, shown, None, None))
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
    ) -> tuple[str, list[Told]]:
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
                told.append(Told(row.day, row.at, True, None, None, None))
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
            told.append(Told(row.day, row.at, False, None, release.z, release.estimate))
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
