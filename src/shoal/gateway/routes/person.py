"""What a person sees about themselves: what was spent, and what may be believed by now."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter
from sqlalchemy import select

from shoal.gateway.beliefs import context_curves, heat_map
from shoal.gateway.keys import OPERATOR, PERSON
from shoal.gateway.machines import SHOWN, SUPPRESSED
from shoal.gateway.problems import missing
from shoal.gateway.routes.bodies import House, PersonPath, Stream, Who, finite
from shoal.gateway.streams import Address, loaded, now_seconds, row_of
from shoal.gateway.tables import OUTPUTS, PEOPLE, STREAMS

router = APIRouter(prefix="/v1/people/{person}", tags=["person"])

ALERT = 0.8  # of a limit: from there on the budget says so


@router.get("/streams/{stream}/beliefs")
async def beliefs(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """What an adversary believes after the last closed slot, from public outputs alone.

    Places: a heat map. Contexts: the belief in every context at every slot of the day, before and
    after. For the person.
    """
    who.must_be(PERSON)
    if not who.owns(where.person):
        raise missing()

    def work(connection: Any) -> dict[str, Any]:
        row = row_of(connection, where)
        stream = loaded(house.rooms, connection, row)
        if stream.kind.name == "places":
            return {"kind": "places", "places": heat_map(stream.plan, stream.standing.seen)}
        told = _day_so_far(connection, row, stream)
        return {"kind": "contexts", **context_curves(stream.plan, told)}

    found: dict[str, Any] = await house.store.reading(who.space, work)
    return found


@router.get("/budget")
async def budget(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """What was spent on each stream up to its last closed slot, what is left, until when.

    For the person and operators.
    """
    who.must_be(PERSON, OPERATOR)
    if who.kind == PERSON and not who.owns(person):
        raise missing()

    def work(connection: Any) -> list[Any]:
        known = select(PEOPLE.c.person).where(
            PEOPLE.c.space == who.space, PEOPLE.c.person == person
        )
        if connection.execute(known).first() is None:
            raise missing()
        rows = connection.execute(
            select(STREAMS).where(
                STREAMS.c.space == who.space,
                STREAMS.c.person == person,
                STREAMS.c.forgotten.is_(None),
            )
        ).all()
        return [(row, loaded(house.rooms, connection, row)) for row in rows]

    found = await house.store.reading(who.space, work)
    limits = await house.store.limits()
    streams = [await _spending(house, row, stream, limits) for row, stream in found]
    return {"person": person, "streams": streams}


async def _spending(house: Any, row: Any, stream: Any, limits: Any) -> dict[str, Any]:
    """One stream's account. What was drawn for a slot that is open is not told before it closes."""
    where = Address(row.space, row.person, row.stream)
    slot = stream.clock.slot(max(0, stream.closed - 1))
    total = await house.store.spent(where.subject, slot.day)
    waiting = sum(status in (SHOWN, SUPPRESSED) for _, status, _, _ in stream.standing.pending)
    told: dict[str, Any] = {"stream": row.stream, "kind": row.kind, "period": slot.day}
    promise = stream.plan.guarantee
    if row.kind == "contexts":
        return told | {
            "notion": promise.notion,
            "each_day": str(promise.amount),
            "rule": "days are independent: each keeps its own promise",
        }
    count = 0 if total is None else max(0, total.charges - waiting)
    amount = 0.0 if total is None else float(total.amount) * count / total.charges
    told |= {"notion": promise.notion, "steps": count, "spent": finite(amount)}
    own = [
        each for each in limits if each.subject in ("*", where.subject) and each.unit == "epsilon"
    ]
    if own:
        most = min(float(each.amount) for each in own)
        told |= _until(most, amount, now_seconds() - row.made)
    return told


def _until(most: float, spent: float, elapsed: float) -> dict[str, Any]:
    """What is left, and at this pace until when (UTC seconds)."""
    left = max(0.0, most - spent)
    pace = spent / elapsed if elapsed > 0 else 0.0
    return {
        "limit": most,
        "remaining": left,
        "alert": spent >= ALERT * most,
        "until": now_seconds() + left / pace if pace > 0 else None,
    }


def _day_so_far(connection: Any, row: Any, stream: Any) -> list[tuple[str, str | None]]:
    """Status and context of every closed slot of the day; before the stream began: silent."""
    if stream.clock.first_of_day(stream.closed):
        return []
    first = stream.clock.day_ends(stream.closed) - stream.clock.slots
    rows = connection.execute(
        select(OUTPUTS.c.ordinal, OUTPUTS.c.body).where(
            OUTPUTS.c.space == row.space, OUTPUTS.c.uid == row.uid, OUTPUTS.c.ordinal >= first
        )
    )
    known = {ordinal: json.loads(body) for ordinal, body in rows}
    silent = {"status": "silent", "context": None}
    told = [known.get(each, silent) for each in range(first, stream.closed)]
    return [(each["status"], each["context"]) for each in told]
