"""The exact cone rule of the lift: a small linear program, solved on trees and certified.

At the optimum of  Λ(p, q; G) = sup log (p·v)/(q·v),  v_y ≤ e^{G(y,z)} v_z,  the tight
constraints form a spanning tree of the states: each state is `high` (v = e^G · parent) or low
(parent = e^G · v). Weighted by v, the dual multipliers are plain flows: the flow on an edge is
the net worth Σ (p - λq)·v of the high side. A tree whose flows are all non-negative is optimal;
otherwise the side with the wrong sign is rescaled until a new constraint is tight.

The answer never rests on the search: `_certify_ratio` rebuilds the multipliers f ≥ 0 bottom-up and
checks  p_i + in_i - out_i ≤ λ q_i  at every state, which bounds (p·v)/(q·v) by λ for every
admissible v. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.mechanisms.cone_kernels import ENDLESS, HUGE, ROUND, exceeds_room


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
            if exceeds_room(gained[x, other], held[x, other], floor, room):
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
    """Copy the rows and columns of the first `count` states into `block`, and return that
    matrix.
    """
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
        ratio = _improve_tree(p, q, weight, values, links, tree, limit)
        if ratio > 0.0:
            return ratio
    star(p, q, weight, parent, high)
    return _improve_tree(p, q, weight, values, links, tree, limit)


@njit(cache=True, error_model="numpy")
def _improve_tree(
    p: Any, q: Any, weight: Any, values: Any, links: Any, tree: Any, limit: float
) -> float:
    """The certified ratio of the best tree that relinking reaches, as _pair_ratio returns it."""
    v, net, scratch = values[0][: p.size], values[1][: p.size], values[2][: p.size]
    parent, high, order, head, after, states = links
    ratio = 0.0
    for _ in range(40 * p.size + 100):
        whole = one_tree(parent, order, head, after, p.size)
        if not (whole and evaluate(parent, high, order, weight, v)):
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
    return _certify_ratio(p, q, weight, v, ratio, parent, high, order, head, after, net)


@njit(cache=True, error_model="numpy")
def _warm_start(p: Any, q: Any, weight: Any, values: Any, links: Any, tree: Any) -> bool:
    """Load the remembered tree into `values` and `links`, repaired in place where it breaks a
    constraint.

    Returns whether it can be used; otherwise the search starts from nothing.
    """
    v, net, scratch = values[0][: p.size], values[1][: p.size], values[2][: p.size]
    parent, high, order, head, after, states = links
    count = p.size
    if not recall(tree, states, parent, high, after, count):
        return False
    if not one_tree(parent, order, head, after, count):
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
def _certify_ratio(
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
    if not one_tree(parent, order, head, after, v.size):
        return 0.0
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


# Spanning trees of tight constraints: the moves of the cone rule (lift_tree) on them.
#
# A tree is held as parent[i] (-1 at a root) and high[i]: 1 when v_i = e^G(i,parent) v_parent, 0
# when v_parent = e^G(parent,i) v_i. order lists states with parents first; head and after link the
# children of each state. weight = e^G, closed under the triangle inequality. Importing this module
# imports numba.


UNKNOWN = 32767  # as in cone.py: no tree remembered
_MATHS = {"contract", "reassoc", "nnan", "nsz"}
FARTHEST = 200.0  # a larger G counts as infinite, as cone.CEILING
_SLACK = 1e-10  # a remembered tree may break a constraint by this much: its bound stays valid


@njit(cache=True, error_model="numpy")
def walk(parent: Any, order: Any, head: Any, after: Any, count: int) -> int:
    """Number of states reached from the roots; order lists roots first, then parents first."""
    for i in range(count):
        head[i] = -1
    reached = 0
    for i in range(count):
        if parent[i] < 0:
            order[reached] = i
            reached += 1
        else:
            after[i] = head[parent[i]]
            head[parent[i]] = i
    done = 0
    while done < reached:
        child = head[order[done]]
        done += 1
        while child >= 0:
            order[reached] = child
            reached += 1
            child = after[child]
    return reached


@njit(cache=True, error_model="numpy")
def one_tree(parent: Any, order: Any, head: Any, after: Any, count: int) -> bool:
    """Whether all states hang on one root; order then lists it first, then parents first."""
    whole = walk(parent, order, head, after, count) == count
    return whole and parent[order[0]] < 0 and (count < 2 or parent[order[1]] >= 0)


@njit(cache=True, error_model="numpy")
def evaluate(parent: Any, high: Any, order: Any, weight: Any, v: Any) -> bool:
    """Whether v, read off the tree and scaled to smallest entry 1, stays in range."""
    v[order[0]] = 1.0
    least = 1.0
    for n in range(1, v.size):
        i = order[n]
        above = parent[i]
        if high[i]:
            v[i] = v[above] * weight[i, above]
        else:
            v[i] = v[above] / weight[above, i]
        least = min(least, v[i])
    if not least > 0.0:
        return False
    most = 0.0
    for i in range(v.size):
        v[i] /= least
        most = max(most, v[i])
    return most <= 2.0 * HUGE


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def star(p: Any, q: Any, weight: Any, parent: Any, high: Any) -> None:
    """Start from the best star: all states as high, or all as low, as one centre allows."""
    best = 0.0
    centre = 0
    rises = 1
    for c in range(p.size):
        above = 0.0
        base = 0.0
        above_low = 0.0
        base_low = 0.0
        for i in range(p.size):
            above += p[i] * weight[i, c]
            base += q[i] * weight[i, c]
            above_low += p[i] / weight[c, i]
            base_low += q[i] / weight[c, i]
        if above > best * base:
            best, centre, rises = above / base if base > 0.0 else ENDLESS, c, 1
        if above_low > best * base_low:
            best, centre, rises = above_low / base_low if base_low > 0.0 else ENDLESS, c, 0
    for i in range(p.size):
        parent[i] = centre
        high[i] = rises
    parent[centre] = -1


@njit(cache=True, error_model="numpy")
def worst_edge(
    p: Any, q: Any, v: Any, ratio: float, parent: Any, high: Any, order: Any, net: Any
) -> int:
    """The state whose edge to its parent carries the most negative flow, or -1."""
    total = 0.0
    for i in range(v.size):
        net[i] = (p[i] - ratio * q[i]) * v[i]
        total += p[i] * v[i]
    worst = -1
    least = -4.0 * v.size * ROUND * total
    for n in range(v.size - 1, 0, -1):
        i = order[n]
        if parent[i] < 0:
            break
        flow = net[i] if high[i] else -net[i]
        if flow < least:
            least = flow
            worst = i
        net[parent[i]] += net[i]
    return worst


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def relink(
    cut: int, worth: float, weight: Any, v: Any, parent: Any, high: Any, order: Any, side: Any
) -> None:
    """Cut a subtree off, rescale it the way its worth points, hang it on the first tight edge."""
    for n in range(v.size):
        i = order[n]
        if i == cut:
            side[i] = 1.0
        else:
            side[i] = 0.0 if parent[i] < 0 else side[parent[i]]
    near = cut
    far = -1
    least = np.inf
    for i in range(v.size):
        for j in range(v.size):
            if side[i] > 0.0 and side[j] == 0.0:
                room = weight[i, j] * v[j] / v[i] if worth > 0.0 else weight[j, i] * v[i] / v[j]
                if far < 0 or room < least:
                    least, near, far = room, i, j
    for i in range(v.size):
        if side[i] > 0.0:
            v[i] *= least if worth > 0.0 else 1.0 / least
    child = near
    above = far
    rises = 1 if worth > 0.0 else 0
    while True:  # turn the path from the new attachment up to the cut around
        old = parent[child]
        old_high = high[child]
        parent[child] = above
        high[child] = rises
        if child == cut:
            return
        above = child
        rises = 1 - old_high
        child = old


@njit(cache=True, error_model="numpy")
def recall(tree: Any, states: Any, parent: Any, high: Any, place: Any, count: int) -> bool:
    """Whether a remembered tree on exactly these states was loaded into parent and high."""
    for i in range(count):
        if tree[states[i]] == UNKNOWN:
            return False
    for y in range(tree.size):
        place[y] = -1
    for i in range(count):
        place[states[i]] = i
    for i in range(count):
        code = tree[states[i]]
        parent[i] = -1 if code == 0 else place[abs(code) - 1]
        high[i] = 1 if code > 0 else 0
    return True


@njit(cache=True, error_model="numpy")
def remember(tree: Any, states: Any, parent: Any, high: Any, count: int) -> None:
    """Write parent and high into the pair's memory."""
    for i in range(count):
        code = 0 if parent[i] < 0 else states[parent[i]] + 1
        tree[states[i]] = code if high[i] else -code


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def admissible(weight: Any, v: Any) -> bool:
    """Whether v_y ≤ e^G(y,z) v_z for all y, z, up to the slack."""
    for i in range(v.size):
        least = v[i]
        for j in range(v.size):
            least = min(least, weight[i, j] * v[j])
        if least * (1.0 + _SLACK) < v[i]:
            return False
    return True


