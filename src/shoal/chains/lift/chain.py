"""The lift: what an entry-level DP mechanism really leaks about one entry of a Markov chain.

Let M's output density change by at most e^{E(y,z)} when one entry changes from y to z, for every
pair of sequences. Then M tells "X_i = x" from "X_i = x'" by at most

    E(x,x') + D^future(x,x') + D^past(x,x'),

where D bounds what the other entries add (shoal.chains.lift.step). Proof: shoal/mechanisms/lift.md.
Natural logarithms; every value rounds up; inf means that no finite bound was certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from shoal.chains.lift.side import (
    SHORT_CHAINS,
    LiftLoss,
    LiftSide,
    Searched,
    deciding_nodes,
    future_side,
    limit_worth,
    past_is_expensive,
    past_side,
    stepwise_future,
)
from shoal.chains.lift.solver import MANY_STATES, FixedPoint
from shoal.chains.lift.step import Ahead, Behind, EntryMetric, Steps, behind
from shoal.chains.model import ChainLaw, MarkovChain
from shoal.chains.quilt.least import least_quilt_loss
from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError, Refused
from shoal.core.progress import (
    OutOfTime,
    cut_short,
    in_time,
    last_evaluation,
    time_left,
    time_limit,
)
from shoal.core.task import CUT, LiftedModel, Query
from shoal.core.walk import KernelSegments, Powers, PowerWalk, reachable_states
from shoal.mechanisms.cone import (
    CEILING,
    STATES_BY_CORNERS,
    Memory,
    Rule,
    bearable_rule,
    round_up_eta,
)
from shoal.mechanisms.queries import linear

if TYPE_CHECKING:
    from shoal.chains.families import AnyInitialLaw, OrderChain
    from shoal.chains.lift.families import AnyInitialLift
    from shoal.chains.lift.neighbours import NeighbourSide
    from shoal.chains.lift.tuples import TupleLift
    from shoal.chains.quilt.row import ChainQuilts
    from shoal.chains.quilt.scale import QuiltResult

    Searchable: TypeAlias = "ChainLift | AnyInitialLift | TupleLift"


def lift_loss(
    initial: npt.ArrayLike,
    transitions: npt.ArrayLike,
    metric: npt.ArrayLike | EntryMetric,
    length: int | None,
    rule: Rule | None = None,
) -> LiftLoss:
    """max over nodes i and values x, x' possible there of  E(x,x') + D^future + D^past.

    E = metric (η off the diagonal for an η-DP mechanism, |w(y)-w(z)|/s for Laplace noise of scale
    s on a weighted sum); transitions is P (k×k) or one matrix per step (length - 1, k, k); length
    None covers every length. Rounds up; inf when no finite bound is certified. MATHS 3.
    """
    return ChainLift.of(initial, transitions, metric, length).loss(1.0, rule)


DENSE = 40  # states that all follow each other and differ in what a change counts: by the cone
LOST_TO_START = (
    0.03  # of eta: where the search begins when an initial law of its own makes it expensive
)
ALL_PAIRS = 600  # states beyond which only neighbours are compared


@dataclass(frozen=True, eq=False)
class ChainLift(Searched):
    """A chain and a metric per unit of eta, ready to be evaluated at any eta.

    states numbers the values the chain can ever take; the arrays are restricted to them. What
    does not depend on eta (powers, reversed laws) is computed once and kept.
    """

    states: npt.NDArray[np.intp]
    initial: Floats
    transitions: Floats
    metric: EntryMetric
    length: int | None

    @classmethod
    def of(
        cls,
        initial: npt.ArrayLike,
        transitions: npt.ArrayLike,
        metric: npt.ArrayLike | EntryMetric,
        length: int | None,
    ) -> ChainLift:
        """The lift of a chain given by plain arrays, checked for shape."""
        start = np.asarray(initial, dtype=np.float64)
        steps = np.asarray(transitions, dtype=np.float64)
        entry = metric if isinstance(metric, EntryMetric) else EntryMetric.of(metric)
        size = len(start)
        if steps.shape[-2:] != (size, size) or len(entry.metrics[0]) != size:
            raise InputError(
                f"initial has {size} states, transitions {steps.shape[-1]} and metric "
                f"{len(entry.metrics[0])}; all must have the same"
            )
        if steps.ndim == 3 and length != len(steps) + 1:
            raise InputError(
                f"transitions holds {len(steps)} matrices and length is {length}; "
                f"one matrix per step needs length {len(steps) + 1}"
            )
        states = np.arange(size)
        if steps.ndim == 2:
            states = np.flatnonzero(reachable_states(start > 0, steps > 0))
        chosen = np.ix_(states, states)
        kept = steps if steps.ndim == 3 else steps[chosen]
        return cls(states, start[states], kept, entry.restrict_to(states), length)

    def loss(
        self,
        eta: float = 1.0,
        rule: Rule | None = None,
        start: LiftLoss | None = None,
        enough: float = CEILING,
        memory: Memory | None = None,
    ) -> LiftLoss:
        """The lift at metric · eta. `start` lends its limits as a guess, which saves time.

        So does the `memory` of a search; without both the loss depends on nothing that was asked
        before. Sides whose limit passes `enough` may be reported as infinite. Rounds up.
        """
        if rule is None and self.size > MANY_STATES and self._between_neighbours is not None:
            return self._neighbour_loss(*self._between_neighbours, eta, enough)
        if rule is None and self.size > ALL_PAIRS:
            return self._no_loss(eta)
        rule, memory = rule or self.rule, Memory() if memory is None else memory
        entry = self.metric.scaled_by(eta)
        count = None if self.length is None else self.length - 1
        enough = limit_worth(self.size, count, entry.eta, enough)
        guesses = (None, None) if start is None else start.guesses(eta, rule)
        behind = self._behind.remembering(memory)
        if self.transitions.ndim == 3:
            steps = Steps(KernelSegments(self.transitions), memory["future"])
            future = stepwise_future(steps, entry, len(self.transitions), rule)
        else:
            ahead = self._ahead.remembering(memory["future"])
            future = future_side(ahead, entry, count, rule, guesses[0], enough)
        past = past_side(behind, entry, count, rule, guesses[1], enough)
        others = np.inf if count is None else count * entry.eta
        worst = LiftLoss.none(rule, eta, others, future.limit, past.limit)
        worst = replace(worst, stretched=future.ends is not None or past.ends is not None)
        metric = entry.metrics[0]
        for node in deciding_nodes(self.length, future, past):
            possible = self._possible(node, past)
            after = None if count is None else count - node
            before = None if count is None and node > past.last else node
            worst = worst.or_at(node, possible, metric, future.at(after), past.at(before))
        return worst.renumbered(self.states)

    @cached_property
    def _between_neighbours(self) -> tuple[NeighbourSide, NeighbourSide] | None:
        """Both sides of a stationary chain of which few states follow each, else None."""
        if self.transitions.ndim == 3 or self._behind.settled != 0:
            return None
        metric, back = self.metric.metrics[0], self._behind.reversal
        future = self._ahead.beside(metric)
        past = None if future is None or back is None else back.beside(metric)
        return None if future is None or past is None else (future, past)

    def roughly(
        self, eta: float, start: LiftLoss | None, enough: float, memory: Memory
    ) -> LiftLoss:
        """By neighbours where they serve, else by the largest rule."""
        if self._between_neighbours is None:
            return super().roughly(eta, start, enough, memory)
        return self._neighbour_loss(*self._between_neighbours, eta, enough)

    def _neighbour_loss(
        self, ahead: NeighbourSide, back: NeighbourSide, eta: float, enough: float
    ) -> LiftLoss:
        """The lift at any length, by the shortest ways between neighbours."""
        entry = self.metric.scaled_by(eta)
        metric, others = entry.metrics[0], np.inf
        if self.length is not None:
            others = (self.length - 1) * entry.eta
        from shoal.chains.lift.neighbours import worst_way

        future = ahead.bound(metric, enough)
        start = future if future is not None and len(back.first) == len(ahead.first) else None
        past = None if future is None else back.bound(metric, enough, start)
        if future is None or past is None:
            return self._no_loss(eta)
        worst = worst_way(metric, ahead.ways(future), back.ways(past))
        limits = FixedPoint(future, (1,)), FixedPoint(past, (1,))
        middle = 0 if self.length is None else self.length // 2
        found_loss = replace(
            LiftLoss.none("cone", eta, others, *limits),
            loss=min(worst.value, entry.eta + others) * (1.0 + 2.0**-51),
            node=middle,
            pair=worst.pair,
            at_node=worst.at_node,
            future=worst.future,
            past=worst.past,
        )
        return found_loss.renumbered(self.states)

    def _no_loss(self, eta: float) -> LiftLoss:
        """No bound."""
        none = FixedPoint.unknown(2)
        return replace(LiftLoss.none("cone", eta, np.inf, none, none), loss=np.inf)

    @property
    def is_expensive(self) -> bool:
        count = None if self.length is None else self.length - 1
        return super().is_expensive or past_is_expensive(self._behind, self.metric, count)

    def near(self, epsilon: float, likely: float) -> float | None:
        """A little less than the eta of the same chain long after its start."""
        law = self._behind.limit
        if law is None or self.size <= STATES_BY_CORNERS or not self._follows_long:
            return None
        settled = replace(self, initial=law)
        vars(settled)["_ahead"] = self._ahead
        found = settled.largest_eta(epsilon, likely=likely)
        return None if found is None else found.eta * (1.0 - LOST_TO_START)

    @property
    def _follows_long(self) -> bool:
        """Whether the law of a start of its own takes long to settle."""
        return self._behind.settled is None or self._behind.settled > SHORT_CHAINS

    def endless(self) -> ChainLift:
        """The same chain at any length: never a smaller loss, and no slower for long chains."""
        if self.length is None or self.transitions.ndim == 3:
            return self
        endless = ChainLift(self.states, self.initial, self.transitions, self.metric, None)
        vars(endless)["_ahead"] = self._ahead  # what follows does not depend on the length,
        if self._behind.settled == 0:  # nor what came before, from a stationary start
            vars(endless)["_behind"] = self._behind
        return endless

    @cached_property
    def rule(self) -> Rule:
        if self.size > MANY_STATES and self._between_neighbours is not None:
            return "cone"
        return bearable_rule(self.transitions, MANY_STATES if self.metric.alike else DENSE)

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def unit(self) -> float:
        return self.metric.eta

    @cached_property
    def _power_walk(self) -> PowerWalk:
        return (
            KernelSegments(self.transitions)
            if self.transitions.ndim == 3
            else Powers.of(self.transitions)
        )

    @cached_property
    def _ahead(self) -> Ahead:
        return Ahead(Powers.of(self.transitions))

    @cached_property
    def _behind(self) -> Behind:
        return behind(
            self.initial, self._power_walk, None if self.length is None else self.length - 1
        )

    def _possible(self, node: int, past: LiftSide) -> Bools:
        """The values the node can take, or that any node it stands for can."""
        if node > past.last and self._behind.settled is None:
            return np.ones(len(self.states), dtype=np.bool_)
        return self._behind.support(node)


# What a chain answers about the lift: the tightest of its own, any start's, and the quilts'.


BUDGET_UNUSED = 1e-7  # of the budget, left unused so that a second evaluation fits too
LIFT_ATTEMPTS = 8
LEAST_SEARCH = 1e-3  # seconds; half of what is left is for the answer itself
MOST_STATES_LIFTED = 300  # pairs of more states take minutes
MOST_DENSE = 600  # where every state may follow every other, one number bounds all pairs
MOST_SPARSE = 2048  # where few states can follow each, and neighbours serve for all pairs
MOST_TUPLES = 600  # tuples of a longer memory, of which all pairs are compared
MAX_STATES_SURVEYED = 300  # beyond it quilts take longer than the lift, and only serve without it
FEW_STATES = 32
LITTLE = 2.0**-8  # of the budget: an eta whose loss tells where to look
LOSSES_KEPT = 64  # losses of one model that are not evaluated twice


class EntryLiftOfChain:
    """What eta-DP tells about an entry of a chain, by the least of several bounds.

    With a linear query the metric is the query's own: entries whose weights are close are told
    apart less. Without one any change of an entry counts eta. On a chain whose marginals settle
    too slowly to be followed, the lift for every first law serves as well. The quilt bound covers
    lags that a long chain does not try: quilts are surveyed last, and only where
    `least_quilt_loss` (of eta and a limit) does not show that they lose. `rows` are the laws of
    the next entry, one per state or tuple: where they are too many the quilts serve alone.
    """

    def __init__(
        self,
        model: ChainLaw,
        rows: Floats,
        make: Callable[[], Searchable],
        quilts: Callable[[], ChainQuilts] | None = None,
        unsettled: Callable[[LiftLoss | None], bool] = lambda found: False,
        any_start: Callable[[], Searchable] | None = None,
        least_quilt_loss: Callable[[float, float], float] = lambda eta, below: 0.0,
    ) -> None:
        """Keep how the lift and the quilts of a model are made; they are made when first needed.

        `rows` are its transition matrices, whose size decides whether pairs of states are compared.
        `unsettled` says of a result whether the lift for any initial law is tried too.
        """
        self._make = make
        self._model, self._make_quilts = model, quilts
        self._unsettled, self._make_any_start = unsettled, any_start
        self._largest: dict[float, LiftedModel] = {}
        self._rows, self._most = rows.shape[-2], most_states(rows)
        self._large = self._rows > self._most  # then the quilts serve alone
        self._least_quilt_loss = least_quilt_loss
        self._at = lru_cache(maxsize=LOSSES_KEPT)(_fresh_loss)

    @cached_property
    def own(self) -> Searchable:
        """The lift itself, made when it is first asked for."""
        return self._make()

    @cached_property
    def _quilts(self) -> ChainQuilts | None:
        """The quilts of the model, imported when they are first asked for."""
        return None if self._make_quilts is None else self._make_quilts()

    @cached_property
    def _any_start(self) -> Searchable:
        assert self._make_any_start is not None  # only asked where a chain is unsettled
        return self._make_any_start()

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """Return the first bound that is at most `enough`, else the least of all.

        It depends on nothing that was asked before. Quilts are surveyed only where the cheapest
        quilt of one node does not already lose: before the lift where they may be enough, because
        a plan whose search ran out of time may rest on them alone, and else after it.
        """
        if self._large:
            return math.inf if self._quilts is None else self._quilts.loss(eta)
        if enough > 0 and not self._quilts_lose(eta, enough):
            assert self._quilts is not None  # without quilts, quilts lose
            surveyed = self._quilts.loss(eta)
            if surveyed <= enough:
                return surveyed
        at = round_up_eta(eta)
        found = self._at(self.own, at)
        value = found.value
        if value > enough and self._unsettled(found):
            value = min(value, self._at(self._any_start, at).value)
        if value <= enough or self._quilts_lose(eta, value):
            return value
        assert self._quilts is not None  # without quilts, quilts lose
        return min(value, self._quilts.loss(eta))

    def _quilts_lose(self, eta: float, value: float) -> bool:
        """Return whether no survey of quilts at `eta` gives less than `value`."""
        if self._make_quilts is None:
            return True
        if math.isinf(value):
            return False
        return self._rows > MAX_STATES_SURVEYED or self._least_quilt_loss(eta, value) >= value

    def largest(self, epsilon: float) -> LiftedModel:
        """Return the largest eta whose loss is at most `epsilon`, with its certificate.

        The result is kept, unless a time limit cut the search short; then its rule says so.
        """
        if epsilon in self._largest:
            return self._largest[epsilon]
        found = self._search(epsilon)
        if cut_short():  # the next to ask may have more time
            return replace(found, rule=f"{found.rule}{CUT}")
        self._largest[epsilon] = found
        return found

    def _search(self, epsilon: float) -> LiftedModel:
        """Return the certificate of the largest eta found by the lift or by Markov quilts.

        Refused when the chain has too many tuples and no quilts, or no finite bound at all.
        """
        if self._large and self._make_quilts is None:
            raise Refused(
                f"lift does not apply: {self._model.describe()} has {self._rows} tuples; pairs of "
                f"at most {self._most} are compared: lower the order or merge states"
            )
        # Under a time limit quilts come first: they are soon surveyed, and serve where time ends.
        timed = not self._large and time_left() is not None and self._rows <= MAX_STATES_SURVEYED
        quilt = self._quilt(epsilon) if timed else None
        likely = math.inf if self._large else self._from_little(epsilon)
        found = None if self._large else self._largest_lift(self.own, epsilon, likely)
        if not self._large and self._unsettled(found):
            wider = self._largest_lift(self._any_start, epsilon, likely)
            found = max((f for f in (found, wider) if f is not None), key=_eta, default=None)
        if quilt is None and found is not None and self._quilts_lose(found.eta, epsilon):
            return found.to_certificate()
        quilt = quilt or self._quilt(epsilon)
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
        return found.to_certificate()

    def _from_little(self, epsilon: float) -> float:
        """Where the eta sought may lie, by the loss at a small one."""
        try:
            little = self._at(self.own, round_up_eta(LITTLE * epsilon / self.own.unit))
        except OutOfTime:
            return math.inf
        if not little.certified or little.value <= 0:  # 0: no eta tells anything
            return math.inf
        return little.eta * epsilon / little.value

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
        will evaluate the noise of the plan. The other half of the time is for that, and a little
        beyond the limit, or the search was for nothing. None where that is not enough.
        """
        left = time_left()
        with nullcontext() if left is None else time_limit(max(left / 2, LEAST_SEARCH)):
            rough = lift.largest_eta(
                epsilon * (1 - BUDGET_UNUSED),
                likely=likely,
                afresh=lambda eta: self._at(lift, round_up_eta(eta)),
            )
        if rough is None:
            return None
        try:
            with last_evaluation():
                return self._afresh(lift, epsilon, rough.eta)
        except OutOfTime:
            return None

    def _afresh(self, lift: Searchable, epsilon: float, eta: float) -> LiftLoss | None:
        """The loss at about `eta`, lowered until it is at most epsilon; None where none was."""
        found = self._at(lift, round_up_eta(eta))
        for _ in range(LIFT_ATTEMPTS):
            if found.value <= epsilon * (1 - BUDGET_UNUSED / 2):
                break
            less = found.eta * (1 - BUDGET_UNUSED) * min(1.0, epsilon / found.value)
            found = self._at(lift, round_up_eta(less))
        return found if found.value <= epsilon else None


