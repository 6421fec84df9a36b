"""Routes of what a person sees of their own streams: beliefs of adversaries, and refusals."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query
from sqlalchemy import select

from shoal.core.plan import Plan
from shoal.gateway.machines import context_curves, heat_map
from shoal.gateway.problems import Problem
from shoal.gateway.routes import bodies
from shoal.gateway.routes.bodies import House, Stream, Who
from shoal.gateway.routes.people import check_own
from shoal.gateway.seen import given_of
from shoal.gateway.sight import refusals
from shoal.gateway.streams import load_stream, row_of, stored_plan
from shoal.gateway.tables import OUTPUTS

router = APIRouter(prefix="/v1", tags=["people"])


@router.get(
    "/people/{person}/streams/{stream}/beliefs",
    response_model=bodies.Beliefs,
    response_model_exclude_unset=True,
)
async def beliefs(
    house: House,
    who: Who,
    where: Stream,
    day: bodies.DayName = None,
    application: bodies.SeenAs = None,
) -> dict[str, Any]:
    """What an adversary believes after the last closed slot, from public outputs alone.

    Places: a heat map. Contexts: the belief in every context at every slot of a day, before and
    after: of the running day, or of any day that is kept. With `application` from what it was
    given. For the person.
    """
    check_own(who, where.person)

    def work(connection: Any) -> dict[str, Any]:
        """Return the adversary's beliefs about the stream as JSON; refuse streams of counts."""
        row = row_of(connection, where)
        stream = load_stream(house.rooms, connection, row)
        if stream.kind.name == "counts":
            raise Problem(
                409,
                "what may be believed of an entry that was counted is not drawn here; its plan "
                "bounds it, and `shoal attack` looks at single releases",
            )
        if stream.kind.name == "places":
            if day is not None or application is not None:
                raise Problem(
                    409,
                    "day or application is given; a belief in places is kept after the last closed "
                    "slot only, from all outputs",
                )
            return {"kind": "places", "places": heat_map(stream.plan, stream.standing.seen)}
        found = _kept_day(house, connection, row, stream, day)
        told: dict[str, Any] = {"kind": "contexts", "day": found.name}
        if application is not None:
            told["given"] = given = given_of(connection, row, application, found.first, found.last)
            end = -1 if given["last"] is None else given["last"]
            found = found._replace(shown=found.shown[: max(0, end + 1 - found.first)])
        return told | context_curves(found.plan, found.shown)

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


class KeptDay(NamedTuple):
    """A day of contexts: name, plan, ids of its first and last closed slot, and what they show.

    `shown` has status and context of each slot from the first of the day.
    """

    name: str
    plan: Plan
    first: int
    last: int
    shown: list[tuple[str, str | None]]


def _kept_day(house: Any, connection: Any, row: Any, stream: Any, day: str | None) -> KeptDay:
    """Return a day whose outputs are kept, the running one unless it is named."""
    clock = stream.clock
    if day is None:
        fresh = clock.first_of_day(stream.closed)
        first = stream.closed if fresh else clock.day_ends(stream.closed) - clock.slots
        wanted, name = OUTPUTS.c.ordinal >= first, clock.slot(stream.closed).day
    else:
        wanted, name = OUTPUTS.c.body.contains(f'"day":"{day}"', autoescape=True), day
    rows = select(OUTPUTS.c.ordinal, OUTPUTS.c.body).filter_by(space=row.space, uid=row.uid)
    found = connection.execute(rows.where(wanted).order_by(OUTPUTS.c.ordinal)).all()
    outputs = [json.loads(body) for _, body in found]
    if day is None:
        plan = stream.plan
    elif not outputs:
        raise Problem(409, f"no output of {day} is kept; name a day as outputs name it")
    else:
        plan = stored_plan(house.rooms, connection, row.space, outputs[0]["plan"])
        first = found[0].ordinal - outputs[0]["slot"]
    if outputs and _was_longer(row, outputs[0]):
        raise Problem(409, f"of {name} only a part is kept, and beliefs need all of it")
    before = outputs[0]["slot"] if outputs else 0  # the stream began later: silent for everybody
    shown: list[tuple[str, str | None]] = [("silent", None)] * before
    shown += [(each["status"], each["context"]) for each in outputs]
    return KeptDay(name, plan, first, first + len(shown) - 1, shown)


def _was_longer(row: Any, output: dict[str, Any]) -> bool:
    """Whether a slot of its day was closed before this output, and is not kept any more."""
    opens, ends = (datetime.fromisoformat(output[name]).timestamp() for name in ("opens", "ends"))
    return bool(output["slot"] and row.made < opens - (ends - opens))
