"""What noise on a sum over a chain tells about an event: the auditor's own count of all paths.

The joint law of the answer and of the automaton's last state is counted forward in logarithms,
without any conditioning on the way; the mechanism's own evaluation conditions every step instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.audit.case import (
    AuditCase,
    VectorPeak,
    plane_peak,
    plane_size,
    product_peak,
    product_size,
)
from shoal.audit.exact import least_upper
from shoal.audit.result import Finding, Witness
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import Refused
from shoal.core.walk import Walk
from shoal.events.automaton import Automaton, PathLaw, compile_events
from shoal.events.event import TimeEvent
from shoal.events.secrets import Events
from shoal.mechanisms.mixture import smooth_laws
from shoal.noise.laplace import is_zero_sum

MOST_LOG_ADDITIONS = 4e9  # additions of logarithms: about a minute
MOST_OUTPUTS_COMPARED = 20_000_000  # outputs that are compared
TOO_LONG = "the law of the answer given each event: the chain is too long to count its paths again"
STARTS_ONLY = "first laws other than certain ones and the uniform one; the upper bound covers all"


class _CountedSums(NamedTuple):
    """log P(answer, fact), (facts, answers), log P(answer), and what rounding may have moved."""

    answers: Ints
    joint: Floats
    anyway: Floats
    rounding: float


class EventBelief(NamedTuple):
    """What one output makes of an event: the belief in it before and after, the change of odds."""

    event: TimeEvent
    before: float
    after: float
    log_odds: float
    happened: bool | None


def event_beliefs(
    setting: AuditCase, output: Sequence[float], path: Sequence[int] | None = None
) -> list[EventBelief]:
    """The belief in each event before and after `output`, in the query's units, and the truth.

    The change of odds is that against what the event is hidden against. `path` is the data.
    """
    walk, automaton = _walk_and_automaton(setting)
    if walk.initial is None or _counting_work(setting, walk, automaton) > MOST_LOG_ADDITIONS:
        raise Refused("the belief in an event needs one law, of a chain that is short enough")
    counted = _count_sums(setting, walk, automaton, walk.initial)
    steps = np.asarray(output, dtype=np.float64) / float(setting.step)
    noise = -np.abs(counted.answers - steps).sum(axis=1) / setting.scale
    prior = np.logaddexp.reduce(counted.joint, axis=1)
    seen = np.logaddexp.reduce(counted.joint + noise, axis=1)
    whole = float(np.logaddexp.reduce(counted.anyway + noise))
    log_ratios = seen - prior
    held = None if path is None else automaton.holds(path)
    half = len(prior) // 2
    secrets = setting.secrets
    assert isinstance(secrets, Events)
    return [
        EventBelief(
            event,
            math.exp(prior[i]),
            math.exp(seen[i] - whole),
            float(log_ratios[i] - log_ratios[half + i]),
            None if held is None else bool(held[i]),
        )
        for i, (event, _) in enumerate(secrets.pairs)
    ]


def _walk_and_automaton(setting: AuditCase) -> tuple[Walk, Automaton]:
    """The chain as a walk, and the automaton of the events and of what each is hidden against."""
    secrets, walk = setting.secrets, setting.model.walk()
    assert isinstance(secrets, Events)
    if isinstance(walk, str) or walk.length is None:
        raise Refused("an event needs a chain of a given length")
    if setting.wide:
        raise Refused("the weights of the query span too many steps to add up answers one by one")
    path = PathLaw(walk.values, np.ones(1), walk.matrix, walk.length + walk.order - 1)
    events = (*(event for event, _ in secrets.pairs), *secrets.against())
    return walk, compile_events(events, path)


def event_finding(setting: AuditCase) -> Finding:
    """lower ≤ loss ≤ upper for every pair of events under one chain of a given length."""
    walk, automaton = _walk_and_automaton(setting)
    if _counting_work(setting, walk, automaton) > MOST_LOG_ADDITIONS:
        upper, notes = least_upper(setting)
        return Finding(lower=0.0, upper=upper, notes=(TOO_LONG, *notes))
    if walk.initial is not None:
        return _one_law(setting, walk, automaton, walk.initial)
    upper, notes = least_upper(setting)
    starts = [*np.eye(walk.size), np.full(walk.size, 1.0 / walk.size)]
    found = [_one_law(setting, walk, automaton, start) for start in starts]
    worst = max(found, key=lambda one: one.lower)
    return Finding(
        lower=worst.lower,
        upper=max(upper, worst.lower),
        witness=worst.witness,
        notes=(*notes, STARTS_ONLY),
    )


def _one_law(setting: AuditCase, walk: Walk, automaton: Automaton, initial: Floats) -> Finding:
    """Return the exact loss about the events under one initial law, with the worst output.

    Lower and upper bound differ by the rounding alone. Refused when there are too many outputs.
    """
    counted = _count_sums(setting, walk, automaton, initial)
    prior = np.logaddexp.reduce(counted.joint, axis=1)
    zero_sum = is_zero_sum(setting.noise)
    answers = counted.answers
    size = plane_size(answers) * len(answers) if zero_sum else product_size(answers)
    if size * len(prior) > MOST_OUTPUTS_COMPARED:
        raise Refused(
            f"the answers span {size} outputs, more than are tried; ask for fewer numbers"
        )
    safe = np.where(prior > -math.inf, prior, 0.0)[:, None]
    evaluate = plane_peak if zero_sum else product_peak
    peak = evaluate(answers, counted.joint - safe, 1 / setting.scale, _pairs(len(prior)))
    if peak.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    evidence = _worst_witness(setting, counted, prior, peak)
    slack = peak.slack + counted.rounding
    lower = max(evidence.log_ratio - slack, 0.0)
    return Finding(lower=lower, upper=max(peak.value + slack, lower), witness=evidence)


def _count_sums(
    setting: AuditCase, walk: Walk, automaton: Automaton, initial: Floats
) -> _CountedSums:
    """Forward on (state, automaton, answer), in logarithms; answers as rows of whole numbers."""
    with np.errstate(divide="ignore"):
        table = np.log(initial)[:, None, None]  # (states, automaton, answers)
    answers = np.zeros((1, setting.multiples.shape[1]), dtype=np.int64)
    assert walk.length is not None
    for node in range(walk.length):
        if node:
            table = _push_forward(table, walk.matrix(node - 1))
        for entry, shown in walk.entries_read_at(node):
            table, answers = _read_entry(
                table, answers, automaton.steps[entry], shown, setting.multiples
            )
    last = np.logaddexp.reduce(table, axis=0)  # (automaton, answers)
    joint = [
        np.logaddexp.reduce(last[accepted], axis=0, initial=-math.inf)
        for accepted in automaton.accept.T
    ]
    deepest = float(np.abs(table[np.isfinite(table)]).max(initial=0.0))
    sums = walk.length * (walk.size + max(automaton.sizes) + 4)
    anyway = np.logaddexp.reduce(last, axis=0)
    return _CountedSums(answers, np.array(joint), anyway, 2.0**-52 * sums * (1.0 + deepest))


def _push_forward(table: Floats, matrix: Floats) -> Floats:
    """One step of the chain."""
    found = np.full(table.shape, -math.inf)
    for x, y in np.argwhere(matrix > 0):
        found[y] = np.logaddexp(found[y], table[x] + math.log(matrix[x, y]))
    return found


def _read_entry(
    table: Floats, answers: Ints, step: Ints, shown: Ints, weights: Ints
) -> tuple[Floats, Ints]:
    """One entry taken in: the automaton moves, and the answer grows by the entry's weights."""
    grown = [answers + weights[value] for value in range(len(weights))]
    known, place = np.unique(np.concatenate(grown), axis=0, return_inverse=True)
    places = place.reshape(len(weights), len(answers))
    found = np.full((len(table), int(step.max()) + 1, len(known)), -math.inf)
    for state, value in enumerate(shown.tolist()):
        for q in range(table.shape[1]):
            into = found[state, step[q, value]]
            into[places[value]] = np.logaddexp(into[places[value]], table[state, q])
    return found, known


