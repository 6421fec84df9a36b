"""Λ of the lift as a function of eta alone, whatever was evaluated before.

The cone rule searches from the optimum it found last. Where probabilities lie far apart a search
may end without a certificate from one start and with one from another: every answer is a bound, but
a plan must meet the same one when it is evaluated again.
"""

from __future__ import annotations

import math
from dataclasses import replace

from shoal.core.value import Floats
from shoal.loss.cone import Laws, Optima, Rule, leak

BITS = 30  # of an eta at which the lift is evaluated
UP = 1.0 + 2.0**-50
MAX_CONE = 10_000_000  # rows² × states³ of a law that the cone rule can bear
MAX_CAPS = 300_000_000  # and rows² × states² for the caps
MAX_LED = 64  # states up to which a search is led from smaller etas to the one asked for


def raised(eta: float) -> float:
    """The least number of BITS bits that is no smaller than eta.

    What is eta-DP is so for any larger number too, and noise that was rounded up by a little is
    evaluated where it was searched for.
    """
    part, power = math.frexp(eta)
    return math.ldexp(math.ceil(math.ldexp(part, BITS)), power - BITS)


def steady_leak(laws: Laws, growth: Floats, rule: Rule | None = None) -> Floats:
    """Λ(row x, row x'; growth) for all ordered pairs, by the tightest bearable rule. Rounds up.

    With a memory of its own: each optimum is sought near that of a smaller growth, from a quarter
    of it on, because a search from nowhere fails more often.
    """
    fresh = replace(laws, optima=Optima(*laws.upper.shape))
    rule = rule or bearable(fresh)
    if rule == "cone" and laws.upper.shape[1] <= MAX_LED:
        for part in (0.25, 0.5, 0.75):
            leak(fresh, part * growth, rule)
    return leak(fresh, growth, rule)


def bearable(laws: Laws) -> Rule:
    """The tightest rule that all pairs of these rows can bear: m³ or m² work each for m states."""
    rows, states = laws.upper.shape
    if rows**2 * states**3 <= MAX_CONE:
        return "cone"
    return "caps" if rows**2 * states**2 <= MAX_CAPS else "largest"
