"""The Places room: a map, which places must look alike, and a track played through it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from shoal.core.charge import Rng
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.noise.primitives import SeededRng
from shoal.places.machine import machine_of
from shoal.places.policy import PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain
from shoal.studio.bench import NO_PLAN, number, request_of, spec_text, sure, text, texts
from shoal.studio.rooms.ground import (
    Ground,
    backdrop,
    commands,
    map_from_file,
    map_of_stored_model,
    map_with_free_walk,
    own_track,
    people,
    state_of,
)
from shoal.studio.work import Say

GRAPHS = {
    "radius": "radius_km = {radius}",
    "nearest": "k = {k}",
    "transitions": "",
    "complete": "",
    "edges": "",  # only what is drawn by hand
}
NOTHING = "edges"
MOST_STEPS, MOST_EDGES = 500, 20_000  # of a stream that is played, and of a policy that is drawn
RATE = 25  # steps a second
TRUTH_WORDS = "● where one is (this screen only), "
MAP_WORDS = (
    f"Blue: how likely each cell is to somebody who saw all releases. {TRUTH_WORDS}✕ released, "
    "○ best guess, orange outline: the body of the noise."
)


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The mechanism of least error on the map, with the policy drawn on it.

    The map is a stored one (`model`), learned from a file of positions (`file`), or made up.
    """
    own, known = bool(params.get("file")), bool(params.get("model"))
    say("learning how people move" if own and not known else "drawing the map", 0.1)
    ground = (
        map_of_stored_model(params)
        if known
        else map_from_file(params)
        if own
        else map_with_free_walk(params)
    )
    spec = policy_spec(params, ground)
    request = request_of({"spec": spec, "files": ground.files})
    say("finding the least noise", 0.5)
    found = request.plan()
    return {
        "spec": spec,
        "files": ground.files,
        "plan": dumps(found, indent=None),
        "map": {**policy_map(found), "backdrop": backdrop(params, _walk(found))},
        "words": found.explain(),
        "error": None if (error := found.error()) is None else error.describe(),
        "about": ground.about,
        "cell_km": ground.cell_km,
        "people": people(params) if own else [],
        "commands": commands(params) if own else [],
    }


