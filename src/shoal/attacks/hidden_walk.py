"""Beliefs about a hidden Markov chain from all that was seen, in logarithms throughout.

A scaled pass would lose states that look impossible early and turn out to be the truth later, as
happens when the adversary's chain is not the person's. Sums are formed in plain numbers where that
is exact enough, which is nearly everywhere, and in logarithms where terms may have underflowed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.chains.hidden import Motion
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError

CLEAR = 1e-280  # terms below 1e-308 are lost, which sums above this do not notice


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """log P(hidden state at each step) before any output, before and after its own, after all.

    `evidence` is log P(outputs), up to the constants left out of the likelihoods.
    """

    before: Floats
    predicted: Floats
    filtered: Floats
    smoothed: Floats
    evidence: float


def follow(motion: Motion, begin: Floats, first: int, rows: Floats) -> Followed:
    """What somebody believes about the hidden states at every step.

    `begin` is the log-law of the hidden state at the start, `first` the time of the first step (1
    after a known start), `rows` (steps, hidden) the log-likelihood of each step's output. With
    α_t = log P(z_1 … z_t, h_t) and β_t = log P(z_{t+1} … | h_t), smoothed is α + β - evidence.
    """
    steps = len(rows)
    before, predicted, filtered = np.empty_like(rows), np.empty_like(rows), np.empty_like(rows)
    law = joint = begin
    for t in range(steps):
        moves = motion.matrix(first + t)
        if moves is not None:
            law, joint = pushed(moves, law), pushed(moves, joint)
        before[t], predicted[t] = law, joint
        joint = joint + rows[t]
        filtered[t] = joint
    evidence = float(total(joint))
    if evidence == -math.inf:
        raise InputError("what was released is impossible under the adversary's model")
    smoothed = _laws(filtered + later(motion, first, rows))
    return Followed(before, _laws(predicted), _laws(filtered), smoothed, evidence)


def later(motion: Motion, first: int, rows: Floats) -> Floats:
    """β_t(h) = log P(outputs after t | hidden state h at t), (steps, hidden); 0 at the end."""
    found = np.zeros_like(rows)
    transposed, moves = None, None
    for t in range(len(rows) - 2, -1, -1):
        if motion.matrix(first + t + 1) is not transposed:
            transposed = motion.matrix(first + t + 1)
            moves = None if transposed is None else transposed.T.tocsr()
        ahead = rows[t + 1] + found[t + 1]
        found[t] = ahead if moves is None else pushed(moves, ahead)
    return found


def likeliest(motion: Motion, begin: Floats, first: int, rows: Floats) -> Ints:
    """The hidden states of the likeliest whole path given the outputs (Viterbi), ties by index.

    No table of predecessors is kept: on the way back only those of one state are looked at.
    """
    best = np.empty_like(rows)
    table = begin
    matrix, logs = None, np.zeros(0)
    for t in range(len(rows)):
        moves = motion.matrix(first + t)
        if moves is not None:
            if moves is not matrix:
                matrix, logs = moves, np.log(moves.data)
            table = _by_row(np.maximum, moves, logs + table[moves.indices])
        best[t] = table
        table = table + rows[t]
    path = np.empty(len(rows), dtype=np.int64)
    path[-1] = int(np.argmax(table))
    for t in range(len(rows) - 1, 0, -1):
        moves, here = motion.matrix(first + t), int(path[t])
        if moves is None:
            path[t - 1] = here
            continue
        own = slice(int(moves.indptr[here]), int(moves.indptr[here + 1]))
        origins = moves.indices[own]
        chance = np.log(moves.data[own]) + (best[t - 1] + rows[t - 1])[origins]
        path[t - 1] = origins[chance == chance.max()].min()
    return path


def pushed(matrix: Any, logs: Floats) -> Floats:
    """log (matrix e^logs) for a matrix in sparse rows without negative entries.

    -inf where nothing leads; no possible entry is lost to underflow.
    """
    top = logs.max()
    if top == -math.inf:
        return np.full(matrix.shape[0], -math.inf)
    with np.errstate(under="ignore", divide="ignore"):
        sums = matrix @ np.exp(logs - top)
        found: Floats = np.log(sums) + top
    unclear = np.flatnonzero(sums < CLEAR)
    if len(unclear):
        some = matrix[unclear]
        found[unclear] = _by_row(np.logaddexp, some, np.log(some.data) + logs[some.indices])
    return found


def total(logs: Floats) -> Floats:
    """log Σ e^logs along the last axis; -inf where there is nothing."""
    top = logs.max(axis=-1, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(under="ignore", divide="ignore"):
        found = np.log(np.exp(logs - safe).sum(axis=-1)) + safe[..., 0]
    return np.asarray(found)


def on_states(motion: Motion, first: int, hidden: Floats) -> Floats:
    """Log-laws of the states shown at each step, (steps, states), from those of hidden states."""
    if motion.memory == 1:
        return hidden
    found = np.full((len(hidden), motion.size), -math.inf)
    for t, row in enumerate(hidden):
        np.logaddexp.at(found[t], motion.at(first + t), row)
    return found


def _laws(logs: Floats) -> Floats:
    """Each row less its total, so that it is the logarithm of a law."""
    return np.asarray(logs - total(logs)[:, None])


def _by_row(combine: np.ufunc, matrix: Any, values: npt.NDArray[Any]) -> Floats:
    """The values of each row of a sparse matrix combined; -inf for rows without any."""
    found = np.full(matrix.shape[0], -math.inf)
    filled = np.diff(matrix.indptr) > 0
    if filled.any():
        found[filled] = combine.reduceat(values, matrix.indptr[:-1][filled])
    return found
