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
        (("--subject", "x"), "the subject is 'x', but the data holds 2 series; drop it"),
        (("--together",), "nothing says whose data it is; name the subject with --subject"),
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


def test_a_release_of_all_charges_everybody_in_it(run: Run, folder: Path) -> None:
    """A release per person and then one over all: the second is about each person too."""
    with open_ledger(folder / "budget.db") as ledger:
        ledger.limit("0.01", unit="epsilon", subject="p1")
        ledger.limit("99", unit="epsilon", subject="p0")
    town = (*RELEASE, "-o", "a.json", "--together", "--subject", "town")
    refused = run(*town)
    assert refused.exit_code == 3
    assert "subject 'p1'" in refused.stderr
    with open_ledger(folder / "budget.db") as ledger:
        assert not ledger.charges()
    assert run(*town, "--members", "nobody").exit_code == 0
    with open_ledger(folder / "budget.db") as ledger:
        assert [entry.subject for entry in ledger.charges()] == ["town"]
        ledger.limit("99", unit="epsilon", subject="p1")
    assert run(*town, "--force").exit_code == 0
    with open_ledger(folder / "budget.db") as ledger:
        charged = sorted(entry.subject for entry in ledger.charges())
        assert charged == ["p0", "p1", "town", "town"]
        assert str(ledger.charges("town")[-1].members).startswith("2 ")


def test_members_are_a_column_or_everybody(run: Run, folder: Path) -> None:
    rows = ["person,minute,activity,ward\n"]
    rows += [f"p{n % 2},{n},{'sit' if n % 3 else 'walk'},w{n % 4}\n" for n in range(20)]
    (folder / "days.csv").write_text("".join(rows))
    town = (*RELEASE, "--together", "--subject", "town")
    assert run(*town, "-o", "a.json", "--members", "ward").exit_code == 0
    assert run(*town, "-o", "b.json", "--members", "everybody").exit_code == 0
    with open_ledger(folder / "budget.db") as ledger:
        charged = {entry.subject for entry in ledger.charges()}
        assert charged == {"*", "town", "w0", "w1", "w2", "w3"}
        assert ledger.charges("town")[-1].members == "*"
        assert ledger.spent("somebody new") is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--members", "everybody"), "--members are those of one release about many people"),
        (("--together", "--subject", "t", "--members", "ward"), "has no column 'ward'"),
        (("--together", "--subject", "p0"), ""),  # the aggregate is one of its series: charged once
    ],
)
def test_members_that_fit_nothing(
    run: Run, folder: Path, options: tuple[str, ...], words: str
) -> None:
    done = run(*RELEASE, "-o", "a.json", *options)
    assert words in done.stderr
    assert (done.exit_code == 0) == (not words)


def test_members_need_a_ledger(run: Run) -> None:
    done = run("release", "spec.toml", "days.csv", "-o", "a.json", "--members", "everybody")
    assert "--members is 'everybody' without --ledger" in done.stderr
