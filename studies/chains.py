"""What the experiments on chains share: one row per mechanism, in expected l1 error."""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction

from shoal.chains.model import MarkovChain
from shoal.chains.quilt.scale import bound_scale, chain_constants
from shoal.core.errors import Refused
from shoal.core.plan import Additive, Plan
from shoal.core.task import EachEntry, Model, Task
from shoal.mechanisms import quilt
from shoal.mechanisms.queries import LinearQuery, count
from shoal.mechanisms.table import calibrate_and_check, row_named


def plan_or_none(name: str, task: Task, epsilon: Fraction) -> Plan | None:
    """The plan of a mechanism, or None when it does not apply."""
    try:
        return calibrate_and_check(row_named(name), task, epsilon)
    except Refused:
        return None


def unit_scale(plan: Plan | None) -> float | None:
    """The scale a plan would need for a 1-Lipschitz query: 1 / eta."""
    if plan is None:
        return None
    assert isinstance(plan.body, Additive)
    return float(1 / plan.body.eta)


def entry_task(query: LinearQuery, *family: Model) -> Task:
    """The query, each entry secret, and the family."""
    return Task(query=query, secrets=EachEntry(), family=family)


def as_in_the_paper(chain: MarkovChain, epsilon: Fraction) -> Plan | None:
    """MQMExact as the paper runs it: end-points no farther than MQMApprox's optimal quilt.

    For a count, which is 1-Lipschitz. None when MQMApprox does not apply.
    """
    constants = chain_constants(chain.transition)
    if constants.refusal is not None:
        return None
    found = bound_scale(constants.pi_min, constants.gap, chain.length, float(epsilon))
    reach = max(lag for lag in (found.left, found.right, 1) if lag is not None)
    task = entry_task(count(chain.states, chain.states[0]), chain)
    return quilt.calibrate(task, epsilon, reach)


def timed(work: Callable[[], object]) -> float:
    """Seconds one call takes, the quickest of three."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best
