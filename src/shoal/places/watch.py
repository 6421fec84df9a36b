"""What a stream of places promises about events, beside what each step promises about states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

import numpy as np

from shoal.core.charge import Guarantee
from shoal.core.codec import Value
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive, significant, whole
from shoal.core.task import Model
from shoal.events.event import AtLeast, InOrder, Stay, TimeEvent
from shoal.events.law import PathLaw, law_of
from shoal.events.secrets import Events
from shoal.events.window import SlotClock

# of the plan's ε; finer lists help little: a step between two of these loses a fifth of its ε
SHARES = tuple(Fraction(k, 100) for k in (100, 80, 64, 50, 40, 30, 20, 12, 6, 3))


@dataclass(frozen=True, slots=True, eq=False)
class EventWatch(Value):
    """What a stream promises about events: log-odds move by at most `amounts`, one for each pair.

    `epsilons` are tried in their order (none: shares of the plan's ε), `slots` is how many slots
    the events are about (None: as many as the model or their windows have), the clock (minutes of a
    slot, minute of the week at which slot 0 begins) is for windows by the clock. `start` is a first
    state that everybody knows.
    """

    events: Events
    amounts: tuple[Fraction, ...]
    epsilons: tuple[Fraction, ...] = ()
    slots: int | None = None
    slot_minutes: int = 0
    start_minute: int = 0
    start: int | None = None

    @classmethod
    def of(
        cls,
        events: Events,
        event_epsilon: Number | Sequence[Number],
        *,
        epsilons: Sequence[Number] = (),
        slots: int | None = None,
        slot_minutes: int = 0,
        start_minute: int = 0,
    ) -> Self:
        """The watch over `events`: one amount for all pairs, or one for each."""
        if not isinstance(events, Events):
            raise InputError(f"events is a {type(events).__name__}; give shoal.Events.of(...)")
        return cls(
            events,
            _amounts(events, event_epsilon),
            tuple(positive(each, "epsilons") for each in epsilons),
            None if slots is None else whole(slots, "slots"),
            whole(slot_minutes, "slot_minutes", least=0),
            whole(start_minute, "start_minute", least=0),
        )

    def held_to(self, event_epsilon: Number | Sequence[Number]) -> EventWatch:
        """The same watch with other amounts."""
        return replace(self, amounts=_amounts(self.events, event_epsilon))

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        """What holds about each pair of events, for all outputs of the stream together."""
        model = "for an adversary who knows the chain, the policy and the list of epsilons"
        return tuple(
            Guarantee(notion="pufferfish", amount=each, over=f"{Events((pair,)).subject}, {model}")
            for each, pair in zip(self.amounts, self.events.pairs, strict=True)
        )

    def tried(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """What a step may take, in the order in which it is tried, under a plan of `epsilon`."""
        found = self.epsilons or tuple(epsilon * share for share in SHARES)
        if list(found) != sorted(found, reverse=True) or found[0] > epsilon:
            raise InputError(
                f"epsilons is {[float(each) for each in found]}; they must descend from at most "
                f"the plan's epsilon of {float(epsilon):g}"
            )
        return found

    def law(self, model: Model) -> PathLaw:
        """The law of the path that the events are about, from its known start if there is one."""
        own: int | None = getattr(model, "slots", None) or getattr(model, "length", None)
        length = self.slots or own or _horizon(self.events)
        law = law_of(model, length=length)
        if self.start is not None:
            first = np.zeros(len(law.states))
            first[self.start] = 1.0
            law = replace(law, initial=first)
        if self.slot_minutes:
            law = replace(law, clock=SlotClock(self.slot_minutes, self.start_minute))
        return law

    def check(self, model: Model) -> None:
        """Refuses a model whose path the events are not about, or that decides them beforehand."""
        _possible(self, model)

    def describe(self) -> str:
        """The events with their amounts, for sentences about a policy."""
        each = zip(self.events.pairs, self.amounts, strict=True)
        words = [f"{Events((p,)).describe()} (epsilon = {significant(a)})" for p, a in each]
        return "; ".join(words)


def _amounts(events: Events, event_epsilon: Number | Sequence[Number]) -> tuple[Fraction, ...]:
    several = isinstance(event_epsilon, Sequence) and not isinstance(event_epsilon, str)
    given: Any = event_epsilon if several else [event_epsilon] * len(events.pairs)
    if len(given) != len(events.pairs):
        raise InputError(
            f"event_epsilon holds {len(given)} amounts for {len(events.pairs)} events; give "
            "one, or one for each"
        )
    return tuple(positive(each, "event_epsilon") for each in given)


@lru_cache(maxsize=32)
def _possible(watch: EventWatch, model: Model) -> None:
    """As `EventWatch.check`; a ledger asks at every charge."""
    if getattr(model, "order", 1) > 1:
        raise InputError("the chain has a longer memory; events are followed on chains of order 1")
    law = watch.law(model)
    watch.events.check_possible(law, watch.events.compiled(law))


def _horizon(events: Events) -> int:
    """The slots that all windows fit into; refused when one of them is open or by the clock."""

    def last(event: TimeEvent) -> int:
        if event.parts():
            return max(map(last, event.parts()))
        between = event.between if isinstance(event, AtLeast | Stay | InOrder) else None
        if between is None or isinstance(between[1], str):
            raise InputError(
                f"the event '{event.describe()}' has no last slot, and neither has the model; "
                "give slots=, or between=(first, last)"
            )
        return between[1] + 1

    return max(map(last, events.all_events()))
