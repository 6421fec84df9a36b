"""Minimising a regularised loss, with a certificate of how far the answer is from the minimum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.core.errors import PromiseBroken
from shoal.core.value import Floats

ROUNDING = 2.0**-52  # of one operation, twice the unit roundoff: bounds below double it again
NEWTON_STEPS = 60
HALVINGS = 40
HUBER_WIDTH = 0.5  # h: the hinge is rounded between 1 - h and 1 + h


class Loss(NamedTuple):
    """A convex loss of the margin z: value, slope in [-1, 0], curvature, and its largest value."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    curvature: Callable[[Floats], Floats]
    most_curved: float


def _huber_value(z: Floats) -> Floats:
    h = HUBER_WIDTH
    bend = (1 + h - z) ** 2 / (4 * h)
    return np.asarray(np.where(z > 1 + h, 0.0, np.where(z < 1 - h, 1 - z, bend)))


def _huber_slope(z: Floats) -> Floats:
    return np.asarray(-np.clip((1 + HUBER_WIDTH - z) / (2 * HUBER_WIDTH), 0.0, 1.0))


def _huber_curvature(z: Floats) -> Floats:
    return np.asarray((np.abs(1 - z) <= HUBER_WIDTH) / (2 * HUBER_WIDTH))


def _logistic_slope(z: Floats) -> Floats:
    return np.asarray(-0.5 * (1.0 - np.tanh(0.5 * z)))  # -1 / (1 + e^z), without overflow


def _logistic_curvature(z: Floats) -> Floats:
    return np.asarray(0.25 * (1.0 - np.tanh(0.5 * z) ** 2))


LOSSES: dict[str, Loss] = {
    "huber": Loss(_huber_value, _huber_slope, _huber_curvature, 1 / (2 * HUBER_WIDTH)),
    "logistic": Loss(
        lambda z: np.asarray(np.logaddexp(0.0, -z)), _logistic_slope, _logistic_curvature, 0.25
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    """J(v) = (1/n) Σ loss(y_i v·x_i) + (λ/2)|v|², with x_i = rows, y_i = classes, λ given."""

    rows: Floats
    classes: Floats
    loss: str
    regularisation: float

    def margins(self, weights: Floats) -> Floats:
        return np.asarray(self.classes * (self.rows @ weights))

    def value(self, weights: Floats) -> float:
        mean = LOSSES[self.loss].value(self.margins(weights)).mean()
        return float(mean + self.regularisation / 2 * (weights @ weights))

    def gradient(self, weights: Floats) -> Floats:
        pull = self.classes * LOSSES[self.loss].slope(self.margins(weights))
        return np.asarray(self.rows.T @ pull / len(self.rows) + self.regularisation * weights)

    def hessian(self, weights: Floats) -> Floats:
        bend = LOSSES[self.loss].curvature(self.margins(weights))
        curved = (self.rows * bend[:, None]).T @ self.rows / len(self.rows)
        return np.asarray(curved + self.regularisation * np.eye(len(weights)))

    def distance(self, weights: Floats) -> float:
        """At most this far, in the l2 norm, is the minimiser of J: |gradient| / λ. Rounds up.

        J is λ-strongly convex, so λ|v - v*| ≤ |gradient of J at v|. To the computed gradient the
        most its rounding can hide is added.
        """
        longest = float(np.sqrt((self.rows**2).sum(axis=1).max()))
        length = float(np.sqrt(weights @ weights))
        count, size = self.rows.shape
        hidden = hidden_gradient(
            LOSSES[self.loss], (count, size), longest, length, self.regularisation
        )
        found = float(np.sqrt(np.sum(self.gradient(weights) ** 2)))
        total = found * (1 + (size + 4) * ROUNDING) + hidden
        return float(total / self.regularisation * (1 + 2.0**-40))


def hidden_gradient(
    loss: Loss, shape: tuple[int, int], longest: float, length: float, regularisation: float
) -> float:
    """The most that rounding can hide of the gradient at weights v with |v| = length.

    Each margin is off by p·u·R|v|, each slope by the loss's curvature times that plus 8u, the sum
    over n rows by n·u (any order of adding), the rest by 4u, with (n, p) = shape, R = longest, u
    twice the unit roundoff and everything doubled once more.
    """
    count, size = shape
    slope = loss.most_curved * (size + 2) * ROUNDING * longest * length
    summed = longest * math.sqrt(size) * (slope + (8 + count) * ROUNDING)
    return 2 * (summed + 4 * regularisation * length * ROUNDING)


def minimise(objective: Objective, tolerance: float) -> Floats:
    """Weights certified to lie within `tolerance` of the minimiser of J, in the l2 norm.

    Newton's steps with backtracking reach it in a few rounds; should they not, an accelerated
    gradient descent, whose rate is proved, goes on from there.
    """
    weights = np.zeros(objective.rows.shape[1])
    for _ in range(NEWTON_STEPS):
        if objective.distance(weights) <= tolerance:
            return weights
        try:
            step = np.linalg.solve(objective.hessian(weights), objective.gradient(weights))
        except np.linalg.LinAlgError:  # singular in doubles, though never in truth
            break
        moved = _backtracked(objective, weights, np.asarray(step, dtype=np.float64))
        if moved is None:
            break
        weights = moved
    return _accelerated(objective, weights, tolerance)


def _backtracked(objective: Objective, weights: Floats, step: Floats) -> Floats | None:
    """weights - t·step for the first t = 1, 1/2, 1/4 … that lowers J enough, or None."""
    here = objective.value(weights)
    fall = float(objective.gradient(weights) @ step)
    share = 1.0
    for _ in range(HALVINGS):
        moved = np.asarray(weights - share * step)
        # the allowance lets the last, tiny steps pass, where J changes by less than its rounding
        if objective.value(moved) <= here - 1e-4 * share * fall + 8 * ROUNDING * (1 + abs(here)):
            return moved
        share /= 2
    return None


def _accelerated(objective: Objective, weights: Floats, tolerance: float) -> Floats:
    """Nesterov's descent for strongly convex J, until the certificate holds."""
    curved = LOSSES[objective.loss].most_curved * float((objective.rows**2).sum(axis=1).max())
    condition = (curved + objective.regularisation) / objective.regularisation
    momentum = (np.sqrt(condition) - 1) / (np.sqrt(condition) + 1)
    step = 1 / (curved + objective.regularisation)
    ahead = weights
    for turn in range(int(200 * np.sqrt(condition)) + 200):
        if turn % 16 == 0 and objective.distance(weights) <= tolerance:
            return weights
        moved = ahead - step * objective.gradient(ahead)
        ahead = moved + momentum * (moved - weights)
        weights = np.asarray(moved)
    if objective.distance(weights) <= tolerance:
        return weights
    raise PromiseBroken(
        "the solver's tolerance is below what double precision can certify; "
        "raise the query's tolerance or its regularisation"
    )
