"""How charges about tied records add, and which of them may stand side by side. dependent.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.additive import Additive
from shoal.core.errors import CannotCompose, InputError
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.ledger.total import Conversions, Tally, Total, sum_eta
from shoal.mechanisms.additive import float_below
from shoal.mechanisms.dependent_task import pairwise, sensitivities
from shoal.models.dependence import Dependence
from shoal.models.dependence_field import PairwiseField
from shoal.noise.laplace import LatticeLaplace
from shoal.secrets.entries import EachEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

TIES = "ties"
APART = (
    "release about whole components only, each with a plan for its own part of the model",
    "add the charges as charges about the same data",
    "declare a pairwise field, under which etas add and are converted once",
)


def ties(tally: Tally, conversions: Conversions) -> Total | str:
    """max over records i and values x of Σ_k (Δ_k + R_k(i, x)) / σ_k: additive Laplace plans add.

    R is how far the other records of the component are, on average given D_i = x, from their
    farthest answer: mechanisms/dependent_means.md, "Composition". Nothing else of dependent DP
    adds: not other mechanisms, and not the epsilons of plans whose proof is another.
    """
    for plan, _ in tally:
        if not isinstance(plan.task.secrets, EachEntry):
            return f"ties are between single records, not about {plan.task.secrets.subject}"
        if not (isinstance(plan.body, Additive) and isinstance(plan.body.noise, LatticeLaplace)):
            return f"{plan.mechanism} does not add independent Laplace noise to a sum"
    families = dict.fromkeys(plan.task.family for plan, _ in tally)
    worst = 0.0
    for model in (member for family in families for member in family):
        found = _under(model, tally)
        if isinstance(found, str):
            return found
        worst = max(worst, found)
    text = f"additive Laplace noise on tied records adds to {significant(worst)}, record by record"
    return Total(
        notion="pufferfish",
        amount=Fraction(worst),
        rule=TIES,
        eta=sum_eta(tally),
        charges=sum(count for _, count in tally),
        explanation=text,
    )


def parallel_records(
    model: Dependence | PairwiseField, parts: Iterable[tuple[Sequence[int], Sequence[Plan]]]
) -> Total:
    """The total of releases about different records: the largest of independent components.

    Each part is a list of records and the plans released about them, every plan made for
    `model.part(records)`. Refused with CannotCompose when two parts share a component or a part
    cuts one: ties carry what is released about one record to the other, and the losses add
    (Theorem 4 of Liu, Chakraborty & Mittal 2016 is false). Proof: dependent.md.
    """
    from shoal.ledger.rules import compose, parallel

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
    pairs = pairwise(model)
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
