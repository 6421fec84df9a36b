"""The laws a lift compares, and one step of it: what n entries on one side can tell, from fewer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shoal.chains.model import recurrent_classes, stationary_law
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.walk import UNIT, Kernel, Powers, PowerWalk, next_support, time_reversal
from shoal.mechanisms.cone import (
    CEILING,
    Growth,
    Memory,
    PairLaws,
    Remembered,
    Rule,
    least_off_diagonal,
    prepare,
    tighten,
    two_valued,
)

if TYPE_CHECKING:
    from shoal.chains.lift.neighbours import NeighbourSide

DRIFT = 1e-9  # a marginal this close to its limit, in log-ratio, is treated as the limit
FOLLOWED = 20_000  # steps after which a marginal that has not settled is not waited for
# steps between two looks at whether the marginal has settled, after as many in a row
STEPS_BETWEEN_LOOKS = 16
NEIGHBOURS = 16  # states from which on all pairs are many more than neighbours
FAINT = 1e-150  # rows of values less likely than this are not trusted


class Ahead:
    """The laws of X_{t+lag} given X_t in a homogeneous chain, prepared once and kept.

    pairs marks the pairs of values that have a law at all: an impossible value has none.
    """

    def __init__(self, walk: Powers, *, own_error: float = 0.0, drift: float = 0.0) -> None:
        """Keep the walk whose kernels give the laws ahead; laws are computed when first asked for.

        `own_error` bounds the relative error of the kernels, `drift` the log-ratio by which the
        true laws may differ from them.
        """
        self._walk = walk
        self._own_error = own_error
        self._drift = drift
        self._known: dict[int, PairLaws] = {}
        self._optima: Remembered = {}
        self._held: dict[int, PairLaws] = {}  # the laws with the optima of this search
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
            if self.pairs.all() and self._walk.size >= NEIGHBOURS:
                from shoal.chains.lift.neighbours import between_neighbours

                found = between_neighbours(kernel.values, kernel.possible, self.laws(1), metric)
            self._beside.append(found)
        return self._beside[0]

    def kernel(self, lag: int) -> Kernel:
        return self._walk.kernel(0, lag)

    def laws(self, lag: int) -> PairLaws:
        """Rows of the lag-step law; their error counts every rounding."""
        held = self._held.get(lag)
        if held is not None:
            return held
        known = self._known.get(lag)
        if known is None:
            kernel = self._walk.kernel(0, lag)
            error = self._drift + lag * self._own_error + _rounding(lag, self._walk.size)
            known = prepare(kernel.values, possible=kernel.possible, error=error)
            self._known[lag] = known
        self._held[lag] = known.remembering(self._optima, lag)
        return self._held[lag]

    def remembering(self, optima: Remembered) -> Ahead:
        """The same laws with the optima of one search."""
        own = copy(self)
        own._optima, own._held = optima, {}
        return own

    def promise(self, lags: int) -> tuple[Floats, Floats]:
        """Return `gained` and `held` of the laws at lags 1 … `lags`, each (lags, states, states).

        Twice as many lags as before are computed when more are needed.
        """
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
    laws; both are None when that was not seen. `limit` is the law that marginals tend to and
    `arrived` holds its laws without the drift; None where a possible value has no part in it.
    """

    walk: PowerWalk
    marginals: Floats
    possible: Bools
    settled: int | None
    reversal: Ahead | None
    limit: Floats | None
    arrived: Ahead | None
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
        arrived = self.arrived and self.arrived.remembering(memory[f"{name}, arrived"])
        return replace(self, optima=memory[name], reversal=reversal, arrived=arrived)

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
        """Return Σ (p - p') and Σ p' over states with p > p', at lags 1 … `lags` back from `t`.

        Each (lags, values, values). A settled past shares the table of the reversed chain.
        """
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
    end = FOLLOWED if count is None else min(count, FOLLOWED) if arrival else count
    for t in range(end + 1):
        if arrival and (t < STEPS_BETWEEN_LOOKS or t % STEPS_BETWEEN_LOOKS == 0):
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
    limit, arrived = None, None
    if arrival is not None and settled != 0:
        limit = arrival.limit(marginals[-1], supports[-1])
        arrived = None if limit is None else arrival.laws(limit)
    return Behind(
        walk, np.array(marginals), np.array(supports), settled, reversal, limit, arrived, {}
    )


