"""People, their streams and grants, and everybody's keys."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import delete, insert, select

from shoal.gateway.keys import DEVICE, OPERATOR, PERSON, Caller, ask_for_key, listed, revoke
from shoal.gateway.problems import missing, not_understood
from shoal.gateway.routes import answers
from shoal.gateway.routes.bodies import (
    GrantBody,
    House,
    Idempotency,
    LimitBody,
    Name,
    NewKey,
    PersonPath,
    Stream,
    StreamBody,
    Who,
)
from shoal.gateway.sight import grant, grants, overview, withdraw
from shoal.gateway.store import check_count
from shoal.gateway.streams import (
    Address,
    forget,
    instant,
    loaded,
    now_seconds,
    open_stream,
    pause,
    row_of,
)
from shoal.gateway.tables import GRANTS, KEYS, PEOPLE, STREAMS

router = APIRouter(prefix="/v1", tags=["people"])


@router.get("/people", response_model=answers.People)
async def people(house: House, who: Who, after: str = "", limit: int = 100) -> dict[str, Any]:
    """The people of the space, by name, a page at a time. For operators."""
    who.must_be(OPERATOR)
    wanted = (
        select(PEOPLE.c.person)
        .where(PEOPLE.c.space == who.space, PEOPLE.c.person > after[:64].replace("\0", ""))
        .order_by(PEOPLE.c.person)
        .limit(min(max(1, limit), 1000))
    )
    found = await house.store.reading(who.space, lambda c: [row[0] for row in c.execute(wanted)])
    return {"people": found}


@router.put(
    "/people/{person}",
    status_code=201,
    response_model=answers.Person,
    responses={200: {"model": answers.Person, "description": "known already"}},
)
async def put_person(
    house: House, who: Who, person: PersonPath, response: Response
) -> dict[str, Any]:
    """Somebody whose streams the space will hold. For operators."""
    who.must_be(OPERATOR)

    def work(connection: Any) -> bool:
        own = PEOPLE.c.space == who.space
        known = select(PEOPLE.c.person).where(own, PEOPLE.c.person == person)
        if connection.execute(known).first() is not None:
            return False
        check_count(connection, house.settings, "people", own)
        values = {"space": who.space, "person": person, "made": time.time()}
        connection.execute(insert(PEOPLE), values)
        return True

    response.status_code = 201 if await house.store.writing(who.space, work) else 200
    return {"person": person}


@router.get("/people/{person}", response_model=answers.PersonTold)
async def get_person(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """A person's streams: where each stands, who saw it, what was refused.

    The person sees who saw what; an operator sees where streams stand.
    """
    _own_or_operator(who, person)

    def work(connection: Any) -> Any:
        _check_there(connection, who.space, person)
        told = overview(connection, who.space, [person], by=who.kind)
        return told[person]

    streams = await house.store.reading(who.space, work)
    return {"person": person, "streams": streams}


@router.delete("/people/{person}", status_code=204)
async def delete_person(house: House, who: Who, person: PersonPath) -> None:
    """Forget a person: streams, grants and keys. The ledger keeps what was charged."""
    _own_or_operator(who, person)

    def work(connection: Any) -> None:
        _check_there(connection, who.space, person)
        names = connection.execute(
            select(STREAMS.c.stream).where(
                STREAMS.c.space == who.space,
                STREAMS.c.person == person,
                STREAMS.c.forgotten.is_(None),
            )
        ).scalars()
        for name in names.all():
            forget(house.rooms, connection, Address(who.space, person, name), now_seconds())
        for table in (GRANTS, PEOPLE):
            connection.execute(
                delete(table).where(table.c.space == who.space, table.c.person == person)
            )
        connection.execute(
            delete(KEYS).where(
                KEYS.c.space == who.space,
                KEYS.c.holder == person,
                KEYS.c.kind.in_(("person", "device")),
            )
        )

    await house.store.writing(who.space, work)
    house.remembered.forget()


@router.put(
    "/people/{person}/streams/{stream}",
    status_code=201,
    response_model=answers.StreamNamed,
    responses={200: {"model": answers.StreamNamed, "description": "changed, or as it was"}},
)
async def put_stream(
    house: House, who: Who, where: Stream, body: StreamBody, response: Response
) -> dict[str, Any]:
    """Begin a stream, or give it another plan from the end of its day or step on.

    The person may; an operator may begin one, not change it.
    """
    _own_or_operator(who, where.person)

    def work(connection: Any) -> bool:
        _check_there(connection, who.space, where.person)
        if who.kind == OPERATOR and _is_open(connection, where):
            raise missing()
        return open_stream(house.rooms, connection, where, body.model_dump(), now_seconds())

    new = await house.store.writing(who.space, work)
    response.status_code = 201 if new else 200
    return {"stream": where.stream, "plan": body.plan}


@router.delete("/people/{person}/streams/{stream}", response_model=answers.ClosedUntil)
async def delete_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Forget outputs and state; the name stays closed until the day is over. For the person."""
    _own(who, where.person)
    until = await house.store.writing(
        who.space, lambda c: forget(house.rooms, c, where, now_seconds())
    )
    return {"closed_until": until}


