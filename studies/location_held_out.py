"""How close released places come on tracks the model has not seen: a track each of many people.

The model of a town is fitted to half of its people (with a little smoothing, so that their moves
do not call everybody else's impossible), and streams run over the tracks of the other half; beside
it the figure that is easily reported instead, of the people the model was fitted to.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from shoal.core.codec import Ints
from shoal.core.plan import Plan
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.places.machine import machine_of
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.walk import fit_grid
from studies.location_traces import Town, towns
from studies.report import Report, Table

SMOOTHING = Fraction(1, 10)
STREAMS, SHORTEST, LONGEST = 60, 20, 100  # people of each half, and steps of a track


def run() -> Report:
    """One table, a row a town and half."""
    rows = tuple(row for town in towns() for row in rows_of(town))
    return Report(
        name="location-held-out",
        source="Beside the location papers: errors on tracks that the model has not seen.",
        tables=(
            Table(
                title="mean distance in km, K-norm noise at ε = 1",
                columns=("town", "policy", "tracks of", "point", "estimate", "off the map, %"),
                rows=rows,
                notes=("the model is fitted to half of the people, with smoothing .1",),
            ),
        ),
    )


def rows_of(town: Town) -> list[tuple[str, str, str, float, float, float]]:
    """The errors on tracks of those who were fitted, and of the others."""
    people = sorted(town.histories)
    halves = {"the fitted": people[::2], "others": people[1::2]}
    grid = town.chain.grid
    assert grid is not None
    seen = [cells for person in halves["the fitted"] for cells in town.histories[person]]
    chain = fit_grid(grid, seen, smoothing=SMOOTHING).chain
    query = coordinates(chain)
    policy = PolicyGraph.within(query, town.radius_km)
    plan = calibrate(query, policy, chain, epsilon=1, mechanism="location-knorm")
    found = []
    for name, half in halves.items():
        firsts = [next((c for c in town.histories[p] if len(c) > SHORTEST), None) for p in half]
        tracks = [track for track in firsts if track is not None][:STREAMS]
        point, estimate, off = errors(plan, tracks)
        words = f"within {float(town.radius_km):g} km"
        found.append((town.name, words, name, round(point, 2), round(estimate, 2), round(off, 1)))
    return found


def errors(plan: Plan, tracks: list[Ints]) -> tuple[float, float, float]:
    """Mean distances of the released point and of the estimate, and the share off the map."""
    machine = machine_of(plan)
    chain = machine.chain
    known = {int(cell): k for k, cell in enumerate(chain.cells)}  # type: ignore[attr-defined]
    step = float(machine.query.step)
    rng, raw, close, off, total = SeededRng(1), list[float](), list[float](), 0, 0
    for track in tracks:
        stream = LocationStream.begin(plan)
        for cell in track[:LONGEST].tolist():
            if cell < 0:
                stream, _ = stream.skip()
                continue
            place = chain.grid.centre_of(cell)  # type: ignore[attr-defined]
            truth = chain.grid.lattice_of(cell) * step  # type: ignore[attr-defined]
            stream, release = stream.read(tuple(place.tolist()), rng=rng)
            total += 1
            off += cell not in known
            close.append(math.dist(release.estimate, truth))
            if release.point is not None:
                raw.append(math.dist(release.point, truth))
    return float(np.mean(raw)), float(np.mean(close)), 100 * off / max(total, 1)
