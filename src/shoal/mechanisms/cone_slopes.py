"""Compiled loops of the lift's search: how Λ of a pair of rows moves with each entry of G.

Nothing here rounds up and nothing here is a promise: these numbers only tell a search where a fixed
point may lie, which the kernels of cone_kernels and cone_tree then certify. Every function fills,
for the pairs wanted, value(x,x') = Λ by its rule, and the entries of G it hangs on: places, as
y·states + z (-1 for no further one), with shares = dΛ/dG(y,z), which are not negative and add up to
1 at most.
Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from shoal.mechanisms import cone_tree
from shoal.mechanisms.cone_kernels import (
    ENDLESS,
    TIE,
    _caps_excess,
    _ratio,
    _surely,
    arrange,
    floors_of,
    meet,
    possible_states,
    two_level,
)


@njit(cache=True, error_model="numpy")
def largest_slopes(
    rows: Any, growth: Any, wanted: Any, value: Any, places: Any, shares: Any
) -> None:
    """The largest rule: growth = e^G - 1, and all hangs on its largest entry."""
    upper, lower, _, gained, held = rows
    size = upper.shape[1]
    everywhere = int(growth.argmax())
    taken_by, counts = possible_states(upper)
    p, q, states = np.empty(size), np.empty(size), np.empty(size, np.int64)
    for x in range(value.shape[0]):
        for other in range(value.shape[0]):
            if not wanted[x, other]:
                continue
            met = meet(upper[x], lower[other], taken_by, counts, x, other, p, q, states)
            place = everywhere if met == size else _largest_place(growth, states[:met])
            largest = growth[place // size, place % size]
            best = two_level(p[:met], q[:met], largest, gained[x, other], held[x, other])
            more, kept = 0.0, 0.0
            for i in range(met):
                if p[i] - q[i] > best * q[i]:
                    more += p[i] - q[i]
                    kept += q[i]
            slope = (more - best * kept) * (1.0 + largest)
            value[x, other] = np.log1p(best)
            places[x, other, 0] = place
            shares[x, other, 0] = slope / ((1.0 + kept * largest) * (1.0 + best))


@njit(cache=True, error_model="numpy")
def _largest_place(growth: Any, states: Any) -> int:
    """Where the largest entry of growth between two of the states is."""
    largest, place = -1.0, 0
    for i in states:
        for j in states:
            if growth[i, j] > largest:
                largest, place = growth[i, j], i * growth.shape[0] + j
    return place


@njit(cache=True, error_model="numpy")
def caps_slopes(
    rows: Any,
    growth: Any,
    decay: Any,
    fall: Any,
    floor: float,
    wanted: Any,
    value: Any,
    places: Any,
    shares: Any,
) -> None:
    """The caps: growth = e^G - 1, decay = e^-G, fall = 1 - e^-G, floor as in lower_caps."""
    upper, lower, _, gained, held = rows
    size = upper.shape[1]
    taken_by, counts = possible_states(upper)
    p, q, states = np.empty(size), np.empty(size), np.empty(size, np.int64)
    work, floors = np.empty((4, size)), floors_of(growth)
    for x in range(value.shape[0]):
        for other in range(value.shape[0]):
            if not wanted[x, other]:
                continue
            met = meet(upper[x], lower[other], taken_by, counts, x, other, p, q, states)
            least = _surely(
                p[:met], q[:met], states, floors, floor, gained[x, other], held[x, other]
            )
            leading, _ = arrange(p[:met], q[:met], states[:met], least)
            excess = _caps_excess(p, q, states[:met], leading, growth, decay, fall, 0.0, work)
            value[x, other] = np.log1p(max(excess, least))
            last, kind = _deciding(p[:met], q, leading, work)
            row, share = places[x, other], shares[x, other]
            row[:] = -1
            if kind == 1:
                _rising_caps(p, q, states[:met], last, growth, excess, row, share)
            elif kind == 2:
                _falling_caps(p, q, states[:met], last, decay, excess, row, share)


@njit(cache=True, error_model="numpy")
def _deciding(p: Any, q: Any, rising: int, work: Any) -> tuple[int, int]:
    """The last state of the prefix that decides, and by which caps: 1 rows, 2 columns, 0 none."""
    best, last, kind, held = -1.0, 0, 0, 0.0
    for j in range(rising):
        held += q[j]
        level = _ratio(p[j], q[j])
        if j + 1 < p.size and _ratio(p[j + 1], q[j + 1]) * (1.0 + TIE) >= level:
            continue
        bound, by = level - 1.0, 0
        up = work[0, j] / work[1, j]
        if up < bound:
            bound, by = up, 1
        base = work[3, j] + held
        if work[2, j] < min(bound, ENDLESS) * base:
            bound, by = work[2, j] / base, 2
        if bound > best:
            best, last, kind = bound, j, by
    return last, kind


@njit(cache=True, error_model="numpy")
def _rising_caps(
    p: Any, q: Any, states: Any, last: int, growth: Any, excess: float, places: Any, shares: Any
) -> None:
    """Slopes of Σ_S (p-q)(e^cap - 1) over 1 + Σ_S q (e^cap - 1), cap = max_{z∉S} G(y,z)."""
    base = 1.0
    for i in range(last + 1):
        row = states[i]
        cap, at = -1.0, 0
        for j in range(last + 1, states.size):
            if growth[row, states[j]] > cap:
                cap, at = growth[row, states[j]], states[j]
        base += q[i] * max(cap, 0.0)
        places[i] = row * growth.shape[0] + at if cap >= 0.0 else -1
        shares[i] = (p[i] - q[i] - excess * q[i]) * (1.0 + cap)
    for i in range(last + 1):
        shares[i] /= base * (1.0 + excess)


@njit(cache=True, error_model="numpy")
def _falling_caps(
    p: Any, q: Any, states: Any, last: int, decay: Any, excess: float, places: Any, shares: Any
) -> None:
    """Write the slopes of the falling caps into `places` and `shares`; each column gives one entry.

    The ratio is Σ_off (q-p)(1 - e^-cap) over Σ_S q + Σ_off q e^-cap, with cap = max_{y∈S} G(y,z),
    where S are the states up to `last`. A place is a flat index of (states, states).
    """
    base = 0.0
    for i in range(last + 1):
        base += q[i]
    for i in range(last + 1, states.size):
        column = states[i]
        keep, at = np.inf, 0
        for j in range(last + 1):
            if decay[states[j], column] < keep:
                keep, at = decay[states[j], column], states[j]
        base += q[i] * keep
        n = i - last - 1
        places[n] = at * decay.shape[0] + column
        shares[n] = (q[i] - p[i] + excess * q[i]) * keep
    for n in range(states.size - last - 1):
        shares[n] /= base * (1.0 + excess)


@njit(cache=True, error_model="numpy")
def cone_slopes(
    rows: Any, weight: Any, trees: Any, wanted: Any, value: Any, places: Any, shares: Any
) -> int:
    """The cone: weight = e^G, closed. How many pairs found no optimum, whose value is then nan.

    The slope of an edge of the optimal tree is the flow on it.
    """
    upper, lower = rows[0], rows[1]
    size = upper.shape[1]
    values, block = np.empty((5, size)), np.empty(size * size)
    links = np.empty((6, size), np.int64)
    failed = 0
    for x in range(value.shape[0]):
        for other in range(value.shape[0]):
            if not wanted[x, other]:
                continue
            places[x, other, :] = -1
            count = cone_tree._gather(upper[x], lower[other], values, links[5])
            p, q = values[3][:count], values[4][:count]
            if (p == q).all():
                value[x, other] = 0.0
                continue
            chosen = weight
            if count < size:
                chosen = cone_tree._part(weight, links[5], count, block)
            ratio = cone_tree._pair_ratio(p, q, chosen, values, links, trees[x, other], 1e300)
            if not 0.0 < ratio < ENDLESS:
                value[x, other] = np.nan
                failed += 1
                continue
            value[x, other] = np.log(ratio)
            _flows(p, q, values, links, size, places[x, other], shares[x, other])
    return failed


@njit(cache=True, error_model="numpy")
def _flows(p: Any, q: Any, values: Any, links: Any, size: int, places: Any, shares: Any) -> None:
    """The flow on every edge of the tree in links, as a share of Σ p·v."""
    v, net = values[0][: p.size], values[1][: p.size]
    parent, high, order, states = links[0], links[1], links[2], links[5]
    above, below = (p * v).sum(), (q * v).sum()
    for i in range(p.size):
        net[i] = p[i] * v[i] / above - q[i] * v[i] / below
    for n in range(p.size - 1, 0, -1):
        i = order[n]
        over = parent[i]
        net[over] += net[i]
        one, two = (i, over) if high[i] else (over, i)
        places[n] = states[one] * size + states[two]
        shares[n] = net[i] if high[i] else -net[i]
