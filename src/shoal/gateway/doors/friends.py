"""Friends for OwnTracks: cards and places of people who let an application see them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sqlalchemy import select

from shoal.gateway.keys import Caller
from shoal.gateway.sight import Sight, latest
from shoal.gateway.tables import GRANTS, STREAMS


def friends(connection: Any, house: Any, viewer: Caller) -> list[dict[str, Any]]:
    """A card and a location for each person who lets this application see places."""
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