class Arrival:
    """When the law of a homogeneous chain has reached its limit, and the limit's reversal.

    With f = law/limit, one step averages f over the reversed chain, so the spread of log f never
    grows again, and every reversed law is within that spread of the limit's.
    """

    def __init__(self, transition: Floats) -> None:
        """Keep the transition matrix, its recurrent classes, and the stationary law of each.

        `transient` is the mask of states in no recurrent class.
        """
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
        limit = self.limit(law, support)
        if limit is None:
            return None
        ratio = law[support] / limit[support]
        followed = 2.0 * steps * (len(law) + 2) * UNIT
        drift = float(np.log(ratio.max()) - np.log(ratio.min())) + self._rounding + followed
        if not drift <= DRIFT:
            return None
        return self.laws(limit, drift)

    def limit(self, law: Floats, support: Bools) -> Floats | None:
        """The law that `law` tends to; None where it leaves out a value of the support."""
        limit = np.zeros_like(law)
        for group, shape in zip(self._groups, self._shapes, strict=True):
            limit[group] = law[group].sum() * shape
        return limit if np.array_equal(limit > 0.0, support) else None

    def laws(self, limit: Floats, drift: float = 0.0) -> Ahead:
        """The reversed chain of a limit law, for laws within the drift of it."""
        reverse = Powers.of(time_reversal(self._transition, limit))
        return Ahead(reverse, own_error=3.0 * self._rounding, drift=drift)


# One step: what n entries on one side of a node can tell, from what fewer can.


LAGS = 512  # longer lags are not tried
ALL_LAGS = 32  # up to this many entries every lag that might win is tried
RESCAN = 16  # and beyond, at every multiple of this
PATIENCE = 8  # until this many more failed than won


@dataclass(frozen=True, eq=False)
class EntryMetric:
    """How far the log-density of a mechanism moves when entries change.

    metrics[j-1][y,z] bounds the move when the j entries that state y shows last become those of
    state z; eta bounds the move when any one entry changes. A plain chain has one matrix, a chain
    on m-tuples has m.
    """

    metrics: tuple[Floats, ...]
    eta: float

    @classmethod
    def of(cls, metric: npt.ArrayLike) -> EntryMetric:
        """The metric E of a plain chain; eta is its largest entry."""
        matrix = np.asarray(metric, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"metric has shape {matrix.shape}; it must be square")
        if not (np.isfinite(matrix).all() and (matrix >= 0).all()) or np.diag(matrix).any():
            raise InputError("metric must be finite, non-negative and 0 on its diagonal")
        return cls((matrix,), float(matrix.max(initial=0.0)))

    @cached_property
    def least(self) -> Floats:
        """The smallest entry off the diagonal of each matrix."""
        return np.array([least_off_diagonal(metric) for metric in self.metrics])

    @property
    def alike(self) -> bool:
        """Whether any change of the entry shown last counts the same."""
        return bool((self.metrics[0] == off_diagonal(len(self.metrics[0]), self.eta)).all())

    def at(self, lag: int) -> tuple[Floats, float]:
        """The metric at the entry `lag` steps away, and the price of the entries skipped."""
        shown = min(lag, len(self.metrics))
        return self.metrics[shown - 1], (lag - shown) * self.eta

    def grown_by(self, bound: Floats) -> list[Growth]:
        """The metrics, each raised by what is known to lie beyond the entry."""
        return [Growth(metric + bound) for metric in self.metrics]

    def scaled_by(self, factor: float) -> EntryMetric:
        """The same metric in units of `factor`."""
        return EntryMetric(tuple(factor * metric for metric in self.metrics), factor * self.eta)

    def restrict_to(self, states: npt.NDArray[np.intp]) -> EntryMetric:
        """The metric between some of the states; eta stays that of all entries."""
        chosen = np.ix_(states, states)
        return EntryMetric(tuple(metric[chosen] for metric in self.metrics), self.eta)


def hamming(size: int) -> EntryMetric:
    """E(y,z) = 1 for y ≠ z: any change of an entry counts the same."""
    return EntryMetric.of(1.0 - np.eye(size))


def off_diagonal(size: int, value: float) -> Floats:
    """A matrix of one value with diagonal 0."""
    matrix = np.full((size, size), value)
    np.fill_diagonal(matrix, 0.0)
    return matrix


class View(Protocol):
    """The laws of the entries 1, 2, … steps away from one node, on one side."""

    def laws(self, lag: int) -> PairLaws: ...

    def promise(self, lags: int) -> tuple[Floats, Floats]:
        """gained and held of cone.Laws for the lags 1 … lags, stacked."""
        ...


