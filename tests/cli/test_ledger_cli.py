"""`shoal ledger`: show, limit, verify and export, as text and as JSON."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import shoal
from shoal.cli import app
from shoal.ledger import open_ledger
from tests.ledger_plans import DATA, group, laplace
from tests.ledger_servers import KINDS, fresh_ledger

Run = Callable[..., Result]


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `shoal ledger ARGUMENTS…`."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["ledger", *arguments])

    return call


@pytest.fixture(params=KINDS)
def budget(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger with charges about two subjects, and a limit."""
    url = fresh_ledger(request.param, tmp_path)
    with open_ledger(url) as opened:
        opened.limit("5", subject="user-17")
        laplace("0.1").release(DATA, ledger=opened, subject="user-17", period="w1", key="k")
        laplace("0.2").release(DATA, ledger=opened, subject="user-17", period="w1", requester="ann")
        group("1").release(DATA, ledger=opened, subject="user-18")
    return url


def test_show_prints_a_table_with_eta_and_epsilon(ledger: Run, budget: str) -> None:
    done = ledger("show", budget)
    assert done.exit_code == 0, done.output
    first = next(line for line in done.output.splitlines() if "user-17" in line)
    assert first.split()[:4] == ["user-17", "w1", "2", "0.3"]
    assert "pufferfish, lift" in first
    assert "eta of subject 'user-17' in each period for all requesters together" in done.output


def test_show_as_json_holds_exact_amounts_and_the_head(ledger: Run, budget: str) -> None:
    told = json.loads(ledger("show", budget, "--json").output)
    with open_ledger(budget) as opened:
        assert told["head"] == opened.head().hash
        total = opened.spent("user-17", "w1")
    assert total is not None
    first, second = told["accounts"]
    assert (first["subject"], first["period"], first["eta_exact"]) == ("user-17", "w1", "3/10")
    assert first["amount_exact"] == str(total.amount)
    assert first["amount"] >= first["eta"]
    assert second["subject"] == "user-18"
    assert told["limits"][0]["amount_exact"] == "5"


def test_show_can_be_narrowed(ledger: Run, budget: str) -> None:
    def accounts(*options: str) -> list[tuple[str, str]]:
        told = json.loads(ledger("show", budget, "--json", *options).output)
        return [(row["subject"], row["eta_exact"]) for row in told["accounts"]]

    assert accounts("--subject", "user-18") == [("user-18", "1/20")]
    assert accounts("--period", "w1") == [("user-17", "3/10")]
    assert accounts("--requester", "ann") == [("user-17", "1/5")]
    assert accounts("--subject", "nobody") == []
    assert "No charges." in ledger("show", budget, "--subject", "nobody").output


