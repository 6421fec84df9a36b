"""How far an adversary's guesses are from where somebody was, in the query's unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoal.attacks.beliefs import Privacy, entropy
from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.mechanisms.location_remap import remapped

NEGLIGIBLE = 1e-12  # of the likeliest state's mass: states below do not move a median


@dataclass(frozen=True, slots=True, eq=False)
class LocationErrors:
    """Step by step: the best guess, how far off it is believed to be, and how far it is.

    `guesses` (steps, numbers) are the points of least expected distance, `expected` that distance
    as the adversary believes, `distance` the one from the truth. `correctness` is the mean
    distance of the belief from the truth, `bits` its entropy, `right` 1 where the likeliest state
    is the true one and 0 where not, `belief` the mass of the true state. nan at steps whose truth
    is not known. Shokri et al. 2011, Section IV (correctness, certainty, accuracy).
    """

    guesses: Floats
    expected: Floats
    distance: Floats
    correctness: Floats
    bits: Floats
    right: Floats
    belief: Floats

    @property
    def mean(self) -> float:
        """The mean distance of the best guess from the truth."""
        return float(np.nanmean(self.distance))

    def privacy(self) -> Privacy:
        """Means over the steps: of certainty over all, of the others where the truth is known."""
        return Privacy(
            correctness=float(np.nanmean(self.correctness)),
            certainty=float(self.bits.mean()),
            accuracy=float(np.nanmean(self.right)),
        )


def errors_of(laws: Floats, values: Floats, truth: Sequence[int | None]) -> LocationErrors:
    """The errors of somebody who believes `laws` (steps, states) when `truth` is the case.

    `values` are the answers of the states; a step of `truth` is a state, or None for unknown.
    """
    if len(truth) != len(laws):
        raise InputError(f"truth has {len(truth)} steps; the beliefs have {len(laws)}")
    if all(place is None for place in truth):
        raise InputError("truth knows no step; give the true state of at least one")
    found = [best_guess(law, values) for law in laws]
    rows = np.full((4, len(laws)), np.nan)
    for t, place in enumerate(truth):
        if place is None:
            continue
        away = np.sqrt(((values - values[place]) ** 2).sum(axis=1))
        off = np.sqrt(((found[t][0] - values[place]) ** 2).sum())
        rows[:, t] = off, laws[t] @ away, laws[t].argmax() == place, laws[t, place]
    return LocationErrors(
        guesses=np.array([guess for guess, _ in found]),
        expected=np.array([expected for _, expected in found]),
        distance=rows[0],
        correctness=rows[1],
        bits=entropy(laws),
        right=rows[2],
        belief=rows[3],
    )


def best_guess(law: Floats, values: Floats) -> tuple[Floats, float]:
    """argmin over a of Σ p(s) |f(s) - a| with p = law and f = values, and that minimum.

    The geometric median. Iterations reach it slowly where it is the answer of a state, so the
    nearest state's answer is tried as well.
    """
    kept = law > NEGLIGIBLE * law.max()
    points, weights = values[kept], law[kept]
    median = remapped(weights, points, "absolute")[0]
    nearest = points[int(((points - median) ** 2).sum(axis=1).argmin())]
    tried = [(guess, _expected(guess, weights, points)) for guess in (median, nearest)]
    return min(tried, key=lambda one: one[1])


def path_distance(path: Sequence[int], values: Floats, truth: Sequence[int | None]) -> Floats:
    """How far each state of a path is from the truth; nan where that is not known."""
    rows = [
        np.nan if there is None else np.sqrt(((values[here] - values[there]) ** 2).sum())
        for here, there in zip(path, truth, strict=True)
    ]
    return np.array(rows)


def _expected(guess: Floats, weights: Floats, points: Floats) -> float:
    return float(weights @ np.sqrt(((points - guess) ** 2).sum(axis=1)))
