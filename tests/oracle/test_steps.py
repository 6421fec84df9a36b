"""Noise in steps against joint laws written out, in rationals and decimals of 60 digits.

Nothing here is shared with the row beyond the three numbers of the law it draws from.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import shoal
from shoal import AnyInitialLaw, EachEntry, MarkovChain
from shoal.attacks.beliefs import attack, released
from shoal.chains import OrderChain
from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.steps import CellLine
from shoal.core.charge import AsEntryDP
from shoal.core.plan import Additive, Plan
from shoal.core.task import Task
from shoal.ledger.rules import compose
from shoal.mechanisms import steps
from shoal.mechanisms.choice import choose
from shoal.mechanisms.plans import task_guarantee
from shoal.mechanisms.steps import NAME, SAVED, PlainLine, StepLaw, Stepped, StepsCertificate
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, confirm_plan, verify_promise
from shoal.networks.contagion import Contagion
from shoal.noise.primitives import SeededRng
from shoal.noise.steps import SteppedNoise
from tests.networks.models import joint_of, random_network

ROWS = (NAME,)
ROW = MECHANISMS[NAME]
DIGITS = 60

Laws = list[dict[str, dict[int, Fraction]]]  # per law and entry: {fact: {answer: weight}}


# The truth.


def tally(outcomes: list[tuple[tuple[Any, ...], Fraction, int]]) -> Laws:
    """For every entry, the weight of each answer given each value, from outcomes with weights."""
    found: Laws = []
    for entry in range(len(outcomes[0][0])):
        rows: dict[str, dict[int, Fraction]] = {}
        for values, weight, answer in outcomes:
            if weight:
                row = rows.setdefault(str(values[entry]), {})
                row[answer] = row.get(answer, Fraction(0)) + weight
        found.append(rows)
    return found


def chain_laws(model: Any, query: Any) -> Laws:
    """Every series the model covers, its weight a product of the model's own doubles."""
    matrices = model.transition.reshape(-1, *model.transition.shape[-2:])
    fixed = model.transition.ndim == 3
    rows = [[[Fraction(float(p)) for p in row] for row in matrix] for matrix in matrices]
    rows = [[[p / sum(row) for p in row] for row in matrix] for matrix in rows]
    size, found = len(model.states), []
    adds = [int(row[0] / query.lattice) for row in query.weights]
    for length in [model.length] if fixed else range(1, model.length + 1):
        outcomes = []
        for path in product(range(size), repeat=length):
            weight = Fraction(float(model.initial[path[0]]))
            for t in range(1, length):
                weight *= rows[t - 1 if fixed else 0][path[t - 1]][path[t]]
            outcomes.append((path, weight, sum(adds[x] for x in path)))
        found += tally(outcomes)
    return found


def named_laws(model: Any, query: Any) -> Laws:
    law = model.probability if isinstance(model, shoal.JointTable) else joint_of(model)
    outcomes = []
    for place in np.ndindex(*law.shape):
        data = [domain[x] for domain, x in zip(model.domains, place, strict=True)]
        outcomes.append(
            (place, Fraction(float(law[place])), int(query.evaluate(query.read(data))[0]))
        )
    return tally(outcomes)


def laws_of(task: Task) -> Laws:
    return [
        law
        for model in task.family
        for law in (chain_laws if isinstance(model, MarkovChain) else named_laws)(model, task.query)
    ]


def truth(laws: Laws, fall: Fraction, width: int, lead: int) -> float:
    """The largest log-ratio over all whole outputs within three widths of an answer."""
    worst = Decimal(0)
    with localcontext() as context:
        context.prec, context.Emin, context.Emax = DIGITS, -(10**9), 10**9
        h = Decimal(fall.numerator) / Decimal(fall.denominator)
        powers: dict[int, Decimal] = {}
        for rows in laws:
            answers = [a for row in rows.values() for a in row]
            decimals = [
                {a: Decimal(w.numerator) / Decimal(w.denominator) for a, w in row.items()}
                for row in rows.values()
            ]
            for output in range(min(answers) - 3 * width, max(answers) + 3 * width + 1):
                seen = []
                for row in decimals:
                    total = sum(row.values())
                    mass = Decimal(0)
                    for answer, weight in row.items():
                        block = (abs(output - answer) + lead) // width
                        if block not in powers:
                            powers[block] = (-h * block).exp()
                        mass += weight * powers[block]
                    seen.append(mass / total)
                worst = max(worst, (max(seen) / min(seen)).ln())
    return float(worst)


