"""The cheapest quilt of a node: exact, without looking at every quilt.

Influence never grows with a lag (data processing), and an absent end-point has none: so over a box
[a0, a1] × [b0, b1] of lags no quilt costs less than |N| at (a0, b0) together with e at (a1, b1).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

from shoal.loss.quilt_cost import LARGE, NEARLY, NONE, Cost, Influence, Quilt, Search, Side
from shoal.loss.quilt_cuts import finish_by_cuts


def least_quilt(
    influence: Influence,
    left: int | None,
    right: int | None,
    cost: Cost,
    *,
    reach: tuple[int | None, int | None] = (None, None),
    enough: float = -math.inf,
    below: float = math.inf,
    start: Iterable[tuple[int | None, int | None]] = (),
) -> Quilt:
    """The cheapest quilt of a node with `left` entries before it and `right` after it.

    None means endlessly many. `reach` limits the lag of each end-point; absent end-points are
    always allowed. The search stops early at a quilt that costs at most `enough`, and looks only
    for quilts cheaper than `below`. `start` holds lags worth trying first. NONE, of cost inf, when
    there is no such quilt.
    """
    search = Search(influence, Side.of(left, reach[0]), Side.of(right, reach[1]), cost)
    search.best = NONE._replace(cost=below)
    if left is not None and right is not None:
        search.offer(search.left.positions, search.right.positions)
    for a, b in start:
        _offer_lags(search, a, b)
    if search.best.cost > enough:
        _probe(search)
    if enough < search.best.cost < math.inf and not finish_by_cuts(search, enough):
        _refine(search, enough)
    return search.best if search.best.nearby else NONE


def _offer_lags(search: Search, a: int | None, b: int | None) -> None:
    positions = [
        side.positions if lag is None or lag > side.real else lag
        for side, lag in ((search.left, a), (search.right, b))
    ]
    if min(positions) > 0:
        search.offer(*positions)


def _probe(search: Search) -> None:
    """Try lags 1, 2, 4, … on both sides until no larger quilt can win."""
    last_left, last_right = search.left.positions, search.right.positions
    step = 1
    while min(last_left, last_right) > 0:
        a, b = min(step, last_left), min(step, last_right)
        if search.nearby(a, b) >= search.limit():
            return
        search.offer(a, b)
        if (a, b) == (last_left, last_right):
            return
        step *= 2


def _refine(search: Search, enough: float) -> None:
    """Branch and bound over boxes of positions, cheapest bound first.

    Exact up to |N| = LARGE. The best of larger ones is within the share NEARLY of the least, since
    the quilts that near it are as many as |N|.
    """
    a1, b1 = search.left.within(search.limit() + 1.0), search.right.within(search.limit() + 1.0)
    boxes = [(0.0, 1, a1, 1, b1)] if a1 and b1 else []
    while boxes:
        bound, *box = heapq.heappop(boxes)
        if bound >= search.best.cost or search.best.cost <= enough:
            return
        large = search.best.nearby > LARGE and not search.trivial(box[1], box[3])
        if large and bound >= search.best.cost * (1.0 - NEARLY):
            continue
        for part in _halves(*box):
            search.offer(part[1], part[3])
            least = search.bound(*part)
            if least < search.best.cost and (part[0] < part[1] or part[2] < part[3]):
                heapq.heappush(boxes, (least, *part))


def _halves(a0: int, a1: int, b0: int, b1: int) -> tuple[tuple[int, int, int, int], ...]:
    """The box cut in two across its longer side; itself when it is a single quilt."""
    if a1 - a0 >= b1 - b0:
        if a0 == a1:
            return ((a0, a1, b0, b1),)
        middle = (a0 + a1) // 2
        return (a0, middle, b0, b1), (middle + 1, a1, b0, b1)
    middle = (b0 + b1) // 2
    return (a0, a1, b0, middle), (a0, a1, middle + 1, b1)
