"""Whole persons: no pair of series of one person is told apart by more than is promised.

All series of two people and all outputs that decide are written out here; noise is the two-sided
geometric law by its formula. Proof: src/shoal/mechanisms/group.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.core.plan import Plan
from shoal.mechanisms.person import prices

STATES = ("a", "b", "c")
ROWS = [[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.3, 0.3, 0.4]]
Series = tuple[str, ...]


def shares(people: Sequence[Series]) -> list[Fraction]:
    entries = [entry for one in people for entry in one]
    return [Fraction(entries.count(state), 6) for state in STATES]


def weights(people: Sequence[Series]) -> list[Fraction]:
    worth = {"a": Fraction(1, 2), "b": Fraction(0), "c": Fraction(-3)}
    return [sum((worth[entry] for one in people for entry in one), Fraction(0))]


QUERIES = {
    "histogram": (shoal.histogram(STATES, relative=True, length=6), shares),
    "sum": (shoal.weighted_sum(STATES, {"a": "0.5", "c": -3}), weights),
}


def every_series(most: int) -> list[Series]:
    return list(itertools.product(STATES, repeat=most))


def plan_of(name: str, secrets: object = None, length: int | None = 3) -> Plan:
    chain = shoal.MarkovChain.of(ROWS, states=STATES, length=length)
    query = QUERIES[name][0]
    return shoal.calibrate(query, secrets or shoal.EachPerson(), chain, epsilon=1)  # type: ignore[arg-type]


def log_law(answer: Sequence[Fraction], output: Sequence[Fraction], scale: float) -> float:
    """log P(output | answer), but for a normaliser that is the same for all answers."""
    return -sum(abs(float(z - y)) for y, z in zip(answer, output, strict=True)) / scale


@pytest.mark.parametrize("name", QUERIES)
def test_no_two_series_of_a_person_are_told_apart_by_more(name: str) -> None:
    """The worst output of a pair is one of the two answers, or far beyond: both are looked at."""
    plan, answer = plan_of(name), QUERIES[name][1]
    assert plan.scale is not None
    worst = 0.0
    for other in every_series(3)[::9]:
        answers = list({tuple(answer([mine, other])) for mine in every_series(3)})
        far = [[Fraction(s) * 1000 for s in signs] for signs in _signs(len(answers[0]))]
        for one, two in itertools.product(answers, repeat=2):
            for z in (one, two, *far):
                gap = log_law(one, z, plan.scale) - log_law(two, z, plan.scale)
                worst = max(worst, gap)
    assert worst <= 1 + 1e-9
    assert worst > 1 - 1e-3  # all of the budget is used


def _signs(count: int) -> list[tuple[int, ...]]:
    return list(itertools.product((-1, 1), repeat=count))


@pytest.mark.parametrize("name", QUERIES)
def test_no_event_about_a_person_is_told_by_more_under_the_chain(name: str) -> None:
    """Any event about one series, averaged over the law of the chain: a few hundred of them."""
    plan, answer = plan_of(name), QUERIES[name][1]
    assert plan.scale is not None
    rng = np.random.default_rng(1)
    chain = shoal.MarkovChain.of(ROWS, states=STATES)
    start, mine = np.asarray(chain.initial), every_series(3)
    at = {state: i for i, state in enumerate(STATES)}
    law = np.array(
        [
            start[at[s[0]]] * math.prod(ROWS[at[x]][at[y]] for x, y in itertools.pairwise(s))
            for s in mine
        ]
    )
    answers = [answer([one, ("a", "b")]) for one in mine]
    outputs = [*answers, *([Fraction(s) * 50 for s in g] for g in _signs(len(answers[0])))]
    told = np.exp([[log_law(y, z, plan.scale) for z in outputs] for y in answers])
    for _ in range(300):
        first, second = rng.random((2, len(mine))) < rng.random((2, 1))
        if not (first.any() and second.any()):
            continue
        one, two = ((law * e) @ told / (law * e).sum() for e in (first, second))
        assert np.abs(np.log(one / two)).max() <= 1 + 1e-9


def test_noise_for_single_entries_is_not_enough() -> None:
    """The control: what hides each entry of the same chain tells persons apart."""
    plan = plan_of("sum", shoal.EachEntry())
    assert plan.scale is not None
    answers = [weights([one, ("a",)]) for one in every_series(3)]
    ends = [float(answer[0]) for answer in answers]
    worst = (max(ends) - min(ends)) / plan.scale
    assert worst > 1.2


def test_the_audit_bounds_persons_not_entries() -> None:
    """What one entry tells is a lower bound of what a whole series tells."""
    found = shoal.audit(plan_of("sum"))
    assert found.upper >= 1 - 1e-9
    assert found.lower < found.upper
    asked = shoal.audit(plan_of("sum", shoal.EachEntry()), secrets=shoal.EachPerson())
    assert asked.upper > 1.2


def test_a_ledger_adds_what_the_plans_say(tmp_path: Path) -> None:
    """Persons' epsilons add; one charge costs what the plan says; entries count too."""
    one, entry = plan_of("sum"), plan_of("histogram", shoal.EachEntry())
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        for expected in (1, 2):
            one.release([["a", "b"], ["c"]], ledger=ledger, subject="ward", together=True)
            total = ledger.spent("ward")
            assert total is not None
            assert total.notion == "group"
            assert float(total.amount) == pytest.approx(expected)
        entry.release(["a", "b"], ledger=ledger, subject="ward")
        total = ledger.spent("ward")
        assert total is not None
        assert total.notion == "group"
        assert float(total.amount) == pytest.approx(2 + 3 * float(entry.additive.eta))  # type: ignore[union-attr]


