"""A chain given that an event happens: again a chain, on pairs of a state and the automaton's.

With Y_t = (X_t, Q_t) and beta_t(y) = P(E | Y_t = y), the chain given E moves from y to y' with
probability P(y, y') beta_{t+1}(y') / beta_t(y). What is possible is decided by supports, and beta
and the laws of Y are kept as numbers that never underflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from shoal.chains.model import ChainLaw
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.walk import UNIT, Walk, Wide


def nodes_of(model: ChainLaw) -> Walk:
    """The walk of a chain of a given length; any first law stands as one that allows them all."""
    walk = model.walk()
    return walk.starting(np.full(walk.size, 1.0 / walk.size)) if walk.initial is None else walk


class Layer(NamedTuple):
    """The pairs (x, q) of one node that can be met and that leave the event possible."""

    x: Ints
    q: Ints


@dataclass(frozen=True, eq=False)
class Given:
    """The chain of `nodes` given that its automaton ends in a state that `accept` marks.

    steps[s][q, x] is the automaton's state after slot s, from 0 before slot 0.
    """

    nodes: Walk
    steps: Sequence[Ints]
    accept: Bools

    @property
    def count(self) -> int:
        """How many nodes there are."""
        assert self.nodes.length is not None  # the caller checked it
        return self.nodes.length

    @property
    def entries(self) -> int:
        return self.count + self.nodes.order - 1

    @property
    def initial(self) -> Floats:
        assert self.nodes.initial is not None
        return self.nodes.initial

    @cached_property
    def layers(self) -> list[Layer]:
        """The states of each node, in order of q, then x."""
        met, nodes = self._met(), self.nodes
        alive = np.broadcast_to(self.accept[:, None], (len(self.accept), nodes.size))
        found = []
        known: dict[tuple[int, int, bytes, bytes], tuple[Layer, Bools]] = {}
        for t in range(self.count - 1, -1, -1):
            step, matrix = self._contribution(t), nodes.matrix(max(t - 1, 0))
            key = (id(step), self._which(t), met[t].tobytes(), alive.tobytes())
            if key not in known:
                here = met[t] & alive
                q, x = np.nonzero(here)
                onward = here[step[:, nodes.shown], np.arange(nodes.size)]
                known[key] = Layer(x, q), _reaches(onward, matrix.T)
            layer, alive = known[key]
            found.append(layer)
        return found[::-1]

    @property
    def possible(self) -> bool:
        return len(self.layers[0].x) > 0

    @cached_property
    def certain_from(self) -> int:
        """The first node from which on nothing can undo the event, wherever the chain goes."""
        sure = self.accept
        for t in range(self.count - 1, -1, -1):
            if not sure[self.layers[t].q].all():
                return t + 1
            if t:
                sure = np.asarray(sure[self._contribution(t)].all(axis=1))
        return 0

    @cached_property
    def single_until(self) -> int:
        """The last node up to which the automaton has had one state only; -1 if not even one."""
        several = (t for t in range(self.count) if self._automaton_size(t) > 1)
        return next(several, self.count) - 1

    def beta(self, t: int) -> Wide:
        """P(E | Y_t) on layer t; exactly 1 from `certain_from` on."""
        if t >= self.certain_from:
            return Wide.of(np.ones(len(self.layers[t].x)))
        known = self._betas  # from `certain_from` - 1 back
        while len(known) < self.certain_from - t:
            here = self.certain_from - 1 - len(known)
            after = known[-1] if known else self.beta(here + 1)
            known.append(Wide.of(self.move(here)).times(after).total(axis=1))
        return known[self.certain_from - 1 - t]

    def alpha(self, t: int) -> Wide:
        """P(Y_t = y) on layer t, unconditioned."""
        known = self._alphas
        while len(known) <= t:
            move = Wide.of(self.move(len(known) - 1).T)
            known.append(move.times(known[-1]).total(axis=1))
        return known[t]

    @property
    def prior(self) -> float:
        """P(E), 0 where it is too small for a double."""
        return float(self.alpha(0).times(self.beta(0)).total().doubles())

    @cached_property
    def _betas(self) -> list[Wide]:
        return []

    @cached_property
    def _alphas(self) -> list[Wide]:
        return [Wide.of(self.initial[self.layers[0].x])]

    @cached_property
    def widest(self) -> int:
        """The most states a layer has."""
        return max(len(layer.x) for layer in self.layers)

    def move(self, t: int) -> Floats:
        """P(Y_{t+1} = y' | Y_t = y) between the layers t and t + 1; rows may sum to less than 1."""
        here, there = self.layers[t], self.layers[t + 1]
        goes = self._contribution(t + 1)[here.q][:, self.nodes.shown[there.x]] == there.q
        return np.asarray(np.where(goes, self.nodes.matrix(t)[np.ix_(here.x, there.x)], 0.0))

    def ahead(self, t: int) -> RowLaw:
        """P(Y_{t+1} | Y_t = y, E): a row for each state of layer t."""
        move = self.move(t)
        if t >= self.certain_from:
            return RowLaw(move, move > 0, 0.0)
        joint = Wide.of(move).times(self.beta(t + 1))
        base = self.beta(t).map_layout(_upright)
        left = max(self.certain_from - t, 0)
        return RowLaw(joint.over(base), move > 0, self._errors(2 * left + 1))

    def ahead_logs(self, t: int) -> Floats:
        """The logarithms of the rows of `ahead`, -inf only where a step is impossible."""
        joint = Wide.of(self.move(t)).times(self.beta(t + 1))
        return joint.log_over(self.beta(t).map_layout(_upright))

    def behind(self, t: int) -> RowLaw:
        """P(Y_{t-1} | Y_t = y), without what happens later: a row for each state of layer t."""
        move = self.move(t - 1).T
        joint = Wide.of(move).times(self.alpha(t - 1))
        base = self.alpha(t).map_layout(_upright)
        return RowLaw(joint.over(base), move > 0, self._errors(2 * t + 1))

    def law(self, t: int) -> RowLaw:
        """P(Y_t | E), as one row."""
        joint = self.alpha(t).times(self.beta(t))
        row = joint.over(joint.total())[None, :]
        errors = self._errors(2 * (t + 1 + max(self.certain_from - t, 0)))
        return RowLaw(row, np.ones(row.shape, np.bool_), errors)

    def _errors(self, steps: int) -> float:
        """The relative error of a quotient of sums over `steps` steps in all."""
        return steps * (self.widest + 4) * UNIT

    def _contribution(self, t: int) -> Ints:
        """What the entry that node t brings does to the automaton; node 0 brings several."""
        return self.steps[t + self.nodes.order - 1]

    def _met(self) -> list[Bools]:
        """Which (q, x) can be met at each node, followed as booleans."""
        nodes = self.nodes
        q = np.zeros(nodes.size, dtype=np.int64)
        for place, values in enumerate(nodes.first):
            q = self.steps[place][q, values]
        states = np.arange(nodes.size)
        met = np.zeros((self._automaton_size(0), nodes.size), dtype=np.bool_)
        met[q, states] = self.initial > 0
        found = [met]
        known: dict[tuple[int, int, bytes], Bools] = {}
        for t in range(1, self.count):
            step, matrix = self._contribution(t), nodes.matrix(t - 1)
            key = (id(step), self._which(t), met.tobytes())
            if key not in known:
                rows, columns = np.nonzero(_reaches(met, matrix))
                known[key] = np.zeros((self._automaton_size(t), nodes.size), dtype=np.bool_)
                known[key][step[rows, nodes.shown[columns]], columns] = True
            met = known[key]
            found.append(met)
        return found

    def _which(self, t: int) -> int:
        """A number of the matrix that leads to node t: the same only for the same matrix."""
        return 0 if self.nodes.homogeneous else t

    def _automaton_size(self, t: int) -> int:
        """How many states the automaton has after node t."""
        last = t == self.count - 1
        return len(self.accept) if last else len(self._contribution(t + 1))


def _upright(values: Any) -> Any:
    return values[:, None]


class RowLaw(NamedTuple):
    """Rows of probabilities, which of them are truly positive, and their relative error."""

    rows: Floats
    possible: Bools
    error: float


def _reaches(met: Bools, matrix: Floats) -> Bools:
    """Which (q, y) follow some (q, x): an exact count of paths in single precision."""
    return np.asarray(met.astype(np.float32) @ (matrix > 0).astype(np.float32) > 0.5)
