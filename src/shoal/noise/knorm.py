"""The product law that lattice K-norm noise is drawn from, before rejection.

In coordinates w = y T, T unimodular, the diamond {w : Σ rate_j |w_j| <= 1} contains K, so that
Σ rate_j |w_j| <= |y|_K everywhere, and discrete Laplace draws of rates ε rate_j dominate the law
wanted. T reduces K's inertia form (Lagrange and Gauss in the plane, compiled in geometry; the same
pair by pair in more dimensions), which makes the diamond fit slivers too: about half of the draws
are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np

from shoal.core.charge import Rng
from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import exact, positive, whole
from shoal.geometry.body import Body
from shoal.geometry.span import VECTOR_LIMIT, Integers, Norms, facet_reach, largest
from shoal.noise.primitives import exp_bounds, lattice_mse

MOST_ROUNDS = 200  # of reduction; stopping early costs acceptance, never exactness


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """`shares` are the rates in w coordinates, `outwards` the inverse of T: y = w @ outwards.

    `exact` are the rates where floats only come near them; in the plane the shares are exact, and
    it is None: draws seldom need the rates as fractions, and most proposals are used once.
    """

    shares: Floats
    outwards: Ints
    exact: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", as_read_only(self.shares))
        object.__setattr__(self, "outwards", as_read_only(self.outwards, np.int64))

    @property
    def rates(self) -> tuple[Fraction, ...]:
        """The rates as fractions."""
        return tuple(map(Fraction, self.shares.tolist())) if self.exact is None else self.exact

    def outward(self, inner: Sequence[int]) -> Ints:
        """y = w @ outwards as one row, in Python's integers when they need more than 62 bits."""
        columns = self.outwards.T.tolist()
        row = [sum(w * t for w, t in zip(inner, column, strict=True)) for column in columns]
        fits = all(abs(value) < 2**62 for value in row)
        return np.array([row], dtype=np.int64 if fits else object).reshape(1, len(row))

    def height(self, inner: Sequence[int]) -> Fraction:
        """Σ rate_j |w_j|."""
        terms = (rate * abs(w) for rate, w in zip(self.rates, inner, strict=True))
        return sum(terms, Fraction(0))


def proposal_for(body: Body) -> Proposal:
    """A proposal whose diamond contains the body in force."""
    match body.dimension:
        case 0:
            return _proposal((), np.zeros((0, 0), dtype=np.int64))
        case 1:
            rate = Fraction(1, int(abs(body.flat[0, 0])))
            return _proposal((rate,), np.eye(1, dtype=np.int64))
        case 2:
            from shoal.geometry.kernels import diamond

            return Proposal(*diamond(body.flat))
    return _several(body)


def _several(body: Body) -> Proposal:
    """The proposal in three dimensions or more, under the body of its facets."""
    assert body.facets is not None
    inertia = np.array([[float(value) for value in row] for row in body.moments.second])
    inwards, outwards = reduce_basis(inertia)
    corners = body.flat.astype(object) @ np.array(inwards, dtype=object).T
    widest = np.abs(corners).max(axis=0)
    rates = [Fraction(1, int(width)) for width in widest]
    reach = facet_reach(body.facets, rates, inwards)
    return _proposal(tuple(rate / reach for rate in rates), np.array(outwards, dtype=np.int64))


def _proposal(rates: tuple[Fraction, ...], outwards: Ints) -> Proposal:
    return Proposal(np.array([float(rate) for rate in rates]), outwards, rates)


def reduce_basis(inertia: Floats) -> tuple[list[list[int]], list[list[int]]]:
    """Rows t_j of T, short and nearly orthogonal under t·inertia·t, and T's inverse transposed.

    Lagrange's step on every pair until no pair changes. Floats only choose the steps: T is a
    product of integer shears, hence unimodular for every choice.
    """
    d = len(inertia)
    rows, inverse = np.eye(d, dtype=int).tolist(), np.eye(d, dtype=int).tolist()
    for _ in range(MOST_ROUNDS):
        changed = False
        for i in range(d):
            for j in range(d):
                times = _shear(inertia, rows[j], rows[i]) if i != j else 0
                if times:
                    rows[j] = [a - times * b for a, b in zip(rows[j], rows[i], strict=True)]
                    inverse[i] = [
                        a + times * b for a, b in zip(inverse[i], inverse[j], strict=True)
                    ]
                    changed = True
        if not changed:
            break
    return rows, inverse