def certified(plan: Plan) -> StepsCertificate:
    assert isinstance(plan.certificate, StepsCertificate)
    return plan.certificate


def of_body(plan: Plan) -> tuple[Fraction, int, int]:
    """Fall, width and lead of what is drawn; the noise of `exact` falls at every number."""
    if plan.additive is not None:
        return plan.task.query.lattice / plan.additive.noise.scale, 1, 0
    assert isinstance(plan.body, Stepped)
    return plan.body.fall, plan.body.width, plan.body.lead


def drawn_with(task: Task, fall: Fraction, width: int, lead: int, amount: Fraction) -> Plan:
    """A plan of the row that draws this very law, whatever it promises."""
    body = Stepped(task.query, fall, width, lead)
    return Plan(
        mechanism=NAME,
        task=task,
        body=body,
        cost=body.error(0.5).expected,
        guarantee=task_guarantee(task, amount),
        certificate=StepsCertificate(even_error=1.0, eta=1.0),
        composition=(AsEntryDP(body.eta),),
    )


# Tasks.


def law_row(rng: random.Random, size: int, least: float) -> list[float]:
    row = [rng.random() + 0.02 for _ in range(size)]
    kind = rng.choice(["plain", "zeros", "tiny", "slow"])
    if kind == "zeros":
        row = [p if rng.random() < 0.6 else 0.0 for p in row]
    if kind in ("tiny", "slow"):
        keep = rng.randrange(size)
        small = max(least, 10.0 ** rng.uniform(-250, -1) if kind == "tiny" else 0.02)
        row = [p if x == keep else p * small for x, p in enumerate(row)]
    if not any(row):
        row[0] = 1.0
    return [p / math.fsum(row) for p in row]


def chain(rng: random.Random, *, least: float = 1e-250) -> MarkovChain:
    size = rng.choice([2, 2, 3])
    length = rng.randint(2, 6 if size == 2 else 4)
    start = law_row(rng, size, least)
    if rng.random() < 0.3:
        each = [[law_row(rng, size, least) for _ in range(size)] for _ in range(length - 1)]
        return MarkovChain.of(each, initial=start, length=length)
    return MarkovChain.of(
        [law_row(rng, size, least) for _ in range(size)], initial=start, length=length
    )


def asked(rng: random.Random, model: Any) -> Any:
    states = list(model.states)
    if rng.random() < 0.5:
        return shoal.count(states, states[-1])
    values = [rng.choice((0, 1, 3, 4)) for _ in states]
    values[0], values[-1] = 0, rng.choice((2, 3, 5))
    if rng.random() < 0.5:  # all of them odd, and apart by even numbers: outputs between answers
        values = [2 * value + 1 for value in values]
    table = dict(zip(states, values, strict=True))
    if rng.random() < 0.3:
        return shoal.mean(states, table, length=model.length)
    return shoal.weighted_sum(states, table)


def tasks(seed: int, *, least: float = 1e-250) -> Iterator[Task]:
    rng = random.Random(seed)
    while True:
        kind = rng.choice(["chain", "chain", "chain", "table", "network", "crowd"])
        if kind == "chain":
            model: Any = chain(rng, least=least)
            query = asked(rng, model)
        elif kind == "table":
            weights = np.array(law_row(rng, 8, least)).reshape(2, 2, 2)
            model = shoal.JointTable.of(weights)
            query = shoal.weighted_sum(["0", "1"], {"0": 0, "1": rng.choice((1, 2))})
        elif kind == "network":
            model = random_network(rng.randrange(10**6), 3, zeros=0.1)
            query = shoal.count(list(model.domains[0]), model.domains[0][-1])
        else:
            laws = {3: law_row(rng, 4, 1e-9), 2: law_row(rng, 3, 1e-9)}
            model = Contagion.cliques([3, 2], laws)
            query = shoal.count(["well", "ill"], "ill")
        yield Task(query=query, secrets=EachEntry(), family=(model,))


# What it tells.


