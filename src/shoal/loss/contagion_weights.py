"""The law of a sum over one group of people who weigh differently, given who is ill."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shoal.core.value import Floats, Ints
from shoal.loss.contagion_laws import FINEST, each_state, whole_law
from shoal.loss.frameworks import LOST, Given
from shoal.loss.mixture import DEEPEST_LINEAR, TooLarge
from shoal.models.contagion import Contagion

MAX_TERMS = 1e8  # additions of whole numbers, some ten seconds


class WeightedGroup:
    """A group of which every set of n people ill is as likely, with a weight for each person.

    With c(n, s) the number of sets of n people ill whose sum is s, among those that agree with
    what is known, P(sum = s, known) = Σ_n P(n) c(n, s) / C(m, n) for a group of m. In whole
    numbers, so that each mass is rounded once. `added[k]` (states, 1) is what the k-th person of
    the group adds, in lattice steps.
    """

    def __init__(self, model: Contagion, group: int, added: Sequence[Ints]) -> None:
        self.model = model
        self.people = model.groups[group]
        self.law = model.law_of(group)
        rows = np.array([own[:, 0] for own in added])
        self._low = int(rows.min(axis=1).sum())
        digits = rows - rows.min(axis=1, keepdims=True)
        self._unit = int(np.gcd.reduce(digits.ravel())) or 1
        self._digits: list[list[int]] = (digits // self._unit).tolist()
        self._width = int(digits.max(axis=1).sum()) // self._unit + 1

    @cached_property
    def values(self) -> Ints:
        return (self._low + self._unit * np.arange(self._width, dtype=np.int64))[:, None]

    @property
    def roundings(self) -> float:
        return 2.0

    @property
    def lossy(self) -> bool:
        """Whether a mass given one person's state is too small for a double."""
        return any(one.lossy for one in self._states)

    def deepest(self, probability: float) -> float:
        """Conditional masses are rounded once, however unlikely the event."""
        return DEEPEST_LINEAR

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """The two states of every person of the group."""
        return each_state(self.model, self.people, self._states)

    @cached_property
    def _states(self) -> list[Given]:
        """Given each state of each person."""
        refuse_long([self])
        return [self.given({p: np.eye(2)[state]}) for p in self.people for state in (0, 1)]

    @property
    def terms(self) -> float:
        """The work of the laws given each state of each person."""
        size = len(self.people)
        return 2.0 * size * size * (size + 1) * self._width

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given what is known of some people."""
        size = len(self.people)
        sets = math.lcm(*(math.comb(size, n) for n in range(size + 1)))
        each = [mass * (sets // math.comb(size, n)) for n, mass in enumerate(whole_law(self.law))]
        weight = [int(mass) for mass in np.array(each, dtype=object) @ self._counts(seen)]
        total = sum(weight)
        if total == 0:
            return Given(np.zeros(self._width), 0.0)
        law = np.array([mass / total for mass in weight])
        lost = (np.array([mass > 0 for mass in weight]) & (law < LOST)).any()
        # an event too unlikely for a double is still possible
        chance = max(total / (sets << FINEST), sys.float_info.min)
        return Given(law, chance, bool(lost))

    def _counts(self, seen: Mapping[int, Floats]) -> npt.NDArray[np.object_]:
        """c(n, s): how many sets of n people ill have each sum, (people + 1, sums)."""
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


def refuse_long(groups: Sequence[WeightedGroup]) -> None:
    """Refuse what would take long: the sets of every group are counted given every state."""
    terms = sum(group.terms for group in groups)
    if terms > MAX_TERMS:
        raise TooLarge(
            f"the laws of sums over people with weights of their own take {terms:.1g} steps; use "
            "lift or group, or coarser weights"
        )
