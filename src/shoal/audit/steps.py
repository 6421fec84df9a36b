"""What noise in steps tells: the answer's law given each value of an entry, and every output.

By another method than the mechanism: series are followed forwards and backwards in logarithms, one
answer at a time, named variables outcome by outcome, each answer asked of the query itself. Series
longer than those followed are bounded by what the plan's own row and the lift say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, product
from typing import Any, NamedTuple

import numpy as np

from shoal.audit.case import FiniteLoss
from shoal.audit.exact import VOUCHED, entry_bound, peaks_audit, rounding
from shoal.audit.result import Audit
from shoal.core.codec import Floats, Ints
from shoal.core.errors import PromiseBroken, Refused, ShoalError
from shoal.core.plan import Plan
from shoal.core.task import Model, each_entry
from shoal.core.walk import Coded, Walk, backward, by_value, forward
from shoal.mechanisms.plans import eta_above
from shoal.mechanisms.queries import linear
from shoal.mechanisms.steps import Stepped
from shoal.mechanisms.table import MECHANISMS, loss_as_drawn

EVERY_LENGTH, LONGEST = 10, 40  # series followed at every length up to one, and once at the other
MOST_ANSWERS, MOST_OUTCOMES = 600, 2**14  # of a series, and of a table, that are gone through


class AnswerJoint(NamedTuple):
    """log P(entry = value, answer), (entries, values, answers), of one law; -inf: impossible."""

    joint: Floats
    answers: Ints
    names: tuple[tuple[str, ...], ...]  # of the values of each entry, as facts


def stepped_audit(plan: Plan, curve: bool) -> Audit:
    """The true loss of noise in steps under each model, or an interval for it."""
    body, task = plan.body, plan.task
    assert isinstance(body, Stepped)
    if not each_entry(task.secrets):
        raise Refused(
            f"the secrets are {task.secrets.describe()}; of noise in steps only what it tells of "
            "single entries is measured"
        )
    peaks, uppers, notes = [], [], []
    for model in task.family:
        laws, whole = _answer_laws(body, model)
        peak = max(
            (_peak(body, law) for law in laws), default=FiniteLoss(0.0), key=lambda p: p.value
        )
        upper = peak.value + rounding(peak)
        if not whole or any(_sparse(body, law.answers) for law in laws):
            own = _own_bound(plan)
            upper = min(own, entry_bound(model, None, body.eta))
            notes += [VOUCHED] if upper == own else []
        peaks.append(peak)
        uppers.append(max(upper, peak.value))
    return peaks_audit(plan, peaks, uppers, eta_above(body.eta), notes)


def _own_bound(plan: Plan) -> float:
    """Return the loss the plan's own mechanism measures; inf where it gives no bound."""
    if plan.mechanism not in MECHANISMS or not plan.guarantee.proved:
        return math.inf
    try:
        return loss_as_drawn(plan)
    except PromiseBroken:
        return math.inf


def _answer_laws(body: Stepped, model: Model) -> tuple[list[AnswerJoint], bool]:
    """Laws of the answer under `model`, and whether they are all there are."""
    walk = model.walk()
    if isinstance(walk, str):
        found = _table_law(body, model)
        return ([], False) if found is None else ([found], True)
    query = linear(body.query)
    if query is None:
        return [], False
    weights = np.array([row[0] for row in query.multiples()], dtype=np.int64)
    starts = [walk] if walk.initial is not None else [walk.starting(s) for s in np.eye(walk.size)]
    lengths, whole = _lengths(walk, int(np.ptp(weights)))
    laws = [_walk_law(start, weights, nodes) for start in starts for nodes in lengths]
    return laws, whole and walk.initial is not None


