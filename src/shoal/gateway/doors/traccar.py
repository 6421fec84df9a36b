"""Traccar, a server for trackers, which forwards each position as JSON.

In its configuration: `forward.enable` true, `forward.type` json, `forward.url`
`https://shoal.example/traccar`, `forward.header` `Authorization: Bearer shoal_d_…`. A device key is
one person's, so forward the trackers of that person only.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request

from shoal.gateway.doors.door import Door, position
from shoal.gateway.problems import not_understood
from shoal.gateway.routes.bodies import ReadingBody

TIMES = ("fixTime", "deviceTime")  # of the position itself, then of the message that had it
MILLISECONDS = 1000.0  # in a second: some versions write times as numbers


def read(message: dict[str, Any]) -> list[ReadingBody]:
    """Return the reading of a forwarded position; none where the tracker had no valid fix."""
    given = message.get("position")
    if not isinstance(given, dict):
        raise not_understood("what Traccar forwards needs position, an object")
    if given.get("valid") is False:
        return []
    at = next((given[name] for name in TIMES if given.get(name) is not None), None)
    if isinstance(at, int | float) and not isinstance(at, bool):
        at = at / MILLISECONDS
    found = position(given.get("latitude"), given.get("longitude"), at)
    return [] if found is None else [found]


async def answer(request: Request, house: Any) -> dict[str, str]:
    return {"result": "ok"}


DOOR = Door(
    "/traccar", "Take a position that a Traccar server forwards. For devices.", read, answer
)
