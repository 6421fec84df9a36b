"""Every location row audited on random point sets, against all outputs of a wide box.

The promise is judged from the policy's own edges: the states still possible come from boolean
matrix products, and norms from linear programs, none of it by the code under audit.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog

from shoal.audit.exact import audit
from shoal.chains.model import MarkovChain
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.machine import machine_of
from shoal.places.policy import REPAIRS, LocationSet, PolicyGraph
from shoal.places.queries import measurement
from shoal.places.step import StepNoise
from tests.oracle.audit_tasks import report

ROWS = sorted(name for name in MECHANISMS if name.startswith("location-"))
EXACT = ("location-knorm", "location-laplace")  # their loss is a norm, reached at an answer
STEPS = 3
ROUNDING = 1e-9


class Drawn(NamedTuple):
    """A random task, its budget, and the edges of its policy as they were drawn."""

    task: Task
    epsilon: Fraction
    edges: list[tuple[int, int]]


def tasks(seed: int) -> Iterator[Drawn]:
    """Endless random tasks: 2 to 5 places on a line or in the plane, some on top of each other."""
    rng = np.random.default_rng(seed)
    while True:
        size, width = int(rng.integers(2, 6)), int(rng.integers(1, 3))
        points = rng.integers(0, 5, (size, width))
        if rng.random() < 0.2:
            points = np.outer(points[:, 0], np.arange(1, width + 1))  # all of them on one line
        names = "abcde"[:size]
        query = measurement(names, points.tolist(), step=1)
        share = rng.choice([0.3, 0.6, 1.0])
        edges = [e for e in itertools.combinations(range(size), 2) if rng.random() < share]
        policy = PolicyGraph.of(
            names, [(names[a], names[b]) for a, b in edges], repair=REPAIRS[rng.integers(3)]
        )
        secrets: PolicyGraph | LocationSet = policy
        if rng.random() < 0.4:
            delta = Fraction(int(rng.integers(1, 9)), 20)
            secrets = LocationSet(policy=policy, delta=delta, everywhere=rng.random() < 0.5)
        task = Task(query=query, secrets=secrets, family=(_chain(rng, tuple(names)),))
        yield Drawn(task, Fraction(int(rng.integers(4, 60)), 20), edges)


def _chain(rng: np.random.Generator, states: tuple[str, ...]) -> MarkovChain:
    """Some moves impossible, some starts certain, some chains with a matrix for each step."""
    size = len(states)
    shape = (STEPS, size, size) if rng.random() < 0.3 else (size, size)
    rows = rng.dirichlet(np.ones(size), shape[:-1])
    rows = np.where(rng.random(shape) < 0.3, 0.0, rows) + 1e-3 * np.eye(size)
    start = np.eye(size)[0] if rng.random() < 0.3 else rng.dirichlet(np.ones(size))
    length = STEPS + 1 if len(shape) == 3 else None
    matrix = rows / rows.sum(axis=-1, keepdims=True)
    return MarkovChain.of(matrix, initial=start, states=states, length=length)


def plans(row: str, wanted: int, seed: int) -> list[tuple[Plan, Drawn]]:
    """The row's plans for the first `wanted` random tasks it accepts."""
    found: list[tuple[Plan, Drawn]] = []
    for tried, drawn in enumerate(tasks(seed)):
        if len(found) == wanted:
            return found
        assert tried < 20 * wanted, f"{row} accepted {len(found)} of {tried} tasks"
        try:
            found.append((calibrate_and_check(MECHANISMS[row], drawn.task, drawn.epsilon), drawn))
        except Refused:
            continue
    return found


def supports(chain: Any, steps: int) -> list[np.ndarray]:
    """Which states are possible at each step when nothing was seen."""
    found = [chain.initial > 0]
    for step in range(steps - 1):
        found.append(found[-1].astype(int) @ (chain.matrix(step) > 0).astype(int) > 0)
    return found


def box(points: np.ndarray) -> list[tuple[int, ...]]:
    """Every lattice point within three times the spread of the answers."""
    reach = 3 * int(np.ptp(points, axis=0).max(initial=1)) + 1
    low, high = points.min(axis=0) - reach, points.max(axis=0) + reach
    spans = (range(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True))
    return list(itertools.product(*spans))


def gaps(stage: StepNoise, outputs: list[tuple[int, ...]]) -> np.ndarray:
    """The largest log-ratio over all outputs of the box, for every two states."""
    logs = np.array([stage.law.log_likelihood(z) for z in outputs])
    size = logs.shape[1]
    worst = np.zeros((size, size))
    for a, b in itertools.combinations(range(size), 2):
        either = np.isfinite(logs[:, a]) | np.isfinite(logs[:, b])
        worst[a, b] = worst[b, a] = np.abs(logs[either, a] - logs[either, b]).max(initial=0.0)
    return worst


def loneliest(apart: np.ndarray, members: np.ndarray) -> float:
    """How far the member that is least like any other is from the one most like it."""
    inside = np.flatnonzero(members)
    among = apart[np.ix_(inside, inside)] + np.diag(np.full(len(inside), math.inf))
    return float(among.min(axis=1).max())


