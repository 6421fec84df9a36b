"""Compiled loops of the lift: how far apart two rows of a law can look.

Every function here bounds  Λ(p, q; G) = sup log (Σ p_y v_y) / (Σ q_y v_y)  over v > 0 with
v_y ≤ e^{G(y,z)} v_z, for all ordered pairs of rows of one law at once. shoal.additive.cone prepares
the arrays and states the rules; importing this module imports numba.

An infinite entry of G arrives as e^G = HUGE, and a ratio beyond ENDLESS is infinite. cone.py
keeps finite e^G under 1e87 and probabilities either 0 or above 1e-100, so an infinite entry
outweighs every finite one, no sum overflows, and no NaN can appear.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

HUGE = 1e290
ENDLESS = 1e95
ROUND = 2.0**-52
TIE = 1e-14
_MATHS = {"contract", "reassoc", "nnan", "nsz"}


@njit(cache=True, error_model="numpy")
def lower_largest(
    best: Any, cost: float, extra: float, rows: Any, order: Any, count: Any, growth: Any
) -> None:
    """best(x,x') becomes min(best, cost + Λ) with G replaced by its largest entry.

    rows = (upper, lower, present, gained, held) as in cone.Laws; growth = e^G - 1. The largest
    entry is over the states that row x or row x' can take.
    """
    upper, lower, present, gained, held = rows
    size = upper.shape[1]
    everywhere = growth.max()
    for x in range(best.shape[0]):
        for other in range(best.shape[0]):
            if cost >= best[x, other] or not (present[x] and present[other]):
                continue
            states = order[x, other, : count[x, other]]
            largest = everywhere
            if states.size < size:
                largest = _largest_entry(growth, states)
            if hopeless(gained[x, other], held[x, other], largest, best[x, other] - cost):
                continue
            excess = _largest_excess(upper[x], lower[other], states, largest)
            rising = int(gained[x, other] > 0.0)
            best[x, other] = min(best[x, other], cost + _log_ratio(excess, extra, rising, size))


@njit(cache=True, error_model="numpy")
def lower_caps(
    best: Any,
    cost: float,
    extra: float,
    rows: Any,
    order: Any,
    count: Any,
    growth: Any,
    decay: Any,
    fall: Any,
    floor: float,
) -> None:
    """best(x,x') becomes min(best, cost + Λ) by the caps of every prefix.

    growth = e^G - 1, decay = e^-G, fall = 1 - e^-G. floor, the least growth off the diagonal,
    gives a quick sign that a pair cannot fall below best.
    """
    upper, lower, present, gained, held = rows
    size = upper.shape[1]
    floors = floors_of(growth)
    p = np.empty(size)
    q = np.empty(size)
    work = np.empty((4, size))
    for x in range(best.shape[0]):
        for other in range(best.shape[0]):
            room = best[x, other] - cost
            if not (present[x] and present[other]):
                continue
            if hopeless(gained[x, other], held[x, other], floor, room):
                continue
            states = order[x, other, : count[x, other]]
            rising = _gather(upper[x], lower[other], states, p, q)
            leading, least = _leading(p, q, states, rising, floors)
            excess = _caps_excess(p, q, states, leading, growth, decay, fall, work)
            excess = max(excess, least)
            best[x, other] = min(best[x, other], cost + _log_ratio(excess, extra, rising, size))


@njit(cache=True, error_model="numpy")
def _gather(upper: Any, lower: Any, states: Any, p: Any, q: Any) -> int:
    """Number of leading states with p > q, after copying both rows in the pair's ratio order."""
    rising = 0
    for i in range(states.size):
        p[i] = upper[states[i]]
        q[i] = lower[states[i]]
        if p[i] > q[i]:
            rising = i + 1
    return rising


@njit(cache=True, error_model="numpy")
def _leading(p: Any, q: Any, states: Any, rising: int, floors: Any) -> tuple[int, float]:
    """How many prefixes can matter, and a ratio minus 1 that none of the others passes.

    v = 1 + floor on one state and 1 elsewhere is admissible, so the answer is at least the largest
    of those ratios; a prefix whose last p/q is no larger passes that no more: rows that hardly
    differ at most states cost little.
    """
    least = 0.0
    for i in range(rising):
        floor = floors[states[i]]
        least = max(least, (p[i] - q[i]) * floor / (1.0 + q[i] * floor))
    count = rising
    while count > 0 and p[count - 1] <= q[count - 1] * (1.0 + least) * (1.0 - 8.0 * TIE):
        count -= 1
    return count, (least + 8.0 * TIE * (1.0 + least) if count < rising else 0.0)


@njit(cache=True, error_model="numpy")
def floors_of(growth: Any) -> Any:
    """The least growth from each state to another."""
    least = np.full(growth.shape[0], ENDLESS)
    for i in range(growth.shape[0]):
        for j in range(growth.shape[0]):
            if i != j:
                least[i] = min(least[i], growth[i, j])
    return least


@njit(cache=True, error_model="numpy")
def hopeless(gained: float, held: float, floor: float, room: float) -> bool:
    """Whether v = 1 + floor where p > q and 1 elsewhere already shows a log-ratio of `room`."""
    if room <= 0.0:
        return True
    return bool(gained * floor >= np.expm1(min(room, 300.0)) * (1.0 + held * floor))


@njit(cache=True, error_model="numpy")
def _log_ratio(excess: float, extra: float, rising: int, size: int) -> float:
    """log(1 + excess) + extra, rounded up for sums of `size` terms; 0 when nothing rises."""
    if excess > ENDLESS:
        return np.inf
    if rising == 0:
        return 0.0
    return float(np.log1p(max(excess, 0.0)) * (1.0 + 4.0 * (size + 8) * ROUND) + extra)


@njit(cache=True, error_model="numpy")
def _largest_entry(growth: Any, states: Any) -> float:
    """Largest entry of growth between two of the states."""
    largest = 0.0
    for i in states:
        for j in states:
            largest = max(largest, growth[i, j])
    return largest


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def _largest_excess(upper: Any, lower: Any, states: Any, growth: float) -> float:
    """Best ratio minus 1 of v = 1 + growth on a prefix and 1 elsewhere.

    A state raises the ratio exactly while its own p/q exceeds it, so the first fall is the end.
    """
    gained = 0.0
    held = 0.0
    best = 0.0
    for i in range(states.size):
        p, q = upper[states[i]], lower[states[i]]
        if p <= q:
            break
        gained += p - q
        held += q
        excess = gained * growth / (1.0 + held * growth)
        if excess < best * (1.0 - TIE):
            break
        best = max(best, excess)
    return best


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def _caps_excess(
    p: Any, q: Any, states: Any, rising: int, growth: Any, decay: Any, fall: Any, work: Any
) -> float:
    """Ratio minus 1 that no prefix passes under its row caps, column caps and last ratio.

    For the prefix S that ends at j, with row caps max_{z∉S} G(y,z):
        up   = Σ_S (p-q)(e^cap - 1)     over  1 + Σ_S q (e^cap - 1),
    and with column caps max_{y∈S} G(y,z):
        down = Σ_off (q-p)(1 - e^-cap)  over  Σ_S q + Σ_off q e^-cap.
    """
    up, up_base, down, down_base = work
    for j in range(rising):
        up[j] = 0.0
        up_base[j] = 1.0
        down[j] = 0.0
        down_base[j] = 0.0
    for i in range(rising):
        cap = 0.0
        row = states[i]
        difference = p[i] - q[i]
        for j in range(states.size - 1, i, -1):
            cap = max(cap, growth[row, states[j]])
            if j <= rising:
                up[j - 1] += difference * cap
                up_base[j - 1] += q[i] * cap
    for i in range(1, states.size):
        keep = 1.0
        drop = 0.0
        column = states[i]
        difference = q[i] - p[i]
        for j in range(min(i, rising)):
            keep = min(keep, decay[states[j], column])
            drop = max(drop, fall[states[j], column])
            down[j] += difference * drop
            down_base[j] += q[i] * keep
    return _best_prefix(p[: states.size], q, rising, up, up_base, down, down_base)


@njit(cache=True, error_model="numpy")
def _best_prefix(
    p: Any, q: Any, rising: int, up: Any, up_base: Any, down: Any, down_base: Any
) -> float:
    """Largest over prefixes of the smallest of the prefix's three bounds.

    The optimum has S = {p > λq} for its own ratio λ, so it obeys all three bounds of one S that
    ends between two levels of p/q. Ratios within TIE count as one level: rounding then cannot
    change which prefixes exist, and λ moves by at most the same factor.
    """
    best = 0.0
    held = 0.0
    level = np.inf
    joined = 0.0
    for j in range(rising):
        held += q[j]
        ratio = _ratio(p[j], q[j])
        if ratio * (1.0 + TIE) < level:
            level = ratio
        elif ratio != level:
            joined = TIE
        following = _ratio(p[j + 1], q[j + 1]) if j + 1 < p.size else 0.0
        if following * (1.0 + TIE) >= level:
            joined = TIE if following != level else joined
            continue
        bound = min(up[j] / up_base[j], level - 1.0 + 2.0 * ROUND * level)
        base = down_base[j] + held
        if down[j] < ENDLESS * base:
            bound = min(bound, down[j] / base)
        best = max(best, bound)
    return best + 2.0 * joined * (1.0 + best)


@njit(cache=True, error_model="numpy")
def _ratio(p: float, q: float) -> float:
    """p / q with c/0 = inf."""
    return p / q if q > 0.0 else np.inf


# Pairs of rows of a sparse law, worked through state by state; importing this imports numba.


@njit(cache=True, error_model="numpy")
def taken(rows: Any) -> tuple[Any, Any]:
    """Which states each row can take, in index order, and how many."""
    states = np.empty(rows.shape, dtype=np.int16)
    count = np.zeros(len(rows), dtype=np.int64)
    for x in range(len(rows)):
        for state in range(rows.shape[1]):
            if rows[x, state] > 0.0:
                states[x, count[x]] = state
                count[x] += 1
    return states, count


@njit(cache=True, error_model="numpy")
def rank_pairs(upper: Any, lower: Any, order: Any, count: Any) -> None:
    """For rows x of `upper` and x' of `lower` the states either can take, by falling ratio.

    Writes order[x, x', :count[x, x']], ties by index; what comes after means nothing.
    """
    own, owned = taken(upper)
    other, others = taken(lower)
    ratios = np.empty(upper.shape[1])
    for x in range(len(upper)):
        for y in range(len(lower)):
            i, j, size = 0, 0, 0
            while i < owned[x] or j < others[y]:
                ahead = j == others[y] or (i < owned[x] and own[x, i] <= other[y, j])
                state = own[x, i] if ahead else other[y, j]
                i += int(i < owned[x] and own[x, i] == state)
                j += int(j < others[y] and other[y, j] == state)
                ratio = upper[x, state] / lower[y, state]
                place = size
                while place > 0 and ratios[place - 1] < ratio:
                    ratios[place] = ratios[place - 1]
                    order[x, y, place] = order[x, y, place - 1]
                    place -= 1
                ratios[place], order[x, y, place] = ratio, state
                size += 1
            count[x, y] = size


@njit(cache=True, error_model="numpy")
def gain_pairs(upper: Any, lower: Any, gained: Any, held: Any) -> None:
    """Σ (p-p') and Σ p' over the states with p > p', for every pair of rows."""
    own, owned = taken(upper)
    for x in range(len(upper)):
        for y in range(len(lower)):
            more, kept = 0.0, 0.0
            for i in range(owned[x]):
                p, q = upper[x, own[x, i]], lower[y, own[x, i]]
                if p > q:
                    more += p - q
                    kept += q
            gained[x, y], held[x, y] = more, kept