def test_models_without_persons_or_without_an_end_are_refused() -> None:
    with pytest.raises(shoal.Refused, match="give it a length"):
        plan_of("sum", length=None)
    with pytest.raises(shoal.InputError, match="no series of one person"):
        shoal.calibrate(
            shoal.records.number_mean(low=0, high=1, records=9),
            shoal.EachPerson(),
            shoal.records.RecordGroups(1),
            epsilon=1,
        )


def test_both_prices_are_said_whichever_was_asked_for() -> None:
    for secrets in (shoal.EachEntry(), shoal.EachPerson()):
        entry, person = prices(plan_of("sum", secrets))
        assert entry.error is not None
        assert person.error is not None
        assert entry.error.expected < person.error.expected
        assert person.describe().startswith("Each person: hidden with up to 3 entries at epsilon")
    endless = prices(plan_of("sum", shoal.EachEntry(), length=None))
    assert "not hidden by finite noise, because a model of any length" in endless[1].describe()
    table = shoal.JointTable.of([[0.4, 0.1], [0.1, 0.4]], domains=[["a", "b"]] * 2)
    other = shoal.calibrate(shoal.count("ab", "a"), shoal.EachEntry(), table, epsilon=1)
    assert prices(other) == ()


def test_a_gap_does_not_make_two_persons_of_one(tmp_path: Path) -> None:
    """All chains of a series are one person: more entries than the noise is for are refused."""
    plan, rows = plan_of("sum"), [("ann", t, "a") for t in (0, 1, 9, 10)]
    table = pl.DataFrame(rows, schema=["who", "t", "x"], orient="row")
    columns: dict[str, Any] = {"state": "x", "series": "who", "time": "t", "gap": 5}
    for together in (True, False):
        with pytest.raises(shoal.DataError, match="in all its chains"):
            plan.release(table, together=together, rng=1, **columns)
    plan.release(table.head(3), rng=1, **columns)  # two chains, three entries: one person
    table.write_csv(tmp_path / "days.csv")
    (tmp_path / "plan.json").write_text(shoal.dumps(plan))
    words = ["release", str(tmp_path / "plan.json"), str(tmp_path / "days.csv"), "--state", "x"]
    more = ["--series", "who", "--time", "t", "--gap", "5min", "--time-unit", "min"]
    for act in (
        ["--together", "-o", str(tmp_path / "r.json")],
        ["--by", "who", "-o", str(tmp_path / "o")],
    ):
        own = more[2:] if act[0] == "--by" else more
        found = CliRunner().invoke(app, [*words, *own, *act])
        assert found.exit_code == 2
        assert "in all its chains" in found.stderr


def test_a_person_is_in_every_period(tmp_path: Path) -> None:
    """Periods of a ledger are for data that is independent; here the larger would count once."""
    plan = plan_of("sum")
    with (
        shoal.open_ledger(tmp_path / "ledger.db") as ledger,
        pytest.raises(shoal.InputError, match="who is in every period"),
    ):
        plan.release([["a", "b"], ["c"]], ledger=ledger, subject="ward", period="may")
