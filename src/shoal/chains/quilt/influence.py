"""Max-influence on a chain: how far the law of other entries moves when one entry changes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shoal.chains.walk import UNIT, Kernel, LogBounds, kernel_logs, log_bounds, next_support
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError

Indices = npt.NDArray[np.intp]

BLOCK = 1 << 21  # numbers held at once while comparing rows


def max_influence(transition: Floats, initial: Floats, node: int, quilt: Iterable[int]) -> float:
    """How far the quilt's law can move, in log-ratio, when X[node] changes.

    max over x, x', q of  log P(X_Q = q | X_i = x) - log P(X_Q = q | X_i = x'),
    with i = node and Q = quilt, both counted from 0. `transition` is (k, k) or one matrix per
    step. Only the nearest quilt node on each side matters: the others are independent of X_i
    given it. Values X_i never takes are not secrets and values of probability 0 are not in Q's
    range. Rounds up; inf when some q is possible under x and impossible under x'.
    Song, Wang & Chaudhuri 2017, Definition 4.1 and Eq. (5).
    """
    nodes = sorted(set(quilt))
    if node in nodes or (nodes and nodes[0] < 0) or node < 0:
        raise InputError(f"quilt is {nodes} for node {node}; nodes count from 0 and exclude it")
    before = [other for other in nodes if other < node]
    after = [other for other in nodes if other > node]
    supports, law = _history(transition, initial, node)
    secrets = np.flatnonzero(supports[node])
    moved = np.zeros((len(secrets), len(secrets)))
    if before:
        origins = np.flatnonzero(supports[before[-1]])
        logs = kernel_logs(_stretch(transition, before[-1], node))
        past = past_log_ratio(logs, origins, secrets)
        moved = past + law_log_ratios(law[None], supports[node], node)[0]
    if after:
        logs = kernel_logs(_stretch(transition, node, after[0]))
        moved = moved + future_log_ratio(logs, secrets)
    return largest(moved)


def future_log_ratio(logs: LogBounds, secrets: Indices) -> Floats:
    """F(x, x') = max over y of log P(X_{i+b} = y | X_i = x) - log P(X_{i+b} = y | X_i = x').

    `logs` are those of the b-step law after X_i; x, x' run over `secrets`. Rounds up; 0/0 is no
    constraint, c/0 is inf. At least 0, and non-increasing in b (data processing).
    """
    return _largest_gap(logs.upper[secrets], logs.lower[secrets], logs.error)


def past_log_ratio(logs: LogBounds, origins: Indices, secrets: Indices) -> Floats:
    """L(x, x') = max over y in origins of log P(X_i = x | X_{i-a} = y) - log P(X_i = x' | …).

    `logs` are those of the a-step law before X_i. The reversed log-ratio B(x, x') of Eq. (5) is L
    plus `law_log_ratios`. Rounds up; 0/0 is no constraint, c/0 is inf.
    """
    columns = np.ix_(origins, secrets)
    return _largest_gap(logs.upper[columns].T, logs.lower[columns].T, logs.error)


def future_top(logs: LogBounds, secrets: Indices) -> float:
    """The largest F(x, x') over all pairs, without the table of pairs."""
    upper, lower = logs.upper[secrets].max(axis=0), logs.lower[secrets].min(axis=0)
    with np.errstate(invalid="ignore"):
        gap = np.fmax.reduce(upper - lower, initial=0.0)
    return float(gap) + 2.0 * logs.error


def future_at(logs: LogBounds, first: Indices, second: Indices) -> Floats:
    """F(x, x') at the pairs x = first[j], x' = second[j] only."""
    return _pair_gap(logs.upper[first], logs.lower[second], logs.error)


def past_at(logs: LogBounds, origins: Indices, first: Indices, second: Indices) -> Floats:
    """L(x, x') at the pairs x = first[j], x' = second[j] only."""
    upper, lower = logs.upper[origins], logs.lower[origins]
    return _pair_gap(upper[:, first].T, lower[:, second].T, logs.error)


def law_log_ratios(laws: Floats, support: Bools, steps: int) -> Floats:
    """r(x, x') = log P(X_i = x') - log P(X_i = x) over the values of X_i, one table a law.

    `laws` (one a row, all with this support) are at most `steps` products from the initial law.
    Rounds up; inf where underflow leaves P(X_i = x) without digits.
    """
    values = laws[:, support]
    logs = log_bounds(values, values >= 0.0, (steps + 1) * (len(support) + 2))
    gap = logs.upper[:, None, :] - logs.lower[:, :, None]
    return np.asarray(gap + 2.0 * logs.error)


def largest(moved: Floats) -> float:
    """The largest entry, at least 0 (x = x' always gives 0). Rounds up the sums behind it."""
    return max(0.0, float(moved.max()) * (1.0 + 4.0 * UNIT)) if moved.size else 0.0


def _largest_gap(upper: Floats, lower: Floats, error: float) -> Floats:
    """max over y of upper[x, y] - lower[x', y], for all x and x', raised by the error."""
    count, width = upper.shape
    result = np.empty((count, count))
    # y comes first: reducing the slowest axis is several times faster
    above, below = np.ascontiguousarray(upper.T), np.ascontiguousarray(lower.T)
    rows = max(1, BLOCK // max(1, count * width))
    with np.errstate(invalid="ignore"):  # -inf - (-inf) is 0/0: fmax passes over it
        for first in range(0, count, rows):
            gap = above[:, first : first + rows, None] - below[:, None, :]
            result[first : first + rows] = np.fmax.reduce(gap, axis=0, initial=-math.inf)
    return np.asarray(result + 2.0 * error)


def _pair_gap(upper: Floats, lower: Floats, error: float) -> Floats:
    with np.errstate(invalid="ignore"):
        gap = np.fmax.reduce(upper - lower, axis=1, initial=-math.inf)
    return np.asarray(gap + 2.0 * error)


def _history(transition: Floats, initial: Floats, node: int) -> tuple[list[Bools], Floats]:
    """The supports of entries 0..node and the law of entry `node`."""
    supports, law = [initial > 0], initial
    for step in range(node):
        matrix = _matrix(transition, step)
        supports.append(next_support(supports[-1], matrix))
        law = law @ matrix
    return supports, law


def _stretch(transition: Floats, first: int, last: int) -> Kernel:
    """The law of X[last] given X[first]."""
    kernel = Kernel.of(_matrix(transition, first))
    for step in range(first + 1, last):
        kernel = kernel.then(Kernel.of(_matrix(transition, step)))
    return kernel


def _matrix(transition: Floats, step: int) -> Floats:
    matrix: Floats = transition if transition.ndim == 2 else transition[step]
    return matrix
