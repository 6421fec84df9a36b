"""Secrets named one by one: pairs of events to keep indistinguishable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Value
from shoal.core.errors import InputError
from shoal.core.records import labels
from shoal.core.task import FiniteLaw, Model, Secrets
from shoal.events.event import AllOf, AnyOf, TimeEvent, visit
from shoal.events.secrets import Events


@dataclass(frozen=True, slots=True, eq=False)
class Event(Value):
    """A named fact: each listed variable takes one of its listed values, or one of `others` holds.

    On a chain the variables are its slots, from "0" on. `a | b` holds where either does.
    """

    kind = "event"

    name: str
    where: tuple[tuple[str, tuple[str, ...]], ...]
    others: tuple[Event, ...] = field(default=(), metadata={"later": True})

    @classmethod
    def of(cls, name: str, where: Mapping[str, Any]) -> Event:
        """An event from a mapping of variables to a value or values, named as the model's are."""
        return cls(name, tuple((variable, labels(values)) for variable, values in where.items()))

    def __or__(self, other: Event) -> Event:
        return Event(f"{self.name} or {other.name}", self.where, (*self.others, other))

    def mapping(self) -> dict[str, tuple[str, ...]]:
        """The values of each variable; refused for "or", which no such mapping says."""
        if self.others:
            raise InputError(
                f"the event {self.name!r} is one fact or another; that needs a written law, such "
                "as network.as_table(), or a chain"
            )
        return dict(self.where)

    def alternatives(self) -> tuple[Event, ...]:
        """The facts without "or" of which one must hold."""
        own = Event(self.name, self.where)
        return (own, *(fact for other in self.others for fact in other.alternatives()))

    def holds(self, table: FiniteLaw) -> npt.NDArray[np.bool_]:
        """The outcomes of a table in which the event holds."""
        parts = [table.event(fact.mapping()) for fact in self.alternatives()]
        return np.asarray(np.logical_or.reduce(parts))

    def over_time(self) -> TimeEvent:
        """The same fact about the slots of a series."""
        facts = [_at_slots(fact) for fact in self.alternatives()]
        return facts[0] if len(facts) == 1 else AnyOf(tuple(facts))


def _at_slots(fact: Event) -> TimeEvent:
    """Return a fact about variables "0", "1", … as an event over the slots of a series.

    Refuses variables that are not slot numbers, and a fact without any.
    """
    visits = []
    for variable, values in fact.where:
        if not variable.isdecimal():
            raise InputError(
                f"the event {fact.name!r} names {variable!r}; the variables of a series are its "
                "slots, counted from 0 (or use shoal.visit, at_least, stay and sequence)"
            )
        visits.append(visit(values, between=(int(variable), int(variable))))
    if not visits:
        raise InputError(f"the event {fact.name!r} names no slot; name at least one")
    return visits[0] if len(visits) == 1 else AllOf(tuple(visits))


@dataclass(frozen=True, slots=True, eq=False)
class SecretPairs(Value):
    """Pairs of events over named variables; the two of a pair must stay indistinguishable."""

    kind = "secret-pairs"

    pairs: tuple[tuple[Event, Event], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise InputError("pairs is empty; name at least one pair of events")

    @classmethod
    def of(cls, pairs: Iterable[tuple[Event, Event]]) -> SecretPairs:
        return cls(tuple((a, b) for a, b in pairs))

    @property
    def notion(self) -> str:
        return "pufferfish"

    @property
    def subject(self) -> str:
        return "the named pairs of facts"

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse a model that lacks one of the events' variables or values."""
        for model in family:
            if model.in_time:
                self.over_time().check((model,))
            else:
                for event in {event for pair in self.pairs for event in pair}:
                    model.check_fact(event)

    def over_time(self) -> Events:
        """The same pairs as events over the slots of a series."""
        return Events(tuple((a.over_time(), b.over_time()) for a, b in self.pairs))

    def admit(self, records: Any, family: tuple[Model, ...]) -> None:
        """Refuse series that are shorter than their chain: its slots are what the pairs name."""
        if any(model.in_time for model in family):
            self.over_time().admit(records, family)

    def tied_under(self, model: Model) -> int | None:
        """The most entries that depend on what one pair is about.

        A pair may be about variables of several independent components: then all of them count,
        not only the largest.
        """
        law: Any = model
        if not hasattr(law, "parts"):  # parts: variables that may be dependent
            return model.tied
        home = {v: part for part in law.parts for v in part}
        reached = (
            {home[v] for event in pair for v in law.evidence(event.mapping())}
            for pair in self.pairs
        )
        return max(1, *(sum(map(len, parts)) for parts in reached))

    def describe(self) -> str:
        names = [f"{a.name!r} against {b.name!r}" for a, b in self.pairs]
        more = f" and {len(names) - 4} more pairs" if len(names) > 4 else ""
        return "which of two facts holds: " + ", ".join(names[:4]) + more


def named_pairs(secrets: Secrets) -> SecretPairs | None:
    """`secrets` where they are named pairs of events; None for any other."""
    return secrets if isinstance(secrets, SecretPairs) else None