@njit(cache=True, error_model="numpy")
def pull_down(weight: Any, v: Any, parent: Any, high: Any, least: Any, new: Any) -> int:
    """Number of edges cut while v is lowered to the largest admissible one below it.

    A lowered state hangs on the state that binds it; a child of a lowered state loses its edge.
    """
    size = v.size
    for i in range(size):
        least[i] = v[i]
        new[i] = -1.0
        for j in range(size):
            room = weight[i, j] * v[j]
            if room < least[i]:
                least[i] = room
                new[i] = j
        if least[i] * (1.0 + _SLACK) >= v[i]:
            new[i] = -1.0
    cuts = 0
    for i in range(size):
        if new[i] >= 0.0:
            cuts += parent[i] < 0
        elif parent[i] >= 0 and new[parent[i]] >= 0.0:
            parent[i] = -1
            cuts += 1
    for i in range(size):
        if new[i] >= 0.0:
            binding = int(new[i])
            while new[binding] >= 0.0:
                binding = int(new[binding])
            parent[i] = binding
            high[i] = 1
            v[i] = weight[i, binding] * v[binding]
    return cuts


@njit(cache=True, error_model="numpy")
def root_at_heaviest(q: Any, v: Any, parent: Any, high: Any) -> None:
    """Turn the tree so that the state with most weight q·v is the root: it absorbs rounding."""
    child = 0
    for i in range(v.size):
        if q[i] * v[i] > q[child] * v[child]:
            child = i
    above = -1
    rises = 0
    while child >= 0:
        old = parent[child]
        old_high = high[child]
        parent[child] = above
        high[child] = rises
        above = child
        rises = 1 - old_high
        child = old


