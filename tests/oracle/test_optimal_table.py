"""Tables of laws against the joint law written out: what they tell, draw, add up to and cost.

Nothing here is shared with the row beyond the table of whole numbers it draws from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import linprog

import shoal
from shoal.attacks.beliefs import released
from shoal.cli.plan import _useful
from shoal.core.charge import AsEntryDP
from shoal.core.plan import Additive, Plan
from shoal.core.task import Model, Task
from shoal.ledger.rules import compose
from shoal.mechanisms import optimal_table
from shoal.mechanisms.answer_laws import answer_weights
from shoal.mechanisms.choice import choose
from shoal.mechanisms.exact import TABLE as NAME
from shoal.mechanisms.optimal_table import WHOLE, Tabulated
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, confirm_plan, verify_promise
from shoal.mechanisms.usefulness import least_error
from shoal.networks.contagion import Contagion, exponential_law
from tests.networks.models import joint_of, random_network
from tests.oracle import enumeration
from tests.oracle.audit_tasks import report, tasks

ROWS = (NAME,)
ROUNDING = 1e-9
ROW = MECHANISMS[NAME]


def body(plan: Plan) -> Tabulated:
    assert isinstance(plan.body, Tabulated)
    return plan.body


def outcomes(model: Model, entries: int) -> dict[tuple[int, ...], float]:
    """The joint law of data of exactly so many entries, from the model's own numbers."""
    if isinstance(model, shoal.BayesNet | Contagion):
        law = joint_of(model)
        return {place: float(law[place]) for place in np.ndindex(*law.shape) if law[place] > 0}
    every = enumeration.laws(model, entries)
    return next(law for law in every if len(next(iter(law))) == entries)


def answer(query: Any, model: Any, outcome: tuple[int, ...]) -> int:
    domains = getattr(model, "domains", None) or (model.states,) * len(outcome)
    data = [domain[x] for domain, x in zip(domains, outcome, strict=True)]
    if len(data) == 1:  # which is not read as data, but is a size of a chain
        return int(query.evaluate(query.read(data * 2))[0]) // 2
    return int(query.evaluate(query.read(data))[0])


def told(plan: Plan, model: Model, outputs: int = 1) -> float:
    """The largest log-ratio between two values of an entry, over all that releases may show.

    Of data of every size the table is for.
    """
    table = body(plan)
    least = getattr(model, "order", 1) if table.shorter else table.entries
    sizes = range(least, table.entries + 1)
    return max(told_of(plan, model, size, outputs) for size in sizes)


def told_of(plan: Plan, model: Model, size: int, outputs: int) -> float:
    """The same of data of exactly so many entries."""
    table = body(plan)
    rows = {a: [w / WHOLE for w in r] for a, r in zip(table.answers, table.weights, strict=True)}
    law = outcomes(model, size)
    chances = {o: rows[answer(table.query, model, o)] for o in law}
    worst = 0.0
    for entry in range(size):
        values = sorted({o[entry] for o in law})
        mass = {x: math.fsum(p for o, p in law.items() if o[entry] == x) for x in values}
        for seen in product(range(len(table.answers)), repeat=outputs):
            found = [
                math.fsum(
                    p * math.prod(chances[o][z] for z in seen)
                    for o, p in law.items()
                    if o[entry] == x
                )
                / mass[x]
                for x in values
            ]
            worst = max(worst, math.log(max(found) / min(found)))
    return worst


def accepted(seed: int) -> Iterator[Plan]:
    """Plans for random tasks that the row takes."""
    for task, amount in tasks(seed):
        if ROW.refuse(task) is None:
            yield calibrate_and_check(ROW, task, amount)


