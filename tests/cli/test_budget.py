"""A year of releases about days: what each may spend, against the ledger's rules and the lift."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli import app
from shoal.core.charge import Part
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive, UselessRelease
from shoal.ledger.budget import left_of
from shoal.ledger.rules import compose

STATES = ("off", "on")
CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.3, 0.7]], states=STATES, length=24)
QUERY = shoal.mean(STATES, {"off": 0, "on": 1000}, length=24, unit="W")
WISH: dict[str, Any] = {"epsilon": 1, "releases": 365}
SPEC = """
[[model]]
kind = "markov-chain"
states = ["off", "on"]
transition = [[0.9, 0.1], [0.3, 0.7]]
length = 24

[secrets]
kind = "each-entry"

[query]
kind = "mean"
weights = { off = 0, on = 1000 }
length = 24

[privacy]
epsilon = 1.0
"""


def budget(**more: Any) -> Any:
    return shoal.budget(QUERY, shoal.EachEntry(), CHAIN, **{**WISH, **more})


def test_one_eta_covers_every_day_and_the_lift_of_it_is_the_budget() -> None:
    found = budget()
    wish = found.paces[0]
    endless = shoal.MarkovChain.of(CHAIN.transition, states=STATES)
    assert float(shoal.leakage(endless, wish.eta).value) <= 1 + 1e-9
    assert float(shoal.leakage(endless, wish.eta * Fraction(102, 100)).value) > 1
    assert isinstance(wish.plan.body, Additive)
    assert wish.plan.body.eta == wish.eta
    total = compose([wish.plan] * 3, parts=[Part(span=(24 * d, 24 * d + 24)) for d in range(3)])
    assert float(total.amount) == pytest.approx(wish.epsilon)
    twice = compose([wish.plan] * 2)  # of the same entries: it adds
    assert float(twice.amount) > 1.5


def test_coarser_paces_ask_the_same_of_longer_parts() -> None:
    found = budget()
    by = {pace.every: pace for pace in found.paces}
    assert list(by) == ["day", "week", "month", "quarter", "year"]
    assert [by[name].releases for name in by] == [365, 53, 13, 5, 1]
    assert by["week"].entries == 7 * 24
    day, week = by["day"].error, by["week"].error
    assert day is not None
    assert week is not None
    assert week.expected == pytest.approx(day.expected / 7, rel=0.02)
    assert found.added.expected == pytest.approx(365 * day.expected)
    assert "If every release read all entries instead" in found.describe()
    assert found.to_frame()["every"].to_list() == list(by)
    assert "<table>" in found._repr_html_()
    assert found.plot().get_ylabel() == "mean error of a value, W"


def test_counts_stay_counts_and_every_hour_is_a_pace() -> None:
    found = shoal.budget(
        shoal.count(STATES, "on"), shoal.EachEntry(), CHAIN, epsilon=1, releases=48, every="hour"
    )
    assert [(pace.every, pace.releases) for pace in found.paces] == [("hour", 48), ("day", 2)]
    assert found.paces[0].plan.scale == found.paces[1].plan.scale


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"every": "fortnight"}, "every is 'fortnight'; it must be one of hour, day"),
        ({"releases": 0}, "releases is 0; it must be a whole number of at least 1"),
        ({"epsilon": 0}, "epsilon is 0; it must be greater than 0"),
    ],
)
def test_odd_wishes_are_refused(wish: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        budget(**wish)


def test_laws_of_a_fixed_number_of_entries_are_refused() -> None:
    steps = shoal.MarkovChain.of(
        [CHAIN.transition] * 5, states=STATES, initial=[0.5, 0.5], length=6
    )
    with pytest.raises(Refused, match="whose law goes on"):
        shoal.budget(shoal.count(STATES, "on"), shoal.EachEntry(), steps, **WISH)


def test_a_ledger_says_what_is_left_and_until_when(tmp_path: Path) -> None:
    plan = budget(releases=1).plan
    with shoal.open_ledger(tmp_path / "b.db") as ledger:
        assert left_of(ledger, "house").describe().startswith("Ledger: this subject has never")
        ledger.limit(20, unit="epsilon")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UselessRelease)
            for _ in range(2):
                plan.release(["on"] * 24, ledger=ledger, subject="house")
        left = left_of(ledger, "house")
        assert left.charges == 2
        assert left.limit == 20
        assert left.amount == 20 - left.spent
        assert left.until is not None
        assert "at this pace it lasts until" in left.describe()
        with pytest.raises(InputError, match="subject is empty"):
            left_of(ledger, "")


def test_the_command(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    done = run("budget", "spec.toml", "--releases", "365", "--json", "--plot", "b.png")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["paces"][0]["releases"] == 365
    assert found["left"] is None
    assert Path("b.png").stat().st_size > 1000
    text = run("budget", "spec.toml", "--releases", "30", "--every", "day").stdout
    assert "week" in text
    assert "eta each" in text
    refused = run("budget", "spec.toml", "--releases", "3", "--subject", "x")
    assert "are for a ledger" in refused.stderr


def test_the_eta_of_a_budget_is_one_the_ledger_adds_whatever_the_weights() -> None:
    """Three states whose weights lie apart: the row alone may spend more than a sum of eta may."""
    chain = shoal.MarkovChain.of(
        [[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.1, 0.3, 0.6]], states="abc", length=24
    )
    query = shoal.mean("abc", {"a": 0, "b": 10, "c": 1000}, length=24)
    found = shoal.budget(query, shoal.EachEntry(), chain, epsilon=1, releases=40)
    alone = shoal.calibrate(
        query, shoal.EachEntry(), shoal.MarkovChain.of(chain.transition, states="abc"),
        epsilon=1, mechanism="lift",
    )  # fmt: skip
    assert found.plan.scale is not None
    assert alone.scale is not None
    assert found.plan.scale > alone.scale
    assert all(pace.epsilon <= 1 + 1e-9 for pace in found.paces)
    assert shoal.verify_promise(found.plan) <= 1


def test_spending_after_each_charge_is_what_the_rules_make_of_them() -> None:
    """Against the ledger's own sum, recomputed from the beginning for every prefix."""
    from dataclasses import dataclass
    from random import Random

    from shoal.ledger.budget import running_eta
    from shoal.ledger.totals import sum_eta, tallied

    @dataclass
    class Entry:
        eta: str
        part: str

    draw, plan = Random(4), budget(releases=1).plan
    eta = sum_eta(tallied([plan]))
    assert eta is not None
    for _ in range(40):
        parts = []
        for _ in range(draw.randint(1, 12)):
            first = draw.randint(0, 20)
            span = Part(span=(first, first + draw.randint(1, 9)))
            parts.append(draw.choice([span, span, Part(name=draw.choice("ab")), Part()]))
        found = running_eta([Entry(str(eta), part.text) for part in parts])
        wanted = [sum_eta(tallied([plan] * n, parts[:n])) for n in range(1, len(parts) + 1)]
        assert found == wanted


