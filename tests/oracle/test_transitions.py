"""Tables of steps: sensitivity, true loss and balance, each by another way than the library's.

All series and the outputs that decide are written out; noise is the two-sided geometric law by its
formula; the balanced table is found once more by non-negative least squares. Proof:
src/shoal/chains/transitions.md.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import nnls
from typer.testing import CliRunner

import shoal
from shoal.chains.transitions import TransitionTable, balanced_flows
from shoal.cli.app import app
from shoal.core.plan import Plan

STATES = ("a", "b", "c")


def steps(series: Sequence[str]) -> Counter[tuple[str, str]]:
    return Counter(itertools.pairwise(series))


def apart(one: Sequence[str], two: Sequence[str]) -> int:
    """The l1 distance of the tables of two series."""
    first, second = steps(one), steps(two)
    return sum(abs(first[cell] - second[cell]) for cell in first | second)


@pytest.mark.parametrize("entries", [2, 3, 4, 5])
def test_the_sensitivities_are_those_of_all_pairs_of_series(entries: int) -> None:
    query = shoal.transitions(STATES)
    every = list(itertools.product(STATES, repeat=entries))
    one_entry = whole = 0
    for one, two in itertools.combinations(every, 2):
        far = apart(one, two)
        whole = max(whole, far)
        if sum(x != y for x, y in zip(one, two, strict=True)) == 1:
            one_entry = max(one_entry, far)
    assert whole == query.moved_by(entries)
    assert one_entry <= query.lipschitz
    assert (one_entry == query.lipschitz) == (entries > 2)


def test_counts_are_those_inside_each_series() -> None:
    query = shoal.transitions(STATES)
    data = [["a", "b", "b"], ["c", "a"], ["b"]]
    found = dict(zip(query.labels, query.evaluate(query.read(data)), strict=True))
    assert {label for label, count in found.items() if count} == {"a -> b", "b -> b", "c -> a"}
    assert sum(found.values()) == 3


def true_loss(chain: shoal.MarkovChain, scale: float, entries: int) -> float:
    """max over entries, values and outputs of the log-ratio, for one series of two states."""
    start, rows, names = np.asarray(chain.initial), np.asarray(chain.transition), chain.states
    outputs = np.array(list(itertools.product(range(-1, entries + 1), repeat=4)))
    told = np.zeros((entries, 2, len(outputs)))
    prior = np.zeros((entries, 2))
    for path in itertools.product((0, 1), repeat=entries):
        law = start[path[0]] * math.prod(rows[x, y] for x, y in itertools.pairwise(path))
        table = steps([names[x] for x in path])
        answer = [table[x, y] for x in names for y in names]
        weight = law * np.exp(-np.abs(outputs - answer).sum(axis=1) / scale)
        for t, x in enumerate(path):
            told[t, x] += weight
            prior[t, x] += law
    given = told / prior[:, :, None]
    return float(np.abs(np.log(given[:, 0] / given[:, 1])).max())


def plan_of(rows: list[list[float]], mechanism: str, length: int | None = None) -> Plan:
    chain = shoal.MarkovChain.of(rows, states=("a", "b"), length=length)
    query = shoal.transitions(chain.states)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism=mechanism)


@pytest.mark.parametrize("rows", [[[0.8, 0.2], [0.3, 0.7]], [[0.6, 0.4], [0.5, 0.5]]])
@pytest.mark.parametrize("mechanism", ["lift", "markov-quilt", "group"])
def test_no_table_tells_more_of_an_entry_than_is_promised(
    rows: list[list[float]], mechanism: str
) -> None:
    plan = plan_of(rows, mechanism, 6)
    assert plan.scale is not None
    for entries in (2, 3, 4):
        assert true_loss(plan.task.family[0], plan.scale, entries) <= 1 + 1e-9  # type: ignore[arg-type]


def test_noise_that_knows_no_correlation_is_not_enough() -> None:
    """The control."""
    plan = plan_of([[0.99, 0.01], [0.01, 0.99]], "laplace")
    assert plan.scale is not None
    assert true_loss(plan.task.family[0], plan.scale, 5) > 1.2  # type: ignore[arg-type]


def test_whole_persons_cost_their_own_steps(tmp_path: Path) -> None:
    """Noise for n - 1 steps of 2, not for n entries of 4; and a ledger adds just that."""
    chain = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=("a", "b"), length=6)
    plan = shoal.calibrate(shoal.transitions("ab"), shoal.EachPerson(), chain, epsilon=1)
    assert plan.scale == 10
    assert shoal.verify_promise(plan) == pytest.approx(1)
    assert shoal.audit(plan).upper == pytest.approx(1)
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        for expected in (1, 2):
            plan.release(["a", "b", "b"], ledger=ledger, subject="ada")
            total = ledger.spent("ada")
            assert total is not None
            assert (total.notion, float(total.amount)) == ("group", expected)


def nearest(weights: np.ndarray) -> np.ndarray:
    """The balanced table by non-negative least squares, its equations weighted heavily."""
    size = len(weights)
    equations = np.zeros((size + 1, size, size))
    for x, y in itertools.permutations(range(size), 2):
        equations[x, x, y] += 1
        equations[y, x, y] -= 1
    equations[size] = 1
    heavy = 1e5
    left = np.vstack([heavy * equations.reshape(size + 1, -1), np.eye(size * size)])
    right = np.concatenate([np.zeros(size), [heavy], weights.ravel()])
    return np.asarray(nnls(left, right)[0]).reshape(size, size)


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_the_balanced_table_is_the_nearest_one(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.random((size, size)) + rng.normal(size=(size, size))
    weights /= np.abs(weights).sum()
    found = balanced_flows(weights)
    assert (found >= 0).all()
    assert np.abs(found.sum(axis=0) - found.sum(axis=1)).max() < 1e-7
    assert found == pytest.approx(nearest(weights), abs=1e-6)


def test_balance_brings_long_run_shares_nearer() -> None:
    """A slow chain under much noise: shares of the raw rows are far off, balanced ones are not."""
    rng = np.random.default_rng(2)
    rows = np.array([[0.99, 0.01, 0.0], [0.01, 0.97, 0.02], [0.0, 0.04, 0.96]])
    chain = shoal.MarkovChain.of(rows.tolist(), states=STATES)
    truth = chain.stationary_law()
    counts = 20_000 * truth[:, None] * rows
    off = np.zeros(2)
    for _ in range(20):
        noisy = counts + rng.laplace(scale=150, size=(3, 3))
        table = TransitionTable(STATES, noisy, 20_000.0)
        for kind, one in enumerate((table, table.balanced())):
            off[kind] += np.abs(one.shares() - truth).sum() / 40
    assert off[1] < off[0] / 2


def test_the_command_makes_a_table_a_graph_and_a_picture(tmp_path: Path) -> None:
    spec, data = tmp_path / "steps.toml", tmp_path / "days.csv"
    spec.write_text(
        '[data]\nstate = "activity"\nseries = "person"\n\n[[model]]\nkind = "markov-chain"\n'
        'states = ["sit", "walk"]\ntransition = [[0.6, 0.4], [0.5, 0.5]]\nlength = 50\n\n'
        '[secrets]\nkind = "each-entry"\n\n[query]\nkind = "transitions"\n\n'
        "[privacy]\nepsilon = 2\n"
    )
    rng = np.random.default_rng(1)
    lines = [
        f"{person},{'sit' if rng.random() < 0.6 else 'walk'}"
        for person in range(40)
        for _ in range(50)
    ]
    data.write_text("person,activity\n" + "\n".join(lines) + "\n")
    run = CliRunner()

    def shoal_(*words: str) -> str:
        found = run.invoke(app, [*words], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return found.stdout

    release = str(tmp_path / "steps.json")
    shoal_("release", str(spec), str(data), "-o", release, "--together")
    table, graph, picture = (str(tmp_path / f"steps.{end}") for end in ("csv", "dot", "png"))
    shoal_("transitions", release, "--total", "1960", "-o", table, "--plot", picture)
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    found = json.loads(shoal_("transitions", release, "-o", graph, "--json", "--total", "1960"))
    assert sum(map(sum, found["counts"])) == pytest.approx(1960)
    assert found["shares"][0] == pytest.approx(0.6, abs=0.1)
    assert Path(graph).read_text().startswith("digraph steps {")
    assert Path(table).read_text().splitlines()[0] == "from,to,count,probability"
    wrong = run.invoke(app, ["transitions", str(data)])
    assert wrong.exit_code == 2