def test_show_draws_spending_over_time(ledger: Run, budget: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / "spending.png"
    done = ledger("show", budget, "--plot", str(chart))
    assert done.exit_code == 0, done.output
    assert chart.read_bytes().startswith(b"\x89PNG")
    again = ledger("show", budget, "--plot", str(chart))
    assert again.exit_code == 2
    assert "exists" in again.output


@pytest.mark.parametrize("command", ["show", "verify", "export"])
def test_looking_at_a_ledger_that_does_not_exist_makes_none(
    ledger: Run, tmp_path: Path, command: str
) -> None:
    done = ledger(command, str(tmp_path / "budget.db"))
    assert done.exit_code == 3
    assert "does not exist" in done.output
    assert list(tmp_path.iterdir()) == []


def test_a_limit_makes_the_ledger_and_holds(ledger: Run, tmp_path: Path) -> None:
    budget = str(tmp_path / "budget.db")
    done = ledger("limit", budget, "--eta", "0.3", "--subject", "u", "--requester", "*")
    assert done.exit_code == 0, done.output
    assert "0.3 for eta of subject 'u' in each period for each requester" in done.output
    assert "'u' has never been charged so far: is the name right?" in done.output
    told = json.loads(ledger("limit", budget, "--epsilon", "1/3", "--json").output)
    assert told == {
        "unit": "epsilon",
        "amount": pytest.approx(1 / 3),
        "amount_exact": "1/3",
        "subject": "*",
        "period": "*",
        "requester": None,
        "never_charged": False,
    }
    with open_ledger(budget) as opened:
        assert [str(limit.amount) for limit in opened.limits()] == ["3/10", "1/3"]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "give one of --eta and --epsilon"),
        (("--eta", "1", "--epsilon", "1"), "give one of --eta and --epsilon"),
        (("--eta", "-1"), "0 or more"),
        (("--eta", "lots"), "finite number"),
    ],
)
def test_limits_that_make_no_sense_are_refused_in_a_sentence(
    ledger: Run, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    done = ledger("limit", str(tmp_path / "budget.db"), *options)
    assert done.exit_code == 2
    assert told in done.output


def test_verify_says_intact_and_gives_the_head(ledger: Run, budget: str) -> None:
    done = ledger("verify", budget)
    assert done.exit_code == 0, done.output
    assert "Intact: 5 links, 3 charges" in done.output
    assert "3 charge(s) are under no checkpoint yet" in done.output
    head = done.output.split("Head: ")[1].split()[0]
    told = json.loads(ledger("verify", budget, "--head", head, "--json").output)
    assert (told["intact"], told["since_head"], told["head"]) == (True, 0, head)
    assert "0 link(s) since the given head" in ledger("verify", budget, "--head", head).output


def test_verify_shows_a_cut_off_end_by_its_head(ledger: Run, budget: str) -> None:
    done = ledger("verify", budget, "--head", "0" * 64)
    assert done.exit_code == 3
    assert "the end was cut off" in done.output


def test_verify_shows_a_change_and_ends_with_an_error(ledger: Run, tmp_path: Path) -> None:
    budget = str(tmp_path / "budget.db")
    ledger("limit", budget, "--eta", "1")
    with closing(sqlite3.connect(budget)) as connection:
        connection.execute("DROP TRIGGER shoal_house_no_update")
        connection.execute("UPDATE shoal_house SET document = replace(document, '1', '1000')")
        connection.commit()
    done = ledger("verify", budget)
    assert done.exit_code == 3
    assert "link 2 (shoal_house) was changed" in done.output
    assert "shoal_house_no_update is missing" in done.output
    told = json.loads(ledger("verify", budget, "--json").stdout)
    assert told["intact"] is False
    assert len(told["problems"]) == 2


def test_export_prints_json_other_accountants_read(ledger: Run, budget: str) -> None:
    told = json.loads(ledger("export", budget).output)
    assert told["format"] == "shoal-ledger/2"
    assert len(told["charges"]) == 3
    first = told["charges"][0]
    assert (first["event"], first["noise_multiplier"]) == ("LaplaceDpEvent", 10.0)
    assert (first["amount_exact"], first["eta_exact"]) == ("1/10", "1/10")
    assert first["neighbours"] == "one entry replaced"
    assert "release" not in first  # values stay in the ledger
    assert {row["subject"]: row["charges"] for row in told["totals"]} == {
        "user-17": 2,
        "user-18": 1,
    }
    assert told["limits"][0]["subject"] == "user-17"


def test_export_writes_json_and_parquet_files(ledger: Run, budget: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    printed = json.loads(ledger("export", budget).output)
    for name in ("spent.json", "spent.parquet"):
        done = ledger("export", budget, "-o", str(tmp_path / name))
        assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "spent.json").read_text()) == printed
    table = pyarrow.parquet.read_table(tmp_path / "spent.parquet")
    assert table.to_pylist() == [
        {name: row[name] for name in table.column_names} for row in printed["charges"]
    ]
    assert set(table.column_names) == set(printed["charges"][0])
    assert table.schema.metadata[b"head"].decode() == printed["head"]["hash"]


def test_export_refuses_other_forms_and_existing_files(
    ledger: Run, budget: str, tmp_path: Path
) -> None:
    done = ledger("export", budget, "-o", "spent.xlsx")
    assert done.exit_code == 2
    assert "must end in .json or .parquet" in done.output
    there = tmp_path / "there.json"
    there.write_text("mine")
    assert ledger("export", budget, "-o", str(there)).exit_code == 2
    assert there.read_text() == "mine"
    assert ledger("export", budget, "-o", str(there), "--force").exit_code == 0


