"""Quilt noise from two numbers about a chain: its rarest state and how fast it mixes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.chains import model
from shoal.chains.quilt.scale import Pair, QuiltResult, worst_corners
from shoal.chains.quilt.search import NONE, Influence, Quilt, QuiltLoss, Scale, least_quilt
from shoal.chains.quilt.survey import (
    NEVER,
    QuiltRun,
    Survey,
    SurveyGoal,
    WorstNode,
    cost_of,
    worst_where_they_meet,
)
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats


class ChainConstants(NamedTuple):
    """What the bound needs to know of a chain; pi_min and gap are rounded down.

    `law` is the stationary law (zeros when it is not unique).
    """

    law: Floats
    pi_min: float
    reversible: bool
    gap: float

    @property
    def refusal(self) -> str | None:
        """Why the bound does not apply, or None."""
        if not self.law.any():
            return "the chain is reducible: it has several stationary laws and does not mix"
        if self.pi_min <= 0.0:
            return "the chain is reducible: some state has stationary probability 0"
        if self.gap <= 0.0:
            return "the chain has spectral gap 0, counted with multiplicity: no mixing is proved"
        return None


def bound_scale(
    pi_min: float, gap: float, length: int | None, epsilon: float, reach: int | None = None
) -> QuiltResult:
    """The noise scale for every chain whose rarest state and gap are at least these.

    max over nodes of min over quilts |N| / (epsilon - e(a, b)), e(a, b) = 2 d(a) + d(b) with
    d(n) = log((1 + D)/(1 - D)), D = exp(-gap·n/2)/pi_min (inf when D >= 1; an absent end-point
    counts 0). Holds for every initial law. `length` None: every length. Rounds up.
    Song, Wang & Chaudhuri 2017, Algorithm 4 with Lemma C.1; `gap` counted with multiplicity.
    """
    start = (_lemma_lag(pi_min, gap, epsilon),) * 2
    setting = SurveyGoal(length, Scale(epsilon), reach)
    return QuiltResult.of(_survey(MixingInfluence(pi_min, gap), setting, start))


def bound_loss(
    pi_min: float, gap: float, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of eta-private noise by the same bound: max_i min_Q (|N|·eta + e). Rounds up."""
    setting = SurveyGoal(length, QuiltLoss(eta), reach)
    return _survey(MixingInfluence(pi_min, gap), setting, (1, 1)).worst.quilt.cost


@dataclass(frozen=True, slots=True)
class MixingInfluence:
    """e({i-a, i+b} | i) <= 2 d(a) + d(b), see `bound_scale`; None is an absent end-point."""

    pi_min: float
    gap: float

    def __call__(self, left: int | None, right: int | None) -> float:
        return (2.0 * self._one_side(left) + self._one_side(right)) * (1.0 + 4.0 * UNIT)

    def at_least(self, left: int | None, right: int | None) -> float:
        return self(left, right)

    def witnessed(self, left: int, right: int) -> None:
        return None

    def _one_side(self, lag: int | None) -> float:
        if lag is None:
            return 0.0
        exponent = self.gap * lag / 2.0
        distance = math.exp(-exponent) / self.pi_min * (1.0 + (4.0 * exponent + 8.0) * UNIT)
        if distance >= 1.0:
            return math.inf
        return (math.log1p(distance) - math.log1p(-distance)) * (1.0 + 8.0 * UNIT)


def chain_constants(transition: Floats) -> ChainConstants:
    """Stationary law, rarest probability, reversibility and gap of a time-homogeneous chain.

    With s the second largest singular value, counted with multiplicity, of
    diag(π)^½ P diag(π)^-½: gap = 2(1 - s) when reversible (then s = |λ2|), else 1 - s², the gap
    of P P*. Both satisfy |P^n(x, y)/π(y) - 1| <= exp(-gap·n/2)/pi_min, whether or not the chain is
    exactly reversible. pi_min and gap round down; 0 means the bound does not apply.
    """
    size = len(transition)
    if len(model.recurrent_classes(transition)) > 1:
        return ChainConstants(np.zeros(size), 0.0, False, 0.0)
    law = model.stationary_law(transition)
    error = 2.0 * (size**3 + 10) * UNIT  # of the elimination, entry by entry
    pi_min = float(law.min()) * (1.0 - error)
    if pi_min <= 0.0:
        return ChainConstants(law, 0.0, False, 0.0)
    gap = model.spectral_gap(transition) - 2.0 * error
    return ChainConstants(law, pi_min, model.is_reversible(transition), max(0.0, gap))


def interval_constants(low: Pair, high: Pair) -> tuple[float, float]:
    """(pi_min, gap) that hold for every two-state chain with stay probabilities in a rectangle.

    π(0) = (1-p1)/((1-p0) + (1-p1)) falls with p1 and grows with p0, so its minimum is at
    (low[0], high[1]), that of π(1) at (high[0], low[1]); the gap 2(1 - |p0 + p1 - 1|) is least
    at a corner. Round down.
    """
    leave_low = 1.0 - low[0], 1.0 - low[1]
    leave_high = 1.0 - high[0], 1.0 - high[1]
    rare_0 = _share(leave_high[1], leave_low[0])
    rare_1 = _share(leave_high[0], leave_low[1])
    slowest = max(abs(sum(corner) - 1.0) for corner in worst_corners(low, high))
    down = 1.0 - 8.0 * UNIT
    return min(rare_0, rare_1) * down, max(0.0, 2.0 * (1.0 - slowest) - 8.0 * UNIT)


def _share(part: float, rest: float) -> float:
    return part / (part + rest) if part > 0.0 else 0.0


def _lemma_lag(pi_min: float, gap: float, epsilon: float) -> int:
    """The lag a* of Lemma 4.9: the quilt (a*, a*) has e <= epsilon/2, so no |N| >= 4a*-2 wins."""
    if gap <= 0.0 or pi_min <= 0.0:
        return 1
    spread = 1.0 / math.tanh(epsilon / 12.0)  # (exp(ε/6) + 1) / (exp(ε/6) - 1)
    return 2 * math.ceil(max(math.log(spread / pi_min) / gap, 0.5))


def _survey(influence: Influence, setting: SurveyGoal, start: tuple[int, int]) -> Survey:
    """The worst node: where quilts without left and without right end-point meet, or between.

    No node needs more than the quilt `inner` of an endless chain (Lemma C.4); lags that leave the
    chain are not looked for.
    """
    reach, length = setting.reach, setting.length
    if length is not None:
        reach = min(length - 1, length if reach is None else reach)
    inner = least_quilt(influence, None, None, setting.cost, reach=(reach, reach), start=[start])
    if length is None:
        if inner.cost == math.inf:
            return NEVER
        first = inner.left or 0
        runs = (QuiltRun(first, None, 1, inner.left, inner.right),)
        early = QuiltRun(0, first - 1, 1, None, inner.right)
        return Survey(WorstNode(first, inner), (early, *runs))

    def rising(node: int, below: float) -> Quilt:
        return setting.least(influence, node, reach=(0, reach), below=below)

    def falling(node: int) -> Quilt:
        two_sided = inner if (inner.left or 0) <= node else NONE
        one_sided = setting.least(influence, node, reach=(reach, 0), below=two_sided.cost)
        return min(two_sided, one_sided, key=cost_of)

    worst, found = worst_where_they_meet(range(length), rising, falling, length)
    return Survey(worst, tuple(found))
