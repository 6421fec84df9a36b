"""What a table of laws tells: every output looked at, in logarithms, under every model.

Shares nothing with the mechanism: series are followed forwards and backwards in logarithms, named
variables outcome by outcome, each answer asked of the query itself.
"""

from __future__ import annotations

import math
from itertools import islice, permutations, product
from typing import Any, NamedTuple

import numpy as np

from shoal.additive.optimal_table import Tabulated
from shoal.additive.plans import eta_above
from shoal.additive.queries import linear
from shoal.audit.case import finite_loss
from shoal.audit.result import ASSUMED, NOT_CHECKED, Audit, Witness
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, each_entry
from shoal.core.walk import Coded, Walk, backward, by_value, forward

ROUNDING = 1e-12  # of one log-ratio, relative to its size and added to it


class Peak(NamedTuple):
    """The largest log-ratio under one model: the two facts, the output's place, the beliefs."""

    value: float
    facts: tuple[str, str]
    output: int
    before: tuple[float, float]
    after: tuple[float, float]


def tabulated_audit(plan: Plan, curve: bool) -> Audit:
    """The true loss of a table of laws, the largest over the family."""
    body, task = plan.body, plan.task
    assert isinstance(body, Tabulated)
    if not each_entry(task.secrets):
        raise Refused(
            f"the secrets are {task.secrets.describe()}; of a table of laws only what it tells of "
            "single entries is measured"
        )
    found = [_peak(body, model) for model in task.family]
    index = max(range(len(found)), key=lambda number: found[number].value)
    worst = found[index]
    slack = ROUNDING * (1.0 + abs(worst.value))
    lower, upper = max(worst.value - slack, 0.0), worst.value + slack
    return Audit(
        mechanism=plan.mechanism,
        asked=body.query.describe(),
        protected=task.secrets.describe(),
        notion=plan.guarantee.notion,
        promised=float(plan.guarantee.amount),
        claim=(lower, upper),
        lower=lower,
        upper=upper,
        entry_level=math.inf if body.eta is None else eta_above(body.eta),
        witness=_witness(body, task.family[index], index, worst) if worst.value > 0 else None,
        assumptions=ASSUMED,
        not_checked=NOT_CHECKED,
    )


def _peak(body: Tabulated, model: Model) -> Peak:
    walk = model.walk()
    if not isinstance(walk, str):
        return _walk_peak(body, walk)
    table: Any = model.written_out()
    if isinstance(table, str):
        raise Refused(f"the auditor has no way to measure a table of laws here: {table}")
    laws = {a: np.array(row) / sum(row) for a, row in zip(body.answers, body.weights, strict=True)}
    release = [
        laws[body.query.evaluate(body.query.read(list(outcome)))[0]]
        for outcome in product(*table.domains)
    ]
    shape = (*table.probability.shape, len(body.answers))
    return Peak(*finite_loss(table, np.array(release).reshape(shape), EachEntry()))


def _walk_peak(body: Tabulated, walk: Walk) -> Peak:
    """The same for a series, output by output."""
    query = linear(body.query)
    if query is None or walk.initial is None:
        raise Refused("the auditor follows sums over series with one initial law")
    weights = np.array([row[0] for row in query.multiples()], dtype=np.int64)
    coded = Coded(walk, weights - weights.min())
    nodes = body.entries - walk.order + 1
    pasts = list(islice(forward(coded, walk.initial), nodes))
    nothing = np.zeros(coded.width(nodes))
    before = _by_entry(coded, pasts, nothing, body.entries)
    best = Peak(0.0, ("", ""), 0, (0.0, 0.0), (0.0, 0.0))
    offset = int(weights.min()) * body.entries
    for place in range(len(body.answers)):
        told = np.full(len(nothing), -math.inf)
        for answer, row in zip(body.answers, body.weights, strict=True):
            told[answer - offset] = math.log(row[place] / sum(row)) if row[place] else -math.inf
        after = _by_entry(coded, pasts, told, body.entries)
        best = max(best, _steepest(walk, place, before, after), key=lambda peak: peak.value)
    return best


def _by_entry(coded: Coded, pasts: list[Floats], told: Floats, entries: int) -> Floats:
    """log P(X_e = x, output) for every entry and value; sums that cannot be are left at -inf."""
    walk = coded.walk
    futures = list(backward(coded, len(pasts), told))[::-1]
    states = [
        np.logaddexp.reduce(past + future, axis=1)
        for past, future in zip(pasts, futures, strict=True)
    ]
    rows = []
    for entry in range(entries):
        node, values = walk.place(entry)
        rows.append(by_value(states[node], values, len(walk.values)))
    return np.array(rows)


def _steepest(walk: Walk, place: int, before: Floats, after: Floats) -> Peak:
    best = Peak(-math.inf, ("", ""), place, (0.0, 0.0), (0.0, 0.0))
    whole = np.logaddexp.reduce(after, axis=1)
    for entry, (old, new) in enumerate(zip(before, after, strict=True)):
        for x, y in permutations(np.flatnonzero(old > -math.inf).tolist(), 2):
            if new[x] == -math.inf:
                continue
            gap = float((new[x] - old[x]) - (new[y] - old[y]))
            if gap > best.value:
                names = (f"X_{entry + 1} = {walk.values[x]}", f"X_{entry + 1} = {walk.values[y]}")
                beliefs = [math.exp(float(old[v])) for v in (x, y)]
                told = [math.exp(float(new[v] - whole[entry])) for v in (x, y)]
                best = Peak(gap, names, place, (beliefs[0], beliefs[1]), (told[0], told[1]))
    return best


def _witness(body: Tabulated, model: Model, index: int, peak: Peak) -> Witness:
    first, second = peak.facts
    return Witness(
        model=index,
        law=model.describe(),
        subject="the data",
        facts=(f"'{first}'", f"'{second}'"),
        labels=body.query.labels,
        output=(float(body.answers[peak.output] * body.query.lattice),),
        unit=body.query.unit,
        before=peak.before,
        after=peak.after,
        log_ratio=peak.value,
    )
