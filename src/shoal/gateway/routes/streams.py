"""Readings in, outputs out: what devices and applications use."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter, ValidationError

from shoal.core.errors import ShoalError
from shoal.gateway import telemetry
from shoal.gateway.advance import REASONS, Reading
from shoal.gateway.http.guards import problem_from, respond
from shoal.gateway.keys import DEVICE, PERSON, Caller
from shoal.gateway.problems import Problem, missing, not_understood, over_limit
from shoal.gateway.repeats import request_key
from shoal.gateway.rounds import Asked
from shoal.gateway.routes import bodies
from shoal.gateway.routes.bodies import NAME, House, ReadingBody, Stream, Who
from shoal.gateway.sight import latest, page, sight_like, sight_of
from shoal.gateway.streams import Address, instant, now_seconds

router = APIRouter(prefix="/v1/people/{person}/streams/{stream}", tags=["streams"])

READING_LIST: TypeAdapter[list[ReadingBody]] = TypeAdapter(list[ReadingBody])
JSON = "application/json"
DIRECT = re.compile(rf"/v1/people/({NAME[1:-1]})/streams/({NAME[1:-1]})/readings")
# inline, because the body is read here and not by FastAPI: it is what most requests carry
ONE = ReadingBody.model_json_schema()
READINGS = {"anyOf": [ONE, {"type": "array", "items": ONE}], "title": "Readings"}


@router.post(
    "/readings",
    status_code=202,
    responses={202: {"model": bodies.Pushed}},
    openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": READINGS}}}},
)
async def push(
    request: Request,
    person: bodies.PersonPath,
    stream: bodies.StreamPath,
    idempotency_key: bodies.ReadingKey = None,
) -> Response:
    """Take readings of the person whose device this is. Nothing of them is stored.

    The first reading of a slot counts; later ones of the same slot are taken and ignored. What is
    refused is listed with a reason. A request that is repeated under its Idempotency-Key gets the
    answer of the first one, whenever it comes, and changes nothing.
    """
    house, key = request.app.state.gateway, request.headers.get("authorization")
    sent = Sent(person, stream, await request.body(), idempotency_key)
    answer = await push_sent(house, key, sent)
    return Response(answer, 202, media_type=JSON)


class Shortcut:
    """An ASGI layer that takes readings as `push` does, without what FastAPI does around it.

    Most requests carry readings, and half of their time went there. Any unusual request
    goes the long way.
    """

    def __init__(self, app: Any, house: Any) -> None:
        self._app, self._house = app, house

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a POST of readings directly; pass every other request to the application."""
        direct = scope["type"] == "http" and scope["method"] == "POST"
        found = DIRECT.fullmatch(scope["path"]) if direct else None
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = PUSH
        headers = dict(reversed(scope["headers"]))  # of several with one name the first
        key, once = headers.get(b"authorization", b""), headers.get(b"idempotency-key")
        try:
            again = None if once is None else once.decode("latin-1")
            sent = Sent(found[1], found[2], await _whole(receive), again)
            answer = await push_sent(self._house, key.decode("latin-1"), sent)
        except Problem as problem:
            await respond(problem, send)
        except ShoalError as error:
            await respond(problem_from(error), send)
        else:
            head = [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(answer)),
            ]
            await send({"type": "http.response.start", "status": 202, "headers": head})
            await send({"type": "http.response.body", "body": answer})


class Sent(NamedTuple):
    """A request with readings: whose stream, its body, its Idempotency-Key if it has one."""

    person: str
    stream: str
    body: bytes
    key: str | None


async def push_sent(house: Any, authorization: str | None, sent: Sent) -> bytes:
    """What became of the readings in a body, as JSON."""
    who = await house.caller(authorization)
    who.must_be(DEVICE)
    where = Address(who.space, sent.person, sent.stream)
    answer = await take_readings(house, who, where, parse_readings(sent.body), sent.key)
    return json.dumps(answer).encode()


