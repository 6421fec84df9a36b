"""The machine of `mask-online`: a public filter decides, slot by slot, what may be shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.machine import Mask
from shoal.core.charge import Rng
from shoal.core.codec import Floats, Value, locked
from shoal.core.errors import InputError
from shoal.events.automaton import law_of
from shoal.events.cuts import future_of
from shoal.events.filter import GRAIN, Held, Program, chances, program_of
from shoal.events.secrets import Events

WORD = (1 << 32) - 1


@dataclass(frozen=True, slots=True, eq=False)
class OnlineState(Value):
    """Where a day stands: the next slot, the public belief, and where the memory is.

    `memory` tells about suppressed contexts, so a state is as private as the day itself. The
    belief is what anybody computes who knows the plan and saw the outputs.
    """

    slot: int
    held: tuple[Held, ...]
    memory: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OnlineMask(Mask):
    """Shows each context with a probability that no output's belief in an event can exceed.

    The probabilities of a slot are found when it comes (a linear program of a millisecond), from
    the outputs so far, the context, and where the events' automaton stands. `cuts` are what the
    rest of the day is worth, (cuts, automaton, context) for each slot in one row of numbers; none
    when only the slot itself counts. `mixture` weighs the days for an adversary who is not sure
    which of them holds.
    """

    days: tuple[DayChain, ...]
    secrets: Events
    amount: Fraction
    memory_kind: str = "events"
    mixture: tuple[float, ...] = ()
    cuts: tuple[Floats, ...] = field(default=())

    def __post_init__(self) -> None:
        days = tuple(self.days)
        if not days or len({(day.states, day.slots) for day in days}) != 1:
            raise InputError("days must hold day chains on the same contexts and slots")
        object.__setattr__(self, "days", days)
        object.__setattr__(self, "mixture", tuple(float(weight) for weight in self.mixture))
        object.__setattr__(self, "cuts", tuple(locked(cut) for cut in self.cuts))
        if self.cuts and len(self.cuts) != days[0].slots:
            raise InputError(f"cuts must hold one array for each of {days[0].slots} slots")
        self.remember(days[0].states, {})

    @property
    def states(self) -> tuple[str, ...]:
        return self.days[0].states

    @property
    def slots(self) -> int:
        return self.days[0].slots

    def program(self) -> Program:
        """What the slots are decided with; made once a process."""
        return _program(self)

    def init(self) -> OnlineState:
        return OnlineState(0, self.program().begin())

    def step(self, state: Any, observed: Any, rng: Rng) -> tuple[Any, str | None]:
        """The state after this slot, and the context or None; one word is drawn in any case.

        A reading of None is a slot that was not read: a public step without information. A context
        the model does not know, or calls impossible, is suppressed like any other.
        """
        word = int(rng.words(1)[0]) & WORD
        if state.slot >= self.slots:
            state = self.init()
        program, slot = self.program(), state.slot
        read = observed is not None
        held = program.arrive(state.held, slot, read=read)
        context = self.context_of(observed)
        taken = context if context >= 0 else program.guess(state.held, slot)
        memory = int(program.memory.steps[slot][state.memory, taken])
        if not read:
            return OnlineState(slot + 1, held, memory), None
        codes = program.allowed(held, slot)
        shown = context >= 0 and word > WORD - int(codes[memory, context])
        after = program.after(held, codes, context if shown else None)
        return OnlineState(slot + 1, after, memory), self.states[context] if shown else None

    def shown_chance(self, state: OnlineState, observed: Any) -> float:
        """The probability with which the next slot shows a context that is read there."""
        program, slot, context = self.program(), state.slot, self.context_of(observed)
        held = program.arrive(state.held, slot, read=True)
        memory = int(program.memory.steps[slot][state.memory, context])
        return float(program.allowed(held, slot)[memory, context] * GRAIN)

    def describe(self) -> str:
        sees = {
            "events": "sees the context and how far each event has come",
            "none": "sees the context only",
        }[self.memory_kind]
        ahead = ", looking ahead to the end of the day" if self.cuts else ""
        return (
            f"a public filter decides at every slot with what probability each context may be "
            f"shown; it {sees}{ahead}"
        )


@lru_cache(maxsize=8)
def _program(mask: OnlineMask) -> Program:
    laws = [law_of(day) for day in mask.days]
    program = program_of(
        laws, mask.secrets, mask.amount, memory=mask.memory_kind, mixture=mask.mixture
    )
    return future_of(program, mask.cuts)


def output_chances(program: Program, rng: np.random.Generator) -> Iterator[Floats]:
    """The chances of each output, slot by slot, along a history drawn as the machine draws it."""
    held = program.begin()
    for slot in range(program.slots):
        held = program.arrive(held, slot, read=True)
        codes = program.allowed(held, slot)
        chance = chances(program, held, codes)
        yield chance
        output = int(rng.choice(len(chance), p=chance / chance.sum()))
        held = program.after(held, codes, None if output == program.size else output)
