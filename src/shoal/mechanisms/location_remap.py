"""The best answer to show, given a belief: post-processing, so it costs no privacy."""

from __future__ import annotations

import math

import numpy as np

from shoal.core.value import Floats
from shoal.queries.measurement import Estimate

ROUNDS = 50  # of Weiszfeld's iteration
CLOSE = 1e-9  # relative step after which it stops


def remapped(belief: Floats, values: Floats, error: Estimate) -> tuple[Floats, float]:
    """The answer of least expected error under `belief`, and √E|f(s) - answer|².

    Squared error: the mean Σ p(s) f(s). Absolute error E|f(s) - answer|: the geometric median.
    `values` (n, d) are the answers of the states; `belief` sums to 1.
    """
    answer = belief @ values
    if error == "absolute":
        answer = _median(belief, values, answer)
    squares = ((values - answer) ** 2).sum(axis=1)
    return answer, math.sqrt(max(float(belief @ squares), 0.0))


def _median(belief: Floats, values: Floats, start: Floats) -> Floats:
    """argmin over a of Σ p(s) |f(s) - a|: Weiszfeld's iteration, stopped at a state when best.

    A state is the median when the pull of all others, |Σ p(r) (f(r) - f(s))/|f(r) - f(s)||, is at
    most its own mass; so the most probable state's answer is tried first.
    """
    top = values[int(belief.argmax())]
    offsets = values - top
    away = np.sqrt((offsets**2).sum(axis=1))
    at = away == 0
    pull = (belief[~at, None] * offsets[~at] / away[~at, None]).sum(axis=0)
    if math.sqrt(float(pull @ pull)) <= float(belief[at].sum()):
        return np.array(top)
    answer, scale = start, float(away.max())
    for _ in range(ROUNDS):
        distance = np.maximum(np.sqrt(((values - answer) ** 2).sum(axis=1)), 1e-12 * scale)
        weights = belief / distance
        moved: Floats = weights @ values / weights.sum()
        if np.abs(moved - answer).max() <= CLOSE * scale:
            return moved
        answer = moved
    return answer
