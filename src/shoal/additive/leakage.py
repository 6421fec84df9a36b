"""What an ordinary entry-level DP release really guarantees under a family of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.additive import lift
from shoal.additive.external import entry_eta
from shoal.additive.plans import eta_above
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.mixing import bound_loss
from shoal.chains.quilt.scale import interval_loss
from shoal.core.codec import Value
from shoal.core.errors import Refused
from shoal.core.numbers import Number, positive, significant
from shoal.core.task import Model, Secrets, as_family
from shoal.networks.pairs import SecretPairs
from shoal.records.field import PairwiseField


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leakage(Value):
    """The bound on what a release that is `eta`-DP for one entry tells about one entry.

    `per_model` holds the bound under each model of the family, `value` the largest; inf when no
    finite bound is proved.
    """

    eta: Fraction
    per_model: tuple[float, ...]

    @property
    def value(self) -> float:
        return max(self.per_model)

    @property
    def factor(self) -> float:
        """How many times weaker than it says the release is: value / eta."""
        return self.value / float(self.eta)

    def describe(self) -> str:
        said = f"a release that is {significant(self.eta)}-DP for one entry"
        if not math.isfinite(self.value):
            return f"{said} has no finite bound under correlation: it may give any entry away"
        return (
            f"{said} is only {significant(self.value)}-private under correlation, "
            f"{significant(self.factor, 3)} times weaker: it may change the odds between two "
            f"values of an entry by a factor of {significant(math.exp(min(self.value, 700)), 3)} "
            f"instead of {significant(math.exp(min(float(self.eta), 700)), 3)}"
        )


def leakage(
    family: Model | Sequence[Model], release: Number | Any, *, secrets: Secrets | None = None
) -> Leakage:
    """What a release really guarantees: its entry-level eta, converted by the lift.

    `release` is eta itself, or an OpenDP measurement. Sound for every entry-level DP mechanism,
    adaptive compositions included. Rounds up. `secrets` are single entries by default; for named
    pairs of events the bound is that of group privacy for all entries tied to a pair.
    """
    eta = positive(release, "eta") if _is_number(release) else entry_eta(release)
    members = as_family(family)
    if isinstance(secrets, SecretPairs):
        return Leakage(eta=eta, per_model=tuple(_pairs(model, secrets, eta) for model in members))
    return Leakage(eta=eta, per_model=tuple(_model(model, eta) for model in members))


def _is_number(release: object) -> bool:
    return isinstance(release, Number)


def _pairs(model: Model, secrets: SecretPairs, eta: Fraction) -> float:
    tied = secrets.tied_under(model)
    return math.inf if tied is None else eta_above(tied * eta)


def _model(model: Model, eta: Fraction) -> float:
    """The least proved bound for one model; group privacy is always one when entries are few."""
    above = eta_above(eta)
    together = math.inf if model.tied is None else eta_above(model.tied * eta)
    if isinstance(model, IntervalChains):
        return min(together, interval_loss(model.low, model.high, model.length, above))
    if isinstance(model, MixingSummary):
        return min(together, bound_loss(model.pi_min, model.gap, model.length, above))
    if isinstance(model, MarkovChain | AnyInitialLaw | OrderChain | lift.NETWORKS | PairwiseField):
        return min(together, _lifted(model, above))
    return together


def _lifted(model: Model, eta: float) -> float:
    """The lift, where the model is not too large for it."""
    try:
        return lift.model_loss(model, None, eta)
    except Refused:
        return math.inf
