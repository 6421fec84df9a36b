"""The least total of charges about the same data, or the reason why there is none.

The theorems themselves are in `theorems`, their proofs in rules.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from shoal.core.errors import CannotCompose
from shoal.core.guarantee import NOTIONS
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.ledger.same_data import unlike
from shoal.ledger.theorems import RULES
from shoal.ledger.total import Conversions, Tally, Total, tallied
from shoal.queries.linear import LinearQuery

WAYS_OUT = (
    "calibrate the queries together as one vector query and release once",
    "use mechanisms with additive noise, whose etas add, under models for which the lift is "
    "finite (every model with a length)",
    "start a new period, but only if the model says its data is independent of this period's",
)


def compose(
    plans: Iterable[Plan], conversions: Conversions | None = None, *, whole: bool = False
) -> Total:
    """`least_total` of a list of charges, one plan per charge.

    `whole` says that every release reads all entries of the same data, never a part of a series:
    then several releases of one number may cost less (rules.md, section 9).
    """
    known = conversions or standard_conversions()
    return least_total(tallied(plans), replace(known, whole=whole or known.whole))


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

    def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
        from shoal.mechanisms.leakage import leakage as lifted

        return lifted(family, eta).value

    def composed_loss(plans: Sequence[Plan]) -> float:
        from shoal.mechanisms.markov_quilt import composed_loss as summed

        return summed(plans)

    def recheck(plan: Plan) -> float:
        from shoal.mechanisms import recheck as checked

        return checked(plan)

    def same_answer(number: LinearQuery, model: Model, eta: Fraction) -> float:
        from shoal.mechanisms.same_answer import same_answer_loss

        return same_answer_loss(number, model, eta)

    return Conversions(leakage, composed_loss, recheck, same_answer)


def _results(tally: Tally, conversions: Conversions) -> Iterator[Total | str]:
    """Each rule's total, or its reason; one reason alone when the data cannot be the same."""
    if not tally:
        raise ValueError("no charges: nothing has been spent, so there is nothing to add")
    reason = unlike(tally)
    if reason is not None:
        yield reason
        return
    for rule in RULES:
        result = rule.add(tally, conversions)
        yield f"{rule.name}: {result}" if isinstance(result, str) else result


def _cannot(tally: Tally, reasons: list[str]) -> CannotCompose:
    names = ", ".join(sorted({plan.mechanism for plan, _ in tally}))
    count = sum(count for _, count in tally)
    return CannotCompose(
        f"no theorem adds {count} charge(s) ({names}) about the same data: {'; '.join(reasons)}",
        WAYS_OUT,
    )
