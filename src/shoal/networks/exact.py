"""The exact loss of Laplace noise on a sum over independent parts, and the least scale.

With F = A + B, A the sum over the part a secret is about and B the sum over the rest, independent
of it: F + noise is A + noise with something independent added, so its loss is at most that of
A + noise (a post-processing). At outputs beyond every answer both losses are the same: there the
densities are E[e^{±A/s} | secret]·E[e^{±B/s}], and B cancels. So the part alone is exact whenever
its own supremum is at an end, as it always is where one secret makes larger sums likelier than the
other throughout. Only otherwise is the rest convolved. Proof: mechanisms/exact.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from shoal.chains.exact.sums import DEEPEST_TABLE
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.task import AnswerLaws, Query, ScaleFound, Secrets, each_entry
from shoal.mechanisms.answer_laws import bottleneck, path_ratio, quantile_gap
from shoal.mechanisms.mixture import (
    NO_NOISE,
    evaluation_slack,
    smallest_scale,
    vector_loss,
    worst_of,
)
from shoal.mechanisms.queries import SUMS_ONLY, linear, too_far
from shoal.mechanisms.variables import per_variable
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.large import LargeSums
from shoal.networks.laws import NamedSum, SecretLaws, SecretsPart, laws_of_table
from shoal.networks.network_sums import can_convolve
from shoal.networks.parts import Independent, Parted, independent_parts
from shoal.networks.table import JointTable

if TYPE_CHECKING:
    from shoal.mechanisms.steps import Line


@dataclass(frozen=True)
class ConvolutionSettings:
    """When the sum over everything is convolved, and how large its values may be."""

    relative_end_gap: float = 1e-9  # the bound from the ends counts as reached within this gap
    max_values: int = 2**17  # values the sum over everything may have when it is convolved
    max_work: float = 4e9  # multiplications of all convolutions together


CONVOLUTIONS = ConvolutionSettings()


def secret_loss(laws: SecretLaws, steps: float) -> float:
    """Return the exact loss of noise of scale `steps` on a query with these laws. Rounds up.

    0 when no two possible secrets are compared: then there is nothing to tell. inf where laws that
    lost tails to underflow would be asked about outputs as deep as they are.
    """
    if not laws.pairs.any():
        return 0.0
    span = float(np.ptp(laws.values, axis=0).sum()) / steps
    if laws.lossy and span > laws.deepest:
        return math.inf
    errors = max(float(laws.laws.size), laws.roundings)
    if laws.values.shape[1] > 1:
        return vector_loss(laws.on_grid(), steps, pairs=laws.pairs) + errors * 2.0**-52
    offset = np.where(laws.pairs, 0.0, -math.inf)
    positions = laws.values[:, 0].astype(np.float64) / steps
    return worst_of(laws.laws[None], positions, offset=offset, roundings=errors).value


def end_loss(laws: SecretLaws, steps: float) -> float:
    """Return the loss at outputs beyond every answer, on either side; rounds down.

    Nothing that is independent of the secrets and added to the sum can make it smaller.
    """
    if laws.values.shape[1] > 1:
        return 0.0
    with np.errstate(divide="ignore"):
        logs = np.log(laws.laws)
    best = 0.0
    for sign in (1.0, -1.0):
        tilt = sign * laws.values[:, 0] / steps
        seen = np.logaddexp.reduce(logs + (tilt - tilt.max()), axis=1)
        gap = np.where(laws.pairs, seen[:, None] - seen[None, :], -math.inf)
        slack = evaluation_slack(float(np.ptp(tilt)), len(tilt), float(np.abs(seen).max()))
        best = max(best, float(gap.max(initial=0.0)) - slack - 2 * laws.roundings * 2.0**-52)
    return best


def parts_loss(task: Independent, steps: float) -> float:
    """Return the loss of noise of scale `steps` on the sum over everything. Rounds up."""
    bound = max((secret_loss(part.laws, steps) for part in task.parts), default=0.0)
    reached = max((end_loss(part.laws, steps) for part in task.parts), default=0.0)
    if bound <= reached * (1 + CONVOLUTIONS.relative_end_gap) or not can_convolve_rest(task):
        return bound
    return max(
        min(secret_loss(part.laws, steps), secret_loss(laws_of_whole_sum(task, part), steps))
        for part in task.parts
    )


def least_parts_scale(task: Independent, epsilon: float, lower: float) -> float:
    """Return the smallest scale with `parts_loss` at most epsilon, in lattice steps; rounded up."""
    widest = max(
        (float(np.ptp(part.laws.values, axis=0).sum()) for part in task.parts), default=0.0
    )
    upper = max(1.001 * widest / epsilon, lower)
    # first the parts alone: often enough, and never smaller than the answer
    alone = smallest_scale(
        lambda steps: max((secret_loss(p.laws, steps) for p in task.parts), default=0.0),
        epsilon,
        lower,
        upper,
    )
    if not math.isfinite(alone) or alone <= lower or not can_convolve_rest(task):
        return alone
    below = alone * (1 - CONVOLUTIONS.relative_end_gap)
    if max(end_loss(part.laws, below) for part in task.parts) > epsilon * (
        1 - CONVOLUTIONS.relative_end_gap
    ):
        return alone
    return smallest_scale(lambda steps: parts_loss(task, steps), epsilon, lower, alone)


def can_convolve_rest(task: Independent) -> bool:
    """Return whether there is a rest that can be convolved with every part."""
    if task.components[0].values.shape[1] > 1 or sum(task.copies) == 1:
        return False
    spans = [int(np.ptp(c.values)) for c in task.components]
    total = sum(span * n for span, n in zip(spans, task.copies, strict=True))
    work = len(task.parts) * sum(
        (span + 1) * n * total for span, n in zip(spans, task.copies, strict=True)
    )
    return total < CONVOLUTIONS.max_values and work <= CONVOLUTIONS.max_work


@lru_cache(maxsize=256)
def _law_of_rest(task: Independent, spans: tuple[int, ...]) -> tuple[int, Floats]:
    """Return the least value and the law, value by value, of the sum over all other components."""
    low, law = 0, np.ones(1)
    for c, (component, copies) in enumerate(zip(task.components, task.copies, strict=True)):
        first, own = _dense_law(component.values, component.given({}).law)
        for _ in range(copies - spans.count(c)):
            low, law = low + first, np.convolve(law, own)
    return low, law


@lru_cache(maxsize=256)
def laws_of_whole_sum(task: Independent, part: SecretsPart) -> SecretLaws:
    """Return the laws of the sum over everything given the secrets of a part. Direct
    convolution.
    """
    low, rest = _law_of_rest(task, part.spans)
    rows = [_dense_law(part.laws.values, law) for law in part.laws.laws]
    laws = np.stack([np.convolve(row, rest) for _, row in rows])
    values: Ints = (low + rows[0][0] + np.arange(laws.shape[1]))[:, None]
    others = sum(
        copies * (c.roundings + 2 * len(c.values))
        for c, copies in zip(task.components, task.copies, strict=True)
    )
    return replace(
        part.laws,
        values=values,
        laws=laws,
        roundings=part.laws.roundings + others + laws.shape[1],
        lossy=True,
    )


def _dense_law(values: Ints, law: Floats) -> tuple[int, Floats]:
    """Return a law on sorted whole numbers as one on every number between the least and the
    largest.
    """
    low = int(values[0, 0])
    dense = np.zeros(int(values[-1, 0]) - low + 1)
    dense[values[:, 0] - low] = law
    return low, dense


# What a model of named variables answers about a sum over them.


MAX_TABLE = 2**14  # outcomes of a law that is written out
LARGEST_REACH = 10_000_000  # steps one variable may move a sum that is followed part by part
LARGEST_VALUE = 2**53  # steps of a sum whose values are listed one by one, as doubles


def named_sum(query: Query, most: int) -> NamedSum | str:
    """Return `query` where it is a sum that moves by at most `most` steps, else why it is none."""
    asked = linear(query) or per_variable(query)
    if asked is None:
        return SUMS_ONLY
    multiples = [multiple for row in asked.multiples() for multiple in row]
    reach = max(multiples) - min(multiples)
    return too_far(reach, asked) if reach > most else asked


class TableLaws:
    """The laws of a sum under a joint law that is written out."""

    def __init__(self, table: JointTable, query: NamedSum, secrets: Secrets):
        self._table, self._query, self._secrets = table, query, secrets

    @cached_property
    def laws(self) -> SecretLaws:
        return laws_of_table(self._table, self._query, self._secrets)

    def least_scale(self, epsilon: float) -> ScaleFound:
        reach = float(np.ptp(self.laws.values, axis=0).sum()) or 1.0
        scale = smallest_scale(self.loss, epsilon, 1 / NO_NOISE, 1.001 * reach / epsilon)
        return ScaleFound(scale, None, "no finite noise is enough for this table")

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        return secret_loss(self.laws, scale)

    def floor(self, epsilon: float) -> float | None:
        return None

    def no_distance(self) -> str | None:
        return None

    def distance(self) -> float:
        return laws_distance(self.laws)

    def lines(self, epsilon: float) -> Sequence[Line]:
        return [_steps_line(self.laws)]

    def ratio(self, decay: float) -> float:
        """Return the largest ratio of two laws along the values, raised by `decay`; inf when too
        large.
        """
        number = linear(self._query)
        if self._table.probability.size > MAX_TABLE or number is None or len(number.labels) > 1:
            return math.inf
        laws = self.laws
        growth = np.nextafter(np.diff(laws.values[:, 0]) * decay, math.inf)
        if laws.lossy or float(growth.sum()) > DEEPEST_TABLE:
            return math.inf
        one, other = np.nonzero(laws.pairs)
        roundings = laws.roundings + 2 * self._table.probability.size
        return path_ratio(laws.laws[one], laws.laws[other], growth, roundings=roundings, known=0.0)


class PartedLaws:
    """The laws of a sum under a model made of independent parts.

    `written` is its joint law as a table, where that is small.
    """

    def __init__(
        self,
        model: Parted,
        query: NamedSum,
        secrets: Secrets,
        written: Callable[[], JointTable | None] = lambda: None,
    ) -> None:
        """Hold a model of independent parts, a sum and the secrets; nothing is computed yet."""
        self._model, self._query, self._secrets = model, query, secrets
        self._written = written

    @property
    def parts(self) -> Independent:
        return independent_parts(self._model, self._query, self._secrets)

    def least_scale(self, epsilon: float) -> ScaleFound:
        scale = least_parts_scale(self.parts, epsilon, 1 / NO_NOISE)
        return ScaleFound(scale, None, "no finite noise is enough for this network")

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        return parts_loss(self.parts, scale)

    def floor(self, epsilon: float) -> float | None:
        return None

    def no_distance(self) -> str | None:
        return None

    def distance(self) -> float:
        # what is added to a part independently of the secrets moves no mass further
        return max((laws_distance(part.laws) for part in self.parts.parts), default=0.0)

    def lines(self, epsilon: float) -> Sequence[Line]:
        """Return the parts, each with the sum over everything where it is had: else an upper
        bound.
        """
        task = self.parts
        whole = can_convolve_rest(task)
        return [_steps_line(laws_of_whole_sum(task, p) if whole else p.laws) for p in task.parts]

    def ratio(self, decay: float) -> float:
        table = self._written()
        return (
            math.inf if table is None else TableLaws(table, self._query, self._secrets).ratio(decay)
        )


def _steps_line(laws: SecretLaws) -> Line:
    """Return one number's laws as noise in steps looks at them."""
    from shoal.mechanisms.steps import PlainLine

    errors = max(float(laws.laws.size), laws.roundings)
    deepest = laws.deepest if laws.lossy else None
    return PlainLine(laws.laws, laws.values[:, 0], laws.pairs, errors, deepest)


