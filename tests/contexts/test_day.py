"""Day chains: checks, sparse input, priors, sampling, storage, and fits from traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_array

import shoal
from shoal.contexts.day import DayChain, fit_day, fit_day_kinds
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import DataError, InputError
from shoal.core.registry import dumps, loads
from shoal.noise.primitives import SeededRng

MATRIX = [[0.9, 0.1], [0.4, 0.6]]


def test_priors_follow_the_steps() -> None:
    day = DayChain.of([MATRIX, [[0, 1], [1, 0]]], initial=[1, 0], states=["a", "b"])
    assert day.slots == 3
    assert day.marginals() == pytest.approx(np.array([[1, 0], [0.9, 0.1], [0.1, 0.9]]))
    assert day.support().tolist() == [[True, False], [True, True], [True, True]]
    assert loads(dumps(day)) == day


def test_a_day_of_one_slot_has_no_transition() -> None:
    day = DayChain.of([], initial=[0.5, 0.5])
    assert day.slots == 1
    assert loads(dumps(day)) == day


def test_sparse_matrices_and_one_matrix_for_all_steps_are_taken() -> None:
    dense = DayChain.of([MATRIX, MATRIX], initial=[1, 0])
    assert DayChain.of([csr_array(MATRIX)] * 2, initial=[1, 0]) == dense
    assert DayChain.of(MATRIX, initial=[1, 0], slots=3) == dense
    assert DayChain.of(csr_array(MATRIX), initial=[1, 0], slots=3) == dense


def test_empty_rows_of_impossible_states_are_filled_and_others_refused() -> None:
    day = DayChain.of([[[1, 0], [0, 0]]], initial=[1, 0])
    assert day.transition[0].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(InputError, match=r"transition row 0, 1 sums to 0"):
        DayChain.of([[[1, 0], [0, 0]]], initial=[0.5, 0.5])


@pytest.mark.parametrize(
    ("transition", "slots", "sentence"),
    [
        (MATRIX, None, "transition is a single matrix; give slots"),
        ([MATRIX], 2, "slots is given together with one matrix per step"),
        ([[[1.0]]], None, r"transition has shape \(1, 1, 1\)"),
    ],
)
def test_bad_shapes_are_refused(transition: object, slots: int | None, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        DayChain.of(transition, initial=[1, 0], slots=slots)


def test_underflow_does_not_make_a_state_impossible() -> None:
    tiny = [[1 - 1e-300, 1e-300], [0, 1]]
    day = DayChain.of([tiny, [[0, 1], [1e-300, 1 - 1e-300]]], initial=[1, 0])
    assert day.support()[2].tolist() == [True, True]
    assert day.marginals()[2, 0] == 0.0  # 1e-600


def test_samples_have_the_law_of_the_chain() -> None:
    """3,000 days, each frequency within 4.5 standard deviations."""
    day = DayChain.of(MATRIX, initial=[0.5, 0.5], slots=4)
    rng = SeededRng(7)
    days = np.array([day.sample(rng) for _ in range(3000)])
    found = np.stack([(days == j).mean(axis=0) for j in range(2)], axis=1)
    assert np.abs(found - day.marginals()).max() <= 4.5 * np.sqrt(0.25 / 3000)


def test_the_clock_names_slots() -> None:
    day = DayChain.of(MATRIX, initial=[1, 0], slots=40, slot_minutes=60, start_minute=570)
    assert (day.clock(0), day.clock(1), day.clock(15)) == ("09:30", "10:30", "day 2 00:30")
    assert DayChain.of(MATRIX, initial=[1, 0], slots=3).clock(2) == "3"


def test_a_fit_without_smoothing_counts() -> None:
    day = fit_day([["a", "b"], ["a", "a"], ["a", "b"], ["b", None]])
    assert day.initial == pytest.approx([0.75, 0.25])
    assert day.transition[0, 0] == pytest.approx([1 / 3, 2 / 3])


def test_smoothing_gives_everything_a_chance_and_spread_borrows_from_neighbours() -> None:
    traces = [["a", "a", "b", "b"], ["a", "a", "a", "b"]]
    raw, smooth = fit_day(traces), fit_day(traces, smoothing=1)
    assert (raw.transition == 0).any()
    assert (smooth.transition > 0).all()
    assert (smooth.initial > 0).all()
    wide = fit_day(traces, spread=1)
    assert wide.transition[0, 0] == pytest.approx([3 / 4, 1 / 4])


def test_kinds_of_days_get_chains_of_their_own() -> None:
    days = {0: ["a", "b"], 1: ["a", "b"], 5: ["b", "b"]}
    found = fit_day_kinds(days, lambda day: "weekend" if day >= 5 else "weekday")
    assert found["weekday"].initial.tolist() == [1, 0]
    assert found["weekend"].initial.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        ([], "no day is given"),
        ([["a"], ["a", "b"]], "every day needs the same number of slots"),
        ([[None, "a"]], "no day has a reading in its first slot"),
    ],
)
def test_bad_traces_are_refused(days: list[list[str]], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        fit_day(days)


def test_secrets_refuse_what_the_day_does_not_have() -> None:
    day = DayChain.of(MATRIX, initial=[1, 0], states=["a", "b"], slots=3)
    SensitiveContexts.of("a", moments={"b": [2]}, groups=[["a", "b"]]).check((day,))
    with pytest.raises(InputError, match="secrets name the context 'c'"):
        SensitiveContexts.of("c").check((day,))
    with pytest.raises(InputError, match="moments names slot 3; the day has slots 0 to 2"):
        SensitiveContexts.of(moments={"a": [3]}).check((day,))
    with pytest.raises(InputError, match="contexts is empty"):
        SensitiveContexts.of([])
    with pytest.raises(InputError, match="a group needs two different contexts"):
        SensitiveContexts.of(groups=[["a", "a"]])
    shares = SensitiveContexts.of("a", moments={"b": [2]}, groups=[["a", "b"]]).shares(day)
    # "b" cannot occur in the first slot, so a member of the group has the whole delta there
    assert shares.tolist() == [[1, 1], [2, 2], [2, 2]]


def test_joined_days_are_independent_and_events_go_on_over_them() -> None:
    day = DayChain.of(
        [[0.9, 0.1], [0.3, 0.7]], initial=[0.8, 0.2], slots=4, slot_minutes=360, states="ab"
    )
    week = DayChain.joined([day] * 7)
    once = shoal.visit("b").prior(day)
    assert week.slots == 28
    assert shoal.visit("b").prior(week) == pytest.approx(1 - (1 - once) ** 7, abs=1e-12)
    tuesday = shoal.visit("b", between=("tue", "tue"))
    assert tuesday.prior(week) == pytest.approx(once, abs=1e-12)
    assert week.marginals()[4:8] == pytest.approx(day.marginals(), abs=1e-12)
    with pytest.raises(shoal.InputError, match="joined days must follow each other"):
        DayChain.joined([day, replace(day, start_minute=60)])
    with pytest.raises(shoal.InputError, match="differ in their contexts"):
        DayChain.joined([day, replace(day, states=("a", "c"))])
    with pytest.raises(shoal.InputError, match="days is empty"):
        DayChain.joined([])
