"""The batch sampler: certified tables, exact decisions on ties, refills, and wide integers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import shoal.noise
from shoal.core.charge import Rng
from shoal.noise import laplace as digits_module
from shoal.noise.laplace import (
    WORD_BITS,
    Digit,
    LatticeLaplace,
    digits_of,
    geometric_batch,
    laplace_batch,
    make_digit,
)
from shoal.noise.primitives import SeededRng

RATES = [
    Fraction(10**6),
    Fraction(3),
    Fraction(1),
    Fraction(5, 37),
    Fraction(1, 1000),
    Fraction(2**10, 10**6 + 3),
    Fraction(1, 10**12),
    Fraction(1, 2**60 + 1),
]


def break_point(digit: Digit, j: int) -> Decimal:
    """F(j) of the digit's law to 150 figures, by an arithmetic the sampler does not use."""
    with localcontext() as context:
        context.prec = 150
        rate = Decimal(digit.rate.numerator) / Decimal(digit.rate.denominator)
        below = 1 - (-rate * j).exp()
        return below if digit.last else below / (1 - (-rate * digit.size).exp())


def leading_bits(value: Decimal, bits: int) -> int:
    with localcontext() as context:
        context.prec = 150
        return int(value * 2**bits)


class Scripted:
    """A source that gives the listed words, then fails."""

    secure = False

    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        given, self.left = self.left[:count], self.left[count:]
        if len(given) < count:
            raise AssertionError("more words were asked for than the draw may need")
        return np.array(given, dtype=np.uint64)


class Blocks:
    """A source that fetches a seeded stream in blocks of one size and hands out what is asked."""

    secure = False

    def __init__(self, source: Rng, size: int) -> None:
        self.source = source
        self.size = size
        self.kept: list[int] = []

    def words(self, count: int) -> NDArray[np.uint64]:
        while len(self.kept) < count:
            self.kept += self.source.words(self.size).tolist()
        given, self.kept = self.kept[:count], self.kept[count:]
        return np.array(given, dtype=np.uint64)