async def _whole(receive: Any) -> bytes:
    """The body of a request; a body that broke off is refused."""
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "the request broke off")
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def take_readings(
    house: Any, who: Caller, where: Address, readings: list[ReadingBody], key: str | None = None
) -> dict[str, Any]:
    """What became of the readings of a device; under a key that came before, once more."""
    if who.holder != where.person:
        raise missing()
    house.watch.check()
    limit = house.settings.readings
    if len(readings) > limit:
        raise over_limit("readings", limit)
    now = now_seconds()
    given = [
        Reading(now if each.at is None else instant(each.at), each.content()) for each in readings
    ]
    canonical = [[each.at, each.content()] for each in readings] if key is not None else []
    once = request_key(who.key, key, canonical)
    reasons = await house.intake.ask(Asked(where, given, now, once))
    dead = [(place, reason) for place, reason in enumerate(reasons) if reason is not None]
    telemetry.READINGS.labels("taken").inc(len(reasons) - len(dead))
    for _, reason in dead:
        telemetry.READINGS.labels(reason).inc()
    return {
        "taken": len(reasons) - len(dead),
        "dead": [{"place": p, "reason": r, "detail": REASONS[r]} for p, r in dead],
    }


@router.get("/now", responses={200: {"model": bodies.Output}})
async def now(house: House, who: Who, where: Stream) -> Response:
    """The output of the last closed slot that the caller may see."""

    def work(connection: Any) -> Any:
        sight = sight_of(connection, who, where)
        return sight, latest(connection, sight)

    sight, output = await house.store.reading(where.space, work)
    if output is None:
        raise Problem(409, "no slot of the stream that this key may see has closed yet")
    house.seen.note(sight, [output])
    return Response(output.body, media_type=JSON)


@router.get("/outputs", responses={200: {"model": bodies.Page}})
async def outputs(
    house: House,
    who: Who,
    where: Stream,
    after: Annotated[int, Query(ge=-1, lt=2**62, description="the last id that is known")] = -1,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 100,
    day: bodies.DayName = None,
    application: bodies.SeenAs = None,
) -> Response:
    """The outputs after an id, oldest first, with the `after` of the next page.

    `day` has those of one day; `application` those that it may see, for the person to look at.
    """
    if application is not None:
        who.must_be(PERSON)

    def work(connection: Any) -> Any:
        sight = sight_of(connection, who, where)
        if application is not None:
            sight = sight_like(connection, where, application)
        return sight, page(connection, sight, after, min(limit, house.settings.page), day)

    sight, found = await house.store.reading(where.space, work)
    house.seen.note(sight, found)
    last = found[-1].ordinal if found else after
    bodies = ",".join(each.body for each in found)
    return Response(f'{{"outputs":[{bodies}],"after":{last}}}', media_type=JSON)


@router.get("/events", responses={200: {"content": {"text/event-stream": {}}}})
async def events(
    request: Request,
    house: House,
    who: Who,
    where: Stream,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
    after: Annotated[int | None, Query(ge=-1, lt=2**62)] = None,
) -> Response:
    """Server-sent events: each output when its slot closes, none twice, none left out.

    Goes on after `Last-Event-ID`, or after `after`; without either from the next slot on.
    """
    begin = _last_seen_id(last_event_id, after)

    def work(connection: Any) -> Any:
        sight = sight_of(connection, who, where)
        newest = latest(connection, sight._replace(every=1, since=None, until=None))
        return sight, -1 if newest is None else newest.ordinal

    sight, newest = await house.store.reading(where.space, work)
    house.hub.admit(who.key)

    async def again() -> Any:
        who_now = await house.caller(request.headers.get("authorization"), fresh=True)
        return await house.store.reading(
            where.space, lambda connection: sight_of(connection, who_now, where)
        )

    first = newest if begin is None else begin
    return StreamingResponse(
        house.hub.follow(sight, first, who.key, again),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def _last_seen_id(last_event_id: str | None, after: int | None) -> int | None:
    """The id a client saw last, -1 before the first; None where it goes on from now."""
    if not last_event_id:
        return after
    if last_event_id == "-1":  # as `after` may be: from the first output on
        return -1
    if not last_event_id.isascii() or not last_event_id.isdigit():
        raise not_understood("Last-Event-ID is no id of an output; leave it out to begin anew")
    return min(int(last_event_id), 2**62)


def parse_readings(content: bytes) -> list[ReadingBody]:
    """The reading in a JSON object, or those in a list of them; refused without repeating it."""
    try:
        if content.lstrip()[:1] == b"[":
            return READING_LIST.validate_json(content)
        return [ReadingBody.model_validate_json(content)]
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(("body", *map(str, first["loc"])))
        raise not_understood(f"{where[:200]}: {first['msg'][:200]}") from None


PUSH = next(route for route in router.routes if getattr(route, "endpoint", None) is push)
