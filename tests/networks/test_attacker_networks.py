"""A random attacker of tables, networks, fields, contagion and ties, through public names only.

Laws have zeros and probabilities down to 1e-300, and long forests of ties whose products are no
doubles. Truth is enumeration in fractions, or in logarithms along a forest (tree_enumeration).
What is promised must never be below it.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise, product
from typing import Any

import pytest

import shoal
from tests.attacker import REFUSED, attack_for_long
from tests.oracle.tree_enumeration import count_in_steps_loss, count_laws, log_sum, noisy_loss

Outcome = tuple[int, ...]
Law = dict[Outcome, Fraction]
ROWS = (
    "best",
    "exact",
    "wasserstein",
    "group",
    "markov-quilt",
    "lift",
    "dependent-field",
    "influence-matrix",
    "optimal-table",
)
NEAR = 1e-10  # what the logarithms of this file may be off by


@dataclass
class Case:
    """A model and its law, outcome by outcome (indices of values), up to a constant."""

    model: Any
    names: list[str]
    sizes: list[int]
    law: Law


# random numbers


def weight(draw: random.Random) -> float:
    """Mostly ordinary, sometimes 0, next to 0, or next to 1."""
    kind = draw.random()
    if kind < 0.12:
        return 0.0
    if kind < 0.3:
        return 10.0 ** -draw.choice([3, 12, 40, 100, 160, 200, 299])
    return draw.random()


def row(draw: random.Random, size: int) -> list[float]:
    """A law on `size` values; the likeliest is what the others leave."""
    rest = [weight(draw) / size for _ in range(size - 1)]
    rest.append(1.0 - math.fsum(rest))
    draw.shuffle(rest)
    return rest


def tie(draw: random.Random, size: int) -> list[list[float]]:
    table = [[weight(draw) for _ in range(size)] for _ in range(size)]
    table[0][0] = table[0][0] or 1.0
    return table


# random models


def nested(draw: random.Random, sizes: Sequence[int]) -> Any:
    if len(sizes) == 1:
        return row(draw, sizes[0])
    return [nested(draw, sizes[1:]) for _ in range(sizes[0])]


def random_table(draw: random.Random) -> Case:
    size, count = draw.choice([2, 2, 3]), draw.choice([1, 2, 3])
    outcomes = list(product(range(size), repeat=count))
    law = row(draw, len(outcomes))
    shaped: Any = law
    for _ in range(count - 1):
        shaped = [shaped[i : i + size] for i in range(0, len(shaped), size)]
    model = shoal.JointTable.of(shaped)
    names = [f"X{i + 1}" for i in range(count)]
    exact = {x: Fraction(float(model.probability[x])) for x in outcomes}
    return Case(model, names, [size] * count, exact)


def random_network(draw: random.Random, size: int | None = None) -> Case:
    """Up to five variables of two or three values, with colliders."""
    count = draw.choice([1, 2, 3, 4, 5])
    alike = size or draw.choice([2, 2, 3])
    names = [f"V{i}" for i in range(count)]
    above = {
        names[i]: [names[j] for j in range(i) if draw.random() < 0.6][-2:] for i in range(count)
    }
    tables = {name: nested(draw, [alike] * (len(above[name]) + 1)) for name in names}
    model = shoal.BayesNet.of(tables, parents=above)
    law: Law = {}
    for x in product(range(alike), repeat=count):
        chance = Fraction(1)
        for i, name in enumerate(names):
            place = (*(x[names.index(parent)] for parent in above[name]), x[i])
            chance *= Fraction(float(model.tables[i][place]))
        law[x] = chance
    return Case(model, names, [alike] * count, law)


def random_field(draw: random.Random) -> Case:
    """Two to five records, with or without loops."""
    size, count = draw.choice([2, 2, 3]), draw.choice([2, 3, 4])
    pairs = [pair for pair in combinations(range(count), 2) if draw.random() < 0.6]
    tables = [tie(draw, size) for _ in pairs] or [tie(draw, size)]
    own = [[weight(draw) or 1.0 for _ in range(size)] for _ in range(count)]
    model = shoal.records.PairwiseField.of(
        shoal.records.RecordDomain.named([str(v) for v in range(size)]),
        count,
        pairs,
        tables,
        range(len(pairs)),
        own,
    )
    law: Law = {}
    for x in product(range(size), repeat=count):
        chance = Fraction(1)
        for i, value in enumerate(x):
            chance *= Fraction(own[i][value])
        for (i, j), table in zip(pairs, tables, strict=False):
            chance *= Fraction(table[x[i]][x[j]])
        law[x] = chance
    return Case(model, [], [size] * count, law)


def random_crowd(draw: random.Random) -> Case:
    """One to three groups of up to four people, by the number ill or by a table."""
    sizes = [draw.choice([1, 2, 3]) for _ in range(draw.choice([1, 2]))]
    people = [str(i) for i in range(sum(sizes))]
    ends = [sum(sizes[: g + 1]) for g in range(len(sizes))]
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends, strict=True)]
    by_size = {size: row(draw, size + 1) for size in set(sizes)}
    tables = {group[0]: nested_law(draw, len(group)) for group in groups if draw.random() < 0.4}
    edges = [(str(a), str(b)) for group in groups for a, b in pairwise(group)]
    model = shoal.Contagion.from_edges(
        people, edges, by_size, tables={str(k): v for k, v in tables.items()}
    )
    law: Law = {}
    for x in product((0, 1), repeat=len(people)):
        chance = Fraction(1)
        for group in groups:
            part = tuple(x[i] for i in group)
            if group[0] in tables:
                value: Any = tables[group[0]]
                for i in part:
                    value = value[i]
                chance *= Fraction(value)
            else:
                ill = sum(part)
                chance *= Fraction(by_size[len(group)][ill]) / math.comb(len(group), ill)
        law[x] = chance
    return Case(model, people, [2] * len(people), law)


def nested_law(draw: random.Random, count: int) -> Any:
    shaped: Any = row(draw, 2**count)
    for _ in range(count - 1):
        shaped = [shaped[i : i + 2] for i in range(0, len(shaped), 2)]
    return shaped


KINDS: tuple[Callable[[random.Random], Case], ...] = (
    random_table,
    random_network,
    random_field,
    random_crowd,
)


# truth


def log_of(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator) if value else -math.inf


def conditional(law: Law, holds: Callable[[Outcome], bool]) -> Law | None:
    """The law given an event; None when it is impossible."""
    kept = {x: p for x, p in law.items() if p and holds(x)}
    total = sum(kept.values(), Fraction(0))
    return {x: p / total for x, p in kept.items()} if total else None


def entry_pairs(case: Case) -> Iterator[tuple[Law, Law]]:
    for i, size in enumerate(case.sizes):
        given = [conditional(case.law, lambda x, i=i, v=v: x[i] == v) for v in range(size)]  # type: ignore[misc]
        known = [law for law in given if law is not None]
        yield from ((a, b) for a, b in product(known, known) if a is not b)


def answers(case: Case, weights: Sequence[Sequence[Sequence[Fraction]]], law: Law) -> Law:
    """The law of Σ_i weights[i][x_i], a vector."""
    found: dict[Any, Fraction] = {}
    for x, chance in law.items():
        rows = [weights[i][value] for i, value in enumerate(x)]
        total = tuple(sum(column) for column in zip(*rows, strict=True))
        found[total] = found.get(total, Fraction(0)) + chance
    return found


def released_loss(one: Law, two: Law, scale: float, support: Sequence[Outcome]) -> float:
    """log of the densities' ratio at every point of the grid of answers."""
    axes = [sorted(set(column)) for column in zip(*support, strict=True)]
    first, second = ([(x, log_of(p)) for x, p in law.items()] for law in (one, two))
    worst = -math.inf
    for point in product(*axes):
        seen = [
            log_sum(
                [
                    p - sum(abs(float(a - u)) for a, u in zip(x, point, strict=True)) / scale
                    for x, p in law
                ]
            )
            for law in (first, second)
        ]
        worst = max(worst, seen[0] - seen[1])
    return worst


