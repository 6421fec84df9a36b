"""Where an audit could be fooled: rounding, tampered plans, odd numbers, facts of one name."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.audit.case import VectorPeak, finite_loss
from shoal.audit.exact import audit, audit_noise
from shoal.audit.statistical import audit_black_box
from shoal.chains.families import AnyInitialLaw
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import LinearQuery, count, histogram, mean, weighted_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.table import JointTable
from shoal.noise.laplace import ZeroSumLaplace

MATRIX = [[0.9, 0.1], [0.4, 0.6]]
CHAIN = MarkovChain.of(MATRIX, length=3)


def plan_for(length: int, epsilon: Fraction | int, mechanism: str = "exact") -> Plan:
    chain = MarkovChain.of(MATRIX, length=length)
    query = count(chain.states, "1")
    return calibrate(query, EachEntry(), chain, epsilon=epsilon, mechanism=mechanism)


@pytest.mark.parametrize("mechanism", ["exact", "group", "lift", "markov-quilt", "wasserstein"])
@pytest.mark.parametrize("length", [1, 100])
@pytest.mark.parametrize("epsilon", ["1e-9", "1e-4", "20"])
def test_correct_plans_of_any_epsilon_are_kept(mechanism: str, length: int, epsilon: str) -> None:
    """Rounding in the last place is larger than 1e-9 of a small epsilon, and no violation."""
    found = audit(plan_for(length, Fraction(epsilon), mechanism))
    assert found.verdict == "kept"
    assert found.lower <= float(Fraction(epsilon))


@pytest.mark.parametrize("mechanism", ["group", "lift"])
def test_correct_histograms_of_small_epsilon_are_kept(mechanism: str) -> None:
    query = histogram(CHAIN.states)
    plan = calibrate(query, EachEntry(), CHAIN, epsilon=Fraction("1e-9"), mechanism=mechanism)
    assert audit(plan).verdict == "kept"


@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("epsilon", ["1/100", "1", "4"])
def test_a_violation_of_a_millionth_is_found(length: int, epsilon: str) -> None:
    plan = plan_for(length, Fraction(epsilon))
    found = audit(replace(plan, guarantee=replace(plan.guarantee, amount=less(epsilon))))
    assert found.verdict == "VIOLATED"


def less(epsilon: str) -> Fraction:
    return Fraction(epsilon) * (1 - Fraction(1, 10**6))


def test_a_lower_bound_is_not_made_of_rounding() -> None:
    """Noise of scale 1e300 tells 1e-300; 1e-16 would be an invention."""
    found = audit_noise(count(CHAIN.states, "1"), EachEntry(), CHAIN, scale="1e300")
    assert found.lower <= 1e-299


def test_the_body_says_what_is_released() -> None:
    """A plan whose sampler asks ten times the count is audited for what it releases."""
    plan = plan_for(3, 1)
    body: Any = plan.body
    ten = weighted_sum(CHAIN.states, {"1": 10})
    tampered = replace(plan, body=Additive(ten, body.noise))
    found = audit(tampered)
    assert found.violated
    assert found.lower > 8
    assert "10" in found.asked
    sampled = audit_black_box(tampered, EachEntry(), CHAIN, draws=4000, lengths=(1,))
    assert sampled.violated


def test_zero_sum_noise_on_an_answer_without_a_total_is_refused() -> None:
    """Such noise keeps the total, so the output tells it: no epsilon describes that."""
    weights = ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(2)))
    query = LinearQuery(
        name="odd", states=CHAIN.states, labels=("a", "b"), weights=weights, unit="units"
    )
    plan = calibrate(query, EachEntry(), CHAIN, epsilon=1, mechanism="laplace")
    noise = ZeroSumLaplace(Fraction(2), Fraction(1), 2)
    with pytest.raises(Refused, match="keeps the total"):
        audit(replace(plan, body=Additive(query, noise)))


def test_weights_beyond_machine_integers_get_bounds() -> None:
    chain = MarkovChain.of(np.full((3, 3), 1 / 3), length=5)
    query = weighted_sum(chain.states, {"1": 10**20, "2": 1})
    found = audit_noise(query, EachEntry(), chain, scale=10**20)
    assert found.lower == pytest.approx(1.0, rel=1e-9)  # independent entries: L / scale
    assert found.upper * (1 + 1e-9) >= 1.0


def test_facts_that_share_a_name_keep_their_own_probability() -> None:
    table = JointTable.of([[0.4, 0.1], [0.2, 0.3]])
    facts = [Event.of("it", {"X1": "0"}), Event.of("it", {"X1": "1"})]
    found = audit_noise(count("01", "1"), SecretPairs.of([(facts[0], facts[1])]), table, scale=1)
    seen: Any = found.witness
    before, after = (math.log(b[0] / b[1]) for b in (seen.before, seen.after))
    assert sorted(seen.before) == pytest.approx([0.5, 0.5])
    assert after - before == pytest.approx(seen.log_ratio)
    three = [Event.of("it", {"X1": "0", "X2": "0"}), Event.of("it", {"X1": "1"})]
    again: Any = audit_noise(
        count("01", "1"), SecretPairs.of([(three[0], three[1])]), table, scale=1
    ).witness
    assert sorted(again.before) == pytest.approx([0.4, 0.5])


def test_facts_that_never_hold_tell_nothing() -> None:
    table = JointTable.of([[0.5, 0.5], [0.0, 0.0]])
    never = [Event.of("one", {"X1": "1", "X2": "0"}), Event.of("two", {"X1": "1", "X2": "1"})]
    found = audit_noise(count("01", "1"), SecretPairs.of([(never[0], never[1])]), table, scale=1)
    assert (found.lower, found.upper) == (0, 0)


def test_a_witness_beyond_the_upper_bound_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the supremum too small by a mistake, what was seen must still be reported."""
    from shoal.audit import case
    from shoal.chains.audit import sums
    from shoal.networks import audit as tables

    def halved(*given: Any, **rest: Any) -> VectorPeak:
        peak = case.product_peak(*given, **rest)
        return peak._replace(value=peak.value / 2, slack=0.0)

    query = histogram(CHAIN.states)
    truth = audit_noise(query, EachEntry(), CHAIN, scale=1).loss
    monkeypatch.setattr(sums, "product_peak", halved)
    assert audit_noise(query, EachEntry(), CHAIN, scale=1).lower == pytest.approx(truth)
    table = JointTable.of([[0.4, 0.1], [0.2, 0.3]])
    truth = audit_noise(count("01", "1"), EachEntry(), table, scale=1).loss
    monkeypatch.setattr(tables, "product_peak", halved)
    assert audit_noise(count("01", "1"), EachEntry(), table, scale=1).lower == pytest.approx(truth)


