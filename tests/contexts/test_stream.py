"""Streams of contexts: resuming, new days, repeated and missing readings, the ledger, the CLI."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.contexts.attack import attack_contexts, context_beliefs
from shoal.contexts.checks import rows
from shoal.contexts.checks.rows import mask
from shoal.contexts.checks.task import release_rates, suppression_reasons
from shoal.contexts.day import DayChain
from shoal.contexts.machine import LiveSimulatable, SimulatableMask, VectorMask
from shoal.contexts.search import limits
from shoal.contexts.search.limits import SPEED
from shoal.contexts.secrets import CurrentState, SensitiveContexts, joint_contexts
from shoal.contexts.stream import ContextStream, advance, charge_day, comes_after
from shoal.core.errors import BudgetError, InputError, SpecError
from shoal.core.plan import Machine, Plan
from shoal.core.registry import dumps, loads
from shoal.core.task import Task
from shoal.ledger import open_ledger
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import MECHANISMS
from shoal.noise.primitives import SeededRng
from shoal.spec.request import read_request
from studies.mask_tradeoff import for_set_labels
from tests.specs import CONTEXTS

STATES = ("home", "work", "clinic")
MATRIX = [[0.7, 0.25, 0.05], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
DAY = DayChain.of(MATRIX, initial=[0.8, 0.2, 0], states=STATES, slots=8, slot_minutes=60)
CLINIC = SensitiveContexts.of("clinic")
TASK = Task(query=CurrentState(STATES), secrets=CLINIC, family=(DAY,))
CHECKS = [n for n in MECHANISMS if n.startswith("mask-") and n != "mask-online"]
PLANS = {name: MECHANISMS[name].calibrate(TASK, Fraction(1, 10)) for name in CHECKS}
PATH = ["home", "home", "work", "clinic", "work", "work", "home", "home"]
EVERY_CHECK = pytest.mark.parametrize("check", CHECKS)


def machine(plan: Plan) -> Machine:
    assert isinstance(plan.body, Machine)
    return plan.body


@EVERY_CHECK
def test_a_stream_goes_on_where_it_was_stored(check: str) -> None:
    straight = ContextStream.begin(PLANS[check])
    outputs = []
    rng = SeededRng(4)
    for context in PATH + PATH:
        straight, shown = straight.read(context, rng=rng)
        outputs.append(shown)
    stored, again, rng = ContextStream.begin(PLANS[check]), [], SeededRng(4)
    for context in PATH + PATH:
        stored = loads(dumps(stored))
        stored, shown = stored.read(context, rng=rng)
        again.append(shown)
    assert again == outputs
    assert all(shown in (None, truth) for shown, truth in zip(outputs, PATH + PATH, strict=True))


@EVERY_CHECK
def test_what_the_model_does_not_know_is_suppressed(check: str) -> None:
    stream = ContextStream.begin(PLANS[check])
    for context in ("mars", None, "", 7, "clinic"):
        stream, shown = stream.read(context, rng=SeededRng(1))
        assert shown is None


@EVERY_CHECK
def test_frequencies_of_a_running_machine_match_the_exact_rates(check: str) -> None:
    """2,000 days; each rate within 4.5 standard deviations (chance of any failure < 1e-3)."""
    plan, rng, days = PLANS[check], SeededRng(9), 2000
    counts = np.zeros((DAY.slots, DAY.size))
    body = machine(plan)
    state = body.init()
    for _ in range(days):
        for slot, context in enumerate(DAY.sample(rng)):
            state, shown = body.step(state, STATES[context], rng)
            counts[slot, context] += shown is not None
    rates = release_rates(plan)
    assert rates.sum() == pytest.approx(-plan.cost, abs=1e-9)
    spread = np.sqrt(rates * (1 - rates) / days) + 1e-9
    assert (np.abs(counts / days - rates) <= 4.5 * spread + 1e-3).all()


def test_asking_again_gives_the_same_answer_and_never_more() -> None:
    stream = ContextStream.begin(PLANS["mask-adaptive"], "monday")
    stream, first = stream.read("home", slot=2)
    for _ in range(20):
        stream, again = stream.read("work", slot=2)
        assert again == first
    for slot in (0, 1):  # left out: nothing was shown, and nothing is drawn now
        assert stream.read("home", slot=slot, rng=SeededRng(1)) == (stream, None)
    with pytest.raises(InputError, match="slot is 8; the day has slots 0 to 7"):
        stream.read("home", slot=8)


def test_a_new_day_starts_afresh() -> None:
    stream = ContextStream.begin(PLANS["mask-adaptive"], "monday")
    stream, _ = stream.read("home", slot=5)
    stream, _ = stream.read("home", slot=0, day="tuesday")
    assert (stream.day, stream.state.slot) == ("tuesday", 1)
    for slot in range(1, 8):
        stream, _ = stream.read("home", slot=slot)
    assert stream.read("clinic", slot=3) == (stream, stream.earlier[3])
    with pytest.raises(InputError, match="day 'tuesday' is over; name the next day"):
        stream.read("home")


def test_days_without_a_name_follow_each_other_by_themselves() -> None:
    stream = ContextStream.begin(PLANS["mask-adaptive"])
    for _ in range(8):
        stream, _ = stream.read("home")
    with pytest.raises(InputError, match="after the end of the day; name the next day"):
        stream.read("home", slot=3)  # of which day?
    stream, _ = stream.read("home")
    assert (stream.day, stream.state.slot) == ("", 1)


@EVERY_CHECK
def test_who_asks_late_gets_what_the_stream_showed_then(check: str) -> None:
    """Also after the stream was stored; one of 0.1 that does not remember says so."""
    stream, rng = ContextStream.begin(PLANS[check], "monday"), SeededRng(8)
    shown: list[str | None] = []
    for slot in (0, 1, 3, 4, 6, 7):
        stream, out = stream.read(PATH[slot], slot=slot, rng=rng)
        shown += [None] * (slot - len(shown)) + [out]
        stream = loads(dumps(stream))
        for past, then in enumerate(shown):
            assert stream.read("home", slot=past, rng=rng) == (stream, then)
    old = ContextStream(stream.plan, stream.state, stream.day, stream.shown)
    assert old.read("home", slot=7) == (old, stream.shown)
    with pytest.raises(InputError, match="slot is 6, which is past, and this stream was stored"):
        old.read("home", slot=6)


@pytest.mark.parametrize(
    "days",
    [("a", "b", "a"), ("a", "b", "c", "b"), ("2024-03-05", "2024-03-04"), ("", "a", "")],
    ids=" ".join,
)
def test_a_day_that_was_left_is_not_shown_again(days: tuple[str, ...]) -> None:
    """Also not by a stream that was stored in between, and also not at another slot."""
    stream = ContextStream.begin(PLANS["mask-adaptive"], days[0])
    stream, _ = stream.read("home")
    for day in days[1:-1]:
        stream, _ = stream.read("home", day=day, slot=2)
        stream = loads(dumps(stream))
    for slot in (None, 0, 2, 7):
        with pytest.raises(InputError, match=r"does not come after .* cannot be begun again"):
            stream.read("home", day=days[-1], slot=slot)
    stream, _ = stream.read("home", day=days[-2], slot=4)  # the current day may be named


def test_a_stream_that_showed_nothing_may_begin_with_any_day() -> None:
    stream = ContextStream.begin(PLANS["mask-adaptive"], "2024-03-05")
    stream, _ = stream.read("home", day="2024-03-04")
    assert (stream.day, stream.state.slot) == ("2024-03-04", 1)


def test_days_are_text_and_slots_are_whole() -> None:
    stream = ContextStream.begin(PLANS["mask-adaptive"])
    for slot in (1.5, True, "2", float("nan")):
        with pytest.raises(InputError, match="it must be a whole number"):
            stream.read("home", slot=slot)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="it must be text, such as"):
        stream.read("home", day=date(2024, 3, 4))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="it must be text, such as"):
        ContextStream.begin(PLANS["mask-adaptive"], date(2024, 3, 4))  # type: ignore[arg-type]


def test_days_come_in_the_order_of_their_names_and_numbers() -> None:
    ordered = ["", "9", "10", "2024-03-04", "2024-03-10", "2024-10-01", "a", "day 9", "day 10"]
    for i, one in enumerate(ordered):
        for j, two in enumerate(ordered):
            assert comes_after(one, two) == (i > j), (one, two)
    assert not comes_after("07", "7")
    assert not comes_after("7", "07")


@given(st.lists(st.text(alphabet="a1 0-9é", max_size=6), min_size=3, max_size=3))
def test_no_day_can_be_reached_again(names: list[str]) -> None:
    """The order is strict and transitive: whoever only goes forward never comes back."""
    one, two, three = names
    assert not (comes_after(one, two) and comes_after(two, one))
    assert not comes_after(one, one)
    if comes_after(two, one) and comes_after(three, two):
        assert comes_after(three, one)


def test_streams_stored_before_days_were_ordered_still_open() -> None:
    """The stored form has not changed: plan, state, day and what was shown."""
    stream = ContextStream.begin(PLANS["mask-adaptive"], "monday")
    stream, _ = stream.read("home", rng=SeededRng(1))
    stored = json.loads(dumps(stream))
    assert set(stored["value"]) == {"kind", "plan", "state", "day", "shown"}
    assert loads(json.dumps(stored)) == stream


def test_left_out_slots_are_suppressed_like_missing_readings() -> None:
    one, two = (ContextStream.begin(PLANS["mask-optimal"]) for _ in range(2))
    one, shown = one.read("home", slot=3, rng=SeededRng(2))
    rng = SeededRng(2)
    for _ in range(3):
        two, _ = two.read(None, rng=rng)
    two, other = two.read("home", rng=rng)
    assert (one, shown) == (two, other)


def test_the_simulatable_check_runs_without_a_table() -> None:
    """Slots that are not read included, also those that were due."""
    matrix = [[0.9, 0.1, 0], [0, 0.8, 0.2], [0, 1, 0]]
    day = DayChain.of(matrix, initial=[1, 0, 0], states=STATES, slots=12)
    secrets = SensitiveContexts.of(moments={"clinic": [5, 6]})
    plan = mask(day, secrets, delta=0.2, check="mask-simulatable")
    live = LiveSimulatable(day, secrets, 0.2)
    rng, late = SeededRng(3), 0
    for _ in range(30):
        one, two = machine(plan).init(), live.init()
        for slot, context in enumerate(day.sample(rng)):
            observed = STATES[context] if rng.words(1)[0] % 4 else None
            one, shown = advance(plan, one, observed, rng)
            two, other = live.step(two, observed, rng)
            assert shown == other, slot
            late += shown is not None and one.gaps != ()
    assert late > 20


@EVERY_CHECK
def test_a_machine_without_its_model_ends_the_day_at_a_slot_not_read(check: str) -> None:
    """Unless its coins are independent; and who has the model goes on as if nothing were read."""
    body, rng = machine(PLANS[check]), SeededRng(2)
    state, _ = body.step(body.init(), None, rng)
    independent = isinstance(body, VectorMask)
    for context in ["home"] * 7:
        assert independent or advance(PLANS[check], state, context, rng)[1] is None
        state, shown = body.step(state, context, rng)
        assert shown is None or independent
    state, _ = body.step(state, "home", rng)
    assert state.slot == 1
    assert state.gaps == ()


def test_a_simulatable_table_may_be_longer_than_16_bits_count() -> None:
    """T = 40,000, whose table of next slots wrapped round to negative numbers."""
    slots = 40_000
    table = np.full((slots + 1, 2), slots)
    table[0, 0], table[39_001, 1] = 39_000, 39_990
    body = loads(dumps(SimulatableMask(("a", "b"), table)))
    state = body.init()
    shown: dict[int, str] = {}
    for slot in range(slots):
        state, out = body.step(state, "b", SeededRng(1))
        shown |= {slot: out} if out else {}
    assert shown == {39_000: "b", 39_990: "b"}
    short = SimulatableMask(("a", "b"), table[:10] * 0)
    assert short.table.dtype == np.int16  # as stored by 0.1


def test_the_ledger_takes_one_charge_a_day_and_nothing_beside_it(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path / "ledger.db")
    plan, other = PLANS["mask-adaptive"], PLANS["mask-hybrid"]
    first = charge_day(plan, ledger, subject="ann", day="2024-03-04")
    assert charge_day(plan, ledger, subject="ann", day="2024-03-04") == first
    charge_day(plan, ledger, subject="ann", day="2024-03-05")
    with pytest.raises(BudgetError):
        charge_day(other, ledger, subject="ann", day="2024-03-04")


def test_beliefs_of_an_attack_never_rise_beyond_delta_but_do_for_naive_masking() -> None:
    for name in ("mask-probabilistic", "mask-simulatable", "mask-adaptive", "mask-optimal"):
        curves = attack_contexts(PLANS[name], PATH, SeededRng(5))
        naive, checked = curves.highest_rise()
        assert naive > 0.5
        assert checked <= 0.1 * (1 + 1e-9)
        assert curves.after.shape == (8, 1)


def test_beliefs_of_a_probabilistic_output_by_hand() -> None:
    """Example 1: after ⊥ the belief in s is (1/2) / (1/2 + 1/2 · p)."""
    day = DayChain.of([], initial=[0.5, 0.5], states=["s", "x"])
    plan = mask(day, SensitiveContexts.of("s"), delta="1/4", check="mask-probabilistic")
    assert isinstance(plan.body, VectorMask)
    p = plan.body.codes[0, 1] / 65536
    assert context_beliefs(plan, [None])[0, 0] == pytest.approx(1 / (1 + p))
    assert context_beliefs(plan, ["x"])[0].tolist() == [0, 1]


def test_best_shows_the_most_within_its_time() -> None:
    best = mask(DAY, CLINIC, delta=0.1, seconds=2)
    assert best.cost <= PLANS["mask-hybrid"].cost + 1e-9
    assert best.guarantee.proved
    with pytest.raises(InputError, match="check is 'mask'; it must be 'best'"):
        mask(DAY, CLINIC, delta=0.1, check="mask")
    with pytest.raises(InputError, match="belief_delta is 1; it must be between 0 and 1"):
        mask(DAY, CLINIC, delta=1)


def test_reasons_say_why_a_context_is_not_shown() -> None:
    words = {word for row in suppression_reasons(PLANS["mask-adaptive"]) for word in row}
    assert {"sensitive", "impossible", "hides others"} <= words


def test_several_applications_are_served_by_one_stream() -> None:
    joint, delta = joint_contexts([(CLINIC, 0.2), (SensitiveContexts.of(["home"]), 0.1)])
    assert joint.contexts == ("clinic", "home")
    assert delta == Fraction(1, 10)


def test_applications_together_keep_the_labels_of_each() -> None:
    """Whatever one of them may be unsure of; a state that another one names stands for itself."""
    unsure = SensitiveContexts.of("clinic", labels={"home": ["flat", "clinic"]})
    assert joint_contexts([(unsure, 0.2)])[0] == unsure
    joint, _ = joint_contexts([(unsure, 0.2), (SensitiveContexts.of("work"), 0.1)])
    assert dict(joint.labels) == {"home": ("flat", "clinic")}
    joint, _ = joint_contexts([(SensitiveContexts.of("home"), 0.1), (unsure, 0.2)])
    assert set(dict(joint.labels)["home"]) == {"home", "flat", "clinic"}
    for wish in (unsure, SensitiveContexts.of("home")):
        assert (joint.shares(DAY) >= wish.shares(DAY)).all()


def test_set_labels_make_their_states_sensitive_at_a_share_of_delta() -> None:
    labels = {"a": ["s", "y"], "b": ["s"], "c": ["x"]}
    secrets, delta = for_set_labels(SensitiveContexts.of("s"), labels, 0.1)
    assert secrets.contexts == ("a", "b")
    assert delta == Fraction(1, 20)
    with pytest.raises(InputError, match="no state that may stand for 'q'"):
        for_set_labels(SensitiveContexts.of("q"), labels, 0.1)


SPEC = CONTEXTS.format(slots=8)


def test_the_command_line_filters_plans_and_goes_on(tmp_path: Path) -> None:
    spec, state = tmp_path / "mask.toml", tmp_path / "state.json"
    spec.write_text(SPEC)
    lines = "".join(json.dumps({"context": context}) + "\n" for context in PATH[:4])
    done = CliRunner().invoke(app, ["stream", str(spec), "--state", str(state)], input=lines)
    assert done.exit_code == 0, done.output
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["slot"] for line in shown] == [0, 1, 2, 3]
    assert shown[3]["shown"] is None
    assert state.stat().st_mode & 0o777 == 0o600
    more = CliRunner().invoke(
        app, ["stream", str(spec), "--state", str(state)], input='{"context": "home"}\n'
    )
    assert json.loads(more.stdout)["slot"] == 4
    bad = CliRunner().invoke(app, ["stream", str(spec)], input="home\n")
    assert "it is not a JSON object" in bad.output  # answered in its place, and passed over


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("belief_delta = 0.1", "epsilon = 1.0", "privacy.belief_delta is missing"),
        ("belief_delta = 0.1", "belief_delta = 2", "it must be below 1"),
        ('sensitive = ["clinic"]', 'sensitive = ["gym"]', "secrets name the context 'gym'"),
        ("slots = 8", "", "transition is a single matrix; give slots"),
    ],
)
def test_a_bad_spec_is_refused_in_a_sentence(
    tmp_path: Path, old: str, new: str, sentence: str
) -> None:
    spec = tmp_path / "mask.toml"
    spec.write_text(SPEC.replace(old, new))
    done = CliRunner().invoke(app, ["plan", str(spec)])
    assert done.exit_code == 2
    assert sentence in done.output


def test_a_plan_prints_its_day(tmp_path: Path) -> None:
    spec = tmp_path / "mask.toml"
    spec.write_text(SPEC)
    done = CliRunner().invoke(app, ["plan", str(spec), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert len(found["calendar"]) == 8
    assert sum(row["shown"] for row in found["calendar"]) == pytest.approx(-found["cost"])
    assert CliRunner().invoke(app, ["plan", str(spec)]).exit_code == 0


def test_an_attack_shows_the_belief_over_a_day(tmp_path: Path) -> None:
    spec, data = tmp_path / "mask.toml", tmp_path / "days.csv"
    spec.write_text(SPEC + '[data]\nstate = "state"\n')
    data.write_text("state\n" + "\n".join(PATH) + "\n")
    done = CliRunner().invoke(app, ["attack", str(spec), str(data), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["highest_rise"]["naive"] > 0.5
    assert found["highest_rise"]["checked"] <= 0.1 * (1 + 1e-9)
    assert found["truth"] == PATH
    data.write_text("state\n" + "\n".join(PATH[:5]) + "\n")
    short = CliRunner().invoke(app, ["attack", str(spec), str(data)])
    assert short.exit_code == 2
    assert "no chain of the data has the 8 slots" in short.output


def test_a_time_limit_of_the_spec_reaches_the_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A named check gets the whole limit, "best" shares it out; without one there is a default."""
    seen: list[float] = []
    vector = rows.search_best_vector

    def watched(days: Any, effort: Any) -> Any:
        seen.append(effort.work / SPEED)
        return vector(days, effort)

    monkeypatch.setattr(rows, "search_best_vector", watched)
    spec = tmp_path / "mask.toml"
    named = SPEC.replace('"mask-adaptive"', '"mask-probabilistic"')
    spec.write_text(named.replace("belief_delta = 0.1", 'belief_delta = 0.1\ntime_limit = "1min"'))
    request = read_request(spec)
    with request.limit_time():
        choose(request.task, request.epsilon(), request.mechanism)
        choose(request.task, request.epsilon(), "mask-hybrid")  # looks at the same probabilities
    choose(request.task, request.epsilon(), request.mechanism)
    assert seen == [60.0, limits.SECONDS]
    spec.write_text(SPEC.replace("belief_delta = 0.1", 'belief_delta = 0.1\ntime_limit = "60"'))
    with pytest.raises(SpecError, match=r"privacy\.time_limit is '60'"):
        read_request(spec).limit_time()


