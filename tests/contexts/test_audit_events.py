"""Audits of noise for events: exact intervals, beliefs, and plans made for something else."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.audit.case import AuditCase
from shoal.audit.exact import audit_noise
from shoal.audit.result import Witness
from shoal.audit.statistical import audit_black_box
from shoal.chains.audit.events import event_beliefs
from shoal.contexts.secrets import CurrentState
from shoal.core.errors import Refused
from shoal.core.plan import Additive, Plan
from shoal.core.task import Task
from shoal.events.secrets import MaskOptions
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.laplace import LatticeLaplace
from tests.contexts.test_online import KINDS, Instance, every_output, likelihood
from tests.event_oracle import happens
from tests.oracle.test_event_noise import path_laws, random_cases, secrets_of, true_loss

CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=10)
VISIT = shoal.visit("1", between=(3, 5))
COUNT = shoal.count(CHAIN.states, "1")
ROWS = ("mask-online",)


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
    monkeypatch.setattr("shoal.chains.audit.events.MOST_LOG_ADDITIONS", 10.0)
    plan = shoal.calibrate(COUNT, shoal.Events.of(VISIT), CHAIN, epsilon="0.5")
    found = shoal.audit(plan)
    assert (found.lower, found.verdict) == (0.0, "kept")
    assert any("too long" in note for note in found.not_checked)


def mask_plans(wanted: int, seed: int) -> list[tuple[Instance, Plan]]:
    """Plans of `mask-online` for random days and events, of every kind the oracle knows."""
    kinds = [kind for kind in KINDS if kind != "missing"]
    found = []
    for number in range(wanted):
        instance = Instance(seed + number, kinds[number % len(kinds)])
        options = MaskOptions(instance.memory, instance.mixture)
        task = Task(
            query=CurrentState(instance.days[0].states),
            secrets=replace(instance.secrets, options=options),
            family=tuple(instance.days),
        )
        found.append(
            (instance, calibrate_and_check(MECHANISMS["mask-online"], task, instance.amount))
        )
    return found


def check_masks(wanted: int, seed: int) -> None:
    """Each audit is a point, the change by all paths and outputs, and within the promise."""
    for instance, plan in mask_plans(wanted, seed):
        found = shoal.audit(plan)
        assert found.exact
        assert found.holds
        assert not found.violated
        body: Any = plan.body
        assert found.loss == pytest.approx(true_change(instance, body.program()), abs=1e-9)


def true_change(instance: Instance, program: Any) -> float:
    """The largest change that any output makes under a member, from all private paths."""
    secrets, worst = instance.secrets, 0.0
    names = instance.days[0].states
    histories = every_output(program, [True] * program.slots)
    for law in instance.laws()[: len(instance.days)]:
        weights = np.array([chance for _, chance in law])
        for event, other in secrets.pairs:
            pair = (event, ~event if other is None else other)
            facts = np.array([[happens(e, [names[x] for x in p]) for p, _ in law] for e in pair])
            prior = facts @ weights
            for outputs, policy in histories:
                joint = weights * [likelihood(program, path, outputs, policy) for path, _ in law]
                if joint.sum() <= 0:
                    continue
                after = facts @ joint / joint.sum()
                if not after.any():
                    continue  # neither of the pair: nothing to tell apart
                with np.errstate(divide="ignore"):
                    odds = np.log(after / prior)
                change = {
                    "odds": abs(odds[0] - odds[1]),
                    "rise": after[0] - prior[0],
                    "rise-and-fall": abs(after[0] - prior[0]),
                }[secrets.change]
                worst = max(worst, float(change))
    return worst


def test_no_random_audit_of_the_online_mask_breaks_a_promise() -> None:
    check_masks(24, 500)


@pytest.mark.slow
def test_no_random_audit_of_the_online_mask_breaks_a_promise_in_many() -> None:
    check_masks(400, 1000)


def test_an_online_mask_made_for_more_is_found_out() -> None:
    """Control: the machine of a larger delta breaks the smaller one's promise."""
    broken = 0
    for _, plan in mask_plans(16, 900):
        if plan.guarantee.notion != "delta-privacy" or plan.guarantee.amount > Fraction(1, 4):
            continue
        louder: Any = replace(plan.body, amount=plan.guarantee.amount * 3, cuts=())  # type: ignore[type-var]
        broken += shoal.audit(replace(plan, body=louder)).violated
    assert broken >= 3


