"""The theorems that add charges, one function each. Proofs: rules.md.

Every function takes charges about the same data and returns their total, or the sentence why it
does not apply. A new kind of composition gets one more function and one more row in `RULES`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from shoal.core.additive import Additive
from shoal.core.composition import Alone, PerStep, SameQuilts
from shoal.core.errors import Refused
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.task import entry_of
from shoal.ledger.dependent import TIES, ties
from shoal.ledger.same_data import families, models, tied, whole
from shoal.ledger.total import Conversions, Tally, Total, entry_eta, is_step, sum_eta
from shoal.mechanisms import LOSS_TOLERANCE
from shoal.mechanisms.same_answer import one_number
from shoal.secrets.entries import EachEntry


class Rule(NamedTuple):
    """One theorem: from charges about the same data to their total, or a sentence why not."""

    name: str
    add: Callable[[Tally, Conversions], Total | str]


def own_guarantee(tally: Tally, conversions: Conversions) -> Total | str:
    """One release costs what its plan proved, evaluated again on what it draws."""
    (plan, count), *others = tally
    if others or count > 1:
        return "a plan's own guarantee holds for one release"
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

    Covers any secret. rules.md, section 2.
    """
    n = tied(tally)
    if isinstance(n, str):
        return n
    eta = sum_eta(tally)
    if eta is None:
        return _no_eta(tally)
    amount = n * eta
    text = f"group epsilons add to {significant(amount)} for any or all of {n} tied entries"
    return _total(tally, "group", amount, GROUP, text)


def per_step(tally: Tally, conversions: Conversions) -> Total | str:
    """Σ ε_t, for two whole sequences that are neighbours of the policy at every step.

    Xiao & Xiong 2016, Theorems 7.1 (several queries at one time) and 7.2 (over a sequence). Which
    pairs are neighbours the secrets say: of a location set perhaps only those inside it.
    """
    first = tally[0][0]
    amount = Fraction(0)
    for plan, count in tally:
        steps = [rule for rule in plan.composition if isinstance(rule, PerStep)]
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
    if not all(is_step(plan) for plan, _ in tally) or len(known) < len(etas):
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
    keys = [
        {rule.key for rule in plan.composition if isinstance(rule, SameQuilts)} for plan, _ in tally
    ]
    if not set.intersection(*keys) or len(families(tally)) > 1:
        return "the charges were not all made from the same Markov quilts"
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
    eta = sum_eta(tally)
    if eta is None:
        return _no_eta(tally)
    try:
        losses = [conversions.leakage(family, eta) for family in families(tally)]
    except Refused as refusal:
        return str(refusal)
    worst = max(losses)
    if not math.isfinite(worst):
        return f"the lift of eta = {significant(eta)} is infinite under these models"
    each = "" if len(losses) == 1 else f", the worst of {len(losses)} families"
    text = f"etas add to {significant(eta)}, lifted to epsilon = {significant(worst)}{each}"
    return _total(tally, "pufferfish", Fraction(worst), LIFT, text)


def same_answer(tally: Tally, conversions: Conversions) -> Total | str:
    """sup over g of log E[g(F) | x]/E[g(F) | x']: all that releases of one number F can tell.

    log g moves by Ση at most when an entry changes. Every release must read all entries of the same
    data: so every model fixes their number, or the caller vouches for it. rules.md, section 9.
    """
    other = _not_single_entries(tally)
    if other is not None:
        return other
    eta = sum_eta(tally)
    if eta is None:
        return _no_eta(tally)
    drawn = [plan.body.query if isinstance(plan.body, Additive) else None for plan, _ in tally]
    numbers = {None if query is None else one_number(query) for query in drawn}
    number = numbers.pop()
    if number is None or numbers:
        return "the releases do not all add noise to one and the same number"
    if not (conversions.whole or whole(tally)):
        return (
            "a series of at most some length may have been released in parts (with one matrix per "
            "step, or whole=True, it is not)"
        )
    try:
        losses = [conversions.same_answer(number, model, eta) for model in models(tally)]
    except Refused as refusal:
        return str(refusal)
    worst = max(losses)
    if not math.isfinite(worst):
        return "what releases of one number tell is not computed for these models"
    text = f"releases of one number, etas adding to {significant(eta)}, tell {significant(worst)}"
    return _total(tally, "pufferfish", Fraction(worst), SAME, text)


OWN, GROUP, PER_STEP, QUILTS, LIFT = "own guarantee", "group", "per step", "same quilts", "lift"
SAME = "same answer"

RULES: tuple[Rule, ...] = (  # from the cheapest to evaluate to the dearest
    Rule(OWN, own_guarantee),
    Rule(GROUP, group),
    Rule(PER_STEP, per_step),
    Rule(TIES, ties),
    Rule(QUILTS, same_quilts),
    Rule(LIFT, lift),
    Rule(SAME, same_answer),
)


def _not_single_entries(tally: Tally) -> str | None:
    """That a charge protects other secrets than single entries; None when none does."""
    for plan, _ in tally:
        if not isinstance(plan.task.secrets, EachEntry):
            return f"it speaks about single entries, not about {plan.task.secrets.subject}"
    return None


def _no_eta(tally: Tally) -> str:
    return _missing(next(plan for plan, _ in tally if entry_eta(plan) is None), "no eta")


def _missing(plan: Plan, what: str) -> str:
    alone = [rule.reason for rule in plan.composition if isinstance(rule, Alone)]
    return f"{plan.mechanism} has {what}" + (f" ({alone[0]})" if alone else "")


def _total(tally: Tally, notion: str, amount: Fraction, rule: str, text: str) -> Total:
    return Total(
        notion=notion,
        amount=amount,
        rule=rule,
        eta=sum_eta(tally),
        charges=sum(count for _, count in tally),
        explanation=text,
        entry=entry_of(tally[0][0].task.query),
    )