def laws_distance(laws: SecretLaws) -> float:
    """Return max over the pairs of secrets of W∞ between their laws, in lattice steps."""
    line = laws.values[:, 0].tolist() if laws.values.shape[1] == 1 else None
    best = 0.0
    for a, b in np.argwhere(np.triu(laws.pairs)):
        one, two = laws.laws[a].tolist(), laws.laws[b].tolist()
        gap = quantile_gap(line, one, two) if line else bottleneck(laws.values, one, two)
        best = max(best, float(gap))
    return best


def table_answers(table: JointTable, query: Query, secrets: Secrets) -> AnswerLaws | str:
    """Return the laws of a sum under a table, or why there are none."""
    asked = named_sum(query, LARGEST_VALUE)
    return asked if isinstance(asked, str) else TableLaws(table, asked, secrets)


def network_answers(net: BayesNet, query: Query, secrets: Secrets) -> AnswerLaws | str:
    """Return the laws of a sum under a network, or why there are none."""

    def written() -> JointTable | None:
        try:
            return net.as_table() if math.prod(net.sizes) <= MAX_TABLE else None
        except InputError:  # an outcome too rare for a table
            return None

    asked = named_sum(query, LARGEST_REACH)
    if isinstance(asked, str):
        return asked
    if follows_by_convolution(net, asked, secrets):
        return PartedLaws(net, asked, secrets, written)
    return LargeSums(net, asked)


@lru_cache(maxsize=16)
def _can_convolve(net: BayesNet, query: NamedSum) -> bool:
    return len(query.labels) > 1 or can_convolve(net, query)


def follows_by_convolution(net: BayesNet, query: NamedSum, secrets: Secrets) -> bool:
    """Return whether laws are followed by convolution; else all at once, for entries and one
    number.
    """
    return not each_entry(secrets) or _can_convolve(net, query)


def contagion_answers(model: Contagion, query: Query, secrets: Secrets) -> AnswerLaws | str:
    """Return the laws of a sum over a contagion model, or why there are none."""
    asked = named_sum(query, LARGEST_REACH)
    return asked if isinstance(asked, str) else PartedLaws(model, asked, secrets)
