"""Discrete Laplace noise on a public lattice: the law, its errors, and exact draws from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from shoal.core.charge import Rng
from shoal.noise.primitives import (
    WIDEST_RATIO,
    bernoulli_exp,
    check_positive,
    discrete_laplace,
    exp_bounds,
    least_whole,
)

# Up to this many draws are made one by one: building the tables of a batch would take longer.
ONE_BY_ONE = 64

# Batches are cut so that their arrays stay in the processor's cache.
DRAWS_AT_A_TIME = 2**16


@dataclass(frozen=True, slots=True)
class LatticeLaplace:
    """Noise Z * step, Z an integer with P(Z = z) proportional to exp(-|z| step / scale).

    scale and step are exact rationals above 0 in the query's own units. Added to a query whose
    values are multiples of step and change by at most L, it is (L / scale)-DP.
    """

    kind = "lattice-laplace"

    scale: Fraction
    step: Fraction

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        check_positive("step", self.step)

    @property
    def rate(self) -> Fraction:
        """r = step / scale: each further step is exp(-r) times as likely."""
        return Fraction(self.step) / self.scale

    def draw(self, count: int, rng: Rng) -> Integers:
        """`count` independent draws of Z, with exactly the stated law.

        int64 with |Z| < 2^62. Python integers (dtype object) when scale / step exceeds 2^54, or
        when a draw does not fit 62 bits (probability below 2^-180). No value wraps around.
        The time taken depends on the count, the public rate, and the drawn noise: zeros with
        a minus sign and the largest magnitudes are drawn on. The data is not an argument.
        """
        if count < 0:
            raise ValueError(f"count is {count}; it must be 0 or more (one draw per coordinate)")
        rate = self.rate
        if count > ONE_BY_ONE:
            sizes = [
                min(DRAWS_AT_A_TIME, count - done) for done in range(0, count, DRAWS_AT_A_TIME)
            ]
            return np.concatenate([laplace_batch(rate, size, rng) for size in sizes])
        drawn = [discrete_laplace(rate.numerator, rate.denominator, rng) for _ in range(count)]
        fits = rate * WIDEST_RATIO >= 1 and all(abs(value) < 2**62 for value in drawn)
        return np.array(drawn, dtype=np.int64 if fits else object)

    def expected_error(self) -> float:
        """E|Z| step = step / sinh(r), with r = step / scale; tends to scale for small r.

        Within 1e-12 of it; 0 when exp(-r) is below the smallest float, inf when scale is above
        the largest.
        """
        if self.step <= self.scale:
            r = float(self.rate)
            return _to_float(self.scale) * (r / math.sinh(r) if r else 1.0)
        q = _exp_minus(self.rate)
        return _to_float(self.step) * 2 * q / (1 - q * q) if q else 0.0

    def variance(self) -> float:
        """E (Z step)^2 = step^2 / (2 sinh^2(r/2)); tends to 2 scale^2 for small r. Same limits."""
        if self.step <= self.scale:
            half = float(self.rate) / 2
            return 2 * (_to_float(self.scale) * (half / math.sinh(half) if half else 1.0)) ** 2
        q = _exp_minus(self.rate)
        return _to_float(self.step) ** 2 * 2 * q / (1 - q) ** 2 if q else 0.0

    def quantile(self, confidence: float | Fraction) -> Fraction:
        """The smallest multiple x of step with P(|Z| step <= x) >= confidence, exactly.

        P(|Z| > m) = 2 q^(m+1) / (1 + q) with q = exp(-r): bisection on m with certified bounds.
        A float confidence stands for its exact binary value; 0 <= confidence < 1.
        """
        tail = 1 - Fraction(confidence) if math.isfinite(confidence) else Fraction(0)
        if not 0 < tail <= 1:
            raise ValueError(
                f"confidence is {confidence}; it must lie in [0, 1) "
                "(no finite error bound holds with certainty)"
            )
        return _steps_for(self.rate, tail) * Fraction(self.step)

    def log_probability(self, z: int) -> float:
        """log P(Z = z) = log tanh(r/2) - |z| r; -inf when it is below the smallest float."""
        if self.rate < Fraction(1, 2**60):
            # tanh(r/2) = r/2 to the last bit, and r itself may be too small for a float
            log_zero = math.log(self.rate.numerator) - math.log(2 * self.rate.denominator)
        else:
            q = _exp_minus(self.rate)
            log_zero = math.log(_one_minus_exp(self.rate)) - math.log1p(q)
        return log_zero - _to_float(abs(int(z)) * self.rate)

    def pmf(self, z: int) -> float:
        """P(Z = z) as a float, for plots and tests; draws never use it."""
        return math.exp(self.log_probability(z))


@lru_cache(maxsize=256)
def _steps_for(rate: Fraction, tail: Fraction) -> int:
    """The smallest m with P(|Z| > m) at most `tail`: every release of a plan asks for the same."""
    return least_whole(lambda m: _tail_at_most(rate, m, tail))


def _tail_at_most(rate: Fraction, m: int, tail: Fraction) -> bool:
    """Whether 2 q^(m+1) / (1 + q) <= tail, q = exp(-rate), decided by bounds on q and q^(m+1).

    The two are never equal, or q would be algebraic, so finer bounds always decide.
    """
    precision = 128
    while True:
        one = 1 << precision
        low_q, high_q = exp_bounds(rate, precision)
        low_power, high_power = exp_bounds(rate * (m + 1), precision)
        if 2 * high_power <= tail * (one + low_q):
            return True
        if 2 * low_power > tail * (one + high_q):
            return False
        precision *= 2


def _exp_minus(rate: Fraction) -> float:
    return math.exp(-_to_float(rate))


def _one_minus_exp(rate: Fraction) -> float:
    return -math.expm1(-_to_float(rate))


def _to_float(value: Fraction) -> float:
    """The nearest float, or inf where there is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


