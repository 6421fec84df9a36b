"""Passes over hidden Markov chains, against all paths, however unlikely the truth is."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

from shoal.attacks.codes import follow, likeliest, push_through, total
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.motion import motion_of

Case = tuple[MarkovChain, Floats]


@st.composite
def cases(draw: Any) -> Case:
    """A chain with impossible moves, a matrix per step or not, and what was seen of each step.

    Likelihoods range over e^±2000, far beyond what floats hold.
    """
    size, steps = draw(st.integers(2, 3)), draw(st.integers(1, 5))
    weight = st.sampled_from([0.0, 1e-200, 0.01, 0.3, 1.0])
    row = st.lists(weight, min_size=size, max_size=size).filter(lambda r: sum(r) > 1e-100)
    matrices = draw(st.integers(0, 1))
    count = steps - 1 if matrices and steps > 1 else 1
    tables = np.array([[draw(row) for _ in range(size)] for _ in range(count)])
    tables /= tables.sum(axis=2, keepdims=True)
    first = np.array(draw(row))
    chain = MarkovChain(
        states=tuple(str(i) for i in range(size)),
        transition=tables if count > 1 else tables[0],
        initial=first / first.sum(),
        length=steps if count > 1 else None,
    )
    level = st.one_of(
        st.floats(-3, 3), st.floats(-2000, 0), st.sampled_from([-math.inf, 0.0, -1000.0])
    )
    rows = np.array([[draw(level) for _ in range(size)] for _ in range(steps)])
    return chain, rows


def listed(chain: MarkovChain, rows: Floats) -> dict[tuple[int, ...], float]:
    """log P(path, what was seen) of every path."""
    found = {}
    with np.errstate(divide="ignore"):
        for path in itertools.product(range(len(chain.states)), repeat=len(rows)):
            logs = [np.log(chain.initial[path[0]])]
            logs += [np.log(chain.matrix(t)[path[t], path[t + 1]]) for t in range(len(path) - 1)]
            seen = [rows[t, x] for t, x in enumerate(path)]
            found[path] = float(np.sum(logs) + np.sum(seen))
    return found


@given(cases())
def test_beliefs_and_best_paths_are_those_of_all_paths(case: Case) -> None:
    chain, rows = case
    motion = motion_of(chain)
    with np.errstate(divide="ignore"):
        begin = np.log(motion.begin())
    paths = listed(chain, rows)
    best = max(paths.values())
    if best == -math.inf:
        with pytest.raises(InputError, match="impossible"):
            follow(motion, begin, 0, rows)
        return
    found = follow(motion, begin, 0, rows)
    expected = np.full(rows.shape, -math.inf)
    for path, weight in paths.items():
        for t, x in enumerate(path):
            expected[t, x] = np.logaddexp(expected[t, x], weight)
    assert found.evidence == pytest.approx(np.logaddexp.reduce(expected[0]), abs=1e-8)
    inside = np.isfinite(expected)
    assert (np.isfinite(found.smoothed) == inside).all()
    laws = expected - np.logaddexp.reduce(expected, axis=1, keepdims=True)
    assert found.smoothed[inside] == pytest.approx(laws[inside], abs=1e-8)
    assert np.exp(found.smoothed).sum(axis=1) == pytest.approx(1)
    path = tuple(int(x) for x in likeliest(motion, begin, 0, rows))
    assert paths[path] == pytest.approx(best, abs=1e-8)


@given(cases())
def test_what_is_believed_along_a_stream_is_what_its_beginning_alone_tells(case: Case) -> None:
    """The filter at step t is the smoother of the first t steps; the last of both is the same."""
    chain, rows = case
    motion = motion_of(chain)
    with np.errstate(divide="ignore"):
        begin = np.log(motion.begin())
    assume(max(listed(chain, rows).values()) > -math.inf)
    found = follow(motion, begin, 0, rows)
    for t in range(1, len(rows) + 1):
        shorter = follow(motion, begin, 0, rows[:t])
        finite = np.isfinite(shorter.smoothed[-1])
        assert (np.isfinite(found.filtered[t - 1]) == finite).all()
        difference = found.filtered[t - 1][finite] - shorter.smoothed[-1][finite]
        assert np.abs(difference).max() < 1e-8
    blind = follow(motion, begin, 0, np.zeros_like(rows))
    assert np.exp(blind.smoothed) == pytest.approx(np.exp(blind.before), abs=1e-12)


@given(st.lists(st.floats(-3000, 3000), min_size=3, max_size=3))
def test_sums_keep_what_plain_numbers_lose(logs: list[float]) -> None:
    from scipy.sparse import csr_array

    matrix = csr_array(np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
    found = push_through(matrix, np.array(logs))
    assert found[0] == pytest.approx(np.logaddexp(logs[0], logs[1]) - math.log(2), abs=1e-9)
    assert found[1] == pytest.approx(logs[1], abs=1e-9)
    assert found[2] == -math.inf
    assert push_through(matrix, np.full(3, -math.inf)).tolist() == [-math.inf] * 3
    assert float(total(np.array(logs))) == pytest.approx(np.logaddexp.reduce(logs), abs=1e-9)
    assert float(total(np.full(3, -math.inf))) == -math.inf
