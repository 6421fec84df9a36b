"""The attack on noise whose shape depends on the true state (Xiao et al. 2016, Example 11.2)."""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats

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
