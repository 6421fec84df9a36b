"""The loss of noise on several numbers summed over a chain, such as a histogram."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.audit.beyond import beyond_finding
from shoal.audit.evidence import Coded
from shoal.audit.laws import EntryLaws, entry_laws
from shoal.audit.result import Finding
from shoal.audit.setting import Setting
from shoal.audit.suprema import NOTHING, Peak, plane_peak, plane_size, product_peak
from shoal.audit.testimony import Sighting, beliefs, witness
from shoal.audit.walk import Walk
from shoal.core.value import Ints
from shoal.noise.zero_sum import ZeroSumLaplace

MOST_WORK = 4e6  # points × laws evaluated for the exact loss of a vector


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


def vector_finding(setting: Setting, walk: Walk) -> Finding:
    """lower ≤ loss ≤ upper for a query of several numbers under one chain.

    Short chains: the joint law of the answer given each value of each entry, for every length, and
    the exact supremum over outputs. Otherwise the lower bound is the most telling output beyond
    all answers, and the upper bound one that holds for every entry-level release.
    """
    if walk.initial is not None and not setting.wide and _work(setting, walk) <= MOST_WORK:
        return _exact(setting, walk)
    return beyond_finding(setting, walk)


def radix(setting: Setting, nodes: int, order: int) -> Radix:
    """Digits wide enough for data of `nodes` nodes."""
    weights = setting.multiples - setting.multiples.min(axis=0)
    widths = weights.max(axis=0) * (nodes + order - 1) + 1
    strides = np.concatenate([[1], np.cumprod(widths)[:-1]])
    return Radix(weights, strides.astype(np.int64))


def _work(setting: Setting, walk: Walk) -> float:
    """Points × laws × pairs of (entry, length); inf for any length."""
    if walk.length is None:
        return math.inf
    entries = walk.length + walk.order - 1
    weights = setting.multiples - setting.multiples.min(axis=0)
    sums = [float(w) * entries + 1 for w in weights.max(axis=0)]
    points = math.prod(sums)
    if isinstance(setting.noise, ZeroSumLaplace):
        corners = np.unique(weights, axis=0) * entries
        points = float(plane_size(corners)) * math.prod(sums[:-1])
    return points * len(walk.values) * walk.size * walk.length**2 / 2


def _exact(setting: Setting, walk: Walk) -> Finding:
    assert walk.initial is not None
    assert walk.length is not None
    digits = radix(setting, walk.length, walk.order)
    coded = Coded(walk, digits.code)
    best, where = NOTHING, None
    for law in entry_laws(coded, walk.initial, walk.length):
        peak = _peak(setting, digits, law) if walk.covers(law.nodes) else NOTHING
        if peak.value > best.value:
            best, where = peak, law
    if where is None or best.value == -math.inf:
        return Finding(lower=0.0, upper=0.0)
    seen = _sighting(setting, digits, coded, best, where)
    belief = beliefs(seen)
    told = witness(setting, seen, belief)
    upper = max(best.value + best.slack, belief.certain)
    return Finding(lower=belief.certain, upper=upper, witness=told)


def _peak(setting: Setting, digits: Radix, law: EntryLaws) -> Peak:
    support: Ints = np.flatnonzero((law.laws > -math.inf).any(axis=0))
    answers = digits.answers(support)
    chosen = np.where((law.prior > -math.inf)[:, None], law.laws[:, support], -math.inf)
    evaluate = plane_peak if isinstance(setting.noise, ZeroSumLaplace) else product_peak
    return evaluate(answers, chosen, 1 / setting.scale)


def _sighting(
    setting: Setting, digits: Radix, coded: Coded, peak: Peak, law: EntryLaws
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
