"""Days of which some slots are not read: every set of such slots, path and output, written out.

The beliefs are computed here from what the machine shows with which probability: its coins are
caught where they are thrown, and nothing else of it is used.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from shoal.contexts.machine import START, MaskState
from shoal.contexts.stream import advance
from shoal.core.charge import SystemRng
from shoal.core.plan import Plan
from shoal.mechanisms.table import MECHANISMS
from tests.contexts.enumeration import random_chain
from tests.contexts.test_every_output import CHECKS, mask_task

UNREAD, NOTHING = "not read", "nothing shown"
Outputs = dict[tuple[str, ...], dict[tuple[int, ...], float]]


class Coin:
    """Stands in for the coin of a machine: says how likely it hides, and does what it is told."""

    def __init__(self) -> None:
        self.hidden = 1.0
        self.hide = True
        self.thrown = False

    def __call__(self, code: int, word: int, levels: int = 2**16) -> bool:
        self.thrown = True
        self.hidden = 1.0 if code == levels - 1 else code / levels
        return self.hide


def steps(
    coin: Coin, plan: Plan, state: Any, context: str | None
) -> list[tuple[float, Any, str | None]]:
    """What a slot may show: the probability, the state after it, and the context or None."""
    coin.thrown, coin.hide = False, True
    after, shown = advance(plan, state, context, SystemRng())
    if not coin.thrown:
        return [(1.0, after, shown)]
    hidden, found = coin.hidden, [(coin.hidden, after, shown)]
    coin.hide = False
    after, shown = advance(plan, state, context, SystemRng())
    return [one for one in (*found, (1 - hidden, after, shown)) if one[0] > 0]


def outputs_of(
    coin: Coin, plan: Plan, initial: Any, transition: Any, read: tuple[bool, ...]
) -> Outputs:
    """P(output, path) for every path, where the slots that are not `read` show so."""
    found: Outputs = defaultdict(lambda: defaultdict(float))
    names, machine = plan.task.query.states, plan.body

    def follow(path: tuple[int, ...], shown: tuple[str, ...], state: Any, weight: float) -> None:
        t = len(path)
        if t == len(read):
            found[shown][path] += weight
            return
        law = initial if t == 0 else transition[t - 1][path[-1]]
        for place, chance in enumerate(law):
            if chance == 0:
                continue
            context = names[place] if read[t] else None
            for share, after, output in steps(coin, plan, state, context):
                told = UNREAD if not read[t] else NOTHING if output is None else output
                follow((*path, place), (*shown, told), after, weight * chance * share)

    follow((), (), machine.init(), 1.0)  # type: ignore[union-attr]
    return found


def highest_rise(outputs: Outputs, secrets: list[tuple[int, int]]) -> float:
    worst = 0.0
    for slot, secret in secrets:
        holds = {
            shown: sum(w for path, w in paths.items() if path[slot] == secret)
            for shown, paths in outputs.items()
        }
        prior = sum(holds.values())
        for shown, paths in outputs.items():
            worst = max(worst, holds[shown] / sum(paths.values()) - prior)
    return worst


def instances() -> list[tuple[Any, Any, list[str], Fraction]]:
    rng = np.random.default_rng(11)
    found: list[tuple[Any, Any, list[str], Fraction]] = [
        ([0.7, 0.3], [[[0.1, 0.9], [0.5, 0.5]]], ["0"], Fraction(1, 10))
    ]
    for number in range(5):
        states, slots = 2 + number % 2, 3 + number % 2
        initial, transition = random_chain(rng, states=states, slots=slots, sparse=0.3)
        found.append((initial, transition, [str(rng.integers(states))], Fraction(1 + number, 12)))
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_no_belief_rises_beyond_delta_whatever_is_not_read(
    check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coin = Coin()
    monkeypatch.setattr("shoal.contexts.machine.hides", coin)
    shown_after = 0
    for initial, transition, sensitive, delta in instances():
        plan = MECHANISMS[check].calibrate(mask_task(initial, transition, sensitive), delta)
        slots = len(transition) + 1
        secrets = [(t, int(s)) for t in range(slots) for s in sensitive]
        for read in product((True, False), repeat=slots):
            outputs = outputs_of(coin, plan, initial, transition, read)
            assert sum(sum(paths.values()) for paths in outputs.values()) == pytest.approx(1)
            assert highest_rise(outputs, secrets) <= float(delta) * (1 + 1e-9), (read, sensitive)
            shown_after += any(
                UNREAD in shown[:t] and shown[t] not in (UNREAD, NOTHING)
                for shown in outputs
                for t in range(slots)
            )
    assert shown_after > 5  # a day goes on after a slot that was not read


def test_slots_not_read_in_a_row_are_one_gap() -> None:
    assert START.missed().missed().gaps == (0, 2)
    assert START.missed().suppressed().missed().gaps == (0, 1, 2, 3)
    later = MaskState(slot=3, origin=2, context=1, gaps=(0, 3))
    assert later.missed().gaps == (0, 4)
    assert START.missed(5).gaps == (0, 5)
