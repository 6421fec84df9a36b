"""What a chain answers about events: the laws of a sum given each, and what any release tells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from shoal.additive.mixture import crossing
from shoal.additive.queries import LinearQuery
from shoal.chains.events.given import Given, nodes_of
from shoal.chains.events.lift import EventLeak, EventLift, PlainChain
from shoal.chains.events.sums import EventSum
from shoal.chains.families import AnyInitialLaw, OrderChain
from shoal.chains.lift.step import EntryMetric
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused
from shoal.core.task import Model
from shoal.events.automaton import compile_events
from shoal.events.event import TimeEvent
from shoal.events.law import PathLaw
from shoal.events.secrets import Events

CLOSE = 1e-6  # of the largest eta: how near to it a search comes
CHAINS = MarkovChain | AnyInitialLaw | OrderChain


def refuse(model: Model) -> str | None:
    """Why a model cannot be asked about events, or None."""
    if not isinstance(model, CHAINS):
        return f"events need a chain whose law can be followed, not {model.describe()}"
    if model.tied is None:
        return "an event needs a length; give the chain one"
    return None


@lru_cache(maxsize=16)
def pairs_given(model: Model, secrets: Events) -> tuple[tuple[Given, Given], ...]:
    """The chain given each event, and given what it is hidden against."""
    why = refuse(model)
    if why is not None:
        raise Refused(why)
    nodes = nodes_of(model)
    assert model.states is not None
    assert model.tied is not None  # as `refuse` has it
    path = PathLaw(model.states, nodes.initial, nodes.matrix, model.tied)

    def given(event: TimeEvent) -> Given:
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


@dataclass(frozen=True, eq=False)
class EventLaws:
    """The laws of a linear query given each event of each pair; scales in lattice steps."""

    sums: tuple[EventSum, ...]

    def least_scale(self, epsilon: float) -> float:
        """The smallest scale whose loss is at most epsilon for every pair; rounds up."""
        return max(found.least_scale(epsilon) for found in self.sums)

    def loss(self, scale: float, enough: float = -math.inf) -> float:
        """The largest log-ratio of the noisy answer between the two of a pair; rounds up."""
        return max(found.loss(scale) for found in self.sums)

    def distance(self) -> float:
        """The largest W∞ between the laws of a pair, up to slices of mass of 1e-12."""
        return max(found.distance() for found in self.sums)


@lru_cache(maxsize=16)
def event_laws(model: Model, query: LinearQuery, secrets: Events) -> EventLaws:
    """The laws of `query` under `model`, kept: every scale that is tried asks for the same."""
    weights = np.array(query.multiples(), dtype=np.int64)
    any_start = isinstance(model, AnyInitialLaw)
    return EventLaws(
        tuple(
            EventSum(event, other, weights, any_start)
            for event, other in pairs_given(model, secrets)
        )
    )


@dataclass(frozen=True, eq=False)
class EventsLift:
    """What releases that are eta-DP for one entry tell about any pair of events of one chain."""

    lifts: tuple[EventLift, ...]

    def at(self, eta: float) -> EventLeak:
        """The pair that is told most about; rounds up."""
        return max((found.loss(eta) for found in self.lifts), key=lambda leak: leak.value)

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """The bound at eta; rounds up."""
        return self.at(eta).value

    def largest(self, epsilon: float) -> float:
        """An eta whose loss is at most epsilon, and near the largest there is; rounds down."""
        entries = self.lifts[0].entries
        # between group privacy, which is always enough, and what one entry alone tells
        _, scale = crossing(lambda s: self.loss(1.0 / s), epsilon, entries / epsilon, CLOSE)
        return math.nextafter(1.0 / scale, 0.0) if math.isfinite(scale) else 0.0


@lru_cache(maxsize=16)
def events_lift(model: Model, secrets: Events, metric: bytes | None = None) -> EventsLift:
    """The event lift of a chain; `metric` are the bytes of its matrix, None for any change."""
    pairs = pairs_given(model, secrets)
    assert model.states is not None
    size = len(model.states)
    moves: Floats = 1.0 - np.eye(size)
    if metric is not None:
        moves = np.frombuffer(metric, dtype=np.float64).reshape(size, size)
    plain = None
    if isinstance(model, MarkovChain) and model.homogeneous and model.length is not None:
        entry = EntryMetric.of(moves)
        plain = PlainChain(model.initial, model.transition, entry, model.length)
    any_start = isinstance(model, AnyInitialLaw)
    return EventsLift(
        tuple(EventLift(event, other, moves, plain, any_start) for event, other in pairs)
    )
