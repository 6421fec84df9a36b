"""A block from what lies before and after its nodes."""

from __future__ import annotations

import math

import numpy as np

from shoal.loss.exact_blocks import Block
from shoal.loss.exact_sides import Side
from shoal.loss.mixture import Bools, Floats
from shoal.loss.sums import ChainSum, Ints, by_secret, joined, secrets_of

TINY = 1e-200  # a probability below this may have lost digits to underflow: use logarithms
SMALL = 1e-10  # what may be added to a loss to save work
MANY = -1  # the node of a block that stands for many


def from_start(
    task: ChainSum, left: Side, right: Side, nodes: Ints, label: Ints, *, logs: bool
) -> Block:
    """Nodes whose past is taken whole: laws divided by the probability of the secret.

    With every initial law at once they stay undivided, beside P(secret | first state).
    """
    secrets = secrets_of(task, label)
    weights = task.first_weights if nodes[0] == 0 else task.weights
    laws = _laws(left, right, weights, label, secrets, logs)
    known = by_secret(left.reach, label, secrets)
    totals = np.where(known, _log_totals(left.table, label, secrets, logs), -math.inf)
    futures = right.table.shape[1]
    rows = _rows(left, right, label, secrets)
    starts = None
    if task.initial is None:
        starts = np.repeat(totals, futures, axis=0)
        laws = np.swapaxes(laws, 1, 2).reshape(-1, left.table.shape[1], secrets, laws.shape[-1])
        rows = np.swapaxes(rows, 1, 2).reshape(laws.shape[:-1])
    else:
        laws = _divided(laws[:, 0], totals, logs).reshape(-1, secrets, laws.shape[-1])
        rows = rows.reshape(laws.shape[:-1])
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known.any(axis=1), futures, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, futures),
        depth=max(_depth(laws, rows, logs), _lost(totals, known)),
        roundings=_roundings(left, right, laws, logs),
        starts=starts,
    )


def tied(task: ChainSum, left: Side, right: Side, offset: Floats, *, logs: bool) -> Block:
    """All nodes with the same held states before them: joint laws, and the offsets of each pair."""
    secrets = secrets_of(task, task.label)
    laws = _laws(left, right, task.weights, task.label, secrets, logs)
    laws = laws.reshape(-1, secrets, laws.shape[-1])
    compared = offset > -math.inf
    asked = np.asarray(compared.any(axis=0) | compared.any(axis=1))
    rows = _rows(left, right, task.label, secrets).reshape(laws.shape[:-1]) & asked
    roundings = _roundings(left, right, laws, logs)
    levels, excess = _levels(offset, asked)
    if excess <= SMALL:  # one law for all nodes: divide by it, and compare the extremes only
        laws = laws - levels[:, None] if logs else laws * np.exp(-levels)[:, None]
        roundings += excess * 2.0**52
    return Block(
        laws=laws,
        logs=logs,
        possible=np.broadcast_to(asked, rows.shape),
        offset=None if excess <= SMALL else offset,
        nodes=np.full(len(laws), MANY),
        depth=_depth(laws, rows, logs),
        roundings=roundings,
    )


def per_node(
    task: ChainSum,
    left: Side,
    right: Side,
    nodes: Ints,
    marginals: Floats,
    possible: Bools,
    held: Bools,
    *,
    logs: bool,
) -> Block:
    """Nodes with their own matrices and a held state before each; `held` marks possible ones.

    `marginals` and `possible` are (nodes, states), `held` (nodes, states `lag` earlier).
    """
    secrets = secrets_of(task, task.label)
    laws = _laws(left, right, task.weights, task.label, secrets, logs)
    laws = np.where(held[:, :, None, None, None], laws, -math.inf if logs else 0.0)
    known = by_secret(possible, task.label, secrets)
    totals = np.full(known.shape, -math.inf)
    with np.errstate(divide="ignore"):
        for state, secret in enumerate(task.label.tolist()):
            totals[:, secret] = np.logaddexp(totals[:, secret], np.log(marginals[:, state]))
    rows = _rows(left, right, task.label, secrets) & held[:, :, None, None]
    rows = (rows & known[:, None, None]).reshape(-1, secrets)
    laws = _divided(laws, totals[:, None], logs).reshape(-1, secrets, laws.shape[-1])
    copies = len(laws) // len(nodes)
    lost = _lost(totals, known)
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known, copies, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, copies),
        depth=max(_depth(laws, rows, logs), lost),
        roundings=_roundings(left, right, laws, logs) + (math.inf if lost == math.inf else 0.0),
    )


