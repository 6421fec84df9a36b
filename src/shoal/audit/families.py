"""Families that are not one law: members whose loss can be evaluated, as a lower bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.audit.bounds import least_upper
from shoal.audit.chains import chain_finding
from shoal.audit.result import Finding
from shoal.audit.setting import Setting
from shoal.core.task import Model
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw, MixingSummary
from shoal.models.interval import IntervalChains

MEMBERS_ONLY = (
    "members of this family other than the ones tried; the upper bound covers them all, the lower "
    "one does not"
)


def members(model: Model, states: tuple[str, ...]) -> tuple[Model, ...]:
    """Laws of the family that are slow to forget: the corners of a rectangle, or one as slow as
    the constants allow; the model itself when it is a law."""
    if isinstance(model, IntervalChains):
        return tuple(
            AnyInitialLaw.of([[p, 1 - p], [1 - q, q]], states=states, length=model.length)
            for p in {model.low[0], model.high[0]}
            for q in {model.low[1], model.high[1]}
        )
    if isinstance(model, MixingSummary):
        return (slowest_member(model, states),)
    return (model,)


def slowest_member(model: MixingSummary, states: tuple[str, ...]) -> MarkovChain:
    """A reversible chain with exactly this gap: stay with probability λ, else draw afresh.

    P = λ I + (1-λ) 1πᵀ has eigenvalues 1 and λ = 1 - gap/2. π is pi_min on all states but one,
    or uniform on as many states as pi_min allows.
    """
    used = min(len(states), int(1 / model.pi_min))
    law = np.zeros(len(states))
    law[:used] = model.pi_min
    law[0] += 1 - law.sum()
    stay = 1 - model.gap / 2
    transition = stay * np.eye(len(states)) + (1 - stay) * law
    return MarkovChain.of(transition, states=states, initial=law, length=model.length)


def family_finding(setting: Setting) -> Finding:
    """The largest loss of the members tried, and a bound that covers the whole family."""
    upper, own = least_upper(setting)
    found = [
        chain_finding(replace(setting, model=member))
        for member in members(setting.model, setting.query.states)
    ]
    worst = max(found, key=lambda finding: finding.lower)
    return replace(worst, upper=max(upper, worst.lower), notes=(*worst.notes, *own, MEMBERS_ONLY))
