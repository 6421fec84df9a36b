"""Parallel composition over independent components, and why ties forbid it: whole joint laws.

Proof: src/shoal/ledger/rules.md, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st


def laws(bits: int = 2) -> st.SearchStrategy[np.ndarray]:
    """Joint laws of a few bits, zeros included."""
    weights = st.lists(st.integers(0, 9), min_size=2**bits, max_size=2**bits).filter(any)
    return weights.map(lambda w: np.array(w, dtype=float).reshape((2,) * bits) / sum(w))


def respond(truth: int, output: int, epsilon: float) -> float:
    """P(output | truth) of randomised response."""
    keep = 1 / (1 + math.exp(-epsilon))
    return keep if output == truth else 1 - keep


def count_parity(data: tuple[int, ...], output: int, epsilon: float) -> float:
    return respond(sum(data) % 2, output, epsilon)


def first_bit(data: tuple[int, ...], output: int, epsilon: float) -> float:
    return respond(data[0], output, epsilon)


def loss(likelihood: dict[tuple[int, int], dict[object, float]]) -> float:
    """The largest log-ratio over outputs, between the two values of any single bit."""
    worst = 0.0
    for bit in {place for place, _ in likelihood}:
        if (bit, 0) not in likelihood or (bit, 1) not in likelihood:
            continue  # a value the bit never takes is no secret
        zero, one = likelihood[bit, 0], likelihood[bit, 1]
        for output in zero.keys() | one.keys():
            a, b = zero.get(output, 0.0), one.get(output, 0.0)
            if a or b:
                worst = max(worst, abs(math.log(a / b)) if a and b else math.inf)
    return worst


def likelihoods(
    law: np.ndarray, release: Callable[[tuple[int, ...]], dict[object, float]]
) -> dict[tuple[int, int], dict[object, float]]:
    """P(output | bit = value), by enumeration of the whole law."""
    found: dict[tuple[int, int], dict[object, float]] = {}
    mass: dict[tuple[int, int], float] = {}
    for data in product((0, 1), repeat=law.ndim):
        for place, value in enumerate(data):
            if law[data] == 0:
                continue
            mass[place, value] = mass.get((place, value), 0.0) + law[data]
            row = found.setdefault((place, value), {})
            for output, probability in release(data).items():
                row[output] = row.get(output, 0.0) + law[data] * probability
    return {key: {o: p / mass[key] for o, p in row.items()} for key, row in found.items()}


@settings(max_examples=150, deadline=None)
@given(laws(), laws(), st.floats(0.1, 3), st.floats(0.1, 3), st.booleans())
def test_independent_components_lose_the_largest_of_their_losses(
    left: np.ndarray, right: np.ndarray, epsilon: float, other: float, adaptive: bool
) -> None:
    """Also when the second mechanism is chosen by the output of the first."""

    def second(data: tuple[int, ...], output: int, seen: int) -> float:
        return (first_bit if adaptive and seen else count_parity)(data, output, other)

    def both(data: tuple[int, ...]) -> dict[object, float]:
        one, two = data[:2], data[2:]
        return {
            (a, b): count_parity(one, a, epsilon) * second(two, b, a)
            for a, b in product((0, 1), repeat=2)
        }

    def second_alone(seen: int) -> Callable[[tuple[int, ...]], dict[object, float]]:
        return lambda data: {b: second(data, b, seen) for b in (0, 1)}

    joint = np.multiply.outer(left, right)
    alone = [
        loss(likelihoods(left, lambda data: {a: count_parity(data, a, epsilon) for a in (0, 1)})),
        *(loss(likelihoods(right, second_alone(seen))) for seen in (0, 1)),
    ]
    assert loss(likelihoods(joint, both)) <= max(alone) + 1e-9


def test_the_largest_is_reached() -> None:
    fair = np.full((2, 2), 0.25)

    def both(data: tuple[int, ...]) -> dict[object, float]:
        return {
            (a, b): first_bit(data[:2], a, 1.0) * first_bit(data[2:], b, 0.5)
            for a, b in product((0, 1), repeat=2)
        }

    assert loss(likelihoods(np.multiply.outer(fair, fair), both)) == pytest.approx(1.0)


def test_tied_components_add_so_a_tie_forbids_the_rule() -> None:
    """Two copies of one fair bit, randomised response on each: 2·ε (ERRATA, Theorem 4)."""
    copies = np.array([[0.5, 0.0], [0.0, 0.5]])

    def both(data: tuple[int, ...]) -> dict[object, float]:
        return {
            (a, b): respond(data[0], a, 1.0) * respond(data[1], b, 1.0)
            for a, b in product((0, 1), repeat=2)
        }

    assert loss(likelihoods(copies, both)) == pytest.approx(2.0)


@settings(max_examples=100, deadline=None)
@given(laws(), laws(), st.floats(0.1, 3), st.floats(0.1, 3))
def test_independent_days_raise_no_belief_more_than_the_worst_day(
    left: np.ndarray, right: np.ndarray, epsilon: float, other: float
) -> None:
    """max δ: the posterior of a bit given both days' outputs is that given its own day's."""

    def rise(law: np.ndarray, release: Callable[[tuple[int, ...]], dict[object, float]]) -> float:
        worst = 0.0
        told = likelihoods(law, release)
        for (place, value), row in told.items():
            prior = float(law.sum(axis=tuple(a for a in range(law.ndim) if a != place))[value])
            rest = told.get((place, 1 - value), {})
            for output, likelihood in row.items():
                total = prior * likelihood + (1 - prior) * rest.get(output, 0.0)
                worst = max(worst, prior * likelihood / total - prior if total else 0.0)
        return worst

    def both(data: tuple[int, ...]) -> dict[object, float]:
        return {
            (a, b): count_parity(data[:2], a, epsilon) * first_bit(data[2:], b, other)
            for a, b in product((0, 1), repeat=2)
        }

    one = rise(left, lambda data: {a: count_parity(data, a, epsilon) for a in (0, 1)})
    two = rise(right, lambda data: {b: first_bit(data, b, other) for b in (0, 1)})
    assert rise(np.multiply.outer(left, right), both) <= max(one, two) + 1e-9
