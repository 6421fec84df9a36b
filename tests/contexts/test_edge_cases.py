"""Where suppression goes wrong in floating point, and the laws it obeys or breaks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import shoal
from shoal.contexts.checks import task as mask_task
from shoal.contexts.search.adaptive import occurring_segments, search_segments, segments_rise
from shoal.contexts.search.beliefs import (
    decoded,
    encoded,
    memoryless_rise,
    segment_rise,
    vector_value,
)
from shoal.contexts.search.greedy import keeps_every_bound, prior_order, search_vector
from shoal.contexts.search.window import search_windows
from tests.contexts.enumeration import day_of, highest_rise, last_release, random_chain, vector

TENTHS = np.arange(11) / 10


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_raising_a_vector_keeps_it_private(seed: int) -> None:
    rng = np.random.default_rng(seed)
    initial, transition = random_chain(rng, states=3, slots=3, sparse=0.3)
    day = day_of(initial, transition, [0], 0.15)
    low = search_vector(day, rng.permutation(9), TENTHS)
    assert keeps_every_bound(day, low)
    raised = np.maximum(low, rng.choice(TENTHS, size=low.shape))
    assert keeps_every_bound(day, raised)
    assert memoryless_rise(day, raised) <= 0.15 * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_both_evaluations_agree_with_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    initial, transition = random_chain(rng, states=3, slots=3, sparse=0.4 * (seed % 2))
    day = day_of(initial, transition, [0, 1], 0.2)
    hidden = rng.choice([0.0, 0.3, 1.0], size=(3, 3))
    secrets = [(int(t), int(s)) for t, s in zip(day.when, day.who, strict=True)]
    truth = highest_rise(initial, transition, vector(hidden), secrets)
    assert memoryless_rise(day, hidden) == pytest.approx(truth, abs=1e-12)
    origins = [(-1, 0), *np.argwhere((hidden < 1) & day.possible)]
    found = max(segment_rise(day, int(t), int(j), hidden) for t, j in origins)
    assert found == pytest.approx(truth, abs=1e-12)


def test_an_adaptive_policy_is_not_monotone() -> None:
    """Start → j, k; j → s, x; k → x. Raising p(1, j) from 0 to 1 breaks a private policy."""
    _j, k, s, _x = range(4)
    initial = [0.5, 0.5, 0, 0]
    transition = [[[0, 0, 0.5, 0.5], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]]]

    def policy(shown_j: float) -> object:
        def hide(t: int, path: tuple[int, ...], shown: tuple[int, ...]) -> float:
            if last_release(path, shown) != (-1, 0):
                return 1.0
            if t == 0:
                return 1.0 if path[-1] == k else shown_j
            return 1.0 if path[-1] == s else 0.0

        return hide

    rises = [highest_rise(initial, transition, policy(p), [(1, s)]) for p in (0.0, 1.0)]  # type: ignore[arg-type]
    assert rises == pytest.approx([0.25, 0.75])


def test_transitions_of_1e_300_hide_no_breach() -> None:
    """Two such steps in a row lead to z, and only by way of s: showing z would tell."""
    tiny = 1e-300
    initial = [1.0, 0.0, 0.0, 0.0]
    a, s, z, _y = range(4)
    one = np.eye(4)
    one[a] = [1 - tiny, tiny, 0, 0]
    two = np.eye(4)
    two[s] = [0, 1 - tiny, tiny, 0]
    day = day_of(initial, [one, two], [s], 0.1)
    assert day.possible[2, z]
    assert day.prior[2, z] == 0.0
    show_z = np.ones((3, 4))
    show_z[2, z] = 0.0
    assert memoryless_rise(day, show_z) == pytest.approx(1.0)
    assert segment_rise(day, -1, 0, show_z) == pytest.approx(1.0)
    assert not keeps_every_bound(day, show_z)
    hidden = search_vector(day, prior_order(day), TENTHS)
    assert hidden[2, z] == 1.0
    segments = occurring_segments(day, search_segments(day, 0.1, baseline=hidden, work=1e6))
    assert segments_rise(day, segments.hidden) <= 0.1
    assert memoryless_rise(day, hidden) <= 0.1


def test_long_suppressed_runs_do_not_underflow() -> None:
    """A run of 300 slots at 0.01 each has mass 1e-600; the last slot tells what the run was."""
    slots = 300
    step = np.array([[0.99, 0.01, 0], [0, 0.01, 0.99], [0, 0, 1.0]])
    initial = np.array([0.0, 1.0, 0.0])
    shares_day = day_of(initial, [step] * (slots - 1), [1], 0.3)
    hidden = np.ones((slots, 3))
    hidden[:-1, 2] = 0.0  # suppressed so far means: still in state 1
    rise = memoryless_rise(shares_day, hidden)
    assert rise == pytest.approx(1 - shares_day.prior[shares_day.when, 1].min(), abs=1e-9)
    assert not keeps_every_bound(shares_day, hidden)


def test_a_prior_of_exactly_one_minus_delta_may_be_shown() -> None:
    day = day_of([0.75, 0.25], [], [0], 0.25)
    assert len(day.when) == 0
    assert keeps_every_bound(day, np.zeros((1, 2)))
    assert occurring_segments(day, search_segments(day, 0.25, work=1e5)).expected == pytest.approx(
        1.0
    )
    below = day_of([0.7499, 0.2501], [], [0], 0.25)
    assert not keeps_every_bound(below, np.zeros((1, 2)))


def test_one_slot_is_solved_by_every_search() -> None:
    day = day_of([0.5, 0.5], [], [0], 0.25)
    assert vector_value(day, search_vector(day, [0, 1], TENTHS)) == pytest.approx(0.3)
    assert occurring_segments(day, search_segments(day, 0.25, work=1e5)).expected == pytest.approx(
        1 / 3, abs=1e-4
    )
    best = search_windows(day, 0.25, {}, programs=5)
    assert best.expected == pytest.approx(1 / 3, abs=1e-6)


def test_outputs_of_probability_zero_put_no_limit_on_anything() -> None:
    """From b nothing leads to s, so showing b and the slot after it is free."""
    transition = [[[0.5, 0.5, 0], [0, 1, 0], [0, 0, 1]]]
    day = day_of([0, 0, 1], transition, [0], 0.1)  # s = 0 cannot occur at all
    assert len(day.when) == 0
    assert search_vector(day, prior_order(day), TENTHS)[:, 2].tolist() == [0, 0]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=50))
def test_codes_round_up_and_keep_both_ends(values: list[float]) -> None:
    given_values = np.array(values)
    back = decoded(encoded(given_values))
    assert (back >= given_values).all()
    assert (back - given_values <= 2 / 65536).all()
    assert (back[given_values == 0] == 0).all()
    assert (back[given_values == 1] == 1).all()


def test_a_check_that_breaks_its_promise_never_ends_the_choice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    day = shoal.DayChain.of([[0.6, 0.4], [0.3, 0.7]], initial=[0.5, 0.5], slots=3)
    secrets = shoal.SensitiveContexts.of("1")
    bad = {"mask-probabilistic", "mask-adaptive"}
    true_loss = mask_task.loss
    monkeypatch.setattr(
        mask_task,
        "loss",
        lambda plan: 2.0 if plan.mechanism in bad else true_loss(plan),
    )
    assert shoal.mask(day, secrets, delta=0.2).mechanism not in bad
    with pytest.raises(shoal.PromiseBroken, match=r"mask-adaptive promised 0\.2 and its own check"):
        shoal.mask(day, secrets, delta=0.2, check="mask-adaptive")
