"""Outputs beyond all answers: what they tell costs nothing to compute, however long the chain.

Where coordinate j of the output lies above (sign +1) or below (-1) every answer, Laplace noise of
scale s has density ∝ Π_t exp(Σ_j sign_j w_j(X_t) / s): a factor per entry, so an ordinary forward
and backward pass gives what the output says about every entry at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np

from shoal.audit.case import AuditCase, LearnedPair, Sighting, beliefs, witness
from shoal.audit.exact import least_upper
from shoal.audit.result import LOSS_TOLERANCE, Finding
from shoal.core.codec import Floats
from shoal.core.walk import Coded, Walk, by_value, push_step
from shoal.noise.laplace import is_zero_sum

LENGTHS = (1024, 4096, 16_384)  # nodes followed; a longer chain is cut, which the model covers too
MAY_UNDERFLOW = 1e-290  # products below this may have lost digits, or everything
MOST_SUMS = 1e8  # sums of two logarithms that are affordable
MOST_SIGNS = 256  # patterns of signs tried at once


class Corner(NamedTuple):
    """The most telling corner: what it tells, which signs, which entry, which pair of values."""

    log_ratio: float
    signs: Floats
    nodes: int
    entry: int
    pair: tuple[int, int]


def sign_patterns(labels: int, *, zero_sum: bool) -> Floats:
    """All signs of few coordinates; of many, one up and one down, and all others either way.

    Noise that keeps the total has no corner with all signs equal.
    """
    if 2**labels <= MOST_SIGNS:
        rows = [np.array(signs, dtype=np.float64) for signs in product((1, -1), repeat=labels)]
    else:
        eye = 2 * np.eye(labels) - 1
        rows = [*eye, *-eye]
    if zero_sum:
        rows = [row for row in rows if abs(row.sum()) < labels]
    return np.array(rows)


def largest_corner_loss(
    walk: Walk, weights: Floats, decay: float, signs: Floats, upper: float
) -> tuple[Sighting, LearnedPair] | None:
    """The most telling corner and what it tells, evaluated from scratch; None when there is none.

    `weights` (values, labels) in lattice steps, decay = step / scale. Longer data is tried only
    while less than `upper` is reached: on a slow chain distant entries matter.
    """
    best: tuple[Sighting, LearnedPair] | None = None
    lengths = dict.fromkeys(walk.at_most(longest) for longest in LENGTHS)
    for place, nodes in enumerate(lengths):
        if place and nodes * walk.size**2 * len(signs) > MOST_SUMS:
            break
        seen = _sighting(walk, weights, decay, signs, nodes)
        if seen is not None:
            learned = beliefs(seen)
            if best is None or learned.certain > best[1].certain:
                best = seen, learned
        if best is not None and best[1].log_ratio >= upper * (1 - LOSS_TOLERANCE):
            break
    return best


def worst_corner(
    walk: Walk, weights: Floats, decay: float, signs: Floats, nodes: int
) -> Corner | None:
    """The largest log-ratio over corners, entries and pairs of values; None when there is none.

    Only walks with one initial law; every initial law is tried from each first state.
    """
    starts = np.eye(walk.size) if walk.initial is None else walk.initial[None]
    best: Corner | None = None
    for start in starts:
        log_ratios = _all_log_ratios(walk, start, nodes, decay * weights @ signs.T)
        for entry, table in log_ratios:
            place = np.unravel_index(int(np.argmax(table)), table.shape)
            value = float(table[place])
            if value > (0.0 if best is None else best.log_ratio):
                pattern, top, bottom = (int(i) for i in place)
                best = Corner(value, signs[pattern], nodes, entry, (top, bottom))
    return best


def _sighting(
    walk: Walk, weights: Floats, decay: float, signs: Floats, nodes: int
) -> Sighting | None:
    """The most telling corner, ready to be evaluated."""
    found = worst_corner(walk, weights, decay, signs, nodes)
    if found is None:
        return None
    nothing = np.zeros(len(walk.values), np.int64)
    coded = Coded(walk, nothing, decay * (weights - weights.min(axis=0)) @ found.signs)
    output = math.inf * found.signs
    return Sighting(coded, found.nodes, found.entry, np.zeros(1), output, found.pair)


def _all_log_ratios(
    walk: Walk, start: Floats, nodes: int, tilt: Floats
) -> Iterator[tuple[int, Floats]]:
    """Per entry, log P(corner | value) - log P(corner | value'): (patterns, values, values).

    `tilt` (values, patterns) is the log of what an entry multiplies the density by.
    """
    forward, backward, plain = _messages(walk, start, nodes, tilt)
    for entry in range(nodes + walk.order - 1):
        node, shown = walk.place(entry)
        own = _node_tilt(walk, node, tilt).T
        count = len(walk.values)
        joint = by_value(forward[node] + backward[node] + own, shown, count)
        prior = by_value(plain[node][None], shown, count)
        with np.errstate(invalid="ignore"):
            given = joint - prior
            table = given[:, :, None] - given[:, None, :]
        yield entry, np.where(np.isfinite(table), table, -math.inf)


def _messages(
    walk: Walk, start: Floats, nodes: int, tilt: Floats
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """Forward and backward messages (patterns, states) of every node and the prior laws, in logs.

    Neither holds the node's own factor. By products of doubles; by sums of logarithms where those
    leave the range of doubles and it is affordable. What underflow loses is a sighting, and never
    one invented: ratios with a zero are dropped.
    """
    forward, backward, plain = _products(walk, start, nodes, tilt)
    lost = any(
        (f < MAY_UNDERFLOW)[:, p > 0].any() for f, p in zip(forward, plain, strict=True)
    ) or any((b < MAY_UNDERFLOW).any() for b in backward)
    with np.errstate(divide="ignore"):
        priors = [np.log(law) for law in plain]
        if not lost or nodes * walk.size**2 * tilt.shape[1] > MOST_SUMS:
            return [np.log(f) for f in forward], [np.log(b) for b in backward], priors
    return *_sums(walk, start, nodes, tilt), priors


def _products(
    walk: Walk, start: Floats, nodes: int, tilt: Floats
) -> tuple[list[Floats], list[Floats], list[Floats]]:
    """The messages as they are, each scaled to a largest value of 1."""
    patterns = tilt.shape[1]
    forward, plain = [np.tile(start, (patterns, 1))], [start]
    for node in range(nodes - 1):
        step = walk.matrix(node)
        forward.append(_scale_rows(forward[-1] * np.exp(_node_tilt(walk, node, tilt)).T @ step))
        plain.append(plain[-1] @ step)
    backward = [np.ones((patterns, walk.size))]
    for node in range(nodes - 1, 0, -1):
        own = np.exp(_node_tilt(walk, node, tilt)).T
        backward.append(_scale_rows((backward[-1] * own) @ walk.matrix(node - 1).T))
    return forward, backward[::-1], plain


def _sums(walk: Walk, start: Floats, nodes: int, tilt: Floats) -> tuple[list[Floats], list[Floats]]:
    """The same in logarithms."""
    patterns = tilt.shape[1]
    with np.errstate(divide="ignore"):
        forward = [np.tile(np.log(start)[:, None], (1, patterns))]
    for node in range(nodes - 1):
        forward.append(push_step(forward[-1] + _node_tilt(walk, node, tilt), walk.matrix(node)))
    backward = [np.zeros((walk.size, patterns))]
    for node in range(nodes - 1, 0, -1):
        own = _node_tilt(walk, node, tilt)
        backward.append(push_step(backward[-1] + own, walk.matrix(node - 1).T))
    return [f.T for f in forward], [b.T for b in backward[::-1]]


def _node_tilt(walk: Walk, node: int, tilt: Floats) -> Floats:
    """Log-factors of a node by state, (states, patterns), the largest of each pattern 0."""
    total = np.sum([tilt[values] for _, values in walk.entries_read_at(node)], axis=0)
    return np.asarray(total - total.max(axis=0))


def _scale_rows(rows: Floats) -> Floats:
    """Each row with a largest value of 1, unless all of it was lost."""
    most = rows.max(axis=1, keepdims=True)
    return np.asarray(rows / np.where(most > 0, most, 1.0))


# What is known when answers are too many to be counted: outputs beyond all of them, and bounds.


TOO_MANY = (
    "outputs between the answers: the joint law of this many numbers is too large to write out, "
    "so the lower bound uses outputs beyond all answers only"
)


def beyond_finding(setting: AuditCase, walk: Walk) -> Finding:
    """lower ≤ loss ≤ upper under one chain, for any number of answers.

    The lower bound is the most telling output beyond all answers, the upper bound one that holds
    for every entry-level release.
    """
    upper, own = least_upper(setting)
    notes = (*own, TOO_MANY)
    weights = setting.weights
    signs = sign_patterns(weights.shape[1], zero_sum=is_zero_sum(setting.noise))
    found = largest_corner_loss(walk, weights, 1 / setting.scale, signs, upper)
    if found is None:
        return Finding(lower=0.0, upper=upper, notes=notes)
    seen, belief = found
    evidence = witness(setting, seen, belief)
    lower = belief.certain
    return Finding(lower=lower, upper=max(upper, lower), witness=evidence, notes=notes)
