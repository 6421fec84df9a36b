"""The adaptive check: suppression that depends on the last release. Proof: mask_adaptive.md."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from shoal.additive.plans import Mechanism
from shoal.contexts.checks import (
    hybrid as mask_hybrid,
    search_budget,
    simulatable,
    task as mask_task,
)
from shoal.contexts.checks.probabilistic import vector_of
from shoal.contexts.machine import SegmentMask
from shoal.contexts.search.adaptive import Origin, occurring, search
from shoal.contexts.search.beliefs import Codes, Day
from shoal.contexts.search.families import family_occurring, family_search
from shoal.contexts.search.pacing import Effort
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.core.task import Task

NAME = "mask-adaptive"
VECTOR = 0.15  # of its time for the probabilities of the hybrid check
REASON = (
    "given a release the future is independent of the past, so each stretch between releases "
    "was made private on its own (mask_adaptive.md)"
)


def calibrate(task: Task, delta: Fraction) -> Plan:
    """The best policy found for each stretch, backwards in time; never below the hybrid check.

    When a time limit ends the search, the hybrid plan takes its place. The search for a family
    looks at the mean of its members, so the hybrid may be better there too.
    """
    effort = search_budget.turn_of(NAME)
    days = mask_task.days_of(task, delta)
    baseline = vector_of(task, delta, days, effort.part(VECTOR))
    if effort.clock is None and len(days) == 1:  # the hybrid was a candidate
        return _adaptive(task, delta, days, baseline, effort)
    hybrid = mask_hybrid.of_vector(task, delta, days, baseline)
    return mask_hybrid.or_more(hybrid, lambda: _adaptive(task, delta, days, baseline, effort), NAME)


def _adaptive(
    task: Task, delta: Fraction, days: Sequence[Day], baseline: Floats, effort: Effort
) -> Plan:
    if len(days) == 1:
        found = occurring(days[0], base_of(task, delta, days[0], baseline, effort))
    else:
        table = simulatable.table_of(task, delta, days)
        policies = family_search(days, float(delta), baseline=baseline, table=table, work=effort)
        found = family_occurring(days, policies)
    body = SegmentMask.of(mask_task.contexts_of(task), days[0].slots, found.hidden)
    return mask_task.mask_plan(task, NAME, delta, body, found.expected, REASON)


def base_of(
    task: Task, delta: Fraction, day: Day, baseline: Floats, effort: Effort
) -> dict[Origin, Codes]:
    """A table after each release, found once for all checks inside one time limit."""
    return search_budget.shared(
        (task, delta, "segments"),
        lambda: search(day, float(delta), baseline=baseline, work=effort),
    )


ROW = Mechanism(
    NAME, mask_task.refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules
)
