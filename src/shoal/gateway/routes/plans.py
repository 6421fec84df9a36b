"""Plans: made by jobs, estimated without being kept, looked at; and single releases."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from sqlalchemy import select

from shoal.core.plan import Sampler
from shoal.core.registry import dumps
from shoal.gateway.keys import APPLICATION, OPERATOR, PERSON
from shoal.gateway.machines import plan_of
from shoal.gateway.planning.calibration import (
    DONE,
    FAILED,
    calibrate_in_child,
    check_plan_request,
    job_state,
    new_job,
)
from shoal.gateway.problems import missing, not_understood
from shoal.gateway.routes import bodies
from shoal.gateway.routes.bodies import House, Idempotency, Name, RequestBody, Text, Who
from shoal.gateway.streams import check_no_stream, release_subject
from shoal.gateway.tables import PLANS

router = APIRouter(prefix="/v1", tags=["plans"])

DOCUMENT = Annotated[str, Field(max_length=100_000_000)]  # SHOAL_BODY_BYTES is the limit
PROGRESS_SECONDS = 0.5  # seconds between two looks at a job's progress


class PlanBody(RequestBody):
    """A spec, as TOML text or as the object that text stands for, or a plan that was made before.

    A spec names no files and has no [data]. Its model may be beside it, as `shoal fit` stores one.
    """

    spec: DOCUMENT | dict[str, Any] | None = None
    model: DOCUMENT | dict[str, Any] | None = Field(
        None, description="a stored model, in place of the spec's own"
    )
    plan: DOCUMENT | dict[str, Any] | None = Field(
        None, description="a plan that `shoal plan --save` stored; it is checked again"
    )

    def wanted(self) -> str:
        """Return what a job is to do, as JSON."""
        return check_plan_request(self.spec, self.model, self.plan)


class ReleaseBody(RequestBody):
    """Data for one release under a plan that is not a stream; it is not stored."""

    plan: Name
    data: list[Any] | dict[str, Any]
    subject: Text = Field("", description="whose data it is; of a person's own key, their own")
    period: Text = ""
    independent: bool = Field(
        False, description="the data tells nothing of what this person's streams are about"
    )


@router.post("/plans", status_code=202, response_model=bodies.JobMade)
async def post_plan(
    house: House, who: Who, body: PlanBody, response: Response, idempotency_key: Idempotency = None
) -> dict[str, Any]:
    """Calibrate a spec, or check a stored plan, in the background. For operators."""
    who.must_be(OPERATOR)
    spec = body.wanted()

    def work(connection: Any) -> dict[str, Any]:
        """Store a job for the spec, or return the stored response of the same Idempotency-Key."""
        before = house.answers.before(connection, who, idempotency_key, spec)
        if before is not None:
            return dict(before)
        made = {"job": new_job(connection, house.settings, who.space, spec)}
        house.answers.keep(connection, who, idempotency_key, spec, made)
        return made

    made: dict[str, Any] = await house.store.writing(who.space, work)
    house.jobs.hurry()
    response.headers["Location"] = f"/v1/jobs/{made['job']}"
    return made


@router.post("/plans/estimate", response_model=bodies.PlanTold, response_model_exclude_unset=True)
async def estimate(house: House, who: Who, body: PlanBody) -> dict[str, Any]:
    """What a spec would give, stored nowhere: error, cost, what ordinary DP leaks, a dry run."""
    who.must_be(OPERATOR)
    spec = body.wanted()
    async with house.estimating:
        found = await calibrate_in_child(spec, house.settings, estimate=True)
    return {"plan": found["plan"], **found["told"]}


@router.get("/jobs/{job}", response_model=bodies.JobTold)
async def get_job(house: House, who: Who, job: Name) -> dict[str, Any]:
    """Where a job stands. For operators."""
    who.must_be(OPERATOR)
    state: dict[str, Any] = await house.store.reading(
        who.space, partial(job_state, space=who.space, job=job)
    )
    return state


@router.get("/jobs/{job}/events", responses={200: {"content": {"text/event-stream": {}}}})
async def job_events(house: House, who: Who, job: Name) -> Response:
    """A job's progress as server-sent events, up to its end. For operators."""
    who.must_be(OPERATOR)
    look = partial(job_state, space=who.space, job=job)
    first = await house.store.reading(who.space, look)

    async def frames() -> AsyncIterator[str]:
        """Yield a server-sent event at every change of the job, until it is done or failed."""
        state, last = first, None
        while not house.hub.closing:
            if state != last:
                yield f"event: progress\ndata: {json.dumps(state)}\n\n"
            if state["state"] in (DONE, FAILED):
                return
            await asyncio.sleep(PROGRESS_SECONDS)
            state, last = await house.store.reading(who.space, look), state

    return StreamingResponse(frames(), media_type="text/event-stream")


