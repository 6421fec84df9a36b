"""The props of the views, from values of the library: the same wherever a view is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.audit.result import Audit, StreamWitness, Witness
from shoal.chains.model import MarkovChain
from shoal.core.plan import Plan

Props = dict[str, Any]


def chain_heat(chain: MarkovChain) -> Props:
    """How one state follows another; the first step's matrix where every step has its own."""
    matrix = chain.transition if chain.transition.ndim == 2 else chain.transition[0]
    return {"states": list(chain.states), "transition": matrix.tolist()}


def leak_bars(plan: Plan, alternatives: Mapping[str, Plan | str]) -> Props:
    """Every mechanism's error beside the chosen one's, or why it does not apply."""
    return {
        "unit": plan.task.query.unit,
        "mechanisms": [
            _mechanism(name, row, chosen=name == plan.mechanism)
            for name, row in alternatives.items()
        ],
    }


def _mechanism(name: str, row: Plan | str, *, chosen: bool) -> Props:
    if isinstance(row, str):
        return {"name": name, "error": None, "standing": "", "chosen": False, "refusal": row}
    error = row.error()
    return {
        "name": name,
        "error": None if error is None else error.expected,
        "standing": standing(row),
        "chosen": chosen,
        "refusal": None if error is not None else "its error is not a number",
    }


def standing(plan: Plan) -> str:
    """What the promise of a plan is worth for its task, in a word or two."""
    if not plan.guarantee.proved:
        return "claimed, not proved"
    wanted = plan.task.secrets.notion
    return "proved" if plan.guarantee.gives(wanted) else f"{plan.guarantee.notion} only"


def noise_preview(
    plan: Plan, simulated: Sequence[Sequence[float]], truth: Sequence[float] | None
) -> Props:
    """A cloud of simulated releases; the truth stays on the screen of whoever holds the data."""
    return {
        "labels": list(plan.task.query.labels),
        "unit": plan.task.query.unit,
        "truth": None if truth is None else list(truth),
        "simulated": [list(row) for row in simulated],
    }


def audit_densities(audit: Audit) -> Props:
    """What an audit found, its worst output and what it does to a belief."""
    return {
        "promised": audit.promised,
        "lower": _finite(audit.lower),
        "upper": _finite(audit.upper),
        "notion": audit.notion or "no claim",
        "curve": [list(row) for row in audit.witness.curve] if audit.witness else [],
        "belief": _belief(audit.witness),
        "unit": audit.witness.unit if audit.witness else "",
    }


def _belief(witness: Witness | StreamWitness | None) -> list[Props]:
    if witness is None:
        return []
    return [
        {"name": fact, "before": before, "after": after}
        for fact, before, after in zip(witness.facts, witness.before, witness.after, strict=True)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
