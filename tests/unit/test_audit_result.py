"""Verdicts, words and the callable package."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest

import shoal.audit
from shoal.audit.exact import audit, audit_noise
from shoal.audit.result import Audit, factor, share
from shoal.chains.families import AnyInitialLaw, MixingSummary
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, Refused
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.queries import count, histogram
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.table import JointTable
from shoal.testing import with_scale
from tests.toys import TASK, stream_plan

EVEN = JointTable.of([[0.5, 0.0], [0.0, 0.5]])
ONES = count(["0", "1"], "1")


def made(**changes: Any) -> Audit:
    fields: dict[str, Any] = {
        "mechanism": "m",
        "asked": "a",
        "protected": "p",
        "notion": "pufferfish",
        "promised": 1.0,
        "claim": (0.5, 0.9),
        "lower": 0.5,
        "upper": 0.9,
        "entry_level": 0.3,
        "witness": None,
        "assumptions": ("x",),
        "not_checked": ("y",),
    }
    return Audit(**{**fields, **changes})


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ((0.5, 0.9), "kept"),
        ((0.5, 1.0 + 1e-12), "kept"),
        ((0.5, 1.1), "not decided"),
        ((1.05, 1.1), "VIOLATED"),
        ((0.0, math.inf), "not decided"),
    ],
)
def test_the_verdict_follows_the_interval(claim: tuple[float, float], verdict: str) -> None:
    found = made(claim=claim, lower=claim[0], upper=claim[1])
    assert found.verdict == verdict
    assert found.holds == (verdict == "kept")
    assert found.violated == (verdict == "VIOLATED")


def test_without_a_claim_nothing_is_violated() -> None:
    found = made(promised=None, notion=None)
    assert found.holds
    assert not found.violated
    assert found.verdict == "no claim"
    assert "Claim: none was made." in found.describe()


def test_an_audit_answers_every_question_in_words() -> None:
    text = audit_noise(ONES, EachEntry(), EVEN, scale=2, claimed=1).describe()
    titles = [line.partition(":")[0] for line in text.splitlines()]
    assert titles == [
        "Asked",
        "Protected",
        "Claim",
        "Measured",
        "Verdict",
        "Worst case",
        "Assumed",
        "Not checked",
    ]
    assert "goes from 50 % to 73.1 %" in text
    assert "a factor of 2.718" in text


def test_beliefs_and_factors_never_round_to_certainty() -> None:
    assert share(0.99999) == "more than 99.95 %"
    assert share(1e-9) == "less than 0.05 %"
    assert (share(0.0), share(1.0), share(0.123456)) == ("0 %", "100 %", "12.3 %")
    assert factor(math.inf) == "an unlimited factor"
    assert factor(1000) == "a factor of 10^434"


def test_the_package_is_the_function() -> None:
    """Importing a module of the package must not hide `shoal.audit(plan)`."""
    plan = calibrate_and_check(MECHANISMS["group"], TASK, Fraction(1))
    package: Any = shoal.audit
    assert package(plan) == audit(plan)
    assert package.audit is package
    assert package.Audit is Audit
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing


def test_two_copies_of_a_bit_lose_twice_the_entry_level() -> None:
    found = audit_noise(ONES, EachEntry(), EVEN, scale=1, claimed=1)
    assert found.loss == pytest.approx(2.0)
    assert found.entry_level == 1.0
    assert found.violated
    assert found.witness is not None
    assert found.witness.after[0] == pytest.approx(1 / (1 + math.exp(-2)))
    assert found.witness.log_ratio == pytest.approx(2.0)


def test_entry_level_plans_are_kept_but_told_off() -> None:
    plan = calibrate_and_check(MECHANISMS["laplace"], TASK, Fraction(1))
    found = audit(plan)
    assert found.verdict == "kept"
    assert found.lower > 1.5
    assert "a single entry loses at least" in found.describe()


def test_a_group_plan_is_held_to_the_whole_group() -> None:
    plan = calibrate_and_check(MECHANISMS["group"], TASK, Fraction(1))
    assert audit(plan).verdict == "kept"
    less = with_scale(plan, plan.body.noise.scale / Fraction(101, 100))  # type: ignore[union-attr]
    found = audit(less)
    assert found.lower < 1  # the chain forgives what the claim about all entries does not
    assert found.violated


def test_a_broken_plan_is_found_out() -> None:
    plan = calibrate_and_check(MECHANISMS["exact"], TASK, Fraction(1))
    less = with_scale(plan, plan.body.noise.scale * Fraction(2, 3))  # type: ignore[union-attr]
    found = audit(less)
    assert found.violated
    assert "THE CLAIM IS VIOLATED" in found.describe()
    assert 1.3 < found.loss < 1.6


def test_a_mechanism_that_flatters_itself_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loss can be computed, what the mechanism says of itself is not used."""
    plan = calibrate_and_check(MECHANISMS["exact"], TASK, Fraction(1))
    less = with_scale(plan, plan.body.noise.scale * Fraction(2, 3))  # type: ignore[union-attr]
    monkeypatch.setattr("shoal.audit.exact.loss_as_drawn", lambda plan: 0.0)
    found = audit(less)
    assert found.violated
    assert found.exact


