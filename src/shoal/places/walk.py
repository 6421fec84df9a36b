"""Markov chains on many states with few moves each, such as the cells of a map, and their fits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import MarkovChain, admit_length, checked_length, checked_rows
from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact, positive, whole
from shoal.core.records import Sequences, checked_states, label
from shoal.core.registry import load
from shoal.core.task import Law, Model
from shoal.places.map import Grid

if TYPE_CHECKING:
    from shoal.core.motion import Motion


ROW_TOLERANCE = 1e-9  # rows further from 1 than this are refused


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SparseChain(Law):
    """P(X_{t+1} = targets[j] | X_t = x) = weights[j] for starts[x] ≤ j < starts[x + 1].

    The rows of a MarkovChain with their zeros left out (compressed sparse rows, targets ascending
    in each row). `grid` and `cells` say where the states lie on a map: state i is cell cells[i].
    Weights that are stored are moves that can happen: a stored 0 is refused, so that the support
    can be followed as booleans. `step_seconds` is the length of a step in time, where it is known:
    streams are released with the same one.
    """

    kind = "sparse-chain"

    states: tuple[str, ...]
    starts: Ints
    targets: Ints
    weights: Floats
    initial: Floats
    length: int | None = None
    grid: Grid | None = None
    cells: Ints | None = None
    step_seconds: float | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse moves, an initial law, a length or cells that do not fit the states; lock the
        arrays.
        """
        states = checked_states(self.states)
        starts, targets = as_read_only(self.starts, np.int64), as_read_only(self.targets, np.int64)
        weights = np.asarray(self.weights, np.float64)
        _check_rows(starts, targets, weights, len(states))
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "weights", as_read_only(weights))
        object.__setattr__(self, "initial", checked_rows(self.initial, "initial", (len(states),)))
        object.__setattr__(self, "length", checked_length(self.length))
        if self.step_seconds is not None:
            seconds = float(positive(self.step_seconds, "step_seconds"))
            object.__setattr__(self, "step_seconds", seconds)
        if (self.grid is None) != (self.cells is None):
            raise InputError("grid and cells go together; give both or neither")
        if self.grid is not None:
            cells = as_read_only(np.asarray(self.cells), np.int64)
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

    def motion(self) -> Motion:
        from shoal.core.motion import first_order

        return first_order([self.matrix()], self.initial, self.length, homogeneous=True)

    def admit(self, records: Sequences) -> None:
        """Refuse sequences longer than the law covers."""
        admit_length(records, self.length)

    def describe(self) -> str:
        """Return in words the length, the number of states and moves, the map and the step."""
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        where = "" if self.grid is None else f", {self.grid.describe()}"
        if self.step_seconds is not None:
            where += f", a step every {self.step_seconds:g} s"
        return (
            f"a sparse Markov chain {length} on {self.size} states with {len(self.targets)} "
            f"possible moves{where}"
        )


def grid_of(model: Model) -> Grid | None:
    """The map of a model; None when it has none."""
    return model.grid if isinstance(model, SparseChain) else None


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


# Chains on maps from trajectories: of all people (popular), or of one person (personal).
#
# A model fitted on private trajectories tells about them; fit on data that may be public.


Start = Literal["visits", "first", "uniform"]
STARTS: tuple[Start, ...] = ("visits", "first", "uniform")


class GridFit(NamedTuple):
    """A fitted chain and what was seen on the way.

    `dead_ends` are states never left in the data; they are given a stay. `outside` counts
    readings beyond the map, each of which ends a chain.
    """

    chain: SparseChain
    transitions: int
    chains: int
    dead_ends: tuple[str, ...]
    outside: int

    def describe(self) -> str:
        """Return in words the transitions counted, the cells, dead ends and readings off the
        map.
        """
        ends = ", ".join(self.dead_ends[:5]) + (", …" if len(self.dead_ends) > 5 else "")
        dead = f"; {len(self.dead_ends)} dead end(s), given a stay: {ends}" if ends else ""
        beyond = f"; {self.outside} reading(s) outside the map" if self.outside else ""
        return (
            f"{self.transitions} transitions in {self.chains} chain(s) between "
            f"{self.chain.size} cells, {len(self.chain.targets)} kinds of moves{dead}{beyond}"
        )


