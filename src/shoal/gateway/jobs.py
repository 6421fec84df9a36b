"""Calibrations as jobs in the store: taken by any worker, taken up again when one dies."""

from __future__ import annotations

import asyncio
import json
import secrets
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from shoal.core.errors import ShoalError
from shoal.gateway.calibration import calibrated
from shoal.gateway.logs import log
from shoal.gateway.problems import Problem, missing, problem_of
from shoal.gateway.settings import Settings
from shoal.gateway.store import ALL, Store, check_count
from shoal.gateway.streams import now_seconds
from shoal.gateway.tables import JOBS, PLANS

WAITING, WORKING, DONE, FAILED = "waiting", "working", "done", "failed"
LOST = 30.0  # seconds without a sign after which another worker takes a job up
LOOK = 2.0  # seconds between two looks for jobs that nobody works on


class Jobs:
    """The calibrations of one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def hurry(self) -> None:
        """There is a new job."""
        self._wanted.set()

    async def run(self) -> None:
        """Take up jobs until cancelled."""
        try:
            while True:
                if len(self._tasks) < self._store.settings.plan_jobs:
                    await self._take_one()
                try:
                    await asyncio.wait_for(self._wanted.wait(), LOOK)
                except TimeoutError:
                    continue
                finally:
                    self._wanted.clear()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take_one(self) -> None:
        try:
            row = await self._store.writing(ALL, claim)
        except (Problem, ShoalError) as error:
            log.warning("jobs cannot be read", error=type(error).__name__)
            return
        if row is not None:
            task = asyncio.create_task(self._work(row.space, row.job, row.spec))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._wanted.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("a job failed", error=type(task.exception()).__name__)

    async def _work(self, space: str, job: str, spec: str) -> None:
        settings = self._store.settings
        note = partial(self._note, space, job, WORKING)
        beating = asyncio.create_task(self._beat(space, job))
        try:
            found = await calibrated(
                spec, seconds=settings.plan_seconds, memory=settings.plan_bytes, progress=note
            )
            await self._store.writing(space, partial(finish, space=space, job=job, found=found))
        except Problem as problem:
            await self._note(space, job, FAILED, problem.body())
        except ShoalError as error:
            await self._note(space, job, FAILED, problem_of(error).body())
        finally:
            beating.cancel()

    async def _beat(self, space: str, job: str) -> None:
        while True:
            await asyncio.sleep(LOST / 6)
            await self._store.writing(
                space, lambda c: c.execute(_of(space, job).values(seen=now_seconds()))
            )

    async def _note(self, space: str, job: str, state: str, told: dict[str, Any]) -> None:
        values = {"state": state, "told": json.dumps(told), "seen": now_seconds()}
        await self._store.writing(space, lambda c: c.execute(_of(space, job).values(values)))


def new_job(connection: Connection, settings: Settings, space: str, spec: str) -> str:
    """The name of a job that waits; old ones that are done are forgotten, their plans stay."""
    job, now = secrets.token_hex(8), now_seconds()
    ended, old = JOBS.c.state.in_((DONE, FAILED)), now - settings.idempotent_hours * 3600
    connection.execute(delete(JOBS).where(JOBS.c.space == space, ended, JOBS.c.made < old))
    check_count(connection, settings, "jobs", JOBS.c.space == space, ~ended)
    check_count(connection, settings, "plans", PLANS.c.space == space)
    values = {"space": space, "job": job, "spec": spec, "state": WAITING, "told": "{}"}
    connection.execute(insert(JOBS), {**values, "made": now, "seen": now})
    return job


def claim(connection: Connection) -> Any:
    """A job that waits, or whose worker is gone; now this worker's. None when there is none."""
    now = now_seconds()
    lost = (JOBS.c.state == WORKING) & (JOBS.c.seen < now - LOST)
    wanted = (
        select(JOBS)
        .where(or_(JOBS.c.state == WAITING, lost))
        .order_by(JOBS.c.made)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    row = connection.execute(wanted).first()
    if row is not None:
        connection.execute(_of(row.space, row.job).values(state=WORKING, seen=now))
    return row


def finish(connection: Connection, space: str, job: str, found: dict[str, Any]) -> None:
    """Store the plan and say so, together."""
    keep_plan(connection, space, found)
    told = json.dumps({"plan": found["plan"]})
    connection.execute(_of(space, job).values(state=DONE, told=told, seen=now_seconds()))


def keep_plan(connection: Connection, space: str, found: dict[str, Any]) -> None:
    """Store a plan of a space; one that is there stays."""
    known = select(PLANS.c.plan).where(PLANS.c.space == space, PLANS.c.plan == found["plan"])
    if connection.execute(known).first() is None:
        values = {
            "space": space,
            "plan": found["plan"],
            "kind": found["told"]["kind"],
            "document": found["document"],
            "told": json.dumps(found["told"]),
            "made": now_seconds(),
        }
        connection.execute(insert(PLANS), values)


def job_told(connection: Connection, space: str, job: str) -> dict[str, Any]:
    """Where a job stands."""
    row = connection.execute(select(JOBS).where(JOBS.c.space == space, JOBS.c.job == job)).first()
    if row is None:
        raise missing()
    return {"job": job, "state": row.state, **json.loads(row.told)}


def _of(space: str, job: str) -> Any:
    return update(JOBS).where(JOBS.c.space == space, JOBS.c.job == job)