def held_against_the_truth(seed: int, wanted: int) -> None:
    """Random laws in steps on random tasks: the loss is never below the truth, and is exact."""
    rng = random.Random(seed)
    close = 0
    for task, _ in zip(tasks(seed), range(wanted), strict=False):
        width = rng.choice((2, 2, 3, 4, 7))
        law = (Fraction(rng.randint(1, 4000), 1000), width, rng.randrange(width))
        amount = Fraction(rng.choice(("1e-6", "0.5", "3", "20")))
        found = steps.loss(drawn_with(task, *law, amount))
        true = truth(laws_of(task), *law)
        assert found >= true * (1 - 1e-14), (seed, task.query.describe(), law, found, true)
        close += found <= true * (1 + 1e-9) + 1e-9
    assert close >= 0.9 * wanted


def test_the_loss_is_that_of_the_joint_law() -> None:
    held_against_the_truth(1, 25)


@pytest.mark.slow
def test_the_loss_is_that_of_the_joint_law_in_many() -> None:
    for seed in range(2, 12):
        held_against_the_truth(seed, 60)


def test_outputs_between_the_answers_decide_too() -> None:
    """Any two laws on any values, for every lead: most of them are decided beyond all answers."""
    rng = random.Random(8)
    inside = 0
    for _ in range(60):
        values = sorted(rng.sample(range(9), 4))
        rows = [[rng.choice((0, 1, 2, 5)) for _ in values] for _ in range(2)]
        rows = [row if any(row) else [1, 1, 1, 1] for row in rows]
        laws: Laws = [
            {
                str(x): {a: Fraction(w, sum(row)) for a, w in zip(values, row, strict=True) if w}
                for x, row in enumerate(rows)
            }
        ]
        table = np.array(rows) / np.sum(rows, axis=1, keepdims=True)
        line = PlainLine(table, np.array(values), ~np.eye(2, dtype=bool), 8.0)
        width = rng.choice((2, 3, 5))
        found = []
        for lead in range(width):
            found.append(line.worst(StepLaw(1.5, width, lead)).value)
            assert found[-1] == pytest.approx(truth(laws, Fraction(3, 2), width, lead), abs=1e-12)
            assert line.worst(StepLaw(1.5, width, lead)).value >= found[-1]
        inside += max(found) - min(found) > 1e-6
    assert inside >= 5


def test_no_law_vouches_for_a_wider_one() -> None:
    """The example of steps.md, Claim 2: wider steps, more told."""
    third, sixth, half = Fraction(1, 3), Fraction(1, 6), Fraction(1, 2)
    laws: Laws = [{"x": {0: third, 1: sixth, 2: sixth, 3: third}, "y": {1: half, 2: half}}]
    assert truth(laws, Fraction(1), 2, 0) == pytest.approx(0.30899, abs=1e-5)
    assert truth(laws, Fraction(1), 3, 0) == pytest.approx(0.45283, abs=1e-5)


def promised(seed: int, wanted: int, amounts: tuple[str, ...]) -> Counter[str]:
    """Plans of random tasks keep their ε, as drawn and as they are checked again."""
    seen: Counter[str] = Counter()
    for task, place in zip(tasks(seed), range(wanted), strict=False):
        epsilon = Fraction(amounts[place % len(amounts)])
        try:
            plan = calibrate_and_check(ROW, task, epsilon)
        except shoal.Refused:
            seen["refused"] += 1
            continue
        fall, width, lead = of_body(plan)
        true, again = truth(laws_of(task), fall, width, lead), verify_promise(plan)
        assert true <= float(epsilon) * (1 + 1e-12), (seed, place, task.query.describe(), epsilon)
        assert true * (1 - 1e-12) <= again <= float(epsilon) * (1 + 1e-12)
        if width > 1:
            assert plan.cost <= certified(plan).even_error * (1 - SAVED + 1e-3)
            assert float(plan.rules(AsEntryDP)[0].eta) <= max(float(epsilon), certified(plan).eta)
        seen["in steps" if width > 1 else "even"] += 1
        if width > 1:
            seen["broken by 1.3"] += (
                truth(laws_of(task), fall * Fraction(13, 10), width, lead) > epsilon
            )
    return seen


AMOUNTS = ("3", "5", "1e-6", "2", "0.3", "20", "4")


def test_plans_keep_their_promise_and_steeper_ones_do_not() -> None:
    seen = promised(40, 40, AMOUNTS)
    assert seen["in steps"] >= 6
    assert seen["broken by 1.3"] >= 0.8 * seen["in steps"]  # the control


@pytest.mark.slow
def test_plans_keep_their_promise_in_many() -> None:
    for seed in range(41, 51):
        promised(seed, 60, AMOUNTS)


