"""What the rows for tied records share: the pairwise laws of a family, what a record adds."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from shoal.core.guarantee import Guarantee
from shoal.core.task import Model, Query, Task
from shoal.core.value import Floats
from shoal.core.wide import TooUnlikely
from shoal.loss.dependence import Contributions, mean_sensitivities
from shoal.mechanisms.additive import not_for_numbers, pufferfish
from shoal.models.dependence import Dependence
from shoal.models.dependence_field import PairwiseField
from shoal.models.dependence_sources import pairs_of_table
from shoal.models.table import JointTable
from shoal.queries.linear import LinearQuery
from shoal.secrets.entries import EachEntry


def pairwise(model: Model) -> Dependence | None:
    """The pairwise laws a model gives; None when it gives none."""
    if isinstance(model, Dependence):
        return model
    if isinstance(model, JointTable) and model.states is not None:
        return pairs_of_table(model)
    if isinstance(model, PairwiseField) and model.small() and model.states is not None:
        try:
            return pairs_of_table(model.table(), model.domain)
        except TooUnlikely:
            return None
    return None


def pairs_of(task: Task) -> tuple[Dependence, ...]:
    """The pairwise laws of every member of the family; for tasks that `not_tied` lets through."""
    found = tuple(pairwise(model) for model in task.family)
    if any(model is None for model in found):
        raise ValueError("calibrate called on a task that `refuse` refuses")
    return tuple(model for model in found if model is not None)


def not_tied(task: Task) -> str | None:
    """Why the rows for tied records do not apply: other secrets, or a model without pairs."""
    reason = not_for_numbers(task)
    if reason is not None:
        return reason
    if not isinstance(task.secrets, EachEntry):
        return "ties are between single records; named pairs of secrets need another mechanism"
    for model in task.family:
        if pairwise(model) is None:
            return f"dependence needs pairwise laws of records, not the model {model.describe()}"
    return None


def not_additive(task: Task) -> str | None:
    """`not_tied`, or that the query is not a sum of one contribution per record."""
    reason = not_tied(task)
    if reason is not None:
        return reason
    if any(contributions(task.query, model) is None for model in pairs_of(task)):
        return (
            "coefficients for a query that is not a sum of one contribution per record are not "
            "sound (a threshold query breaks them); use group"
        )
    return None


def about_records(task: Task, epsilon: Fraction) -> Guarantee:
    """The promise of a row that rests on laws of records: about values, or about their cells.

    A law of cells says nothing of where a value lies in its cell, so nothing is promised of it,
    unless the domain declares that the place tells nothing (`own_places`).
    """
    promise = pufferfish(task, epsilon)
    domains = [m.domain for m in task.family if isinstance(m, Dependence | PairwiseField)]
    unknown = [domain.width for domain in domains if not domain.known_inside]
    if not unknown:
        return promise
    cells = f"which cell, up to {max(unknown):.3g} wide, {task.secrets.subject} lies in"
    return replace(promise, over=f"{cells}, not where in it, under every model of the family")


def contributions(query: Query, model: Dependence | PairwiseField) -> Contributions | None:
    """What one record adds to the answer, by its value; None when the query is no such sum.

    A linear query has its weights. Any other query may say it itself by a method
    `contributions(domain)` that gives (low, high), two (values, labels) arrays of bounds in the
    query's own unit, for answers that are a sum of one contribution per record, however snapped.
    Rounds outwards.
    """
    own = float_up(query.lipschitz)
    if isinstance(query, LinearQuery):
        if model.domain.states != query.states:
            return None
        exact = [[Fraction(w) for w in row] for row in query.weights]
        low = np.array([[_down(w) for w in row] for row in exact])
        high = np.array([[float_up(w) for w in row] for row in exact])
        return Contributions(low, high, own)
    told = getattr(query, "contributions", None)
    if told is None:
        return None
    low, high = (np.asarray(side, dtype=np.float64) for side in told(model.domain))
    return Contributions(low, high, max(own, float(_most(low, high))))


@lru_cache(maxsize=8)
def sensitivities(query: Query, model: Dependence) -> Floats | None:
    """`mean_sensitivities` of a query, remembered; None when it is no sum over records."""
    adds = contributions(query, model)
    return None if adds is None else mean_sensitivities(model, adds)


def needed(task: Task) -> list[tuple[Dependence, Contributions]]:
    """Each member's pairs, with what its records add; for tasks `not_additive` lets through."""
    listed = []
    for model in pairs_of(task):
        adds = contributions(task.query, model)
        if adds is None:
            raise ValueError("calibrate called on a task that `refuse` refuses")
        listed.append((model, adds))
    return listed


def float_up(value: Fraction) -> float:
    """The least double that is not below `value`."""
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _down(value: Fraction) -> float:
    return -float_up(-value)


def _most(low: Floats, high: Floats) -> float:
    return float(Contributions(low, high, 0.0).moves().max())
