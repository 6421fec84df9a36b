"""The least noise scale by Markov quilts on a chain, and the loss of a given scale."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.core.value import Floats
from shoal.loss.quilt_cost import Loss, Scale
from shoal.loss.quilt_nodes import ChainNodes, NodeInfluence
from shoal.loss.quilt_report import QuiltRun, Setting, Survey
from shoal.loss.quilt_survey import survey


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
    return QuiltResult.of(survey(chain, Setting(length, Scale(epsilon), reach)))


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
    return survey(chain, Setting(length, Loss(eta), reach)).worst.quilt.cost


def node_scales(
    transition: Floats,
    initial: Floats,
    length: int,
    epsilon: float,
    nodes: range,
    reach: int | None = None,
) -> Floats:
    """The least scale of each node: min over quilts of |N| / (epsilon - e). Rounds up."""
    chain, setting = ChainNodes(transition, initial), Setting(length, Scale(epsilon), reach)
    return np.array([setting.least(NodeInfluence(chain, node), node).cost for node in nodes])
