"""Suppression that also remembers the sensitive visits since the last release.

After a release, the first `window` slots are decided by the current state and by which sensitive
contexts were visited in the slots since; later slots by a table without memory. A visit is a
digit: 0 for a context that is not sensitive, 1 + its rank otherwise; the history of k slots is
the number those digits spell. `Remembering.codes[k]` has one row per history of k slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import (
    Codes,
    Day,
    Truths,
    decoded,
    floor_of,
    rise_above,
    segment_rise,
)
from shoal.loss.suppression_adaptive import Origin, full

FINE = 1 << 32  # histories are suppressed with multiples of 2^-32
FineCodes = npt.NDArray[np.uint32]
THIN = 1e-250  # masses below this are not decided upon


@dataclass(frozen=True, slots=True)
class Remembering:
    """What follows one release: a table per slot of the window, and the slots after it.

    `codes[k][h, j]` is for the slot k + 1 after the release, history h and state j; `tail` holds
    a row per slot after the release, of which those inside the window are not used.
    """

    codes: tuple[FineCodes, ...]
    tail: Codes


def digits_of(day: Day) -> Ints:
    """Each state's digit in a history: 0, or 1 + its rank among the sensitive states."""
    digits = np.zeros(day.size, dtype=np.int64)
    sensitive = np.unique(day.who)
    digits[sensitive] = 1 + np.arange(len(sensitive))
    return digits


def fine_encoded(suppression: Floats) -> FineCodes:
    """Probabilities rounded up to multiples of 2^-32; the largest code stands for 1."""
    level = np.ceil(np.asarray(suppression, dtype=np.float64) * FINE)
    return np.where(level >= FINE - 1, FINE - 1, level).astype(np.uint32)


def fine_decoded(codes: FineCodes) -> Floats:
    """The suppression probabilities behind `codes`, exactly."""
    level = codes.astype(np.float64)
    return np.where(level == FINE - 1, 1.0, level / FINE)


def seen_by(day: Day, slot: int, digits: Ints, window: int) -> tuple[npt.NDArray[np.bool_], ...]:
    """For k = 0 … window: which secrets each history of k slots after `slot` has visited."""
    base = int(digits.max()) + 1
    found = [np.zeros((1, len(day.when)), dtype=np.bool_)]
    for k in range(window):
        table = np.repeat(found[-1], base, axis=0)
        here = np.flatnonzero(day.when == slot + 1 + k)
        for c in here:
            table[np.arange(len(table)) % base == digits[day.who[c]], c] = True
        found.append(table)
    return tuple(found)


def flow(day: Day, slot: int, state: int, plan: Remembering, digits: Ints) -> list[Floats]:
    """arriving[k][h, j]: P(suppressed so far, history h, state j | release), for each slot.

    One entry more than the window has slots: the last is the law with which the tail begins.
    """
    base = int(digits.max()) + 1
    law = day.initial if slot < 0 else day.moves[slot, state]
    arriving = [law[None, :].copy()]
    for k, codes in enumerate(plan.codes):
        t = slot + 1 + k
        kept = arriving[-1] * fine_decoded(codes)
        fresh = np.zeros((len(kept) * base, day.size))
        for j in range(day.size):
            rows = np.arange(len(kept)) * base + digits[j]
            fresh[rows] += kept[:, j : j + 1] * day.moves[t, j][None, :]
        arriving.append(fresh)
    return arriving


def history_rise(
    day: Day, origin: Origin, plan: Remembering, digits: Ints, least: float = 0.0
) -> float:
    """The highest rise of belief after one release, over all outcomes of its segment.

    Infinite when a mass that is not 0 is too thin to be decided upon. Rises up to `least` are not
    told apart.
    """
    from shoal.loss import suppression_kernels as kernels

    slot, state = origin
    hidden = full(day, slot, {origin: plan.tail}, state)
    if not plan.codes:
        return segment_rise(day, slot, state, hidden, least)
    arriving = flow(day, slot, state, plan, digits)
    secrets = seen_by(day, slot, digits, len(plan.codes))
    floor = floor_of(day, least)
    highest = floor.copy()
    for k, codes in enumerate(plan.codes):
        shown = arriving[k] * (1.0 - fine_decoded(codes))
        if ((arriving[k] > 0) & (arriving[k] < THIN)).any():
            return np.inf
        _raise_by(day, slot + 1 + k, shown, secrets[k], highest)
    window = len(plan.codes)
    begin = slot + 1 + window
    mass = arriving[-1].sum(axis=0)
    if mass.sum() == 0:
        return rise_above(day, highest, floor, least)
    if mass[mass > 0].min() < THIN:
        return np.inf
    belief = np.zeros((day.size, len(day.when)))
    joint = arriving[-1].T @ secrets[-1]
    belief[mass > 0] = joint[mass > 0] / mass[mass > 0, None]
    if begin >= day.slots:
        np.maximum(highest, belief[0], out=highest)
        return rise_above(day, highest, floor, least)
    with np.errstate(divide="ignore"):
        logs = np.log(mass / mass.sum())
    kernels.onward_highest(day.moves, begin, logs, belief, slot, hidden, day.when, day.who, highest)
    return rise_above(day, highest, floor, least)


def _raise_by(day: Day, t: int, shown: Floats, secrets: Truths, highest: Floats) -> None:
    """Raises `highest` to the beliefs after showing each state at slot t, from masses [h, j]."""
    total = shown.sum(axis=0)
    joint = shown.T @ secrets  # [j, c]
    for j in np.flatnonzero(total > 0):
        np.maximum(highest, joint[j] / total[j], out=highest)
        for c in np.flatnonzero((day.when == t) & (day.who == j)):
            highest[c] = 1.0


def history_value(
    day: Day, origin: Origin, plan: Remembering, digits: Ints, value: Floats
) -> float:
    """Expected releases after one release, value[t, j] following a release of j at t."""
    slot, state = origin
    arriving = flow(day, slot, state, plan, digits)
    total = 0.0
    for k, codes in enumerate(plan.codes):
        shown = (arriving[k] * (1.0 - fine_decoded(codes))).sum(axis=0)
        total += float(shown @ (1.0 + value[slot + 1 + k]))
    law = arriving[-1].sum(axis=0)
    tail = decoded(plan.tail)
    for t in range(slot + 1 + len(plan.codes), min(day.slots, slot + 1 + len(tail))):
        hidden = tail[t - slot - 1]
        total += float((law * (1.0 - hidden)) @ (1.0 + value[t]))
        law = (law * hidden) @ day.moves[t]
    return total
