"""What a chain answers about the lift: the tightest of its own, any start's, and the quilts'."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from shoal.additive.cone import raised
from shoal.additive.queries import linear
from shoal.chains.families import AnyInitialLaw, OrderChain
from shoal.chains.lift.chain import ChainLift, LiftLoss
from shoal.chains.lift.side import SHORT
from shoal.chains.model import ChainLaw, MarkovChain
from shoal.chains.quilt.row import ChainQuilts, any_initial_quilts, chain_quilts
from shoal.chains.quilt.scale import QuiltResult
from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime, cut_short, in_time
from shoal.core.task import CUT, LiftedModel, Query

if TYPE_CHECKING:
    from shoal.chains.lift.families import AnyInitialLift
    from shoal.chains.lift.tuples import TupleLift

    Searchable: TypeAlias = ChainLift | AnyInitialLift | TupleLift

MARGIN = 1e-7  # of the budget, left unused so that a second evaluation fits too
ATTEMPTS = 8
MOST_STATES = 300  # pairs of more states take minutes
MOST_DENSE = 600  # where every state may follow every other, one number bounds all pairs
MOST_SPARSE = 2048  # where few states can follow each, and neighbours serve for all pairs
MOST_TUPLES = 600  # tuples of a longer memory, of which all pairs are compared
SURVEYED = 300  # states beyond which quilts take longer than the lift, and only serve without it
FEW = 32
LITTLE = 2.0**-8  # of the budget: an eta whose loss tells where to look
KEPT = 64  # losses of one model that are not evaluated twice


class EntryLiftOfChain:
    """What eta-DP tells about an entry of a chain, by the least of several bounds.

    With a linear query the metric is the query's own: entries whose weights are close are told
    apart less. Without one any change of an entry counts eta. The quilt bound covers the lags a
    long chain does not try; on a chain whose marginals settle too slowly to be followed, the lift
    for every first law serves as well. `rows` are the laws of the next entry, one per state or
    tuple: where they are too many the quilts serve alone.
    """

    def __init__(
        self,
        model: ChainLaw,
        rows: Floats,
        make: Callable[[], Searchable],
        quilts: ChainQuilts | None = None,
        unsettled: Callable[[LiftLoss | None], bool] = lambda found: False,
        any_start: Callable[[], Searchable] | None = None,
    ) -> None:
        self._make = make
        self._model, self._quilts = model, quilts
        self._unsettled, self._make_any_start = unsettled, any_start
        self._largest: dict[float, LiftedModel] = {}
        self._rows, self._most = rows.shape[-2], most_states(rows)
        self._large = self._rows > self._most  # then the quilts serve alone
        self._late = not self._large and self._rows > SURVEYED  # then quilts come last
        self._at = lru_cache(maxsize=KEPT)(_loss)

    @cached_property
    def own(self) -> Searchable:
        """The lift itself, made when it is first asked for."""
        return self._make()

    @cached_property
    def _any_start(self) -> Searchable:
        assert self._make_any_start is not None  # only asked where a chain is unsettled
        return self._make_any_start()

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """The first bound that is at most `enough`, else the least; the same whenever asked."""
        if self._large:
            return math.inf if self._quilts is None else self._quilts.loss(eta)
        at = raised(eta)
        found = self._at(self.own, at)
        value = found.value
        if value > enough and self._unsettled(found):
            value = min(value, self._at(self._any_start, at).value)
        if value <= enough or self._quilts is None or (self._late and value < math.inf):
            return value
        return min(value, self._quilts.loss(eta))

    def largest(self, epsilon: float) -> LiftedModel:
        if epsilon in self._largest:
            return self._largest[epsilon]
        found = self._search(epsilon)
        if cut_short():  # the next to ask may have more time
            return replace(found, rule=f"{found.rule}{CUT}")
        self._largest[epsilon] = found
        return found

    def _search(self, epsilon: float) -> LiftedModel:
        if self._large and self._quilts is None:
            raise Refused(
                f"lift does not apply: {self._model.describe()} has {self._rows} tuples; pairs of "
                f"at most {self._most} are compared: lower the order or merge states"
            )
        quilt = None if self._late else self._quilt(epsilon)
        likely = math.inf if quilt is None else 1 / quilt.sigma
        if self._late:
            little = self._at(self.own, raised(LITTLE * epsilon / self.own.unit))
            likely = little.eta * epsilon / little.value if little.certified else math.inf
        found = None if self._large else self._largest_lift(self.own, epsilon, likely)
        if not self._large and self._unsettled(found):
            wider = self._largest_lift(self._any_start, epsilon, likely)
            found = max((f for f in (found, wider) if f is not None), key=_eta, default=None)
        if found is None and self._late:
            quilt = self._quilt(epsilon)
        if found is None and quilt is None:
            in_time("the lift")
            raise Refused(
                f"lift does not apply: for {self._model.describe()} what a release tells about "
                "one entry has no finite bound, because the chain never forgets; give the model a "
                "length"
            )
        if quilt is not None and (found is None or found.eta * quilt.sigma < 1):
            return _by_quilt(quilt)
        assert found is not None
        return found.told()

    def _quilt(self, epsilon: float) -> QuiltResult | None:
        """The quilts' own answer, where they have one in time."""
        try:
            found = None if self._quilts is None else self._quilts.result(epsilon)
        except OutOfTime:
            return None
        return None if found is None or math.isinf(found.sigma) else found

    def _largest_lift(self, lift: Searchable, epsilon: float, likely: float) -> LiftLoss | None:
        """The lift at the largest eta that fits, evaluated afresh; looked for from `likely` on.

        A certified fixed point depends, in its tenth digit, on where the search began. So the
        search aims a little lower, and its answer is evaluated afresh until it fits, where `loss`
        will evaluate the noise of the plan.
        """
        rough = lift.largest_eta(
            epsilon * (1 - MARGIN), likely=likely, afresh=lambda eta: self._at(lift, raised(eta))
        )
        found = None if rough is None else self._at(lift, raised(rough.eta))
        for _ in range(ATTEMPTS):
            if found is None or found.value <= epsilon * (1 - MARGIN / 2):
                break
            less = found.eta * (1 - MARGIN) * min(1.0, epsilon / found.value)
            found = self._at(lift, raised(less))
        return found if found is not None and found.value <= epsilon else None


