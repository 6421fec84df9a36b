"""The lift of chains whose next entry depends on the last m: states are tuples, secrets entries.

Y_u = (Z_u, …, Z_{u+m-1}) is a Markov chain. Given Y_u the entries before it and after it are
independent, so E[M | Y_u = y] changes from y to y' by at most

    G_u(y,y') = Σ over the m places of E(y_j, y'_j) + D^future(y,y') + D^past(y,y'),

where one step ahead shows one new entry, the last of its tuple, and one step back one, the first.
The values of an entry i differ by at most Λ(law of Y_u | Z_i = x, law of Y_u | Z_i = x'; G_u), for
every tuple u that holds it: the smallest counts. Proof: shoal/mechanisms/lift.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from shoal.chains.lift.side import LiftLoss, LiftSide, Searched, future_side, past_side
from shoal.chains.lift.step import DRIFT, FAINT, Ahead, Behind, EntryMetric, behind
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.walk import UNIT, Powers, reachable_states
from shoal.mechanisms.cone import CEILING, Memory, Rule, bearable_rule, leak, prepare


@dataclass(frozen=True, eq=False)
class TupleLift(Searched):
    """An order-m chain and a metric on its values per unit of eta, ready for any eta.

    tuples lists the possible tuples, oldest entry first; initial and transition are on them.
    length counts entries, None for any number.
    """

    tuples: Ints
    initial: Floats
    transition: Floats
    metric: Floats
    length: int | None

    @classmethod
    def of(
        cls,
        initial: npt.ArrayLike,
        conditional: npt.ArrayLike,
        metric: npt.ArrayLike,
        length: int | None,
    ) -> TupleLift:
        """The lift of P(next = y | last m entries) = conditional[tuple, y].

        Tuples are numbered like digits in base s, the oldest entry first; initial is the law of
        the first m entries; metric is E on the s values.
        """
        start = np.asarray(initial, dtype=np.float64)
        rows = np.asarray(conditional, dtype=np.float64)
        unit = EntryMetric.of(metric).metrics[0]
        size, order = len(unit), round(np.log(len(start)) / np.log(max(len(unit), 2)))
        if rows.shape != (len(start), size) or size**order != len(start) or order < 1:
            raise InputError(
                f"initial has {len(start)} tuples, conditional shape {rows.shape} and metric "
                f"{size} values; m-tuples of s values need (s^m,), (s^m, s) and (s, s)"
            )
        if length is not None and length < order:
            raise InputError(f"length is {length}; it must be at least the order {order}")
        tuples = np.array(list(product(range(size), repeat=order)), dtype=np.int64)
        transition = np.zeros((len(start), len(start)))
        for row in range(len(start)):
            first = row * size % len(start)  # drop the oldest entry, shift the rest
            transition[row, first : first + size] = rows[row]
        states = np.flatnonzero(reachable_states(start > 0, transition > 0))
        return cls(tuples[states], start[states], transition[np.ix_(states, states)], unit, length)

    @property
    def order(self) -> int:
        return int(self.tuples.shape[1])

    @cached_property
    def rule(self) -> Rule:
        return bearable_rule(self.transition)

    @property
    def size(self) -> int:
        return len(self.tuples)

    @property
    def unit(self) -> float:
        return float(self.metric.max(initial=0.0))

    def endless(self) -> TupleLift:
        """The same chain at any length."""
        if self.length is None:
            return self
        return TupleLift(self.tuples, self.initial, self.transition, self.metric, None)

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss:
        """The lift of single entries at metric · eta; node counts entries, pair numbers values.

        What the rest of the tuple and both sides add cannot be separated: all of it is in
        `future`, and `past` is 0. Rounds up.
        """
        rule, memory = rule or self.rule, Memory() if memory is None else memory
        guesses = (None, None) if start is None else start.guesses(eta, rule)
        ahead, back = self._metrics(False).scaled_by(eta), self._metrics(True).scaled_by(eta)
        future = future_side(
            self._laws_ahead.remembering(memory["future"]),
            ahead,
            self._tuple_count,
            rule,
            guesses[0],
            enough,
        )
        past = past_side(
            self._behind.remembering(memory), back, self._tuple_count, rule, guesses[1], enough
        )
        others = np.inf if self.length is None else (self.length - 1) * self.unit * eta
        worst = LiftLoss.none(rule, eta, others, future.limit, past.limit)
        for entry, shown in self._entry_bounds(future, past, ahead.metrics[-1], rule).items():
            worst = worst.or_unsplit(entry, eta * self.metric, shown)
        return worst

    @cached_property
    def _laws_ahead(self) -> Ahead:
        return Ahead(Powers.of(self.transition))

    @cached_property
    def _behind(self) -> Behind:
        return behind(self.initial, Powers.of(self.transition), self._tuple_count)

    @property
    def _tuple_count(self) -> int | None:
        """The number of tuples after the first."""
        return None if self.length is None else self.length - self.order

    def _metrics(self, reverse: bool) -> EntryMetric:
        """E on the last 1, 2, …, m entries of a tuple, or on the first ones."""
        places = self.tuples if reverse else self.tuples[:, ::-1]
        single = [self.metric[np.ix_(column, column)] for column in places.T]
        return EntryMetric(tuple(np.cumsum(single, axis=0)), self.unit)

    def _entry_bounds(
        self, future: LiftSide, past: LiftSide, metric: Floats, rule: Rule
    ) -> dict[int, Floats]:
        """The bound for each entry that matters: the least over the tuples that hold it.

        Where neither side is explicit, one growth bounds that of every tuple, and an entry in the
        midst of that stretch sits in one of them at each place.
        """
        bounds: dict[int, Floats] = {}
        for node, growth in self._explicit(future, past, metric).items():
            for place in range(self.order):
                shown = self._law_distance(node, place, growth, rule)
                bounds[node + place] = np.minimum(bounds.get(node + place, np.inf), shown)
        stretch = self._stretch(future, past, metric)
        if stretch is not None:
            node, growth = stretch
            settled = max(node, self._behind.last + 1)
            places = [
                self._law_distance(settled, place, growth, rule) for place in range(self.order)
            ]
            entry = node + self.order - 1
            bounds[entry] = np.maximum(bounds.get(entry, 0.0), np.min(places, axis=0))
        return bounds

    def _explicit(self, future: LiftSide, past: LiftSide, metric: Floats) -> dict[int, Floats]:
        """G_u for the tuples whose past or future was followed entry by entry."""
        last = self._tuple_count
        if last is None:
            return {u: metric + future.at(None) + past.at(u) for u in range(past.last + 1)}
        early = range(min(past.last, last) + 1)
        late = range(max(0, last - future.last), last + 1)
        nodes = sorted({*early, *late})
        return {u: metric + future.at(last - u) + past.at(u) for u in nodes}

    def _stretch(
        self, future: LiftSide, past: LiftSide, metric: Floats
    ) -> tuple[int, Floats] | None:
        """The first of the other tuples, and a G for all of them: linear, so largest at an end."""
        first, last = past.last + 1, self._tuple_count
        if last is None:
            return first, metric + future.at(None) + past.at(None)
        final = last - future.last - 1
        if first > final:
            return None
        ends = [metric + future.at(last - u) + past.at(u) for u in (first, final)]
        return first, np.maximum(*ends)

    def _law_distance(self, node: int, place: int, growth: Floats, rule: Rule) -> Floats:
        """Λ between the laws of a tuple given its entry at `place`, for all pairs of values.

        A node beyond those followed stands for all of them: their law must have settled.
        """
        past = self._behind
        if node > past.last and past.settled is None:
            return np.full(self.metric.shape, np.inf)
        known = min(node, past.last)
        holds = self.tuples[None, :, place] == np.arange(len(self.metric))[:, None]
        joint = np.where(holds, past.marginals[known], 0.0)
        total = joint.sum(axis=1, keepdims=True)
        law = np.divide(joint, total, out=np.zeros_like(joint), where=joint > 0)
        error = 2.0 * (node > known) * DRIFT + 2.0 * (known + 2) * (len(self.tuples) + 2) * UNIT
        laws = prepare(
            law, possible=holds & past.possible[known], unsure=total[:, 0] < FAINT, error=error
        )
        shown = leak(laws, growth, rule)
        impossible = ~(holds & past.possible[known]).any(axis=1)
        shown[impossible] = 0.0
        shown[:, impossible] = 0.0
        return shown
