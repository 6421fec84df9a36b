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

from shoal.chains.exact.sums import ChainSum, bounded_by_ends
from shoal.core.codec import Bools, Floats, Ints
from shoal.mechanisms.mixture import crossing

ENTRIES_ONE_BY_ONE = 33  # entries on one side up to which every number of them is looked at
ENTRIES_SAMPLED = 128  # numbers of entries looked at beyond those on a chain with a length
FARTHEST_ENTRY = 1 << 17  # entries beyond which a chain of any length is not followed
SOLVED = 1e-10  # relative accuracy of a scale
ALIKE = 1e-13  # differences of logarithms that are none
SIGNS = np.array([1.0, -1.0])


class Ends:
    """The two ends of the outputs of a sum over a chain with one matrix and one initial law."""

    def __init__(self, task: ChainSum) -> None:
        assert bounded_by_ends(task)
        self.task = task
        self._scales: dict[float, float] = {}  # the last one asked for: the choice asks twice
        secrets = range(int(task.label.max()) + 1)
        self._possible_members = [np.flatnonzero(task.label == secret) for secret in secrets]

    def loss(self, decay: float) -> float:
        """The largest log-ratio at ±∞ of noise exp(-decay·|j|) over nodes, pairs and lengths.

        max over d, r, both signs and pairs a, b of V(a) - V(b), V(a) = log Σ p_d(x) e^{±decay·w(x)}
        f_r(x) / Σ μ_d(x) over the states x that show a; f_r(x) = E[exp(±decay·sum of the r entries
        after) | x], p_d the same for the d entries before, together with x; d + r < length. Only
        some d and r are looked at, each of them a length the task covers: never above the true
        loss but for rounding.
        """
        before, after = self._entry_counts
        after, future = _changing(after, self._futures(decay, after))
        before, past = _changing(before, self._pasts(decay, before))
        shape = (2, len(before), len(after))
        high, low = np.full(shape, -math.inf), np.full(shape, math.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            for members in self._possible_members:
                tilted, plain = past[:, :2, members], past[:, 2, members].sum(axis=1)
                joint = np.einsum("dsx,rsx->sdr", tilted, future[:, :, members])
                level = np.log(joint) - np.log(plain)[None, :, None]
                known = np.isfinite(level)
                high = np.where(known, np.fmax(high, level), high)
                low = np.where(known, np.fmin(low, level), low)
            log_ratios = high - low
        if self.task.length is not None:
            log_ratios[:, before[:, None] + after >= self.task.length] = -math.inf
        return float(log_ratios.max())

    def least_scale(self, epsilon: float) -> float:
        """The scale at which the two ends lose epsilon: no scale below keeps the promise.

        Rounds down, by up to 1e-10. 0 when the ends lose nothing at any scale, inf when they
        lose more than epsilon at every scale that was tried.
        """
        if epsilon not in self._scales:
            guess = self.task.reach / epsilon
            found = crossing(lambda scale: self.loss(1 / scale), epsilon, guess, SOLVED)[0]
            self._scales = {epsilon: self.task.step * found}
        return self._scales[epsilon]

    def held_ratios(
        self, size: int, decay: float, groups: Sequence[Bools]
    ) -> tuple[Floats, list[Floats]]:
        """At ±∞, windows of `size` with a state held beyond: log-ratios (future, past) of pairs.

        max over z of log H(x, z)/H(x', z), the entry's own weight included, (k, k), and for each
        group the same over its y of log H(y, x)/H(y, x'), H the moments of `size` steps. Without
        the offsets of the nodes. inf where a moment is 0 or was lost.
        """
        own = self._tilts(decay)
        moments = np.matmul(self.task.matrices[0], self._power(own, size - 1))
        with np.errstate(divide="ignore"):
            logs, tilts = np.log(moments), np.log(own)
        future = _largest_differences(
            np.swapaxes(logs + tilts[:, :, None], 1, 2).reshape(-1, logs.shape[1])
        )
        return future, [
            _largest_differences(logs[:, group].reshape(-1, logs.shape[1])) for group in groups
        ]

    @cached_property
    def _entry_counts(self) -> tuple[Ints, Ints]:
        """The numbers of entries before, and after, that are looked at."""
        length = self.task.length
        last = FARTHEST_ENTRY if length is None else length - 1
        counts = set(range(min(ENTRIES_ONE_BY_ONE, last + 1)))
        count = ENTRIES_ONE_BY_ONE
        while count <= last:
            counts.add(count)
            count += 1 << ((count // 4).bit_length() - 1)
        if length is None:
            grid = np.array(sorted(counts))
            return grid, grid
        even = range(0, last + 1, max(1, last // ENTRIES_SAMPLED))
        after = np.array(sorted(counts.union(even)))
        return np.array(sorted(counts.union(last - place for place in even))), after

    def _tilts(self, decay: float) -> Floats:
        """exp(±decay·w), scaled to be at most 1: (2, states)."""
        tilted = SIGNS[:, None] * self.task.weights * decay
        return np.asarray(np.exp(tilted - tilted.max(axis=1, keepdims=True)))

    def _futures(self, decay: float, counts: Ints) -> Floats:
        """f_r(x) with the entry's own weight, up to a constant: (r, 2, states)."""
        own = self._tilts(decay)
        steps = _Powers(self.task.matrices[0] * own[:, None, :])
        rows = _vectors_after(np.ones((2, self.task.states, 1)), counts, steps.onto)
        return np.asarray(rows[..., 0] * own)

    def _pasts(self, decay: float, counts: Ints) -> Floats:
        """p_d(x) for both signs up to a constant, and the law of the entry: (d, 3, states)."""
        assert self.task.initial is not None
        matrix, first = self.task.matrices[0], self.task.initial
        steps = np.stack([*(self._tilts(decay)[:, :, None] * matrix), matrix])
        # the first state may hold several entries: its weight beyond that of one goes before it
        more = SIGNS[:, None] * (self.task.first_weights - self.task.weights) * decay
        starts = np.stack([*(first * np.exp(more - more.max(axis=1, keepdims=True))), first])
        return np.asarray(_vectors_after(starts[:, None], counts, _Powers(steps).behind)[:, :, 0])

    def _power(self, own: Floats, steps: int) -> Floats:
        """(diag(own) P)^steps, up to a constant."""
        powers = _Powers(own[:, :, None] * self.task.matrices[0])
        return powers.behind(np.stack([np.eye(self.task.states)] * 2), steps)


class _Powers:
    """Powers of matrices side by side, each up to a positive constant."""

    def __init__(self, matrices: Floats) -> None:
        self._doubled = [matrices]

    def onto(self, columns: Floats, steps: int) -> Floats:
        """M^steps · columns."""
        for matrix in self._binary(steps):
            columns = _scale_matrices(np.matmul(matrix, columns))
        return columns

    def behind(self, rows: Floats, steps: int) -> Floats:
        """rows · M^steps."""
        for matrix in self._binary(steps):
            rows = _scale_matrices(np.matmul(rows, matrix))
        return rows

    def _binary(self, steps: int) -> list[Floats]:
        while steps >> len(self._doubled):
            last = self._doubled[-1]
            self._doubled.append(_scale_matrices(np.matmul(last, last)))
        return [matrix for bit, matrix in enumerate(self._doubled) if steps >> bit & 1]


def _vectors_after(start: Floats, counts: Ints, onward: Callable[[Floats, int], Floats]) -> Floats:
    """The vectors after each of the increasing `counts` of steps."""
    rows, known = [], 0
    for count in counts.tolist():
        start = onward(start, count - known)
        known = count
        rows.append(start)
    return np.array(rows)


def _changing(counts: Ints, rows: Floats) -> tuple[Ints, Floats]:
    """The counts whose vectors differ from the one before: a chain that forgot goes on alike."""
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.log(rows / rows.max(axis=2, keepdims=True))
        moved = np.abs(levels[1:] - levels[:-1])
    known = np.isfinite(levels)
    same = np.where(known[1:] & known[:-1], moved <= ALIKE, known[1:] == known[:-1])
    kept = np.concatenate([[True], ~same.all(axis=(1, 2))])
    return counts[kept], rows[kept]


def _scale_matrices(matrices: Floats) -> Floats:
    """Each divided by its largest entry, unless all of it was lost."""
    largest = matrices.max(axis=(1, 2), keepdims=True)
    return np.asarray(matrices / np.where(largest > 0, largest, 1.0))


def _largest_differences(rows: Floats) -> Floats:
    """max over the rows of row[x] - row[x'], (k, k); never all at once: that is k³ numbers."""
    widest = np.full((rows.shape[1],) * 2, -math.inf)
    with np.errstate(invalid="ignore"):
        for row in rows:
            np.fmax(widest, row[:, None] - row, out=widest)
    return widest
