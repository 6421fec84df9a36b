"""The sections of a spec for context streams: a day, what is sensitive, and the current state."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from pydantic import Field

from shoal.contexts.checks.search_budget import time_limit as search_limit
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.errors import InputError, SpecError
from shoal.data.times import parse_duration
from shoal.spec.fields import Probabilities, Section, State, States, Text, Whole


class DayModel(Section):
    """One day: a Markov chain with a matrix of its own per step."""

    kind: Literal["day-chain"]
    states: list[State] = Field(min_length=1, description="the contexts of a day")
    initial: Probabilities = Field(description="law of the first slot")
    transition: Probabilities = Field(
        description="a list of matrices, one per step; or one matrix, with slots"
    )
    slots: Whole | None = Field(None, description="slots of the day, when transition is one matrix")
    slot_minutes: Whole | None = Field(None, description="minutes of a slot, for the calendar")
    start_minute: Whole | None = Field(
        None, description="minutes from midnight to the first slot, for the calendar"
    )


class ContextSecrets(Section):
    """Contexts nobody may become surer of."""

    kind: Literal["contexts"]
    sensitive: States | None = Field(None, description="contexts sensitive at every slot")
    moments: dict[Text, list[int]] | None = Field(
        None, description="context to the slots (from 0) at which it is sensitive"
    )
    groups: list[States] | None = Field(
        None, description="groups of contexts; being in any of a group is sensitive"
    )

    labels: dict[Text, States] | None = Field(
        None, description="state to the contexts it may stand for, for adversaries unsure of them"
    )


class CurrentQuery(Section):
    """The current context, at every slot."""

    kind: Literal["current"]


def day_of(section: DayModel) -> DayChain:
    """The day chain a section describes."""
    return DayChain.of(
        _table(section.transition, "transition"),
        initial=_table(section.initial, "initial"),
        states=section.states,
        slots=section.slots,
        slot_minutes=section.slot_minutes or 0,
        start_minute=section.start_minute or 0,
    )


def contexts_of(section: ContextSecrets) -> SensitiveContexts:
    """The secrets a section describes."""
    return SensitiveContexts.of(
        section.sensitive or (),
        moments=section.moments,
        groups=section.groups or (),
        labels=section.labels,
    )


def current_of(states: tuple[str, ...]) -> CurrentState:
    """The query of a stream."""
    return CurrentState(states)


def limited(time_limit: str | None, mechanism: str) -> AbstractContextManager[None]:
    """Inside, the checks of contexts share the time a spec gives them; a named one gets it all."""
    if time_limit is None:
        return nullcontext()
    try:
        seconds = parse_duration(time_limit, "privacy.time_limit").total_seconds()
    except InputError as error:
        raise SpecError(str(error)) from None
    return search_limit(Fraction(seconds), mechanism)


def _table(nested: list[Any], field: str) -> Any:
    try:
        return np.array(nested, dtype=np.float64)
    except ValueError:
        raise SpecError(
            f"{field} has rows of different lengths; give every row one number per state"
        ) from None
