"""Calibrations: jobs in the store, taken by any worker and taken up again when one dies.

Each runs in its own process, so a slow, large or stuck one does not stop the service.

The child gets a spec and limits; it sends what it is at, and at the end a plan or a sentence.
Beyond its time it is killed, beyond its memory its allocations fail.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import secrets
import tempfile
import time
import tomllib
from collections.abc import Awaitable, Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from shoal.core.errors import BudgetError, InputError, Refused, ShoalError, SpecError
from shoal.core.numbers import finite
from shoal.gateway.problems import Problem, missing, not_understood, problem_of
from shoal.gateway.settings import Settings
from shoal.gateway.store import ALL, Store, check_count
from shoal.gateway.streams import now_seconds
from shoal.gateway.tables import JOBS, PLANS
from shoal.gateway.telemetry import log

WAITING, WORKING, DONE, FAILED = "waiting", "working", "done", "failed"
LOST = 30.0  # seconds without a sign after which another worker takes a job up
IDLE_SECONDS = 2.0  # seconds between two searches for unclaimed jobs


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
                    await asyncio.wait_for(self._wanted.wait(), IDLE_SECONDS)
                except TimeoutError:
                    continue
                finally:
                    self._wanted.clear()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _take_one(self) -> None:
        """Claim the next waiting job, if any, and start it as a task; log a store that fails."""
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
        """Calibrate one claimed job and store its plan, or the problem that it failed with.

        Heartbeats keep the claim during the work.
        """
        note = partial(self._note, space, job, WORKING)
        beating = asyncio.create_task(self._beat(space, job))
        try:
            found = await calibrate_in_child(spec, self._store.settings, note)
            await self._store.writing(space, partial(finish, space=space, job=job, found=found))
        except (Problem, ShoalError) as error:
            problem = error if isinstance(error, Problem) else problem_of(error)
            await self._note(space, job, FAILED, problem.body())
        finally:
            beating.cancel()

    async def _beat(self, space: str, job: str) -> None:
        while True:
            await asyncio.sleep(LOST / 6)
            await self._store.writing(
                space, lambda c: c.execute(_of(space, job).values(seen=now_seconds()))
            )

    async def _note(self, space: str, job: str, state: str, fields: dict[str, Any]) -> None:
        values = {"state": state, "told": json.dumps(fields), "seen": now_seconds()}
        await self._store.writing(space, lambda c: c.execute(_of(space, job).values(values)))


def new_job(connection: Connection, settings: Settings, space: str, spec: str) -> str:
    """The name of a job that waits; old ones that are done are forgotten, their plans stay."""
    job, now = secrets.token_hex(8), now_seconds()
    ended, old = JOBS.c.state.in_((DONE, FAILED)), now - settings.idempotent_hours * 3600
    connection.execute(delete(JOBS).filter_by(space=space).where(ended, JOBS.c.made < old))
    check_count(connection, settings, "jobs", ~ended, space=space)
    check_count(connection, settings, "plans", space=space)
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
    stored = json.dumps({"plan": found["plan"]})
    connection.execute(_of(space, job).values(state=DONE, told=stored, seen=now_seconds()))


def keep_plan(connection: Connection, space: str, found: dict[str, Any]) -> None:
    """Store a plan of a space; one that is there stays."""
    named, summary = {"space": space, "plan": found["plan"]}, found["told"]
    if connection.execute(select(PLANS.c.plan).filter_by(**named)).first() is None:
        values = {
            "kind": summary["kind"],
            "document": found["document"],
            "told": json.dumps(summary),
        }
        connection.execute(insert(PLANS), {**named, **values, "made": now_seconds()})


def job_state(connection: Connection, space: str, job: str) -> dict[str, Any]:
    """Where a job stands."""
    row = connection.execute(select(JOBS).filter_by(space=space, job=job)).first()
    if row is None:
        raise missing()
    return {"job": job, "state": row.state, **json.loads(row.told)}


def _of(space: str, job: str) -> Any:
    return update(JOBS).filter_by(space=space, job=job)


Progress = Callable[[dict[str, Any]], Awaitable[None]]

DRY_RUN_STEPS = 16  # of a dry run
DEEPEST = 50  # lists and tables within each other: no section of a spec is a fifth as deep
TOO_DEEP = f"the spec is nested more than {DEEPEST} levels deep; write it as the documentation does"
LEAK_ETA = 1  # eta of the ordinary release whose leak is reported


async def calibrate_in_child(
    spec: str, settings: Settings, progress: Progress | None = None, *, estimate: bool = False
) -> dict[str, Any]:
    """What the child found: {"plan", "document", …}, or a Problem raised here."""
    seconds, memory = settings.plan_seconds, settings.plan_bytes
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, spec, memory, estimate), daemon=True)
    child.start()
    theirs.close()
    began = time.monotonic()
    try:
        while True:
            if time.monotonic() - began > seconds:
                words = f"the calibration took longer than plan_seconds = {seconds:g}"
                raise Problem(422, words, limit="plan_seconds")
            if not await asyncio.to_thread(ours.poll, 0.25):
                continue
            kind, result = ours.recv()
            if kind == "done":
                return dict(result)
            if kind == "refused":
                raise Problem(422, result)
            if progress is not None:
                await progress({"phase": result, "seconds": round(time.monotonic() - began, 1)})
    except EOFError:
        raise Problem(
            422, f"the calibration ended early; it may have needed more than plan_bytes = {memory}"
        ) from None
    finally:
        child.kill()
        await asyncio.to_thread(child.join)
        ours.close()


def check_spec(given: str | dict[str, Any]) -> str:
    """The spec as JSON; refused when it names files, which are the server's own."""
    document: Any = _parse_spec(given) if isinstance(given, str) else given
    if "data" in document:
        raise SpecError(
            "the spec has [data]; nothing is read from the server's disk, leave it out, or send it "
            "with `shoal serve put-plan`"
        )
    waiting = [(document, 0)]
    while waiting:
        each, depth = waiting.pop()
        if depth > DEEPEST:
            raise SpecError(TOO_DEEP)
        for key, value in each.items() if isinstance(each, dict) else ():
            names_file = key == "from" and isinstance(value, str)
            if key == "file" or key.endswith("_file") or names_file:
                raise SpecError(
                    f"the spec has {key}; nothing is read from the server's disk, so write it out, "
                    "or send it with `shoal serve put-plan`, which puts models inside"
                )
        inside = each.values() if isinstance(each, dict) else each
        waiting += [(one, depth + 1) for one in inside if isinstance(one, dict | list)]
    return json.dumps(document, default=_decimal)


