"""Quantiles of numbers in a stated range, read off a released histogram. Costs no privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact, significant
from shoal.core.plan import CONFIDENCE, Plan, Release
from shoal.mechanisms.plans import keeps_total
from shoal.mechanisms.queries import project
from shoal.noise.primitives import SeededRng

SIMULATED = 1000  # noises from which the width of an interval is read
QUANTILE_SEED = 20  # of these noises, so that equal releases have equal intervals


@dataclass(frozen=True, slots=True)
class Quantile:
    """The number that a `share` of the data is below, and an interval for it.

    With probability `confidence` over the noise, low ≤ the data's own quantile ≤ high. Ends are
    edges of the histogram: where numbers lie inside a bin was not released.
    """

    share: float
    value: float
    low: float
    high: float
    confidence: float

    def describe(self) -> str:
        """The quantile and its interval, in a sentence."""
        return (
            f"{self.share:.0%} of the numbers are below {significant(self.value)}, and with "
            f"probability {self.confidence:.0%} their own quantile is from {significant(self.low)} "
            f"to {significant(self.high)}"
        )


def quantile(
    plan: Plan,
    release: Release,
    share: float = 0.5,
    *,
    edges: Sequence[Number] | None = None,
    total: Number | None = None,
    confidence: float = CONFIDENCE,
) -> Quantile:
    """The quantile of the numbers whose histogram `release` is, made by `plan`; the median first.

    `edges` are the ends of all bins, the first and last of them the stated range of the numbers; a
    histogram of numbers has its own. `total` is what all bins add up to, which is public: 1 for
    shares. Without it the released bins are added up, which is exact where noise keeps the sum.
    """
    ends = _ends(plan, edges)
    if release.plan != plan.fingerprint:
        raise InputError("the release was not made by this plan; give the plan it is of")
    for name, number in (("share", share), ("confidence", confidence)):
        if not 0 < number < 1:
            raise InputError(f"{name} is {number}; it must be between 0 and 1, both excluded")
    values = release.answer.exact
    whole = sum(values, Fraction(0)) if total is None else exact(total, "total")
    if not whole > 0:
        raise InputError("the bins add up to 0 or less; give total, what they add up to, in public")
    known = total is not None or keeps_total(plan.task.query)
    wide = _widths(plan, share, confidence, known=known) * _stretch(plan, release)
    below = np.append(0.0, np.cumsum([float(value) for value in values]))
    wanted = share * float(whole)
    sure = below[1:-1] + wide < wanted  # even with so much noise fewer numbers are below this edge
    enough = below[1:-1] - wide >= wanted
    low = max(np.flatnonzero(sure) + 1, default=0)
    high = min(np.flatnonzero(enough) + 1, default=len(ends) - 1)
    middle = _crossing_point(ends, [float(part) for part in project(values, whole)], wanted)
    value = min(max(middle, ends[low]), ends[max(high, low)])
    return Quantile(share, value, ends[low], ends[max(high, low)], confidence)


def _ends(plan: Plan, edges: Sequence[Number] | None) -> list[float]:
    """The ends of all bins, from the first to the last; refused where they are no such."""
    query = plan.task.query
    if plan.additive is None or getattr(query, "name", "histogram") != "histogram":
        raise InputError("the plan is not of a histogram; ask for shoal.histogram(states)")
    own: Sequence[Number] | None = getattr(query, "edges", None)
    given = own if edges is None else edges
    if given is None:
        raise InputError(
            f"edges is missing; give the {len(query.labels) + 1} ends of all bins, the first and "
            "last of them the stated range"
        )
    ends = [float(exact(edge, "edges")) for edge in given]
    if len(ends) != len(query.labels) + 1 or any(a >= b for a, b in pairwise(ends)):
        raise InputError(
            f"edges holds {len(ends)} numbers; it must be {len(query.labels) + 1}, one more than "
            "bins, each above the one before"
        )
    return ends


def _stretch(plan: Plan, release: Release) -> float:
    """How much wider noise is in shares of fewer entries than the query divides by."""
    entries = release.answer.entries
    length: int | None = getattr(plan.task.query, "length", None)
    return 1.0 if entries is None or length is None else length / entries


@lru_cache(maxsize=64)
def _widths(plan: Plan, share: float, confidence: float, *, known: bool) -> Floats:
    """How far the noise may move each sum of first bins, all of them at once.

    Read off noises that are drawn here from the plan's public law. With this probability none of
    the sums is off by more, each in proportion to its own spread. Where the total is not known, its
    noise moves what is looked for, too.
    """
    assert plan.additive is not None
    noise, count = plan.additive.noise, len(plan.task.query.labels)
    rng = SeededRng(QUANTILE_SEED)
    drawn = np.array([noise.draw(count, rng) for _ in range(SIMULATED)], dtype=np.float64)
    sums = float(noise.step) * drawn.cumsum(axis=1)
    off = sums[:, :-1] - (0.0 if known else share) * sums[:, -1:]
    spread = np.maximum(off.std(axis=0), 1e-300)
    furthest = np.sort((np.abs(off) / spread).max(axis=1))
    # the order statistic that is above the quantile itself in all but one of a thousand runs
    slack = 3 * math.sqrt(SIMULATED * confidence * (1 - confidence))
    place = min(math.ceil(SIMULATED * confidence + slack), SIMULATED - 1)
    return np.asarray(spread * furthest[place])


def _crossing_point(ends: list[float], parts: list[float], wanted: float) -> float:
    """Where the sum of the bins reaches `wanted`, each bin taken to be even."""
    below = 0.0
    for (low, high), part in zip(pairwise(ends), parts, strict=True):
        if part > 0 and below + part >= wanted:
            return low + (high - low) * (wanted - below) / part
        below += part
    return ends[-1]
