"""Means and shares over fewer entries than the query's length: right, and no more telling."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.plan import Additive

STATES = ("off", "on")
WATTS = {"off": 0, "on": 900}


def chain(length: int) -> shoal.MarkovChain:
    return shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=STATES, length=length)


def mean_plan(length: int, epsilon: float = 1) -> shoal.Plan:
    query = shoal.mean(STATES, WATTS, length=length, unit="W")
    return shoal.calibrate(query, shoal.EachEntry(), chain(length), epsilon=epsilon)


def test_a_mean_is_over_the_entries_there_are_and_its_error_says_so() -> None:
    plan = mean_plan(1440, epsilon=20)
    minutes = ["on"] * 123 + ["off"] * 3
    truth = 900 * 123 / 126
    draws = [plan.release(minutes, rng=shoal.SeededRng(seed)) for seed in range(400)]
    values = np.array([release.values[0] for release in draws])
    (error,) = {release.error for release in draws}
    assert error is not None
    whole = plan.error()
    assert whole is not None
    assert error.bound == pytest.approx(whole.bound * 1440 / 126)
    assert error.bound >= float(Fraction(whole.bound) * Fraction(1440, 126))  # rounded up
    # 95 % promised; 400 draws stay above 90 % but for a chance of 1e-5
    assert (np.abs(values - truth) <= error.bound).mean() > 0.90
    assert (np.abs(values * 126 / 1440 - truth) <= whole.bound).mean() < 0.1  # as it was: wrong
    assert draws[0].answer.entries == 126


def test_complete_data_is_released_as_before() -> None:
    plan = mean_plan(4)
    release = plan.release(["on", "off"] * 2, rng=shoal.SeededRng(1))
    assert release.answer.entries is None
    assert isinstance(plan.body, Additive)
    assert release.answer.step == plan.body.noise.step
    assert "entries" not in shoal.dumps(release).split('"answer"')[1].split("}")[0]


def test_shares_of_incomplete_data_add_up_to_one_where_the_noise_keeps_the_total() -> None:
    query = shoal.histogram(STATES, relative=True, length=100)
    plan = shoal.calibrate(query, shoal.EachEntry(), chain(100), epsilon=50, mechanism="exact")
    release = plan.release(["on"] * 10 + ["off"] * 30, rng=shoal.SeededRng(3))
    error = release.error
    assert error is not None
    assert abs(release.as_dict()["on"] - 0.25) <= 3 * error.bound
    counts = shoal.calibrate(
        shoal.histogram(STATES), shoal.EachEntry(), chain(100), epsilon=1
    ).release(["on"] * 10 + ["off"] * 30, rng=shoal.SeededRng(3))
    assert counts.answer.entries is None  # counts divide by nothing


@pytest.mark.parametrize("entries", [2, 3, 5])
def test_the_divided_release_tells_no_more_than_promised(entries: int) -> None:
    """Against enumeration: the law of the divided value given each value of each entry."""
    plan = mean_plan(5)
    law = chain(5)
    assert isinstance(plan.body, Additive)
    noise = plan.body.noise
    ratio = int(plan.task.query.lattice / noise.step)
    decay = math.exp(-float(noise.step / noise.scale))
    reach = 5 * 900 * 10
    worst = 0.0
    for node in range(entries):
        densities = np.zeros((2, 2 * reach // 900 + 1))
        places = np.arange(densities.shape[1]) * ratio - 2 * ratio
        total = np.zeros(2)
        for path in product(range(2), repeat=entries):
            chance = float(law.initial[path[0]])
            for before, after in pairwise(path):
                chance *= float(law.transition[before, after])
            truth = ratio * sum(path)
            densities[path[node]] += chance * decay ** np.abs(places - truth)
            total[path[node]] += chance
        given = densities / total[:, None]
        worst = max(worst, float(np.abs(np.log(given[0] / given[1])).max()))
    assert worst <= 1 + 1e-9
    release = plan.release(["on"] * entries, rng=shoal.SeededRng(entries))
    assert release.answer.step == noise.step * Fraction(5, entries)


def test_an_attack_reads_what_was_drawn() -> None:
    """The value divided by 3 of 6 entries is attacked as the sum it stands for."""
    from shoal.attacks.beliefs import attack, laplace_sum, released

    plan = mean_plan(6)
    assert isinstance(plan.body, Additive)
    assert isinstance(plan.task.query, shoal.LinearQuery)
    release = plan.release(["on", "on", "off"], rng=shoal.SeededRng(2))
    drawn = [value * 3 / 6 for value in release.values]
    seen = laplace_sum(plan.task.query, drawn, float(plan.body.noise.scale))
    beliefs = attack(chain(6), [released(plan, release)], 3)
    assert np.allclose(beliefs.after, attack(chain(6), [seen], 3).after, atol=1e-12)


def test_jobs_divide_each_row_by_its_own_entries(tmp_path: Path) -> None:
    rows = [("anna", "on")] * 4 + [("ben", "on")] * 10 + [("cleo", "off")] * 5
    pl.DataFrame(rows, schema=["person", "state"], orient="row").write_parquet(
        tmp_path / "d.parquet"
    )
    plan = mean_plan(10, epsilon=500)
    for ledger in (None, str(tmp_path / "b.db")):
        out = tmp_path / f"out-{ledger is None}"
        shoal.release_files(
            plan, tmp_path / "d.parquet", out=out, by="person", state="state", ledger=ledger
        )
        table = pl.read_parquet(out / "**/*.parquet").sort("subject")
        truth = {"anna": 900.0, "ben": 900.0, "cleo": 0.0}
        for row in table.iter_rows(named=True):
            assert abs(row["value"]["mean"] - truth[row["subject"]]) <= 3 * row["error_bound"]
        bounds = dict(zip(table["subject"], table["error_bound"], strict=True))
        assert bounds["anna"] == pytest.approx(2.5 * bounds["ben"])
        assert table["step"].n_unique() == 3