def check(wanted: int, seed: int) -> float:
    """The largest share of a promise that was lost over so many random tasks."""
    shares, exact = [], 0
    for plan, _ in zip(accepted(seed), range(wanted), strict=False):
        truth = max(told(plan, model) for model in plan.task.family)
        found = shoal.audit(plan)
        assert math.isclose(found.loss, truth, rel_tol=ROUNDING, abs_tol=ROUNDING)
        assert truth <= verify_promise(plan) + ROUNDING
        assert found.holds
        exact += found.exact
        shares.append(truth / float(plan.guarantee.amount))
    report(
        NAME, wanted, {"mean": float(np.mean(shares)), "max": max(shares), "exact": exact / wanted}
    )
    return max(shares)


def test_no_random_audit_breaks_a_promise() -> None:
    assert check(12, seed=20) <= 1 + ROUNDING


@pytest.mark.slow
def test_no_random_audit_breaks_a_promise_in_many() -> None:
    assert check(300, seed=21) <= 1 + ROUNDING


@pytest.mark.parametrize("seed", range(4))
def test_networks_and_crowds(seed: int) -> None:
    net = random_network(seed, 5, zeros=0.2 * (seed % 2))
    crowd = Contagion.from_edges("abcd", [("a", "b"), ("b", "c")], exponential_law(1.0 + seed))
    for model in (net, crowd):
        states = model.domains[0]
        query = shoal.count(states, states[-1])
        plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1, mechanism=NAME)
        truth = told(plan, model)
        assert truth <= 1 + ROUNDING
        assert shoal.audit(plan).loss == pytest.approx(truth, abs=ROUNDING)


# The cost: the least there is.


def chain(length: int = 5, stay: float = 0.9, **rest: Any) -> shoal.MarkovChain:
    return shoal.MarkovChain.of([[stay, 1 - stay], [1 - stay, stay]], length=length, **rest)


def planned(model: Model, epsilon: Any = 1, mechanism: str = NAME) -> Plan:
    assert model.states is not None
    query = shoal.count(model.states, model.states[-1])
    return shoal.calibrate(query, shoal.EachEntry(), model, epsilon=epsilon, mechanism=mechanism)


def cut_off(plan: Plan, answers: tuple[int, ...]) -> float:
    """The largest expected error of a plan's noise once outputs are cut off at the range."""
    assert isinstance(plan.body, Additive)
    keep = math.exp(-float(plan.task.query.lattice / plan.body.noise.scale))
    z = np.arange(-3000, 3001)
    law = (1 - keep) / (1 + keep) * keep ** np.abs(z)
    low, high = answers[0], answers[-1]
    return max(float(law @ np.abs(np.clip(z + a, low, high) - a)) for a in answers)


def frozen_law() -> npt.NDArray[np.float64]:
    law = np.zeros((2, 2, 2))
    law[0, 0, 0], law[1, 1, 1] = 0.3, 0.7
    return law


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_one_bit_written_thrice_is_randomised_response(epsilon: float) -> None:
    """Answers 0 and 3 alone are possible: no law errs less than 3/(1 + e^ε) at both of them."""
    copies = shoal.JointTable.of(frozen_law())
    plan = planned(copies, epsilon)
    least = 3 / (1 + math.exp(epsilon))
    assert plan.certificate.any_release == pytest.approx(least, rel=1e-5)  # type: ignore[attr-defined]
    assert least * (1 - 1e-6) <= plan.cost <= 1.3 * least  # 1 and 2 are limited at entry level


@pytest.mark.parametrize("stay", [0.5, 0.8, 0.98])
@pytest.mark.parametrize("epsilon", ["0.3", "1", "3"])
def test_the_table_lies_between_the_bound_and_noise_that_is_cut_off(
    stay: float, epsilon: str
) -> None:
    plan, noisy = planned(chain(6, stay), epsilon), planned(chain(6, stay), epsilon, "exact")
    bound = plan.certificate.any_release  # type: ignore[attr-defined]
    assert bound <= plan.cost * (1 + 1e-6)
    assert plan.cost <= cut_off(noisy, body(plan).answers) * (1 + 1e-5)
    assert plan.rules(AsEntryDP)[0].eta <= max(Fraction(epsilon), noisy.rules(AsEntryDP)[0].eta)


