"""The best policy with a memory of sensitive visits, segment by segment: linear programs.

In masses r(t, j, h) shown and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
Solved backwards in time this is the optimum over all causal ways to show or suppress, when the
window covers the segment; a shorter window ends in a table without memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import LEVELS, Codes, Day, decoded, future_beliefs, releasable
from shoal.loss.suppression_adaptive import Origin
from shoal.loss.suppression_history import (
    Remembering,
    digits_of,
    fine_encoded,
    flow,
    history_rise,
    history_value,
    seen_by,
)

MOST_NODES = 1500  # (slot, history, state) nodes of one program
MOST_ENTRIES = 400_000  # numbers in the bounds of one program
MARGINS = (1e-8, 1e-6, 1e-4, 1e-2)  # of a bound, given up until the rounded policy keeps it
Entries = tuple[list[int], list[int], list[float]]  # rows, columns, amounts
LEAST_SHOWN = 1e-6  # smaller release probabilities are rounding noise of the solver


@dataclass(frozen=True, slots=True)
class Histories:
    """The policies of all releases that can occur, and the mean number of releases of a day.

    `exact` says that every segment was solved with a window that covers it.
    """

    policies: dict[Origin, Remembering]
    digits: Ints
    expected: float
    exact: bool


def windowed(
    day: Day, delta: float, base: dict[Origin, Codes], *, programs: int, nodes: int = MOST_NODES
) -> Histories:
    """The better of `base` and of the linear program, for each segment, backwards in time.

    `base` gives each release its table without memory. At most `programs` segments, the likeliest
    ones, get a program.
    """
    digits = digits_of(day)
    shown = releasable(day, future_beliefs(day))
    origins = [(int(t), int(j)) for t, j in np.argwhere(shown)[::-1]] + [(-1, 0)]
    likely = sorted(origins, key=lambda o: -day.prior[o] if o[0] >= 0 else -2.0)[:programs]
    chosen = set(likely)
    value = np.zeros((day.slots, day.size))
    policies: dict[Origin, Remembering] = {}
    exact = len(chosen) == len(origins)
    for origin in origins:
        slot = origin[0]
        tail = base.get(origin, np.full((0, day.size), LEVELS - 1, dtype=np.uint16))
        plan = Remembering((), tail)
        if history_rise(day, origin, plan, digits) > delta * (1 + 5e-13):
            plan = Remembering((), tail[:0])  # all suppressed, which every origin allows
        best = history_value(day, origin, plan, digits, value)
        window = fitting_window(day, slot, digits, nodes) if origin in chosen else 0
        exact = exact and window == day.slots - 1 - slot
        if window:
            found = solved(day, delta, origin, tail, window, digits, value, shown)
            reached = -1.0 if found is None else history_value(day, origin, found, digits, value)
            if found is not None and reached > best:
                plan, best = found, reached
        if slot >= 0:
            value[origin] = best
        policies[origin] = plan
    return Histories(policies, digits, best, exact)


def fitting_window(day: Day, slot: int, digits: Ints, nodes: int) -> int:
    """The longest window after `slot` whose program has at most `nodes` nodes."""
    base = int(digits.max()) + 1
    total = window = 0
    while window < day.slots - 1 - slot:
        total += base**window * day.size
        if total > nodes:
            break
        window += 1
    return window


def solved(
    day: Day,
    delta: float,
    origin: Origin,
    tail: Codes,
    window: int,
    digits: Ints,
    value: Floats,
    shown: Any,
) -> Remembering | None:
    """The policy of the linear program, rounded and checked; None when none passes."""
    program = _Program(day, origin, tail, window, digits, value, shown)
    if program.entries > MOST_ENTRIES:
        return None
    for margin in MARGINS:
        codes = program.solve(margin)
        if codes is None:
            continue
        plan = Remembering(codes, tail)
        if history_rise(day, origin, plan, digits) <= delta * (1 + 5e-13):
            return plan
    return None


class _Program:
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
    ) -> None:
        self.day, self.origin, self.window, self.digits = day, origin, window, digits
        self.slot = origin[0]
        never = tuple(
            np.full(((int(digits.max()) + 1) ** k, day.size), 2**32 - 1, dtype=np.uint32)
            for k in range(window)
        )
        self.most = flow(day, *origin, Remembering(never, tail), digits)
        self.secrets = seen_by(day, self.slot, digits, window)
        self.hidden = np.ones((day.slots, day.size))
        self.hidden[self.slot + 1 : self.slot + 1 + len(tail)] = decoded(tail)
        self.value, self.shown = value, shown
        self.index = self._number()
        self.tail_law, self.tail_joint, self.tail_value = self._tail()
        places = int((self.index[-1] >= 0).sum())
        self.entries = len(self.tail_law) * max(1, len(day.when)) * places

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

    def _tail(self) -> tuple[list[Floats], list[Floats], Floats]:
        """Outcomes after the window: law[o][j], joint[o][j, c], and what waiting is worth.

        j is the state in which the tail begins; c runs over the secrets inside the tail.
        """
        day = self.day
        begin = self.slot + 1 + self.window
        size, count = day.size, len(day.when)
        law = np.eye(size)
        joint = np.zeros((size, size, count))
        worth = np.zeros(size)
        laws: list[Floats] = []
        joints: list[Floats] = []
        for t in range(begin, day.slots):
            for c in np.flatnonzero(day.when == t):
                joint[:, day.who[c], c] = law[:, day.who[c]]
            for k in np.flatnonzero(self.hidden[t] < 1):
                if law[:, k].any():
                    laws.append(law[:, k].copy())
                    joints.append(joint[:, k].copy())
                    worth += law[:, k] * (1 - self.hidden[t, k]) * (1 + self.value[t, k])
            kept = self.hidden[t]
            law = (law * kept) @ day.moves[t]
            joint = np.einsum("jkc,k,kl->jlc", joint, kept, day.moves[t])
        laws.append(law[:, 0])
        joints.append(joint[:, 0])
        return laws, joints, worth

    def solve(self, margin: float) -> tuple[Any, ...] | None:
        """Codes of the optimum under bounds lowered by `margin`; None when the solver fails."""
        from scipy.optimize import linprog
        from scipy.sparse import csr_array

        upper = self._bounds(self.day.bound * (1 - margin))
        equal, right = self._flows()
        matrix = csr_array((equal[2], (equal[0], equal[1])), shape=(len(right), self.count))
        limits = csr_array((upper[2], (upper[0], upper[1])), shape=(upper[3], self.count))
        found = linprog(
            -self._gains(),
            A_ub=limits if upper[3] else None,
            b_ub=np.zeros(upper[3]) if upper[3] else None,
            A_eq=matrix,
            b_eq=right,
            bounds=(0, 1),
            method="highs",
        )
        return self._codes(found.x) if found.status == 0 else None

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
            onward = float(self.day.moves[self.slot + self.window, j] @ self.tail_value)
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
        """The rows Σ (belief - bound)·mass ≤ 0 of every outcome and secret."""
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
        return (*at, self._tail_bounds(at, row, bound))

    def _tail_bounds(self, at: Entries, row: int, bound: Floats) -> int:
        base = int(self.digits.max()) + 1
        last = self.index[-1]
        begin = self.slot + self.window
        histories, states = np.nonzero(last >= 0)
        past = self.secrets[-1][histories * base + self.digits[states]].astype(np.float64)
        later = np.flatnonzero(self.day.when > self.slot)
        for law, joint in zip(self.tail_law, self.tail_joint, strict=True):
            onward = self.day.moves[begin] @ law  # from each state of the window's last slot
            inside = self.day.moves[begin] @ joint / np.where(onward > 0, onward, 1.0)[:, None]
            mass = self.most[-2][histories, states] * onward[states]
            if mass.sum() <= 0:
                continue
            belief = np.where(self.day.when > begin, inside[states], past)[:, later]
            amounts = (mass / mass.sum())[:, None] * (belief - bound[later])
            places, which = np.nonzero(np.broadcast_to(mass[:, None] > 0, amounts.shape))
            at[0].extend((row + which).tolist())
            at[1].extend(last[histories, states][places].tolist())
            at[2].extend(amounts[places, which].tolist())
            row += len(later)
        return row

    def _codes(self, solution: Floats) -> tuple[Any, ...]:
        found = []
        for numbers in self.index:
            hidden = np.ones(numbers.shape)
            alive = numbers >= 0
            kept = np.clip(solution[numbers[alive]], 0, 1)
            gone = np.clip(solution[numbers[alive] + 1], 0, 1)
            total = kept + gone
            share = np.where(total > 1e-12, gone / np.where(total > 0, total, 1.0), 0.0)
            share = np.where(share < LEAST_SHOWN, 0.0, share)
            share = np.where(share > 1 - LEAST_SHOWN, 1.0, share)
            hidden[alive] = 1.0 - share
            found.append(fine_encoded(hidden))
        return tuple(found)


def _put(at: Entries, row: int, column: int, amount: float) -> None:
    at[0].append(row)
    at[1].append(column)
    at[2].append(amount)
