"""The exact loss of additive noise, and the smallest scale that meets it. Proof: exact.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from shoal.additive import lift
from shoal.additive.laplace import quietest_noise
from shoal.additive.mixture import smallest_scale
from shoal.additive.plans import (
    Mechanism,
    additive_body,
    eta_above,
    float_below,
    keeps_total,
    laplace_plan,
    noisy_plan,
    task_guarantee,
)
from shoal.additive.queries import LinearQuery
from shoal.additive.vector import VectorSum, least_vector_scale, vector_sum, vector_sum_loss
from shoal.chains.exact.cover import NodeBlocks
from shoal.chains.exact.past_future import PastFutureBound
from shoal.chains.exact.sums import ChainSum, chain_sum
from shoal.chains.exact.windows import NO_NOISE, least_scale, sum_loss
from shoal.chains.families import AnyInitialLaw, OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Value
from shoal.core.errors import Refused
from shoal.core.guarantee import Guarantee
from shoal.core.plan import Certificate, Plan
from shoal.core.task import Model, Task
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.exact import least_parts_scale, parts_loss, secret_loss
from shoal.networks.laws import Parted, independent
from shoal.networks.queries import VariableSum
from shoal.networks.secret_laws import SecretLaws, table_laws
from shoal.networks.table import JointTable
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace
from shoal.records.field import as_network, summable

NAME = "exact"
LARGEST_REACH = 10_000_000  # steps one entry may move a sum for its laws to be computed
LARGEST_VALUE = 2**53  # steps of a sum whose values are listed one by one, as doubles
NAMED = JointTable | BayesNet | Contagion  # laws of named variables, each observed once


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ExactCertificate(Value):
    """Per model: the least scale in lattice steps, and the window it was proved on.

    A window of None is the whole law; otherwise the entries on either side that were not held. 0
    where no window came down to what the lift with the metric of the query allows.
    """

    scales: tuple[float, ...]
    windows: tuple[int | None, ...]

    @property
    def theorem(self) -> str:
        return (
            "the exact loss of additive Laplace noise: its supremum over outputs is attained at "
            "a value the query can take, so it is a finite maximum (proof in exact.md)"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the data follows one of the family's laws; separate chains are independent",
            "nothing else about the same data is released, or it is added up as entry-level DP",
        )


def refuse(task: Task) -> str | None:
    """Exact losses need a linear query, and laws that can be followed."""
    if not isinstance(task.query, LinearQuery | VariableSum):
        return "the exact loss is computed for sums over entries only"
    several = len(as_number(task).query.labels) > 1
    multiples = [multiple for row in task.query.multiples() for multiple in row]
    reach = max(multiples) - min(multiples)
    for model in map(as_network, task.family):
        if reach > (LARGEST_VALUE if isinstance(model, JointTable) else LARGEST_REACH):
            return (
                f"the exact loss is computed on the lattice of the weights, whose range is "
                f"{reach:,} steps of {task.query.lattice}, more than its laws can have; "
                "give weights with fewer digits, or use lift"
            )
        if not (
            isinstance(model, MarkovChain | AnyInitialLaw | OrderChain | NAMED) or summable(model)
        ):
            return f"the exact loss needs a law that can be followed, not {model.describe()}"
        if isinstance(task.query, VariableSum) and not isinstance(model, NAMED):
            return f"weights per variable need named variables, not {model.describe()}"
        if several and not isinstance(model, MarkovChain | NAMED):
            return (
                f"the exact loss of {len(task.query.labels)} values at once is computed for one "
                f"Markov chain or table, not for {model.describe()}; use lift"
            )
        if several and model.tied is None:
            return "the exact loss of several values at once needs a length; give the model one"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of the smallest scale whose exact loss is at most ε under every model."""
    number = as_number(task)
    results = [_least(number, as_network(model), float_below(epsilon)) for model in task.family]
    for scale, _, reason in results:
        if not math.isfinite(scale):
            raise Refused(f"{NAME} does not apply: {reason}")
    certificate = ExactCertificate(
        scales=tuple(scale for scale, _, _ in results),
        windows=tuple(window for _, window, _ in results),
    )
    steps = max(scale for scale, _, _ in results)
    guarantee = task_guarantee(task, epsilon)
    return number_plan(task, NAME, guarantee, Fraction(steps) * number.query.lattice, certificate)


def loss(plan: Plan) -> float:
    """The exact loss of the noise as drawn, the largest over the family."""
    task, noise = plan.task, additive_body(plan).noise
    scale = noise.scale
    if isinstance(noise, ZeroSumLaplace):
        task, scale = as_number(task), scale / 2
        if len(task.query.labels) > 1:
            return math.inf  # the loss of noise that adds up to 0 is known for two bars only
    steps = float_below(scale / task.query.lattice)
    enough = float_below(plan.guarantee.amount)
    return max(_loss(task, as_network(m), steps, enough) for m in task.family)


def as_number(task: Task) -> Task:
    """The task of one number that two bars with a public total are; any other task as it is.

    Bars (c, S·n - c) of n entries, n public, and c tell each other (exact.md, Claim 10).
    """
    query = task.query
    if not isinstance(query, LinearQuery) or not _two_bars(query):
        return task
    return replace(task, query=_first_bar(query))


def _two_bars(query: LinearQuery) -> bool:
    return len(query.labels) == 2 and keeps_total(query)


def _first_bar(query: LinearQuery) -> LinearQuery:
    weights = tuple(row[:1] for row in query.weights)
    return replace(query, labels=query.labels[:1], weights=weights)


