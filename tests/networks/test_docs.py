"""The page about networks: its code runs, and its figures are those the code gives."""

from __future__ import annotations

import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

import shoal
from shoal.audit.exact import audit_noise
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import calibrate_and_check, row_named
from tests.networks.models import lattice, literature

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "networks.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def scale(plan: Plan | str) -> str:
    assert isinstance(plan, Plan)
    return f"{float(plan.body.noise.scale):.4f}"  # type: ignore[union-attr]


def row(title: str) -> list[str]:
    """The cells of the first line of a table that begins with `title`."""
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_examples_run(tmp_path: Path) -> None:
    code = "\n".join(BLOCK.findall(PAGE))
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "exact        1.1545" in done.stdout


def test_the_flu_table() -> None:
    flu = shoal.Contagion.cliques([4], [0.1, 0.15, 0.5, 0.15, 0.1])
    query = shoal.count(flu.states, "ill")
    found = choose(Task(query=query, secrets=shoal.EachEntry(), family=(flu,)), Fraction(1))
    for title, name in (
        ("group privacy", "group"),
        ("Wasserstein", "wasserstein"),
        ("lift", "lift"),
        ("exact", "exact"),
    ):
        assert float(row(title)[1]) == pytest.approx(float(scale(found.alternatives[name])))
    ordinary = audit_noise(query, shoal.EachEntry(), flu, scale=1).upper
    assert f"the loss is {ordinary:.3f}, up to {shoal.leakage(flu, 1).value:.3f}" in PAGE


@pytest.mark.parametrize("stay", [".52", ".55", ".6", ".8"])
def test_the_tree_table(stay: str) -> None:
    copy = [[float(stay), 1 - float(stay)], [1 - float(stay), float(stay)]]
    tables = {str(v): copy if v else [0.5, 0.5] for v in range(15)}
    net = shoal.BayesNet.of(tables, parents={str(v): [str((v - 1) // 2)] for v in range(1, 15)})
    task = Task(query=shoal.count("01", "1"), secrets=shoal.EachEntry(), family=(net,))
    found = choose(task, Fraction(1)).alternatives
    _, exact, lift, quilt, matrix, group = row(stay)
    shown = {"exact": exact, "lift": lift, "markov-quilt": quilt, "group": group}
    for name, cell in shown.items():
        assert float(cell) == pytest.approx(float(scale(found[name])), abs=1e-9), name
    claimed = found["influence-matrix"]
    if isinstance(claimed, str):
        assert matrix == "does not apply"
    else:
        assert matrix == scale(claimed)
        assert claimed.guarantee.proved


@pytest.mark.parametrize("strength", [".05", ".1", ".15", ".2"])
def test_the_table_of_walks(strength: str) -> None:
    net = lattice(14, float(strength))
    task = Task(query=shoal.count("01", "1"), secrets=shoal.EachEntry(), family=(net,))
    _, _, lift, matrix, group = row(strength)
    assert lift == scale(calibrate_and_check(row_named("lift"), task, Fraction(1)))
    try:
        found = scale(calibrate_and_check(row_named("influence-matrix"), task, Fraction(1)))
    except shoal.Refused:
        found = "does not apply"
    assert matrix == found
    assert group == f"{float(scale(calibrate_and_check(row_named('group'), task, Fraction(1)))):g}"


@pytest.mark.parametrize(
    ("side", "strength", "chosen", "least"),
    [
        (6, 0.2, "exact", 2.349),
        pytest.param(14, 0.1, "exact", float(row(".1")[1]), marks=pytest.mark.slow),
        pytest.param(14, 0.2, "exact", float(row(".2")[1]), marks=pytest.mark.slow),
    ],
)
def test_what_is_chosen_for_a_square(side: int, strength: float, chosen: str, least: float) -> None:
    net = lattice(side, strength)
    task = Task(query=shoal.count("01", "1"), secrets=shoal.EachEntry(), family=(net,))
    plan = choose(task, Fraction(1)).plan
    assert plan.mechanism == chosen
    assert float(scale(plan)) == pytest.approx(least, abs=1e-3)


def test_the_asia_rows() -> None:
    net = literature("asia")
    task = Task(query=shoal.count(("yes", "no"), "yes"), secrets=shoal.EachEntry(), family=(net,))
    cells = row("ASIA, 8 variables")[2:7]
    names = ("exact", "wasserstein", "lift", "markov-quilt", "group")
    for name, cell in zip(names, cells, strict=True):
        assert float(cell) == pytest.approx(float(scale(choose(task, Fraction(1), name).plan)))
