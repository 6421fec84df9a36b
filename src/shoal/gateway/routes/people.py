"""Routes of people, streams, grants, keys and budgets; `person` has what only a person sees."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import delete, insert, select

from shoal.core.numbers import finite
from shoal.gateway.copies.head import row_mark
from shoal.gateway.keys import DEVICE, OPERATOR, PERSON, Caller, ask_for_key, keys_of_caller, revoke
from shoal.gateway.machines import SHOWN, SUPPRESSED
from shoal.gateway.problems import missing, not_understood
from shoal.gateway.routes import bodies
from shoal.gateway.routes.bodies import House, Name, PersonPath, Stream, Who
from shoal.gateway.sight import (
    grant,
    grant_mark,
    grants,
    overview,
    totals,
    withdraw,
)
from shoal.gateway.store import check_count
from shoal.gateway.streams import (
    Address,
    forget,
    instant,
    load_stream,
    now_seconds,
    open_stream,
    pause,
    row_of,
)
from shoal.gateway.tables import GRANTS, KEYS, PEOPLE, STREAMS

router = APIRouter(prefix="/v1", tags=["people"])

PEOPLE_A_PAGE = 200  # of one page of the overview
MOST_STEPS_AHEAD = 1_000_000  # a refusal that is further away is not told
ALERT = 0.8  # of a limit: from there on the budget says so


@router.get("/people", response_model=bodies.People)
async def people(house: House, who: Who, after: str = "", limit: int = 100) -> dict[str, Any]:
    """The people of the space, by name, a page at a time. For operators."""
    who.must_be(OPERATOR)
    after, limit = after[:64].replace("\0", ""), min(max(1, limit), 1000)
    work = partial(_page_of_people, space=who.space, after=after, limit=limit)
    return {"people": await house.store.reading(who.space, work)}


@router.put(
    "/people/{person}",
    status_code=201,
    response_model=bodies.Person,
    responses={200: {"model": bodies.Person, "description": "known already"}},
)
async def put_person(
    house: House, who: Who, person: PersonPath, response: Response
) -> dict[str, Any]:
    """A person whose streams the space will hold. For operators."""
    who.must_be(OPERATOR)

    def work(connection: Any) -> bool:
        """Insert the person; return False, without a change, if the person exists."""
        named = {"space": who.space, "person": person}
        if connection.execute(select(PEOPLE).filter_by(**named)).first() is not None:
            return False
        check_count(connection, house.settings, "people", space=who.space)
        connection.execute(insert(PEOPLE), {**named, "made": time.time()})
        return True

    response.status_code = 201 if await house.store.writing(who.space, work) else 200
    return {"person": person}


@router.get("/people/{person}", response_model=bodies.PersonTold)
async def get_person(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """A person's streams: where each stands, who saw it, what was refused.

    The person sees who saw what; an operator sees where streams stand.
    """
    _own_or_operator(who, person)

    def work(connection: Any) -> Any:
        _check_there(connection, who.space, person)
        return overview(connection, who.space, [person], by=who.kind)[person]

    return {"person": person, "streams": await house.store.reading(who.space, work)}


@router.delete("/people/{person}", status_code=204)
async def delete_person(house: House, who: Who, person: PersonPath) -> None:
    """Forget a person: streams, grants and keys. The ledger keeps what was charged."""
    _own_or_operator(who, person)

    def work(connection: Any) -> None:
        """Delete the person with all streams, grants and keys, and note the withdrawals."""
        _check_there(connection, who.space, person)
        named = {"space": who.space, "person": person}
        names = select(STREAMS.c.stream).filter_by(**named, forgotten=None)
        for name in connection.execute(names).scalars().all():
            forget(house.rooms, connection, Address(who.space, person, name), now_seconds())
        own = KEYS.c.kind.in_((PERSON, DEVICE))
        held = {"space": who.space, "holder": person}
        house.store.head.note_withdrawn(_marks_of(connection, named, held, own))
        for table in (GRANTS, PEOPLE):
            connection.execute(delete(table).filter_by(**named))
        connection.execute(delete(KEYS).filter_by(**held).where(own))

    await house.store.writing(who.space, work)
    house.remembered.forget()


@router.put(
    "/people/{person}/streams/{stream}",
    status_code=201,
    response_model=bodies.StreamNamed,
    responses={200: {"model": bodies.StreamNamed, "description": "changed, or as it was"}},
)
async def put_stream(
    house: House, who: Who, where: Stream, body: bodies.StreamBody, response: Response
) -> dict[str, Any]:
    """Begin a stream, or give it another plan from the end of its day or step on.

    The person may; an operator may begin one, not change it.
    """
    _own_or_operator(who, where.person)
    house.watch.check()

    def work(connection: Any) -> bool:
        _check_there(connection, who.space, where.person)
        if who.kind == OPERATOR and _is_open(connection, where):
            raise missing()
        return open_stream(house.rooms, connection, where, body.model_dump(), now_seconds())

    response.status_code = 201 if await house.store.writing(who.space, work) else 200
    return {"stream": where.stream, "plan": body.plan}


@router.delete("/people/{person}/streams/{stream}", response_model=bodies.ClosedUntil)
async def delete_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Forget outputs and state; the name stays closed until the day is over. For the person."""
    check_own(who, where.person)
    house.watch.check()
    until = await house.store.writing(
        who.space, lambda c: forget(house.rooms, c, where, now_seconds())
    )
    return {"closed_until": until}


