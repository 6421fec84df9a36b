"""The exact cone rule of the lift: a small linear program, solved on trees and certified.

At the optimum of  Λ(p, q; G) = sup log (p·v)/(q·v),  v_y ≤ e^{G(y,z)} v_z,  the tight
constraints form a spanning tree of the states: each state is `high` (v = e^G · parent) or low
(parent = e^G · v). Weighted by v, the dual multipliers are plain flows: the flow on an edge is
the net worth Σ (p - λq)·v of the high side. A tree whose flows are all non-negative is optimal;
otherwise the side with the wrong sign is rescaled until a new constraint is tight.

The answer never rests on the search: `_certified` rebuilds the multipliers f ≥ 0 bottom-up and
checks  p_i + in_i - out_i ≤ λ q_i  at every state, which bounds (p·v)/(q·v) by λ for every
admissible v. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.loss.lift_branches import (
    admissible,
    evaluate,
    pull_down,
    recall,
    relink,
    remember,
    root_at_heaviest,
    star,
    walk,
    worst_edge,
)
from shoal.loss.lift_kernels import ENDLESS, ROUND, hopeless


@njit(cache=True, error_model="numpy")
def lower_cone(
    best: Any, cost: float, extra: float, rows: Any, weight: Any, trees: Any, floor: float
) -> int:
    """best(x,x') becomes min(best, cost + Λ) by the exact cone; pairs left uncertified counted.

    weight = e^G with G closed under the triangle inequality. trees remembers the optimal tree of
    every pair, state by state: 0 root, ±(parent + 1) high or low. A pair is left alone as soon as
    it cannot fall below best; floor = e^{min G} - 1 off the diagonal gives the quickest such sign.
    """
    upper, lower, present, gained, held = rows
    size = upper.shape[1]
    values = np.empty((5, size))
    block = np.empty(size * size)
    links = np.empty((6, size), np.int64)
    failed = 0
    for x in range(best.shape[0]):
        for other in range(best.shape[0]):
            room = best[x, other] - cost
            if not (present[x] and present[other]):
                continue
            if hopeless(gained[x, other], held[x, other], floor, room):
                continue
            count = _gather(upper[x], lower[other], values, links[5])
            p, q = values[3][:count], values[4][:count]
            if (p == q).all():
                best[x, other] = cost
                continue
            chosen = weight if count == size else _part(weight, links[5], count, block)
            ratio = _pair_ratio(p, q, chosen, values, links, trees[x, other], _exp(room))
            if ratio <= 0.0:
                failed += 1
            elif ratio < ENDLESS:
                leak = np.log(ratio) + 16.0 * (count + 4) * ROUND + extra
                best[x, other] = min(best[x, other], cost + leak)
    return failed


@njit(cache=True, error_model="numpy")
def _exp(value: float) -> float:
    """e^value, kept finite."""
    return float(np.exp(min(value, 300.0)))


@njit(cache=True, error_model="numpy")
def _part(weight: Any, states: Any, count: int, block: Any) -> Any:
    """The rows and columns of some states, side by side in memory."""
    part = block[: count * count].reshape(count, count)
    for i in range(count):
        for j in range(count):
            part[i, j] = weight[states[i], states[j]]
    return part


@njit(cache=True, error_model="numpy")
def _gather(upper: Any, lower: Any, values: Any, states: Any) -> int:
    """Number of states that either row can take, after copying both rows onto them."""
    count = 0
    for y in range(upper.size):
        if upper[y] > 0.0 or lower[y] > 0.0:
            values[3, count] = upper[y]
            values[4, count] = lower[y]
            states[count] = y
            count += 1
    return count


@njit(cache=True, error_model="numpy")
def _pair_ratio(
    p: Any, q: Any, weight: Any, values: Any, links: Any, tree: Any, limit: float
) -> float:
    """Certified upper bound of (p·v)/(q·v); inf once it cannot stay below limit, 0 on failure."""
    parent, high = links[0], links[1]
    if _warm_start(p, q, weight, values, links, tree):
        ratio = _climbed(p, q, weight, values, links, tree, limit)
        if ratio > 0.0:
            return ratio
    star(p, q, weight, parent, high)
    return _climbed(p, q, weight, values, links, tree, limit)


@njit(cache=True, error_model="numpy")
def _climbed(
    p: Any, q: Any, weight: Any, values: Any, links: Any, tree: Any, limit: float
) -> float:
    """The certified ratio of the best tree that relinking reaches, as _pair_ratio returns it."""
    v, net, scratch = values[0][: p.size], values[1][: p.size], values[2][: p.size]
    parent, high, order, head, after, states = links
    ratio = 0.0
    for _ in range(40 * p.size + 100):
        walk(parent, order, head, after, p.size)
        if not evaluate(parent, high, order, weight, v):
            return 0.0
        ratio = (p * v).sum() / (q * v).sum()
        worst = -1
        if ratio < limit:
            worst = worst_edge(p, q, v, ratio, parent, high, order, net)
        if worst < 0:
            break
        relink(worst, net[worst], weight, v, parent, high, order, scratch)
    remember(tree, states, parent, high, p.size)
    if ratio >= limit:
        return np.inf
    return _certified(p, q, weight, v, ratio, parent, high, order, head, after, net)


@njit(cache=True, error_model="numpy")
def _warm_start(p: Any, q: Any, weight: Any, values: Any, links: Any, tree: Any) -> bool:
    """Whether the remembered tree, repaired where its v breaks a constraint, can be used."""
    v, net, scratch = values[0][: p.size], values[1][: p.size], values[2][: p.size]
    parent, high, order, head, after, states = links
    count = p.size
    if not recall(tree, states, parent, high, after, count):
        return False
    if walk(parent, order, head, after, count) != count or parent[order[0]] >= 0:
        return False
    if not evaluate(parent, high, order, weight, v):
        return False
    if admissible(weight, v):
        return True
    broken = pull_down(weight, v, parent, high, net, scratch)
    for _ in range(broken):
        walk(parent, order, head, after, count)
        ratio = (p * v).sum() / (q * v).sum()
        worst_edge(p, q, v, ratio, parent, high, order, net)
        second = order[1]  # roots come first, so this is one whenever there are two
        if parent[second] < 0:
            relink(second, net[second], weight, v, parent, high, order, scratch)
    return True


@njit(cache=True, error_model="numpy")
def _certified(
    p: Any,
    q: Any,
    weight: Any,
    v: Any,
    ratio: float,
    parent: Any,
    high: Any,
    order: Any,
    head: Any,
    after: Any,
    balance: Any,
) -> float:
    """The least tried ratio ≥ the given one that the tree's multipliers prove; 0 if none."""
    root_at_heaviest(q, v, parent, high)
    walk(parent, order, head, after, v.size)
    widening = v.size * ROUND
    for _ in range(30):
        candidate = float(ratio * (1.0 + widening))
        if proves(p, q, weight, candidate, parent, high, order, balance):
            return candidate
        widening *= 2.0
    return 0.0


@njit(cache=True, error_model="numpy")
def proves(
    p: Any, q: Any, weight: Any, ratio: float, parent: Any, high: Any, order: Any, balance: Any
) -> bool:
    """Whether multipliers f ≥ 0 on the tree give  p + in - out ≤ ratio·q  at every state."""
    for i in range(p.size):
        balance[i] = p[i] - ratio * q[i]
    for n in range(p.size - 1, 0, -1):
        i = order[n]
        above = parent[i]
        if high[i]:
            if balance[i] > 0.0:
                balance[above] += balance[i] * weight[i, above]
        elif balance[i] > 0.0:
            return False
        else:
            balance[above] += balance[i] / weight[above, i]
    return bool(balance[order[0]] <= 0.0)