# K-norm noise for histograms: Laplace noise that keeps the public total.
#
# When one entry moves from one bar to another the histogram moves by e_i - e_j, so the smallest
# convex body for its noise is K = conv{e_i - e_j} (Xiao 2017, Example 3.1), which lies in the
# plane Σv = 0 and has the norm |v|_K = |v|_1 / 2. Noise with density proportional to exp(-eta
# |v|_K) on that plane is Laplace noise of scale 2/eta on each bar, given that it adds up to 0.


COARSEST_RATE = Fraction(1, 256)  # error figures of finer lattices are read off this one


@dataclass(frozen=True, slots=True)
class ZeroSumLaplace:
    """Noise Z * step in `dimension` coordinates, P(Z = z) ∝ exp(-|z|_1 step / scale) on Σz = 0.

    Added to a histogram whose bars are multiples of step and whose l1 change is at most L, it is
    (L / scale)-DP, like Laplace noise of the same scale, with less error: the total stays exact.
    """

    kind = "zero-sum-laplace"

    scale: Fraction
    step: Fraction
    dimension: int

    def __post_init__(self) -> None:
        """Refuse a scale or step that is not above 0, and fewer than 2 coordinates."""
        check_positive("scale", self.scale)
        check_positive("step", self.step)
        if self.dimension < 2:
            raise ValueError(
                f"dimension is {self.dimension}; noise that adds up to 0 needs at least 2 bars"
            )

    @property
    def rate(self) -> Fraction:
        """r = step / scale."""
        return Fraction(self.step) / self.scale

    def draw(self, count: int, rng: Rng) -> NDArray[np.int64] | NDArray[np.object_]:
        """One vector of `count` = dimension integers, with exactly the stated law.

        All but the last are independent discrete Laplace; the last is minus their sum, and the
        vector is kept with probability exp(-r |last|), which is the missing factor. About one in
        three vectors is kept for six bars. Python integers when they do not fit 62 bits.
        """
        if count != self.dimension:
            raise ValueError(f"count is {count}; it must be dimension = {self.dimension}")
        a, b = self.rate.numerator, self.rate.denominator
        while True:
            drawn = [discrete_laplace(a, b, rng) for _ in range(count - 1)]
            last = -sum(drawn)
            if bernoulli_exp(abs(last) * a, b, rng):
                break
        drawn.append(last)
        fits = all(abs(value) < 2**62 for value in drawn)
        return np.array(drawn, dtype=np.int64 if fits else object)

    def expected_error(self) -> float:
        """E|Z_1| step, to about six digits."""
        coarse = max(self.rate, COARSEST_RATE)
        magnitudes, law = _one_bar(coarse, self.dimension)
        return float(magnitudes @ law) * float(coarse * self.scale)

    def quantile(self, confidence: float) -> Fraction:
        """A multiple x of step with P(|Z_1| step <= x) >= confidence, rounded up."""
        if not 0 <= confidence < 1:
            raise ValueError(
                f"confidence is {confidence}; it must lie in [0, 1) "
                "(no finite error bound holds with certainty)"
            )
        coarse = max(self.rate, COARSEST_RATE)
        magnitudes, law = _one_bar(coarse, self.dimension)
        order = np.argsort(magnitudes, kind="stable")
        reached = np.cumsum(law[order])
        place = int(np.searchsorted(reached, min(confidence + 1e-9, reached[-1])))
        bound = int(magnitudes[order[min(place, len(order) - 1)]]) + int(coarse > self.rate)
        return math.ceil(bound * coarse * self.scale / self.step) * self.step


