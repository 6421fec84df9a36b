"""Tables of a window made private where a linear program was only nearly so.

A solver keeps its rows to 1e-7 or so. Where an outcome is rare that can be everything: a history
of mass 1e-9 that is shown alone tells all. Such outcomes are shown less, slot by slot.
"""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day, Truths
from shoal.loss.suppression_adaptive import Origin

LOOKS = 20  # at one outcome, before it is suppressed altogether


def repaired(
    day: Day,
    origin: Origin,
    tables: list[Floats],
    digits: Ints,
    secrets: tuple[Truths, ...],
    bound: Floats,
) -> list[Floats]:
    """`tables` with less shown wherever an outcome inside the window breaks a bound.

    tables[k][h, j] suppresses state j with history h, k + 1 slots after the release; secrets[k]
    says which secrets a history holds.
    """
    slot, state = origin
    base = int(digits.max()) + 1
    arriving = (day.initial if slot < 0 else day.moves[slot, state])[None, :]
    found = []
    for k, hidden in enumerate(tables):
        shown = arriving * (1.0 - hidden)
        for j in np.flatnonzero(shown.any(axis=0)):
            shown[:, j] = _bounded(shown[:, j], secrets[k], bound)
        part = np.divide(shown, arriving, out=np.zeros_like(shown), where=arriving > 0)
        found.append(np.clip(1.0 - part, 0.0, 1.0))
        kept = arriving * found[-1]
        arriving = np.zeros((len(kept) * base, day.size))
        for i in range(day.size):
            rows = np.arange(len(kept)) * base + digits[i]
            arriving[rows] += kept[:, i : i + 1] * day.moves[slot + 1 + k, i][None, :]
    return found


def _bounded(shown: Floats, holds: Truths, bound: Floats) -> Floats:
    """Masses of the histories of one outcome, so lowered that no belief exceeds its bound.

    Of secret c the masses N that hold it and D of all must satisfy N ≤ b·D: those that hold it
    are scaled by b(D - N) / (N(1 - b)), the worst secret first.
    """
    shown = shown.copy()
    for _ in range(LOOKS):
        total = shown.sum()
        if total <= 0 or not len(bound):
            return shown
        held = shown @ holds
        worst = int(np.argmax(held - bound * total))
        if held[worst] <= bound[worst] * total:
            return shown
        others = float(shown[~holds[:, worst]].sum())
        factor = bound[worst] * others / (held[worst] * (1.0 - bound[worst]))
        shown[holds[:, worst]] *= min(factor, 1.0) * (1 - 1e-12)
    return np.zeros_like(shown)
