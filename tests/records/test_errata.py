"""Liu, Chakraborty & Mittal 2016: dependent DP as published, broken by the auditor.

ERRATA 002: Theorems 3, 4, 7, 8 and 9.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from shoal.attacks.beliefs import EntriesSeen, attack
from shoal.audit.case import finite_loss
from shoal.audit.exact import audit, audit_noise
from shoal.core.codec import Floats
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.choice import calibrate, choose
from shoal.mechanisms.queries import count, weighted_sum
from shoal.networks.table import JointTable
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence
from shoal.records.sources import pairs_of_table


def xor_table() -> JointTable:
    """Two fair bits and their exclusive or: every pair of them is independent."""
    law = np.zeros((2, 2, 2))
    for a, b in product((0, 1), repeat=2):
        law[a, b, a ^ b] = 0.25
    return JointTable.of(law)


def copies() -> JointTable:
    """One fair bit, twice."""
    return JointTable.of(np.eye(2) / 2)


@pytest.mark.parametrize(("epsilon", "loss"), [(1, 1.4337808304830273), (2, 3.3250027473578645)])
def test_pairwise_coefficients_miss_joint_dependence(epsilon: int, loss: float) -> None:
    """Theorem 9 with Eq. (14): all coefficients are 0, so Lap(1/ε) is claimed; it loses more.

    Measured from the joint law, and from its pairs alone, for which the worst law is this one.
    """
    query = count("01", "1")
    for model in (xor_table(), pairs_of_table(xor_table())):
        plan = calibrate(
            query, EachEntry(), model, epsilon=epsilon, mechanism="dependent-published"
        )
        assert isinstance(plan.body, Additive)
        assert plan.body.noise.scale == Fraction(1, epsilon)
        found = audit(plan)
        print(f"xor: claimed {epsilon}, measured {found.lower:.4f}")
        assert found.violated
        assert found.lower == pytest.approx(loss, rel=1e-9)


def test_best_never_repeats_it() -> None:
    """What is chosen instead is proved, and the auditor finds nothing."""
    for model in (xor_table(), pairs_of_table(xor_table())):
        task = Task(query=count("01", "1"), secrets=EachEntry(), family=(model,))
        choice = choose(task, Fraction(1))
        claimed = choice.alternatives["dependent-published"]
        assert isinstance(claimed, Plan)
        assert not claimed.guarantee.proved
        proved = [row for row in choice.alternatives.values() if isinstance(row, Plan)]
        noises = [row for row in proved if row.guarantee.proved and row.scale is not None]
        assert claimed.cost < min(p.cost for p in noises if p.guarantee.notion != "entry-dp")
        assert choice.plan.guarantee.proved
        assert not audit(choice.plan).violated


def test_the_published_sensitivity_fails_for_a_threshold_query() -> None:
    """Eq. (22) "any query": two copies of .49 or .51 thresholded: scale 1.51, loss 1.325."""
    law = np.zeros((4, 4))
    law[1, 1] = law[2, 2] = 0.5
    domain = RecordDomain.points([0, 0.49, 0.51, 1], states="abcd")
    model = Dependence.of(domain, 2, [[0, 1]], law)
    query = count("abcd", ["c", "d"])
    plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-published-18")
    found = audit(plan)
    assert found.violated
    assert found.lower == pytest.approx(1.3245033112582782, rel=1e-6)
    assert not audit(calibrate(query, EachEntry(), model, epsilon=1)).violated


def test_correlated_sensitivity_sees_no_dependence_without_correlation() -> None:
    """Zhu et al.: D_2 = |D_1| has correlation 0 with D_1; the noise of one record is too little."""
    law = np.zeros((3, 3))
    law[0, 2] = law[1, 1] = law[2, 2] = 1 / 3  # values -1, 0, 1
    domain = RecordDomain.points([-1, 0, 1], states="abc")
    model = Dependence.of(domain, 2, [[0, 1]], law)
    query = weighted_sum("abc", {"a": 0, "b": 0, "c": 1})
    plan = calibrate(query, EachEntry(), model, epsilon=1, mechanism="correlated-sensitivity")
    assert isinstance(plan.body, Additive)
    assert plan.body.noise.scale == 1
    assert audit(plan).violated


def test_the_baseline_needs_the_size_of_a_component() -> None:
    """Theorem 7 with L counted in pairs: five copies in a chain of ties lose 5/3."""
    chain = Dependence.of(
        RecordDomain.named("01"), 5, [[i, i + 1] for i in range(4)], np.eye(2) / 2
    )
    query = count("01", "1")
    plan = calibrate(query, EachEntry(), chain, epsilon=1, mechanism="dependent-baseline")
    assert not plan.guarantee.proved
    assert audit(plan).lower == pytest.approx(5 / 3)
    whole = Dependence.of(RecordDomain.named("01"), 2, [[0, 1]], np.eye(2) / 2)
    sound = calibrate(query, EachEntry(), whole, epsilon=1, mechanism="dependent-baseline")
    assert sound.guarantee.proved
    assert audit(sound).lower == pytest.approx(1.0)


def test_parallel_composition_adds_up_under_dependence() -> None:
    """Theorem 4: randomised response on either copy costs 1 each, and 2 together."""
    keep = math.e / (1 + math.e)
    response = np.array([[keep, 1 - keep], [1 - keep, keep]])
    one = np.broadcast_to(response[:, None, :], (2, 2, 2))
    both = np.einsum("ax,by->abxy", response, response).reshape(2, 2, 4)
    assert finite_loss(copies(), one, EachEntry()).value == pytest.approx(1.0)
    found = finite_loss(copies(), both, EachEntry())
    assert found.value == pytest.approx(2.0, abs=1e-12)
    assert found.after[0] / found.after[1] == pytest.approx(math.e**2)
    seen = EntriesSeen(np.log(np.array([response[:, 1], response[:, 1]])))
    learned = attack(copies(), [seen], 2).largest_change()
    assert learned.log_odds == pytest.approx(2.0)


def test_sequential_composition_can_lose_everything() -> None:
    """Theorem 3: D1^D2^D3 loses .2007, D2^D3 nothing, both together reveal D1."""
    law = np.full((2, 2, 2), 0.1125)
    law[0, 0, 0] = law[1, 1, 1] = 0.1625
    table = JointTable.of(law)
    first = _parity(lambda a, b, c: a ^ b ^ c)
    second = _parity(lambda a, b, c: b ^ c)
    both = np.einsum("abcx,abcy->abcxy", first, second).reshape(2, 2, 2, 4)
    assert finite_loss(table, first, EachEntry()).value == pytest.approx(0.20067069546215124)
    assert _about_first(table, second) == pytest.approx(0.0, abs=1e-12)
    assert finite_loss(table, both, EachEntry()).value == math.inf


def test_sums_with_the_scale_for_all_copies_do_compose() -> None:
    """A control: the same auditor finds nothing where group noise is used."""
    found = audit_noise(count(["0", "1"], "1"), EachEntry(), copies(), scale=2, claimed=1)
    assert not found.violated
    assert found.loss == pytest.approx(1.0)


def _parity(answer: object) -> Floats:
    out = np.zeros((2, 2, 2, 2))
    for bits in product((0, 1), repeat=3):
        out[(*bits, answer(*bits))] = 1  # type: ignore[operator]
    return out


def _about_first(table: JointTable, release: Floats) -> float:
    """The loss about the first variable alone."""
    from shoal.events.pairs import Event, SecretPairs

    one, none = Event.of("1", {"X1": "1"}), Event.of("0", {"X1": "0"})
    return finite_loss(table, release, SecretPairs(((one, none),))).value
