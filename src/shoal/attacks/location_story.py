"""Walks on a small map, released step by step, and adversaries who know more and less."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.attacks.location import Knowing, attack_locations
from shoal.core.plan import Plan
from shoal.mechanisms.calibration import calibrate
from shoal.models.grid import SquareGrid
from shoal.models.grid_chain import SparseChain
from shoal.models.structure import stationary_law
from shoal.noise.bits import SeededRng
from shoal.queries.measurement import coordinates
from shoal.secrets.policy import PolicyGraph
from shoal.streams.location import LocationStream

SIDE, CELL_M, RADIUS_KM = 8, 500, 1
STAY = 0.4


class Told(NamedTuple):
    """Means over people: errors in km by adversary and by what is known, and changes of odds.

    `one_output` is the largest change of log-odds between joined places by one output, over all
    people and adversaries; `all_outputs` that of the true place against a joined one by all
    outputs of a stream, the largest over its steps, as the adversary who knows the walk sees it.
    """

    errors: dict[str, dict[Knowing, float]]
    one_output: float
    all_outputs: float


def adversaries_on_a_map(epsilon: float, people: int, steps: int, seed: int) -> Told:
    """People who favour some ways over others, under a plan that takes them to go evenly.

    Their streams are read by somebody who holds the plan's chain, by one who knows how they really
    move, and by one who knows only how often they are where.
    """
    even, real = walk_on_map(None), walk_on_map(seed)
    where = coordinates(even)
    policy = PolicyGraph.within(where, RADIUS_KM)
    plan = calibrate(where, policy, even, epsilon=epsilon, mechanism="location-knorm")
    held = {"the plan's walk": even, "the real walk": real, "frequencies alone": _forgetful(real)}
    kinds: tuple[Knowing, ...] = ("nothing", "past", "all")
    errors = {name: dict.fromkeys(kinds, 0.0) for name in held}
    one, whole = 0.0, []
    for person in range(people):
        track = [int(place) for place in real.sample(steps, SeededRng(seed + person))]
        outputs = _released(plan, real, track, SeededRng(1000 + seed + person))
        for name, chain in held.items():
            found = attack_locations(plan, outputs, adversary=chain)
            for by in kinds:
                errors[name][by] += found.errors(track, by).mean / people
            one = max(one, float(found.odds("own").joined.max()))
            if chain is real:
                whole.append(float(np.nanmax(found.odds("all", truth=track).joined)))
    return Told(errors, one, float(np.mean(whole)))


def walk_on_map(seed: int | None) -> SparseChain:
    """Staying, or going to a cell around: evenly, or by weights of each cell's own."""
    grid = SquareGrid(
        south=Fraction(39), west=Fraction(116), cell_m=Fraction(CELL_M), rows=SIDE, columns=SIDE
    )
    rng = np.random.default_rng(seed)
    matrix = np.zeros((grid.size, grid.size))
    for cell in range(grid.size):
        near = list(grid.adjacent(cell))
        shares = np.ones(len(near)) if seed is None else rng.gamma(0.2, size=len(near)) + 0.01
        matrix[cell, cell] = STAY
        matrix[cell, near] = (1 - STAY) * shares / shares.sum()
    return SparseChain.of(
        matrix,
        initial=stationary_law(matrix),
        states=[grid.name_of(cell) for cell in range(grid.size)],
        grid=grid,
        cells=np.arange(grid.size),
    )


def _forgetful(chain: SparseChain) -> SparseChain:
    """Every place as likely as it always is, whatever came before."""
    rows = np.tile(chain.initial, (chain.size, 1))
    return SparseChain.of(
        rows, initial=chain.initial, states=chain.states, grid=chain.grid, cells=chain.cells
    )


def _released(
    plan: Plan, chain: SparseChain, track: list[int], rng: SeededRng
) -> list[tuple[int, ...] | None]:
    stream, outputs = LocationStream.begin(plan), []
    for place in track:
        stream, release = stream.read(chain.states[place], rng=rng)
        outputs.append(release.z)
    return outputs