@router.post("/people/{person}/streams/{stream}/pause", response_model=answers.From)
async def pause_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Read nothing from the next slot on, which everybody can see. For the person."""
    return await _paused(house, who, where, resume=False)


@router.post("/people/{person}/streams/{stream}/resume", response_model=answers.From)
async def resume_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Read again from the next slot on. For the person."""
    return await _paused(house, who, where, resume=True)


@router.put("/people/{person}/streams/{stream}/limit", response_model=answers.LimitTold)
async def put_limit(house: House, who: Who, where: Stream, body: LimitBody) -> dict[str, Any]:
    """The most that may be spent on a stream: on each of its days, or ever.

    A stream of places has no days: either is for as long as it lives. For operators and the person.
    """
    _own_or_operator(who, where.person)
    stream = await house.store.reading(
        who.space, lambda c: loaded(house.rooms, c, row_of(c, where))
    )
    await house.store.limit(
        where.subject, stream.plan, body.epsilon, body.unit, ever=body.over == "lifetime"
    )
    return {"unit": body.unit, "amount": body.epsilon, "over": body.over}


@router.put("/people/{person}/grants/{application}", response_model=answers.Granted)
async def put_grant(
    house: House, who: Who, person: PersonPath, application: Name, body: GrantBody
) -> dict[str, Any]:
    """Let an application see outputs, from now on unless `since` says otherwise. For the person."""
    _own(who, person)
    asked = body.model_dump()
    for name in ("since", "until"):
        asked[name] = None if asked[name] is None else instant(asked[name])
    since = now_seconds() if asked["since"] is None else asked["since"]
    if asked["until"] is not None and asked["until"] <= since:
        raise not_understood(
            "until is not after since, which is now when left out; name a later one"
        )
    where = Address(who.space, person, "")
    await house.store.writing(who.space, lambda c: grant(c, where, application, asked))
    return {"application": application}


@router.get("/people/{person}/grants", response_model=answers.Grants)
async def get_grants(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """What a person granted to whom. For the person."""
    _own(who, person)
    return {"grants": await house.store.reading(who.space, lambda c: grants(c, who.space, person))}


@router.delete("/people/{person}/grants/{application}", status_code=204)
async def delete_grant(house: House, who: Who, person: PersonPath, application: Name) -> None:
    """Take a grant back; open connections end at their next heartbeat. For the person."""
    _own(who, person)
    where = Address(who.space, person, "")
    if not await house.store.writing(who.space, lambda c: withdraw(c, where, application)):
        raise missing()


@router.post("/keys", status_code=201, response_model=answers.KeyMade)
async def post_key(
    house: House, who: Who, body: NewKey, idempotency_key: Idempotency = None
) -> dict[str, Any]:
    """Make a key; its text is in this answer and nowhere else, so it is never replayed."""
    who.must_be(OPERATOR, PERSON)
    asked = body.model_dump()
    asked["expires"] = None if body.expires is None else instant(body.expires)
    if asked["expires"] is not None and asked["expires"] <= now_seconds():
        raise not_understood("expires is past; leave it out, or name a time to come")

    def work(connection: Any) -> Any:
        house.answers.once(connection, who, idempotency_key, "a key")
        holder = who.holder if body.kind == DEVICE else body.holder or ""
        same = (KEYS.c.space == who.space, KEYS.c.kind == body.kind, KEYS.c.holder == holder)
        check_count(connection, house.settings, "keys", *same, KEYS.c.revoked.is_(None))
        return ask_for_key(connection, who, asked)

    made = await house.store.writing(who.space, work)
    return {"key": made.key, "token": made.token}


@router.get("/keys", response_model=answers.Keys)
async def get_keys(house: House, who: Who) -> dict[str, Any]:
    """The keys this caller may take back, without their secrets."""
    who.must_be(OPERATOR, PERSON)
    return {"keys": await house.store.reading(who.space, lambda c: listed(c, who))}


@router.delete("/keys/{key}", status_code=204)
async def delete_key(house: House, who: Who, key: Name) -> None:
    """Take a key back, at once in this worker and within a second in others."""
    who.must_be(OPERATOR, PERSON)
    await house.store.writing(who.space, lambda c: revoke(c, who, key))
    house.remembered.forget()


async def _paused(house: Any, who: Caller, where: Address, *, resume: bool) -> dict[str, Any]:
    _own(who, where.person)
    first = await house.store.writing(
        who.space, lambda c: pause(house.rooms, c, where, now_seconds(), resume=resume)
    )
    return {"from": first}


def _own(who: Caller, person: str) -> None:
    who.must_be(PERSON)
    if not who.owns(person):
        raise missing()


def _own_or_operator(who: Caller, person: str) -> None:
    who.must_be(PERSON, OPERATOR)
    if who.kind == PERSON and not who.owns(person):
        raise missing()


def _check_there(connection: Any, space: str, person: str) -> None:
    known = select(PEOPLE.c.person).where(PEOPLE.c.space == space, PEOPLE.c.person == person)
    if connection.execute(known).first() is None:
        raise missing()


def _is_open(connection: Any, where: Address) -> bool:
    found = select(STREAMS.c.uid).where(
        STREAMS.c.space == where.space,
        STREAMS.c.person == where.person,
        STREAMS.c.stream == where.stream,
        STREAMS.c.forgotten.is_(None),
    )
    return connection.execute(found).first() is not None
