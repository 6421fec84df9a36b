"""Markov quilts against every initial law at once, for one transition matrix.

For node t (counted from 0) and the quilt at lags (a, b), the largest influence over all initial
laws q is

    max over x, x' of  F_b(x, x') + max_y log P^t(y, x')/P^t(y, x) + max_y log P^a(y, x)/P^a(y, x').

It is a supremum, approached as q tends to a single state, and not a maximum: at q = e_y itself the
third term collapses when a = t. Song, Wang & Chaudhuri 2017, Appendix C.4.
"""

from __future__ import annotations

import math

import numpy as np

from shoal.core.value import Floats
from shoal.loss.influence import past_log_ratio
from shoal.loss.quilt import QuiltResult
from shoal.loss.quilt_cost import FARTHEST, Loss, Quilt, Scale
from shoal.loss.quilt_nodes import ChainNodes, NodeInfluence
from shoal.loss.quilt_report import NEVER, UNSEEN, Setting, Survey, cost_of, joined, worse
from shoal.loss.quilt_scan import one_by_one
from shoal.loss.quilt_search import least_quilt
from shoal.loss.quilt_survey import worst_where_they_meet


def any_initial_scale(
    transition: Floats, length: int | None, epsilon: float, reach: int | None = None
) -> QuiltResult:
    """The noise scale that makes a 1-Lipschitz query epsilon-Pufferfish for every initial law.

    max over nodes of min over quilts of |N| / (epsilon - e), e the supremum over initial laws.
    `length` None: every length. Rounds up; exact otherwise. The work grows with log(length).
    """
    return QuiltResult.of(_survey(transition, Setting(length, Scale(epsilon), reach)))


def any_initial_loss(
    transition: Floats, length: int | None, eta: float, reach: int | None = None
) -> float:
    """The loss of noise that is eta-private for one entry, over every initial law. Rounds up."""
    return _survey(transition, Setting(length, Loss(eta), reach)).worst.quilt.cost


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


def _survey(transition: Floats, setting: Setting) -> Survey:
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
    return Survey(worse(early.worst, worst), joined(early.runs, runs))


def _without_left(chain: ChainNodes, setting: Setting, node: int, below: float) -> Quilt:
    reach = (0, setting.reach)
    return setting.least(NodeInfluence(chain, node), node, reach=reach, below=below)


def _with_left(chain: ChainNodes, setting: Setting, node: int) -> Quilt:
    """The cheapest quilt with a left end-point; on a finite chain also the trivial one."""
    influence = NodeInfluence(chain, node)
    farthest = node if setting.reach is None else min(node, setting.reach)
    # an endless right side: a right end-point beyond the chain may be dropped at no cost
    quilt = least_quilt(influence, None, None, setting.cost, reach=(farthest, setting.reach))
    if setting.length is None:
        return quilt
    one_sided = setting.least(influence, node, reach=(farthest, 0), below=quilt.cost)
    return min(quilt, one_sided, key=cost_of)


def _crossing(chain: ChainNodes, setting: Setting, first: int) -> int | None:
    """One past a node from which quilts with a left end-point win; None when there is none."""
    node = first + 1
    while node <= FARTHEST:
        falling = _with_left(chain, setting, node).cost
        if _without_left(chain, setting, node, falling).cost >= falling:
            return node + 1 if falling < math.inf else None
        node *= 2
    return None
