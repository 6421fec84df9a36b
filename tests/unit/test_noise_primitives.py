"""The scalar laws against their closed forms, by walking every random choice they can make."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from shoal.core.charge import Rng
from shoal.noise import primitives
from shoal.noise.primitives import SeededRng

Law = dict[Hashable, Fraction]


class Undecided(Exception):
    """The script of choices ran out before the draw ended."""

    def __init__(self, chances: list[Fraction]) -> None:
        self.chances = chances


class Script:
    """Answers each random choice from a fixed list of choices."""

    def __init__(self, choices: tuple[int, ...]) -> None:
        self.choices = choices
        self.used = 0

    def choose(self, chances: list[Fraction]) -> int:
        if max(chances) == 1:
            return chances.index(Fraction(1))
        if self.used == len(self.choices):
            raise Undecided(chances)
        self.used += 1
        return self.choices[self.used - 1]

    def uniform_below(self, bound: int, rng: Rng) -> int:
        return self.choose([Fraction(1, bound)] * bound)

    def random_bits(self, bits: int, rng: Rng) -> int:
        return self.uniform_below(2**bits, rng)

    def bernoulli(self, numerator: int, denominator: int, rng: Rng) -> bool:
        chance = Fraction(numerator, denominator)
        return self.choose([1 - chance, chance]) == 1


def walk(draw: Callable[[], Hashable], monkeypatch: pytest.MonkeyPatch) -> tuple[Law, Fraction]:
    """The exact law of a draw, and the mass of the unlikely branches that were not followed."""
    law: Law = defaultdict(Fraction)
    unexplored = Fraction(0)
    stack: list[tuple[tuple[int, ...], Fraction]] = [((), Fraction(1))]
    while stack:
        choices, mass = stack.pop()
        if mass < Fraction(1, 10**5):
            unexplored += mass
            continue
        script = Script(choices)
        monkeypatch.setattr(primitives, "uniform_below", script.uniform_below)
        monkeypatch.setattr(primitives, "_random_bits", script.random_bits)
        monkeypatch.setattr(primitives, "bernoulli", script.bernoulli)
        try:
            law[draw()] += mass
        except Undecided as more:
            stack += [((*choices, i), mass * chance) for i, chance in enumerate(more.chances)]
    return law, unexplored


ANY = SeededRng(0)


@pytest.mark.parametrize(("p", "q"), [(0, 1), (1, 3), (1, 1), (3, 2), (7, 3)])
def test_bernoulli_exp_has_its_closed_form(p: int, q: int, monkeypatch: pytest.MonkeyPatch) -> None:
    law, unexplored = walk(lambda: primitives.bernoulli_exp(p, q, ANY), monkeypatch)
    assert unexplored < 1e-3
    assert law[True] <= math.exp(-p / q) + 1e-15
    assert math.exp(-p / q) <= law[True] + unexplored + 1e-15


@pytest.mark.parametrize(("p", "q"), [(1, 1), (2, 3), (3, 2)])
def test_geometric_has_its_closed_form(p: int, q: int, monkeypatch: pytest.MonkeyPatch) -> None:
    law, unexplored = walk(lambda: primitives.geometric(p, q, ANY), monkeypatch)
    assert unexplored < 0.04
    for k in range(6):
        exact = (1 - math.exp(-p / q)) * math.exp(-k * p / q)
        assert law[k] <= exact <= law[k] + unexplored


def test_discrete_laplace_counts_zero_once(monkeypatch: pytest.MonkeyPatch) -> None:
    law, unexplored = walk(lambda: primitives.discrete_laplace(2, 1, ANY), monkeypatch)
    assert unexplored < 0.04
    for z in range(-3, 4):
        exact = math.tanh(1) * math.exp(-2 * abs(z))
        assert law[z] <= exact <= law[z] + unexplored
    doubled = 1 - math.exp(-2)  # what 0 would get if minus zero were kept
    assert doubled > law[0] + unexplored


class EveryWord:
    """Gives the words whose leading bits run through 0, 1, 2, ... once, in order."""

    secure = False

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self.next = 0

    def words(self, count: int) -> NDArray[np.uint64]:
        first = self.next
        self.next += count
        leading = np.arange(first, first + count, dtype=np.uint64)
        return leading << np.uint64(64 - self.bits)


def test_bernoulli_counts_the_values_below_its_numerator() -> None:
    rng = EveryWord(3)
    assert [primitives.bernoulli(2, 7, rng) for _ in range(7)] == [True] * 2 + [False] * 5


@pytest.mark.parametrize("bound", [2, 3, 5, 8, 13])
def test_uniform_below_gives_each_value_once(bound: int) -> None:
    rng = EveryWord((bound - 1).bit_length())
    drawn = [primitives.uniform_below(bound, rng) for _ in range(2 * bound)]
    assert drawn == 2 * list(range(bound)), "values of bound and more are drawn again"


def test_uniform_below_one_needs_no_randomness() -> None:
    rng = EveryWord(1)
    assert primitives.uniform_below(1, rng) == 0
    assert rng.next == 0


def test_uniform_below_a_bound_of_many_words() -> None:
    bound = 3**100
    rng = SeededRng(5)
    drawn = [primitives.uniform_below(bound, rng) for _ in range(300)]
    assert all(0 <= value < bound for value in drawn)
    assert sum(value > bound // 2 for value in drawn) in range(90, 211)
    assert len({value % 2**64 for value in drawn}) == 300


def test_a_huge_rate_stops_at_the_first_failure() -> None:
    rng = SeededRng(1)
    assert not any(primitives.bernoulli_exp(10**30, 1, rng) for _ in range(50))
    assert {primitives.geometric(10**6, 1, rng) for _ in range(50)} == {0}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: primitives.uniform_below(0, ANY), "bound is 0; it must be at least 1"),
        (lambda: primitives.bernoulli(3, 2, ANY), "probability is 3/2; it must lie between 0 and"),
        (lambda: primitives.bernoulli(-1, 2, ANY), "probability is -1/2"),
        (lambda: primitives.bernoulli(0, 0, ANY), "probability is 0/0"),
        (lambda: primitives.bernoulli_exp(-1, 2, ANY), "rate is -1/2; its numerator must be at"),
        (lambda: primitives.geometric(0, 1, ANY), "rate is 0/1; its numerator must be at least 1"),
        (lambda: primitives.discrete_laplace(1, 0, ANY), "rate is 1/0"),
    ],
)
def test_refusals_name_field_value_and_rule(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
