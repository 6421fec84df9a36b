"""Events whose probability or odds an output may not move too far, as the secrets of a task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError
from shoal.core.task import Model
from shoal.events.automaton import Automaton, PathLaw, compile_events, law_of, possible
from shoal.events.event import NotOf, TimeEvent

CHANGES = ("odds", "rise", "rise-and-fall")
MEMORIES = ("events", "none")


@dataclass(frozen=True, slots=True, eq=False)
class MaskOptions(Value):
    """How a mask may hide events: what its machine sees, against whom, and how far it looks.

    `memory` is what the machine sees beside the context: how far the "events" have come, or "none".
    `mixture` weighs the models of a family, for an adversary with a prior over them; without it
    each model alone is covered. `ahead` says whether to plan to the end of the day; None: choose
    what releases more.
    """

    kind = "mask-options"

    memory: str = "events"
    mixture: tuple[float, ...] = ()
    ahead: bool | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown memory, `ahead` without memory, and negative or all-zero weights.

        The weights are stored as floats and need not sum to 1.
        """
        if self.memory not in MEMORIES:
            raise InputError(f"memory is {self.memory!r}; it must be 'events' or 'none'")
        if self.ahead not in (None, True, False):
            raise InputError(f"ahead is {self.ahead!r}; it must be true or false, or left out")
        if self.ahead and self.memory == "none":
            raise InputError("ahead needs memory 'events': what is ahead depends on them; drop one")
        weights = tuple(float(weight) for weight in self.mixture)
        if any(not weight >= 0 for weight in weights) or (weights and not sum(weights) > 0):
            raise InputError(
                f"mixture is {list(self.mixture)}; give each model a weight of 0 or more"
            )
        object.__setattr__(self, "mixture", weights)


AS_BEST = MaskOptions()


@dataclass(frozen=True, slots=True, eq=False)
class Events(Value):
    """Pairs (E, E') to keep indistinguishable; E' is the complement of E, unless it is named.

    There is no promise about "E or F" where they overlap, nor about "E and F": name those too
    (X_1 xor X_2 of fair bits leaves both beliefs, and lifts that in X_1 or X_2 from .75 to 1).
    `change` says what an output may not move too far: the odds of E against E' by e^±ε ("odds"),
    or the belief in E, by δ upwards ("rise") or both ways ("rise-and-fall"). `options` are for
    masks of contexts.
    """

    kind = "events"

    pairs: tuple[tuple[TimeEvent, TimeEvent | None], ...]
    change: str = field(default="odds", metadata={"later": True})
    options: MaskOptions = field(default=AS_BEST, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse an empty list of pairs, an unknown `change`, and anything that is not an event."""
        if not self.pairs:
            raise InputError("events is empty; name at least one, such as shoal.visit('clinic')")
        if self.change not in CHANGES:
            raise InputError(f"change is {self.change!r}; it must be one of {list(CHANGES)}")
        for named in (part for pair in self.pairs for part in pair):
            if not isinstance(named, TimeEvent | None):
                raise InputError(f"events holds {named!r}; give an event, or a pair of events")

    @classmethod
    def of(cls, *events: TimeEvent | tuple[TimeEvent, TimeEvent]) -> Self:
        """From events, each hidden against its opposite, or pairs to hide against each other."""
        listed: list[Any] = [tuple(e) if isinstance(e, tuple | list) else (e, None) for e in events]
        return cls(tuple(dict.fromkeys(listed)))

    def as_rise(self, *, lower: bool = False) -> Events:
        """The same events, held to a rise of belief; with `lower` to a fall as well."""
        for event, other in self.pairs:
            if other is not None:
                raise InputError(
                    f"'{event.describe()}' is hidden against '{other.describe()}': a rise is about "
                    "one event (give epsilon instead of delta, or name single events)"
                )
        return replace(self, change="rise-and-fall" if lower else "rise")

    @property
    def notion(self) -> str:
        return "pufferfish" if self.change == "odds" else "delta-privacy"

    @property
    def subject(self) -> str:
        named = self.pairs[0][0].describe()
        rest = len(self.pairs) - 1
        more = f" or {rest} more event{'s' if rest > 1 else ''}" if rest else ""
        return f"having been {named}{more}"

    def all_events(self) -> tuple[TimeEvent, ...]:
        """Every event that is named, in order: E of each pair, then each E' that is named."""
        others = (other for _, other in self.pairs if other is not None)
        return (*(event for event, _ in self.pairs), *others)

    def against(self) -> tuple[TimeEvent, ...]:
        """E' of each pair: what E is hidden against."""
        return tuple(NotOf(event) if other is None else other for event, other in self.pairs)

    def check(self, family: tuple[Model, ...]) -> None:
        """Events need chains that know their states, and that leave both of a pair possible."""
        weights = self.options.mixture
        if weights and len(weights) != len(family):
            raise InputError(
                f"mixture is {list(weights)}; give one weight for each of the {len(family)} models"
            )
        for model in family:
            check = getattr(model, "check_events", None)
            if check is not None:  # models of many first laws, or whose states are not entries
                check(self)
                continue
            law = law_of(model)
            self.check_possible(law, self.compiled(law))

    def compiled(self, law: PathLaw) -> Automaton:
        """The joint automaton of `all_events` on these paths."""
        return compile_events(self.all_events(), law)

    def check_possible(self, law: PathLaw, automaton: Automaton) -> None:
        """Refuse, with a sentence, events that are certain or impossible."""
        can, may_fail = possible(automaton, law)
        others = np.flatnonzero([other is not None for _, other in self.pairs])
        for i, (event, other) in enumerate(self.pairs):
            if not can[i]:
                raise InputError(
                    f"the event '{event.describe()}' is impossible under the model: there is "
                    "nothing to hide (leave it out, or smooth the model)"
                )
            if other is None and not may_fail[i]:
                raise InputError(
                    f"the event '{event.describe()}' is certain under the model: it cannot be "
                    "hidden (leave it out, or smooth the model)"
                )
            place = len(self.pairs) + int((others < i).sum())
            if other is not None and not can[place]:
                raise InputError(
                    f"the event '{other.describe()}' is impossible under the model: nothing can "
                    "be hidden against it"
                )

    def admit(self, records: Any, family: tuple[Model, ...]) -> None:
        """Refuse chains that are shorter than the model: an event is about all of its slots."""
        for model in family:
            if any(len(chain) != model.tied for chain in getattr(records, "chains", ())):
                raise DataError(
                    f"a chain of the data has another length than the {model.tied} slots of the "
                    "model; an event is about all of them: fill gaps, or give a model of that "
                    "length"
                )

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to those an event is about."""
        return model.tied

    def over_time(self) -> Events:
        """Themselves: they are events over the slots of a series."""
        return self

    def describe(self) -> str:
        """Return the events in words, as part of a sentence; only the first four are named."""
        parts = [
            event.describe() if other is None else f"{event.describe()} or {other.describe()}"
            for event, other in self.pairs
        ]
        more = f", and {len(parts) - 4} more" if len(parts) > 4 else ""
        return "whether one was " + "; or ".join(parts[:4]) + more
