"""Releases that are charged to a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.ledger import open_ledger
from tests.cli.conftest import Run, contents, csv_of

RELEASE = ("release", "spec.toml", "days.csv", "--ledger", "budget.db")


def test_each_series_is_charged_under_its_own_name(run: Run, folder: Path) -> None:
    named = ("--period", "2024", "--requester", "anna")
    assert (
        "nothing says what they are to each other" in run(*RELEASE, "-o", "a.json", *named).stderr
    )
    result = run(*RELEASE, "-o", "a.json", *named, "--periods", "independent")
    assert result.exit_code == 0, result.stderr
    with open_ledger(folder / "budget.db") as ledger:
        assert sorted(ledger.accounts()) == [("p0", "2024"), ("p1", "2024")]
        assert len(ledger.charges()) == 2


def test_a_repeated_key_costs_nothing_and_returns_the_same(run: Run, folder: Path) -> None:
    for name in ("a.json", "b.json"):
        assert run(*RELEASE, "-o", name, "--key", "monday").exit_code == 0
    assert (folder / "a.json").read_bytes() == (folder / "b.json").read_bytes()
    with open_ledger(folder / "budget.db") as ledger:
        assert len(ledger.charges()) == 2


def test_over_budget_writes_nothing_and_exits_with_three(run: Run, folder: Path) -> None:
    with open_ledger(folder / "budget.db") as ledger:
        ledger.limit("0.001", unit="eta")
    result = run(*RELEASE, "-o", "a.json")
    assert result.exit_code == 3
    assert result.stderr.startswith("Error: series 'p0': ")
    assert not (folder / "a.json").exists()
    with open_ledger(folder / "budget.db") as ledger:
        assert not ledger.charges()


def test_what_was_charged_before_a_refusal_is_not_lost(run: Run, folder: Path) -> None:
    with open_ledger(folder / "budget.db") as ledger:
        ledger.limit("0.001", unit="eta", subject="p1")
    result = run(*RELEASE, "-o", "a.json", "--key", "monday")
    assert result.exit_code == 3
    assert "1 series before it were charged" in result.stderr
    assert "--key monday" in result.stderr
    with open_ledger(folder / "budget.db") as ledger:
        ledger.limit("9", unit="eta", subject="p1")
    assert run(*RELEASE, "-o", "a.json", "--key", "monday").exit_code == 0
    with open_ledger(folder / "budget.db") as ledger:
        assert len(ledger.charges()) == 2
    assert set(json.loads((folder / "a.json").read_text())["releases"]) == {"p0", "p1"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--subject", "x"), "--subject is 'x', but the data holds 2 series; drop it"),
        (("--together",), "a release of all series together needs --subject"),
        (("--seed", "1"), "--seed is given with --ledger; a ledger takes only real releases"),
        (("--state", "act"), "has no column 'act'"),
    ],
)
def test_refused_before_the_ledger_is_touched(
    run: Run, folder: Path, options: tuple[str, ...], words: str
) -> None:
    before = contents(folder)
    result = run(*RELEASE, "-o", "a.json", *options)
    assert result.exit_code == 2, result.stderr
    assert words in result.stderr
    assert contents(folder) == before  # not even an empty ledger was made


def test_one_series_may_be_charged_under_another_name(run: Run, folder: Path) -> None:
    (folder / "days.csv").write_text(csv_of(people=1))
    assert run(*RELEASE, "-o", "a.json", "--subject", "anna").exit_code == 0
    with open_ledger(folder / "budget.db") as ledger:
        assert ledger.accounts() == [("anna", "")]
