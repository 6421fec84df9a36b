"""The law of an answer given each value of an entry, on short chains: every length at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.audit.case import (
    NOTHING,
    WORTH_A_LOOK,
    AuditCase,
    LearnedPair,
    Sighting,
    VectorPeak,
    beliefs,
    coprime,
    laplace_likelihood,
    plane_peak,
    plane_size,
    product_peak,
    witness,
)
from shoal.audit.exact import least_upper
from shoal.audit.result import LOSS_TOLERANCE, Finding
from shoal.chains.audit.events import event_finding
from shoal.chains.audit.extreme_outputs import beyond_finding, largest_corner_loss
from shoal.chains.exact.sums import ChainSum, chain_sum
from shoal.chains.exact.whole import WholeLoss, whole_loss, whole_work
from shoal.chains.exact.windows import SumLoss, sum_loss
from shoal.core.codec import Floats, Ints
from shoal.core.errors import Refused
from shoal.core.progress import in_time, time_over
from shoal.core.task import as_events
from shoal.core.walk import Coded, Walk, by_value, forward, push_step
from shoal.mechanisms.mixture import smooth_laws
from shoal.noise.laplace import is_zero_sum

CURVE_POINTS = 161  # of a curve


class EntryLaws(NamedTuple):
    """log P(code | value of one entry), (values, codes), for data of `nodes` nodes."""

    nodes: int
    entry: int
    prior: Floats
    laws: Floats


def entry_laws(coded: Coded, initial: Floats, nodes: int) -> Iterator[EntryLaws]:
    """The laws of every entry, for data of every length up to `nodes` nodes.

    From node i on, the table keeps the value of the entry apart: P(value, X_t = y, code), so one
    pass per entry ends in a law at every later length. Costs nodes²/2 · states² · values · codes.
    """
    tables = forward(coded, initial)
    for node in range(nodes):
        before = next(tables)
        for entry, shown in coded.walk.entries_read_at(node):
            yield from _onward(coded, before, node, entry, shown, nodes)


def laws_of_node(coded: Coded, initial: Floats, node: int, nodes: int) -> Iterator[EntryLaws]:
    """The laws of the entries one node brings, for data of every length up to `nodes` nodes."""
    tables = forward(coded, initial)
    for _ in range(node):
        next(tables)
    before = next(tables)
    for entry, shown in coded.walk.entries_read_at(node):
        yield from _onward(coded, before, node, entry, shown, nodes)


def density_curve(
    setting: AuditCase, coded: Coded, seen: Sighting, belief: LearnedPair, scale: float
) -> tuple[tuple[float, float, float], ...]:
    """(output, log density given the first value, given the second) at up to 161 answers."""
    node, _ = coded.walk.place(seen.entry)
    found = next(
        law
        for law in laws_of_node(coded, belief.initial, node, seen.nodes)
        if law.entry == seen.entry and law.nodes == seen.nodes
    )
    width = found.laws.shape[1]
    density = smooth_laws(found.laws[list(belief.pair)], np.arange(width) / scale, logs=True)
    density += math.log(math.tanh(0.5 / scale))  # the mass of one point of the lattice of codes
    chosen = np.unique(np.linspace(0, width - 1, min(width, CURVE_POINTS)).round().astype(int))
    entries = seen.nodes + coded.walk.order - 1
    unit = _unit(setting, coded)
    return tuple(
        (
            setting.output(np.array([c * unit]), entries)[0],
            float(density[0, c]),
            float(density[1, c]),
        )
        for c in chosen.tolist()
    )


def _unit(setting: AuditCase, coded: Coded) -> int:
    """Lattice steps per code."""
    spread = int(np.ptp(setting.multiples[:, 0]))
    return spread // int(coded.code.max()) if coded.code.max() else 1


def _onward(
    coded: Coded, before: Floats, node: int, entry: int, shown: Ints, nodes: int
) -> Iterator[EntryLaws]:
    """Yield the laws of the sum given an entry, for data that ends at `node`, `node` + 1, ….

    `before` holds log P(state, code) at `node`, and `shown` the value of the entry for each state
    there. The yielded laws are logarithms, (values, codes); impossible values keep -inf.
    """
    count = len(coded.walk.values)
    prior = by_value(np.logaddexp.reduce(before, axis=1), shown, count)
    held = np.full((coded.walk.size, count, before.shape[1]), -math.inf)
    held[np.arange(coded.walk.size), shown] = before
    safe = np.where(prior > -math.inf, prior, 0.0)[:, None]
    for last in range(node, nodes):
        if last > node:
            held = push_step(held, coded.walk.matrix(last - 1))
        held = _add_codes(held, coded.codes(last))
        yield EntryLaws(last + 1, entry, prior, np.logaddexp.reduce(held, axis=0) - safe)


def _add_codes(held: Floats, codes: Ints) -> Floats:
    """Each state's own code added, (states, values, codes)."""
    width = held.shape[-1]
    out = np.full((*held.shape[:-1], width + int(codes.max())), -math.inf)
    for state, code in enumerate(codes.tolist()):
        out[state, :, code : code + width] = held[state]
    return out


