"""Running totals: the tree, the law of its noise, and what all totals of a series tell.

A tree of four steps has four nodes and four totals, so the law of the totals is written out by hand
here, for all series; the law of the noise is compared with that of whole trees drawn at once.
Proof: src/shoal/mechanisms/signed_tree.md.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.core.plan import Plan
from shoal.mechanisms.signed_tree import (
    RunningTotals,
    Totals,
    TotalsState,
    TotalsStream,
    active,
    best_tree,
    totals,
)
from shoal.mechanisms.table import verify_promise
from shoal.noise.laplace import LatticeLaplace

ROWS = [[0.7, 0.3], [0.4, 0.6]]


def plan_of(horizon: int = 4, rows: list[list[float]] = ROWS, mechanism: str = "best") -> Plan:
    chain = shoal.MarkovChain.of(rows, states=["a", "b"])
    asked = shoal.count(chain.states, "b")
    query = Totals(asked, 2, 4, 3, 2) if horizon == 4 else totals(asked, 2, horizon)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=1, mechanism=mechanism)


@pytest.mark.parametrize(("arity", "levels"), [(3, 1), (3, 3), (5, 2), (7, 2), (11, 2)])
def test_signed_nodes_cover_just_the_steps_so_far(arity: int, levels: int) -> None:
    horizon = (arity**levels - 1) // 2
    for step in range(1, horizon + 1):
        covered: Counter[int] = Counter()
        for (level, index), sign in active(step, arity, levels).items():
            for one in range(index * arity**level, (index + 1) * arity**level):
                covered[one] += sign
        assert {one for one, times in covered.items() if times} == set(range(step))
        assert {times for times in covered.values() if times} == {1}


@pytest.mark.parametrize(
    ("horizon", "tree", "error"),
    [
        (52, (11, 2), 6.5),
        (365, (29, 2), 10.4),
        (1440, (15, 3), 13.8),
        (8760, (27, 3), 18.7),
        (35040, (17, 4), 22.8),
    ],
)
def test_the_tree_of_a_horizon_has_the_known_error(
    horizon: int, tree: tuple[int, int], error: float
) -> None:
    """Figures computed apart from the library: root mean square in units of 1/eta."""
    assert best_tree(horizon) == tree
    noises = [len(active(step, *tree)) for step in range(1, horizon + 1)]
    assert tree[1] * math.sqrt(2 * sum(noises) / horizon) == pytest.approx(error, abs=0.06)


def test_what_a_plan_says_of_its_error_is_so() -> None:
    """The mean square over the steps, and the bound, against totals drawn many times."""
    plan = plan_of(40)
    error, body = plan.error(), plan.body
    assert isinstance(body, RunningTotals)
    assert error is not None
    data = ["a"] * 80
    draws = np.array([plan.release(data, rng=seed).values for seed in range(400)])
    assert math.sqrt((draws**2).mean()) == pytest.approx(error.expected, rel=0.1)
    assert (np.abs(draws) > error.bound).mean() < 0.05
    assert body.step_factor() > 1


def body_of(arity: int, levels: int) -> RunningTotals:
    horizon = (arity**levels - 1) // 2
    query = Totals(shoal.count("ab", "b"), 2, horizon, arity, levels)
    return RunningTotals(query, LatticeLaplace(Fraction(1, 2), Fraction(1)))


def one_by_one(body: RunningTotals, rng: shoal.SeededRng) -> list[int]:
    """The noises of all totals, each drawn from its law given those before it."""
    state, found = body.init(), []
    for _ in range(body.query.horizon):
        for entry in "ab":
            counted = body.count(state, entry)
            assert isinstance(counted, TotalsState)
            state = counted
        noise = body.draw_noise(state, rng)
        state = body.next_step(state, noise)
        found.append(noise[0])
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("arity", "levels"), [(5, 2), (3, 3)])
def test_noise_drawn_step_by_step_has_the_law_of_a_whole_tree(
    arity: int, levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.mechanisms.signed_tree.PROPOSALS", 64)
    body, rng = body_of(arity, levels), shoal.SeededRng(5)
    drawn = np.array([one_by_one(body, rng) for _ in range(700)])
    whole = trees(body, 30_000)
    assert chi_square(drawn, whole) < 1.5
    apart = np.stack([column[rng_order(i, len(whole))] for i, column in enumerate(whole.T)], axis=1)
    assert chi_square(apart, whole) > 3  # the control: the same laws of single totals, not tied


def rng_order(seed: int, count: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(seed).permutation(count)[:700])


def trees(body: RunningTotals, count: int) -> np.ndarray:
    """Noises of all totals of so many trees, every node drawn first, by numpy's own laws."""
    tree = (body.query.arity, body.query.levels)
    steps = [active(step, *tree) for step in range(1, body.query.horizon + 1)]
    nodes = list(dict.fromkeys(node for one in steps for node in one))
    rng, p = np.random.default_rng(9), 1 - math.exp(-2)  # geometric laws of rate 1 / scale
    noise = rng.geometric(p, (count, len(nodes))) - rng.geometric(p, (count, len(nodes)))
    signs = np.array([[one.get(node, 0) for node in nodes] for one in steps])
    return np.asarray(noise @ signs.T)


def chi_square(some: np.ndarray, many: np.ndarray) -> float:
    """The largest chi-square per cell over triples of totals near each other."""
    found = []
    for at in range(some.shape[1] - 2):
        cells = Counter(map(tuple, many[:, at : at + 3].tolist()))
        seen = Counter(map(tuple, some[:, at : at + 3].tolist()))
        share = len(some) / len(many)
        usual = [cell for cell, times in cells.items() if times * share >= 8]
        gaps = [
            (seen[cell] - cells[cell] * share) ** 2 / (cells[cell] * share * (1 + share))
            for cell in usual
        ]
        found.append(sum(gaps) / len(gaps))
    return float(np.median(found))


