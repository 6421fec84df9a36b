"""What charges about the same data come to: the values the rules of addition speak in."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

from shoal.additive.queries import LinearQuery
from shoal.core.errors import InputError
from shoal.core.guarantee import NOTIONS, AsEntryDP, PerStep
from shoal.core.plan import Plan
from shoal.core.task import Model


@dataclass(frozen=True, slots=True)
class Part:
    """Which entries of one series a release reads; all of them when nothing is said.

    `span` holds entries from the first up to, not including, the second, counted from 0. `name`
    is a part that shares no entry with any part of another name (a week, a ward): whoever names
    it vouches for that. rules.md, section 10.
    """

    span: tuple[int, int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.span is not None and self.name:
            raise InputError(f"part is {self.name!r} and span {self.span}; give one of them")
        if self.span is None:
            return
        ends: tuple[Any, ...] = tuple(self.span)
        if len(ends) != 2 or {*map(type, ends)} != {int} or not 0 <= ends[0] < ends[1]:
            raise InputError(
                f"span is {self.span}; give the first entry and the one after the last, from 0"
            )


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Tally:
    """Distinct plans and how often each was charged; `placed` are those about a part, again."""

    counts: tuple[tuple[Plan, int], ...] = ()
    placed: tuple[tuple[Part, Plan, int], ...] = ()

    def __iter__(self) -> Iterator[tuple[Plan, int]]:
        return iter(self.counts)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def charges(self) -> int:
        """How many charges there are."""
        return sum(count for _, count in self.counts)


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


def tallied(plans: Iterable[Plan], parts: Iterable[Part] = ()) -> Tally:
    """Distinct plans with their counts, in the order of their fingerprints; a part for each."""
    made = list(plans)
    read = list(parts) or [WHOLE] * len(made)
    if len(read) != len(made):
        raise InputError(f"parts are {len(read)} for {len(made)} plans; say one for each, or none")
    return from_counts(Counter(zip(made, read, strict=True)))


def from_counts(counts: Mapping[tuple[Plan, Part], int]) -> Tally:
    """The same, from counts already taken."""
    plans: Counter[Plan] = Counter()
    for (plan, _), times in counts.items():
        plans[plan] += times
    placed = [(part, plan, times) for (plan, part), times in counts.items() if part != WHOLE]
    return Tally(
        tuple(sorted(plans.items(), key=lambda item: item[0].fingerprint)),
        tuple(sorted(placed, key=lambda item: (str(item[0]), item[1].fingerprint))),
    )


def more(tally: Tally, plan: Plan, part: Part = WHOLE, times: int = 1) -> Tally:
    """The tally after `times` further charges of `plan` about a part."""
    counts: Counter[tuple[Plan, Part]] = Counter({(plan, WHOLE): times for plan, times in tally})
    for placed, of, often in tally.placed:
        counts[of, WHOLE] -= often
        counts[of, placed] += often
    counts[plan, part] += times
    return from_counts(+counts)


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
    """The largest Ση over the charges that read one entry, exactly; None when one carries none.

    Charges about the whole read every entry. A span and a named part may meet, two names never.
    """
    etas: dict[Plan, Fraction] = {}
    for plan, _ in tally:
        eta = entry_eta(plan)
        if eta is None:
            return None
        etas[plan] = eta
    everywhere = sum((count * etas[plan] for plan, count in tally), Fraction(0))
    named: dict[str, Fraction] = defaultdict(Fraction)
    spans: dict[int, Fraction] = defaultdict(Fraction)
    for part, plan, count in tally.placed:
        eta = count * etas[plan]
        everywhere -= eta
        if part.span is None:
            named[part.name] += eta
        else:
            spans[part.span[0]] += eta
            spans[part.span[1]] -= eta
    deepest = max(accumulate(spans[end] for end in sorted(spans)), default=Fraction(0))
    return everywhere + max(named.values(), default=Fraction(0)) + deepest