# The loss of noise on one number, summed over a chain: exact, or an interval when it is long.


GAIN = 1e-7  # windows grow until a larger one gains less; each gains thousands of times less
CUT_WORK = 3e7  # multiplications spent on the exact loss of a shorter chain
SHORT_DATA = 12  # entries of the short data that long chains are tried with as well
EVERY_LENGTH = 64  # chains up to this long are looked at in every length
COMPILED_FROM, COMPILED_TO = 2e6, 4e8  # multiplications for which compiled loops pay


def scalar_finding(setting: AuditCase, walk: Walk) -> Finding:
    """lower ≤ loss ≤ upper for a query of one number under one chain.

    The upper bound is `sum_loss` (exact for the whole chain, a window for long ones), or a bound
    for any entry-level release when that is smaller. The lower bound is the change of the odds at
    one output, evaluated by itself: where the upper bound is reached if that is known, else on the
    chain cut short (a law the model covers too) and at the outputs beyond all answers.
    """
    if setting.wide:
        return beyond_finding(setting, walk)
    code, divisor = coprime(setting.multiples[:, 0])
    coded, scale = Coded(walk, code), setting.scale / divisor
    found = _compiled_loss(coded, scale)
    notes: tuple[str, ...] = ()
    if found is not None:
        upper = found.value
        if setting.close(upper):  # other windows, other roundings
            upper = min(upper, _upper(setting, coded, scale).value)
        seen, belief = _confirm_output(coded, scale, found)
    else:
        upper, notes, seen, belief = _bounded_loss(setting, coded, scale)
    if belief is None or seen is None or belief.log_ratio <= 0:
        return Finding(lower=0.0, upper=max(upper, 0.0), notes=notes)
    evidence = witness(setting, seen._replace(output=seen.output * divisor), belief)
    if setting.curve:
        evidence = replace(evidence, curve=density_curve(setting, coded, seen, belief, scale))
    lower = belief.certain
    return Finding(lower=lower, upper=max(upper, lower), witness=evidence, notes=notes)


def _compiled_loss(coded: Coded, scale: float) -> WholeLoss | None:
    """The exact loss by compiled loops, where they apply and there is enough work for them."""
    task = _task(coded, shorter=not coded.walk.fixed)
    if not COMPILED_FROM <= whole_work(task) <= COMPILED_TO:
        return None
    return whole_loss(task, scale)


def _confirm_output(
    coded: Coded, scale: float, found: WholeLoss
) -> tuple[Sighting | None, LearnedPair | None]:
    """The output where the loss is reached, and what it tells, evaluated by itself."""
    nodes = found.node + found.after + 1
    seen = _sighting(coded, nodes, found.node, found.output, 1 / scale, found.pair)
    return seen, beliefs(seen)