def test_a_family_in_a_spec_is_planned_audited_and_attacked(tmp_path: Path) -> None:
    """Two [[model]] sections: the promise holds under each, and either may be the adversary's."""
    spec, data = tmp_path / "mask.toml", tmp_path / "days.csv"
    model, rest = SPEC.split("[secrets]")
    other = model.replace("[0.7, 0.25, 0.05]", "[0.65, 0.29, 0.06]")
    assert other != model
    spec.write_text(model + other + "[secrets]" + rest + '[data]\nstate = "state"\n')
    data.write_text("state\n" + "\n".join(PATH) + "\n")
    done = CliRunner().invoke(app, ["plan", str(spec), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["loss"] <= 0.1 * (1 + 1e-9)
    for held in ("0", "1"):
        shown = CliRunner().invoke(app, ["attack", str(spec), str(data), "--model", held, "--json"])
        assert shown.exit_code == 0, shown.output
        found = json.loads(shown.stdout)
        assert found["adversaries"]["chain"] <= 0.1 * (1 + 1e-9)
        assert found["adversaries"]["frequencies, chain published"] == found["adversaries"]["chain"]
        assert found["adversaries"]["frequencies alone"] is not None
    wrong = CliRunner().invoke(app, ["attack", str(spec), str(data), "--model", "2"])
    assert wrong.exit_code == 2
    checked = CliRunner().invoke(app, ["audit", str(spec), "--json"])
    assert checked.exit_code == 0, checked.output
    listed = json.loads(checked.stdout)["adversaries"]
    told = [one["challenge"] for one in listed]
    assert told == ["nothing to learn", "LC1 and LC2", "nothing learned"]


def test_what_is_never_shown_is_never_shown() -> None:
    """Home is expected, so a rise of .2 lets it be shown all day; `never` does not."""
    day = DayChain.of(
        [[0.95, 0.04, 0.01], [0.2, 0.75, 0.05], [0.3, 0.3, 0.4]],
        initial=[0.97, 0.03, 0],
        slots=6,
        states=["home", "work", "clinic"],
    )
    plain, kept = (SensitiveContexts.of("home", never=n) for n in ((), "home"))
    assert loads(dumps(kept)) == kept
    assert SensitiveContexts.of("clinic", never=["home"]).contexts == ("clinic", "home")
    for check in ("mask-probabilistic", "mask-simulatable", "mask-adaptive", "mask-optimal"):
        often = shoal.mask(day, plain, delta=0.25, check=check)
        plan = shoal.mask(day, kept, delta=0.25, check=check)
        assert release_rates(often)[:, 0].sum() > 5
        assert release_rates(plan)[:, 0].sum() == 0
        assert shoal.verify_promise(plan) <= 0.25 * (1 + 1e-9)
        assert shoal.verify_promise(replace(often, task=plan.task)) == float("inf")
    joint, _ = joint_contexts([(kept, 0.1), (SensitiveContexts.of("clinic"), 0.2)])
    assert joint.never == ("home",)
    with pytest.raises(InputError, match="never names 'home', which is not one of contexts"):
        SensitiveContexts(("clinic",), never=("home",))
    certain = DayChain.of(
        [[1.0, 0], [1.0, 0]], initial=[0.5, 0.5], slots=2, states=["home", "work"]
    )
    with pytest.raises(InputError, match="everybody is at slot 1"):
        shoal.mask(certain, SensitiveContexts.of(never="home"), delta=0.1)