def _levels(offset: Floats, asked: Bools) -> tuple[Floats, float]:
    """v with offset[x, x'] ≤ v[x'] - v[x] + excess for all pairs, and the least such excess.

    inf when not all pairs of the secrets asked for are compared.
    """
    levels = np.zeros(len(offset))
    members = np.flatnonzero(asked)
    inner = offset[np.ix_(members, members)].copy()
    np.fill_diagonal(inner, 0.0)
    if not np.isfinite(inner).all():
        return levels, math.inf
    levels[members] = inner[0]
    beyond = inner - (levels[members][None, :] - levels[members][:, None])
    return levels, max(float(beyond.max()), 0.0) + 2.0**-50 * float(1 + np.abs(inner).max())


def _laws(left: Side, right: Side, weights: Ints, label: Ints, secrets: int, logs: bool) -> Floats:
    """Joint laws (nodes, held before, held after, secret, sum), without columns that are all 0."""
    laws = joined(left.table, right.table, weights, label, secrets, logs=logs)
    filled = (laws > (-math.inf if logs else 0.0)).any(axis=(0, 1, 2, 3))
    width = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 1
    return laws[..., :width]


def _rows(left: Side, right: Side, label: Ints, secrets: int) -> Bools:
    """Which of those laws are not identically zero."""
    return by_secret(left.reach[:, :, None] & right.reach[:, None], label, secrets)


def _log_totals(table: Floats, label: Ints, secrets: int, logs: bool) -> Floats:
    """log P(secret, held), (nodes, held, secrets), from (nodes, held, state, sum)."""
    with np.errstate(divide="ignore"):
        states = np.logaddexp.reduce(table, axis=-1) if logs else np.log(table.sum(axis=-1))
    totals = np.full((*states.shape[:-1], secrets), -math.inf)
    for state, secret in enumerate(label.tolist()):
        totals[..., secret] = np.logaddexp(totals[..., secret], states[..., state])
    return totals


def _divided(laws: Floats, totals: Floats, logs: bool) -> Floats:
    """Laws given the secret: (nodes, held.., secrets, sum) over (nodes, 1, secrets) in logs."""
    safe = np.where(totals > -math.inf, totals, 0.0)
    shape = (*safe.shape[:1], *(1,) * (laws.ndim - 3), safe.shape[-1], 1)
    safe = safe.reshape(shape)
    if logs:
        return np.asarray(laws - safe)
    with np.errstate(over="ignore", invalid="ignore"):  # then `_lost` turns to logarithms
        return np.asarray(laws * np.exp(-safe))


def _depth(laws: Floats, rows: Bools, logs: bool) -> float:
    """-log of the smallest total among laws that are not identically zero."""
    if logs or not rows.any():
        return 0.0
    smallest = float(laws.sum(axis=-1)[rows].min())
    return -math.log(smallest) if smallest > TINY else math.inf


def _lost(totals: Floats, known: Bools) -> float:
    """inf when a possible secret is so unlikely that doubles may have lost it, else 0."""
    return math.inf if (totals[known] < math.log(TINY)).any() else 0.0


def _roundings(left: Side, right: Side, laws: Floats, logs: bool) -> float:
    """A bound on the relative error of the entries of `laws`, in units of 2^-53.

    Each transition costs a product and a sum over the k states and the row's own rounding, the
    convolution one product and one sum per term; a logarithm of size L costs L times as much.
    """
    states, width = left.table.shape[2], laws.shape[-1]
    count: float = 2.0 * (left.steps + right.steps) * (states + 2) + 2.0 * width + 16
    if not logs:
        return count
    finite = laws[np.isfinite(laws)]
    return count * (2.0 + float(np.abs(finite).max(initial=0.0)))
