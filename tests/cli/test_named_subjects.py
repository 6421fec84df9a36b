"""Whose data is charged is said by somebody, in Python as on the command line, before any work."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner, Result

import shoal
from shoal.cli import app
from shoal.core.errors import InputError
from shoal.ledger import open_ledger
from shoal.spec.request import Request, read_request
from tests.cli.conftest import SPEC, Run, contents

ALONE = SPEC.replace('series = "person"\n', "")
NAMED = ALONE.replace("[data]\n", '[data]\nsubject = "ann"\n')
TOGETHER = SPEC.replace('gap = "10min"\n', 'release = "together"\n')


def streamed(spec: str, lines: list[dict[str, Any]], *options: str) -> Result:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return CliRunner().invoke(app, ["stream", spec, *options], input=text)


@pytest.fixture
def one(folder: Path) -> Path:
    """The same rows of one person in files of two names."""
    rows = pl.read_csv(folder / "days.csv").filter(pl.col("person") == "p0").drop("person")
    for name in ("mine.csv", "yours.csv"):
        rows.write_csv(folder / name)
    (folder / "alone.toml").write_text(ALONE)
    (folder / "named.toml").write_text(NAMED)
    (folder / "together.toml").write_text(TOGETHER)
    return folder


def accounts(folder: Path) -> list[tuple[str, str]]:
    with open_ledger(folder / "b.db") as ledger:
        return ledger.accounts()


@pytest.mark.parametrize(
    "command",
    [
        ("alone.toml", "mine.csv"),
        ("together.toml", "days.csv"),
        ("spec.toml", "days.csv", "--together"),
        ("plan.json", "mine.csv", "--state", "activity"),
        ("plan.json", "*.csv", "--state", "activity", "--key", "k"),
    ],
)
def test_nothing_is_charged_or_calibrated_for_nobody(
    run: Run, one: Path, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("plan", "spec.toml", "--save", "plan.json").exit_code == 0
    before = contents(one)

    def late(*_: object, **__: object) -> Any:
        raise AssertionError("a plan was made before the subject was asked for")

    monkeypatch.setattr(Request, "plan", late)
    monkeypatch.setattr("shoal.jobs.job.recheck_plan", late)
    done = run("release", *command, "-o", "o.json", "--ledger", "b.db")
    assert done.exit_code == 2
    assert "nothing says whose data it is; name the subject with --subject" in done.stderr
    assert contents(one) == before


def test_one_data_set_has_one_account_wherever_it_comes_from(run: Run, one: Path) -> None:
    charged = ("--ledger", "b.db")
    for name in ("mine", "yours"):
        done = run("release", "named.toml", f"{name}.csv", "-o", f"{name}.json", *charged)
        assert done.exit_code == 0, done.stderr
    plain = ("release", "alone.toml", "mine.csv", "-o", "o.json", *charged)
    assert run(*plain, "--subject", "ann").exit_code == 0
    plan = read_request(one / "named.toml").plan()
    frame = pl.read_csv(one / "mine.csv")
    columns: dict[str, Any] = {"state": "activity", "time": "minute", "gap": "10min"}
    with open_ledger(one / "b.db") as ledger:
        plan.release(frame, ledger=ledger, subject="ann", **columns)
        plan.release_each(one / "yours.csv", ledger=ledger, subject="ann", **columns)
        plan.release_each(shoal.read(frame, **columns), ledger=ledger, subject="ann")
        total = ledger.spent("ann")
        assert ledger.accounts() == [("ann", "")]
        assert total is not None
        assert total.charges == 6
        eta = ledger.charges("ann")[0].eta
        assert eta is not None
        assert total.eta == 6 * Fraction(eta)


def test_python_asks_for_the_subject_before_it_reads(one: Path) -> None:
    plan = read_request(one / "named.toml").plan()
    frame = pl.read_csv(one / "mine.csv")
    columns: dict[str, Any] = {"state": "activity", "time": "minute"}
    missing = Path("no such file.csv")  # would be told of, were it read
    with open_ledger(one / "b.db") as ledger:
        for data, wish in (
            (frame, columns),
            (missing, columns),
            (shoal.read(frame, **columns), {}),
            (shoal.read(one / "mine.csv", **columns), {}),
            (["sit", "walk"] * 5, {}),
        ):
            for act in (plan.release, plan.release_each):
                with pytest.raises(InputError, match="nothing says whose data it is"):
                    act(data, ledger=ledger, **wish)
        assert not ledger.charges()
        both = pl.read_csv(one / "days.csv")
        with pytest.raises(InputError, match="subject is 'ann', but the data holds 2 series"):
            plan.release_each(both, ledger=ledger, subject="ann", series="person", **columns)
        assert not ledger.charges()
        plan.release_each(both, ledger=ledger, series="person", **columns)
        plan.release_each(["sit", "walk"] * 5, ledger=ledger, subject="bob")
        assert ledger.accounts() == [("bob", ""), ("p0", ""), ("p1", "")]


def test_a_spec_names_one_subject_or_a_column_of_them(run: Run, one: Path) -> None:
    both = SPEC.replace("[data]\n", '[data]\nsubject = "ann"\n')
    (one / "both.toml").write_text(both)
    done = run("plan", "both.toml")
    assert done.exit_code == 2
    assert "has subject and series; each series is charged under its own name" in done.stderr
    (one / "town.toml").write_text(TOGETHER.replace("[data]\n", '[data]\nsubject = "town"\n'))
    command = ("days.csv", "-o", "o.json", "--ledger", "b.db")
    assert run("release", "town.toml", *command).exit_code == 0
    assert {name for name, _ in accounts(one)} == {"p0", "p1", "town"}
    # a column that is named for this release says more than the spec's one subject
    each = ("release", "named.toml", *command[:2], "p.json", *command[3:], "--series", "person")
    assert run(*each).exit_code == 0
    with open_ledger(one / "b.db") as ledger:
        assert [len(ledger.charges(name)) for name in ("ann", "p0", "p1")] == [0, 2, 2]


def test_a_stream_takes_the_subject_of_its_spec(folder: Path) -> None:
    (folder / "steps.toml").write_text(
        NAMED.replace("length = 30\n", "").replace('kind = "count"', 'kind = "count"\nevery = 2')
        .replace('mechanism = "group"\n', "").replace('initial = "stationary"\n', "")
    )  # fmt: skip
    lines = [{"state": "sit"}, {"state": "walk"}] * 3
    streamed("steps.toml", lines, "--ledger", "b.db")
    assert accounts(folder) == [("ann", "")]


# What several releases about one subject come to.


def days(count: int) -> pl.DataFrame:
    times = [datetime(2024, 3, 4) + timedelta(hours=hour) for hour in range(24 * count)]
    states = [("a", "b")[hour % 5 < 2] for hour in range(24 * count)]
    return pl.DataFrame({"t": times, "s": states})


DAY = shoal.MarkovChain.of([[0.97, 0.03], [0.06, 0.94]], states=["a", "b"], length=24)
QUERY = shoal.count(DAY.states, "b")
EACH: dict[str, Any] = {"state": "s", "time": "t", "every": "day"}


def test_days_by_a_plan_of_one_day_are_refused_or_told_of(tmp_path: Path) -> None:
    plan = shoal.calibrate(QUERY, shoal.EachEntry(), DAY, epsilon=1)
    with open_ledger(tmp_path / "b.db") as ledger:
        account: dict[str, Any] = {"ledger": ledger, "subject": "ann"}
        with pytest.raises(InputError, match=r"the parts of one series come to 1\.\d+ together"):
            plan.release_each(days(6), **EACH, **account)
        with pytest.raises(InputError, match=r"epsilon is 1\.1, and"):
            plan.release_each(days(6), **EACH, **account, epsilon=1.1)
        assert not ledger.charges()
        found = plan.release_each(days(6), **EACH, **account, epsilon=9)
        spent = ledger.spent("ann")
        assert spent is not None
        assert found.together.amount == spent.amount > 1.1
        assert found.together.charges == len(found) == 6
        assert f"those about one series epsilon = {float(spent.amount):.4g}" in repr(found)
        with pytest.raises(InputError, match="period and every both name periods"):
            plan.release_each(days(6), **EACH, **account, period="x", epsilon=9)


def test_the_plan_of_a_budget_keeps_the_total_it_was_made_for(tmp_path: Path) -> None:
    wish = shoal.budget(QUERY, shoal.EachEntry(), DAY, epsilon=1, releases=6)
    with open_ledger(tmp_path / "b.db") as ledger:
        found = wish.plan.release_each(days(6), **EACH, ledger=ledger, subject="ann")
        spent = ledger.spent("ann")
        assert spent is not None
        assert found.together.amount == spent.amount <= Fraction("1.000001")
    assert wish.plan.release_each(days(2), **EACH, rng=1).together.amount == spent.amount
    apart = wish.plan.release_each(days(2), **EACH, rng=1, periods="independent")
    assert apart.together is None
    with pytest.raises(InputError, match="each release here is about data of its own"):
        wish.plan.release_each(days(2), **EACH, rng=1, periods="independent", epsilon=3)


def test_a_job_of_days_is_held_to_the_same_total(tmp_path: Path) -> None:
    days(4).with_columns(who=pl.lit("ann")).write_parquet(tmp_path / "d.parquet")
    plan = shoal.calibrate(QUERY, shoal.EachEntry(), DAY, epsilon=1)
    wish: dict[str, Any] = {"by": "who", **EACH}
    with pytest.raises(InputError, match="come to"):
        shoal.release_files(plan, tmp_path / "d.parquet", out=tmp_path / "o", **wish)
    assert not (tmp_path / "o").exists()
    report = shoal.release_files(
        plan, tmp_path / "d.parquet", out=tmp_path / "o", epsilon=9, **wish,
        ledger=str(tmp_path / "b.db"),
    )  # fmt: skip
    (spend,) = report.spend
    with open_ledger(tmp_path / "b.db") as ledger:
        spent = ledger.spent("ann")
        assert spent is not None
        assert Fraction(spend["amount_together"]) == spent.amount > 1
    with pytest.raises(InputError, match="drop it, or give every"):
        shoal.release_files(
            plan, tmp_path / "d.parquet", out=tmp_path / "p", by="who", state="s", epsilon=1
        )


def test_a_plan_says_which_rows_hold_for_one_day_only(run: Run, one: Path) -> None:
    (one / "days.toml").write_text(
        NAMED.replace('gap = "10min"\n', 'gap = "10min"\nevery = "day"\n')
        .replace('mechanism = "group"\n', "")
    )  # fmt: skip
    done = run("plan", "days.toml")
    assert done.exit_code == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if "proved" in line]
    chosen = [line for line in rows if "chosen" in line]
    assert len(chosen) == 1
    assert "for all days together" in chosen[0]
    assert all("for one day only" in line for line in rows if line not in chosen)
    assert len(rows) > 2
    released = run("release", "days.toml", "mine.csv", "-o", "o.json", "--json")
    assert json.loads(released.stdout)["together"] == pytest.approx(1, abs=1e-6)
    # a stored plan of one day is released as it is asked to be, and what that comes to is told
    (one / "best.toml").write_text(ALONE.replace('mechanism = "group"\n', ""))
    assert run("plan", "best.toml", "--save", "day.json").exit_code == 0
    columns = ("--state", "activity", "--time", "minute", "--every", "day")
    whole = run("release", "day.json", "mine.csv", "-o", "p.json", "--json", *columns)
    assert json.loads(whole.stdout)["together"] > 1


def test_lines_that_cannot_be_used_are_told_of_once_and_counted(run: Run) -> None:
    assert run("init", "--kind", "contexts", "mask.toml").exit_code == 0
    days = [{"day": f"2024-03-{day:02d}", "slot": 0, "context": "home"} for day in range(2, 28)]
    result = streamed("mask.toml", [days[-1], *days[:-1] * 5])
    warned = [line for line in result.stderr.splitlines() if line.startswith("WARNING")]
    assert sum("error" in line for line in result.stdout.splitlines()) == 125
    assert [line.partition(": ")[2][:42] for line in warned] == [
        "line 2 is not used: day is '2024-03-02', w",
        "10 lines are not used for the reason of li",
        "100 lines are not used for the reason of l",
        "125 lines are not used for the reason of l",
    ]
