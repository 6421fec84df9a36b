"""The law of a count over one group of people given who is ill, without listing outcomes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.frameworks import LOST, Given
from shoal.loss.mixture import DEEPEST_LINEAR
from shoal.models.contagion import Contagion

FINEST = 1074  # every double is a multiple of 2^-1074


class CrowdGroup:
    """A group in which only the number N of people ill matters: every set of N is as likely.

    With `added[state]` what a person in that state adds (labels), the sum is a function of N.
    P(N = n, a given people ill, w given people well) = P(n) C(m - a - w, n - a) / C(m, n) for a
    group of m. Song, Wang & Chaudhuri 2017, Section 3.1.
    """

    def __init__(self, model: Contagion, group: int, added: Ints) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)
        self._added = added

    @property
    def lossy(self) -> bool:
        """Whether a mass given one person's state is too small for a double."""
        return any(one.lossy for one in self._states)

    def deepest(self, probability: float) -> float:
        """Conditional masses are rounded once, however unlikely the event."""
        return DEEPEST_LINEAR

    @cached_property
    def values(self) -> Ints:
        ill = np.arange(len(self.people) + 1)[:, None]
        rows = (len(self.people) - ill) * self._added[0] + ill * self._added[1]
        order = np.lexsort(rows.T[::-1])
        self._order = order
        return np.asarray(rows[order], dtype=np.int64)

    @property
    def roundings(self) -> float:
        return float(len(self.law) + 8)

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """The two states of one person, who stands for all."""
        found = self._states
        person = self.model.variables[self.people[0]]
        names = tuple(f"{person} = {state}" for state in self.model.states)
        laws = np.stack([one.law for one in found])
        return laws, np.array([one.probability for one in found]), np.zeros(2, np.int64), names

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given what is known of some people.

        In whole numbers, with [k]_j = k(k-1)…(k-j+1) in place of the binomials:
        C(m - a - w, n - a) / C(m, n) = [n]_a [m - n]_w / [m]_{a+w}. Each mass is rounded once.
        """
        well = sum(bool(row[0]) and not row[1] for row in seen.values())
        ill = sum(bool(row[1]) and not row[0] for row in seen.values())
        if not all(row.any() for row in seen.values()):
            return Given(np.zeros(len(self.law)), 0.0)
        return self._given(well, ill)

    @cached_property
    def _states(self) -> list[Given]:
        """Given that a person is well, and ill."""
        return [self._given(1, 0), self._given(0, 1)]

    def _given(self, well: int, ill: int) -> Given:
        size = len(self.people)
        weight = [
            mass * math.perm(n, ill) * math.perm(size - n, well)
            for n, mass in enumerate(whole_law(self.law))
        ]
        total = sum(weight)
        if total == 0:
            return Given(np.zeros(size + 1), 0.0)
        law = np.array([mass / total for mass in weight])
        chance = total / (math.perm(size, well + ill) << FINEST)
        possible = np.array([mass > 0 for mass in weight])
        # an event too unlikely for a double is still possible
        return Given(
            self._ordered(law),
            max(chance, sys.float_info.min),
            bool((possible & (law < LOST)).any()),
        )

    def _ordered(self, laws: Floats) -> Floats:
        """Laws of N in the order of `values`."""
        _ = self.values
        return np.asarray(laws[..., self._order])


class TableGroup:
    """A group whose joint law is written out, one axis per person.

    `added` is what a state adds, (states, labels), the same for all or a table for each person.
    """

    def __init__(self, model: Contagion, group: int, added: Ints | Sequence[Ints]) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)
        outcomes = np.indices(self.law.shape).reshape(len(self.people), -1)
        each = [added] * len(self.people) if isinstance(added, np.ndarray) else added
        rows = np.asarray(sum(own[row] for own, row in zip(each, outcomes, strict=True)))
        values, place = np.unique(rows, axis=0, return_inverse=True)
        self.values: Ints = values
        self._place = place.ravel()

    @property
    def lossy(self) -> bool:
        """Whether a mass given one person's state is too small for a double."""
        return any(one.lossy for one in self._states)

    def deepest(self, probability: float) -> float:
        """Conditional masses lose digits only by being small themselves."""
        return DEEPEST_LINEAR

    @property
    def roundings(self) -> float:
        return float(self.law.size)

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """The two states of every person of the group."""
        return each_state(self.model, self.people, self._states)

    @cached_property
    def _states(self) -> list[Given]:
        """Given each state of each person."""
        return [self.given({p: np.eye(2)[state]}) for p in self.people for state in (0, 1)]

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given what is known of some people."""
        weight = self.law
        for person, row in seen.items():
            shape = [1] * self.law.ndim
            shape[self.people.index(person)] = 2
            weight = weight * row.reshape(shape)
        total = float(weight.sum())
        mass: Floats = np.bincount(self._place, weight.ravel(), minlength=len(self.values)).astype(
            np.float64
        )
        # sums of doubles never underflow, quotients may
        law = mass / total if total > 0 else mass
        return Given(law, total, bool(((mass > 0) & (law < LOST)).any()))


def each_state(
    model: Contagion, people: tuple[int, ...], found: Sequence[Given]
) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
    """What was found given each state of each person: laws, probabilities, owners and names."""
    names = tuple(
        f"{model.variables[person]} = {state}" for person in people for state in model.states
    )
    laws = np.array([one.law for one in found])
    prior = np.array([one.probability for one in found])
    return laws, prior, np.repeat(np.arange(len(people)), 2), names


def whole_law(law: Floats) -> list[int]:
    """A law in units of 2^-1074, of which every double is a whole number."""
    ratios = (float(mass).as_integer_ratio() for mass in law)
    return [top * ((1 << FINEST) // bottom) for top, bottom in ratios]
