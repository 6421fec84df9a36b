"""What an adversary believes of a day so far, against the list of all days and all coins."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shoal.contexts.attack import context_beliefs
from shoal.contexts.audit.memories import UNREAD
from shoal.contexts.stream import advance
from shoal.gateway.machines import context_curves
from shoal.gateway.town import CONTEXTS, plan_of_spec
from shoal.noise.primitives import SeededRng
from tests.gateway.gateway_house import plan
from tests.gateway.test_gateway_law import Coin, hidden

LEVELS = 1 << 16


def listed(statuses: list[tuple[str, str | None]]) -> Any:
    """P(X_t = s | outputs so far) by listing every day and following the machine through it."""
    chosen = plan("day")
    day: Any = chosen.task.family[0]
    machine: Any = chosen.body
    law = np.zeros((day.slots, day.size))
    for path in itertools.product(range(day.size), repeat=day.slots):
        chance, state = float(day.initial[path[0]]), machine.init()
        for t, (a, b) in enumerate(itertools.pairwise(path)):
            chance *= float(day.transition[t, a, b])
        for slot, (status, shown) in enumerate(statuses):
            context = day.states[path[slot]]
            if status == "silent":
                state, _ = advance(chosen, state, None, Coin(0))
                continue
            hide = hidden(chosen, state, context)
            chance *= hide if status == "suppressed" else (1 - hide) * (shown == context)
            if chance == 0:
                break
            word = 0 if status == "suppressed" else LEVELS - 1
            state, _ = advance(chosen, state, context, Coin(word))
        for slot, place in enumerate(path):
            law[slot, place] += chance
    return law / law.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(
    "statuses",
    [
        [],
        [("shown", "home")],
        [("suppressed", None), ("suppressed", None)],
        [("shown", "home"), ("silent", None), ("suppressed", None)],
        [("silent", None), ("shown", "home"), ("suppressed", None), ("shown", "home")],
    ],
    ids=str,
)
def test_beliefs_are_those_of_all_days_listed(statuses: list[tuple[str, str | None]]) -> None:
    found = context_curves(plan("day"), statuses)
    np.testing.assert_allclose(found["after"], listed(statuses), rtol=0, atol=1e-8)
    sensitive = found["contexts"].index("clinic")
    rise = np.array(found["after"]) - np.array(found["before"])
    assert rise[:, sensitive].max() <= 0.2 + 1e-8


def test_outputs_that_cannot_be_give_no_beliefs() -> None:
    found = context_curves(plan("day"), [("shown", "nowhere")])
    assert found["after"] is None
    assert np.array(found["before"]).sum() == pytest.approx(4)


def test_what_a_table_of_histories_showed_is_believed() -> None:
    chosen = plan_of_spec(CONTEXTS.replace("mask-adaptive", "mask-optimal"))
    day: Any = chosen.task.family[0]
    machine: Any = chosen.body
    state, rng = machine.init(), SeededRng(7)
    statuses: list[tuple[str, str | None]] = []
    for place in day.sample(rng)[:11]:
        state, shown = advance(chosen, state, day.states[int(place)], rng)
        statuses.append(("suppressed" if shown is None else "shown", shown))
    outputs = [*(shown for _, shown in statuses), *[UNREAD] * (day.slots - 11)]
    found = context_curves(chosen, statuses)["after"]
    np.testing.assert_allclose(found, context_beliefs(chosen, outputs), rtol=0, atol=1e-8)
