"""Chains whose next entry depends on the last m entries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.records import Sequences
from shoal.core.value import Floats, Ints, Value
from shoal.models.chain import (
    MarkovChain,
    admit_length,
    checked_length,
    checked_rows,
    checked_states,
)

MAX_TUPLES = 4096  # larger order-m chains are refused: every mechanism works on their tuples


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderChain(Value):
    """P(X_{t+1} = y | last `order` entries) = conditional[tuple, y].

    Tuples are numbered like digits in base k, the oldest entry first. `initial` is the law of
    the first `order` entries.
    """

    states: tuple[str, ...]
    order: int
    conditional: Floats
    initial: Floats
    length: int | None = None

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        object.__setattr__(self, "order", whole(self.order, "order"))
        tuples = len(states) ** self.order
        if tuples > MAX_TUPLES:
            raise InputError(
                f"order {self.order} on {len(states)} states has {tuples} tuples; at most "
                f"{MAX_TUPLES} are handled: lower the order or merge states"
            )
        rows = checked_rows(self.conditional, "conditional", (tuples, len(states)))
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "conditional", rows)
        object.__setattr__(self, "initial", checked_rows(self.initial, "initial", (tuples,)))
        object.__setattr__(self, "length", checked_length(self.length))
        if self.length is not None and self.length < self.order:
            raise InputError(f"length is {self.length}; it must be at least order {self.order}")

    @property
    def tied(self) -> int | None:
        return self.length

    @property
    def entry(self) -> Ints:
        """The last entry of each tuple, as a state index."""
        return np.arange(len(self.conditional)) % len(self.states)

    def tuples(self) -> Ints:
        """Every tuple as a row of state indices, in order."""
        return np.array(list(product(range(len(self.states)), repeat=self.order)), dtype=np.int64)

    def on_tuples(self) -> MarkovChain:
        """The same law as an ordinary chain whose states are tuples.

        Its first entry is the tuple of the first `order` entries, so it is order - 1 shorter.
        """
        size, count = len(self.states), len(self.conditional)
        transition = np.zeros((count, count))
        for row in range(count):
            first = (row * size) % count  # drop the oldest entry, shift the rest
            transition[row, first : first + size] = self.conditional[row]
        names = tuple("|".join(self.states[i] for i in row) for row in self.tuples())
        length = None if self.length is None else self.length - self.order + 1
        return MarkovChain(states=names, transition=transition, initial=self.initial, length=length)

    def admit(self, records: Sequences) -> None:
        """Refuse sequences longer than the law covers, or shorter than its memory."""
        admit_length(records, self.length)
        if any(len(chain) < self.order for chain in records.chains):
            raise DataError(
                f"a chain of the data is shorter than order {self.order} of the model; drop it"
            )

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        return f"a Markov chain of order {self.order} {length} on {len(self.states)} states"