# The cone rule on neighbours alone: few pairs of states are compared, each on the few states that
# its two rows can take, and what is known of two states that are no neighbours is the shortest way
# between them.


@njit(cache=True, error_model="numpy")
def neighbour_slopes(
    pairs: Any,
    known: Any,
    metric: Any,
    index: Any,
    trees: Any,
    value: Any,
    places: Any,
    shares: Any,
) -> None:
    """value[j] = Λ of pair j, nan where it is not certified.

    pairs = (states, count, p, q): the states that either row of pair j can take, how many, and both
    rows on them. G(y,z) = metric + the least sum of known[index] along neighbours (index -1: none)
    among these states. The ratio is certified, its logarithm not rounded; shares of it hang on
    known[places], as far as there is room for them.
    """
    states, count, upper, lower = pairs
    width = states.shape[1]
    values, links = np.empty((5, width)), np.empty((6, width), np.int64)
    block, hops = np.empty((width, width)), np.empty((width, width), np.int64)
    for j in range(value.size):
        n = count[j]
        p, q, local = upper[j, :n], lower[j, :n], states[j, :n]
        weight = _shortest(local, known, metric, index, block, hops)
        for i in range(width):
            links[5, i] = i
        places[j, :] = -1
        if (p == q).all():
            value[j] = 0.0
            continue
        ratio = _pair_ratio(p, q, weight, values, links, trees[j], np.inf)
        if not 0.0 < ratio < ENDLESS:
            value[j] = np.nan
            continue
        value[j] = np.log(ratio)
        _flows_on_ways(p, q, values, links, local, index, hops, places[j], shares[j])


@njit(cache=True, error_model="numpy")
def _shortest(states: Any, known: Any, metric: Any, index: Any, block: Any, hops: Any) -> Any:
    """e^G between the states, in block; hops[a, b] is where the way from a to b goes first."""
    n = states.size
    for a in range(n):
        for b in range(n):
            place = index[states[a], states[b]]
            block[a, b] = 0.0 if a == b else np.inf
            hops[a, b] = b
            if a != b and place >= 0:
                block[a, b] = known[place]
    for c in range(n):
        for a in range(n):
            if block[a, c] == np.inf:
                continue
            for b in range(n):
                if block[a, c] + block[c, b] < block[a, b]:
                    block[a, b] = block[a, c] + block[c, b]
                    hops[a, b] = hops[a, c]
    for a in range(n):
        for b in range(n):
            growth = block[a, b] * (1.0 + n * ROUND) + metric[states[a], states[b]]
            block[a, b] = HUGE if growth > FARTHEST else np.exp(growth) * (1.0 + 2.0 * ROUND)
        block[a, a] = 1.0
    return block[:n, :n]


@njit(cache=True, error_model="numpy")
def _flows_on_ways(
    p: Any, q: Any, values: Any, links: Any, states: Any, index: Any, hops: Any, at: Any, share: Any
) -> None:
    """The flow on every edge of the tree in links, on each step of the way it stands for."""
    v, net = values[0][: p.size], values[1][: p.size]
    parent, high, order = links[0], links[1], links[2]
    above, below = (p * v).sum(), (q * v).sum()
    for i in range(p.size):
        net[i] = p[i] * v[i] / above - q[i] * v[i] / below
    used = 0
    for n in range(p.size - 1, 0, -1):
        i = order[n]
        over = parent[i]
        net[over] += net[i]
        one, two = (i, over) if high[i] else (over, i)
        flow = net[i] if high[i] else -net[i]
        while one != two and used < at.size and flow > 0.0:
            after = hops[one, two]
            at[used], share[used] = index[states[one], states[after]], flow
            used += 1
            one = after