def fit_grid(
    grid: Grid,
    trajectories: Any,
    *,
    smoothing: Number = 0,
    initial: Start = "visits",
    length: int | None = None,
    **columns: Any,
) -> GridFit:
    """P(x, y) = n_xy / n_x on the cells that occur; `trajectories` are chains of cell numbers.

    Or a table or a file, whose `columns` are named: `latitude` and `longitude`, or `state` (names
    of cells), and as in `shoal.read` `series`, `time`, `gap`, `where`, ….

    A number below 0 is a reading outside the map and ends a chain; gaps in time are cut before
    (`cut_at_gaps`), and `every` lays the rows of a table on even steps. `smoothing` is added to the
    counts of staying and of moving to each adjacent cell that occurs, which keeps the chain sparse.
    `initial`: the share of visits, of first readings, or uniform.
    """
    pseudo = float(exact(smoothing, "smoothing"))
    if pseudo < 0:
        raise InputError(f"smoothing is {pseudo:g}; it must not be negative")
    if initial not in STARTS:
        raise InputError(f"initial is {initial!r}; it must be one of {list(STARTS)}")
    if columns:
        trajectories = _cell_paths(grid, trajectories, columns)
    chains, outside = _inside(trajectories, grid.size)
    if sum(map(len, chains)) < 2:
        raise DataError("the trajectories hold fewer than 2 readings on the map; check the grid")
    cells = np.unique(np.concatenate(chains))
    paths = [np.searchsorted(cells, chain) for chain in chains]
    counts = _count_moves(paths, len(cells))
    seen = int(counts.sum())
    if pseudo:
        counts = counts + _around(grid, cells, pseudo)
    rows, dead = _normalise_rows(counts)
    chain = _on_grid(grid, cells, rows, _first_law(paths, len(cells), initial), length)
    if columns.get("every") is not None:
        step = load("shoal.data.times:duration")(columns["every"], "every").total_seconds()
        chain = replace(chain, step_seconds=step)
    return GridFit(chain, seen, len(chains), tuple(chain.states[i] for i in dead), outside)


def _on_grid(
    grid: Grid, cells: Ints, rows: Any, initial: Floats, length: int | None
) -> SparseChain:
    """The chain of these rows, its states named as the map names their cells."""
    names = [grid.name_of(cell) for cell in cells.tolist()]
    return SparseChain.of(
        rows, initial=initial, states=names, length=length, grid=grid, cells=cells
    )


def free_walk(
    grid: Grid, *, stay: Number = 0.5, start: int | None = None, length: int | None = None
) -> SparseChain:
    """One stays in a cell with probability `stay`, or moves to an adjacent one, evenly.

    A model without data, of a map or of roads; `start` is a public first cell.
    """
    from scipy.sparse import coo_array

    kept = float(exact(stay, "stay"))
    if not 0 <= kept <= 1:
        raise InputError(f"stay is {kept:g}; it must lie between 0 and 1")
    origins, targets, weights = list[int](), list[int](), list[float]()
    for cell in range(grid.size):
        near = grid.adjacent(cell)
        origins += [cell] * (len(near) + 1)
        targets += [cell, *near]
        weights += [kept, *[(1 - kept) / len(near)] * len(near)] if near else [1.0]
    cells = np.arange(grid.size)
    rows = coo_array((weights, (origins, targets)), shape=(grid.size, grid.size))
    even = np.full(grid.size, 1 / grid.size)
    first = even if start is None else (cells == start).astype(np.float64)
    return _on_grid(grid, cells, rows, first, length)


def fit_person(
    popular: SparseChain, trajectories: Any, *, weight: Number = 10, **columns: Any
) -> SparseChain:
    """One person's chain, leaning on the common chain: (n_xy + w P(x, y)) / (n_x + w), w = weight.

    `trajectories` and `columns` are those of `fit_grid`.

    Every move of the popular model stays possible, so the personal one never calls impossible
    what others do. Readings on cells the popular model does not have are left out.
    """
    lean = float(exact(weight, "weight"))
    if popular.grid is None or popular.cells is None:
        raise InputError("the popular model has no grid; fit it with fit_grid")
    if lean <= 0:
        raise InputError(f"weight is {lean:g}; it must be above 0, or unseen rows have no law")
    if columns:
        trajectories = _cell_paths(popular.grid, trajectories, columns)
    known = np.full(popular.grid.size, -1, dtype=np.int64)
    known[popular.cells] = np.arange(popular.size)
    moved = [known[np.where(c < 0, 0, c)] * (c >= 0) - (c < 0) for c in _arrays(trajectories)]
    paths, _ = _inside(moved, popular.size)
    counts = _count_moves(paths, popular.size) + lean * popular.matrix()
    rows, _ = _normalise_rows(counts)
    visits = np.bincount(np.concatenate([np.empty(0, np.int64), *paths]), minlength=popular.size)
    first = (visits + lean * popular.initial) / (visits.sum() + lean)
    chain = SparseChain.of(
        rows,
        initial=first,
        states=popular.states,
        length=popular.length,
        grid=popular.grid,
        cells=popular.cells,
    )
    return replace(chain, step_seconds=popular.step_seconds)


