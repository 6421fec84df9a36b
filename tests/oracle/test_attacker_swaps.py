"""A random attacker of one stream of a gateway: swapped, moved, paused, forgotten, retried.

Outputs of places are what would tell the most, or random. By all paths, no window of a stream that
watches events tells more of them than is promised, and such a stream shows nothing without them.
No date and no moment is shown twice, every slot has one output, and the stream never stands still.
"""

from __future__ import annotations

import copy
import random
import time
from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.stream import ALLOWED, Stored
from shoal.gateway.advance import BUDGET, CLOSED, EARLY, OUTSIDE, PAUSE, Reading
from shoal.gateway.problems import Problem
from shoal.gateway.rounds import Asked, take_all
from shoal.gateway.store import ALL
from tests.attacker import REFUSED, attack_for_long
from tests.event_oracle import random_event
from tests.gateway.gateway_rooms import Rooms, contexts, places
from tests.histories import Draw, Town, log_odds_moved
from tests.oracle.test_attacker_histories import NEAR, drawn_cell, random_town
from tests.settling import placeholder

EVERY = 100.0
BEGINS = 1_772_600_000.0  # a Wednesday in March: clocks change in some of the histories
ZONES = ("UTC", "Pacific/Auckland", "America/Los_Angeles", "Europe/Berlin", "Pacific/Niue")
KINDS_OF_DAY: dict[str, dict[str, Any]] = {
    "day": {},
    "evening": {"slots": 2, "minutes": 120, "start": 1080},
    "night": {"slots": 4, "minutes": 120, "start": 1320},
    "week": {"days": 7, "watched": True},
}


class Crash(Exception):
    """The process ended here."""


class Drawing:
    """A ledger inside a transaction that says what places show, and notes it."""

    def __init__(self, inner: Any, about: Places) -> None:
        self.inner, self.about = inner, about

    def transact(self, work: Any) -> Any:
        return self.inner.transact(lambda transaction: work(Noted(transaction, self.about)))


class Noted:
    """A transaction in which the attacker says what a stream that watches events shows."""

    def __init__(self, inner: Any, about: Places) -> None:
        self.inner, self.about = inner, about
        self.forced: dict[int, Any] = {}

    def charge(self, charges: Any) -> Any:
        verdicts = self.inner.charge(charges)
        self.forced = {}
        for at, verdict in enumerate(verdicts):
            if verdict is ALLOWED:
                free = placeholder(charges[at])
                shown = self.about.noted(charges[at], free)
                if shown is not free:
                    self.forced[at] = shown
        own = {at: Stored(release) for at, release in self.forced.items()}
        return [own.get(at, verdict) for at, verdict in enumerate(verdicts)]

    def store(self, outputs: Any) -> None:
        self.inner.store({**outputs, **self.forced})


class Places:
    """Plans of one map for the attacker, and what was drawn of events in which window."""

    def __init__(self, dice: random.Random, where: Town, rooms: Rooms) -> None:
        self.dice, self.greed = dice, dice.choice([0.0, 0.7, 1.0])
        self.names: list[str] = []
        self.towns: dict[str, Town] = {}
        self.drawn: dict[tuple[str, str], list[Draw]] = defaultdict(list)
        self.watches: bool | None = None
        for name in ("watched", "other event", "plain", "less"):
            made = self._plan(where, name)
            if made is not None:
                self.names.append(name.replace(" ", "-"))
                rooms.keep(self.names[-1], made)
        charging: Any = rooms.store.charging
        store: Any = rooms.store
        store.charging = lambda connection: Drawing(charging(connection), self)

    def _plan(self, where: Town, name: str) -> Plan | None:
        if name == "other event":
            rng = np.random.default_rng(self.dice.randrange(10**9))
            where = where._replace(event=random_event(rng, where.cells, where.steps))
        epsilon, watched = self.dice.choice(["1/2", "1", "2"]), name not in ("plain", "less")
        try:
            made = places(where, epsilon, watched=watched)
        except InputError:
            return None  # the event is certain
        self.towns[made.fingerprint] = where
        return made

    def asked(self) -> dict[str, Any]:
        return {"plan": self.dice.choice(self.names), "clock": {"every": EVERY}}

    def reading(self) -> dict[str, Any]:
        return {"state": "0"}

    def noted(self, charge: Any, release: Any) -> Any:
        """The release with the cell that is wanted; that of a window of events is noted."""
        watches = charge.step is not None
        assert self.watches in (None, watches), "events were watched for a part of the time"
        self.watches = watches
        if not watches:
            return release
        town, draws = (
            self.towns[charge.plan.fingerprint],
            self.drawn[charge.plan.fingerprint, charge.period],
        )
        draw = Draw(charge.step.time, float(charge.eta or 0), 0)
        draws.append(draw._replace(cell=drawn_cell(self.dice, town, self.greed, draws, draw)))
        return replace(release, answer=replace(release.answer, multiples=(draws[-1].cell,)))

    def judge(self, seen: Counter[str]) -> None:
        for (fingerprint, _), draws in self.drawn.items():
            assert log_odds_moved(self.towns[fingerprint], draws) <= (
                self.towns[fingerprint].amount * NEAR
            )
            assert len({draw.time for draw in draws}) == len(draws)
            seen["windows"] += 1