def _shear(inertia: Floats, row: list[int], by: list[int]) -> int:
    """How often `by` is taken from `row`; 0 unless that shortens it clearly."""
    own = np.array(by, dtype=np.float64)
    times = round(float(own @ inertia @ row) / float(own @ inertia @ own))
    left = np.array(row, dtype=np.float64) - times * own
    shorter = float(left @ inertia @ left) < (1 - 1e-9) * float(row @ inertia @ np.array(row))
    return times if shorter else 0


# One attempt at a K-norm draw on Python's integers: the meaning of the compiled attempts.
#
# An attempt has one word for each coordinate of the proposal and, beyond the line, one more that
# decides whether it is kept. The upper 63 bits of a word begin a uniform real U, which is
# continued with fresh words for as long as a comparison with a power of e is undecided.


@dataclass(slots=True, eq=False)
class Uniform:
    """A uniform real of which `bits` bits, the integer `prefix`, have been drawn."""

    prefix: int
    bits: int

    def below_exp(self, exponent: Fraction, rng: Rng) -> bool:
        """Whether U < exp(-exponent); each round of 64 bits fails with chance below 2^-61."""
        return self.below_scaled_exp(1, exponent, rng)

    def below_scaled_exp(self, share: Fraction | int, exponent: Fraction, rng: Rng) -> bool:
        """Whether U < share·exp(-exponent), for a rational share > 0."""
        if exponent == 0:
            return self.below(share, rng)
        while True:
            low, high = exp_bounds(exponent, self.bits)
            if self.prefix + 1 <= share * low:
                return True
            if self.prefix >= share * high:
                return False
            self._extend(rng)

    def below(self, share: Fraction | int, rng: Rng) -> bool:
        """Whether U < share."""
        while True:
            if self.prefix + 1 <= share * 2**self.bits:
                return True
            if self.prefix >= share * 2**self.bits:
                return False
            self._extend(rng)

    def _extend(self, rng: Rng) -> None:
        """64 more bits of U."""
        self.prefix = self.prefix << 64 | int(rng.words(1)[0])
        self.bits += 64


def exact_attempt(
    words: Sequence[int], body: Body, epsilon: Fraction, proposal: Proposal, rng: Rng
) -> tuple[int, ...] | None:
    """The draw these words make, in coordinates of the span; None when the attempt is rejected.

    Discrete Laplace draws w of rates ε rate_j, kept with probability exp(-γ),
    γ = ε (|y|_K - Σ rate_j |w_j|) >= 0, because the diamond of the proposal contains K.
    """
    inner = []
    for word, rate in zip(words, proposal.rates, strict=False):
        magnitude = geometric(Uniform(word >> 1, 63), epsilon * rate, rng)
        if word & 1 and magnitude == 0:
            return None
        inner.append(-magnitude if word & 1 else magnitude)
    row = proposal.outward(inner)
    if body.dimension >= 2:
        gamma = epsilon * (_norm(body, row) - proposal.height(inner))
        if not Uniform(words[-1] >> 1, 63).below_exp(gamma, rng):
            return None
    return tuple(int(value) for value in row[0])


def geometric(uniform: Uniform, rate: Fraction, rng: Rng) -> int:
    """The largest k with U < exp(-rate k): P(G >= k) = exp(-rate k). By doubling and bisection."""
    low, high = 0, 1
    while uniform.below_exp(rate * high, rng):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.below_exp(rate * middle, rng):
            low = middle
        else:
            high = middle
    return low


def _norm(body: Body, row: Ints) -> Fraction:
    """The exact norm of a row of the span."""
    norms = body.inner_norm(row)
    return Fraction(int(norms.numerators[0]), int(norms.denominators[0]))


# Batches of K-norm draws: compiled attempts, and exact ones where those are undecided.


SPARE = 8  # attempts asked for beyond the expected number
MOST_ATTEMPTS = 2**15  # at once, so that the words stay in the processor's cache