def stepped_loss(one: Law, two: Law, body: Any) -> float:
    """The loss of noise in steps, over whole outputs up to two widths beyond all answers."""
    laws = [
        [(int(x[0] / body.query.lattice), log_of(p)) for x, p in law.items() if p]
        for law in (one, two)
    ]
    places, worst = [c for law in laws for c, _ in law], -math.inf
    reach = 2 * body.width
    for output in range(min(places) - reach, max(places) + reach + 1):
        seen = [
            log_sum(
                [
                    p - float(body.fall) * ((abs(output - c) + body.lead) // body.width)
                    for c, p in law
                ]
            )
            for law in laws
        ]
        worst = max(worst, seen[0] - seen[1])
    return worst


def told_loss(plan: shoal.Plan, one: Law, two: Law, support: Sequence[Outcome]) -> float:
    """The loss of a plan between two laws of the answer: of its noise, or of its table."""
    body: Any = plan.body
    if plan.mechanism == "steps" and plan.additive is None:
        return stepped_loss(one, two, body)
    if plan.mechanism != "optimal-table":
        return released_loss(one, two, float(body.noise.scale), support)
    rows = dict(zip(body.answers, body.weights, strict=True))
    worst = -math.inf
    for output in range(len(body.answers)):
        seen = [
            sum(
                (p * rows[int(x[0] / body.query.lattice)][output] for x, p in law.items()),
                Fraction(0),
            )
            for law in (one, two)
        ]
        if seen[0] > 0:
            worst = max(worst, log_of(seen[0]) - log_of(seen[1]) if seen[1] > 0 else math.inf)
    return worst


def worst_release(one: Law, two: Law, eta: float) -> float:
    """What an eta-DP release tells: how far the data is from where one of the two is likelier."""
    likelier = [x for x, p in one.items() if p > two.get(x, Fraction(0))]
    worst = 0.0
    sets = [likelier, [x for x in two if two[x] > one.get(x, Fraction(0))]]
    for sign, several in zip((-1.0, 1.0), sets, strict=True):
        if several:
            seen = [
                log_sum([log_of(p) + sign * eta * far(x, several) for x, p in law.items()])
                for law in (one, two)
            ]
            worst = max(worst, seen[0] - seen[1])
    return worst


def far(x: Outcome, several: Sequence[Outcome]) -> int:
    return min(sum(a != b for a, b in zip(x, y, strict=True)) for y in several)


def divergence(one: Law, two: Law) -> float:
    return max(
        math.inf if not two.get(x) else log_of(p) - log_of(two[x]) for x, p in one.items() if p
    )


# attacks


def at_most(truth: float, promised: float, what: str) -> None:
    assert truth <= promised + NEAR * (1.0 + abs(truth)), (what, truth, promised)


def attack_rows(draw: random.Random, case: Case, seen: Counter[str]) -> None:
    """Each row that takes the task keeps its promise about entries or about two events."""
    states = [*case.model.states]
    size = len(states)
    epsilon = Fraction(draw.choice(["1/10", "1/3", "1", "2", "5"]))
    kind = draw.choice(["count", "weights", "histogram", "variables"])
    each: list[list[list[Fraction]]]
    if kind == "count":
        query: Any = shoal.count(states, states[-1])
        each = [[[Fraction(int(v == size - 1))] for v in range(size)]] * len(case.sizes)
    elif kind == "weights":
        chosen = [0, *(draw.randint(1, 4) for _ in range(size - 1))]
        query = shoal.weighted_sum(states, dict(zip(states, chosen, strict=True)))
        each = [[[Fraction(w)] for w in chosen]] * len(case.sizes)
    elif kind == "histogram" or not case.names:
        query = shoal.histogram(states)
        unit = [[Fraction(int(v == u)) for u in range(size)] for v in range(size)]
        each = [unit] * len(case.sizes)
    else:
        table = {name: {v: draw.randint(0, 3) for v in states} for name in case.names}
        table[case.names[-1]] |= {states[0]: 0, states[-1]: 1}
        query = shoal.variable_sum(case.model, table)
        each = [[[Fraction(table[name][v])] for v in states] for name in case.names]
    secrets: Any = shoal.EachEntry()
    pairs = list(entry_pairs(case))
    if case.names and draw.random() < 0.3:
        secrets, pairs = two_events(draw, case, states)
    laws = [tuple(answers(case, each, law) for law in pair) for pair in pairs]
    support = sorted({x for pair in laws for law in pair for x in law})
    for name in (*draw.sample(ROWS, 4), "steps"):
        try:
            plan = shoal.calibrate(query, secrets, case.model, epsilon=epsilon, mechanism=name)
        except shoal.Refused:
            seen[REFUSED] += 1
            continue
        seen[name] += 1
        truth = max((told_loss(plan, a, b, support) for a, b in laws), default=0.0)
        at_most(truth, float(epsilon), f"{name} {kind}")
        at_most(truth, shoal.verify_promise(plan), f"verify_promise of {name} {kind}")


def two_events(draw: random.Random, case: Case, states: Sequence[str]) -> tuple[Any, Any]:
    """A pair of events about some variables, and their laws where both are possible."""
    wheres, given = [], []
    for _ in range(2):
        chosen = draw.sample(range(len(case.names)), draw.randint(1, len(case.names)))
        where = {i: draw.sample(range(len(states)), draw.randint(1, len(states))) for i in chosen}
        wheres.append({case.names[i]: [states[v] for v in values] for i, values in where.items()})
        given.append(
            conditional(case.law, lambda x, w=where: all(x[i] in v for i, v in w.items()))  # type: ignore[misc]
        )
    first, second = (shoal.Event.of(str(n), where) for n, where in enumerate(wheres))
    a, b = given
    both = [] if a is None or b is None else [(a, b), (b, a)]
    return shoal.SecretPairs.of([(first, second)]), both


def attack_leakage(draw: random.Random, case: Case) -> None:
    eta = draw.choice([0.01, 0.3, 1.0, 4.0])
    try:
        told = shoal.leakage(case.model, eta).value
    except shoal.Refused:
        return
    for one, two in entry_pairs(case):
        at_most(worst_release(one, two, eta), told, f"leakage at {eta}")


def attack_closeness(draw: random.Random, seed: int, kind: Callable[[random.Random], Case]) -> None:
    """Two models of one shape; the second has other numbers, or nearly the same."""
    one = kind(random.Random(seed))
    for _ in range(20):
        two = kind(random.Random(draw.randrange(2**30)))
        if (two.sizes, two.names) == (one.sizes, one.names):
            break
    else:
        two = one
    try:
        found = shoal.closeness(one.model, two.model).value
    except shoal.InputError:  # other groups
        return
    truth = 0.0
    for i, size in enumerate(one.sizes):
        for v in range(size):
            laws = [conditional(c.law, lambda x, i=i, v=v: x[i] == v) for c in (one, two)]  # type: ignore[misc]
            for a, b in (laws, laws[::-1]):
                if a is not None:
                    truth = max(truth, math.inf if b is None else divergence(a, b))
    at_most(truth, found, "closeness")
    assert found <= truth + 1e-6 or not math.isfinite(found)


def attack_divergence(draw: random.Random) -> None:
    size = draw.choice([2, 3, 5])
    one, two = row(draw, size), row(draw, size)
    laws: list[Law] = [{(i,): Fraction(p) for i, p in enumerate(law)} for law in (one, two)]
    truth, found = divergence(*laws), shoal.chains.max_divergence(one, two)
    at_most(truth, found, "max_divergence")
    assert found == truth or found <= truth + 1e-9


def attack_forest(draw: random.Random, seen: Counter[str]) -> None:
    """Long stars, paths and trees of ties, whose products underflow; how many rows took them."""
    count = draw.choice([10, 20, 60])
    shape = draw.choice(["star", "star", "path", "tree"])
    above = {
        i: {"star": 0, "path": i - 1, "tree": draw.randrange(i)}[shape] for i in range(1, count)
    }
    rare = 10.0 ** -draw.choice([1, 4, 9, 30, 150])
    kinds = [
        [[1 - rare, rare], [rare, 1 - rare]],
        [[1.0, rare], [rare, draw.random()]],
        [[draw.random(), rare], [1.0, 0.0]],
    ]
    tables = [draw.choice(kinds[:2] if draw.random() < 0.7 else kinds) for _ in above]
    leaf = draw.choice([0.5, 1e-3, 1e-9, 1e-80, 1e-80])
    own = [[1.0, 1.0] if i == 0 else [1 - leaf, leaf] for i in range(count)]
    ties = {(j, i): table for (i, j), table in zip(above.items(), tables, strict=True)}
    model = shoal.records.PairwiseField.of(
        shoal.records.RecordDomain.named(["0", "1"]),
        count,
        list(ties),
        tables,
        range(len(tables)),
        own,
    )
    laws = [count_laws(own, ties, root) for root in {0, 1, draw.randrange(count), count - 1}]
    query = shoal.count(["0", "1"], "1")
    epsilon = draw.choice([0.3, 1, 4])
    for name in ("exact", draw.choice(ROWS)):
        try:
            plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=epsilon, mechanism=name)
        except shoal.Refused:
            seen[REFUSED] += 1
            continue
        seen[name] += 1
        truth = max(drawn_loss(plan, law) for law in laws)
        at_most(truth, float(epsilon), f"{name} on a {shape} of {count}")
    eta = draw.choice([0.1, 1.0])
    truth = max(noisy_loss(law, 1 / eta) for law in laws)
    at_most(truth, shoal.leakage(model, eta).value, f"leakage at {eta} of a {shape} of {count}")


