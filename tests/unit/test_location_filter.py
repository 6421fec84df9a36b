"""Beliefs in motion, posteriors where floats run out, and chains learned from noisy outputs."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from shoal.chains.families import AnyInitialLaw
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.motion import motion_of, posterior
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.stream import LocationStream, output_log_likelihoods
from shoal.places.walk import SparseChain, baum_welch
from tests.contract.tasks import short_day
from tests.locations import walk


def test_motion_is_the_same_dense_and_sparse() -> None:
    chain = walk(initial=[0.5, 0.5, 0, 0, 0, 0])
    sparse = SparseChain.of(chain.transition, initial=chain.initial, states=chain.states)
    for model in (chain, sparse):
        motion = motion_of(model)
        belief, support = motion.begin(), motion.initial > 0
        for t in range(1, 6):
            belief, support = motion.predict(t, belief), motion.reach(t, support)
            assert belief == pytest.approx(chain.marginal(t), rel=1e-12)
            assert (support == chain.support(t)).all()


def test_days_move_by_their_own_matrices() -> None:
    day = short_day()
    motion = motion_of(day)
    belief = motion.begin()
    for t in range(1, day.slots):
        belief = motion.predict(t, belief)
        assert belief == pytest.approx(day.marginals()[t], rel=1e-12)
    with pytest.raises(InputError, match="step 5 is beyond length 4"):
        motion.predict(4, belief)


def test_models_without_one_first_law_are_refused() -> None:
    with pytest.raises(InputError, match="needs one Markov chain with a given first law"):
        motion_of(AnyInitialLaw.of([[0.5, 0.5], [0.5, 0.5]], states="ab"))


def test_a_tiny_move_keeps_its_target_possible() -> None:
    """1e-300 a step: the float vanishes in two steps, the support does not."""
    matrix = np.array([[1 - 1e-300, 1e-300, 0], [0, 1 - 1e-300, 1e-300], [0, 0, 1]])
    motion = motion_of(MarkovChain.of(matrix, initial=[1, 0, 0]))
    belief, support = motion.begin(), motion.initial > 0
    for t in (1, 2):
        belief, support = motion.predict(t, belief), motion.reach(t, support)
    assert belief[2] == 0
    assert support.all()


weights = st.lists(st.floats(-2000, 2000), min_size=4, max_size=4)


@given(
    logs=weights,
    shift=st.floats(-1e6, 1e6),
    prior=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
@settings(max_examples=150, deadline=None)
def test_posteriors_are_laws_and_ignore_constants(
    logs: list[float], shift: float, prior: list[float]
) -> None:
    before = np.array(prior)
    found = posterior(before, np.array(logs))
    if not (before > 0).any():
        assert not found.any()
        return
    assert found.sum() == pytest.approx(1)
    assert (found[before == 0] == 0).all()
    moved = posterior(before, np.array(logs) + shift)
    assert moved == pytest.approx(found, rel=1e-6, abs=1e-9)


def test_posteriors_survive_where_products_underflow() -> None:
    found = posterior(np.array([1e-300, 1e-310, 0.0]), np.array([-900.0, -890.0, 0.0]))
    ratio = np.exp(10.0) * 1e-10
    assert found[1] / found[0] == pytest.approx(ratio, rel=1e-6)
    assert found.sum() == pytest.approx(1)
    assert not posterior(np.array([0.0, 1.0]), np.array([0.0, -np.inf])).any()


def brute_round(chain: SparseChain, logs: np.ndarray) -> tuple[np.ndarray, float]:
    """Expected moves by adding up all paths, and the log-likelihood."""
    rows, size = chain.matrix().toarray(), chain.size
    moves, total = np.zeros((size, size)), 0.0
    for path in itertools.product(range(size), repeat=len(logs)):
        chance = chain.initial[path[0]] * np.exp(logs[0, path[0]])
        for t in range(1, len(path)):
            chance *= rows[path[t - 1], path[t]] * np.exp(logs[t, path[t]])
        total += chance
        for a, b in itertools.pairwise(path):
            moves[a, b] += chance
    return moves / total, float(np.log(total))


def test_baum_welch_is_expectation_and_maximisation_over_all_paths() -> None:
    source = np.random.default_rng(3)
    chain = SparseChain.of(
        [[0.5, 0.5, 0], [0.2, 0.3, 0.5], [0.4, 0, 0.6]], initial=[0.6, 0.4, 0], states="abc"
    )
    logs = [source.normal(size=(5, 3)), source.normal(size=(4, 3))]
    learned = baum_welch(chain, logs, rounds=1)
    parts = [brute_round(chain, rows) for rows in logs]
    moves = parts[0][0] + parts[1][0]
    expected = moves / moves.sum(axis=1, keepdims=True)
    assert learned.chain.matrix().toarray() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert learned.log_likelihoods[0] == pytest.approx(sum(part[1] for part in parts), rel=1e-9)
    longer = baum_welch(chain, logs, rounds=12)
    assert (np.diff(longer.log_likelihoods) >= -1e-9).all()
    smoothed = baum_welch(chain, logs, rounds=12, smoothing=50).chain
    assert smoothed.matrix().toarray() == pytest.approx(chain.matrix().toarray(), abs=0.05)


def test_a_chain_is_learned_from_what_a_stream_released() -> None:
    """Outputs of a walk that never stays, learned from a flat start: staying becomes rare."""
    states = tuple("abcd")
    truth = walk(states, stay=0.0)
    query = measurement(states, [[0, 0], [6, 0], [6, 6], [0, 6]], labels=("x", "y"))
    flat = MarkovChain.of(np.full((4, 4), 0.25), states=states, initial=np.full(4, 0.25))
    task = Task(query=query, secrets=PolicyGraph.complete(states), family=(flat,))
    plan = calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(6))
    stream, rng, outputs = LocationStream.begin(plan), SeededRng(5), []
    for x in truth.sample(150, SeededRng(6)):
        stream, release = stream.read(states[x], rng=rng)
        outputs.append(release.z)
    outputs[7] = None
    rows = output_log_likelihoods(plan, outputs)
    assert rows.shape == (150, 4)
    assert (rows[7] == 0).all()
    learned = baum_welch(flat, [rows], rounds=30).chain.matrix().toarray()
    assert np.diag(learned).max() < 0.12
    assert all(learned[x, (x + 1) % 4] > 0.45 for x in range(4))


def test_outputs_that_make_no_sense_are_refused() -> None:
    chain = walk(("a", "b", "c"))
    with pytest.raises(InputError, match="outputs is empty"):
        baum_welch(chain, [])
    with pytest.raises(InputError, match=r"shape \(2, 2\); it must be \(steps, 3\)"):
        baum_welch(chain, [np.zeros((2, 2))])
    with pytest.raises(InputError, match="no state can explain"):
        baum_welch(chain, [np.full((2, 3), -np.inf)])
    certain = MarkovChain.of(np.eye(3), states="abc", initial=[1, 0, 0])
    impossible = np.array([[-np.inf, 0, 0], [0.0, 0, 0]])
    with pytest.raises(InputError, match="step 1 of a sequence is impossible"):
        baum_welch(certain, [impossible])
    steps = MarkovChain.of([np.eye(2)] * 2, states="ab", initial=[1, 0], length=3)
    with pytest.raises(InputError, match="one matrix per step"):
        baum_welch(steps, [np.zeros((2, 2))])