def play(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """One track through one plan or two, step by step: the truth stays on this screen."""
    plans = [sure(loads(one), Plan, NO_PLAN) for one in texts(params, "plans") or ["{}"]]
    steps = int(number(params, "steps", 200))
    if not 1 <= steps <= MOST_STEPS:
        raise InputError(f"steps is {steps}; it must be 1 to {MOST_STEPS}")
    seed = int(number(params, "seed", 1))
    first = _query(plans[0])
    if any(_query(one).states != first.states for one in plans):
        raise InputError("the two policies are on different maps; draw both on one map")
    chain = _walk(plans[0])
    if params.get("file"):
        track = own_track(params, steps)
    else:  # a walk that might have been
        track = [chain.states[at] for at in chain.sample(steps, SeededRng(seed)).tolist()]
    under = backdrop(params, chain)
    titles = [str(title) for title in params.get("titles") or [""] * len(plans)]
    columns: list[dict[str, Any]] = []
    means: list[float] = []
    for done, (found, title) in enumerate(zip(plans, titles, strict=True)):
        say("playing the track", done / len(plans))
        played = played_track(found, track, SeededRng(seed + 1), truth=True)
        played[0]["props"]["backdrop"] = under
        columns.append({"title": title, "panes": played})
        means.append(float(np.mean(played[1]["props"]["values"])))
    top = max(max(column["panes"][1]["props"]["values"]) for column in columns)
    for column in columns:
        column["panes"][1]["props"]["top"] = top
    return {"player": player(columns, len(track)), "means": means, "unit": first.unit}


def player(columns: list[dict[str, Any]], count: int) -> dict[str, Any]:
    """Props of a player of steps, all panes in step."""
    return {"per": "step", "count": count, "rate": RATE, "autoplay": True, "columns": columns}


def played_track(
    found: Plan, track: Sequence[Any], rng: Rng | None, *, truth: bool
) -> list[dict[str, Any]]:
    """Return the panes of one plan: the map at every step, the guess's error, and the policy.

    Without `truth` nothing is in them that was not released, so they may be given away.
    """
    query, stream = _query(found), LocationStream.begin(found)
    points, chain = query.points * float(query.step), _walk(found)
    frames, errors, degrees = [], [], []
    for place in track:
        noise = stream.machine.prior(stream.state).noise
        stream, release = stream.read(place, rng=rng)
        at = state_of(chain, place)
        frames.append(
            {
                "truth": at if truth else None,
                "released": None if release.point is None else list(release.point),
                "estimate": list(release.estimate),
                "belief": levels(stream.state.belief),
                "body": _body(noise.protected.body, release.point, float(query.step)),
            }
        )
        degrees.append(release.degree)
        known = at is not None and truth
        off = np.asarray(release.estimate) - points[at] if known else None
        errors.append(float(release.spread if off is None else np.linalg.norm(off)))
    what = "error of the best guess" if truth else "how far the belief spreads"
    return [
        {
            "view": "beliefMap",
            "props": {**policy_map(found), "edges": [], "degree": [], "exposed": []},
            "frames": frames,
            "caption": MAP_WORDS if truth else MAP_WORDS.replace(TRUTH_WORDS, ""),
        },
        {"view": "stepLine", "props": {"values": errors, "what": f"{what} ({query.unit})"}},
        {"view": "stepLine", "props": {"values": degrees, "what": "places it looks like"}},
    ]


def _body(body: Any, around: Sequence[float] | None, step: float) -> list[list[float]] | None:
    """The corners of the noise's body, in order, around a point; None where it is no polygon."""
    if around is None or not body.ambient == body.dimension == 2:
        return None
    corners = np.asarray(body.vertices, dtype=float) * step
    order = np.argsort(np.arctan2(corners[:, 1], corners[:, 0]))
    return [[float(x), float(y)] for x, y in (corners[order] + np.asarray(around)).tolist()]


def policy_spec(params: Mapping[str, Any], ground: Ground) -> str:
    """The spec of this room, in TOML."""
    graph = text(params, "graph", "radius")
    if graph not in GRAPHS:
        raise InputError(f"graph is {graph!r}; it must be one of {', '.join(GRAPHS)}")
    more = GRAPHS[graph].format(
        radius=repr(number(params, "radius_km", 1.0)), k=int(number(params, "k", 4))
    )

    def spec(kind: str, lines: str) -> str:
        """Return the spec with a policy graph of this kind; `lines` are more keys of [secrets]."""
        return spec_text(
            "shoal plan shoal.toml    shoal stream shoal.toml < track.jsonl",
            data=ground.data,
            model=ground.model,
            secrets=f'kind = "policy-graph"\ngraph = "{kind}"\n{lines}',
            query='kind = "measurement"',
            privacy=f"epsilon = {number(params, 'epsilon', 1.0)!r}",
        )

    zones, joins = (
        _drawn_cells(params, "zones", ground.size),
        _drawn_cells(params, "joins", ground.size),
    )
    if not zones and not joins:
        if graph == NOTHING:
            raise InputError("nothing is joined; draw a zone, join places, or choose who is alike")
        return spec(graph, more)
    base = spec("edges", "edges = []") if graph == NOTHING else spec(graph, more)
    return spec(*_policy_lines(base, ground.files, zones, joins))


def _policy_lines(
    base: str, files: dict[str, str], zones: list[list[int]], joins: list[list[int]]
) -> tuple[str, str]:
    """The kind and the lines of a policy with what was drawn by hand on top of it.

    A zone's places are all alike; joining two places that are joined sets them apart.
    """
    asked = request_of({"spec": base, "files": files}).task.secrets
    policy = sure(asked, PolicyGraph, "the spec on the table has no policy to draw on")
    if not len(policy.all_edges()) and not joins:
        named = [[policy.states[at] for at in zone] for zone in zones]
        return "categories", f"categories = {json.dumps(named)}"
    inside = [tuple(sorted(pair)) for zone in zones for pair in combinations(zone, 2)]
    edges = {(int(a), int(b)) for a, b in policy.all_edges().tolist()} | set(inside)
    for pair in joins:
        edges ^= {(min(pair), max(pair))}
    if len(edges) > MOST_EDGES:
        raise InputError(f"{len(edges)} pairs would be joined; the studio joins {MOST_EDGES}")
    named = [[policy.states[a], policy.states[b]] for a, b in sorted(edges)]
    return "edges", f"edges = {json.dumps(named)}"


def _drawn_cells(params: Mapping[str, Any], name: str, size: int) -> list[list[int]]:
    """Zones or pairs that were drawn: lists of cells of the map, empty ones left out."""
    found = params.get(name) or []
    whole = isinstance(found, list) and all(
        isinstance(one, list) and all(type(at) is int and 0 <= at < size for at in one)
        for one in found
    )
    if not whole or (name == "joins" and any(len(set(pair)) != 2 for pair in found)):
        raise InputError(f"{name} must be lists of cells of the map, from 0 to {size - 1}")
    return [one for one in found if one]


def policy_map(found: Plan) -> dict[str, Any]:
    """Return the props of the map before the first step: the prior belief, and the policy."""
    query, secrets = _query(found), found.task.secrets
    points = query.points * float(query.step)
    machine = machine_of(found)
    edges = secrets.all_edges() if isinstance(secrets, PolicyGraph) else np.empty((0, 2), int)
    everyone = np.ones(len(points), dtype=bool)
    alone = secrets.alone(everyone) if isinstance(secrets, PolicyGraph) else np.empty(0, int)
    degree = np.bincount(edges.ravel(), minlength=len(points))
    gaps = np.abs(np.diff(np.unique(points[:, 0])))
    return {
        "cells": [
            {"name": name, "x": float(x), "y": float(y)}
            for name, (x, y) in zip(query.states, points.tolist(), strict=True)
        ],
        "width": float(gaps.min()) if len(gaps) else 1.0,
        "belief": machine.init().belief.tolist(),
        "edges": edges.tolist() if len(edges) <= 8 * len(points) else [],
        "degree": degree.tolist(),
        "exposed": alone.tolist(),
    }


def levels(belief: Any) -> list[int]:
    """A belief in 255 levels of its largest share: enough for a picture, a tenth of the bytes."""
    shares = np.asarray(belief, dtype=float)
    return [int(level) for level in np.rint(shares * (255 / shares.max()))]


def _query(found: Plan) -> Measurement:
    return sure(found.task.query, Measurement, "the plan on the table is not about places")


def _walk(found: Plan) -> SparseChain:
    words = "the plan on the table is not about a walk on a map"
    return sure(found.task.family[0], SparseChain, words)
