"""What leaves: an answer, and an answer with its promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from shoal.core.guarantee import Guarantee
from shoal.core.numbers import significant
from shoal.core.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class Error(Value):
    """How far one released value may be from the truth because of the noise."""

    expected: float
    bound: float
    confidence: float
    unit: str

    def describe(self) -> str:
        return (
            f"off by {significant(self.expected)} {self.unit} on average, within "
            f"±{significant(self.bound)} {self.unit} with probability {self.confidence:.0%}"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Value):
    """Values on a lattice: integer `multiples` of `step`, one per label."""

    labels: tuple[str, ...]
    multiples: tuple[int, ...]
    step: Fraction
    unit: str

    @property
    def exact(self) -> tuple[Fraction, ...]:
        return tuple(self.step * multiple for multiple in self.multiples)

    @property
    def values(self) -> tuple[float, ...]:
        """The values as floats, for plots and further computation."""
        return tuple(float(value) for value in self.exact)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release(Value):
    """An answer that may be published, and the promise it was made under.

    `plan` is the fingerprint of the plan. `secure` is False when the randomness was seeded: such
    a release is for tests and demos only, and no ledger takes it. `processed` names the
    post-processing applied since, none of which costs privacy.
    """

    answer: Answer
    plan: str
    mechanism: str
    guarantee: Guarantee
    error: Error | None
    secure: bool
    processed: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[float, ...]:
        return self.answer.values

    def as_dict(self) -> dict[str, float]:
        """Label to value."""
        return dict(zip(self.answer.labels, self.values, strict=True))

    def after(self, name: str, values: tuple[Fraction, ...]) -> Release:
        """This release with its values replaced by a function of them, called `name`."""
        step = math.lcm(self.answer.step.denominator, *(v.denominator for v in values))
        answer = replace(
            self.answer, multiples=tuple(int(v * step) for v in values), step=Fraction(1, step)
        )
        return replace(self, answer=answer, processed=(*self.processed, name))
