"""The laws of a sum over a chain given each of two events, and the loss of noise on it.

The chain given an event is a chain again (`given`), so its sum is counted forward on (state,
automaton, sum): nothing is sampled and no tail is cut. Proof: event_noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.chains.events.given import Given
from shoal.core.codec import Floats, Ints
from shoal.mechanisms.answer_laws import bottleneck, quantile_gap
from shoal.mechanisms.mixture import (
    DEEPEST_LINEAR,
    NO_NOISE,
    TooLarge,
    smallest_scale,
    vector_loss,
    worst_of,
)

MOST_LAW_WORK = 3e10  # multiplications of one law: about ten seconds
MOST_LOGS = 1e9  # and of one that is followed in logarithms
MOST_VALUES = 4_000_000  # different answers


@dataclass(frozen=True, eq=False)
class AnswerPair:
    """Laws of one answer given E (`above`) and given E' (`below`), on `values`.

    values (answers, labels) are whole lattice steps. above and below hold a row for every law that
    is meant: one, or one for each first state. `logs` says that they are logarithms; otherwise
    masses below 1e-300 may have been lost. `roundings` bounds the relative error of a law's entry,
    in units of 2^-53.
    """

    values: Ints
    above: Floats
    below: Floats
    roundings: float
    logs: bool = False

    @property
    def laws(self) -> AnswerPair:
        """Themselves, as those of an `EventSum`."""
        return self

    @property
    def reach(self) -> float:
        """How far apart two answers are, in lattice steps."""
        return float(np.ptp(self.values, axis=0).sum())

    def loss(self, scale: float) -> float:
        """The exact loss of noise of that scale, in lattice steps. Rounds up.

        inf where masses that underflow has lost would be asked for.
        """
        if not self.logs and self.reach / scale > DEEPEST_LINEAR:
            return math.inf
        laws = np.vstack([self.above, self.below])
        given = np.arange(len(laws)) < len(self.above)
        pairs = given[:, None] != given[None, :]
        if self.values.shape[1] > 1:
            return vector_loss(self._on_grid(laws), scale, pairs=pairs) + self.roundings * 2.0**-52
        offset = np.where(pairs, 0.0, -math.inf)
        positions = (self.values[:, 0] - self.values[0, 0]) / scale
        return worst_of(
            laws[None], positions, logs=self.logs, offset=offset, roundings=self.roundings
        ).value

    def least_scale(self, epsilon: float) -> float:
        """The smallest scale, in lattice steps, whose loss is at most epsilon; rounds up.

        Not below where doubles are enough for the laws' tails.
        """
        least = max(self.reach / DEEPEST_LINEAR * (1.0 + 1e-12), 1.0 / NO_NOISE)
        return smallest_scale(self.loss, epsilon, least, max(1.001 * self.reach / epsilon, least))

    def distance(self) -> float:
        """The largest W∞ between a law given E and one given E', up to slices of 1e-12."""
        line = self.values[:, 0].tolist() if self.values.shape[1] == 1 else None
        best = 0.0
        for one in self.above:
            for two in self.below:
                law, other = one.tolist(), two.tolist()
                gap = (
                    quantile_gap(line, law, other) if line else bottleneck(self.values, law, other)
                )
                best = max(best, float(gap))
        return best

    def _on_grid(self, laws: Floats) -> Floats:
        """The laws over the box of all answers, an axis for each label."""
        shape = tuple(int(extent) + 1 for extent in np.ptp(self.values, axis=0))
        if len(laws) * math.prod(shape) > 5 * MOST_VALUES:
            raise TooLarge(
                f"the answers fill a box of {math.prod(shape):,} cells, more than can be compared; "
                "ask for fewer values at once, or use lift"
            )
        grid = np.zeros((len(laws), *shape))
        grid[(slice(None), *(self.values - self.values.min(axis=0)).T)] = laws
        return grid


@dataclass(frozen=True, eq=False)
class EventSum:
    """A sum of `weights` (states, labels), in lattice steps, over a chain given E and given E'.

    any_start says that every first law is meant: then each first state of either side has its
    own law, and every pair of them is compared.
    """

    event: Given
    other: Given
    weights: Ints
    any_start: bool = False

    @cached_property
    def laws(self) -> AnswerPair:
        """The laws as doubles."""
        return self._pair(logs=False)

    @cached_property
    def _logs(self) -> AnswerPair | None:
        """The laws as logarithms, where that is quick enough."""
        if self.weights.shape[1] > 1 or self._sum_work(self.laws.values) > MOST_LOGS:
            return None
        return self._pair(logs=True)

    def loss(self, scale: float) -> float:
        """The exact loss of noise of `scale` lattice steps. Rounds up."""
        if self.laws.reach / scale > DEEPEST_LINEAR and self._logs is not None:
            return self._logs.loss(scale)
        return self.laws.loss(scale)

    def least_scale(self, epsilon: float) -> float:
        """The smallest scale, in lattice steps, whose loss is at most epsilon; rounds up."""
        lowest = 1.0 / NO_NOISE
        # first where doubles are enough: the logarithms of a long chain take a while
        shallow = max(self.laws.reach / DEEPEST_LINEAR * (1.0 + 1e-12), lowest)
        highest = max(1.001 * self.laws.reach / epsilon, shallow)
        found = smallest_scale(self.loss, epsilon, shallow, highest)
        if found > shallow or shallow == lowest or self._logs is None:
            return found
        return smallest_scale(self.loss, epsilon, lowest, shallow)

    def distance(self) -> float:
        return self.laws.distance()

    def _pair(self, logs: bool) -> AnswerPair:
        """Return the laws of the answer given each side of the pair, over the answers of either.

        One row for each starting law; logarithms when `logs`. Answers that one side excludes count
        0.
        """
        sides = [
            [_count_slots(one, self.weights, logs) for one in _starts(side, self.any_start)]
            for side in (self.event, self.other)
        ]
        values = np.unique(np.concatenate([law.codes for side in sides for law in side]))
        empty = -math.inf if logs else 0.0
        tables = [np.full((len(side), len(values)), empty) for side in sides]
        for table, side in zip(tables, sides, strict=True):
            for row, law in zip(table, side, strict=True):
                row[np.searchsorted(values, law.codes)] = law.masses
        roundings = max(law.roundings for side in sides for law in side)
        answers = _decode_sums(values, self.weights, self.event.entries)
        return AnswerPair(answers, tables[0], tables[1], roundings, logs)

    def _sum_work(self, values: Ints) -> float:
        return _pair_work(self.event, len(values)) + _pair_work(self.other, len(values))


