"""Events: "visited the clinic this week", "went from A to B", as values that can be combined."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from shoal.core.codec import Value
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.records import labels
from shoal.events.window import Between, checked_between, window_words


class TimeEvent(Value):
    """A set of paths X_0 … X_{T-1} that a small automaton recognises.

    Slots are counted from 0, and `between=(first, last)` includes both. Without it an event is
    about every slot the model has. Combine with `&`, `|` and `~`.
    """

    __slots__ = ()

    def __and__(self, other: TimeEvent) -> AllOf:
        return AllOf((*_parts(self, AllOf), *_parts(_event(other), AllOf)))

    def __or__(self, other: TimeEvent) -> AnyOf:
        return AnyOf((*_parts(self, AnyOf), *_parts(_event(other), AnyOf)))

    def __invert__(self) -> TimeEvent:
        return NotOf(self)

    def prior(self, model: Any, *, length: int | None = None) -> float:
        """P(E) under `model`: a chain, or a day; `length` where the model does not fix it."""
        from shoal.events.automaton import compile_events, law_of, priors

        law = law_of(model, length=length)
        return float(priors(compile_events((self,), law), law)[0])

    def states(self) -> frozenset[str]:
        """The states the event names."""
        return frozenset(name for part in self.parts() for name in part.states())

    def parts(self) -> tuple[TimeEvent, ...]:
        """The events this one is made of; none for one that names states itself."""
        return ()

    def describe(self) -> str:
        """The event in words."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class _Counted(TimeEvent):
    named: tuple[str, ...]
    times: int = 1
    between: Between = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", _named(self.named))
        object.__setattr__(self, "times", whole(self.times, "times"))
        object.__setattr__(self, "between", checked_between(self.between))

    def states(self) -> frozenset[str]:
        return frozenset(self.named)


@dataclass(frozen=True, slots=True, eq=False)
class AtLeast(_Counted):
    """X_t is one of `named` at `times` slots or more of the window; once is a visit."""

    kind = "at-least"

    def describe(self) -> str:
        often = "" if self.times == 1 else f" in {self.times} slots or more"
        return f"at {_either(self.named)}{often}{window_words(self.between)}"


@dataclass(frozen=True, slots=True, eq=False)
class Stay(_Counted):
    """X_t is one of `named` in `times` slots of the window without a break."""

    kind = "stay"

    def describe(self) -> str:
        return f"at {_either(self.named)} for {self.times} slots on end{window_words(self.between)}"


@dataclass(frozen=True, slots=True, eq=False)
class InOrder(TimeEvent):
    """There are slots t_1 < t_2 < … of the window with X_{t_i} in the i-th set of `stages`."""

    kind = "in-order"

    stages: tuple[tuple[str, ...], ...]
    between: Between = None

    def __post_init__(self) -> None:
        """Refuse fewer than two stages; store each stage as a tuple of state names."""
        if len(self.stages) < 2:
            raise InputError(
                f"sequence has {len(self.stages)} stages; it needs two or more (visit is for one)"
            )
        object.__setattr__(self, "stages", tuple(_named(stage) for stage in self.stages))
        object.__setattr__(self, "between", checked_between(self.between))

    def states(self) -> frozenset[str]:
        return frozenset(name for stage in self.stages for name in stage)

    def describe(self) -> str:
        return f"at {', then '.join(map(_either, self.stages))}{window_words(self.between)}"


@dataclass(frozen=True, slots=True, eq=False)
class _Several(TimeEvent):
    events: tuple[TimeEvent, ...]
    word: ClassVar[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(map(_event, self.events)))

    def parts(self) -> tuple[TimeEvent, ...]:
        return self.events

    def describe(self) -> str:
        return f" {self.word} ".join(_bracketed(event) for event in self.events)


@dataclass(frozen=True, slots=True, eq=False)
class AllOf(_Several):
    """Every one of several events."""

    kind = "all-of"

    word: ClassVar[str] = "and"


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf(_Several):
    """One or more of several events."""

    kind = "any-of"

    word: ClassVar[str] = "or"


@dataclass(frozen=True, slots=True, eq=False)
class NotOf(TimeEvent):
    """That an event does not happen."""

    kind = "not-of"

    event: TimeEvent

    def __post_init__(self) -> None:
        _event(self.event)

    def __invert__(self) -> TimeEvent:
        return self.event

    def parts(self) -> tuple[TimeEvent, ...]:
        return (self.event,)

    def describe(self) -> str:
        return f"not {_bracketed(self.event)}"


def visit(states: Any, *, between: Between = None) -> AtLeast:
    """Being in one of `states` at some slot of the window."""
    return AtLeast(_named(states), 1, between)


def at_least(states: Any, times: int, *, between: Between = None) -> AtLeast:
    """Being in one of `states` at `times` slots of the window or more, in a row or not."""
    return AtLeast(_named(states), times, between)


def stay(states: Any, times: int, *, between: Between = None) -> Stay:
    """Being in one of `states` for `times` slots of the window without a break."""
    return Stay(_named(states), times, between)


def sequence(*stages: Any, between: Between = None) -> InOrder:
    """Being in the first of `stages`, at a later slot in the second, and so on."""
    return InOrder(tuple(_named(stage) for stage in stages), between)


def _named(states: Any) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(labels(states)))
    if not names:
        raise InputError("an event names no state; name at least one")
    return names


def _event(value: object) -> TimeEvent:
    if not isinstance(value, TimeEvent):
        raise InputError(
            f"{value!r} is not an event; make one with shoal.visit, at_least, stay or sequence"
        )
    return value


def _parts(event: TimeEvent, kind: type[_Several]) -> tuple[TimeEvent, ...]:
    return event.parts() if isinstance(event, kind) else (event,)


def _either(names: tuple[str, ...]) -> str:
    quoted = [repr(name) for name in names]
    return " or ".join(quoted) if len(quoted) < 4 else f"{quoted[0]} or {len(quoted) - 1} others"


def _bracketed(event: TimeEvent) -> str:
    words = event.describe()
    return f"({words})" if isinstance(event, _Several) else words
