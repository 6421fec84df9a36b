"""Random histories of devices, clock, pauses, crashes and restarts, against a plain model.

The model knows slots, who read them, and pauses: nothing of sealing, transactions or machines.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings as hypothesis_settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sqlalchemy import select

from shoal.gateway.advance import Reading
from shoal.gateway.rounds import Asked, close_due, take_all
from shoal.gateway.sight import Sight, latest, page
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, House, open_stream, pause
from shoal.gateway.tables import OUTPUTS, STREAMS
from shoal.gateway.vault import Vault, read_keys, write_key
from tests.gateway.gateway_house import fill, settings_in

EVERY = 10.0
GRACE = 4.0
WHERE = Address("one", "ada", "s")


class Crash(Exception):
    """The process ended here."""


class Gateways(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="shoal-model-"))
        self.settings = settings_in(self.folder)
        self.store = Store(self.settings)
        self.store.migrate()
        self.store.write(ALL, lambda c: fill(c, ("one",)))
        self.now = 1000.0
        asked = {"plan": "walk", "clock": {"every": EVERY, "grace": GRACE}}
        self.store.write(ALL, lambda c: open_stream(self.rooms, c, WHERE, asked, self.now))
        self.made, self.first = self.now, 1010.0  # when slot 0 opens
        self.read: set[int] = set()
        self.decided = 0  # slots before this are drawn, read or not
        self.pauses: list[list[int | None]] = []
        self.closed = 0
        self.seen: list[str] = []

    @property
    def rooms(self) -> House:
        return House(self.store, Vault(read_keys("", self.settings.state_key_file)))

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def slot_at(self, instant: float) -> int | None:
        return None if instant < self.first else int((instant - self.first) // EVERY)

    def paused(self, slot: int) -> bool:
        return any(a <= slot and (b is None or slot < b) for a, b in self.pauses)  # type: ignore[operator]

    def outcome(self, at: float) -> str | None:
        """Why a reading is dead, by the plain rules; it is taken into the model when it is not."""
        slot, kept = self.slot_at(at), False
        if slot is None:
            if not self.made <= at < self.first or self.now >= self.first:
                return "closed"
            slot, kept = 0, True  # between the beginning of the stream and its first slot
        closes = self.first + (slot + 1) * EVERY + GRACE
        if slot < self.closed or self.now >= closes:
            return "closed"
        if self.first + slot * EVERY > self.now + self.settings.early and not kept:
            return "early"
        if self.paused(slot):
            return "paused"
        if slot >= self.decided:
            self.read.add(slot)
            self.decided = slot + 1
        return None

    @rule(offset=st.floats(-25, 12), repeat=st.integers(1, 3))
    def push(self, offset: float, repeat: int) -> None:
        at = self.now + offset
        reading = Reading(at, {"state": "1,1"})
        asked = [Asked(WHERE, [reading], self.now)] * repeat
        told = self.store.write(ALL, lambda c: take_all(self.rooms, c, asked))
        assert told == [[self.outcome(at)]] * repeat

    @rule()
    def push_and_crash(self) -> None:
        def work(connection: Any) -> None:
            reading = Reading(self.now, {"state": "0,0"})
            take_all(self.rooms, connection, [Asked(WHERE, [reading], self.now)])
            raise Crash

        try:
            self.store.write(ALL, work)
        except Crash:
            return
        raise AssertionError("the crash was swallowed")

    @rule(seconds=st.floats(0, 35), crash=st.booleans())
    def pass_time(self, seconds: float, crash: bool) -> None:
        self.now += seconds

        def work(connection: Any) -> None:
            close_due(self.rooms, connection, self.now, 10)
            if crash:
                raise Crash

        for attempt in (crash, False):
            crash = attempt
            try:
                self.store.write(ALL, work)
            except Crash:
                continue
        while self.first + (self.closed + 1) * EVERY + GRACE <= self.now:
            slot = self.closed
            status = "paused" if self.paused(slot) else "silent"
            self.seen.append("shown" if slot in self.read else status)
            self.closed += 1
        self.decided = max(self.decided, self.closed)

    @rule(resume=st.booleans())
    def pause_or_resume(self, resume: bool) -> None:
        open_now = self.slot_at(self.now)
        first = max(0 if open_now is None else open_now + 1, self.closed, self.decided)
        running = not self.pauses or self.pauses[-1][1] is not None
        self.store.write(ALL, lambda c: pause(self.rooms, c, WHERE, self.now, resume=resume))
        if resume and not running:
            self.pauses[-1][1] = max(first, self.pauses[-1][0] or 0)
        elif not resume and running:
            self.pauses.append([first, None])

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Store(self.settings)
        self.store.migrate()

    @rule()
    @precondition(lambda self: len(self.seen) % 3 == 0)
    def rotate_keys(self) -> None:
        write_key(self.settings.state_key_file)

    @invariant()
    def outputs_are_those_of_the_model(self) -> None:
        rows = self.store.read(
            ALL, lambda c: c.execute(select(OUTPUTS).order_by(OUTPUTS.c.ordinal)).all()
        )
        assert [row.ordinal for row in rows] == list(range(self.closed))
        assert [json.loads(row.body)["status"] for row in rows] == self.seen

    @invariant()
    def every_reading_that_was_drawn_is_charged_once(self) -> None:
        slots = [int(str(each.key).rpartition("/")[2]) for each in self.store.ledger.charges()]
        assert sorted(slots) == sorted(self.read)

    @invariant()
    def applications_see_the_same_again(self) -> None:
        row = self.store.read(ALL, lambda c: c.execute(select(STREAMS)).one())
        sight = Sight("one", row.uid, "viewer")
        pages = self.store.read(ALL, lambda c: page(c, sight, -1, 1000))
        last = self.store.read(ALL, lambda c: latest(c, sight))
        assert last == (pages[-1] if pages else None)


TestGateways = Gateways.TestCase
TestGateways.settings = hypothesis_settings(max_examples=12, stateful_step_count=15, deadline=None)
