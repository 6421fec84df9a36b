"""The scale that quilts of a chain need: by its own powers, or by what is known of its mixing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.chains import model
from shoal.chains.quilt.nodes import ChainNodes, NodeInfluence, contraction, past_log_ratio, settle
from shoal.chains.quilt.search import (
    FARTHEST,
    NEVER,
    NONE,
    UNSEEN,
    Cost,
    Influence,
    Quilt,
    QuiltLoss,
    QuiltRun,
    Scale,
    Survey,
    SurveyGoal,
    WorstNode,
    cost_of,
    every_node,
    join_runs,
    least_quilt,
    one_by_one,
    worse,
)
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.walk import UNIT

# The worst node of a chain: early nodes one by one, the settled rest all at once.
#
# Why a finite search is enough for long chains and for chains of any length is proved in
# mechanisms/markov_quilt.md; in short: with more entries on either side a node never needs less
# noise, because dropping an end-point that leaves the chain keeps |N| and never raises e.


SHORT_CHAIN = 32  # up to this length every node is searched to the end and reported
UNMIXED = 4096  # longest chain whose nodes are all searched although it never mixes
SETTLED_RATIO = 1e-13  # slack on law ratios at which a chain counts as settled
SETTLED_PERIODS = 1 << 40  # an entry this many periods on has a settled past at every lag tried


def survey(chain: ChainNodes, setting: SurveyGoal) -> Survey:
    """The node whose cheapest quilt costs most, over all nodes.

    Without a length, the supremum over every length: NEVER, of cost inf, when no finite quilt
    serves all of them.
    """
    length = setting.length
    if length is not None and length <= SHORT_CHAIN:
        return every_node(chain, setting, length)
    if length is not None and not chain.homogeneous:
        return one_by_one(chain, setting, range(length), UNSEEN)
    chain.mixing = contraction(chain)
    chain.settled = settle(chain, SETTLED_RATIO, None if length is None else length - 1)
    if chain.settled is not None:
        return _survey_settled(chain, setting, chain.settled.first)
    if length is None:
        return NEVER
    if chain.mixing is None and length > UNMIXED:
        return _survey_unmixed(chain, setting, length)
    return one_by_one(chain, setting, range(length), UNSEEN)


def _survey_settled(chain: ChainNodes, setting: SurveyGoal, settled: int) -> Survey:
    """Nodes whose law has settled share one quilt a phase; the others come one by one."""
    period, cycle = chain.period, chain.cycle or 0
    phases = [NodeInfluence(chain, settled + j + SETTLED_PERIODS * period) for j in range(period)]
    both = (setting.reach, setting.reach)
    inner = [least_quilt(phase, None, None, setting.cost, reach=both) for phase in phases]
    first = max(settled, cycle + max(quilt.left or 0 for quilt in inner))
    if setting.length is not None:
        first = min(first, setting.length)
    worst, runs = UNSEEN, list[QuiltRun]()
    for node in range(first, first + period):
        phase = (node - settled) % period
        found, stretch = _stretch(phases[phase], inner[phase], node, period, cycle, setting)
        worst = worse(worst, found)
        runs.extend(stretch)
    if worst.quilt.cost == math.inf:
        return NEVER
    early = one_by_one(chain, setting, range(first), worst)
    return Survey(early.worst, join_runs(early.runs, runs))


def _stretch(
    influence: Influence, inner: Quilt, first: int, step: int, cycle: int, setting: SurveyGoal
) -> tuple[WorstNode, list[QuiltRun]]:
    """The worst of the settled nodes first, first+step, …, whose two-sided quilt is `inner`."""
    if setting.length is None:
        return WorstNode(first, inner), [QuiltRun(first, None, step, inner.left, inner.right)]
    nodes, reach = range(first, setting.length, step), setting.reach
    clear = _clear(nodes, inner, setting.cost, setting.length)
    if clear is not None:
        return WorstNode(clear, inner), _runs_for(nodes, inner, setting.length)

    def rising(node: int, below: float) -> Quilt:
        return setting.least(influence, node, reach=(0, reach), below=below)

    def falling(node: int) -> Quilt:
        farthest = node - cycle if reach is None else min(reach, node - cycle)
        one_sided = setting.least(influence, node, reach=(farthest, 0), below=inner.cost)
        return min(inner, one_sided, key=cost_of)

    return worst_where_they_meet(nodes, rising, falling, setting.length)


def _clear(nodes: range, inner: Quilt, cost: Cost, length: int) -> int | None:
    """A node so far from both ends that quilts without an end-point there cost more than `inner`.

    None when there is none: then they have to be compared.
    """
    distance = cost.largest(inner.cost)
    if not distance < length:
        return None
    from_left = max(0, math.ceil((distance - nodes.start) / nodes.step))
    if from_left >= len(nodes) or length - nodes[from_left] < distance:
        return None
    return nodes[from_left]


def worst_where_they_meet(
    nodes: range,
    rising: Callable[[int, float], Quilt],
    falling: Callable[[int], Quilt],
    length: int,
) -> tuple[WorstNode, list[QuiltRun]]:
    """The worst of `nodes` when each needs the cheaper of a rising and a falling cost.

    With the node moving right, quilts without a left end-point get dearer (`rising`), those
    without a right end-point cheaper, two-sided ones no dearer (`falling`). `rising` takes a cost
    above which it need not look. Doubling, then bisection: the ends of a long chain are far apart.
    """
    low, high, probe = 0, len(nodes), 0
    while low < high:
        middle = min(probe, (low + high) // 2)
        other = falling(nodes[middle]).cost
        if rising(nodes[middle], other).cost >= other:
            high = middle
        else:
            low = middle + 1
        probe = 2 * probe + 1 if high == len(nodes) else high
    worst, runs = UNSEEN, list[QuiltRun]()
    if low > 0:
        worst = WorstNode(nodes[low - 1], rising(nodes[low - 1], math.inf))
        runs += _runs_for(nodes[:low], worst.quilt, length)
    if low < len(nodes):
        after = WorstNode(nodes[low], falling(nodes[low]))
        worst = worse(worst, after)
        runs += _runs_for(nodes[low:], after.quilt, length)
    return worst, runs


def _runs_for(nodes: range, quilt: Quilt, length: int) -> list[QuiltRun]:
    """Runs for `nodes`: this quilt, without its right end-point where that leaves the chain."""
    inside = nodes
    if quilt.right is not None:
        inside = nodes[: len(range(nodes.start, length - quilt.right, nodes.step))]
    runs = []
    for part, right in ((inside, quilt.right), (nodes[len(inside) :], None)):
        if part:
            runs.append(QuiltRun(part[0], part[-1], part.step, quilt.left, right))
    return runs


def _survey_unmixed(chain: ChainNodes, setting: SurveyGoal, length: int) -> Survey:
    """Long chains that never mix: the last certain entry, if any, cuts the chain in two."""
    certain, cost = chain.certain(length), setting.cost
    if certain is None:
        trivial = Quilt(None, None, length, 0.0, cost(length, 0.0))
        return Survey(WorstNode(length - 1, trivial), (QuiltRun(0, length - 1, 1, None, None),))
    before, after = certain, length - 1 - certain
    if before > after:
        return Survey(WorstNode(0, Quilt(None, certain, before, 0.0, cost(before, 0.0))), ())
    return Survey(WorstNode(length - 1, Quilt(after, None, after, 0.0, cost(after, 0.0))), ())


@dataclass(frozen=True, slots=True)
class QuiltResult:
    """sigma = max over nodes of min over quilts |N|/(epsilon - e), where and by which quilt.

    Nodes count from 0. `left`, `right` are the lags of the active quilt of the worst node (None =
    absent), `nearby` its |N|, `influence` its e. `runs` covers the nodes, each by a quilt that is
    enough at scale sigma; empty where one certain entry cuts a long chain that never mixes.
    `scores` is the least scale of each node on short chains, else empty. sigma is inf, and node
    None, only when a chain of any length has no finite quilt.
    """

    sigma: float
    node: int | None
    left: int | None
    right: int | None
    nearby: int
    influence: float
    runs: tuple[QuiltRun, ...]
    scores: tuple[float, ...]

    @classmethod
    def of(cls, found: Survey) -> QuiltResult:
        """Return the result of a survey: its worst quilt's cost and place, and all runs of
        quilts.
        """
        node, quilt = found.worst
        return cls(
            sigma=quilt.cost,
            node=node,
            left=quilt.left,
            right=quilt.right,
            nearby=quilt.nearby,
            influence=quilt.influence,
            runs=found.runs,
            scores=found.scores,
        )


def quilt_scale(
    transition: Floats,
    initial: Floats,
    length: int | None,
    epsilon: float,
    reach: int | None = None,
) -> QuiltResult:
    """The noise scale that makes a 1-Lipschitz query epsilon-Pufferfish on one chain.

    max over nodes i of min over quilts Q of |N| / (epsilon - e(X_Q | X_i)), over all quilts whose
    end-points are at distance at most `reach` (no limit by default), absent end-points included.
    `transition` is (k, k), or one matrix per step; `length` None takes the supremum over every
    length. Rounds up, and within 1e-9 of the true value for epsilon of at least 1e-3; the work does
    not grow with `length` once the law of the entries has settled. A chain longer than 4096 whose
    law never settles gets max(j, length-1-j)/epsilon, j its last certain entry, or length/epsilon.
    Song, Wang & Chaudhuri 2017, Algorithm 3, with the true minimum and every node.
    """
    chain = ChainNodes(transition, initial)
    return QuiltResult.of(survey(chain, SurveyGoal(length, Scale(epsilon), reach)))


def quilt_loss(
    transition: Floats,
    initial: Floats,
    length: int | None,
    eta: float,
    reach: int | None = None,
) -> float:
    """The loss of noise that is eta-private for one entry: max_i min_Q (|N|·eta + e(X_Q | X_i)).

    For a 1-Lipschitz query with Laplace noise eta = 1/scale; for several releases the sum of their
    etas (Theorem 4.4 with the scales known). Rounds up; at eta = 1/sigma, with sigma from
    `quilt_scale` and the same other arguments, it is at most epsilon.
    """
    chain = ChainNodes(transition, initial)
    return survey(chain, SurveyGoal(length, QuiltLoss(eta), reach)).worst.quilt.cost


def node_scales(
    transition: Floats,
    initial: Floats,
    length: int,
    epsilon: float,
    nodes: range,
    reach: int | None = None,
) -> Floats:
    """The least scale of each node: min over quilts of |N| / (epsilon - e). Rounds up."""
    chain, setting = ChainNodes(transition, initial), SurveyGoal(length, Scale(epsilon), reach)
    return np.array([setting.least(NodeInfluence(chain, node), node).cost for node in nodes])


# Markov quilts against every initial law at once, for one transition matrix.
#
# For node t (counted from 0) and the quilt at lags (a, b), the largest influence over all initial
# laws q is
#
#     max over x, x' of  F_b(x, x') + max_y log P^t(y, x')/P^t(y, x)
#                        + max_y log P^a(y, x)/P^a(y, x').
#
# It is a supremum, approached as q tends to a single state, and not a maximum: at q = e_y itself
# the third term collapses when a = t. Song, Wang & Chaudhuri 2017, Appendix C.4.


def any_initial_scale(
    transition: Floats, length: int | None, epsilon: float, reach: int | None = None
) -> QuiltResult:
    """The noise scale that makes a 1-Lipschitz query epsilon-Pufferfish for every initial law.

    max over nodes of min over quilts of |N| / (epsilon - e), e the supremum over initial laws.
    `length` None: every length. Rounds up; exact otherwise. The work grows with log(length).
    """
    return QuiltResult.of(_survey(transition, SurveyGoal(length, Scale(epsilon), reach)))


def any_initial_loss(
    transition: Floats, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of noise that is eta-private for one entry, over every initial law. Rounds up."""
    return _survey(transition, SurveyGoal(length, QuiltLoss(eta), reach)).worst.quilt.cost