@dataclass(frozen=True, eq=False)
class _CountedSlots:
    codes: Ints
    masses: Floats
    roundings: float


def _starts(given: Given, any_start: bool) -> list[Given]:
    """The chain itself, or the chain from each first state that leaves the event possible."""
    if not any_start:
        return [given]
    nodes = given.nodes
    found = []
    for state in given.layers[0].x:
        first = np.zeros(nodes.size)
        first[state] = 1.0
        found.append(Given(nodes.starting(first), given.steps, given.accept))
    return found


def _count_slots(given: Given, weights: Ints, logs: bool) -> _CountedSlots:
    """The law of the coded sum given the event: forward on (state, automaton, sum)."""
    nodes = given.nodes
    code = _encode_weights(weights, given.entries)
    contributions = np.sum([code[values] for values in nodes.first], axis=0)[given.layers[0].x]
    start = given.law(0)
    table, codes = _add_contributions(
        (np.log(start.rows.T) if logs else start.rows.T),
        np.zeros(1, dtype=np.int64),
        contributions,
        logs,
    )
    deepest = work = 0.0
    for t in range(given.count - 1):
        work += len(table) * len(given.layers[t + 1].x) * len(codes)
        if len(codes) > MOST_VALUES or work > MOST_LAW_WORK:
            raise TooLarge(
                f"the sum has {len(codes):,} different values after {t + 1} entries already, more "
                "than can be followed; give weights with fewer digits, ask for fewer values at "
                "once, or use lift"
            )
        arriving = _push_forward(given.ahead_logs(t) if logs else given.ahead(t).rows, table, logs)
        table, codes = _add_contributions(
            arriving, codes, code[nodes.shown[given.layers[t + 1].x]], logs
        )
        if logs:
            deepest = max(deepest, -float(table.min(initial=0.0, where=table > -math.inf)))
    masses = np.logaddexp.reduce(table, axis=0) if logs else table.sum(axis=0)
    # along a path the roundings of beta cancel but for the first and the last (event_noise.md)
    roundings = 2.0 * given.count * (given.widest + 8.0 + 2.0 * deepest)
    return _CountedSlots(codes, masses, roundings)


def _push_forward(rows: Floats, table: Floats, logs: bool) -> Floats:
    """Mass at (y', sum) from that at (y, sum)."""
    if not logs:
        return np.asarray(rows.T @ table)
    found = np.full((rows.shape[1], table.shape[1]), -math.inf)
    for row, masses in zip(rows, table, strict=True):
        possible = np.flatnonzero(row > -math.inf)
        found[possible] = np.logaddexp(found[possible], row[possible, None] + masses)
    return found


def _add_contributions(
    table: Floats, codes: Ints, contributions: Ints, logs: bool
) -> tuple[Floats, Ints]:
    """Every state's own contribution added to its sums, with the codes that now occur."""
    added, which = np.unique(contributions, return_inverse=True)
    grown, places = np.unique(codes[None, :] + added[:, None], return_inverse=True)
    places = places.reshape(len(added), len(codes))
    moved = np.full((len(table), len(grown)), -math.inf if logs else 0.0)
    for row, masses, place in zip(moved, table, which, strict=True):
        row[places[place]] = masses
    return moved, grown


def _bases(weights: Ints, entries: int) -> list[int]:
    """How many values each label's sum may take; every entry counts from the least weight."""
    return [int(extent) * entries + 1 for extent in np.ptp(weights, axis=0)]


def _encode_weights(weights: Ints, entries: int) -> Ints:
    """One whole number for each row of weights, so that sums of them tell the sums of rows."""
    bases = _bases(weights, entries)
    if math.prod(bases) >= 2**62:
        raise TooLarge("the sums have too many values to be counted; ask for fewer values at once")
    code = np.zeros(len(weights), dtype=np.int64)
    for column, base in zip((weights - weights.min(axis=0)).T, bases, strict=True):
        code = code * base + column
    return code


def _decode_sums(codes: Ints, weights: Ints, entries: int) -> Ints:
    """The sums that codes stand for, (codes, labels)."""
    columns = []
    for base in reversed(_bases(weights, entries)):
        codes, column = np.divmod(codes, base)
        columns.append(column)
    return np.asarray(np.stack(columns[::-1], axis=1) + entries * weights.min(axis=0))


def _pair_work(given: Given, values: int) -> float:
    pairs = sum(len(a.x) * len(b.x) for a, b in zip(given.layers, given.layers[1:], strict=False))
    return pairs * values / 2.0
