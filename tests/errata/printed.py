"""The papers' statements as printed, for tests only: each of them is unsound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from shoal.core.codec import Floats, Ints


def printed_gap(transition: Floats, law: Floats) -> float:
    """min {1 - |λ| : |λ| < 1} over the eigenvalues of P P*: a repeated eigenvalue 1 is dropped.

    Song, Wang & Chaudhuri 2017, Eq. (7) and (14).
    """
    reverse = (law[:, None] * transition).T / law[:, None]
    sizes = np.abs(np.linalg.eigvals(transition @ reverse))
    return float((1 - sizes[sizes < 1 - 1e-9]).min())


def vertex_cut_scale(
    law: Floats, parents: Sequence[Sequence[int]], epsilon: float
) -> tuple[float, float]:
    """The Markov Quilt scale when every vertex cut of the skeleton counts as a quilt.

    Definition 4.2 with condition 1 alone. Returns the scale, and the influence of the cut that
    consists of all children of node 0.
    """
    count = len(parents)
    edges = {(a, b) for b, above in enumerate(parents) for a in above}
    children = tuple(b for b, above in enumerate(parents) if 0 in above)
    scales = []
    for node in range(count):
        others = [other for other in range(count) if other != node]
        best = math.inf
        for chosen in product((False, True), repeat=count - 1):
            cut = tuple(o for o, taken in zip(others, chosen, strict=True) if taken)
            nearby = _component(node, set(cut), edges, count)
            influence = _influence(law, node, cut)
            if influence < epsilon:
                best = min(best, len(nearby) / (epsilon - influence))
        scales.append(best)
    return max(scales), _influence(law, 0, children)


def _component(node: int, cut: set[int], edges: set[tuple[int, int]], count: int) -> set[int]:
    found, waiting = {node}, [node]
    while waiting:
        here = waiting.pop()
        for other in range(count):
            tied = (here, other) in edges or (other, here) in edges
            if tied and other not in cut and other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _influence(law: Floats, node: int, cut: tuple[int, ...]) -> float:
    """The largest log-ratio of the cut's law between two values of the node."""
    if not cut:
        return 0.0
    others = tuple(a for a in range(law.ndim) if a not in (node, *cut))
    joint = law.sum(axis=others)
    place = sorted((node, *cut)).index(node)
    rows = np.moveaxis(joint, place, 0).reshape(law.shape[node], -1)
    rows = rows / rows.sum(axis=1, keepdims=True)
    worst = 0.0
    for top, bottom in ((0, 1), (1, 0)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(rows[top] / rows[bottom])
        worst = max(worst, float(np.nanmax(ratio)))
    return worst


def cached_check(
    is_private: Callable[[Floats, object], bool],
    outputs: Sequence[object],
    tried: Sequence[Floats],
    wanted: Floats,
) -> bool:
    """Lemma 3's cache: outputs that a smaller vector passed are not checked again.

    Götz, Nath & Gehrke 2012, Section 3.3: "private" when every output passes now, or passed
    for some tried vector p ≤ q.
    """
    return all(
        is_private(wanted, output)
        or any((p <= wanted).all() and is_private(p, output) for p in tried)
        for output in outputs
    )


def breach_law(
    transition: Floats, law: Floats, length: int, node: int, weights: Ints, value: int
) -> Floats:
    """P(Σ_t weights[t, X_t] = c | X_node = value), by one convolution each way."""
    reverse = (law[:, None] * transition).T / law[:, None]
    sides = []
    for step, places in ((transition, range(node + 1, length)), (reverse, range(node - 1, -1, -1))):
        table = np.zeros((len(law), 1))
        table[value, 0] = 1.0
        for place in places:
            moved = step.T @ table
            table = np.zeros((len(law), moved.shape[1] + 1))
            for state, weight in enumerate(weights[place].tolist()):
                table[state, weight : weight + moved.shape[1]] += moved[state]
        sides.append(table.sum(axis=0))
    whole = np.convolve(sides[0], sides[1])
    return np.concatenate([np.zeros(int(weights[node, value])), whole])
