"""What noise tells about records in groups of which only the size is known: records all alike."""

from __future__ import annotations

import math

from shoal.audit.result import Finding, Witness
from shoal.audit.setting import Setting
from shoal.core.value import Floats
from shoal.mechanisms.additive import eta_above, float_below
from shoal.models.groups import RecordGroups


def groups_finding(setting: Setting) -> Finding:
    """The loss itself, n·L/scale for groups of n: no law tells more, and equal records do.

    All records of one group take the value a, or all the value b, with the same chance, and
    everybody else is known. Where the output is beyond all answers, on the side of a in every
    number in which a and b differ, the odds change by n·|w(a) - w(b)|_1 / scale.
    """
    model = setting.model
    assert isinstance(model, RecordGroups)
    size, weights = model.largest, setting.weights
    names = setting.query.states
    pairs = [(a, b) for a in range(len(names)) for b in range(len(names))]
    top, bottom = max(pairs, key=lambda pair: abs(weights[pair[0]] - weights[pair[1]]).sum())
    told = float_below(size * setting.eta)
    after = 1 / (1 + math.exp(-told))
    seen = Witness(
        model=setting.index,
        law=f"a group of {size} records that are always alike, everybody else being known",
        subject="the group",
        facts=(repr(names[top]), repr(names[bottom])),
        labels=setting.query.labels,
        output=_beyond(weights[top] - weights[bottom]),
        unit=setting.query.unit,
        before=(0.5, 0.5),
        after=(after, 1 - after),
        log_ratio=told,
    )
    return Finding(lower=told, upper=eta_above(size * setting.eta), witness=seen)


def _beyond(gap: Floats) -> tuple[float, ...]:
    """An output beyond all answers wherever two values differ; elsewhere any answer will do."""
    return tuple(math.copysign(math.inf, step) if step else 0.0 for step in gap.tolist())