def test_other_chains_keep_their_promise() -> None:
    """Every initial law, memory of two entries, a family of two."""
    matrix = [[0.7, 0.3], [0.4, 0.6]]
    query, amount = shoal.count(["0", "1"], "1"), Fraction(3)
    start = AnyInitialLaw.of(matrix, states=["0", "1"], length=5)
    plan = calibrate_and_check(ROW, Task(query=query, secrets=EachEntry(), family=(start,)), amount)
    assert of_body(plan)[1] > 1
    for first in ([1, 0], [0, 1], [0.5, 0.5], [0.01, 0.99], [0.3, 0.7]):
        member = MarkovChain.of(matrix, initial=first, states=["0", "1"], length=5)
        assert truth(chain_laws(member, query), *of_body(plan)) <= 3
    rows = np.array([[0.6, 0.4], [0.4, 0.6], [0.55, 0.45], [0.35, 0.65]])
    order = OrderChain(
        states=("0", "1"), order=2, conditional=rows, initial=np.full(4, 0.25), length=6
    )
    plan = calibrate_and_check(ROW, Task(query=query, secrets=EachEntry(), family=(order,)), amount)
    for length in range(2, 7):
        outcomes = []
        for path in product(range(2), repeat=length):
            weight = Fraction(1, 4)
            for t in range(2, length):
                weight *= Fraction(float(rows[path[t - 2] * 2 + path[t - 1], path[t]]))
            outcomes.append((path, weight, sum(path)))
        assert truth(tally(outcomes), *of_body(plan)) <= 3 * (1 + 1e-12)
    two = tuple(MarkovChain.of(m, length=5) for m in (matrix, [[0.9, 0.1], [0.3, 0.7]]))
    query = shoal.count(list(two[0].states), two[0].states[1])
    task = Task(query=query, secrets=EachEntry(), family=two)
    assert truth(laws_of(task), *of_body(calibrate_and_check(ROW, task, amount))) <= 3 * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_window_is_never_below_the_whole_chain(seed: int) -> None:
    rng = random.Random(seed)
    rows = [law_row(rng, 2, 0.05), law_row(rng, 2, 0.05)]
    start = law_row(rng, 2, 0.05) if seed % 2 else [0.02, 0.98]  # far from where it settles
    model = MarkovChain.of(rows, initial=start, length=7)
    first, second = model.states
    query = shoal.weighted_sum([first, second], {first: 1, second: rng.choice((2, 4))})
    task = Task(query=query, secrets=EachEntry(), family=(model,))
    laws: Any = model.answer_laws(query, EachEntry())
    law = StepLaw(2.0, rng.choice((2, 3)), 1)
    true = truth(laws_of(task), Fraction(2), law.width, 1)
    bounds = []
    for size in (1, 2, 3):
        cover = NodeBlocks(laws.sum)
        cells = cover.windows(size)
        bounds.append(max(CellLine(c, round(cover.task.step)).worst(law).value for c in cells))
    assert all(bound >= true * (1 - 1e-13) for bound in bounds)
    assert all(b <= a * (1 + 1e-9) + 1e-9 for a, b in pairwise(bounds))


@pytest.mark.parametrize("seed", range(6))
def test_what_windows_say_of_a_long_chain_covers_the_short_ones(seed: int) -> None:
    """Any law in steps, steeper than any that is promised: nodes near the ends decide too."""
    rng = random.Random(seed)
    rows, start = [[0.7, 0.3], [0.2, 0.8]], rng.choice(([0.9, 0.1], [0.5, 0.5], [0.01, 0.99]))
    long = MarkovChain.of(rows, initial=start, length=10**6)
    query = shoal.count(list(long.states), long.states[1])
    width = rng.choice((2, 5, 9))
    law = (Fraction(rng.randint(8, 40), 5), width, rng.randrange(width))
    whole = Task(query=query, secrets=EachEntry(), family=(long,))
    short = replace(whole, family=(replace(long, length=7),))
    found = steps.loss(drawn_with(whole, *law, Fraction(3)))
    assert truth(laws_of(short), *law) * (1 - 1e-13) <= found < math.inf