def _bounded_loss(
    setting: AuditCase, coded: Coded, scale: float
) -> tuple[float, tuple[str, ...], Sighting | None, LearnedPair | None]:
    """An upper bound, what it leaves out, and the most telling output that was found."""
    found = _upper(setting, coded, scale)
    whole = found.window is None and math.isfinite(found.value)
    upper, notes = (found.value, ()) if whole else least_upper(setting, found.value)
    return upper, notes, *_worst_output(coded, scale, found, upper)


def _task(coded: Coded, *, shorter: bool) -> ChainSum:
    """The sum of the codes, as the loss functions take it."""
    walk = coded.walk
    return chain_sum(
        walk.initial,
        walk.matrices[0] if walk.homogeneous else walk.matrices,
        coded.codes(1),
        walk.length,
        label=walk.shown,
        first_weights=coded.codes(0),
        first_labels=walk.first[:-1],
        shorter=shorter,
    )


def _upper(setting: AuditCase, coded: Coded, scale: float) -> SumLoss:
    """Return an upper bound of the loss over all lengths; rounds up.

    Where it lies only a little above the promise, a window that may prove the promise is tried.
    """
    task = _task(coded, shorter=not coded.walk.fixed)
    found = sum_loss(task, scale, tolerance=GAIN)
    promised = setting.promised
    if promised is not None and promised < found.value <= WORTH_A_LOOK * promised:
        # the plan may have been calibrated on a larger window than the one the search stopped at
        again = sum_loss(task, scale, enough=promised)
        found = min(found, again, key=lambda loss: loss.value)
    return found


def _worst_output(
    coded: Coded, scale: float, found: SumLoss, upper: float
) -> tuple[Sighting | None, LearnedPair | None]:
    """The most telling output that can be evaluated, and what it tells."""
    if found.value == 0:
        return None, None
    if found.window is None and found.node is not None:
        seen = _worst_output_at(coded, scale, found.node, upper)
        belief = None if seen is None else beliefs(seen)
        if belief is not None and belief.log_ratio >= upper * (1 - LOSS_TOLERANCE):
            return seen, belief
    weights = coded.code[:, None].astype(np.float64)
    both = np.array([[1.0], [-1.0]])
    best = largest_corner_loss(coded.walk, weights, 1 / scale, both, upper)
    for search in (_on_cut_chain, _on_short_data):
        if best is not None and best[1].log_ratio >= upper * (1 - LOSS_TOLERANCE):
            break
        inside = search(coded, scale)
        candidate = None if inside is None else (inside, beliefs(inside))
        best = max(
            filter(None, (best, candidate)), key=lambda pair: pair[1].log_ratio, default=None
        )
    return best or (None, None)


def _worst_output_at(coded: Coded, scale: float, node: int, upper: float) -> Sighting | None:
    """The output where the loss of the whole chain is reached, at full length or a shorter one."""
    walk = coded.walk
    assert walk.length is not None
    if walk.initial is None:
        return _worst_of_some_length(coded, scale, upper)
    best, where = NOTHING, None
    for law in laws_of_node(coded, walk.initial, node, walk.length):
        if not walk.covers(law.nodes):
            continue
        width = law.laws.shape[1]
        possible = np.where((law.prior > -math.inf)[:, None], law.laws, -math.inf)
        peak = product_peak(np.arange(width)[:, None], possible, 1 / scale)
        # the longest data comes last: prefer it among equals, it is the usual case
        if peak.value > -math.inf and peak.value >= best.value * (1 - LOSS_TOLERANCE**2):
            best, where = peak, law
    if where is None:
        return None
    last = coded.width(where.nodes) - 1
    place = int(np.clip(best.output[0], 0, last))
    return _sighting(coded, where.nodes, where.entry, place, 1 / scale, best.pair)


def _worst_of_some_length(coded: Coded, scale: float, upper: float) -> Sighting | None:
    """The worst output at full length, or at the longest shorter one that reaches `upper`."""
    longest = coded.walk.length
    assert longest is not None
    shortest = 1 if longest <= EVERY_LENGTH else longest
    best, where = -math.inf, None
    for nodes in range(longest, shortest - 1, -1):
        value, seen = _worst_of_length(coded, scale, nodes)
        if value > best:
            best, where = value, seen
        if best >= upper * (1 - LOSS_TOLERANCE) or time_over():
            break
    return where


