"""Made-up series: they follow the released table alone, and are charged for once."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import shoal
from shoal.chains.synthetic import draw_series, fidelity
from shoal.chains.transitions import TransitionTable
from shoal.cli.app import app

STATES = ("sit", "stand", "walk")
COUNTS = np.array([[700.0, 60, 40], [50, 150, 20], [50, 10, 120]])
SPEC = """\
[data]
state = "activity"
series = "person"

[[model]]
kind = "markov-chain"
states = ["sit", "walk"]
transition = [[0.7, 0.3], [0.5, 0.5]]
length = 60

[secrets]
kind = "each-entry"

[query]
kind = "transitions"

[privacy]
epsilon = 2
"""


def table() -> TransitionTable:
    return TransitionTable(STATES, COUNTS, float(COUNTS.sum())).balanced()


def test_drawn_series_follow_the_table() -> None:
    """Shares and steps of many draws, each within five standard deviations of the table's own."""
    made, drawn = table(), draw_series(table(), 2000, 50, shoal.SeededRng(3))
    assert drawn.shape == (2000, 50)
    rows, shares = made.rows(), made.shares()
    firsts = np.bincount(drawn[:, 0], minlength=3) / 2000
    lasts = np.bincount(drawn[:, -1], minlength=3) / 2000
    for found in (firsts, lasts):
        assert np.abs(found - shares).max() < 5 * math.sqrt(0.25 / 2000)
    for state in range(3):
        after = drawn[:, 1:][drawn[:, :-1] == state]
        found = np.bincount(after, minlength=3) / len(after)
        assert np.abs(found - rows[state]).max() < 5 * math.sqrt(0.25 / len(after))
    assert (draw_series(table(), 5, 50, shoal.SeededRng(3)) != draw_series(table(), 5, 50)).any()


def test_states_that_cannot_follow_never_do() -> None:
    counts = np.array([[5.0, 5, 0], [0, 5, 5], [5, 0, 5]])
    drawn = draw_series(TransitionTable(STATES, counts, 30.0), 50, 200, shoal.SeededRng(1))
    steps = set(zip(drawn[:, :-1].ravel().tolist(), drawn[:, 1:].ravel().tolist(), strict=True))
    assert steps == {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 0)}


def test_the_report_says_how_far_noise_moved_the_table() -> None:
    """Its estimate beside the distance from the truth, on average; more noise, more distance."""
    drawn = draw_series(table(), 200, 100, shoal.SeededRng(1))
    little, much = (fidelity(table(), drawn, scale) for scale in (1.0, 30.0))
    assert little.share_noise < much.share_noise
    assert little.rows_apart < 0.02
    assert little.stays[0] == pytest.approx(1 / (1 - table().rows()[0, 0]))
    rng, off = np.random.default_rng(4), 0.0
    for _ in range(40):
        noisy = TransitionTable(STATES, COUNTS + rng.laplace(scale=30, size=(3, 3)), COUNTS.sum())
        off += float(np.abs(noisy.balanced().shares() - table().shares()).sum()) / 80
    assert much.share_noise == pytest.approx(off, rel=0.5)


def test_the_command_charges_once_and_draws_more_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "steps.toml").write_text(SPEC)
    rng = np.random.default_rng(2)
    rows = [
        f"{who},{'sit' if rng.random() < 0.6 else 'walk'}" for who in range(30) for _ in range(60)
    ]
    (tmp_path / "days.csv").write_text("person,activity\n" + "\n".join(rows) + "\n")
    run, at = (
        CliRunner(),
        {name: str(tmp_path / name) for name in ("steps.toml", "days.csv", "b.db")},
    )

    def shoal_(*words: str) -> str:
        found = run.invoke(app, ["synthesize", *words], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    made, more = str(tmp_path / "made.parquet"), str(tmp_path / "more.csv")
    charged = ("--ledger", at["b.db"], "--subject", "town", "--total", "1770")
    picture = str(tmp_path / "made.png")
    size = ("--people", "40", "--length", "25")
    told = shoal_(at["steps.toml"], at["days.csv"], "-o", made, *size, *charged, "--plot", picture)
    assert "at no further cost" in " ".join(told.split())
    frame = pl.read_parquet(made)
    assert frame.columns == ["person", "entry", "state", "promise"]
    assert frame.height == 40 * 25
    assert "no output changes the odds" in str(frame["promise"][0])
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    with shoal.open_ledger(at["b.db"]) as ledger:
        before = ledger.charges("town")
    stored = str(tmp_path / "made.steps.json")
    found = json.loads(shoal_(stored, "-o", more, *size, "--json"))
    assert found["states"][0]["share"] == pytest.approx(0.6, abs=0.15)
    assert pl.read_csv(more).height == 1000
    with shoal.open_ledger(at["b.db"]) as ledger:
        assert ledger.charges("town") == before
    assert len(before) == 1
    other = tmp_path / "count.toml"
    other.write_text(SPEC.replace('"transitions"', '"count"\nstates = ["walk"]'))
    words = [str(other), at["days.csv"], "-o", str(tmp_path / "c.csv"), *size, *charged]
    found_other = run.invoke(app, ["synthesize", *words])
    assert found_other.exit_code == 2
    assert "made up from a table of steps" in found_other.stderr
    with shoal.open_ledger(at["b.db"]) as ledger:
        assert ledger.charges("town") == before
    wrong = run.invoke(
        app, ["synthesize", stored, "-o", more, *size, "--force", "--ledger", "x.db"]
    )
    assert wrong.exit_code == 2
    assert "for a release of data" in wrong.stderr
