"""Laws of counts over a crowd in exact fractions: what calls itself exact is, down to 1e-290."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from shoal.core.task import EachEntry, Task
from shoal.core.walk import LOST
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.mechanisms.variables import variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.contagion_sums import ExchangeableGroup, TableGroup, WeightedGroup
from shoal.networks.exact import secret_loss
from shoal.networks.laws import laws_of_table
from shoal.networks.parts import independent_parts
from shoal.networks.table import JointTable

STATES = ("well", "ill")
ILL = count(STATES, "ill")
ADDED = np.array([[0], [1]])
Known = dict[int, np.ndarray]
Exact = dict[int, Fraction]


def drawn_law(rng: np.random.Generator, size: int, deepest: float) -> np.ndarray:
    """A law with masses down to 10^-deepest, and some zeros; the first is nearly everything."""
    law = 10.0 ** -rng.uniform(0, deepest, size)
    law[rng.random(size) < 0.25] = 0.0
    law[0] = 0.0
    law = law / max(float(law.sum()) * 2, 1.0)
    law[0] = 1.0 - law.sum()
    return law


def outcome_law(model: Contagion) -> dict[tuple[int, ...], Fraction]:
    """P(outcome) of a single group, in fractions of the very doubles the model holds."""
    law, size = model.law_of(0), len(model.variables)
    found = {}
    for outcome in itertools.product((0, 1), repeat=size):
        ill = sum(outcome)
        chance = (
            Fraction(float(law[ill])) / math.comb(size, ill)
            if model.exchangeable(0)
            else Fraction(float(law[outcome]))
        )
        if chance:
            found[outcome] = chance
    return found


def law_given(model: Contagion, known: Known) -> tuple[Exact, Fraction]:
    """The law of the number ill given what is known, and how likely that is."""
    weight: Exact = {}
    for outcome, chance in outcome_law(model).items():
        if all(known[p][outcome[p]] for p in known):
            weight[sum(outcome)] = weight.get(sum(outcome), Fraction(0)) + chance
    total = sum(weight.values(), Fraction(0))
    return {n: mass / total for n, mass in weight.items()}, total


def random_group(rng: np.random.Generator) -> Contagion:
    size = int(rng.integers(1, 6))
    deepest = float(rng.choice([3, 150, 285, 307, 323]))
    shape = (2,) * size if size > 1 and rng.random() < 0.5 else (size + 1,)
    law = drawn_law(rng, math.prod(shape), deepest)
    return Contagion(
        variables=tuple(f"p{i}" for i in range(size)),
        groups=(tuple(range(size)),),
        which=(0,),
        laws=(law.reshape(shape),),
    )


def random_event(rng: np.random.Generator, size: int) -> Known:
    rows = (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    return {p: rows[int(rng.integers(3))] for p in range(size) if rng.random() < 0.7}


def component_of(model: Contagion) -> ExchangeableGroup | TableGroup:
    kind = ExchangeableGroup if model.exchangeable(0) else TableGroup
    return kind(model, 0, ADDED)


def assert_as_exact(
    law: np.ndarray, values: np.ndarray, exact: Exact, roundings: float, *, lossy: bool
) -> None:
    """Every mass within its roundings; where the flag is up, those below 1e-290 may be wrong."""
    for value, mass in zip(values[:, 0].tolist(), law.tolist(), strict=True):
        true = exact.get(value, Fraction(0))
        if lossy and true < Fraction(2 * LOST):
            assert mass <= 4 * LOST
            continue
        assert (mass > 0) == (true > 0)
        assert abs(Fraction(mass) - true) <= true * Fraction(roundings) / 2**53


def test_laws_given_an_event_are_exact_unless_they_say_so() -> None:
    flags = []
    for seed in range(600):
        rng = np.random.default_rng(seed)
        model = random_group(rng)
        component = component_of(model)
        known = random_event(rng, len(model.variables))
        exact, total = law_given_or_none(model, known)
        found = component.given(known)
        assert (found.probability > 0) == (total > 0), seed
        flags.append(found.lossy)
        assert found.lossy == any(mass < Fraction(LOST) for mass in exact.values()), seed
        if total:
            assert_as_exact(
                found.law, component.values, exact, component.roundings, lossy=found.lossy
            )
    assert 0.03 < np.mean(flags) < 0.7  # both happen


def law_given_or_none(model: Contagion, known: Known) -> tuple[Exact, Fraction]:
    possible = any(all(known[p][outcome[p]] for p in known) for outcome in outcome_law(model))
    return law_given(model, known) if possible else ({}, Fraction(0))


def test_laws_given_each_state_are_exact_unless_they_say_so() -> None:
    for seed in range(300):
        model = random_group(np.random.default_rng(1000 + seed))
        component = component_of(model)
        laws, prior, _, names = component.each_entry()
        for law, chance, name in zip(laws, prior, names, strict=True):
            person, state = name.split(" = ")
            known = {model.variables.index(person): np.eye(2)[STATES.index(state)]}
            exact, total = law_given_or_none(model, known)
            assert (chance > 0) == (total > 0), seed
            if total:
                assert_as_exact(
                    law, component.values, exact, component.roundings, lossy=component.lossy
                )


def log_of(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def true_loss(one: Exact, two: Exact, decay: Fraction) -> float:
    """The loss of noise of weight decay^|gap|, at answers and beyond them, in exact fractions."""
    support = sorted({*one, *two})
    outputs = range(support[0], support[-1] + 1)

    def density(law: Exact, output: int) -> Fraction:
        return sum((p * decay ** abs(output - v) for v, p in law.items()), Fraction(0))

    return max(
        abs(log_of(density(one, output)) - log_of(density(two, output))) for output in outputs
    )


@pytest.mark.parametrize("block", range(4))
def test_the_loss_is_never_below_the_true_one(block: int) -> None:
    """So little noise that masses of 1e-300 decide: then the loss is bounded or given up."""
    for seed in range(60 * block, 60 * block + 60):
        rng = np.random.default_rng(2000 + seed)
        model = random_group(rng)
        power = int(rng.choice([1, 40, 400, 1500]))
        steps = 1 / (power * math.log(2))
        for part in independent_parts(model, ILL, EachEntry()).parts:
            found = secret_loss(part.laws, steps)
            names = part.laws.names
            for a, b in np.argwhere(part.laws.pairs).tolist():
                one, two = (law_given(model, known_of(model, names[s]))[0] for s in (a, b))
                assert found >= true_loss(one, two, Fraction(1, 2**power)) * (1 - 1e-9), seed


def known_of(model: Contagion, name: str) -> Known:
    person, state = name.split(" = ")
    return {model.variables.index(person): np.eye(2)[STATES.index(state)]}


def weighted_law(
    model: Contagion, weights: list[list[int]], known: Known
) -> tuple[Exact, Fraction]:
    """The law of the sum of weights given what is known, and how likely that is."""
    found: Exact = {}
    for outcome, chance in outcome_law(model).items():
        if all(known[p][outcome[p]] for p in known):
            answer = sum(weights[p][state] for p, state in enumerate(outcome))
            found[answer] = found.get(answer, Fraction(0)) + chance
    total = sum(found.values(), Fraction(0))
    return {value: mass / total for value, mass in found.items()}, total


def test_sums_of_weights_per_person_are_exact_unless_they_say_so() -> None:
    for seed in range(300):
        rng = np.random.default_rng(3000 + seed)
        model = random_group(rng)
        size = len(model.variables)
        weights = (rng.integers(-3, 4, (size, 2)) * int(rng.integers(1, 3))).tolist()
        kind = WeightedGroup if model.exchangeable(0) else TableGroup
        component = kind(model, 0, [np.array(own)[:, None] for own in weights])
        known = random_event(rng, size)
        exact, total = weighted_law(model, weights, known)
        found = component.given(known)
        assert (found.probability > 0) == (total > 0), seed
        assert found.lossy == any(mass < Fraction(LOST) for mass in exact.values()), seed
        if total:
            assert set(exact) <= set(component.values[:, 0].tolist())
            assert_as_exact(
                found.law, component.values, exact, component.roundings, lossy=found.lossy
            )
        laws, prior, owner, names = component.each_entry()
        assert len(laws) == len(prior) == len(owner) == len(names) == 2 * size


@pytest.mark.parametrize("row", ["exact", "wasserstein"])
def test_noise_for_weights_per_person_is_that_of_the_table(row: str) -> None:
    """The crowd group by group, and all of its outcomes written out, ask for the same noise."""
    table = np.array([[0.5, 0.1], [0.1, 0.3]])
    model = Contagion.from_edges(
        "abcdef",
        [("a", "b"), ("b", "c"), ("e", "f")],
        {3: [0.4, 0.1, 0.2, 0.3], 1: [0.8, 0.2]},
        tables={"f": table},
    )
    query = variable_sum(
        model,
        {"a": {"ill": 1}, "b": {"ill": 2}, "c": {"well": 1}, "d": {"ill": 3}, "e": {"ill": "1/2"}},
    )
    scales = []
    for law in (model, model.as_table()):
        for epsilon in ("1/2", "2"):
            task = Task(query=query, secrets=EachEntry(), family=(law,))
            plan = calibrate_and_check(MECHANISMS[row], task, Fraction(epsilon))
            scales.append(float(plan.body.noise.scale))  # type: ignore[union-attr]
    assert scales[:2] == pytest.approx(scales[2:], rel=1e-8)


def test_groups_alike_in_law_and_weights_are_one_with_copies() -> None:
    model = Contagion.cliques([2] * 4, [0.5, 0.1, 0.4])
    doses = [{"ill": w} for w in (1, 2, 1, 2, 2, 1, 1, 2)]
    query = variable_sum(model, dict(zip(model.variables, doses, strict=True)))
    task = independent_parts(model, query, EachEntry())
    assert task.copies == (3, 1)
    scales = []
    for law in (model, model.as_table()):
        plan = calibrate_and_check(
            MECHANISMS["exact"],
            Task(query=query, secrets=EachEntry(), family=(law,)),
            Fraction(1, 2),
        )
        scales.append(float(plan.body.noise.scale))  # type: ignore[union-attr]
    assert scales[0] == pytest.approx(scales[1], rel=1e-8)


def test_a_large_group_given_many_people_says_that_masses_are_lost() -> None:
    """600 of 1,200 people known to be well: P(600 ill | that) = 1/C(1200, 600) of the rest."""
    model = Contagion.cliques([1200], np.full(1201, 1 / 1201))
    group = ExchangeableGroup(model, 0, ADDED)
    assert not group.lossy
    assert not group.given({0: np.array([1.0, 0.0])}).lossy
    found = group.given({p: np.array([1.0, 0.0]) for p in range(600)})
    assert found.lossy
    assert found.law[600] == 0.0


def both_ill(model: Contagion | BayesNet) -> Task:
    pair = (
        Event.of("both", {"a": "ill", "b": "ill"}),
        Event.of("none", {"a": "well", "b": "well"}),
    )
    return Task(query=ILL, secrets=SecretPairs.of([pair]), family=(model,))


@pytest.mark.parametrize("row", ["exact", "wasserstein"])
def test_an_event_whose_probability_underflows_is_still_a_secret(row: str) -> None:
    """Two independent people, each ill with 1e-200: both with 1e-400, which is 0 as a double."""
    rare = [1 - 1e-200, 1e-200]
    crowd = Contagion.cliques([1, 1], rare, people=["a", "b"])
    net = BayesNet.of({"a": rare, "b": rare}, domains={"a": STATES, "b": STATES})
    for model in (crowd, net):
        plan = calibrate_and_check(MECHANISMS[row], both_ill(model), Fraction(1))
        assert float(plan.body.noise.scale) >= 2  # type: ignore[union-attr]
        parts = independent_parts(model, ILL, both_ill(model).secrets).parts
        assert len(parts) == 1
        assert (parts[0].prior > 0).all()


@pytest.mark.parametrize("row", ["exact", "wasserstein"])
def test_masses_lost_given_a_rare_event_ask_for_noise(row: str) -> None:
    """a is 1 with 1e-240, and then b with 1e-84: b = 1 given a = 1 was lost, not impossible."""
    net = BayesNet.of(
        {"a": [1 - 1e-240, 1e-240], "b": [[1.0, 0.0], [1 - 1e-84, 1e-84]], "c": [0.5, 0.5]},
        parents={"b": ["a"]},
    )
    query = variable_sum(net, {"b": {"1": 5}, "c": {"1": 1}})
    pair = (Event.of("a", {"a": "1"}), Event.of("no a", {"a": "0"}))
    task = Task(query=query, secrets=SecretPairs.of([pair]), family=(net,))
    plan = calibrate_and_check(MECHANISMS[row], task, Fraction(1))
    scale = float(plan.body.noise.scale)  # type: ignore[union-attr]
    told = math.log(1e-84 + math.exp(-5 / scale)) + 5 / scale  # at output 5, c left out
    assert told <= 1


def test_sums_over_several_components_say_that_products_are_lost() -> None:
    crowd = Contagion.cliques([2, 2], [0.5, 0.5 - 1e-200, 1e-200], people=["a", "c", "b", "d"])
    part = independent_parts(crowd, ILL, both_ill(crowd).secrets).parts[0]
    assert part.laws.lossy
    assert secret_loss(part.laws, 1 / 1000) == math.inf
    mild = Contagion.cliques([2, 2], [0.5, 0.3, 0.2], people=["a", "c", "b", "d"])
    assert not independent_parts(mild, ILL, both_ill(mild).secrets).parts[0].laws.lossy


def test_a_table_with_outcomes_too_rare_for_doubles_says_so() -> None:
    for least, lossy in ((1e-280, False), (1e-320, True)):
        table = JointTable.of(
            [[0.5, 0.5 - least], [least, 0.0]], variables=["a", "b"], domains=[STATES, STATES]
        )
        assert laws_of_table(table, ILL, EachEntry()).lossy == lossy
    never = (Event.of("both", {"a": "ill", "b": "ill"}), Event.of("b", {"a": "ill", "b": "ill"}))
    assert laws_of_table(table, ILL, SecretPairs.of([never])).names == ()
