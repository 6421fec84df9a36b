"""OwnTracks in both its modes: a phone with that app is a device, and sees friends as they were
released.

HTTP: the password is a device key; the user name, if the phone is to see friends, an application
key. MQTT: a bridge knows which topic of a broker is whose, `owntracks/USER/DEVICE` to a device key;
what arrives under another topic is dropped unseen.

    asyncio.run(Bridge("localhost", {"owntracks/ada/phone": key}, gateway_url).run())
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import uuid4

import httpx
from fastapi import APIRouter, Body, Query, Request
from sqlalchemy import select

from shoal.core.errors import InputError
from shoal.gateway.keys import APPLICATION, DEVICE, PREFIX, Caller, basic
from shoal.gateway.problems import Problem, not_understood
from shoal.gateway.routes.bodies import House, ReadingBody, ReadingKey, Who
from shoal.gateway.routes.streams import taken
from shoal.gateway.sight import Sight, latest
from shoal.gateway.streams import Address
from shoal.gateway.tables import GRANTS, STREAMS
from shoal.gateway.telemetry import log

router = APIRouter(tags=["owntracks"])

ENCRYPTED = (
    "the message is encrypted for another phone, and a gateway that cannot read a place cannot "
    "protect it; turn encryption off in the app and rely on TLS"
)


@router.post("/owntracks")
async def owntracks(
    request: Request,
    house: House,
    who: Who,
    message: Annotated[dict[str, Any], Body()],
    stream: Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{1,64}$")] = "places",
    idempotency_key: ReadingKey = None,
) -> list[dict[str, Any]]:
    """Take a location message, and answer with the friends whose places may be seen.

    Messages of other types are taken and ignored, as the app expects. `stream` is the person's
    stream of places.
    """
    who.must_be(DEVICE)
    await push_message(house, who, stream, message, idempotency_key)
    viewer = await _viewer(request, house)
    if viewer is None:
        return []
    cards: list[dict[str, Any]] = await house.store.reading(
        viewer.space, lambda connection: friends(connection, house, viewer)
    )
    return cards


async def push_message(
    house: Any, who: Caller, stream: str, message: dict[str, Any], key: str | None = None
) -> None:
    """Record a location message as a reading; all fields but coordinates and time are dropped."""
    if message.get("_type") == "encrypted":
        raise not_understood(ENCRYPTED)
    if message.get("_type") != "location":
        return
    reading = reading_of(message)
    try:
        await taken(house, who, Address(who.space, who.holder, stream), [reading], key)
    except Problem as problem:
        if problem.status != 404:
            raise  # a phone without a stream of places is no error: it would try again for ever


def reading_of(message: dict[str, Any]) -> ReadingBody:
    """The reading in a location message; refused in words that do not repeat it."""
    lat, lon, at = (message.get(name) for name in ("lat", "lon", "tst"))
    numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (lat, lon)
    )
    if not numbers or not (at is None or isinstance(at, int)):
        raise not_understood("a location message needs numbers lat and lon, and a whole tst")
    try:
        when = None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
        return ReadingBody(lat=lat, lon=lon, at=when)
    except (ValueError, OverflowError, OSError):
        raise not_understood("a location message has coordinates or a time out of range") from None


def friends(connection: Any, house: Any, viewer: Caller) -> list[dict[str, Any]]:
    """A card and a location for everybody who lets this application see places."""
    granted = select(GRANTS).filter_by(space=viewer.space, application=viewer.holder)
    found: list[dict[str, Any]] = []
    for grant in connection.execute(granted).all():
        places = {"kind": "places", "forgotten": None}
        rows = select(STREAMS).filter_by(space=viewer.space, person=grant.person, **places)
        allowed = None if grant.streams is None else json.loads(grant.streams)
        for row in connection.execute(rows).all():
            if allowed is None or row.stream in allowed:
                found += _cards(connection, house, grant, row)
    return found


def _cards(connection: Any, house: Any, grant: Any, row: Any) -> list[dict[str, Any]]:
    """Return the OwnTracks card and location of the latest output that `grant` allows to see.

    Returns an empty list without a location. The access is recorded for the person.
    """
    sight = Sight(row.space, row.uid, grant.application, grant.every, grant.since, grant.until)
    output = latest(connection, sight)
    if output is None:
        return []
    body = json.loads(output.body)
    if "lat" not in body:
        return []
    house.seen.note(sight, [output])
    short = row.person[:2]
    ends = datetime.fromisoformat(body["ends"]).timestamp()
    return [
        {"_type": "card", "name": row.person, "tid": short},
        {
            "_type": "location",
            "tid": short,
            "lat": body["lat"],
            "lon": body["lon"],
            "acc": round(1000 * body["spread"]),
            "tst": int(ends),
        },
    ]


async def _viewer(request: Request, house: Any) -> Caller | None:
    """The application key in the user name, if there is one."""
    kind, _, rest = request.headers.get("authorization", "").partition(" ")
    user = basic(rest)[0] if kind.lower() == "basic" else ""
    if not user.startswith(f"{PREFIX}_"):
        return None
    viewer: Caller = await house.caller(f"Bearer {user}")
    viewer.must_be(APPLICATION)
    return viewer


LONGEST_MESSAGE = 10_000  # bytes of a message
PAUSE = 2.0  # seconds before connecting again


class Bridge:
    """A bridge that forwards messages of an MQTT broker to the gateway's OwnTracks endpoint.

    `keys` maps each topic to the key of its device. No part of a message is kept or logged. A
    message that the gateway cannot take is retried a few times, then dropped: its slot would be
    closed.
    """

    def __init__(
        self,
        broker: str,
        keys: Mapping[str, str],
        gateway: str,
        *,
        port: int = 1883,
        stream: str = "places",
        **login: Any,
    ) -> None:
        """Set up without connecting; `login` goes to aiomqtt.Client. Refuse without aiomqtt."""
        try:
            import aiomqtt
        except ImportError:
            raise InputError("MQTT needs its extra; run: pip install 'shoal[mqtt]'") from None
        self._mqtt = aiomqtt
        self._broker, self._port, self._login = broker, port, login
        self._keys, self._stream = dict(keys), stream
        self._gateway = gateway
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Listen until cancelled; a broken connection is made again."""
        async with httpx.AsyncClient(base_url=self._gateway, timeout=10) as http:
            while True:
                try:
                    await self._listen(http)
                except self._mqtt.MqttError as error:
                    log.warning("the broker is away", error=type(error).__name__)
                    await asyncio.sleep(PAUSE)

    async def _listen(self, http: httpx.AsyncClient) -> None:
        """Subscribe to all topics and forward messages to the gateway until the broker closes.

        Drops messages of unknown topics, above LONGEST_MESSAGE bytes, or without usable content.
        """
        async with self._mqtt.Client(self._broker, self._port, **self._login) as client:
            for topic in self._keys:
                await client.subscribe(topic, qos=1)
            self.connected.set()
            async for message in client.messages:
                key, content = self._keys.get(str(message.topic)), bytes(message.payload)
                if key is not None and len(content) <= LONGEST_MESSAGE:
                    body = stamped_message(content, retained=bool(message.retain))
                    if body is not None:
                        await self._hand_on(http, key, body)

    async def _hand_on(self, http: httpx.AsyncClient, key: str, body: dict[str, Any]) -> None:
        """Send a message until it is answered, at most three times; all tries are one request."""
        headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": uuid4().hex}
        for attempt in range(3):
            try:
                answer = await http.post(
                    "/owntracks", params={"stream": self._stream}, json=body, headers=headers
                )
            except httpx.TransportError:
                await asyncio.sleep(2.0**attempt)
                continue
            if answer.status_code < 500:
                if answer.status_code >= 400:
                    log.warning("a message was refused", status=answer.status_code)
                return
            await asyncio.sleep(2.0**attempt)


def stamped_message(content: bytes, *, retained: bool) -> dict[str, Any] | None:
    """Return a message with its time in `tst`, or None for one that cannot be handed on.

    A message without a time gets the current time, before the first try. A broker repeats retained
    messages to every new connection, so a retained one without a time is dropped.
    """
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        log.warning("a message is no JSON object")
        return None
    if body.get("tst") is None:
        if retained:
            log.warning("a retained message has no time")
            return None
        body["tst"] = int(time.time())
    return body
