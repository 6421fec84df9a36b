"""The query of a context stream: the current state, at every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from shoal.core.errors import InputError
from shoal.core.records import Sequences, label, sequences
from shoal.core.value import Value
from shoal.models.chain import checked_states


@dataclass(frozen=True, slots=True, eq=False)
class CurrentState(Value):
    """Which state one is in, asked at every step of a stream and released as it is or not at all.

    There is no number to add noise to: `lipschitz` is 0, which no numeric query has, and
    `evaluate` refuses. Mechanisms that add noise refuse this query by it.
    """

    states: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "states", checked_states(self.states))

    @property
    def labels(self) -> tuple[str, ...]:
        return ("current",)

    @property
    def unit(self) -> str:
        return "states"

    @property
    def lattice(self) -> Fraction:
        return Fraction(1)

    @property
    def lipschitz(self) -> Fraction:
        return Fraction(0)

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states."""
        return sequences(data, self.states)

    def evaluate(self, records: Any) -> NoReturn:
        """Refused: a stream shows states, not numbers."""
        raise InputError("the current state is not a number; run the plan with plan.start()")

    def describe(self) -> str:
        return f"which of {len(self.states)} states one is in, at every step"


def current_state(states: Sequence[Any]) -> CurrentState:
    """The query of a stream on these states."""
    return CurrentState(tuple(label(state) for state in states))
