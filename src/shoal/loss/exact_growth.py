"""Windows around every node of a chain, grown until they gain no more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.loss.exact_blocks import INSIDE, Cell
from shoal.loss.exact_cover import MAX_WHOLE, MAX_WORK, Cover
from shoal.loss.mixture import Worst

FIRST_SIZE = 2
SECOND_WORK = 200_000_000  # multiplications for windows that may only improve a bound at hand


class Measured(NamedTuple):
    """What a cover amounts to (a loss, or the log of a scale), and the cell that decides."""

    amount: float
    worst: Worst
    cell: Cell | None
    scale: float = math.nan


class Goal(NamedTuple):
    """Where windows may stop: at an amount that is enough, or at the least one possible.

    They also end before a size above `widest`; without one, by their work alone.
    """

    enough: float
    least: float
    widest: int | None


class Grown(NamedTuple):
    """The tightest cover found: its measure, its window (None: the whole chain), settled or not."""

    measured: Measured
    size: int | None
    settled: bool


def grow(
    cover: Cover,
    measure: Callable[[Sequence[Cell]], Measured],
    tolerance: float,
    goal: Goal,
) -> Grown | None:
    """The whole chain when it is cheap, else windows that grow until they gain no more.

    The cells that decided smaller windows tell how tight a larger one is. All cells are measured
    once those gain less than `tolerance`, or come down to the goal, or no larger window can be
    afforded; if another cell turns out to decide, it is watched too. None: all infinite.
    """
    enough, least, widest = goal
    if cover.short:
        return Grown(measure(cover.whole()), None, True)
    best: Grown | None = None
    watched, last, size, smaller = {INSIDE}, math.inf, FIRST_SIZE, 0
    while not cover.hopeless and _affordable(cover, size, widest):
        larger = size + (size + 1) // 2
        amount = measure([cell for cell in cover.windows(size) if cell.place in watched]).amount
        settled = last - amount <= tolerance or amount - least <= tolerance
        due = best is None or settled or amount <= enough or not _affordable(cover, larger, widest)
        if due and amount < math.inf:
            measured = measure(cover.windows(size))
            if settled and measured.amount - amount > tolerance:  # some other cell decides
                before = _at_place(cover, smaller, measured)
                settled = bool(before) and measure(before).amount - measured.amount <= tolerance
                settled = settled or measured.amount - least <= tolerance
            if measured.cell is not None:
                watched.add(measured.cell.place)
            amount = measured.amount
            if best is None or amount <= best.measured.amount + tolerance:
                best = Grown(measured, size, settled)
            near = enough < amount <= enough + 10 * tolerance
            if amount <= enough or (settled and not near):
                return best
        last, size, smaller = amount, larger, size
    short = best is None or best.measured.amount > enough > -math.inf
    if short and widest is None and cover.whole_work() <= MAX_WHOLE:
        return Grown(measure(cover.whole()), None, True)
    return None if best is None or best.measured.amount == math.inf else best


def _affordable(cover: Cover, size: int, widest: int | None) -> bool:
    """Whether windows of `size` are worth their work; less of it when a bound is at hand."""
    if widest is None:
        return cover.window_work(size) <= MAX_WORK
    return size <= widest and cover.window_work(size) <= SECOND_WORK


def _at_place(cover: Cover, size: int, measured: Measured) -> list[Cell]:
    """The cells of smaller windows that cover the nodes of the cell that decides."""
    if measured.cell is None:
        return []
    return [cell for cell in cover.windows(size) if cell.place == measured.cell.place]
