"""How far the law of some variables of a network moves when one variable changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.value import Floats
from shoal.loss.kernels import log_bounds
from shoal.loss.mixture import DEEPEST_LINEAR
from shoal.models.bayesnet import BayesNet
from shoal.models.bayesnet_elimination import elimination, joint, possible_joint
from shoal.models.graph import ancestors

Bools = npt.NDArray[np.bool_]


class JointLaw(NamedTuple):
    """P(keep = values), its exact support, and how often an entry was rounded."""

    values: Floats
    possible: Bools
    roundings: int


def joint_law(net: BayesNet, keep: Sequence[int]) -> JointLaw:
    """The joint law of some variables, axes in that order, by elimination.

    Where products of table entries may underflow, the support is followed on booleans.
    """
    kept = tuple(keep)
    factors = net.factors(ancestors(net.above, kept))
    order = net.elimination_order
    values = joint(factors, net.sizes, kept, order)
    steps = elimination(tuple(f.scope for f in factors), net.sizes, kept, order)
    if net.depth > DEEPEST_LINEAR:
        possible = possible_joint(factors, net.sizes, kept, order)
    else:
        possible = np.asarray(values > 0)
    return JointLaw(values, possible, steps.roundings)


def network_influence(net: BayesNet, node: int, quilt: Sequence[int]) -> float:
    """The max-influence of a variable on a set of others.

    max over x, x', q of log P(X_Q = q | X_i = x) - log P(X_Q = q | X_i = x'), with i = node and
    Q = quilt. Values X_i never takes are not secrets. Rounds up; 0 for an empty set; inf when some
    q is possible under x and impossible under x'. Song, Wang & Chaudhuri 2017, Definition 4.1.
    """
    if not quilt:
        return 0.0
    law = joint_law(net, (node, *quilt))
    own = len(law.values)
    values = law.values.reshape(own, -1)
    possible = law.possible.reshape(own, -1)
    known = possible.any(axis=1)
    if known.sum() < 2:
        return 0.0
    totals = values[known].sum(axis=1, keepdims=True)
    if not (totals > 0).all():
        return math.inf  # a value that is possible underflowed altogether
    operations = law.roundings + values.shape[1] + 4
    bounds = log_bounds(values[known] / totals, possible[known], operations)
    top, bottom = bounds.upper.max(axis=0), bounds.lower.min(axis=0)
    live = top > -math.inf
    if not live.any():
        return 0.0
    return max(float((top[live] - bottom[live]).max()), 0.0) + 2.0 * bounds.error