@lru_cache(maxsize=32)
def chain_lift(model: MarkovChain, query: Query | None) -> EntryLiftOfChain:
    """The lift of a chain with its own initial law; its powers are kept."""

    def has_no_bound(found: LiftLoss | None) -> bool:
        """Whether no bound on every number of earlier entries was certified from this start."""
        if (
            not model.homogeneous
            or model.stationary
            or (model.length or math.inf) <= SHORT_CHAINS + 1
        ):
            return False
        return found is None or not bool(np.isfinite(found.past_limit.bound).all())

    def any_start() -> AnyInitialLift:
        from shoal.chains.lift.families import AnyInitialLift

        return AnyInitialLift.of(model.transition, metric_of(query, model.size), model.length)

    def quilts() -> ChainQuilts:
        from shoal.chains.quilt.row import chain_quilts

        return chain_quilts(model, None)

    def least_quilt(eta: float, below: float) -> float:
        """The loss of the cheapest quilt of one node; 0 with one matrix per step."""
        if not model.homogeneous:
            return 0.0
        return least_quilt_loss(model.initial, model.transition, model.length, eta, below)

    return EntryLiftOfChain(
        model,
        model.transition,
        lambda: ChainLift.of(
            model.initial, model.transition, metric_of(query, model.size), model.length
        ),
        quilts,
        has_no_bound,
        any_start,
        least_quilt,
    )


