"""The tour, and what ordinary releases leak."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import charts
from shoal.spec.request import read_request
from tests.cli.conftest import SPEC, Run, contents


@pytest.fixture
def report(run: Run) -> dict[str, Any]:
    result = run("demo", "--out", "tour", "--json")
    assert result.exit_code == 0, (result.stderr, result.exception)
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def test_the_tour_leaves_files_that_the_other_commands_take(
    run: Run, folder: Path, report: dict[str, Any]
) -> None:
    assert all((folder / path).is_file() for path in report["files"].values())
    assert (folder / report["files"]["chart"]).read_bytes().startswith(b"\x89PNG")
    stored = shoal.loads((folder / "tour" / "plan.json").read_text())
    request = read_request(folder / "tour" / "spec.toml")
    assert request.task == stored.task
    assert request.epsilon() == stored.guarantee.amount
    result = run("release", "tour/plan.json", "tour/day.csv", "-o", "o.json", "--state", "state")
    assert result.exit_code == 0, result.stderr


def test_the_tour_keeps_its_promise(report: dict[str, Any]) -> None:
    audit = report["audit"]
    assert audit["holds"] is True
    assert audit["promised"] == report["plan"]["epsilon"] == 1.0
    assert audit["loss"] <= 1.0 + 1e-9
    assert report["release"]["secure"] is True
    assert report["plan"]["guarantee"]["proved"] is True


def test_what_leaks_is_no_less_than_an_output_shows(report: dict[str, Any]) -> None:
    from shoal.audit.exact import audit
    from shoal.cli import demo

    broken = audit(demo.ordinary(demo.setting()))
    assert broken.lower > 2
    assert report["leak"]["epsilon"] >= broken.lower * (1 - 1e-9)


def test_the_tour_in_words(run: Run, folder: Path) -> None:
    result = run("demo")
    assert result.exit_code == 0, (result.stderr, result.exception)
    for title in ("1. One person's day", "2. What an ordinary", "3. The plan", "4. The release"):
        assert title in result.stdout
    assert "the claim is kept" in result.stdout
    assert "The chart is in shoal-demo/demo.png" in result.stdout
    again = run("demo")  # replaces its own files
    assert again.exit_code == 0


def test_without_matplotlib_the_tour_says_what_is_missing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(charts, "available", lambda: False)
    result = run("demo", "--out", "tour")
    assert result.exit_code == 0
    assert "pip install 'shoal[plot]'" in result.stdout
    assert not (folder / "tour" / "demo.png").exists()
    plotted = run("plan", "spec.toml", "--plot", "noise.png")
    assert plotted.exit_code == 2
    assert "--plot needs matplotlib" in plotted.stderr


def test_a_folder_that_cannot_be_made(run: Run, folder: Path) -> None:
    before = contents(folder)
    result = run("demo", "--out", "spec.toml")
    assert result.exit_code == 2
    assert "--out is 'spec.toml', which cannot be made a folder" in result.stderr
    assert contents(folder) == before


def test_leak_says_how_much_for_every_model(run: Run, folder: Path) -> None:
    model = SPEC[SPEC.index("[[model]]") : SPEC.index("[secrets]")]
    quicker = model.replace("[0.9, 0.1], [0.4, 0.6]", "[0.5, 0.5], [0.5, 0.5]")
    spec = SPEC.replace(model, model + quicker)
    (folder / "spec.toml").write_text(spec)
    found = json.loads(run("leak", "spec.toml", "--eta", "0.5", "--json").stdout)
    slow, independent = found["models"]
    assert found["eta"] == 0.5
    # independent entries leak nothing beyond the promise; 30 entries never more than 30 times it
    assert independent["epsilon"] == pytest.approx(0.5, rel=1e-6)
    assert 0.5 < slow["epsilon"] < 15
    assert found["epsilon"] == slow["epsilon"]
    assert slow["group_bound"] == pytest.approx(15)


def test_leak_takes_the_level_of_the_spec_and_draws(run: Run, folder: Path) -> None:
    result = run("leak", "spec.toml", "--plot", "leak.png")
    assert result.exit_code == 0, result.stderr
    assert "entry-level epsilon = 1 promises" in result.stdout
    assert "whatever the law of 30 entries" in result.stdout
    assert "█" in result.stdout
    assert (folder / "leak.png").read_bytes().startswith(b"\x89PNG")


def test_a_leak_without_limit_is_null_in_json(run: Run, folder: Path) -> None:
    endless = SPEC.replace("length = 30\n", "")
    never = endless.replace("[0.9, 0.1], [0.4, 0.6]", "[1.0, 0.0], [0.0, 1.0]")
    (folder / "spec.toml").write_text(never.replace('"stationary"', "[0.5, 0.5]"))
    result = run("leak", "spec.toml", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["epsilon"] is None
    assert found["models"][0]["odds"] == "without limit"
    assert "∞" in run("leak", "spec.toml").stdout
