"""The sections of a spec for context streams: a day, what is sensitive, and the current state."""

from __future__ import annotations

from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from shoal.contexts.day import DayChain
from shoal.contexts.search.limits import time_limit as search_limit
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import InputError, SpecError
from shoal.core.task import Model, Query
from shoal.data.times import parse_duration
from shoal.spec.fields import (
    ModelSection,
    Probabilities,
    QuerySection,
    SecretsSection,
    State,
    States,
    Text,
    Whole,
    WholeOrZero,
    table_of,
)

MOST_SLOTS = 86_400  # one for each second of a day


class DayModel(ModelSection):
    """One day: a Markov chain with a matrix of its own per step."""

    kind: Literal["day-chain"]
    states: list[State] = Field(min_length=1, description="the contexts of a day")
    initial: Probabilities = Field(description="law of the first slot")
    transition: Probabilities = Field(
        description="a list of matrices, one per step; or one matrix, with slots"
    )
    slots: Whole | None = Field(None, description="slots of the day, when transition is one matrix")
    slot_minutes: Whole | None = Field(None, description="minutes of a slot, for the calendar")
    start_minute: WholeOrZero | None = Field(
        None, description="minutes from midnight to the first slot, for the calendar"
    )

    def model(self, folder: Path) -> DayChain:
        """Return the day chain of this section; refuse days of too many slots."""
        if self.slots is not None and self.slots > MOST_SLOTS:
            raise SpecError(
                f"slots is {self.slots:,}; a day has at most {MOST_SLOTS:,}: give longer slots"
            )
        return DayChain.of(
            table_of(self.transition, "transition"),
            initial=table_of(self.initial, "initial"),
            states=self.states,
            slots=self.slots,
            slot_minutes=self.slot_minutes or 0,
            start_minute=self.start_minute or 0,
        )


class ContextSecrets(SecretsSection):
    """Contexts in which no belief may rise by more than delta."""

    amount: ClassVar[str] = "belief_delta"

    kind: Literal["contexts"]
    sensitive: States | None = Field(None, description="contexts sensitive at every slot")
    moments: dict[Text, list[int]] | None = Field(
        None, description="context to the slots (from 0) at which it is sensitive"
    )
    groups: list[States] | None = Field(
        None, description="groups of contexts; being in any of a group is sensitive"
    )

    never: States | None = Field(
        None, description="contexts that are sensitive and never shown, however likely they are"
    )
    labels: dict[Text, States] | None = Field(
        None, description="state to the contexts it may stand for, for adversaries unsure of them"
    )

    def secrets(self, query: Query, family: tuple[Model, ...]) -> SensitiveContexts:
        """Return the sensitive contexts of this section."""
        return SensitiveContexts.of(
            self.sensitive or (),
            moments=self.moments,
            groups=self.groups or (),
            labels=self.labels,
            never=self.never or (),
        )


class CurrentQuery(QuerySection):
    """The current context, at every slot."""

    kind: Literal["current"]

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> CurrentState:
        return CurrentState(states)


def limited(time_limit: str, mechanism: str) -> AbstractContextManager[None]:
    """Limit the time of the checks inside the block; a named check gets all of it."""
    try:
        seconds = parse_duration(time_limit, "privacy.time_limit").total_seconds()
    except InputError as error:
        raise SpecError(str(error)) from None
    return search_limit(Fraction(seconds), mechanism)
