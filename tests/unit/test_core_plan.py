"""Plans: releases, the order of charging and drawing, streams, and the explanation."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from shoal.chains.families import MixingSummary
from shoal.core import codec
from shoal.core.charge import SystemRng
from shoal.core.errors import DataError, InputError, OverBudget, StoredError
from shoal.core.plan import Plan, Stream
from shoal.core.registry import loads
from shoal.core.task import EachEntry
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.queries import histogram
from shoal.noise.primitives import SeededRng
from shoal.testing import with_scale
from tests.toys import (
    CHAIN,
    TASK,
    TOY_KINDS,
    RecordingLedger,
    WatchedRng,
    stream_plan,
)

DATA = ["rest", "run", "run", "rest"]


@pytest.fixture
def plan() -> Plan:
    return calibrate(TASK.query, TASK.secrets, CHAIN, epsilon=1, mechanism="group")


def test_a_release_carries_its_plan_and_promise(plan: Plan) -> None:
    release = plan.release(DATA, rng=SeededRng(1))
    assert release.plan == plan.fingerprint
    assert release.mechanism == plan.mechanism
    assert release.guarantee == plan.guarantee
    assert release.error == plan.error()
    assert release.answer.labels == ("run",)
    assert release.answer.unit == "entries"
    assert release.as_dict() == {"run": release.values[0]}


def test_the_noise_is_added_to_the_true_answer(plan: Plan) -> None:
    still = with_scale(plan, Fraction(1, 1000))  # P(noise ≠ 0) < e^-1000
    assert still.release(DATA).values == (2.0,)
    assert still.release(["run"] * 4).values == (4.0,)


def test_equal_seeds_give_equal_releases_marked_insecure(plan: Plan) -> None:
    first, second = (plan.release(DATA, rng=SeededRng(7)) for _ in range(2))
    assert first == second
    assert first.secure is False
    assert len({plan.release(DATA, rng=SeededRng(seed)) for seed in range(8)}) > 1
    assert plan.release(DATA).secure is True


def test_the_ledger_is_charged_before_anything_is_drawn(plan: Plan) -> None:
    ledger = RecordingLedger()
    rng = WatchedRng(SystemRng(), ledger.events)
    release = plan.release(DATA, ledger=ledger, subject="ann", rng=rng)
    assert ledger.events[0] == "charged"
    assert ledger.events[-1] == "sampled"
    assert set(ledger.events[1:-1]) == {"drew"}
    assert ledger.stored["0"] == release


def test_the_charge_says_whose_data_when_and_for_whom(plan: Plan) -> None:
    ledger = RecordingLedger()
    plan.release(DATA, ledger=ledger, subject="ann", period="2026-01", requester="bob", key="k1")
    (charge,) = ledger.charges
    assert (charge.subject, charge.period, charge.requester, charge.key) == (
        "ann",
        "2026-01",
        "bob",
        "k1",
    )
    assert charge.plan == plan


def test_a_retry_with_the_same_key_returns_the_stored_release(plan: Plan) -> None:
    ledger = RecordingLedger()
    first = plan.release(DATA, ledger=ledger, subject="ann", key="k")
    second = plan.release(DATA, ledger=ledger, subject="ann", key="k")
    assert second == first
    assert ledger.events == ["charged", "sampled", "returned"]


def test_a_refused_charge_draws_nothing(plan: Plan) -> None:
    ledger = RecordingLedger(limit=0)
    rng = WatchedRng(SystemRng(), ledger.events)
    with pytest.raises(OverBudget) as caught:
        plan.release(DATA, ledger=ledger, subject="ann", rng=rng)
    assert (caught.value.spent, caught.value.requested, caught.value.limit) == ("0", "1", "0")
    assert ledger.events == []


def test_bad_data_is_refused_before_the_charge(plan: Plan) -> None:
    ledger = RecordingLedger()
    with pytest.raises(DataError, match="exceeds length 4"):
        plan.release(["run"] * 5, ledger=ledger, subject="ann")
    assert ledger.events == []


def test_a_ledger_refuses_seeded_randomness(plan: Plan) -> None:
    ledger = RecordingLedger()
    with pytest.raises(InputError, match="rng is seeded; a ledger takes only real releases"):
        plan.release(DATA, ledger=ledger, subject="ann", rng=SeededRng(1))
    assert ledger.events == []


def test_a_ledger_needs_a_subject(plan: Plan) -> None:
    with pytest.raises(InputError, match="nothing says whose data it is; name the subject"):
        plan.release(DATA, ledger=RecordingLedger())


def test_a_release_plan_does_not_start_and_a_stream_plan_does_not_release(plan: Plan) -> None:
    with pytest.raises(InputError, match=r"group makes single releases; use plan.release\(data\)"):
        plan.start()
    with pytest.raises(InputError, match=r"toy is a stream plan; use plan.start\(\)"):
        stream_plan().release(DATA)
    assert stream_plan().error() is None


def test_a_stream_stored_half_way_goes_on_as_if_never_stopped() -> None:
    def run(*, interrupted: bool) -> list[int]:
        rng, stream, shown = SeededRng(5), stream_plan().start(), []
        for observed in (1, 0, 1, 1, 0, 1):
            stream, value = stream.step(observed, rng=rng)
            shown.append(value)
            if interrupted:
                stream = codec.loads(codec.dumps(stream), TOY_KINDS)
        return shown

    assert run(interrupted=True) == run(interrupted=False)


def test_a_step_leaves_the_stream_it_was_made_from_unchanged() -> None:
    start = stream_plan().start()
    before = start.fingerprint
    after, _ = start.step(1)
    assert isinstance(after, Stream)
    assert (start.state.steps, after.state.steps) == (0, 1)
    assert start.fingerprint == before != after.fingerprint


def test_the_closed_table_keeps_unknown_kinds_out() -> None:
    stored = codec.dumps(stream_plan())
    assert codec.loads(stored, TOY_KINDS) == stream_plan()
    with pytest.raises(StoredError, match="kind 'toy-machine' is not one this program can load"):
        loads(stored)


def test_the_explanation_answers_every_question(plan: Plan) -> None:
    text = plan.explain()
    titles = [line.split(":")[0] for line in text.splitlines()]
    assert titles == [
        "Asked",
        "Protected",
        "From",
        "Promise",
        "Mechanism",
        "Error",
        "Useful",
        "Careful",
        "Why it holds",
        "Assumes",
        "Adding up",
    ]
    assert "how many entries are 'run' (in entries" in text
    assert "a Markov chain of at most 4 entries on 2 states (stationary)" in text
    assert "by more than a factor of 2.718 (group, epsilon = 1)" in text
    assert "discrete Laplace noise of scale 4 entries on the lattice 1" in text
    assert "off by 3.959 entries on average, within ±12 entries with probability 95%" in text
    assert "counts as group DP with epsilon = 1" in text
    assert "counts as entry-level DP with eta = 0.25" in text


def test_the_explanation_of_a_stream_has_no_error_line() -> None:
    text = stream_plan().explain()
    assert "Error:" not in text
    assert "per step, given what was released before: epsilon = 1" in text


def test_the_explanation_names_three_models_and_counts_the_rest() -> None:
    family = [MixingSummary(pi_min=0.2, gap=g, length=4) for g in (0.5, 0.6, 0.7, 0.8, 0.9)]
    text = calibrate(TASK.query, EachEntry(), family, epsilon=1).explain()
    assert "a gap of at least 0.7; or 2 more models" in text
    assert "0.8" not in text


def test_a_plan_is_stored_as_plain_json_with_exact_numbers(plan: Plan) -> None:
    document = json.loads(codec.dumps(plan))
    assert document["schema"] == "shoal/1"
    assert document["fingerprint"] == plan.fingerprint
    assert document["value"]["kind"] == "plan"
    assert document["value"]["body"]["noise"]["scale"] == {"$fraction": "4/1"}


def test_noise_off_the_lattice_of_the_query_is_refused(plan: Plan) -> None:
    query = histogram(CHAIN.states, relative=True, length=6)
    body = calibrate(query, EachEntry(), CHAIN, epsilon=1).body
    with pytest.raises(InputError, match="noise step is 1; it must divide the query's lattice 1/6"):
        replace(body, noise=plan.body.noise)  # type: ignore[union-attr,type-var]
