"""What a search over nodes is asked and what it reports."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from shoal.loss.quilt_cost import NONE, Cost, Influence, Quilt
from shoal.loss.quilt_search import least_quilt

Lags = tuple[int | None, int | None]


class QuiltRun(NamedTuple):
    """Nodes first, first+step, …, last, all protected by end-points `left` and `right` away.

    None as a lag is an absent end-point; None as `last` means every later node.
    """

    first: int
    last: int | None
    step: int
    left: int | None
    right: int | None


class Worst(NamedTuple):
    """A node and its cheapest quilt."""

    node: int | None
    quilt: Quilt


class Survey(NamedTuple):
    """The worst node, a quilt that is enough for each node, and every cost on short chains."""

    worst: Worst
    runs: tuple[QuiltRun, ...]
    scores: tuple[float, ...] = ()


class Setting(NamedTuple):
    """What all nodes share: the length (None = any), the cost of a quilt, the farthest lag."""

    length: int | None
    cost: Cost
    reach: int | None

    def least(
        self,
        influence: Influence,
        node: int,
        enough: float = -math.inf,
        start: Iterable[Lags] = (),
        reach: Lags | None = None,
        below: float = math.inf,
    ) -> Quilt:
        """The cheapest quilt of `node`, see `least_quilt`."""
        right = None if self.length is None else self.length - 1 - node
        ends = (self.reach, self.reach) if reach is None else reach
        return least_quilt(
            influence,
            node,
            right,
            self.cost,
            reach=ends,
            enough=enough,
            below=below,
            start=start,
        )


UNSEEN = Worst(None, NONE._replace(cost=-math.inf))
NEVER = Survey(Worst(None, NONE), ())


def worse(one: Worst, other: Worst) -> Worst:
    """The one whose quilt costs more; the first when they tie."""
    return other if other.quilt.cost > one.quilt.cost else one


def cost_of(quilt: Quilt) -> float:
    return quilt.cost


def joined(*parts: Iterable[QuiltRun]) -> tuple[QuiltRun, ...]:
    """Runs one after another, neighbours with the same lags made one."""
    runs: list[QuiltRun] = []
    for run in (run for part in parts for run in part):
        last = runs[-1] if runs else None
        follows = last is not None and last.last == run.first - 1 and last.step == run.step == 1
        if last is not None and follows and last[3:] == run[3:]:
            runs[-1] = last._replace(last=run.last)
        else:
            runs.append(run)
    return tuple(runs)
