"""A made-up town to try the service with: people who walk, days of contexts, an application.

It runs within seconds of a fresh clone: walks begin at once, while a job of the service calibrates
the plan for days of contexts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from shoal.core.charge import SystemRng
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.gateway.app import Gateway, create
from shoal.gateway.client import AsyncClient, GatewayError
from shoal.gateway.keys import APPLICATION, DEVICE, PERSON, first_key, make_key
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.settings import Settings
from shoal.gateway.store import ALL
from shoal.gateway.telemetry import start_logs
from shoal.gateway.vault import write_key

PEOPLE = ("ada", "ben", "cleo")
SECONDS = 1.0  # of a slot: a day of contexts passes in a quarter of a minute

TOWN_PLACES = """
[[model]]
kind = "grid-walk"
south = 52.50
west = 13.36
cell_km = 0.5
rows = 10
columns = 12
stay = 0.6
[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 1.0
[query]
kind = "measurement"
[privacy]
epsilon = 1.0
mechanism = "location-knorm"
"""
CONTEXTS = """
[[model]]
kind = "day-chain"
states = ["home", "work", "clinic"]
initial = [0.9, 0.1, 0.0]
transition = [[0.80, 0.18, 0.02], [0.20, 0.75, 0.05], [0.30, 0.10, 0.60]]
slots = 16
[secrets]
kind = "contexts"
sensitive = ["clinic"]
[query]
kind = "current"
[privacy]
belief_delta = 0.1
mechanism = "mask-adaptive"
"""


def plan_of_spec(spec: str) -> Plan:
    """The plan of a spec that names no files, calibrated here and now."""
    from shoal.mechanisms.choice import choose

    request = _request(spec)
    return choose(request.task, request.epsilon(), request.mechanism).plan


def run_town(settings: Settings) -> None:
    """Serve with a town in it until stopped."""
    interpret_kernels()
    write_key(settings.state_key_file)
    asyncio.run(_serve(settings, plan_of_spec(TOWN_PLACES)))


def interpret_kernels() -> None:
    """Let this process run kernels as plain Python; those that it starts compile them as ever.

    The same numbers come out. A town is small: its steps take milliseconds either way, and a
    compiler that begins cold takes 20 s. Python's integers mix with NumPy's since its version 2.
    """
    import numpy as np

    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        return
    os.environ["NUMBA_DISABLE_JIT"] = "1"
    import numba  # noqa: F401 - it looks at the environment now, and never again

    del os.environ["NUMBA_DISABLE_JIT"]


async def _serve(settings: Settings, places: Plan) -> None:
    """Run the service and the simulated people until the server stops."""
    app = create(settings)
    start_logs(logging.WARNING)  # a line a request would carry off what is there to be copied
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level="error",
        access_log=False,
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():
        await asyncio.sleep(0.05)
    base = f"http://{settings.host}:{settings.port}"
    walking = asyncio.create_task(_live(app.state.gateway, places, base))
    await serving
    walking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await walking


async def _live(gateway: Gateway, places: Plan, base: str) -> None:
    """Make the people, say how to watch them, and let them walk; days of contexts come later."""
    keys = await gateway.store.writing(ALL, lambda connection: _settle(connection, places))
    async with contextlib.AsyncExitStack() as opened, asyncio.TaskGroup() as town:
        by = {
            name: await opened.enter_async_context(AsyncClient(base, key))
            for name, key in keys.items()
        }
        for person in PEOPLE:
            await by["operator"].put_person(person)
            await by[person].grant(person, "viewer")

        async def begin(stream: str, plan: str, spec: str) -> None:
            """Create a stream for every person and start the task that sends its readings."""
            model, what = _request(spec).task.family[0], {"places": "state", "day": "context"}
            for person in PEOPLE:
                clock = {"every": SECONDS}
                await by[person].put_stream(person, stream, plan, clock=clock, independent=True)
                phone = by[f"{person}'s phone"]
                town.create_task(_go(phone, person, stream, what[stream], model))

        await begin("places", "places", TOWN_PLACES)
        _say(_welcome(base, keys))
        try:
            plan = await by["operator"].make_plan(CONTEXTS)
        except GatewayError as error:
            _say(f"There will be no days of contexts: {error}")
            return
        await begin("day", plan, CONTEXTS)
        _say(f"Her day is shown now, too:\n\n  {_curl(base, keys['viewer'], 'day/events')}\n")


def _settle(connection: Any, places: Plan) -> dict[str, str]:
    """Store a plan for walks and return a key for every role and person, by name."""
    found = {"operator": first_key(connection, "town").token}
    document = dumps(places, indent=None)
    summary = {"plan": "places", "document": document, "told": describe_plan(places)}
    keep_plan(connection, "town", summary)
    for person in PEOPLE:
        found[person] = make_key(connection, "town", PERSON, person).token
        found[f"{person}'s phone"] = make_key(connection, "town", DEVICE, person).token
    found["viewer"] = make_key(connection, "town", APPLICATION, "viewer").token
    return found


async def _go(phone: AsyncClient, person: str, stream: str, what: str, model: Any) -> None:
    """A device that says where its person is, now and then out of reach."""
    rng = SystemRng()
    while True:
        for place in model.sample(rng) if stream == "day" else model.sample(64, rng):
            if int(rng.words(1)[0]) % 10:
                with contextlib.suppress(httpx.HTTPError, GatewayError):
                    await phone.push(person, stream, **{what: model.states[int(place)]})
            await asyncio.sleep(SECONDS)


def _welcome(base: str, keys: dict[str, str]) -> str:
    """What a newcomer types, ready to be copied."""
    return (
        f"The town is at {base}. Watch ada walk, as an application sees her:\n\n"
        f"  {_curl(base, keys['viewer'], 'places/events')}\n\n"
        "What an adversary believes by now, which only she may ask; and what was spent:\n\n"
        f"  {_curl(base, keys['ada'], 'places/beliefs')}\n"
        f"  {_curl(base, keys['ada'], '../budget')}\n\n"
        f"Her own page is {base}/page/ (name: ada, key: {keys['ada']}).\n"
        f"The operator's is {base}/page/#/operator (key: {keys['operator']}).\n"
        f"The API is described at {base}/docs. Stop with Ctrl-C.\n\n"
        "A job calibrates a plan for days of contexts; the first time it takes half a minute."
    )


def _curl(base: str, key: str, path: str) -> str:
    where = f"{base}/v1/people/ada/streams/{path}".replace("/streams/../", "/")
    return f"curl -N -H 'Authorization: Bearer {key}' {where}"


def _request(spec: str) -> Any:
    from shoal.spec.request import parse_request

    return parse_request(spec, folder=Path())


def _say(text: str) -> None:
    """Print one line and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