def check_plan_request(
    spec: str | dict[str, Any] | None,
    model: str | dict[str, Any] | None,
    plan: str | dict[str, Any] | None,
) -> str:
    """Return what a job is to calibrate or check, as JSON: a spec, or a stored plan.

    `model` is a stored model in place of the spec's own [[model]].
    """
    if plan is not None:
        if spec is not None or model is not None:
            raise not_understood("plan is given with spec or model; a stored plan has both inside")
        return json.dumps({STORED_PLAN: _document(plan)})
    if spec is None:
        raise not_understood("spec is missing; give a spec, with a model beside it, or a plan")
    if model is None:
        return check_spec(spec)
    document = dict(spec) if isinstance(spec, dict) else _parse_spec(spec)
    own = document.get("model", [])
    several = isinstance(own, list) and (len(own) > 1 or any("file" not in each for each in own))
    if several or not isinstance(own, list):
        raise not_understood(
            "model is given, and the spec has models of its own; leave one of them out"
        )
    return check_spec({**document, "model": [{"stored": _document(model)}]})


STORED_PLAN = "stored_plan"  # the key of a job that checks a stored plan


def _document(given: str | dict[str, Any]) -> str:
    return given if isinstance(given, str) else json.dumps(given)


def _parse_spec(spec: str) -> dict[str, Any]:
    """Return a spec's TOML text as an object, decimals as such."""
    try:
        return tomllib.loads(spec, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"the spec is not valid TOML: {error}") from None
    except RecursionError:
        raise SpecError(TOO_DEEP) from None


def _decimal(value: object) -> Any:
    """Decimals as text that is read back as the same decimal."""
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    return str(value)


def _restore_decimals(value: dict[str, Any]) -> Any:
    return Decimal(value["decimal"]) if set(value) == {"decimal"} else value


def _child(pipe: Any, spec: str, memory: int, estimate: bool) -> None:
    """Calibrate `spec` in a child process and send messages (kind, content) through `pipe`.

    The kinds are "phase", "done" and "refused". `memory` limits the address space, in bytes.
    """
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    try:
        pipe.send(("phase", "reading"))
        pipe.send(
            (
                "done",
                _calibrated_document(spec, estimate, lambda phase: pipe.send(("phase", phase))),
            )
        )
    except (InputError, Refused, BudgetError) as error:
        pipe.send(("refused", str(error)))
    except MemoryError:
        pipe.send(("refused", f"the calibration needs more than plan_bytes = {memory}"))


