"""The law of a count over one group of people given who is ill, without listing outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.loss.frameworks import Given
from shoal.loss.network_sums import refuse_lost
from shoal.models.contagion import Contagion


class CrowdGroup:
    """A group in which only the number N of people ill matters: every set of N is as likely.

    With `added[state]` what a person in that state adds (labels), the sum is a function of N.
    P(N = n, a given people ill, w given people well) = P(n) C(m - a - w, n - a) / C(m, n) for a
    group of m. Song, Wang & Chaudhuri 2017, Section 3.1.
    """

    lossy = False

    def __init__(self, model: Contagion, group: int, added: Ints) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)
        self._added = added

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
        size = len(self.people)
        ill = np.arange(size + 1) / size
        weight = np.stack([self.law * (np.arange(size, -1, -1) / size), self.law * ill])
        prior = weight.sum(axis=1)
        refuse_lost(prior, np.array([(self.law[:-1] > 0).any(), (self.law[1:] > 0).any()]))
        laws = weight / np.where(prior > 0, prior, 1.0)[:, None]
        person = self.model.variables[self.people[0]]
        names = tuple(f"{person} = {state}" for state in self.model.states)
        return self._ordered(laws), prior, np.zeros(2, dtype=np.int64), names

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given what is known of some people."""
        size = len(self.people)
        well = sum(bool(row[0]) and not row[1] for row in seen.values())
        ill = sum(bool(row[1]) and not row[0] for row in seen.values())
        possible = all(row.any() for row in seen.values())
        free = size - well - ill
        share = [
            math.comb(free, n - ill) / math.comb(size, n) if ill <= n <= ill + free else 0.0
            for n in range(size + 1)
        ]
        weight = self.law * np.array(share) * possible
        total = float(weight.sum())
        reached = possible and bool((self.law[ill : ill + free + 1] > 0).any())
        refuse_lost(np.array([total]), np.array([reached]))
        return Given(self._ordered(weight / total if total > 0 else weight), total)

    def _ordered(self, laws: Floats) -> Floats:
        """Laws of N in the order of `values`."""
        _ = self.values
        return np.asarray(laws[..., self._order])


class TableGroup:
    """A group whose joint law is written out, one axis per person."""

    lossy = False

    def __init__(self, model: Contagion, group: int, added: Ints) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)
        ill = np.indices(self.law.shape).reshape(len(self.people), -1).sum(axis=0)
        rows = (len(self.people) - ill)[:, None] * added[0] + ill[:, None] * added[1]
        values, place = np.unique(rows, axis=0, return_inverse=True)
        self.values: Ints = values
        self._place = place.ravel()

    @property
    def roundings(self) -> float:
        return float(self.law.size)

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """The two states of every person of the group."""
        found = [
            self.given({person: row})
            for person in self.people
            for row in (np.eye(2)[0], np.eye(2)[1])
        ]
        names = tuple(
            f"{self.model.variables[person]} = {state}"
            for person in self.people
            for state in self.model.states
        )
        laws = np.array([one.law for one in found])
        prior = np.array([one.probability for one in found])
        return laws, prior, np.repeat(np.arange(len(self.people)), 2), names

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
        return Given(mass / total if total > 0 else mass, total)
