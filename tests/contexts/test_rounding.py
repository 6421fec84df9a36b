"""Rises of belief that are rounded up by a bound known beforehand, against sixty-digit decimals.

Laws, masses and beliefs are followed here in decimals, path weights over path weights; nothing but
the numbers under test comes from the library. Without the bound some of them are below the truth.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.contexts.checks.rows import mask
from shoal.contexts.checks.task import mask_plan
from shoal.contexts.day import DayChain
from shoal.contexts.machine import VectorMask
from shoal.contexts.search import beliefs
from shoal.contexts.search.beliefs import Day, memoryless_rise, prepare, segment_rise
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.task import Task
from shoal.mechanisms.table import verify_promise

TINY = (0.0, 5e-324, 1e-310, 1e-300, 1e-160, 1e-80, 1e-16, 2.0**-30, 0.25)
Law = list[Decimal]


def chain(rng: np.random.Generator, size: int, slots: int) -> tuple[Any, Any]:
    """Rows that are common, nearly certain, or hold entries down to the least double."""

    def row() -> Any:
        kind = rng.integers(3)
        weights = rng.random(size) if kind == 0 else rng.choice(TINY, size=size)
        if kind == 2:
            weights = weights * 1e-3
        weights[rng.integers(size)] += 1.0
        return weights / weights.sum()

    return row(), np.array([[row() for _ in range(size)] for _ in range(slots - 1)])


def onward(law: Law, hidden: Any, matrix: Any) -> Law:
    """The masses one slot later, given that this slot was suppressed."""
    size = len(law)
    return [
        sum(
            (
                law[k] * Decimal(float(hidden[k])) * Decimal(float(matrix[k, j]))
                for k in range(size)
            ),
            Decimal(0),
        )
        for j in range(size)
    ]


def true_priors(initial: Any, matrices: Any) -> list[Law]:
    """P(X_t = j) by the weights of whole paths, divided by the weight of all of them."""
    size = len(initial)
    ahead = [[Decimal(float(p)) for p in initial]]
    for matrix in matrices:
        ahead.append(onward(ahead[-1], np.ones(size), matrix))
    back = [[Decimal(1)] * size]
    for matrix in matrices[::-1]:
        later = back[-1]
        back.append(
            [
                sum((Decimal(float(matrix[k, j])) * later[j] for j in range(size)), Decimal(0))
                for k in range(size)
            ]
        )
    total = sum(ahead[-1], Decimal(0))
    return [
        [a * b / total for a, b in zip(*pair, strict=True)]
        for pair in zip(ahead, back[::-1], strict=True)
    ]


def true_rise(initial: Any, matrices: Any, origin: Any, hidden: Any, shares: Any) -> Decimal:
    """max of share·(belief - prior) over the outcomes that end the segment after a release."""
    slots, (slot, state) = len(hidden), origin
    priors = true_priors(initial, matrices)
    first = initial if slot < 0 else (matrices[slot][state] if slot < slots - 1 else None)
    worst = Decimal(0)
    for when, who in np.argwhere(shares > 0).tolist():
        if when < slot or priors[when][who] == 0:
            continue
        share, prior = Decimal(float(shares[when, who])), priors[when][who]
        if when == slot:
            worst = max(worst, share * (int(who == state) - prior))
            continue
        assert first is not None
        law = [Decimal(float(p)) for p in first]
        both = list(law)
        for t in range(slot + 1, slots + 1):
            if t == when:
                both = [mass if j == who else Decimal(0) for j, mass in enumerate(law)]
            if t == slots:  # the end shows no state
                total = sum(law, Decimal(0))
                if total > 0:
                    worst = max(worst, share * (sum(both, Decimal(0)) / total - prior))
                break
            for j in range(len(law)) if t >= when else ():
                if law[j] > 0 and hidden[t, j] < 1:
                    worst = max(worst, share * (both[j] / law[j] - prior))
            if t == slots - 1:
                law = [m * Decimal(float(h)) for m, h in zip(law, hidden[t], strict=True)]
                both = [m * Decimal(float(h)) for m, h in zip(both, hidden[t], strict=True)]
            else:
                law, both = (onward(x, hidden[t], matrices[t]) for x in (law, both))
    return worst


def cases(seed: int) -> tuple[Any, Any, Any, Any, list[tuple[int, int]]]:
    """A chain, its shares, suppression probabilities, and some releases that can occur."""
    rng = np.random.default_rng(seed)
    size, slots = int(rng.integers(2, 5)), int(rng.integers(2, 25))
    initial, matrices = chain(rng, size, slots)
    shares = np.zeros((slots, size))
    shares[:, 0] = float(rng.choice([1.0, 2.0, 3.0]))
    levels = np.array([0.0, 1 / 65536, 0.5, 65533 / 65536, 1.0])
    hidden = rng.choice(levels, p=[0.05, 0.15, 0.3, 0.2, 0.3], size=(slots, size))
    hidden[:, 0] = 1.0
    possible = np.zeros((slots, size), dtype=np.bool_)
    possible[0] = initial > 0
    for t in range(slots - 1):
        possible[t + 1] = (matrices[t][possible[t]] > 0).any(axis=0)
    listed = np.argwhere(possible & (hidden < 1)).tolist()
    chosen = [tuple(listed[k]) for k in rng.permutation(len(listed))[:3]]
    return initial, matrices, shares, hidden, [(-1, 0), *chosen]


def day_of(initial: Any, matrices: Any, shares: Any) -> Day:
    return prepare(initial, matrices, shares, 0.1, everything=True)


@pytest.mark.parametrize("seed", range(60))
def test_the_rise_of_a_segment_is_never_below_the_truth_nor_far_above_it(seed: int) -> None:
    initial, matrices, shares, hidden, origins = cases(seed)
    day = day_of(initial, matrices, shares)
    off = 4 * beliefs.relative_error(day.slots, day.size) * float(shares.max())
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -(10**7), 10**7
        truths = [true_rise(initial, matrices, o, hidden, shares) for o in origins]
        for origin, truth in zip(origins, truths, strict=True):
            said = segment_rise(day, *origin, hidden)
            assert Decimal(said) >= truth
            assert Decimal(said) <= truth + Decimal(off)
        assert Decimal(memoryless_rise(day, hidden)) >= max(truths)


def test_without_the_bound_some_rises_are_below_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beliefs, "UNIT_ROUNDOFF", 0.0)
    monkeypatch.setattr(beliefs, "LOST_TO_UNDERFLOW", 0.0)
    below = 0
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -(10**7), 10**7
        for seed in range(60):
            initial, matrices, shares, hidden, origins = cases(seed)
            day = day_of(initial, matrices, shares)
            truths = [true_rise(initial, matrices, o, hidden, shares) for o in origins]
            said = [segment_rise(day, *o, hidden) for o in origins]
            below += sum(Decimal(s) < truth for s, truth in zip(said, truths, strict=True))
    assert below > 10


@pytest.mark.parametrize("seed", range(8))
def test_priors_are_rounded_down_by_the_weights_of_whole_paths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    initial, matrices = chain(rng, 3, 30)
    matrices = matrices * (1 + rng.uniform(-1, 1, size=(29, 3, 1)) * 1e-13)  # sums off by that
    day = day_of(initial, matrices, np.ones((30, 3)))
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = 60, -(10**7), 10**7
        priors = true_priors(initial, matrices)
        for c, (when, who) in enumerate(zip(day.when.tolist(), day.who.tolist(), strict=True)):
            truth, said = priors[when][who], Decimal(float(day.least_prior[c]))
            assert said <= truth + Decimal("1e-300")
            assert said >= truth * (1 - Decimal("1e-11")) - Decimal("1e-300")


@pytest.mark.parametrize("slots", [5, 40])
def test_what_a_search_finds_keeps_its_bound_in_decimals(slots: int) -> None:
    rng = np.random.default_rng(slots)
    moves = 0.3 * rng.dirichlet(np.ones(4), size=(slots - 1, 4)) + 0.7 * np.eye(4)
    day = DayChain.of(moves, initial=rng.dirichlet(np.ones(4)))
    plan = mask(day, SensitiveContexts.of("0"), delta=Fraction(1, 10), check="mask-adaptive",
                seconds=0.2, clock=None)  # fmt: skip
    body: Any = plan.body
    order = [day.states.index(name) for name in body.states]
    initial, matrices = day.initial[order], day.transition[:, order][:, :, order]
    shares = np.zeros((slots, 4))
    shares[:, body.states.index("0")] = 1.0
    tables = {o: beliefs.decoded(codes) for o, codes in body.policies().items()}
    with localcontext() as context:
        context.prec = 60
        worst = Decimal(0)
        for (slot, state), table in tables.items():
            hidden = np.ones((slots, 4))
            hidden[slot + 1 : slot + 1 + len(table)] = table
            worst = max(worst, true_rise(initial, matrices, (slot, state), hidden, shares))
            if slots > 5 and slot > 3:  # the origins of the first slots have the longest tables
                break
        assert Decimal("0.05") < worst <= Decimal("0.1") * (1 + Decimal("1e-12"))
    certificate: Any = plan.certificate
    assert worst <= Decimal(certificate.rise)


def on_the_bound(delta: Fraction) -> float:
    """What `loss` says of a plan whose highest rise is exactly 1/4, on a long day."""
    slots = 500
    moves = np.full((slots - 1, 4, 4), 0.25)
    day = DayChain.of(moves, initial=np.full(4, 0.25))
    codes = np.full((slots, 4), 65535, dtype=np.uint16)
    codes[200, 2:] = 0  # "0" and "1" are suppressed there: silence leaves one of two
    task = Task(query=CurrentState(day.states), secrets=SensitiveContexts.of("0"), family=(day,))
    plan = mask_plan(
        task, "mask-probabilistic", delta, VectorMask(day.states, codes), 0.5, "by hand"
    )
    return verify_promise(plan)


def test_a_plan_that_lies_on_its_bound_is_settled_in_decimals() -> None:
    """Stored plans may be closer to the bound than doubles can tell: neither way is guessed."""
    exactly = on_the_bound(Fraction(1, 4))
    assert 0.25 <= exactly <= 0.25 * (1 + 1e-12)
    less = Fraction(1, 4) * (1 - Fraction(1, 4 * 10**11))
    assert on_the_bound(less) > float(less) * (1 + 1e-12)