@lru_cache(maxsize=32)
def _one_bar(rate: Fraction, dimension: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Magnitudes and probabilities of one coordinate: its own law times that of the others' sum.

    One bar alone has the transform (1 - q)² / ((1 - q)² + 4 q sin²(θ/2)), q = exp(-rate); the sum
    of the others is read off its power on a circle so long that what comes round it, at most
    exp(-s t) / (1 - s²)^dimension for any s < 1 at t = 60 + 12 √dimension, is below 1e-15.
    """
    r, q = float(rate), math.exp(-float(rate))
    size = 2 << math.ceil((60 + 12 * math.sqrt(dimension)) / r + 1).bit_length()
    half = np.sin(np.pi / size * np.arange(size // 2 + 1)) ** 2
    others = np.fft.irfft((1 + 4 * q / (1 - q) ** 2 * half) ** (1 - dimension), size)
    z = np.arange(-math.ceil(60 / r) - 1, math.ceil(60 / r) + 2)
    law = np.exp(-r * np.abs(z)) * np.maximum(others[np.abs(z)], 0.0)
    return np.abs(z).astype(np.float64), law / law.sum()


def is_laplace(noise: object) -> TypeGuard[LatticeLaplace]:
    """Whether it is independent Laplace noise on every coordinate."""
    return isinstance(noise, LatticeLaplace)


def is_zero_sum(noise: object) -> TypeGuard[ZeroSumLaplace]:
    """Whether noise adds up to 0 over its coordinates, so that a public total stays what it is."""
    return isinstance(noise, ZeroSumLaplace)


# Geometric draws in batches, digit by digit: one random word and one table look-up a digit.
#
# G with P(G = k) proportional to exp(-k r) is written as G = d_0 + d_1 2^s_1 + ... with digits d_i
# of a few bits each and an unbounded last digit. exp(-G r) is a product over the digits, so the
# digits are independent, each with its own truncated geometric law. A digit is drawn by inversion:
# the word is the beginning of a uniform real U, and the digit is the number of break points F(j) of
# its law at or below U. Break points are transcendental; the table holds their first 62 bits, which
# are certified, and only a word that equals a table entry (probability below 2^-49) needs more of U
# and more of F(j) to decide. No probability is ever rounded. The proof is in PROOF.md.

WORD_BITS = 62  # bits of a word that a digit uses; the sign uses the lowest of the other two
DIGIT_BITS = 12  # a table of 4096 entries stays in the processor's cache

# At the widest ratio all digits together have 56 bits, so drawing on adds at most 2^56 to at most
# 2^61: int64 magnitudes stay below 2^62.
WIDEN_ABOVE = 2**61

Integers = NDArray[np.int64] | NDArray[np.object_]


@dataclass(frozen=True, slots=True, eq=False)
class Digit:
    """One digit d of a geometric draw: 0 <= d < size, or d = size, meaning "size or more".

    P(U < F(j)) with F(j) = (1 - x^j) / (1 - x^size), x = exp(-rate), is the chance of d < j;
    for the last digit, which has no upper end, F(j) = 1 - x^j.
    breaks[j-1] = floor(2^62 F(j)), and at the end the sentinel 2^62, above every word;
    start[i] counts the breaks at or below the smallest word with leading bits i.
    """

    rate: Fraction
    shift: int
    size: int
    last: bool
    breaks: NDArray[np.int64]
    start: NDArray[np.int64]

    def look_up(self, words: NDArray[np.int64], rng: Rng) -> NDArray[np.int64]:
        """The digit of each 62-bit word; rng is asked for more only where a word is a break."""
        leading: NDArray[np.int64] = words >> (WORD_BITS - self.start.size.bit_length() + 1)
        digits: NDArray[np.int64] = self.start[leading]
        behind = np.flatnonzero(self.breaks[digits] <= words)
        while behind.size:
            digits[behind] += 1
            behind = behind[self.breaks[digits[behind]] <= words[behind]]
        # for digit 0 this compares with the sentinel, which no word equals
        for index in np.flatnonzero(self.breaks[digits - 1] == words):
            digits[index] = self._resolve(int(words[index]), rng)
        return digits

    def _resolve(self, word: int, rng: Rng) -> int:
        """The exact digit when the word equals one or more breaks: reads more of U, and of F."""
        uniform = LazyUniform(word, WORD_BITS)
        low, high = (int(np.searchsorted(self.breaks, word, side)) for side in ("left", "right"))
        while low < high:
            middle = (low + high + 1) // 2
            if uniform.reaches(self, middle, rng):
                low = middle
            else:
                high = middle - 1
        return low

    def break_bounds(self, j: int, precision: int) -> tuple[int, int]:
        """Integers (low, high) with low <= 2^precision F(j) < high + 1, for 1 <= j <= size."""
        working = precision + self.size.bit_length() + self.rate.denominator.bit_length() + 8
        one = 1 << working
        low_power, high_power = exp_bounds(self.rate * j, working)
        low, high = one - high_power, one - low_power
        if self.last:
            return low >> working - precision, high >> working - precision
        low_end, high_end = exp_bounds(self.rate * self.size, working)
        return (low << precision) // (one - low_end), (high << precision) // (one - high_end)


class LazyUniform:
    """A uniform real U of which only the first bits have been drawn yet."""

    __slots__ = ("bits", "prefix")

    def __init__(self, prefix: int, bits: int) -> None:
        self.prefix = prefix
        self.bits = bits

    def reaches(self, digit: Digit, j: int, rng: Rng) -> bool:
        """Whether U >= F(j), drawing 64 more bits of U for as long as it is undecided.

        U = F(j) has probability 0, and each round decides except with probability below 2^-60.
        """
        while True:
            low, high = digit.break_bounds(j, self.bits)
            if self.prefix < low:
                return False
            if self.prefix > high:
                return True
            self.prefix = self.prefix << 64 | int(rng.words(1)[0])
            self.bits += 64


def geometric_batch(first: NDArray[np.int64], digits: tuple[Digit, ...], rng: Rng) -> Integers:
    """One geometric draw for each 62-bit word of `first`, which the lowest digit uses up.

    A last digit of "size or more" is kept and drawn on: what is above it is geometric again
    (it is memoryless). So a draw that needs more words continues and is never restarted.
    int64, or Python integers when 62 bits are not enough.
    """
    wide = digits[0].rate * WIDEST_RATIO < 1
    total: Integers = np.zeros(first.size, dtype=object if wide else np.int64)
    drawn = first
    for place, digit in enumerate(digits):
        words = first if place == 0 else _fresh(first.size, rng)
        drawn = digit.look_up(words, rng)
        total += _shift_digit(drawn, digit, wide=wide)
    top = digits[-1]
    unfinished = np.flatnonzero(drawn == top.size)
    while unfinished.size:
        if not wide and total[unfinished].max() > WIDEN_ABOVE:
            wide, total = True, total.astype(object)
        drawn = top.look_up(_fresh(unfinished.size, rng), rng)
        total[unfinished] += _shift_digit(drawn, top, wide=wide)
        unfinished = unfinished[drawn == top.size]
    return total


def laplace_batch(rate: Fraction, count: int, rng: Rng) -> Integers:
    """`count` draws with P(Z = z) proportional to exp(-|z| rate): a fair sign on a geometric draw.

    The sign is the lowest bit of the word whose upper 62 bits the lowest digit uses. Minus zero is
    drawn again from fresh words, or 0 would come out twice as often as it should.
    """
    digits = digits_of(rate)
    values, again = _signed_batch(digits, count, rng)
    while again.size:
        redrawn, still = _signed_batch(digits, again.size, rng)
        if redrawn.dtype == object:
            values = values.astype(object)
        values[again] = redrawn
        again = again[still]
    return values


def _signed_batch(
    digits: tuple[Digit, ...], count: int, rng: Rng
) -> tuple[Integers, NDArray[np.intp]]:
    """`count` signed draws, and where they came out as minus zero."""
    words = rng.words(count)
    magnitude = geometric_batch((words >> np.uint64(2)).astype(np.int64), digits, rng)
    sign = 1 - 2 * (words & np.uint64(1)).astype(np.int64)
    return sign * magnitude, np.flatnonzero((sign < 0) & (magnitude == 0))


@lru_cache(maxsize=32)
def digits_of(rate: Fraction) -> tuple[Digit, ...]:
    """The digits of a geometric draw with P(G = k) proportional to exp(-k rate), lowest first.

    All digits together reach 2^bits, between 2/rate and 4/rate: going beyond the last one has
    probability exp(-2) at most (below rate 2; for larger rates exp(-rate), with no digit but the
    last). The bits are shared out evenly over as few tables as hold them.
    """
    bits = int(2 / rate).bit_length()
    count = max(1, -(-bits // DIGIT_BITS))
    widths = [bits // count + (place < bits % count) for place in range(count)]
    shifts = [sum(widths[:place]) for place in range(count)]
    return tuple(
        make_digit(rate, shift, width, last=place == count - 1)
        for place, (shift, width) in enumerate(zip(shifts, widths, strict=True))
    )


def make_digit(rate: Fraction, shift: int, width: int, *, last: bool) -> Digit:
    """The digit of `width` bits that counts units of 2^shift, with its certified table."""
    unit, size = rate * 2**shift, 1 << width
    certified = None
    precision = WORD_BITS + 64
    while certified is None:
        certified = _breaks(unit, size, last=last, precision=precision)
        precision *= 2
    breaks = np.array([*certified, 1 << WORD_BITS], dtype=np.int64)
    cells = np.arange(size, dtype=np.int64) << (WORD_BITS - width)
    start = np.searchsorted(breaks, cells, side="right").astype(np.int64)
    for table in (breaks, start):
        table.setflags(write=False)
    return Digit(rate=unit, shift=shift, size=size, last=last, breaks=breaks, start=start)


def _breaks(rate: Fraction, size: int, *, last: bool, precision: int) -> list[int] | None:
    """floor(2^62 F(j)) for j = 1, 2, ... below size (at size too if last), or None: unsure.

    power is x^j rounded down at each of j products: x^j lies in [power, power + j (gap + 1)],
    in units of 2^-working, when x lies in [low, low + gap].
    """
    working = precision + 2 * size.bit_length() + rate.denominator.bit_length()
    one = 1 << working
    low, high = exp_bounds(rate, working)
    slack = high - low + 1
    powers = [one]
    for _ in range(size):
        powers.append(powers[-1] * low >> working)
    # bounds on 2^precision / (1 - x^size); F(j) is below 1 for every value of the bounds
    least = most = 1 << precision
    if not last:
        least = (one << precision) // (one - powers[size])
        most = (one << precision) // (one - powers[size] - size * slack) + 1
    drop = working + precision - WORD_BITS
    breaks = []
    for j in range(1, size + last):
        lower = max(0, one - powers[j] - j * slack) * least >> drop
        upper = (one - powers[j]) * most >> drop
        if min(upper, (1 << WORD_BITS) - 1) != lower:
            return None
        breaks.append(lower)
    return breaks


def _shift_digit(drawn: NDArray[np.int64], digit: Digit, *, wide: bool) -> Integers:
    return drawn.astype(object) << digit.shift if wide else drawn << digit.shift


def _fresh(count: int, rng: Rng) -> NDArray[np.int64]:
    return (rng.words(count) >> np.uint64(2)).astype(np.int64)
