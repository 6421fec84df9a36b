"""The exact loss of noise on a sum over a chain short enough to be taken whole, compiled.

The same quantity as `sum_loss` in `windows`, for one law and all pairs of secrets: the auditor
looks at thousands of laws, one for each entry and length of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from shoal.chains.exact.sums import DEEPEST_TABLE, ChainSum, by_secret, secrets_of, supports
from shoal.mechanisms.mixture import step_over

RAREST = 1e-200  # the probability of a secret below which digits may have been lost


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLoss:
    """The loss and where it is reached: node (from 0), entries after it, the two secrets, and the
    place of the output among the sums of that length, in steps from the least one."""

    value: float
    node: int
    after: int
    pair: tuple[int, int]
    output: int


def whole_work(task: ChainSum) -> float:
    """Multiplications that `whole_loss` takes; inf for any length."""
    if task.length is None:
        return math.inf
    lengths = task.length / 4 if task.shorter else 1.0
    return task.states * lengths * float(task.length) ** 3 / 6 * max(task.reach, 1) ** 2


def whole_loss(task: ChainSum, scale: float) -> WholeLoss | None:
    """The largest log-ratio of Σ w(X_t) + Laplace(scale) between two values of one entry.

    Over every entry, output and pair of values, and over every shorter length when the task asks
    for it; values an entry never takes are not secrets. Rounds up. None where plain doubles are
    not deep enough or the task has a form of its own (every initial law, some pairs only, several
    entries in the first state, one matrix per step at every length, nothing to tell apart): then
    use `sum_loss`. MATHS section 2; the proof is in `mechanisms/exact.md`.
    """
    if not _is_compilable(task):
        return None
    from shoal.chains.exact.kernels import futures, pasts, worst_law

    assert task.length is not None
    assert task.initial is not None
    decay = step_over(task.step, scale)
    span = task.first_reach + (task.length - 1) * task.reach
    if span * decay > DEEPEST_TABLE:
        return None
    past = pasts(
        task.initial, task.matrices, task.weights, task.first_weights, task.length, span + 1
    )
    future = futures(task.matrices, task.weights, task.length, span + 1)
    possible = by_secret(supports(task, task.length), task.label, secrets_of(task, task.label))
    ratio, node, after, top, bottom, output, least, most, rarest = worst_law(
        past,
        future,
        task.weights,
        task.first_weights,
        task.label,
        possible,
        math.exp(-decay),
        task.shorter,
    )
    if rarest < RAREST or span * decay - math.log(rarest) > DEEPEST_TABLE or not ratio >= 1.0:
        return None
    largest = max(abs(math.log(least)), abs(math.log(most)))
    value = math.log(ratio) + _rounding_slack(task, span, decay, largest)
    return WholeLoss(value=value, node=node, after=after, pair=(top, bottom), output=output)


def _rounding_slack(task: ChainSum, span: int, decay: float, largest: float) -> float:
    """What rounding can hide.

    The sweeps: three roundings a value and side, the decay's own at each step, the logarithms. The
    laws: a product and a sum over the states for each transition, one of each per term of a
    convolution; both densities of a ratio may be off.
    """
    assert task.length is not None
    sweeps = 2.0**-50 * (4.0 + 4.0 * span + span * decay + largest)
    roundings = 2.0 * task.length * (task.states + 2) + 2.0 * (span + 1) + 16
    return sweeps + roundings * 2.0**-52


def _is_compilable(task: ChainSum) -> bool:
    """Whether the task has the form the compiled loops are for."""
    return not (
        task.length is None
        or task.initial is None
        or task.constant
        or task.offset is not None
        or task.first_labels
        or (task.shorter and not task.homogeneous)
    )