def _lengths(walk: Walk, reach: int) -> tuple[list[int], bool]:
    """Numbers of nodes to follow, and whether the walk covers no other."""
    most = min(LONGEST, MOST_ANSWERS // max(reach, 1))
    if walk.fixed:
        assert walk.length is not None
        return ([walk.length], True) if walk.length <= most else ([], False)
    longest = most if walk.length is None else min(walk.length, most)
    lengths = sorted({*range(1, min(longest, EVERY_LENGTH) + 1), longest} - {0})
    return lengths, walk.length == len(lengths)


def _walk_law(walk: Walk, weights: Ints, nodes: int) -> AnswerJoint:
    """The joint law of every entry and the sum of a series, by following it to each sum in turn."""
    assert walk.initial is not None
    coded = Coded(walk, weights - weights.min())
    entries = nodes + walk.order - 1
    pasts = list(islice(forward(coded, walk.initial), nodes))
    columns = []
    for code in range(coded.width(nodes)):
        log_likelihood = np.full(coded.width(nodes), -math.inf)
        log_likelihood[code] = 0.0
        futures = list(backward(coded, nodes, log_likelihood))[::-1]
        with np.errstate(invalid="ignore"):
            states = [
                np.logaddexp.reduce(past + future, axis=1)
                for past, future in zip(pasts, futures, strict=True)
            ]
        places = [walk.place(entry) for entry in range(entries)]
        columns.append([by_value(states[n], shown, len(walk.values)) for n, shown in places])
    joint = np.moveaxis(np.array(columns), 0, -1)
    names = tuple(tuple(f"X_{e + 1} = {x}" for x in walk.values) for e in range(entries))
    answers = np.arange(joint.shape[-1]) + int(weights.min()) * entries
    return AnswerJoint(joint, answers, names)


def _table_law(body: Stepped, model: Any) -> AnswerJoint | None:
    """The same for named variables, outcome by outcome; None where it is not written out."""
    domains = getattr(model, "domains", None)
    if domains is None or math.prod(map(len, domains)) > MOST_OUTCOMES:
        return None
    table = model.written_out()
    if isinstance(table, str):
        return None
    query, size = body.query, max(map(len, domains))
    try:
        answers_of_rows = [
            query.evaluate(query.read(list(each)))[0] for each in product(*table.domains)
        ]
    except ShoalError:
        return None
    answers, place = np.unique(np.array(answers_of_rows, dtype=np.int64), return_inverse=True)
    joint = np.zeros((len(domains), size, len(answers)))
    for entry in range(len(domains)):
        shown = np.indices(table.probability.shape)[entry].ravel()
        np.add.at(joint[entry], (shown, place.ravel()), table.probability.ravel())
    names = tuple(
        tuple(f"{name} = {x}" for x in domain)
        for name, domain in zip(table.variables, table.domains, strict=True)
    )
    with np.errstate(divide="ignore"):
        return AnswerJoint(np.log(joint), answers, names)


def _peak(body: Stepped, law: AnswerJoint) -> FiniteLoss:
    """The output that tells most of an entry under one law."""
    prior = np.logaddexp.reduce(law.joint, axis=-1)
    best = FiniteLoss(0.0)
    for output in _outputs_to_try(body, law.answers):
        far = np.abs(law.answers - output)
        log_noise = -float(body.fall) * np.array([(int(k) + body.lead) // body.width for k in far])
        seen = np.logaddexp.reduce(law.joint + log_noise, axis=-1)
        for entry, (old, new) in enumerate(zip(prior, seen, strict=True)):
            held = np.flatnonzero(old > -math.inf)
            gaps = new[held] - old[held]
            if len(held) < 2 or gaps.max() - gaps.min() <= best.value:
                continue
            pair = int(held[np.argmax(gaps)]), int(held[np.argmin(gaps)])
            total = [np.logaddexp.reduce(row[held]) for row in (old, new)]
            before, after = (
                tuple(math.exp(float(row[x] - whole)) for x in pair)
                for row, whole in zip((old, new), total, strict=True)
            )
            facts = (law.names[entry][pair[0]], law.names[entry][pair[1]])
            gap = float(gaps.max() - gaps.min())
            best = FiniteLoss(gap, facts, output, (before[0], before[1]), (after[0], after[1]))
    return best


def _outputs_to_try(body: Stepped, answers: Ints) -> Iterator[int]:
    """From two widths before the least answer to two after the largest.

    Where answers are far apart, only outputs near one at which its weight changes: a lower bound.
    """
    if not _sparse(body, answers):
        yield from range(answers[0] - 2 * body.width, answers[-1] + 2 * body.width + 1)
        return
    near = {
        int(c) + sign * (block * body.width - body.lead + more)
        for c, sign, block, more in product(answers, (-1, 1), range(3), (-1, 0, 1))
    }
    yield from sorted(near)


def _sparse(body: Stepped, answers: Ints) -> bool:
    """Whether answers are too far apart for every output to be looked at."""
    return int(answers[-1] - answers[0]) + 4 * body.width > 4 * MOST_ANSWERS
