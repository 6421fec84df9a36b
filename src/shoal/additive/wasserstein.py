"""The Wasserstein Mechanism: how far the answer's law moves with the secret. Proof:
wasserstein.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.additive import exact
from shoal.additive.plans import Mechanism, laplace_body, task_guarantee
from shoal.additive.queries import LinearQuery
from shoal.additive.transport import bottleneck, quantile_gap, sum_transport
from shoal.chains.exact.windows import NO_NOISE
from shoal.chains.families import OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Value
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.networks.laws import Parted, independent
from shoal.networks.queries import VariableSum
from shoal.networks.secret_laws import SecretLaws, table_laws
from shoal.networks.table import JointTable
from shoal.records.field import as_network, summable

NAME = "wasserstein"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WassersteinCertificate(Value):
    """Per model the distance W in lattice steps; the promise is re-certified by the exact loss."""

    distances: tuple[float, ...]

    @property
    def theorem(self) -> str:
        return (
            "the Wasserstein Mechanism (Song, Wang & Chaudhuri 2017, Theorem 3.2), its numerical "
            "tolerance covered by the exact loss"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "the data follows one of the family's laws; separate chains are independent",
            "nothing else about the same data is released, or it is added up as entry-level DP",
        )


def refuse(task: Task) -> str | None:
    """W∞ needs whole laws: chains of a given length, or tables."""
    reason = exact.refuse(task)
    if reason is not None:
        return reason.replace("exact loss", "Wasserstein distance")
    several = len(exact.as_number(task).query.labels) > 1
    for model in map(as_network, task.family):
        if not (isinstance(model, MarkovChain | OrderChain | exact.NAMED) or summable(model)):
            return f"the Wasserstein distance is that of one law at a time, not {model.describe()}"
        if model.tied is None:
            return "the Wasserstein distance needs the whole law; give the model a length"
        if several and not isinstance(model, exact.NAMED):
            return "the Wasserstein distance of several values needs a table; ask for one number"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale W/ε, raised to the exact scale where W's tolerance hid a tail."""
    number = exact.as_number(task)
    distances = tuple(_distance(number, as_network(model)) for model in task.family)
    certificate = WassersteinCertificate(distances=distances)
    lattice = number.query.lattice
    scale = max(Fraction(max(distances)) * lattice / epsilon, lattice / int(NO_NOISE))
    guarantee = task_guarantee(task, epsilon)
    plan = exact.number_plan(task, NAME, guarantee, scale, certificate)
    if loss(plan) <= float(epsilon):
        return plan
    enough = laplace_body(exact.calibrate(number, epsilon)).noise.scale
    return exact.number_plan(task, NAME, guarantee, max(scale, enough), certificate)


def loss(plan: Plan) -> float:
    """The exact loss of the noise as drawn: W∞ itself is only as good as its tolerance."""
    return exact.loss(plan)


def table_distance(laws: SecretLaws) -> float:
    """max over the pairs of secrets of W∞ between their laws, in lattice steps."""
    line = laws.values[:, 0].tolist() if laws.values.shape[1] == 1 else None
    best = 0.0
    for a, b in np.argwhere(np.triu(laws.pairs)):
        one, two = laws.laws[a].tolist(), laws.laws[b].tolist()
        gap = quantile_gap(line, one, two) if line else bottleneck(laws.values, one, two)
        best = max(best, float(gap))
    return best


def _distance(task: Task, model: Model) -> float:
    assert isinstance(task.query, LinearQuery | VariableSum)
    if isinstance(model, Parted):
        # what is added to a part independently of the secrets moves no mass further
        parts = independent(model, task.query, task.secrets).parts
        return max((table_distance(part.laws) for part in parts), default=0.0)
    if isinstance(model, JointTable):
        return table_distance(table_laws(model, task.query, task.secrets))
    assert isinstance(task.query, LinearQuery)
    distance = sum_transport(exact.model_sum(task.query, model)).distance
    return math.ceil(distance - 1e-9)  # a gap between multiples of the lattice is a whole number


ROW = Mechanism(NAME, refuse, calibrate, loss)
