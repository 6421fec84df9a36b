"""The event lift: what any entry-level DP release tells about an event of a chain.

Let the output density of a mechanism change by at most e^{N(x,x')} when one entry changes from x
to x', on all sequences. Then for every node a, with Y = (state, automaton),

    log p(out | E) / p(out | E')  ≤  Λ( law(Y_a | E), law(Y_a | E'); N + D_a + W_a ),

where W bounds what the nodes after a add, each given its event, and D what those before it add.
Proof: event_lift.md. Natural logarithms; every value rounds up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.chains.events.given import Given, RowLaw
from shoal.chains.lift.side import future_side, past_side
from shoal.chains.lift.step import Ahead, Behind, EntryMetric, behind
from shoal.core.codec import Bools, Floats
from shoal.core.walk import Powers
from shoal.mechanisms.cone import CEILING, FLOOR, bearable_rule

ROUND = 2.0**-52
UP = 1.0 + 4.0 * ROUND
# plain nodes before or after an event up to which one by one is quick enough
PLAIN_NODES_QUICK = 32
# of them that are followed one by one all the same: the best anchor may be there
ANCHORS_AROUND = 12
PAIR, CELL = 1.0, 0.06  # microseconds for a pair of rows, and for each cell of its program
PATIENCE = 40e6  # microseconds that all messages on one side may take


@dataclass(frozen=True, slots=True)
class EventLeak:
    """A bound of |log p(out | E) - log p(out | E')|, and the anchor of each direction's bound.

    An anchor of None stands for group privacy: every entry at once.
    """

    value: float
    anchors: tuple[int | None, int | None]


@dataclass(frozen=True, eq=False)
class EventLift:
    """E against E' on one chain, ready to be evaluated at any eta.

    metric[x, x'] bounds, per unit of eta, how far the log-density moves when an entry changes
    from x to x'. plain is the lift of the chain alone, for long stretches that the events say
    nothing about; None where it has none. any_start says that every first law is meant.
    """

    event: Given
    other: Given
    metric: Floats
    plain: PlainChain | None = None
    any_start: bool = False

    def loss(self, eta: float) -> EventLeak:
        """What a release that is eta-DP for one entry tells. Rounds up."""
        metric = self.metric * eta * UP
        unit = float(metric.max(initial=0.0))
        group = self.entries * unit * UP
        outer = {n: self.plain.added_bound(eta, n) for n in self._outer if n and self.plain}
        if not self._bearable_after:
            return EventLeak(min(group, self._by_window(outer, unit)), (None, None))
        found = [
            _Direction(self, one, two, metric, unit, outer).least(group)
            for one, two in ((self.event, self.other), (self.other, self.event))
        ]
        return EventLeak(max(value for value, _ in found), (found[0][1], found[1][1]))

    @property
    def entries(self) -> int:
        return self.event.entries

    @cached_property
    def head(self) -> int:
        """The first anchor: a few nodes before the event begins, where that is far off."""
        until = min(self.event.single_until, self.other.single_until)
        far = self.plain is not None and until > PLAIN_NODES_QUICK and not self.any_start
        return until - ANCHORS_AROUND if far else 0

    @cached_property
    def tail(self) -> int:
        """A few nodes after the one from which on the chain alone decides, where many are left."""
        last = self.event.count - 1
        certain = max(self.event.certain_from, self.other.certain_from)
        far = self.plain is not None and last - certain > PLAIN_NODES_QUICK
        return certain + ANCHORS_AROUND if far else last

    def _by_window(self, outer: dict[int, Floats], unit: float) -> float:
        """All entries the events look at together, and what the others add to their ends."""
        sides = sum(float(added.max()) for added in outer.values())
        return ((self.tail - self.head + self.event.nodes.order) * unit + sides) * UP

    @property
    def _outer(self) -> tuple[int, int]:
        """How many entries of the chain alone stand before the first anchor, and after the tail."""
        return -self.head, self.event.count - 1 - self.tail

    @cached_property
    def anchors(self) -> range:
        """The nodes that are tried as anchors."""
        if self.any_start or not self._bearable_before:
            return range(self.head, self.head + 1)
        return range(self.head, max(self.tail, self.head) + 1)

    @cached_property
    def _bearable_after(self) -> bool:
        return 2 * self._time(range(self.head, self.tail), self.event.nodes.size) <= PATIENCE

    @cached_property
    def _bearable_before(self) -> bool:
        nodes = self.event.nodes
        spread = max(len(layer.x) for layer in self.event.layers[self.head : self.tail + 1])
        return 2 * self._time(range(self.head, self.tail), min(spread, 2 * nodes.size)) <= PATIENCE

    def _time(self, nodes: range, spread: int) -> float:
        pairs = sum(len(self.event.layers[t].x) * len(self.other.layers[t].x) for t in nodes)
        return pairs * (PAIR + CELL * spread**2)


@dataclass(frozen=True, eq=False)
class PlainChain:
    """A homogeneous chain by itself, with its metric per unit of eta: the lift's two sides."""

    initial: Floats
    transition: Floats
    metric: EntryMetric
    length: int

    @cached_property
    def _laws_ahead(self) -> Ahead:
        return Ahead(Powers.of(self.transition))

    @cached_property
    def _behind(self) -> Behind:
        return behind(self.initial, Powers.of(self.transition), self.length - 1)

    def added_bound(self, eta: float, entries: int) -> Floats:
        """What that many entries after a node, or (negative) before it, can add. Rounds up."""
        entry, rule = self.metric.scaled_by(eta), bearable_rule(self.transition)
        if entries < 0:
            return past_side(self._behind, entry, -entries, rule).at(-entries)
        return future_side(self._laws_ahead, entry, entries, rule).at(entries)


@dataclass(frozen=True, eq=False)
class _Direction:
    """One direction at one eta: how much likelier an output can be given `above` than `below`."""

    lift: EventLift
    above: Given
    below: Given
    metric: Floats
    unit: float
    outer: dict[int, Floats]

    def least(self, group: float) -> tuple[float, int | None]:
        """The least bound over the anchors, and where it is; group privacy where that is less."""
        after, before = self._bounds_after(), self._before()
        best: tuple[float, int | None] = (group, None)
        for t in self.lift.anchors:
            whole = self._log_density_shift(t) + after[t] + before[t]
            if self.lift.any_start:
                value = float(whole.max())
            else:
                one, two = self.above.law(t), self.below.law(t)
                value = float(_Steps().leak(one, two, whole, group)[0, 0])
            if value < best[0]:
                best = (value, t)
        return best

    def _bounds_after(self) -> dict[int, Floats]:
        """W_t from the last node that matters back to the first anchor."""
        last, tail = self.above.count - 1, self.lift.tail
        message = (
            np.zeros(self._shape(last)) if tail == last else self._plain_bound(tail, last - tail)
        )
        found = {tail: message}
        steps = _Steps()
        for t in range(tail - 1, self.lift.head - 1, -1):
            cap = (last - t) * self.unit * UP
            message = steps.leak(
                self.above.ahead(t),
                self.below.ahead(t),
                self._log_density_shift(t + 1) + message,
                cap,
            )
            found[t] = message
        return found

    def _before(self) -> dict[int, Floats]:
        """D_t from the first anchor, or the first node, on to the last anchor."""
        head, order = self.lift.head, self.above.nodes.order
        message = self._plain_bound(head, -head) if head else np.zeros(self._shape(0))
        found = {head: message}
        steps = _Steps()
        for t in self.lift.anchors[1:]:
            cap = (t - 1 + order) * self.unit * UP
            message = steps.leak(
                self.above.behind(t),
                self.below.behind(t),
                self._log_density_shift(t - 1) + message,
                cap,
            )
            found[t] = message
        return found

    def _shape(self, t: int) -> tuple[int, int]:
        return len(self.above.layers[t].x), len(self.below.layers[t].x)

    def _plain_bound(self, t: int, entries: int) -> Floats:
        """What that many entries of the chain alone, after t or (negative) before it, can add."""
        bound = self.outer[entries][np.ix_(self.above.layers[t].x, self.below.layers[t].x)]
        return np.asarray(np.minimum(bound, abs(entries) * self.unit * UP))

    def _log_density_shift(self, t: int) -> Floats:
        """N(y, z): how far the log-density moves with what node t brings."""
        contributions = np.stack(
            [values for _, values in self.above.nodes.entries_read_at(t)], axis=1
        )
        one, two = contributions[self.above.layers[t].x], contributions[self.below.layers[t].x]
        return np.asarray(self.metric[one[:, None, :], two[None, :, :]].sum(axis=2) * UP)


class _Steps:
    """Steps of a message, each of which remembers the optima of the one before."""

    def __init__(self) -> None:
        self._memory = np.zeros((0, 0, 0))

    def leak(self, above: RowLaw, below: RowLaw, growth: Floats, cap: float) -> Floats:
        """min(cap, Λ(row y of above, row z of below; growth)) for all y and z. Rounds up."""
        from shoal.chains.events.kernels import HUGE, lower_pairs

        upper, lower = bracket_rows(above)[0], bracket_rows(below)[1]
        shape = (len(upper), *lower.shape)
        if self._memory.shape != shape:
            self._memory = np.zeros(shape)
        best = np.full(shape[:2], cap)
        finite = growth <= CEILING
        weight = np.where(finite, np.exp(np.minimum(growth, CEILING)), HUGE)
        largest = float(growth.max(initial=0.0, where=finite))
        extra = above.error + below.error + (4.0 + largest) * ROUND
        lower_pairs(best, extra, upper, lower, weight, self._memory)
        return best


def bracket_rows(law: RowLaw) -> tuple[Floats, Floats]:
    """The rows from above and from below: what is possible but faint counts FLOOR, or nothing."""
    faint: Bools = law.possible & (law.rows < FLOOR)
    upper = np.where(faint, FLOOR, np.where(law.possible, law.rows, 0.0))
    return upper, np.where(faint, 0.0, upper)
