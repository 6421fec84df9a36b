"""The search for one segment after the other, each beginning with what the last ones taught."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.value import Floats
from shoal.loss.suppression_arrays import Arrays
from shoal.loss.suppression_effort import Effort
from shoal.loss.suppression_pacing import PACES, Origin, Pacing, habit_of, paces_of

NEGLIGIBLE = 1e-6  # expected releases not worth another slot of search


class Climb:
    """Segments of one day, or of several side by side, in the order of `origins`.

    `prior` (slots, contexts) says how likely each release is; likelier ones get more of `effort`.
    """

    def __init__(
        self, arrays: Arrays, origins: Sequence[Origin], prior: Floats, effort: Effort
    ) -> None:
        slots, size, _ = arrays.moves.shape
        edges = float((arrays.moves > 0).sum()) / slots
        self._arrays = arrays
        self._weights = np.array([prior[o] if o[0] >= 0 else 1.0 for o in origins])
        self._pacing = Pacing(origins, self._weights, (slots, size), edges, effort, arrays.copies)
        self._found, self._spent = np.ones((slots, size)), np.zeros(1)
        self._habits = [habit_of((slots, size)) for _ in range(size // arrays.copies)]
        self._paces, self._wins = paces_of(slots), np.zeros(PACES)

    def segment(self, place: int, origin: Origin, value: Floats) -> Floats | None:
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
