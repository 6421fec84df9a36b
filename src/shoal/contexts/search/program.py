"""One segment of the optimal check as a linear program, its tail bounds generated when broken.

In masses r(t, j, h) released and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
After the window a table without memory takes over; its outcomes are linear in the masses with
which it begins. There are (slots · states · secrets) bounds of that kind, nearly all of them slack,
so they are added to the program only once a solution breaks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.search.adaptive import full_table
from shoal.contexts.search.beliefs import Codes, Day, Origin, computed_limits, law_after_release
from shoal.contexts.search.memory import (
    FINE,
    FineCodes,
    Remembering,
    WindowTail,
    extend_histories,
    fine_decoded,
    fine_encoded,
    follow_window,
    secrets_by_history,
)
from shoal.core.codec import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """Constants of the solver and of the repair of its solutions, found by trial on random days."""

    noise: float = 1e-10  # of the most a node can hold: less is rounding of the solver
    rounds: int = 8  # of solving and adding broken bounds
    bounds_at_once: int = 60  # broken bounds added in a round, the worst first
    # tolerance and whether to simplify; at the least tolerance a feasible program may be called
    # infeasible
    attempts: tuple[tuple[float, bool], ...] = (
        (1e-10, True),
        (1e-10, False),
        (1e-9, True),
        (1e-7, True),
    )
    # histories of less mass are never released: they may have lost digits
    smallest_mass: float = 1e-200
    nearly: float = 1 - 1e-7  # share of an outcome at which plain scaling is good enough
    # of a bound, given up by the program of one outcome
    margins: tuple[float, ...] = (1e-8, 1e-6, 1e-4)


SOLVER = SolverSettings()


# a row Σ (held - b(secret)·mass)·x ≤ 0: the numbers of its variables, held, mass and secret
BoundRow = tuple[Ints, Floats, Floats, int]


def bound_matrix(rows: list[BoundRow], bound: Floats, count: int) -> Any:
    """Return bound rows as a sparse matrix in `count` variables, for these bounds."""
    from scipy.sparse import csr_array

    amounts = np.concatenate([held - bound[secret] * mass for _, held, mass, secret in rows])
    which = np.repeat(np.arange(len(rows)), [len(columns) for columns, *_ in rows])
    columns = np.concatenate([columns for columns, *_ in rows])
    return csr_array((amounts, (which, columns)), shape=(len(rows), count))


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """What is to be decided after one release: value[t, j] follows a later release of j at t.

    `tail` is a private table without memory, `releasable` masks the states that may be released.
    """

    day: Day
    delta: float
    origin: Origin
    tail: Codes
    digits: Ints
    value: Floats
    releasable: Bools


class Solution(NamedTuple):
    """The variables of an optimum, and what no policy exceeds by weak duality."""

    x: Floats
    most: float


class SegmentProgram:
    """One segment as a linear program in release fractions and suppressed fractions of arrivals.

    Variables are masses divided by the largest they can be (all suppressed before), so that the
    solver sees numbers near 1 even where the masses are tiny.
    """

    def __init__(self, given: SegmentTask, window: int, seconds: float = np.inf) -> None:
        """Number the variables of the window after a release; `seconds` limits one solution."""
        day, origin, tail, digits = given.day, given.origin, given.tail, given.digits
        self.day, self.origin, self.digits = day, origin, digits
        self.codes, self.window = tail, window
        self.slot = origin[0]
        self.seconds = seconds  # of one solution, at most
        base = int(digits.max()) + 1
        never = tuple(
            np.full((base**k, day.size), 2**32 - 1, dtype=np.uint32) for k in range(window)
        )
        self.most = follow_window(day, *origin, Remembering(never, tail), digits)
        self.secrets = secrets_by_history(day, self.slot, digits, window)
        self.bound = computed_limits(day, given.delta, base ** (window - 1))
        self.value, self.releasable = given.value, given.releasable
        self.index = self._number()
        suppression = full_table(day, self.slot, tail)
        self.tail = WindowTail(day, self.slot, self.slot + 1 + window, suppression, given.value)
        self.asked: list[tuple[int, int, int]] = []  # (slot, state, secret) of tail bounds

    def _number(self) -> list[Ints]:
        """Return each node's number of its suppressed variable; the released one is one higher."""
        count, found = 0, []
        for mass in self.most[:-1]:
            numbers = np.full(mass.shape, -1, dtype=np.int64)
            alive = mass > SOLVER.smallest_mass
            numbers[alive] = count + 2 * np.arange(int(alive.sum()))
            count += 2 * int(alive.sum())
            found.append(numbers)
        self.count = count
        return found

    def solve(self, margin: float | None) -> Solution | None:
        """Return the optimum under bounds lowered by a part `margin`; None when the solver fails.

        Without a margin under the bounds as they are, to know what no policy exceeds.
        """
        bound = self.day.bound if margin is None else self.bound * (1 - margin)
        solution = self._solution(bound)
        for _ in range(SOLVER.rounds):
            if solution is None:
                return None
            broken = self.tail.broken(*self._entering(solution.x), bound)
            fresh = [outcome for outcome in broken if outcome not in self.asked][
                : SOLVER.bounds_at_once
            ]
            if not fresh:
                break
            self.asked += fresh
            solution = self._solution(bound)
        return solution

    def _solution(self, bound: Floats) -> Solution | None:
        """Return the optimum with the tail bounds requested so far; None when the solver fails."""
        rows = [*self._bounds, *self._tail_bounds()]
        for tolerance, simplify in SOLVER.attempts:
            found = self._solved(rows, bound, tolerance, simplify)
            if found.status == 0:
                return Solution(found.x, self._dual(found, rows))
            if found.status == 1:  # out of time
                break
        return None

    def _solved(self, rows: list[BoundRow], bound: Floats, tolerance: float, simplify: bool) -> Any:
        """Run the solver once on the rows with these bounds and return its result object."""
        from scipy.optimize import linprog

        limits = bound_matrix(rows, bound, self.count) if rows else None
        options = {
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
            "presolve": simplify,
        }
        return linprog(
            -self._gains,
            A_ub=limits,
            b_ub=None if limits is None else np.zeros(len(rows)),
            A_eq=self._flows[0],
            b_eq=self._flows[1],
            bounds=np.stack([np.zeros(self.count), self._upper], axis=1),
            method="highs",
            options=options | ({"time_limit": self.seconds} if self.seconds < np.inf else {}),
        )

    def _dual(self, found: Any, rows: list[BoundRow]) -> float:
        """Return what no policy exceeds under the original bounds, from the solver's multipliers.

        max g·x ≤ y·right + Σ upper·max(0, g - y·flows - z·rows) for all y and all z ≥ 0.
        """
        prices = -found.eqlin.marginals
        rest = self._gains - self._flows[0].T @ prices
        if rows:
            limits = bound_matrix(rows, self.day.bound, self.count)
            rest = rest - limits.T @ np.maximum(0, -found.ineqlin.marginals)
        return float(self._flows[1] @ prices + self._upper @ np.maximum(0, rest))

    def _entering(self, solution: Floats) -> tuple[Floats, Floats]:
        """Return the masses that enter the tail: of each state, and of each state and secret."""
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
        """Return history, state and visited secrets of each node of the window's last slot."""
        base = int(self.digits.max()) + 1
        histories, states = np.nonzero(self.index[-1] >= 0)
        past = self.secrets[-1][histories * base + self.digits[states]].astype(np.float64)
        return histories, states, past

    @cached_property
    def _gains(self) -> Floats:
        """Return the expected releases that each variable stands for, later ones included."""
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

    @cached_property
    def _upper(self) -> Floats:
        """Return the upper limit of each variable: 1, or 0 for states that may not be released."""
        upper = np.ones(self.count)
        for k, numbers in enumerate(self.index):
            closed = (numbers >= 0) & ~self.releasable[self.slot + 1 + k][None, :]
            upper[numbers[closed] + 1] = 0.0
        return upper

    @cached_property
    def _flows(self) -> tuple[Any, Floats]:
        """Return the equations suppressed + released = what arrives, per largest possible mass."""
        from scipy.sparse import csr_array

        base = int(self.digits.max()) + 1
        rows, columns, amounts = [], [], []
        right = np.zeros(self.count // 2)
        right[: int((self.index[0] >= 0).sum())] = 1.0
        for k, numbers in enumerate(self.index):
            histories, states = np.nonzero(numbers >= 0)
            here = numbers[histories, states]
            for shift in (0, 1):
                rows.append(here // 2)
                columns.append(here + shift)
                amounts.append(np.ones(len(here)))
            if not k:
                continue
            before, digit = np.divmod(histories, base)
            for i in range(self.day.size):
                number = self.index[k - 1][before, i]
                move = self.day.moves[self.slot + k, i, states]
                share = self.most[k - 1][before, i] * move / self.most[k][histories, states]
                fits = (self.digits[i] == digit) & (number >= 0) & (share > 0)
                rows.append(here[fits] // 2)
                columns.append(number[fits])
                amounts.append(-share[fits])
        entries = np.concatenate(amounts), (np.concatenate(rows), np.concatenate(columns))
        return csr_array(entries, shape=(len(right), self.count)), right

    @cached_property
    def _bounds(self) -> list[BoundRow]:
        """Return the rows Σ (belief - bound)·mass ≤ 0 of every outcome and secret in the window."""
        parts = []
        for k, numbers in enumerate(self.index):
            for j in np.flatnonzero(self.releasable[self.slot + 1 + k]):
                alive = np.flatnonzero(numbers[:, j] >= 0)
                if not len(alive):
                    continue
                mass = self.most[k][alive, j] / self.most[k][alive, j].sum()
                for c in np.flatnonzero(self.secrets[k][alive].any(axis=0)):
                    held = mass * self.secrets[k][alive, c]
                    parts.append((numbers[alive, j] + 1, held, mass, int(c)))
        return parts

    def _tail_bounds(self) -> list[BoundRow]:
        """Return the rows Σ (belief - bound)·mass ≤ 0 of the tail outcomes requested so far."""
        histories, states, past = self._last
        columns = self.index[-1][histories, states]
        onward = self.day.moves[self.tail.begin - 1]
        parts = []
        for slot, state, secret in self.asked:
            law, inside = self.tail.outcome(slot, state, secret)
            reached = onward @ law  # from each state of the window's last slot
            mass = self.most[-2][histories, states] * reached[states]
            if mass.sum() <= SOLVER.smallest_mass:
                continue
            belief = past[:, secret]
            if inside is not None:
                safe = np.where(reached > 0, reached, 1.0)
                belief = ((onward @ inside) / safe)[states]
            mass = mass / mass.sum()
            parts.append((columns, mass * belief, mass, secret))
        return parts

    def tables(self, solution: Solution, margin: float, mix: float) -> tuple[FineCodes, ...]:
        """Return the solution's suppression tables, mixed with a part `mix` of a safe policy.

        That is suppressing everything, or using the table without memory from the start when it
        takes over after the window. Both are private and every bound is linear in the masses, so
        their mixture is private too; and where the solver leaves next to nothing, so that its
        rounding would decide a belief, the mixture has the masses of the other.
        """
        found = []
        for k, numbers in enumerate(self.index):
            alive = numbers >= 0
            masses = []
            for shift in (0, 1):
                fraction = np.zeros(numbers.shape)
                fraction[alive] = np.clip(solution.x[numbers[alive] + shift], 0, 1)
                masses.append(np.where(fraction > SOLVER.noise, fraction, 0.0) * self.most[k])
            plain = self._plain[k] * self._table[k]
            kept = (1 - mix) * masses[0] + mix * plain
            gone = (1 - mix) * masses[1] + mix * (self._plain[k] - plain)
            total = kept + gone
            found.append(np.where(total > 0, kept / np.where(total > 0, total, 1.0), 1.0))
        bound = self.bound * (1 - margin / 2)
        return repair_tables(self.day, self.origin, found, self.digits, self.secrets, bound)

    @cached_property
    def _table(self) -> Floats:
        """Return the safe policy's suppression in the slots of the window."""
        begin = self.slot + 1
        if self.tail.begin >= self.day.slots:
            return np.ones((self.window, self.day.size))
        return self.tail.suppression[begin : begin + self.window]

    @cached_property
    def _plain(self) -> list[Floats]:
        """Return the masses that arrive when the safe policy is used from the first slot on."""
        rows = tuple(
            fine_encoded(np.broadcast_to(suppression, mass.shape))
            for suppression, mass in zip(self._table, self.most, strict=False)
        )
        return follow_window(self.day, *self.origin, Remembering(rows, self.codes), self.digits)


# Tables of a window made private where a linear program was only nearly so.
#
# A solver keeps its rows to 1e-10 or so. Where an outcome is rare that can be everything: a
# history of mass 1e-9 that is released alone tells all. Such outcomes are released less, slot by
# slot, in the masses that the rounded tables before them really lead to.


def repair_tables(
    day: Day,
    origin: Origin,
    tables: list[Floats],
    digits: Ints,
    secrets: tuple[Bools, ...],
    bound: Floats,
) -> tuple[FineCodes, ...]:
    """Return `tables` as codes, raised wherever an outcome inside the window breaks a bound.

    tables[k][h, j] suppresses state j with history h, k + 1 slots after the release; secrets[k]
    says which secrets a history holds.
    """
    arriving = law_after_release(day, origin)[None, :]
    found = []
    for k, suppression in enumerate(tables):
        codes = fine_encoded(np.where(arriving > SOLVER.smallest_mass, suppression, 1.0))
        for j in np.flatnonzero((codes < FINE - 1).any(axis=0)):
            codes[:, j] = limit_outcome(codes[:, j], arriving[:, j], secrets[k], bound)
        found.append(codes)
        kept = arriving * fine_decoded(codes)
        arriving = extend_histories(kept, day.moves[origin[0] + 1 + k], digits)
    return tuple(found)


def limit_outcome(codes: FineCodes, arriving: Floats, holds: Bools, bound: Floats) -> FineCodes:
    """Return one outcome's codes, raised until no belief exceeds its bound.

    Of secret c the masses N that hold it and D of all must satisfy N ≤ b·D.
    """
    counted = holds.any(axis=0)
    holds, bound = holds[:, counted], bound[counted]
    if _keeps_bounds(codes, arriving, holds, bound):
        return codes
    scaled = _scale_outcome(codes, arriving, holds, bound)
    before, after = (_released_masses(c, arriving).sum() for c in (codes, scaled))
    if after >= SOLVER.nearly * before:
        return scaled
    best = _solve_outcome(codes, arriving, holds, bound)
    return best if _released_masses(best, arriving).sum() > after else scaled


def _keeps_bounds(codes: FineCodes, arriving: Floats, holds: Bools, bound: Floats) -> bool:
    releasable = _released_masses(codes, arriving)
    return bool((releasable @ holds <= bound * releasable.sum()).all())


def _released_masses(codes: FineCodes, arriving: Floats) -> Floats:
    return np.asarray(arriving * (1.0 - fine_decoded(codes)))


def _always_suppress(codes: FineCodes) -> FineCodes:
    return np.full_like(codes, FINE - 1)


def _scale_outcome(codes: FineCodes, arriving: Floats, holds: Bools, bound: Floats) -> FineCodes:
    """Release histories with a secret less by one common factor; leave the others unchanged.

    s·N ≤ b(D₀ + s·R - roundings), D₀ released without any secret, R with some: all bounds at once.
    """
    releasable, some = _released_masses(codes, arriving), holds.any(axis=1)
    lost = 2.0 / FINE * arriving[some].sum()
    over = releasable @ holds - bound * releasable[some].sum()
    room = bound * (releasable[~some].sum() - lost)
    if (room <= 0).any():
        return _always_suppress(codes)
    scale = min(1.0, float(np.min(room[over > 0] / over[over > 0], initial=1.0)))
    part = (1.0 - fine_decoded(codes)) * np.where(some, scale * (1 - 1e-12), 1.0)
    lowered = np.where(some, fine_encoded(1.0 - part), codes)
    return lowered if _keeps_bounds(lowered, arriving, holds, bound) else _always_suppress(codes)


def _solve_outcome(codes: FineCodes, arriving: Floats, holds: Bools, bound: Floats) -> FineCodes:
    """Release as much of an outcome's mass as its bounds allow, by a small linear program."""
    from scipy.optimize import linprog

    share = 1.0 - fine_decoded(codes)
    some = np.flatnonzero(share > 0)
    mass = arriving[some] * share[some]
    mass = mass / mass.sum()
    for margin in SOLVER.margins:
        rows = (holds[some].T - (bound * (1 - margin))[:, None]) * mass
        found = linprog(-mass, A_ub=rows, b_ub=np.zeros(len(rows)), bounds=(0, 1), method="highs")
        if found.status != 0:
            continue
        part = np.zeros(len(share))
        part[some] = share[some] * np.clip(found.x, 0, 1)
        lowered = np.maximum(fine_encoded(1.0 - part), codes)
        if _keeps_bounds(lowered, arriving, holds, bound):
            return lowered
    return _always_suppress(codes)