class History:
    """D_{n-1}, D_{n-2}, …, as far back as lags reach, with the least entry of each.

    winners are the lags beyond the first that lowered a bound when all were last tried.
    """

    def __init__(self, first: Floats) -> None:
        self.bounds = deque([first], maxlen=LAGS)
        self.least = deque([least_off_diagonal(first)], maxlen=LAGS)
        self.winners: list[int] = []

    def append(self, bound: Floats) -> None:
        self.bounds.append(bound)
        self.least.append(least_off_diagonal(bound))


def next_bound(
    entries: int, history: History, view: View, entry: EntryMetric, rule: Rule
) -> Floats:
    """D_n from the D of fewer entries, with n = entries.

    D_n(x,x') = min( nη, min over lags a of  price_a + Λ(P^a(x,·), P^a(x',·); E_a + D_{n-a}) ).
    Up to ALL_LAGS entries every lag that can win is tried; later, all of them only now and then,
    and in between those that won. Any choice of lags gives a bound. MATHS 3. Rounds up.
    """
    size = len(history.bounds[-1])
    best = off_diagonal(size, entries * entry.eta * (1.0 + 2.0**-52))
    tighten(best, 0.0, view.laws(1), Growth(entry.at(1)[0] + history.bounds[-1]), rule)
    scan = entries <= ALL_LAGS or entries % RESCAN == 0
    lags = _promising(best, entries, history, view, entry) if scan else history.winners
    won: list[int] = []
    for tried, lag in enumerate(lags):
        metric, price = entry.at(lag)
        before = best.copy()
        tighten(best, price, view.laws(lag), Growth(metric + history.bounds[-lag]), rule)
        if (best < before).any():
            won.append(lag)
        elif entries > ALL_LAGS and tried >= PATIENCE + 2 * len(won):
            break
    history.winners = won if scan else history.winners
    return best


def _promising(
    best: Floats, entries: int, history: History, view: View, entry: EntryMetric
) -> list[int]:
    """The lags from 2 on that might lower best by more than rounding.

    A two-valued v, 1 + floor where p > p', is admissible when floor ≤ e^{E_a + D} - 1 everywhere
    off the diagonal; a lag that shows too much already with that v cannot win.
    """
    present = view.laws(1).present
    most = best[present][:, present].max(initial=0.0)
    lags = np.arange(1, min(entries, len(history.bounds), LAGS) + 1)
    shown_last = np.minimum(lags, len(entry.metrics))
    prices = (lags - shown_last) * entry.eta
    count = int(np.count_nonzero(prices < most))
    if count < 2:
        return []
    gained, held = view.promise(count)
    least = entry.least[shown_last[:count] - 1] + np.array(history.least)[::-1][:count]
    floor = np.expm1(np.minimum(least, CEILING))[:, None, None]
    shown = prices[:count, None, None] + np.log1p(gained * floor / (1.0 + held * floor))
    wins = (shown < best * (1.0 - 1e-9)) & present[:, None] & present[None, :]
    useful = wins.any(axis=(1, 2))
    useful[0] = False
    return [int(lag) for lag in lags[:count][useful]]


def image(
    bound: Floats,
    lags: Iterable[int],
    view: View,
    entry: EntryMetric,
    rule: Rule,
    lag_of: Ints | None = None,
) -> Floats:
    """min over lags a of  price_a + Λ(P^a(x,·), P^a(x',·); E_a + bound): one step for all lengths.

    If D_n ≤ bound for every n then D_n ≤ image for every n, and a bound that lies above its own
    image holds for every n: a lag longer than n is covered by the nη of group privacy. That is so
    for whatever lags each pair tries: with `lag_of` it tries that one alone.
    """
    best = np.full(bound.shape, np.inf)
    np.fill_diagonal(best, 0.0)
    growths: dict[int, Growth] = {}
    for lag in lags:
        shown = min(lag, len(entry.metrics))
        if shown not in growths:
            growths[shown] = Growth(entry.metrics[shown - 1] + bound)
        growth, price = growths[shown], (lag - shown) * entry.eta
        if lag_of is None:
            tighten(best, price, view.laws(lag), growth, rule)
            continue
        part = np.where(lag_of == lag, best, -np.inf)  # nothing falls below that: passed over
        tighten(part, price, view.laws(lag), growth, rule)
        best = np.where(lag_of == lag, part, best)
    return best