@router.post("/people/{person}/streams/{stream}/pause", response_model=bodies.From)
async def pause_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Read nothing from the next slot on; the pause is public. For the person."""
    return await _pause_or_resume(house, who, where, resume=False)


@router.post("/people/{person}/streams/{stream}/resume", response_model=bodies.From)
async def resume_stream(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """Read again from the next slot on. For the person."""
    return await _pause_or_resume(house, who, where, resume=True)


@router.put("/people/{person}/streams/{stream}/limit", response_model=bodies.LimitTold)
async def put_limit(
    house: House, who: Who, where: Stream, body: bodies.LimitBody
) -> dict[str, Any]:
    """The most that may be spent on a stream: on each of its days, or ever.

    A stream of places has no days: either is for as long as it lives. For operators and the person.
    """
    _own_or_operator(who, where.person)
    stream = await house.store.reading(
        who.space, lambda c: load_stream(house.rooms, c, row_of(c, where))
    )
    await house.store.limit(
        where.subject, stream.plan, body.epsilon, body.unit, ever=body.over == "lifetime"
    )
    return {"unit": body.unit, "amount": body.epsilon, "over": body.over}


@router.put("/people/{person}/grants/{application}", response_model=bodies.Granted)
async def put_grant(
    house: House, who: Who, person: PersonPath, application: Name, body: bodies.GrantBody
) -> dict[str, Any]:
    """Let an application see outputs, from now on unless `since` says otherwise. For the person."""
    check_own(who, person)
    asked = body.model_dump()
    for name in ("since", "until"):
        asked[name] = None if asked[name] is None else instant(asked[name])
    since = now_seconds() if asked["since"] is None else asked["since"]
    if asked["until"] is not None and asked["until"] <= since:
        raise not_understood(
            "until is not after since, which is now when left out; name a later one"
        )
    where = Address(who.space, person, "")
    await house.store.writing(
        who.space, lambda c: grant(c, house.store.head, where, application, asked)
    )
    return {"application": application}


@router.get("/people/{person}/grants", response_model=bodies.Grants)
async def get_grants(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """What a person granted to whom. For the person."""
    check_own(who, person)
    return {"grants": await house.store.reading(who.space, lambda c: grants(c, who.space, person))}


@router.delete("/people/{person}/grants/{application}", status_code=204)
async def delete_grant(house: House, who: Who, person: PersonPath, application: Name) -> None:
    """Take a grant back; open connections end at their next heartbeat. For the person."""
    check_own(who, person)
    where = Address(who.space, person, "")
    head = house.store.head
    if not await house.store.writing(who.space, lambda c: withdraw(c, head, where, application)):
        raise missing()


@router.post("/keys", status_code=201, response_model=bodies.KeyMade)
async def post_key(
    house: House, who: Who, body: bodies.NewKey, idempotency_key: bodies.Idempotency = None
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
        same = {"space": who.space, "kind": body.kind, "holder": holder, "revoked": None}
        check_count(connection, house.settings, "keys", **same)
        return ask_for_key(connection, who, asked)

    made = await house.store.writing(who.space, work)
    return {"key": made.key, "token": made.token}


@router.get("/keys", response_model=bodies.Keys)
async def get_keys(house: House, who: Who) -> dict[str, Any]:
    """The keys this caller may take back, without their secrets."""
    who.must_be(OPERATOR, PERSON)
    return {"keys": await house.store.reading(who.space, lambda c: keys_of_caller(c, who))}


@router.delete("/keys/{key}", status_code=204)
async def delete_key(house: House, who: Who, key: Name) -> None:
    """Take a key back, at once in this worker and within a second in others."""
    who.must_be(OPERATOR, PERSON)
    await house.store.writing(who.space, lambda c: revoke(c, house.store.head, who, key))
    house.remembered.forget()


@router.get(
    "/people/{person}/budget", response_model=bodies.Budget, response_model_exclude_unset=True
)
async def budget(house: House, who: Who, person: PersonPath) -> dict[str, Any]:
    """What was spent on each stream up to its last closed slot, what is left, until when.

    For the person, who also sees who saw what, and for operators.
    """
    _own_or_operator(who, person)

    def work(connection: Any) -> Any:
        _check_there(connection, who.space, person)
        fields = overview(connection, who.space, [person], by=who.kind)[person]
        seen = {each["stream"]: each["seen"] for each in fields}
        return _open_streams(house, connection, who.space, [person]), seen

    found, seen = await house.store.reading(who.space, work)
    fields = (await _spendings(house, found)).get(person, [])
    return {"person": person, "streams": [each | {"seen": seen[each["stream"]]} for each in fields]}


@router.get(
    "/overview",
    tags=["operator"],
    response_model=bodies.Overview,
    response_model_exclude_unset=True,
)
async def space_overview(
    house: House,
    who: Who,
    after: Annotated[str, Query(max_length=64, pattern=r"^[A-Za-z0-9._-]*$")] = "",
    limit: Annotated[int, Query(ge=1, le=PEOPLE_A_PAGE)] = 50,
) -> dict[str, Any]:
    """A space at a glance: numbers of the whole, then people with streams, budgets and refusals.

    People by name, a page at a time. No reading, no output and no grant is in it. For operators.
    """
    who.must_be(OPERATOR)

    def work(connection: Any) -> Any:
        """Return the totals of the space, one page of people, and its streams by person."""
        people = _page_of_people(connection, who.space, after, limit)
        return (
            totals(connection, who.space, now_seconds()),
            overview(connection, who.space, people, by=who.kind),
            _open_streams(house, connection, who.space, people),
        )

    whole, fields, found = await house.store.reading(who.space, work)
    spent = await _spendings(house, found)
    page = [
        {"person": person, "streams": streams, "budget": spent.get(person, [])}
        for person, streams in fields.items()
    ]
    last = page[-1]["person"] if len(page) == limit else None
    return {**whole, "connections": house.hub.connections, "page": page, "after": last}


def _page_of_people(connection: Any, space: str, after: str, limit: int) -> list[str]:
    """People of a space by name, a page of them."""
    wanted = select(PEOPLE.c.person).filter_by(space=space).where(PEOPLE.c.person > after)
    return list(connection.execute(wanted.order_by(PEOPLE.c.person).limit(limit)).scalars())


def _open_streams(house: Any, connection: Any, space: str, people: Sequence[str]) -> list[Any]:
    """Rows of streams that were not forgotten, each with the stream itself."""
    wanted = select(STREAMS).filter_by(space=space, forgotten=None)
    rows = connection.execute(wanted.where(STREAMS.c.person.in_(people))).all()
    return [(row, load_stream(house.rooms, connection, row)) for row in rows]


async def _spendings(house: Any, found: list[Any]) -> dict[str, list[dict[str, Any]]]:
    """The account of every stream, by person."""
    limits = await house.store.ask_ledger(lambda ledger: ledger.limits())
    fields: dict[str, list[dict[str, Any]]] = {}
    for row, stream in found:
        fields.setdefault(row.person, []).append(await _spending(house, row, stream, limits))
    return fields


async def _spending(house: Any, row: Any, stream: Any, limits: Any) -> dict[str, Any]:
    """One stream's account. What was drawn for a slot that is open is not reported before it
    closes.
    """
    where, promise = Address(row.space, row.person, row.stream), stream.plan.guarantee
    day = stream.clock.slot(max(0, stream.closed - 1)).day
    days, period = row.kind == "contexts", "" if row.kind == "counts" else day
    fields: dict[str, Any] = {"stream": row.stream, "kind": row.kind, "period": period}
    fields["notion"] = promise.notion
    if days:
        fields["each_day"] = str(promise.amount)
        fields["rule"] = "days are independent: each keeps its own promise"
    if promise.notion == "delta-privacy":
        return fields
    over = None if days else period
    total = await house.store.ask_ledger(lambda ledger: ledger.spent(where.subject, over))
    charges = 0 if total is None else total.charges
    if days:  # today is charged with its first reading, and counts from its first slot on
        begun = await house.store.ask_ledger(lambda ledger: ledger.has(where.subject, day))
        count = charges + (not begun)
    else:
        waiting = sum(status in (SHOWN, SUPPRESSED) for _, status, _, _ in stream.standing.pending)
        count = max(0, charges - waiting)
    share = 0.0 if not count else 1.0 if row.kind == "counts" else count / max(1, charges)
    spent = {
        "epsilon": share * float(promise.amount if total is None else total.amount),
        "eta": share * float((total and total.eta) or 0),
    }
    fields |= {"steps": count, "spent": finite(spent["epsilon"])}
    own = [each for each in limits if each.subject in ("*", where.subject)]
    if days:  # a limit on each day is kept by every plan that it let through
        own = [each for each in own if each.period is None]
    if own:
        least = max(own, key=lambda each: spent[each.unit] / max(float(each.amount), 1e-300))
        lived = math.inf if row.kind == "counts" else now_seconds() - row.made
        fields |= {"unit": least.unit, **_until(float(least.amount), spent[least.unit], lived)}
        if row.kind != "counts":  # all steps of a count cost what one does
            first = {"epsilon": float(promise.amount), "eta": math.inf}[least.unit]
            each = spent[least.unit] / count if count else first
            fields |= _refused_from(stream, fields["remaining"], each)
    return fields


def _refused_from(stream: Any, remaining: float, each: float) -> dict[str, Any]:
    """Return the first slot that is refused if all slots from now on are read; {} where unknown.

    `each` is what a step costs, or of a stream with days a day, whose first slot is refused.
    """
    if not 0 < each < math.inf or remaining / each > MOST_STEPS_AHEAD:
        return {}
    clock, left = stream.clock, int(remaining / each * (1 + 1e-9))
    if clock.slots:
        begins = (
            stream.closed if clock.first_of_day(stream.closed) else clock.day_ends(stream.closed)
        )
        ordinal = begins + left * clock.slots
    else:
        ordinal = stream.closed + left
    return {"refused_from": ordinal, "refused_at": clock.slot(ordinal).opens}


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


async def _pause_or_resume(
    house: Any, who: Caller, where: Address, *, resume: bool
) -> dict[str, Any]:
    """Pause or resume a stream of the caller's own, and return the first slot this is about."""
    check_own(who, where.person)
    house.watch.check()
    first = await house.store.writing(
        who.space, lambda c: pause(house.rooms, c, where, now_seconds(), resume=resume)
    )
    return {"from": first}