def true_loss(chain: shoal.MarkovChain, scale: float) -> float:
    """max over entries, values and outputs of what four totals tell, written out by hand.

    With arity 3 and two levels the totals have the noises A, B - C, B, B + D of four nodes.
    """
    start, rows = np.asarray(chain.initial), np.asarray(chain.transition)
    outputs = np.array(list(itertools.product(range(-1, 10, 2), repeat=4)))
    told, prior = np.zeros((8, 2, len(outputs))), np.zeros((8, 2))
    for path in itertools.product((0, 1), repeat=8):
        law = start[path[0]] * math.prod(rows[x, y] for x, y in itertools.pairwise(path))
        noise = outputs - np.cumsum(np.reshape(path, (4, 2)).sum(axis=1))
        a, b = noise[:, 0], noise[:, 2]
        c, d = b - noise[:, 1], noise[:, 3] - b
        weight = law * np.exp(-(abs(a) + abs(b) + abs(c) + abs(d)) / scale)
        for t, x in enumerate(path):
            told[t, x] += weight
            prior[t, x] += law
    given = told / prior[:, :, None]
    return float(np.abs(np.log(given[:, 0] / given[:, 1])).max())


@pytest.mark.parametrize("rows", [ROWS, [[0.55, 0.45], [0.2, 0.8]]])
def test_all_totals_together_tell_no_more_than_is_promised(rows: list[list[float]]) -> None:
    plan = plan_of(4, rows)
    chain = shoal.MarkovChain.of(rows, states=["a", "b"])
    assert plan.scale is not None
    assert true_loss(chain, plan.scale) <= 1 + 1e-9
    assert true_loss(chain, plan.scale / 3) > 1  # the control: noise for no tree


def test_the_promise_and_its_audit() -> None:
    plan = plan_of()
    assert verify_promise(plan) <= 1 + 1e-9
    assert shoal.audit(plan).upper <= 1 + 1e-9
    assert plan.additive is not None
    assert plan.additive.eta == 2 / plan.additive.noise.scale


@pytest.mark.parametrize("killed", [0, 1, 7, 8, 9, 21, 26])
def test_a_stream_that_was_killed_goes_on_as_if_it_had_not_been(
    killed: int, tmp_path: Path
) -> None:
    """The state follows from entries and stored totals: it is equal, and so is the account."""
    plan, entries = plan_of(13), ["a", "b", None, "b", "b", "a", "a", "b"] * 4
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        first = TotalsStream.begin(plan)
        shown = []
        for entry in entries[:killed]:
            first, release = first.read(entry, ledger=ledger, subject="ada")
            shown.append(None if release is None else release.values)
        again = TotalsStream.begin(plan)
        for at, entry in enumerate(entries[:26]):
            again, release = again.read(entry, ledger=ledger, subject="ada")
            if at < killed:
                assert (None if release is None else release.values) == shown[at]
            if at == killed - 1:
                assert again.state == first.state
        total = ledger.spent("ada", "")
        assert total is not None
        assert float(total.amount) <= 1 + 1e-6
        assert total.eta == plan.additive.eta  # type: ignore[union-attr]
        with pytest.raises(shoal.InputError, match="has passed 13 steps"):
            again.read("a", ledger=ledger, subject="ada")


def test_totals_that_begin_elsewhere_are_charged_for_themselves(tmp_path: Path) -> None:
    """A second tree over the same entries has keys of its own, and its eta adds."""
    plan = plan_of()
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        for first in (0, 2):
            stream = TotalsStream.begin(plan, first)
            for entry in "abba"[first:]:
                stream, _ = stream.read(entry, ledger=ledger, subject="ada")
        total = ledger.spent("ada", "")
        assert total is not None
        assert total.eta == 2 * plan.additive.eta  # type: ignore[union-attr]


def test_a_stored_stream_comes_back(tmp_path: Path) -> None:
    stream = TotalsStream.begin(plan_of())
    for entry in "abb":
        stream, _ = stream.read(entry)
    assert TotalsStream.from_bytes(stream.plan, stream.to_bytes()) == stream


def test_the_spec_and_the_stream_command(tmp_path: Path) -> None:
    spec = tmp_path / "totals.toml"
    text = (
        '[[model]]\nkind = "markov-chain"\nstates = ["a", "b"]\n'
        'transition = [[0.7, 0.3], [0.4, 0.6]]\n\n[secrets]\nkind = "each-entry"\n\n'
        '[query]\nkind = "count"\nstates = ["b"]\nevery = 2\ntotals = true\nhorizon = 365\n\n'
        "[privacy]\nepsilon = 1\n"
    )
    spec.write_text(text)
    run = CliRunner()
    lines = "".join(f'{{"state": "{state}"}}\n' for state in "abbaab")
    ledger = str(tmp_path / "budget.db")
    words = ["stream", str(spec), "--ledger", ledger, "--subject", "ada"]
    found = run.invoke(app, words, input=lines, catch_exceptions=False)
    shown = [json.loads(line) for line in found.stdout.splitlines()]
    assert [line.get("read") for line in shown] == [None, 2, None, 2, None, 2]
    again = run.invoke(app, words, input=lines, catch_exceptions=False)
    assert again.stdout == found.stdout
    spec.write_text(text.replace("horizon = 365\n", ""))
    assert "without every and horizon" in run.invoke(app, ["plan", str(spec)]).stderr
