"""Many-step laws of a chain, with exact zeros and a proved rounding error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from shoal.core.codec import Bools, Floats

UNIT = 2.0**-53  # half the distance from 1 to the next double
TINY = 1e-280  # below this a double may have lost digits to underflow


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """values[x, y] = P(X_{t+steps} = y | X_t = x); `possible` is its support, exact.

    Every entry of at least TINY has relative error below steps·(k+2)·UNIT: sums of products of
    non-negative numbers lose nothing to cancellation, whatever the order of the products.
    """

    values: Floats
    possible: Bools
    steps: int

    @classmethod
    def of(cls, transition: Floats) -> Kernel:
        return cls(transition, transition > 0, 1)

    def then(self, later: Kernel) -> Kernel:
        """The law after this kernel and then `later`."""
        return Kernel(
            self.values @ later.values,
            _joined(self.possible, later.possible),
            self.steps + later.steps,
        )


class LogBounds(NamedTuple):
    """lower <= log of the true value <= upper, up to `error`; -inf above means impossible."""

    upper: Floats
    lower: Floats
    error: float


class PowerWalk(Protocol):
    """The many-step laws of one chain."""

    size: int

    def kernel(self, start: int, steps: int) -> Kernel: ...


class Powers:
    """Walk of a time-homogeneous chain: any power from a few stored ones."""

    def __init__(self, transition: Floats) -> None:
        self.size = len(transition)
        self._doubled = [Kernel.of(transition)]  # powers 1, 2, 4, …
        self._known: dict[int, Kernel] = {}

    def kernel(self, start: int, steps: int) -> Kernel:
        """The `steps`-th power, steps at least 1; `start` does not matter."""
        found = self._known.get(steps)
        if found is None:
            found = self._product(steps)
            self._known[steps] = found
        return found

    def _product(self, steps: int) -> Kernel:
        highest = steps.bit_length() - 1
        while len(self._doubled) <= highest:
            last = self._doubled[-1]
            self._doubled.append(last.then(last))
        rest = steps - (1 << highest)
        if rest == 0:
            return self._doubled[highest]
        return self._doubled[highest].then(self.kernel(0, rest))


class KernelSegments:
    """Walk of a chain with one matrix per step: products over blocks of 1, 2, 4, … steps."""

    def __init__(self, transitions: Sequence[Floats] | Floats) -> None:
        self._steps = [Kernel.of(np.asarray(matrix)) for matrix in transitions]
        self.size = self._steps[0].values.shape[0]
        self._blocks: dict[tuple[int, int], Kernel] = {}

    def kernel(self, start: int, steps: int) -> Kernel:
        """The product of the matrices start, …, start + steps - 1, from aligned blocks."""
        level = steps.bit_length() - 1
        if start:
            level = min(level, (start & -start).bit_length() - 1)
        block, rest = self._block(start >> level, level), steps - (1 << level)
        return block.then(self.kernel(start + (1 << level), rest)) if rest else block

    def _block(self, index: int, level: int) -> Kernel:
        if level == 0:
            return self._steps[index]
        found = self._blocks.get((index, level))
        if found is None:
            first = self._block(2 * index, level - 1)
            found = first.then(self._block(2 * index + 1, level - 1))
            self._blocks[index, level] = found
        return found


def log_bounds(values: Floats, possible: Bools, operations: int) -> LogBounds:
    """Logarithms of `values` that underflow cannot push to the wrong side.

    Where `possible` but below TINY, the upper bound is log TINY and the lower bound -inf, so a
    ratio can only grow. `operations` counts the roundings behind each value; `error` covers them
    and those of the logarithm.
    """
    safe = values >= TINY
    if safe.all():
        upper = lower = np.log(values)
        deepest = float(-lower.min())
    else:
        logs = np.log(np.maximum(values, TINY))
        upper = np.where(possible, logs, -np.inf)
        lower = np.where(safe, logs, -np.inf)
        deepest = float(-logs.min())
    return LogBounds(upper, lower, (1.01 * operations + 4.0 * deepest + 4.0) * UNIT)


def kernel_logs(kernel: Kernel) -> LogBounds:
    """Bounds on the logarithms of a kernel's entries."""
    operations = kernel.steps * (len(kernel.values) + 2)
    return log_bounds(kernel.values, kernel.possible, operations)


def next_support(support: Bools, transition: Floats) -> Bools:
    """The values possible one step after a set of possible values."""
    return np.asarray((transition[support] > 0).any(axis=0))


def _joined(first: Bools, second: Bools) -> Bools:
    """Where a two-stage path exists; an exact count of paths in single precision."""
    if first.all() and second.all():
        return first
    return np.asarray(first.astype(np.float32) @ second.astype(np.float32) > 0.5)
