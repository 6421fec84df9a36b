"""The attack on noise whose shape depends on the true state (Xiao et al. 2016, Example 11.2)."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.additive.choice import calibrate
from shoal.chains.model import stationary_law
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.noise.primitives import SeededRng
from shoal.places.attack import Knowing, attack_locations
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import coordinates
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain

PLACES = {"s4": (0.0, 1.0), "s5": (4.0, 2.0), "s6": (1.0, 2.0)}
PATH = (("s4", "s6"), ("s6", "s5"))  # the policy: which states must look alike
ON_LINE = 1e-9


def local_hull_rates(epsilon: float, draws: int, seed: int) -> tuple[float, float]:
    """How often the state is guessed right: with its own hull, and with one hull for all."""
    rng = np.random.default_rng(seed)
    local = [
        _guess_by_shape(z) == state
        for state in PLACES
        for z in _noisy(state, _neighbours(state), epsilon, draws, rng)
    ]
    common = _edges(PATH)
    shared = [
        _guess_by_density(z, common) == state
        for state in PLACES
        for z in _noisy(state, common, epsilon, draws, rng)
    ]
    return float(np.mean(local)), float(np.mean(shared))


def _neighbours(state: str) -> Floats:
    return _edges(tuple(pair for pair in PATH if state in pair))


def _edges(pairs: tuple[tuple[str, str], ...]) -> Floats:
    """One difference per edge; the hull is the convex hull of these and their negatives."""
    return np.array([np.subtract(PLACES[a], PLACES[b]) for a, b in pairs])


def _noisy(
    state: str, edges: Floats, epsilon: float, draws: int, rng: np.random.Generator
) -> Floats:
    """f(state) + K-norm noise: Gamma(d + 1) times a uniform point of the hull of ±edges.

    With one edge the hull is a segment; with two independent ones a parallelogram whose corners
    are ±edges, in whose own coordinates it is |a| + |b| ≤ 1.
    """
    dimension = len(edges)
    if dimension == 1:
        inside = rng.uniform(-1, 1, (draws, 1))
    else:
        square = rng.uniform(-1, 1, (draws, 2))
        inside = np.stack([square.sum(axis=1), square[:, 0] - square[:, 1]], axis=1) / 2
    radius = rng.gamma(dimension + 1, 1 / epsilon, (draws, 1))
    return np.asarray(PLACES[state] + (radius * inside) @ edges)


def _guess_by_shape(z: Floats) -> str:
    """Which lines z lies on tells the state: noise from s6 misses both with certainty."""
    if _on_line(z, "s4", "s6"):
        return "s4"
    return "s5" if _on_line(z, "s5", "s6") else "s6"


def _on_line(z: Floats, one: str, two: str) -> bool:
    along = np.subtract(PLACES[two], PLACES[one])
    off = z - PLACES[one]
    return bool(abs(along[0] * off[1] - along[1] * off[0]) < ON_LINE)


def _guess_by_density(z: Floats, edges: Floats) -> str:
    """The nearest state in the norm of the common hull."""
    apart = {s: float(np.abs(np.linalg.solve(edges.T, z - p)).sum()) for s, p in PLACES.items()}
    return min(apart, key=lambda state: apart[state])


# Walks on a small map, released step by step, and adversaries who know more and less.


SIDE, CELL_M, RADIUS_KM = 8, 500, 1
STAY = 0.4


class WalkStory(NamedTuple):
    """Means over people: errors in km by adversary and by what is known, and changes of odds.

    `one_output` is the largest change of log-odds between joined places by one output, over all
    people and adversaries; `all_outputs` that of the true place against a joined one by all
    outputs of a stream, the largest over its steps, as the adversary who knows the walk sees it.
    """

    errors: dict[str, dict[Knowing, float]]
    one_output: float
    all_outputs: float


def adversaries_on_a_map(epsilon: float, people: int, steps: int, seed: int) -> WalkStory:
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
    return WalkStory(errors, one, float(np.mean(whole)))


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