def test_an_upper_bound_only_the_mechanism_vouches_for_is_named() -> None:
    family = MixingSummary(pi_min=0.25, gap=0.9, length=40)
    task = Task(query=ONES, secrets=EachEntry(), family=(family,))
    plan = calibrate_and_check(MECHANISMS["markov-quilt-bound"], task, Fraction(1))
    found = audit(plan)
    assert 0 < found.lower < found.upper <= 1 + 1e-9
    assert not found.exact
    assert any("members of this family" in note for note in found.not_checked)
    flattering = with_scale(plan, plan.body.noise.scale)  # type: ignore[union-attr]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal.audit.exact.loss_as_drawn", lambda plan: 0.5)
        assert any("mechanism's own evaluation" in n for n in audit(flattering).not_checked)


def test_curves_are_made_only_when_asked_for() -> None:
    plain = audit_noise(ONES, EachEntry(), EVEN, scale=2)
    drawn = audit_noise(ONES, EachEntry(), EVEN, scale=2, curve=True)
    assert plain.witness is not None
    assert drawn.witness is not None
    assert plain.witness.curve == ()
    outputs = [point[0] for point in drawn.witness.curve]
    assert outputs == [0.0, 1.0, 2.0]
    chain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=30)
    found = audit_noise(ONES, EachEntry(), chain, scale=3, curve=True).witness
    assert found is not None
    ratios = [a - b for _, a, b in found.curve]
    assert len(found.curve) == 31
    assert max(map(abs, ratios)) <= found.log_ratio + 1e-9


def test_curves_of_any_initial_law_use_the_worst_start() -> None:
    family = AnyInitialLaw.of([[0.8, 0.2], [0.3, 0.7]], length=8)
    found = audit_noise(ONES, EachEntry(), family, scale=2, curve=True).witness
    assert found is not None
    assert "that starts in" in found.law
    assert max(a - b for _, a, b in found.curve) == pytest.approx(found.log_ratio, abs=1e-6)


@pytest.mark.parametrize("scale", [0, -1, "nan"])
def test_a_scale_must_be_a_positive_number(scale: Any) -> None:
    with pytest.raises(InputError, match="scale is"):
        audit_noise(ONES, EachEntry(), EVEN, scale=scale)


def test_what_cannot_be_measured_is_refused_by_name() -> None:
    with pytest.raises(Refused, match="no way to measure ToyMachine"):
        audit(stream_plan())


@pytest.mark.parametrize("query", [ONES, histogram(["0", "1"])], ids=["count", "histogram"])
def test_one_matrix_per_step_fixes_the_length(query: Any) -> None:
    """Two entries that always differ tell nothing together; one of them alone would."""
    swap = [[0.0, 1.0], [1.0, 0.0]]
    fixed = MarkovChain.of([swap], initial=[0.5, 0.5], length=2)
    shorter = MarkovChain.of(swap, initial=[0.5, 0.5], length=2)
    assert audit_noise(query, EachEntry(), fixed, scale=1).upper == pytest.approx(0, abs=1e-12)
    assert audit_noise(query, EachEntry(), shorter, scale=1).lower >= 1 - 1e-9


def test_impossible_values_are_no_secrets() -> None:
    """A chain that never leaves its certain start has nothing to tell."""
    frozen = MarkovChain.of([[1.0, 0.0], [0.5, 0.5]], initial=[1, 0], length=6)
    for query in (ONES, histogram(["0", "1"])):
        found = audit_noise(query, EachEntry(), frozen, scale=1)
        assert found.lower == 0.0
        assert found.upper == pytest.approx(0.0, abs=1e-12)
        assert found.witness is None
