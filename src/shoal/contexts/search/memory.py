"""Suppression that also remembers the sensitive visits since the last release.

After a release, the first `window` slots are decided by the current state and by which sensitive
contexts were visited in the slots since; later slots by a table without memory. A visit is a
digit: 0 for a context that is not sensitive, 1 + its rank otherwise; the history of k slots is
the number those digits spell. `Remembering.codes[k]` has one row per history of k slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from shoal.contexts.search.adaptive import (
    expected_releases,
    full_table,
    releases_forward,
    value_of_table,
)
from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    IMPOSSIBLE_EXPONENT,
    Codes,
    Day,
    Origin,
    decoded,
    encoded,
    law_after_release,
    segment_rise,
    upper_rises,
)
from shoal.contexts.search.decimals import Segment, settle_rise
from shoal.core.codec import Floats, Ints

FINE = 1 << 32  # histories are suppressed with multiples of 2^-32
FineCodes = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Remembering:
    """What follows one release: a table per slot of the window, and the slots after it.

    `codes[k][h, j]` is for the slot k + 1 after the release, history h and state j; `tail` holds
    a row per slot after the release, of which those inside the window are not used.
    """

    codes: tuple[FineCodes, ...]
    tail: Codes


def history_digits(day: Day) -> Ints:
    """Return each state's digit in a history: 0, or 1 + its rank among the sensitive states."""
    digits = np.zeros(day.size, dtype=np.int64)
    sensitive = np.unique(day.who)
    digits[sensitive] = 1 + np.arange(len(sensitive))
    return digits


def fine_encoded(suppression: Floats) -> FineCodes:
    """Round probabilities up to multiples of 2^-32; the largest code stands for 1."""
    return np.asarray(encoded(suppression, FINE, np.uint32), dtype=np.uint32)


def fine_decoded(codes: FineCodes) -> Floats:
    """Return the suppression probabilities that 32-bit codes stand for, exactly."""
    return decoded(codes, FINE)


def secrets_by_history(
    day: Day, slot: int, digits: Ints, window: int
) -> tuple[npt.NDArray[np.bool_], ...]:
    """Return masks (histories of k slots, secrets) of visited secrets, for k = 0 … window."""
    base = int(digits.max()) + 1
    found = [np.zeros((1, len(day.when)), dtype=np.bool_)]
    for k in range(window):
        table = np.repeat(found[-1], base, axis=0)
        here = np.flatnonzero(day.when == slot + 1 + k)
        for c in here:
            table[np.arange(len(table)) % base == digits[day.who[c]], c] = True
        found.append(table)
    return tuple(found)


def follow_window(day: Day, slot: int, state: int, plan: Remembering, digits: Ints) -> list[Floats]:
    """Return arriving[k][h, j] = P(suppressed so far, history h, state j | release) per slot.

    One entry more than the window has slots: the last is the law with which the tail begins.
    """
    arriving = [law_after_release(day, (slot, state))[None, :].copy()]
    for k, codes in enumerate(plan.codes):
        kept = arriving[-1] * fine_decoded(codes)
        arriving.append(extend_histories(kept, day.moves[slot + 1 + k], digits))
    return arriving


def extend_histories(kept: Floats, moves: Floats, digits: Ints) -> Floats:
    """Return the masses one slot later; each history gains the digit of the state that was left."""
    base = int(digits.max()) + 1
    fresh = np.zeros((len(kept) * base, kept.shape[1]))
    for j in range(kept.shape[1]):
        fresh[np.arange(len(kept)) * base + digits[j]] += kept[:, j : j + 1] * moves[j][None, :]
    return fresh