class _AnyInitialNodes(ChainNodes):
    """The nodes of a chain whose law ratio is the supremum over initial laws."""

    def __init__(self, transition: Floats) -> None:
        size = len(transition)
        super().__init__(transition, np.full(size, 1.0 / size))  # every value is possible at first
        self._all = np.arange(size)

    def law_ratios(self, nodes: range) -> Floats:
        """sup over q of log P(X_i = x') - log P(X_i = x): the largest over single states."""
        return np.stack(
            [past_log_ratio(self.logs(0, node), self._all, self.secrets(node)).T for node in nodes]
        )


def _survey(transition: Floats, setting: SurveyGoal) -> Survey:
    """The worst node. Possible values only shrink, and from `cycle` on they stay the same.

    There the cost of a quilt without left end-point rises with the node and that of every other
    quilt falls, because the influence falls: rows of P^(t+1) are mixtures of rows of P^t.
    """
    chain = _AnyInitialNodes(transition)
    first = chain.cycle or 0
    end = setting.length
    if end is None:
        end = _crossing(chain, setting, first)
        if end is None:
            return NEVER
    early = one_by_one(chain, setting, range(min(first, end)), UNSEEN)
    nodes = range(first, end)
    worst, runs = worst_where_they_meet(
        nodes,
        lambda node, below: _without_left(chain, setting, node, below),
        lambda node: _with_left(chain, setting, node),
        end if setting.length is not None else FARTHEST * 2,
    )
    if setting.length is None and runs:
        runs[-1] = runs[-1]._replace(last=None)
    return Survey(worse(early.worst, worst), join_runs(early.runs, runs))


