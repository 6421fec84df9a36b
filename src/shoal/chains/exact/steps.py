"""The laws of a sum over a chain as noise in steps looks at them: whole, or by windows.

The blocks are those of the exact loss, whose windows hold for any noise (mechanisms/steps.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.chains.exact.blocks import Block, Cell
from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.sums import DEEPEST_TABLE
from shoal.mechanisms.mixture import WorstOutput, steepest, two_point_worst
from shoal.mechanisms.steps import Line, StepLaw, density_slack, step_density, too_many

MOST_NUMBERS = 1_000_000  # of all laws together: evaluated some thirty times in a search
WINDOWS_FORGET = (
    1e-5,
    1e-4,
    1e-3,
    4e-3,
)  # of an entry's influence, where a window ends: best first
SLOWEST = 200  # entries on one side of a window


def chain_lines(cover: NodeBlocks, epsilon: float) -> list[Line] | str:
    """What the loss is a maximum over: the whole chain where it is small, else windows.

    None of it depends on earlier calls: a later check of a plan uses the same laws.
    """
    task = cover.task
    if task.constant:
        return []
    if _whole_numbers(cover) <= MOST_NUMBERS:
        cells = cover.whole()
    else:
        size = _window(cover)
        if size is None:
            return "the chain forgets its entries too slowly for its laws to be evaluated often"
        cells = cover.windows(size)
    return [CellLine(cell, round(task.step)) for cell in cells]


def _whole_numbers(cover: NodeBlocks) -> float:
    """How many numbers the laws of the whole chain hold; inf for any length."""
    task = cover.task
    if task.length is None:
        return math.inf
    starts = task.states if task.initial is None else 1
    groups = task.length * ((task.length + 1) / 2 if task.shorter else 1)
    values = task.reach * task.length + task.first_reach + 1.0
    return groups * starts * task.states * values


def _window(cover: NodeBlocks) -> int | None:
    """A window at which an entry is nearly forgotten, by the second eigenvalue; None: too wide.

    A guess, which decides only how tight the bound is.
    """
    task = cover.task
    second = max(_second(matrix) for matrix in task.matrices[: 1 if task.homogeneous else 8])
    if not second < 1:
        return None
    copies = 1 if task.homogeneous else (task.length or 1) * task.states
    for left in WINDOWS_FORGET:
        size = max(2, math.ceil(math.log(left) / math.log(second))) if second > 0 else 2
        fits = size <= SLOWEST and cover.numbers(size) * copies <= MOST_NUMBERS
        if fits and math.isfinite(cover.window_work(size)):
            return size
    return None


def _second(matrix: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    moduli = np.sort(np.abs(np.linalg.eigvals(matrix)))
    return float(moduli[-2]) if len(moduli) > 1 else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class CellLine:
    """A block of laws on multiples of `spacing` lattice steps."""

    cell: Cell
    spacing: int

    def worst(self, law: StepLaw) -> WorstOutput:
        """The largest loss over groups, pairs and outputs; rounds up. inf where doubles end."""
        block = self._deep_enough(law)
        if block is None:
            return WorstOutput(math.inf)
        values = self.spacing * np.arange(block.span + 1, dtype=np.int64)
        density = step_density(block.laws, values, law, logs=block.logs)
        if density is None:
            return WorstOutput(math.inf)
        slack = density_slack(values, law, density, logs=block.logs)
        if block.starts is not None:  # four linear functions of the initial law, each rounded
            found = two_point_worst(density, block.starts, block.offset)
            return found._replace(value=found.value + 4 * slack + 4 * block.roundings * 2.0**-53)
        found = steepest(density, block.possible, block.offset)
        return found._replace(value=found.value + slack + block.roundings * 2.0**-52)

    def only(self, worst: WorstOutput) -> Line:
        """The group that decided."""
        return CellLine(self.cell.only(worst.group), self.spacing)

    def _deep_enough(self, law: StepLaw) -> Block | None:
        """The laws in doubles, or in logarithms where those are not deep enough and few."""
        plain = self.cell.block(False)
        span = self.spacing * plain.span
        if law.depth(span) + plain.depth <= DEEPEST_TABLE:
            return plain
        rows = math.prod(plain.laws.shape[:-1])
        if too_many(rows, plain.span + 1, span + 2 * law.width - 1, logs=True):
            return None
        return self.cell.block(True)
