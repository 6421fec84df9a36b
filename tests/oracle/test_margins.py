"""Every margin of "rounds up", against fractions and decimals of sixty digits.

Nothing here but the numbers under test comes from the library: laws are exact rationals, sums are
written out, and exponentials are those of `decimal`. Without its margin each quantity is below
the truth on some of these instances.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

import shoal
from shoal.chains.lift.step import Ahead
from shoal.contexts.checks.task import days_of
from shoal.contexts.search import beliefs, gaps
from shoal.core.plan import Additive
from shoal.core.walk import Powers
from shoal.events.automaton import law_of
from shoal.events.filter import TrackSums, program_of
from shoal.events.secrets import Events
from shoal.mechanisms.cone import RULES, leak, prepare
from shoal.mechanisms.mixture import lattice_loss, mixture_loss
from shoal.mechanisms.optimal_table import Tabulated
from shoal.mechanisms.plans import eta_above, float_below
from shoal.mechanisms.table import MECHANISMS, verify_promise
from shoal.noise.primitives import round_up
from shoal.places.events import Carried
from shoal.places.runtime import propagate_loss
from shoal.records.coefficients import float_up
from tests.contexts.test_attacker_contexts import Attack

DIGITS = 60
EPSILONS = (Fraction(1, 3), Fraction(1, 10), Fraction(7, 10))
INEXACT = (*EPSILONS, Fraction(1, 5), Fraction(2, 3), Fraction(9, 10), Fraction(10**17 + 1))
Law = list[list[Fraction]]  # of the answer given each secret, answer by answer


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = DIGITS
        context.Emin, context.Emax = -(10**6), 10**6
        yield


def decimal(value: Fraction | float) -> Decimal:
    exact = Fraction(value)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def true_loss(laws: Law, answers: list[int], scale: Fraction) -> Decimal:
    """The largest log-ratio of answer + Laplace(scale) between two secrets: at an answer."""
    worst = Decimal(0)
    for output in answers:
        kernel = [(-abs(output - c) / decimal(scale)).exp() for c in answers]
        density = [
            sum((decimal(p) * k for p, k in zip(law, kernel, strict=True)), Decimal(0))
            for law in laws
        ]
        worst = max(worst, (max(density) / min(density)).ln())
    return worst


# directed rounding


@pytest.mark.parametrize("value", [*INEXACT, *(v / 10**290 for v in INEXACT)])
def test_conversions_round_to_the_safe_side(value: Fraction) -> None:
    below, above = float_below(value), eta_above(value)
    assert Fraction(below) <= value <= Fraction(above)
    assert Fraction(math.nextafter(below, math.inf)) > value
    assert Fraction(math.nextafter(above, -math.inf)) < value
    assert float_up(value) == above
    assert round_up(value) >= value
    assert round_up(float(value)) >= Fraction(float(value))


def test_plain_conversion_would_not_do() -> None:
    """The instances above hold values on either side of their nearest double."""
    assert any(Fraction(float(value)) > value for value in EPSILONS)
    assert any(Fraction(float(value)) < value for value in EPSILONS)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_budget_between_doubles_is_kept_exactly(epsilon: Fraction) -> None:
    """L / scale of noise for one entry, and n L / scale for n, in fractions."""
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], length=7)
    query, entry = shoal.count(chain.states, "1"), shoal.EachEntry()
    for row, tied in (("laplace", 1), ("group", 7)):
        plan = shoal.calibrate(query, entry, chain, epsilon=epsilon, mechanism=row)
        assert isinstance(plan.body, Additive)
        spent = tied / plan.body.noise.scale
        assert spent <= epsilon
        assert Fraction(verify_promise(plan)) >= spent
    told = shoal.leakage(chain, epsilon)
    assert Fraction(told.value) >= epsilon
    assert Fraction(shoal.leakage(shoal.records.RecordGroups(3), epsilon).value) >= 3 * epsilon


# sums of kernels


def random_laws(rng: np.random.Generator, size: int, deepest: float) -> Law:
    rows = 10.0 ** -rng.uniform(0, deepest, (3, size))
    return [[Fraction(float(p)) for p in row] for row in rows]


@pytest.mark.parametrize("deepest", [1.0, 30.0, 300.0])
def test_the_loss_of_a_mixture_is_never_below_the_truth(deepest: float) -> None:
    rng = np.random.default_rng(15)
    for _ in range(25):
        size = int(rng.integers(2, 7))
        laws, scale = random_laws(rng, size, deepest), float(rng.uniform(0.05, 5))
        said = mixture_loss([[float(p) for p in law] for law in laws], scale)
        truth = true_loss(laws, list(range(size)), Fraction(scale))
        assert decimal(said) >= truth
        assert decimal(said) <= truth + Decimal("1e-9")
        decay = Fraction(int(rng.integers(1, 50)), 7)
        on_lattice = lattice_loss([[float(p) for p in law] for law in laws], decay)
        assert decimal(on_lattice) >= true_loss(laws, list(range(size)), 1 / decay)


# the floor of laws


def rare(rng: np.random.Generator, size: int) -> list[Fraction]:
    """A law of rare states, some impossible, and one that is nearly certain."""
    law = [Fraction(value) for value in 10 ** rng.uniform(-17, -13, size)]
    if rng.random() < 0.3:
        law[rng.integers(size)] = Fraction(0)
    law[rng.integers(size)] = Fraction(0)
    law[law.index(Fraction(0))] = 1 - sum(law, Fraction(0))
    return law


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("growth", [1e-6, 1.0, 30.0, 500.0])
def test_laws_that_are_nearly_certain_are_told_apart_by_their_rare_states(
    rule: str, growth: float
) -> None:
    """1 - 1e-16 is known to a tenth of its distance from 1 only: what adds up to 1 does not."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        size = int(rng.integers(2, 5))
        laws = [rare(rng, size), rare(rng, size)]
        rows = np.array([[float(value) for value in law] for law in laws])
        steps = growth * (1.0 - np.eye(size))
        found = leak(prepare(rows, error=2.0**-53), steps, rule)  # type: ignore[arg-type]
        with localcontext() as context:
            context.prec = DIGITS
            p, q = ([Decimal(v.numerator) / Decimal(v.denominator) for v in law] for law in laws)
            up = Decimal(growth).exp()
            most = max(
                sum((a * v for a, v in zip(p, look, strict=True)), Decimal(0))
                / sum((a * v for a, v in zip(q, look, strict=True)), Decimal(0))
                for look in product((Decimal(1), up), repeat=size)
            )
            assert Decimal(float(found[0, 1])) >= most.ln()


