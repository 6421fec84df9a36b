"""What every door has in common: it reads positions out of a message, and answers as expected.

A door is one path. A device key opens it, and its readings go to the stream that `stream` names.
All readings have a time, so a batch that is sent again falls into slots that were read, or that are
closed: it draws nothing twice. Only coordinates and time of a message are looked at.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request

from shoal.gateway.keys import DEVICE, Caller
from shoal.gateway.problems import Problem
from shoal.gateway.routes.bodies import House, ReadingBody, ReadingKey, Who
from shoal.gateway.routes.streams import take_readings
from shoal.gateway.streams import Address

StreamName = Annotated[str, Query(pattern=r"^[A-Za-z0-9._-]{1,64}$")]


@dataclass(frozen=True, slots=True)
class Door:
    """A path, how its messages are read, and what is answered when their readings are taken.

    `read` returns the readings of a message; it refuses one that it cannot read in words that do
    not repeat it, and leaves out positions that a program would send again for ever.
    """

    path: str
    about: str
    read: Callable[[dict[str, Any]], Sequence[ReadingBody]]
    answer: Callable[[Request, Any], Awaitable[Any]]

    def add_to(self, router: APIRouter) -> None:
        """Add the route of this door."""

        async def enter(
            request: Request,
            house: House,
            who: Who,
            message: Annotated[dict[str, Any], Body()],
            stream: StreamName = "places",
            idempotency_key: ReadingKey = None,
        ) -> Any:
            """Take the readings of a message for the caller's stream, and answer as the application
            expects.
            """
            who.must_be(DEVICE)
            await push(house, who, stream, self.read(message), idempotency_key)
            return await self.answer(request, house)

        name = self.path.strip("/")
        router.add_api_route(
            self.path, enter, methods=["POST"], name=name, description=self.about, tags=["doors"]
        )


async def push(
    house: Any, who: Caller, stream: str, readings: Sequence[ReadingBody], key: str | None = None
) -> None:
    """Take readings of the person whose device this is, as many at once as a request may have.

    A device without that stream is no error: it would send the same again for ever.
    """
    where, most = Address(who.space, who.holder, stream), house.settings.readings
    try:
        for first in range(0, len(readings), most):
            piece = list(readings[first : first + most])
            await take_readings(house, who, where, piece, key if len(readings) <= most else None)
    except Problem as problem:
        if problem.status != 404:
            raise


def position(lat: object, lon: object, at: object) -> ReadingBody | None:
    """Return a reading at coordinates in degrees; None when they or the time are not usable.

    `at` is seconds since 1970, or a text of RFC 3339 or ISO 8601 with a zone.
    """
    degrees, seconds = [_number(each) for each in (lat, lon)], _number(at)
    try:
        when = _parse_time(at) if seconds is None else datetime.fromtimestamp(seconds, UTC)
        found = ReadingBody(lat=degrees[0], lon=degrees[1], at=when.isoformat())
    except (ValueError, OverflowError, OSError):
        return None
    return None if None in degrees else found


def _number(value: object) -> float | None:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if numeric else None  # type: ignore[arg-type]  # it is a number


def _parse_time(text: object) -> datetime:
    """Return the time in a text; ValueError for one without a zone, or none at all."""
    found = datetime.fromisoformat(text) if isinstance(text, str) else None
    if found is None or found.tzinfo is None or not 1970 <= found.year < 3000:
        raise ValueError("no time with a zone")
    return found
