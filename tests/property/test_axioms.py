"""The axioms of privacy, on finite mechanisms in exact rationals.

A mechanism is a table P(output | data). Its Pufferfish factor is the largest ratio, over outputs
and secret pairs, of P(output | secret) = Σ_data P(data | secret) P(output | data).
Post-processing: a random map of the outputs never raises the factor. Convexity: choosing between
two mechanisms by a coin that does not see the data never does either. Kifer & Lin 2010.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import assume, given, strategies as st

Table = list[list[Fraction]]
DATA, OUTPUTS = 4, 3


@st.composite
def laws(draw: st.DrawFn, size: int) -> list[Fraction]:
    """A law on `size` outcomes, zeros welcome."""
    weights = draw(st.lists(st.integers(0, 6), min_size=size, max_size=size))
    assume(sum(weights) > 0)
    return [Fraction(weight, sum(weights)) for weight in weights]


def tables(rows: int, columns: int) -> st.SearchStrategy[Table]:
    return st.lists(laws(columns), min_size=rows, max_size=rows)


def given_secret(belief: list[Fraction], mechanism: Table) -> list[Fraction]:
    """The law of the output when the data follows `belief`."""
    return [
        sum((p * row[o] for p, row in zip(belief, mechanism, strict=True)), Fraction(0))
        for o in range(len(mechanism[0]))
    ]


def factor(beliefs: Table, mechanism: Table) -> Fraction | None:
    """The largest ratio between two secrets; None when it is infinite. 0/0 is no constraint."""
    seen = [given_secret(belief, mechanism) for belief in beliefs]
    worst = Fraction(1)
    for top in seen:
        for bottom in seen:
            for a, b in zip(top, bottom, strict=True):
                if a > 0 and b == 0:
                    return None
                worst = max(worst, a / b) if b > 0 else worst
    return worst


def no_more(after: Fraction | None, before: Fraction | None) -> bool:
    return before is None or (after is not None and after <= before)


def composed(mechanism: Table, channel: Table) -> Table:
    return [given_secret(row, channel) for row in mechanism]


@given(tables(3, DATA), tables(DATA, OUTPUTS), tables(OUTPUTS, 4))
def test_post_processing_never_tells_more(beliefs: Table, mechanism: Table, channel: Table) -> None:
    processed = composed(mechanism, channel)
    assert no_more(factor(beliefs, processed), factor(beliefs, mechanism))


@given(tables(3, DATA), tables(DATA, OUTPUTS), tables(DATA, OUTPUTS), laws(2))
def test_a_blind_choice_between_mechanisms_tells_no_more_than_the_worse(
    beliefs: Table, one: Table, other: Table, coin: list[Fraction]
) -> None:
    heads, tails = coin
    hidden = [
        [heads * a + tails * b for a, b in zip(x, y, strict=True)]
        for x, y in zip(one, other, strict=True)
    ]
    shown = [
        [*(heads * a for a in x), *(tails * b for b in y)] for x, y in zip(one, other, strict=True)
    ]
    factors = [factor(beliefs, one), factor(beliefs, other)]
    worse = None if None in factors else max(f for f in factors if f is not None)
    assert no_more(factor(beliefs, shown), worse)
    assert no_more(factor(beliefs, hidden), factor(beliefs, shown))


@given(tables(2, DATA), tables(DATA, OUTPUTS))
def test_a_choice_that_sees_the_data_may_tell_everything(beliefs: Table, mechanism: Table) -> None:
    """The control: choosing by the data itself is no axiom, and the factor shows it."""
    assume(beliefs[0] != beliefs[1])
    told = [
        [*(value if row == place else Fraction(0) for place in range(DATA) for value in outputs)]
        for row, outputs in enumerate(mechanism)
    ]
    ratios = [
        a / b if b else None for a, b in zip(beliefs[0], beliefs[1], strict=True) if a > 0 or b > 0
    ]
    told_all = factor(beliefs, told)
    if None in ratios:
        assert told_all is None
    elif told_all is not None:
        assert told_all >= max(ratio for ratio in ratios if ratio is not None)


@given(tables(3, DATA), tables(DATA, OUTPUTS), tables(OUTPUTS, 3), tables(3, 2))
def test_processing_again_only_loses(
    beliefs: Table, mechanism: Table, first: Table, second: Table
) -> None:
    steps = [mechanism, composed(mechanism, first), composed(composed(mechanism, first), second)]
    factors = [factor(beliefs, step) for step in steps]
    assert all(no_more(after, before) for before, after in pairwise(factors))
