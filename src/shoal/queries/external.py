"""A query that lives inside somebody else's mechanism."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from shoal.core.errors import InputError
from shoal.core.records import Sequences, sequences
from shoal.core.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class ExternalQuery(Value):
    """Whatever an attached mechanism answers about sequences of `states`.

    Its sensitivity and its lattice are inside the mechanism, so only the mechanism's own
    entry-level eta is known.
    """

    name: str
    states: tuple[str, ...]
    unit: str = "as the mechanism gives it"

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def lattice(self) -> Fraction:
        self._inside("lattice")

    @property
    def lipschitz(self) -> Fraction:
        self._inside("sensitivity")

    def describe(self) -> str:
        return f"{self.name}, computed inside an external mechanism"

    def read(self, data: Any) -> Sequences:
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        self._inside("true answer")

    def _inside(self, what: str) -> NoReturn:
        raise InputError(
            f"the {what} of {self.name} is inside its mechanism; noise cannot be added to it again"
        )
