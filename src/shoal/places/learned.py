"""A chain of places learned from noisy outputs: Baum–Welch with emissions that are known.

Everything it sees was released already, so the model it returns costs no further privacy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.registry import load
from shoal.places.walk import SparseChain


class LearnedChain(NamedTuple):
    """The chain after the last round, and the log-likelihood of the outputs before each round."""

    chain: SparseChain
    log_likelihoods: tuple[float, ...]


def baum_welch(
    start: SparseChain | MarkovChain,
    outputs: Any,
    *,
    rounds: int = 20,
    smoothing: Number = 0,
    series: str | None = None,
    time: str | None = None,
) -> LearnedChain:
    """The chain that makes the outputs likelier, round by round, beginning at `start`.

    `outputs` holds, for each sequence, log P(output t | state s) as an array (steps, states), up
    to a constant per step; rows of zeros are steps without an output. A table or a file has a
    column of them for each state; `series` tells sequences apart and `time` orders them. Moves that
    `start` calls impossible stay so. `smoothing` times `start`'s own row is added to the expected
    counts, which keeps rows that were hardly visited. The likelihood never falls (without
    smoothing).
    """
    chain = start if isinstance(start, SparseChain) else _sparse(start)
    lean = float(exact(smoothing, "smoothing"))
    if load("shoal.data.entries:is_source")(outputs):
        outputs = load("shoal.data.entries:likelihoods")(outputs, chain.states, series, time)
    elif series is not None or time is not None:
        raise InputError("series and time name columns; give the outputs as a table or a file")
    sequences = [_checked(rows, chain.size) for rows in outputs]
    if not sequences:
        raise InputError("outputs is empty; give at least one sequence")
    prior = chain
    history = []
    for _ in range(whole(rounds, "rounds")):
        moves, first = np.zeros(len(chain.targets)), np.zeros(chain.size)
        total = 0.0
        for rows in sequences:
            total += _expected(chain, rows, moves, first)
        history.append(total)
        chain = _maximised(chain, prior, moves, first, lean)
    return LearnedChain(chain, tuple(history))


def _expected(chain: SparseChain, logs: Floats, moves: Floats, first: Floats) -> float:
    """Adds the expected moves and first states of one sequence; its log-likelihood comes back."""
    highest = logs.max(axis=1)
    with np.errstate(under="ignore"):
        weights = np.exp(logs - highest[:, None])
    steps, matrix = len(logs), chain.matrix()
    forward, scales = np.empty_like(weights), np.empty(steps)
    backwards = matrix.T.tocsr()
    belief = chain.initial
    for t in range(steps):
        belief = (backwards @ belief if t else belief) * weights[t]
        scales[t] = belief.sum()
        if scales[t] <= 0:
            raise InputError(
                f"outputs: step {t + 1} of a sequence is impossible under the chain; smooth it, "
                "or leave the sequence out"
            )
        belief = belief / scales[t]
        forward[t] = belief
    origins = np.repeat(np.arange(chain.size), np.diff(chain.starts))
    later = np.ones(chain.size)
    for t in range(steps - 1, 0, -1):
        ahead = weights[t] * later / scales[t]
        moves += forward[t - 1][origins] * chain.weights * ahead[chain.targets]
        later = matrix @ ahead
    first += forward[0] * later
    return float(np.log(scales).sum() + highest.sum())


def _maximised(
    chain: SparseChain, prior: SparseChain, moves: Floats, first: Floats, lean: float
) -> SparseChain:
    """The chain of the expected counts; rows never left keep their law."""
    counts = moves + lean * prior.weights
    totals = np.add.reduceat(counts, chain.starts[:-1])
    spread = np.repeat(totals, np.diff(chain.starts))
    kept = spread <= 0
    shares = np.where(kept, chain.weights, counts / np.where(kept, 1.0, spread))
    # a move that is stored can happen: what underflows stays at the least positive share
    shares = np.maximum(shares, np.finfo(np.float64).tiny)
    shares = shares / np.repeat(np.add.reduceat(shares, chain.starts[:-1]), np.diff(chain.starts))
    law = first + lean * prior.initial
    return SparseChain(
        states=chain.states,
        starts=chain.starts,
        targets=chain.targets,
        weights=np.maximum(shares, np.finfo(np.float64).tiny),
        initial=law / law.sum(),
        length=chain.length,
        grid=chain.grid,
        cells=chain.cells,
    )


def _sparse(chain: MarkovChain) -> SparseChain:
    if not chain.homogeneous:
        raise InputError("start has one matrix per step; Baum–Welch learns one for all steps")
    return SparseChain.of(
        chain.transition, initial=chain.initial, states=chain.states, length=chain.length
    )


def _checked(rows: npt.ArrayLike, size: int) -> Floats:
    logs: Any = np.asarray(rows, np.float64)
    if logs.ndim != 2 or logs.shape[1] != size or not len(logs):
        raise InputError(
            f"outputs has a sequence of shape {logs.shape}; it must be (steps, {size})"
        )
    if np.isnan(logs).any() or not (logs.max(axis=1) > -np.inf).all():
        raise InputError("outputs has a step that no state can explain; check its likelihoods")
    return np.asarray(logs)
