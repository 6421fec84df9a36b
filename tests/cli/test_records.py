"""Tied records from the command line: plan, audit, leak and release, and what a spec may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.core.errors import SpecError
from shoal.core.registry import dumps
from shoal.records.field import PairwiseField
from shoal.records.pairwise import Dependence
from shoal.spec.request import parse_request
from tests.cli.conftest import Run

HEAD = """\
[data]
state = "place"

[[model]]
kind = "dependence"
states = ["home", "cafe", "park"]
values = [0, 1, 3]
records = 6
"""
TIES = "ties = [[0, 1], [1, 2], [3, 4]]\n"
FRIENDS = "friends = { b = 0.5, c = 2.0 }\n"
TAIL = """
[secrets]
kind = "each-entry"

[query]
kind = "count"
states = "park"

[privacy]
epsilon = 1.0
"""
PLACES = ("home", "cafe", "park", "park", "home", "park")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_text("place\n" + "\n".join(PLACES) + "\n")
    return tmp_path


def write(folder: Path, body: str, tail: str = TAIL) -> str:
    path = folder / "friends.toml"
    path.write_text(HEAD + body + tail)
    return str(path)


def test_pairs_are_planned_audited_and_released(folder: Path, run: Run) -> None:
    spec = write(folder, TIES + FRIENDS)
    plan = json.loads(run("plan", spec, "--json", "--compare").stdout)
    assert plan["mechanism"] == "dependent-means"
    assert plan["alternatives"]["dependent-published"]["scale"] < plan["scale"]
    audit = json.loads(run("audit", spec, "--json").stdout)
    assert audit["violated"] is False
    released = run("release", spec, "data.csv", "-o", "out.json")
    assert released.exit_code == 0
    assert json.loads((folder / "out.json").read_text())["releases"]["data"]["error"]["bound"] > 0


def test_the_published_row_is_reported_as_violated(folder: Path, run: Run) -> None:
    spec = write(folder, TIES + FRIENDS, TAIL + 'mechanism = "dependent-published"\n')
    result = run("audit", spec)
    assert result.exit_code == 1
    assert "THE CLAIM IS VIOLATED" in result.stdout
    plan = run("plan", spec)
    assert "CLAIMED, NOT PROVED" in " ".join(plan.stdout.split())


@pytest.mark.parametrize("joint", ["field", "tree"])
def test_a_declared_joint_law_needs_less_noise(folder: Path, run: Run, joint: str) -> None:
    weak = "friends = { b = 4.0, c = 0.5 }\n"
    pairs = json.loads(run("plan", write(folder, TIES + weak), "--json", "--compare").stdout)
    law = json.loads(
        run(
            "plan", write(folder, TIES + weak + f'joint = "{joint}"\n'), "--json", "--compare"
        ).stdout
    )
    assert law["mechanism"] == "exact"
    assert law["scale"] < pairs["scale"] * 0.7
    rows = law["alternatives"]
    assert rows["dependent-field"]["scale"] < rows["dependent-means"]["scale"]


def test_ties_may_come_from_a_file(folder: Path) -> None:
    (folder / "ties.csv").write_text("one,other\n0,1\n2,1\n3,4\n")
    inline = parse_request(HEAD + TIES + FRIENDS + TAIL, folder=folder)
    listed = parse_request(HEAD + 'ties_file = "ties.csv"\n' + FRIENDS + TAIL, folder=folder)
    assert inline.task == listed.task


def test_a_law_may_be_written_out_and_a_model_stored(folder: Path) -> None:
    law = "law = [[0.3, 0.05, 0.0], [0.05, 0.2, 0.1], [0.0, 0.1, 0.2]]\n"
    model = parse_request(HEAD + TIES + law + TAIL, folder=folder).task.family[0]
    assert isinstance(model, Dependence)
    (folder / "model.json").write_text(dumps(model))
    stored = '[[model]]\nfile = "model.json"\nkind = "dependence"\n'
    assert parse_request(stored + TAIL, folder=folder).task.family[0] == model
    field = parse_request(HEAD + TIES + law + 'joint = "field"\n' + TAIL, folder=folder)
    assert isinstance(field.task.family[0], PairwiseField)


def test_a_mean_divides_by_the_number_of_records(folder: Path) -> None:
    mean = TAIL.replace('kind = "count"\nstates = "park"', 'kind = "mean"\nweights = { park = 1 }')
    query = parse_request(HEAD + TIES + FRIENDS + mean, folder=folder).task.query
    assert query.lipschitz == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (FRIENDS, "has neither of ties and ties_file"),
        (TIES, "has neither of law and friends"),
        (TIES + FRIENDS + "law = [[1.0]]\n", "has both of law and friends"),
        ("ties = [[0, 1, 2]]\n" + FRIENDS, "ties holds a list that is not a pair"),
        ("ties = [[0, 9]]\n" + FRIENDS, r"ties names a record outside 0 … 5 in \[0, 9\]"),
        (TIES + "friends = { b = 0, c = 1 }\n", "model.friends.b is 0; it must be greater than 0"),
        (TIES + "law = [[0.5, 0.5]]\n", "3 states need"),
        (TIES + "law = [[0.5], [0.5, 0.5]]\n", "law has rows of different lengths"),
        ('ties_file = "none.csv"\n' + FRIENDS, "'none.csv', which does not exist"),
        ('ties_file = "bare.csv"\n' + FRIENDS, "whose first line is a tie and not a header"),
        ('ties_file = "data.csv"\n' + FRIENDS, "two columns of record numbers"),
        ('ties = [[0, 1], [1, 2], [0, 2]]\njoint = "tree"\n' + FRIENDS, "the ties form a loop"),
    ],
    ids=[
        "ties",
        "law",
        "both",
        "triple",
        "outside",
        "b",
        "shape",
        "ragged",
        "gone",
        "bare",
        "file",
        "loop",
    ],
)
def test_a_section_that_breaks_a_rule_is_refused_in_a_sentence(
    folder: Path, body: str, message: str
) -> None:
    (folder / "bare.csv").write_text("0,1\n2,1\n")
    with pytest.raises(SpecError, match=message):
        parse_request(HEAD + body + TAIL, folder=folder)
    with pytest.raises(SpecError, match="model"):
        parse_request(HEAD + body + TAIL, folder=folder)
