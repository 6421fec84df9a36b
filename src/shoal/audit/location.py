"""The loss of a location plan measured on outputs: joined states, step by step."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.audit.result import Audit, Witness
from shoal.core.plan import Plan
from shoal.core.value import Floats, Ints
from shoal.mechanisms import loss_as_drawn
from shoal.mechanisms.location_machine import LocationMachine
from shoal.mechanisms.location_stage import Places, Stage, policy_of
from shoal.mechanisms.location_task import followed, machine_of, parts, reference_stage
from shoal.models.filter import posterior
from shoal.secrets.location import LocationSet

MOST_PAIRS = 400  # edges of distinct shifts that are tried, the longest first
REACH = 3  # outputs up to this many shifts beyond an answer are tried

ASSUMED = (
    "positions follow the chain, and the adversary knows it, the policy and the noise",
    "one output at a time, given the outputs before it",
)
NOT_CHECKED = (
    "what other outputs tell about the same position: shoal.audit.location_temporal, or about_now "
    "and about_all of the stream",
    "states that are not joined: see the certificate's eta",
    "the code that draws the noise (a black-box audit draws from it)",
)


class Told(NamedTuple):
    """The output that tells two joined states apart most: log-ratio, states, output, stage."""

    value: float
    first: int
    second: int
    output: tuple[int, ...]
    stage: Stage


def location_audit(plan: Plan, curve: bool) -> Audit:
    """The largest log-ratio between joined states over outputs, and whether the claim is kept.

    Lower end: outputs at and beyond the answers of the joined states, evaluated by the emission
    law itself. Upper end: every edge of the task's policy against the noise as it is. The two
    meet for K-norm, Laplace and tight graph laws.
    """
    machine = machine_of(plan)
    reference, prior = reference_stage(machine)
    stages, eta = followed(machine)
    stages.append(reference)
    places = parts(plan.task)[1]
    found = max((_told(machine, places, stage) for stage in stages), key=lambda told: told.value)
    lower = found.value
    upper = max(loss_as_drawn(plan), lower)  # an output seen overrules what the edges say
    promised = float(plan.guarantee.amount)
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe(),
        protected=plan.task.secrets.describe(),
        notion=plan.guarantee.notion,
        promised=promised,
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=math.inf if eta is None else eta,
        witness=_witness(machine, found, prior) if found.value > 0 else None,
        assumptions=ASSUMED,
        not_checked=NOT_CHECKED,
    )


def _told(machine: LocationMachine, places: Places, stage: Stage) -> Told:
    """The largest log-ratio seen over the longest edges of a stage."""
    points = machine.query.points[stage.answering]
    best = Told(0.0, 0, 0, tuple(points[0].tolist()), stage)
    if stage.count < 2:
        return best
    for first, second in _edges(points, places, stage):
        move = points[first] - points[second]
        for far in range(REACH):
            for output in (points[first] + far * move, points[second] - far * move):
                z = tuple(int(value) for value in output)
                logs = stage.law.log_likelihood(z)
                value = _gap(logs, first, second)
                if value > best.value:
                    order = (first, second) if logs[first] >= logs[second] else (second, first)
                    best = Told(value, *order, z, stage)
    return best


def _edges(points: Ints, places: Places, stage: Stage) -> list[tuple[int, int]]:
    """Edges of distinct shifts that must hold, the longest in the noise's own terms first.

    `points` are the answers of the states, or of those that answer for them.
    """
    everywhere = isinstance(places, LocationSet) and places.everywhere
    covered = np.ones_like(stage.members) if everywhere else stage.members
    pairs = np.concatenate([policy_of(places).edges_among(covered), stage.protected.added])
    moves: Ints = points[pairs[:, 0]] - points[pairs[:, 1]]
    _, first = np.unique(moves, axis=0, return_index=True)
    lengths = stage.protected.body.norm_upper(moves[first])
    chosen = first[np.argsort(-lengths, kind="stable")[:MOST_PAIRS]]
    return [(int(a), int(b)) for a, b in pairs[chosen]]


def _gap(logs: Floats, first: int, second: int) -> float:
    if logs[first] == logs[second] == -math.inf:
        return 0.0
    return float(abs(logs[first] - logs[second]))


def _witness(machine: LocationMachine, told: Told, prior: Floats) -> Witness:
    """The beliefs in the two states before and after the output, under the chain's own law."""
    even = np.zeros(len(prior))
    even[[told.first, told.second]] = 0.5
    pair = [told.first, told.second]
    before = prior if (prior[pair] > 0).all() else even
    after = posterior(before, told.stage.law.log_likelihood(told.output))
    names, step = machine.query.states, float(machine.query.step)
    return Witness(
        model=0,
        law=machine.chain.describe(),
        subject="the current state",
        facts=(repr(names[told.first]), repr(names[told.second])),
        labels=machine.query.labels,
        output=tuple(step * value for value in told.output),
        unit=machine.query.unit,
        before=(float(before[told.first]), float(before[told.second])),
        after=(float(after[told.first]), float(after[told.second])),
        log_ratio=told.value,
    )