@lru_cache(maxsize=32)
def chain_lift(model: MarkovChain, query: Query | None) -> EntryLiftOfChain:
    """The lift of a chain with its own initial law; its powers are kept."""

    def unsettled(found: LiftLoss | None) -> bool:
        """Whether no bound on every number of earlier entries was certified from this start."""
        if not model.homogeneous or model.stationary or (model.length or math.inf) <= SHORT + 1:
            return False
        return found is None or not bool(np.isfinite(found.past_limit.bound).all())

    def any_start() -> AnyInitialLift:
        from shoal.chains.lift.families import AnyInitialLift

        return AnyInitialLift.of(model.transition, metric_of(query, model.size), model.length)

    return EntryLiftOfChain(
        model,
        model.transition,
        lambda: ChainLift.of(
            model.initial, model.transition, metric_of(query, model.size), model.length
        ),
        chain_quilts(model, None),
        unsettled,
        any_start,
    )


@lru_cache(maxsize=32)
def any_initial_lift(model: AnyInitialLaw, query: Query | None) -> EntryLiftOfChain:
    """The lift of a chain whatever its initial law."""

    def make() -> AnyInitialLift:
        from shoal.chains.lift.families import AnyInitialLift

        metric = metric_of(query, len(model.states))
        return AnyInitialLift.of(model.transition, metric, model.length)

    return EntryLiftOfChain(model, model.transition, make, any_initial_quilts(model, None))


@lru_cache(maxsize=32)
def order_lift(model: OrderChain, query: Query | None) -> EntryLiftOfChain:
    """The lift of a chain of higher order, on its tuples."""

    def make() -> TupleLift:
        from shoal.chains.lift.tuples import TupleLift

        metric = metric_of(query, len(model.states))
        return TupleLift.of(model.initial, model.conditional, metric, model.length)

    return EntryLiftOfChain(model, model.conditional, make)


def metric_of(query: Query | None, size: int) -> Floats:
    """E(y, z) per unit of eta: |w(y) - w(z)|_1 / L for a linear query, else 1 off the diagonal."""
    asked = linear(query)
    if asked is None:
        return 1.0 - np.eye(size)
    gaps = np.zeros((size, size), dtype=object if asked.wide else np.int64)
    for column in zip(*asked.multiples(), strict=True):
        weights = np.array(column, dtype=gaps.dtype)
        gaps += np.abs(weights[:, None] - weights[None, :])
    exact = np.asarray(gaps / gaps.max(), dtype=np.float64)
    return np.asarray(np.minimum(exact * (1 + 2.0**-52), 1.0))  # divisions round up, 1 stays 1


def most_states(rows: Floats) -> int:
    """How many states, or tuples, with such laws of the next entry the lift compares."""
    follow = (rows > 0).sum(axis=-1)
    if follow.max() <= FEW:
        return MOST_SPARSE if rows.shape[-1] == rows.shape[-2] else MOST_TUPLES
    return MOST_DENSE if follow.min() == rows.shape[-1] == rows.shape[-2] else MOST_STATES


def _loss(lift: Searchable, eta: float) -> LiftLoss:
    """The loss at eta, which depends on nothing that was asked before."""
    return lift.loss(eta)


def _eta(found: LiftLoss) -> float:
    return found.eta


def _by_quilt(found: QuiltResult) -> LiftedModel:
    """The quilt's answer, where no lag that was tried does better: |N|·eta and e."""
    eta = math.nextafter(1 / found.sigma, 0.0)
    return LiftedModel(
        eta=eta,
        loss=found.nearby * eta + found.influence,
        node=found.node,
        pair=None,
        at_node=found.nearby * eta,
        future=found.influence,
        past=0.0,
        rule="quilt",
    )
