"""States drawn by their distance in the policy graph. Proof: location_graph_exponential.md."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.mechanisms import location_task
from shoal.mechanisms.row import Mechanism
from shoal.secrets.location import LocationSet

NAME = "location-graph-exponential"
LARGEST = 1024  # states: each new constraint asks for all distances in the graph
NOISE = "graph-exponential"
REASON = (
    "a state drawn by its distance in the repaired policy graph, with tight constants where they "
    "are not negative; states that are not joined are protected less than by K-norm noise, and "
    "separate parts of the graph not at all"
)


def refuse(task: Task) -> str | None:
    """As the other rows, and not on large maps or with images of outside edges."""
    reason = location_task.refuse(task)
    if reason is not None:
        return reason
    size = len(task.query.states)
    if size > LARGEST:
        return f"the model has {size} states; distances in the graph are followed up to {LARGEST}"
    if isinstance(task.secrets, LocationSet) and task.secrets.everywhere:
        return "the secrets cover edges outside the location set, which distances inside it do not"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """q(z | s) ∝ w_z exp(-r d(s, z)), d counting edges of the policy among the members.

    w = Φ⁻¹1 with Φ = exp(-ε d) gives ε without the usual factor 2 when no weight is negative;
    otherwise w = 1 and r is the largest rate that keeps every edge within ε.
    """
    try:
        return location_task.location_plan(task, NAME, epsilon, NOISE, REASON)
    except InputError as error:
        raise Refused(f"{NAME} does not apply: {error}") from None


ROW = Mechanism(
    NAME,
    refuse,
    calibrate,
    partial(location_task.loss, noise=NOISE),
    location_task.promise,
    location_task.rules,
)