def number_plan(
    task: Task, mechanism: str, guarantee: Guarantee, scale: Fraction, certificate: Certificate
) -> Plan:
    """A plan that adds Laplace noise of `scale` to the number `as_number` has, or to every value.

    Of two bars one gets the noise and the other its negative: Laplace noise of twice the scale on
    each, given that it adds up to 0.
    """
    if as_number(task) is task:
        return laplace_plan(task, mechanism, guarantee, scale, certificate)
    return noisy_plan(
        task, mechanism, guarantee, quietest_noise(task.query, 2 * scale), certificate
    )


def least_cost(task: Task, epsilon: Fraction) -> float | None:
    """A cost below which no Laplace noise keeps the promise ε on `task`; None where unknown.

    What outputs beyond all answers tell (exact.md, Claim 9), for one number on slow chains:
    quick, and true of every row that adds Laplace noise.
    """
    query = as_number(task).query
    if not isinstance(query, LinearQuery) or len(query.labels) > 1:
        return None
    scales = []
    for model in task.family:
        apart = model_apart(query, model) if isinstance(model, MarkovChain) else None
        if apart is None:
            return None
        scales.append(apart.ends.least_scale(float_below(epsilon)))
    steps = max(scales)
    if not 0 < steps < math.inf:
        return None
    scale = Fraction(steps) * query.lattice
    noise = LatticeLaplace(scale=scale, step=query.lattice)
    return noise.expected_error() * len(task.query.labels)


def model_sum(query: LinearQuery, model: Model) -> ChainSum:
    """The query as a sum over `model`, of every length up to its own, in lattice steps."""
    weights = np.array(query.multiples(), dtype=np.int64)[:, 0]
    if isinstance(model, OrderChain):
        digits = model.tuples()
        tuples = model.on_tuples()
        return chain_sum(
            tuples.initial,
            tuples.transition,
            weights[model.entry],
            tuples.length,
            label=model.entry,
            first_weights=weights[digits].sum(axis=1),
            first_labels=tuple(digits[:, i] for i in range(model.order - 1)),
            shorter=True,
        )
    assert isinstance(model, MarkovChain | AnyInitialLaw)
    initial = model.initial if isinstance(model, MarkovChain) else None
    return chain_sum(
        initial, model.transition, weights, model.length, shorter=model.transition.ndim == 2
    )


def table_loss(laws: SecretLaws, steps: float) -> float:
    """The exact loss of noise of scale `steps` on a query with these laws. Rounds up."""
    return secret_loss(laws, steps)


def _least(task: Task, model: Model, epsilon: float) -> tuple[float, int | None, str | None]:
    """The least scale in lattice steps for one model, its window, and why it is infinite."""
    assert isinstance(task.query, LinearQuery | VariableSum)
    if isinstance(model, Parted):
        parts = independent(model, task.query, task.secrets)
        scale = least_parts_scale(parts, epsilon, 1 / NO_NOISE)
        return scale, None, "no finite noise is enough for this network"
    if isinstance(model, JointTable):
        laws = table_laws(model, task.query, task.secrets)
        reach = float(np.ptp(laws.values, axis=0).sum()) or 1.0
        scale = smallest_scale(
            lambda steps: table_loss(laws, steps), epsilon, 1 / NO_NOISE, 1.001 * reach / epsilon
        )
        return scale, None, "no finite noise is enough for this table"
    assert isinstance(task.query, LinearQuery)
    if len(task.query.labels) > 1:
        return least_vector_scale(_model_vector(task.query, model), epsilon), None, "it is endless"
    cover = _cover(task.query, model)
    found = least_scale(cover.task, epsilon, cover=cover)
    if found.scale < math.inf and not found.near_least and not lift.refuse(task):
        lifted = lift_scale(task.query, model, epsilon)
        if lifted < found.scale:
            return lifted, 0, None
    return found.scale, found.loss.window, found.loss.reason


def lift_scale(query: LinearQuery, model: Model, epsilon: float) -> float:
    """The scale in lattice steps that the lift with the query's metric allows; inf if none."""
    try:
        eta = Fraction(lift.largest(model, query, epsilon).eta)
    except Refused:
        return math.inf
    return eta_above(query.lipschitz / query.lattice / eta)


def _loss(task: Task, model: Model, steps: float, enough: float) -> float:
    assert isinstance(task.query, LinearQuery | VariableSum)
    if isinstance(model, Parted):
        return parts_loss(independent(model, task.query, task.secrets), steps)
    if isinstance(model, JointTable):
        return table_loss(table_laws(model, task.query, task.secrets), steps)
    assert isinstance(task.query, LinearQuery)
    if len(task.query.labels) > 1:
        if model.tied is None:
            return math.inf
        return vector_sum_loss(_model_vector(task.query, model), steps)
    cover = _cover(task.query, model)
    found = sum_loss(cover.task, steps, enough=enough, cover=cover)
    if found.value <= enough or found.settled or lift.refuse(task):
        return found.value
    eta = eta_above(task.query.lipschitz / task.query.lattice / Fraction(steps))
    return min(found.value, lift.model_loss(model, task.query, eta))


def _cover(query: LinearQuery, model: Model) -> NodeBlocks:
    apart = model_apart(query, model)
    return NodeBlocks(model_sum(query, model) if apart is None else apart.task, apart)


@lru_cache(maxsize=4)
def model_apart(query: LinearQuery, model: Model) -> PastFutureBound | None:
    """What budgets share on a slow chain: the laws of its windows are made once."""
    return NodeBlocks(model_sum(query, model)).apart


def _model_vector(query: LinearQuery, model: Model) -> VectorSum:
    return vector_sum(model_sum(query, model), np.array(query.multiples(), dtype=np.int64))


ROW = Mechanism(NAME, refuse, calibrate, loss)
