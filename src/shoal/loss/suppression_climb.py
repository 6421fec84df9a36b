"""The search for one segment after the other, each beginning with what the last ones taught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.core.value import Floats
from shoal.loss.suppression_pacing import PACES, Pacing, habit_of, paces_of

NEGLIGIBLE = 1e-6  # expected releases not worth another slot of search


class Climb:
    """Segments of one day, or of several side by side, in the order of `pacing`.

    `arrays` is the day as the kernels take it, `shape` (slots, states) that of a table, `weights`
    how likely each origin is, and `states` how many states an origin may be.
    """

    def __init__(
        self,
        arrays: Any,
        shape: tuple[int, int],
        weights: Sequence[float] | Floats,
        states: int,
        pacing: Pacing,
    ) -> None:
        self._arrays, self._weights, self._pacing = arrays, weights, pacing
        self._found, self._spent = np.ones(shape), np.zeros(1)
        self._habits = [habit_of(shape) for _ in range(states)]
        self._paces, self._wins = paces_of(shape[0]), np.zeros(PACES)

    def segment(self, place: int, origin: tuple[int, int], value: Floats) -> Floats | None:
        """Probabilities to hide, for the slots after `origin`; None when no work is left for it.

        `value` (slots, states) is what each later release is worth. Good until the next call.
        """
        from shoal.loss.suppression_climb_kernels import best_segment

        slot, state = origin
        passes = self._pacing.at(place)
        self._spent[0] = 0.0
        if not passes:
            return None
        stop = NEGLIGIBLE / max(float(self._weights[place]), NEGLIGIBLE)
        paces, habits = self._paces(slot), self._habits[state]
        kept = (self._wins, self._found, self._spent)
        best_segment(self._arrays, slot, state, value, paces, passes, stop, place, *habits, *kept)
        return self._found[slot + 1 :]

    def note(self, place: int) -> None:
        """Tells what the segment cost, looks at it included."""
        self._pacing.note(place, float(self._spent[0]))
