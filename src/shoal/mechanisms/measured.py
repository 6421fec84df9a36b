"""What an external mechanism draws, and the entry-level eta its user vouches for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shoal.core.errors import InputError
from shoal.core.numbers import common_step, significant
from shoal.core.records import Sequences
from shoal.core.release import Answer, Error
from shoal.core.rng import Rng
from shoal.core.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class Measured(Value):
    """A mechanism from outside, called with the entries of all chains in order.

    Entries are handed over as integers when every state is named by one, else as text. The
    mechanism itself is not stored: a loaded plan releases only after `attach`.
    """

    name: str
    eta: Fraction
    mechanism: Callable[[list[Any]], Any] | None = field(default=None, metadata={"stored": False})

    def draw(self, records: Sequences, rng: Rng) -> Answer:
        """The mechanism's own answer, drawn with its own randomness."""
        if self.mechanism is None:
            raise InputError(
                f"{self.name} is not stored with its plan; attach it again with shoal.attach"
            )
        if not rng.secure:
            raise InputError(f"rng is seeded, but {self.name} draws its own randomness; omit rng")
        answer = self.mechanism(_entries(records))
        answer = answer.tolist() if hasattr(answer, "tolist") else answer  # NumPy's
        values = answer if isinstance(answer, list | tuple) else [answer]
        try:
            exact = [Fraction(value) for value in values]
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"{self.name} did not answer with a finite number, or a list of them; nothing "
                "else can be released"
            ) from None
        step = common_step(exact)
        labels = (self.name,) if len(exact) == 1 else tuple(str(i) for i in range(len(exact)))
        multiples = tuple(int(value / step) for value in exact)
        return Answer(labels, multiples, step, "as the mechanism gives it")

    def error(self, confidence: float) -> Error | None:
        """None: only the mechanism knows its error."""
        return None

    def describe(self) -> str:
        return f"{self.name}, {significant(self.eta)}-DP for one entry"


def _entries(records: Sequences) -> list[Any]:
    names: list[Any] = list(records.states)
    if all(re.fullmatch("-?[0-9]+", name) for name in names):
        names = [int(name) for name in names]
    return [names[index] for chain in records.chains for index in chain]
