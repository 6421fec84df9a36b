"""Members of a family that stand for many laws at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.records import Sequences
from shoal.core.task import Model
from shoal.core.value import Floats, Value
from shoal.models.chain import (
    MarkovChain,
    admit_length,
    checked_length,
    checked_states,
    checked_transition,
    named,
    numbers,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnyInitialLaw(Value):
    """All Markov chains with one transition matrix, whatever the law of the first entry."""

    states: tuple[str, ...]
    transition: Floats
    length: int | None = None

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "transition", checked_transition(self.transition, len(states)))
        if self.transition.ndim != 2:
            raise InputError("transition holds one matrix per step; all initial laws needs one")
        object.__setattr__(self, "length", checked_length(self.length))

    @classmethod
    def of(
        cls,
        transition: npt.ArrayLike,
        *,
        states: Sequence[Any] | None = None,
        length: int | None = None,
    ) -> Self:
        """The family from plain lists: states named 0, 1, … by default."""
        matrix = numbers(transition, "transition")
        return cls(states=named(states, matrix), transition=matrix, length=length)

    @property
    def tied(self) -> int | None:
        return self.length

    def starting_in(self, state: int) -> MarkovChain:
        """The member whose first entry is certain."""
        initial = np.zeros(len(self.states))
        initial[state] = 1.0
        return MarkovChain(
            states=self.states, transition=self.transition, initial=initial, length=self.length
        )

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        return f"a Markov chain {length} on {len(self.states)} states, with any initial law"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixingSummary(Value):
    """All stationary-or-not chains known only by two numbers: how rare a state, how slow to mix.

    Every chain whose stationary probabilities are at least `pi_min` and whose gap (counted with
    multiplicity; 2(1 - |λ2|) when reversible, that of P P* otherwise) is at least `gap`.
    Song, Wang & Chaudhuri 2017, Section 4.4.2.
    """

    pi_min: float
    gap: float
    length: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.pi_min <= 1:
            raise InputError(f"pi_min is {self.pi_min}; it must be in (0, 1]")
        if not 0 < self.gap <= 2:
            raise InputError(f"gap is {self.gap}; it must be in (0, 2] (a gap of 0 never mixes)")
        object.__setattr__(self, "length", checked_length(self.length))

    @property
    def states(self) -> None:
        return None

    @property
    def tied(self) -> int | None:
        return self.length

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        return (
            f"any Markov chain with stationary probabilities of at least {self.pi_min:g} "
            f"and a gap of at least {self.gap:g}"
        )


def family(*members: Model | Sequence[Model]) -> tuple[Model, ...]:
    """The tuple of models an adversary may hold, from models or lists of them."""
    flat: list[Any] = []
    for member in members:
        if isinstance(member, Model | str) or not isinstance(member, Iterable):
            flat.append(member)
        else:
            flat.extend(member)
    for model in flat:
        if not isinstance(model, Model):
            raise InputError(
                f"the family holds {model!r}, which is no model; give one such as "
                "shoal.MarkovChain.of(...), or several"
            )
    if not flat:
        raise InputError("the family holds no model; give at least one")
    return tuple(flat)
