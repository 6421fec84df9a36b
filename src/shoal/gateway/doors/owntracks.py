"""OwnTracks over HTTP: a phone with that app is a device, and sees friends as they were released.

In the app: the password is a device key; the user name, if the phone is to see friends, an
application key.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request

from shoal.gateway.doors.door import Door, position
from shoal.gateway.doors.friends import friends
from shoal.gateway.keys import APPLICATION, PREFIX, Caller, basic
from shoal.gateway.problems import not_understood
from shoal.gateway.routes.bodies import ReadingBody
from shoal.gateway.streams import now_seconds

ENCRYPTED = (
    "the message is encrypted for another phone, and a gateway that cannot read a place cannot "
    "protect it; turn encryption off in the app and rely on TLS"
)


def read(message: dict[str, Any]) -> list[ReadingBody]:
    """Return the reading of a location message; none of other messages, as the app expects."""
    if message.get("_type") == "encrypted":
        raise not_understood(ENCRYPTED)
    if message.get("_type") != "location":
        return []
    lat, lon, at = (message.get(name) for name in ("lat", "lon", "tst"))
    numbers = all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in (lat, lon)
    )
    if not numbers or not (at is None or isinstance(at, int)):
        raise not_understood("a location message needs numbers lat and lon, and a whole tst")
    found = position(lat, lon, now_seconds() if at is None else at)
    if found is None:
        raise not_understood("a location message has coordinates or a time out of range")
    return [found if at is not None else found.model_copy(update={"at": None})]


async def answer(request: Request, house: Any) -> list[dict[str, Any]]:
    """Return the friends whose places the application in the user name may see."""
    viewer = await _viewer(request, house)
    if viewer is None:
        return []
    cards: list[dict[str, Any]] = await house.store.reading(
        viewer.space, lambda connection: friends(connection, house, viewer)
    )
    return cards


async def _viewer(request: Request, house: Any) -> Caller | None:
    """Return the application whose key is in the user name, if there is one."""
    kind, _, rest = request.headers.get("authorization", "").partition(" ")
    user = basic(rest)[0] if kind.lower() == "basic" else ""
    if not user.startswith(f"{PREFIX}_"):
        return None
    viewer: Caller = await house.caller(f"Bearer {user}")
    viewer.must_be(APPLICATION)
    return viewer


DOOR = Door(
    "/owntracks",
    "Take a location message of the app OwnTracks, and answer with the friends whose places may be "
    "seen. Messages of other types are taken and ignored. For devices.",
    read,
    answer,
)
