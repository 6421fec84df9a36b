"""A rectangle of two-state chains: every transition matrix within given bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from shoal.core.errors import InputError
from shoal.core.records import Sequences, label
from shoal.core.value import Value
from shoal.models.chain import admit_length, checked_length, checked_states


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalChains(Value):
    """All two-state chains, with any initial law, whose stay probabilities lie in intervals.

    P(stay in state i) is between low[i] and high[i]. A continuum: mechanisms that cannot prove
    their answer over all of it refuse it. Song, Wang & Chaudhuri 2017, Section 5.2.
    """

    states: tuple[str, ...]
    low: tuple[float, float]
    high: tuple[float, float]
    length: int | None = None

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        if len(states) != 2:
            raise InputError(f"states names {len(states)} states; an interval family has exactly 2")
        for i in (0, 1):
            if not 0 <= self.low[i] <= self.high[i] <= 1:
                raise InputError(
                    f"the stay probability of {states[i]!r} is in [{self.low[i]}, {self.high[i]}]; "
                    "it must be an interval inside [0, 1]"
                )
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "low", tuple(float(p) for p in self.low))
        object.__setattr__(self, "high", tuple(float(p) for p in self.high))
        checked_length(self.length)

    @classmethod
    def around(
        cls, alpha: float, *, states: Sequence[Any] = (0, 1), length: int | None = None
    ) -> Self:
        """Both stay probabilities in [alpha, 1 - alpha], as in the paper's experiments."""
        if not 0 <= alpha <= 0.5:
            raise InputError(f"alpha is {alpha}; it must be between 0 and 0.5")
        names = tuple(label(state) for state in states)
        both = (float(alpha), float(alpha))
        return cls(states=names, low=both, high=(1.0 - alpha, 1.0 - alpha), length=length)

    @property
    def tied(self) -> int | None:
        return self.length

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        bounds = ", ".join(
            f"{low:g} to {high:g}" for low, high in zip(self.low, self.high, strict=True)
        )
        return f"any two-state chain {length} that stays with probability {bounds}, however begun"
