"""What somebody who knows a chain believes: one step of a hidden Markov model, pure.

Beliefs are floats and only ever steer utility. What must be exact is the support, the set of
states still possible: it is followed as booleans, so no underflow can drop a state from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact, whole
from shoal.core.task import Model
from shoal.places.walk import SparseChain


@dataclass(frozen=True, slots=True, eq=False)
class Motion:
    """How beliefs move: the hidden states, their law, and the state each shows.

    For chains of order m the hidden states are tuples: the first m entries are drawn at once and
    shown one after the other, then the tuple moves. `shown[t]` holds the state each hidden state
    shows at step t, its last row that of every later step. `forward` holds the transposed sparse
    matrix of each step, a single one when all steps are alike.
    """

    size: int
    initial: Floats
    shown: Ints
    forward: tuple[Any, ...]
    length: int | None
    homogeneous: bool

    @property
    def hidden(self) -> int:
        """How many hidden states there are."""
        return len(self.initial)

    @property
    def memory(self) -> int:
        """m: the order of the chain."""
        return len(self.shown)

    def begin(self) -> Floats:
        """The belief about the first entry's hidden state, before any output."""
        return self.initial.copy()

    def predict(self, step: int, belief: Floats) -> Floats:
        """p⁻ at `step` (from 0) from the belief p⁺ at the step before: p⁻ = p⁺ M.

        Xiao & Xiong 2016, Section 3.3.
        """
        matrix = self.matrix(step)
        if matrix is None:
            return belief
        moved: Floats = matrix @ belief
        return moved

    def reach(self, step: int, support: Bools) -> Bools:
        """Which hidden states are possible at `step` when `support` was, the step before."""
        matrix = self.matrix(step)
        if matrix is None:
            return support
        # weights are above 0 and counted one by one: nothing can underflow
        moves = np.repeat(np.arange(self.hidden), np.diff(matrix.indptr))
        possible = np.zeros(self.hidden, dtype=np.bool_)
        possible[moves[support[matrix.indices]]] = True
        return possible

    def on_states(self, step: int, weights: npt.NDArray[Any]) -> Floats:
        """The mass of each state, from that of the hidden states."""
        if self.memory == 1:
            return np.asarray(weights, dtype=np.float64)
        return np.bincount(self.at(step), weights=weights, minlength=self.size).astype(np.float64)

    def states_possible(self, step: int, support: Bools) -> Bools:
        """Which states are possible, from which hidden states are."""
        if self.memory == 1:
            return support
        possible = np.zeros(self.size, dtype=np.bool_)
        possible[self.at(step)[support]] = True
        return possible

    def at(self, step: int) -> Ints:
        """The state each hidden state shows at `step`."""
        shown: Ints = self.shown[min(step, self.memory - 1)]
        return shown

    def matrix(self, step: int) -> Any:
        """The transposed matrix into `step`; None when nothing moves."""
        if self.length is not None and step >= self.length:
            raise InputError(
                f"step {step + 1} is beyond length {self.length} of the model; begin a new stream, "
                "or give the model a longer length"
            )
        if step < self.memory:
            return None
        return self.forward[0] if self.homogeneous else self.forward[step - 1]

    def rows(self, step: int) -> Floats:
        """P(hidden state y at `step` | x the step before) as a dense matrix, from step 1 on."""
        dense: Floats = self.forward[0 if self.homogeneous else step - 1].toarray().T
        return dense


@dataclass(frozen=True, slots=True, eq=False)
class FarLaw:
    """A law whose probabilities may lie far below the smallest float: `share` · 2^`power`.

    `share` is 0 where a state is impossible and in [1/2, 1) elsewhere, so that no number of steps
    makes a possible state look impossible. Each step adds a relative error below (n + 2) 2^-53.
    """

    share: Floats
    power: Ints

    @classmethod
    def of(cls, law: Floats) -> FarLaw:
        """The law of these floats."""
        share, power = np.frexp(law)
        return cls(share, power.astype(np.int64))

    @property
    def possible(self) -> Bools:
        """Which states the law can take."""
        return self.share > 0

    def moved(self, rows: Floats) -> tuple[FarLaw, Floats]:
        """The law after a step with P(x, y) = rows, and log P(before = x | after = y).

        -inf where it is impossible to come to y from x, and nowhere else.
        """
        share, power = np.frexp(rows)
        share = share * self.share[:, None]
        power = np.where(share > 0, power + self.power[:, None], LEAST)
        top = power.max(axis=0)
        # above -1100 nothing is lost but what is too small to change a sum that is at least 1/4
        totals = np.ldexp(share, np.maximum(power - top, -1100).astype(np.int32)).sum(axis=0)
        with np.errstate(divide="ignore"):
            logs = np.log(share) + (power - top) * math.log(2) - np.log(np.maximum(totals, 0.25))
        after, more = np.frexp(totals)
        return FarLaw(after, top + more), np.where(share > 0, logs, -np.inf)