def histories_rise(
    day: Day, policies: dict[Origin, Remembering], digits: Ints, delta: float
) -> tuple[float, float]:
    """Return two upper bounds of share·(posterior - prior): of releases that occur, and of all.

    Follows what the tables let a machine emit, from "start" on: a release without a policy, after
    which the rest of the day is suppressed, is evaluated like any other. Rounds up after a release
    with a window (`certified`) and after one without (`segment_rise`, or `settled_rise` where that
    cannot be distinguished from delta). The second number also counts releases that only slots not
    read lead to: those with a policy, and what follows them.
    """
    from shoal.contexts.search import kernels

    seen = np.zeros((day.slots, day.size), dtype=np.bool_)
    also = seen.copy()  # those with a table too
    for origin in policies:
        if origin[0] >= 0:
            also[origin] = day.possible[origin]
    nothing = Remembering((), np.empty((0, day.size), dtype=np.uint16))
    worst, unread = 0.0, 0.0  # after releases without a window
    windows, unread_windows = 0.0, 0.0
    tails: list[tuple[int, int, bool]] = []  # releases without a window
    for origin in releases_forward(also):
        slot = origin[0]
        occurs = slot < 0 or bool(seen[origin])
        plan = policies.get(origin, nothing)
        emitted = np.zeros_like(seen)
        if plan.codes:
            rise, emitted = certify_rise(day, origin, plan, digits)
            unread_windows = max(unread_windows, rise)
            windows = max(windows, rise if occurs else 0.0)
        else:
            rise = segment_rise(day, *origin, full_table(day, slot, plan.tail), worst)
            unread = max(unread, rise)
            worst = max(worst, rise) if occurs else worst
            tails.append((*origin, occurs))
            law = law_after_release(day, origin) > 0
            kernels.mark_releases(law, day.moves, slot, plan.tail, COIN_LEVELS - 1, emitted)
        also |= emitted
        if occurs:
            seen |= emitted

    def without_window(unread_too: bool) -> Iterator[Segment]:
        """Yield the segments of releases without a window as full tables."""
        for slot, state, occurs in tails:
            if occurs or unread_too:
                yield slot, state, full_table(day, slot, policies.get((slot, state), nothing).tail)

    worst = max(windows, settle_rise(day, without_window(False), worst, delta))
    unread = max(unread_windows, settle_rise(day, without_window(True), unread, delta))
    return worst, max(worst, unread)


def certify_rise(
    day: Day, origin: Origin, plan: Remembering, digits: Ints
) -> tuple[float, npt.NDArray[np.bool_]]:
    """Return an upper bound of the rise after one release, and the mask of what it may release.

    Masses, and masses together with each secret, are followed through window and tail as sums of
    products of numbers that are not negative, each with an exponent of its own: nothing cancels,
    nothing underflows, and a state is possible exactly when its exponent says so. So a belief is
    off by a factor of at most 1 ± `relative_error`, which is added; priors are rounded down. What a
    history means is read off the states, not off `digits`: those say only which table row a
    machine takes.
    """
    slot, state = origin
    mass, power = _split_exponents(law_after_release(day, origin)[None, :])
    joint = np.zeros((1, day.size, 0))
    highest = np.zeros(len(day.when))
    highest[(day.when == slot) & (day.who == state)] = 1.0
    emitted = np.zeros((day.slots, day.size), dtype=np.bool_)
    first = int(np.searchsorted(day.when, slot, side="right"))
    tail = decoded(plan.tail)
    moves = [_split_exponents(matrix) for matrix in day.moves[slot + 1 :]]
    for t in range(slot + 1, day.slots + 1):
        k = t - slot - 1
        here = np.flatnonzero(day.when == t)
        entering = np.zeros((*mass.shape, len(here)))
        entering[:, day.who[here], np.arange(len(here))] = mass[:, day.who[here]]
        joint = np.concatenate([joint, entering], axis=2)
        suppression = np.ones((1, day.size)) if k >= len(tail) else tail[k : k + 1]
        if k < len(plan.codes):
            suppression = fine_decoded(plan.codes[k])
        gone = np.ones((1, day.size)) if t == day.slots else 1.0 - suppression
        releasable, _, with_secret = _merge_histories(mass * gone, power, joint * gone[..., None])
        states = np.flatnonzero(releasable > 0)
        if len(states):
            beliefs = (with_secret[states] / releasable[states, None]).max(axis=0)
            span = slice(first, first + joint.shape[2])
            highest[span] = np.maximum(highest[span], beliefs)
        if t == day.slots:
            break
        emitted[t, states] = True
        kept, together = mass * suppression, joint * suppression[..., None]
        if k + 1 >= len(plan.codes):
            merged = _merge_histories(kept, power, together)
            kept, power, together = merged[0][None], merged[1][None], merged[2][None]
        base = digits if k + 1 < len(plan.codes) else np.zeros_like(digits)
        mass, power, joint = _advance_masses(kept, power, together, moves[k], base)
    rows = max(len(codes) for codes in plan.codes)
    rises = upper_rises(day, highest, rows)
    return max(0.0, float(rises.max(initial=0.0))), emitted


