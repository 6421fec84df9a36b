"""The sections of a spec for events: [[secrets.event]], in the words of shoal.events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import SpecError
from shoal.core.task import Model, Query, Secrets
from shoal.events.event import TimeEvent, at_least, sequence, stay, visit
from shoal.events.secrets import Events, MaskOptions
from shoal.spec.fields import (
    NumberRow,
    PrivacyAmounts,
    SecretsSection,
    Section,
    States,
    Whole,
)

Named = Callable[[tuple[str, ...]], tuple[str, ...]]  # names in a spec to states of the model
EVENT_KINDS = ("visit", "at_least", "stay", "sequence", "all", "any")


def between(value: object) -> tuple[int, int] | tuple[str, str]:
    """Two slots counted from 0, or two times."""
    match value:
        case [int(first), int(last)] if not isinstance(first, bool) and 0 <= first <= last:
            return first, last
        case [str(first), str(last)]:
            return first, last
    raise PydanticCustomError(
        "between",
        'it must be two slots counted from 0, or two times such as ["mon 08:00", "fri 24:00"]',
    )


_PAIR = {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 2, "maxItems": 2}
Window = Annotated[Any, PlainValidator(between), WithJsonSchema(_PAIR)]


class EventSection(Section):
    """One event: exactly one of visit, at_least, stay, sequence, all and any."""

    visit: States | None = Field(None, description="in one of these states at some slot")
    at_least: States | None = Field(None, description="in these states at `times` slots or more")
    stay: States | None = Field(None, description="in these states for `times` slots on end")
    sequence: list[States] | None = Field(None, description="in each of these, one after the other")
    all: list[EventSection] | None = Field(None, description="every one of these events")
    any: list[EventSection] | None = Field(None, description="one or more of these events")
    times: Whole | None = Field(None, description="how many slots, for at_least and stay")
    between: Window | None = Field(
        None, description="first and last slot (from 0), or times of a clock: the window"
    )
    negated: bool = Field(False, alias="not", description="that it does not happen")
    against: EventSection | None = Field(
        None, description="what it is hidden against, instead of its opposite (epsilon only)"
    )

    @model_validator(mode="after")
    def _one_kind(self) -> EventSection:
        """Refuse an event without exactly one kind, and misplaced `times` or `between`."""
        given = [kind for kind in EVENT_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            listed = " and ".join(given) or "none"
            raise PydanticCustomError(
                "together", f"has {listed} of {', '.join(EVENT_KINDS)}; give one"
            )
        counted = given[0] in ("at_least", "stay")
        if counted != (self.times is not None):
            fix = "add times" if counted else "drop times"
            raise PydanticCustomError("together", f"has {given[0]}, so {fix}")
        if given[0] in ("all", "any") and self.between is not None:
            raise PydanticCustomError("together", "has between; put it into the events inside")
        return self

    def event(self, states: Named = tuple) -> TimeEvent:
        """Return the event of this section; `states` maps names to states of the model."""
        found = self._plain(states)
        return ~found if self.negated else found

    def _plain(self, states: Named) -> TimeEvent:
        """Return the event before any negation; nested events are built recursively."""
        if self.visit is not None:
            return visit(states(self.visit), between=self.between)
        if self.at_least is not None:
            return at_least(states(self.at_least), self.times or 1, between=self.between)
        if self.stay is not None:
            return stay(states(self.stay), self.times or 1, between=self.between)
        if self.sequence is not None:
            return sequence(*map(states, self.sequence), between=self.between)
        parts = [section.event(states) for section in self.all or self.any or ()]
        return reduce(and_ if self.all is not None else or_, parts)


def events_of(sections: Sequence[EventSection], states: Named = tuple) -> Events:
    """Return the secrets of the [[secrets.event]] sections; `states` maps names to states."""
    named = [(section.event(states), section.against) for section in sections]
    return Events.of(*(e if other is None else (e, other.event(states)) for e, other in named))


class EventSecrets(SecretsSection):
    """Events nobody may become surer of: patterns over time."""

    amount: ClassVar[str] = "epsilon or belief_delta"

    kind: Literal["events"]
    event: list[EventSection] = Field(min_length=1, description="the events; repeat for several")
    lower: bool = Field(
        False, description="with belief_delta: beliefs may not fall by more than it either"
    )

    memory: Literal["events", "none"] | None = Field(
        None,
        description="for contexts: what is shown depends on how far each event has come, or on "
        "the context alone",
    )
    mixture: NumberRow | None = Field(
        None,
        description="for contexts: a weight for each model, for somebody unsure which one holds",
    )
    ahead: bool | None = Field(
        None, description="for contexts: look ahead to the end of the day; else if it shows more"
    )

    def secrets(self, query: Query, family: tuple[Model, ...]) -> Events:
        """Return the secrets that these events describe, with the mask options if any are given.

        Refuses mask options for models that are not chains of one day.
        """
        keys = ("memory", "mixture", "ahead")
        given = {key: getattr(self, key) for key in keys if getattr(self, key) is not None}
        if given and not all(hasattr(model, "slots") for model in family):
            raise SpecError(
                f"secrets.{next(iter(given))} is for masks of the contexts of a day, and the model "
                "is no day-chain; drop it"
            )
        found = events_of(self.event)
        return replace(found, options=MaskOptions(**given)) if given else found

    def held_to(self, secrets: Secrets, privacy: PrivacyAmounts) -> Secrets:
        """Return the events, bounded by a rise of belief where the budget is one."""
        if privacy.belief_delta is not None and isinstance(secrets, Events):
            return secrets.as_rise(lower=self.lower)
        return super().held_to(secrets, privacy)
