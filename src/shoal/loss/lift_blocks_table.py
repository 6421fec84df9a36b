"""The lift on a joint law that is written out: all variables are one block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from shoal.core.errors import Refused
from shoal.core.value import Floats
from shoal.loss.cone import Laws, prepare
from shoal.loss.kernels import UNIT
from shoal.loss.lift_network import CLOSE, MAX_STATES, ROUNDS, NetworkLoss
from shoal.loss.lift_steady import UP, bearable, raised, steady_leak
from shoal.models.table import JointTable


@dataclass(eq=False)
class TableLift:
    """loss(i; x, x') = Λ( P(X | X_i = x), P(X | X_i = x'); Σ_v E_v ), over all outcomes X.

    `metrics` as in NetworkLift. Every eta-DP mechanism is a function of the outcome that changes
    by at most e^{E_v} with variable v, so this is its definition, and Λ by the cone rule is the
    worst of all mechanisms. Refused beyond 1024 possible outcomes.
    """

    table: JointTable
    metrics: Sequence[Floats]

    def __post_init__(self) -> None:
        count = int(np.count_nonzero(self.table.probability))
        if count > MAX_STATES:
            raise Refused(
                f"the table has {count} possible outcomes; the lift compares at most {MAX_STATES}: "
                "use exact, wasserstein or group"
            )

    @cached_property
    def outcomes(self) -> Floats:
        """The possible outcomes, (variables, outcomes), as numbers of values."""
        places = np.indices(self.table.probability.shape)
        flat = places.reshape(self.table.probability.ndim, -1)
        return np.asarray(flat[:, self.table.probability.ravel() > 0])

    @cached_property
    def apart(self) -> Floats:
        """Σ_v E_v between any two possible outcomes, per unit of eta."""
        return np.asarray(
            sum(
                metric[np.ix_(row, row)]
                for metric, row in zip(self.metrics, self.outcomes, strict=True)
            )
        )

    @cached_property
    def own(self) -> tuple[Laws, ...]:
        """For every variable: the rows P(X | X_i = x) over the possible outcomes."""
        flat = self.table.probability.ravel()
        weight = flat[flat > 0]
        return tuple(
            _rows(np.where(np.arange(len(domain))[:, None] == shown, weight, 0.0))
            for domain, shown in zip(self.table.domains, self.outcomes, strict=True)
        )

    def loss(self, eta: float) -> NetworkLoss:
        """What any release that is eta-DP for one variable tells about a variable. Rounds up.

        The same for the same eta, whatever was asked before, and never more for any that is a
        little smaller (lift_steady).
        """
        worst = NetworkLoss(0.0, eta, None, None, 0.0, bearable(self.own[0]))
        together, above = eta * len(self.own) * UP, raised(eta)
        for i, laws in enumerate(self.own):
            told = np.minimum(steady_leak(laws, above * self.apart * UP), together) * UP
            told = np.where(laws.present[:, None] & laws.present[None, :], told, 0.0)
            np.fill_diagonal(told, 0.0)
            x, other = (int(n) for n in np.unravel_index(int(told.argmax()), told.shape))
            if told[x, other] > worst.value:
                at_node = float(eta * self.metrics[i][x, other])
                worst = worst._replace(
                    value=float(told[x, other]), node=i, pair=(x, other), at_node=at_node
                )
        return worst

    def largest_eta(self, epsilon: float) -> NetworkLoss:
        """The loss at the largest eta found with loss ≤ epsilon; group privacy is the start."""
        low = epsilon / len(self.own) * (1 - 2.0**-40)
        best, high = self.loss(low), 64 * epsilon
        for _ in range(ROUNDS):
            if high <= low * (1 + CLOSE):
                break
            middle = raised(math.sqrt(low * high))
            if middle >= high:
                break
            found = self.loss(middle)
            if found.value <= epsilon:
                low, best = middle, found
            else:
                high = middle
        return best


def _rows(weight: Floats) -> Laws:
    totals = weight.sum(axis=1, keepdims=True)
    law = weight / np.where(totals > 0, totals, 1.0)
    return prepare(law, possible=weight > 0, error=4.0 * (weight.shape[1] + 4) * UNIT)