@pytest.mark.parametrize("rule", RULES)
def test_what_underflowed_stays_possible(rule: str) -> None:
    """One row can reach state 0 with 1e-400, the other cannot: no function tells them apart less
    than infinitely well when nothing bounds it."""
    law = np.array([[0.0, 1.0], [0.0, 1.0]])
    possible = np.array([[True, True], [False, True]])
    unbounded = np.array([[0.0, np.inf], [np.inf, 0.0]])
    found = leak(prepare(law, possible=possible), unbounded, rule)  # type: ignore[arg-type]
    assert found[0, 1] == math.inf
    assert found[1, 0] < math.inf


@pytest.mark.parametrize("rule", RULES)
def test_laws_are_bracketed_down_to_the_smallest_doubles(rule: str) -> None:
    """Two states: Σ p v / Σ p' v is largest at v = (e^g, 1) or (1, e^g). Rows that add up to 1."""
    chances = [0.0, 5e-324, 1e-300, 1e-120, 1e-80, 2.0**-30, 0.25]
    law = np.array([[p, 1.0 - p] for p in chances])
    for g in (1e-9, 0.3, 5.0, 150.0):
        growth = np.array([[0.0, g], [g, 0.0]])
        found = leak(prepare(law), growth, rule)  # type: ignore[arg-type]
        for i, j in product(range(len(chances)), repeat=2):
            truth = Decimal(0)
            for v in (decimal(g).exp(), (-decimal(g)).exp()):
                over, under = (decimal(law[k, 0]) * v + decimal(law[k, 1]) for k in (i, j))
                truth = max(truth, (over / under).ln())
            assert decimal(float(found[i, j])) >= truth - Decimal("1e-30"), (i, j, g)
    laws = prepare(law)
    assert (laws.upper >= law).all()
    assert (laws.lower <= law).all()
    assert (laws.upper[law > 0] >= 1e-100).all()


# what carries over from one step of a stream to the next


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1 / 3, 0.5, 0.999])
@pytest.mark.parametrize("before", [1e-12, 1e-3, 0.1, 1.0, 5.0, 50.0, 699.0, 701.0, 1e4])
def test_what_carries_over_is_never_below_the_worst_law(before: float, factor: float) -> None:
    """p = (τ, 1 - τ) against p' = (0, 1), and v = (e^g, 1)."""
    tau = decimal(factor)
    truth = (tau * decimal(before).exp() + 1 - tau).ln()
    assert decimal(propagate_loss(before, factor)) >= truth
    assert decimal(propagate_loss(before, factor)) <= truth * (1 + Decimal("1e-6")) + Decimal(
        "1e-6"
    )