def _split_exponents(values: Floats) -> tuple[Floats, Ints]:
    """Return values as mantissa and exponent of 2; 0 has the exponent IMPOSSIBLE_EXPONENT."""
    mantissa, power = np.frexp(values)
    return mantissa, np.where(mantissa > 0, power.astype(np.int64), IMPOSSIBLE_EXPONENT)


def _powers(exponents: Ints) -> Floats:
    """Return 2^exponents for exponents of 0 or less; 0 below 2^-2000."""
    return np.ldexp(1.0, np.maximum(exponents, -2000).astype(np.int32))


def _merge_histories(mass: Floats, power: Ints, joint: Floats) -> tuple[Floats, Ints, Floats]:
    """Sum over histories: the mass of each state, its exponent, and the mass with each secret."""
    power = np.where(mass > 0, power, IMPOSSIBLE_EXPONENT)
    top = power.max(axis=0)
    scale = _powers(power - top) * (mass > 0)
    return (mass * scale).sum(axis=0), top, (joint * scale[..., None]).sum(axis=0)


def _advance_masses(
    mass: Floats, power: Ints, joint: Floats, move: tuple[Floats, Ints], digits: Ints
) -> tuple[Floats, Ints, Floats]:
    """Return masses one slot later; each history gains the digit of the state that was left."""
    base, (rows, size) = int(digits.max()) + 1, mass.shape
    power = np.where(mass > 0, power, IMPOSSIBLE_EXPONENT)
    after = np.zeros((rows, base, size))
    exponents = np.full((rows, base, size), IMPOSSIBLE_EXPONENT)
    together = np.zeros((rows, base, size, joint.shape[2]))
    for digit in range(base):
        group = np.flatnonzero(digits == digit)
        if not len(group):
            continue
        reached = (mass[:, group, None] > 0) & (move[0][None, group] > 0)
        exponent = np.where(
            reached, power[:, group, None] + move[1][None, group], IMPOSSIBLE_EXPONENT
        )
        top = exponent.max(axis=1)
        weight = _powers(exponent - top[:, None, :]) * move[0][None, group] * reached
        total = (mass[:, group, None] * weight).sum(axis=1)
        with_secret = np.matmul(weight.transpose(0, 2, 1), joint[:, group])
        mantissa, shift = np.frexp(total)
        after[:, digit] = mantissa
        exponents[:, digit] = np.where(total > 0, top + shift, IMPOSSIBLE_EXPONENT)
        together[:, digit] = with_secret * np.ldexp(1.0, -shift)[..., None]
    shape = (rows * base, size)
    return after.reshape(shape), exponents.reshape(shape), together.reshape(*shape, joint.shape[2])


def histories_value(day: Day, policies: dict[Origin, Remembering], digits: Ints) -> float:
    """Return the expected number of releases of a day."""
    return expected_releases(day, policies, partial(history_value, digits=digits))


def history_value(
    day: Day, origin: Origin, plan: Remembering, value: Floats, digits: Ints
) -> float:
    """Return the expected releases after `origin`; value[t, j] follows a release of j at t."""
    if not plan.codes:
        return value_of_table(day, origin, plan.tail, value)
    slot, state = origin
    arriving = follow_window(day, slot, state, plan, digits)
    total = 0.0
    for k, codes in enumerate(plan.codes):
        releasable = (arriving[k] * (1.0 - fine_decoded(codes))).sum(axis=0)
        total += float(releasable @ (1.0 + value[slot + 1 + k]))
    law = arriving[-1].sum(axis=0)
    tail = decoded(plan.tail)
    for t in range(slot + 1 + len(plan.codes), min(day.slots, slot + 1 + len(tail))):
        suppression = tail[t - slot - 1]
        total += float((law * (1.0 - suppression)) @ (1.0 + value[t]))
        law = (law * suppression) @ day.moves[t]
    return total


