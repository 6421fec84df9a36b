"""What a person sees about themselves, and an operator of their space: what was spent and refused,
where streams stand; and, for the person alone, what may be believed by now.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import select

from shoal.gateway.beliefs import context_curves, heat_map
from shoal.gateway.keys import OPERATOR, PERSON
from shoal.gateway.machines import SHOWN, SUPPRESSED
from shoal.gateway.problems import Problem, missing
from shoal.gateway.routes import answers
from shoal.gateway.routes.bodies import House, PersonPath, Stream, Who, finite
from shoal.gateway.sight import overview, refusals, totals
from shoal.gateway.streams import Address, loaded, now_seconds, row_of
from shoal.gateway.tables import OUTPUTS, PEOPLE, STREAMS

router = APIRouter(prefix="/v1", tags=["person"])

MOST_PEOPLE = 200  # of one page of the overview
ALERT = 0.8  # of a limit: from there on the budget says so


@router.get(
    "/people/{person}/streams/{stream}/beliefs",
    response_model=answers.Beliefs,
    response_model_exclude_unset=True,
)
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
        if stream.kind.name == "counts":
            raise Problem(
                409,
                "what may be believed of an entry that was counted is not drawn here; its plan "
                "bounds it, and `shoal attack` looks at single releases",
            )
        told = _day_so_far(connection, row, stream)
        return {"kind": "contexts", **context_curves(stream.plan, told)}

    found: dict[str, Any] = await house.store.reading(who.space, work)
    return found


@router.get(
    "/people/{person}/budget", response_model=answers.Budget, response_model_exclude_unset=True
)
async def budget(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """What was spent on each stream up to its last closed slot, what is left, until when.

    For the person, who also sees who saw what, and for operators.
    """
    who.must_be(PERSON, OPERATOR)
    if who.kind == PERSON and not who.owns(person):
        raise missing()

    def work(connection: Any) -> Any:
        known = select(PEOPLE.c.person).where(
            PEOPLE.c.space == who.space, PEOPLE.c.person == person
        )
        if connection.execute(known).first() is None:
            raise missing()
        told = overview(connection, who.space, [person], by=who.kind)[person]
        seen = {each["stream"]: each["seen"] for each in told}
        return _open_streams(house, connection, who.space, [person]), seen

    found, seen = await house.store.reading(who.space, work)
    told = (await _spendings(house, found)).get(person, [])
    return {"person": person, "streams": [each | {"seen": seen[each["stream"]]} for each in told]}


@router.get(
    "/overview",
    tags=["operator"],
    response_model=answers.Overview,
    response_model_exclude_unset=True,
)
async def space_overview(
    house: House,
    who: Who,
    after: Annotated[str, Query(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_PEOPLE)] = 50,
) -> dict[str, Any]:
    """A space at a glance: numbers of the whole, then people with streams, budgets and refusals.

    People by name, a page at a time. No reading, no output and no grant is in it. For operators.
    """
    who.must_be(OPERATOR)

    def work(connection: Any) -> Any:
        named = (
            select(PEOPLE.c.person)
            .where(PEOPLE.c.space == who.space, PEOPLE.c.person > after)
            .order_by(PEOPLE.c.person)
            .limit(limit)
        )
        people = list(connection.execute(named).scalars())
        return (
            totals(connection, who.space, now_seconds()),
            overview(connection, who.space, people, by=who.kind),
            _open_streams(house, connection, who.space, people),
        )

    whole, told, found = await house.store.reading(who.space, work)
    spent = await _spendings(house, found)
    page = [
        {"person": person, "streams": streams, "budget": spent.get(person, [])}
        for person, streams in told.items()
    ]
    last = page[-1]["person"] if len(page) == limit else None
    return {**whole, "connections": house.hub.connections, "page": page, "after": last}


@router.get("/people/{person}/streams/{stream}/refused", response_model=answers.Refusals)
async def refused(
    house: House,
    who: Who,
    where: Stream,
    after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Readings that were refused, by their place in the order: for which slot, and why.

    What they said was never kept. For the person.
    """
    who.must_be(PERSON)
    if not who.owns(where.person):
        raise missing()

    def work(connection: Any) -> Any:
        uid = row_of(connection, where).uid
        return refusals(connection, where.space, uid, after, limit)

    found = await house.store.reading(who.space, work)
    return {"refused": found, "after": found[-1]["place"] if found else after}


def _open_streams(house: Any, connection: Any, space: str, people: Sequence[str]) -> list[Any]:
    """Rows of streams that were not forgotten, each with the stream itself."""
    rows = connection.execute(
        select(STREAMS).where(
            STREAMS.c.space == space,
            STREAMS.c.person.in_(people),
            STREAMS.c.forgotten.is_(None),
        )
    ).all()
    return [(row, loaded(house.rooms, connection, row)) for row in rows]


async def _spendings(house: Any, found: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """The account of every stream, by person."""
    limits = await house.store.limits()
    told: dict[str, list[dict[str, Any]]] = {}
    for row, stream in found:
        told.setdefault(row.person, []).append(await _spending(house, row, stream, limits))
    return told


async def _spending(house: Any, row: Any, stream: Any, limits: Any) -> dict[str, Any]:
    """One stream's account. What was drawn for a slot that is open is not told before it closes."""
    where, promise = Address(row.space, row.person, row.stream), stream.plan.guarantee
    day = stream.clock.slot(max(0, stream.closed - 1)).day
    days, period = row.kind == "contexts", "" if row.kind == "counts" else day
    told: dict[str, Any] = {"stream": row.stream, "kind": row.kind, "period": period}
    told["notion"] = promise.notion
    if days:
        told["each_day"] = str(promise.amount)
        told["rule"] = "days are independent: each keeps its own promise"
    if promise.notion == "delta-privacy":
        return told
    total = await house.store.spent(where.subject, None if days else period)
    charges = 0 if total is None else total.charges
    if days:  # today is charged with its first reading, and counts from its first slot on
        count = charges + (not await house.store.charged(where.subject, day))
    else:
        waiting = sum(status in (SHOWN, SUPPRESSED) for _, status, _, _ in stream.standing.pending)
        count = max(0, charges - waiting)
    share = 0.0 if not count else 1.0 if row.kind == "counts" else count / max(1, charges)
    spent = {
        "epsilon": share * float(promise.amount if total is None else total.amount),
        "eta": share * float((total and total.eta) or 0),
    }
    told |= {"steps": count, "spent": finite(spent["epsilon"])}
    own = [each for each in limits if each.subject in ("*", where.subject)]
    if days:  # a limit on each day is kept by every plan that it let through
        own = [each for each in own if each.period is None]
    if own:
        least = max(own, key=lambda each: spent[each.unit] / max(float(each.amount), 1e-300))
        lived = math.inf if row.kind == "counts" else now_seconds() - row.made
        told |= {"unit": least.unit, **_until(float(least.amount), spent[least.unit], lived)}
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