def test_the_error_is_that_of_the_worst_answer() -> None:
    plan = planned(chain(4))
    table = body(plan)
    errors = [
        sum(w * abs(a - o) for o, w in zip(table.answers, row, strict=True)) / WHOLE
        for a, row in zip(table.answers, table.weights, strict=True)
    ]
    assert plan.cost == pytest.approx(max(errors))
    error = plan.error(0.9)
    assert error is not None
    for a, row in zip(table.answers, table.weights, strict=True):
        inside = sum(
            w for o, w in zip(table.answers, row, strict=True) if abs(o - a) <= error.bound
        )
        assert inside >= 0.9 * WHOLE


def test_best_takes_it_where_the_size_is_public() -> None:
    """A chain of at most so many entries covers several series too, which a table does not."""
    per_step = shoal.MarkovChain.of([[[0.9, 0.1], [0.2, 0.8]]] * 3, initial=[0.5, 0.5], length=4)
    assert planned(per_step, mechanism="best").mechanism == NAME
    assert planned(chain(4, exactly=True), mechanism="best").mechanism == NAME
    at_most = chain(4)
    task = Task(query=shoal.count("01", "1"), secrets=shoal.EachEntry(), family=(at_most,))
    choice = choose(task, Fraction(1))
    assert choice.plan.mechanism != NAME
    other = choice.alternatives[NAME]
    assert isinstance(other, Plan)
    assert other.cost < choice.plan.cost


def test_how_far_a_plan_is_from_the_best_is_told() -> None:
    for mechanism in ("exact", NAME):
        assert "release of this answer" in planned(chain(5), mechanism=mechanism).explain()
    assert "release of this answer" not in planned(chain(500), mechanism="exact").explain()
    useful = _useful(planned(chain(5), mechanism="exact"))
    assert useful["worst_error"] == pytest.approx(
        (1 + useful["above_least"]) * least_of_any(chain(5), 1.0), rel=1e-4
    )
    assert _useful(planned(chain(500), mechanism="exact"))["least_error"] is None


def steeper(length: int, **rest: Any) -> shoal.MarkovChain:
    """A chain on which a table for one size serves no other."""
    return shoal.MarkovChain.of([[0.1, 0.9], [0.6, 0.4]], length=length, **rest)


@pytest.mark.parametrize("length", [2, 5])
@pytest.mark.parametrize("epsilon", ["0.3", "2"])
@pytest.mark.parametrize("model", [chain, steeper])
def test_a_table_for_every_size_keeps_its_promise_at_each(
    length: int, epsilon: str, model: Callable[..., shoal.MarkovChain]
) -> None:
    plan = planned(model(length), epsilon)
    sizes = [told_of(plan, plan.task.family[0], size, 1) for size in range(1, length + 1)]
    assert max(sizes) <= float(epsilon) * (1 + ROUNDING)
    assert max(sizes) >= float(epsilon) * 0.999
    assert shoal.audit(plan).loss == pytest.approx(max(sizes), abs=ROUNDING)
    assert verify_promise(plan) == pytest.approx(max(sizes), abs=1e-9)
    only = planned(model(length, exactly=True), epsilon)
    assert only.cost <= plan.cost * (1 + 1e-6)
    assert told_of(only, only.task.family[0], length, 1) <= float(epsilon) * (1 + ROUNDING)


def test_a_table_for_one_size_breaks_the_promise_at_another() -> None:
    """So the constraints of shorter data are not for nothing."""
    only = planned(steeper(4, exactly=True), "0.5")
    assert told_of(only, only.task.family[0], 4, 1) <= 0.5 * (1 + ROUNDING)
    assert max(told_of(only, only.task.family[0], size, 1) for size in (1, 2, 3)) > 0.6