def _without_left(chain: ChainNodes, setting: SurveyGoal, node: int, below: float) -> Quilt:
    reach = (0, setting.reach)
    return setting.least(NodeInfluence(chain, node), node, reach=reach, below=below)


def _with_left(chain: ChainNodes, setting: SurveyGoal, node: int) -> Quilt:
    """The cheapest quilt with a left end-point; on a finite chain also the trivial one."""
    influence = NodeInfluence(chain, node)
    farthest = node if setting.reach is None else min(node, setting.reach)
    # an endless right side: a right end-point beyond the chain may be dropped at no cost
    quilt = least_quilt(influence, None, None, setting.cost, reach=(farthest, setting.reach))
    if setting.length is None:
        return quilt
    one_sided = setting.least(influence, node, reach=(farthest, 0), below=quilt.cost)
    return min(quilt, one_sided, key=cost_of)


def _crossing(chain: ChainNodes, setting: SurveyGoal, first: int) -> int | None:
    """One past a node from which quilts with a left end-point win; None when there is none."""
    node = first + 1
    while node <= FARTHEST:
        falling = _with_left(chain, setting, node).cost
        if _without_left(chain, setting, node, falling).cost >= falling:
            return node + 1 if falling < math.inf else None
        node *= 2
    return None


# Markov quilts for a whole rectangle of two-state chains: a proved supremum, not a grid.