def _cell_paths(grid: Grid, data: Any, columns: dict[str, Any]) -> list[Ints]:
    """The chains of cells of all people in a table or a file."""
    found = load("shoal.data.positions:cell_paths")(grid, data, **columns)
    return [chain for chains in found.values() for chain in chains]


def cut_at_gaps(cells: npt.ArrayLike, seconds: npt.ArrayLike, gap: float) -> list[Ints]:
    """Chains of cells between pauses longer than `gap` seconds; times must not go back."""
    values, times = np.asarray(cells, np.int64), np.asarray(seconds, np.float64)
    if values.shape != times.shape:
        raise DataError(f"{len(values)} cells with {len(times)} times; give each reading its time")
    pauses = np.diff(times)
    if (pauses < 0).any():
        raise DataError("times go back within a trajectory; sort it by time first")
    return np.split(values, np.flatnonzero(pauses > gap) + 1)


def _arrays(trajectories: Iterable[npt.ArrayLike]) -> list[Ints]:
    return [np.asarray(trajectory, np.int64).ravel() for trajectory in trajectories]


def _inside(trajectories: Iterable[npt.ArrayLike], size: int) -> tuple[list[Ints], int]:
    """Chains cut at readings outside the map, and how many of those there are."""
    chains: list[Ints] = []
    outside = 0
    for cells in _arrays(trajectories):
        beyond = (cells < 0) | (cells >= size)
        outside += int(beyond.sum())
        pieces = np.split(np.where(beyond, -1, cells), np.flatnonzero(beyond))
        kept = [piece[piece >= 0] for piece in pieces]
        chains += [piece for piece in kept if len(piece)]
    return chains, outside


def _count_moves(paths: Sequence[Ints], size: int) -> Any:
    """n_xy as a sparse matrix."""
    from scipy.sparse import coo_array

    starts = np.concatenate([np.empty(0, np.int64), *(path[:-1] for path in paths)])
    ends = np.concatenate([np.empty(0, np.int64), *(path[1:] for path in paths)])
    return coo_array((np.ones(len(starts)), (starts, ends)), shape=(size, size)).tocsr()


def _around(grid: Grid, cells: Ints, pseudo: float) -> Any:
    """Return a sparse matrix (cells, cells) with `pseudo` on the diagonal and between adjacent
    cells.
    """
    from scipy.sparse import coo_array

    place = {int(cell): i for i, cell in enumerate(cells)}
    pairs = [(i, i) for i in range(len(cells))]
    for i, cell in enumerate(cells.tolist()):
        pairs += [(i, place[near]) for near in grid.adjacent(cell) if near in place]
    first, second = np.array(pairs).T
    shape = (len(cells), len(cells))
    return coo_array((np.full(len(pairs), pseudo), (first, second)), shape=shape).tocsr()


def _normalise_rows(counts: Any) -> tuple[Any, Ints]:
    """Rows that sum to 1, and the states without a count, which stay where they are."""
    from scipy.sparse import csr_array, diags_array

    totals = np.asarray(counts.sum(axis=1)).ravel()
    dead = np.flatnonzero(totals == 0)
    stay = np.zeros(len(totals))
    stay[dead] = 1.0
    scale = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    return csr_array(diags_array(scale) @ counts + diags_array(stay)), dead


def _first_law(paths: Sequence[Ints], size: int, initial: Start) -> Floats:
    if initial == "uniform":
        return np.full(size, 1 / size)
    chosen = np.concatenate(paths) if initial == "visits" else np.array([p[0] for p in paths])
    counts = np.bincount(chosen, minlength=size).astype(np.float64)
    return np.asarray(counts / counts.sum())


# A chain learned from noisy outputs: Baum–Welch with emissions that are known.
#
# Everything it sees was released already, so the model it returns costs no further privacy.


class LearnedChain(NamedTuple):
    """The chain after the last round, and the log-likelihood of the outputs before each round."""

    chain: SparseChain
    log_likelihoods: tuple[float, ...]