@router.get("/plans", response_model=bodies.Plans)
async def get_plans(house: House, who: Who) -> dict[str, Any]:
    """The plans of the space. For operators and people."""
    who.must_be(OPERATOR, PERSON)
    wanted = select(PLANS.c.plan, PLANS.c.kind).filter_by(space=who.space)
    found = await house.store.reading(
        who.space, lambda c: [row._asdict() for row in c.execute(wanted.order_by(PLANS.c.made))]
    )
    return {"plans": found}


@router.get("/plans/{plan}", response_model=bodies.PlanTold, response_model_exclude_unset=True)
async def get_plan(house: House, who: Who, plan: Name) -> dict[str, Any]:
    """A plan: its promise, its explanation, all mechanisms side by side. Plans are no secret.

    `assumes` has what the promise assumes that everybody knows: the models, as they are stored.
    """
    who.must_be(OPERATOR, PERSON, APPLICATION)
    row = await house.store.reading(who.space, lambda c: _plan_row(c, who.space, plan))
    state = {"plan": plan, **json.loads(row.told)}
    return state | {"assumes": await asyncio.to_thread(assumptions_of, row.document)}


def assumptions_of(document: str) -> dict[str, Any]:
    """Return what the promise of a stored plan assumes that applications know."""
    plan = plan_of(document)
    models = [json.loads(dumps(model, indent=None)) for model in plan.task.family]
    known = (
        "this model" if len(models) == 1 else f"these {len(models)} models, one of which is true"
    )
    return {
        "sentence": f"The promise is about {plan.guarantee.over}. It covers applications "
        f"that know {known}, the plan and all outputs before. One that knows more is not covered.",
        "models": models,
    }


@router.post("/releases", response_model=bodies.Released)
async def release(
    house: House, who: Who, body: ReleaseBody, idempotency_key: Idempotency = None
) -> dict[str, Any]:
    """One release of the data in the request, charged before it is drawn.

    The same Idempotency-Key gives the same release again; no trace of the data is kept. For
    operators, who name a subject, and for people about themselves. Streams have accounts of their
    own, so somebody who has one must say that the data is independent of it.
    """
    who.must_be(OPERATOR, PERSON)
    name = body.subject or (who.holder if who.kind == PERSON else "")
    if not name:
        raise not_understood("subject is missing; say whose data it is, the ledger needs to know")
    if who.kind == PERSON and name != who.holder:
        raise missing()
    subject = release_subject(who.space, name)
    key = None if idempotency_key is None else f"{who.key}/{idempotency_key}"

    def work(connection: Any) -> Any:
        plan = plan_of(_plan_row(connection, who.space, body.plan).document)
        if not isinstance(plan.body, Sampler):
            raise not_understood("plan is for a stream; push readings to a stream under it")
        if not body.independent:
            check_no_stream(connection, who.space, name)
        ledger = house.store.charging(connection)
        return plan.release(body.data, ledger=ledger, subject=subject, period=body.period, key=key)

    made = await house.store.writing(who.space, work)
    return {
        "values": made.as_dict(),
        "unit": made.answer.unit,
        "mechanism": made.mechanism,
        "guarantee": {"notion": made.guarantee.notion, "amount": str(made.guarantee.amount)},
        "error": None if made.error is None else made.error.describe(),
    }


def _plan_row(connection: Any, space: str, plan: str) -> Any:
    row = connection.execute(select(PLANS).filter_by(space=space, plan=plan)).first()
    if row is None:
        raise missing()
    return row
