"""Members of a family that stand for many laws at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import (
    ChainLaw,
    MarkovChain,
    admit_length,
    checked_length,
    checked_rows,
    checked_transition,
    numbers,
    state_names,
)
from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.records import Sequences, checked_states, label
from shoal.core.task import EntryLift, Law, Model, Query, Quilts
from shoal.core.walk import Walk

if TYPE_CHECKING:
    from shoal.core.motion import Motion


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AnyInitialLaw(ChainLaw):
    """All Markov chains with one transition matrix, with any law of the first entry."""

    kind = "any-initial-law"
    lift_covers_quilts: ClassVar[bool] = True

    states: tuple[str, ...]
    transition: Floats
    length: int | None = None

    def __post_init__(self) -> None:
        """Refuse states, a transition matrix or a length out of range, and one matrix per step."""
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
        return cls(states=state_names(states, matrix), transition=matrix, length=length)

    @property
    def tied(self) -> int | None:
        return self.length

    def walk(self) -> Walk:
        shown = np.arange(len(self.states))
        return Walk(self.states, None, self.transition[None], shown, (shown,), self.length)

    def check_events(self, secrets: Any) -> None:
        """Refuse events that cannot happen under this law, or that cannot fail to."""
        from shoal.chains.events.answers import pairs_given

        pairs_given(self, secrets)

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.chains.lift.chain import any_initial_lift

        return any_initial_lift(self, query)

    def quilts(self, reach: int | None = None) -> Quilts:
        from shoal.chains.quilt.row import any_initial_quilts

        return any_initial_quilts(self, reach)

    def mixing(self) -> Quilts:
        from shoal.chains.quilt.row import mixing_of_matrix

        return mixing_of_matrix(self)

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        return f"a Markov chain {length} on {len(self.states)} states, with any initial law"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixingSummary(Law):
    """All stationary-or-not chains known only by two numbers: how rare a state, how slow to mix.

    Every chain whose stationary probabilities are at least `pi_min` and whose gap (counted with
    multiplicity; 2(1 - |λ2|) when reversible, that of P P* otherwise) is at least `gap`.
    Song, Wang & Chaudhuri 2017, Section 4.4.2.
    """

    kind = "mixing-summary"

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

    def members(self, states: tuple[str, ...]) -> tuple[Model, ...]:
        """A reversible chain with exactly this gap: stay with probability λ, else draw afresh.

        P = λ I + (1-λ) 1πᵀ has eigenvalues 1 and λ = 1 - gap/2. π is pi_min on all states but
        one, or uniform on as many states as pi_min allows.
        """
        used = min(len(states), int(1 / self.pi_min))
        law = np.zeros(len(states))
        law[:used] = self.pi_min
        law[0] += 1 - law.sum()
        stay = 1 - self.gap / 2
        transition = stay * np.eye(len(states)) + (1 - stay) * law
        return (MarkovChain.of(transition, states=states, initial=law, length=self.length),)

    def mixing(self) -> Quilts:
        from shoal.chains.quilt.row import mixing_of_summary

        return mixing_of_summary(self)

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        return (
            f"any Markov chain with stationary probabilities of at least {self.pi_min:g} "
            f"and a gap of at least {self.gap:g}"
        )


# A rectangle of two-state chains: every transition matrix within given bounds.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IntervalChains(Law):
    """All two-state chains, with any initial law, whose stay probabilities lie in intervals.

    P(stay in state i) is between low[i] and high[i]. A continuum: mechanisms that cannot prove
    their answer over all of it refuse it. Song, Wang & Chaudhuri 2017, Section 5.2.
    """

    kind = "interval-chains"

    states: tuple[str, ...]
    low: tuple[float, float]
    high: tuple[float, float]
    length: int | None = None

    def __post_init__(self) -> None:
        """Refuse other than two states, and intervals of stay probabilities outside [0, 1]."""
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

    def members(self, states: tuple[str, ...]) -> tuple[Model, ...]:
        """The chains at the corners of the rectangle, however begun."""
        return tuple(
            AnyInitialLaw.of([[p, 1 - p], [1 - q, q]], states=states, length=self.length)
            for p in {self.low[0], self.high[0]}
            for q in {self.low[1], self.high[1]}
        )

    def quilts(self, reach: int | None = None) -> Quilts:
        from shoal.chains.quilt.row import interval_quilts

        return interval_quilts(self, reach)

    def mixing(self) -> Quilts:
        from shoal.chains.quilt.row import mixing_of_interval

        return mixing_of_interval(self)

    def admit(self, records: Sequences) -> None:
        admit_length(records, self.length)

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        bounds = ", ".join(
            f"{low:g} to {high:g}" for low, high in zip(self.low, self.high, strict=True)
        )
        return f"any two-state chain {length} that stays with probability {bounds}, however begun"


# Chains whose next entry depends on the last m entries.


MAX_TUPLES = 4096  # larger order-m chains are refused: every mechanism works on their tuples


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OrderChain(ChainLaw):
    """P(X_{t+1} = y | last `order` entries) = conditional[tuple, y].

    Tuples are numbered like digits in base k, the oldest entry first. `initial` is the law of
    the first `order` entries.
    """

    kind = "order-chain"

    states: tuple[str, ...]
    order: int
    conditional: Floats
    initial: Floats
    length: int | None = None

    def __post_init__(self) -> None:
        """Refuse an order, rows or a length out of range, and more tuples of states than are
        handled.
        """
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

    def walk(self) -> Walk:
        tuples, digits = self.on_tuples(), self.tuples()
        first = tuple(digits[:, i] for i in range(self.order))
        matrices = tuples.transition[None]
        return Walk(self.states, tuples.initial, matrices, self.entry, first, tuples.length)

    def motion(self) -> Motion:
        """Return the motion on tuples of entries, of which the last entry is the state shown."""
        from shoal.core.motion import Motion, transpose_sparse

        tuples = self.on_tuples()
        return Motion(
            size=len(self.states),
            initial=tuples.initial,
            shown=np.ascontiguousarray(self.tuples().T),
            forward=(transpose_sparse(tuples.transition),),
            length=self.length,
            homogeneous=True,
        )

    def check_events(self, secrets: Any) -> None:
        """Refuse events that cannot happen under this law, or that cannot fail to."""
        from shoal.chains.events.answers import pairs_given

        pairs_given(self, secrets)

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.chains.lift.chain import order_lift

        return order_lift(self, query)

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