LEAST = -(2**60)  # as a power of two: of no term at all


def motion_of(model: Model) -> Motion:
    """The motion of a Markov chain, dense or sparse, of any order, or with a matrix per step."""
    match model:
        case MarkovChain(transition=transition, initial=initial):
            matrices = [transition] if transition.ndim == 2 else list(transition)
            return _first_order(matrices, initial, model.length, model.homogeneous)
        case DayChain(transition=transition, initial=initial):
            return _first_order(list(transition), initial, model.slots, homogeneous=False)
        case SparseChain():
            return _first_order([model.matrix()], model.initial, model.length, homogeneous=True)
        case OrderChain():
            tuples = model.on_tuples()
            return Motion(
                size=len(model.states),
                initial=tuples.initial,
                shown=np.ascontiguousarray(model.tuples().T),
                forward=(_transposed(tuples.transition),),
                length=model.length,
                homogeneous=True,
            )
    raise InputError(
        f"the model is {model.describe()}; a stream of beliefs needs one Markov chain with a given "
        "first law"
    )


def posterior(prior: Floats, log_weights: Floats) -> Floats:
    """p⁺(s) ∝ p⁻(s) e^{w(s)}, with p⁻ = prior and w = log_weights, as floats that sum to 1.

    Adding a constant to all weights changes nothing; -inf rules a state out. Where all products
    would underflow they are formed in logarithms. All zeros when no state of positive prior has
    a finite weight: the floats have then lost what the support still knows.
    Xiao & Xiong 2016, Eq. (2).
    """
    possible = (prior > 0) & (log_weights > -np.inf)
    if not possible.any():
        return np.zeros_like(prior)
    highest = log_weights[possible].max()
    with np.errstate(under="ignore"):
        product = np.where(possible, prior * np.exp(np.minimum(log_weights - highest, 0.0)), 0.0)
        total = product.sum()
        if total < 1e-250:
            logs = np.full(len(prior), -np.inf)
            logs[possible] = np.log(prior[possible]) + log_weights[possible]
            product = np.exp(logs - logs.max())
            total = product.sum()
        return np.asarray(product / total)


def _first_order(
    matrices: list[Any], initial: Floats, length: int | None, homogeneous: bool
) -> Motion:
    return Motion(
        size=len(initial),
        initial=initial,
        shown=np.arange(len(initial))[None, :],
        forward=tuple(_transposed(matrix) for matrix in matrices),
        length=length,
        homogeneous=homogeneous,
    )


def _transposed(matrix: Any) -> Any:
    """The transposed matrix in sparse rows, for products with a column of beliefs."""
    from scipy.sparse import csr_array

    rows = csr_array(csr_array(matrix).T)
    rows.eliminate_zeros()
    return rows


# A chain learned from noisy outputs: Baum–Welch with emissions that are known.
#
# Everything it sees was released already, so the model it returns costs no further privacy.


class LearnedChain(NamedTuple):
    """The chain after the last round, and the log-likelihood of the outputs before each round."""

    chain: SparseChain
    log_likelihoods: tuple[float, ...]


def baum_welch(
    start: SparseChain | MarkovChain,
    outputs: Sequence[npt.ArrayLike],
    *,
    rounds: int = 20,
    smoothing: Number = 0,
) -> LearnedChain:
    """The chain that makes the outputs likelier, round by round, beginning at `start`.

    `outputs` holds, for each sequence, log P(output t | state s) as an array (steps, states), up
    to a constant per step; rows of zeros are steps without an output. Moves that `start` calls
    impossible stay so. `smoothing` times `start`'s own row is added to the expected counts, which
    keeps rows that were hardly visited. The likelihood never falls (without smoothing).
    """
    chain = start if isinstance(start, SparseChain) else _sparse(start)
    lean = float(exact(smoothing, "smoothing"))
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
