"""Data drawn given a fact has the law it should; black boxes and pools give the same numbers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.audit.black_box import FunctionBox, PlanBox, as_box, runner
from shoal.audit.fact_pairs import Pool, outcomes_given, route
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Ints
from shoal.core.errors import InputError
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.networks.table import JointTable
from tests.oracle.enumeration import chain_law, conditional, order_law, table_law
from tests.toys import TASK

DRAWS = 40_000
PER_STEP = [[[0.8, 0.2], [0.0, 1.0]], [[0.5, 0.5], [0.1, 0.9]], [[0.6, 0.4], [0.4, 0.6]]]


def assert_follows(paths: Ints, law: dict[tuple[int, ...], float]) -> None:
    """Every frequency within five standard deviations, and nothing impossible."""
    counts = Counter(map(tuple, paths.tolist()))
    assert set(counts) <= set(law)
    for path, chance in law.items():
        spread = 5 * np.sqrt(chance * (1 - chance) / len(paths)) + 1e-12
        assert abs(counts[path] / len(paths) - chance) <= spread


@pytest.mark.parametrize(("entry", "value"), list(product(range(4), (0, 1))))
def test_paths_follow_the_chain_given_one_entry(entry: int, value: int) -> None:
    rng = np.random.default_rng(5)
    chain = MarkovChain.of(PER_STEP, initial=[0.6, 0.4], length=4)
    law = conditional(chain_law(chain, 4), lambda path: path[entry] == value)
    assert_follows(route(chain.walk(), 4, entry).draw(value, DRAWS, rng), law)


@pytest.mark.parametrize("entry", range(4))
def test_paths_follow_a_chain_of_order_two(entry: int) -> None:
    rng = np.random.default_rng(6)
    chain = OrderChain(
        states=("a", "b"),
        order=2,
        conditional=np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0, 1]]),
        initial=np.array([0.4, 0.1, 0.5, 0]),
    )
    law = conditional(order_law(chain, 4), lambda path: path[entry] == 1)
    assert_follows(route(chain.walk(), 3, entry).draw(1, DRAWS, rng), law)


JUMPING: list[tuple[Any, Any]] = [
    ([[0.9, 0.1], [0.4, 0.6]], "stationary"),
    ([[0.8, 0.2, 0.0], [0.1, 0.6, 0.3], [0.0, 0.3, 0.7]], [1, 0, 0]),  # certain start, zeros
    ([[0.5, 0.5, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]], [0.6, 0.4, 0]),  # never left
    ([[0.0, 1.0], [0.2, 0.8]], [0.3, 0.7]),  # left at once
]


@pytest.mark.parametrize(("matrix", "initial"), JUMPING)
@pytest.mark.parametrize("entry", [0, 2, 4])
def test_jumps_have_the_law_of_moves(
    matrix: Any, initial: Any, entry: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long stretches are drawn change by change: here all of them are."""
    monkeypatch.setattr("shoal.audit.fact_pairs.RARELY", 2.0)
    monkeypatch.setattr("shoal.audit.fact_pairs.SHORT_LENGTHS", 1)
    chain = MarkovChain.of(matrix, initial=initial, length=5)
    way = route(chain.walk(), 5, entry)
    for value in np.flatnonzero(way.law).tolist():
        law = conditional(chain_law(chain, 5), lambda path, value=value: path[entry] == value)  # type: ignore[misc]
        assert_follows(way.draw(value, DRAWS, np.random.default_rng(8)), law)


@pytest.mark.parametrize("initial", ["stationary", [1, 0, 0]])
def test_long_paths_follow_the_chain(initial: Any) -> None:
    """Two neighbours anywhere in slow data have their joint law given the middle entry."""
    matrix = np.array([[0.97, 0.02, 0.01], [0.05, 0.9, 0.05], [0.0, 0.04, 0.96]])
    chain = MarkovChain.of(matrix, initial=initial, length=120)
    path = chain.walk()
    way = route(path, 120, 60)
    assert len(way.back) == 1 or initial != "stationary"
    drawn, laws = way.draw(1, DRAWS, np.random.default_rng(9)), path.laws(120)
    for t in (0, 1, 30, 58, 59, 60, 61, 100, 118):
        if t < 60:
            later = np.linalg.matrix_power(matrix, 59 - t)[:, 1]
            joint = laws[t][:, None] * matrix * later / laws[60][1]
        else:
            joint = np.linalg.matrix_power(matrix, t - 60)[1][:, None] * matrix
        seen = np.bincount(3 * drawn[:, t] + drawn[:, t + 1], minlength=9).reshape(3, 3) / DRAWS
        assert np.all(np.abs(seen - joint) <= 5 * np.sqrt(joint * (1 - joint) / DRAWS) + 1e-12)


