"""Whether a chain fits its data: order, stationarity, thin spots, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.chains.fit import transition_counts
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import significant
from shoal.core.records import Sequences, entries_of
from shoal.core.walk import reachable_states

SIGNIFICANT = 0.01  # p-values below this are called evidence
NOTICEABLE = 0.01  # share of the bits per step below which a gain is called too small to matter
THIN_ROW = 30  # rows with fewer transitions are called thin
PER_PARAMETER = 5  # observations per free parameter below which a test is called unreliable


@dataclass(frozen=True, slots=True)
class OrderComparison:
    """A likelihood-ratio test: does the next entry depend on more than the last one?

    `gain_bits` is what the larger model predicts better, in bits per step, less what chance alone
    gives: (statistic - degrees) / (2 n ln 2), at least 0. Unlike the p-value it does not grow with
    the amount of data.
    """

    statistic: float
    degrees: int
    p_value: float
    gain_bits: float
    observations: int

    @property
    def reliable(self) -> bool:
        """Whether there is enough data per free parameter to trust the p-value."""
        return self.degrees > 0 and self.observations >= PER_PARAMETER * self.degrees

    def noticeable(self, bits_per_step: float) -> bool:
        """Whether the gain is significant and more than 1 % of the bits a step holds."""
        return self.p_value < SIGNIFICANT and self.gain_bits > NOTICEABLE * bits_per_step


@dataclass(frozen=True, slots=True, kw_only=True)
class FitCheck:
    """How well a chain of order 1 describes data; all likelihoods are given the first entries.

    `excess_bits` is how much worse the chain predicts than one fitted to this data without
    smoothing (inf when a seen transition has probability 0). `order_two` compares with the chain of
    order 2; `drift_within` early with late steps of each chain; `drift_across` the first half of
    all steps, in the order of the chains, with the second. `unreachable` states occur in the data
    although the chain never takes them: no promise made for the chain covers them.
    """

    transitions: int
    log_likelihood: float
    bits_per_step: float
    excess_bits: float
    order_two: OrderComparison
    drift_within: OrderComparison
    drift_across: OrderComparison
    smallest_row: tuple[str, int]
    unseen: int
    possible: int
    impossible: tuple[tuple[str, str], ...]
    unreachable: tuple[str, ...]

    def describe(self) -> str:
        """The findings, one line each, most of them with what to do about it."""
        lines = [self._likelihood_words(), self._order_words()]
        if self.drift_within != self.drift_across:  # the same test when there is one chain
            lines.append(_drift_words(self.drift_within, self.bits_per_step, "each chain"))
        lines.append(_drift_words(self.drift_across, self.bits_per_step, "all data"))
        return "\n".join([*lines, self._thin_words(), *self._support_words()])

    def _likelihood_words(self) -> str:
        return (
            f"Steps: {self.transitions:,}; log-likelihood {significant(self.log_likelihood, 6)}; "
            f"a chain fitted to this data leaves {significant(self.bits_per_step)} bits of "
            f"surprise per step, this chain {significant(self.excess_bits, 3)} more."
        )

    def _order_words(self) -> str:
        """Return in words whether order 2 predicts better than order 1."""
        test, numbers = self.order_two, _statistics_text(self.order_two)
        if test.degrees == 0:
            return "Order: too few different steps to tell order 2 from order 1."
        if test.noticeable(self.bits_per_step):
            return (
                f"Order: order 2 predicts noticeably better {numbers}; "
                "consider fit_order(data, 2), --order 2, or finer states." + _doubt(test)
            )
        if test.p_value < SIGNIFICANT:
            return (
                f"Order: order 2 differs from order 1, but too little to matter {numbers}; with "
                "this much data tiny deviations show. Order 1 is a fair description." + _doubt(test)
            )
        return f"Order: order 1 is enough, nothing speaks for order 2 {numbers}." + _doubt(test)

    def _thin_words(self) -> str:
        """Return in words how often the rarest state was left, and how many transitions were not
        seen.
        """
        state, count = self.smallest_row
        action = "; its row is a guess: collect more, merge states, or smooth"
        return (
            f"Counts: {state!r} is left {count:,} time(s), the least of all states"
            f"{action if count < THIN_ROW else ''}. {self.unseen} of {self.possible} transitions "
            "were never seen."
        )

    def _support_words(self) -> list[str]:
        """Return sentences about transitions and states of the data that the chain calls
        impossible.
        """
        words = []
        if self.impossible:
            before, after = self.impossible[0]
            words.append(
                f"Impossible: the data holds {len(self.impossible)} transition(s) the chain calls "
                f"impossible, such as {before!r} to {after!r}; fit again, with smoothing above 0."
            )
        if self.unreachable:
            words.append(
                f"Unreachable: the chain never takes {', '.join(map(repr, self.unreachable))}, "
                "though the data does, so nothing promised for this chain covers it; fit with "
                "smoothing above 0 or initial='empirical'."
            )
        return words


def check_fit(data: Any, chain: MarkovChain, **columns: Any) -> FitCheck:
    """The check of `chain`, one matrix for all steps, against `data` on the same states.

    `data` may be sequences, lists, a table or a file, whose `columns` are named as in `shoal.read`.
    """
    data = data if isinstance(data, Sequences) else entries_of(data, chain.states, **columns)
    if data.states != chain.states:
        raise DataError(
            f"the data has states {list(data.states)}, the chain {list(chain.states)}; "
            "encode the data with the chain's states"
        )
    if not chain.homogeneous:
        raise InputError("the chain has one matrix per step; check_fit takes one for all steps")
    counts = transition_counts(data)
    if not counts.any():
        raise DataError("no chain holds two entries in a row, so there is nothing to check")
    return _compare_counts(data, chain, counts)


def compare(context: Ints, group: Ints, following: Ints) -> OrderComparison:
    """The likelihood-ratio test that `following` depends on `context` alone, not on `group` too.

    G = 2 Σ n_cgf log(n_cgf n_c / (n_cg n_cf)) against a chi-square with
    Σ_c (groups seen in c - 1)(followers seen in c - 1) degrees: contexts never seen, and followers
    never seen in a context, count no parameter.
    """
    from scipy.stats import chi2

    span = int(max(column.max(initial=0) for column in (context, group, following))) + 1
    codes, cells = np.unique((context * span + group) * span + following, return_counts=True)
    c, g, f = codes // span**2, codes // span % span, codes % span
    n_c, _ = _marginal(c, cells)
    n_cg, groups = _marginal(c * span + g, cells, span)
    n_cf, followers = _marginal(c * span + f, cells, span)
    statistic = 2 * float(cells @ np.log(cells * n_c / (n_cg * n_cf)))
    degrees = int((np.maximum(groups - 1, 0) * np.maximum(followers - 1, 0)).sum())
    statistic = max(statistic, 0.0)
    p_value = float(chi2.sf(statistic, degrees)) if degrees else 1.0
    gain = (statistic - degrees) / (2 * len(context) * math.log(2)) if len(context) else 0.0
    return OrderComparison(statistic, degrees, p_value, max(gain, 0.0), len(context))


def _compare_counts(data: Sequences, chain: MarkovChain, counts: Ints) -> FitCheck:
    """Return the check of a chain against the transitions counted in the data, (states, states).

    Log-likelihoods are natural logarithms; the figures per step are in bits.
    """
    seen = counts > 0
    log_likelihood = _log_likelihood(counts, chain.transition)
    best = _log_likelihood(counts, counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
    bits = math.log(2) * int(counts.sum())
    rows = counts.sum(axis=1)
    thin = int(rows.argmin())
    barred = np.argwhere(seen & (chain.transition == 0))
    lost = (data.counts() > 0) & ~reachable_states(chain.initial > 0, chain.transition > 0)
    before, now, after = _triples(data)
    return FitCheck(
        transitions=int(counts.sum()),
        log_likelihood=log_likelihood,
        bits_per_step=-best / bits,
        excess_bits=max((best - log_likelihood) / bits, 0.0),
        order_two=compare(now, before, after),
        drift_within=_halves(data, within=True),
        drift_across=_halves(data, within=False),
        smallest_row=(data.states[thin], int(rows[thin])),
        unseen=int((~seen).sum()),
        possible=seen.size,
        impossible=tuple((data.states[int(x)], data.states[int(y)]) for x, y in barred),
        unreachable=tuple(data.states[int(state)] for state in np.flatnonzero(lost)),
    )


def _log_likelihood(counts: Ints, transition: Floats) -> float:
    """Σ n_xy log P(x, y) in nats; -inf when a seen transition has probability 0."""
    seen = counts > 0
    with np.errstate(divide="ignore"):
        return float((counts[seen] * np.log(transition[seen])).sum())


def _triples(data: Sequences) -> tuple[Ints, Ints, Ints]:
    flat, place, length = _entries_and_positions(data)
    middle = np.flatnonzero((place > 0) & (place < length - 1))
    return flat[middle - 1], flat[middle], flat[middle + 1]


def _halves(data: Sequences, *, within: bool) -> OrderComparison:
    """First steps against later steps: of each chain, or of the whole data."""
    flat, place, length = _entries_and_positions(data)
    start = np.flatnonzero(place < length - 1)
    half = (
        place[start] * 2 >= length[start] - 1 if within else np.arange(len(start)) * 2 >= len(start)
    )
    return compare(flat[start], half.astype(np.int64), flat[start + 1])


def _entries_and_positions(data: Sequences) -> tuple[Ints, Ints, Ints]:
    """All entries in a row, each with its place in its chain and its chain's length."""
    sizes = np.array([len(chain) for chain in data.chains])
    begins = np.cumsum(sizes) - sizes
    flat = np.concatenate(data.chains)
    return flat, np.arange(len(flat)) - np.repeat(begins, sizes), np.repeat(sizes, sizes)


