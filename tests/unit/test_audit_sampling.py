"""Data drawn given a fact has the law it should; black boxes and pools give the same numbers."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from tests.oracle.enumeration import chain_law, conditional, order_law, table_law
from tests.toys import TASK

from shoal.audit.boxes import FunctionBox, PlanBox, as_box, runner
from shoal.audit.sampling import outcomes_given, paths_given
from shoal.audit.walk import walk
from shoal.core.errors import InputError
from shoal.core.value import Ints
from shoal.mechanisms import MECHANISMS, calibrated
from shoal.models.chain import MarkovChain
from shoal.models.order import OrderChain
from shoal.models.table import JointTable

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
    assert_follows(paths_given(walk(chain), 4, entry, value, DRAWS, rng), law)


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
    assert_follows(paths_given(walk(chain), 3, entry, 1, DRAWS, rng), law)


def test_outcomes_follow_a_table_given_an_event() -> None:
    table = JointTable.of([[[0.3, 0.0], [0.1, 0.1]], [[0.05, 0.2], [0.05, 0.2]]])
    drawn = outcomes_given(table, {"X2": ("1",)}, DRAWS, np.random.default_rng(7))
    assert_follows(drawn, conditional(table_law(table), lambda outcome: outcome[1] == 1))


def parity(data: list[str], rng: np.random.Generator) -> float:
    return len(data) + 10 * data.count("run") + rng.normal()


def several(data: list[str]) -> list[float]:
    return [float(len(data)), float(data.count("run"))]


def test_a_pool_of_processes_changes_nothing() -> None:
    paths = np.random.default_rng(1).integers(0, 2, (2500, 3))
    box = FunctionBox(parity, ("rest", "run"))
    results = []
    for workers in (1, 2):
        done: list[int] = []
        with runner(box, workers, 2500, lambda n, _, done=done: done.append(n)) as run:  # type: ignore[misc]
            results.append(run.draw(paths, np.random.SeedSequence(3)))
        assert done == [1000, 2000, 2500]
    assert np.array_equal(results[0], results[1])
    assert results[0].shape == (2500, 1)


def test_what_cannot_travel_runs_at_home() -> None:
    here = FunctionBox(lambda data: 1 + data.count("rest"), ("rest", "run"))
    with runner(here, 2, 10) as run:
        assert (
            run.draw(np.zeros((10, 3), np.int64), np.random.SeedSequence(0)).tolist() == [[4]] * 10
        )


def test_several_numbers_come_back_as_columns() -> None:
    out = FunctionBox(several, ("rest", "run")).draw(np.array([[0, 1, 1], [1, 1, 1]]), 0)
    assert out.tolist() == [[3.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("bad", [lambda data: "walk", lambda data: list(range(len(set(data))))])
def test_a_box_must_return_numbers(bad: Any) -> None:
    with pytest.raises(InputError, match="the black box must return"):
        FunctionBox(bad, ("rest", "run")).draw(np.array([[0, 0], [0, 1]]), 0)


def test_a_plan_is_released_by_its_own_noise() -> None:
    """The batch has the law of single releases: same mean and spread, on the same lattice."""
    plan = calibrated(MECHANISMS["exact"], TASK, Fraction(1))
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
