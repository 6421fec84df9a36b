"""Compiled attempts at exact K-norm draws; importing this imports numba.

Every comparison is between a uniform real, of which 63 bits are drawn, and a power of e known up
to a stated relative error. Where the two are too close to tell, the attempt is handed back
undecided (-1) and finished on Python's integers with as many further bits as it takes. So the
laws are exact although the arithmetic is not. Only +, -, *, / and ldexp of IEEE doubles are relied
upon; the logarithm is a guess that is checked. The error bounds are derived in KNORM.md.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from shoal.geometry.kernels import norm_parts

UNDECIDED, REJECTED, ACCEPTED = -1, 0, 1

EXP_ERROR = 2.0**-47  # relative error of exp_minus, and of the uniform's conversion, together
WORD = 2.0**-63
LARGEST_EXPONENT = 690.0  # exp(-690) is still a normal double
EXP_UNDERFLOW = 2.0**-990  # an upper bound on exp(-x) beyond it
COORDINATE_REACH = 2.0**31  # coordinates beyond it are handed back

LOG2_INVERSE = 1.0 / math.log(2.0)
LN2_HIGH = 0x162E42FEF * 2.0**-33  # 33 bits: k·LN2_HIGH is exact for k < 2^20
LN2_LOW = 7.440617110012397e-11  # log 2 = LN2_HIGH + LN2_LOW up to 2^-86
TAYLOR = np.array([(-1.0) ** k / math.factorial(k) for k in range(16)])


@njit(cache=True)
def exp_minus(x: float) -> float:
    """exp(-x) for 0 <= x <= 690, with relative error below 2^-48.

    x = k log 2 + r with |r| < 0.35, then 15 terms of the series of exp(-r).
    """
    k = int(x * LOG2_INVERSE + 0.5)
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    total = TAYLOR[15]
    for term in range(14, -1, -1):
        total = total * r + TAYLOR[term]
    return math.ldexp(total, -k)


@njit(cache=True)
def geometric(word: Any, rate: float) -> int:
    """The largest k with U < exp(-rate k), where the first 63 bits of U are `word`; -1: undecided.

    `rate` is within a relative 2^-52 of the exact rate.
    """
    if word < 1024 or rate < 2.0**-60:
        return UNDECIDED
    if rate > LARGEST_EXPONENT:
        return 0
    low = word * WORD
    high = (word + 1) * WORD
    k = math.floor(-math.log(low) / rate)
    if k >= 2.0**40:
        return UNDECIDED
    exponent = rate * k
    slack = EXP_ERROR + (exponent + rate) * 2.0**-51  # at most 2^-41
    if exponent > LARGEST_EXPONENT:
        return UNDECIDED
    if k > 0 and high * (1 + slack) > exp_minus(exponent):
        return UNDECIDED
    beyond = exponent + rate
    above = exp_minus(beyond) if beyond <= LARGEST_EXPONENT else EXP_UNDERFLOW
    if low * (1 - slack) < above:
        return UNDECIDED
    return int(k)


@njit(cache=True)
def keep(word: Any, gamma: float, error: float) -> int:
    """Whether U < exp(-γ), with γ known up to `error` and 63 bits of U; -1: undecided."""
    slack = EXP_ERROR + 2 * error
    if slack > 0.001:
        return UNDECIDED
    chance = exp_minus(gamma) if gamma <= LARGEST_EXPONENT else 0.0
    if (word + 1) * WORD <= chance * (1 - slack):
        return ACCEPTED
    if word * WORD >= chance * (1 + slack) + EXP_UNDERFLOW:
        return REJECTED
    return UNDECIDED


@njit(cache=True)
def signed_laplace(word: Any, rate: float) -> tuple[int, int]:
    """A discrete Laplace draw from one 64-bit word, and whether it is one.

    The lowest bit is the sign; minus zero is rejected, or 0 would come out twice as often.
    """
    magnitude = geometric(np.int64(word >> np.uint64(1)), rate)
    if magnitude < 0:
        return 0, UNDECIDED
    if word & np.uint64(1):
        return -magnitude, ACCEPTED if magnitude else REJECTED
    return magnitude, ACCEPTED


@njit(cache=True)
def line_attempts(words: Any, rate: float, out: Any, filled: int) -> tuple[int, int, int]:
    """Draws on a line, one word each, until `out` is full, the words end or one is undecided.

    Returns how many rows of `out` are filled, how many attempts were used up, and whether the
    attempt after them is undecided.
    """
    for used in range(len(words)):
        if filled == len(out):
            return filled, used, 0
        value, verdict = signed_laplace(words[used, 0], rate)
        if verdict == UNDECIDED or abs(value) > COORDINATE_REACH:
            return filled, used, 1
        if verdict == ACCEPTED:
            out[filled, 0] = value
            filled += 1
    return filled, len(words), 0


@njit(cache=True)
def plane_attempts(
    words: Any,
    epsilon: float,
    shares: Any,
    outwards: Any,
    vertices: Any,
    out: Any,
    filled: int,
) -> tuple[int, int, int]:
    """Draws in the plane, three words an attempt; returns what `line_attempts` does.

    shares are the proposal's rates, exact in doubles; epsilon is the nearest double.
    """
    for used in range(len(words)):
        if filled == len(out):
            return filled, used, 0
        verdict, x, y = plane_attempt(words[used], epsilon, shares, outwards, vertices)
        if verdict == UNDECIDED:
            return filled, used, 1
        if verdict == ACCEPTED:
            out[filled, 0], out[filled, 1] = x, y
            filled += 1
    return filled, len(words), 0


@njit(cache=True)
def plane_attempt(
    words: Any, epsilon: float, shares: Any, outwards: Any, vertices: Any
) -> tuple[int, int, int]:
    """One attempt: a draw of the product law, kept with probability exp(-γ)."""
    first, verdict = signed_laplace(words[0], epsilon * shares[0])
    second, other = signed_laplace(words[1], epsilon * shares[1])
    worse = min(verdict, other)
    if worse != ACCEPTED:
        return worse, 0, 0
    wide = abs(first) * 1.0, abs(second) * 1.0
    for axis in range(2):
        reach = wide[0] * abs(outwards[0, axis]) + wide[1] * abs(outwards[1, axis])
        if reach > COORDINATE_REACH:
            return UNDECIDED, 0, 0
    x = first * outwards[0, 0] + second * outwards[1, 0]
    y = first * outwards[0, 1] + second * outwards[1, 1]
    norm = norm_of(vertices, x, y)
    gamma = epsilon * max(0.0, norm - (shares[0] * wide[0] + shares[1] * wide[1]))
    word = np.int64(words[2] >> np.uint64(1))
    return keep(word, gamma, epsilon * norm * 2.0**-48), x, y


@njit(cache=True)
def norm_of(vertices: Any, x: int, y: int) -> float:
    """|(x, y)|_K within a relative 2^-51; the numerator and denominator are exact in int64."""
    if x == 0 and y == 0:
        return 0.0
    above, below = norm_parts(vertices, x, y)
    return above / below


@njit(cache=True)
def norms_of(vertices: Any, vectors: Any) -> Any:
    """norm_of every row."""
    found = np.empty(len(vectors))
    for k in range(len(vectors)):
        found[k] = norm_of(vertices, vectors[k, 0], vectors[k, 1])
    return found
