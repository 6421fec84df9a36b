"""What a chain answers about its quilts; what one row surveyed the next one finds again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from shoal.additive.quilt import CHAIN, ActiveQuilt, QuiltCertificate
from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary
from shoal.chains.model import MarkovChain
from shoal.chains.quilt.matrix import InfluenceResult, influence_matrix_scale
from shoal.chains.quilt.mixing import bound_loss, bound_scale, chain_constants, interval_constants
from shoal.chains.quilt.scale import (
    QuiltResult,
    any_initial_loss,
    any_initial_scale,
    interval_loss,
    interval_scale,
    quilt_loss,
    quilt_scale,
)
from shoal.chains.walk import UNIT
from shoal.core.codec import Floats
from shoal.core.errors import Refused

KEPT = 8  # models whose surveys are kept, each for the last few budgets asked
BOUND = "markov-quilt-bound"


@dataclass(frozen=True, eq=False)
class ChainQuilts:
    """The quilts of one model, by its own survey of scales and of losses."""

    key: str
    survey: Callable[[float], QuiltResult]
    told: Callable[[float], float]
    _scales: dict[float, QuiltResult] = field(default_factory=dict)
    _losses: dict[float, float] = field(default_factory=dict)

    @property
    def sort(self) -> str:
        return CHAIN

    def result(self, epsilon: float) -> QuiltResult:
        """The survey at a budget."""
        if epsilon not in self._scales:
            self._scales[epsilon] = self.survey(epsilon)
        return self._scales[epsilon]

    def scale(self, epsilon: float) -> tuple[float, ActiveQuilt]:
        found = self.result(epsilon)
        active = ActiveQuilt(
            sigma=found.sigma,
            node=found.node,
            left=found.left,
            right=found.right,
            nearby=found.nearby,
            influence=found.influence,
            runs=tuple(tuple(run) for run in found.runs),
        )
        return found.sigma, active

    def loss(self, eta: float) -> float:
        if eta not in self._losses:
            self._losses[eta] = self.told(eta)
        return self._losses[eta]

    def certificate(self, found: Sequence[ActiveQuilt], reach: int | None) -> QuiltCertificate:
        return QuiltCertificate(quilts=tuple(found), reach=reach)


@lru_cache(maxsize=KEPT)
def chain_quilts(model: MarkovChain, reach: int | None) -> ChainQuilts:
    """The quilts of a chain with its own initial law."""
    chain = model.transition, model.initial, model.length
    return ChainQuilts(
        model.fingerprint,
        lambda epsilon: quilt_scale(*chain, epsilon, reach),
        lambda eta: quilt_loss(*chain, eta, reach),
    )


@lru_cache(maxsize=KEPT)
def any_initial_quilts(model: AnyInitialLaw, reach: int | None) -> ChainQuilts:
    """The quilts of a chain whatever its initial law."""
    chain = model.transition, model.length
    return ChainQuilts(
        model.fingerprint,
        lambda epsilon: any_initial_scale(*chain, epsilon, reach),
        lambda eta: any_initial_loss(*chain, eta, reach),
    )


@lru_cache(maxsize=KEPT)
def interval_quilts(model: IntervalChains, reach: int | None) -> ChainQuilts:
    """The quilts that serve every chain of a rectangle."""
    chains = model.low, model.high, model.length
    return ChainQuilts(
        model.fingerprint,
        lambda epsilon: interval_scale(*chains, epsilon, reach).result,
        lambda eta: interval_loss(*chains, eta, reach),
    )


# Quilts known from the rarest state and the gap alone.


class MixingQuilts:
    """The quilts of every chain that mixes as fast as two constants say."""

    def __init__(
        self, key: str, constants: Callable[[], tuple[float, float]], length: int | None
    ) -> None:
        self.key = key
        self._find, self._length = constants, length

    @property
    def sort(self) -> str:
        return BOUND

    @cached_property
    def constants(self) -> tuple[float, float]:
        """(pi_min, gap), rounded down; refused where nothing mixes."""
        return self._find()

    def scale(self, epsilon: float) -> tuple[float, tuple[float, float]]:
        return bound_scale(*self.constants, self._length, epsilon).sigma, self.constants

    def loss(self, eta: float) -> float:
        return bound_loss(*self.constants, self._length, eta)

    def certificate(self, found: Sequence[object], reach: int | None) -> object:
        raise Refused(f"{BOUND} certifies constants, not quilts")


def mixing_of_matrix(model: MarkovChain | AnyInitialLaw) -> MixingQuilts:
    """By the stationary law and the gap of one transition matrix."""
    return MixingQuilts(model.fingerprint, lambda: _of_matrix(model.transition), model.length)


def mixing_of_interval(model: IntervalChains) -> MixingQuilts:
    """By the slowest chain of a rectangle."""
    return MixingQuilts(model.fingerprint, lambda: _of_interval(model), model.length)


def mixing_of_summary(model: MixingSummary) -> MixingQuilts:
    """By the constants themselves."""
    return MixingQuilts(model.fingerprint, lambda: (model.pi_min, model.gap), model.length)


def _of_matrix(transition: Floats) -> tuple[float, float]:
    constants = chain_constants(transition)
    if constants.refusal is not None:
        raise Refused(f"{BOUND} does not apply: {constants.refusal}")
    return constants.pi_min, constants.gap


def _of_interval(model: IntervalChains) -> tuple[float, float]:
    pi_min, gap = interval_constants(model.low, model.high)
    if pi_min <= 0 or gap <= 0:
        raise Refused(f"{BOUND} does not apply: the interval holds chains that do not mix")
    return pi_min, gap


# The influence matrix.


class MatrixInfluences:
    """The influence matrix of a model, found when it is first asked for."""

    def __init__(self, find: Callable[[], InfluenceResult]) -> None:
        self._find = find

    @cached_property
    def _found(self) -> InfluenceResult:
        return self._find()

    @property
    def norm(self) -> float:
        return self._found.norm

    @property
    def row_sum(self) -> float:
        return self._found.row_sum

    @property
    def refusal(self) -> str | None:
        return self._found.refusal

    def scale(self, epsilon: float) -> float:
        return 2.0 * self.row_sum / epsilon * (1.0 + 16.0 * UNIT)


@lru_cache(maxsize=KEPT)
def chain_influences(model: MarkovChain) -> MatrixInfluences:
    """The influences of a chain with a given initial law."""
    return MatrixInfluences(
        lambda: influence_matrix_scale(model.transition, model.initial, model.length, 1.0)
    )
