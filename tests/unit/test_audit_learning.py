"""Answers that are no sums, releases in rounds, records in groups, two data sets side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit, audit_noise
from shoal.audit.statistical import audit_black_box, audit_neighbours
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.plans import Rounds
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.table import JointTable
from shoal.records.classifier import linear_classifier
from shoal.records.kmeans import centroids
from shoal.records.pairwise import RecordGroups
from tests.contract.tasks import TASKS

ROWS = np.random.default_rng(0).random((30, 1))


def in_rounds(largest: int = 1, mechanism: str = "group") -> Plan:
    query = centroids("x", low=0, high=1, clusters=2, rounds=2)
    return calibrate(query, EachEntry(), RecordGroups(largest), epsilon=1, mechanism=mechanism)


def quieter(plan: Plan, factor: int) -> Plan:
    body: Any = plan.body
    noise = replace(body.noise, scale=body.noise.scale / factor)
    return replace(plan, body=replace(body, noise=noise))


@pytest.mark.parametrize("largest", [1, 3])
def test_rounds_have_the_bound_of_one_entry_times_the_group(largest: int) -> None:
    plan = in_rounds(largest)
    assert isinstance(plan.body, Rounds)
    found = audit(plan)
    assert found.lower == 0
    assert found.upper == pytest.approx(1)
    assert found.verdict == "kept"
    assert found.entry_level == pytest.approx(1 / largest)
    assert "only sampling can say" in found.describe()
    less = audit(quieter(plan, 2))
    assert less.upper == pytest.approx(2)
    assert less.verdict == "not decided"  # nothing was seen that breaks it


def test_too_little_noise_for_one_entry_breaks_a_claim_about_one_entry() -> None:
    plan = in_rounds(mechanism="laplace")
    assert audit(plan).verdict == "kept"
    assert audit(quieter(plan, 2)).verdict == "VIOLATED"


def test_a_classifier_has_a_bound_too() -> None:
    query = linear_classifier(["x"], records=50, regularisation=1)
    plan = calibrate(query, EachEntry(), RecordGroups(2), epsilon=1, mechanism="group")
    found = audit(plan)
    assert found.verdict == "kept"
    assert found.upper == pytest.approx(1)


def test_two_data_sets_are_told_apart_by_rounds_with_too_little_noise() -> None:
    """One record of thirty moves from end to end: found out at a fortieth of the noise."""
    plan = in_rounds()
    first, second = ROWS.copy(), ROWS.copy()
    first[0], second[0] = 0.0, 1.0
    kept = audit_neighbours(plan, first, second, draws=2000)
    assert kept.promised == pytest.approx(1)
    assert not kept.violated
    found = audit_neighbours(quieter(plan, 40), first, second, claimed=1, draws=2000)
    assert found.violated
    assert "the first of two" in found.describe()
    assert "round" in found.event


def test_two_data_sets_of_a_function() -> None:
    def noisy(data: list[int], rng: np.random.Generator) -> float:
        return sum(data) + float(rng.laplace())

    found = audit_neighbours(noisy, [1, 1, 0], [0, 1, 0], claimed=0.5, draws=8000)
    assert found.violated
    assert 0.5 < found.lower < 1
    again = audit_neighbours(noisy, [1, 1, 0], [0, 1, 0], claimed=0.5, draws=8000)
    assert found == again
    nothing = audit_neighbours(noisy, [1, 0, 0], [0, 1, 0], draws=8000)
    assert nothing.lower == 0
    assert nothing.verdict == "no claim"


def test_records_without_a_law_are_not_drawn() -> None:
    with pytest.raises(InputError, match="use audit_neighbours"):
        audit_black_box(in_rounds(), EachEntry(), RecordGroups(1), states=("a", "b"))
    with pytest.raises(InputError, match="draws is 5"):
        audit_neighbours(len, [1], [2], draws=5)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_records_in_groups_lose_as_much_as_records_that_are_alike(size: int) -> None:
    """Against the law that the witness names, written out."""
    law = np.zeros((2,) * size)
    law[(0,) * size] = law[(1,) * size] = 0.5
    for query in (count("01", "1"), histogram("01")):
        found = audit_noise(query, EachEntry(), RecordGroups(size), scale=Fraction(3, 2))
        alike = audit_noise(query, EachEntry(), JointTable.of(law), scale=Fraction(3, 2))
        assert found.exact
        assert found.loss == pytest.approx(alike.loss, rel=1e-12)
        seen: Any = found.witness
        odds = math.log(seen.after[0] / seen.after[1])
        assert odds == pytest.approx(seen.log_ratio)


def test_a_bound_for_entries_is_not_used_for_other_secrets() -> None:
    from shoal.contexts.secrets import SensitiveContexts

    plan = in_rounds()
    task = replace(plan.task)
    object.__setattr__(task, "secrets", SensitiveContexts.of(["a"]))
    with pytest.raises(Refused, match="only a bound for single entries"):
        audit(replace(plan, task=task))


@pytest.mark.parametrize("task", ["number-mean", "number-histogram"])
def test_sums_of_numbers_over_tied_records_are_bounded_by_conditional_means(task: str) -> None:
    """Group privacy alone would leave the claim open."""
    plan = calibrate_and_check(MECHANISMS["dependent-means"], TASKS[task], Fraction(1))
    found = audit(plan)
    assert found.holds
    assert 0.9 < found.upper <= 1 + 1e-9
    assert not audit(quieter(plan, 2)).holds


def test_only_plans_are_audited() -> None:
    with pytest.raises(InputError, match="plan is a JointTable; audit takes a plan"):
        audit(JointTable.of([0.5, 0.5]))  # type: ignore[arg-type]
