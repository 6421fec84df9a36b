"""One stream in a gateway's store, without a server: a clock to move, and plans to give."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from sqlalchemy import select

import shoal
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.core.task import Task
from shoal.gateway import streams
from shoal.gateway.advance import Reading
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.rounds import Asked, close_due, take_all
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, forget, load_stream, open_stream, pause, row_of
from shoal.gateway.tables import OUTPUTS
from shoal.gateway.vault import Vault, read_keys
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.rows import GRAPH_ROW
from tests.gateway.gateway_house import settings_in
from tests.histories import Town


def contexts(
    *, days: int = 1, slots: int = 4, minutes: int = 360, start: int = 0, watched: bool = False
) -> Plan:
    """A plan for the contexts of a day or a week; `watched`: about an event, not single slots."""
    day = shoal.DayChain.of(
        [[0.8, 0.2], [0.4, 0.6]],
        initial=[0.7, 0.3],
        states=["home", "clinic"],
        slots=slots,
        slot_minutes=minutes,
        start_minute=start,
    )
    model = day if days == 1 else shoal.DayChain.joined([day] * days)
    if watched:
        return shoal.mask(model, shoal.Events.of(shoal.visit("clinic")), epsilon=0.5)
    return shoal.mask(
        model, shoal.SensitiveContexts.of(["clinic"]), delta=0.2, check="mask-simulatable"
    )


def places(where: Town, epsilon: str, *, watched: bool = True) -> Plan:
    """As `where.plan`, on a model without an end; events are about `where.steps` slots."""
    names = [str(cell) for cell in range(where.cells)]
    chain = shoal.MarkovChain.of(where.matrix, initial=where.initial, states=names)
    points = measurement(names, [[cell] for cell in range(where.cells)], step=1)
    policy = PolicyGraph.complete(names)
    if watched:
        policy = policy.watching(shoal.Events.of(where.event), where.amount, slots=where.steps)
    task = Task(query=points, secrets=policy, family=(chain,))
    return GRAPH_ROW.calibrate(task, Fraction(epsilon))


class Rooms:
    """A gateway's store, one person's stream in it, and a clock to move."""

    def __init__(self, folder: Path, now: float) -> None:
        self.settings, self.now = settings_in(folder), now
        self.store = Store(self.settings)
        self.store.migrate()
        self.rooms = streams.House(self.store, Vault(read_keys("", self.settings.state_key_file)))
        self.where = Address("one", "ada", "s")

    def keep(self, name: str, kept: Plan) -> None:
        told = {"plan": name, "document": dumps(kept, indent=None), "told": describe_plan(kept)}
        self.store.write(ALL, lambda c: keep_plan(c, "one", told))

    def put(self, plan_name: str, **asked: Any) -> bool:
        body = {"plan": plan_name, "confirm": True, **asked}
        return self.store.write(
            ALL, lambda c: open_stream(self.rooms, c, self.where, body, self.now)
        )

    def push(self, **content: Any) -> str | None:
        asked = [Asked(self.where, [Reading(self.now, content)], self.now)]
        (told,) = self.store.write(ALL, lambda c: take_all(self.rooms, c, asked))
        assert isinstance(told, list), told
        return told[0]

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        while True:
            closed = self.store.write(ALL, lambda c: close_due(self.rooms, c, self.now, 10))
            assert not closed.broken
            if not any(each.outputs for each in closed.shown):
                return

    def outputs(self) -> list[dict[str, Any]]:
        """All outputs, also those of other names; a forgotten stream has none."""
        wanted = select(OUTPUTS.c.body).order_by(OUTPUTS.c.ordinal)
        return [json.loads(body) for (body,) in self.store.read(ALL, lambda c: c.execute(wanted))]

    def pause(self, *, resume: bool) -> None:
        self.store.write(ALL, lambda c: pause(self.rooms, c, self.where, self.now, resume=resume))

    def forget(self) -> None:
        self.store.write(ALL, lambda c: forget(self.rooms, c, self.where, self.now))

    @property
    def stream(self) -> Any:
        return self.store.read(ALL, lambda c: load_stream(self.rooms, c, row_of(c, self.where)))