def baum_welch(
    start: SparseChain | MarkovChain,
    outputs: Any,
    *,
    rounds: int = 20,
    smoothing: Number = 0,
    series: str | None = None,
    time: str | None = None,
) -> LearnedChain:
    """The chain that makes the outputs likelier, round by round, beginning at `start`.

    `outputs` holds, for each sequence, log P(output t | state s) as an array (steps, states), up
    to a constant per step; rows of zeros are steps without an output. A table or a file has a
    column of them for each state; `series` tells sequences apart and `time` orders them. Moves that
    `start` calls impossible stay so. `smoothing` times `start`'s own row is added to the expected
    counts, which keeps rows that were hardly visited. The likelihood never falls (without
    smoothing).
    """
    chain = start if isinstance(start, SparseChain) else _sparse(start)
    lean = float(exact(smoothing, "smoothing"))
    if load("shoal.data.entries:is_source")(outputs):
        outputs = load("shoal.data.entries:likelihoods")(outputs, chain.states, series, time)
    elif series is not None or time is not None:
        raise InputError("series and time name columns; give the outputs as a table or a file")
    sequences = [_checked_log_rows(rows, chain.size) for rows in outputs]
    if not sequences:
        raise InputError("outputs is empty; give at least one sequence")
    prior = chain
    history = []
    for _ in range(whole(rounds, "rounds")):
        moves, first = np.zeros(len(chain.targets)), np.zeros(chain.size)
        total = 0.0
        for rows in sequences:
            total += _add_expected_counts(chain, rows, moves, first)
        history.append(total)
        chain = _chain_of_counts(chain, prior, moves, first, lean)
    return LearnedChain(chain, tuple(history))


def _add_expected_counts(chain: SparseChain, logs: Floats, moves: Floats, first: Floats) -> float:
    """Adds the expected moves and first states of one sequence; its log-likelihood comes back."""
    highest = logs.max(axis=1)
    with np.errstate(under="ignore"):
        weights = np.exp(logs - highest[:, None])
    steps, matrix = len(logs), chain.matrix()
    forward, scales = np.empty_like(weights), np.empty(steps)
    backwards = matrix.T.tocsr()
    belief = chain.initial
    for t in range(steps):
        belief = (backwards @ belief if t else belief) * weights[t]
        scales[t] = belief.sum()
        if scales[t] <= 0:
            raise InputError(
                f"outputs: step {t + 1} of a sequence is impossible under the chain; smooth it, "
                "or leave the sequence out"
            )
        belief = belief / scales[t]
        forward[t] = belief
    origins = np.repeat(np.arange(chain.size), np.diff(chain.starts))
    later = np.ones(chain.size)
    for t in range(steps - 1, 0, -1):
        ahead = weights[t] * later / scales[t]
        moves += forward[t - 1][origins] * chain.weights * ahead[chain.targets]
        later = matrix @ ahead
    first += forward[0] * later
    return float(np.log(scales).sum() + highest.sum())


def _chain_of_counts(
    chain: SparseChain, prior: SparseChain, moves: Floats, first: Floats, lean: float
) -> SparseChain:
    """The chain of the expected counts; rows never left keep their law."""
    counts = moves + lean * prior.weights
    totals = np.add.reduceat(counts, chain.starts[:-1])
    spread = np.repeat(totals, np.diff(chain.starts))
    kept = spread <= 0
    shares = np.where(kept, chain.weights, counts / np.where(kept, 1.0, spread))
    # a move that is stored can happen: what underflows stays at the least positive share
    shares = np.maximum(shares, np.finfo(np.float64).tiny)
    shares = shares / np.repeat(np.add.reduceat(shares, chain.starts[:-1]), np.diff(chain.starts))
    law = first + lean * prior.initial
    shares = np.maximum(shares, np.finfo(np.float64).tiny)
    return replace(chain, weights=shares, initial=law / law.sum())


def _sparse(chain: MarkovChain) -> SparseChain:
    if not chain.homogeneous:
        raise InputError("start has one matrix per step; Baum–Welch learns one for all steps")
    return SparseChain.of(
        chain.transition, initial=chain.initial, states=chain.states, length=chain.length
    )


def _checked_log_rows(rows: npt.ArrayLike, size: int) -> Floats:
    """Return logarithms of likelihoods, (steps, states); refuse another shape, NaN, or an empty
    step.
    """
    logs: Any = np.asarray(rows, np.float64)
    if logs.ndim != 2 or logs.shape[1] != size or not len(logs):
        raise InputError(
            f"outputs has a sequence of shape {logs.shape}; it must be (steps, {size})"
        )
    if np.isnan(logs).any() or not (logs.max(axis=1) > -np.inf).all():
        raise InputError("outputs has a step that no state can explain; check its likelihoods")
    return np.asarray(logs)