class Days:
    """Plans for contexts of days and weeks, in zones around the world."""

    def __init__(self, dice: random.Random, rooms: Rooms) -> None:
        self.dice, self.drawn = dice, dict[Any, Any]()
        for name, words in KINDS_OF_DAY.items():
            rooms.keep(name, contexts(**words))

    def asked(self) -> dict[str, Any]:
        every = {"every": 3600.0} if self.dice.random() < 0.1 else {}
        plan = self.dice.choice(list(KINDS_OF_DAY))
        return {"plan": plan, "timezone": self.dice.choice(ZONES), "clock": every}

    def reading(self) -> dict[str, Any]:
        return {"context": self.dice.choice(["home", "clinic"])}

    def judge(self, seen: Counter[str]) -> None:
        seen["days"] += 1


class History:
    """Random acts of a person, their phone, the clock and the machine, on one stream."""

    def __init__(self, dice: random.Random, rooms: Rooms, about: Any, slot: float) -> None:
        self.dice, self.rooms, self.about, self.slot = dice, rooms, about, slot
        hidden = dice.random() < 0.3 and isinstance(about, Days)
        self.silence, self.shown = ("hide" if hidden else "publish"), list[dict[str, Any]]()
        self.refused = 0

    def act(self) -> None:
        kind = self.dice.random()
        if kind < 0.2:
            self.put()
        elif kind < 0.55:
            self.push()
        elif kind < 0.9:
            self.rooms.pass_time(self.slot * self.dice.choice([0.3, 1, 1, 2, 9]))
        elif kind < 0.97:
            self.asking(partial(self.rooms.pause, resume=self.dice.random() < 0.6))
        else:
            self.shown += self.rooms.outputs()
            self.asking(self.rooms.forget)

    def asking(self, work: Any) -> None:
        try:
            work()
        except (Problem, InputError):
            self.refused += 1

    def put(self) -> None:
        asked = {**self.about.asked(), "silence": self.silence}
        self.asking(lambda: self.rooms.put(asked.pop("plan"), **asked))

    def push(self) -> None:
        """A reading, now and then twice, or with a crash before it is committed."""
        if self.dice.random() < 0.15:
            before = copy.deepcopy(self.about.drawn)
            try:
                self.rooms.store.write(ALL, self._crashing)
            except Crash:
                self.about.drawn = before
        for _ in range(self.dice.choice([1, 1, 2])):
            try:
                told = self.rooms.push(**self.about.reading())
            except AssertionError:
                self.refused += 1  # no stream is there
                return
            assert told in (None, CLOSED, EARLY, OUTSIDE, PAUSE), told

    def _crashing(self, connection: Any) -> None:
        reading = Reading(self.rooms.now, self.about.reading())
        take_all(self.rooms.rooms, connection, [Asked(self.rooms.where, [reading], self.rooms.now)])
        raise Crash

    def judge(self) -> None:
        self.shown += self.rooms.outputs()
        ids = [each["id"] for each in self.shown]
        assert len(set(ids)) == len(ids)
        ordered = sorted(self.shown, key=lambda each: int(each["id"]))
        for one, other in pairwise(ordered):
            assert seconds(one["ends"]) <= seconds(other["opens"]) + 0.01
        slots = [(each["day"], each["slot"], each["opens"]) for each in self.shown]
        assert len({slot[:2] if slot[0] else slot for slot in slots}) == len(slots)
        assert not {each["status"] for each in self.shown} & {"refused", BUDGET}


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def attack(seed: int, seen: Counter[str], where: Path) -> None:
    dice = random.Random(seed)
    folder = where / str(seed)
    folder.mkdir()
    rooms = Rooms(folder, BEGINS + dice.uniform(0, 30 * 86400))
    try:
        on_map = dice.random() < 0.7
        found = next(filter(None, map(random_town, repeat(dice)))) if on_map else None
        about = Days(dice, rooms) if found is None else Places(dice, found, rooms)
        history = History(dice, rooms, about, EVERY if found is not None else 4 * 3600.0)
        history.put()
        for _ in range(60):
            history.act()
        history.judge()
        about.judge(seen)
        seen["slots"] += len(history.shown)
        seen[REFUSED] += history.refused
    finally:
        rooms.store.close()


@pytest.mark.parametrize("seed", range(6))
def test_random_swaps_keep_every_promise(seed: int, tmp_path: Path) -> None:
    attack(seed, Counter(), tmp_path)


@pytest.mark.slow
def test_random_swaps_keep_every_promise_for_long(tmp_path: Path, record_property: Any) -> None:
    first = time.time_ns() % 10**9  # other histories in every run
    attack_for_long(partial(attack, where=tmp_path), record_property, first)
