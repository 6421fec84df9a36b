"""A block from what lies before and after its nodes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.loss.exact_blocks import Block
from shoal.loss.exact_convolution import convolved, joined, no_mass
from shoal.loss.exact_sides import Side
from shoal.loss.mixture import Bools, Floats
from shoal.loss.sums import ChainSum, Ints, by_secret, secrets_of

TINY = 1e-200  # a probability below this may have lost digits to underflow: use logarithms
SMALL = 1e-10  # what may be added to a loss to save work
STEEP = 60.0  # log-ratios of marginals up to which laws may be divided by them
MANY = -1  # the node of a block that stands for many


def from_start(
    task: ChainSum, left: Side, right: Side, node: int, label: Ints, *, logs: bool, compiled: bool
) -> Block:
    """One node whose past is taken whole, for each of the facts held after it."""
    secrets = secrets_of(task, label)
    laws = _laws(left, right, task.weights_at(node), label, secrets, logs, compiled)
    states = np.logaddexp.reduce(left.table, axis=-1) if logs else left.table.sum(axis=-1)
    nodes = np.array([node])
    block = _given_secret(task, laws, states, left, right, nodes, label, logs)
    return replace(block, compiled=compiled)


def whole_nodes(
    task: ChainSum, sides: Sequence[tuple[Side, Side]], nodes: Ints, *, logs: bool
) -> Block:
    """Nodes after the first, each with all that is before and after it."""
    secrets = secrets_of(task, task.label)
    widths = [left.table.shape[-1] + right.table.shape[-1] - 1 for left, right in sides]
    starts = sides[0][0].table.shape[1]
    laws = no_mass((len(sides), starts, 1, secrets, max(widths) + task.reach), logs)
    for law, (left, right) in zip(laws, sides, strict=True):
        _add_whole(law[:, 0], left.table[0], right.table[0, 0], task, logs)
    tables = [left.table for left, _ in sides]
    sums = [np.logaddexp.reduce(t, axis=-1) if logs else t.sum(axis=-1) for t in tables]
    last_left, last_right = sides[-1][0], sides[0][1]
    left = Side(last_left.table, np.concatenate([s.reach for s, _ in sides]), *_plain(last_left))
    right = Side(last_right.table, last_right.reach, *_plain(last_right))
    states = np.concatenate(sums)
    return _given_secret(task, laws, states, left, right, nodes, task.label, logs)


def _add_whole(law: Floats, left: Floats, right: Floats, task: ChainSum, logs: bool) -> None:
    """Into law (first states, secrets, sum): one node's past (first states, states, sum) and
    future (states, sum) convolved, its own weight added."""
    shown = zip(task.label.tolist(), task.weights.tolist(), strict=True)
    for state, (secret, weight) in enumerate(shown):
        for start in range(len(left)):
            if logs:
                row = convolved(left[start, state], right[state], logs=True)
                target = law[start, secret, weight : weight + len(row)]
                np.logaddexp(target, row, out=target)
            else:
                row = np.convolve(left[start, state], right[state])
                law[start, secret, weight : weight + len(row)] += row


def _plain(side: Side) -> tuple[Ints, int]:
    return side.entries, side.steps


def _given_secret(
    task: ChainSum,
    laws: Floats,
    states: Floats,
    left: Side,
    right: Side,
    nodes: Ints,
    label: Ints,
    logs: bool,
) -> Block:
    """Joint laws (nodes, first states, held after, secret, sum) divided by the secret's chance.

    `states` (nodes, first states, states) are the totals of the past. With every initial law at
    once the laws stay undivided, beside P(secret | first state).
    """
    secrets, futures = laws.shape[3], laws.shape[2]
    known = by_secret(left.reach, label, secrets)
    totals = np.where(known, _log_totals(states, label, secrets, logs), -math.inf)
    depth = _depth(laws, _rows(left, right, label, secrets), logs)
    starts = None
    if task.initial is None:
        starts = np.repeat(totals, futures, axis=0)
        laws = np.swapaxes(laws, 1, 2).reshape(-1, laws.shape[1], secrets, laws.shape[-1])
    else:
        laws = _divided(laws[:, 0], totals, logs).reshape(-1, secrets, laws.shape[-1])
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known.any(axis=1), futures, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, futures),
        depth=depth,
        roundings=_roundings(left, right, laws, logs),
        starts=starts,
    )


def tied(
    task: ChainSum, left: Side, right: Side, offset: Floats, *, logs: bool, compiled: bool
) -> Block:
    """All nodes with the same held states before them: joint laws, and the offsets of each pair."""
    secrets = secrets_of(task, task.label)
    laws = _laws(left, right, task.weights, task.label, secrets, logs, compiled)
    laws = laws.reshape(-1, secrets, laws.shape[-1])
    compared = offset > -math.inf
    asked = np.asarray(compared.any(axis=0) | compared.any(axis=1))
    rows = _rows(left, right, task.label, secrets).reshape(laws.shape[:-1]) & asked
    depth, roundings = _depth(laws, rows, logs), _roundings(left, right, laws, logs)
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
        depth=depth,
        roundings=roundings,
        compiled=compiled,
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
    laws = _laws(left, right, task.weights, task.label, secrets, logs, False)
    laws = np.where(held[:, :, None, None, None], laws, -math.inf if logs else 0.0)
    known = by_secret(possible, task.label, secrets)
    totals = np.full(known.shape, -math.inf)
    with np.errstate(divide="ignore"):
        for state, secret in enumerate(task.label.tolist()):
            totals[:, secret] = np.logaddexp(totals[:, secret], np.log(marginals[:, state]))
    rows = _rows(left, right, task.label, secrets) & held[:, :, None, None]
    depth = _depth(laws, rows & known[:, None, None], logs)
    laws = _divided(laws, totals[:, None], logs).reshape(-1, secrets, laws.shape[-1])
    copies = len(laws) // len(nodes)
    lost = bool((totals[known] < math.log(TINY)).any())
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known, copies, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, copies),
        depth=depth,
        # the marginals are plain doubles: one that is nearly lost bounds nothing
        roundings=math.inf if lost else _roundings(left, right, laws, logs),
    )


def _levels(offset: Floats, asked: Bools) -> tuple[Floats, float]:
    """v with offset[x, x'] ≤ v[x'] - v[x] + excess for all pairs, and the least such excess.

    inf when not all pairs of the secrets asked for are compared, or v is steep enough for the
    scaled laws to underflow.
    """
    levels = np.zeros(len(offset))
    members = np.flatnonzero(asked)
    inner = offset[np.ix_(members, members)].copy()
    np.fill_diagonal(inner, 0.0)
    if not (np.abs(inner) <= STEEP).all():
        return levels, math.inf
    levels[members] = inner[0]
    beyond = inner - (levels[members][None, :] - levels[members][:, None])
    return levels, max(float(beyond.max()), 0.0) + 2.0**-50 * float(1 + np.abs(inner).max())


def _laws(
    left: Side,
    right: Side,
    weights: Ints,
    label: Ints,
    secrets: int,
    logs: bool,
    compiled: bool,
) -> Floats:
    """Joint laws (nodes, held before, held after, secret, sum), without columns that are all 0."""
    laws = joined(left.table, right.table, weights, label, secrets, logs=logs, compiled=compiled)
    filled = (laws > (-math.inf if logs else 0.0)).any(axis=(0, 1, 2, 3))
    width = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 1
    return laws[..., :width]


def _rows(left: Side, right: Side, label: Ints, secrets: int) -> Bools:
    """Which of those laws are not identically zero."""
    return by_secret(left.reach[:, :, None] & right.reach[:, None], label, secrets)


def _log_totals(states: Floats, label: Ints, secrets: int, logs: bool) -> Floats:
    """log P(secret, held), (nodes, held, secrets), from the totals of states."""
    if not logs:
        with np.errstate(divide="ignore"):
            states = np.log(states)
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
    with np.errstate(over="ignore", invalid="ignore"):  # then `depth` turns to logarithms
        return np.asarray(laws * np.exp(-safe))


def _depth(laws: Floats, rows: Bools, logs: bool) -> float:
    """-log of the smallest total among the joint laws that are not identically zero.

    Joint, not divided by anything: underflow is measured against what was computed.
    """
    if logs or not rows.any():
        return 0.0
    smallest = float(laws.sum(axis=-1)[rows].min())
    return -math.log(smallest) if smallest > TINY else math.inf


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