# What follows the window of a segment: a table without memory, and the beliefs it leads to.
#
# Everything is linear in the masses with which the tail begins: `law[j]` of the state, and of the
# state together with each secret visited before.


SOLVER_TOLERANCE = 1e-11  # of a belief: solutions of a linear program are no more exact than that
MAX_BROKEN_BOUNDS = 400  # bounds reported by one look


class WindowTail:
    """The slots from `begin` on of the segment that follows a release at `slot`.

    `suppression[t, j]` suppresses state j at slot t; value[t, j] is what
    follows a release of j at t. An outcome is (t, j), the next release, or (T, 0), the end.
    """

    def __init__(self, day: Day, slot: int, begin: int, suppression: Floats, value: Floats) -> None:
        self.day, self.slot, self.begin, self.suppression = day, slot, begin, suppression
        self.reach = self._reach()
        self.worth = self._worth(value)
        self._onward: dict[tuple[int, int], list[Floats]] = {}

    def _reach(self) -> list[Floats]:
        """Return reach[t - begin][i, j] = P(suppressed since, X_t = j | X_begin = i)."""
        table = [np.eye(self.day.size)]
        for t in range(self.begin, self.day.slots):
            table.append((table[-1] * self.suppression[t]) @ self.day.moves[t])
        return table

    def _worth(self, value: Floats) -> Floats:
        """Return the expected releases when the tail begins in each state."""
        worth = np.zeros(self.day.size)
        for t in range(self.day.slots - 1, self.begin - 1, -1):
            suppression = self.suppression[t]
            later = self.day.moves[t] @ worth if t + 1 < self.day.slots else 0.0
            worth = (1 - suppression) * (1 + value[t]) + suppression * later
        return np.asarray(worth)

    def broken(self, law: Floats, joint: Floats, bound: Floats) -> list[tuple[int, int, int]]:
        """Return (slot, state, secret) of the bounds these entering masses break, worst first."""
        day = self.day
        when, later = day.when, day.when > self.slot
        found: list[tuple[float, int, int, int]] = []
        joint = joint.copy()
        for t in range(self.begin, day.slots + 1):
            for c in np.flatnonzero(when == t):
                joint[:, c] = 0.0
                joint[day.who[c], c] = law[day.who[c]]
            releasable = law > 0 if t == day.slots else (law > 0) & (self.suppression[t] < 1)
            states: Ints = np.flatnonzero(releasable)
            known = later & (when <= t)
            excess = joint[states] / law[states, None] - bound
            rows, secrets = np.nonzero((excess > SOLVER_TOLERANCE) & known)
            amounts = excess[rows, secrets]
            found += zip(
                (-amounts).tolist(),
                [t] * len(rows),
                states[rows].tolist(),
                secrets.tolist(),
                strict=True,
            )
            if t < day.slots:
                kept = self.suppression[t]
                law = (law * kept) @ day.moves[t]
                joint = day.moves[t].T @ (joint * kept[:, None])
        return [(t, state, secret) for _, t, state, secret in sorted(found)[:MAX_BROKEN_BOUNDS]]

    def outcome(self, slot: int, state: int, secret: int) -> tuple[Floats, Floats | None]:
        """Return P(outcome | begins in i), and jointly with the secret, None for an earlier one."""
        onward = self._backwards(slot, state)
        when, who = int(self.day.when[secret]), int(self.day.who[secret])
        if when < self.begin:
            return onward[0], None
        inside = self.reach[when - self.begin][:, who] * onward[when - self.begin][who]
        return onward[0], np.asarray(inside)

    def _backwards(self, slot: int, state: int) -> list[Floats]:
        """Return u[t - begin][i] = P(suppressed from t on, then state at slot | X_t = i)."""
        if (slot, state) not in self._onward:
            unit = np.zeros(self.day.size)
            unit[state] = 1.0
            table = [unit]
            for t in range(slot - 1, self.begin - 1, -1):
                table.append(self.suppression[t] * (self.day.moves[t] @ table[-1]))
            self._onward[slot, state] = table[::-1]
        return self._onward[slot, state]
