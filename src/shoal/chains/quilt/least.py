"""A lower bound on what Markov quilts of a chain can promise: the cheapest quilt of one node."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.codec import Floats

MAX_COMPARED = 4_000_000  # numbers held at once: log-ratios of all pairs, quilts of one pair


def least_quilt_loss(
    initial: Floats, transition: Floats, length: int | None, eta: float, below: float
) -> float:
    """Return a bound that no survey of quilts at `eta` falls below, or `below` if that is less.

    The survey's loss is the largest over nodes of min over quilts (|N|·eta + e). This is that
    minimum for one node in the middle of a homogeneous chain, over all quilts with |N|·eta <
    `below`: others lose at least as much. Not rounded. Returns 0 where the comparison is too large.
    """
    size, near = len(transition), math.floor(below / eta) + 1
    left = near if length is None else (length - 1) // 2
    right = near if length is None else length - 1 - left
    before, after = min(left, near), min(right, near)
    if (before + after) * size**3 > MAX_COMPARED or before * after > MAX_COMPARED:
        return 0.0
    laws = [initial @ np.linalg.matrix_power(transition, left - before)]
    for _ in range(before):
        laws.append(laws[-1] @ transition)
    secrets = np.flatnonzero(laws[-1] > 0)
    if len(secrets) < 2:
        return 0.0
    powers = [transition]
    for _ in range(max(before, after) - 1):
        powers.append(powers[-1] @ transition)
    stacked = np.array(powers)
    forward = stacked[:after][:, secrets]
    joint = np.array(laws[:before][::-1]).reshape(before, size, 1) * stacked[:before]
    backward = joint[:, :, secrets].transpose(0, 2, 1)
    influence_after = _with_absent_end(_log_ratios(forward), right, after)
    influence_before = _with_absent_end(
        _log_ratios(backward / laws[-1][secrets, None]), left, before
    )
    lags_after = np.append(np.arange(1, after + 1), right + 1)[: len(influence_after)]
    lags_before = np.append(np.arange(1, before + 1), left + 1)[: len(influence_before)]
    worst = np.zeros((len(lags_before), len(lags_after)))
    for pair in range(influence_after.shape[1]):
        np.maximum(
            worst, influence_before[:, pair, None] + influence_after[None, :, pair], out=worst
        )
    losses = (lags_before[:, None] + lags_after[None, :] - 1) * eta + worst
    return float(min(losses.min(), below))


def _log_ratios(rows: Floats) -> Floats:
    """Return max over y of log rows[lag, x, y] / rows[lag, x', y]: a row a lag, a column a pair."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(rows)
        gaps = logs[:, :, None, :] - logs[:, None, :, :]  # nan where neither value leads to y
    return np.asarray(np.fmax.reduce(gaps, axis=3).reshape(len(rows), rows.shape[1] ** 2))


def _with_absent_end(influences: Floats, entries: int, followed: int) -> Floats:
    """Append the influence 0 of an end-point past the chain's end, where all lags were followed."""
    if followed < entries:
        return influences
    return np.concatenate((influences, np.zeros((1, influences.shape[1]))))
