"""Overland, an app for phones that sends batches of positions as GeoJSON.

In the app: receiver endpoint `https://shoal.example/overland`, access token a device key. The app
sends a batch again until it gets `{"result": "ok"}`, so positions that cannot be used are left out.
"""

from __future__ import annotations

from typing import Any

from fastapi import Request

from shoal.gateway.doors.door import Door, position
from shoal.gateway.problems import not_understood
from shoal.gateway.routes.bodies import ReadingBody


def read(message: dict[str, Any]) -> list[ReadingBody]:
    """Return the readings of a batch: its points with a time, in the order of the batch."""
    locations = message.get("locations")
    if not isinstance(locations, list):
        raise not_understood("a batch of Overland needs locations, a list of features")
    found = (_reading(each) for each in locations)
    return [each for each in found if each is not None]


def _reading(feature: Any) -> ReadingBody | None:
    """Return the reading of a feature; None for one that is no point with a time."""
    if not isinstance(feature, dict):
        return None
    geometry, properties = feature.get("geometry"), feature.get("properties")
    if not isinstance(geometry, dict) or not isinstance(properties, dict):
        return None
    place = geometry.get("coordinates")
    if geometry.get("type") != "Point" or not isinstance(place, list) or len(place) < 2:
        return None
    return position(place[1], place[0], properties.get("timestamp"))


async def answer(request: Request, house: Any) -> dict[str, str]:
    return {"result": "ok"}


DOOR = Door("/overland", "Take a batch of the app Overland. For devices.", read, answer)