def drawn_loss(plan: shoal.Plan, laws: Any) -> float:
    """The true loss of a count, by what the plan draws."""
    noise: Any = plan.body.noise  # type: ignore[union-attr]
    if hasattr(noise, "fall"):
        return count_in_steps_loss(laws, float(noise.fall), noise.width, noise.lead)
    return noisy_loss(laws, float(noise.scale))


def attack_ties(draw: random.Random, seen: Counter[str]) -> None:
    """Pairwise laws on a forest, and the one field that has them."""
    count = draw.choice([3, 6, 30])
    above = {i: draw.choice([0, i - 1]) for i in range(1, count)}
    one = 10.0 ** -draw.choice([1, 2, 6, 20])
    both = one * draw.choice([one, 0.1, 0.5, 1 - 1e-9])
    pair = [[1 - 2 * one + both, one - both], [one - both, both]]
    margin = [pair[0][0] + pair[0][1], pair[1][0] + pair[1][1]]
    ties = {(j, i): pair for i, j in above.items()}
    pairs = shoal.Dependence.of(
        shoal.records.RecordDomain.named(["0", "1"]), count, list(ties), pair
    )
    try:
        model = shoal.records.field_of_pairs(pairs)
    except shoal.InputError:  # weights that no double holds
        return
    step = [[p / margin[x] if margin[x] else 0.0 for p in pair[x]] for x in (0, 1)]
    directed = dict.fromkeys(ties, step)
    own = [margin if i == 0 else [1.0, 1.0] for i in range(count)]
    laws = [count_laws(own, directed, root) for root in {0, 1, count - 1}]
    query = shoal.count(["0", "1"], "1")
    for name in draw.sample(ROWS, 3):
        try:
            plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1, mechanism=name)
        except shoal.Refused:
            seen[REFUSED] += 1
            continue
        seen[name] += 1
        truth = max(drawn_loss(plan, law) for law in laws)
        at_most(truth, 1.0, f"{name} on ties of {count}")


def attack(seed: int, seen: Counter[str]) -> None:
    """One round of everything."""
    draw = random.Random(seed)
    kind = KINDS[seed % len(KINDS)]
    attack_divergence(draw)
    if kind is not random_field:
        attack_closeness(draw, seed, kind)
    case = kind(random.Random(seed))
    if not any(case.law.values()):
        return
    attack_leakage(draw, case)
    attack_rows(draw, case, seen)
    if seed % 8 == 2:
        attack_ties(draw, seen)
    if seed % 8 == 6:
        attack_forest(draw, seen)


def test_a_few_attacks() -> None:
    seen: Counter[str] = Counter()
    for seed in range(7):
        attack(seed, seen)
    assert seen.total() - seen[REFUSED] >= 8


@pytest.mark.slow
def test_attacks_that_go_on(record_property: Any) -> None:
    attack_for_long(attack, record_property, 1000)
