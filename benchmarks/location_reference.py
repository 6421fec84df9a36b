"""The papers' algorithms for one step, in plain NumPy and SciPy: what `location` is timed against.

Xiao & Xiong 2016, Algorithm 2 with Algorithm 1; Xiao 2017, Algorithms 1 and 2: dense matrices,
every difference of every pair, Qhull, the isotropic transform by sampling, Gamma noise, Bayes over
all states. In floating point throughout, so it keeps its promises only up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats

SAMPLES = 1000  # points for the isotropic transform


@dataclass
class PlainStream:
    """One stream: dense transitions, policy as a matrix of booleans, points of the states."""

    moves: Floats
    joined: npt.NDArray[np.bool_]
    points: Floats
    epsilon: float
    delta: float | None
    belief: Floats
    rng: np.random.Generator

    def step(self, state: int) -> tuple[Floats, Floats]:
        """The noisy point and the posterior mean."""
        prior = self.belief @ self.moves
        members = self.constraint(prior)
        answering = self.surrogates(members)
        hull = self.protected_hull(members)
        z = self.points[answering[state]] + self.noise(hull)
        distance = norms(hull, z - self.points[answering])
        weight = prior * np.exp(-self.epsilon * (distance - distance.min()))
        self.belief = weight / weight.sum()
        return z, self.belief @ self.points

    def constraint(self, prior: Floats) -> npt.NDArray[np.bool_]:
        if self.delta is None:
            return prior > 0
        order = np.argsort(-prior)
        count = int(np.searchsorted(np.cumsum(prior[order]), 1 - self.delta)) + 1
        members = np.zeros(len(prior), dtype=bool)
        members[order[:count]] = True
        return members

    def surrogates(self, members: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        chosen = np.arange(len(members))
        inside = np.flatnonzero(members)
        for state in np.flatnonzero(~members):
            gaps = ((self.points[inside] - self.points[state]) ** 2).sum(axis=1)
            chosen[state] = inside[gaps.argmin()]
        return chosen

    def protected_hull(self, members: npt.NDArray[np.bool_]) -> Any:
        """Algorithm 1: the hull of all differences, with exposed states joined to the nearest."""
        from scipy.spatial import ConvexHull

        graph = self.joined & members[:, None] & members[None, :]
        first, second = np.nonzero(graph)
        differences = self.points[first] - self.points[second]
        hull = ConvexHull(differences)
        inside = np.flatnonzero(members)
        for state in inside[~graph[inside].any(axis=1)]:
            others = inside[inside != state]
            gaps = self.points[others] - self.points[state]
            if (norms(hull, gaps) <= 1 + 1e-9).any():
                continue
            nearest = gaps[(gaps**2).sum(axis=1).argmin()]
            differences = np.vstack([differences, nearest, -nearest])
            hull = ConvexHull(differences)
        return hull

    def noise(self, hull: Any) -> Floats:
        """The planar isotropic mechanism: transform, uniform point, Gamma(3), back."""
        from scipy.spatial import ConvexHull

        corners = hull.points[hull.vertices]
        sample = self.uniform(corners, hull, SAMPLES)
        moment = sample.T @ sample / len(sample)
        values, vectors = np.linalg.eigh(moment)
        transform = vectors @ np.diag(values**-0.5) @ vectors.T
        moved = ConvexHull(corners @ transform.T)
        point = self.uniform(moved.points[moved.vertices], moved, 1)[0]
        return np.asarray(self.rng.gamma(3, 1 / self.epsilon) * np.linalg.solve(transform, point))

    def uniform(self, corners: Floats, hull: Any, count: int) -> Floats:
        low, high = corners.min(axis=0), corners.max(axis=0)
        found: list[Floats] = []
        while sum(map(len, found)) < count:
            tries = self.rng.uniform(low, high, size=(2 * count, 2))
            found.append(tries[norms(hull, tries) <= 1])
        return np.concatenate(found)[:count]


def norms(hull: Any, vectors: Floats) -> Floats:
    """max over Qhull's facets of n·v / offset."""
    heights = vectors @ hull.equations[:, :2].T / -hull.equations[:, 2]
    return np.asarray(heights.max(axis=1))
