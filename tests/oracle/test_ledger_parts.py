"""Parts of one series: the true joint loss of all releases is never above the ledger's total.

Joint laws are enumerated here, sequence by sequence and output by output; a release is a count of
some entries plus two-sided geometric noise, and the entries the next one reads may depend on what
the one before it showed. On tiny chains the total is also held against the linear program over
all mechanisms with the same etas entry by entry. Proof: src/shoal/ledger/rules.md, section 10.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import shoal
from shoal.core.plan import Additive, Plan
from shoal.ledger import Part, compose

SEEDS = [
    *range(25),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(25, 2000)),
]
ETAS = ("1/20", "1/8", "1/3", "1/2", "1")
Span = tuple[int, int]


def chain_of(rng: np.random.Generator, entries: int) -> shoal.MarkovChain:
    """Two states, often sticky, from any start."""
    rows = rng.dirichlet([0.6, 0.6], size=2).clip(0.02, 0.98)
    start = rng.dirichlet([1, 1]).clip(0.05, 0.95)
    rows, start = rows / rows.sum(axis=1, keepdims=True), start / start.sum()
    return shoal.MarkovChain.of(rows.tolist(), initial=start.tolist(), length=entries)


def plan_of(chain: shoal.MarkovChain, eta: str) -> Plan:
    query = shoal.count(chain.states, chain.states[1])
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=eta, mechanism="laplace")


def eta_of(plan: Plan) -> float:
    assert isinstance(plan.body, Additive)
    return float(plan.body.query.lipschitz / plan.body.noise.scale)


def joint(chain: shoal.MarkovChain, entries: int) -> dict[tuple[int, ...], float]:
    """Every sequence with its probability."""
    rows, start = np.array(chain.transition), np.array(chain.initial)
    law = {}
    for x in itertools.product((0, 1), repeat=entries):
        steps = [rows[a, b] for a, b in itertools.pairwise(x)]
        law[x] = float(start[x[0]] * math.prod(steps))
    return law


def likelihood(shown: int, x: tuple[int, ...], span: Span, eta: float) -> float:
    """P(count of the span + noise = shown), up to a factor without x."""
    return math.exp(-eta * abs(shown - sum(x[span[0] : span[1]])))


def worst(law: dict[tuple[int, ...], float], h: dict[tuple[int, ...], float]) -> float:
    """The largest log-ratio about an entry that one joint output with likelihood h gives."""
    most = 0.0
    for i in range(len(next(iter(law)))):
        means = []
        for value in (0, 1):
            held = [x for x in law if x[i] == value and law[x] > 0]
            if held:
                weight = sum(law[x] for x in held)
                means.append(sum(law[x] * h[x] for x in held) / weight)
        most = max(most, abs(math.log(means[0] / means[-1])))
    return most


def random_span(rng: np.random.Generator, entries: int) -> Span:
    first = int(rng.integers(0, entries))
    return first, int(rng.integers(first + 1, entries + 1))


def paths(first: Span, later: dict[int, Span]) -> list[tuple[tuple[Span, int], tuple[Span, int]]]:
    """Every pair of outputs, with the span each was about; beyond the counts nothing changes."""
    return [
        ((first, one), (later[one], two))
        for one in range(-1, first[1] - first[0] + 2)
        for two in range(-1, later[one][1] - later[one][0] + 2)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_joint_loss_of_releases_of_parts_is_never_above_the_total(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = int(rng.integers(2, 7))
    chain = chain_of(rng, entries)
    plans = [plan_of(chain, str(rng.choice(ETAS))) for _ in range(2)]
    law = joint(chain, entries)
    first = random_span(rng, entries)
    if rng.random() < 0.5:  # disjoint from it, where that is possible
        rest = [s for s in ((0, first[0]), (first[1], entries)) if s[0] < s[1]] or [first]
        later = {shown: rest[shown % len(rest)] for shown in range(-1, entries + 2)}
    else:
        later = {shown: random_span(rng, entries) for shown in range(-1, entries + 2)}
    totals = {
        span: float(compose(plans, parts=[Part(span=first), Part(span=span)]).amount)
        for span in set(later.values())
    }
    for outputs in paths(first, later):
        h = {
            x: math.prod(
                likelihood(shown, x, span, eta_of(plan))
                for plan, (span, shown) in zip(plans, outputs, strict=True)
            )
            for x in law
        }
        assert worst(law, h) <= totals[outputs[1][0]] * (1 + 1e-9)


def program(law: dict[tuple[int, ...], float], etas: list[float]) -> float:
    """The most that any mechanism tells whose output moves by e^etas[i] when entry i changes."""
    names = [x for x in law if law[x] > 0]
    rows = []
    for a, b in itertools.permutations(range(len(names)), 2):
        moved = [i for i, (p, q) in enumerate(zip(names[a], names[b], strict=True)) if p != q]
        if len(moved) == 1:
            row = np.zeros(len(names))
            row[a], row[b] = 1, -math.exp(etas[moved[0]])
            rows.append(row)
    most = 0.0
    for i, value in itertools.product(range(len(etas)), (0, 1)):
        given = [np.array([law[x] * (x[i] == v) for x in names]) for v in (value, 1 - value)]
        one, other = (weights / weights.sum() for weights in given)
        found = linprog(-one, A_ub=np.array(rows), b_ub=np.zeros(len(rows)), A_eq=[other], b_eq=[1])
        assert found.success
        most = max(most, math.log(-found.fun))
    return most


@pytest.mark.parametrize(
    "seed",
    [*range(25), *(pytest.param(s, marks=pytest.mark.slow) for s in range(25, 1000))],
)
def test_no_mechanism_with_these_etas_tells_more(seed: int) -> None:
    rng = np.random.default_rng([seed, 7])
    entries = int(rng.integers(2, 5))
    chain = chain_of(rng, entries)
    spans = [random_span(rng, entries) for _ in range(int(rng.integers(1, 4)))]
    plans = [plan_of(chain, str(rng.choice(ETAS))) for _ in spans]
    etas = [
        sum(eta_of(plan) for plan, (a, b) in zip(plans, spans, strict=True) if a <= i < b)
        for i in range(entries)
    ]
    total = compose(plans, parts=[Part(span=span) for span in spans])
    assert program(joint(chain, entries), etas) <= float(total.amount) * (1 + 1e-6)


def test_a_year_of_days_is_lifted_once() -> None:
    day = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=24)
    plan = plan_of(day, "1/20")
    spans = compose([plan] * 365, parts=[Part(span=(24 * d, 24 * d + 24)) for d in range(365)])
    names = compose([plan] * 365, parts=[Part(name=f"day {d}") for d in range(365)])
    year = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=24 * 365)
    assert spans.eta == names.eta == Fraction(1, 20)
    assert float(spans.amount) == shoal.leakage(year, Fraction(1, 20)).value
    assert names.amount == spans.amount
    assert compose([plan] * 365).amount > 30 * spans.amount


def test_what_meets_adds_and_what_does_not_meet_does_not() -> None:
    day = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=24)
    plan = plan_of(day, "1/20")
    for parts, times in (
        ([Part(span=(0, 5)), Part(span=(5, 9))], 1),
        ([Part(span=(0, 6)), Part(span=(5, 9))], 2),
        ([Part(name="a"), Part(name="a"), Part(name="b")], 2),
        ([Part(name="a"), Part(span=(0, 3))], 2),
        ([Part(), Part(span=(0, 3)), Part(span=(3, 9))], 2),
    ):
        assert compose([plan] * len(parts), parts=parts).eta == times * Fraction(1, 20), parts


def test_a_span_beyond_what_the_models_are_about_is_refused() -> None:
    fixed = shoal.MarkovChain.of([[[0.9, 0.1], [0.4, 0.6]]] * 3, initial=[0.5, 0.5], length=4)
    plan = plan_of(fixed, "1/20")
    assert compose([plan] * 2, parts=[Part(span=(0, 2)), Part(span=(2, 4))]).eta == Fraction(1, 20)
    with pytest.raises(shoal.CannotCompose, match="a span ends at entry 5"):
        compose([plan] * 2, parts=[Part(span=(0, 2)), Part(span=(2, 5))])


def test_a_part_is_said_in_one_way() -> None:
    for wrong in ((3, 3), (-1, 2), (4, 2), (0, True), (0, 1.5)):
        with pytest.raises(shoal.InputError, match="span is"):
            Part(span=wrong)  # type: ignore[arg-type]
    with pytest.raises(shoal.InputError, match="give one of them"):
        Part(span=(0, 1), name="week 7")
    plan = plan_of(shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=4), "1/20")
    with pytest.raises(shoal.InputError, match="parts are 1 for 2 plans"):
        compose([plan, plan], parts=[Part(name="a")])


# The same for entries that are variables of a table, or records tied in a field.


def table_of(rng: np.random.Generator) -> tuple[shoal.JointTable, dict[tuple[int, ...], float]]:
    """Any joint law of three or four bits, with its outcomes."""
    names = "abcd"[: int(rng.integers(3, 5))]
    mass = rng.dirichlet(np.full(2 ** len(names), 0.7)).clip(1e-4)
    mass = (mass / mass.sum()).reshape((2,) * len(names))
    model = shoal.JointTable.of(mass, variables=tuple(names), domains=[["0", "1"]] * len(names))
    return model, {x: float(mass[x]) for x in np.ndindex(*mass.shape)}


def field_of(rng: np.random.Generator) -> tuple[Any, dict[tuple[int, ...], float]]:
    """Four bits tied in a ring, or along a line, by a random potential."""
    ties = [(0, 1), (1, 2), (2, 3), (0, 3)][: int(rng.integers(2, 5))]
    potential, own = rng.uniform(0.2, 2, (2, 2)), rng.uniform(0.3, 1, (4, 2))
    domain = shoal.records.RecordDomain.points([0, 1], states=["0", "1"])
    model = shoal.records.PairwiseField.of(domain, 4, ties, potential, own=own)
    law = {}
    for x in itertools.product((0, 1), repeat=4):
        alone = math.prod(own[i, x[i]] for i in range(4))
        law[x] = alone * math.prod(potential[x[i], x[j]] for i, j in ties)
    total = sum(law.values())
    return model, {x: mass / total for x, mass in law.items()}


@pytest.mark.parametrize("made", [table_of, field_of])
@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(s, marks=pytest.mark.slow) for s in range(12, 500))]
)
def test_parts_of_networks_and_of_records_add_as_parts_of_a_series_do(made: Any, seed: int) -> None:
    """What the second release reads is chosen after the first was seen."""
    rng = np.random.default_rng(seed)
    model, law = made(rng)
    entries = len(next(iter(law)))
    query = shoal.count(["0", "1"], "1")
    wish = {"secrets": shoal.EachEntry(), "family": model, "mechanism": "laplace"}
    plans = [shoal.calibrate(query, **wish, epsilon=str(rng.choice(ETAS))) for _ in range(2)]
    first = random_span(rng, entries)
    rest = [s for s in ((0, first[0]), (first[1], entries)) if s[0] < s[1]] or [first]
    later = {shown: rest[shown % len(rest)] for shown in range(-1, entries + 2)}
    for outputs in paths(first, later):
        parts = [Part(span=span) for span, _ in outputs]
        total = compose(plans, parts=parts)
        h = {
            x: math.prod(
                likelihood(shown, x, span, eta_of(plan))
                for plan, (span, shown) in zip(plans, outputs, strict=True)
            )
            for x in law
        }
        assert worst(law, h) <= float(total.amount) * (1 + 1e-9)
        if first not in rest:
            assert total.eta == max(Fraction(compose([plan]).eta or 0) for plan in plans)
