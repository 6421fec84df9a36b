"""Beliefs of an adversary who knows a chain: one step of a hidden Markov model, stateless.

Beliefs are floats and only ever steer utility. What must be exact is the support, the set of
states still possible: it is followed as booleans, so no underflow can drop a state from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.task import Model


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
        # weights are above 0 and counted one by one, so no underflow is possible
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
        """Return the transposed matrix into `step`; None where the state cannot change."""
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

    def same(self, other: FarLaw) -> bool:
        """Whether both are one law to the last bit."""
        equal = np.array_equal(self.share, other.share)
        return equal and np.array_equal(self.power, other.power)

    def step_back_from(self, rows: Floats) -> tuple[FarLaw, Floats]:
        """The law after a step with P(x, y) = rows, and log P(before = x | after = y).

        -inf where it is impossible to come to y from x, and nowhere else.
        """
        share, power = np.frexp(rows)
        share = share * self.share[:, None]
        power = np.where(share > 0, power + self.power[:, None], NO_POWER)
        top = power.max(axis=0)
        # terms below 2**-1100 are too small to change a sum that is at least 1/4
        totals = np.ldexp(share, np.maximum(power - top, -1100).astype(np.int32)).sum(axis=0)
        with np.errstate(divide="ignore"):
            logs = np.log(share) + (power - top) * math.log(2) - np.log(np.maximum(totals, 0.25))
        after, more = np.frexp(totals)
        return FarLaw(after, top + more), np.where(share > 0, logs, -np.inf)


NO_POWER = -(2**60)  # as a power of two: of no term at all


def motion_of(model: Model) -> Motion:
    """The motion of a Markov chain, dense or sparse, of any order, or with a matrix per step."""
    motion: Motion | str = model.motion()
    if isinstance(motion, str):
        raise InputError(motion)
    return motion


def posterior(prior: Floats, log_weights: Floats) -> Floats:
    """p⁺(s) ∝ p⁻(s) e^{w(s)}, with p⁻ = prior and w = log_weights, as floats that sum to 1.

    A constant added to all weights cancels; -inf rules a state out. Where all products
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


def first_order(
    matrices: Sequence[Any], initial: Floats, length: int | None, homogeneous: bool
) -> Motion:
    """The motion of a chain whose states are its entries, dense or sparse."""
    return Motion(
        size=len(initial),
        initial=initial,
        shown=np.arange(len(initial))[None, :],
        forward=tuple(transpose_sparse(matrix) for matrix in matrices),
        length=length,
        homogeneous=homogeneous,
    )


def transpose_sparse(matrix: Any) -> Any:
    """The transposed matrix in sparse rows, for products with a column of beliefs."""
    from scipy.sparse import csr_array

    rows = csr_array(csr_array(matrix).T)
    rows.eliminate_zeros()
    return rows
