"""MaskIt's cache and DPHMM's Case I: both unsound as printed, both found out by their posteriors.

ERRATA 003 (Lemma 3) and 000 (Section 11.6, Case I).
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from shoal.attacks.beliefs import attack, suppressed
from shoal.audit.exact import audit
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.contexts.machine import VectorMask
from shoal.contexts.search.beliefs import encoded
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.codec import Floats
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, verify_promise
from tests.errata.printed import cached_check

STATES = ("s", "x")
ONE_STEP = MarkovChain.of([[0.5, 0.5], [0.5, 0.5]], states=STATES, initial=[0.5, 0.5], length=1)
DELTA = 0.25
PLACES = {1: (1, 0), 2: (2, 1), 3: (3, 0), 4: (0, 1), 5: (4, 2), 6: (1, 2)}
EDGES = ((2, 3), (4, 5), (4, 6), (5, 6))


def belief(vector: Floats, output: str | None) -> float:
    """The adversary's belief in s after seeing one output of a suppression vector (p_s, p_x)."""
    chances = dict(zip(STATES, vector.tolist(), strict=True))
    seen = suppressed((output,), STATES, chances)
    if not np.isfinite(seen.log_likelihood).any():
        return 0.5  # this output never occurs
    return float(attack(ONE_STEP, [seen], 1).after[0, 0])


def is_private(vector: Floats, output: object) -> bool:
    assert output is None or isinstance(output, str)
    return belief(vector, output) - 0.5 <= DELTA + 1e-12


def test_the_cache_of_lemma_3_passes_a_breach() -> None:
    outputs: tuple[str | None, ...] = (None, "x", "s")
    low, wanted = np.array([0.2, 0.2]), np.array([1.0, 0.2])
    assert [is_private(low, output) for output in outputs] == [True, True, False]
    assert cached_check(is_private, outputs, [low], wanted)
    breach = belief(wanted, None)
    print(f"Lemma 3: delta {DELTA}, belief 0.5 -> {breach:.4f}")
    assert breach == pytest.approx(5 / 6)
    assert breach - 0.5 > DELTA
    assert not all(is_private(wanted, output) for output in outputs)


def test_the_auditor_finds_the_breach_the_cache_passed() -> None:
    """The same vector as a plan: its promise is violated, and Shoal's own check says so too."""
    day = DayChain.of([], initial=[0.5, 0.5], states=STATES)
    task = Task(query=CurrentState(STATES), secrets=SensitiveContexts.of("s"), family=(day,))
    plan = MECHANISMS["mask-probabilistic"].calibrate(task, Fraction(1, 4))
    body = plan.body
    assert isinstance(body, VectorMask)
    order = [STATES.index(name) for name in body.states]
    printed = replace(body, codes=encoded(np.array([[1.0, 0.2]])[:, order]))
    found = audit(replace(plan, body=printed))
    assert found.violated
    assert found.lower == pytest.approx(5 / 6 - 1 / 2, abs=1e-4)
    assert verify_promise(replace(plan, body=printed)) >= found.lower
    assert not audit(plan).violated


def test_a_vector_that_is_private_passes_both_checks() -> None:
    """A control: Example 1's p = (1, 1/3) keeps 1/4."""
    vector = np.array([1.0, 1 / 3])
    assert all(is_private(vector, output) for output in (None, "x", "s"))


def test_an_adversary_who_knows_more_strips_a_state_of_its_protector() -> None:
    """Case I claims that the promise survives C^A = {s3, s5}; their norm is 2, not at most 1."""
    edges = np.array([np.subtract(PLACES[a], PLACES[b]) for a, b in EDGES], dtype=np.float64)
    apart = np.subtract(PLACES[5], PLACES[3]).astype(np.float64)
    norm = hull_norm(apart, edges)
    epsilon = 1.0
    loss = worst_log_ratio(np.array(PLACES[5]), np.array(PLACES[3]), edges, epsilon)
    print(f"Case I: claimed {epsilon}, measured {loss:.4f}")
    assert norm == pytest.approx(2.0)
    assert loss == pytest.approx(2.0 * epsilon)
    assert all(hull_norm(edge, edges) <= 1 + 1e-9 for edge in edges)


def hull_norm(vector: Floats, edges: Floats) -> float:
    """The norm whose unit ball is the convex hull of ±edges: least Σ|t| with Σ t_i edge_i = v."""
    from scipy.optimize import linprog

    both = np.vstack([edges, -edges])
    found = linprog(np.ones(len(both)), A_eq=both.T, b_eq=vector, bounds=(0, None))
    assert found.success
    return float(found.fun)


def worst_log_ratio(one: Floats, two: Floats, edges: Floats, epsilon: float) -> float:
    """sup over z of ε(‖z - two‖ - ‖z - one‖) over a ring of far outputs and the states between."""
    angles = np.linspace(0, 2 * math.pi, 73)
    outputs = [one, two, *(50 * np.array([math.cos(a), math.sin(a)]) for a in angles)]
    return max(epsilon * (hull_norm(z - two, edges) - hull_norm(z - one, edges)) for z in outputs)