def compiled_draws(
    body: Body, epsilon: Fraction, proposal: Proposal, count: int, rng: Rng
) -> Integers:
    """`count` draws in the coordinates of the span of a segment or a planar body.

    Words are read in blocks; what is left of the last block is thrown away.
    """
    from shoal.noise import knorm_kernels

    width = 1 if body.dimension == 1 else 3
    drawn: Integers = np.empty((count, body.dimension), dtype=np.int64)
    rate = float(epsilon * proposal.rates[0]) if width == 1 else float(epsilon)
    filled = 0
    while filled < count and drawn.dtype != object:
        size = min(MOST_ATTEMPTS, 3 * (count - filled) + SPARE)
        words = rng.words(size * width).reshape(size, width)
        start = 0
        while start < size and filled < count and drawn.dtype != object:
            block = words[start:]
            if width == 1:
                state = knorm_kernels.line_attempts(block, rate, drawn, filled)
            else:
                state = knorm_kernels.plane_attempts(
                    block,
                    rate,
                    proposal.shares,
                    proposal.outwards,
                    body.flat,
                    drawn,
                    filled,
                )
            filled, used, undecided = state
            start += used + undecided
            if undecided:
                row = exact_attempt(block[used].tolist(), body, epsilon, proposal, rng)
                drawn, filled = _put(drawn, filled, row)
    if filled < count:  # a draw beyond 62 bits: the rest one by one, on the same terms
        drawn[filled:] = exact_draws(body, epsilon, proposal, count - filled, rng)
    return drawn


def exact_draws(
    body: Body, epsilon: Fraction, proposal: Proposal, count: int, rng: Rng
) -> Integers:
    """The same in any dimension, every attempt on Python's integers."""
    drawn: Integers = np.empty((count, body.dimension), dtype=np.int64)
    filled = 0
    while filled < count:
        words = rng.words(body.dimension + (body.dimension > 1)).tolist()
        row = exact_attempt(words, body, epsilon, proposal, rng)
        drawn, filled = _put(drawn, filled, row)
    return drawn


def _put(drawn: Integers, filled: int, row: tuple[int, ...] | None) -> tuple[Integers, int]:
    """`drawn` with the row added, if there is one; widened to Python's integers if it must be."""
    if row is None:
        return drawn, filled
    if drawn.dtype != object and any(abs(value) >= 2**62 for value in row):
        drawn = drawn.astype(object)
    drawn[filled] = row
    return drawn, filled + 1


