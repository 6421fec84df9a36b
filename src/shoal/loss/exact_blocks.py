"""Laws of many nodes evaluated together: what one scale costs, and the scale a budget needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shoal.loss.crossing import smallest_scale
from shoal.loss.exact_convolution import DEEPEST_TABLE
from shoal.loss.exact_family import two_point_worst
from shoal.loss.mixture import (
    NOTHING,
    Bools,
    Floats,
    Worst,
    evaluation_slack,
    largest_finite,
    smoothed,
    worst_of,
)
from shoal.loss.sums import Ints

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

    def worst(self, decay: float) -> Worst:
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

    def _worst_compiled(self, decay: float) -> Worst:
        from shoal.loss.exact_kernels import steepest_ratio

        laws = np.ascontiguousarray(self.laws)
        ratio, group, secret, other, output, least, most = steepest_ratio(
            laws, np.ascontiguousarray(self.possible), math.exp(-decay)
        )
        if not 0 < ratio < math.inf:
            return Worst(math.inf if ratio > 0 else -math.inf, group, secret, other, output)
        largest = max(abs(math.log(least)), abs(math.log(most)))
        # plain sweeps: three roundings a value and side, and the decay's own at each step
        slack = 2.0**-50 * (4.0 + 4.0 * self.span + self.span * decay + largest)
        value = math.log(ratio) + slack + self.roundings * 2.0**-52
        return Worst(value, group, secret, other, output)

    def _worst_start(self, positions: Floats, starts: Floats) -> Worst:
        density = smoothed(self.laws, positions, logs=self.logs)
        if not self.logs:
            with np.errstate(divide="ignore"):
                density = np.log(density)
        found = two_point_worst(density, starts, self.offset)
        slack = evaluation_slack(float(positions[-1]), len(positions), largest_finite(density))
        # four linear functions of the initial law, each with its own relative error
        return found._replace(value=found.value + 4 * slack + 4 * self.roundings * 2.0**-53)


class Cell:
    """One block, built when asked for and kept: in doubles, or in logarithms for deep tails.

    `place` says which nodes it covers, in words that larger windows use for the same nodes.
    """

    def __init__(
        self, build: Callable[[bool], Block], *, keep: bool = True, place: tuple[str, int] = INSIDE
    ) -> None:
        self.place = place
        self._build = build
        self._keep = keep
        self._kept: dict[bool, Block] = {}

    def block(self, logs: bool) -> Block:
        if logs in self._kept:
            return self._kept[logs]
        block = self._build(logs)
        if self._keep:
            self._kept[logs] = block
        return block

    def at(self, decay: float) -> Block:
        """The block to use at this decay."""
        plain = self.block(False)
        return plain if plain.fits(decay) else self.block(True)

    def only(self, group: int) -> Cell:
        return Cell(lambda logs: self.block(logs).only(group))


def worst_cell(cells: Sequence[Cell], decay: float) -> tuple[Worst, Cell | None]:
    """The cell with the largest loss, and that loss; stops at the first infinite one."""
    best: tuple[Worst, Cell | None] = (NOTHING, None)
    for cell in cells:
        found = cell.at(decay).worst(decay)
        if found.value > best[0].value:
            best = (found, cell)
        if found.value == math.inf:
            break
    return best


def scale_for(
    cells: Sequence[Cell], epsilon: float, step: float, lower: float, guess: float
) -> tuple[float, Worst, Cell | None]:
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
            scale, worst = _raised(cell, found.group, within, step, scale)
            where = cell
        if scale == math.inf:
            break
    return scale, worst, where


def _first_scale(
    cells: Sequence[Cell], epsilon: float, step: float, lower: float, guess: float
) -> tuple[float, Worst, Cell | None]:
    """What the first cell with any loss needs; it is looked at from the guess down.

    Tiny scales need logarithms, so they are not tried without need.
    """
    for cell in cells:
        found = _at_scale(cell, step, max(lower, guess))
        if found.value > -math.inf:
            return *_raised(cell, found.group, epsilon, step, lower), cell
    return lower, NOTHING, None


def _raised(
    cell: Cell, group: int, epsilon: float, step: float, lower: float
) -> tuple[float, Worst]:
    """The smallest scale from `lower` on at which a cell costs at most epsilon, and its loss."""
    scale, push = _needed(cell.only(group), epsilon, step, lower), 2.0**-42
    while scale < math.inf:
        found = _at_scale(cell, step, scale)
        if found.value <= epsilon:
            return scale, found
        needed = _needed(cell.only(found.group), epsilon, step, scale)
        # all groups together round up further than one alone, at tiny budgets by much of epsilon
        scale, push = max(needed, scale * (1 + push)), 2 * push
    return math.inf, Worst(math.inf, group)


def _at_scale(cell: Cell, step: float, scale: float) -> Worst:
    decay = step_over(step, scale)
    return cell.at(decay).worst(decay)


def step_over(step: float, scale: float) -> float:
    """step / scale, rounded up: more decay is less noise."""
    return math.nextafter(step / scale, math.inf)


def _needed(cell: Cell, epsilon: float, step: float, lower: float) -> float:
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
