"""Random words, of the operating system or a seed, and exact draws made of them."""

from __future__ import annotations

import hashlib
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shoal.core.rng import Rng, SystemRng, check_count

__all__ = ["SeededRng", "SystemRng", "Unread"]


class SeededRng:
    """A reproducible stream, for tests and demos only: whoever knows the seed removes the noise.

    Philox 4x64 in counter mode under the key SHA-256(seed), whose raw words numpy keeps stable
    between versions. Equal seeds give equal streams.
    """

    def __init__(self, seed: int) -> None:
        digest = hashlib.sha256(str(int(seed)).encode()).digest()
        self._stream = np.random.Philox(key=int.from_bytes(digest[:16], "big"))

    @property
    def secure(self) -> bool:
        """False: a ledger refuses releases drawn from this source."""
        return False

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the seed's stream, read-only."""
        check_count(count)
        words = np.asarray(self._stream.random_raw(count), dtype=np.uint64)
        words.setflags(write=False)  # as the system's are, so that compiled code is made once
        return words


class Unread:
    """A source whose last words were looked at but not used: it gives them first, once.

    For a draw that is begun in compiled code and taken again from its beginning on Python's
    integers: the same words make the same draw. To be used within that draw and then dropped.
    """

    def __init__(self, words: NDArray[np.uint64], rng: Rng) -> None:
        self._left = words
        self._rng = rng

    @property
    def secure(self) -> bool:
        """Whether the source behind it is."""
        return self._rng.secure

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words, read-only: of those given back, then of the source."""
        check_count(count)
        first, self._left = self._left[:count], self._left[count:]
        if len(first) == count:
            return first
        both = np.concatenate([first, self._rng.words(count - len(first))])
        both.setflags(write=False)
        return both


# The exact scalar laws on Python integers, written to be read as a proof.
#
# Every law here is a finite or almost surely finite sequence of fair comparisons between integers,
# so no probability is ever rounded. This is the reference for the batch sampler (digits.py, which
# has the same laws) and what small draws use. The time a draw takes depends on the noise itself
# and on the public scale, never on the data.
#
# Canonne, Kamath & Steinke 2020, "The discrete Gaussian for differential privacy", Algorithms 1-2.


def uniform_below(bound: int, rng: Rng) -> int:
    """An integer uniform on 0, 1, ..., bound - 1; bound is any positive integer.

    Draws as many bits as bound - 1 has and starts again when they reach bound: what is kept is
    uniform because every kept value had the same probability. Fewer than 2 tries on average.
    """
    if bound < 1:
        raise ValueError(f"bound is {bound}; it must be at least 1 (there is no integer below it)")
    bits = (bound - 1).bit_length()
    while True:
        value = _random_bits(bits, rng)
        if value < bound:
            return value


def bernoulli(numerator: int, denominator: int, rng: Rng) -> bool:
    """True with probability p/q, with p = numerator and q = denominator, 0 <= p <= q, q > 0."""
    if not 0 <= numerator <= denominator or denominator == 0:
        raise ValueError(
            f"probability is {numerator}/{denominator}; it must lie between 0 and 1 "
            "(give 0 <= numerator <= denominator, denominator > 0)"
        )
    return uniform_below(denominator, rng) < numerator


def bernoulli_exp(numerator: int, denominator: int, rng: Rng) -> bool:
    """True with probability exp(-p/q), with p = numerator >= 0 and q = denominator > 0.

    exp(-p/q) is exp(-1) multiplied floor(p/q) times, and once the exp of minus the rest. It stops
    at the first failure, so that a huge p/q costs no more than a small one.
    """
    _check_rate(numerator, denominator, allow_zero=True)
    whole, rest = divmod(numerator, denominator)
    for _ in range(whole):
        if not _bernoulli_exp_below_one(1, 1, rng):
            return False
    return _bernoulli_exp_below_one(rest, denominator, rng)


def geometric(numerator: int, denominator: int, rng: Rng) -> int:
    """G = 0, 1, 2, ... with P(G = k) = (1 - q) q^k, q = exp(-numerator/denominator).

    u below b = denominator, kept with probability exp(-u/b), and v with P(v) proportional to
    exp(-v) make X = u + b v geometric with rate 1/b: each integer has one such (u, v), and
    exp(-u/b) exp(-v) = exp(-X/b). Then floor(X/a), a = numerator, is geometric with rate a/b.
    """
    _check_rate(numerator, denominator, allow_zero=False)
    remainder = uniform_below(denominator, rng)
    while not _bernoulli_exp_below_one(remainder, denominator, rng):
        remainder = uniform_below(denominator, rng)
    multiple = 0
    while _bernoulli_exp_below_one(1, 1, rng):
        multiple += 1
    return (remainder + denominator * multiple) // numerator


def discrete_laplace(numerator: int, denominator: int, rng: Rng) -> int:
    """Z in the integers with P(Z = z) proportional to exp(-|z| numerator/denominator).

    A fair sign on a geometric magnitude. Minus zero is drawn again: otherwise 0 would be counted
    twice and come out with twice its probability.
    """
    while True:
        negative = _random_bits(1, rng) == 1
        magnitude = geometric(numerator, denominator, rng)
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def _bernoulli_exp_below_one(numerator: int, denominator: int, rng: Rng) -> bool:
    """True with probability exp(-r), r = numerator/denominator in [0, 1].

    Let N be the first k >= 1 at which Bernoulli(r/k) fails: P(N > k) = r^k / k!, so
    P(N odd) = 1 - r + r^2/2! - ... = exp(-r). (von Neumann 1951; Forsythe 1972.)
    """
    k = 1
    while bernoulli(numerator, k * denominator, rng):
        k += 1
    return k % 2 == 1


def _random_bits(bits: int, rng: Rng) -> int:
    """An integer uniform on [0, 2^bits), from as few words as hold that many bits."""
    count = -(-bits // 64)
    value = int.from_bytes(rng.words(count).tobytes(), "little")
    return value >> (64 * count - bits)


def _check_rate(numerator: int, denominator: int, *, allow_zero: bool) -> None:
    least = 0 if allow_zero else 1
    if numerator < least or denominator < 1:
        raise ValueError(
            f"rate is {numerator}/{denominator}; its numerator must be at least {least} "
            "and its denominator at least 1 (the rate is step / scale)"
        )


# Certified bounds on exp(-r) for rational r, as integers.


def exp_bounds(rate: Fraction, precision: int) -> tuple[int, int]:
    """Integers (low, high) with low <= 2^precision exp(-rate) <= high, high - low at most 2.

    With y = rate / 2^m <= 1: the Taylor sum of exp(y) has positive terms, so rounding each term
    down (up, plus a bound on the tail) gives a lower (upper) bound; then 1/exp(y), squared m times.
    Lower bounds are rounded down and upper bounds up at every step. rate must not be negative.
    """
    if rate < 0:
        raise ValueError(f"rate is {rate}; it must be 0 or more (exp(-rate) is a probability)")
    if rate >= precision:
        return 0, 1  # exp(-rate) <= exp(-precision) < 2^-precision
    halvings = (rate.numerator // rate.denominator).bit_length()  # floor(rate) < 2^halvings
    guard = halvings + precision.bit_length() + 8
    working = precision + guard
    low, high = _reciprocal_exp(rate / 2**halvings, working)
    for _ in range(halvings):
        low = low * low >> working
        high = _ceil_shift(high * high, working)
    return low >> guard, _ceil_shift(high, guard)


def _reciprocal_exp(exponent: Fraction, working: int) -> tuple[int, int]:
    """Bounds on 2^working exp(-y), y = exponent in [0, 1]."""
    scaled, divisor = exponent.numerator << working, exponent.denominator
    low_y, high_y = scaled // divisor, -(-scaled // divisor)
    one = 1 << working
    low_term = high_term = low_sum = high_sum = one
    k = 0
    while high_term > 1:
        k += 1
        low_term = (low_term * low_y >> working) // k
        high_term = -(-_ceil_shift(high_term * high_y, working) // k)
        low_sum += low_term
        high_sum += high_term
    # y <= 1, so every later term is at most half the one before it: the tail is below the last.
    high_sum += high_term
    return (one << working) // high_sum, -(-(one << working) // low_sum)


def _ceil_shift(value: int, bits: int) -> int:
    return -(-value >> bits)
