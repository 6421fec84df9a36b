"""Does a chain describe data it was not fitted on: likelihood, calibration, stationarity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.chains.fit import transition_counts
from shoal.chains.fit_check import SIGNIFICANT, FitCheck, check_fit
from shoal.chains.model import MarkovChain
from shoal.core.codec import Bools, Ints
from shoal.core.numbers import significant
from shoal.core.records import Sequences, entries_of

ORDERS = (0, 1, 2)
LITTLE = 0.02  # share of the bits per step that a worse model may lose and still be called fair
WORST = 3  # transitions that are named


@dataclass(frozen=True, slots=True)
class TransitionCheck:
    """A transition as the model says it and as the data has it: chances, departures, deviation.

    `deviation` is (seen - expected) in standard errors of the expected count.
    """

    before: str
    after: str
    said: float
    seen: float
    departures: int
    deviation: float

    def describe(self) -> str:
        return (
            f"{self.before!r} to {self.after!r}: {significant(self.said, 2)} said, "
            f"{significant(self.seen, 2)} seen in {self.departures:,}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """How well a chain describes data that had no part in it.

    `bits` is its surprise per step; `orders[m]` that of a chain of order m fitted to the other half
    of this data (inf where a model calls impossible what happened). `chi_square` on `degrees`
    tells whether the transitions have the chances the model says; `worst` are those furthest off.
    `distance` is between how often states occur and how often the model says they do, in total
    variation. `fit` holds the tests of order and drift.
    """

    steps: int
    bits: float
    orders: tuple[float, ...]
    chi_square: float
    degrees: int
    p_value: float
    worst: tuple[TransitionCheck, ...]
    distance: float
    fit: FitCheck

    @property
    def fair(self) -> bool:
        """Whether no chain fitted to this very data predicts it noticeably better."""
        return self.bits <= min(self.orders) * (1 + LITTLE) + 1e-12

    def describe(self) -> str:
        """The findings, one line each, with what to do about it."""
        best = int(np.argmin(self.orders))
        orders = ", ".join(f"order {m} {significant(b, 3)}" for m, b in enumerate(self.orders))
        lines = [
            f"Likelihood: over {self.steps:,} steps the model leaves {significant(self.bits, 3)} "
            f"bits of surprise per step; chains fitted to the other half of this data: {orders}.",
            "Verdict: " + self._verdict(best),
            self._calibration(),
            f"Stationarity: how often states occur is {significant(self.distance, 2)} away from "
            "what the model says (0: the same, 1: nothing in common).",
        ]
        drift = [line for line in self.fit.describe().splitlines() if line.startswith("Drift")]
        return "\n".join([*lines, *drift])

    def _verdict(self, best: int) -> str:
        """Return in words whether the model describes the data; `best` is the order that predicts
        best.
        """
        if math.isinf(self.bits):
            before, after = self.fit.impossible[0] if self.fit.impossible else ("", "")
            what = f", such as {before!r} to {after!r}" if before else ""
            return (
                f"the model calls impossible what happened here{what}; its promise says nothing "
                "about such data: fit with smoothing above 0."
            )
        if self.fair:
            return "the model describes this data as well as a chain of its own would."
        advice = "fit on data like this" if best < 2 else "fit_order(data, 2), --order 2"
        return (
            f"a chain of order {best} fitted here predicts noticeably better "
            f"({significant(self.bits - self.orders[best], 2)} bits per step); an adversary with "
            f"such a chain is not covered: {advice}, or give both as a family."
        )

    def _calibration(self) -> str:
        if self.p_value >= SIGNIFICANT or not self.worst:
            return "Calibration: transitions have the chances the model says."
        shown = "; ".join(cell.describe() for cell in self.worst)
        return f"Calibration: some transitions have other chances than the model says: {shown}."


def check_held_out(data: Any, chain: MarkovChain, **columns: Any) -> HeldOut:
    """`chain` held against `data`, on the same states; one matrix for all steps.

    `data` may be sequences, lists, a table or a file, whose `columns` are named as in `shoal.read`.
    """
    from scipy.stats import chi2

    data = data if isinstance(data, Sequences) else entries_of(data, chain.states, **columns)
    check = check_fit(data, chain)
    counts = transition_counts(data)
    statistic, degrees, worst = _pearson_check(data, chain, counts)
    law = data.counts() / data.total
    return HeldOut(
        steps=check.transitions,
        bits=check.bits_per_step + check.excess_bits,
        orders=tuple(_cross_fitted(data, order) for order in ORDERS),
        chi_square=statistic,
        degrees=degrees,
        p_value=float(chi2.sf(statistic, degrees)) if degrees else 1.0,
        worst=worst,
        distance=float(np.abs(law - chain.marginals(1)[0]).sum() / 2)
        if chain.stationary
        else float(np.abs(law - chain.stationary_law()).sum() / 2),
        fit=check,
    )


def _cross_fitted(data: Sequences, order: int) -> float:
    """Bits per step of each half under counts of the other, with 1 shared out to each row.

    Halves are the first and the second half of all steps with `max(ORDERS)` entries before them, so
    that every order predicts the same entries.
    """
    size, longest = len(data.states), max(ORDERS)
    flat = np.concatenate(data.chains)
    left = np.concatenate([np.arange(len(chain)) for chain in data.chains])
    ends = np.flatnonzero(left >= min(longest, data.longest - 1))
    past = np.zeros(len(ends), dtype=np.int64)
    for lag in range(order, 0, -1):
        past = past * size + flat[np.maximum(ends - lag, 0)]
    first = np.arange(len(ends)) * 2 < len(ends)
    halves = [_surprise(past, flat[ends], known, size) for known in (first, ~first)]
    return math.fsum(halves) / max(len(ends), 1)


def _surprise(past: Ints, now: Ints, known: Bools, size: int) -> float:
    """Bits of the rows outside `known` under the smoothed counts of those inside."""
    if not known.any() or known.all():
        return math.inf
    codes = past * size + now
    cells, each = np.unique(codes[known], return_counts=True)
    rows, sums = np.unique(past[known], return_counts=True)
    seen = _looked_up(cells, each, codes[~known])
    total = _looked_up(rows, sums, past[~known])
    return float(-np.log2((seen + 1 / size) / (total + 1)).sum())


def _looked_up(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)


def _pearson_check(
    data: Sequences, chain: MarkovChain, counts: Ints
) -> tuple[float, int, tuple[TransitionCheck, ...]]:
    """Pearson's statistic over transitions the model calls possible, its degrees, the worst."""
    rows = counts.sum(axis=1, keepdims=True)
    expected = rows * chain.transition
    used = expected > 0
    gaps = np.where(used, counts - expected, 0.0)
    statistic = float((gaps[used] ** 2 / expected[used]).sum())
    degrees = int(np.maximum(used.sum(axis=1) - 1, 0)[rows[:, 0] > 0].sum())
    spread = np.sqrt(np.where(used, expected * np.maximum(1 - chain.transition, 1e-12), 1.0))
    z = gaps / spread
    order = np.argsort(-np.abs(z), axis=None)[:WORST]
    worst = [
        TransitionCheck(
            data.states[int(x)],
            data.states[int(y)],
            float(chain.transition[x, y]),
            float(counts[x, y] / max(int(rows[x, 0]), 1)),
            int(rows[x, 0]),
            float(z[x, y]),
        )
        for x, y in zip(*np.unravel_index(order, z.shape), strict=True)
        if abs(z[x, y]) > 3
    ]
    return statistic, degrees, tuple(worst)
