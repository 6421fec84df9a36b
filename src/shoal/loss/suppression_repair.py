"""Tables of a window made private where a linear program was only nearly so.

A solver keeps its rows to 1e-10 or so. Where an outcome is rare that can be everything: a history
of mass 1e-9 that is shown alone tells all. Such outcomes are shown less, slot by slot, in the
masses that the rounded tables before them really lead to.
"""

from __future__ import annotations

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.suppression import Day, Truths
from shoal.loss.suppression_adaptive import Origin
from shoal.loss.suppression_history import FINE, FineCodes, fine_decoded, fine_encoded

LEAST = 1e-200  # histories of less mass are never shown: their masses may have lost digits
NEARLY = 1 - 1e-7  # of an outcome: when plain scaling keeps as much, nothing better is looked for
MARGINS = (1e-8, 1e-6, 1e-4)  # of a bound, given up by the program of one outcome


def repaired(
    day: Day,
    origin: Origin,
    tables: list[Floats],
    digits: Ints,
    secrets: tuple[Truths, ...],
    bound: Floats,
) -> tuple[FineCodes, ...]:
    """`tables` in codes, with less shown wherever an outcome inside the window breaks a bound.

    tables[k][h, j] suppresses state j with history h, k + 1 slots after the release; secrets[k]
    says which secrets a history holds.
    """
    slot, state = origin
    base = int(digits.max()) + 1
    arriving = (day.initial if slot < 0 else day.moves[slot, state])[None, :]
    found = []
    for k, hidden in enumerate(tables):
        codes = fine_encoded(np.where(arriving > LEAST, hidden, 1.0))
        for j in np.flatnonzero((codes < FINE - 1).any(axis=0)):
            codes[:, j] = bounded(codes[:, j], arriving[:, j], secrets[k], bound)
        found.append(codes)
        kept = arriving * fine_decoded(codes)
        arriving = np.zeros((len(kept) * base, day.size))
        for i in range(day.size):
            rows = np.arange(len(kept)) * base + digits[i]
            arriving[rows] += kept[:, i : i + 1] * day.moves[slot + 1 + k, i][None, :]
    return tuple(found)


def bounded(codes: FineCodes, arriving: Floats, holds: Truths, bound: Floats) -> FineCodes:
    """The codes of one outcome's histories, raised so that no belief exceeds its bound.

    Of secret c the masses N that hold it and D of all must satisfy N ≤ b·D.
    """
    counted = holds.any(axis=0)
    holds, bound = holds[:, counted], bound[counted]
    if _kept(codes, arriving, holds, bound):
        return codes
    scaled = _scaled(codes, arriving, holds, bound)
    before, after = (_shown(c, arriving).sum() for c in (codes, scaled))
    if after >= NEARLY * before:
        return scaled
    best = _programmed(codes, arriving, holds, bound)
    return best if _shown(best, arriving).sum() > after else scaled


def _kept(codes: FineCodes, arriving: Floats, holds: Truths, bound: Floats) -> bool:
    shown = _shown(codes, arriving)
    return bool((shown @ holds <= bound * shown.sum()).all())


def _shown(codes: FineCodes, arriving: Floats) -> Floats:
    return np.asarray(arriving * (1.0 - fine_decoded(codes)))


def _never(codes: FineCodes) -> FineCodes:
    return np.full_like(codes, FINE - 1)


def _scaled(codes: FineCodes, arriving: Floats, holds: Truths, bound: Floats) -> FineCodes:
    """Histories with a secret all shown less by one factor, those without stay as they are.

    s·N ≤ b(D₀ + s·R - roundings), D₀ shown without any secret, R with some: all bounds at once.
    """
    shown, some = _shown(codes, arriving), holds.any(axis=1)
    lost = 2.0 / FINE * arriving[some].sum()
    over = shown @ holds - bound * shown[some].sum()
    room = bound * (shown[~some].sum() - lost)
    if (room <= 0).any():
        return _never(codes)
    scale = min(1.0, float(np.min(room[over > 0] / over[over > 0], initial=1.0)))
    part = (1.0 - fine_decoded(codes)) * np.where(some, scale * (1 - 1e-12), 1.0)
    lowered = np.where(some, fine_encoded(1.0 - part), codes)
    return lowered if _kept(lowered, arriving, holds, bound) else _never(codes)


def _programmed(codes: FineCodes, arriving: Floats, holds: Truths, bound: Floats) -> FineCodes:
    """The most of the outcome's mass that keeps its bounds, by a linear program of its own."""
    from scipy.optimize import linprog

    share = 1.0 - fine_decoded(codes)
    some = np.flatnonzero(share > 0)
    mass = arriving[some] * share[some]
    mass = mass / mass.sum()
    for margin in MARGINS:
        rows = (holds[some].T - (bound * (1 - margin))[:, None]) * mass
        found = linprog(-mass, A_ub=rows, b_ub=np.zeros(len(rows)), bounds=(0, 1), method="highs")
        if found.status != 0:
            continue
        part = np.zeros(len(share))
        part[some] = share[some] * np.clip(found.x, 0, 1)
        lowered = np.maximum(fine_encoded(1.0 - part), codes)
        if _kept(lowered, arriving, holds, bound):
            return lowered
    return _never(codes)
