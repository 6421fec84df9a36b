"""What charges about the same data come to: the values the rules of addition speak in."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from shoal.additive.queries import LinearQuery
from shoal.core.guarantee import NOTIONS, AsEntryDP, PerStep
from shoal.core.plan import Plan
from shoal.core.task import Model

Tally = tuple[tuple[Plan, int], ...]  # distinct plans, and how often each was charged


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What all charges together guarantee, by one rule.

    `amount` is epsilon (delta for "delta-privacy"): exact where the rule is, else the exact value
    of a float that was rounded up. `eta` is the entry-level sum Ση, None when a charge has none.
    `entry` is what the queries take for one entry: totals about different ones do not compare.
    """

    notion: str
    amount: Fraction
    rule: str
    eta: Fraction | None
    charges: int
    explanation: str
    entry: str = "one value of the data"

    def gives(self, notion: str) -> bool:
        """Whether this total includes a promise of `notion` with the same amount."""
        return notion == self.notion or notion in NOTIONS[self.notion]

    def answers(self, tally: Tally) -> bool:
        """Whether this total is in the notion the secrets of every charge ask for."""
        return all(self.gives(plan.task.secrets.notion) for plan, _ in tally)


@dataclass(frozen=True, slots=True)
class Conversions:
    """The computations the rules borrow from the mechanisms; all round up.

    `leakage(family, eta)` is the loss of any eta-DP mechanism under the family, perhaps inf;
    `composed_loss(plans)` is max_i min_Q (|N|·Ση + e) for plans from the same quilts;
    `recheck(plan)` is the loss of one release as drawn, in the unit of the plan's guarantee;
    `same_answer(number, model, eta)` is the loss of releases that read one number only.
    `whole`: the caller vouches that every release read all entries of the same data.
    """

    leakage: Callable[[tuple[Model, ...], Fraction], float]
    composed_loss: Callable[[Sequence[Plan]], float]
    recheck: Callable[[Plan], float] = lambda plan: float(plan.guarantee.amount)
    same_answer: Callable[[LinearQuery, Model, Fraction], float] = lambda *_: math.inf
    whole: bool = False


def tallied(plans: Iterable[Plan]) -> Tally:
    """Distinct plans with their counts, in the order of their fingerprints."""
    return from_counts(Counter(plans))


def from_counts(counts: dict[Plan, int]) -> Tally:
    """The same, from counts already taken."""
    return tuple(sorted(counts.items(), key=lambda item: item[0].fingerprint))


def one_more(tally: Tally, plan: Plan) -> Tally:
    """The tally after one further charge of `plan`."""
    counts = dict(tally)
    return from_counts({**counts, plan: counts.get(plan, 0) + 1})


def entry_eta(plan: Plan) -> Fraction | None:
    """The eta of what a plan draws, whatever it says; None when it does not add by eta at all."""
    if not any(isinstance(rule, AsEntryDP) for rule in plan.composition):
        return None
    drawn: Fraction | None = getattr(plan.body, "eta", None)
    return drawn


def is_step(plan: Plan) -> bool:
    """Whether a charge of the plan is for one step of a stream, with an eta of its own."""
    return any(isinstance(rule, PerStep) for rule in plan.composition)


def sum_eta(tally: Tally) -> Fraction | None:
    """Ση over all charges, exactly; None when a charge carries none."""
    total = Fraction(0)
    for plan, count in tally:
        eta = entry_eta(plan)
        if eta is None:
            return None
        total += count * eta
    return total