@lru_cache(maxsize=32)
def any_initial_lift(model: AnyInitialLaw, query: Query | None) -> EntryLiftOfChain:
    """The lift of a chain with any initial law."""

    def make() -> AnyInitialLift:
        from shoal.chains.lift.families import AnyInitialLift

        metric = metric_of(query, len(model.states))
        return AnyInitialLift.of(model.transition, metric, model.length)

    def quilts() -> ChainQuilts:
        from shoal.chains.quilt.row import any_initial_quilts

        return any_initial_quilts(model, None)

    def least_quilt(eta: float, below: float) -> float:
        """The loss of the cheapest quilt of one node, under one of the first laws."""
        size = len(model.states)
        return least_quilt_loss(
            np.full(size, 1.0 / size), model.transition, model.length, eta, below
        )

    return EntryLiftOfChain(
        model,
        model.transition,
        make,
        quilts,
        least_quilt_loss=least_quilt,
    )


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
    if follow.max() <= FEW_STATES:
        return MOST_SPARSE if rows.shape[-1] == rows.shape[-2] else MOST_TUPLES
    return MOST_DENSE if follow.min() == rows.shape[-1] == rows.shape[-2] else MOST_STATES_LIFTED


def _fresh_loss(lift: Searchable, eta: float) -> LiftLoss:
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