def test_all_of_the_data_is_drawn_afresh() -> None:
    drawn = [given_middle(41).draw(50, np.random.default_rng(seed)) for seed in (1, 2)]
    assert np.array_equal(drawn[0], given_middle(41).draw(50, np.random.default_rng(1)))
    for part in (slice(0, 20), slice(21, 41)):
        assert not np.array_equal(drawn[0][:, part], drawn[1][:, part])


def test_steady_laws_share_one_matrix() -> None:
    """Once a chain has forgotten its start, all earlier steps look alike but for rounding."""
    chain = MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[1, 0], length=400)
    way = route(chain.walk(), 400, 399)
    assert sum(leg.moves for leg in way.back) == 399
    assert 10 < len(way.back) < 80


def test_outcomes_follow_a_table_given_an_event() -> None:
    table = JointTable.of([[[0.3, 0.0], [0.1, 0.1]], [[0.05, 0.2], [0.05, 0.2]]])
    drawn = outcomes_given(table, {"X2": ("1",)}, DRAWS, np.random.default_rng(7))
    assert_follows(drawn, conditional(table_law(table), lambda outcome: outcome[1] == 1))


def parity(data: list[str], rng: np.random.Generator) -> float:
    return len(data) + 10 * data.count("run") + rng.normal()


def several(data: list[str]) -> list[float]:
    return [float(len(data)), float(data.count("run"))]


def given_middle(entries: int) -> Pool:
    """Data of a slow chain given the middle entry."""
    chain = MarkovChain.of([[0.95, 0.05], [0.1, 0.9]], states=["rest", "run"])
    return Pool("run", partial(route(chain.walk(), entries, entries // 2).draw, 1), entries)


def test_a_pool_of_processes_changes_nothing() -> None:
    box = FunctionBox(parity, ("rest", "run"))
    results = []
    for workers in (1, 2):
        done: list[int] = []
        with runner(box, workers, 5000, lambda n, _, done=done: done.append(n)) as run:  # type: ignore[misc]
            run.stage(2500, [(2500, 40)])
            results.append(run.draw(given_middle(40), 2500, np.random.SeedSequence(3)))
            run.stage(5000, [(500, 3)])
            results.append(run.draw(given_middle(3), 500, np.random.SeedSequence(4)))
        assert done == [1000, 2000, 2500, 5000]
    assert np.array_equal(results[0], results[2])
    assert np.array_equal(results[1], results[3])
    assert results[0].shape == (2500, 1)
    assert len(np.unique(results[0])) == 2500  # no chunk comes twice


def test_long_data_is_drawn_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.audit.black_box.CHUNK_ENTRIES", 100)
    sizes: list[tuple[int, ...]] = []

    class Watched:
        def draw(self, paths: Ints, seed: int) -> Any:
            sizes.append(paths.shape)
            return paths[:, :1].astype(float)

    with runner(Watched(), 1, 10) as run:
        assert run.draw(given_middle(40), 5, np.random.SeedSequence(0)).shape == (5, 1)
    assert sizes == [(2, 40), (2, 40), (1, 40)]


def test_what_cannot_travel_runs_at_home() -> None:
    here = FunctionBox(lambda data: 1 + 0 * data.count("rest"), ("rest", "run"))
    with runner(here, 2, 10) as run:
        assert run.draw(given_middle(3), 10, np.random.SeedSequence(0)).tolist() == [[1]] * 10


def test_several_numbers_come_back_as_columns() -> None:
    out = FunctionBox(several, ("rest", "run")).draw(np.array([[0, 1, 1], [1, 1, 1]]), 0)
    assert out.tolist() == [[3.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("bad", [lambda data: "walk", lambda data: list(range(len(set(data))))])
def test_a_box_must_return_numbers(bad: Any) -> None:
    with pytest.raises(InputError, match="the black box must return"):
        FunctionBox(bad, ("rest", "run")).draw(np.array([[0, 0], [0, 1]]), 0)


def test_a_plan_is_released_by_its_own_noise() -> None:
    """The batch has the law of single releases: same mean and spread, on the same lattice."""
    plan = calibrate_and_check(MECHANISMS["exact"], TASK, Fraction(1))
    paths = np.tile([0, 1, 1, 0], (20_000, 1))
    out = PlanBox(plan).draw(paths, 11)[:, 0]
    noise: Any = plan.body.noise  # type: ignore[union-attr]
    assert abs(out.mean() - 2) < 5 * np.sqrt(noise.variance() / 20_000)
    assert out.var() == pytest.approx(noise.variance(), rel=0.1)
    assert np.array_equal(out, np.round(out))
    assert np.array_equal(out, PlanBox(plan).draw(paths, 11)[:, 0])


def test_anything_else_is_refused() -> None:
    with pytest.raises(InputError, match="release is a int"):
        as_box(3, ("a",))
