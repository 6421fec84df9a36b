"""Compiled loops of the lift: how far apart two rows of a law can look.

Every function here bounds  Λ(p, q; G) = sup log (Σ p_y v_y) / (Σ q_y v_y)  over v > 0 with
v_y ≤ e^{G(y,z)} v_z, for all ordered pairs of rows of one law at once. shoal.mechanisms.cone
prepares the arrays and states the rules; importing this module imports numba.

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
def lower_largest(best: Any, cost: float, extra: float, rows: Any, growth: Any) -> None:
    """best(x,x') becomes min(best, cost + Λ) with G replaced by its largest entry.

    rows = (upper, lower, present, gained, held) as in cone.PairLaws; growth = e^G - 1. The largest
    entry is over the states that row x or row x' can take.
    """
    upper, lower, present, gained, held = rows
    size = upper.shape[1]
    everywhere = growth.max()
    taken_by, counts = possible_states(upper)
    p, q, states = np.empty(size), np.empty(size), np.empty(size, np.int64)
    for x in range(best.shape[0]):
        for other in range(best.shape[0]):
            if cost >= best[x, other] or not (present[x] and present[other]):
                continue
            met = meet(upper[x], lower[other], taken_by, counts, x, other, p, q, states)
            largest = everywhere if met == size else _largest_entry(growth, states[:met])
            if exceeds_room(gained[x, other], held[x, other], largest, best[x, other] - cost):
                continue
            excess = two_level(p[:met], q[:met], largest, gained[x, other], held[x, other])
            excess = _dual_excess(p[:met], q[:met], largest, excess)
            log_ratio = _log_ratio(excess, extra, _differ(p[:met], q[:met]), size)
            best[x, other] = min(best[x, other], cost + log_ratio)


@njit(cache=True, error_model="numpy")
def meet(
    upper: Any, lower: Any, taken_by: Any, counts: Any, x: int, other: int, p: Any, q: Any, at: Any
) -> int:
    """How many states either row can take, after copying both rows onto them, in index order."""
    size = upper.size
    if counts[x] == size:
        p[:], q[:] = upper, lower
        for y in range(size):
            at[y] = y
        return int(size)
    i, j, count = 0, 0, 0
    while i < counts[x] or j < counts[other]:
        ahead = j == counts[other] or (i < counts[x] and taken_by[x, i] <= taken_by[other, j])
        state = taken_by[x, i] if ahead else taken_by[other, j]
        i += int(i < counts[x] and taken_by[x, i] == state)
        j += int(j < counts[other] and taken_by[other, j] == state)
        if upper[state] > 0.0 or lower[state] > 0.0:
            p[count], q[count], at[count] = upper[state], lower[state], state
            count += 1
    return count


@njit(cache=True, error_model="numpy", fastmath=_MATHS)
def two_level(p: Any, q: Any, growth: float, gained: float, held: float) -> float:
    """Best ratio minus 1 of v = 1 + growth on some states and 1 elsewhere, not rounded.

    gained and held are Σ (p-q) and Σ q over the states with p > q. The best states are those whose
    own p/q exceeds the best ratio; each round keeps those that exceed the ratio found last, which
    never falls.
    """
    excess = gained * growth / (1.0 + held * growth)
    while True:
        more, kept = 0.0, 0.0
        for i in range(p.size):
            difference = p[i] - q[i]
            rises = difference > excess * q[i]
            more += difference if rises else 0.0
            kept += q[i] if rises else 0.0
        better = more * growth / (1.0 + kept * growth)
        if not better > excess:
            return float(excess)
        excess = better


@njit(cache=True, error_model="numpy")
def _dual_excess(p: Any, q: Any, growth: float, excess: float) -> float:
    """An excess no smaller that weak duality proves: growth · Σ max(0, p - (1 + excess) q) ≤ it."""
    widening = 4.0 * (p.size + 8) * ROUND * (1.0 + excess)
    for _ in range(200):
        tried = excess + widening
        above, mass = 0.0, 0.0
        for i in range(p.size):
            over = p[i] - (1.0 + tried) * q[i]
            if over > 0.0:
                above += over
                mass += p[i]
        if growth * (above + 2.0 * (p.size + 8) * ROUND * mass) <= tried or tried > ENDLESS:
            return float(tried)
        widening *= 2.0
    return 2.0 * ENDLESS


@njit(cache=True, error_model="numpy")
def lower_caps(
    best: Any,
    cost: float,
    extra: float,
    error: float,
    rows: Any,
    growth: Any,
    decay: Any,
    fall: Any,
    floor: float,
) -> None:
    """best(x,x') becomes min(best, cost + Λ) by the caps of every prefix.

    growth = e^G - 1, decay = e^-G, fall = 1 - e^-G; error bounds the relative error of every
    probability. floor, the least growth off the diagonal, gives a quick sign that a pair cannot
    fall below best.
    """
    upper, lower, present, gained, held = rows
    size = upper.shape[1]
    floors = floors_of(growth)
    taken_by, counts = possible_states(upper)
    p, q, states = np.empty(size), np.empty(size), np.empty(size, np.int64)
    work = np.empty((4, size))
    for x in range(best.shape[0]):
        for other in range(best.shape[0]):
            room = best[x, other] - cost
            if not (present[x] and present[other]):
                continue
            if exceeds_room(gained[x, other], held[x, other], floor, room):
                continue
            met = meet(upper[x], lower[other], taken_by, counts, x, other, p, q, states)
            least = _surely(
                p[:met], q[:met], states, floors, floor, gained[x, other], held[x, other]
            )
            leading, rising = arrange(p[:met], q[:met], states[:met], least)
            at = states[:met]
            excess = _caps_excess(p, q, at, leading, growth, decay, fall, error, work)
            if leading < rising:
                excess = max(excess, least + 8.0 * TIE * (1.0 + least))
            log_ratio = _log_ratio(excess, extra, _differ(p[:met], q[:met]), size)
            best[x, other] = min(best[x, other], cost + log_ratio)


@njit(cache=True, error_model="numpy")
def _surely(
    p: Any, q: Any, states: Any, floors: Any, floor: float, gained: float, held: float
) -> float:
    """A ratio minus 1 that the pair certainly shows, if `floor` is the least growth of all.

    By v = 1 + floor on the best states, and by 1 + floors[y] on one state alone.
    """
    least = two_level(p, q, floor, gained, held)
    for i in range(p.size):
        alone = floors[states[i]]
        least = max(least, (p[i] - q[i]) * alone / (1.0 + q[i] * alone))
    return least


@njit(cache=True, error_model="numpy")
def arrange(p: Any, q: Any, states: Any, least: float) -> tuple[int, int]:
    """How many states lead, having come first by falling p/q, and how many rise: have p > q.

    A prefix whose last p/q is not above 1 + least, which the pair is known to show, passes that no
    more: only the states above it are sorted, and the next after them follows.
    """
    level = (1.0 + least) * (1.0 - 8.0 * TIE)
    leading, rising = 0, 0
    for i in range(p.size):
        rising += int(p[i] > q[i])
        if p[i] > q[i] and p[i] > q[i] * level:
            _insert(p, q, states, i, leading)
            leading += 1
    follows = leading
    for i in range(leading + 1, p.size):
        if _ratio(p[i], q[i]) > _ratio(p[follows], q[follows]):
            follows = i
    if follows > leading:
        _swap(p, q, states, follows, leading)
    return leading, rising


@njit(cache=True, error_model="numpy")
def _insert(p: Any, q: Any, states: Any, i: int, count: int) -> None:
    """Move entry i to its place by falling p/q among the first `count`, one of the rest to i."""
    if i != count:
        _swap(p, q, states, i, count)
    place = count
    while place > 0 and _ratio(p[place - 1], q[place - 1]) < _ratio(p[place], q[place]):
        _swap(p, q, states, place, place - 1)
        place -= 1


@njit(cache=True, error_model="numpy")
def _swap(p: Any, q: Any, states: Any, i: int, j: int) -> None:
    p[i], p[j] = p[j], p[i]
    q[i], q[j] = q[j], q[i]
    states[i], states[j] = states[j], states[i]


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
def exceeds_room(gained: float, held: float, floor: float, room: float) -> bool:
    """Whether v = 1 + floor where p > q and 1 elsewhere already shows a log-ratio of `room`."""
    if room <= 0.0:
        return True
    return bool(gained * floor >= np.expm1(min(room, 300.0)) * (1.0 + held * floor))


@njit(cache=True, error_model="numpy")
def _differ(p: Any, q: Any) -> bool:
    """Whether the rows are two: p may rise above q by less than floats near 1 can tell."""
    return bool((p != q).any())


@njit(cache=True, error_model="numpy")
def _log_ratio(excess: float, extra: float, differ: bool, size: int) -> float:
    """log(1 + excess) + extra, rounded up for sums of `size` terms; 0 for one row."""
    if excess > ENDLESS:
        return np.inf
    if not differ:
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
def _caps_excess(
    p: Any,
    q: Any,
    states: Any,
    rising: int,
    growth: Any,
    decay: Any,
    fall: Any,
    error: float,
    work: Any,
) -> float:
    """Ratio minus 1 that no prefix passes under its row caps, column caps and last ratio.

    For the prefix S that ends at j, with row caps max_{z∉S} G(y,z):
        up   = Σ_S (p-q)(e^cap - 1)     over  1 + Σ_S q (e^cap - 1),
    and with column caps max_{y∈S} G(y,z):
        down = Σ_off (q-p)(1 - e^-cap)  over  Σ_S q + Σ_off q e^-cap.

    down rests on p and q adding up to 1, which floats near 1 do up to `error` only: beside rare
    states of S that is not little, so every difference off S grows by error (p + q).
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
        difference = q[i] - p[i] + error * (p[i] + q[i])
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
def possible_states(rows: Any) -> tuple[Any, Any]:
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
def gain_pairs(upper: Any, lower: Any, gained: Any, held: Any) -> None:
    """Σ (p-p') and Σ p' over the states with p > p', for every pair of rows."""
    own, owned = possible_states(upper)
    for x in range(len(upper)):
        for y in range(len(lower)):
            more, kept = 0.0, 0.0
            for i in range(owned[x]):
                p, q = upper[x, own[x, i]], lower[y, own[x, i]]
                if p > q:
                    more += p - q
                    kept += q
            gained[x, y], held[x, y] = more, kept
