"""One side of a node in stretches of entries, where a step for each of them takes too long.

Let D_t bound what the t entries before a node tell and μ_t be the law of that node. A lag of a
entries leads from

    C_t(x,x') = D_t(x,x') + log μ_t(x)/μ_t(x')

to C_{t+a} by one map for every t, which grows with C. So one step carries a bound of a whole
stretch of entries over to the stretch a entries later, and where the map sends a bound below itself
it holds for all later entries. C is measured against the law of the first entry of a stretch: there
it is D itself, and the laws compared are that entry's own. After a node laws do not matter, and C
is D. Proof: shoal/mechanisms/lift.md, "Stretches". Rounds up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shoal.chains.lift.solver import FixedPoint
from shoal.chains.lift.step import FAINT, Ahead, Behind, EntryMetric, View, image, off_diagonal
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import in_time
from shoal.core.walk import UNIT
from shoal.mechanisms.cone import Growth, Rule, tighten

LONGEST = 0.02  # of the entries a side reaches: the longest stretch, and the longest lag
SHORT_LAGS = (1, 2, 4, 8)  # tried besides the length of a stretch, where the limit needs such
WIDER = 4  # a stretch is at most this part of what lies before it
MOVED = 0.02  # of the largest limit: how far log-odds may move within a stretch
BY_GROUP = 0.25  # of the largest limit: what entries of a start may show by group privacy alone,
LEFT_TO_GROUP = 0.03  # in at most this part of a short chain
ABOVE_LAST = 1e-3  # share by which a bound for all later entries lies above the last ones
BELOW_LIMIT = 1e-3  # share of the limit at which it serves for all further entries
TRIED_AFTER = 8  # stretches between two tries to cover all later entries
MOST_STRETCHES = 4_000
ENTRIES_AT_ONCE = 64  # laws compared in one array


class EntryStretch(NamedTuple):
    """Entries first … end - 1; `bounds` limits D_t + odds of μ_t against μ_first for each."""

    first: int
    end: int
    bounds: Floats


class Stretched(NamedTuple):
    """Bounds of D_t, one for all entries up to each end, and one for all beyond the last."""

    bounds: Floats
    ends: Ints
    beyond: FixedPoint


class Trail:
    """The stretches of one side, one after the other.

    logs[t] are the logarithms of μ_t, 0 for impossible values, or None where laws do not matter;
    the last row may be a law that no entry has.
    """

    def __init__(
        self,
        view: Callable[[int], View],
        logs: Floats | None,
        pairs: Bools,
        entry: EntryMetric,
        rule: Rule,
        settled: FixedPoint,
    ) -> None:
        """Start a trail without stretches; `view` gives the laws that entry t looks back on.

        `logs` are the logarithms of the laws of the first entries, None when they are not followed.
        `pairs` is the mask of pairs that occur, and `settled` the bound for the limit.
        """
        self._view, self._logs, self.rule = view, logs, rule
        self.lags = {lag for lag in SHORT_LAGS if lag <= max(settled.lags)}
        self.entry, self._other = entry, ~pairs & ~np.eye(len(pairs), dtype=np.bool_)
        self.stretches: list[EntryStretch] = []
        # of the odds of two laws: each was followed step by step, and its logarithm rounded
        steps = 0 if logs is None else len(logs)
        self._error = 8.0 * (steps * (len(pairs) + 2) + len(pairs) ** 2 - 2 * np.log(FAINT)) * UNIT

    @property
    def start(self) -> int:
        return self.stretches[0].first

    @property
    def end(self) -> int:
        return self.stretches[-1].end

    def begin(self, first: int, end: int) -> None:
        """The first stretch, by group privacy."""
        self.stretches.append(EntryStretch(first, end, self._by_group(first, end)))

    def add(self, width: int, most: Floats | float = np.inf) -> Floats:
        """The next stretch, of so many entries: a bound of D_t for each of them."""
        first = self.end
        bounds = np.minimum(self._by_group(first, first + width), most)
        self.stretches.append(EntryStretch(first, first + width, bounds))
        view = self._view(first)
        for lag in sorted({width, *self.lags}, reverse=True):
            if lag > first - self.start:
                continue
            metric, price = self.entry.at(lag)
            before = self.bound_against(first - lag, first + width - lag, first - lag)
            tighten(bounds, price, view.laws(lag), Growth(metric + before), self.rule)
        return bounds + self.odds(first, first + width, first).T

    def bound_against(self, first: int, end: int, against: int) -> Floats:
        """What bounds D_t + odds of μ_t against μ_against, for the entries first … end - 1."""
        seen = off_diagonal(len(self._other), -np.inf)
        for stretch in reversed(self.stretches):
            if stretch.end <= first:
                break
            if stretch.first < end:
                moved = self.odds(stretch.first, stretch.first + 1, against)
                seen = np.maximum(seen, stretch.bounds + moved)
        return self.clean(seen)

    def width(self, most: int, moved: float) -> int:
        """How many of the next entries have laws that hardly differ; at least one."""
        if self._logs is None:
            return most
        gaps = self._logs[self.end : self.end + most] - self._logs[self.end]
        far = np.flatnonzero(np.ptp(gaps, axis=1) > moved)
        return max(1, int(far[0])) if len(far) else most

    def _by_group(self, first: int, end: int) -> Floats:
        """t·η for each entry t, measured against the law of the first."""
        most = off_diagonal(len(self._other), (end - 1) * self.entry.eta * (1.0 + 2.0**-51))
        return self.clean(most + self.odds(first, end, first))

    def odds(self, first: int, end: int, against: int) -> Floats:
        """The largest odds of μ_t against μ_against, over the entries t = first … end - 1."""
        if self._logs is None or (first == against and end == first + 1):
            return np.zeros(self._other.shape)
        largest = np.full(self._other.shape, -np.inf)
        for begin in range(first, end, ENTRIES_AT_ONCE):
            until = min(end, begin + ENTRIES_AT_ONCE)
            gaps = self._logs[begin:until] - self._logs[against]
            largest = np.maximum(largest, (gaps[:, :, None] - gaps[:, None, :]).max(axis=0))
        return np.asarray(largest + self._error)

    def clean(self, bound: Floats) -> Floats:
        """The bound with its diagonal 0, and no bound where a value is impossible."""
        cleaned = np.where(self._other, np.inf, bound)
        np.fill_diagonal(cleaned, 0.0)
        return cleaned


def stretched_future(
    ahead: Ahead, entry: EntryMetric, count: int, rule: Rule, settled: FixedPoint
) -> Stretched:
    """D_n of a homogeneous side for n up to `count` entries, never above its limit."""
    trail = Trail(lambda _: ahead, None, ahead.pairs, entry, rule, settled)
    trail.begin(0, 1)
    longest = _longest(float(settled.bound[ahead.pairs].max()), entry, count)
    rows, ends = [trail.stretches[0].bounds], [0]
    while trail.end <= count:
        in_time("the lift")
        width = min(longest, max(1, trail.end // WIDER), count + 1 - trail.end)
        rows.append(trail.add(width, settled.bound))
        ends.append(trail.end - 1)
        if (rows[-1] >= settled.bound * (1.0 - BELOW_LIMIT))[ahead.pairs].all():
            break
    return Stretched(np.array(rows), np.array(ends), settled)


def stretched_past(
    past: Behind, entry: EntryMetric, count: int | None, rule: Rule, settled: FixedPoint
) -> Stretched | None:
    """D_t of the past from a start of its own; None where no bound for all entries was found.

    `settled` is the limit of the same chain long after its start. The first entries are left to
    group privacy: while laws are still far from their limit that is about the truth.
    """
    support, stop = past.possible[-1], past.last + 1
    pairs = support[:, None] & support[None, :]
    if past.arrived is None or past.limit is None or not np.isfinite(settled.bound[pairs]).all():
        return None
    top, full = float(settled.bound[pairs].max()), _steady_support(past)
    quarter = BY_GROUP * top / entry.eta
    known = max(full + 1, int(quarter if count is None else min(quarter, count * LEFT_TO_GROUP)))
    if known >= stop or support.sum() < 2:
        return None
    logs = np.zeros((stop + 1, len(support)))
    laws = np.vstack([past.marginals[full:], past.limit])
    logs[full:, support] = np.log(laws[:, support])
    trail = Trail(past.at, logs, pairs, entry, rule, settled)
    longest = _longest(top, entry, count)
    trail.begin(_alike(logs[full:known], longest, MOVED * top) + full, known)
    rows = [off_diagonal(len(support), t * entry.eta * (1.0 + 2.0**-51)) for t in range(known)]
    ends = list(range(known))
    while trail.end < stop and len(trail.stretches) < MOST_STRETCHES:
        in_time("the lift")
        most = min(longest, trail.end - trail.start, stop - trail.end)
        rows.append(trail.add(trail.width(most, MOVED * top)))
        ends.append(trail.end - 1)
        if len(trail.stretches) % TRIED_AFTER == 0 or trail.end == stop:
            found = _bound_beyond_trail(trail, past.arrived, past.last, longest)
            if found is not None:
                return Stretched(np.array(rows), np.array(ends), found)
    if count is None or trail.end <= count:
        return None
    return Stretched(np.array(rows), np.array(ends), FixedPoint(np.max(rows, axis=0), (1,)))


def _bound_beyond_trail(trail: Trail, arrived: Ahead, last: int, longest: int) -> FixedPoint | None:
    """A bound for this and every later entry, once a step no longer raises what was seen last."""
    lags = tuple(sorted({*trail.lags, longest}))
    if trail.end - lags[-1] < trail.start:
        return None
    seen = trail.bound_against(trail.end - lags[-1], trail.end, last + 1)
    pairs = arrived.pairs & ~np.eye(len(seen), dtype=np.bool_)
    raised = seen * (1.0 + ABOVE_LAST)
    if not (seen[pairs] > 0.0).all():
        return None
    if not (image(raised, lags, arrived, trail.entry, trail.rule) <= raised)[pairs].all():
        return None
    # μ_t against the limit: what was followed, and beyond it the spread, which never grows
    fallen = trail.odds(trail.end, last + 1, last + 1).T if trail.end <= last else 0.0
    spread = float(trail.odds(last, last + 1, last + 1)[pairs].max())
    return FixedPoint(trail.clean(raised + np.maximum(fallen, spread)), lags)


def _steady_support(past: Behind) -> int:
    """The first entry from which on the same values are possible, none of them faint."""
    support = past.possible[-1]
    sure = (past.possible == support).all(axis=1)
    sure &= (past.marginals >= np.where(support, FAINT, 0.0)).all(axis=1)
    return int(np.flatnonzero(~sure).max(initial=-1)) + 1


def _alike(logs: Floats, most: int, moved: float) -> int:
    """The first of at most so many rows at the end that hardly differ from the last."""
    first = max(0, len(logs) - most)
    far = np.flatnonzero(np.ptp(logs[first:] - logs[-1], axis=1) > moved)
    return first + int(far.max(initial=-1)) + 1


def _longest(top: float, entry: EntryMetric, count: int | None) -> int:
    """The longest stretch of a side whose limit is `top`."""
    reach = top / entry.eta
    return max(1, int(LONGEST * (reach if count is None else min(reach, count))))
