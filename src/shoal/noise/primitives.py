"""Seeded words, exact scalar draws, and the public lattice that noise lives on."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.core.charge import Rng, SystemRng, check_count
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.geometry.body import Body

__all__ = ["SeededRng", "SystemRng"]


class SeededRng:
    """A reproducible stream, for tests and demos only: with the seed the noise can be removed.

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


# The exact scalar laws on Python integers, written to be read as a proof.
#
# Every law here is a finite or almost surely finite sequence of fair comparisons between integers,
# so no probability is ever rounded. This is the reference for the batch sampler (laplace.py, which
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
    """Refuse a negative numerator, one of 0 unless `allow_zero`, and a denominator below 1."""
    least = 0 if allow_zero else 1
    if numerator < least or denominator < 1:
        raise ValueError(
            f"rate is {numerator}/{denominator}; its numerator must be at least {least} "
            "and its denominator at least 1 (the rate is step / scale)"
        )


# Certified bounds on exp(-r) for rational r, as integers.


def least_whole(enough: Callable[[int], bool]) -> int:
    """The smallest whole number from 0 on that is `enough`, which all larger ones are too."""
    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return low


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
        high = -(-high * high >> working)  # rounds up
    return low >> guard, -(-high >> guard)


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
        high_term = -((-high_term * high_y >> working) // k)
        low_sum += low_term
        high_sum += high_term
    # y <= 1, so every later term is at most half the one before it: the tail is below the last.
    high_sum += high_term
    return (one << working) // high_sum, -(-(one << working) // low_sum)


# What a location stream asks of noise: a public law of the output given the hidden state.
#
# `EmissionLaw` is the one interface behind which K-norm noise (the planar isotropic mechanism),
# the staircase, lattice Laplace noise and the graph-exponential laws are interchangeable.
# All values are in lattice units: states answer with integer points, outputs are integer points.
#
# law = LatticeEmission(points=answers, noise=LatticeKNorm(body=body, epsilon=Fraction(1)))
# z = law.draw(state, rng)                 # released, in lattice units
# posterior = prior * exp(law.log_likelihood(z)), normalised
#
# Guarantee: sup over z of log q(z|s) / q(z|s') is at most `law.log_ratio(s, s')`.


class LatticeNoise(Protocol):
    """Noise on Z^d added to the answer: exact draws, weights, and what a shift of it gives away."""

    @property
    def epsilon(self) -> Fraction: ...

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw, with exactly the stated law."""
        ...

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` independent draws, one a row."""
        ...

    def log_weights(self, vectors: Ints) -> Floats:
        """log P(z) of each row up to one constant; -inf where the noise has probability 0."""
        ...

    def log_ratios(self, shifts: Ints) -> Floats:
        """sup over z of log P(z) / P(z - v), for each row v; rounded up, inf if unbounded."""
        ...

    @property
    def mse(self) -> float:
        """E|z|² in squared lattice units."""
        ...


class EmissionLaw(Protocol):
    """The public law q(z | s) of the output z for every state s = 0, 1, …."""

    @property
    def points(self) -> Ints:
        """(states, d): the answer of each state in lattice units."""
        ...

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """One output given the state, with exactly the stated law."""
        ...

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log q(output | s) of every state, up to one constant for all; -inf when impossible."""
        ...

    def log_ratio(self, first: int, second: int) -> float:
        """An upper bound on sup over z of |log q(z|first) - log q(z|second)|."""
        ...

    def expected_error(self, prior: Floats) -> float:
        """√E|z - f(s)|² with s drawn from the prior: of the raw output, in lattice units."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticeEmission:
    """z = points[s] + noise.

    The normaliser of the noise does not depend on the state, so weights are likelihoods. Give a
    state outside a location set the point of its surrogate: it emits as its surrogate does.
    """

    points: Ints
    noise: LatticeNoise

    def draw(self, state: int, rng: Rng) -> tuple[int, ...]:
        """points[state] + one draw of the noise."""
        drawn = self.noise.draw(rng)
        return tuple(map(operator.add, self.points[state].tolist(), drawn))

    def log_likelihood(self, output: Sequence[int]) -> Floats:
        """log weight of output - points[s] for every state s."""
        return self.noise.log_weights(difference_rows(output, self.points))

    def log_ratio(self, first: int, second: int) -> float:
        """What the noise gives away about the shift between the two answers."""
        shift = (self.points[first] - self.points[second])[None, :]
        return float(self.noise.log_ratios(shift)[0])

    def expected_error(self, prior: Floats) -> float:
        """Return √E|noise|², which does not depend on the prior."""
        return math.sqrt(self.noise.mse)


def difference_rows(output: Sequence[int], points: Ints) -> Ints:
    """output - points, one row a state; Python's integers when the output is beyond 62 bits."""
    values = [int(value) for value in output]
    if all(abs(value) < 2**62 for value in values):
        return np.array(values, dtype=np.int64)[None, :] - points
    return np.asarray(np.array(values, dtype=object)[None, :] - points.astype(object))


# The public lattice noise lives on: its step, what rounding to it costs, and the rounding.


# Noise of scale at most WIDEST_RATIO steps exceeds 2^61 steps with probability below 2^-180,
# so 64-bit integers are the right type for it (laplace.py still widens if that ever happens).
WIDEST_RATIO = 2**54

# A step this much smaller than the scale makes rounding a thousandth of the noise.
STEPS_PER_SCALE = 1024


@dataclass(frozen=True, slots=True)
class Lattice:
    """The multiples of `step`, and what rounding the query's values to them costs.

    added_sensitivity is how much further apart two values can be after rounding, for each
    coordinate that changes: 0 when the values were on the lattice already, else one step.
    """

    step: Fraction
    added_sensitivity: Fraction

    @property
    def added_error(self) -> Fraction:
        """The furthest that rounding moves a value: half the added sensitivity."""
        return self.added_sensitivity / 2

    def explain(self) -> str:
        """The cost of the lattice in words."""
        if self.added_sensitivity == 0:
            return f"values are multiples of {self.step} already: nothing is rounded"
        return (
            f"values are rounded to multiples of {self.step}: each moves by at most "
            f"{self.added_error}, and each coordinate adds {self.added_sensitivity} "
            "to the sensitivity"
        )


def round_up(scale: float | Fraction, bits: int = 40) -> Fraction:
    """A rational with at most `bits` significant bits, never below scale, so that noise only grows.

    A rational whose denominator is at most 2^bits is kept as it is. Otherwise the smallest
    m / 2^k >= scale with 2^(bits-1) <= m <= 2^bits: relative excess below 2^(1-bits).
    A float stands for its exact binary value. Refuses scales that are not positive and finite.
    """
    if bits < 2:
        raise ValueError(f"bits is {bits}; it must be at least 2 (40 loses 2^-39 of the scale)")
    if isinstance(scale, float) and not math.isfinite(scale):
        raise InputError(f"scale is {scale}; it must be finite (no noise of this kind is enough)")
    exact = Fraction(scale)
    check_positive("scale", exact)
    if exact.denominator <= 2**bits:
        return exact
    unit = _power_of_two_at_most(exact) / (1 << (bits - 1))
    return math.ceil(exact / unit) * unit


def lattice_step(scale: Fraction, natural: Fraction | None) -> Lattice:
    """The lattice for noise of this scale on values that are multiples of `natural`, if any are.

    The natural step is kept (no rounding) unless scale / natural exceeds 2^54, when drawn integers
    might not fit 62 bits. Otherwise the step is the largest power of two at most scale / 1024, and
    rounding moves each value by at most half a step: it adds one step to the sensitivity of each
    coordinate that changes. The step is a function of public numbers only.
    """
    check_positive("scale", scale)
    if natural is not None:
        check_positive("natural", natural)
        if scale / natural <= WIDEST_RATIO:
            return Lattice(step=natural, added_sensitivity=Fraction(0))
    step = _power_of_two_at_most(scale / STEPS_PER_SCALE)
    return Lattice(step=step, added_sensitivity=step)


def snap(values: Sequence[Fraction | int], step: Fraction) -> list[int]:
    """For each value x the integer nearest to x / step, ties to even, computed exactly.

    |step * snap(x) - x| <= step / 2, so |snap(x) - snap(y)| <= |x - y| / step + 1. Refuses floats.
    """
    check_positive("step", step)
    return [_nearest(value, step) for value in values]


def check_positive(field: str, value: Fraction) -> None:
    """Refuses anything but an exact rational above 0, naming the field."""
    if not isinstance(value, Rational):
        raise ValueError(
            f"{field} is {value!r}; it must be an exact rational "
            "(wrap it in Fraction, or take round_up of it)"
        )
    if value <= 0:
        raise ValueError(
            f"{field} is {value}; it must be above 0 (noise of scale 0 hides nothing: "
            "to publish without noise, do not draw any)"
        )


def _nearest(value: Fraction | int, step: Fraction) -> int:
    """Return the multiple of `step` nearest to `value`, in steps; ties go to the even multiple.

    Refuses floats, whose rounding errors depend on the data.
    """
    if not isinstance(value, Rational):
        raise ValueError(
            "a value to snap is not an exact rational; floats carry rounding errors that depend "
            "on the data (give integers or Fractions)"
        )
    # int(): numpy integers would wrap in the products
    numerator = int(value.numerator) * step.denominator
    denominator = int(value.denominator) * step.numerator
    whole, rest = divmod(numerator, denominator)
    above_half = 2 * rest - denominator
    return whole + (above_half > 0 or (above_half == 0 and whole % 2 == 1))


def _power_of_two_at_most(value: Fraction) -> Fraction:
    """The largest 2^e <= value, e an integer of either sign."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    power = Fraction(1 << max(exponent, 0), 1 << max(-exponent, 0))
    return power if power <= value else power / 2


# Mean squared noise on a coarse lattice, summed up point by point.


MOST_LATTICE_POINTS = (
    2**18
)  # beyond it the continuous law serves: the lattice is fine, or d is large
NORM_OUT_OF_REACH = 40.0  # norms beyond this over epsilon weigh less than 1e-17


def lattice_mse(noise: LatticeNoise, body: Body) -> float | None:
    """E|z|² of noise that falls with the norm of `body`, to ten digits; None: too many points.

    Sums over the lattice points of the span with norm at most (40 + 4 d')/ε + 1, boxed.
    """
    d = body.dimension
    if d == 0:
        return 0.0
    reach = (NORM_OUT_OF_REACH + 4 * d) / float(noise.epsilon) + 1
    sides = [math.ceil(reach * int(np.abs(body.flat[:, axis]).max())) for axis in range(d)]
    if math.prod(2 * side + 1 for side in sides) > MOST_LATTICE_POINTS:
        return None
    axes = [np.arange(-side, side + 1) for side in sides]
    inner = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    points = body.span.vectors(inner).astype(np.int64)
    weights = np.exp(noise.log_weights(points))
    return float(weights @ (points.astype(np.float64) ** 2).sum(axis=1) / weights.sum())
