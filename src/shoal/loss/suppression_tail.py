"""What follows the window of a segment: a table without memory, and the beliefs it leads to.

Everything is linear in the masses with which the tail begins: `law[j]` of the state, and of the
state together with each secret visited before.
"""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day

SLACK = 1e-11  # of a belief: solutions of a linear program are no more exact than that
MOST_BROKEN = 400  # bounds reported by one look


class Tail:
    """The slots from `begin` on of the segment that follows a release at `slot`.

    `hidden` suppresses state j at slot t with probability hidden[t, j]; value[t, j] is what
    follows a release of j at t. An outcome is (t, j), the next release, or (T, 0), the end.
    """

    def __init__(self, day: Day, slot: int, begin: int, hidden: Floats, value: Floats) -> None:
        self.day, self.slot, self.begin, self.hidden = day, slot, begin, hidden
        self.reach = self._reach()
        self.worth = self._worth(value)
        self._onward: dict[tuple[int, int], list[Floats]] = {}

    def _reach(self) -> list[Floats]:
        """reach[t - begin][i, j]: P(suppressed since, X_t = j | X_begin = i)."""
        table = [np.eye(self.day.size)]
        for t in range(self.begin, self.day.slots):
            table.append((table[-1] * self.hidden[t]) @ self.day.moves[t])
        return table

    def _worth(self, value: Floats) -> Floats:
        """Expected releases when the tail begins in each state."""
        worth = np.zeros(self.day.size)
        for t in range(self.day.slots - 1, self.begin - 1, -1):
            hidden = self.hidden[t]
            later = self.day.moves[t] @ worth if t + 1 < self.day.slots else 0.0
            worth = (1 - hidden) * (1 + value[t]) + hidden * later
        return np.asarray(worth)

    def broken(self, law: Floats, joint: Floats, bound: Floats) -> list[tuple[int, int, int]]:
        """(slot, state, secret) of bounds that beginning with these masses breaks, worst first."""
        day = self.day
        when, later = day.when, day.when > self.slot
        found: list[tuple[float, int, int, int]] = []
        joint = joint.copy()
        for t in range(self.begin, day.slots + 1):
            for c in np.flatnonzero(when == t):
                joint[:, c] = 0.0
                joint[day.who[c], c] = law[day.who[c]]
            shown = law > 0 if t == day.slots else (law > 0) & (self.hidden[t] < 1)
            states: Ints = np.flatnonzero(shown)
            known = later & (when <= t)
            excess = joint[states] / law[states, None] - bound
            rows, secrets = np.nonzero((excess > SLACK) & known)
            amounts = excess[rows, secrets]
            found += zip(
                (-amounts).tolist(),
                [t] * len(rows),
                states[rows].tolist(),
                secrets.tolist(),
                strict=True,
            )
            if t < day.slots:
                kept = self.hidden[t]
                law = (law * kept) @ day.moves[t]
                joint = day.moves[t].T @ (joint * kept[:, None])
        return [(t, state, secret) for _, t, state, secret in sorted(found)[:MOST_BROKEN]]

    def outcome(self, slot: int, state: int, secret: int) -> tuple[Floats, Floats | None]:
        """P(outcome | begins in i), and together with the secret; None when it came before."""
        onward = self._backwards(slot, state)
        when, who = int(self.day.when[secret]), int(self.day.who[secret])
        if when < self.begin:
            return onward[0], None
        inside = self.reach[when - self.begin][:, who] * onward[when - self.begin][who]
        return onward[0], np.asarray(inside)

    def _backwards(self, slot: int, state: int) -> list[Floats]:
        """u[t - begin][i]: P(suppressed from t on, then state at slot | X_t = i)."""
        if (slot, state) not in self._onward:
            unit = np.zeros(self.day.size)
            unit[state] = 1.0
            table = [unit]
            for t in range(slot - 1, self.begin - 1, -1):
                table.append(self.hidden[t] * (self.day.moves[t] @ table[-1]))
            self._onward[slot, state] = table[::-1]
        return self._onward[slot, state]
