"""The Places room: a map, which places must look alike, and a track played through it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shoal.additive.choice import choose
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.noise.primitives import SeededRng
from shoal.places.machine import machine_of
from shoal.places.policy import PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain
from shoal.studio.bench import number, request_of, text
from shoal.studio.work import Say

GRAPHS = {
    "radius": "radius_km = {radius}",
    "nearest": "k = {k}",
    "transitions": "",
    "complete": "",
}
MOST_CELLS, MOST_STEPS = 1024, 500

SPEC = """\
# Made in the studio. Try:  shoal plan shoal.toml    shoal stream shoal.toml < track.jsonl

[[model]]
kind = "grid-walk"
south = 52.50
west = 13.36
cell_km = {cell}
rows = {rows}
columns = {columns}
stay = 0.6

[secrets]
kind = "policy-graph"
graph = "{graph}"
{more}

[query]
kind = "measurement"

[privacy]
epsilon = {epsilon}
"""


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The mechanism of least error on the map, with the policy drawn on it."""
    spec = spec_text(params)
    say("drawing the map", 0.2)
    request = request_of({"spec": spec, "files": {}})
    say("finding the least noise", 0.5)
    found = choose(request.task, request.epsilon(), request.mechanism, every=False).plan
    return {
        "spec": spec,
        "files": {},
        "plan": dumps(found, indent=None),
        "map": policy_map(found),
        "words": found.explain(),
        "error": None if (error := found.error()) is None else error.describe(),
    }


def play(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """A track through the plan, step by step: the truth stays on this screen."""
    found = loads(str(params.get("plan") or "{}"))
    if not isinstance(found, Plan):
        raise InputError("there is no plan on the table; make one first")
    steps = int(number(params, "steps", 200))
    if not 1 <= steps <= MOST_STEPS:
        raise InputError(f"steps is {steps}; it must be 1 to {MOST_STEPS}")
    rng = SeededRng(int(number(params, "seed", 1)))
    query, chain = _query(found), _walk(found)
    stream, points = LocationStream.begin(found), query.points * float(query.step)
    played = []
    for t, at in enumerate(chain.sample(steps, rng).tolist()):
        if t % 25 == 0:
            say("playing the track", t / steps)
        stream, release = stream.read(query.states[at], rng=rng)
        estimate = release.estimate
        played.append(
            {
                "truth": at,
                "released": None if release.point is None else list(release.point),
                "estimate": list(estimate),
                "belief": levels(stream.state.belief),
                "error": float(np.linalg.norm(np.asarray(estimate) - points[at])),
                "degree": release.degree,
            }
        )
    return {"steps": played, "unit": query.unit}


def spec_text(params: Mapping[str, Any]) -> str:
    """The spec of this room, in TOML."""
    rows, columns = int(number(params, "rows", 12)), int(number(params, "columns", 14))
    if not (rows >= 2 and columns >= 2 and rows * columns <= MOST_CELLS):
        raise InputError(
            f"the map has {rows} × {columns} cells; the studio shows 2 × 2 to {MOST_CELLS} in all"
        )
    graph = text(params, "graph", "radius")
    if graph not in GRAPHS:
        raise InputError(f"graph is {graph!r}; it must be one of {', '.join(GRAPHS)}")
    more = GRAPHS[graph].format(
        radius=repr(number(params, "radius_km", 1.0)), k=int(number(params, "k", 4))
    )
    return SPEC.format(
        rows=rows,
        columns=columns,
        cell=repr(number(params, "cell_km", 0.5)),
        graph=graph,
        more=more,
        epsilon=repr(number(params, "epsilon", 1.0)),
    )


def policy_map(found: Plan) -> dict[str, Any]:
    """Props of the map before the first step: the belief everybody holds, and the policy."""
    query, secrets = _query(found), found.task.secrets
    points = query.points * float(query.step)
    machine = machine_of(found)
    edges = secrets.all_edges() if isinstance(secrets, PolicyGraph) else np.empty((0, 2), int)
    everyone = np.ones(len(points), dtype=bool)
    alone = secrets.alone(everyone) if isinstance(secrets, PolicyGraph) else np.empty(0, int)
    gaps = np.abs(np.diff(np.unique(points[:, 0])))
    return {
        "cells": [
            {"name": name, "x": float(x), "y": float(y)}
            for name, (x, y) in zip(query.states, points.tolist(), strict=True)
        ],
        "width": float(gaps.min()) if len(gaps) else 1.0,
        "belief": machine.init().belief.tolist(),
        "edges": edges.tolist() if len(edges) <= 8 * len(points) else [],
        "exposed": alone.tolist(),
    }


def levels(belief: Any) -> list[int]:
    """A belief in 255 levels of its largest share: enough for a picture, a tenth of the bytes."""
    shares = np.asarray(belief, dtype=float)
    return [int(level) for level in np.rint(shares * (255 / shares.max()))]


def _query(found: Plan) -> Measurement:
    query = found.task.query
    if not isinstance(query, Measurement):
        raise InputError("the plan on the table is not about places")
    return query


def _walk(found: Plan) -> SparseChain:
    chain = found.task.family[0]
    if not isinstance(chain, SparseChain):
        raise InputError("the plan on the table is not about a walk on a map")
    return chain