def must_hold(drawn: Drawn, members: np.ndarray, stage: StepNoise) -> list[tuple[int, int]]:
    """The edges drawn that the promise is about at a stage, and those that the repair added."""
    secrets = drawn.task.secrets
    everywhere = isinstance(secrets, LocationSet) and secrets.everywhere
    kept = [(a, b) for a, b in drawn.edges if everywhere or (members[a] and members[b])]
    return kept + [(int(a), int(b)) for a, b in stage.protected.added]


def norm(shift: np.ndarray, corners: np.ndarray) -> float:
    """The gauge of conv(corners) at `shift`: the least Σλ with Σ λ corner = shift, λ ≥ 0."""
    found = linprog(np.ones(len(corners)), A_eq=corners.T, b_eq=shift)
    return float(found.fun) if found.status == 0 else math.inf


def by_norms(drawn: Drawn, stage: StepNoise, edges: list[tuple[int, int]], row: str) -> float:
    """ε times the longest edge, in the norm of the hull (or cross-polytope) of all edges."""
    images = drawn.task.query.points[stage.answering]  # type: ignore[attr-defined]
    shifts = np.array([images[a] - images[b] for a, b in edges]).reshape(-1, images.shape[1])
    if not shifts.any():
        return 0.0
    corners = np.concatenate([shifts, -shifts])
    if row == "location-laplace":
        radius = int(np.abs(shifts).sum(axis=1).max())
        corners = radius * np.concatenate([np.eye(shifts.shape[1]), -np.eye(shifts.shape[1])])
    return float(drawn.epsilon) * max(norm(shift, corners) for shift in shifts)


def stages_met(plan: Plan, drawn: Drawn, seed: int) -> Iterator[StepNoise]:
    """The stages of a short stream: of the supports, or of what its outputs made likely."""
    machine, rng = machine_of(plan), SeededRng(seed)
    state = machine.init()
    chain = drawn.task.family[0]
    fresh = supports(chain, STEPS)
    for step in range(STEPS):
        stage = machine.prior(state).noise
        if isinstance(drawn.task.secrets, PolicyGraph) and not stage.tells:
            assert stage.members.tolist() == fresh[step].tolist()
        yield stage
        here = drawn.task.query.states[int(np.flatnonzero(stage.members)[0])]
        state, _ = machine.step(state, here, rng)
        if stage.tells:
            return  # later supports depend on the output


def check(row: str, wanted: int, seed: int) -> dict[str, float]:
    """Audits `wanted` plans of a row, and every stage of a short stream under each."""
    shares, exact = [], 0
    for number, (plan, drawn) in enumerate(plans(row, wanted, seed)):
        found, promised = audit(plan), float(drawn.epsilon)
        where = f"{row}, task {number} of seed {seed}"
        assert found.holds, where
        assert found.lower <= found.upper + ROUNDING, where
        outputs = box(drawn.task.query.points)  # type: ignore[attr-defined]
        for stage in stages_met(plan, drawn, number):
            edges = must_hold(drawn, stage.members, stage)
            if stage.count < 2:
                continue  # nothing is released
            apart = gaps(stage, outputs)
            truth = max((float(apart[edge]) for edge in edges), default=0.0)
            assert truth <= promised * (1 + ROUNDING), where
            assert loneliest(apart, stage.members) <= promised * (1 + ROUNDING), where
            if isinstance(drawn.task.secrets, PolicyGraph):  # these stages are the audit's own
                assert truth <= found.upper * (1 + ROUNDING), where
            if row in EXACT:
                assert truth == pytest.approx(by_norms(drawn, stage, edges, row), abs=1e-7), where
        exact += found.exact
        shares.append(found.lower / promised)
    return {"mean": sum(shares) / len(shares), "max": max(shares), "exact": exact / len(shares)}


@pytest.mark.parametrize("row", ROWS)
def test_noise_for_a_larger_budget_is_found_out(row: str) -> None:
    """Noise for 1.01 ε under a claim of ε: broken wherever the promise was used up."""
    caught = 0
    for plan, drawn in plans(row, 10, seed=42):
        machine = machine_of(plan)
        less = replace(machine, epsilon=drawn.epsilon * Fraction(101, 100))
        found = audit(replace(plan, body=less))
        used_up = audit(plan).lower > 0.995 * float(drawn.epsilon)
        assert found.violated or not used_up
        caught += found.violated
    assert caught >= 6


@pytest.mark.parametrize("row", ROWS)
def test_no_random_audit_breaks_a_promise(row: str) -> None:
    figures = check(row, 30, seed=40)
    report(row, 30, figures)
    assert figures["max"] > 0.9  # a bound that is never near would hide a mistake
    if row in EXACT:
        assert figures["exact"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_no_random_audit_breaks_a_promise_in_many(row: str) -> None:
    figures = check(row, 200, seed=41)
    report(row, 200, figures)
    assert 0.99 < figures["max"] <= 1 + ROUNDING