def test_days_at_their_pace_never_use_a_limit_up_and_whole_releases_do(tmp_path: Path) -> None:
    """Parts cost nothing more after the first, so what is left lasts."""
    plan = budget(releases=1).plan
    days: list[Any] = [None, *[(24 * d, 24 * d + 24) for d in range(4)]]
    with shoal.open_ledger(tmp_path / "b.db") as ledger, warnings.catch_warnings():
        warnings.simplefilter("ignore", UselessRelease)
        ledger.limit(1.5, unit="epsilon", subject="days")
        for part in days[1:]:
            plan.release(["on"] * 24, ledger=ledger, subject="days", part=part)
        left = left_of(ledger, "days")
        assert left.amount is not None
        assert float(left.amount) == pytest.approx(0.5, abs=0.01)
        assert left.until is None
        assert "at this pace it is not used up" in left.describe()
        ledger.limit(1, unit="eta", subject="whole")
        for _ in range(3):
            plan.release(["on"] * 24, ledger=ledger, subject="whole")
        times = sorted(entry.at for entry in ledger.charges("whole"))
        until = left_of(ledger, "whole").until
        assert until is not None
        eta = float(plan.body.eta)
        first, last = (datetime.fromisoformat(times[place]) for place in (0, -1))
        wanted = (last - first).total_seconds() * (1 - 3 * eta) / (2 * eta)
        assert (until - last).total_seconds() == pytest.approx(wanted, rel=1e-3)


def test_the_first_lines_of_a_budget_are_sentences(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SPEC)
    done = CliRunner().invoke(app, ["budget", str(tmp_path / "s.toml"), "--releases", "365"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "each of a part of its own: entry-level eta = " in said
    assert "If every release read all entries instead: off by" in said
