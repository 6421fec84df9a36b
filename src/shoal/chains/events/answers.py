"""What a chain answers about events: the laws of a sum given each, and what any release tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoal.chains.events.given import Given, nodes_of
from shoal.chains.events.lift import EventLeak, EventLift, PlainChain
from shoal.chains.events.sums import AnswerPair, EventSum
from shoal.chains.lift.chain import metric_of
from shoal.chains.lift.step import EntryMetric
from shoal.chains.model import ChainLaw, MarkovChain
from shoal.core.errors import InputError, Refused
from shoal.core.task import LiftedModel, Query, ScaleFound
from shoal.events.automaton import PathLaw, compile_events
from shoal.events.event import TimeEvent
from shoal.events.secrets import Events
from shoal.mechanisms.mixture import crossing
from shoal.mechanisms.queries import LinearQuery

ETA_CLOSE = 1e-5  # of the largest eta: how near to it a search comes
NO_LENGTH = "an event needs a length; give the chain one"
RISES = "the events are held to a rise of belief, which noise does not bound; give epsilon"
RULE = "events"  # of a lift's certificate


def refusal(model: ChainLaw, secrets: Events) -> str | None:
    """Why a chain has no numbers about these events, or None."""
    if secrets.notion != "pufferfish":
        return RISES
    return NO_LENGTH if model.tied is None else None


@lru_cache(maxsize=16)
def pairs_given(model: ChainLaw, secrets: Events) -> tuple[tuple[Given, Given], ...]:
    """The chain given each event, and given what it is hidden against.

    Refused, with an InputError, when one of them is impossible or the chain has no length.
    """
    if model.tied is None:
        raise InputError(NO_LENGTH)
    nodes = nodes_of(model)
    assert nodes.initial is not None
    path = PathLaw(nodes.values, nodes.initial, nodes.matrix, model.tied)

    def given(event: TimeEvent) -> Given:
        """Return the chain's law given the event; refused when the event is impossible."""
        automaton = compile_events((event,), path)
        found = Given(nodes, automaton.steps, automaton.accept[:, 0])
        if not found.possible:
            raise InputError(
                f"the event '{event.describe()}' is impossible under the model: there is nothing "
                "to hide (leave it out, or smooth the model)"
            )
        return found

    return tuple(
        (given(event), given(other))
        for (event, _), other in zip(secrets.pairs, secrets.against(), strict=True)
    )


# The laws of a sum over the chain: what exact and wasserstein ask for.


@dataclass(frozen=True, eq=False)
class EventLaws:
    """The laws of a linear query given each event of each pair; scales in lattice steps."""

    sums: tuple[EventSum | AnswerPair, ...]

    def least_scale(self, epsilon: float) -> ScaleFound:
        """The smallest scale whose loss is at most epsilon for every pair; rounds up."""
        scale = max(found.least_scale(epsilon) for found in self.sums)
        return ScaleFound(scale, None, "no finite noise is enough for these events")

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        """The largest log-ratio of the noisy answer between the two of a pair; rounds up."""
        return max(found.loss(scale) for found in self.sums)

    def floor(self, epsilon: float) -> float | None:
        """The least scale itself: the loss is exact, so no Laplace noise needs less."""
        try:
            return self.least_scale(epsilon).scale
        except Refused:
            return None

    def no_distance(self) -> None:
        """Nothing stands in the way: the laws are whole."""

    def distance(self) -> float:
        """The largest W∞ between the laws of a pair, up to slices of mass of 1e-12."""
        return max(found.distance() for found in self.sums)

    def ratio(self, decay: float) -> float:
        """Not known: releases of one number about one event are added by the lift."""
        return math.inf


@lru_cache(maxsize=16)
def event_laws(model: ChainLaw, query: LinearQuery, secrets: Events) -> EventLaws:
    """The laws of `query` under `model`, kept: every scale that is tried asks for the same."""
    weights = np.array(query.multiples(), dtype=np.int64)
    any_start = model.walk().initial is None
    pairs = pairs_given(model, secrets)
    return EventLaws(tuple(EventSum(one, two, weights, any_start) for one, two in pairs))


# What any entry-level DP release tells: what the lift and the ledger ask for.


@dataclass(frozen=True, eq=False)
class EventsLift:
    """What releases that are eta-DP for one entry tell about any pair of events of one chain."""

    lifts: tuple[EventLift, ...]

    def at(self, eta: float) -> EventLeak:
        """The pair with the largest loss; rounds up."""
        return max((found.loss(eta) for found in self.lifts), key=lambda leak: leak.value)

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """The bound at eta; rounds up."""
        return self.at(eta).value

    def largest(self, epsilon: float) -> LiftedModel:
        """An eta whose loss is at most epsilon, near the largest there is; `node` is its anchor."""
        group = epsilon / self.lifts[0].entries  # always enough; from there on in proportion
        guess = group * max(epsilon / self.loss(group), 1.0)
        _, scale = crossing(lambda scale: self.loss(1.0 / scale), epsilon, 1.0 / guess, ETA_CLOSE)
        eta = 1.0 / scale
        if not eta > 0:
            raise Refused("lift does not apply: no eta is small enough for these events")
        found = self.at(eta)
        return LiftedModel.at(eta, found.value, found.anchors[0], found.value, RULE)


def events_lift(model: ChainLaw, secrets: Events, query: Query | None = None) -> EventsLift:
    """The event lift of a chain, with the metric of `query`; without one any change counts."""
    return _kept_lift(model, secrets, metric_of(query, len(model.walk().values)).tobytes())


@lru_cache(maxsize=16)
def _kept_lift(model: ChainLaw, secrets: Events, metric: bytes) -> EventsLift:
    """Return the lift of the model about these events; the last 16 are kept.

    `metric` are the bytes of the matrix of distances between values, float64 in C order.
    """
    walk = model.walk()
    size = len(walk.values)
    moves = np.frombuffer(metric, dtype=np.float64).reshape(size, size)
    plain = None
    if isinstance(model, MarkovChain) and model.homogeneous and model.length is not None:
        entry = EntryMetric.of(moves)
        plain = PlainChain(model.initial, model.transition, entry, model.length)
    pairs, any_start = pairs_given(model, secrets), walk.initial is None
    return EventsLift(tuple(EventLift(one, two, moves, plain, any_start) for one, two in pairs))
