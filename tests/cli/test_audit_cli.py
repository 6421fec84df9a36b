"""`shoal audit` and `shoal attack`: words, JSON, pages, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SPEC, Run

MODULE = """\
import numpy as np

def honest(data, rng):
    return data.count("walk") + rng.laplace(0, 60)

def careless(data):
    return data.count("walk")

def whole(data, rng):
    if len(data) != 30:
        raise ValueError("thirty entries, please")
    return data.count("walk") + rng.laplace(0, 60)

NUMBER = 3
"""
HISTOGRAM = SPEC.replace('kind = "count"\nstates = ["walk"]', 'kind = "histogram"')


@pytest.fixture
def boxes(folder: Path, request: pytest.FixtureRequest) -> str:
    """A module of black boxes in the working folder, with a name of its own for each test."""
    name = f"boxes_{abs(hash(request.node.name))}"
    (folder / f"{name}.py").write_text(MODULE)
    return name


def test_a_kept_promise_ends_in_zero(run: Run) -> None:
    done = run("audit", "spec.toml")
    assert done.exit_code == 0, done.output
    assert "the claim is kept" in done.output
    assert "Worst case" in done.output


def test_a_violation_ends_in_one(run: Run) -> None:
    done = run("audit", "spec.toml", "--scale", "1")
    assert done.exit_code == 1
    assert "THE CLAIM IS VIOLATED" in done.output


def test_json_is_one_object(run: Run) -> None:
    data = json.loads(run("audit", "spec.toml", "--json").stdout)
    assert data["verdict"] == "kept"
    assert data["kind"] == "exact"
    assert data["promised"] == 1.0
    assert 0 < data["loss"] < 1


def test_the_page_is_written_once(run: Run, folder: Path) -> None:
    done = run("audit", "spec.toml", "--html", "audit.html")
    assert done.exit_code == 0, done.output
    page = (folder / "audit.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<dt>Verdict</dt>" in page
    assert ('data-view="auditDensities"' in page) != ("No pictures:" in page)  # built, or not
    again = run("audit", "spec.toml", "--html", "audit.html")
    assert again.exit_code == 2
    assert "exists" in again.output
    assert run("audit", "spec.toml", "--html", "audit.html", "--force").exit_code == 0


def test_a_stored_plan_is_audited_as_it_is(run: Run, folder: Path) -> None:
    assert run("plan", "spec.toml", "--save", "plan.json").exit_code == 0
    assert run("audit", "plan.json").exit_code == 0
    refused = run("audit", "plan.json", "--scale", "2")
    assert refused.exit_code == 2
    assert "need a spec" in refused.output


def test_a_black_box_is_sampled(run: Run, boxes: str) -> None:
    options = ("--draws", "6000", "--length", "2", "--length", "4")
    good = run("audit", "spec.toml", "--black-box", f"{boxes}:honest", *options)
    assert good.exit_code == 0, good.output
    assert "no violation found" in good.output
    bad = run("audit", "spec.toml", "--black-box", f"{boxes}:careless", *options, "--json")
    assert bad.exit_code == 1
    data = json.loads(bad.stdout)
    assert data["violated"]
    assert data["lower"] > 1
    assert data["lengths"] == [2, 4]


def test_a_box_for_whole_days_needs_no_length(run: Run, boxes: str) -> None:
    """The other lengths it fails for are named."""
    done = run("audit", "spec.toml", "--black-box", f"{boxes}:whole", "--draws", "4000", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["lengths"] == [30]
    assert data["refused_lengths"] == [1, 2, 3, 5, 8, 12]
    assert "the black box takes no data of 1, 2, 3, 5, 8 and 12." in data["in_words"]


def test_a_plan_can_be_sampled_too(run: Run) -> None:
    done = run("audit", "spec.toml", "--sampled", "--draws", "8000", "--html", "box.html")
    assert done.exit_code == 0, done.output
    assert "no violation found" in done.output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "it must be module:function"),
        ("no_such_module:f", "module 'no_such_module', which fails"),
        ("BOXES:missing", "'missing', which is not in module"),
        ("BOXES:NUMBER", "which cannot be called"),
    ],
)
def test_a_bad_black_box_is_told_in_a_sentence(
    run: Run, boxes: str, name: str, message: str
) -> None:
    done = run("audit", "spec.toml", "--black-box", name.replace("BOXES", boxes))
    assert done.exit_code == 2
    assert message in done.output


def test_too_few_draws_are_refused(run: Run) -> None:
    done = run("audit", "spec.toml", "--sampled", "--draws", "10")
    assert done.exit_code == 2
    assert "draws is 10" in done.output


def test_an_attack_tells_before_and_after(run: Run, folder: Path) -> None:
    done = run("attack", "spec.toml", "days.csv", "--plot", "beliefs.png")
    assert done.exit_code == 0, done.output
    for title in ("Released", "Most learned", "Promised", "Best guess", "Uncertainty"):
        assert title in done.output
    assert (folder / "beliefs.png").read_bytes().startswith(b"\x89PNG")


def test_an_attack_on_little_noise_learns_more(run: Run) -> None:
    def changed(*options: str) -> float:
        done = run("attack", "spec.toml", "days.csv", "--who", "p1", "--json", *options)
        data = json.loads(done.stdout)
        assert len(data["before"]) == len(data["after"]) == 20
        return float(data["largest_change"]["log_odds"])

    assert changed("--scale", "1/10") > changed() > 0
    words = run("attack", "spec.toml", "days.csv", "--scale", "1/10").output
    assert "by Laplace noise of scale 1/10" in words
    assert "nothing: the noise was given by --scale" in " ".join(words.split())


def test_an_attack_on_a_histogram_uses_all_of_it(run: Run, folder: Path) -> None:
    (folder / "bars.toml").write_text(HISTOGRAM)
    done = run("attack", "bars.toml", "days.csv", "--json")
    data = json.loads(done.stdout)
    assert set(data["released"]) == {"sit", "walk"}
    assert data["note"] == ""


def test_an_adversary_must_be_one_of_the_family(run: Run) -> None:
    done = run("attack", "spec.toml", "days.csv", "--model", "3")
    assert done.exit_code == 2
    assert "the spec has models 0 to 0" in done.output


def test_a_long_histogram_is_attacked_bar_by_bar(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shoal.chains.attack

    two, three = '["sit", "walk"]', '["sit", "stand", "walk"]'
    rows = "[[0.8, 0.1, 0.1], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]]"
    spec = HISTOGRAM.replace(two, three).replace("[[0.9, 0.1], [0.4, 0.6]]", rows)
    (folder / "bars.toml").write_text(spec)
    monkeypatch.setattr(shoal.chains.attack, "MOST_ATTACK_WORK", 20_000)
    data = json.loads(run("attack", "bars.toml", "days.csv", "--json").stdout)
    assert "alone, the most telling of 3 numbers" in data["note"]
