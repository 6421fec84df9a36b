"""Edges of policy graphs, as sorted pairs of state indices."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Ints
from shoal.models.filter import Motion

CHUNK = 2**22  # distances held at once


def canonical(edges: Ints, size: int) -> Ints:
    """Distinct pairs with i < j, sorted; refused when a state is joined to itself or unknown."""
    if not len(edges):
        return np.empty((0, 2), dtype=np.int64)
    if edges.min() < 0 or edges.max() >= size:
        raise InputError(f"an edge names state {edges.max()}; states are 0 to {size - 1}")
    low, high = edges.min(axis=1), edges.max(axis=1)
    if (low == high).any():
        place = int(low[low == high][0])
        raise InputError(f"an edge joins state {place} to itself; leave it out")
    keys = np.unique(low * size + high)
    return np.stack(np.divmod(keys, size), axis=1)


def clique_edges(groups: Ints) -> Ints:
    """All pairs inside each group of two or more; groups below 0 are none."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        first, second = np.triu_indices(len(members), 1)
        found.append(np.stack([members[first], members[second]], axis=1))
    return np.concatenate(found)


def edges_within(points: Ints, squared: Fraction) -> Ints:
    """Pairs with |p - q|² ≤ squared, exactly, in lattice steps."""
    limit = squared.numerator // squared.denominator  # distances are integers
    found = [np.empty((0, 2), dtype=np.int64)]
    for rows, distances in _distances(points):
        first, second = np.nonzero(distances <= limit)
        first = rows[first]
        found.append(np.stack([first, second], axis=1)[first < second])
    return np.concatenate(found)


def edges_nearest(points: Ints, k: int) -> Ints:
    """Each state and its k nearest others, ties by index."""
    size = len(points)
    count = min(k, size - 1)
    found = [np.empty((0, 2), dtype=np.int64)]
    for rows, distances in _distances(points):
        distances[np.arange(len(rows)), rows] = np.iinfo(np.int64).max
        order = np.argsort(distances, axis=1, kind="stable")[:, :count]
        found.append(np.stack([np.repeat(rows, count), order.ravel()], axis=1))
    return canonical(np.concatenate(found), size)


def edges_of_moves(motion: Motion) -> Ints:
    """Pairs of states that can follow one and the same hidden state, in any step."""
    found = [np.empty((0, 2), dtype=np.int64)]
    last = motion.at(motion.memory)
    for matrix in motion.forward:
        moves = matrix.tocsc()  # its columns are the rows of the chain
        for origin in range(motion.hidden):
            targets = np.unique(
                last[moves.indices[moves.indptr[origin] : moves.indptr[origin + 1]]]
            )
            first, second = np.triu_indices(len(targets), 1)
            found.append(np.stack([targets[first], targets[second]], axis=1))
    return canonical(np.concatenate(found), motion.size)


def _distances(points: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Squared distances from blocks of states to all states."""
    size = len(points)
    block = max(1, CHUNK // max(size, 1))
    blocks = [np.arange(start, min(start + block, size)) for start in range(0, size, block)]

    def squared(rows: Ints) -> Ints:
        total = np.zeros((len(rows), size), dtype=np.int64)
        for axis in range(points.shape[1]):
            total += (points[rows, axis][:, None] - points[None, :, axis]) ** 2
        return total

    for rows in blocks:
        yield rows, squared(rows)
