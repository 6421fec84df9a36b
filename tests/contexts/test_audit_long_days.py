"""The auditor's own evaluation of long days, held against writing out every output of short ones.

Machines are random, not calibrated: nothing about them is tuned to a bound, so every outcome of
every gap may be the worst one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.audit.exact import audit
from shoal.audit.result import StreamWitness
from shoal.contexts.attack import context_beliefs
from shoal.contexts.audit.rise import follow_releases, highest_rise
from shoal.contexts.audit.sweep import tables_of
from shoal.contexts.audit.witness import complete_witness
from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask
from shoal.contexts.search.memory import Remembering
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.progress import heard
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check, verify_promise

Rng = np.random.Generator


def random_rows(rng: Rng, shape: tuple[int, ...], smallest: float = 0.0) -> Any:
    """Stochastic rows, a fifth of the entries impossible; or tiny, with `smallest`."""
    rows = rng.dirichlet(np.ones(shape[-1]), shape[:-1])
    rows = np.where(rng.random(rows.shape) < 0.2, 0.0, rows)
    if smallest:
        rows = np.where(rng.random(rows.shape) < 0.2, smallest * rng.random(rows.shape), rows)
    rows = np.where(rows.sum(axis=-1, keepdims=True) < 0.01, 1 / shape[-1], rows)
    return rows / rows.sum(axis=-1, keepdims=True)


def random_day(rng: Rng, smallest: float = 0.0) -> DayChain:
    """1 to 5 slots on 2 to 4 contexts, a matrix per slot; every third day has a certain start."""
    size = int(rng.integers(2, 5))
    slots = int(rng.integers(1, 6 if size < 3 else 5 if size < 4 else 4))
    rows = random_rows(rng, (slots, size, size), smallest)
    initial = np.eye(size)[0] if rng.random() < 1 / 3 else rows[0, 0]
    return DayChain.of(rows[1:], initial=initial, states=[f"c{i}" for i in range(size)])


def random_secrets(rng: Rng, day: DayChain) -> SensitiveContexts:
    moment = {"c1": [int(rng.integers(day.slots))]}
    kinds: list[Callable[[], SensitiveContexts]] = [
        lambda: SensitiveContexts.of("c0"),
        lambda: SensitiveContexts.of("c0", moments=moment),
        lambda: SensitiveContexts.of((), groups=[["c0", "c1"]]),
    ]
    return kinds[int(rng.integers(len(kinds)))]()


def random_codes(rng: Rng, shape: tuple[int, ...], words: int) -> Any:
    """Suppression probabilities, a third of them 0 and a third 1."""
    codes = rng.integers(0, words, shape)
    kind = rng.integers(0, 3, shape)
    return np.where(kind == 0, 0, np.where(kind == 1, words - 1, codes))


def segments(rng: Rng, day: DayChain) -> dict[tuple[int, int], Any]:
    """A table after most releases; some have none."""
    releases = [(-1, 0), *((t, j) for t in range(day.slots - 1) for j in range(day.size))]
    kept = [one for one in releases if rng.random() < 0.8]
    rows = [int(rng.integers(0, day.slots - slot)) for slot, _ in kept]
    made = [random_codes(rng, (count, day.size), 2**16).astype(np.uint16) for count in rows]
    return dict(zip(kept, made, strict=True))


def vector_machine(rng: Rng, day: DayChain) -> Any:
    codes = random_codes(rng, (day.slots, day.size), 2**16)
    return VectorMask(day.states, codes.astype(np.uint16))


def segment_machine(rng: Rng, day: DayChain) -> Any:
    return SegmentMask.of(day.states, day.slots, segments(rng, day))


def simulatable_machine(rng: Rng, day: DayChain) -> Any:
    table = np.full((day.slots + 1, day.size), day.slots)
    for slot in range(-1, day.slots):
        table[slot + 1] = rng.integers(slot + 1, day.slots + 1, day.size)
    table[1:][rng.random((day.slots, day.size)) < 0.2] = -1
    return SimulatableMask(day.states, table)


def history_machine(rng: Rng, day: DayChain) -> Any:
    digits = rng.permutation(np.arange(day.size) % int(rng.integers(1, day.size + 1)))
    base, policies = int(digits.max()) + 1, {}
    for (slot, context), tail in segments(rng, day).items():
        window = int(rng.integers(0, min(3, day.slots - 1 - slot) + 1))
        shapes = [(base**k, day.size) for k in range(window)]
        codes = tuple(random_codes(rng, shape, 2**32).astype(np.uint32) for shape in shapes)
        policies[slot, context] = Remembering(codes, tail)
    return HistoryMask.of(day.states, day.slots, policies, digits)


MACHINES = {
    "vector": vector_machine,
    "segment": segment_machine,
    "simulatable": simulatable_machine,
    "history": history_machine,
}


def compare(kind: str, days: int, seed: int, smallest: float = 0.0) -> float:
    """Both ends against every output; the mean rise, so that a silent zero would show."""
    rng = np.random.default_rng(seed)
    rises = []
    for _ in range(days):
        day = random_day(rng, smallest)
        secrets, machine = random_secrets(rng, day), MACHINES[kind](rng, day)
        truth = max(highest_rise(day, secrets, machine).upper, 0.0)
        tables = tables_of(machine)
        assert tables is not None
        found = follow_releases(day, secrets, tables)
        assert found.promise.lower <= truth + 1e-13
        assert found.promise.upper >= truth - 1e-13
        assert found.promise.upper - found.promise.lower < 1e-9
        assert not any("does not" in note for note in found.notes)
        rises.append(truth)
    return float(np.mean(rises))


@pytest.mark.parametrize("kind", MACHINES)
def test_random_machines_on_short_days_are_measured_as_by_all_outputs(kind: str) -> None:
    assert compare(kind, 125, seed=1) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", MACHINES)
def test_many_random_machines_are_measured_as_by_all_outputs(kind: str) -> None:
    assert compare(kind, 1000, seed=2) > 0.1


@pytest.mark.parametrize("smallest", [1e-60, 1e-160])
@pytest.mark.parametrize("kind", MACHINES)
def test_nothing_vanishes_from_chains_with_tiny_transitions(kind: str, smallest: float) -> None:
    """1e-60 passes into logarithms on the way, 1e-160 begins there; four slots stay above 1e-308
    only for the first, so the oracle is asked where it can answer."""
    rng = np.random.default_rng(3)
    for _ in range(12):
        day = random_day(rng, smallest)
        secrets, machine = SensitiveContexts.of("c0"), MACHINES[kind](rng, day)
        tables = tables_of(machine)
        assert tables is not None
        found = follow_releases(day, secrets, tables)
        assert found.promise.upper - found.promise.lower < 1e-9
        if smallest > 1e-100:
            truth = max(highest_rise(day, secrets, machine).upper, 0.0)
            assert found.promise.upper == pytest.approx(truth, abs=1e-9)


def test_beliefs_far_below_the_smallest_number_still_count() -> None:
    """Only outputs of probability 1e-500 tell: two steps of 1e-250, and then it was s for sure."""
    tiny = 1e-250
    first = [[0, 1, 0], [0, 1 - tiny, tiny], [0, 1, 0]]
    second = [[0, 1, 0], [0, 1, 0], [tiny, 1 - tiny, 0]]
    moves = [first, second, [[0, 0, 1], [0, 1, 0], [0, 1, 0]]]
    day = DayChain.of(moves, initial=[0, 1, 0], states=["s", "a", "b"])
    codes = np.full((4, 3), 2**16 - 1, dtype=np.uint16)
    codes[3, 2] = 0  # b is shown at the end, which only s leads to
    tables = tables_of(VectorMask(day.states, codes))
    assert tables is not None
    found = follow_releases(day, SensitiveContexts.of("s"), tables).promise
    assert found.upper == pytest.approx(1.0)
    assert found.lower == pytest.approx(1.0)
    assert found.output == (None, None, None, "b")
    plan = mask(day, SensitiveContexts.of("s"), delta="0.1", check="mask-simulatable")
    whole = audit(replace(plan, body=tables.body))
    assert whole.violated  # short, but not written out: its outputs would all be 0
    assert whole.lower == found.lower


@pytest.mark.parametrize("shown", ["a", "b"])
def test_a_law_that_thins_out_on_the_way_is_not_lost(shown: str) -> None:
    """No single move is tiny for a float, but staying in b for eight slots is: 1e-480 in all.

    That b is shown at the end tells of it, and so does that a, which would be shown, is not.
    """
    rare = 1e-60
    day = DayChain.of(
        [[1.0, 0.0], [1 - rare, rare]], initial=[0.5, 0.5], states=["a", "b"], slots=9
    )
    codes = np.full((9, 2), 2**16 - 1, dtype=np.uint16)
    codes[8, day.states.index(shown)] = 0
    tables = tables_of(VectorMask(day.states, codes))
    assert tables is not None
    first = follow_releases(day, SensitiveContexts.of((), moments={"b": [0]}), tables).promise
    assert (first.lower, first.upper) == pytest.approx((0.5, 0.5))
    assert first.output == (*[None] * 8, "b" if shown == "b" else None)


def test_no_such_output_is_no_witness() -> None:
    day = DayChain.of([], initial=[0.5, 0.5], states=["s", "x"])
    machine = VectorMask(day.states, np.zeros((1, 2), dtype=np.uint16))
    assert complete_witness(day, machine, (None,)) is None


SECRET = SensitiveContexts.of("c0")


def sticky_day(seed: int, slots: int, size: int) -> DayChain:
    rows = random_rows(np.random.default_rng(seed), (slots, size, size))
    moves = 0.3 * rows[1:] + 0.7 * np.eye(size)
    return DayChain.of(moves, initial=rows[0, 0], states=[f"c{i}" for i in range(size)])


def adaptive(day: DayChain, secrets: SensitiveContexts) -> Plan:
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    return calibrate_and_check(MECHANISMS["mask-adaptive"], task, Fraction(1, 5))


def test_every_member_of_a_family_is_followed() -> None:
    first, second = sticky_day(5, 30, 4), sticky_day(6, 30, 4)
    plan = mask([first, second], SECRET, delta="0.15", check="mask-simulatable")
    codes = random_codes(np.random.default_rng(5), (30, 4), 2**16).astype(np.uint16)
    plan = replace(plan, body=VectorMask(first.states, codes))
    found = audit(plan)
    assert found.exact
    alone = [audit(replace(plan, task=replace(plan.task, family=(d,)))) for d in (first, second)]
    assert found.upper == max(one.upper for one in alone)
    assert found.witness is not None
    assert found.witness.model == max((0, 1), key=lambda place: alone[place].lower)


def test_labels_on_long_days_are_those_of_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"c0": ["s", "y"], "c1": ["x", "s"], "c2": ["s", "z", "w"]}
    for seed in range(6):
        plan = adaptive(sticky_day(seed, 3, 4), SensitiveContexts.of("s", labels=labels))
        whole = audit(plan).adversaries
        with monkeypatch.context() as patch:
            patch.setattr("shoal.contexts.audit.rise.MAX_BRANCHES", 1)
            long = audit(plan).adversaries
        assert [one.rise for one in long] == pytest.approx([one.rise for one in whole], abs=1e-9)
        assert [one.exact for one in long] == [one.exact for one in whole]


def test_too_many_sets_of_labels_are_bounded() -> None:
    """Seven states may hide the context: what Theorem 7 gives, not all 127 sets."""
    day = sticky_day(13, 12, 8)
    labels = {f"c{i}": [f"c{i}", "s"] for i in range(7)}
    found = audit(adaptive(day, SensitiveContexts.of("s", labels=labels)))
    assert found.exact
    assert [one.exact for one in found.adversaries] == [False] * 3
    assert all(one.rise == found.upper for one in found.adversaries)


def test_a_machine_for_another_day_is_refused() -> None:
    plan = mask(sticky_day(14, 30, 4), SECRET, delta="0.1", check="mask-simulatable")
    other = replace(plan, task=replace(plan.task, family=(sticky_day(14, 31, 4),)))
    with pytest.raises(InputError, match=r"30 slots of .* the day chain has 31"):
        audit(other)


def test_frequencies_on_long_days_are_those_of_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(6):
        plan = adaptive(sticky_day(seed, 4, 3), SECRET)
        whole = audit(plan).adversaries
        with monkeypatch.context() as patch:
            patch.setattr("shoal.contexts.audit.rise.MAX_BRANCHES", 1)
            long = audit(plan).adversaries
        assert [one.rise for one in long] == pytest.approx([one.rise for one in whole], abs=1e-9)
        assert [one.covered for one in long] == [one.covered for one in whole]


def shown_more(plan: Plan, place: int) -> Plan:
    """The plan with one probability of showing raised: what was never shown is, half the time."""
    body = plan.body
    assert isinstance(body, VectorMask | SegmentMask)
    codes = body.codes.copy()
    codes.flat[place] = 2**15
    return replace(plan, body=replace(body, codes=codes))


@pytest.mark.parametrize("row", ["mask-probabilistic", "mask-adaptive"])
def test_one_raised_probability_is_found_on_a_long_day(row: str) -> None:
    """A sensitive context that may be shown once, in 96 slots, after one of many releases."""
    plan = mask(sticky_day(8, 96, 4), SECRET, delta="0.1", check=row, seconds="0.1", clock=None)
    assert audit(plan).holds
    body = plan.body
    assert isinstance(body, VectorMask | SegmentMask)
    column = body.states.index("c0")
    hidden = np.flatnonzero(body.codes.ravel() == 2**16 - 1)
    sensitive = [place for place in hidden if place % 4 == column]
    places = sensitive[10:-10:97] if row == "mask-adaptive" else sensitive[::17]
    found = [audit(shown_more(plan, int(place))) for place in places[:6]]
    possible = [one for one in found if one.upper > 0.1 * (1 + 1e-9)]
    assert all(one.violated for one in possible)
    assert len(possible) >= len(found) - 1
    assert all(one.witness is not None and one.witness.after[0] > 0.99 for one in possible)


def test_a_context_that_only_tells_of_others_is_found_too() -> None:
    """Mutation of a state that is not sensitive: shown, it says what comes next."""
    plan = mask(sticky_day(8, 96, 4), SECRET, delta="0.05", check="mask-probabilistic")
    body = plan.body
    assert isinstance(body, VectorMask)
    others = [p for p in np.flatnonzero(body.codes.ravel() == 2**16 - 1) if p % 4 != 0]
    found = [audit(shown_more(plan, int(place))) for place in others[:: len(others) // 12]]
    assert sum(one.violated for one in found) >= 6
    for one in found:
        assert one.exact
        assert one.violated == (not one.holds)


@pytest.mark.parametrize("row", ["mask-probabilistic", "mask-adaptive", "mask-optimal"])
def test_the_attack_believes_the_same_after_the_witness(row: str) -> None:
    """A third way to the same belief: release by release, in plain numbers."""
    day = sticky_day(12, 60, 4)
    plan = mask(day, SECRET, delta="0.1", check=row, seconds="0.1", clock=None)
    found = audit(plan).witness
    assert found is not None
    highest = context_beliefs(plan, found.output)[:, 0] - day.marginals()[:, 0]  # type: ignore[arg-type]
    assert highest.max() == pytest.approx(found.after[0] - found.before[0], abs=1e-10)


class Unruly(VectorMask):
    """Shows at slot 50 what its table says it suppresses."""

    def step(self, state: Any, observed: Any, rng: Any) -> tuple[Any, str | None]:
        after, shown = super().step(state, observed, rng)
        return after, (observed if state.slot == 50 else shown)


def test_a_machine_that_does_not_do_what_its_tables_say_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = mask(sticky_day(9, 96, 4), SECRET, delta="0.1", check="mask-probabilistic")
    body = plan.body
    assert isinstance(body, VectorMask)
    assert audit(plan).holds

    def unruly(own: VectorMask) -> Any:
        found = tables_of(own)
        assert found is not None
        found.body = Unruly(own.states, own.codes)
        return found

    monkeypatch.setattr("shoal.contexts.audit.rise.tables_of", unruly)
    found = audit(plan)
    assert not found.holds
    assert any("does not suppress" in note for note in found.not_checked)


def test_a_day_of_288_slots_is_audited() -> None:
    """(2n)^T is beyond the largest float there."""
    plan = mask(sticky_day(10, 288, 19), SECRET, delta="0.1", check="mask-simulatable")
    found = audit(plan)
    assert found.exact
    assert found.upper == pytest.approx(verify_promise(plan), abs=1e-9)


def test_long_gaps_are_counted_in_words() -> None:
    output = (None, None, "a", *[None] * 30, "b", "b")
    witness = StreamWitness(
        model=0, law="", subject="", facts=("", ""), output=output, before=(0, 1), after=(0, 1)
    )
    assert witness.output_words() == "the stream (–, –, a, 30 times –, b, b)"


def test_whoever_watches_is_told_how_far_it_is() -> None:
    plan = mask(sticky_day(11, 40, 4), SECRET, delta="0.1", check="mask-simulatable")
    shares: list[float] = []
    with heard(lambda done, total: shares.append(done / total)):
        audit(plan)
    assert shares == sorted(shares)
    assert 0 <= shares[0] < 0.1
    assert 0.9 < shares[-1] <= 1
    count = len(shares)
    audit(plan)
    assert len(shares) == count
