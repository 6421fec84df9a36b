"""Compiled loops of the event lift: how far apart two laws of two different things can look.

    Λ(p, q; V) = log max { Σ p_y u_y : u_y ≤ e^{V(y,z)} w_z for all y, z,  Σ q_z w_z = 1 }

At the optimum the tight constraints form a spanning tree of the y's and z's together. Cutting an
edge and rescaling one side until another constraint is tight is a step of the simplex method; the
flow on an edge is the net worth Σ (p u - λ q w) of one side, and a tree whose flows all have the
right sign is optimal. The answer never rests on the search: flows f ≥ 0, their rows rescaled to
p, prove  λ = max_z Σ_y f(y,z) e^V / q_z  whatever they are, and there are only sums of
non-negative numbers in it. Proof: event_lift.md. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.mechanisms.cone_tree import walk

HUGE = 1e290  # stands for e^V where V is infinite
ROUND = 2.0**-52
# a certificate this close to the ratio it is to prove needs no second search
CERTIFICATE_NEAR = 1e-9


@njit(cache=True, error_model="numpy")
def lower_pairs(best: Any, extra: float, upper: Any, lower: Any, weight: Any, memory: Any) -> None:
    """best(i, j) becomes min(best, Λ(upper_i, lower_j; log weight) + extra), for every i and j.

    upper (k, m) and lower (k', m') bracket the laws; a best of -inf is left alone. memory
    (k, k', m') holds the w of the last optimum of each pair, 0 where there is none yet: a bound
    depends on it only through its certificate.
    """
    rows, columns = weight.shape
    size = rows + columns
    names = np.empty(size, np.int64)
    numbers = np.empty((5, size))
    links = np.empty((4, size), np.int64)
    block = np.empty(rows * columns)
    for i in range(best.shape[0]):
        for j in range(best.shape[1]):
            if best[i, j] == -np.inf:
                continue
            above = _list_possible(upper[i], names, 0)
            below = _list_possible(lower[j], names, above)
            part = block[: above * below].reshape(above, below)
            for y in range(above):
                for z in range(below):
                    part[y, z] = weight[names[y], names[above + z]]
            p, q = numbers[0][:above], numbers[1][:below]
            for y in range(above):
                p[y] = upper[i, names[y]]
            for z in range(below):
                q[z] = lower[j, names[above + z]]
            ratio = _ratio(p, q, part, numbers, links, memory[i, j], names[above : above + below])
            if ratio < HUGE:
                slack = 4.0 * (above + below + 8) * ROUND + extra
                best[i, j] = min(best[i, j], np.log(ratio) + slack)


@njit(cache=True, error_model="numpy")
def _list_possible(law: Any, names: Any, start: int) -> int:
    """How many states have a positive probability; their numbers are written from `start` on."""
    count = 0
    for state in range(law.size):
        if law[state] > 0.0:
            names[start + count] = state
            count += 1
    return count


@njit(cache=True, error_model="numpy")
def _ratio(
    p: Any, q: Any, weight: Any, numbers: Any, links: Any, memory: Any, columns: Any
) -> float:
    """A certified upper bound of (Σ p u)/(Σ q w), near the least there is; HUGE where none is."""
    above, below = weight.shape
    w = numbers[2][above : above + below]
    remembered = True
    for z in range(below):
        w[z] = memory[columns[z]]
        remembered = remembered and w[z] > 0.0
    least = HUGE
    for attempt in range(2):
        if attempt == 0 and not remembered:
            continue
        if attempt == 1:
            w[:] = 1.0
        reached, bound = _search_tree(p, q, weight, numbers, links)
        least = min(least, bound)
        if bound <= reached * (1.0 + CERTIFICATE_NEAR):
            break
    for z in range(below):
        memory[columns[z]] = w[z]
    return min(least, _independent(p, q, weight))


@njit(cache=True, error_model="numpy")
def _search_tree(p: Any, q: Any, weight: Any, numbers: Any, links: Any) -> tuple[float, float]:
    """The ratio of the best tree that was found from w = numbers[2], and what its flows prove."""
    above, below = weight.shape
    size = above + below
    v, net = numbers[2][:size], numbers[3][:size]
    parent, order, head, after = links[0], links[1], links[2], links[3]
    if not _forest(weight, v, parent):
        return 0.0, HUGE
    ratio = 0.0
    for _ in range(40 * size + 100):
        ratio = _worth(p, q, v, net)
        _turn(int(np.abs(net).argmax()), parent)
        walk(parent, order, head, after, size)
        worst = _gather(above, parent, order, net, numbers[4])
        if worst < 0:
            break
        if not _relink(worst, net[worst] > 0.0, weight, v, parent, order, head):
            break
        if not _scale_in_range(v):
            return 0.0, HUGE
    return ratio, _proved_ratio(p, q, weight, v, net, parent)


@njit(cache=True, error_model="numpy")
def _forest(weight: Any, v: Any, parent: Any) -> bool:
    """Whether u and w were made admissible from w alone; parent hangs each on one it is tight with.

    u_y is the most that w allows, and a w_z that nothing is tight with falls until something is.
    """
    above, below = weight.shape
    for z in range(below):
        parent[above + z] = -1
    for y in range(above):
        least = np.inf
        for z in range(below):
            room = weight[y, z] * v[above + z]
            if room < least:
                least = room
                parent[y] = above + z
        v[y] = least
        if not least < HUGE:
            return False
        parent[parent[y]] = -2
    for z in range(below):
        if parent[above + z] == -1:
            most = 0.0
            for y in range(above):
                needed = v[y] / weight[y, z]
                if needed > most:
                    most = needed
                    parent[above + z] = y
            v[above + z] = most
            if not most > 0.0:
                return False
    for z in range(below):
        if parent[above + z] == -2:
            parent[above + z] = -1
    return _scale_in_range(v)


@njit(cache=True, error_model="numpy")
def _scale_in_range(v: Any) -> bool:
    """Whether v, divided by its largest entry, stays in range."""
    most = v.max()
    least = v.min()
    if not (least > 0.0 and most < HUGE and least / most > 1.0 / HUGE):
        return False
    for i in range(v.size):
        v[i] /= most
    return True


@njit(cache=True, error_model="numpy")
def _worth(p: Any, q: Any, v: Any, net: Any) -> float:
    """(Σ p u)/(Σ q w); net becomes p u for the y's and -ratio q w for the z's."""
    above = p.size
    gained, paid = 0.0, 0.0
    for y in range(above):
        net[y] = p[y] * v[y]
        gained += net[y]
    for z in range(q.size):
        paid += q[z] * v[above + z]
    ratio = gained / paid
    for z in range(q.size):
        net[above + z] = -ratio * q[z] * v[above + z]
    return float(ratio)


@njit(cache=True, error_model="numpy")
def _turn(child: int, parent: Any) -> None:
    """Make one node the root of its tree: the heaviest, which absorbs rounding."""
    above = -1
    while child >= 0:
        old = parent[child]
        parent[child] = above
        above, child = child, old


@njit(cache=True, error_model="numpy")
def _gather(above: int, parent: Any, order: Any, net: Any, moved: Any) -> int:
    """The node to cut: a second root, else the one whose edge has the wrong flow most; -1 if none.

    net is added up from the leaves: that of a node becomes the worth of all below it. A flow is
    wrong when its sign is, beyond what rounding of all that was moved below it explains.
    """
    worst = -1
    most = 0.0
    moved[: net.size] = np.abs(net)
    for n in range(net.size - 1, 0, -1):
        i = order[n]
        if parent[i] < 0:
            return int(i)
        wrong = -net[i] if i < above else net[i]
        if wrong > max(most, 4.0 * net.size * ROUND * moved[i]):
            most = wrong
            worst = i
        net[parent[i]] += net[i]
        moved[parent[i]] += moved[i]
    return worst


@njit(cache=True, error_model="numpy")
def _relink(cut: int, rises: bool, weight: Any, v: Any, parent: Any, order: Any, side: Any) -> bool:
    """Whether the part below `cut` was rescaled and hung on the first constraint that is tight."""
    above, below = weight.shape
    for n in range(v.size):
        i = order[n]
        side[i] = 1 if i == cut else (0 if parent[i] < 0 else side[parent[i]])
    near, far = -1, -1
    inside = 1 if rises else 0
    least = np.inf
    for y in range(above):
        if side[y] != inside:
            continue
        for z in range(below):
            if side[above + z] != inside:
                room = weight[y, z] * v[above + z] / v[y]
                if room < least:
                    least, near, far = room, y, above + z
    if far < 0 or not least < HUGE:
        return False
    factor = least if rises else 1.0 / least
    for i in range(v.size):
        if side[i] == 1:
            v[i] *= factor
    child, hung = (near, far) if rises else (far, near)
    while True:  # turn the path from the new edge up to the cut around
        old = parent[child]
        parent[child] = hung
        if child == cut:
            return True
        hung = child
        child = old


@njit(cache=True, error_model="numpy")
def _proved_ratio(p: Any, q: Any, weight: Any, v: Any, net: Any, parent: Any) -> float:
    """max over z of Σ_y f e^V / q_z, with the tree's flows as f, each row rescaled to p."""
    above, below = weight.shape
    sent = np.zeros(above)
    load = np.zeros(below)
    for i in range(above + below):
        if parent[i] >= 0:
            y = i if i < above else parent[i]
            sent[y] += max(net[i] if i < above else -net[i], 0.0) / v[y]
    for i in range(above + below):
        if parent[i] >= 0:
            y = i if i < above else parent[i]
            z = (parent[i] if i < above else i) - above
            if sent[y] > 0.0:
                share = max(net[i] if i < above else -net[i], 0.0) / v[y] / sent[y]
                load[z] += p[y] * share * weight[y, z]
    for y in range(above):
        if not sent[y] > 0.0:
            least, to = np.inf, 0
            for z in range(below):
                if weight[y, z] / q[z] < least:
                    least, to = weight[y, z] / q[z], z
            load[to] += p[y] * weight[y, to]
    most = 0.0
    for z in range(below):
        most = max(most, load[z] / q[z])
    return float(most)


@njit(cache=True, error_model="numpy")
def _independent(p: Any, q: Any, weight: Any) -> float:
    """What f(y,z) = p_y q_z / Σq proves: max over z of Σ_y p_y e^V / Σq."""
    most = 0.0
    for z in range(weight.shape[1]):
        load = 0.0
        for y in range(weight.shape[0]):
            load += p[y] * weight[y, z]
        most = max(most, load)
    return float(most / q.sum())