def test_a_long_chain_keeps_its_promise_on_a_short_one() -> None:
    """Windows cover every length: what T = 10^6 promises holds for 7 entries."""
    rows = [[0.95, 0.05], [0.4, 0.6]]
    long = MarkovChain.of(rows, length=10**6)
    query = shoal.count(list(long.states), long.states[1])
    plan = shoal.calibrate(query, EachEntry(), long, epsilon=3, mechanism=NAME)
    short = Task(query=query, secrets=EachEntry(), family=(MarkovChain.of(rows, length=7),))
    assert of_body(plan)[1] > 1
    assert truth(laws_of(short), *of_body(plan)) <= 3
    assert plan.cost < 0.8 * certified(plan).even_error


# What is drawn.


@pytest.mark.parametrize(
    ("fall", "width", "lead"), [("1/2", 3, 0), ("3/2", 4, 3), ("7/5", 2, 1), ("2/3", 1, 0)]
)
def test_draws_have_the_stated_law(fall: str, width: int, lead: int) -> None:
    """Chi-square at one in 10,000, fixed seed; and a law half as steep again is told apart."""
    noise, rng, count = SteppedNoise(Fraction(fall), width, lead), SeededRng(5), 6000
    seen = Counter(noise.draw(rng) for _ in range(count))
    reach = 12 * width
    weights = {
        k: math.exp(-float(noise.fall) * ((abs(k) + lead) // width))
        for k in range(-40 * reach, 40 * reach + 1)
    }
    total = math.fsum(weights.values())
    cells = [k for k in range(-reach, reach + 1) if weights[k] / total * count >= 8]
    for steeper, fits in ((1.0, True), (1.5, False)):
        other = {k: w**steeper for k, w in weights.items()}
        whole = math.fsum(other.values())
        expected = [other[k] / whole * count for k in cells]
        drawn = [seen[k] for k in cells]
        rest = (count - sum(drawn), max(count - sum(expected), 1e-9))
        found = chisquare([*drawn, rest[0]], [*expected, rest[1]], sum_check=False).pvalue
        assert bool(found > 1e-4) is fits
    edge = width - lead - 1  # the last number of block 0 and the first of block 1, on both sides
    assert noise.log_weight(edge) == noise.log_weight(-edge) == 0
    assert noise.log_weight(edge + 1) == noise.log_weight(-edge - 1) == -noise.fall
    assert min(seen) < -edge
    assert max(seen) > edge
    mean = math.fsum(abs(k) * w for k, w in weights.items()) / total
    assert noise.expected_error() == pytest.approx(mean, rel=1e-12)
    assert noise.pmf(edge + 1) == pytest.approx(weights[edge + 1] / total, rel=1e-12)
    for confidence in (0.0, 0.5, 0.9, 0.99):
        bound = noise.quantile(confidence)
        within = math.fsum(w for k, w in weights.items() if abs(k) <= bound) / total
        less = math.fsum(w for k, w in weights.items() if abs(k) < bound) / total
        assert less < confidence <= within + 1e-12 or bound == 0


def test_noise_says_what_it_cannot_be() -> None:
    for fall, width, lead, said in (
        (Fraction(0), 2, 0, "fall is"),
        (Fraction(1001), 2, 0, "fall is"),
        (0.5, 2, 0, "fall is"),
        (Fraction(1), 0, 0, "width is"),
        (Fraction(1), 2, 2, "lead is"),
        (Fraction(1), 2, -1, "lead is"),
    ):
        with pytest.raises(shoal.InputError, match=said):
            SteppedNoise(fall, width, lead)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="confidence is 1"):
        SteppedNoise(Fraction(1), 2, 0).quantile(1.0)
    with pytest.raises(shoal.InputError, match="one number"):
        Stepped(shoal.histogram("ab"), Fraction(1), 2, 0)


@pytest.mark.parametrize("lipschitz", range(1, 9))
def test_entry_level_is_what_one_entry_can_do(lipschitz: int) -> None:
    for width, lead in ((w, before) for w in range(1, 7) for before in range(w)):
        noise = SteppedNoise(Fraction(1), width, lead)
        worst = max(
            noise.log_weight(k) - noise.log_weight(k + d)
            for k in range(-30, 31)
            for d in range(-lipschitz, lipschitz + 1)
        )
        assert noise.ratio_between(lipschitz) == worst
        query = shoal.weighted_sum("ab", {"a": 0, "b": lipschitz})
        body = Stepped(query, Fraction(1), width, lead)
        assert body.eta == noise.ratio_between(int(query.lipschitz / query.lattice))


# The row in the house.


def uneven(length: int | None = 30) -> Task:
    model = MarkovChain.of([[0.95, 0.05], [0.4, 0.6]], states="ab", length=length)
    return Task(query=shoal.count("ab", "b"), secrets=EachEntry(), family=(model,))


def test_best_takes_it_where_it_errs_less_and_exact_elsewhere() -> None:
    at = {e: choose(uneven(), Fraction(e)) for e in ("1/2", "1", "3")}
    assert [at[e].plan.mechanism for e in ("1/2", "1", "3")] == ["exact", "exact", NAME]
    exact = at["3"].alternatives["exact"]
    assert isinstance(exact, Plan)
    assert at["3"].plan.cost < exact.cost * (1 - SAVED)
    for pruned in (False, True):
        assert choose(uneven(1440), Fraction(3), prune=pruned).plan.mechanism == NAME
    same = at["1/2"].alternatives[NAME]
    assert isinstance(same, Plan)
    assert same.cost == pytest.approx(at["1/2"].plan.cost, rel=1e-9)
    assert "discrete Laplace noise" in same.explain()


def test_a_plan_is_stored_explained_released_and_attacked(tmp_path: Path) -> None:
    plan = calibrate_and_check(ROW, uneven(5), Fraction(3))
    assert shoal.loads(shoal.dumps(plan)) == plan
    assert confirm_plan(plan) is plan
    assert "falls by" in plan.explain()
    data = ["a", "b", "b", "a", "a"]
    release = plan.release(data, rng=7)
    assert release.answer.step == plan.task.query.lattice
    model: Any = plan.task.family[0]
    beliefs = attack(model, [released(plan, release)], 5)
    output, (fall, width, lead) = release.answer.multiples[0], of_body(plan)
    chances: dict[int, float] = {}
    for path in product(range(2), repeat=5):
        weight = float(model.initial[path[0]]) * math.prod(
            float(model.transition[a, b]) for a, b in pairwise(path)
        )
        weight *= math.exp(-float(fall) * ((abs(output - sum(path)) + lead) // width))
        for entry in range(5):
            chances[entry] = chances.get(entry, 0.0) + weight * (path[entry] == 1)
        chances[-1] = chances.get(-1, 0.0) + weight
    told = [chances[entry] / chances[-1] for entry in range(5)]
    assert beliefs.after[:, 1].tolist() == pytest.approx(told, rel=1e-9)


def test_the_ledger_charges_it_as_entry_level_dp(tmp_path: Path) -> None:
    plan = calibrate_and_check(ROW, uneven(12), Fraction(3))
    (rule,) = plan.rules(AsEntryDP)
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        for _ in range(2):
            plan.release(["a", "b"] * 6, ledger=ledger, subject="one")
        total = ledger.spent(subject="one")
        assert total is not None
        assert total.eta == 2 * rule.eta
        assert float(total.amount) <= shoal.leakage(plan.task.family, 2 * rule.eta).value * 1.001
        assert float(total.amount) > 3  # not what it promises twice, nor once
        assert ledger.verify().problems == ()


@pytest.mark.parametrize("weight", [1, 3])
def test_two_releases_tell_no_more_than_the_ledger_says(weight: int) -> None:
    """All pairs of outputs, by the joint law; a sum with steps of 3 has an η that is no η / L."""
    model = MarkovChain.of([[0.8, 0.2], [0.4, 0.6]], states="ab", length=3)
    query = (
        shoal.weighted_sum("ab", {"a": 0, "b": weight}) if weight > 1 else shoal.count("ab", "b")
    )
    task = Task(query=query, secrets=EachEntry(), family=(model,))
    plan = drawn_with(task, Fraction(1, 2), 2, 1, Fraction(3))
    fall, width, lead = of_body(plan)
    total = compose([plan, plan], whole=True)
    worst = 0.0
    for rows in laws_of(task):
        places = range(-3 * width, 3 * weight + 3 * width)
        told = {
            o: {a: math.exp(-float(fall) * ((abs(o - a) + lead) // width)) for a in range(10)}
            for o in places
        }
        for one, two in product(places, repeat=2):
            seen = [
                math.fsum(float(w) * told[one][a] * told[two][a] for a, w in row.items())
                / math.fsum(map(float, row.values()))
                for row in rows.values()
            ]
            worst = max(worst, math.log(max(seen) / min(seen)))
    assert worst <= float(total.amount)
    assert total.rule != "same answer"


def test_a_forged_plan_is_told() -> None:
    plan = calibrate_and_check(ROW, uneven(8), Fraction(3))
    fall, width, lead = of_body(plan)
    steeper = replace(plan, body=Stepped(plan.task.query, fall * 2, width, lead))
    assert verify_promise(steeper) > 3
    (rule,) = plan.rules(AsEntryDP)
    cheap = replace(plan, composition=(AsEntryDP(rule.eta / 2),))
    assert verify_promise(cheap) == math.inf
    other = shoal.count("ab", "a")
    with pytest.raises(shoal.PromiseBroken, match="another query"):
        steps.loss(replace(plan, body=Stepped(other, fall, width, lead)))
    exact = shoal.calibrate(
        plan.task.query, EachEntry(), plan.task.family, epsilon=3, mechanism="exact"
    )
    assert isinstance(exact.body, Additive)
    assert verify_promise(replace(plan, body=exact.body)) <= 3  # other noise, which keeps it too
    with pytest.raises(shoal.PromiseBroken, match="not noise in steps"):
        steps.loss(replace(plan, body=exact.body))
    with pytest.raises(shoal.PromiseBroken):
        MECHANISMS["exact"].loss(replace(exact, body=plan.body))


def test_it_is_refused_in_words() -> None:
    model = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states="ab", length=6)
    several = Task(query=shoal.histogram("ab"), secrets=EachEntry(), family=(model,))
    assert ROW.refuse(several) == "noise in steps is added to one number, not to several at once"
    events = shoal.Events.of(shoal.visit("b"))
    task = Task(query=shoal.count("ab", "b"), secrets=events, family=(model,))
    assert "single entries" in str(ROW.refuse(task))


def test_what_is_too_slow_to_search_is_what_exact_draws() -> None:
    """A chain that hardly forgets: no window fits, and the even fall is drawn."""
    model = MarkovChain.of([[0.99, 0.01], [0.01, 0.99]], states="ab", length=10**6)
    task = Task(query=shoal.count("ab", "b"), secrets=EachEntry(), family=(model,))
    plan = calibrate_and_check(ROW, task, Fraction(3))
    assert of_body(plan)[1] == 1
    wide = drawn_with(task, Fraction(1, 100), 5, 2, Fraction(3))
    assert steps.loss(wide) == math.inf


def test_a_time_limit_ends_the_search() -> None:
    with shoal.time_limit(1e-6):
        plan = ROW.calibrate(uneven(30), Fraction(3))
    assert verify_promise(plan) <= 3 * (1 + 1e-12)
    assert of_body(plan)[1] == 1
    assert "time limit" in plan.explain()


# What the auditor finds by its own means.


def test_audits_agree_with_the_joint_law() -> None:
    seen = 0
    for task, place in zip(tasks(77, least=1e-12), range(14), strict=False):
        plan = calibrate_and_check(ROW, task, Fraction(("3", "2", "5")[place % 3]))
        found, true = shoal.audit(plan), truth(laws_of(task), *of_body(plan))
        assert found.holds
        assert found.lower <= true * (1 + 1e-9) + 1e-11
        if found.exact:
            seen += 1
            assert found.loss == pytest.approx(true, rel=1e-9, abs=1e-11)
    assert seen >= 8


def test_audits_of_any_law_agree_with_the_joint_law() -> None:
    rng = random.Random(3)
    for task, _ in zip(tasks(78, least=1e-12), range(14), strict=False):
        width = rng.choice((2, 3, 6))
        law = (Fraction(rng.randint(1, 30), 10), width, rng.randrange(width))
        found = shoal.audit(drawn_with(task, *law, Fraction(3)))
        true = truth(laws_of(task), *law)
        assert found.loss == pytest.approx(true, rel=1e-9, abs=1e-11)
        assert found.entry_level == pytest.approx(float(steps.Stepped(task.query, *law).eta))


def test_an_audit_of_a_long_chain_is_an_interval() -> None:
    plan = calibrate_and_check(ROW, uneven(10**6), Fraction(3))
    found = shoal.audit(plan)
    assert found.holds
    assert 2.9 < found.lower <= found.upper <= 3 * (1 + 1e-9)
    fall, width, lead = of_body(plan)
    steeper = replace(plan, body=Stepped(plan.task.query, fall * Fraction(13, 10), width, lead))
    assert shoal.audit(steeper).violated
