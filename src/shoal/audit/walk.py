"""A chain as the auditor walks it: ordinary chains and chains of higher order in one form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from shoal.core.errors import InputError
from shoal.core.value import Floats, Ints
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A chain on hidden nodes, each of which shows the value of an entry.

    An ordinary chain shows its own states. A chain of order m walks on m-tuples: a node shows the
    last entry of its tuple (`shown`), and the first node holds the first m entries (`first`, one
    array of values per entry, oldest first). `initial` is None for every initial law at once.
    `length` counts nodes: m - 1 fewer than entries; None is any length. Shorter data is covered
    too, unless the length is `fixed` (one matrix per step).
    """

    values: tuple[str, ...]
    initial: Floats | None
    matrices: Floats
    shown: Ints
    first: tuple[Ints, ...]
    length: int | None
    fixed: bool = False

    @property
    def size(self) -> int:
        return len(self.shown)

    @property
    def order(self) -> int:
        return len(self.first)

    @property
    def homogeneous(self) -> bool:
        return len(self.matrices) == 1

    def matrix(self, step: int) -> Floats:
        chosen: Floats = self.matrices[0 if self.homogeneous else step]
        return chosen

    def brought(self, node: int) -> tuple[tuple[int, Ints], ...]:
        """The entries a node brings, and the value of each in every state."""
        if node == 0:
            return tuple(enumerate(self.first))
        return ((node + self.order - 1, self.shown),)

    def place(self, entry: int) -> tuple[int, Ints]:
        """The node that brings an entry, and the value of that entry in each of its states."""
        if entry < self.order:
            return 0, self.first[entry]
        return entry - self.order + 1, self.shown

    def covers(self, nodes: int) -> bool:
        """Whether data of so many nodes follows this law."""
        if self.fixed or self.length is None:
            return self.length in (nodes, None)
        return nodes <= self.length

    def at_most(self, nodes: int) -> int:
        """The largest length covered that is no more than `nodes`, or the fixed one."""
        if self.length is None:
            return nodes
        return self.length if self.fixed else min(nodes, self.length)

    def cut(self, nodes: int) -> Walk:
        """The same chain, at most `nodes` long: a law the model covers as well."""
        return self if self.at_most(nodes) == self.length else replace(self, length=nodes)

    def starting(self, initial: Floats) -> Walk:
        """The member with this initial law."""
        return replace(self, initial=initial)

    def laws(self, count: int) -> Floats:
        """The laws of the first `count` nodes, (count, states)."""
        if self.initial is None:
            raise InputError("every initial law at once has no single law; choose a start")
        rows = [self.initial]
        for node in range(count - 1):
            rows.append(rows[-1] @ self.matrix(node))
        return np.array(rows)


def walk(model: MarkovChain | AnyInitialLaw | OrderChain) -> Walk:
    """`model` in the auditor's form."""
    if isinstance(model, OrderChain):
        tuples, digits = model.on_tuples(), model.tuples()
        first = tuple(digits[:, i] for i in range(model.order))
        return Walk(
            model.states,
            tuples.initial,
            tuples.transition[None],
            model.entry,
            first,
            tuples.length,
        )
    shown = np.arange(len(model.states))
    matrices = model.transition if model.transition.ndim == 3 else model.transition[None]
    initial = model.initial if isinstance(model, MarkovChain) else None
    fixed = model.transition.ndim == 3
    return Walk(model.states, initial, matrices, shown, (shown,), model.length, fixed)
