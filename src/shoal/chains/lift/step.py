"""One step of the lift: what n entries on one side of a node can tell, from what fewer can."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shoal.additive.cone import CEILING, PairLaws, Rule, least_off_diagonal, tighten
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError

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

    def at(self, lag: int) -> tuple[Floats, float]:
        """The metric at the entry `lag` steps away, and the price of the entries skipped."""
        shown = min(lag, len(self.metrics))
        return self.metrics[shown - 1], (lag - shown) * self.eta

    def scaled(self, factor: float) -> EntryMetric:
        """The same metric in units of `factor`."""
        return EntryMetric(tuple(factor * metric for metric in self.metrics), factor * self.eta)

    def restricted(self, states: npt.NDArray[np.intp]) -> EntryMetric:
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
    tighten(best, 0.0, view.laws(1), entry.at(1)[0] + history.bounds[-1], rule)
    scan = entries <= ALL_LAGS or entries % RESCAN == 0
    lags = _promising(best, entries, history, view, entry) if scan else history.winners
    won: list[int] = []
    for tried, lag in enumerate(lags):
        metric, price = entry.at(lag)
        before = best.copy()
        tighten(best, price, view.laws(lag), metric + history.bounds[-lag], rule)
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
    best = off_diagonal(len(bound), np.inf)
    for lag in lags:
        metric, price = entry.at(lag)
        if lag_of is None:
            tighten(best, price, view.laws(lag), metric + bound, rule)
            continue
        part = np.where(lag_of == lag, best, -np.inf)  # nothing falls below that: passed over
        tighten(part, price, view.laws(lag), metric + bound, rule)
        best = np.where(lag_of == lag, part, best)
    return best
