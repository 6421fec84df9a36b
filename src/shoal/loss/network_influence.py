"""How far the law of some variables of a network moves when one variable changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.value import Floats
from shoal.core.wide import Wide
from shoal.loss.kernels import log_bounds
from shoal.models.bayesnet import BayesNet
from shoal.models.bayesnet_elimination import elimination
from shoal.models.graph import ancestors

Bools = npt.NDArray[np.bool_]


class JointLaw(NamedTuple):
    """P(keep = values), 0 exactly where impossible, and how often an entry was rounded."""

    values: Wide
    roundings: int

    @property
    def possible(self) -> Bools:
        return self.values.possible


def joint_law(net: BayesNet, keep: Sequence[int]) -> JointLaw:
    """The joint law of some variables, axes in that order, by elimination."""
    kept = tuple(keep)
    scopes = tuple((*net.above[v], v) for v in sorted(ancestors(net.above, kept)))
    steps = elimination(scopes, net.sizes, kept, net.elimination_order)
    return JointLaw(net.weight(kept, {}), 2 * steps.roundings)


def rows_given(values: Wide) -> Floats:
    """The rows divided by their sums, as doubles: one rounding more for each number of a row.

    Entries below 2.2e-308 lose digits, or all of them; rows of zeros stay so.
    """
    return values.over(values.total(-1, keepdims=True))


def network_influence(net: BayesNet, node: int, quilt: Sequence[int]) -> float:
    """The max-influence of a variable on a set of others.

    max over x, x', q of log P(X_Q = q | X_i = x) - log P(X_Q = q | X_i = x'), with i = node and
    Q = quilt. Values X_i never takes are not secrets. Rounds up; 0 for an empty set; inf when some
    q is possible under x and impossible under x'. Song, Wang & Chaudhuri 2017, Definition 4.1.
    """
    if not quilt:
        return 0.0
    law = joint_law(net, (node, *quilt))
    values = law.values.arranged(lambda table: table.reshape(net.sizes[node], -1))
    known = values.possible.any(axis=1)
    if known.sum() < 2:
        return 0.0
    operations = law.roundings + values.shape[1] + 4
    rows = rows_given(values)
    bounds = log_bounds(rows[known], values.possible[known], operations)
    top, bottom = bounds.upper.max(axis=0), bounds.lower.min(axis=0)
    live = top > -math.inf
    if not live.any():
        return 0.0
    return max(float((top[live] - bottom[live]).max()), 0.0) + 2.0 * bounds.error