def test_weights_that_count_every_entry_and_tuples_have_answers_of_every_size() -> None:
    """Two or three for each entry; and an order-2 chain, which has no data of one entry."""
    query = shoal.weighted_sum("ab", {"a": 2, "b": 3})
    flat = shoal.MarkovChain.of([[0.7, 0.3], [0.2, 0.8]], states=list("ab"), length=3)
    plan = shoal.calibrate(query, shoal.EachEntry(), flat, epsilon=1, mechanism=NAME)
    assert body(plan).answers == (2, 3, 4, 5, 6, 7, 8, 9)
    assert 0.999 <= told(plan, flat) <= 1 + ROUNDING
    assert shoal.audit(plan).loss == pytest.approx(told(plan, flat), abs=ROUNDING)
    rows, start = [[0.9, 0.1], [0.3, 0.7], [0.6, 0.4], [0.2, 0.8]], [0.4, 0.1, 0.2, 0.3]
    pairs = shoal.OrderChain(states="01", order=2, conditional=rows, initial=start, length=4)
    second = planned(pairs)
    worst = max(told_of(second, pairs, size, 1) for size in (2, 3, 4))
    assert 0.999 <= worst <= 1 + ROUNDING
    assert shoal.audit(second).loss == pytest.approx(worst, abs=ROUNDING)


def test_a_model_of_one_size_beside_one_of_several_fixes_it() -> None:
    """Data that one model does not cover is refused, so only one size is left."""
    at_most = shoal.MarkovChain.of([[0.7, 0.3], [0.2, 0.8]], length=3)
    steps = [[[0.5, 0.5], [0.5, 0.5]]] * 2
    fixed = shoal.MarkovChain.of(steps, initial=[0.4, 0.6], length=3)
    query, table = shoal.count("01", "1"), shoal.JointTable.of(np.full((2, 2, 2), 1 / 8))
    for other in (fixed, table):
        family = (at_most, other)
        plan = shoal.calibrate(query, shoal.EachEntry(), family, epsilon=1, mechanism=NAME)
        assert not body(plan).shorter
        assert verify_promise(plan) <= 1
        chains = [model for model in family if isinstance(model, shoal.MarkovChain)]
        assert max(told(plan, model) for model in chains) <= 1 + ROUNDING


def test_a_table_for_every_size_is_for_few_entries() -> None:
    with pytest.raises(
        shoal.Refused, match=r"fewer than 24 entries.*give the chain exactly = True"
    ):
        planned(chain(24))
    assert planned(chain(24, exactly=True)).mechanism == NAME


def test_noise_for_at_most_so_many_entries_tells_of_an_exact_number() -> None:
    explained = planned(chain(4), mechanism="best").explain()
    assert "exactly = True" in explained
    assert "exactly = True" not in planned(chain(4, exactly=True), mechanism="best").explain()
    assert "exactly = True" not in planned(chain(40), mechanism="best").explain()


# What is drawn.


class Words:
    """A source of one given word."""

    secure = False

    def __init__(self, value: int) -> None:
        self._value = value

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        assert count == 1
        return np.array([self._value << 16], dtype=np.uint64)


def test_every_output_has_exactly_its_share_of_the_words() -> None:
    """At both ends of every share of the 2^48 words the output is its own."""
    plan = planned(chain(3))
    table = body(plan)
    data = plan.task.read(["1", "0", "1"])
    row = table.weights[table.answers.index(2)]
    first = 0
    for output, weight in zip(table.answers, row, strict=True):
        for word in (first, first + weight - 1):
            assert table.draw(data, Words(word)).multiples == (output,)
        first += weight
    assert first == WHOLE == 2**48


@pytest.mark.parametrize("exactly", [True, False])
@pytest.mark.parametrize("data", [["1"] * 2, ["1"] * 4, [["1"] * 3, ["0"] * 3]])
def test_data_of_another_size_is_refused_and_not_charged(
    data: Any, exactly: bool, tmp_path: Path
) -> None:
    plan = planned(chain(3, exactly=exactly))
    if data == ["1"] * 2 and not exactly:
        assert plan.release(data, subject="ann").secure
        return
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(shoal.InputError, match=r"entries|longest chain"):
            plan.release(data, ledger=ledger, subject="ann", together=True)
        assert not list(ledger.charges())
        assert plan.release(["1", "0", "1"], ledger=ledger, subject="ann").secure
        assert len(list(ledger.charges())) == 1


