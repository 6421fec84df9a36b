"""The rise of belief a suppression stream allows: by running its machine through every output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shoal.audit.adversaries import bounded, enumerated
from shoal.audit.result import Audit, StreamWitness
from shoal.core.plan import Machine, Plan
from shoal.core.value import Floats
from shoal.mechanisms import recheck
from shoal.mechanisms.mask_machine import VectorMask
from shoal.models.day import DayChain
from shoal.secrets.contexts import SensitiveContexts

MOST_BRANCHES = 300_000  # (contexts × shown or not) ^ slots, written out one by one
COARSE, FINE = 2**16, 2**32  # words a machine tells apart: it looks at 16 or at 32 bits
ASSUMED = (
    "days are independent of each other and follow the day chain",
    "the adversary knows the chain and the machine, and sees one stream of each day",
)
NOT_CHECKED = (
    "windows of several slots: only single slots are promised",
    "laws outside the family, and other releases about the same day",
)
UNSURE = "adversaries who know contexts only up to sets of labels: give labels to cover them"
BY_ITSELF = "the machine step by step: the day is too long to write out all its outputs"


class Rise(NamedTuple):
    """The highest rise of a belief (times its share), the output, and the belief there."""

    value: float
    output: tuple[str | None, ...]
    slot: int
    context: int
    before: float
    after: float


class OneWord:
    """Randomness that is always the same word: what a machine does with it can be asked."""

    def __init__(self, word: int) -> None:
        self._word = word

    @property
    def secure(self) -> bool:
        """False: this is for asking, never for releasing."""
        return False

    def words(self, count: int) -> NDArray[np.uint64]:
        """The word, as often as wanted."""
        return np.full(count, self._word, dtype=np.uint64)


def suppression_audit(plan: Plan, curve: bool) -> Audit:
    """The highest rise of any sensitive belief over all outputs of a day, and whether it is kept.

    Short days: every path of contexts is run through the plan's own machine, both ways at every
    slot, and the beliefs are added up over paths. Longer days: the mechanism's evaluation over
    partial outputs (release, gaps, release), which is exact too but judges itself.
    """
    secrets = plan.task.secrets
    assert isinstance(secrets, SensitiveContexts)
    assert isinstance(plan.body, Machine)
    days = [day for day in plan.task.family if isinstance(day, DayChain)]
    witness, notes = None, [*NOT_CHECKED, *([] if secrets.labels else [UNSURE])]
    if all((2.0 * day.size) ** day.slots <= MOST_BRANCHES for day in days):
        tables = [outputs_of(day, plan.body) for day in days]
        found = [_highest(day, secrets, own) for day, own in zip(days, tables, strict=True)]
        which = max(range(len(days)), key=lambda place: found[place].value)
        value = max(found[which].value, 0.0)
        witness = _witness(days[which], which, found[which])
        alone = outputs_of(days[which].without_memory(), plan.body)
        memoryless = isinstance(plan.body, VectorMask)
        adversaries = enumerated(days[which], secrets, tables[which], alone, memoryless)
    else:
        value, notes = recheck(plan), [BY_ITSELF, *notes]
        adversaries = bounded(secrets, value)
    certain = value if math.isfinite(value) else 0.0  # no belief rises by infinity
    return Audit(
        mechanism=plan.mechanism,
        asked=plan.task.query.describe(),
        protected=secrets.describe(),
        notion=plan.guarantee.notion,
        promised=float(plan.guarantee.amount),
        claim=(certain, value),
        lower=certain,
        upper=value,
        entry_level=math.inf,
        witness=witness,
        assumptions=ASSUMED,
        not_checked=tuple(notes),
        adversaries=adversaries,
    )


def highest_rise(day: DayChain, secrets: SensitiveContexts, machine: Machine) -> Rise:
    """max over outputs, slots and sensitive contexts of share · (P(X_t = s | output) - P(X_t = s)).

    Over whole days; a part of an output is an average of its completions and tells no more.
    """
    return _highest(day, secrets, outputs_of(day, machine))


def outputs_of(day: DayChain, machine: Machine) -> dict[tuple[str | None, ...], Floats]:
    """P(X_t = j, output) for every output of a day, (slots, states), by running the machine."""
    joint: dict[tuple[str | None, ...], Floats] = {}
    for path, output, chance in _branches(day, machine):
        table = joint.setdefault(output, np.zeros((day.slots, day.size)))
        table[np.arange(day.slots), path] += chance
    return joint


def _highest(
    day: DayChain, secrets: SensitiveContexts, joint: Mapping[tuple[str | None, ...], Floats]
) -> Rise:
    prior, shares = day.marginals(), secrets.shares(day)
    best = Rise(-math.inf, (), 0, 0, 0.0, 0.0)
    for output, table in joint.items():
        after = table / table[0].sum()
        rises = np.where((shares > 0) & (prior > 0), shares * (after - prior), -math.inf)
        slot, context = (int(i) for i in np.unravel_index(int(np.argmax(rises)), rises.shape))
        if rises[slot, context] > best.value:
            value, reached = float(rises[slot, context]), float(after[slot, context])
            best = Rise(value, output, slot, context, float(prior[slot, context]), reached)
    return best


def hide_chance(machine: Machine, state: Any, observed: str) -> float:
    """The probability that the machine shows nothing for `observed` in `state`.

    Machines suppress when the low bits of one random word are below a threshold; the threshold is
    found by asking, and whether it is one of 16 or of 32 bits by asking just above 16.
    """

    def hidden(word: int) -> bool:
        return machine.step(state, observed, OneWord(word))[1] is None

    below = _threshold(hidden, COARSE)
    if below == 0:
        return 0.0
    if below < COARSE and hidden(COARSE):
        return below / COARSE
    if below == COARSE and hidden(FINE - 1):
        return 1.0
    return _threshold(hidden, FINE) / FINE


def _threshold(hidden: Any, words: int) -> int:
    """The least word that is not hidden; `words` when all are."""
    low, high = 0, words
    while low < high:
        middle = (low + high) // 2
        if hidden(middle):
            low = middle + 1
        else:
            high = middle
    return low


def _branches(
    day: DayChain, machine: Machine
) -> Iterator[tuple[tuple[int, ...], tuple[str | None, ...], float]]:
    """Every path, every output the machine may give for it, and their probability."""
    chances: dict[tuple[Any, int], float] = {}
    waiting: list[tuple[tuple[int, ...], tuple[str | None, ...], float, Any]] = [
        ((), (), 1.0, machine.init())
    ]
    while waiting:
        path, output, chance, state = waiting.pop()
        if len(path) == day.slots:
            yield path, output, chance
            continue
        law = day.transition[len(path) - 1, path[-1]] if path else day.initial
        for context in np.flatnonzero(law).tolist():
            key = (state, context)
            if key not in chances:
                chances[key] = hide_chance(machine, state, day.states[context])
            for word, part in ((0, chances[key]), (FINE - 1, 1 - chances[key])):
                if part > 0:
                    after, shown = machine.step(state, day.states[context], OneWord(word))
                    likely = chance * float(law[context]) * part
                    waiting.append(((*path, context), (*output, shown), likely, after))


def _witness(day: DayChain, model: int, found: Rise) -> StreamWitness:
    name = repr(day.states[found.context])
    return StreamWitness(
        model=model,
        law=day.describe(),
        subject=f"slot {day.clock(found.slot)}",
        facts=(name, f"not {name}"),
        output=found.output,
        before=(found.before, 1 - found.before),
        after=(found.after, 1 - found.after),
    )
