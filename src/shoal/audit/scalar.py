"""The loss of noise on one number, summed over a chain: exact, or an interval when it is long."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from shoal.audit.beyond import beyond_finding
from shoal.audit.bounds import least_upper
from shoal.audit.corners import told_by_corners
from shoal.audit.evidence import Coded
from shoal.audit.laws import density_curve, laws_of_node
from shoal.audit.result import TOLERANCE, Finding
from shoal.audit.setting import CLOSE, Setting, coprime
from shoal.audit.suprema import NOTHING, product_peak
from shoal.audit.testimony import Belief, Sighting, beliefs, laplace_likelihood, witness
from shoal.audit.walk import Walk
from shoal.loss.sums import ChainSum, chain_sum
from shoal.loss.whole import WholeLoss, whole_loss, whole_work
from shoal.loss.window import SumLoss, sum_loss

GAIN = 1e-7  # windows grow until a larger one gains less; each gains thousands of times less
CUT_WORK = 3e7  # multiplications spent on the exact loss of a shorter chain
SHORT = 12  # entries of the short data that long chains are tried with as well
EVERY_LENGTH = 64  # chains up to this long are looked at in every length
COMPILED_FROM, COMPILED_TO = 2e6, 4e8  # multiplications for which compiled loops pay


def scalar_finding(setting: Setting, walk: Walk) -> Finding:
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
    found = _whole(coded, scale)
    notes: tuple[str, ...] = ()
    if found is not None:
        upper = found.value
        if setting.close(upper):  # other windows, other roundings
            upper = min(upper, _upper(setting, coded, scale).value)
        seen, belief = _confirmed(coded, scale, found)
    else:
        upper, notes, seen, belief = _bounded(setting, coded, scale)
    if belief is None or seen is None or belief.log_ratio <= 0:
        return Finding(lower=0.0, upper=max(upper, 0.0), notes=notes)
    told = witness(setting, seen._replace(output=seen.output * divisor), belief)
    if setting.curve:
        told = replace(told, curve=density_curve(setting, coded, seen, belief, scale))
    lower = belief.certain
    return Finding(lower=lower, upper=max(upper, lower), witness=told, notes=notes)


def _whole(coded: Coded, scale: float) -> WholeLoss | None:
    """The exact loss by compiled loops, where they apply and there is enough work for them."""
    task = _task(coded, shorter=not coded.walk.fixed)
    if not COMPILED_FROM <= whole_work(task) <= COMPILED_TO:
        return None
    return whole_loss(task, scale)


def _confirmed(
    coded: Coded, scale: float, found: WholeLoss
) -> tuple[Sighting | None, Belief | None]:
    """The output where the loss is reached, and what it tells, evaluated by itself."""
    nodes = found.node + found.after + 1
    seen = _sighting(coded, nodes, found.node, found.output, 1 / scale, found.pair)
    return seen, beliefs(seen)


def _bounded(
    setting: Setting, coded: Coded, scale: float
) -> tuple[float, tuple[str, ...], Sighting | None, Belief | None]:
    """An upper bound, what it leaves out, and the most telling output that was found."""
    found = _upper(setting, coded, scale)
    whole = found.window is None and math.isfinite(found.value)
    upper, notes = (found.value, ()) if whole else least_upper(setting, found.value)
    return upper, notes, *_seen(coded, scale, found, upper)


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


def _upper(setting: Setting, coded: Coded, scale: float) -> SumLoss:
    task = _task(coded, shorter=not coded.walk.fixed)
    found = sum_loss(task, scale, tolerance=GAIN)
    promised = setting.promised
    if promised is not None and promised < found.value <= CLOSE * promised:
        # the plan may have been calibrated on a larger window than the one the search stopped at
        again = sum_loss(task, scale, enough=promised)
        found = min(found, again, key=lambda loss: loss.value)
    return found


def _seen(
    coded: Coded, scale: float, found: SumLoss, upper: float
) -> tuple[Sighting | None, Belief | None]:
    """The most telling output that can be evaluated, and what it tells."""
    if found.value == 0:
        return None, None
    if found.window is None and found.node is not None:
        seen = _located(coded, scale, found.node, upper)
        belief = None if seen is None else beliefs(seen)
        if belief is not None and belief.log_ratio >= upper - TOLERANCE:
            return seen, belief
    weights = coded.code[:, None].astype(np.float64)
    both = np.array([[1.0], [-1.0]])
    best = told_by_corners(coded.walk, weights, 1 / scale, both, upper)
    for search in (_on_cut_chain, _on_short_data):
        if best is not None and best[1].log_ratio >= upper - TOLERANCE:
            break
        inside = search(coded, scale)
        told = None if inside is None else (inside, beliefs(inside))
        best = max(filter(None, (best, told)), key=lambda pair: pair[1].log_ratio, default=None)
    return best or (None, None)


def _located(coded: Coded, scale: float, node: int, upper: float) -> Sighting | None:
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
        if peak.value > -math.inf and peak.value >= best.value - TOLERANCE**2:
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
        if best >= upper - TOLERANCE:
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
    nodes = coded.walk.at_most(SHORT)
    found = [_worst_of_length(coded, scale, length) for length in range(1, nodes + 1)]
    return max(found, key=lambda pair: pair[0])[1]


def _sighting(
    coded: Coded,
    nodes: int,
    entry: int,
    output: int,
    decay: float,
    pair: tuple[int, int] | None,
) -> Sighting:
    width = coded.width(nodes)
    output = min(output, width - 1)  # beyond the answers nothing changes
    end = {0: -math.inf, width - 1: math.inf}.get(output, float(output))
    likelihood = laplace_likelihood(width, output, decay)
    return Sighting(coded, nodes, entry, likelihood, np.array([end]), pair)
