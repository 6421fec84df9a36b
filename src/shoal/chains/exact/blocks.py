"""Laws of many nodes evaluated together: what one scale costs, and the scale a budget needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.chains.exact.sums import (
    DEEPEST_TABLE,
    ChainSum,
    PastOrFuture,
    by_secret,
    convolve_rows,
    join_sides,
    no_mass,
    secrets_of,
)
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.progress import evaluation_in_time
from shoal.mechanisms.mixture import (
    NOTHING,
    WorstOutput,
    evaluation_slack,
    largest_finite,
    smallest_scale,
    smooth_laws,
    step_over,
    two_point_worst,
    worst_of,
)

INSIDE = ("inside", 0)  # the place of nodes far from both ends


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Block:
    """Laws of the sum, (groups, secrets, values), for groups of (node, facts held).

    `nodes` is the node of each group, or -1 for "any of many". `depth` is -log of the smallest
    total of a law that is not identically zero; `roundings` bounds the relative error of every
    entry in units of 2^-53. For every initial law at once, `starts` holds log P(secret | first
    state), (groups, first states, secrets), and `laws` has the first state as its second axis.
    `compiled` blocks are part of a cover large enough for compiled sweeps.
    """

    laws: Floats
    logs: bool
    possible: Bools
    offset: Floats | None
    nodes: Ints
    depth: float
    roundings: float
    starts: Floats | None = None
    compiled: bool = False

    @property
    def span(self) -> int:
        return int(self.laws.shape[-1]) - 1

    def fits(self, decay: float) -> bool:
        """Whether plain doubles are deep enough for noise exp(-decay·|j|)."""
        return self.logs or self.span * decay + self.depth <= DEEPEST_TABLE

    def only(self, group: int) -> Block:
        """One group by itself."""
        one = slice(group, group + 1)
        starts = None if self.starts is None else self.starts[one]
        return replace(
            self,
            laws=self.laws[one],
            possible=self.possible[one],
            nodes=self.nodes[one],
            starts=starts,
        )

    def worst(self, decay: float) -> WorstOutput:
        """The largest loss over groups, pairs and outputs at noise exp(-decay·|j|); rounds up."""
        positions: Floats = decay * np.arange(self.span + 1, dtype=np.float64)
        if self.starts is not None:
            return self._worst_start(positions, self.starts)
        if self.compiled and self.offset is None and not self.logs:
            return self._worst_compiled(decay)
        return worst_of(
            self.laws,
            positions,
            logs=self.logs,
            possible=self.possible,
            offset=self.offset,
            roundings=self.roundings,
            depth=self.depth,
        )

    def _worst_compiled(self, decay: float) -> WorstOutput:
        """Return the worst output of the block by compiled sweeps over plain doubles. Rounds up.

        The value is infinite where the numbers leave the range of doubles.
        """
        from shoal.chains.exact.kernels import steepest_ratio

        laws = np.ascontiguousarray(self.laws)
        ratio, group, secret, other, output, least, most = steepest_ratio(
            laws, np.ascontiguousarray(self.possible), math.exp(-decay)
        )
        if not 0 < ratio < math.inf:
            return WorstOutput(math.inf if ratio > 0 else -math.inf, group, secret, other, output)
        largest = max(abs(math.log(least)), abs(math.log(most)))
        # plain sweeps: three roundings a value and side, and the decay's own at each step
        slack = 2.0**-50 * (4.0 + 4.0 * self.span + self.span * decay + largest)
        value = math.log(ratio) + slack + self.roundings * 2.0**-52
        return WorstOutput(value, group, secret, other, output)

    def _worst_start(self, positions: Floats, starts: Floats) -> WorstOutput:
        """Return the worst output over all initial laws, which `starts` mix two at a time. Rounds
        up.
        """
        density = smooth_laws(self.laws, positions, logs=self.logs)
        if not self.logs:
            with np.errstate(divide="ignore"):
                density = np.log(density)
        found = two_point_worst(density, starts, self.offset)
        slack = evaluation_slack(float(positions[-1]), len(positions), largest_finite(density))
        # four linear functions of the initial law, each with its own relative error
        return found._replace(value=found.value + 4 * slack + 4 * self.roundings * 2.0**-53)


EXACT_LOSS = "the exact loss"  # what is refused when its time is over


class Cell:
    """One block, built when asked for and kept: in doubles, or in logarithms for deep tails.

    `place` says which nodes it covers, in words that larger windows use for the same nodes.
    """

    def __init__(
        self, build: Callable[[bool], Block], *, keep: bool = True, place: tuple[str, int] = INSIDE
    ) -> None:
        """Keep how the block is built; `build` is given whether the block is in logarithms.

        Without `keep` the block is built again at every use. `place` says which nodes it is about.
        """
        self.place = place
        self._build = build
        self.keep = keep
        self._kept: dict[bool, Block] = {}
        self.deep = False  # whether logarithms were ever needed

    def block(self, logs: bool) -> Block:
        """Return the block, in logarithms when `logs`; raises when the evaluation's time is
        over.
        """
        if logs in self._kept:
            return self._kept[logs]
        evaluation_in_time(EXACT_LOSS)
        block = self._build(logs)
        self.deep |= logs
        if self.keep:
            self._kept[logs] = block
        return block

    def at(self, decay: float) -> Block:
        """The block to use at this decay. OutOfTime once the time is over."""
        evaluation_in_time(EXACT_LOSS)
        plain = self.block(False)
        return plain if plain.fits(decay) else self.block(True)

    def only(self, group: int) -> Cell:
        return Cell(lambda logs: self.block(logs).only(group))


def any_deep(cells: Sequence[Cell]) -> bool:
    """Whether some cell needed logarithms, which cost far more than plain tables."""
    return any(cell.deep for cell in cells)


def worst_cell(cells: Sequence[Cell], decay: float) -> tuple[WorstOutput, Cell | None]:
    """The cell with the largest loss, and that loss; stops at the first infinite one."""
    best: tuple[WorstOutput, Cell | None] = (NOTHING, None)
    for cell in cells:
        found = cell.at(decay).worst(decay)
        if found.value > best[0].value:
            best = (found, cell)
        if found.value == math.inf:
            break
    return best


def scale_for(
    cells: Sequence[Cell], epsilon: float, step: float, lower: float, guess: float
) -> tuple[float, WorstOutput, Cell | None]:
    """The smallest scale at which every cell costs at most epsilon, rounded up; inf when none.

    Also the loss there, and the cell that decides. The loss of each cell falls with the scale, so
    one look at all of them is enough: with the scale the first one needs (best the most demanding
    one), and then again only at those for which that was too small, the worst of them first.
    """
    within = epsilon * (1 - 2.0**-43)  # so that looking again, with its own rounding, meets epsilon
    scale, worst, where = _first_scale(cells, within, step, lower, guess)
    if scale == math.inf:
        return scale, worst, where
    behind: list[tuple[float, int, Cell]] = []
    for cell in cells:
        found = worst if cell is where else _at_scale(cell, step, scale)
        if found.value > within:
            behind.append((found.value, len(behind), cell))
    for _, _, cell in sorted(behind, reverse=True):
        found = _at_scale(cell, step, scale)
        if found.value > within:
            scale, worst = _least_scale_above(cell, found.group, within, step, scale)
            where = cell
        if scale == math.inf:
            break
    return scale, worst, where


def _first_scale(
    cells: Sequence[Cell], epsilon: float, step: float, lower: float, guess: float
) -> tuple[float, WorstOutput, Cell | None]:
    """What the first cell with any loss needs; it is looked at from the guess down.

    Tiny scales need logarithms, so they are not tried without need.
    """
    for cell in cells:
        found = _at_scale(cell, step, max(lower, guess))
        if found.value > -math.inf:
            return *_least_scale_above(cell, found.group, epsilon, step, lower), cell
    return lower, NOTHING, None


def _least_scale_above(
    cell: Cell, group: int, epsilon: float, step: float, lower: float
) -> tuple[float, WorstOutput]:
    """The smallest scale from `lower` on at which a cell costs at most epsilon, and its loss."""
    scale, push = _least_scale(cell.only(group), epsilon, step, lower), 2.0**-42
    while scale < math.inf:
        found = _at_scale(cell, step, scale)
        if found.value <= epsilon:
            return scale, found
        needed = _least_scale(cell.only(found.group), epsilon, step, scale)
        # all groups together round up further than one alone, at tiny budgets by much of epsilon
        scale, push = max(needed, scale * (1 + push)), 2 * push
    return math.inf, WorstOutput(math.inf, group)


def _at_scale(cell: Cell, step: float, scale: float) -> WorstOutput:
    decay = step_over(step, scale)
    return cell.at(decay).worst(decay)


def _least_scale(cell: Cell, epsilon: float, step: float, lower: float) -> float:
    """The smallest scale of one cell; inf when the facts held reveal too much by themselves."""

    def loss(scale: float) -> float:
        return _at_scale(cell, step, scale).value

    if not cell.at(0.0).worst(0.0).value < epsilon:
        return math.inf
    upper = max(lower, (cell.at(0.0).span + 1) * step / epsilon)
    for _ in range(64):
        if loss(upper) <= epsilon:
            break
        upper *= 4
    # come down from above: tiny scales need logarithms, so they are not tried unless needed
    bottom = max(lower, upper / 4)
    while bottom > lower and loss(bottom) <= epsilon:
        bottom, upper = max(lower, bottom / 4), bottom
    return smallest_scale(loss, epsilon, bottom, upper)


# A block from what lies before and after its nodes.


# a probability below this may have lost digits to underflow: use logarithms
NEEDS_LOGARITHMS = 1e-200
LOSS_FOR_LESS_WORK = 1e-10  # what may be added to a loss to save work
STEEP = 60.0  # log-ratios of marginals up to which laws may be divided by them
MANY_NODES = -1  # the node of a block that stands for many


def from_start(
    task: ChainSum,
    left: PastOrFuture,
    right: PastOrFuture,
    node: int,
    label: Ints,
    *,
    logs: bool,
    compiled: bool,
) -> Block:
    """One node whose past is taken whole, for each of the facts held after it."""
    secrets = secrets_of(task, label)
    laws = _joint_laws(left, right, task.weights_at(node), label, secrets, logs, compiled)
    states = np.logaddexp.reduce(left.table, axis=-1) if logs else left.table.sum(axis=-1)
    nodes = np.array([node])
    block = _given_secret(task, laws, states, left, right, nodes, label, logs)
    return replace(block, compiled=compiled)


def whole_nodes(
    task: ChainSum, sides: Sequence[tuple[PastOrFuture, PastOrFuture]], nodes: Ints, *, logs: bool
) -> Block:
    """Nodes after the first, each with all that is before and after it."""
    secrets = secrets_of(task, task.label)
    widths = [left.table.shape[-1] + right.table.shape[-1] - 1 for left, right in sides]
    starts = sides[0][0].table.shape[1]
    laws = no_mass((len(sides), starts, 1, secrets, max(widths) + task.reach), logs)
    for law, (left, right) in zip(laws, sides, strict=True):
        _add_whole(law[:, 0], left.table[0], right.table[0, 0], task, logs)
    tables = [left.table for left, _ in sides]
    sums = [np.logaddexp.reduce(t, axis=-1) if logs else t.sum(axis=-1) for t in tables]
    last_left, last_right = sides[-1][0], sides[0][1]
    left = PastOrFuture(
        last_left.table, np.concatenate([s.reach for s, _ in sides]), *_entries_and_steps(last_left)
    )
    right = PastOrFuture(last_right.table, last_right.reach, *_entries_and_steps(last_right))
    states = np.concatenate(sums)
    return _given_secret(task, laws, states, left, right, nodes, task.label, logs)


def _add_whole(law: Floats, left: Floats, right: Floats, task: ChainSum, logs: bool) -> None:
    """Into law (first states, secrets, sum): one node's past (first states, states, sum) and
    future (states, sum) convolved, its own weight added."""
    shown = zip(task.label.tolist(), task.weights.tolist(), strict=True)
    for state, (secret, weight) in enumerate(shown):
        for start in range(len(left)):
            if logs:
                row = convolve_rows(left[start, state], right[state], logs=True)
                target = law[start, secret, weight : weight + len(row)]
                np.logaddexp(target, row, out=target)
            else:
                row = np.convolve(left[start, state], right[state])
                law[start, secret, weight : weight + len(row)] += row


def _entries_and_steps(side: PastOrFuture) -> tuple[Ints, int]:
    return side.entries, side.steps


def _given_secret(
    task: ChainSum,
    laws: Floats,
    states: Floats,
    left: PastOrFuture,
    right: PastOrFuture,
    nodes: Ints,
    label: Ints,
    logs: bool,
) -> Block:
    """Joint laws (nodes, first states, held after, secret, sum) divided by the secret's chance.

    `states` (nodes, first states, states) are the totals of the past. With every initial law at
    once the laws stay undivided, beside P(secret | first state).
    """
    secrets, futures = laws.shape[3], laws.shape[2]
    known = by_secret(left.reach, label, secrets)
    totals = np.where(known, _log_totals(states, label, secrets, logs), -math.inf)
    depth = _depth(laws, _possible_rows(left, right, label, secrets), logs)
    starts = None
    if task.initial is None:
        starts = np.repeat(totals, futures, axis=0)
        laws = np.swapaxes(laws, 1, 2).reshape(-1, laws.shape[1], secrets, laws.shape[-1])
    else:
        laws = _condition_on_secret(laws[:, 0], totals, logs).reshape(-1, secrets, laws.shape[-1])
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known.any(axis=1), futures, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, futures),
        depth=depth,
        roundings=_roundings(left, right, laws, logs),
        starts=starts,
    )


def joint_block(
    task: ChainSum,
    left: PastOrFuture,
    right: PastOrFuture,
    offset: Floats,
    *,
    logs: bool,
    compiled: bool,
) -> Block:
    """All nodes with the same held states before them: joint laws, and the offsets of each pair."""
    secrets = secrets_of(task, task.label)
    laws = _joint_laws(left, right, task.weights, task.label, secrets, logs, compiled)
    laws = laws.reshape(-1, secrets, laws.shape[-1])
    compared = offset > -math.inf
    asked = np.asarray(compared.any(axis=0) | compared.any(axis=1))
    rows = _possible_rows(left, right, task.label, secrets).reshape(laws.shape[:-1]) & asked
    depth, roundings = _depth(laws, rows, logs), _roundings(left, right, laws, logs)
    levels, excess = _levels(offset, asked)
    if (
        excess <= LOSS_FOR_LESS_WORK
    ):  # one law for all nodes: divide by it, and compare the extremes only
        laws = laws - levels[:, None] if logs else laws * np.exp(-levels)[:, None]
        roundings += excess * 2.0**52
    return Block(
        laws=laws,
        logs=logs,
        possible=np.broadcast_to(asked, rows.shape),
        offset=None if excess <= LOSS_FOR_LESS_WORK else offset,
        nodes=np.full(len(laws), MANY_NODES),
        depth=depth,
        roundings=roundings,
        compiled=compiled,
    )


def per_node(
    task: ChainSum,
    left: PastOrFuture,
    right: PastOrFuture,
    nodes: Ints,
    marginals: Floats,
    possible: Bools,
    held: Bools,
    *,
    logs: bool,
) -> Block:
    """Nodes with their own matrices and a held state before each; `held` marks possible ones.

    `marginals` and `possible` are (nodes, states), `held` (nodes, states `lag` earlier).
    """
    secrets = secrets_of(task, task.label)
    laws = _joint_laws(left, right, task.weights, task.label, secrets, logs, False)
    laws = np.where(held[:, :, None, None, None], laws, -math.inf if logs else 0.0)
    known = by_secret(possible, task.label, secrets)
    totals = np.full(known.shape, -math.inf)
    with np.errstate(divide="ignore"):
        for state, secret in enumerate(task.label.tolist()):
            totals[:, secret] = np.logaddexp(totals[:, secret], np.log(marginals[:, state]))
    rows = _possible_rows(left, right, task.label, secrets) & held[:, :, None, None]
    depth = _depth(laws, rows & known[:, None, None], logs)
    laws = _condition_on_secret(laws, totals[:, None], logs).reshape(-1, secrets, laws.shape[-1])
    copies = len(laws) // len(nodes)
    lost = bool((totals[known] < math.log(NEEDS_LOGARITHMS)).any())
    return Block(
        laws=laws,
        logs=logs,
        possible=np.repeat(known, copies, axis=0),
        offset=task.offset,
        nodes=np.repeat(nodes, copies),
        depth=depth,
        # the marginals are plain doubles: one that is nearly lost bounds nothing
        roundings=math.inf if lost else _roundings(left, right, laws, logs),
    )


def _levels(offset: Floats, asked: Bools) -> tuple[Floats, float]:
    """v with offset[x, x'] ≤ v[x'] - v[x] + excess for all pairs, and the least such excess.

    inf when not all pairs of the secrets asked for are compared, or v is steep enough for the
    scaled laws to underflow.
    """
    levels = np.zeros(len(offset))
    members = np.flatnonzero(asked)
    inner = offset[np.ix_(members, members)].copy()
    np.fill_diagonal(inner, 0.0)
    if not (np.abs(inner) <= STEEP).all():
        return levels, math.inf
    levels[members] = inner[0]
    beyond = inner - (levels[members][None, :] - levels[members][:, None])
    return levels, max(float(beyond.max()), 0.0) + 2.0**-50 * float(1 + np.abs(inner).max())


def _joint_laws(
    left: PastOrFuture,
    right: PastOrFuture,
    weights: Ints,
    label: Ints,
    secrets: int,
    logs: bool,
    compiled: bool,
) -> Floats:
    """Joint laws (nodes, held before, held after, secret, sum), without columns that are all 0."""
    laws = join_sides(
        left.table, right.table, weights, label, secrets, logs=logs, compiled=compiled
    )
    filled = (laws > (-math.inf if logs else 0.0)).any(axis=(0, 1, 2, 3))
    width = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 1
    return laws[..., :width]


def _possible_rows(left: PastOrFuture, right: PastOrFuture, label: Ints, secrets: int) -> Bools:
    """Which of those laws are not identically zero."""
    return by_secret(left.reach[:, :, None] & right.reach[:, None], label, secrets)


def _log_totals(states: Floats, label: Ints, secrets: int, logs: bool) -> Floats:
    """log P(secret, held), (nodes, held, secrets), from the totals of states."""
    if not logs:
        with np.errstate(divide="ignore"):
            states = np.log(states)
    totals = np.full((*states.shape[:-1], secrets), -math.inf)
    for state, secret in enumerate(label.tolist()):
        totals[..., secret] = np.logaddexp(totals[..., secret], states[..., state])
    return totals


def _condition_on_secret(laws: Floats, totals: Floats, logs: bool) -> Floats:
    """Laws given the secret: (nodes, held.., secrets, sum) over (nodes, 1, secrets) in logs."""
    safe = np.where(totals > -math.inf, totals, 0.0)
    shape = (*safe.shape[:1], *(1,) * (laws.ndim - 3), safe.shape[-1], 1)
    safe = safe.reshape(shape)
    if logs:
        return np.asarray(laws - safe)
    with np.errstate(over="ignore", invalid="ignore"):  # then `depth` turns to logarithms
        return np.asarray(laws * np.exp(-safe))


def _depth(laws: Floats, rows: Bools, logs: bool) -> float:
    """-log of the smallest total among the joint laws that are not identically zero.

    Joint, not divided by anything: underflow is measured against what was computed.
    """
    if logs or not rows.any():
        return 0.0
    smallest = float(laws.sum(axis=-1)[rows].min())
    return -math.log(smallest) if smallest > NEEDS_LOGARITHMS else math.inf


def _roundings(left: PastOrFuture, right: PastOrFuture, laws: Floats, logs: bool) -> float:
    """A bound on the relative error of the entries of `laws`, in units of 2^-53.

    Each transition costs a product and a sum over the k states and the row's own rounding, the
    convolution one product and one sum per term; a logarithm of size L costs L times as much.
    """
    states, width = left.table.shape[2], laws.shape[-1]
    count: float = 2.0 * (left.steps + right.steps) * (states + 2) + 2.0 * width + 16
    if not logs:
        return count
    finite = laws[np.isfinite(laws)]
    return count * (2.0 + float(np.abs(finite).max(initial=0.0)))
