"""Sums in steps: the true loss of everything a stream will ever show is never above its promise.

All series, all patterns of entries that were not read and all outputs are written out here; noise
is two-sided geometric, by its formula. Which entries are read may depend on what was shown before.
Proof: src/shoal/mechanisms/running.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.core.plan import Plan, UselessRelease
from shoal.mechanisms import RunningStream, in_steps
from shoal.mechanisms.queries import Running

EVERY = 2
Chances = Callable[[int, tuple[int, ...]], float]  # of entry t being read, after these answers


def chain_of(rng: np.random.Generator) -> shoal.MarkovChain:
    rows = rng.dirichlet([0.8, 0.8], size=2).clip(0.05, 0.95)
    start = rng.dirichlet([1, 1]).clip(0.05, 0.95)
    rows, start = rows / rows.sum(axis=1, keepdims=True), start / start.sum()
    return shoal.MarkovChain.of(rows.tolist(), initial=start.tolist())


def plan_of(chain: shoal.MarkovChain, mechanism: str, epsilon: str = "1") -> Plan:
    query = in_steps(shoal.count(chain.states, chain.states[1]), EVERY)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=epsilon, mechanism=mechanism)


def true_loss(
    chain: shoal.MarkovChain, scale: float, entries: int, chance: Chances, *, hidden: bool
) -> float:
    """max over t, a, b, outputs of log P(z, r | X_t = a) / P(z, r | X_t = b); r summed if hidden.

    Answers far outside of what a step can count have the ratios of those just outside.
    """
    start, rows = np.asarray(chain.initial), np.asarray(chain.transition)
    steps = entries // EVERY
    answers = list(itertools.product(range(-1, EVERY + 2), repeat=steps))
    reads = list(itertools.product((0, 1), repeat=entries))
    told, marginal = np.zeros((entries, 2, len(answers), len(reads))), np.zeros((entries, 2))
    for path in itertools.product((0, 1), repeat=entries):
        law = start[path[0]] * math.prod(rows[a, b] for a, b in itertools.pairwise(path))
        shown = np.array([[_weight(path, z, r, scale, chance) for r in reads] for z in answers])
        for t in range(entries):
            told[t, path[t]] += law * shown
            marginal[t, path[t]] += law
    given = told / marginal[:, :, None, None]
    if hidden:
        given = given.sum(axis=3, keepdims=True)
    possible = given[:, 0] > 0
    assert np.array_equal(possible, given[:, 1] > 0)
    return float(np.abs(np.log(given[:, 0][possible] / given[:, 1][possible])).max())


def _weight(
    path: tuple[int, ...],
    answer: tuple[int, ...],
    read: tuple[int, ...],
    scale: float,
    chance: Chances,
) -> float:
    """P(r, z | path), but for the noise's normaliser, which is one and the same for all paths."""
    weight = 1.0
    for t, taken in enumerate(read):
        reading = chance(t, answer[: t // EVERY])
        weight *= reading if taken else 1 - reading
    for step, told in enumerate(answer):
        mine = range(step * EVERY, (step + 1) * EVERY)
        weight *= math.exp(-abs(told - sum(path[t] * read[t] for t in mine)) / scale)
    return weight


ALWAYS: Chances = lambda t, seen: 1.0  # noqa: E731
SOMETIMES: Chances = lambda t, seen: 0.7  # noqa: E731
SHY: Chances = lambda t, seen: 0.2 if seen and seen[-1] > 1 else 0.9  # noqa: E731


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("chance", [ALWAYS, SOMETIMES, SHY])
def test_no_pattern_of_readings_tells_more_than_is_promised(seed: int, chance: Chances) -> None:
    chain = chain_of(np.random.default_rng(seed))
    plan = plan_of(chain, "lift")
    assert plan.scale is not None
    for hidden in (False, True):
        assert true_loss(chain, plan.scale, 4, chance, hidden=hidden) <= 1 + 1e-9


def test_noise_for_single_entries_is_not_enough() -> None:
    """The control: ordinary noise, which knows no correlation, breaks the same promise."""
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.1, 0.9]])
    plan = plan_of(chain, "laplace")
    assert plan.scale is not None
    assert true_loss(chain, plan.scale, 4, ALWAYS, hidden=False) > 1.5


@pytest.mark.parametrize("mechanism", ["lift", "markov-quilt"])
def test_a_ledger_charges_all_steps_once(mechanism: str, tmp_path: Path) -> None:
    """However many steps: the eta of one, lifted once; a step drawn again is the stored one."""
    chain = shoal.MarkovChain.of([[0.7, 0.3], [0.4, 0.6]])
    plan = plan_of(chain, mechanism)
    with shoal.open_ledger(tmp_path / "ledger.db") as ledger:
        stream, shown = RunningStream.begin(plan, first=6), []
        for entry in ("0", None, "1", "1", "0", "1"):
            before, (stream, release) = stream, stream.read(entry, ledger=ledger, subject="ada")
            if release is not None:
                again = before.read(entry, ledger=ledger, subject="ada")[1]
                assert again is not None
                assert again.values == release.values
                shown.append(release)
        total = ledger.spent("ada", "")
        assert [each.part for each in ledger.charges("ada")] == ["6..8", "8..10", "10..12"]
    assert [each.answer.entries for each in shown] == [1, 2, 2]
    assert isinstance(plan.body, Running)
    assert total is not None
    assert (total.charges, total.eta) == (3, plan.body.eta)
    assert float(total.amount) <= 1 + 1e-9


def test_steps_count_what_was_read() -> None:
    """With next to no noise the answers are the sums; a stream and a release agree."""
    chain = shoal.MarkovChain.of([[0.5, 0.5], [0.5, 0.5]])
    query = in_steps(shoal.weighted_sum(chain.states, {"0": "1/2", "1": 3}), 3)
    plan = shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=100_000, mechanism="laplace")
    series = ["1", "0", "1", "1", "1", "0", "0"]
    stream, shown = RunningStream.begin(plan), []
    for entry in series:
        stream, release = stream.read(entry)
        shown += [] if release is None else [*release.values]
    assert shown == [6.5, 6.5]
    with pytest.warns(UselessRelease):
        assert plan.release(series).values == (6.5, 6.5)
    assert stream.state.sums == (1,)
    assert stream.state.first == 6
    stored = RunningStream.from_bytes(plan, stream.to_bytes())
    assert stored == stream
    assert shoal.loads(shoal.dumps(plan)) == plan
