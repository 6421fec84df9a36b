"""What charges about the same data come to: the values the rules of addition speak in."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Any, TypeVar

from shoal.core.charge import NOTIONS, WHOLE, AsEntryDP, Guarantee, Part
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Model, Secrets, entry_of
from shoal.ledger.periods import calendar_interval
from shoal.mechanisms.plans import keeps_total
from shoal.mechanisms.queries import LinearQuery
from shoal.noise.laplace import is_zero_sum


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
    `same_answer(number, model, eta)` is the loss of releases that read one number only;
    `leakage_about(family, eta, secrets)` is that of any eta-DP mechanism about other secrets.
    `whole`: the caller vouches that every release read all entries of the same data.
    """

    leakage: Callable[[tuple[Model, ...], Fraction], float]
    composed_loss: Callable[[Sequence[Plan]], float]
    recheck: Callable[[Plan], float] = lambda plan: float(plan.guarantee.amount)
    same_answer: Callable[[LinearQuery, Model, Fraction], float] = lambda *_: math.inf
    leakage_about: Callable[[tuple[Model, ...], Fraction, Secrets], float] = lambda *_: math.inf
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
    read: Counter[tuple[Part, Plan]] = Counter()
    whole_persons = any(map(hides_whole_series, {plan for plan, _ in counts}))
    for (plan, part), times in counts.items():
        plans[plan] += times
        read[WHOLE if whole_persons else part.within, plan] += times
    placed = [(part, plan, times) for (part, plan), times in read.items() if part != WHOLE]
    return Tally(
        tuple(sorted(plans.items(), key=lambda item: item[0].fingerprint)),
        tuple(sorted(placed, key=lambda item: (str(item[0]), item[1].fingerprint))),
    )


def hides_whole_series(plan: Plan) -> bool:
    """Whether the plan's secrets are whole series: then no two releases are of separate parts."""
    return bool(getattr(plan.task.secrets, "whole_series", False))


def more(tally: Tally, plan: Plan, part: Part = WHOLE, times: int = 1) -> Tally:
    """The tally after `times` further charges of `plan` about a part."""
    counts: Counter[tuple[Plan, Part]] = Counter({(plan, WHOLE): times for plan, times in tally})
    for placed, of, often in tally.placed:
        counts[of, WHOLE] -= often
        counts[of, placed] += often
    counts[plan, part] += times
    return from_counts(+counts)


@lru_cache(maxsize=256)  # worked out of every weight of the query, and asked for at every charge
def entry_eta(plan: Plan) -> Fraction | None:
    """The eta of what a plan draws, whatever it says; None when it does not add by eta at all."""
    if not plan.rules(AsEntryDP):
        return None
    drawn: Fraction | None = getattr(plan.body, "eta", None)
    return drawn


def whole_promises(plan: Plan) -> tuple[Guarantee, ...]:
    """What all steps of the plan's stream promise together, beside what each of them does."""
    return tuple(promise for rule in plan.composition for promise in rule.promises)