def check_own(who: Caller, person: str) -> None:
    """Refuse all callers but the person."""
    who.must_be(PERSON)
    if not who.owns(person):
        raise missing()


def _own_or_operator(who: Caller, person: str) -> None:
    who.must_be(PERSON, OPERATOR)
    if who.kind == PERSON and not who.owns(person):
        raise missing()


def _marks_of(connection: Any, named: dict[str, Any], held: dict[str, Any], own: Any) -> list[str]:
    """Return the lines by which a person, their grants and their keys are known once forgotten."""
    people = connection.execute(select(PEOPLE).filter_by(**named)).all()
    granted = connection.execute(select(GRANTS).filter_by(**named)).all()
    keys = connection.execute(select(KEYS.c.key).filter_by(**held).where(own)).scalars()
    return [
        *(row_mark("person", each.space, each.person, each.made) for each in people),
        *map(grant_mark, granted),
        *(row_mark("key", named["space"], key) for key in keys),
    ]


def _check_there(connection: Any, space: str, person: str) -> None:
    known = select(PEOPLE).filter_by(space=space, person=person)
    if connection.execute(known).first() is None:
        raise missing()


def _is_open(connection: Any, where: Address) -> bool:
    found = select(STREAMS.c.uid).filter_by(**where._asdict(), forgotten=None)
    return connection.execute(found).first() is not None
