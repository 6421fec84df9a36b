"""One segment of the optimal check as a linear program, its tail bounds generated when broken.

In masses r(t, j, h) shown and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
After the window a table without memory takes over; its outcomes are linear in the masses with
which it begins. There are (slots · states · secrets) bounds of that kind, nearly all of them slack,
so they are added to the program only once a solution breaks them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Codes, Day, decoded
from shoal.loss.suppression_adaptive import Origin
from shoal.loss.suppression_history import Remembering, fine_encoded, flow, seen_by
from shoal.loss.suppression_repair import repaired
from shoal.loss.suppression_tail import Tail

Entries = tuple[list[int], list[int], list[float]]  # rows, columns, amounts
LEAST_SHOWN = 1e-6  # smaller release probabilities are rounding noise of the solver
ROUNDS = 8  # of solving and adding broken bounds
AT_ONCE = 60  # broken bounds added in a round, the worst first


class Program:
    """One segment as a linear program in release fractions and suppressed fractions of arrivals.

    Variables are masses divided by the largest they can be (all suppressed before), so that the
    solver sees numbers near 1 even where the masses are tiny.
    """

    def __init__(
        self,
        day: Day,
        origin: Origin,
        tail: Codes,
        window: int,
        digits: Ints,
        value: Floats,
        shown: Any,
        seconds: float = np.inf,
    ) -> None:
        self.day, self.origin, self.window, self.digits = day, origin, window, digits
        self.codes = tail
        self.slot = origin[0]
        self.seconds = seconds  # of one solution, at most
        never = tuple(
            np.full(((int(digits.max()) + 1) ** k, day.size), 2**32 - 1, dtype=np.uint32)
            for k in range(window)
        )
        self.most = flow(day, *origin, Remembering(never, tail), digits)
        self.secrets = seen_by(day, self.slot, digits, window)
        hidden = np.ones((day.slots, day.size))
        hidden[self.slot + 1 : self.slot + 1 + len(tail)] = decoded(tail)
        self.value, self.shown = value, shown
        self.index = self._number()
        self.tail = Tail(day, self.slot, self.slot + 1 + window, hidden, value)
        self.asked: list[tuple[int, int, int]] = []  # (slot, state, secret) of tail bounds

    def _number(self) -> list[Ints]:
        """The number of each node's suppressed variable; its shown variable is one higher."""
        count, found = 0, []
        for mass in self.most[:-1]:
            numbers = np.full(mass.shape, -1, dtype=np.int64)
            alive = mass > 0
            numbers[alive] = count + 2 * np.arange(int(alive.sum()))
            count += 2 * int(alive.sum())
            found.append(numbers)
        self.count = count
        return found

    def solve(self, margin: float, mix: float) -> tuple[Any, ...] | None:
        """Codes of the optimum under bounds lowered by `margin`; None when the solver fails.

        `mix` is the share of the table by itself in them.
        """
        bound = self.day.bound * (1 - margin)
        fixed, equal = self._bounds(bound), self._flows()
        solution = self._solution(fixed, equal, bound)
        for _ in range(ROUNDS):
            if solution is None:
                return None
            broken = self.tail.broken(*self._entering(solution), bound)
            fresh = [outcome for outcome in broken if outcome not in self.asked][:AT_ONCE]
            if not fresh:
                break
            self.asked += fresh
            solution = self._solution(fixed, equal, bound)
        return None if solution is None else self._codes(solution, margin, mix)

    def _solution(self, fixed: Any, equal: Any, bound: Floats) -> Floats | None:
        """The optimum with the bounds asked for so far."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        at = (list(fixed[0]), list(fixed[1]), list(fixed[2]))
        rows = self._tail_bounds(at, fixed[3], bound)
        (flows, right) = equal
        found = linprog(
            -self._gains,
            A_ub=csr_array((at[2], (at[0], at[1])), shape=(rows, self.count)) if rows else None,
            b_ub=np.zeros(rows) if rows else None,
            A_eq=csr_array((flows[2], (flows[0], flows[1])), shape=(len(right), self.count)),
            b_eq=right,
            bounds=(0, 1),
            method="highs",
            options={"time_limit": self.seconds} if np.isfinite(self.seconds) else {},
        )
        return found.x if found.status == 0 else None

    def _entering(self, solution: Floats) -> tuple[Floats, Floats]:
        """The masses with which the tail begins: of each state, and of each with each secret."""
        histories, states, past = self._last
        kept = self.most[-2][histories, states] * np.clip(
            solution[self.index[-1][histories, states]], 0, 1
        )
        onward = self.day.moves[self.tail.begin - 1]
        law = np.bincount(states, kept, self.day.size) @ onward
        joint = np.zeros((self.day.size, len(self.day.when)))
        np.add.at(joint, states, kept[:, None] * past)
        return law, onward.T @ joint

    @cached_property
    def _last(self) -> tuple[Ints, Ints, Floats]:
        """History and state of each node of the window's last slot, and the secrets visited."""
        base = int(self.digits.max()) + 1
        histories, states = np.nonzero(self.index[-1] >= 0)
        past = self.secrets[-1][histories * base + self.digits[states]].astype(np.float64)
        return histories, states, past

    @cached_property
    def _gains(self) -> Floats:
        gains = np.zeros(self.count)
        for k, numbers in enumerate(self.index):
            alive = numbers >= 0
            t = self.slot + 1 + k
            worth = self.most[k] * (1 + self.value[t])[None, :]
            gains[numbers[alive] + 1] = worth[alive]
        last = self.index[-1]
        for j in range(self.day.size):
            rows = np.flatnonzero(last[:, j] >= 0)
            onward = float(self.day.moves[self.slot + self.window, j] @ self.tail.worth)
            gains[last[rows, j]] += self.most[len(self.index) - 1][rows, j] * onward
        return gains

    def _flows(self) -> tuple[Entries, Floats]:
        """suppressed + shown = what arrives, each divided by the most that can arrive."""
        base = int(self.digits.max()) + 1
        at: Entries = ([], [], [])
        right: list[float] = []
        for k, numbers in enumerate(self.index):
            t = self.slot + 1 + k
            for h, j in np.argwhere(numbers >= 0):
                row = len(right)
                _put(at, row, int(numbers[h, j]), 1.0)
                _put(at, row, int(numbers[h, j]) + 1, 1.0)
                right.append(1.0 if k == 0 else 0.0)
                if k:
                    before, digit = divmod(int(h), base)
                    for i in np.flatnonzero(self.digits == digit):
                        number = self.index[k - 1][before, i]
                        share = self.day.moves[t - 1, i, j] / self.most[k][h, j]
                        if number >= 0 and share > 0:
                            _put(at, row, int(number), -share * self.most[k - 1][before, i])
        return at, np.array(right)

    def _bounds(self, bound: Floats) -> tuple[list[int], list[int], list[float], int]:
        """The rows Σ (belief - bound)·mass ≤ 0 of every outcome and secret inside the window."""
        at: Entries = ([], [], [])
        row = 0
        for k, numbers in enumerate(self.index):
            t = self.slot + 1 + k
            for j in range(self.day.size):
                alive = np.flatnonzero(numbers[:, j] >= 0)
                if not len(alive):
                    continue
                if not self.shown[t, j]:
                    for h in alive:  # never shown: x ≤ 0
                        _put(at, row, int(numbers[h, j]) + 1, 1.0)
                    row += 1
                    continue
                mass = self.most[k][alive, j] / self.most[k][alive, j].sum()
                for c in np.flatnonzero(self.secrets[k][alive].any(axis=0)):
                    excess = mass * (self.secrets[k][alive, c] - bound[c])
                    for h, amount in zip(alive, excess, strict=True):
                        _put(at, row, int(numbers[h, j]) + 1, float(amount))
                    row += 1
        return (*at, row)

    def _tail_bounds(self, at: Entries, row: int, bound: Floats) -> int:
        """The same for the outcomes of the tail asked for; returns the number of rows."""
        histories, states, past = self._last
        columns = self.index[-1][histories, states].tolist()
        onward = self.day.moves[self.tail.begin - 1]
        for slot, state, secret in self.asked:
            law, inside = self.tail.outcome(slot, state, secret)
            reached = onward @ law  # from each state of the window's last slot
            mass = self.most[-2][histories, states] * reached[states]
            if mass.sum() <= 0:
                continue
            belief = past[:, secret]
            if inside is not None:
                safe = np.where(reached > 0, reached, 1.0)
                belief = ((onward @ inside) / safe)[states]
            amounts = mass / mass.sum() * (belief - bound[secret])
            at[0].extend([row] * len(columns))
            at[1].extend(columns)
            at[2].extend(amounts.tolist())
            row += 1
        return row

    def _codes(self, solution: Floats, margin: float, mix: float) -> tuple[Any, ...]:
        """Suppression tables of the solution's masses, mixed with those of the table by itself.

        Both are private and every bound is linear in the masses, so their mixture is private too;
        and where the solver leaves next to nothing, so that its rounding would decide a belief,
        the mixture has the masses of the table.
        """
        found = []
        for k, numbers in enumerate(self.index):
            alive = numbers >= 0
            kept = np.zeros(numbers.shape)
            gone = np.zeros(numbers.shape)
            kept[alive] = np.clip(solution[numbers[alive]], 0, 1) * self.most[k][alive]
            gone[alive] = np.clip(solution[numbers[alive] + 1], 0, 1) * self.most[k][alive]
            gone[gone < LEAST_SHOWN * (kept + gone)] = 0.0
            kept[kept < LEAST_SHOWN * (kept + gone)] = 0.0
            plain = self._plain[k] * self._table[k]
            kept = (1 - mix) * kept + mix * plain
            gone = (1 - mix) * gone + mix * (self._plain[k] - plain)
            total = kept + gone
            hidden = np.where(total > 0, kept / np.where(total > 0, total, 1.0), 1.0)
            found.append(hidden)
        bound = self.day.bound * (1 - margin)
        tables = repaired(self.day, self.origin, found, self.digits, self.secrets, bound)
        return tuple(fine_encoded(hidden) for hidden in tables)

    @cached_property
    def _table(self) -> Floats:
        """What the table by itself suppresses in the slots of the window."""
        return self.tail.hidden[self.slot + 1 : self.slot + 1 + self.window]

    @cached_property
    def _plain(self) -> list[Floats]:
        """The masses that arrive when the table is used from the first slot on."""
        rows = tuple(
            fine_encoded(np.broadcast_to(hidden, mass.shape))
            for hidden, mass in zip(self._table, self.most, strict=False)
        )
        return flow(self.day, *self.origin, Remembering(rows, self.codes), self.digits)


def _put(at: Entries, row: int, column: int, amount: float) -> None:
    at[0].append(row)
    at[1].append(column)
    at[2].append(amount)
