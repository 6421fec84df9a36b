"""Other libraries' mechanisms, lifted: `shoal.lift` and what it needs to know about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from shoal.additive import lift as rows
from shoal.additive.plans import Measured, float_below, task_guarantee
from shoal.additive.queries import ExternalQuery
from shoal.core.errors import InputError, Refused
from shoal.core.guarantee import AsEntryDP
from shoal.core.numbers import Number, positive
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, Task, as_family

ROUNDING = 1e-9  # the factory is asked for this much less, so that its own rounding fits

# how far apart two data sets are that differ in one entry, by the input metric's name
ENTRY_DISTANCE = {
    "SymmetricDistance": 2,  # one row removed, one added
    "InsertDeleteDistance": 2,
    "HammingDistance": 1,
    "ChangeOneDistance": 1,
}


def lift(
    factory: Callable[[float], Callable[[list[Any]], Any]],
    family: Model | Sequence[Model],
    *,
    epsilon: Number,
    name: str = "external mechanism",
) -> Plan:
    """A plan around `factory(eta)` at the largest eta whose lift is at most `epsilon`.

    `factory` makes a mechanism that is eta-DP for one entry, in pure DP and on every sequence; it
    is called once. An OpenDP measurement is checked to keep that eta; for any other callable
    the caller vouches for it.
    """
    if not callable(factory):
        raise InputError(
            f"factory is of type {type(factory).__name__}; give a function of eta that returns a "
            "mechanism"
        )
    members = as_family(family)
    states = next((model.states for model in members if model.states is not None), None)
    if states is None:
        raise InputError("no model of the family names its states; give at least one that does")
    task = Task(query=ExternalQuery(name, states), secrets=EachEntry(), family=members)
    budget = positive(epsilon, "epsilon")
    reason = rows.refuse(task)
    if reason is not None:
        raise Refused(f"lift does not apply: {reason}")
    models = tuple(rows.largest(model, None, float_below(budget)) for model in members)
    eta = Fraction(min(model.eta for model in models))
    mechanism = factory(float(eta) * (1 - ROUNDING))
    _check_callable(mechanism, name)
    return Plan(
        mechanism=rows.NAME,
        task=task,
        body=Measured(name, _checked(mechanism, eta, name), mechanism),
        cost=float("inf"),
        guarantee=task_guarantee(task, budget),
        certificate=rows.LiftCertificate(models=models),
        composition=(AsEntryDP(eta),),
    )


def attach(plan: Plan, mechanism: Callable[[list[Any]], Any]) -> Plan:
    """`plan` with its external mechanism in place again; an OpenDP measurement is re-checked."""
    if not isinstance(plan.body, Measured):
        raise InputError(f"the plan of {plan.mechanism} holds no external mechanism to attach")
    _check_callable(mechanism, plan.body.name)
    _checked(mechanism, plan.body.eta, plan.body.name)
    return replace(plan, body=replace(plan.body, mechanism=mechanism))


def entry_eta(measurement: Any) -> Fraction:
    """The entry-level eta of an OpenDP measurement: its privacy map at one changed entry.

    One changed entry is distance 2 under SymmetricDistance and InsertDeleteDistance, 1 under
    HammingDistance and ChangeOneDistance. Refuses other metrics, and measures but MaxDivergence.
    """
    try:
        metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    except AttributeError:
        raise InputError(
            f"{type(measurement).__name__} states no privacy map; give eta itself as a number"
        ) from None
    distance = ENTRY_DISTANCE.get(metric.split("(", maxsplit=1)[0])
    if distance is None:
        raise InputError(
            f"input metric is {metric}; it must be one of {sorted(ENTRY_DISTANCE)}, "
            "for which one changed entry has a known distance"
        )
    if not measure.startswith("MaxDivergence"):
        raise InputError(f"output measure is {measure}; the lift needs pure DP, MaxDivergence")
    return positive(Fraction(measurement.map(distance)), "eta of the measurement")


def _check_callable(mechanism: object, name: str) -> None:
    if not callable(mechanism):
        raise InputError(
            f"{name} is of type {type(mechanism).__name__}; it must be called with a list of "
            "entries and return its answer"
        )


def _checked(mechanism: Any, eta: Fraction, name: str) -> Fraction:
    """`eta`, refused when the mechanism's own privacy map exceeds it."""
    if hasattr(mechanism, "input_metric"):
        own = entry_eta(mechanism)
        if own > eta:
            raise InputError(
                f"{name} is {float(own):g}-DP for one entry; the lift allows {float(eta):g}: "
                "make the factory use the eta it is given"
            )
    return eta
