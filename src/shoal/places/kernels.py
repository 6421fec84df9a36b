"""Compiled steps of a location stream, around its geometry; importing this imports numba."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.kernels import cross, inside
from shoal.noise.knorm_kernels import (
    LN2_HIGH,
    LN2_LOW,
    LOG2_INVERSE,
    norm_of,
)
from shoal.places.runtime import SHOWN

# sums closer to the wanted share than this, and rounding, are decided elsewhere
SHARE_CLOSE = 1e-12


@njit(cache=True)
def threshold(prior: Any, share: float) -> tuple[float, bool]:
    """(τ, clear): the largest τ for which states of prior >= τ hold `share` of all mass.

    By partition, without sorting. Not clear when a sum comes within CLOSE of the share: rounding
    might decide, and the caller must add up exactly.
    """
    left, size, whole = np.empty(len(prior)), 0, 0.0
    for value in prior:
        left[size] = value  # kept only if it counts: nothing the processor has to guess
        size += value > 0.0
        whole += value
    target = share * whole
    above = 0.0  # the mass of states known to be taken before the ones left
    clear = True
    close = whole * (SHARE_CLOSE + size * 2.0**-52)
    while size > 1:
        pivot = _middle(left[:size])
        higher, equal = 0.0, 0.0
        for place in range(size):
            higher += left[place] if left[place] > pivot else 0.0
            equal += left[place] if left[place] == pivot else 0.0
        for sum_so_far in (above + higher, above + higher + equal):
            if abs(sum_so_far - target) <= close:
                clear = False
        if above + higher >= target:
            size = _keep(left, size, pivot, np.inf)
        elif above + higher + equal >= target:
            return pivot, clear
        else:
            above += higher + equal
            size = _keep(left, size, 0.0, pivot)
            if size == 0:
                return pivot, clear
    return left[0] if size else 0.0, clear


@njit(cache=True)
def _keep(values: Any, size: int, low: float, high: float) -> int:
    """Moves those of the first `size` values between low and high to the front; how many."""
    kept = 0
    for place in range(size):
        value = values[place]
        values[kept] = value
        kept += (value > low) & (value < high)
    return kept


@njit(cache=True)
def likely(prior: Any, possible: Any, share: float) -> tuple[bool, Any]:
    """(clear, members): the possible states above the threshold; all when the prior is 0.

    Not clear: the caller must add up exactly, and the members mean nothing.
    """
    least, clear = threshold(prior, share)
    members = possible.copy()
    if least > 0.0:
        for state in range(len(prior)):
            members[state] = members[state] and prior[state] >= least
    return clear, members


@njit(cache=True)
def _middle(values: Any) -> float:
    """The median of three medians of three values each: a pivot."""
    size = len(values)
    eighth = size // 8
    first = _median(values[0], values[eighth], values[2 * eighth])
    second = _median(values[3 * eighth], values[size // 2], values[5 * eighth])
    third = _median(values[6 * eighth], values[7 * eighth], values[size - 1])
    return _median(first, second, third)


@njit(cache=True)
def _median(a: float, b: float, c: float) -> float:
    return float(max(min(a, b), min(max(a, b), c)))


@njit(cache=True)
def count_inside(vertices: Any, points: Any, members: Any, state: int) -> int:
    """DoP: members within points[state] + K, a planar body, boundary included; on integers."""
    count = 0
    for other in range(len(points)):
        if members[other]:
            x = points[other, 0] - points[state, 0]
            y = points[other, 1] - points[state, 1]
            count += inside(vertices, x, y)
    return count


# Beliefs. What must be formed in logarithms is handed back: the caller goes the plain way.


LOSES_NOTHING = 1e-250  # sums above it have lost nothing that matters to terms that underflowed
FEW_EDGES = 16  # pairs of opposite edges that are all tried
SHORT_EDGES = 2**20  # in lattice steps: edges of bodies within it are at most 2^21 long
EXPONENT_OF_ZERO = 710.0  # exponents beyond it count as 0: e^-710 is far below LOSES_NOTHING
SERIES = tuple((-1.0) ** k / math.factorial(k) for k in range(14))


@njit(cache=True)
def predict(pointers: Any, sources: Any, weights: Any, belief: Any) -> Any:
    """p⁻ = p⁺ M, from the transposed matrix in sparse rows: row j lists what leads to j."""
    before, prior = belief.astype(np.float64), np.empty(len(pointers) - 1)
    for j in range(len(prior)):
        total = 0.0
        # unsigned numbers are not looked at for counting from the end: twice as fast
        for k in range(np.uint64(pointers[j]), np.uint64(pointers[j + 1])):
            total += weights[k] * before[np.uint64(sources[k])]
        prior[j] = total
    return prior


@njit(cache=True)
def by_edges(vertices: Any) -> bool:
    """Whether a body's edges are so few and short that all are tried, exactly, in doubles.

    Normals n are then at most 2^21 and heights c at most 2^41. For vectors v of at most 2^31,
    n·v is exact, and so is the comparison of n·v with c.
    """
    half = len(vertices) // 2
    widest = 0
    for k in range(half):
        widest = max(widest, abs(vertices[k, 0]), abs(vertices[k, 1]))
    return half <= FEW_EDGES and widest <= SHORT_EDGES


@njit(cache=True)
def edge(vertices: Any, k: int) -> tuple[float, float, float]:
    """(n, n, c): the outer normal of edge k of the first half, and its height n·vertex."""
    ax, ay = vertices[k, 0], vertices[k, 1]
    bx, by = vertices[k + 1, 0], vertices[k + 1, 1]
    return float(by - ay), float(ax - bx), float(cross(ax, ay, bx, by))


@njit(cache=True)
def offsets(answers: Any, x: int, y: int) -> tuple[Any, Any]:
    """x and y less the answer of every state."""
    east, north = np.empty(len(answers)), np.empty(len(answers))
    for state in range(len(answers)):
        east[state] = float(x - answers[state, 0])
        north[state] = float(y - answers[state, 1])
    return east, north


@njit(cache=True)
def output_norms(vertices: Any, answers: Any, x: int, y: int) -> Any:
    """|(x, y) - answers[s]|_K of every state, bit for bit as `norm_of` finds each.

    A norm is the largest |n·v| / c over half of the edges; the others are their negatives. To try
    all is fast, because the processor does it for many states at once. The quotient rounded from
    the largest is the largest of the rounded ones.
    """
    norms = np.zeros(len(answers))
    if not by_edges(vertices):
        for state in range(len(answers)):
            norms[state] = norm_of(vertices, x - answers[state, 0], y - answers[state, 1])
        return norms
    east, north = offsets(answers, x, y)
    for k in range(len(vertices) // 2):
        across, along, height = edge(vertices, k)
        for state in range(len(answers)):
            reach = abs(across * east[state] + along * north[state]) / height
            norms[state] = reach if reach > norms[state] else norms[state]
    return norms


@njit(cache=True)
def degree_of(vertices: Any, answers: Any, members: Any, state: int) -> int:
    """DoP: members whose answer lies within that of `state` plus K, boundary included; exact."""
    if not by_edges(vertices):
        return int(count_inside(vertices, answers, members, state))
    near = members.copy()
    east, north = offsets(answers, answers[state, 0], answers[state, 1])
    for k in range(len(vertices) // 2):
        across, along, height = edge(vertices, k)
        for other in range(len(near)):
            near[other] &= abs(across * east[other] + along * north[other]) <= height
    return int(np.sum(near))


@njit(cache=True)
def exp_minus_all(exponents: Any, out: Any) -> None:
    """Writes exp(-x) of exponents from 0 to EXPONENT_OF_ZERO to `out`, within a few last bits.

    x = k log 2 + r with |r| < 0.35, then the series of exp(-r); 2^-k is put together from its
    bits, so that the processor does many at once.
    """
    bits = np.empty(len(exponents), dtype=np.int64)
    for place in range(len(exponents)):
        x = exponents[place]
        k = int(x * LOG2_INVERSE + 0.5)
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        total = SERIES[13]
        for term in range(12, -1, -1):
            total = total * r + SERIES[term]
        out[place] = total
        bits[place] = max(1023 - k, 0) << 52
    powers = bits.view(np.float64)
    for place in range(len(exponents)):
        out[place] *= powers[place]


@njit(cache=True)
def update_belief(
    prior: Any,
    members: Any,
    answers: Any,
    vertices: Any,
    epsilon: float,
    x: int,
    y: int,
    belief: Any,
) -> tuple[float, float]:
    """(total, best): writes p⁻(s) e^{w(s) - max w} of every state to `belief`; their sum.

    w(s) = -ε |z - f(s')|_K with z = (x, y) and f(s') = answers[s]; the maximum is over states of
    positive prior, `best` over the members. The belief is divided by its sum unless that is below
    TINY: then digits were lost, and the caller works in logarithms.
    """
    norms = output_norms(vertices, answers, x, y)
    nearest, least = np.inf, np.inf
    for state in range(len(prior)):
        if members[state]:
            nearest = min(nearest, norms[state])
        if prior[state] > 0.0:
            least = min(least, norms[state])
    for state in range(len(prior)):
        norms[state] = min(max(epsilon * norms[state] - epsilon * least, 0.0), EXPONENT_OF_ZERO)
    exp_minus_all(norms, belief)
    total = 0.0
    for state in range(len(prior)):
        belief[state] *= prior[state]
        total += belief[state]
    if total >= LOSES_NOTHING:
        for state in range(len(prior)):
            belief[state] /= total
    return total, -epsilon * nearest


@njit(cache=True)
def mean_and_spread(belief: Any, values: Any) -> tuple[float, float, float]:
    """(mean, mean, √E|f(s) - mean|²) of planar values under a belief."""
    east, north = 0.0, 0.0
    for state in range(len(belief)):
        east += belief[state] * values[state, 0]
        north += belief[state] * values[state, 1]
    square = 0.0
    for state in range(len(belief)):
        x, y = values[state, 0] - east, values[state, 1] - north
        square += belief[state] * (x * x + y * y)
    return east, north, math.sqrt(square)


@njit(cache=True)
def largest_places(values: Any, count: int) -> Any:
    """The places of the largest values, the largest first, ties by index."""
    top = np.empty(min(count, len(values)), dtype=np.int64)
    filled = 0
    for place in range(len(values)):
        if filled == len(top) and values[place] <= values[top[-1]]:
            continue
        filled = min(filled + 1, len(top))
        at = filled - 1
        while at > 0 and values[place] > values[top[at - 1]]:
            top[at] = top[at - 1]
            at -= 1
        top[at] = place
    return top


@njit(cache=True)
def absorb_output(
    prior: Any,
    values: Any,
    members: Any,
    answers: Any,
    vertices: Any,
    epsilon: float,
    x: int,
    y: int,
    belief: Any,
    single: Any,
) -> Any:
    """(total, best, east, north, spread, degree, shown) after output (x, y).

    Writes the belief to `belief` and, in single precision, to `single`. `shown` are the SHOWN most
    probable states, each with what is believed of it, -1 where there are fewer; `degree` is that
    of the first, 0 when it is no member. With `total` below LOSES_NOTHING only `best` means
    something.
    """
    total, best = update_belief(prior, members, answers, vertices, epsilon, x, y, belief)
    for state in range(len(belief)):
        single[state] = belief[state]
    east, north, spread = mean_and_spread(belief, values)
    top = largest_places(belief, SHOWN)
    degree = degree_of(vertices, answers, members, top[0]) if members[top[0]] else 0
    shown = (_pair(belief, top, 0), _pair(belief, top, 1), _pair(belief, top, 2))
    return total, best, east, north, spread, degree, shown


@njit(cache=True)
def _pair(belief: Any, top: Any, rank: int) -> Any:
    """A state of the most probable and what is believed of it; (-1, 0) beyond the last."""
    return (top[rank], belief[top[rank]]) if rank < len(top) else (np.int64(-1), 0.0)


# A whole step in one call: words in, an output and what it says out. Whatever must be decided
# exactly, repaired or formed in logarithms is handed back: the caller takes the step again, the
# plain way, with the same words, and so arrives at the same output.


@njit(cache=True)
def all_carried(mass: Any, room: Any, first: Any, second: Any, growth: Any) -> bool:
    """Whether all mass finds room: carried from first[k] to second[k] it grows by growth[k] ≥ 1.

    Mass stays where it lies as far as there is room, then goes along the pairs in their order,
    which is by growth. Writes to both arrays. Rounding is the caller's: room is given with a
    margin of as many roundings as there are subtractions.
    """
    left = 0
    for place in range(len(mass)):
        kept = min(mass[place], room[place])
        mass[place] -= kept
        room[place] -= kept
        left += mass[place] > 0.0
    for k in range(len(first)):
        if left == 0:
            return True
        source, target = first[k], second[k]
        if mass[source] > 0.0 and room[target] > 0.0:
            needed = mass[source] * growth[k]
            if needed <= room[target]:
                room[target] -= needed
                mass[source] = 0.0
                left -= 1
            else:
                mass[source] -= room[target] / growth[k]
                room[target] = 0.0
                left -= mass[source] <= 0.0
    return left == 0