def test_numbers_that_are_none_are_no_law() -> None:
    table = JointTable.of([0.5, 0.5])
    with pytest.raises(InputError, match="a law of the outputs"):
        finite_loss(table, [[math.nan, math.nan], [0.5, 0.5]], EachEntry())


def test_little_noise_on_many_numbers_is_seen_through() -> None:
    """At scale 1/300 products of a few factors leave the range of doubles."""
    rng = np.random.default_rng(1)
    chain = MarkovChain.of(rng.dirichlet([0.3] * 3, (4, 3)), initial=[0.2, 0.3, 0.5], length=5)
    weights = tuple(
        tuple(Fraction(int(w), 6) for w in row) for row in rng.integers(-24, 25, (3, 3))
    )
    query = LinearQuery(
        name="three", states=chain.states, labels=("a", "b", "c"), weights=weights, unit="units"
    )
    found = audit_noise(query, EachEntry(), chain, scale="1/300")
    assert found.lower > 0.9 * float(query.lipschitz) * 300


def test_every_initial_law_has_the_lift_for_its_own_bound() -> None:
    """The upper bound is the auditor's, not what the plan says of itself."""
    model = AnyInitialLaw.of(MATRIX, length=100)
    query = histogram(model.states)
    plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="lift")
    found = audit(plan)
    assert found.verdict == "kept"
    assert not [note for note in found.not_checked if "mechanism's own" in note]


def test_all_of_a_long_chain_that_forgets_slowly_is_looked_at() -> None:
    chain = MarkovChain.of([[0.999, 0.001], [0.001, 0.999]], length=1440)
    query = count(chain.states, "1")
    found = audit_noise(query, EachEntry(), chain, scale=1000)
    assert found.exact
    assert found.upper - found.lower <= 1e-9
    short = audit_noise(query, EachEntry(), replace(chain, length=1024), scale=1000)
    assert short.lower < found.lower - 0.1


def test_short_data_of_a_long_chain_is_looked_at() -> None:
    """Three entries tell more than two hundred: the ends of a sequence hide the first entry."""
    matrix = np.random.default_rng(0).dirichlet([1.0] * 10, 10)
    three = MarkovChain.of(matrix, length=3)
    truth = audit_noise(count(three.states, "3"), EachEntry(), three, scale=3)
    long = MarkovChain.of(matrix, length=400)
    found = audit_noise(count(long.states, "3"), EachEntry(), long, scale=3)
    assert truth.exact
    assert found.lower >= truth.lower * (1 - 1e-12)


def star(leaves: int, rare: float, rarer: float) -> BayesNet:
    """A fair coin, and leaves that are 1 with a very small probability that depends on it."""
    rows = [[1 - rarer, rarer], [1 - rare, rare]]
    tables: dict[str, Any] = {"coin": [0.5, 0.5]}
    tables |= {f"leaf {i}": rows for i in range(leaves)}
    return BayesNet.of(tables, parents={name: ["coin"] for name in list(tables)[1:]})


