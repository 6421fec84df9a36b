"""Queries asked in rounds: each round's question depends on the noisy answers before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from shoal.core.additive import Additive, Noise
from shoal.core.errors import InputError
from shoal.core.release import Answer
from shoal.core.rng import Rng
from shoal.core.task import Query

Answered = tuple[tuple[int, ...], ...]


@runtime_checkable
class InRounds(Protocol):
    """A query whose `labels`, `lipschitz` and answers are those of all rounds together.

    `lipschitz` is the sum over the rounds of the most one entry moves that round's question in
    the l1 norm, whatever the answers before it were.
    """

    @property
    def rounds(self) -> int: ...
    def ask(self, records: Any, answered: Answered) -> tuple[int, ...]:
        """The true answer of the next round in multiples of `lattice`, given earlier answers."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Rounds(Additive):
    """Lattice noise on every round's answer, drawn before the next round is asked.

    Entry-level DP with eta = lipschitz / scale, all rounds together: given the answers before it,
    round r is (L_r / scale)-DP, and such promises add adaptively (Dwork & Roth 2014, Section 3.5).
    """

    def __post_init__(self) -> None:
        if self.noise.step != self.query.lattice:
            raise InputError(
                f"noise step is {self.noise.step}; queries in rounds need their own lattice "
                f"{self.query.lattice}, on which the next round is asked"
            )

    def draw(self, records: Any, rng: Rng) -> Answer:
        """All rounds' noisy answers, one after the other. Charge the ledger before calling this."""
        assert isinstance(self.query, InRounds)  # `sampler_for` chooses this body for no other
        answered: Answered = ()
        for _ in range(self.query.rounds):
            truth = self.query.ask(records, answered)
            noise = self.noise.draw(len(truth), rng)
            answered += (tuple(t + int(z) for t, z in zip(truth, noise, strict=True)),)
        values = tuple(value for answer in answered for value in answer)
        return Answer(self.query.labels, values, self.noise.step, self.query.unit)


def sampler_for(query: Query, noise: Noise) -> Additive:
    """What draws `query` plus `noise`: round by round where the query is asked in rounds."""
    return Rounds(query, noise) if isinstance(query, InRounds) else Additive(query, noise)


def split_rounds(values: Sequence[int], rounds: int) -> Answered:
    """The answers of all rounds in a row, cut into rounds of equal length."""
    size = len(values) // rounds
    return tuple(tuple(values[r * size : (r + 1) * size]) for r in range(rounds))
