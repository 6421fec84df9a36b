"""The law of a sum over one group of people given who is ill, without listing outcomes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints
from shoal.core.walk import LOST
from shoal.mechanisms.mixture import DEEPEST_LINEAR, TooLarge
from shoal.mechanisms.variables import per_variable
from shoal.networks.contagion import Contagion
from shoal.networks.laws import GivenSum, NamedSum, contribution_steps
from shoal.networks.parts import Component, SumParts

DOUBLE_FRACTION_BITS = 1074  # every double is a multiple of 2^-1074
MAX_TERMS = 1e8  # additions of whole numbers, some ten seconds


def contagion_parts(model: Contagion, query: NamedSum, *, alike: bool) -> SumParts:
    """Return the groups of a contagion model as components, each counted in the way that fits it.

    With `alike`, groups are one when they follow one law and the same weights in the same order.
    """
    added = contribution_steps(query, model.variables, model.domains)
    own_weights = per_variable(query) is not None
    kinds: dict[tuple[int, ...], int] = {}
    groups: list[Component] = []
    copies: list[int] = []
    home: dict[int, int] = {}
    for g, people in enumerate(model.groups):
        own = [added[person] for person in people]
        weights = [int(weight) for rows in own for weight in rows.ravel()] if own_weights else []
        kind = kinds.setdefault((model.which[g], *weights) if alike else (g,), len(groups))
        if kind == len(groups):
            groups.append(_group_component(model, g, own, own_weights=own_weights))
            copies.append(0)
        copies[kind] += 1
        home.update((person, kind) for person in people)
    refuse_long_counts([group for group in groups if isinstance(group, WeightedGroup)])
    return SumParts(tuple(groups), tuple(copies), home)


def _group_component(
    model: Contagion, group: int, added: list[Ints], *, own_weights: bool
) -> Component:
    """Return the component of one group: listed, exchangeable, or with a weight per person."""
    if not model.exchangeable(group):
        return TableGroup(model, group, added)
    return (
        WeightedGroup(model, group, added)
        if own_weights
        else ExchangeableGroup(model, group, added[0])
    )


class _GroupSum:
    """What all groups share: a component of a sum whose secrets are the states of its people."""

    def __init__(self, model: Contagion, group: int) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)

    @property
    def lossy(self) -> bool:
        """Whether a mass given one person's state is too small for a double."""
        return any(one.lossy for one in self._states)

    def deepest(self, probability: float) -> float:
        """Return how many scales apart answers may lie: masses lose digits only by being small
        themselves.
        """
        return DEEPEST_LINEAR

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given what is known of some people."""
        raise NotImplementedError

    @property
    def _asked(self) -> tuple[int, ...]:
        """The people whose states are secrets; of several alike one is enough."""
        return self.people

    @cached_property
    def _states(self) -> list[GivenSum]:
        """Given each state of each of them."""
        return [self.given({p: np.eye(2)[state]}) for p in self._asked for state in (0, 1)]

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """Return laws, probabilities, owners and names of the two states of every person asked
        about.
        """
        found = self._states
        names = tuple(
            f"{self.model.variables[person]} = {state}"
            for person in self._asked
            for state in self.model.states
        )
        laws = np.array([one.law for one in found])
        prior = np.array([one.probability for one in found])
        return laws, prior, np.repeat(np.arange(len(self._asked)), 2), names


class ExchangeableGroup(_GroupSum):
    """A group in which only the number N of people ill matters: every set of N is as likely.

    With `added[state]` what a person in that state adds (labels), the sum is a function of N.
    P(N = n, a given people ill, w given people well) = P(n) C(m - a - w, n - a) / C(m, n) for a
    group of m. Song, Wang & Chaudhuri 2017, Section 3.1.
    """

    def __init__(self, model: Contagion, group: int, added: Ints) -> None:
        super().__init__(model, group)
        ill = np.arange(len(self.people) + 1)[:, None]
        rows = (len(self.people) - ill) * added[0] + ill * added[1]
        self._order = np.lexsort(rows.T[::-1])
        self.values: Ints = np.asarray(rows[self._order], dtype=np.int64)

    @property
    def roundings(self) -> float:
        return float(len(self.law) + 8)

    @property
    def _asked(self) -> tuple[int, ...]:
        return self.people[:1]

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given what is known of some people.

        In whole numbers, with [k]_j = k(k-1)…(k-j+1) in place of the binomials:
        C(m - a - w, n - a) / C(m, n) = [n]_a [m - n]_w / [m]_{a+w}. Each mass is rounded once.
        """
        well = sum(bool(row[0]) and not row[1] for row in seen.values())
        ill = sum(bool(row[1]) and not row[0] for row in seen.values())
        size = len(self.people)
        if not all(row.any() for row in seen.values()):
            return GivenSum(np.zeros(size + 1), 0.0)
        weight = [
            mass * math.perm(n, ill) * math.perm(size - n, well)
            for n, mass in enumerate(law_in_integers(self.law))
        ]
        return _law_from_integers([weight[n] for n in self._order], math.perm(size, well + ill))


