"""The frame of the experiments, and the parts of them that run in a moment."""

from __future__ import annotations

import json
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from studies import EXPERIMENTS, row_named
from studies.chain_synthetic import QUERY
from studies.chains import as_in_the_paper, entry_task, plan_or_none, unit_scale
from studies.report import Figure, Report, Table, show


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_run_and_says_what_it_shows(name: str) -> None:
    module = import_module(row_named(name).module)
    assert callable(module.run)
    assert (module.__doc__ or "").strip()
    assert row_named(name).summary.endswith(".")


def test_an_unknown_experiment_is_named() -> None:
    with pytest.raises(shoal.InputError, match="experiment is 'chains'"):
        row_named("chains")


def test_tables_show_what_does_not_apply() -> None:
    table = Table(title="t", columns=("a", "b"), rows=(("x", None), ("y", 0.123456)), notes=("n",))
    assert table.markdown().splitlines() == [
        "**t**",
        "",
        "| a | b |",
        "| --- | --- |",
        "| x | n/a |",
        "| y | 0.1235 |",
        "",
        "- n",
    ]
    assert table.as_object()["rows"] == [{"a": "x", "b": None}, {"a": "y", "b": 0.123456}]
    assert show(12) == "12"


def test_a_report_holds_its_tables_and_figures() -> None:
    table = Table(title="t", columns=("a",), rows=((1,),))
    figure = Figure(name="f", caption="c", draw=lambda canvas: None)
    report = Report(name="r", source="s.", tables=(table,), figures=(figure,))
    assert "**t**" in report.markdown()
    assert report.markdown().rstrip().endswith("![c](f.png)")
    assert json.dumps(report.as_object())


@pytest.mark.parametrize(
    ("alpha", "quilt", "bound"),
    [(0.1, 0.3363, 0.6864), (0.2, 0.1422, 0.2963), (0.3, 0.0722, 0.1772), (0.4, 0.0395, 0.1211)],
)
def test_the_synthetic_family_needs_the_scales_known_for_it(
    alpha: float, quilt: float, bound: float
) -> None:
    """Section 5.2, T = 100, all initial laws, ε = 1: scale of the share of state 1."""
    task = entry_task(QUERY, shoal.chains.IntervalChains.around(alpha, length=100))
    for name, expected in (("markov-quilt", quilt), ("markov-quilt-bound", bound)):
        plan = plan_or_none(name, task, Fraction(1))
        assert plan is not None
        assert float(plan.body.noise.scale) == pytest.approx(expected, abs=5e-5)  # type: ignore[union-attr]


def test_the_papers_reach_never_beats_the_true_minimum() -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=100)
    free = plan_or_none(
        "markov-quilt", entry_task(shoal.count(chain.states, 0), chain), Fraction(1)
    )
    bounded = unit_scale(as_in_the_paper(chain, Fraction(1)))
    least = unit_scale(free)
    assert bounded is not None
    assert least is not None
    assert bounded >= least * (1 - 1e-9)


def test_the_command_lists_experiments_and_names_bad_ones() -> None:
    listed = CliRunner().invoke(app, ["reproduce", "--list", "--json"])
    assert set(json.loads(listed.output)) == set(EXPERIMENTS)
    wrong = CliRunner().invoke(app, ["reproduce", "nothing"])
    assert wrong.exit_code == 2
    assert "experiment is 'nothing'" in wrong.output


def test_reports_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The quickest stand-in for an experiment: one table and one figure."""
    report = Report(
        name="chain-speed",
        source="s.",
        tables=(Table(title="t", columns=("a",), rows=((1,),)),),
        figures=(Figure(name="f", caption="c", draw=lambda canvas: canvas.subplots()),),
    )
    monkeypatch.setattr("studies.chain_speed.run", lambda: report)
    out = tmp_path / "tables"
    done = CliRunner().invoke(app, ["reproduce", "chain-speed", "--out", str(out)])
    assert done.exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["chain-speed.md", "f.png"]
    assert "shoal reproduce chain-speed --out tables" in (out / "chain-speed.md").read_text()


def test_reports_are_printed_as_one_json_object(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(title="t", columns=("a",), rows=((1,),))
    report = Report(name="chain-speed", source="s.", tables=(table,), figures=())
    monkeypatch.setattr("studies.run", lambda name: report)
    printed = CliRunner().invoke(app, ["reproduce", "chain-speed", "--json"])
    assert json.loads(printed.stdout) == {"reports": [report.as_object()]}
