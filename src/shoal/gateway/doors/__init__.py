"""Doors: programs that people already have push positions here in a form of their own.

Each is an adapter that reads positions out of messages (`door.Door`). MQTT has a bridge, which
brings the messages of a broker to the door of OwnTracks.
"""

from __future__ import annotations

from fastapi import APIRouter


def door_router() -> APIRouter:
    """Return the routes of all doors."""
    from shoal.gateway.doors import overland, owntracks, traccar

    router = APIRouter()
    for each in (owntracks, overland, traccar):
        each.DOOR.add_to(router)
    return router
