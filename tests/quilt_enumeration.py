"""Markov quilts by enumerating whole joint laws: slow, plain, and independent of the kernels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from shoal.core.codec import Floats

Joint = dict[tuple[int, ...], float]


def joint_law(transition: Floats, initial: Floats, length: int) -> Joint:
    """The probability of every possible sequence."""
    joint: Joint = {}
    for path in itertools.product(range(len(initial)), repeat=length):
        mass = float(initial[path[0]])
        for step in range(length - 1):
            matrix = transition if transition.ndim == 2 else transition[step]
            mass *= float(matrix[path[step], path[step + 1]])
        if mass > 0.0:
            joint[path] = mass
    return joint


def influence(joint: Joint, node: int, quilt: Sequence[int], size: int) -> float:
    """Definition 4.1 word for word."""
    laws: list[dict[tuple[int, ...], float]] = [{} for _ in range(size)]
    totals = [0.0] * size
    for path, mass in joint.items():
        key = tuple(path[other] for other in quilt)
        laws[path[node]][key] = laws[path[node]].get(key, 0.0) + mass
        totals[path[node]] += mass
    largest = 0.0
    for a, b in itertools.permutations([x for x in range(size) if totals[x] > 0.0], 2):
        for key, mass in laws[a].items():
            if key not in laws[b]:
                return math.inf
            ratio = math.log(mass / totals[a]) - math.log(laws[b][key] / totals[b])
            largest = max(largest, ratio)
    return largest


def quilts(node: int, length: int, reach: int | None) -> Iterator[tuple[list[int], int]]:
    """Every quilt of Lemma 4.6 within reach, as nodes, and its |N|."""
    farthest = length if reach is None else reach
    lefts = [None, *range(max(0, node - farthest), node)]
    rights = [None, *range(node + 1, min(length, node + farthest + 1))]
    for left, right in itertools.product(lefts, rights):
        first = -1 if left is None else left
        last = length if right is None else right
        ends = [end for end in (left, right) if end is not None]
        yield ends, last - first - 1


def node_scores(
    transition: Floats, initial: Floats, length: int, epsilon: float, reach: int | None = None
) -> list[float]:
    """min over quilts of |N| / (epsilon - e), for every node."""
    joint = joint_law(transition, initial, length)
    scores = []
    for node in range(length):
        best = math.inf
        for ends, nearby in quilts(node, length, reach):
            moved = influence(joint, node, ends, len(initial))
            if moved < epsilon:
                best = min(best, nearby / (epsilon - moved))
        scores.append(best)
    return scores


def loss(
    transition: Floats, initial: Floats, length: int, eta: float, reach: int | None = None
) -> float:
    """max over nodes of min over quilts of |N|·eta + e."""
    joint = joint_law(transition, initial, length)
    return max(
        min(
            nearby * eta + influence(joint, node, ends, len(initial))
            for ends, nearby in quilts(node, length, reach)
        )
        for node in range(length)
    )


def random_rows(rng: np.random.Generator, shape: tuple[int, ...], zeros: float) -> Floats:
    """Rows that sum to 1, each entry 0 with the given probability."""
    weights = rng.random(shape) ** 2
    weights[rng.random(shape) < zeros] = 0.0
    weights[weights.sum(axis=-1) == 0.0, 0] = 1.0
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))