@pytest.mark.parametrize("decay", [1000, 100, 1])
def test_masses_below_the_range_of_doubles_are_no_evidence(decay: int) -> None:
    """P(all leaves are 1) is 1e-328, held as 0: a loss of 1037 was said to be 1940, exactly."""
    leaves, rare, rarer = 8, 1e-39, 1e-41
    net = star(leaves, rare, rarer)
    found = audit_noise(count("01", "1"), EachEntry(), net, scale=Fraction(1, decay))
    truth = enumerated(leaves, (rarer, rare), decay)
    assert found.lower <= truth <= found.upper
    assert found.exact == (decay == 1)
    assert ("below 1e-290" in found.describe()) == (decay > 1)


def enumerated(leaves: int, chances: tuple[float, float], decay: float) -> float:
    """The loss about any entry of a star, over all outcomes and in logarithms."""
    outcomes = np.array(list(product((0, 1), repeat=leaves + 1)))
    ones = outcomes[:, 1:].sum(axis=1)
    logs = np.array([[math.log(p), math.log1p(-p)] for p in chances])[outcomes[:, 0]]
    law = ones * logs[:, 0] + (leaves - ones) * logs[:, 1]
    outputs = np.arange(leaves + 2)[:, None]
    seen = law - decay * np.abs(outputs - outcomes.sum(axis=1))
    worst = 0.0
    for entry in (0, 1):  # all leaves are alike
        sides = []
        for value in (0, 1):
            held = outcomes[:, entry] == value
            prior = np.logaddexp.reduce(law[held])
            sides.append(np.logaddexp.reduce(seen[:, held], axis=1) - prior)
        worst = max(worst, float(np.abs(sides[0] - sides[1]).max()))
    return worst


def test_crowds_too_large_for_doubles_are_no_evidence() -> None:
    crowd = Contagion.cliques([372], exponential_law(2))
    query = count(crowd.states, "ill")
    found = audit_noise(query, EachEntry(), crowd, scale="1/10")
    assert found.lower <= 22.1 <= found.upper  # 37.1 was said to be exact
    wide = audit_noise(query, EachEntry(), crowd, scale=1)
    assert wide.exact


def test_zero_sum_noise_on_a_finer_lattice_is_looked_at_between_answers() -> None:
    """Along e_i - e_j three exponentials mix, so that the worst output need not be an answer."""
    law = np.zeros((3, 3, 3, 3))  # the last two tell which fact holds, and add the same together
    law[2, 2, 0, 1], law[0, 0, 0, 1] = 2 / 6, 1 / 6
    law[2, 2, 1, 0] = 0.2
    law[1, 2, 1, 0] = law[0, 2, 1, 0] = 0.1
    law[0, 1, 1, 0] = law[0, 0, 1, 0] = 0.05
    table = JointTable.of(law)
    facts = [Event.of(f"X3 is {value}", {"X3": value}) for value in "01"]
    query, scale = histogram("012"), Fraction(1, 2)
    plan = calibrate(query, EachEntry(), table, epsilon=1, mechanism="knorm")
    task = replace(plan.task, secrets=SecretPairs.of([(facts[0], facts[1])]))
    found = {}
    for step in (1, 2):
        noise = ZeroSumLaplace(scale, Fraction(1, step), 3)
        found[step] = audit(replace(plan, task=task, body=Additive(query, noise)))
        truth = on_the_plane(law, float(scale), step)
        assert found[step].exact
        assert found[step].loss == pytest.approx(truth, rel=1e-9)
    assert found[2].loss > found[1].loss + 0.06


def on_the_plane(law: Any, scale: float, step: int) -> float:
    """The loss about the third of four variables, over every output of the noise's lattice."""
    ticks = np.arange(-3, 7, 1 / step)
    free = np.array(list(product(ticks, ticks)))
    outputs = np.hstack([free, 4 - free.sum(axis=1, keepdims=True)])
    sides = []
    for value in (0, 1):
        places = [p for p in product(range(3), repeat=4) if law[p] > 0 and p[2] == value]
        answers = np.array([[p.count(state) for state in range(3)] for p in places])
        logs = np.log([2 * law[p] for p in places])
        distance = np.abs(outputs[:, None] - answers).sum(axis=2)
        sides.append(np.logaddexp.reduce(logs - distance / scale, axis=1))
    return float(np.abs(sides[0] - sides[1]).max())


def test_data_longer_than_the_query_takes_is_no_evidence() -> None:
    """A mean over two entries refuses three: what thirty would tell is never released."""
    slow = [[0.99, 0.01], [0.01, 0.99]]
    query = mean("01", {"1": 1}, length=2)
    two = audit_noise(query, EachEntry(), MarkovChain.of(slow, length=2), scale="1/2")
    for model in (MarkovChain.of(slow), MarkovChain.of(slow, length=30)):
        found = audit_noise(query, EachEntry(), model, scale="1/2")
        assert found.exact
        assert found.loss == pytest.approx(two.loss, rel=1e-12)
        plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="laplace")
        sampled = audit_black_box(plan, EachEntry(), model, draws=6000, notion="pufferfish")
        assert sampled.lower <= two.loss
        assert "data of 1 entries" in sampled.law or "data of 2 entries" in sampled.law
