"""The first slots after a release of a machine that remembers what was visited since.

Each history is followed as if it were a release of its own: its law, and the beliefs given its
contexts. Where something is shown, and where the memory ends, histories are averaged by their
masses. In logarithms throughout: windows are short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shoal.audit.suppression_facts import END, HALF_ULP, rounding
from shoal.audit.suppression_steps import in_logarithms, log_step, log_sum
from shoal.audit.suppression_tables import Window
from shoal.core.value import Floats

if TYPE_CHECKING:
    from shoal.audit.suppression_gap import Gap
    from shoal.audit.suppression_sweep import Sweep


class Visits:
    """What is followed in a window: laws (contexts, histories) and beliefs (facts, …) in them."""

    def __init__(self, sweep: Sweep, origin: tuple[int, int], law: Floats) -> None:
        self.sweep, self.origin = sweep, origin
        self.law = in_logarithms(law)[:, None]
        self.facts: list[int] = []
        self.beliefs = np.zeros((0, len(law), 1))
        self.error = 0.0

    def shown(self, t: int, hidden: Floats) -> None:
        """The beliefs after each context that may be shown at t."""
        with np.errstate(divide="ignore"):
            masses = self.law + np.log(1 - hidden)
        for context in np.flatnonzero(np.isfinite(masses).any(axis=1)).tolist():
            self.sweep.note_release(t, context, self.origin)
            self._note(masses[context], self.beliefs[:, context], t, context)

    def begin(self, t: int) -> None:
        """The facts of slot t, which its context decides, whatever came before."""
        here = list(self.sweep.here(t))
        fresh = self.sweep.facts.weight[here][:, :, None]
        self.facts += here
        several = np.repeat(fresh, self.law.shape[1], axis=2)
        self.beliefs = np.concatenate([self.beliefs, several])

    def ended(self, hidden: Floats) -> None:
        """Nothing is shown at the last slot of the day either."""
        with np.errstate(divide="ignore"):
            masses = (self.law + np.log(hidden)).ravel()
        if np.isfinite(masses).any():
            beliefs = self.beliefs.reshape(len(self.facts), masses.size)
            self._note(masses, beliefs, self.sweep.day.slots, END)

    def hide(self, t: int, hidden: Floats, window: Window) -> None:
        """Every history goes on as one for each digit, with the contexts that have this digit."""
        base, (size, histories) = window.base, self.law.shape
        digit = window.digits[:, None] == np.arange(base)[None, :]
        split = (hidden[:, :, None] * digit[:, None, :]).reshape(size, -1)
        columns = np.repeat(self.beliefs, base, axis=2).transpose(1, 0, 2).reshape(size, -1)
        owner = np.tile(np.arange(histories * base), len(self.facts))
        laws = np.repeat(self.law, base, axis=1)
        self.law, moved, added = log_step(laws, split, columns, owner, self.sweep.moves[t])
        shape = (size, len(self.facts), histories * base)
        self.beliefs = moved.reshape(shape).transpose(1, 0, 2)
        self.error += float(added.max())

    def hand_on(self, t: int, gap: Gap) -> None:
        """From slot t on histories no longer count."""
        law = log_sum(self.law.T)
        safe = np.where(np.isfinite(law), law, 0.0)
        beliefs = (self.beliefs * np.exp(self.law - safe[:, None])).sum(axis=2)
        origins = np.array([self.origin])
        error = np.array([self.error + self._average()])
        owner = np.zeros(len(self.facts), dtype=np.int64)
        facts = np.array(self.facts, dtype=np.int64)
        gap.wait(t, origins, law[:, None], error, (beliefs.T, owner, facts))

    def _note(self, masses: Floats, beliefs: Floats, until: int, shown: int) -> None:
        """The average of beliefs (facts, …) by their masses, which are logarithms."""
        weight = np.exp(masses - log_sum(masses[:, None]))
        error = self.error + self._average()
        for fact, belief in zip(self.facts, (beliefs @ weight).tolist(), strict=True):
            rise = self.sweep.rise(fact, belief, error)
            self.sweep.note(fact, rise, self.origin, until, shown)

    def _average(self) -> float:
        """The relative error of one more average over contexts and histories."""
        top = np.abs(self.law[np.isfinite(self.law)]).max(initial=0.0)
        return rounding(1, self.law.size) + 8 * (float(top) + 50) * HALF_ULP


def follow_window(
    sweep: Sweep, gap: Gap, origin: tuple[int, int], law: Floats, window: Window
) -> None:
    """Notes what the slots of the window may show, and hands the release on to what follows.

    `law` is that of the slot after the release.
    """
    visits = Visits(sweep, origin, law)
    t = origin[0] + 1
    for hidden in window.hidden:
        visits.shown(t, hidden.T)
        visits.begin(t)
        if t == sweep.day.slots - 1:
            visits.ended(hidden.T)
            return
        visits.hide(t, hidden.T, window)
        if not np.isfinite(visits.law).any():
            return
        t += 1
    visits.hand_on(t, gap)