def test_masks_for_single_slots_are_asked_about_events() -> None:
    rng, visits = np.random.default_rng(4), shoal.Events.of(shoal.visit("1")).as_rise()
    for _ in range(6):
        rows = rng.dirichlet(np.ones(2), (3, 2))
        day = shoal.DayChain.of(rows[1:], initial=rows[0, 0])
        plan = shoal.mask(
            day, shoal.SensitiveContexts.of(["1"]), delta=0.2, check="mask-probabilistic"
        )
        found = shoal.audit(plan, secrets=visits)
        assert (found.verdict, found.exact) == ("no claim", True)
        assert "the mask was made for" in found.asked
        body: Any = plan.body
        order = [body.states.index(name) for name in day.states]
        hidden = body.codes[:, order] / 65536
        hidden[body.codes[:, order] == 65535] = 1
        listed = [
            (path, float(np.prod([day.initial[path[0]], *moves(day, path)])))
            for path in itertools.product(range(2), repeat=3)
        ]
        held = np.array([1 in path for path, _ in listed])
        weights, worst = np.array([chance for _, chance in listed]), 0.0
        for outputs in itertools.product((None, 0, 1), repeat=3):
            likely = [
                math.prod(
                    hidden[t, x] if o is None else (1 - hidden[t, x]) * (o == x)
                    for t, (x, o) in enumerate(zip(path, outputs, strict=True))
                )
                for path, _ in listed
            ]
            joint = weights * likely
            if joint.sum() > 0:
                worst = max(worst, float(joint[held].sum() / joint.sum() - weights[held].sum()))
        assert found.loss == pytest.approx(worst, abs=1e-9)
    with pytest.raises(Refused, match="ask about events"):
        shoal.audit(plan, secrets=shoal.EachEntry())


def moves(day: shoal.DayChain, path: tuple[int, ...]) -> list[float]:
    return [float(day.transition[t, a, b]) for t, (a, b) in enumerate(itertools.pairwise(path))]


def test_a_long_day_asked_about_events_has_a_lower_bound_and_no_upper_one() -> None:
    day = shoal.DayChain.of(
        [[0.9, 0.05, 0.05], [0.1, 0.85, 0.05], [0.2, 0.3, 0.5]], initial=[1, 0, 0], slots=12
    )
    plan = shoal.mask(day, shoal.SensitiveContexts.of(["2"]), delta=0.1, check="mask-hybrid")
    found = shoal.audit(plan, secrets=shoal.Events.of(shoal.visit("2")))
    assert found.lower > 0.1
    assert math.isinf(found.upper)
    assert any("nothing is promised" in note for note in found.not_checked)


def test_a_black_box_is_sampled_about_events() -> None:
    events = shoal.Events.of(VISIT)
    noisy = shoal.calibrate(COUNT, events, CHAIN, epsilon=1, mechanism="exact")
    found = audit_black_box(noisy, events, CHAIN, draws=4000)
    assert not found.violated
    assert found.lower <= 1
    plain = audit_black_box(
        lambda states: float(states.count("1")), events, CHAIN, draws=4000, claimed=1
    )
    assert plain.violated
    pair = shoal.Events.of((shoal.visit("1", between=(0, 2)), shoal.visit("1", between=(7, 9))))
    first = audit_black_box(
        lambda states: float(states.index("1") if "1" in states else -1),
        pair,
        CHAIN,
        draws=4000,
        claimed="0.2",
    )
    assert first.violated
    rare = shoal.Events.of(shoal.at_least("1", 14))
    longer = shoal.MarkovChain.of(CHAIN.transition, initial=CHAIN.initial, length=14)
    with pytest.raises(Refused, match="hardly ever hold it"):
        audit_black_box(lambda states: 0.0, rare, longer, draws=4000, claimed=1)


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
