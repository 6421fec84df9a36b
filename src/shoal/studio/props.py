"""The props of the views, from values of the library: the same wherever a view is drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.additive.lift import Leakage
from shoal.audit.result import BRIEFLY, TOLERANCE, Audit, StreamWitness, Witness
from shoal.audit.statistical import Estimate
from shoal.chains.model import MarkovChain
from shoal.core.plan import Plan

Props = dict[str, Any]
LOSS = "Loss: how far some output moves the log-odds between two secrets"
RISE = "How far some output raises a belief"


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


def audit_densities(audit: Audit | Estimate) -> Props:
    """What an audit found, its worst output and what it does to a belief."""
    return _estimated(audit) if isinstance(audit, Estimate) else _audited(audit)


def _audited(audit: Audit) -> Props:
    rise, witness = audit.notion == "delta-privacy", audit.witness
    losses = [] if rise else [_loss("entry level", audit.entry_level)]
    losses.append(_loss("measured", audit.upper, audit.lower, measured=True))
    return {
        "title": RISE if rise else LOSS,
        "losses": _promised(audit.promised) + losses,
        "promised": audit.promised,
        "broken": audit.violated or audit.lower > (audit.promised or math.inf) * (1 + TOLERANCE),
        "curve": [list(row) for row in witness.curve if np.isfinite(row).all()] if witness else [],
        "subject": witness.subject if witness else "",
        "belief": _belief(witness),
        "adversaries": [
            {"name": BRIEFLY[one.knows], "rise": one.rise} for one in audit.adversaries
        ],
        "event": "",
        "shares": [],
        "unit": witness.unit if witness else "",
    }


def _estimated(audit: Estimate) -> Props:
    counted = zip(audit.facts, audit.hits, audit.trials, strict=True)
    losses = [
        _loss("at least", audit.lower, measured=True),
        _loss("estimate", audit.estimate),
    ]
    return {
        **just_losses(LOSS, audit.promised, losses),
        "broken": audit.exceeded,
        "subject": audit.subject,
        "event": audit.event,
        "shares": [{"name": fact, "share": hits / trials} for fact, hits, trials in counted],
    }


def just_losses(title: str, promised: float | None, losses: list[Props]) -> Props:
    """Losses without an output that shows them."""
    return {
        "title": title,
        "losses": _promised(promised) + losses,
        "promised": promised,
        "broken": False,
        "curve": [],
        "subject": "",
        "belief": [],
        "adversaries": [],
        "event": "",
        "shares": [],
        "unit": "",
    }


def leaked(leakage: Leakage) -> Props:
    """What an ordinary release tells here, beside what it seems to promise."""
    eta = float(leakage.eta)
    told = _loss("under correlation", leakage.value, measured=True)
    return {
        **just_losses(LOSS, eta, [told]),
        "broken": leakage.value > eta,
    }


def _promised(amount: float | None) -> list[Props]:
    return [] if amount is None else [_loss("promised", amount)]


def _loss(name: str, value: float, low: float | None = None, *, measured: bool = False) -> Props:
    low = value if low is None else low
    return {"name": name, "value": _finite(value), "low": _finite(low), "measured": measured}


def _belief(witness: Witness | StreamWitness | None) -> list[Props]:
    if witness is None:
        return []
    return [
        {"name": fact, "before": before, "after": after}
        for fact, before, after in zip(witness.facts, witness.before, witness.after, strict=True)
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