@pytest.mark.parametrize("rate", RATES)
def test_every_break_is_the_beginning_of_the_closed_form(rate: Fraction) -> None:
    for digit in digits_of(rate):
        entries = digit.size if digit.last else digit.size - 1
        assert digit.breaks.size == entries + 1
        assert int(digit.breaks[-1]) == 2**WORD_BITS
        for j in {1, 2, 3, entries // 2, entries - 1, entries} & set(range(1, entries + 1)):
            # F(j) is below 1 even where 150 figures do not show it
            beginning = min(leading_bits(break_point(digit, j), WORD_BITS), 2**WORD_BITS - 1)
            assert int(digit.breaks[j - 1]) == beginning


@pytest.mark.parametrize("rate", RATES)
def test_the_digits_of_a_draw_cover_the_integers_once(rate: Fraction) -> None:
    digits = digits_of(rate)
    reach = 1
    for digit in digits:
        assert 2**digit.shift == reach
        assert digit.rate == rate * reach
        assert digit.last == (digit is digits[-1])
        reach *= digit.size
    assert reach == 1 or 2 <= reach * rate <= 4


@pytest.mark.parametrize("rate", RATES)
def test_look_up_counts_the_breaks_at_or_below_the_word(rate: Fraction) -> None:
    for digit in digits_of(rate):
        around = np.concatenate([digit.breaks[:-1] + offset for offset in (-1, 1)])
        words = np.concatenate([around, [0, 2**WORD_BITS - 1], random_words(2000)])
        words = np.unique(np.clip(words, 0, 2**WORD_BITS - 1))
        words = words[~np.isin(words, digit.breaks)]
        found = digit.look_up(words, Scripted([]))
        assert (found == np.searchsorted(digit.breaks, words, side="right")).all()


def random_words(count: int) -> NDArray[np.int64]:
    return (SeededRng(9).words(count) >> np.uint64(2)).astype(np.int64)


@pytest.mark.parametrize("rate", [Fraction(5, 37), Fraction(1, 1000), Fraction(1, 10**6)])
@pytest.mark.parametrize("j", [1, 2, 5])
def test_a_word_on_a_break_is_decided_by_the_next_words(rate: Fraction, j: int) -> None:
    for digit in digits_of(rate):
        if j > digit.size - 1:
            continue
        exact = break_point(digit, j)
        first, second, third = (
            leading_bits(exact, WORD_BITS + 64 * more) % 2 ** (64 if more else WORD_BITS)
            for more in range(3)
        )
        word = np.array([first], dtype=np.int64)

        def digit_after(*more: int, digit: Digit = digit, word: Any = word) -> int:
            return int(digit.look_up(word, Scripted(more))[0])

        assert digit_after(second - 1) == j - 1
        assert digit_after(second + 1) == j
        assert digit_after(second, third - 1) == j - 1
        assert digit_after(second, third + 1) == j


def test_a_word_equal_to_many_breaks_is_decided_among_them() -> None:
    """At rate 40 the second and later breaks all begin with 62 ones: U says which it is."""
    digit = make_digit(Fraction(40), 0, 3, last=True)
    assert (digit.breaks[1:-1] == 2**WORD_BITS - 1).all()
    ones, word = 2**64 - 1, np.array([2**WORD_BITS - 1], dtype=np.int64)
    for j in (2, 3, 5):
        # U lies just above F(j) when it has the same leading bits and then a 1 more
        bits = WORD_BITS + 64 * 6
        prefix = leading_bits(break_point(digit, j), bits) + 1
        tail = [prefix >> 64 * place & ones for place in reversed(range(6))]
        assert int(digit.look_up(word, Scripted(tail))[0]) == j


def test_an_unsure_table_is_made_again_with_more_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    honest = digits_module._breaks

    def unsure_at_first(rate: Fraction, size: int, *, last: bool, precision: int) -> Any:
        tried.append(precision)
        return None if len(tried) < 3 else honest(rate, size, last=last, precision=precision)

    monkeypatch.setattr(digits_module, "_breaks", unsure_at_first)
    again = make_digit(Fraction(1, 9), 0, 4, last=True)
    monkeypatch.undo()
    assert tried == [126, 252, 504]
    assert (again.breaks == make_digit(Fraction(1, 9), 0, 4, last=True).breaks).all()


def test_too_few_bits_make_a_table_unsure() -> None:
    assert digits_module._breaks(Fraction(1, 9), 16, last=True, precision=56) is None


@pytest.mark.parametrize("rate", [Fraction(3), Fraction(2, 15), Fraction(1, 10**6)])
def test_draws_do_not_depend_on_how_words_are_refilled(rate: Fraction) -> None:
    direct = laplace_batch(rate, 2000, SeededRng(4)).tolist()
    for size in (1, 7, 4096):
        assert laplace_batch(rate, 2000, Blocks(SeededRng(4), size)).tolist() == direct
    law = LatticeLaplace(Fraction(1), rate)
    one_by_one = law.draw(20, SeededRng(4)).tolist()
    for size in (1, 7, 4096):
        assert law.draw(20, Blocks(SeededRng(4), size)).tolist() == one_by_one


def test_a_draw_beyond_the_last_digit_goes_on_where_it_is() -> None:
    """One digit of 2 bits at rate 1: "4 or more", then "4 or more", then 1 is 9."""
    (digit,) = digits_of(Fraction(1))
    assert digit.size == 4
    beyond, one = 2**WORD_BITS - 1, int(digit.breaks[0]) + 1
    first = np.array([beyond], dtype=np.int64)
    drawn = geometric_batch(first, (digit,), Scripted([beyond << 2, one << 2]))
    assert drawn.tolist() == [9]


def test_minus_zero_is_drawn_again_and_plus_zero_is_kept() -> None:
    (digit,) = digits_of(Fraction(1))
    two = (int(digit.breaks[1]) + 1) << 2
    minus_zero, plus_zero, minus_two = 1, 0, two | 1
    drawn = laplace_batch(
        Fraction(1), 4, Scripted([minus_two, minus_zero, plus_zero, minus_zero, minus_zero, two, 0])
    )
    assert drawn.tolist() == [-2, 0, 0, 2]


@pytest.mark.parametrize("ratio", [2**54, 2**54 + 1, 2**70])
def test_integers_widen_and_never_wrap(ratio: int) -> None:
    """Only ones for 1000 digits: the noise is past 64 bits, and Python's integers hold it."""
    digits = digits_of(Fraction(1, ratio))
    ones = 2**64 - 1
    stream = Scripted([ones] * (len(digits) + 999) + [0])
    (drawn,) = laplace_batch(Fraction(1, ratio), 1, stream).tolist()
    lower = 2 ** digits[-1].shift - 1
    assert drawn == -(lower + 1000 * (digits[-1].size << digits[-1].shift))
    assert abs(drawn) > 2**64


def test_one_wide_draw_among_narrow_ones_keeps_them_all() -> None:
    rate = Fraction(1, 2**54)
    digits = digits_of(rate)
    ones, lows = 2**64 - 1, 7 << 2
    # minus zero once, so that the wide draw comes in the second round
    begin = [lows, 1, lows] + [0] * 3 * (len(digits) - 1)
    stream = Scripted([*begin, *[ones] * (len(digits) + 999), 0])
    narrow, wide, also = laplace_batch(rate, 3, stream).tolist()
    assert narrow == also
    assert 0 <= narrow < 2**20
    assert wide < -(2**64)


def floats_seen(work: Callable[[], object]) -> set[str]:
    """Where, in the noise package, a local variable held a float while `work` ran."""
    folder = str(Path(next(iter(shoal.noise.__path__))))
    seen: set[str] = set()

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(folder):
            return None
        for value in [*frame.f_locals.values(), arg]:
            inexact = isinstance(value, float) or (
                isinstance(value, np.ndarray) and value.dtype.kind not in "iubO"
            )
            if inexact:
                seen.add(frame.f_code.co_qualname)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("count", [5, 100])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(10**5, 7), Fraction(2**60)])
def test_no_float_ever_touches_a_draw(count: int, scale: Fraction) -> None:
    digits_of.cache_clear()
    law = LatticeLaplace(scale, Fraction(1))
    assert floats_seen(lambda: law.draw(count, SeededRng(2))) == set()


def test_the_watch_for_floats_sees_them() -> None:
    law = LatticeLaplace(Fraction(3), Fraction(1))
    assert "LatticeLaplace.expected_error" in floats_seen(law.expected_error)
