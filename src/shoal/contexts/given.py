"""A day as it is believed after a stream has shown it: the law a second release is made under.

Budgets of releases about one event add only if the second is calibrated under the law given the
first one's outputs. That law is followed here by the stream's own filter, with the sum of a query
counted along. Proof: ledger/rules.md, section 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np

from shoal.chains.events.answers import RISES, EventLaws
from shoal.chains.events.sums import AnswerPair
from shoal.contexts.day import DayChain
from shoal.contexts.online import OnlineMask
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.records import Sequences, label
from shoal.core.task import AnswerLaws, Law, Query, Secrets, as_events
from shoal.events.automaton import Automaton, compile_events, law_of
from shoal.events.filter import GRAIN
from shoal.events.secrets import Events

LARGEST = 2e7  # masses of one slot: automaton, memory, context, sum
LEAST = 1e-9  # an event less likely than this after the outputs has no law to speak of
UNREAD = "(not read)"


@dataclass(frozen=True, slots=True, eq=False)
class DayGiven(Law):
    """The day of `mask` given all that its stream showed: a context, None, or UNREAD, by slot.

    The mask's filter is public, so anybody can follow this law. `after` is the machine whose
    outputs it is conditioned on; a ledger adds a release made under it to that machine's day.
    """

    mask: OnlineMask
    outputs: tuple[str | None, ...]
    states: tuple[str, ...]  # in the order of whoever asks; the mask has them by name

    def __post_init__(self) -> None:
        mask, outputs = self.mask, tuple(self.outputs)
        object.__setattr__(self, "states", tuple(self.states))
        if sorted(self.states) != sorted(mask.states):
            raise InputError(f"states are {list(self.states)}, and the mask has others")
        if len(mask.days) > 1:
            raise InputError("the stream is for several models; a law given its outputs needs one")
        if len(outputs) != mask.slots:
            raise InputError(
                f"outputs holds {len(outputs)} slots of {mask.slots}; the day must be over: give "
                "what every slot showed, None where nothing"
            )
        unknown = next((o for o in outputs if o not in (*mask.states, None, UNREAD)), None)
        if unknown is not None:
            raise InputError(f"outputs holds {unknown!r}, which is no context of the model")
        object.__setattr__(self, "outputs", outputs)

    @classmethod
    def of(cls, plan: Plan, outputs: Sequence[Any], unread: Sequence[int] = ()) -> Self:
        """The day after the stream of `plan` showed `outputs`, and read no slot of `unread`."""
        if not isinstance(plan.body, OnlineMask):
            raise InputError(
                f"{plan.mechanism} follows no events; a second release is made under what a stream "
                "of mask-online has shown (shoal.mask with shoal.Events)"
            )
        named = [None if output is None else label(output) for output in outputs]
        for slot in unread:
            if not 0 <= slot < len(named) or named[slot] is not None:
                raise InputError(f"unread holds slot {slot}, which is none that showed nothing")
            named[slot] = UNREAD
        return cls(plan.body, tuple(named), plan.task.query.states)

    @property
    def day(self) -> DayChain:
        return self.mask.days[0]

    @property
    def after(self) -> OnlineMask:
        return self.mask

    @property
    def tied(self) -> int:
        return self.mask.slots

    def admit(self, records: Sequences) -> None:
        self.day.admit(records)

    def check_events(self, secrets: Events) -> None:
        """Events of the day, possible after the outputs as before them: odds are bounded."""
        secrets.check((self.day,))

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        """The laws of a sum given each event and all outputs; other secrets have none here."""
        events = as_events(secrets)
        if events is None or not hasattr(query, "multiples"):
            return f"{self.describe()} knows sums given events only"
        return RISES if events.notion != "pufferfish" else _laws(self, query, events)

    def describe(self) -> str:
        return f"what is believed of {self.day.describe()} after a stream of it"


@lru_cache(maxsize=16)
def _laws(given: DayGiven, query: Any, events: Events) -> EventLaws:
    """The laws of `query` given E and given E' of each pair, under the day given its outputs."""
    weights = np.array(query.multiples(), dtype=np.int64)
    if weights.shape[1] > 1:
        raise Refused("a second release after a stream is of one number; ask for one label")
    path, named = law_of(given.day), _columns(given.mask, query.states)
    found = []
    for (event, _), other in zip(events.pairs, events.against(), strict=True):
        automaton = compile_events((event, other), path)
        mass, rounds = _counted(given, automaton, weights[named, 0])
        sides = [mass[automaton.accept[:, k]].sum(axis=0) for k in (0, 1)]
        if min(side.sum() for side in sides) < LEAST:
            raise Refused("after these outputs an event is all but decided; nothing is released")
        values = np.arange(mass.shape[1])[:, None] + given.tied * int(weights.min())
        above, below = ((side / side.sum())[None] for side in sides)
        found.append(AnswerPair(values, above, below, 2.0 * rounds))
    return EventLaws(tuple(found))


def _columns(mask: OnlineMask, states: tuple[str, ...]) -> Ints:
    """The column of a query's states that each context of the mask is."""
    return np.array([states.index(name) for name in mask.states])


def _counted(given: DayGiven, automaton: Automaton, weights: Ints) -> tuple[Floats, int]:
    """P(automaton, Σ w(X_t) | outputs), (q, sum from its least), and roundings on the way.

    Forward on (q, m, x, sum): m is the mask's memory, which decides with the context how likely
    each output was. All terms are ≥ 0; every slot is divided by the chance of its output.
    """
    mask, added = given.mask, weights - weights.min()
    program, day, size = mask.program(), given.day, len(weights)
    held, memories, rounds = program.begin(), program.memory, 0
    width = int(added.max()) * given.tied + 1
    if max(automaton.sizes) * max(memories.sizes) * size * width > LARGEST:
        raise Refused(
            "the sum has too many values to be followed after a stream; use small weights"
        )
    mass = np.zeros((1, 1, size, width))
    mass[0, 0, :, 0] = day.initial
    for slot, output in enumerate(given.outputs):
        if slot:
            mass = np.einsum("qmxs,xy->qmys", mass, day.transition[slot - 1])
        guess = program.guess(held, slot) if output == UNREAD else None
        held = program.arrive(held, slot, read=output != UNREAD)
        mass = _moved(mass, automaton, memories, slot, added, guess)
        rounds += 2 * (size + mass.shape[0] * mass.shape[1] + 8)
        if output != UNREAD:
            codes = program.allowed(held, slot)
            context = None if output is None else mask.states.index(output)
            held = program.after(held, codes, context)
            shown = codes * GRAIN
            likely = 1.0 - shown if context is None else shown * (np.arange(size) == context)
            mass = mass * likely[None, :, :, None]
        total = float(mass.sum())
        if not total > 0:
            raise InputError(f"outputs are impossible under the model at slot {slot}")
        mass /= total
    return mass.sum(axis=(1, 2)), rounds + mass.size


def _moved(
    mass: Floats, automaton: Automaton, memories: Automaton, slot: int, added: Ints, guess: Any
) -> Floats:
    """The masses with automaton, memory and sum after the context of a slot."""
    shape = automaton.sizes[slot + 1], memories.sizes[slot + 1], *mass.shape[2:]
    found = np.zeros(shape)
    for x, weight in enumerate(added.tolist()):
        column = x if guess is None else guess
        for q, then in enumerate(automaton.steps[slot][:, x].tolist()):
            for m, next_m in enumerate(memories.steps[slot][:, column].tolist()):
                moved = mass[q, m, x, : mass.shape[3] - weight]
                found[then, next_m, x, weight:] += moved
    return found
