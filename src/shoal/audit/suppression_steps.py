"""One slot of a suppressed day: laws of the context, and beliefs given each context, moved on.

A law is P(X_t = j | last release, suppressed since) up to a factor, one column per release. A
belief is q[j] = P(fact | the same, X_t = j), one column per release and fact. Given suppression at
slot t, with h the probability of that and A the moves,

    law'[j] = Σ_k law[k] h[k] A[k, j],    q'[j] = Σ_k law[k] h[k] A[k, j] q[k] / law'[j],

so q' is an average of q: no later belief in the fact exceeds the largest q of today.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.audit.suppression_facts import HALF_ULP, rounding
from shoal.core.value import Floats, Ints

THIN = 1e-100  # below it a plain product of law, probability and move might lose digits
WIDE = 4096  # columns moved on together in logarithms

Truths = npt.NDArray[np.bool_]


class Moved(NamedTuple):
    """Laws and beliefs one slot later, and the relative error this added for each release."""

    law: Floats
    beliefs: Floats
    error: Floats


def plain_step(law: Floats, hidden: Floats, beliefs: Floats, owner: Ints, moves: Floats) -> Moved:
    """In plain numbers: right as long as no possible entry of law and moves is below THIN.

    Laws come back with their largest entry in [1/2, 1); all zero where suppression is impossible.
    """
    kept = law * hidden
    after = moves.T @ kept
    carried = moves.T @ (beliefs * np.take(kept, owner, axis=1))
    with np.errstate(divide="ignore"):
        inverse = np.where(after > 0, 1.0 / after, 0.0)
    carried *= np.take(inverse, owner, axis=1)
    power = np.frexp(after.max(axis=0, initial=0.0))[1]
    added = np.full(law.shape[1], rounding(1, len(law)))
    return Moved(np.ldexp(after, -power), carried, added)


def log_step(law: Floats, hidden: Floats, beliefs: Floats, owner: Ints, moves: Floats) -> Moved:
    """The same with laws as logarithms, of any size; -inf is impossible. No factor is taken out."""
    with np.errstate(divide="ignore"):
        parts = law, np.log(hidden), np.log(moves)
    terms = (parts[0] + parts[1])[:, None, :] + parts[2][:, :, None]
    after = log_sum(terms)
    safe = np.where(np.isfinite(after), after, 0.0)
    weight = np.exp(terms - safe)
    carried = np.empty_like(beliefs)
    for first in range(0, len(owner), WIDE):
        some = slice(first, first + WIDE)
        carried[:, some] = np.einsum("kjp,kp->jp", weight[:, :, owner[some]], beliefs[:, some])
    digits = sum(np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in parts)
    added = np.full(law.shape[1], rounding(1, len(law)) + 8 * (digits + 1) * HALF_ULP)
    return Moved(after, carried, added)


def log_sum(terms: Floats) -> Floats:
    """log Σ e^terms over the first axis; -inf where there is nothing."""
    top = terms.max(axis=0)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        return np.asarray(np.log(np.exp(terms - safe).sum(axis=0)) + safe)


def in_logarithms(law: Floats) -> Floats:
    """Plain laws as logarithms."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(law))


def levelled(law: Floats) -> Floats:
    """Laws in logarithms, the largest entry of each 0."""
    top = law.max(axis=0)
    return np.asarray(law - np.where(np.isfinite(top), top, 0.0))


def in_plain(law: Floats) -> Floats:
    """Laws in logarithms as plain ones; what vanishes is below 1e-300 of the largest entry."""
    return np.asarray(np.exp(levelled(law)))