Pair = tuple[float, float]


class IntervalResult(NamedTuple):
    """The quilt result at the worst chain of the family, and that chain's (p0, p1)."""

    result: QuiltResult
    corner: Pair


def interval_scale(
    low: Pair, high: Pair, length: int | None, epsilon: float, reach: int | None = None
) -> IntervalResult:
    """The least quilt scale for all chains with stay probabilities in a rectangle, any initial law.

    p0 = P(0→0) in [low[0], high[0]], p1 = P(1→1) in [low[1], high[1]]. Where p0 + p1 >= 1 every
    influence of every quilt of every node grows with p0 and with p1; where p0 + p1 <= 1 it falls
    with both. So the supremum is attained at a corner, and the answer is exact: rounding up only.
    Proof: mechanisms/markov_quilt.md, "Rectangles of two-state chains".
    """
    found = [
        IntervalResult(any_initial_scale(two_state(*corner), length, epsilon, reach), corner)
        for corner in worst_corners(low, high)
    ]
    return max(found, key=lambda item: item.result.sigma)


def interval_loss(
    low: Pair, high: Pair, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of eta-private noise over the same family: the larger of the two corners."""
    return max(
        any_initial_loss(two_state(*corner), length, eta, reach)
        for corner in worst_corners(low, high)
    )


def worst_corners(low: Pair, high: Pair) -> tuple[Pair, ...]:
    """The chains that between them attain every supremum: (high, high) and (low, low).

    The first only when some chain of the rectangle has p0 + p1 >= 1, the second only when some has
    p0 + p1 <= 1.
    """
    if not all(0.0 <= a <= b <= 1.0 for a, b in zip(low, high, strict=True)):
        raise InputError(
            f"low is {low} and high is {high}; stay probabilities need 0 <= low <= high <= 1"
        )
    corners = []
    if sum(high) >= 1.0:
        corners.append(high)
    if sum(low) <= 1.0:
        corners.append(low)
    return tuple(dict.fromkeys(corners))


def two_state(stay_0: float, stay_1: float) -> Floats:
    """The transition matrix with these probabilities of staying in state 0 and in state 1."""
    return np.array([[stay_0, 1.0 - stay_0], [1.0 - stay_1, stay_1]])


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
    return QuiltResult.of(_survey_mixing(MixingInfluence(pi_min, gap), setting, start))


def bound_loss(
    pi_min: float, gap: float, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of eta-private noise by the same bound: max_i min_Q (|N|·eta + e). Rounds up."""
    setting = SurveyGoal(length, QuiltLoss(eta), reach)
    return _survey_mixing(MixingInfluence(pi_min, gap), setting, (1, 1)).worst.quilt.cost


@dataclass(frozen=True, slots=True)
class MixingInfluence:
    """e({i-a, i+b} | i) <= 2 d(a) + d(b), see `bound_scale`; None is an absent end-point."""

    pi_min: float
    gap: float

    def __call__(self, left: int | None, right: int | None) -> float:
        return (2.0 * self._one_side(left) + self._one_side(right)) * (1.0 + 4.0 * UNIT)

    def _one_side(self, lag: int | None) -> float:
        """Return the influence bound of one end-point `lag` entries away; 0 without one. Rounds up.

        It follows from the spectral gap; infinite where the lag is too short for the bound.
        """
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


def _survey_mixing(influence: Influence, setting: SurveyGoal, start: tuple[int, int]) -> Survey:
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
