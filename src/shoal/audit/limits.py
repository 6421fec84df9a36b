"""Confidence limits for probabilities that were counted."""

from __future__ import annotations

import math


def at_least(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson lower limit: below it with probability at most `error`.

    The probability p at which P(Binomial(trials, p) ≥ hits) = error; 0 when nothing was hit.
    """
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, error))


def at_most(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson upper limit: above it with probability at most `error`."""
    return 1.0 - at_least(trials - hits, trials, error)


def log_ratio_at_least(top: tuple[int, int], bottom: tuple[int, int], error: float) -> float:
    """A lower limit for log p/p' from (hits, trials) of both; wrong with probability ≤ error.

    Each side gets half of the error, so no independence is needed. -inf when `top` has no hits.
    """
    low, high = at_least(*top, error / 2), at_most(*bottom, error / 2)
    return math.log(low / high) if low > 0 else -math.inf