def _calibrated_document(spec: str, estimate: bool, phase: Callable[[str], None]) -> dict[str, Any]:
    """Return the calibrated plan as {"plan": id, "document": JSON, "told": summary}.

    `spec` is a JSON document, read without access to files. `phase` receives the name of each
    phase. With `estimate` the summary also has an ordinary release and a dry run.
    """
    from shoal.core.registry import dumps
    from shoal.mechanisms.choice import choose
    from shoal.spec.request import request_of

    document = json.loads(spec, parse_float=Decimal, object_hook=_restore_decimals)
    if STORED_PLAN in document:
        phase("checking")
        return _checked_plan(document[STORED_PLAN])
    with tempfile.TemporaryDirectory() as empty:
        request = request_of(document, folder=Path(empty))
    phase("calibrating")
    with request.limit_time():
        choice = choose(request.task, request.epsilon(), request.mechanism)
    plan = choice.plan
    summary = describe_plan(plan)
    summary["alternatives"] = {
        name: {"refused": row} if isinstance(row, str) else _brief(row)
        for name, row in choice.alternatives.items()
    }
    if estimate:
        phase("looking")
        summary["ordinary"] = _leak(plan)
        summary["dry_run"] = _dry_run(plan)
    return {"plan": plan.fingerprint[:16], "document": dumps(plan, indent=None), "told": summary}


def _checked_plan(stored: str) -> dict[str, Any]:
    """Return a stored plan as `_found` does, after its promise was evaluated again."""
    from shoal.core.registry import dumps
    from shoal.jobs.job import recheck_plan
    from shoal.spec.fields import parse_stored

    named = Path("plan")
    plan = recheck_plan(parse_stored(stored, named, "document"), named)
    document = dumps(plan, indent=None)
    return {"plan": plan.fingerprint[:16], "document": document, "told": describe_plan(plan)}


def describe_plan(plan: Any) -> dict[str, Any]:
    """A plan in words and numbers, for people."""
    from shoal.gateway.machines import kind_of

    kind, error = kind_of(plan), plan.error()
    promise = plan.guarantee
    return {
        "kind": "release" if kind is None else kind.name,
        "mechanism": plan.mechanism,
        "cost": finite(plan.cost),
        "error": None if error is None else error.describe(),
        "guarantee": {
            "notion": promise.notion,
            "amount": str(promise.amount),
            "over": promise.over,
            "proved": promise.proved,
        },
        "explanation": plan.explain(),
    }


def _brief(plan: Any) -> dict[str, Any]:
    promise = plan.guarantee
    return {"cost": finite(plan.cost), "notion": promise.notion, "proved": promise.proved}


def _leak(plan: Any) -> dict[str, Any]:
    """What an ordinary eta-DP release would tell under the same models, or why it is unknown."""
    from shoal.mechanisms.lift import leakage

    try:
        found = leakage(plan.task.family, LEAK_ETA)
    except (InputError, Refused) as error:
        return {"eta": LEAK_ETA, "epsilon": None, "reason": str(error)}
    return {"eta": LEAK_ETA, "epsilon": finite(max(found.per_model))}


def _dry_run(plan: Any) -> list[Any] | None:
    """What the plan would show of made-up data; None for single releases."""
    from shoal.core.charge import SystemRng
    from shoal.gateway.machines import kind_of

    kind, model, rng = kind_of(plan), plan.task.family[0], SystemRng()
    if kind is None:
        return None
    steps = plan.task.query.every if kind.name == "counts" else DRY_RUN_STEPS
    walk = model.sample(rng) if kind.name == "contexts" else model.sample(steps, rng)
    state, shown = plan.body.init(), []
    for place in list(walk)[:steps]:
        name = model.states[int(place)]
        state, shown_release = plan.body.step(state, name, rng)
        shown.append({"made_up": name, "shown": _shown_as_json(kind.name, shown_release)})
    return shown[-DRY_RUN_STEPS:]


def _shown_as_json(kind: str, shown: Any) -> Any:
    """What a machine shows, as JSON has it."""
    if kind == "places":
        return shown.point
    return shown if kind == "contexts" or shown is None else list(shown.values)
