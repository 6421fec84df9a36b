"""The lift on contagion: what an entry-level DP release tells about one person of a group.

In a group where only the number of people ill matters, let O be how many of the others are ill.
Given O the others are a uniformly random set of that size, whatever the person's own state. So
with a_x(o) = E[density | person in state x, O = o]: changing x costs eta, and a set of o + 1 is a
set of o with one more, so a_x(o) and a_x(o') differ by at most e^{eta·|o - o'|}. Hence

    loss ≤ eta + Λ( P(O | ill), P(O | well); eta·|o - o'| ),  and the same the other way round,

and never more than eta for each person of the group. Proof: mechanisms/lift.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from shoal.core.value import Floats
from shoal.loss.cone import Laws, prepare
from shoal.loss.kernels import UNIT
from shoal.loss.lift_network import CLOSE, ROUNDS
from shoal.loss.lift_steady import UP, raised, steady_leak
from shoal.models.contagion import Contagion

MAX_LISTED = 10  # people of a group whose joint law is compared outcome by outcome


class CrowdLoss(NamedTuple):
    """The largest loss over people, at which eta, and a person who reaches it."""

    value: float
    eta: float
    node: int


class _Group(NamedTuple):
    """One person's view of a group: the laws of the rest, how far apart they are, the sizes."""

    laws: Laws
    apart: Floats
    size: int
    person: int
    itself: float  # what changing the person adds, per unit of eta; 0 where `apart` covers it
    certain: bool = False  # the person is in one state for sure, so there is no secret


@dataclass(eq=False)
class CrowdLift:
    """A contagion model, ready to be evaluated at any eta."""

    model: Contagion

    @cached_property
    def groups(self) -> tuple[_Group, ...]:
        """One view for every law that people follow, and for every person where it is a table.

        The largest first: what they tell often settles that smaller ones tell less.
        """
        found: list[_Group] = []
        done: set[int] = set()
        for g, group in enumerate(self.model.groups):
            if self.model.which[g] in done:
                continue
            done.add(self.model.which[g])
            law = self.model.law_of(g)
            if self.model.exchangeable(g):
                found.append(_crowd(law, group[0]))
            elif len(group) <= MAX_LISTED:
                found += [_listed(law, place, person) for place, person in enumerate(group)]
            else:
                found.append(_unknown(len(group), group[0]))
        return tuple(sorted(found, key=lambda group: -group.size))

    def loss(self, eta: float) -> CrowdLoss:
        """What any release that is eta-DP for one person tells about a person. Rounds up.

        The same for the same eta, whatever was asked before, and never more for any that is a
        little smaller (lift_steady).
        """
        worst = CrowdLoss(0.0, eta, 0)
        above = raised(eta)
        for group in self.groups:
            if group.certain or eta * group.size * UP <= worst.value:
                continue
            told = float(steady_leak(group.laws, above * group.apart * UP).max())
            value = min(told + above * group.itself, eta * group.size) * UP
            if value > worst.value:
                worst = CrowdLoss(value, eta, group.person)
        return worst

    def largest_eta(self, epsilon: float) -> CrowdLoss:
        """The loss at the largest eta with loss ≤ epsilon; group privacy is where it starts."""
        low, high = epsilon / (self.model.tied or 1) * (1 - 2.0**-40), epsilon
        best = self.loss(low)
        for _ in range(ROUNDS):
            if high <= low * (1 + CLOSE):
                break
            middle = raised((low * high) ** 0.5)
            if middle >= high:
                break
            found = self.loss(middle)
            if found.value <= epsilon:
                low, best = middle, found
            else:
                high = middle
        return best


def _crowd(law: Floats, person: int) -> _Group:
    """Rows P(O | well), P(O | ill) for a group of m = len(law) - 1.

    P(O = o, well) = law(o) (m - o)/m; without the m, a double too small to be divided keeps all
    of its digits.
    """
    size = len(law) - 1
    others = np.arange(size)
    weight = np.stack([law[:-1] * (size - others), law[1:] * (others + 1)])
    apart = np.abs(others[:, None] - others[None, :]).astype(np.float64)
    return _Group(_rows(weight), apart, size, person, 1.0, _certain(weight))


def _listed(law: Floats, place: int, person: int) -> _Group:
    """Rows P(X | person well), P(X | person ill) over all outcomes of the group."""
    outcomes = np.indices(law.shape).reshape(law.ndim, -1)
    weight = np.stack([np.where(outcomes[place] == state, law.ravel(), 0.0) for state in (0, 1)])
    possible = weight.any(axis=0)
    kept = outcomes[:, possible]
    apart = (kept[:, :, None] != kept[:, None, :]).sum(axis=0).astype(np.float64)
    rows = weight[:, possible]
    return _Group(_rows(rows), apart, law.ndim, person, 0.0, _certain(rows))


def _unknown(size: int, person: int) -> _Group:
    """A group too large to compare: everybody may change."""
    apart = np.full((2, 2), float(size))
    return _Group(_rows(np.eye(2)), apart, size, person, 0.0)


def _rows(weight: Floats) -> Laws:
    """The rows divided by their sums: what is possible is never 0, for sums lose nothing."""
    totals = weight.sum(axis=1, keepdims=True)
    law = weight / np.where(totals > 0, totals, 1.0)
    return prepare(law, possible=weight > 0, error=4.0 * (weight.shape[1] + 4) * UNIT)


def _certain(weight: Floats) -> bool:
    return not weight.any(axis=1).all()
