"""What each command does when the input is good."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import typer
from typer.testing import Result

import shoal
from shoal.cli.app import COMMANDS, app
from shoal.cli.init import FIRST, TEMPLATE_KINDS
from shoal.spec.request import read_request
from tests.cli.conftest import SPEC, Run, contents

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))


def done(result: Result) -> str:
    """What was printed, after checking that all went well."""
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys\n"
        "from shoal.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'numpy', 'pydantic', 'polars', 'rich', 'scipy', 'numba', 'sqlalchemy'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], capture_output=True, text=True, check=True
    )
    assert "HEAVY []" in result.stdout
    flat = " ".join(result.stdout.split())
    assert all(f"{name} {row.summary}" in flat for name, row in COMMANDS.items())


@pytest.mark.parametrize("name", list(COMMANDS))
def test_every_command_has_help_with_examples_and_its_summary(run: Run, name: str) -> None:
    text = done(run(name, "--help"))
    flat = " ".join(text.split())
    assert COMMANDS[name].summary in flat
    assert f"shoal {name}" in flat.partition("Example")[2]


def test_every_module_of_the_table_holds_a_typer_app() -> None:
    for row in COMMANDS.values():
        assert isinstance(row.app(), typer.Typer)


def test_version(run: Run) -> None:
    assert done(run("--version")) == f"shoal {shoal.__version__}\n"


def test_init_writes_a_spec_that_runs(run: Run, folder: Path) -> None:
    assert "shoal.toml" in done(run("init"))
    assert read_request(folder / "shoal.toml").epsilon() == 1
    assert "shoal plan shoal.toml" in (folder / "shoal.toml").read_text()
    assert json.loads(done(run("plan", "shoal.toml", "--json")))["epsilon"] == 1.0
    before = contents(folder)
    again = run("init")
    assert (again.exit_code, contents(folder)) == (2, before)
    assert json.loads(done(run("init", "--force", "--json"))) == {
        "path": "shoal.toml",
        "kind": "series",
    }


@pytest.mark.parametrize("kind", [kind for kind in TEMPLATE_KINDS if kind != FIRST])
def test_init_writes_a_spec_for_every_kind_of_data(run: Run, kind: str) -> None:
    told = done(run("init", "--kind", kind, f"{kind}.toml"))
    plan = json.loads(done(run("plan", f"{kind}.toml", "--json")))
    assert f"shoal plan {kind}.toml" in told
    assert plan["guarantee"]["proved"]
    assert plan["loss"] <= plan["guarantee"]["amount"] * (1 + 1e-9)
    assert f"shoal leak {kind}.toml" in told
    assert json.loads(done(run("leak", f"{kind}.toml", "--json")))["models"]


def test_plan_prints_the_object_that_was_designed(run: Run, folder: Path) -> None:
    plan = json.loads(done(run("plan", "spec.toml", "--compare", "--json")))
    assert list(plan) == [
        "mechanism",
        "scale",
        "noise",
        "epsilon",
        "loss",
        "cost",
        "usefulness",
        "guarantee",
        "certificate",
        "composition",
        "alternatives",
        "prices",
    ]
    assert [price["hides"] for price in plan["prices"]] == ["each entry", "each person"]
    # group privacy: 30 tied entries, each moves the count by 1
    assert plan["noise"] == {"kind": "discrete-laplace", "step": "1/1", "scale": "30/1"}
    assert plan["scale"] == 30.0
    assert plan["loss"] == pytest.approx(1.0, rel=1e-12)
    assert plan["guarantee"]["notion"] == "group"
    assert plan["certificate"]["tied"] == 30
    assert plan["certificate"]["theorem"].startswith("group privacy")
    assert {rule["kind"] for rule in plan["composition"]} == {"as-group-dp", "as-entry-dp"}
    assert set(plan["alternatives"]) == set(shoal.MECHANISMS)
    assert plan["alternatives"]["laplace"]["scale"] == pytest.approx(1)
    assert plan["alternatives"]["group"]["cost"] == plan["cost"]
    for row in plan["alternatives"].values():
        assert ("refused" in row) != ("scale" in row)


def test_best_takes_the_least_proved_noise(run: Run, folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC.replace('"group"', '"best"'))
    plan = json.loads(done(run("plan", "spec.toml", "--json")))
    proved = {
        name: row["cost"]
        for name, row in plan["alternatives"].items()
        if row.get("standing") == "proved"
    }
    assert plan["mechanism"] == min(proved, key=lambda name: proved[name])
    assert plan["alternatives"]["laplace"]["standing"] == "entry-dp only"


def test_plan_in_words_with_bars(run: Run) -> None:
    text = done(run("plan", "spec.toml"))
    for title in ("Asked", "Protected", "From", "Promise", "Error", "Why it holds", "Assumes"):
        assert title in text
    assert "chosen, proved" in text
    assert "█" in text


def test_a_wanted_error_is_reported_as_a_budget(run: Run, folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC.replace("epsilon = 1.0", "error = 20"))
    text = done(run("plan", "spec.toml"))
    assert "is the least budget that keeps each value within 20 entries" in text
    plan = json.loads(done(run("plan", "spec.toml", "--json")))
    assert plan["epsilon"] > 1


def test_plan_saves_what_release_takes(run: Run, folder: Path) -> None:
    text = done(run("plan", "spec.toml", "--save", "plan.json", "--plot", "noise.png"))
    assert "plan.json" in text
    assert "noise.png" in text
    assert (folder / "noise.png").read_bytes().startswith(b"\x89PNG")
    stored = shoal.loads((folder / "plan.json").read_text())
    assert isinstance(stored, shoal.Plan)
    columns = ("--state", "activity", "--series", "person", "--time", "minute")
    done(run("release", "plan.json", "days.csv", "-o", "out.json", *columns))
    document = json.loads((folder / "out.json").read_text())
    assert set(document["releases"]) == {"p0", "p1"}
    assert document["releases"]["p0"]["plan"] == stored.fingerprint


def test_release_per_series_and_together(run: Run, folder: Path) -> None:
    text = done(run("release", "spec.toml", "days.csv", "-o", "each.json"))
    assert "2 release(s) by group, in each.json" in text
    assert "by more than a factor of 2.718" in text
    assert "off by" in text
    (folder / "spec.toml").write_text(
        SPEC.replace("relative = true", "relative = true\nlength = 40")
    )
    out = ("-o", "all.json", "--json", "--together")
    report = json.loads(done(run("release", "spec.toml", "days.csv", *out)))
    assert set(report["releases"]) == {"all"}
    assert report["secure"] is True
    assert json.loads((folder / "all.json").read_text())["releases"] == report["releases"]


def test_release_adds_the_noise_of_the_plan_to_the_truth(run: Run, folder: Path) -> None:
    huge = SPEC.replace("epsilon = 1.0", "epsilon = 900000")
    (folder / "spec.toml").write_text(huge)
    report = json.loads(done(run("release", "spec.toml", "days.csv", "-o", "o.json", "--json")))
    # 20 minutes of the pattern sit sit walk sit walk walk: 11 sit, 9 walk
    assert report["releases"]["p0"]["values"] == {"walk": 9.0}


def test_a_seeded_release_says_so_loudly(run: Run, folder: Path) -> None:
    first = run("release", "spec.toml", "days.csv", "-o", "a.json", "--seed", "7")
    done(first)
    assert "WARNING" in first.stderr
    assert "protects nothing" in first.stderr
    done(run("release", "spec.toml", "days.csv", "-o", "b.json", "--seed", "7"))
    a, b = ((folder / name).read_text() for name in ("a.json", "b.json"))
    assert a == b
    assert all(not row["secure"] for row in json.loads(a)["releases"].values())


def test_release_writes_parquet_and_replaces_only_when_forced(run: Run, folder: Path) -> None:
    import polars as pl

    release = ("release", "spec.toml", "days.csv", "-o", "out.parquet")
    done(run(*release))
    before = contents(folder)
    assert run(*release).exit_code == 2
    assert contents(folder) == before
    done(run(*release, "--force"))
    assert pl.read_parquet(folder / "out.parquet").height == 2


def test_fit_writes_a_model_a_spec_can_name(run: Run, folder: Path) -> None:
    columns = ("--state", "activity", "--series", "person", "--time", "minute", "--gap", "10min")
    text = done(run("fit", "days.csv", "-o", "model.json", *columns, "--length", "30"))
    assert "not private" in text
    assert "Order" in text
    model = shoal.loads((folder / "model.json").read_text())
    # 20 steps leave sit, 7 of them for sit again; every count is smoothed by 1
    assert model.length == 30
    assert Fraction(model.transition[0, 0]).limit_denominator(100) == Fraction(7 + 1, 20 + 2)
    start, end = SPEC.index("[[model]]"), SPEC.index("[secrets]")
    named = SPEC[:start] + '[[model]]\nfile = "model.json"\n' + SPEC[end:]
    (folder / "spec.toml").write_text(named)
    assert json.loads(done(run("plan", "spec.toml", "--json")))["scale"] == 30.0


def test_fit_one_model_per_group(run: Run, folder: Path) -> None:
    columns = ("--state", "activity", "--series", "person", "--group", "shift")
    report = json.loads(done(run("fit", "days.csv", "-o", "m.json", *columns, "--json")))
    assert [row["group"] for row in report["models"]] == ["day", "night"]
    assert report["private"] is False
    assert {path.name for path in folder.glob("m*.json")} == {"m-day.json", "m-night.json"}
    for row in report["models"]:
        assert row["check"]["transitions"] == 19
        assert shoal.loads((folder / row["path"]).read_text()).states == ("sit", "walk")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_run(run: Run, path: Path) -> None:
    plan = json.loads(done(run("plan", str(path), "--json")))
    assert plan["loss"] <= plan["epsilon"] * (1 + 1e-9)
    assert plan["guarantee"]["proved"] is True
    found = json.loads(done(run("leak", str(path), "--json")))
    for model in found["models"]:
        assert model["epsilon"] >= found["eta"]
        assert model["group_bound"] is None or model["epsilon"] <= model["group_bound"] * (1 + 1e-9)


def test_the_flu_needs_half_the_noise_of_group_privacy(run: Run) -> None:
    flu = next(path for path in EXAMPLES if path.stem == "flu")
    rows = json.loads(done(run("plan", str(flu), "--compare", "--json")))["alternatives"]
    # Song, Wang & Chaudhuri 2017, Section 3.1: W = 2 against 4 for the whole group
    assert rows["wasserstein"]["scale"] == pytest.approx(2, rel=1e-9)
    assert rows["group"]["scale"] == pytest.approx(4, rel=1e-9)


def test_the_schema_is_printed(run: Run) -> None:
    assert json.loads(done(run("spec-schema")))["title"] == "Shoal spec"


def test_the_group_is_the_installed_program() -> None:
    assert app.info.cls is not None
    assert app.info.cls.__name__ == "LazyGroup"
