"""What outputs beyond all answers tell: a lower bound of the exact loss that needs no law.

Beyond the largest answer the density of F + Laplace(s) given x is a multiple of E[exp(F/s) | x],
beyond the smallest one of E[exp(-F/s) | x]. Given X_i both factor into the past, the entry itself
and the future, and each follows from one entry to the next by one small matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from shoal.additive.mixture import crossing
from shoal.chains.exact.sums import ChainSum, supports_at
from shoal.core.codec import Bools, Floats, Ints

FEW = 33  # entries on one side up to which every number of them is looked at
PLACES = 128  # numbers of entries looked at beyond those on a chain with a length
FAR = 1 << 17  # entries beyond which a chain of any length is not followed
SOLVED = 1e-10  # relative accuracy of a scale
ALIKE = 1e-13  # differences of logarithms that are none
SIGNS = np.array([1.0, -1.0])


class Ends:
    """The two ends of the outputs of a sum over a chain with one matrix and one initial law."""

    def __init__(self, task: ChainSum) -> None:
        assert task.homogeneous
        assert task.initial is not None
        self.task = task

    def loss(self, decay: float) -> float:
        """The largest log-ratio at ±∞ of noise exp(-decay·|j|) over nodes, pairs and lengths.

        max over d, r, x, x' and both signs of ±(w(x) - w(x'))·decay + log f_r(x)/f_r(x') +
        log p_d(x)/p_d(x'), f_r(x) = E[exp(±decay·sum of the r entries after) | x], p_d the same
        for the d entries before; d + r < length. Only some d and r are looked at, each of them a
        length the task covers: never above the true loss but for rounding.
        """
        before, after = self._counts
        last = None if self.task.length is None else self.task.length - 1
        after, future = _changing(after, self._futures(decay, after))
        before, past = _changing(before, self._pasts(decay, before))
        highest = np.maximum.accumulate(_gaps(future), axis=0)
        worst = -math.inf
        for place, count in enumerate(before.tolist()):
            limit = len(after)
            if last is not None:
                limit = int(np.searchsorted(after, last - count, "right"))
            if limit:
                gaps = highest[limit - 1] + _gaps(past[place : place + 1])[0]
                worst = max(worst, float(gaps.max()))
        return worst

    def least_scale(self, epsilon: float) -> float:
        """The scale at which the two ends lose epsilon: no scale below keeps the promise.

        Rounds down, by up to 1e-10. 0 when the ends lose nothing at any scale, inf when they
        lose more than epsilon at every scale that was tried.
        """
        step = self.task.step
        guess = self.task.reach / epsilon
        return step * crossing(lambda scale: self.loss(1 / scale), epsilon, guess, SOLVED)[0]

    def held(self, size: int, decay: float, groups: Sequence[Bools]) -> tuple[Floats, list[Floats]]:
        """At ±∞, windows of `size` with a state held beyond: log-ratios (future, past) of pairs.

        max over z of log H(x, z)/H(x', z), the entry's own weight included, (k, k), and for each
        group the same over its y of log H(y, x)/H(y, x'), H the moments of `size` steps. Without
        the offsets of the nodes. inf where a moment is 0 or was lost.
        """
        own = self._tilts(decay)
        moments = np.matmul(self.task.matrices[0], self._power(own, size - 1))
        with np.errstate(divide="ignore"):
            logs, tilts = np.log(moments), np.log(own)
        future = _widest(np.swapaxes(logs + tilts[:, :, None], 1, 2).reshape(-1, logs.shape[1]))
        return future, [_widest(logs[:, group].reshape(-1, logs.shape[1])) for group in groups]

    @cached_property
    def _counts(self) -> tuple[Ints, Ints]:
        """The numbers of entries before, and after, that are looked at."""
        length = self.task.length
        last = FAR if length is None else length - 1
        counts = set(range(min(FEW, last + 1)))
        count = FEW
        while count <= last:
            counts.add(count)
            count += 1 << ((count // 4).bit_length() - 1)
        if length is None:
            grid = np.array(sorted(counts))
            return grid, grid
        even = range(0, last + 1, max(1, last // PLACES))
        after = np.array(sorted(counts.union(even)))
        return np.array(sorted(counts.union(last - place for place in even))), after

    def _tilts(self, decay: float) -> Floats:
        """exp(±decay·w), scaled to be at most 1: (2, states)."""
        tilted = SIGNS[:, None] * self.task.weights * decay
        return np.asarray(np.exp(tilted - tilted.max(axis=1, keepdims=True)))

    def _futures(self, decay: float, counts: Ints) -> Floats:
        """log f_r(x) and the entry's own weight, up to a constant: (r, 2, states)."""
        own = self._tilts(decay)
        steps = _Powers(self.task.matrices[0] * own[:, None, :])
        rows = _followed(np.ones((2, self.task.states, 1)), counts, steps.onto)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(rows[..., 0]) + np.log(own))

    def _pasts(self, decay: float, counts: Ints) -> Floats:
        """log p_d(x) up to a constant, nan where x is impossible: (d, 2, states)."""
        assert self.task.initial is not None
        own, matrix, first = self._tilts(decay), self.task.matrices[0], self.task.initial
        start = np.broadcast_to(first, (2, 1, self.task.states))
        tilted = _followed(start, counts, _Powers(own[:, :, None] * matrix).behind)
        plain = _followed(start, counts, _Powers(np.stack([matrix] * 2)).behind)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(tilted[:, :, 0]) - np.log(plain[:, :, 0])
        known = supports_at(self.task, counts)
        return np.where(known[:, None, :], logs, math.nan)

    def _power(self, own: Floats, steps: int) -> Floats:
        """(diag(own) P)^steps, up to a constant."""
        powers = _Powers(own[:, :, None] * self.task.matrices[0])
        return powers.behind(np.stack([np.eye(self.task.states)] * 2), steps)


class _Powers:
    """Powers of two matrices side by side, each up to a positive constant."""

    def __init__(self, matrices: Floats) -> None:
        self._doubled = [matrices]

    def onto(self, columns: Floats, steps: int) -> Floats:
        """M^steps · columns."""
        for matrix in self._binary(steps):
            columns = _scaled(np.matmul(matrix, columns))
        return columns

    def behind(self, rows: Floats, steps: int) -> Floats:
        """rows · M^steps."""
        for matrix in self._binary(steps):
            rows = _scaled(np.matmul(rows, matrix))
        return rows

    def _binary(self, steps: int) -> list[Floats]:
        while steps >> len(self._doubled):
            last = self._doubled[-1]
            self._doubled.append(_scaled(np.matmul(last, last)))
        return [matrix for bit, matrix in enumerate(self._doubled) if steps >> bit & 1]


def _followed(start: Floats, counts: Ints, onward: Callable[[Floats, int], Floats]) -> Floats:
    """The vectors after each of the increasing `counts` of steps."""
    rows, known = [], 0
    for count in counts.tolist():
        start = onward(start, count - known)
        known = count
        rows.append(start)
    return np.array(rows)


def _changing(counts: Ints, logs: Floats) -> tuple[Ints, Floats]:
    """The counts whose vectors differ from the one before: a chain that forgot goes on alike."""
    with np.errstate(invalid="ignore"):
        levels = logs - np.fmax.reduce(logs, axis=2, keepdims=True)
        moved = np.abs(levels[1:] - levels[:-1])
    known = np.isfinite(levels)
    same = np.where(known[1:] & known[:-1], moved <= ALIKE, known[1:] == known[:-1])
    kept = np.concatenate([[True], ~same.all(axis=(1, 2))])
    return counts[kept], logs[kept]


def _scaled(matrices: Floats) -> Floats:
    """Each of the two divided by its largest entry, unless all of it was lost."""
    largest = matrices.max(axis=(1, 2), keepdims=True)
    return np.asarray(matrices / np.where(largest > 0, largest, 1.0))


def _widest(rows: Floats) -> Floats:
    """max over the rows of row[x] - row[x'], (k, k); never all at once: that is k³ numbers."""
    widest = np.full((rows.shape[1],) * 2, -math.inf)
    with np.errstate(invalid="ignore"):
        for row in rows:
            np.fmax(widest, row[:, None] - row, out=widest)
    return widest


def _gaps(logs: Floats) -> Floats:
    """logs[.., x] - logs[.., x'], -inf where either is impossible or lost: (n, 2, k, k)."""
    with np.errstate(invalid="ignore"):
        gaps = logs[..., :, None] - logs[..., None, :]
    return np.where(np.isfinite(gaps), gaps, -math.inf)