# whole plans on laws with probabilities down to 1e-300


def given(law: dict[tuple[int, ...], Fraction], place: int, value: int) -> list[Fraction]:
    """P(count of ones = c | X_place = value), exactly."""
    size = len(next(iter(law)))
    held = {xs: p for xs, p in law.items() if xs[place] == value}
    total = sum(held.values())
    return [
        sum((p for xs, p in held.items() if sum(xs) == c), Fraction(0)) / total
        for c in range(size + 1)
    ]


def enumerated(law: dict[tuple[int, ...], Fraction], scale: Fraction) -> Decimal:
    """The true loss of a count with Laplace noise about single entries."""
    size, worst = len(next(iter(law))), Decimal(0)
    for place in range(size):
        values = [v for v in (0, 1) if any(p and xs[place] == v for xs, p in law.items())]
        laws = [given(law, place, value) for value in values]
        worst = max(worst, true_loss(laws, list(range(size + 1)), scale))
    return worst


def extreme_tables(count: int) -> list[np.ndarray]:
    rng, tables = np.random.default_rng(300), []
    for _ in range(count):
        weights = 10.0 ** -rng.choice([0, 1, 20, 150, 300], (2, 2, 2))
        weights[rng.random((2, 2, 2)) < 0.1] = 0.0
        weights[0, 0, 0] = weights[1, 1, 1] = 1.0
        tables.append(weights / weights.sum())
    return tables


def tabled(law: dict[tuple[int, ...], Fraction], weights: tuple[tuple[int, ...], ...]) -> Decimal:
    """The true loss of a count drawn by a table, its rows the counts 0, 1, 2, …"""
    size, worst = len(next(iter(law))), Fraction(1)
    for place, column in product(range(size), zip(*weights, strict=True)):
        values = [v for v in (0, 1) if any(p and xs[place] == v for xs, p in law.items())]
        chances = [
            sum(p * w for p, w in zip(given(law, place, value), column, strict=True))
            for value in values
        ]
        worst = max(worst, Fraction(max(chances)) / min(chances))
    return decimal(worst).ln()


def checked(plan: shoal.Plan, law: dict[tuple[int, ...], Fraction], epsilon: Fraction) -> None:
    if isinstance(plan.body, Tabulated):
        truth = tabled(law, plan.body.weights)
    else:
        assert isinstance(plan.body, Additive)
        truth = enumerated(law, plan.body.noise.scale)
    assert truth <= decimal(epsilon), plan.mechanism
    assert decimal(verify_promise(plan)) >= truth, plan.mechanism


def plans_of(task: tuple[object, ...], epsilon: Fraction) -> Iterator[shoal.Plan]:
    """The plan of every row that promises something about the correlated entries."""
    for name in MECHANISMS:
        try:
            plan = shoal.calibrate(*task, epsilon=epsilon, mechanism=name)  # type: ignore[arg-type]
        except shoal.Refused:
            continue
        if plan.guarantee.proved and plan.guarantee.gives("pufferfish"):
            yield plan


def test_tables_of_extreme_probabilities() -> None:
    seen = set()
    for table, epsilon in zip(extreme_tables(9), EPSILONS * 3, strict=True):
        model = shoal.JointTable.of(table, domains=[["0", "1"]] * 3)
        law = {xs: Fraction(float(model.probability[xs])) for xs in product((0, 1), repeat=3)}
        task = (shoal.count(["0", "1"], "1"), shoal.EachEntry(), model)
        for plan in plans_of(task, epsilon):
            checked(plan, law, epsilon)
            seen.add(plan.mechanism)
    assert {"exact", "wasserstein", "lift", "group", "dependent-means"} <= seen


@pytest.mark.parametrize("least", [1e-12, 1e-100, 1e-160, 1e-300])
def test_chains_of_extreme_probabilities(least: float) -> None:
    seen = set()
    for epsilon, rows in zip(
        EPSILONS,
        (
            [[1 - least, least], [0.4, 0.6]],
            [[1 - least, least], [least, 1 - least]],
            [[least, 1 - least], [1.0, 0.0]],
        ),
        strict=True,
    ):
        start = [0.75, 0.25]
        chain = shoal.MarkovChain.of(rows, initial=start, states=["0", "1"], length=4)
        law = {}
        for xs in product((0, 1), repeat=4):
            chance = Fraction(start[xs[0]])
            for a, b in pairwise(xs):
                chance *= Fraction(float(chain.transition[a, b]))
            law[xs] = chance
        task = (shoal.count(chain.states, "1"), shoal.EachEntry(), chain)
        for plan in plans_of(task, epsilon):
            checked(plan, law, epsilon)
            seen.add(plan.mechanism)
    assert {"exact", "wasserstein", "lift", "markov-quilt", "group"} <= seen


