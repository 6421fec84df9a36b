"""Markov chains on many states with few moves each, such as the cells of a map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.records import Sequences, label
from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints, Value, locked
from shoal.models.chain import (
    MarkovChain,
    admit_length,
    checked_length,
    checked_rows,
    checked_states,
)
from shoal.models.grid import Grid
from shoal.models.sampling import categorical, uniforms

ROW_TOLERANCE = 1e-9  # rows further from 1 than this are refused


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseChain(Value):
    """P(X_{t+1} = targets[j] | X_t = x) = weights[j] for starts[x] ≤ j < starts[x + 1].

    The rows of a MarkovChain with their zeros left out (compressed sparse rows, targets ascending
    in each row). `grid` and `cells` say where the states lie on a map: state i is cell cells[i].
    Weights that are stored are moves that can happen: a stored 0 is refused, so that the support
    can be followed as booleans.
    """

    states: tuple[str, ...]
    starts: Ints
    targets: Ints
    weights: Floats
    initial: Floats
    length: int | None = None
    grid: Grid | None = None
    cells: Ints | None = None

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        starts, targets = locked(self.starts, np.int64), locked(self.targets, np.int64)
        weights = np.asarray(self.weights, np.float64)
        _check_rows(starts, targets, weights, len(states))
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "weights", locked(weights))
        object.__setattr__(self, "initial", checked_rows(self.initial, "initial", (len(states),)))
        object.__setattr__(self, "length", checked_length(self.length))
        if (self.grid is None) != (self.cells is None):
            raise InputError("grid and cells go together; give both or neither")
        if self.grid is not None:
            cells = locked(np.asarray(self.cells), np.int64)
            inside = (cells >= 0) & (cells < self.grid.size)
            if cells.shape != (len(states),) or not inside.all():
                raise InputError(
                    f"cells has shape {cells.shape}; give each of the {len(states)} states one "
                    f"cell from 0 to {self.grid.size - 1}"
                )
            object.__setattr__(self, "cells", cells)

    @classmethod
    def of(
        cls,
        matrix: Any,
        *,
        initial: npt.ArrayLike,
        states: Sequence[Any] | None = None,
        length: int | None = None,
        grid: Grid | None = None,
        cells: npt.ArrayLike | None = None,
    ) -> Self:
        """From a scipy sparse matrix or a dense one; zeros are left out."""
        from scipy.sparse import csr_array

        rows = csr_array(matrix, dtype=np.float64)
        rows.eliminate_zeros()
        rows.sort_indices()
        names = range(rows.shape[0]) if states is None else states
        return cls(
            states=tuple(label(name) for name in names),
            starts=rows.indptr.astype(np.int64),
            targets=rows.indices.astype(np.int64),
            weights=rows.data,
            initial=np.asarray(initial, np.float64),
            length=length,
            grid=grid,
            cells=None if cells is None else np.asarray(cells, np.int64),
        )

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def tied(self) -> int | None:
        return self.length

    def matrix(self) -> Any:
        """The transitions as a scipy sparse matrix, for further computation."""
        from scipy.sparse import csr_array

        shape = (self.size, self.size)
        return csr_array((self.weights, self.targets, self.starts), shape=shape)

    def dense(self) -> MarkovChain:
        """The same law as a MarkovChain, with its zeros written out."""
        return MarkovChain(
            states=self.states,
            transition=self.matrix().toarray(),
            initial=self.initial,
            length=self.length,
        )

    def sample(self, length: int, rng: Rng) -> Ints:
        """State indices of one random sequence. Model data only: not a private release."""
        draws = uniforms(length, rng)
        path = np.empty(length, dtype=np.int64)
        law, places = self.initial, np.arange(self.size)
        for t in range(length):
            path[t] = places[categorical(law, draws[t])]
            row = slice(*self.starts[path[t] : path[t] + 2])
            law, places = self.weights[row], self.targets[row]
        return path

    def admit(self, records: Sequences) -> None:
        """Refuse sequences longer than the law covers."""
        admit_length(records, self.length)

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        where = "" if self.grid is None else f", {self.grid.describe()}"
        return (
            f"a sparse Markov chain {length} on {self.size} states with {len(self.targets)} "
            f"possible moves{where}"
        )


def _check_rows(starts: Ints, targets: Ints, weights: Floats, size: int) -> None:
    """Refuse what is not a table of rows that sum to 1, every stored weight above 0."""
    ordered = len(starts) == size + 1 and bool((np.diff(starts) > 0).all()) and starts[0] == 0
    if not ordered or starts[-1] != len(targets) or len(targets) != len(weights):
        raise InputError(
            f"starts must hold {size + 1} increasing numbers from 0 to the number of weights: "
            "every state needs at least one move (give a dead end a move to itself)"
        )
    if len(targets) and not (targets.min() >= 0 and targets.max() < size):
        raise InputError(f"targets must name states, from 0 to {size - 1}")
    row = np.repeat(np.arange(size), np.diff(starts))
    if (np.diff(row * size + targets) <= 0).any():
        raise InputError("targets must ascend in every row, each once")
    if not (np.isfinite(weights).all() and (weights > 0).all()):
        raise InputError("weights must be above 0; leave out moves that cannot happen")
    totals = np.add.reduceat(weights, starts[:-1])
    worst = int(np.abs(totals - 1).argmax())
    if abs(totals[worst] - 1) > ROW_TOLERANCE:
        raise InputError(
            f"weights of row {worst} sum to {totals[worst]:.12g}; each row must sum to 1 "
            "(divide it by its sum)"
        )