def _worst_of_length(coded: Coded, scale: float, nodes: int) -> tuple[float, Sighting | None]:
    """The worst output of data of `nodes` nodes, when the whole chain can be taken."""
    cut = coded.walk.cut(nodes)
    found = sum_loss(_task(Coded(cut, coded.code), shorter=False), scale)
    if found.node is None or found.output is None:
        return -math.inf, None
    entry = 0 if found.node == 0 else found.node + cut.order - 1
    seen = _sighting(coded, nodes, entry, round(found.output), 1 / scale, found.pair)
    return found.value, seen


def _on_cut_chain(coded: Coded, scale: float) -> Sighting | None:
    """The worst output of the chain cut to a length whose exact loss is affordable."""
    reach = int(max(coded.codes(0).max(), coded.codes(1).max()))
    starts = coded.walk.size if coded.walk.initial is None else 1
    longest = round((2 * CUT_WORK / (starts * coded.walk.size * reach**2)) ** (1 / 3))
    nodes = coded.walk.at_most(max(longest, 2))
    return _worst_of_length(coded, scale, nodes)[1]


def _on_short_data(coded: Coded, scale: float) -> Sighting | None:
    """The worst output of data of few entries, of every length: ends tell more than the middle."""
    if coded.walk.fixed:
        return None
    nodes = coded.walk.at_most(SHORT_DATA)
    found = [_worst_of_length(coded, scale, 1)]
    for length in range(2, nodes + 1):
        if time_over():
            break
        found.append(_worst_of_length(coded, scale, length))
    return max(found, key=lambda pair: pair[0])[1]


def _sighting(
    coded: Coded,
    nodes: int,
    entry: int,
    output: int,
    decay: float,
    pair: tuple[int, int] | None,
) -> Sighting:
    """Return the sighting of one output, given as a code, in data of so many nodes.

    The first and the last code stand for -inf and inf: beyond the answers nothing changes.
    """
    width = coded.width(nodes)
    output = min(output, width - 1)  # beyond the answers nothing changes
    end = {0: -math.inf, width - 1: math.inf}.get(output, float(output))
    likelihood = laplace_likelihood(width, output, decay)
    return Sighting(coded, nodes, entry, likelihood, np.array([end]), pair)


# The loss of noise on several numbers summed over a chain, such as a histogram.


MOST_VECTOR_WORK = 4e6  # points × laws evaluated for the exact loss of a vector


