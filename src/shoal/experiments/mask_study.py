"""One person, one set of sensitive contexts: every check on days it was not calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.attacks.contexts import context_beliefs, run
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.experiments.mask_traces import NOTHING, Person
from shoal.mechanisms.mask_choice import mask
from shoal.models.day import DayChain
from shoal.models.day_fit import fit_day
from shoal.noise.bits import SeededRng
from shoal.secrets.contexts import SensitiveContexts

CHECKS = (
    "mask-sensitive",
    "mask-probabilistic",
    "mask-simulatable",
    "mask-hybrid",
    "mask-adaptive",
    "mask-optimal",
)
DELTA = Fraction(1, 10)
SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check on one person: shares of slots, the expected one and that of the held-out days."""

    expected: float
    shown: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class Study:
    """All checks on one person; breaches are shares of the held-out sensitive slots."""

    outcomes: dict[str, Outcome]
    impossible: float
    sensitive: float
    breached: float

    def hybrid_was_right(self) -> bool:
        """Whether the check the hybrid chose did at least as well as the other one."""
        two = [self.outcomes[name] for name in ("mask-probabilistic", "mask-simulatable")]
        chosen, other = sorted(two, key=lambda outcome: -outcome.expected)
        return chosen.shown >= other.shown


def study(
    person: Person,
    sensitive: Sequence[str],
    *,
    delta: Fraction = DELTA,
    smoothing: float = 0.0,
    checks: Sequence[str] = CHECKS,
) -> Study:
    """Fitted on the first half of the days, measured on the second."""
    half = len(person.days) // 2
    day = fit_day(person.days[:half], states=person.contexts, smoothing=smoothing, spread=1)
    secrets = SensitiveContexts.of(sensitive)
    held = person.days[half:]
    rng = SeededRng(7)
    outcomes = {}
    for check in checks:
        plan = mask(day, secrets, delta=delta, check=check, seconds=SECONDS)
        shown = [out for trace in held for out in run(plan, trace, rng)]
        share = sum(out is not None for out in shown) / len(shown)
        outcomes[check] = Outcome(-plan.cost / day.slots, share, plan)
    support = day.support()
    index = {name: place for place, name in enumerate(day.states)}
    impossible = np.mean([not support[t, index[c]] for d in held for t, c in enumerate(d)])
    breached, total = _breaches(day, secrets, held, delta)
    slots = len(held) * day.slots
    return Study(outcomes, float(impossible), total / slots, breached / max(1, total))


def choose_sensitive(person: Person, count: int, seed: int) -> list[str]:
    """`count` contexts at random, never "no reading"."""
    among = [context for context in person.contexts if context != NOTHING]
    rng = np.random.default_rng([seed, len(person.name), *person.name.encode()])
    return sorted(str(c) for c in rng.choice(among, size=min(count, len(among) - 1), replace=False))


def _breaches(
    day: DayChain, secrets: SensitiveContexts, held: Sequence[list[str]], delta: Fraction
) -> tuple[int, int]:
    """Held-out sensitive slots, and those naive masking gives away. Days outside the model count
    as sensitive slots that are not breached, since no belief is defined for them."""
    plan = mask(day, secrets, delta=delta, check="mask-sensitive")
    prior = day.marginals()
    index = {name: place for place, name in enumerate(day.states)}
    breached = total = 0
    for trace in held:
        slots = [t for t, context in enumerate(trace) if context in secrets.contexts]
        total += len(slots)
        try:
            beliefs = context_beliefs(plan, run(plan, trace, SeededRng(1)))
        except InputError:
            continue
        for t in slots:
            state = index[trace[t]]
            breached += bool(beliefs[t, state] - prior[t, state] > float(delta) * (1 + 1e-9))
    return breached, total
