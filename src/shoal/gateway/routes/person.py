"""Routes of what a person sees of their own streams: beliefs of an adversary, and refusals."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import select

from shoal.gateway.machines import context_curves, heat_map
from shoal.gateway.problems import Problem
from shoal.gateway.routes import bodies
from shoal.gateway.routes.bodies import House, Stream, Who
from shoal.gateway.routes.people import check_own
from shoal.gateway.sight import refusals
from shoal.gateway.streams import load_stream, row_of
from shoal.gateway.tables import OUTPUTS

router = APIRouter(prefix="/v1", tags=["people"])


@router.get(
    "/people/{person}/streams/{stream}/beliefs",
    response_model=bodies.Beliefs,
    response_model_exclude_unset=True,
)
async def beliefs(house: House, who: Who, where: Stream) -> dict[str, Any]:
    """What an adversary believes after the last closed slot, from public outputs alone.

    Places: a heat map. Contexts: the belief in every context at every slot of the day, before and
    after. For the person.
    """
    check_own(who, where.person)

    def work(connection: Any) -> dict[str, Any]:
        """Return the adversary's beliefs about the stream as JSON; refuse streams of counts."""
        row = row_of(connection, where)
        stream = load_stream(house.rooms, connection, row)
        if stream.kind.name == "places":
            return {"kind": "places", "places": heat_map(stream.plan, stream.standing.seen)}
        if stream.kind.name == "counts":
            raise Problem(
                409,
                "what may be believed of an entry that was counted is not drawn here; its plan "
                "bounds it, and `shoal attack` looks at single releases",
            )
        curves = context_curves(stream.plan, _day_so_far(connection, row, stream))
        return {"kind": "contexts", **curves}

    found: dict[str, Any] = await house.store.reading(who.space, work)
    return found


@router.get("/people/{person}/streams/{stream}/refused", response_model=bodies.Refusals)
async def refused(
    house: House,
    who: Who,
    where: Stream,
    after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Readings that were refused, by their place in the order: for which slot, and why.

    What they said was never kept. For the person.
    """
    check_own(who, where.person)

    def work(connection: Any) -> Any:
        uid = row_of(connection, where).uid
        return refusals(connection, where.space, uid, after, limit)

    found = await house.store.reading(who.space, work)
    return {"refused": found, "after": found[-1]["place"] if found else after}


def _day_so_far(connection: Any, row: Any, stream: Any) -> list[tuple[str, str | None]]:
    """Status and context of every closed slot of the day; before the stream began: silent."""
    if stream.clock.first_of_day(stream.closed):
        return []
    first = stream.clock.day_ends(stream.closed) - stream.clock.slots
    wanted = select(OUTPUTS.c.ordinal, OUTPUTS.c.body).filter_by(space=row.space, uid=row.uid)
    rows = connection.execute(wanted.where(OUTPUTS.c.ordinal >= first))
    known = {ordinal: json.loads(body) for ordinal, body in rows}
    silent = {"status": "silent", "context": None}
    fields = [known.get(each, silent) for each in range(first, stream.closed)]
    return [(each["status"], each["context"]) for each in fields]
