"""One person, one set of sensitive contexts: every check on days it was not calibrated on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from shoal.contexts.attack import run_day
from shoal.contexts.checks.rows import compare_checks
from shoal.contexts.checks.task import day_and_secrets
from shoal.contexts.day import DayChain, fit_day
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.noise.primitives import SeededRng
from studies.mask_adversary import Adversary
from studies.mask_traces import NOTHING, Person, Trace

CHECKS = (
    "mask-sensitive",
    "mask-probabilistic",
    "mask-simulatable",
    "mask-hybrid",
    "mask-adaptive",
    "mask-optimal",
)
Smoothing = float | Literal["auto"]
DELTA = Fraction(1, 10)
SECONDS = 1.0  # nominal, for all checks of one person together


@dataclass(frozen=True, slots=True)
class Outcome:
    """A check on one person: shares of slots, the expected one and that of the held-out days.

    `breached` is the share of held-out sensitive slots whose belief rose by more than delta, over
    the days whose output can occur under the fitted chain: `inside` is the share of those days.
    None when there is no such slot: no belief is defined outside the model.
    """

    expected: float
    shown: float
    breached: float | None
    inside: float
    plan: Plan


@dataclass(frozen=True, slots=True)
class Study:
    """All checks on one person, and the share of held-out contexts the chain calls impossible."""

    outcomes: dict[str, Outcome]
    impossible: float

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
    smoothing: Smoothing = 0.0,
    checks: Sequence[str] = CHECKS,
) -> Study:
    """Fitted on the first half of the days, measured on the second."""
    day, held = halves(person, smoothing=smoothing)
    plans = compare_checks(
        day, SensitiveContexts.of(sensitive), checks, delta=delta, seconds=SECONDS
    )
    rng = SeededRng(7)
    outcomes = {}
    for check, plan in plans.items():
        outputs = [run_day(plan, trace, rng) for trace in held]
        shown = [out is not None for output in outputs for out in output]
        breached, inside = _breaches(plan, day, held, outputs)
        share = sum(shown) / len(shown)
        outcomes[check] = Outcome(-plan.cost / day.slots, share, breached, inside, plan)
    support = day.support()
    index = {name: place for place, name in enumerate(day.states)}
    impossible = np.mean([not support[t, index[c]] for d in held for t, c in enumerate(d)])
    return Study(outcomes, float(impossible))


def expected_shares(
    person: Person, sensitive: Sequence[str], *, delta: Fraction, checks: Sequence[str]
) -> dict[str, float]:
    """The share of slots each check shows in expectation, fitted on the first half of the days."""
    day, _ = halves(person)
    plans = compare_checks(
        day, SensitiveContexts.of(sensitive), checks, delta=delta, seconds=SECONDS
    )
    return {check: -plan.cost / day.slots for check, plan in plans.items()}


def halves(person: Person, *, smoothing: Smoothing = 0.0) -> tuple[DayChain, tuple[Trace, ...]]:
    """The chain of the first half of the days, and the second half."""
    half = len(person.days) // 2
    day = fit_day(person.days[:half], states=person.contexts, smoothing=smoothing, spread=1)
    return day, person.days[half:]


def choose_sensitive(person: Person, count: int, seed: int) -> list[str]:
    """`count` contexts at random, never "no reading"."""
    among = [context for context in person.contexts if context != NOTHING]
    rng = np.random.default_rng([seed, len(person.name), *person.name.encode()])
    return sorted(str(c) for c in rng.choice(among, size=min(count, len(among) - 1), replace=False))


def _breaches(
    plan: Plan, day: DayChain, held: Sequence[Trace], outputs: Sequence[tuple[str | None, ...]]
) -> tuple[float | None, float]:
    """The share of breached sensitive slots inside the model, and the share of days inside it."""
    _, sensitive = day_and_secrets(plan.task)
    secrets = set(sensitive.contexts)
    prior, index = day.marginals(), {name: place for place, name in enumerate(day.states)}
    adversary = Adversary(plan)
    breached = total = inside = 0
    for trace, output in zip(held, outputs, strict=True):
        try:
            beliefs = adversary.beliefs(output)
        except InputError:
            continue  # the output cannot occur under the fitted chain
        inside += 1
        for t in (t for t, context in enumerate(trace) if context in secrets):
            rise = beliefs[t, index[trace[t]]] - prior[t, index[trace[t]]]
            breached += bool(rise > float(plan.guarantee.amount) * (1 + 1e-9))
            total += 1
    return (breached / total if total else None), inside / len(held)
