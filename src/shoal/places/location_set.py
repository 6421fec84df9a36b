"""δ-location sets: the few places where somebody most probably is, and stand-ins for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints, Value
from shoal.core.errors import InputError
from shoal.core.numbers import Number, exact
from shoal.core.task import Model
from shoal.places.policy import PolicyGraph

CHUNK = 2**21  # distances held at once
SLACK = 1e-12  # relative error of a running sum of floats that is decided exactly instead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationSet(Value):
    """A policy on the δ-location set of each step: the fewest states of total prior ≥ 1 - δ.

    A state outside the set answers as its surrogate, the nearest member. With the complete graph
    the promise then covers all states. With other policies it covers the members: an edge outside
    may lead to surrogates far apart. `everywhere=True` adds the images of the outside edges to
    the graph, so that every edge of the policy is covered, at the price of a larger hull.
    Xiao 2017, Definitions 3.4 and 3.5; ERRATA on Theorem 3.6.
    """

    policy: PolicyGraph
    delta: Fraction
    everywhere: bool = False

    def __post_init__(self) -> None:
        delta = exact(self.delta, "delta")
        if not 0 < delta < 1:
            raise InputError(
                f"coverage_delta is {float(delta):g}; it must be between 0 and 1, both excluded "
                "(use the policy alone to cover every possible state)"
            )
        object.__setattr__(self, "delta", delta)

    @classmethod
    def complete(cls, states: Sequence[Any], delta: Number) -> Self:
        """Every member from every other: δ-location set based differential privacy."""
        return cls(policy=PolicyGraph.complete(states), delta=exact(delta, "delta"))

    @property
    def states(self) -> tuple[str, ...]:
        return self.policy.states

    @property
    def notion(self) -> str:
        return "location-set"

    @property
    def subject(self) -> str:
        covers = "of all states" if self.everywhere or self.policy.is_complete else "in the set"
        return (
            f"which of two joined states {covers} one is in, at each step, given what was "
            "released before"
        )

    def check(self, family: tuple[Model, ...]) -> None:
        """The same chains as for the policy."""
        self.policy.check(family)

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        return (
            f"the current state within the fewest states that hold {float(1 - self.delta):.4g} of "
            f"the belief: {self.policy.title}"
        )


def location_set(prior: npt.ArrayLike, delta: Number) -> Bools:
    """The fewest states of total prior ≥ 1 - δ, most probable first, as booleans.

    States as probable as the last one taken are taken too: the set is larger, so more is
    protected, and does not depend on the numbering. Sums are compared exactly, as rationals:
    .4 + .3 + .2 is not below .9. Priors may be floats (their exact values count) or Fractions.
    Xiao 2017, Definition 3.4.
    """
    share = 1 - exact(delta, "delta")
    values = np.asarray(prior)
    floats = values.astype(np.float64)
    order = np.argsort(-floats, kind="stable")
    if values.dtype == object:
        order = np.array(sorted(range(len(values)), key=lambda s: -values[s]), dtype=np.int64)
    needed = _needed(values[order], share)
    members = np.zeros(len(values), dtype=np.bool_)
    members[(values >= values[order[needed - 1]]) & (values > 0)] = True
    return members


def _needed(descending: npt.NDArray[Any], share: Fraction) -> int:
    """How many of the largest probabilities reach `share`; all of positive mass when none do.

    The sum of floats decides where it is clear, and exact sums where it is close. The share is of
    the sum of all: the floats of a belief seldom add up to exactly 1.
    """
    positive = int(np.count_nonzero(descending > 0))
    if not positive:
        raise InputError("prior holds no positive probability; a location set needs some")
    sums = np.cumsum(descending[:positive].astype(np.float64))
    target = float(share) * sums[-1]
    count = int(np.searchsorted(sums, target * (1 - SLACK))) + 1
    if count > positive or sums[count - 1] > target * (1 + SLACK):
        return min(count, positive)
    exact_values = [Fraction(value) for value in descending[:positive].tolist()]
    total = sum(exact_values)
    running = sum(exact_values[: count - 1], Fraction(0))
    for place in range(count - 1, positive):
        running += exact_values[place]
        if running >= share * total:
            return place + 1
    return positive


def surrogates(points: Ints, members: Bools) -> Ints:
    """For each state the member that answers for it: itself, or the nearest, ties by index.

    Xiao 2017, Definition 3.5.
    """
    inside, outside = np.flatnonzero(members), np.flatnonzero(~members)
    if not len(inside):
        raise InputError("members is empty; a surrogate needs at least one member")
    chosen = np.arange(len(points))
    block = max(1, CHUNK // len(inside))
    for start in range(0, len(outside), block):
        rows = outside[start : start + block]
        distances = np.zeros((len(rows), len(inside)), dtype=np.int64)
        for axis in range(points.shape[1]):
            distances += (points[rows, axis][:, None] - points[inside, axis][None, :]) ** 2
        chosen[rows] = inside[distances.argmin(axis=1)]
    return chosen


def mass_outside(prior: Floats, members: Bools) -> float:
    """What a prior believes outside a set: at most δ, but for rounding."""
    return float(prior[~members].sum())
