"""A made-up town to try the service with: people who walk, days of contexts, an application."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import httpx
import uvicorn

from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.core.rng import SystemRng
from shoal.gateway.app import Gateway, create
from shoal.gateway.calibration import described
from shoal.gateway.jobs import keep_plan
from shoal.gateway.keys import APPLICATION, DEVICE, PERSON, first_key, make_key
from shoal.gateway.settings import Settings
from shoal.gateway.store import ALL
from shoal.gateway.vault import write_key

PEOPLE = ("ada", "ben", "cleo")
SECONDS = 2.0  # of a slot: a day of contexts passes in half a minute

PLACES = """
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


class Walker(NamedTuple):
    """A person of the town: their device's key, and the plan their walk follows."""

    person: str
    stream: str
    device: str
    plan: Plan


def plan_of_spec(spec: str) -> Plan:
    """The plan of a spec that names no files, calibrated here and now."""
    from pathlib import Path

    from shoal.additive.choice import choose
    from shoal.spec.request import parse_request

    request = parse_request(spec, folder=Path())
    return choose(request.task, request.epsilon(), request.mechanism).plan


def run_town(settings: Settings) -> None:
    """Serve with a town in it until stopped."""
    write_key(settings.state_key_file)
    print_line("Calibrating a plan for places and one for contexts …")
    plans = {"places": plan_of_spec(PLACES), "contexts": plan_of_spec(CONTEXTS)}
    asyncio.run(_serve(settings, plans))


async def _serve(settings: Settings, plans: dict[str, Plan]) -> None:
    app = create(settings)
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
    walking = asyncio.create_task(_walk(app.state.gateway, plans, settings))
    await serving
    walking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await walking


async def _walk(gateway: Gateway, plans: dict[str, Plan], settings: Settings) -> None:
    """Make the people, say how to watch them, and let them walk."""
    base = f"http://{settings.host}:{settings.port}"
    async with httpx.AsyncClient(base_url=base, timeout=10) as client:
        walkers, made = await _settle(gateway, plans, client)
        curl = f"curl -N -H 'Authorization: Bearer {made['viewer']}'"
        print_line(
            f"The town is at {base}. Watch ada walk, and her day, as an application sees them:\n\n"
            f"  {curl} {base}/v1/people/ada/streams/places/events\n"
            f"  {curl} {base}/v1/people/ada/streams/day/events\n\n"
            f"Her own page is {base}/page/ (name: ada, key: {made['ada']}).\n"
            f"The operator's is {base}/page/#/operator (key: {made['operator']}).\n"
            f"The API is described at {base}/docs. Stop with Ctrl-C."
        )
        await asyncio.gather(*(_go(client, walker) for walker in walkers))


async def _settle(
    gateway: Gateway, plans: dict[str, Plan], client: httpx.AsyncClient
) -> tuple[list[Walker], dict[str, str]]:
    def keys(connection: Any) -> dict[str, str]:
        found = {"operator": first_key(connection, "town").token}
        for name, plan in plans.items():
            told = {"plan": name, "document": dumps(plan, indent=None), "told": described(plan)}
            keep_plan(connection, "town", told)
        for person in PEOPLE:
            found[person] = make_key(connection, "town", PERSON, person).token
            found[f"{person}'s phone"] = make_key(connection, "town", DEVICE, person).token
        found["viewer"] = make_key(connection, "town", APPLICATION, "viewer").token
        return found

    made = await gateway.store.writing(ALL, keys)
    walkers = []
    for person in PEOPLE:
        own = f"/v1/people/{person}"
        await _put(client, made["operator"], own, {})
        for stream, plan in (("places", "places"), ("day", "contexts")):
            body = {"plan": plan, "clock": {"every": SECONDS}, "independent": True}
            await _put(client, made[person], f"{own}/streams/{stream}", body)
            walkers.append(Walker(person, stream, made[f"{person}'s phone"], plans[plan]))
        await _put(client, made[person], f"{own}/grants/viewer", {})
    return walkers, made


async def _go(client: httpx.AsyncClient, walker: Walker) -> None:
    """A device that says where its person is, now and then out of reach."""
    model: Any = walker.plan.task.family[0]
    rng = SystemRng()
    while True:
        path = model.sample(rng) if walker.stream == "day" else model.sample(64, rng)
        for place in path:
            what = "context" if walker.stream == "day" else "state"
            body = {what: model.states[int(place)]}
            url = f"/v1/people/{walker.person}/streams/{walker.stream}/readings"
            if int(rng.words(1)[0]) % 10:
                with contextlib.suppress(httpx.HTTPError):
                    await client.post(url, json=body, headers=_key(walker.device))
            await asyncio.sleep(SECONDS)


async def _put(client: httpx.AsyncClient, key: str, url: str, body: dict[str, Any]) -> None:
    answer = await client.put(url, json=body, headers=_key(key))
    answer.raise_for_status()


def _key(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def print_line(text: str) -> None:
    """Say something to whoever tries the town, at once."""
    import sys

    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
