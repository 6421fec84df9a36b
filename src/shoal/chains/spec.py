"""The sections of a spec for chains: written out, by order, by how fast they forget, by bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from shoal.chains.model import MarkovChain
from shoal.core.errors import SpecError
from shoal.core.task import Model, Query
from shoal.spec.fields import (
    Initial,
    ModelSection,
    Positive,
    Probabilities,
    QuerySection,
    State,
    Text,
    Whole,
    table_of,
)

if TYPE_CHECKING:
    from shoal.chains.families import IntervalChains, MixingSummary, OrderChain


class ChainModel(ModelSection):
    """A Markov chain, written out."""

    kind: Literal["markov-chain"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    transition: Probabilities = Field(
        description="row x holds the law of the next entry after state x; a list of matrices "
        "gives each step its own"
    )
    initial: Initial = Field(
        "stationary", description='law of the first entry: "stationary", "any", or a list'
    )
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")
    exactly: bool = Field(
        False, description="whether every chain has exactly `length` entries; shorter is refused"
    )

    def model(self, folder: Path) -> Model:
        """Return the chain that the section describes; a family for `initial = "any"`.

        Refused when `exactly` is given with any initial law.
        """
        transition = table_of(self.transition, "transition")
        if self.initial == "any":
            from shoal.chains.families import AnyInitialLaw

            if self.exactly:
                raise SpecError(
                    'exactly is true and initial is "any"; an exact length needs one initial law: '
                    "give it, or remove exactly"
                )
            return AnyInitialLaw(
                states=tuple(self.states), transition=transition, length=self.length
            )
        initial: Any = self.initial
        if initial != "stationary":
            initial = table_of(initial, "initial")
        return MarkovChain.of(
            transition,
            states=self.states,
            initial=initial,
            length=self.length,
            exactly=self.exactly,
        )


class OrderModel(ModelSection):
    """A Markov chain whose next entry depends on the last `order` entries."""

    kind: Literal["order-chain"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    order: Whole = Field(description="how many past entries matter")
    conditional: Probabilities = Field(
        description="one row per tuple of past states, the oldest entry varying slowest"
    )
    initial: Probabilities = Field(description="law of the first `order` entries, one per tuple")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")

    def model(self, folder: Path) -> OrderChain:
        """Return the chain of higher order that the section describes."""
        from shoal.chains.families import OrderChain

        return OrderChain(
            states=tuple(self.states),
            order=self.order,
            conditional=table_of(self.conditional, "conditional"),
            initial=table_of(self.initial, "initial"),
            length=self.length,
        )


class MixingModel(ModelSection):
    """Every Markov chain known only by how rare a state may be and how fast it forgets."""

    kind: Literal["mixing"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    pi_min: Positive = Field(description="least stationary probability of any state")
    gap: Positive = Field(description="least spectral gap, counted with multiplicity")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")

    def model(self, folder: Path) -> MixingSummary:
        from shoal.chains.families import MixingSummary

        return MixingSummary(pi_min=float(self.pi_min), gap=float(self.gap), length=self.length)

    def states_of(self, model: Model) -> tuple[str, ...]:
        return tuple(self.states)


class IntervalModel(ModelSection):
    """Every two-state Markov chain, with any initial law, whose staying is within bounds."""

    kind: Literal["interval"]
    states: list[State] = Field(min_length=1, description="the two values an entry can take")
    low: Probabilities = Field(description="least probability of staying, one per state")
    high: Probabilities = Field(description="largest probability of staying, one per state")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")

    def model(self, folder: Path) -> IntervalChains:
        """Return all chains on two states whose stay probabilities lie in the given intervals.

        Refused when `low` or `high` does not hold two probabilities.
        """
        from shoal.chains.families import IntervalChains

        for key, values in (("low", self.low), ("high", self.high)):
            if len(values) != 2 or any(isinstance(value, list) for value in values):
                raise SpecError(f"{key} holds {len(values)} items; it must be two probabilities")
        return IntervalChains(
            states=tuple(self.states),
            low=(self.low[0], self.low[1]),
            high=(self.high[0], self.high[1]),
            length=self.length,
        )


class TransitionsQuery(QuerySection):
    """How often each state follows each other one directly: a table of steps."""

    kind: Literal["transitions"]
    unit: Text = Field("steps", description="what one step stands for, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        from shoal.chains.transitions import transitions

        return transitions(states, unit=self.unit)