def _marginal(keys: Ints, cells: Ints, span: int = 1) -> tuple[Floats, Ints]:
    """For each cell the sum over its key; and how many keys there are for each key // span."""
    distinct, place = np.unique(keys, return_inverse=True)
    sums = np.bincount(place, weights=cells)[place]
    return np.asarray(sums), np.bincount(distinct // span)


def _statistics_text(test: OrderComparison) -> str:
    return (
        f"(G = {significant(test.statistic)} on {test.degrees} degrees of freedom, "
        f"p = {test.p_value:.2g}, {significant(test.gain_bits, 2)} bits per step gained)"
    )


def _drift_words(test: OrderComparison, bits_per_step: float, where: str) -> str:
    """Return in words whether the transitions of two halves of the data differ."""
    halves, numbers = f"the first and second half of {where}", _statistics_text(test)
    if test.degrees == 0:
        return f"Drift: too few steps to compare {halves}."
    if test.noticeable(bits_per_step):
        return (
            f"Drift: the transitions of {halves} differ noticeably {numbers}; consider one chain "
            "per period, or a family of both for the adversary." + _doubt(test)
        )
    alike = "differ, but too little to matter" if test.p_value < SIGNIFICANT else "are alike"
    return f"Drift: the transitions of {halves} {alike} {numbers}." + _doubt(test)


def _doubt(test: OrderComparison) -> str:
    """Return the warning about a test on too few steps, empty when there are enough."""
    if test.reliable:
        return ""
    return (
        f" (Do not lean on this: {test.observations:,} steps for {test.degrees:,} free parameters; "
        f"{PER_PARAMETER} or more each are needed.)"
    )
