"""What an adversary believes who sees everything an application may: from public outputs alone.

Places: the belief that the stream itself follows. Contexts: every way the day may have gone is
followed beside the machine, whose chance to show each context is read off the machine by asking it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.online import OnlineMask
from shoal.contexts.stream import advance as mask_step
from shoal.core.codec import Floats
from shoal.core.plan import Plan
from shoal.gateway.machines import SHOWN, SUPPRESSED, day_of
from shoal.places.packed import from_bytes

LEVELS = 1 << 16  # a mask's coin: shown when the low 16 bits of a word are at least its code
ALWAYS = (1 << 32) - 1  # a word at which every mask shows what it may show at all
MOST = 400  # places told of a heat map, the likeliest


class Fixed:
    """A coin that falls as it is told."""

    secure = True

    def __init__(self, word: int) -> None:
        self._word = word

    def words(self, count: int) -> Any:
        return np.full(count, self._word, dtype=np.uint64)


class Way(NamedTuple):
    """One state of the machine and one context now: how likely, and jointly with every slot's."""

    weight: float
    slots: Floats


def heat_map(plan: Plan, state: bytes) -> list[dict[str, Any]]:
    """The probability of each place after the last closed step, the likeliest first."""
    model: Any = plan.task.family[0]
    belief = np.asarray(from_bytes(state).state.belief, np.float64)
    names = plan.task.query.states
    law = belief.reshape(-1, len(names)).sum(axis=0) if len(belief) != len(names) else belief
    law = law / law.sum()
    grid, cells = getattr(model, "grid", None), getattr(model, "cells", None)
    found = []
    for place in np.argsort(-law)[:MOST].tolist():
        told: dict[str, Any] = {"state": names[place], "belief": float(law[place])}
        if grid is not None and cells is not None:
            lat, lon = grid.centre_of(cells[place]).tolist()
            told |= {"lat": lat, "lon": lon}
        found.append(told)
    return found


def context_curves(plan: Plan, statuses: Sequence[tuple[str, str | None]]) -> dict[str, Any]:
    """P(X_t = s) before and after the outputs of a day so far, for every slot and context.

    `statuses` holds (status, context) of each closed slot of the day, from its first. A slot that
    is not read tells nothing. `after` is None where the model calls the outputs impossible.
    """
    day = day_of(plan)
    before = day.marginals()
    after = _followed(plan, statuses)
    return {
        "contexts": list(day.states),
        "closed": len(statuses),
        "before": before.round(9).tolist(),
        "after": None if after is None else after.round(9).tolist(),
    }


def _followed(plan: Plan, statuses: Sequence[tuple[str, str | None]]) -> Floats | None:
    """P(X_t = s | outputs), (slots, contexts): the machine's states and the day's side by side."""
    day = day_of(plan)
    start: Any = plan.body.init()  # type: ignore[union-attr]
    joint: dict[tuple[Any, int], Way] = {}
    for context in np.flatnonzero(day.initial).tolist():
        law = np.zeros((day.slots, day.size))
        law[0, context] = 1.0
        joint[start, context] = Way(float(day.initial[context]), law * float(day.initial[context]))
    for slot, (status, shown) in enumerate(statuses):
        joint = _seen(plan, joint, day.states, status, shown)
        total = sum(way.weight for way in joint.values())
        if total <= 0:
            return None
        joint = {key: Way(way.weight / total, way.slots / total) for key, way in joint.items()}
        if slot + 1 < day.slots:
            joint = _moved(joint, day.transition[slot], slot + 1)
    laws = np.asarray(sum(way.slots for way in joint.values()))
    for slot in range(len(statuses) + 1, day.slots):
        laws[slot] = laws[slot - 1] @ day.transition[slot - 1]
    return laws


def _seen(
    plan: Plan,
    joint: dict[tuple[Any, int], Way],
    names: Sequence[str],
    status: str,
    shown: str | None,
) -> dict[tuple[Any, int], Way]:
    """Every way weighed by how likely it shows what was shown."""
    found: dict[tuple[Any, int], Way] = {}
    for (state, context), way in joint.items():
        observed = names[context]
        if status == SHOWN:
            if observed == shown:
                chance = 1.0 - _hidden(plan, state, observed)
                _add(found, _after(plan, state, observed, ALWAYS), context, way, chance)
        elif status == SUPPRESSED:
            chance = _hidden(plan, state, observed)
            _add(found, _after(plan, state, observed, 0), context, way, chance)
        else:
            _add(found, mask_step(plan, state, None, Fixed(0))[0], context, way, 1.0)
    return found


def _moved(
    joint: dict[tuple[Any, int], Way], matrix: Floats, slot: int
) -> dict[tuple[Any, int], Way]:
    found: dict[tuple[Any, int], Way] = {}
    for (state, context), way in joint.items():
        for then in np.flatnonzero(matrix[context]).tolist():
            chance = float(matrix[context, then])
            law = way.slots.copy()
            law[slot, then] += way.weight
            _add(found, state, then, Way(way.weight, law), chance)
    return found


def _add(
    found: dict[tuple[Any, int], Way], state: Any, context: int, way: Way, chance: float
) -> None:
    if chance <= 0:
        return
    before = found.get((state, context))
    weight, slots = way.weight * chance, way.slots * chance
    if before is not None:
        weight, slots = weight + before.weight, slots + before.slots
    found[state, context] = Way(weight, slots)


def _hidden(plan: Plan, state: Any, observed: str) -> float:
    """The probability that a machine hides a context: where its answer changes with the coin."""
    if isinstance(plan.body, OnlineMask):
        return 1.0 - plan.body.shown_chance(state, observed)
    if mask_step(plan, state, observed, Fixed(LEVELS - 1))[1] is None:
        return 1.0
    low, high = 0, LEVELS - 1  # shown at `high`
    while low < high:
        middle = (low + high) // 2
        if mask_step(plan, state, observed, Fixed(middle))[1] is None:
            low = middle + 1
        else:
            high = middle
    return low / LEVELS


def _after(plan: Plan, state: Any, observed: str, word: int) -> Any:
    return mask_step(plan, state, observed, Fixed(word))[0]
