"""The rows for tied records: what they accept, what they refuse, and audits of every size."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats, Value
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive, Plan, Sampler
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.choice import calibrate, choose
from shoal.mechanisms.plans import accuracy, accuracy_of_laplace, laplace_plan
from shoal.mechanisms.queries import count
from shoal.mechanisms.table import (
    MECHANISMS,
    calibrate_and_check,
    composition_of,
    confirm_plan,
    verify_promise,
)
from shoal.records.audit import WorstLawSettings
from shoal.records.coefficients import printed_losses
from shoal.records.domain import RecordDomain
from shoal.records.field import friend_field
from shoal.records.pairwise import Dependence
from shoal.records.pairwise_mechanisms import AdditiveTiesCertificate, pairs_and_contributions
from shoal.records.published import published_scale
from shoal.records.sources import FriendModel
from shoal.testing import with_scale
from tests.contract.tasks import TASKS, friends, weak_tree

ONE = Fraction(1)
COUNT = count("abc", "c")


@dataclass(frozen=True, slots=True, eq=False)
class CellSum(Value):
    """The sum of values in [0, 1], snapped to 1/100: a query of records without states."""

    kind = "cell-sum"

    states: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("sum",)
    unit: str = "units"
    lattice: Fraction = Fraction(1, 100)
    lipschitz: Fraction = Fraction(101, 100)

    def describe(self) -> str:
        return "the sum of values between 0 and 1"

    def read(self, data: Any) -> Any:
        return np.asarray(data)

    def evaluate(self, records: Any) -> tuple[int, ...]:
        return (round(100 * float(np.sum(records))),)

    def contributions(self, domain: RecordDomain) -> tuple[Floats, Floats]:
        return domain.low, domain.high


@dataclass(frozen=True, slots=True, eq=False)
class Largest(Value):
    """A query that is no sum."""

    kind = "largest"

    states: tuple[str, ...] = ()
    labels: tuple[str, ...] = ("largest",)
    unit: str = "units"
    lattice: Fraction = ONE
    lipschitz: Fraction = ONE

    def describe(self) -> str:
        return "the largest value"

    def read(self, data: Any) -> Any:
        return np.asarray(data)

    def evaluate(self, records: Any) -> tuple[int, ...]:
        return (int(np.max(records)),)


def scale_of(plan: Plan) -> float:
    assert isinstance(plan.body, Additive)
    return float(plan.body.noise.scale)


def interval_pairs(cells: int) -> Dependence:
    domain = RecordDomain.interval(0, 1, cells=cells)
    return FriendModel(b=0.2, c=1.5).ties(domain, 3, [[0, 1], [1, 2], [0, 2]])


def test_values_in_an_interval_are_bounded_by_the_worst_of_their_cells() -> None:
    """Finer cells need less noise, and never less than the limit; every row applies."""
    scales = []
    for cells in (4, 16, 64):
        task = Task(query=CellSum(), secrets=EachEntry(), family=(interval_pairs(cells),))
        means = calibrate_and_check(MECHANISMS["dependent-means"], task, ONE)
        published = calibrate_and_check(MECHANISMS["dependent-published"], task, ONE)
        assert scale_of(published) < scale_of(means) <= 3.04
        scales.append(scale_of(means))
    assert scales == sorted(scales, reverse=True)
    assert scales[-1] > 1.01 + 1.0  # half of the others' range at least


def test_a_stored_plan_of_eq_18_is_checked_again_and_no_new_one_is_made() -> None:
    """The plan of a scale that is enough is confirmed, one of 1 % less noise is not."""
    task = Task(query=CellSum(), secrets=EachEntry(), family=(interval_pairs(4),))
    row = MECHANISMS["dependent-additive"]
    with pytest.raises(Refused, match="makes no new plans: dependent-means never needs"):
        calibrate_and_check(row, task, ONE)
    found = [printed_losses(*member, 3.0) * 3.0 for member in pairs_and_contributions(task)]
    proof = AdditiveTiesCertificate.of(found)
    plan = laplace_plan(task, row.name, row.promise(task, ONE), 3.04, proof)
    assert verify_promise(confirm_plan(plan)) <= 1
    scale = scale_of(plan) * verify_promise(plan)
    assert verify_promise(with_scale(plan, Fraction(scale * 0.99))) > 1
    assert composition_of(plan) == plan.composition


def test_coefficients_are_for_sums_only() -> None:
    task = Task(query=Largest(), secrets=EachEntry(), family=(interval_pairs(4),))
    with pytest.raises(Refused, match="not a sum of one contribution per record"):
        calibrate_and_check(MECHANISMS["dependent-means"], task, ONE)
    assert scale_of(calibrate_and_check(MECHANISMS["group"], task, ONE)) == 3
    for row in ("dependent-published", "dependent-published-18", "correlated-sensitivity"):
        assert not calibrate_and_check(MECHANISMS[row], task, ONE).guarantee.proved


def test_other_models_are_refused_in_words() -> None:
    chain = MarkovChain.of([[0.9, 0.1], [0.2, 0.8]], length=5)
    task = Task(query=count("01", "1"), secrets=EachEntry(), family=(chain,))
    for row in ("dependent-means", "dependent-published", "correlated-sensitivity"):
        with pytest.raises(Refused, match="dependence needs pairwise laws of records"):
            calibrate_and_check(MECHANISMS[row], task, ONE)
    with pytest.raises(Refused, match="records in a pairwise field"):
        calibrate_and_check(MECHANISMS["dependent-field"], task, ONE)


def test_independent_records_need_no_more_than_ordinary_noise() -> None:
    alone = Dependence.of(friends().domain, 4, np.zeros((0, 2)), friends().laws)
    for row in ("dependent-means", "dependent-published", "group"):
        plan = calibrate(COUNT, EachEntry(), alone, epsilon=1, mechanism=row)
        assert scale_of(plan) == pytest.approx(1.0, rel=1e-9)


def test_a_family_needs_the_noise_of_its_worst_member() -> None:
    weak = FriendModel(b=9, c=0.1).ties(friends().domain, 7, friends().ties)
    both = [friends(), weak]
    for row in ("dependent-means", "dependent-published"):
        scales = [
            scale_of(calibrate(COUNT, EachEntry(), model, epsilon=1, mechanism=row))
            for model in (both, friends(), weak)
        ]
        assert scales[0] == pytest.approx(max(scales[1:]))


def test_underestimated_coefficients_mean_less_noise() -> None:
    task = TASKS["dependence-sum"]
    for printed in (False, True):
        scales = [published_scale(task, ONE, printed=printed, share=s) for s in (0, 0.8, 0.9, 1)]
        assert scales == sorted(scales)
        assert scales[0] == pytest.approx(2.0)


def test_large_components_get_the_upper_bound_and_a_law_along_ties() -> None:
    edges = [[i, i + 1] for i in range(8)]
    chain = FriendModel(b=0.5, c=2).ties(friends().domain, 9, edges)
    plan = calibrate(COUNT, EachEntry(), chain, epsilon=1)
    found = audit(plan)
    assert 0.3 < found.lower <= found.upper <= 1 + 1e-9
    assert found.holds
    assert any("more than 1,024 outcomes" in note for note in found.not_checked)
    ordinary = audit(calibrate(COUNT, EachEntry(), chain, epsilon=1, mechanism="laplace"))
    assert ordinary.lower > 2
    loop = FriendModel(b=0.5, c=2).ties(friends().domain, 9, [*edges, [0, 8]])
    assert audit(calibrate(COUNT, EachEntry(), loop, epsilon=1)).lower == 0


def test_large_fields_with_loops_get_the_reach_only() -> None:
    edges = [[i, i + 1] for i in range(11)]
    for ties, records, loss in ((edges[:7], 8, 0.8), ([*edges, [0, 11]], 12, 0.0)):
        field = friend_field(FriendModel(b=4, c=0.5), friends().domain, records, ties)
        plan = calibrate(COUNT, EachEntry(), field, epsilon=1, mechanism="dependent-field")
        found = audit(plan)
        assert found.holds
        assert loss <= found.lower <= found.upper <= 1 + 1e-9
    small = audit(calibrate(COUNT, EachEntry(), weak_tree(), epsilon=1))
    assert small.exact


def test_an_audit_that_leaves_programs_out_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = calibrate(COUNT, EachEntry(), friends(), epsilon=1, mechanism="dependent-published")
    whole = audit(plan)
    assert not any("some records" in note for note in whole.not_checked)
    fewer = WorstLawSettings(max_program_cells=200)
    monkeypatch.setattr("shoal.records.audit.WORST_LAW", fewer)
    part = audit(plan)
    assert part.lower <= whole.lower
    assert any("some records" in note for note in part.not_checked)


def test_a_witness_names_the_record() -> None:
    plan = calibrate(COUNT, EachEntry(), friends(), epsilon=1, mechanism="dependent-published")
    found = audit(plan)
    assert found.violated
    assert found.witness is not None
    assert found.witness.facts[0].startswith("'record ")
    assert "joint law of 3 records" in found.witness.law


@pytest.mark.parametrize("name", ["dependence", "dependence-sum", "histogram", "table", "kmeans"])
def test_every_plan_with_noise_says_how_far_off_it_may_be(name: str) -> None:
    choice = choose(TASKS[name], ONE)
    for plan in choice.alternatives.values():
        if isinstance(plan, Plan):
            assert isinstance(plan.body, Sampler)
            error = plan.error(0.95)
            assert error is not None
            assert "with probability 95%" in error.describe()
            sure = accuracy(plan, error.bound)
            assert sure >= 0.95 - 1e-9


def test_accuracies_that_are_none_are_refused() -> None:
    plan = calibrate(COUNT, EachEntry(), friends(), epsilon=1)
    for wrong in (0, -1, "x"):
        with pytest.raises(InputError, match="within is"):
            accuracy(plan, wrong)
    with pytest.raises(InputError, match="both must be greater than 0"):
        accuracy_of_laplace(0, 1)
