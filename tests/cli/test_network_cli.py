"""`plan`, `leak` and `audit` on networks, tables and contagion, from specs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.cli.conftest import Run

BIF = """
variable a { type discrete [ 2 ] { no, yes }; }
variable b { type discrete [ 2 ] { no, yes }; }
variable c { type discrete [ 2 ] { no, yes }; }
probability ( a ) { table 0.7, 0.3; }
probability ( b | a ) { (no) 0.8, 0.2; (yes) 0.3, 0.7; }
probability ( c | b ) { (no) 0.9, 0.1; (yes) 0.4, 0.6; }
"""
ENTRY = '[secrets]\nkind = "each-entry"\n'
PAIRS = """[secrets]
kind = "pairs"
pairs = [["some", "none"]]
[secrets.events.some]
a = "yes"
[secrets.events.none]
a = "no"
"""
COUNT = '[query]\nkind = "count"\nstates = "yes"\n'
BUDGET = "[privacy]\nepsilon = 1.0\n"
FILE = '[[model]]\nkind = "bayes-net"\nfile = "net.bif"\n'
INLINE = """[[model]]
kind = "bayes-net"
[model.nodes.a]
values = ["no", "yes"]
table = [0.7, 0.3]
[model.nodes.b]
values = ["no", "yes"]
parents = ["a"]
table = [[0.8, 0.2], [0.3, 0.7]]
[model.nodes.c]
values = ["no", "yes"]
parents = ["b"]
table = [[0.9, 0.1], [0.4, 0.6]]
"""
TABLE = """[[model]]
kind = "table"
variables = ["a", "b"]
domains = [["no", "yes"], ["no", "yes"]]
probability = [[0.5, 0.1], [0.1, 0.3]]
"""
CROWD = """[[model]]
kind = "contagion"
people = ["a", "b", "c", "d"]
edges = [["a", "b"], ["b", "c"], ["c", "d"]]
law = [0.1, 0.15, 0.5, 0.15, 0.1]
states = ["no", "yes"]
"""
SPECS = {
    "file": FILE + ENTRY + COUNT + BUDGET,
    "inline": INLINE + ENTRY + COUNT + BUDGET,
    "inline-pairs": INLINE + PAIRS + COUNT + BUDGET,
    "table": TABLE + ENTRY + COUNT + BUDGET,
    "table-pairs": TABLE + PAIRS + COUNT + BUDGET,
    "contagion": CROWD + ENTRY + COUNT + BUDGET,
    "contagion-pairs": CROWD + PAIRS + COUNT + BUDGET,
}


def compared(run: Run, spec: Any) -> Any:
    """Return what `shoal plan --json` prints of every mechanism."""
    return json.loads(run("plan", spec, "--json", "--compare").stdout)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    (tmp_path / "net.bif").write_text(BIF)
    (tmp_path / "edges.csv").write_text("a,b\nb,c\nc,d\n")

    def written(text: str) -> str:
        path = tmp_path / "spec.toml"
        path.write_text(text)
        return str(path)

    return written


@pytest.mark.parametrize("name", SPECS)
def test_plan_leak_and_audit(run: Run, write: Any, name: str) -> None:
    spec = write(SPECS[name] + 'mechanism = "exact"\n')
    planned = compared(run, spec)
    assert planned["mechanism"] == "exact"
    assert planned["loss"] == pytest.approx(1.0, rel=1e-6)
    every = compared(run, write(SPECS[name]))["alternatives"]
    group = every["group"]["scale"]
    assert planned["scale"] < group
    spec = write(SPECS[name] + 'mechanism = "exact"\n')
    leaked = json.loads(run("leak", spec, "--json").stdout)
    assert 1.0 <= leaked["epsilon"] <= group * (1 + 1e-9)
    audited = json.loads(run("audit", spec, "--json").stdout)
    assert audited["upper"] == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("name", ["inline", "table", "contagion"])
def test_a_small_answer_gets_the_best_table(run: Run, write: Any, name: str) -> None:
    spec = write(SPECS[name])
    planned = compared(run, spec)
    assert planned["mechanism"] == "optimal-table"
    assert planned["loss"] <= 1
    assert planned["cost"] < planned["alternatives"]["exact"]["cost"]
    assert json.loads(run("audit", spec, "--json").stdout)["verdict"] == "kept"


def test_a_file_and_the_same_network_inline_give_one_plan(run: Run, write: Any) -> None:
    scales = {
        compared(run, write(SPECS[name]))["alternatives"]["exact"]["scale"]
        for name in ("file", "inline")
    }
    assert len(scales) == 1


def test_the_flu_example_of_the_paper(run: Run, write: Any) -> None:
    rows = compared(run, write(SPECS["contagion"]))["alternatives"]
    assert rows["wasserstein"]["scale"] == 2
    assert rows["group"]["scale"] == 4
    assert rows["exact"]["scale"] == pytest.approx(1.1545, abs=1e-4)


def test_edges_from_a_file(run: Run, write: Any) -> None:
    edges = 'edges = [["a", "b"], ["b", "c"], ["c", "d"]]\n'
    text = SPECS["contagion"].replace(edges, 'edges_file = "edges.csv"\n')
    assert text != SPECS["contagion"]
    rows = compared(run, write(text))["alternatives"]
    assert rows["exact"]["scale"] < 2


def test_a_heading_is_not_two_people_who_meet(run: Run, write: Any, tmp_path: Path) -> None:
    """Silently it was one more group of two."""
    edges = 'edges = [["a", "b"], ["b", "c"], ["c", "d"]]\n'
    text = SPECS["contagion"].replace('people = ["a", "b", "c", "d"]\n', "")
    text = text.replace(edges, 'edges_file = "calls.csv"\n')
    for head, pairs in (("subject,other", "0,1\n1,2\n2,3"), ("user_a,user_b", "a,b\nb,c\nc,d")):
        (tmp_path / "calls.csv").write_text(f"{head}\n{pairs}\n")
        told = run("plan", write(text))
        assert f"whose first line, {head}, looks like a heading: remove it" in told.output
        (tmp_path / "calls.csv").write_text(f"{pairs}\n")
        assert run("plan", write(text)).exit_code == 0
    pl.DataFrame({"user_a": [0, 1, 2], "user_b": [1, 2, 3]}).write_parquet(
        tmp_path / "calls.parquet"
    )
    assert run("plan", write(text.replace("calls.csv", "calls.parquet"))).exit_code == 0
    pl.DataFrame({"user_a": [0, None]}).write_parquet(tmp_path / "calls.parquet")
    odd = run("plan", write(text.replace("calls.csv", "calls.parquet")))
    assert "it must have two columns and no empty cell" in odd.output


def test_unlike_variables_take_a_sum_of_their_own(run: Run, write: Any) -> None:
    text = INLINE.replace(
        'values = ["no", "yes"]\nparents = ["b"]', 'values = [0, 1]\nparents = ["b"]'
    )
    query = '[query]\nkind = "variable-sum"\nweights = { a = { yes = 2 }, c = { 1 = 0.5 } }\n'
    planned = json.loads(run("plan", write(text + ENTRY + query + BUDGET), "--json").stdout)
    assert planned["mechanism"] == "optimal-table"
    bad = run("plan", write(text + ENTRY + COUNT + BUDGET)).output
    assert "need one list of states for all entries" in bad


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("table = [0.7, 0.3]", "tabel = [0.7, 0.3]", "it must have values and table"),
        ("table = [0.7, 0.3]", "table = [0.7, 0.2]", "sums to 0.9"),
        ('parents = ["a"]', 'parents = ["x"]', "'b' has the parent 'x', which is no variable"),
        ('parents = ["a"]', "parents = 3", "its parents must be a list"),
        ("[[0.8, 0.2], [0.3, 0.7]]", "[[0.8, 0.2], [1.0]]", "rows of different lengths"),
    ],
)
def test_mistakes_in_a_network_are_named(
    run: Run, write: Any, old: str, new: str, message: str
) -> None:
    assert old in INLINE
    shown = run("plan", write(SPECS["inline"].replace(old, new))).output
    assert message in " ".join(shown.split())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("law = [0.1, 0.15, 0.5, 0.15, 0.1]", "law = [0.5, 0.5]", "it needs 5 numbers"),
        ("law = [0.1, 0.15, 0.5, 0.15, 0.1]", "", "needs exactly one of law, laws and rate"),
        ("law = [0.1, 0.15, 0.5, 0.15, 0.1]", 'laws = { "3" = [1.0] }', "no entry for groups of 4"),
        ("law = [0.1, 0.15, 0.5, 0.15, 0.1]", "laws = { x = [1.0] }", "keys are sizes of groups"),
        ('["c", "d"]]', '["c", "z"]]', "edges names 'z'"),
        ('people = ["a", "b", "c", "d"]', "sizes = [4]", "needs exactly one of sizes, edges"),
    ],
)
def test_mistakes_in_a_crowd_are_named(
    run: Run, write: Any, old: str, new: str, message: str
) -> None:
    assert old in CROWD
    shown = run("plan", write(SPECS["contagion"].replace(old, new))).output
    assert message in " ".join(shown.split())


def test_the_table_that_is_released_is_attacked_too(run: Run, folder: Path) -> None:
    assert run("init", "--kind", "network", "net.toml").exit_code == 0
    rows = "who,season,anna,ben,cleo,dan\nx,cold,ill,well,ill,well\ny,warm,well,well,well,well\n"
    (folder / "net.csv").write_text(rows)
    command = ("attack", "net.toml", "net.csv", "--series", "who", "--json")
    assert json.loads(run(*command).stdout)["series"] == "x"
    assert json.loads(run(*command, "--who", "y").stdout)["series"] == "y"
    refusal = run(*command, "--who", "z")
    assert (refusal.exit_code, "must be one of 'x', 'y'" in refusal.stderr) == (2, True)


def test_a_column_of_people_is_not_one_of_series_where_people_are_entries(
    run: Run, folder: Path
) -> None:
    assert run("init", "--kind", "contagion", "flu.toml").exit_code == 0
    (folder / "people.csv").write_text("person,status\na,ill\nb,well\nc,ill\n")
    told = run(
        "release",
        "flu.toml",
        "people.csv",
        "-o",
        "o.json",
        "--state",
        "status",
        "--series",
        "person",
    )
    assert told.exit_code == 2
    assert "name no column of people, now 'person', and give a row for each" in told.stderr
