"""All mechanisms side by side on one task, and the plan among them that a spec asks for."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.core.additive import Additive
from shoal.core.codec import encode, kind_of
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.data.write import ratio
from shoal.mechanisms import MECHANISMS, choose, recheck


@dataclass(frozen=True, slots=True)
class Comparison:
    """The plan asked for, and for every row its plan or the sentence of its refusal."""

    plan: Plan
    epsilon: Fraction
    alternatives: dict[str, Plan | str]


def compare(task: Task, epsilon: Fraction, mechanism: str) -> Comparison:
    """Every row calibrated on `task`; refused when the one asked for is."""
    choice = choose(task, epsilon, mechanism)
    alternatives = choice.alternatives or {
        name: choice.plan if name == mechanism else _attempt(task, epsilon, name)
        for name in MECHANISMS
    }
    return Comparison(choice.plan, epsilon, alternatives)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The object `shoal plan --json` prints."""
    plan = comparison.plan
    return {
        "mechanism": plan.mechanism,
        "scale": scale_of(plan),
        "noise": _noise(plan),
        "epsilon": float(comparison.epsilon),
        "loss": recheck(plan),
        "cost": plan.cost,
        "guarantee": {
            "notion": plan.guarantee.notion,
            "amount": float(plan.guarantee.amount),
            "over": plan.guarantee.over,
            "proved": plan.guarantee.proved,
            "caveat": plan.guarantee.caveat,
        },
        "certificate": {
            **encode(plan.certificate),
            "theorem": plan.certificate.theorem,
            "assumptions": list(plan.certificate.assumptions),
        },
        "composition": [{**encode(rule), "meaning": rule.describe()} for rule in plan.composition],
        "alternatives": {
            name: {"refused": row} if isinstance(row, str) else _brief(row)
            for name, row in comparison.alternatives.items()
        },
    }


def scale_of(plan: Plan) -> float | None:
    """The scale of additive noise in the query's own units; None for other mechanisms."""
    return float(plan.body.noise.scale) if isinstance(plan.body, Additive) else None


def error_of(plan: Plan) -> float | None:
    """The mean error of one value, which compares noise of different kinds."""
    error = plan.error()
    return None if error is None else error.expected


def standing(plan: Plan) -> str:
    """What a row's promise is worth for the task it was calibrated on."""
    wanted = plan.task.secrets.notion
    if not plan.guarantee.proved:
        return "claimed, not proved"
    if not plan.guarantee.gives(wanted):
        return f"{plan.guarantee.notion} only"
    return "proved"


def _attempt(task: Task, epsilon: Fraction, mechanism: str) -> Plan | str:
    try:
        return choose(task, epsilon, mechanism).plan
    except Refused as refusal:
        return str(refusal)


def _brief(plan: Plan) -> dict[str, Any]:
    return {"scale": scale_of(plan), "cost": plan.cost, "standing": standing(plan)}


def _noise(plan: Plan) -> dict[str, str] | None:
    if not isinstance(plan.body, Additive):
        return None
    noise = plan.body.noise
    kind = {"lattice-laplace": "discrete-laplace"}.get(kind_of(type(noise)), kind_of(type(noise)))
    return {"kind": kind, "step": ratio(noise.step), "scale": ratio(noise.scale)}