class TableGroup(_GroupSum):
    """A group whose joint law is written out, one axis per person.

    `added` is what a state adds, (states, labels), the same for all or a table for each person.
    """

    def __init__(self, model: Contagion, group: int, added: Ints | Sequence[Ints]) -> None:
        """List the sums of all outcomes of the group."""
        super().__init__(model, group)
        outcomes = np.indices(self.law.shape).reshape(len(self.people), -1)
        each = [added] * len(self.people) if isinstance(added, np.ndarray) else added
        rows = np.asarray(sum(own[row] for own, row in zip(each, outcomes, strict=True)))
        values, place = np.unique(rows, axis=0, return_inverse=True)
        self.values: Ints = values
        self._place = place.ravel()

    @property
    def roundings(self) -> float:
        return float(self.law.size)

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given what is known of some people, by listing outcomes."""
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
        return GivenSum(law, total, bool(((mass > 0) & (law < LOST)).any()))


class WeightedGroup(_GroupSum):
    """A group of which every set of n people ill is as likely, with a weight for each person.

    With c(n, s) the number of sets of n people ill whose sum is s, among those that agree with
    what is known, P(sum = s, known) = Σ_n P(n) c(n, s) / C(m, n) for a group of m. In whole
    numbers, so that each mass is rounded once. `added[k]` (states, 1) is what the k-th person of
    the group adds, in lattice steps.
    """

    def __init__(self, model: Contagion, group: int, added: Sequence[Ints]) -> None:
        """Write the people's weights as whole numbers of a common unit."""
        super().__init__(model, group)
        rows = np.array([own[:, 0] for own in added])
        digits = rows - rows.min(axis=1, keepdims=True)
        unit = int(np.gcd.reduce(digits.ravel())) or 1
        self._digits: list[list[int]] = (digits // unit).tolist()
        self._width = int(digits.max(axis=1).sum()) // unit + 1
        low = int(rows.min(axis=1).sum())
        self.values: Ints = (low + unit * np.arange(self._width, dtype=np.int64))[:, None]

    @property
    def roundings(self) -> float:
        return 2.0

    @cached_property
    def _states(self) -> list[GivenSum]:
        refuse_long_counts([self])
        return super()._states

    @property
    def terms(self) -> float:
        """The work of the laws given each state of each person."""
        size = len(self.people)
        return 2.0 * size * size * (size + 1) * self._width

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given what is known of some people, in whole numbers."""
        size = len(self.people)
        sets = math.lcm(*(math.comb(size, n) for n in range(size + 1)))
        each = [
            mass * (sets // math.comb(size, n)) for n, mass in enumerate(law_in_integers(self.law))
        ]
        weight = np.array(each, dtype=object) @ self._counts(seen)
        return _law_from_integers([int(mass) for mass in weight], sets)

    def _counts(self, seen: Mapping[int, Floats]) -> npt.NDArray[np.object_]:
        """Return c(n, s): how many sets of n people ill have each sum, (people + 1, sums)."""
        size, width = len(self.people), self._width
        table = np.zeros((size + 1, width), dtype=object)
        table[0, 0] = 1
        for person, (well, ill) in zip(self.people, self._digits, strict=True):
            known = seen.get(person, np.ones(2))
            after = np.zeros_like(table)
            if known[0]:
                after[:, well:] += table[:, : width - well]
            if known[1]:
                after[1:, ill:] += table[:-1, : width - ill]
            table = after
        return table


def refuse_long_counts(groups: Sequence[WeightedGroup]) -> None:
    """Refuse what would take long: the sets of every group are counted given every state."""
    terms = sum(group.terms for group in groups)
    if terms > MAX_TERMS:
        raise TooLarge(
            f"the laws of sums over people with weights of their own take {terms:.1g} steps; use "
            "lift or group, or coarser weights"
        )


def law_in_integers(law: Floats) -> list[int]:
    """Return a law in units of 2^-1074, of which every double is a whole number."""
    ratios = (float(mass).as_integer_ratio() for mass in law)
    return [top * ((1 << DOUBLE_FRACTION_BITS) // bottom) for top, bottom in ratios]


def _law_from_integers(weight: list[int], unit: int) -> GivenSum:
    """Return the law whose masses are as these whole numbers, each rounded once.

    What was given has their sum over unit·2^1074 as its probability; too unlikely for a double, it
    is still possible.
    """
    total = sum(weight)
    if total == 0:
        return GivenSum(np.zeros(len(weight)), 0.0)
    law = np.array([mass / total for mass in weight])
    lost = (np.array([mass > 0 for mass in weight]) & (law < LOST)).any()
    return GivenSum(
        law, max(total / (unit << DOUBLE_FRACTION_BITS), sys.float_info.min), bool(lost)
    )
