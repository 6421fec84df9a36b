"""Which lengths a black-box audit looks at, what that may cost, and what it says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from shoal.audit.adaptive_testing import LEAST_TESTS, Looked, trials
from shoal.audit.fact_pairs import FEWEST, SHORT_LENGTHS, DrawBudget, default_budget, ladder, places
from shoal.audit.statistical import Estimate, audit_black_box
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.task import EachEntry

SLOW = [[0.98, 0.02], [0.02, 0.98]]
Rng = np.random.Generator


def chain(length: int | None) -> MarkovChain:
    return MarkovChain.of(SLOW, states=["sit", "walk"], length=length)


def audited(release: Any, length: int | None = 1440, **options: Any) -> Estimate:
    asked: dict[str, Any] = {"claimed": 1, "draws": 20_000, **options}
    return audit_black_box(release, EachEntry(), asked.pop("model", chain(length)), **asked)


def counted(data: list[str], rng: Rng) -> float:
    return data.count("walk") + float(rng.laplace(0, 20))


@given(
    st.integers(100, 10**5),
    st.integers(10**4, 10**8),
    st.lists(st.integers(1, 5000), min_size=1, max_size=60),
)
def test_a_budget_is_shared_and_kept(draws: int, entries: int, lengths: list[int]) -> None:
    counts = DrawBudget(draws, float(entries)).each(lengths)
    few = draws // len(lengths)
    assert sum(counts) <= draws
    least = min(few, FEWEST)
    assert all(least <= count <= few for count in counts)
    dear = [n for n, count in zip(lengths, counts, strict=True) if least < count]
    spent = sum(n * count for n, count in zip(lengths, counts, strict=True) if least < count)
    assert spent <= entries
    cut = [n for n, count in zip(lengths, counts, strict=True) if count < few]
    assert not cut or not dear or max(cut) == max(lengths)  # the longest data is cut first


def test_without_a_limit_every_law_gets_as_much() -> None:
    assert DrawBudget(1000).each([1, 10_000]) == [500, 500]
    assert DrawBudget(1000, 10_100.0).each([1, 100]) == [500, 96]


@pytest.mark.parametrize(
    ("length", "rungs"),
    [
        (1, [1]),
        (12, [1, 2, 3, 5, 8, 12]),
        (30, [1, 2, 3, 5, 8, 12, 30]),
        (100, [1, 2, 3, 5, 8, 12, 24, 48, 100]),
        (1440, [1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768, 1440]),
        (100_000, [1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 10_000]),
        (None, [1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768, 1536, 3072, 6144, 10_000]),
    ],
)
def test_the_ladder_ends_at_the_length_of_the_model(length: int | None, rungs: list[int]) -> None:
    assert ladder(chain(length).walk(), 10_000) == rungs


def test_one_matrix_per_step_has_one_length() -> None:
    fixed = MarkovChain.of([SLOW] * 29, initial=[0.5, 0.5], length=30)
    assert ladder(fixed.walk(), 10_000) == [30]


def test_a_chain_of_higher_order_has_no_shorter_data() -> None:
    second = OrderChain(
        states=("a", "b"),
        order=3,
        conditional=np.full((8, 2), 0.5),
        initial=np.full(8, 1 / 8),
        length=40,
    )
    assert ladder(second.walk(), 10_000) == [3, 5, 8, 12, 24, 40]


@pytest.mark.parametrize("draws", [2000, 4000, 8000, 100_000])
def test_few_draws_look_less_closely_but_as_far(draws: int) -> None:
    pilot = default_budget(draws).part(0.2)
    found = places([chain(1440).walk()], [], pilot, 5000, lambda n: True)
    assert pilot.affords([place.entries for place in found for _ in range(2)])
    assert {1, 12, 1440} <= {place.entries for place in found} or draws == 2000
    ends = {place.entry for place in found if place.entries == 1440}
    assert ends == {0, 720, 1439} or draws < 100_000


def test_tests_of_long_data_are_fewer_but_never_few() -> None:
    budget = default_budget(100_000)
    assert trials(budget, 100) == trials(DrawBudget(100_000), 10_000) == 25_000
    assert LEAST_TESTS < trials(budget, 1440) < 10_000
    assert trials(budget, 10**6) == LEAST_TESTS
    assert trials(default_budget(2000), 10**6) == 500


def test_long_data_shows_what_short_data_hides() -> None:
    """Noise of scale 20 on a slow chain: at most 0.6 leaks from 12 entries, 2 from a day."""
    short = audited(counted, lengths=SHORT_LENGTHS)
    found = audited(counted)
    assert not short.violated
    assert short.lengths == SHORT_LENGTHS
    assert found.violated
    assert found.lower > short.lower + 0.5
    assert found.lengths == (1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768, 1440)
    assert "Looked at: data of 1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768 and 1,440 entries." in (
        found.describe()
    )
    assert found == audited(counted, workers=2)


def whole_days(data: list[str], rng: Rng) -> float:
    if len(data) != 1440:
        raise ValueError("a day has 1440 minutes")
    return data.count("walk") + float(rng.laplace(0, 20))


def test_a_box_that_takes_one_length_is_audited_there() -> None:
    found = audited(whole_days, draws=4000)
    assert found.lengths == (1440,)
    assert found.refused == (1, 2, 3, 5, 8, 12, 24, 48, 96, 192, 384, 768)
    assert "; the black box takes no data of 1, 2, 3, 5, 8, 12," in found.describe()
    assert "fewer" not in found.describe()


def test_fewer_draws_of_long_data_are_said() -> None:
    found = audited(whole_days)
    named = audited(whole_days, lengths=(1440,))
    assert found.trials[0] < named.trials[0] == 5000
    assert "The longer data is, the fewer of the draws it gets, unless it" in found.describe()
    assert "fewer" not in named.describe()


def test_a_named_length_the_box_refuses_is_an_error() -> None:
    with pytest.raises(InputError, match="failed with ValueError: a day has 1440 minutes"):
        audited(whole_days, lengths=(1, 1440))


def test_a_box_that_takes_no_length_is_told_with_what_was_tried() -> None:
    with pytest.raises(
        InputError, match=r"failed with ValueError.*data of 1, .* and 30 entries was tried"
    ):
        audited(whole_days, 30)


def test_a_box_that_fails_for_some_data_is_not_left_out() -> None:
    """Its failure tells the data: nothing to pass over."""

    def sometimes(data: list[str], rng: Rng) -> float:
        return 1 / (len(data) < 30 or data[15] == "sit")

    with pytest.raises(InputError, match="failed with ZeroDivisionError"):
        audited(sometimes, 30)


def test_what_is_longer_than_can_be_drawn_is_said() -> None:
    year = audited(counted, 525_600, draws=4000)
    assert year.beyond == 525_600
    assert (
        "; longer data (up to 525,600 entries) only when its lengths are named" in year.describe()
    )
    assert "(of any length)" in audited(counted, None, draws=4000).describe()
    assert Looked().describe() == ""


def test_many_states_are_looked_at_less_closely() -> None:
    """Twelve states have too many facts for every length and entry."""
    matrix = np.full((12, 12), 0.02 / 11) + np.eye(12) * (0.98 - 0.02 / 11)
    model = MarkovChain.of(matrix, states=[f"s{i}" for i in range(12)], length=500)
    found = audited(
        lambda data, rng: data.count("s3") + rng.laplace(0, 5), model=model, draws=20_000
    )
    assert found.violated
    assert found.lengths == (1, 3, 12, 48, 192, 500)


def test_what_is_counted_was_not_chosen_by() -> None:
    """Every chunk has seeds of its own, and only the last draws, of the winner, are counted."""
    calls: list[tuple[int, int, int]] = []

    class Watched:
        def draw(self, paths: Any, seed: int) -> Any:
            calls.append((seed, *paths.shape))
            noise = np.random.default_rng(seed).laplace(0, 20, len(paths))
            return ((paths == 1).sum(axis=1) + noise)[:, None]

    found = audited(Watched())
    assert len({seed for seed, _, _ in calls}) == len(calls)
    last = [rows for _, rows, entries in calls[-10:] if f"data of {entries} entries" in found.law]
    assert sum(last) == sum(found.trials) == 10_000
    assert sum(rows for _, rows, _ in calls) <= 20_000
    assert sum(rows * entries for _, rows, entries in calls) <= default_budget(20_000).entries
