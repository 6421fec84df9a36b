"""What a chain answers about quilts and mixing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from shoal.chains.model import MarkovChain
from shoal.chains.quilt.nodes import ChainNodes
from shoal.chains.quilt.scale import (
    QuiltResult,
    any_initial_loss,
    any_initial_scale,
    bound_loss,
    bound_scale,
    chain_constants,
    interval_constants,
    interval_loss,
    interval_scale,
    survey,
)
from shoal.chains.quilt.search import Cost, QuiltLoss, Scale, Survey, SurveyGoal
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.mechanisms.quilt import CHAIN, ActiveQuilt, QuiltCertificate

if TYPE_CHECKING:
    from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary

SURVEYS_KEPT = 8  # models whose surveys are kept, each for the last few budgets asked
MOST_STATES_SURVEYED = 600  # surveys of more take minutes
BOUND = "markov-quilt-bound"


@dataclass(frozen=True, eq=False)
class ChainQuilts:
    """The quilts of one model, by its own survey of scales and of losses."""

    key: str
    survey: Callable[[float], QuiltResult]
    evaluate: Callable[[float], float]
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
        """Return the noise scale per unit of sensitivity at `epsilon`, and the quilt that decides
        it.
        """
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
            self._losses[eta] = self.evaluate(eta)
        return self._losses[eta]

    def certificate(self, found: Sequence[ActiveQuilt], reach: int | None) -> QuiltCertificate:
        return QuiltCertificate(quilts=tuple(found), reach=reach)


def surveyed_quilts(model: MarkovChain, reach: int | None) -> ChainQuilts | str:
    """The quilts of a chain, or why they would take minutes."""
    if model.size > MOST_STATES_SURVEYED:
        return (
            f"quilts compare all pairs of states at every distance, and {model.size} states are "
            "too many for that; use lift, or merge states"
        )
    return chain_quilts(model, reach)


@lru_cache(maxsize=SURVEYS_KEPT)
def chain_quilts(model: MarkovChain, reach: int | None) -> ChainQuilts:
    """The quilts of a chain with its own initial law; its powers and influences are kept."""
    nodes: list[ChainNodes] = []

    def find_survey(cost: Cost) -> Survey:
        if not nodes:
            nodes.append(ChainNodes(model.transition, model.initial))
        return survey(nodes[0], SurveyGoal(model.length, cost, reach))

    return ChainQuilts(
        model.fingerprint,
        lambda epsilon: QuiltResult.of(find_survey(Scale(epsilon))),
        lambda eta: find_survey(QuiltLoss(eta)).worst.quilt.cost,
    )


@lru_cache(maxsize=SURVEYS_KEPT)
def any_initial_quilts(model: AnyInitialLaw, reach: int | None) -> ChainQuilts:
    """The quilts of a chain with any initial law."""
    chain = model.transition, model.length
    return ChainQuilts(
        model.fingerprint,
        lambda epsilon: any_initial_scale(*chain, epsilon, reach),
        lambda eta: any_initial_loss(*chain, eta, reach),
    )


@lru_cache(maxsize=SURVEYS_KEPT)
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


@lru_cache(maxsize=SURVEYS_KEPT)
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