def sum_eta(tally: Tally) -> Fraction | None:
    """The largest Ση over the charges that read one entry, exactly; None when one carries none.

    Charges about the whole read every entry. Parts said in different ways (spans of entries,
    spans of seconds, names) may meet. Two names never do, but for names of the calendar: a day
    lies in its week.
    """
    etas: dict[Plan, Fraction] = {}
    for plan, _ in tally:
        eta = entry_eta(plan)
        if eta is None:
            return None
        etas[plan] = eta
    everywhere = sum((count * etas[plan] for plan, count in tally), Fraction(0))
    named: dict[str, Fraction] = defaultdict(Fraction)
    spans: dict[bool | None, dict[int, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for part, plan, count in tally.placed:
        eta = count * etas[plan]
        everywhere -= eta
        lies = calendar_interval(part.name) if part.span is None else part.span
        if lies is None:
            named[part.name] += eta
        else:
            unit = None if part.span is None else part.seconds  # None: named by the calendar
            spans[unit][lies[0]] += eta
            spans[unit][lies[1]] -= eta
    deepest = sum(map(_deepest, spans.values()), Fraction(0))
    return everywhere + max(named.values(), default=Fraction(0)) + deepest


def _deepest(changes: Mapping[int, Fraction]) -> Fraction:
    """The largest sum of spans over one place; `changes` is what begins and ends at each."""
    return max(accumulate(changes[end] for end in sorted(changes)), default=Fraction(0))


# Conversions remembered, so that a slow one never runs while a ledger is locked.


MOST_REMEMBERED = 4096  # remembered numbers; beyond it the oldest are forgotten
CONVERTED = ("leakage", "composed_loss", "recheck", "same_answer", "leakage_about")
RETRIES = 3  # times that other writers may change what a conversion was prepared for

Settled = TypeVar("Settled")


class NotConverted(Exception):
    """A conversion that is not remembered yet; `compute` works it out and remembers it.

    `outrun` says whether it depends on what others write meanwhile: a plan's own loss does not.
    """

    def __init__(self, compute: Callable[[], object], outrun: bool) -> None:
        super().__init__("a conversion has to be computed first")
        self.compute = compute
        self.outrun = outrun


class KnownConversions:
    """The results of conversions, which are pure functions of public values.

    `recalled` are conversions that answer from memory and raise `NotConverted` otherwise;
    `computed` compute and remember what they are asked for the first time.
    """

    def __init__(self, conversions: Conversions) -> None:
        self._conversions = conversions
        self._known: dict[object, float | Refused] = {}
        self.recalled = self._answered(at_once=False)
        self.computed = self._answered(at_once=True)

    def patiently(self, work: Callable[[Conversions], Settled]) -> Settled:
        """`work` done with what is remembered; what is missing is computed outside of it.

        Only when others have outrun that `RETRIES` times does `work` compute, under its lock.
        """
        beaten = 0
        while beaten < RETRIES:
            try:
                return work(self.recalled)
            except NotConverted as missing:
                missing.compute()  # may take seconds: not while the ledger is locked
                beaten += missing.outrun
        return work(self.computed)

    def _answered(self, *, at_once: bool) -> Conversions:
        """The conversions, answered from memory; what is not there is worked out, or raised."""

        def by_name(name: str) -> Callable[..., float]:
            """Return the conversion of this name, answered from the cache where it can be."""
            own = getattr(self._conversions, name)

            def converted(*given: Any) -> float:
                """Return the cached result for these arguments, or compute it; the order of plans
                is ignored.

                Without `at_once` an unknown result raises NotConverted. A cached refusal is raised
                again.
                """
                # the order of plans does not matter
                key = (name, *(tallied(one) if isinstance(one, list) else one for one in given))
                if key not in self._known and not at_once:
                    raise NotConverted(lambda: self._learn(key, own, given), name != "recheck")
                found = self._learn(key, own, given)
                if isinstance(found, Refused):
                    raise found
                return found

            return converted

        answered: dict[str, Any] = {name: by_name(name) for name in CONVERTED}
        return Conversions(**answered)

    def _learn(
        self, key: object, own: Callable[..., float], given: tuple[Any, ...]
    ) -> float | Refused:
        """The number, or the refusal, remembered: both are final."""
        if key not in self._known:
            while len(self._known) >= MOST_REMEMBERED:
                self._known.pop(next(iter(self._known)), None)
            try:
                self._known[key] = own(*given)
            except Refused as refusal:
                self._known[key] = refusal
        return self._known[key]


# Whether charges can be about the same data at all, and what all of them together protect.
#
# A sum of charges is a promise about every pair of secrets of every charge, under every model of
# every charge, with all outputs in the adversary's hands. rules.md, section 0.


OTHER_DATA = "give independent data a subject of its own"


def unlike(tally: Tally) -> str | None:
    """Why no data can be what all charges are about, or a plan is not what it draws; else None."""
    plans = [plan for plan, _ in tally]
    for plan in plans:
        reason = _not_drawn(plan)
        if reason is not None:
            return reason
    promising = any(whole_promises(plan) for plan in plans)
    if promising and (len(plans) > 1 or tally.placed):
        return (
            "one of them promises something about events over all steps of its stream, and what "
            "such streams tell does not add to anything else about the same path"
        )
    if len({frozenset(plan.task.query.states) for plan in plans}) > 1:
        return f"they name different sets of states, so no model covers them all ({OTHER_DATA})"
    entries = sorted({entry_of(plan.task.query) for plan in plans})
    if len(entries) > 1:
        return (
            f"they count different things as one entry ({'; '.join(entries)}), and what hides one "
            "says nothing about the other (ask every query about the same unit of change)"
        )
    named = [plan.task.query for plan in plans] + [
        model for plan in plans for model in plan.task.family
    ]
    if len({_variables(one) for one in named} - {None}) > 1:
        return f"they name different variables, or other values of the same ones ({OTHER_DATA})"
    known = {_records(model) for plan in plans for model in plan.task.family}
    counts = sorted(count for count in known if count is not None)
    if len(counts) > 1:
        return f"their models are about {' and '.join(map(str, counts))} entries ({OTHER_DATA})"
    last = _last_entry(tally)
    if counts and last > counts[0]:
        return f"a span ends at entry {last}, and their models are about {counts[0]} entries"
    return None


def families(tally: Tally) -> list[tuple[Model, ...]]:
    """Every family of the charges once, its chains as long as the data of any charge may be.

    A law of at most 5 entries says nothing about the sixth, which another charge may release: the
    same law, for longer data, is what its holder would use. One matrix per step cannot go on.
    """
    own = list(dict.fromkeys(plan.task.family for plan, _ in tally))
    fixed = [_records(model) for family in own for model in family]
    lengths = [_longest(model) for family in own for model in family]
    free = max(*lengths, _reach(tally))
    longest = max((float(count) for count in fixed if count is not None), default=free)
    return list(dict.fromkeys(tuple(_stretched(m, longest) for m in family) for family in own))


def _reach(tally: Tally) -> float:
    """How long a series must be to hold every part: spans, and one stretch for each name.

    Without an end where seconds are said: they may hold any number of entries.
    """
    if any(part.seconds for part, *_ in tally.placed):
        return math.inf
    named: dict[str, float] = {}
    for part, plan, _ in tally.placed:
        longest = max(_longest(model) for model in plan.task.family)
        named[part.name] = max(named.get(part.name, 0), longest if part.name else 0)
    return _last_entry(tally) + sum(named.values())


def _last_entry(tally: Tally) -> int:
    """The entry before which every span of entries ends; 0 without one."""
    ends = (part.span[1] for part, *_ in tally.placed if part.span and not part.seconds)
    return max(ends, default=0)


def models(tally: Tally) -> list[Model]:
    """Every model that an adversary of any charge may hold."""
    return list(dict.fromkeys(model for family in families(tally) for model in family))


def whole(tally: Tally) -> bool:
    """Whether every model fixes the number of entries, so that no release can be of a part."""
    return all(_records(model) is not None for plan, _ in tally for model in plan.task.family)


def tied(tally: Tally) -> int | str:
    """The most entries tied to one pair of secrets of ANY charge under a model of ANY charge.

    A sentence when there is no limit, or when secrets of one charge mean nothing under another's
    models: then no total covers them.
    """
    known, most = models(tally), 0
    for secrets in {plan.task.secrets.fingerprint: plan.task.secrets for plan, _ in tally}.values():
        try:
            secrets.check(tuple(known))
        except InputError as error:
            return f"the secrets of one charge mean nothing under the models of another: {error}"
        for model in known:
            size = secrets.tied_under(model)
            if size is None:
                return "a model of any length ties unlimited entries together"
            most = max(most, size)
    return most


def _not_drawn(plan: Plan) -> str | None:
    """Why what a plan draws is not what its task says; None when it is."""
    body = plan.additive
    if body is None:
        return None
    if body.query != plan.task.query:
        return f"a plan of {plan.mechanism} draws another query than its task's; calibrate it again"
    if is_zero_sum(body.noise) and not keeps_total(body.query):
        return (
            f"a plan of {plan.mechanism} adds noise without a sum to an answer whose sum is secret"
        )
    return None


def _variables(one: Any) -> frozenset[tuple[str, frozenset[str]]] | None:
    """The named variables of a query or model, each with its values; None when it names none."""
    names: Iterable[str] | None = getattr(one, "variables", None)
    if names is None:
        return None
    return frozenset(zip(names, map(frozenset, one.domains), strict=True))


def _records(model: Model) -> int | None:
    """How many entries the data must have; None when the model does not fix it."""
    if getattr(model, "homogeneous", True) is False:
        return model.tied
    names = getattr(model, "variables", None)
    count: int | None = getattr(model, "records", None if names is None else len(names))
    return count


def _longest(model: Any) -> float:
    """The most entries of one series that the model allows; 0 when it has no series."""
    length = getattr(model, "length", 0)
    return math.inf if length is None else float(length)


def _stretched(model: Any, longest: float) -> Any:
    """The same law for series of `longest` entries, where it can go on that long."""
    own = getattr(model, "length", None)
    if own is None or own >= longest or not getattr(model, "homogeneous", True):
        return model
    return at_most(model, None if longest == math.inf else int(longest))


def at_most(model: Any, length: int | None) -> Any:
    """Return the same law for every series of at most `length` entries; None for any number.

    A law of exactly so many entries says nothing about other numbers, so that word goes.
    """
    exact = {"exactly": False} if getattr(model, "exactly", False) else {}
    return replace(model, length=length, **exact)
