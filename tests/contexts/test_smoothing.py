"""Smoothing of day chains that is chosen by days left out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from shoal.cli import app
from shoal.contexts.day import AMOUNTS, DayChain, fit_day, likeliest_smoothing, log_likelihood
from shoal.core.errors import DataError
from shoal.core.registry import loads


def random_days(count: int, seed: int, habit: float) -> list[list[str]]:
    """Days that keep to one routine with probability `habit` at every slot."""
    rng = np.random.default_rng(seed)
    routine = ["home", "work", "work", "home", "gym", "home"]
    names = sorted(set(routine))
    return [
        [usual if rng.random() < habit else names[int(rng.integers(3))] for usual in routine]
        for _ in range(count)
    ]


def test_the_choice_is_the_likeliest_of_all_that_are_tried() -> None:
    """Against the probability of each day left out, multiplied slot by slot."""
    days = random_days(5, 1, 0.7)
    states = ["gym", "home", "work"]
    totals = []
    for amount in AMOUNTS:
        total = 0.0
        for out, day in enumerate(days):
            rest = [other for k, other in enumerate(days) if k != out]
            chain = fit_day(rest, states=states, smoothing=amount, spread=1)
            at = [states.index(context) for context in day]
            total += math.log(chain.initial[at[0]])
            for t in range(5):
                total += math.log(chain.transition[t, at[t], at[t + 1]])
        totals.append(total)
    chosen = likeliest_smoothing(days, states=states, spread=1)
    assert chosen == AMOUNTS[int(np.argmax(totals))]
    auto = fit_day(days, states=states, smoothing="auto", spread=1)
    assert auto == fit_day(days, states=states, smoothing=chosen, spread=1)


def test_routine_wants_little_smoothing_and_chance_much() -> None:
    assert likeliest_smoothing([["a", "b", "a"]] * 6) == AMOUNTS[0]
    assert likeliest_smoothing(random_days(4, 2, 0.0)) == AMOUNTS[-1]


def test_the_likelihood_leaves_out_missing_readings_and_knows_the_impossible() -> None:
    day = DayChain.of([[[0.5, 0.5], [0.0, 1.0]]] * 2, initial=[1, 0])
    assert log_likelihood(day, np.array([[0, 1, 1]])) == pytest.approx(math.log(0.5))
    assert log_likelihood(day, np.array([[0, -1, 1], [-1, 0, 0]])) == pytest.approx(math.log(0.5))
    assert log_likelihood(day, np.array([[0, 1, 0]])) == -math.inf


def test_one_day_is_not_enough() -> None:
    with pytest.raises(DataError, match="smoothing is 'auto' and 1 day is given"):
        fit_day([["a", "b"]], smoothing="auto")


def test_many_days_are_left_out_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty fits an amount, and every day is left out of one of them."""
    days = [[*day, f"day {number}"] for number, day in enumerate(random_days(50, 3, 0.8))]
    fits: list[tuple[float, set[str]]] = []

    def noted(rest: Sequence[Sequence[str]], **options: Any) -> DayChain:
        fits.append((options["smoothing"], {day[-1] for day in rest}))
        return fit_day(rest, **options)

    monkeypatch.setattr("shoal.contexts.day.fit_day", noted)
    likeliest_smoothing(days)
    every = {day[-1] for day in days}
    for amount in AMOUNTS:
        out = [every - rest for asked, rest in fits if asked == amount]
        assert len(out) == 20
        assert sorted(day for group in out for day in group) == sorted(every)


def test_the_command_takes_auto(tmp_path: Path) -> None:
    days = random_days(4, 4, 0.6)
    lines = ["user,t,context"]
    for number, day in enumerate(days):
        lines += [f"u,2024-03-0{number + 1}T{4 * t:02}:00:00,{c}" for t, c in enumerate(day)]
    data, model = tmp_path / "phone.csv", tmp_path / "day.json"
    data.write_text("\n".join(lines) + "\n")
    names = ["--state", "context", "--series", "user", "--time", "t"]
    asked = ["fit", str(data), "-o", str(model), *names, "--slot", "4h", "--smoothing", "auto"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    stored = loads(model.read_text())
    assert isinstance(stored, DayChain)
    wanted = fit_day(days, smoothing="auto")
    assert stored.transition == pytest.approx(wanted.transition, rel=1e-12)