def test_without_a_command_the_help_names_them_all(ledger: Run) -> None:
    done = ledger("--help")
    for name in ("show", "limit", "verify", "export", "checkpoint", "key", "trust", "sign"):
        assert name in done.output


def test_a_checkpoint_shows_that_a_subjects_end_was_cut_off(ledger: Run, tmp_path: Path) -> None:
    budget, pem = str(tmp_path / "budget.db"), tmp_path / "key.pem"
    with open_ledger(budget) as opened:
        for subject in ("ann", "bob", "bob"):
            laplace("0.1").release(DATA, ledger=opened, subject=subject)
    public = json.loads(ledger("key", str(pem), "--json").output)["public"]
    assert pem.stat().st_mode & 0o777 == 0o600
    done = ledger("checkpoint", budget, "--key", str(pem))
    assert done.exit_code == 0, done.output
    head = done.output.split("Checkpoint: ")[1].strip()
    assert "0 link(s) since" in ledger("verify", budget, "--head", head, "--signer", public).output
    with closing(sqlite3.connect(budget)) as connection:
        (made,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'shoal_entries_no_delete'"
        ).fetchone()
        connection.execute("DROP TRIGGER shoal_entries_no_delete")
        connection.execute("DELETE FROM shoal_entries WHERE subject = 'bob' AND place = 2")
        connection.execute(made)
        connection.commit()
    done = ledger("verify", budget)
    assert done.exit_code == 3
    assert "is not over the charges before it: some were cut off" in done.output


def test_only_plans_of_named_signers_are_taken(ledger: Run, tmp_path: Path) -> None:
    budget, pem, file = str(tmp_path / "b.db"), tmp_path / "key.pem", tmp_path / "plan.json"
    plan = laplace("0.1")
    file.write_text(shoal.dumps(plan))
    public = json.loads(ledger("key", str(pem), "--json").output)["public"]
    assert ledger("trust", budget, public).exit_code == 0
    with open_ledger(budget) as opened:
        with pytest.raises(shoal.BudgetError, match="not signed"):
            plan.release(DATA, ledger=opened, subject="ann")
        assert ledger("sign", budget, str(file), "--key", str(pem)).exit_code == 0
        plan.release(DATA, ledger=opened, subject="ann")
        with pytest.raises(shoal.BudgetError, match="not signed"):
            laplace("0.2").release(DATA, ledger=opened, subject="ann")
        forged = f"{public}:{'0' * 128}"
        with pytest.raises(shoal.InputError, match="signature is not that signer's"):
            opened.admit(laplace("0.2"), public, forged)
    assert ledger("trust", budget, public, "--no-more").exit_code == 0
    with open_ledger(budget) as opened:
        laplace("0.2").release(DATA, ledger=opened, subject="ann")
    told = json.loads(ledger("changes", budget, "--json").output)
    assert [one["kind"] for one in told] == ["signer", "signature", "signer"]


def test_who_set_which_limit_is_in_the_chain(ledger: Run, budget: str) -> None:
    ledger("limit", budget, "--epsilon", "9", "--lifetime", "--subject", "user-18")
    told = json.loads(ledger("changes", budget, "--json").output)
    assert [one["document"]["amount"] for one in told] == ["5", "9"]
    assert all(one["changed_by"] for one in told)
    assert "all periods together" in ledger("show", budget).output


def test_show_goes_page_by_page_and_names_limits_that_met_no_charge(
    ledger: Run, tmp_path: Path
) -> None:
    budget = str(tmp_path / "budget.db")
    with open_ledger(budget) as opened:
        opened.limit("5", subject="jil")
        for number in range(5):
            laplace("0.1").release(DATA, ledger=opened, subject=f"u{number}")
    first = json.loads(ledger("show", budget, "--rows", "2", "--json").output)
    assert [row["subject"] for row in first["accounts"]] == ["u0", "u1"]
    assert (first["next"], first["never_charged"]) == ("u1", ["jil"])
    last = ledger("show", budget, "--rows", "3", "--after", "u3").output
    assert "u4" in last
    assert "u3" not in last
    assert "The limit for 'jil' has never met a charge" in last