# the sums of event filters, and the tables a stream is certified with


def sums(slack: float, lost: float) -> TrackSums:
    """Both sides of one bound in two states, which are equal to thirteen digits."""
    under = np.array([[[1.0, 2.0]]])
    return TrackSums(
        mass=under[0],
        over=under * (1 - 1e-13),
        under=under,
        possible=np.ones((1, 2), dtype=bool),
        slack=slack,
        lost=lost,
    )


@pytest.mark.parametrize("margin", [(1e-12, 0.0), (0.0, 1e-12)])
def test_what_rounding_or_underflow_may_hide_is_kept_from_a_bound(
    margin: tuple[float, float],
) -> None:
    none = np.array([], dtype=np.int64)
    carried_nowhere = Carried(np.arange(2), 2, none, none, np.array([]))
    sure, unsure = sums(0.0, 0.0), sums(*margin)
    assert sure.keeps(sure.over, sure.under).all()
    assert carried_nowhere.fits(sure)
    assert not unsure.keeps(unsure.over, unsure.under).any()
    assert not carried_nowhere.fits(unsure)


def test_beliefs_of_a_long_day_are_within_their_slack() -> None:
    """The marginals of a day nobody reads, slot by slot, against whole numbers over whole ones."""
    rng, furthest = np.random.default_rng(11), Fraction(0)
    day = shoal.DayChain.of(rng.dirichlet(np.ones(3), (40, 3)), initial=rng.dirichlet(np.ones(3)))
    secrets = Events.of(shoal.visit(["2"], between=(1, 3))).as_rise()
    program = program_of([law_of(day)], secrets, Fraction(1, 10))
    exact_law = [Fraction(float(p)) for p in day.initial]
    (held,) = program.begin()
    for slot in range(day.slots):
        if slot:
            rows = [[Fraction(float(p)) for p in row] for row in day.transition[slot - 1]]
            exact_law = [
                sum((a * row[y] for a, row in zip(exact_law, rows, strict=True)), Fraction(0))
                for y in range(3)
            ]
        (held,) = program.arrive([held], slot, read=False)
        slack = program.table(program.tracks[0], held, slot).slack
        for mass, truth in zip(held.mass.sum(axis=0), exact_law, strict=True):
            off = abs(Fraction(float(mass)) - truth) / truth
            furthest = max(furthest, off)
            assert off <= Fraction(slack)
    assert furthest > 0


def test_a_law_that_is_not_its_limit_yet_counts_as_that_much_unsure() -> None:
    walk = Powers(np.array([[0.9, 0.1], [0.4, 0.6]]))
    assert Ahead(walk, drift=1e-9).laws(1).slack >= 2e-9
    assert Ahead(walk, own_error=1e-10).laws(5).slack >= 1e-9


@pytest.mark.parametrize("check", ["mask-optimal", "mask-adaptive", "mask-probabilistic"])
def test_rechecks_of_masks_are_never_below_the_truth(check: str) -> None:
    """Not by a single bit: each output of small days in whole numbers."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        day = shoal.DayChain.of(
            rng.dirichlet(np.ones(3), (2, 3)), initial=rng.dirichlet(np.ones(3))
        )
        secrets = shoal.SensitiveContexts.of(day.states[0])
        plan = shoal.mask(day, secrets, delta=0.1, check=check)
        truth = Attack(plan, [day], [{}]).worst() * plan.guarantee.amount
        assert Fraction(verify_promise(plan)) >= truth


def test_filters_and_windows_stay_below_their_bounds() -> None:
    rng = np.random.default_rng(5)
    chain = shoal.DayChain.of(rng.dirichlet(np.ones(3), (3, 3)), initial=rng.dirichlet(np.ones(3)))
    plan = shoal.mask(chain, shoal.SensitiveContexts.of(chain.states[0]), delta=0.1)
    (day,) = days_of(plan.task, Fraction(1, 10))
    rows = gaps._SlotBounds(day, gaps.opening(day, (-1, 0)), (-1, 0), 0)
    assert (rows.bound <= day.bound - gaps.GAPS.belief_margin).all()
    # what a window is certified with leaves room for two roundings of each term of each slot
    room = 0.1 / day.share + day.least_prior
    steps = (day.slots + 1) * (day.size + 4)
    assert (beliefs.computed_limits(day, 0.1, 1) <= room * (1 - 2 * steps * 2.0**-53)).all()