def _pairs(facts: int) -> Bools:
    """Which facts are compared: the first half are the events, the second what they are against."""
    half = facts // 2
    one = np.arange(facts)
    return np.asarray(np.abs(one[:, None] - one[None, :]) == half)


def _worst_witness(
    setting: AuditCase, counted: _CountedSums, prior: Floats, peak: VectorPeak
) -> Witness:
    """Return the output of largest log-ratio, with the beliefs in both events before and after
    it.
    """
    answers = counted.answers
    output = np.clip(peak.output, answers.min(axis=0), answers.max(axis=0))
    noise = -np.abs(answers - output).sum(axis=1) / setting.scale
    seen = np.logaddexp.reduce(counted.joint + noise, axis=1)
    whole = np.logaddexp.reduce(counted.anyway + noise)
    secrets = setting.secrets
    assert isinstance(secrets, Events)
    names = [*(event for event, _ in secrets.pairs), *secrets.against()]
    top, bottom = peak.pair
    return Witness(
        model=setting.index,
        law=setting.model.describe(),
        subject="the series",
        facts=(f"“{names[top].describe()}”", f"“{names[bottom].describe()}”"),
        labels=setting.query.labels,
        output=tuple(float(v) * float(setting.step) for v in peak.output),
        unit=setting.query.unit,
        before=(math.exp(prior[top]), math.exp(prior[bottom])),
        after=(math.exp(seen[top] - whole), math.exp(seen[bottom] - whole)),
        log_ratio=float((seen[top] - prior[top]) - (seen[bottom] - prior[bottom])),
        curve=_curve(setting, counted, prior, peak) if setting.curve else (),
    )


def _curve(
    setting: AuditCase, counted: _CountedSums, prior: Floats, peak: VectorPeak
) -> tuple[tuple[float, float, float], ...]:
    """(output, log density given the first fact, given the second), for one number."""
    if counted.answers.shape[1] > 1:
        return ()
    pair = list(peak.pair)
    values = counted.answers[:, 0].astype(np.float64)
    density = smooth_laws(
        counted.joint[pair] - prior[pair, None], values / setting.scale, logs=True
    )
    density += math.log(math.tanh(0.5 / setting.scale))  # the mass of one point of the lattice
    step = float(setting.step)
    return tuple(
        (float(v) * step, float(a), float(b))
        for v, a, b in zip(values, density[0], density[1], strict=True)
    )


def _counting_work(setting: AuditCase, walk: Walk, automaton: Automaton) -> float:
    """Additions of logarithms that counting takes, from above."""
    assert walk.length is not None
    entries = walk.length + walk.order - 1
    spans = [float(extent) * entries + 1.0 for extent in np.ptp(setting.multiples, axis=0)]
    steps = float((walk.matrix(0) > 0).sum())
    return walk.length * steps * max(automaton.sizes) * math.prod(spans) / 2.0
