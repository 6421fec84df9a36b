"""Audits of noise for events: exact intervals, beliefs, and plans made for something else."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import shoal
from shoal.audit.case import AuditCase
from shoal.audit.exact import audit_noise
from shoal.audit.result import Witness
from shoal.chains.audit.events import event_beliefs
from shoal.core.errors import Refused
from shoal.core.plan import Additive
from shoal.noise.laplace import LatticeLaplace
from tests.event_oracle import happens
from tests.oracle.test_event_noise import path_laws, random_cases, secrets_of, true_loss

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=10)
VISIT = shoal.visit("1", between=(3, 5))
COUNT = shoal.count(CHAIN.states, "1")


def test_the_interval_is_the_loss_by_all_paths() -> None:
    rng = np.random.default_rng(0)
    for case in random_cases(11, 40):
        chain = case[0]
        weights = rng.permutation(np.arange(chain.size))
        query = shoal.weighted_sum(
            chain.states, dict(zip(chain.states, weights.tolist(), strict=True))
        )
        scale = Fraction(int(rng.integers(1, 40)), 8)
        found = audit_noise(query, secrets_of(case), chain, scale=scale)
        truth = true_loss(case, weights, float(scale))
        assert found.lower - 1e-9 <= truth <= found.upper + 1e-9
        assert found.exact


def test_beliefs_before_and_after_are_those_of_all_paths() -> None:
    case = (CHAIN, VISIT, None)
    found = audit_noise(COUNT, shoal.Events.of(VISIT), CHAIN, scale=2).witness
    assert found is not None
    prior = VISIT.prior(CHAIN)
    flat = sorted((prior, 1 - prior))
    assert sorted(found.before) == pytest.approx(flat)
    assert isinstance(found, Witness)
    (output,) = found.output
    assert math.isinf(output)  # beyond every answer
    listed, above, below = path_laws(case)
    seen = max(sum(path) for path in listed) if output > 0 else 0
    noise = np.array([math.exp(-abs(sum(path) - seen) / 2) for path in listed])
    joint = np.array([prior * (above @ noise), (1 - prior) * (below @ noise)])
    assert found.after[0] == pytest.approx(joint.max() / joint.sum())
    assert found.log_ratio == pytest.approx(
        abs(math.log(joint[0] / joint[1] * (1 - prior) / prior))
    )
    assert happens(VISIT, ["0", "0", "0", "1", "0", "0"])


@pytest.mark.parametrize("row", ["exact", "wasserstein", "lift", "group", "laplace"])
def test_plans_for_events_keep_their_claims_and_forged_ones_do_not(row: str) -> None:
    plan = shoal.calibrate(COUNT, shoal.Events.of(VISIT), CHAIN, epsilon="0.5", mechanism=row)
    found = shoal.audit(plan)
    assert found.verdict == "kept"
    assert isinstance(plan.body, Additive)
    if row in {"exact", "lift"}:
        assert found.upper == pytest.approx(0.5, rel=1e-5)
        assert isinstance(plan.body.noise, LatticeLaplace)
        louder = replace(plan.body.noise, scale=plan.body.noise.scale / Fraction(3, 2))
        forged = replace(plan, body=replace(plan.body, noise=louder))
        assert shoal.audit(forged).verdict == "VIOLATED"


def test_noise_for_single_entries_is_asked_about_an_event() -> None:
    plan = shoal.calibrate(COUNT, shoal.EachEntry(), CHAIN, epsilon=1)
    own, other = shoal.audit(plan), shoal.audit(plan, secrets=shoal.Events.of(VISIT))
    assert (own.verdict, other.verdict) == ("kept", "no claim")
    assert "made for any single entry, epsilon = 1" in other.asked
    assert plan.scale is not None
    assert other.upper == pytest.approx(
        true_loss((CHAIN, VISIT, None), np.array([0, 1]), plan.scale), abs=1e-9
    )
    assert shoal.audit(plan, secrets=shoal.EachEntry()) == own
    text = other.describe()
    assert "“at '1' in slots 3 to 5”" in text
    assert "Claim: none was made" in text


def test_pairs_histograms_any_start_and_long_chains() -> None:
    pair = shoal.Events.of((shoal.visit("1", between=(0, 2)), shoal.visit("1", between=(7, 9))))
    plan = shoal.calibrate(COUNT, pair, CHAIN, epsilon="0.5")
    assert shoal.audit(plan).verdict == "kept"
    bars = shoal.MarkovChain.of([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]], length=4)
    whole = shoal.calibrate(
        shoal.histogram(bars.states), shoal.Events.of(shoal.visit("1")), bars, epsilon=1
    )
    found = shoal.audit(whole, curve=True)
    assert found.exact
    assert found.verdict == "kept"
    wide = shoal.AnyInitialLaw.of(CHAIN.transition, length=10)
    found = shoal.audit(shoal.calibrate(COUNT, shoal.Events.of(VISIT), wide, epsilon="0.5"))
    assert found.verdict == "kept"
    assert 0 < found.lower < found.upper
    assert any("first laws" in note for note in found.not_checked)


def test_a_chain_too_long_to_count_again_has_the_mechanisms_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.chains.audit.events.MOST_WORK", 10.0)
    plan = shoal.calibrate(COUNT, shoal.Events.of(VISIT), CHAIN, epsilon="0.5")
    found = shoal.audit(plan)
    assert (found.lower, found.verdict) == (0.0, "kept")
    assert any("too long" in note for note in found.not_checked)


def test_a_plan_without_noise_is_not_asked_about_events() -> None:
    day = shoal.DayChain.of(np.full((2, 2, 2), 0.5), initial=[0.5, 0.5])
    plan = shoal.mask(day, shoal.SensitiveContexts.of(["1"]), delta=0.2)
    with pytest.raises(Refused, match="adds no noise"):
        shoal.audit(plan, secrets=shoal.Events.of(shoal.visit("1")))


def test_beliefs_after_any_output_are_those_of_all_paths() -> None:
    plan = shoal.calibrate(COUNT, shoal.Events.of(VISIT), CHAIN, epsilon=1)
    assert isinstance(plan.body, Additive)
    case = AuditCase(COUNT, plan.body.noise, plan.task.secrets, CHAIN)
    listed, above, below = path_laws((CHAIN, VISIT, None))
    prior = VISIT.prior(CHAIN)
    for output in (-3, 2, 11):
        noise = np.array([math.exp(-abs(sum(p) - output) / (plan.scale or 1)) for p in listed])
        joint = prior * (above @ noise), (1 - prior) * (below @ noise)
        (told,) = event_beliefs(case, [output], [0, 0, 0, 1] + [0] * 6)
        assert told.happened
        assert told.before == pytest.approx(prior)
        assert told.after == pytest.approx(joint[0] / sum(joint))
        assert told.log_odds == pytest.approx(math.log(joint[0] / joint[1] * (1 - prior) / prior))
        assert abs(told.log_odds) <= 1 + 1e-9