# What it adds up to.


def test_two_releases_tell_no_more_than_the_ledger_says() -> None:
    plan = planned(chain(4, 0.7), "0.5")
    total = compose([plan, plan])
    (rule,) = plan.rules(AsEntryDP)
    assert total.eta == 2 * rule.eta
    truth = told(plan, plan.task.family[0], outputs=2)
    assert 0.5 < truth <= float(total.amount) * (1 + ROUNDING)


def test_the_entry_level_is_the_largest_ratio_of_neighbours() -> None:
    weights = {"a": 0, "b": 1, "c": 3}
    model = shoal.MarkovChain.of(np.full((3, 3), 1 / 3), states=list("abc"), length=3)
    query = shoal.weighted_sum("abc", weights)
    plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1, mechanism=NAME)
    table = body(plan)
    rows = dict(zip(table.answers, table.weights, strict=True))
    worst = 0.0
    for data in product("abc", repeat=3):
        for place, other in product(range(3), "abc"):
            near = (*data[:place], other, *data[place + 1 :])
            one, two = (rows[sum(weights[x] for x in d)] for d in (data, near))
            worst = max(worst, *(math.log(p / q) for p, q in zip(one, two, strict=True)))
    (rule,) = plan.rules(AsEntryDP)
    assert worst <= float(rule.eta) <= 1 + ROUNDING


def test_beliefs_after_a_release_are_bayes() -> None:
    plan = planned(chain(4))
    release = plan.release(["1", "1", "0", "1"], rng=shoal.SeededRng(3))
    model = plan.task.family[0]
    beliefs = model.posterior([released(plan, release)], 4)
    table = body(plan)
    place = table.answers.index(release.answer.multiples[0])
    law = {
        o: p * table.weights[table.answers.index(sum(o))][place]
        for o, p in outcomes(model, 4).items()
    }
    for entry in range(4):
        truth = sum(p for o, p in law.items() if o[entry] == 1) / sum(law.values())
        assert beliefs.after[entry][1] == pytest.approx(truth, abs=1e-9)


# Forged tables.


def moved(plan: Plan, answer: int, source: int, target: int, share: float) -> Plan:
    """The plan with a share of one output's weight given to another, rows still whole."""
    table = body(plan)
    rows = [list(row) for row in table.weights]
    taken = int(rows[answer][source] * share)
    rows[answer][source] -= taken
    rows[answer][target] += taken
    return replace(plan, body=replace(table, weights=tuple(map(tuple, rows))))


def test_forged_tables_are_found() -> None:
    plan = planned(chain(4))
    assert confirm_plan(plan) is plan
    count = len(body(plan).answers)
    for answer in (0, count - 1):
        sharper = moved(plan, answer, count - 1 - answer, answer, 0.5)
        assert verify_promise(sharper) > 1.001
    identity = tuple(tuple(WHOLE if a == o else 0 for o in range(count)) for a in range(count))
    assert verify_promise(replace(plan, body=replace(body(plan), weights=identity))) == math.inf
    other = replace(body(plan), query=shoal.count("01", "0"))
    assert verify_promise(replace(plan, body=other)) == math.inf
    assert verify_promise(replace(plan, body=replace(body(plan), entries=3))) == math.inf
    exact = planned(chain(4, exactly=True))
    assert verify_promise(replace(exact, body=replace(body(exact), shorter=True))) == math.inf
    of_one_size = replace(body(exact), shorter=True)  # on an uneven chain it serves no other
    assert verify_promise(exact) <= 1
    assert verify_promise(replace(plan, body=of_one_size)) > 1
    stored = replace(plan, body=body(exact), composition=exact.composition)
    assert confirm_plan(stored).body == exact.body  # a table for one size, as plans had before
    noise = planned(chain(4), mechanism="exact").body
    assert verify_promise(replace(plan, body=noise)) == math.inf


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("answers", (0, 0, 1, 2), "increasing"),
        ("weights", ((WHOLE, 0, 0, 0),) * 3, "rows"),
        ("weights", ((WHOLE - 1, 0, 0, 0),) * 4, "sum"),
        ("weights", ((WHOLE + 1, -1, 0, 0),) * 4, "not below 0"),
        ("entries", 0, "above 0"),
    ],
)
def test_a_table_that_is_none_is_refused(field: str, value: Any, message: str) -> None:
    table = body(planned(chain(3)))
    with pytest.raises(shoal.InputError, match=message):
        replace(table, **{field: value})


