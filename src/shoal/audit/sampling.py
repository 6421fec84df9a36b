"""Data drawn from a model given one fact: many sequences at once."""

from __future__ import annotations

import numpy as np

from shoal.audit.walk import Walk
from shoal.core.value import Floats, Ints
from shoal.models.structure import time_reversal
from shoal.models.table import JointTable


def paths_given(
    walk: Walk, nodes: int, entry: int, value: int, count: int, rng: np.random.Generator
) -> Ints:
    """`count` sequences of value indices, (count, entries), from the law given one entry's value.

    The node that brings the entry is drawn first; then onward by the chain, and backward by its
    time reversal at each node.
    """
    node, shown = walk.place(entry)
    laws = walk.laws(nodes)
    states = np.empty((count, nodes), dtype=np.int64)
    states[:, node] = _drawn(np.where(shown == value, laws[node], 0.0), count, rng)
    for t in range(node, nodes - 1):
        states[:, t + 1] = _moved(walk.matrix(t), states[:, t], rng)
    for t in range(node, 0, -1):
        back = time_reversal(walk.matrix(t - 1), laws[t - 1])
        states[:, t - 1] = _moved(back, states[:, t], rng)
    first = np.stack([values[states[:, 0]] for values in walk.first], axis=1)
    return np.hstack([first, walk.shown[states[:, 1:]]])


def outcomes_given(
    table: JointTable,
    where: dict[str, tuple[str, ...]],
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """`count` outcomes of a joint law given an event, (count, variables), as value indices."""
    law = np.where(table.event(where), table.probability, 0.0).ravel()
    flat = _drawn(law, count, rng)
    return np.stack(np.unravel_index(flat, table.probability.shape), axis=1).astype(np.int64)


def _drawn(law: Floats, count: int, rng: np.random.Generator) -> Ints:
    """`count` indices with probabilities proportional to `law`, never one of probability 0."""
    edges = np.cumsum(law)
    found = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    last = int(np.flatnonzero(law)[-1])
    return np.asarray(np.minimum(found, last), np.int64)


def _moved(matrix: Floats, states: Ints, rng: np.random.Generator) -> Ints:
    """One step from each of `states`."""
    edges = np.cumsum(matrix, axis=1)
    uniform = rng.random(len(states)) * edges[states, -1]
    found = (uniform[:, None] >= edges[states]).sum(axis=1)
    last = matrix.shape[1] - 1 - np.argmax(matrix[:, ::-1] > 0, axis=1)
    return np.asarray(np.minimum(found, last[states]), np.int64)
