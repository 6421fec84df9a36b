"""The laws a lift compares: what follows a value, and what came before it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from shoal.additive.cone import Memory, PairLaws, Remembered, prepare, two_valued
from shoal.chains.lift.neighbours import NeighbourSide, between_neighbours
from shoal.chains.model import recurrent_classes, stationary_law, time_reversal
from shoal.chains.walk import UNIT, Kernel, Powers, PowerWalk, next_support
from shoal.core.codec import Bools, Floats

DRIFT = 1e-9  # a marginal this close to its limit, in log-ratio, is treated as the limit
PATIENCE = 20_000  # steps after which a marginal that has not settled is not waited for
LOOK = 16  # steps between two looks at whether the marginal has settled, after as many in a row
FAINT = 1e-150  # rows of values less likely than this are not trusted


class Ahead:
    """The laws of X_{t+lag} given X_t in a homogeneous chain, prepared once and kept.

    pairs marks the pairs of values that have a law at all: an impossible value has none.
    """

    def __init__(self, walk: Powers, *, own_error: float = 0.0, drift: float = 0.0) -> None:
        self._walk = walk
        self._own_error = own_error
        self._drift = drift
        self._known: dict[int, PairLaws] = {}
        self._optima: Remembered = {}
        self._beside: list[NeighbourSide | None] = []
        self._promise = np.empty((2, 0, walk.size, walk.size))
        present = np.asarray(walk.kernel(0, 1).possible.any(axis=1))
        self.pairs: Bools = present[:, None] & present[None, :]

    @property
    def dense(self) -> bool:
        """Whether every state may follow every other."""
        return bool(self._walk.kernel(0, 1).possible.all())

    def beside(self, metric: Floats) -> NeighbourSide | None:
        """The same laws between neighbours only, for a metric of this shape; None if they fail."""
        if not self._beside:
            kernel, found = self._walk.kernel(0, 1), None
            if self.pairs.all():
                found = between_neighbours(kernel.values, kernel.possible, self.laws(1), metric)
            self._beside.append(found)
        return self._beside[0]

    def kernel(self, lag: int) -> Kernel:
        return self._walk.kernel(0, lag)

    def laws(self, lag: int) -> PairLaws:
        """Rows of the lag-step law; their error counts every rounding."""
        known = self._known.get(lag)
        if known is None:
            kernel = self._walk.kernel(0, lag)
            error = self._drift + lag * self._own_error + _rounding(lag, self._walk.size)
            known = prepare(kernel.values, possible=kernel.possible, error=error)
            self._known[lag] = known
        return known.remembering(self._optima, lag)

    def remembering(self, optima: Remembered) -> Ahead:
        """The same laws with the optima of one search."""
        own = copy(self)
        own._optima = optima
        return own

    def promise(self, lags: int) -> tuple[Floats, Floats]:
        kept = self._promise
        if kept.shape[1] < lags:
            laws = [self.laws(lag) for lag in range(1, max(lags, 2 * kept.shape[1]) + 1)]
            kept = np.array([[law.gained for law in laws], [law.held for law in laws]])
            self._promise = kept
        return kept[0, :lags], kept[1, :lags]


def _rounding(steps: int, size: int) -> float:
    """Relative error of a product of `steps` matrices; the matrices themselves are exact."""
    return 0.0 if steps == 1 else steps * (size + 2) * UNIT


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """The laws of X_{t+lag} given X_t with one matrix per step."""

    walk: PowerWalk
    optima: Remembered

    def at(self, start: int) -> StepView:
        return StepView(self, start)


class StepView(NamedTuple):
    """Steps as seen from one entry."""

    steps: Steps
    start: int

    def laws(self, lag: int) -> PairLaws:
        kernel = self.steps.walk.kernel(self.start, lag)
        error = _rounding(lag, self.steps.walk.size)
        laws = prepare(kernel.values, possible=kernel.possible, error=error)
        return laws.remembering(self.steps.optima, lag)

    def promise(self, lags: int) -> tuple[Floats, Floats]:
        kernels = [self.steps.walk.kernel(self.start, lag) for lag in range(1, lags + 1)]
        laws = np.array([kernel.values for kernel in kernels])
        return two_valued(laws, laws)


@dataclass(frozen=True, slots=True, eq=False)
class Behind:
    """The laws of X_{t-lag} given X_t, for a chain from a given initial law.

    marginals[t] and possible[t] are the law and the support of entry t, for t up to `last`. From
    entry `settled` on the law is within the drift of its limit, and `reversal` holds the limit's
    laws; both are None when that was not seen.
    """

    walk: PowerWalk
    marginals: Floats
    possible: Bools
    settled: int | None
    reversal: Ahead | None
    optima: Remembered

    @property
    def last(self) -> int:
        return len(self.marginals) - 1

    def support(self, t: int) -> Bools:
        """The values entry t can take; all of them where the law was not followed so far."""
        if t > self.last and self.settled is None:
            return np.ones(self.walk.size, dtype=np.bool_)
        row: Bools = self.possible[min(t, self.last)]
        return row

    def remembering(self, memory: Memory, name: str = "past") -> Behind:
        """The same laws with the optima of one search."""
        settled = f"{name}, settled"
        reversal = self.reversal and self.reversal.remembering(memory[settled])
        return replace(self, optima=memory[name], reversal=reversal)

    def at(self, t: int) -> BehindView:
        return BehindView(self, t)

    def joint(self, t: int, lag: int) -> Floats:
        """P(X_{t-lag} = y, X_t = x) at [x, y]."""
        values = self.walk.kernel(t - lag, lag).values
        return np.asarray((self.marginals[t - lag, :, None] * values).T)


class BehindView(NamedTuple):
    """Behind as seen from one entry."""

    past: Behind
    t: int

    def laws(self, lag: int) -> PairLaws:
        """Rows R(x,y) = P(X_{t-lag} = y | X_t = x); rows of impossible or faint x are left out."""
        past, before = self.past, self.t - lag
        if past.reversal is not None and past.settled is not None and before >= past.settled:
            return past.reversal.laws(lag)
        joint = past.joint(self.t, lag)
        total = joint.sum(axis=1)
        possible = (past.possible[before, :, None] & past.walk.kernel(before, lag).possible).T
        reverse = np.divide(joint, total[:, None], out=np.zeros_like(joint), where=joint > 0)
        error = (2 * self.t + lag + 4) * (past.walk.size + 2) * UNIT
        laws = prepare(reverse, possible=possible, unsure=total < FAINT, error=error)
        return laws.remembering(past.optima, lag)

    def promise(self, lags: int) -> tuple[Floats, Floats]:
        first = max(0, self.t - lags)
        settled = self.past.settled
        if settled is not None and self.past.reversal is not None and first >= settled:
            return self.past.reversal.promise(lags)
        joint = np.array([self._joint(lag) for lag in range(1, lags + 1)])
        total = joint.sum(axis=-1, keepdims=True)
        laws = np.divide(joint, total, out=np.zeros_like(joint), where=total > 0)
        return two_valued(laws, laws)

    def _joint(self, lag: int) -> Floats:
        """The joint law, or the settled one where the law is no longer followed."""
        past = self.past
        if self.t - lag > past.last and past.reversal is not None:
            return past.reversal.kernel(lag).values
        return past.joint(self.t, lag)


def behind(initial: Floats, walk: PowerWalk, count: int | None) -> Behind:
    """The past of a chain, followed until entry `count` or until its law has settled.

    A transient state that is still possible after k steps stays possible: then nothing settles.
    """
    arrival = Arrival(walk.kernel(0, 1).values) if isinstance(walk, Powers) else None
    marginals, supports = [initial], [initial > 0]
    settled, reversal = None, None
    end = PATIENCE if count is None else min(count, PATIENCE) if arrival else count
    for t in range(end + 1):
        if arrival and (t < LOOK or t % LOOK == 0):
            reversal = arrival.reversal(marginals[-1], supports[-1], t)
            if reversal is not None:
                settled = t
                break
            if count is None and t > walk.size and (supports[-1] & arrival.transient).any():
                break
        if t < end:
            step = walk.kernel(t, 1).values
            marginals.append(marginals[-1] @ step)
            supports.append(next_support(supports[-1], step))
    return Behind(walk, np.array(marginals), np.array(supports), settled, reversal, {})


class Arrival:
    """When the law of a homogeneous chain has reached its limit, and the limit's reversal.

    With f = law/limit, one step averages f over the reversed chain, so the spread of log f never
    grows again, and every reversed law is within that spread of the limit's.
    """

    def __init__(self, transition: Floats) -> None:
        self._transition = transition
        self._groups = [np.array(group) for group in recurrent_classes(transition)]
        self._shapes = [stationary_law(transition[np.ix_(g, g)]) for g in self._groups]
        self._rounding = 4.0 * len(transition) ** 2 * UNIT
        self.transient: Bools = np.ones(len(transition), dtype=np.bool_)
        for group in self._groups:
            self.transient[group] = False

    def reversal(self, law: Floats, support: Bools, steps: int) -> Ahead | None:
        """The reversed chain of the limit law, once `law` is within DRIFT of it; else None.

        `law` was followed for so many `steps`, each with roundings of its own.
        """
        limit = np.zeros_like(law)
        for group, shape in zip(self._groups, self._shapes, strict=True):
            limit[group] = law[group].sum() * shape
        if not np.array_equal(limit > 0.0, support):
            return None
        ratio = law[support] / limit[support]
        followed = 2.0 * steps * (len(law) + 2) * UNIT
        drift = float(np.log(ratio.max()) - np.log(ratio.min())) + self._rounding + followed
        if not drift <= DRIFT:
            return None
        reverse = Powers(time_reversal(self._transition, limit))
        return Ahead(reverse, own_error=3.0 * self._rounding, drift=drift)