def test_what_cannot_be_certified_is_mixed_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver that answers with the identity is not believed."""
    task = planned(chain(4)).task
    wrong = optimal_table.BestTable(np.eye(5), 0.0)
    monkeypatch.setattr(optimal_table, "_program", lambda *given: wrong)
    plan = optimal_table.calibrate(task, Fraction(1))
    assert plan.certificate.mixed == 1.0  # type: ignore[attr-defined]
    assert told(plan, task.family[0]) <= 1e-6


def least_of_any(model: shoal.MarkovChain, epsilon: float) -> float:
    """The least worst-case error of a count, by a dense program over all laws of all outputs."""
    assert model.length is not None
    length, n = model.length, model.length + 1
    laws = np.zeros((length, 2, n))
    for path in product((0, 1), repeat=length):
        chance = float(model.initial[path[0]])
        for one, two in pairwise(path):
            chance *= float(model.transition[one, two])
        for node, value in enumerate(path):
            laws[node, value, sum(path)] += chance
    laws = laws / laws.sum(axis=2, keepdims=True)
    below = []
    for o in range(n):  # variables p[a, o] at a·n + o, then the error
        for node in range(length):
            for x in (0, 1):
                row = np.zeros(n * n + 1)
                row[o : n * n : n] = laws[node, x] - math.exp(epsilon) * laws[node, 1 - x]
                below.append(row)
    for a in range(n):
        row = np.zeros(n * n + 1)
        row[a * n : (a + 1) * n] = np.abs(np.arange(n) - a)
        row[-1] = -1.0
        below.append(row)
    whole = np.hstack([np.kron(np.eye(n), np.ones((1, n))), np.zeros((n, 1))])
    cost = np.append(np.zeros(n * n), 1.0)
    found = linprog(cost, np.array(below), np.zeros(len(below)), whole, np.ones(n))
    return float(found.fun)


@pytest.mark.parametrize("seed", range(6))
def test_no_release_is_below_the_error_that_is_proved(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, start = rng.dirichlet(np.ones(2), 2), rng.dirichlet(np.ones(2))
    model = shoal.MarkovChain.of(matrix, initial=start, length=int(rng.integers(2, 7)))
    epsilon = Fraction(str(rng.choice(["0.05", "0.3", "1", "3"])))
    plan, least = planned(model, epsilon, "exact"), least_of_any(model, float(epsilon))
    proved = least_error(plan)
    assert proved is not None
    assert least * (1 - 1e-4) <= proved <= least * (1 + 1e-7)
    error = plan.error()
    assert error is not None
    assert proved <= error.expected


def test_prices_that_a_solver_gets_wrong_prove_less_never_more() -> None:
    """Any prices do: those of another program, of noise, and such as have no bound."""
    model, rng = chain(3, 0.7, exactly=True), np.random.default_rng(3)
    task = planned(model).task
    rows = optimal_table._comparisons(task, answer_weights(task), 1.0, None)
    far = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
    least = least_of_any(model, 1.0)
    for size in (1e-3, 1.0, 1e3):
        for _ in range(20):
            prices = size * rng.exponential(size=4 * len(rows) + 4)
            assert optimal_table._dual_bound(rows, far, prices, 1.0, 0.0) <= least
