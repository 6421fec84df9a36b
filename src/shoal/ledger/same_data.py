"""Whether charges can be about the same data at all, and what all of them together protect.

A sum of charges is a promise about every pair of secrets of every charge, under every model of
every charge, with all outputs in the adversary's hands. rules.md, section 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from shoal.additive.plans import keeps_total
from shoal.core.errors import InputError
from shoal.core.plan import Additive, Plan
from shoal.core.task import Model, entry_of
from shoal.ledger.totals import Tally
from shoal.noise.laplace import ZeroSumLaplace

OTHER_DATA = "give independent data a subject of its own"


def unlike(tally: Tally) -> str | None:
    """Why no data can be what all charges are about, or a plan is not what it draws; else None."""
    plans = [plan for plan, _ in tally]
    for plan in plans:
        reason = _not_drawn(plan)
        if reason is not None:
            return reason
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
    last = max((part.span[1] for part, *_ in tally.placed if part.span), default=0)
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
    """How long a series must be to hold every part: spans, and one stretch for each name."""
    spans = max((part.span[1] for part, *_ in tally.placed if part.span), default=0)
    named: dict[str, float] = {}
    for part, plan, _ in tally.placed:
        longest = max(_longest(model) for model in plan.task.family)
        named[part.name] = max(named.get(part.name, 0), longest if part.name else 0)
    return spans + sum(named.values())


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
    body = plan.body
    if not isinstance(body, Additive):
        return None
    if body.query != plan.task.query:
        return f"a plan of {plan.mechanism} draws another query than its task's; calibrate it again"
    if isinstance(body.noise, ZeroSumLaplace) and not keeps_total(body.query):
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
    return replace(model, length=None if longest == math.inf else int(longest))
