"""The theorems that add charges about the same data, and the least total they prove.

Proofs: rules.md; for tied records dependent.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.charge import NOTIONS, Alone, Part, PerPair, PerStep, SameQuilts
from shoal.core.errors import CannotCompose, InputError, Refused
from shoal.core.numbers import significant
from shoal.core.plan import Additive, Plan
from shoal.core.task import Model, each_entry, entry_of, moved_together
from shoal.events.secrets import Events
from shoal.ledger.totals import (
    Conversions,
    Tally,
    Total,
    entry_eta,
    families,
    models,
    sum_eta,
    tallied,
    tied,
    unlike,
    whole,
    whole_promises,
)
from shoal.mechanisms.answer_laws import one_number, same_answer_loss
from shoal.mechanisms.lift import leakage
from shoal.mechanisms.plans import float_below
from shoal.mechanisms.quilt import composed_loss
from shoal.mechanisms.table import LOSS_TOLERANCE, verify_promise
from shoal.noise.laplace import is_laplace
from shoal.records.coefficients import sensitivities
from shoal.records.field import PairwiseField
from shoal.records.pairwise import Dependence
from shoal.records.pairwise_mechanisms import pairwise_laws

TIES = "ties"
APART = (
    "release about whole components only, each with a plan for its own part of the model",
    "add the charges as charges about the same data",
    "declare a pairwise field, under which etas add and are converted once",
)


def ties(tally: Tally, conversions: Conversions) -> Total | str:
    """max over records i and values x of Σ_k (Δ_k + R_k(i, x)) / σ_k: additive Laplace plans add.

    R is how far the other records of the component are, on average given D_i = x, from their
    farthest answer: records/dependent_means.md, "Composition". Nothing else of dependent DP
    adds: not other mechanisms, and not the epsilons of plans whose proof is another.
    """
    for plan, _ in tally:
        if not each_entry(plan.task.secrets):
            return f"ties are between single records, not about {plan.task.secrets.subject}"
        if plan.additive is None or not is_laplace(plan.additive.noise):
            return f"{plan.mechanism} does not add independent Laplace noise to a sum"
    families = dict.fromkeys(plan.task.family for plan, _ in tally)
    worst = 0.0
    for model in (member for family in families for member in family):
        found = _under(model, tally)
        if isinstance(found, str):
            return found
        worst = max(worst, found)
    text = f"additive Laplace noise on tied records adds to {significant(worst)}, record by record"
    return _total(tally, "pufferfish", Fraction(worst), TIES, text)


def parallel_records(
    model: Dependence | PairwiseField, parts: Iterable[tuple[Sequence[int], Sequence[Plan]]]
) -> Total:
    """The total of releases about different records: the largest of independent components.

    Each part is a list of records and the plans released about them, every plan made for
    `model.part(records)`. Refused with CannotCompose when two parts share a component or a part
    cuts one: ties carry what is released about one record to the other, and the losses add
    (Theorem 4 of Liu, Chakraborty & Mittal 2016 is false). Proof: dependent.md.
    """

    names = model.components()
    owner: dict[int, int] = {}
    totals = []
    for number, (records, plans) in enumerate(parts):
        for component in np.unique(names[list(records)]).tolist():
            if owner.setdefault(component, number) != number:
                raise _tied(owner[component], number)
        _made_for_part(model, records, plans)
        totals.append(compose(plans))
    return parallel(totals)


def _under(model: Model, tally: Tally) -> float | str:
    """The largest sum over all charges about one record, under one model. Rounds up."""
    pairs = pairwise_laws(model)
    if pairs is None:
        return f"{model.describe()} gives no pairwise laws of records"
    total = np.zeros((pairs.records, pairs.domain.size))
    for plan, count in tally:
        far = sensitivities(plan.task.query, pairs)
        if far is None or far.shape != total.shape:
            return f"{plan.mechanism} is not about a sum of one contribution per record"
        assert isinstance(plan.body, Additive)
        total += far * (count / float_below(plan.body.noise.scale))
    return math.nextafter(float(total.max()) * (1 + 1e-12), math.inf)


def _made_for_part(
    model: Dependence | PairwiseField, records: Sequence[int], plans: Sequence[Plan]
) -> None:
    """Refuse a part that cuts a component, and plans made for anything but this part of the
    model.
    """
    try:
        part = model.part(records)
    except InputError as error:
        raise CannotCompose(f"a part cuts a component: {error}", APART) from None
    if any(plan.task.family != (part,) for plan in plans) or not plans:
        raise InputError(
            "a part has no plan, or one made for another model; make it for model.part(records)"
        )


def _tied(one: int, other: int) -> CannotCompose:
    return CannotCompose(
        f"parts {one} and {other} hold records of the same component, and ties carry what is "
        "released about one to the other, so the losses add instead of the larger one counting",
        APART,
    )


# The theorems that add charges, one function each. Proofs: rules.md.
#
# Every function takes charges about the same data and returns their total, or the sentence why it
# does not apply. A new kind of composition gets one more function and one more row in `RULES`.


class Rule(NamedTuple):
    """One theorem: from charges about the same data to their total, or a sentence why not."""

    name: str
    add: Callable[[Tally, Conversions], Total | str]


def own_guarantee(tally: Tally, conversions: Conversions) -> Total | str:
    """One release costs what its plan proved, evaluated again on what it draws."""
    if tally.charges > 1:
        return "a plan's own guarantee holds for one release"
    if tally.placed:
        return "a plan's own guarantee is about all of its data, not a part of a longer series"
    ((plan, _),) = tally
    if not plan.guarantee.proved:
        return f"the guarantee is claimed, not proved: {plan.guarantee.caveat}"
    try:
        loss = conversions.recheck(plan)
    except Refused as refusal:
        return str(refusal)
    if not loss <= float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE):
        return (
            f"the plan promises {significant(plan.guarantee.amount)} and what it draws loses "
            f"{significant(loss)}: it was changed; calibrate it again"
        )
    text = "one release costs its own guarantee"
    return _total(tally, plan.guarantee.notion, plan.guarantee.amount, OWN, text)


def group(tally: Tally, conversions: Conversions) -> Total | str:
    """n·Ση, n the most entries tied to a pair of any charge under a model of any charge.

    Covers any secret. Where all charges read all of the data and n entries together move an answer
    by less than n times one, that counts. rules.md, section 2.
    """
    n = tied(tally)
    if isinstance(n, str):
        return n
    eta = sum_eta(tally)
    if eta is None:
        return _no_eta(tally)
    amount = n * eta
    if not tally.placed:
        amount = min(
            amount, sum((count * _together(plan, n) for plan, count in tally), Fraction(0))
        )
    text = f"group epsilons add to {significant(amount)} for any or all of {n} tied entries"
    return _total(tally, "group", amount, GROUP, text)


def _together(plan: Plan, entries: int) -> Fraction:
    """What a plan with an eta tells about up to `entries` entries at once."""
    eta, query = entry_eta(plan), plan.task.query
    assert eta is not None  # the group rule has asked
    if plan.additive is None:
        return entries * eta
    return eta * min(Fraction(entries), moved_together(query, entries) / query.lipschitz)


def per_step(tally: Tally, conversions: Conversions) -> Total | str:
    """Σ ε_t, for two whole sequences that are neighbours of the policy at every step.

    Xiao & Xiong 2016, Theorems 7.1 (several queries at one time) and 7.2 (over a sequence). Which
    pairs are neighbours the secrets say: of a location set perhaps only those inside it.
    """
    first, _ = tally.counts[0]
    amount = Fraction(0)
    for plan, count in tally:
        steps = plan.rules(PerStep)
        if not steps:
            return _missing(plan, "no epsilon per step")
        if not plan.guarantee.proved:
            return f"the guarantee is claimed, not proved: {plan.guarantee.caveat}"
        if (plan.task.secrets, plan.task.family) != (first.task.secrets, first.task.family):
            return "the steps were made under different policies or models"
        # what the machine draws with, whatever the plan says
        amount += count * getattr(plan.body, "epsilon", min(rule.epsilon for rule in steps))
    text = (
        f"steps add to {significant(amount)} for whole sequences that are neighbours at every "
        f"step (Theorems 7.1 and 7.2; {first.task.secrets.subject})"
    )
    return _total(tally, first.guarantee.notion, amount, PER_STEP, text)


def told(total: Total, tally: Tally, etas: Sequence[tuple[Fraction | None, int]]) -> Total:
    """A total of steps that also says what they tell between any two sequences, Σ η_t.

    `etas` are those the steps were charged with, and how often; nothing is said where one has no
    bound. rules.md, section 5.
    """
    known = [times * eta for eta, times in etas if eta is not None]
    if not all(plan.by_step for plan, _ in tally) or len(known) < len(etas):
        return total
    whatever = sum(known, Fraction(0))
    text = f"any two sequences, and any position, differ by at most {_rounded_up(whatever)}"
    return replace(total, explanation=f"{total.explanation}; {text}")


def _rounded_up(amount: Fraction) -> str:
    """`amount` to four significant digits, not below it but for the rounding of its floats."""
    shown = significant(amount)
    least = amount * (1 - Fraction(1, 10**12))
    return shown if float(shown.replace(",", "")) >= least else significant(amount * 2001 / 2000)


def same_quilts(tally: Tally, conversions: Conversions) -> Total | str:
    """max_i min_Q (|N|·Ση + e), η as drawn: never more than K·max ε.

    Song, Wang & Chaudhuri 2017, Theorem 4.4; the sum with known scales is rules.md, section 3.
    """
    keys = [{rule.key for rule in plan.rules(SameQuilts)} for plan, _ in tally]
    if not set.intersection(*keys) or len(families(tally)) > 1:
        return "the charges were not all made from the same Markov quilts"
    if tally.placed:
        return "quilts are of all the data, and a charge is about a part of a longer series"
    other = _not_single_entries(tally)
    if other is not None:
        return other
    if sum_eta(tally) is None:
        return _no_eta(tally)
    plans = [plan for plan, count in tally for _ in range(count)]
    amount = conversions.composed_loss(plans)
    if not math.isfinite(amount):
        return "the sum over the shared quilts is infinite"
    text = f"{len(plans)} release(s) from the same quilts cost {significant(amount)} (Theorem 4.4)"
    return _total(tally, "pufferfish", Fraction(amount), QUILTS, text)


def lift(tally: Tally, conversions: Conversions) -> Total | str:
    """loss(Ση): etas add exactly, adaptively, and are converted once, for the worst family."""
    other = _not_single_entries(tally)
    if other is not None:
        return other
    known = families(tally)
    found = _worst(tally, lambda eta: [conversions.leakage(family, eta) for family in known])
    if isinstance(found, str):
        return found
    eta, worst = found
    if not math.isfinite(worst):
        return f"the lift of eta = {significant(eta)} is infinite under these models"
    each = "" if len(known) == 1 else f", the worst of {len(known)} families"
    add = "the etas of any entry add to at most" if tally.placed else "etas add to"
    text = f"{add} {significant(eta)}, lifted to epsilon = {significant(worst)}{each}"
    return _total(tally, "pufferfish", Fraction(worst), LIFT, text)


def event_lift(tally: Tally, conversions: Conversions) -> Total | str:
    """loss(Ση) about every event of any charge, and about single entries where one protects them.

    Epsilons of releases made for one event do not add; their etas do, and are converted once, by
    the event lift of the worst family. An event is about all slots of a series. rules.md, 11.
    """
    asked = list(dict.fromkeys(plan.task.secrets for plan, _ in tally))
    events = [secrets for secrets in asked if isinstance(secrets, Events)]
    if not events:
        return "no charge is about an event"
    other = next((s for s in asked if not (each_entry(s) or s in events)), None)
    if other is not None or any(secrets.notion != "pufferfish" for secrets in events):
        return "some charge promises something else than odds of events and single entries"
    slots = {model.tied for plan, _ in tally for model in plan.task.family}
    if tally.placed or len(slots) > 1 or None in slots:
        return "an event is about all slots of one series, and the charges are about other lengths"
    pairs = [(f, s) for f in dict.fromkeys(p.task.family for p, _ in tally) for s in asked]
    found = _worst(tally, lambda eta: [conversions.leakage_about(f, eta, s) for f, s in pairs])
    if isinstance(found, str):
        return found
    eta, worst = found
    if not math.isfinite(worst):
        return f"the event lift of eta = {significant(eta)} is infinite under these models"
    text = (
        f"etas add to {significant(eta)}, lifted to epsilon = {significant(worst)} for the events"
    )
    return _total(tally, "pufferfish", Fraction(worst), EVENTS, text)


def one_after_other(tally: Tally, conversions: Conversions) -> Total | str:
    """ε_1 + ε_2: a release calibrated under the law given all outputs of one stream, and that one.

    The model of the second plan names the machine that came first (`after`). rules.md, 12.
    """
    seconds = [(plan, count) for plan, count in tally if first_of(plan) is not None]
    firsts = [(plan, count) for plan, count in tally if first_of(plan) is None]
    if [count for _, count in seconds] != [1] or [count for _, count in firsts] != [1]:
        return "one release, made under what one stream of the day has shown, adds to that stream"
    (first, _), (second, _) = firsts[0], seconds[0]
    made = (first.body, first.task.secrets), (first_of(second), second.task.secrets)
    if made[0] != made[1] or len(second.task.family) > 1 or tally.placed:
        return "the release was made under the outputs of another stream, or about other events"
    promised = [own_guarantee(tallied([plan]), conversions) for plan in (first, second)]
    for found in promised:
        if isinstance(found, str) or found.notion != "pufferfish":
            return found if isinstance(found, str) else "only odds of events add (give epsilon)"
    amount = sum((found.amount for found in promised if isinstance(found, Total)), Fraction(0))
    text = f"a stream and a release under what it showed add to {significant(amount)}"
    return _total(tally, "pufferfish", amount, AFTER, text)


def first_of(plan: Plan) -> object:
    """The machine under whose outputs a plan was made; None for the others."""
    return next((m.after for m in plan.task.family if hasattr(m, "after")), None)


def same_answer(tally: Tally, conversions: Conversions) -> Total | str:
    """sup over g of log E[g(F) | x]/E[g(F) | x']: all that releases of one number F can tell.

    log g moves by Ση at most when an entry changes. Every release must read all entries of the same
    data: so every model fixes their number, or the caller vouches for it. rules.md, section 9.
    """
    other = _not_single_entries(tally)
    if other is not None:
        return other
    if sum_eta(tally) is None:
        return _no_eta(tally)
    drawn = [plan.additive for plan, _ in tally]
    numbers = {None if body is None else one_number(body.query) for body in drawn}
    number = numbers.pop()
    if number is None or numbers:
        return "the releases do not all add noise to one and the same number"
    if tally.placed or not (conversions.whole or whole(tally)):
        return (
            "a series of at most some length may have been released in parts (with one matrix per "
            "step, or whole=True, it is not)"
        )
    known = models(tally)
    found = _worst(tally, lambda eta: [conversions.same_answer(number, m, eta) for m in known])
    if isinstance(found, str):
        return found
    eta, worst = found
    if not math.isfinite(worst):
        return "what releases of one number tell is not computed for these models"
    text = f"releases of one number, etas adding to {significant(eta)}, tell {significant(worst)}"
    return _total(tally, "pufferfish", Fraction(worst), SAME, text)


def per_pair(tally: Tally, conversions: Conversions) -> Total | str:
    """Return epsilon for all legs of one history of tracks, however many.

    The plan's rule adds what each leg shows to one number per pair of hidden places, from the
    stored outputs alone, and shows no leg that would raise a number above epsilon. share/share.md.
    """
    if len(tally) != 1 or tally.placed:
        return "tracks of one place are one history, with one map, one zone and one epsilon"
    ((plan, _),) = tally
    if not plan.rules(PerPair):
        return _missing(plan, "no charges of pairs of places")
    promised = own_guarantee(tallied([plan]), conversions)
    if isinstance(promised, str):
        return promised
    text = f"{tally.charges} leg(s) of one history keep every pair within its promise together"
    return _total(tally, promised.notion, promised.amount, PAIRS, text)


OWN, GROUP, PER_STEP, QUILTS, LIFT = "own guarantee", "group", "per step", "same quilts", "lift"
SAME, EVENTS, AFTER = "same answer", "event lift", "one after the other"
PAIRS = "per pair"

RULES: tuple[Rule, ...] = (  # from the cheapest to evaluate to the dearest
    Rule(OWN, own_guarantee),
    Rule(GROUP, group),
    Rule(PER_STEP, per_step),
    Rule(PAIRS, per_pair),
    Rule(TIES, ties),
    Rule(QUILTS, same_quilts),
    Rule(LIFT, lift),
    Rule(EVENTS, event_lift),
    Rule(SAME, same_answer),
)


def _not_single_entries(tally: Tally) -> str | None:
    """That a charge protects other secrets than single entries; None when none does."""
    for plan, _ in tally:
        if not each_entry(plan.task.secrets):
            return f"it speaks about single entries, not about {plan.task.secrets.subject}"
    return None


def _worst(tally: Tally, losses: Callable[[Fraction], list[float]]) -> tuple[Fraction, float] | str:
    """Ση and the largest of the losses at it, or why there is none."""
    eta = sum_eta(tally)
    if eta is None:
        return _no_eta(tally)
    try:
        return eta, max(losses(eta))
    except (Refused, InputError) as refusal:
        return str(refusal)


def _no_eta(tally: Tally) -> str:
    return _missing(next(plan for plan, _ in tally if entry_eta(plan) is None), "no eta")


def _missing(plan: Plan, what: str) -> str:
    alone = [rule.reason for rule in plan.rules(Alone)]
    return f"{plan.mechanism} has {what}" + (f" ({alone[0]})" if alone else "")


def _total(tally: Tally, notion: str, amount: Fraction, rule: str, text: str) -> Total:
    """Return the total of a tally, with the promises about whole streams in its explanation."""
    kept = "".join(
        f"; of each stream by itself: {p.describe()}" for p in whole_promises(tally.counts[0][0])
    )
    return Total(
        notion=notion,
        amount=amount,
        rule=rule,
        eta=sum_eta(tally),
        charges=tally.charges,
        explanation=text + kept,
        entry=entry_of(tally.counts[0][0].task.query),
    )


WAYS_OUT = (
    "calibrate the queries together as one vector query and release once",
    "use mechanisms with additive noise, whose etas add, under models for which the lift is "
    "finite (every model with a length)",
    "start a new period, but only if the model says its data is independent of this period's",
)
ABOUT_EVENTS = (
    "for an event, release through one stream (mask-online; event_epsilon on places), which "
    "follows every output before the next: releases made for it one by one do not add",
    "after the day of a context stream, calibrate one number under what it showed "
    "(shoal.contexts.DayGiven.of(plan, outputs) as the model): the two epsilons then add",
)


def compose(
    plans: Iterable[Plan],
    conversions: Conversions | None = None,
    *,
    parts: Iterable[Part] = (),
    whole: bool = False,
) -> Total:
    """`least_total` of a list of charges, one plan per charge.

    `parts` says what each release reads: Part(span=(0, 1440)) its entries, Part(name="2024-W07")
    a part disjoint from those of other names. An entry is then charged for the releases that read
    it, not for all, and the largest sum is lifted once (rules.md, section 10).

    `whole` says that every release reads all entries of the same data, never a part of a series:
    then several releases of one number may cost less (rules.md, section 9).
    """
    known = conversions or standard_conversions()
    return least_total(tallied(plans, parts), replace(known, whole=whole or known.whole))


def least_total(tally: Tally, conversions: Conversions | None = None) -> Total:
    """The least total among the rules all charges share, in the notion their secrets ask for.

    A single charge costs its own guarantee, or less when another rule proves less. A total of
    another notion counts only when no rule gives the one asked for (a single release of ordinary
    DP under a model whose lift is infinite). CannotCompose, with every rule's reason, when no
    rule applies.
    """
    results = list(_results(tally, conversions or standard_conversions()))
    totals = [result for result in results if isinstance(result, Total)]
    if not totals:
        raise _cannot(tally, [result for result in results if isinstance(result, str)])
    fit = [total for total in totals if total.answers(tally)]
    return min(fit or totals, key=lambda total: total.amount)


def total_of_parts(plan: Plan, conversions: Conversions | None = None) -> Total:
    """What any number of releases by `plan` come to, each about a part of one series of its own.

    Of the rules that convert Ση alone, and no entry is read twice: rules.md, section 10. The series
    may be of any length. CannotCompose where neither applies.
    """
    tally = tallied([plan], [Part(span=(0, 1), seconds=True)])
    reason = unlike(tally)
    known = conversions or standard_conversions()
    results = [reason] if reason else [rule(tally, known) for rule in (lift, group)]
    totals = [one for one in results if isinstance(one, Total)]
    if not totals:
        raise _cannot(tally, [one for one in results if isinstance(one, str)])
    fit = [total for total in totals if total.answers(tally)]
    return min(fit or totals, key=lambda total: total.amount)


def any_total(tally: Tally, conversions: Conversions | None = None) -> Total:
    """The first total that any rule gives, not the least; CannotCompose when none does.

    Rules are tried from the cheapest to the lift, so that most charges never pay for the lift.
    """
    reasons = []
    for result in _results(tally, conversions or standard_conversions()):
        if isinstance(result, Total):
            return result
        reasons.append(result)
    raise _cannot(tally, reasons)


def parallel(totals: Sequence[Total]) -> Total:
    """The total over independent components (periods, days, tied groups): the largest, not a sum.

    Every secret lies in one component, and the other components are independent of it under
    every model, so their releases tell nothing about it; rules.md, section 6. The notion is one
    that every part gives; CannotCompose when there is none.
    """
    if not totals:
        raise ValueError("no totals: nothing has been spent, so there is no largest part")
    common = [notion for notion in NOTIONS if all(total.gives(notion) for total in totals)]
    if not common:
        names = sorted({total.notion for total in totals})
        raise CannotCompose(
            f"the independent parts promise different notions ({', '.join(names)})",
            ("state the total of each part by itself",),
        )
    kept = [total.notion for total in totals if total.notion in common]
    entries = sorted({total.entry for total in totals})
    if len(entries) > 1:
        raise CannotCompose(
            f"the independent parts count different things as one entry ({'; '.join(entries)})",
            ("state the total of each part by itself",),
        )
    worst = max(totals, key=lambda total: total.amount)
    etas = [total.eta for total in totals if total.eta is not None]
    return Total(
        notion=kept[0] if kept else common[0],
        amount=worst.amount,
        rule="parallel",
        eta=max(etas) if len(etas) == len(totals) else None,
        charges=sum(total.charges for total in totals),
        explanation=f"the largest of {len(totals)} independent part(s): {worst.explanation}",
        entry=entries[0],
    )


def standard_conversions() -> Conversions:
    """The lift, the quilt sum and the checks of this library."""
    return Conversions(
        leakage=lambda family, eta: leakage(family, eta).value,
        composed_loss=composed_loss,
        recheck=verify_promise,
        same_answer=same_answer_loss,
        leakage_about=lambda family, eta, secrets: leakage(family, eta, secrets=secrets).value,
    )


def _results(tally: Tally, conversions: Conversions) -> Iterator[Total | str]:
    """Each rule's total, or its reason; one reason alone when the data cannot be the same."""
    if not tally:
        raise ValueError("no charges: nothing has been spent, so there is nothing to add")
    if any(first_of(plan) is not None for plan, _ in tally):
        result = one_after_other(tally, conversions)
        yield f"{AFTER}: {result}" if isinstance(result, str) else result
        return
    reason = unlike(tally)
    if reason is not None:
        yield reason
        return
    for rule in RULES:
        result = rule.add(tally, conversions)
        yield f"{rule.name}: {result}" if isinstance(result, str) else result


def _cannot(tally: Tally, reasons: list[str]) -> CannotCompose:
    """Return the refusal to add these charges: their mechanisms, the reasons and the ways out."""
    names = ", ".join(sorted({plan.mechanism for plan, _ in tally}))
    about_events = any(
        isinstance(plan.task.secrets, Events) or whole_promises(plan) for plan, _ in tally
    )
    return CannotCompose(
        f"no theorem adds {tally.charges} charge(s) ({names}) about the same data: "
        + "; ".join(reasons),
        (*WAYS_OUT, *(ABOUT_EVENTS if about_events else ())),
    )
