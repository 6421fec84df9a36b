"""Audits of location plans: one step against its outputs, whole streams against all paths."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal import audit
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.audit import sequence_leakage
from shoal.places.machine import LocationMachine
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.stream import LocationStream, output_log_likelihoods
from tests.contract.tasks import second_order
from tests.locations import running_policy, running_query, running_task, town_task, walk

ROWS = ("location-knorm", "location-laplace", "location-staircase", "location-graph-exponential")


def made(row: str, task: Task, epsilon: str = "1") -> Plan:
    return calibrate_and_check(MECHANISMS[row], task, Fraction(epsilon))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("task", [running_task(), town_task(3, 3)], ids=["running", "town"])
def test_the_audit_certifies_every_row(row: str, task: Task) -> None:
    found = audit(made(row, task, "3/2"))
    assert found.verdict == "kept"
    assert found.lower <= found.upper <= 1.5 * (1 + 1e-9)
    assert found.lower >= 0.7
    assert found.witness is not None
    assert "current state" in found.describe()
    if row in ("location-knorm", "location-laplace"):
        assert found.exact


def test_the_audit_sees_noise_that_is_too_small() -> None:
    plan = made("location-knorm", running_task())
    assert isinstance(plan.body, LocationMachine)
    louder = replace(plan, body=replace(plan.body, epsilon=Fraction(3, 2)))
    found = audit(louder)
    assert found.verdict == "VIOLATED"
    assert found.lower == pytest.approx(1.5)
    smaller = PolicyGraph.categories(running_query().states, [("s2", "s3")])
    cheated = replace(plan, body=replace(plan.body, places=smaller))
    assert audit(cheated).verdict == "VIOLATED"  # judged by the task's policy, not its own
    other = replace(plan, body=replace(plan.body, chain=walk(stay=0.2)))
    assert audit(other).upper == math.inf


def chain(size: int, **rest: Any) -> MarkovChain:
    return walk(tuple("abcd"[:size]), stay=0.5, **rest)


def posterior_odds(model: MarkovChain, logs: Any, t: int) -> Any:
    """log P(all outputs | X_t = x), by adding up all paths."""
    size, steps = model.size, len(logs)
    joint, mass = np.zeros(size), np.zeros(size)
    for path in itertools.product(range(size), repeat=steps):
        chance = float(model.initial[path[0]])
        for a, b in itertools.pairwise(path):
            chance *= float(model.transition[a, b])
        mass[path[t]] += chance
        joint[path[t]] += chance * math.exp(sum(logs[k][path[k]] for k in range(steps)))
    return np.log(joint / mass)


@pytest.mark.parametrize("row", ["location-knorm", "location-staircase"])
@pytest.mark.parametrize("initial", [None, [0.7, 0.2, 0.1]])
def test_whole_streams_tell_no_more_than_the_bound(row: str, initial: Any) -> None:
    """Every combination of far and near outputs of four steps, against all paths."""
    model = chain(3) if initial is None else chain(3, initial=initial)
    query = measurement("abc", [[0], [1], [2]], labels=("x",))
    task = Task(query=query, secrets=PolicyGraph.within(query, 1), family=(model,))
    plan = made(row, task, "1/2")
    worst_joined, worst_any = np.zeros(4), np.zeros(4)
    bound = None
    for outputs in itertools.product([(-9,), (1,), (9,)], repeat=4):
        found = sequence_leakage(plan, outputs)
        bound = bound or found
        assert found.joined == bound.joined  # the support is full, so constraints never change
        logs = output_log_likelihoods(plan, outputs)
        for t in range(4):
            told = posterior_odds(model, logs, t)
            gaps = np.abs(told[:, None] - told[None, :])
            assert found.learned_any_two[t] == pytest.approx(gaps.max(), rel=1e-9, abs=1e-12)
            joined = max(gaps[0, 1], gaps[1, 2])
            assert found.learned_joined[t] == pytest.approx(joined, rel=1e-9, abs=1e-12)
            worst_joined[t] = max(worst_joined[t], joined)
            worst_any[t] = max(worst_any[t], gaps.max())
    assert bound is not None
    assert (worst_joined <= np.array(bound.joined) * (1 + 1e-9)).all()
    assert (worst_any <= np.array(bound.any_two) * (1 + 1e-9)).all()
    assert (worst_any > 0.8 * np.array(bound.any_two)).any()  # and the bound is not idle
    assert all(own == pytest.approx(0.5) for own in bound.own)
    assert max(bound.joined) > 0.5  # other outputs tell about a position too
    assert "over 4 steps" in bound.describe()


def test_pairwise_bounds_are_no_looser_than_the_live_ones() -> None:
    plan = made("location-knorm", running_task(), "1/2")
    stream, rng, outputs = LocationStream.begin(plan), SeededRng(2), []
    for x in walk().sample(6, SeededRng(1)):
        stream, release = stream.read(f"s{x + 1}", rng=rng)
        outputs.append(release.z)
        found = sequence_leakage(plan, outputs)
        assert found.any_two[-1] <= release.loss_here * (1 + 1e-9)
        assert max(found.any_two) <= release.loss_path * (1 + 1e-9)
        assert all(
            a <= b * (1 + 1e-9) for a, b in zip(found.learned_joined, found.joined, strict=True)
        )


def test_skipped_steps_and_known_starts_are_followed_too() -> None:
    plan = made("location-knorm", running_task())
    quiet = sequence_leakage(plan, [None, (1, 1), None], start="s1")
    assert quiet.own[0] == quiet.own[2] == 0
    assert quiet.joined[0] > 0  # the later output tells about the skipped step
    assert sequence_leakage(plan, [None, None]).any_two == (0, 0)


def test_streams_that_cannot_be_followed_are_refused() -> None:
    plan = made("location-knorm", running_task())
    with pytest.raises(InputError, match="outputs is empty"):
        sequence_leakage(plan, [])
    query = measurement("ab", [[0], [1]], labels=("x",))
    task = Task(query=query, secrets=PolicyGraph.complete("ab"), family=(second_order(None),))
    with pytest.raises(Refused, match="order 1"):
        sequence_leakage(made("location-knorm", task), [(0,)])
    certain = Task(
        query=running_query(),
        secrets=running_policy(),
        family=(walk(initial=[1, 0, 0, 0, 0, 0]),),
    )
    silent = sequence_leakage(made("location-knorm", certain), [None, (1, 1)])
    assert silent.any_two[0] == 0