class Radix(NamedTuple):
    """A vector of sums as one whole number: digit j counts label j, in lattice steps."""

    weights: Ints
    strides: Ints

    @property
    def code(self) -> Ints:
        return np.asarray(self.weights @ self.strides)

    def answers(self, codes: Ints) -> Ints:
        """The vectors behind the codes, (codes, labels)."""
        digits = []
        for stride in self.strides[::-1].tolist():
            digits.append(codes // stride)
            codes = codes % stride
        return np.stack(digits[::-1], axis=1)


def vector_finding(setting: AuditCase, walk: Walk) -> Finding:
    """lower ≤ loss ≤ upper for a query of several numbers under one chain.

    Short chains: the joint law of the answer given each value of each entry, for every length, and
    the exact supremum over outputs. Otherwise the lower bound is the most telling output beyond
    all answers, and the upper bound one that holds for every entry-level release.
    """
    if (
        walk.initial is not None
        and not setting.wide
        and _sum_work(setting, walk) <= MOST_VECTOR_WORK
    ):
        return _exact(setting, walk)
    return beyond_finding(setting, walk)


def radix(setting: AuditCase, nodes: int, order: int) -> Radix:
    """Digits wide enough for data of `nodes` nodes."""
    weights = setting.multiples - setting.multiples.min(axis=0)
    widths = weights.max(axis=0) * (nodes + order - 1) + 1
    strides = np.concatenate([[1], np.cumprod(widths)[:-1]])
    return Radix(weights, strides.astype(np.int64))


def _sum_work(setting: AuditCase, walk: Walk) -> float:
    """Points × laws × pairs of (entry, length); inf for any length."""
    if walk.length is None:
        return math.inf
    entries = walk.length + walk.order - 1
    weights = setting.multiples - setting.multiples.min(axis=0)
    sums = [float(w) * entries + 1 for w in weights.max(axis=0)]
    points = math.prod(sums)
    if is_zero_sum(setting.noise):
        corners = np.unique(weights, axis=0) * entries
        points = float(plane_size(corners)) * math.prod(sums[:-1])
    return points * len(walk.values) * walk.size * walk.length**2 / 2


def _exact(setting: AuditCase, walk: Walk) -> Finding:
    """Return the exact loss of several sums of a chain of known length, with the worst output."""
    assert walk.initial is not None
    assert walk.length is not None
    digits = radix(setting, walk.length, walk.order)
    coded = Coded(walk, digits.code)
    best, where = NOTHING, None
    for law in entry_laws(coded, walk.initial, walk.length):
        in_time("the audit")
        peak = _peak(setting, digits, law) if walk.covers(law.nodes) else NOTHING
        if peak.value > best.value:
            best, where = peak, law
    if where is None or best.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    seen = _sighting_of_vector(setting, digits, coded, best, where)
    belief = beliefs(seen)
    evidence = witness(setting, seen, belief)
    upper = max(best.value + best.slack, belief.certain)
    return Finding(lower=belief.certain, upper=upper, witness=evidence)


def _peak(setting: AuditCase, digits: Radix, law: EntryLaws) -> VectorPeak:
    support: Ints = np.flatnonzero((law.laws > -math.inf).any(axis=0))
    answers = digits.answers(support)
    chosen = np.where((law.prior > -math.inf)[:, None], law.laws[:, support], -math.inf)
    evaluate = plane_peak if is_zero_sum(setting.noise) else product_peak
    return evaluate(answers, chosen, 1 / setting.scale)


def _sighting_of_vector(
    setting: AuditCase, digits: Radix, coded: Coded, peak: VectorPeak, law: EntryLaws
) -> Sighting:
    """The peak's output with its likelihood for every code."""
    answers = digits.answers(np.arange(coded.width(law.nodes)))
    finite = np.where(
        np.isposinf(peak.output),
        answers.max(axis=0),
        np.where(np.isneginf(peak.output), 0.0, peak.output),
    )
    likelihood = -np.abs(answers - finite).sum(axis=1) / setting.scale
    return Sighting(coded, law.nodes, law.entry, likelihood, peak.output, peak.pair)


# The loss of additive noise under one Markov chain, of any order.


def chain_finding(setting: AuditCase) -> Finding:
    """lower ≤ loss ≤ upper under one chain, for every length that it and the query admit."""
    events = as_events(setting.secrets)
    if events is not None:
        return event_finding(replace(setting, secrets=events))
    path = setting.model.walk()
    if isinstance(path, str):
        raise Refused(path)
    measure = scalar_finding if len(setting.query.labels) == 1 else vector_finding
    return measure(setting, path.cut_to_length(setting.query))


# Families that are not one law: members whose loss can be evaluated, as a lower bound.


MEMBERS_ONLY = (
    "members of this family other than the ones tried; the upper bound covers them all, the lower "
    "one does not"
)


def family_finding(setting: AuditCase) -> Finding:
    """The largest loss of the members tried, and a bound that covers the whole family."""
    upper, own = least_upper(setting)
    found = [
        chain_finding(replace(setting, model=member))
        for member in setting.model.members(setting.query.states)
    ]
    worst = max(found, key=lambda finding: finding.lower)
    return replace(worst, upper=max(upper, worst.lower), notes=(*worst.notes, *own, MEMBERS_ONLY))