# K-norm noise on a lattice: the planar isotropic mechanism, exactly.
#
# P(z) ∝ exp(-ε |z|_K) on the lattice points of the span of K. The normaliser does not depend on
# where the noise is added, so by the triangle inequality moving the answer by v changes any
# probability by a factor of at most exp(ε |v|_K): exactly ε for every policy edge. The planar
# isotropic mechanism of Xiao & Xiong 2015 is this law: its transform T changes nothing, because
# T⁻¹ of a uniform point of TK is a uniform point of K. The proof is in KNORM.md.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LatticeKNorm(Value):
    """Noise z on the lattice points of the span of `body`, P(z) ∝ exp(-epsilon |z|_K)."""

    kind = "lattice-k-norm"

    body: Body
    epsilon: Fraction
    proposal: Proposal = field(init=False, repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        amount = positive(self.epsilon, "epsilon")
        object.__setattr__(self, "epsilon", amount)
        object.__setattr__(self, "proposal", proposal_for(self.body))

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw with exactly the stated law, in lattice units."""
        return tuple(self._draws(1, rng)[0].tolist())

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` independent draws, one a row; Python's integers when one exceeds 62 bits."""
        return self._draws(whole(count, "count", least=0), rng)

    def _draws(self, count: int, rng: Rng) -> Ints:
        """Return `count` independent draws in lattice units, (count, ambient dimension).

        Compiled code draws in one and two dimensions, Python's exact sampler above.
        """
        match self.body.dimension:
            case 0:
                return np.zeros((count, self.body.ambient), dtype=np.int64)
            case 1 | 2:
                inner = compiled_draws(self.body, self.epsilon, self.proposal, count, rng)
            case _:
                inner = exact_draws(self.body, self.epsilon, self.proposal, count, rng)
        return self.body.span.vectors(inner)

    def log_weight(self, z: tuple[int, ...]) -> float:
        """-epsilon |z|_K as a float; -inf outside the span."""
        return float(self.log_weights(np.array([z], dtype=np.int64))[0])

    def log_weights(self, vectors: Ints) -> Floats:
        """-epsilon |z|_K of each row, within a relative 2^-50; -inf outside the span."""
        if self.body.ambient == self.body.dimension == 2 and largest(vectors) <= VECTOR_LIMIT:
            from shoal.noise.knorm_kernels import norms_of

            return np.asarray(-float(self.epsilon) * norms_of(self.body.flat, vectors))
        return -float(self.epsilon) * self.body.norm_upper(vectors)

    def log_ratios(self, shifts: Ints) -> Floats:
        """epsilon |v|_K of each row, rounded up; inf outside the span."""
        ratios: Floats = np.nextafter(float(self.epsilon) * self.body.norm_upper(shifts), np.inf)
        return ratios

    @property
    def mse(self) -> float:
        """E|z|², in squared lattice units; of the continuous law when there are too many points."""
        on_lattice = lattice_mse(self, self.body)
        return float(self.body.mse(self.epsilon)) if on_lattice is None else on_lattice


def noise_of(body: Body, epsilon: Fraction) -> LatticeKNorm:
    """The noise of an epsilon known to be one: skips the check of the constructor."""
    noise = object.__new__(LatticeKNorm)
    object.__setattr__(noise, "body", body)
    object.__setattr__(noise, "epsilon", epsilon)
    object.__setattr__(noise, "proposal", proposal_for(body))
    return noise


# Staircase noise on a lattice: the K-norm law in steps, for larger epsilon.
#
# P(z) ∝ exp(-ε ⌊|z|_K + 1 - width⌋). Moving the answer by v with |v|_K <= 1 moves the norm by at
# most 1, hence the floor by at most 1: ε for every policy edge. Between edges the loss goes up in
# whole steps, ε ⌈|v|_K⌉: pairs that are not neighbours are protected less than by K-norm noise.
# Geng & Viswanath 2014 in one dimension; here in the norm of a body. The proof is in KNORM.md.


WIDTHS = 64  # widths tried: 1/64, 2/64, …, 1
FLAT = 2.0**-10  # below this epsilon steps are so low that the K-norm law's moments serve


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Staircase(Value):
    """Noise with P(z) ∝ exp(-epsilon ⌊|z|_K + 1 - width⌋), 0 < width <= 1."""

    kind = "staircase"

    body: Body
    epsilon: Fraction
    width: Fraction
    source: LatticeKNorm = field(init=False, repr=False, metadata={"stored": False})

    def __post_init__(self) -> None:
        """Refuse a width outside (0, 1] or an epsilon <= 0; set the proposal law `source`."""
        width = exact(self.width, "width")
        if not 0 < width <= 1:
            raise InputError(f"width is {width}; it must be above 0 and at most 1")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "width", width)
        rate = min(self.epsilon, max(1, self.body.dimension) / width)
        object.__setattr__(self, "source", LatticeKNorm(body=self.body, epsilon=rate))

    @classmethod
    def best(cls, body: Body, epsilon: Fraction) -> Staircase:
        """The width of least mean squared error of the continuous law, among 1/64, …, 1."""
        width = best_width(positive(epsilon, "epsilon"), body.dimension)
        return cls(body=body, epsilon=epsilon, width=width)

    def draw(self, rng: Rng) -> tuple[int, ...]:
        """One draw with exactly the stated law."""
        return tuple(int(value) for value in self.draws(1, rng)[0])

    def draws(self, count: int, rng: Rng) -> Ints:
        """`count` draws: K-norm draws of rate ε' kept with chance exp(-(ε k - ε' (r - width))).

        r = |z|_K, k = ⌊r + 1 - width⌋, ε' = min(ε, d/width). The exponent is not negative, because
        r < k + width and ε' <= ε; with ε' = d/width a share that does not depend on ε is kept.
        """
        rows: list[Ints] = []
        found = 0
        while found < whole(count, "count", least=0):
            drawn = self.source.draws(count - found, rng)
            kept = drawn[self._kept(drawn, rng)]
            rows.append(kept)
            found += len(kept)
        return np.concatenate(rows) if rows else np.zeros((0, self.body.ambient), dtype=np.int64)

    def _kept(self, drawn: Ints, rng: Rng) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which K-norm draws stay: by floats where they are clear, else by more bits, exactly."""
        norms = self.body.norm(drawn)
        steps = self._steps(norms)
        words = (rng.words(len(drawn)) >> np.uint64(1)).astype(np.int64)
        ratio = norms.numerators.astype(np.float64) / norms.denominators.astype(np.float64)
        high, low = float(self.epsilon), float(self.source.epsilon)
        exponent = high * steps.astype(np.float64) + low * (float(self.width) - ratio)
        slack = 2.0**-40 * (1 + high * (2 + ratio))
        chance = np.exp(-np.maximum(exponent, 0.0))
        drawn_at = words.astype(np.float64) * 2.0**-63
        kept = drawn_at < chance
        close = np.abs(drawn_at - chance) <= slack
        for place in np.flatnonzero(close):
            norm = norms.fraction(int(place))
            assert norm is not None
            gamma = self.epsilon * int(steps[place]) + self.source.epsilon * (self.width - norm)
            kept[place] = Uniform(int(words[place]), 63).below_exp(gamma, rng)
        return kept

    def _steps(self, norms: Norms) -> Ints:
        """⌊r + 1 - width⌋, exact: r = q + f with 0 <= f < 1 gives q, and one more if f >= width."""
        below = np.where(norms.denominators > 0, norms.denominators, 1)
        quotient = norms.numerators // below  # Python's integers beyond the plane
        rest = norms.numerators - quotient * below
        share = rest.astype(np.float64) / below.astype(np.float64)
        further = share >= float(self.width)
        for place in np.flatnonzero(np.abs(share - float(self.width)) < 1e-12):
            further[place] = Fraction(int(rest[place]), int(below[place])) >= self.width
        return np.asarray(quotient + further)

    def log_weights(self, vectors: Ints) -> Floats:
        """-epsilon ⌊|z|_K + 1 - width⌋ of each row; -inf outside the span."""
        norms = self.body.norm(vectors)
        steps = self._steps(norms).astype(np.float64)
        return np.where(norms.denominators > 0, -float(self.epsilon) * steps, -np.inf)

    def log_ratios(self, shifts: Ints) -> Floats:
        """epsilon ⌈|v|_K⌉ of each row, rounded up; inf outside the span."""
        norms = self.body.norm(shifts)
        below = np.where(norms.denominators > 0, norms.denominators, 1)
        steps = -(-norms.numerators // below)
        ratios = np.nextafter(float(self.epsilon) * steps.astype(np.float64), np.inf)
        return np.where(norms.denominators > 0, ratios, np.inf)

    @property
    def mse(self) -> float:
        """E|z|², in squared lattice units; of the continuous law when there are too many points."""
        on_lattice = lattice_mse(self, self.body)
        if on_lattice is not None:
            return on_lattice
        d = self.body.dimension
        radial = radial_moment(float(self.epsilon), float(self.width), d)
        return float(self.body.second_moment) * (d + 2) / d * radial


def radial_moment(epsilon: float, width: float, dimension: int) -> float:
    """E r² of the norm r of continuous staircase noise, density ∝ r^(d-1) exp(-ε⌊r + 1 - width⌋).

    Step k covers [k - 1 + width, k + width), the first one [0, width). E|z|² = E r² (d+2)/d E_K|u|²
    because z/r is distributed as a uniform point's direction, whose norm has E r² = d/(d+2).
    Below FLAT d(d+1)/ε², that of the density r^(d-1) exp(-ε r), from which it differs by a share
    of at most e^(2ε) - 1.
    """
    d = dimension
    if epsilon < FLAT:
        return d * (d + 1) / epsilon**2
    k = np.arange(0, math.ceil(60 / epsilon) + 2, dtype=np.float64)
    low, high = np.maximum(k - 1 + width, 0.0), k + width
    weight = np.exp(-epsilon * k)
    mass = (weight * (high**d - low**d)).sum() / d
    second = (weight * (high ** (d + 2) - low ** (d + 2))).sum() / (d + 2)
    return float(second / mass)


@lru_cache(maxsize=256)
def best_width(epsilon: Fraction, dimension: int) -> Fraction:
    """The width of least E r² among 1/64, 2/64, …, 1; 1/2 below FLAT, where all are alike."""
    if epsilon < FLAT:
        return Fraction(1, 2)
    widths = [Fraction(k, WIDTHS) for k in range(1, WIDTHS + 1)]
    dimension = max(1, dimension)
    return min(widths, key=lambda width: radial_moment(float(epsilon), float(width), dimension))
