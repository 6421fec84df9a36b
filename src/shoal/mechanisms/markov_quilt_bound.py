"""Quilt noise from mixing times alone. Proof: markov_quilt_bound.md."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.core.value import Value
from shoal.loss.mixing import bound_loss, bound_scale, chain_constants, interval_constants
from shoal.mechanisms.additive import (
    entry_level,
    eta_above,
    float_below,
    laplace_plan,
    pufferfish,
)
from shoal.mechanisms.row import Mechanism
from shoal.models.chain import MarkovChain
from shoal.models.family import AnyInitialLaw, MixingSummary
from shoal.models.interval import IntervalChains
from shoal.secrets.entries import EachEntry

NAME = "markov-quilt-bound"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixingCertificate(Value):
    """Per model: the rarest stationary probability and the gap, both rounded down, and sigma."""

    constants: tuple[tuple[float, float], ...]
    sigmas: tuple[float, ...]

    @property
    def theorem(self) -> str:
        return (
            "the Markov Quilt Mechanism with influences bounded by mixing (Song, Wang & Chaudhuri "
            "2017, Algorithm 4 and Lemma C.1), the gap counted with multiplicity"
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "each chain is time-homogeneous and at least as fast to mix as its constants say, "
            "whatever its initial law; separate chains are independent",
            "the query moves by at most its Lipschitz constant when one entry changes",
        )


def refuse(task: Task) -> str | None:
    """Mixing needs time-homogeneous chains, or their constants."""
    if not isinstance(task.secrets, EachEntry):
        return "quilts protect single entries; named pairs of events need another mechanism"
    for model in task.family:
        if not isinstance(model, MarkovChain | AnyInitialLaw | MixingSummary | IntervalChains):
            return f"mixing needs a Markov chain or its constants, not {model.describe()}"
        if isinstance(model, MarkovChain) and not model.homogeneous:
            return "mixing needs one transition matrix for all steps, and there is one per step"
    return None


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Laplace noise of scale L·sigma, from the rarest state and the gap of each model."""
    constants = tuple(_constants(model) for model in task.family)
    results = [
        bound_scale(pi_min, gap, model.tied, float_below(epsilon))
        for model, (pi_min, gap) in zip(task.family, constants, strict=True)
    ]
    sigma = max(result.sigma for result in results)
    if not math.isfinite(sigma):
        raise Refused(f"{NAME} does not apply: no finite quilt is enough for a chain of any length")
    certificate = MixingCertificate(
        constants=constants, sigmas=tuple(result.sigma for result in results)
    )
    scale = Fraction(sigma) * task.query.lipschitz
    return laplace_plan(task, NAME, pufferfish(task, epsilon), scale, certificate)


def loss(plan: Plan) -> float:
    """max over models of the quilt loss by mixing, at eta = L / scale."""
    eta = eta_above(entry_level(plan))
    return max(bound_loss(*_constants(model), model.tied, eta) for model in plan.task.family)


def _constants(model: Model) -> tuple[float, float]:
    """(pi_min, gap) of a model, or its refusal."""
    if isinstance(model, MixingSummary):
        return model.pi_min, model.gap
    if isinstance(model, IntervalChains):
        pi_min, gap = interval_constants(model.low, model.high)
        if pi_min <= 0 or gap <= 0:
            raise Refused(f"{NAME} does not apply: the interval holds chains that do not mix")
        return pi_min, gap
    assert isinstance(model, MarkovChain | AnyInitialLaw)  # `refuse` lets nothing else through
    constants = chain_constants(model.transition)
    if constants.refusal is not None:
        raise Refused(f"{NAME} does not apply: {constants.refusal}")
    return constants.pi_min, constants.gap


ROW = Mechanism(NAME, refuse, calibrate, loss)
