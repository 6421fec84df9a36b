"""One example at least of everything that can be stored."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from shoal.chains.closeness import Closeness
from shoal.chains.fit import PrivateFit
from shoal.chains.model import MarkovChain
from shoal.chains.transitions import transitions
from shoal.contexts.machine import LiveSimulatable
from shoal.contexts.online import DayGiven
from shoal.contexts.secrets import SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core import charge
from shoal.core.charge import Guarantee
from shoal.core.errors import Refused
from shoal.core.plan import Additive, Answer, Error, Plan, Sampler, Stream
from shoal.core.registry import loads
from shoal.core.task import EachEntry
from shoal.events.event import sequence, stay, visit
from shoal.events.secrets import Events
from shoal.geometry.body import symmetric_hull
from shoal.mechanisms.choice import calibrate
from shoal.mechanisms.lift import Leakage
from shoal.mechanisms.person import EachPerson
from shoal.mechanisms.plans import Measured
from shoal.mechanisms.queries import ExternalQuery, RunningStream, count, histogram, in_steps
from shoal.mechanisms.signed_tree import Totals, TotalsStream
from shoal.mechanisms.table import MECHANISMS
from shoal.networks.closeness import SecretCloseness
from shoal.noise.knorm import LatticeKNorm, Staircase
from shoal.noise.laplace import ZeroSumLaplace
from shoal.noise.primitives import SeededRng
from shoal.places.machine import LocationMachine
from shoal.places.map import HexGrid, RoadMap
from shoal.places.stream import LocationStream
from shoal.records.schema import RecordSchema
from shoal.records.sources import FriendModel
from shoal.share.history import Leg
from shoal.share.plan import ShareMachine
from shoal.share.stream import ShareStream
from tests.contract.tasks import TASKS, short_day
from tests.stored_samples import read_text

BY_HAND: tuple[Any, ...] = (
    FriendModel(b=0.5, c=2.0),
    charge.SameQuilts("0f", Fraction(1, 3)),
    charge.PerStep(Fraction(2)),
    charge.Alone("two exact counts may reveal what neither does"),
    Guarantee(
        notion="dependent", amount=Fraction(1), over="x", proved=False, caveat="pairs are not all"
    ),
    Error(expected=float("inf"), bound=2.5, confidence=0.95, unit="entries"),
    Additive(histogram("abc"), ZeroSumLaplace(Fraction(7, 2), Fraction(1), 3)),
    symmetric_hull([[2, 1], [1, 3], [0, 0]]),
    LatticeKNorm(body=symmetric_hull([[2, 1], [1, 3]]), epsilon=Fraction(1, 2)),
    Staircase.best(symmetric_hull([[2, 1], [1, 3]]), Fraction(3)),
    Measured("other", Fraction(1, 3)),
    LiveSimulatable(short_day(), SensitiveContexts.of("hospital"), 0.25),
    Events.of(
        (visit("clinic", between=("mon", "fri")) & ~stay("home", 3)) | sequence("A", "B"),
        (visit("A"), visit("B", between=(2, 5))),
    ),
    ExternalQuery("other", ("a", "b")),
    RoadMap(
        ends=np.array([[52.5, 13.3, 52.5, 13.4], [52.5, 13.4, 52.6, 13.4]]), names=("main", "side")
    ),
    HexGrid(indexes=np.array([612630286862614527, 612630286896168959])),
    charge.PerStep(Fraction(2), Fraction(5, 2)),
    Leakage(eta=Fraction(1, 2), per_model=(0.75, float("inf"))),
    Closeness(0.25, 3, "a", 10),
    SecretCloseness(0.5, "X = 1", 0),
    PrivateFit(
        chain=MarkovChain.of([[0.9, 0.1], [0.4, 0.6]]),
        eta=Fraction(1),
        counts=np.array([[9, -1], [2, 3]]),
        scale=Fraction(2),
        floor=Fraction(1, 2),
        secure=False,
    ),
    Answer(("a", "b"), (3, -(10**30)), Fraction(1, 7), "entries"),
)


RIDES = (Leg((0, 2, 4, 5), goal=5), Leg((5, 4, 3, 1), goal=5, homeward=True))

STORED_PLANS = Path(__file__).parent / "data" / "stored-0.2" / "plans.jsonl.gz"

# tasks that between them make every kind of model and certificate, and take no time
QUICK = (
    "count",
    "sum",
    "relative-histogram",
    "zeros",
    "matrix-per-step",
    "any-initial-law",
    "mixing",
    "interval",
    "weak",
    "order-2",
    "table",
    "pairs",
    "network",
    "network-unlike",
    "contagion",
    "dependence",
    "pairwise-field",
    "contexts",
    "event-rises",
    "policy",
    "location-set",
    "map",
    "number-mean",
    "number-histogram",
    "kmeans",
    "classifier",
    "degrees",
    "rides",
    "rides-of-two-places",
)


@functools.cache
def examples() -> tuple[Any, ...]:
    """Hand-made values, and every part of every plan that any mechanism makes of any task."""
    found: dict[str, Any] = {repr(part): part for value in BY_HAND for part in parts(value)}
    for value in chain(_made(), _retired_plans()):
        for part in parts(value):
            found.setdefault(getattr(part, "fingerprint", repr(part)), part)
    return tuple(found.values())


def parts(value: Any) -> Iterator[Any]:
    """`value` and every stored value inside it."""
    if dataclasses.is_dataclass(value):
        yield value
        for field in dataclasses.fields(value):
            yield from parts(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from parts(item)


def _retired_plans() -> Iterator[Plan]:
    """Yield stored plans of mechanisms that make no new ones."""
    for line in read_text(STORED_PLANS).splitlines():
        stored = json.loads(line)
        if MECHANISMS[stored["mechanism"]].retired:
            plan = loads(json.dumps(stored["document"]))
            assert isinstance(plan, Plan)
            yield plan


def _made() -> Iterator[Any]:
    for name in QUICK:
        task = TASKS[name]
        yield task
        for row in MECHANISMS.values():
            try:
                takes = not row.retired and row.refuse(task) is None
                plan = row.calibrate(task, Fraction(1, 2)) if takes else None
            except Refused:
                plan = None
            if plan is not None:
                yield plan
            if plan is not None and isinstance(plan.body, ShareMachine):
                for after, shown in ShareStream.begin(plan).show_all(RIDES):
                    yield after.history
                    yield shown
            elif plan is not None and not isinstance(plan.body, Sampler):
                yield plan.start()
                yield plan.start().step(task.query.states[0], rng=SeededRng(1))[0]
                if isinstance(plan.body, LocationMachine):
                    yield from LocationStream.begin(plan).read(
                        task.query.states[0], rng=SeededRng(2)
                    )
                    if name == "map":
                        there = Events.of(visit(task.query.states[0], between=(0, 1)))
                        yield LocationStream.begin(plan, events=there, event_epsilon=1)
                if name == "contexts":
                    yield ContextStream.begin(plan, "monday")
    yield ContextStream.begin(
        MECHANISMS["mask-hybrid"].calibrate(TASKS["contexts"], Fraction(1, 2))
    )
    plan = MECHANISMS["group"].calibrate(TASKS["count"], Fraction(1))
    release = plan.release(["a", "b", "b"], rng=SeededRng(3))
    yield release
    yield dataclasses.replace(release, error=None, processed=("non-negative",))
    yield Stream(plan, ("any state", 3, 0.5, None))
    series = MarkovChain.of([[0.7, 0.3], [0.4, 0.6]], states=["a", "b"])
    sums = calibrate(in_steps(count("ab", "a"), 2), EachEntry(), series, epsilon=1)
    yield sums
    yield RunningStream.begin(sums)
    yield RunningStream.begin(sums).state
    yield EachPerson()
    yield transitions("ab")
    yield RecordSchema.of(
        {"age": (17, 90), "work": ["public", "private"]}, label="pay", classes=["low", "high"]
    )
    added = calibrate(Totals(count("ab", "a"), 2, 4, 3, 2), EachEntry(), series, epsilon=1)
    yield added
    stream = TotalsStream.begin(added)
    for entry in "abab":
        stream, _ = stream.read(entry, rng=SeededRng(4))
    yield stream
    yield stream.state
    yield stream.state.open[0]  # type: ignore[attr-defined]
    uneven = MarkovChain.of([[0.95, 0.05], [0.4, 0.6]], states=["a", "b"], length=20)
    yield calibrate(count("ab", "b"), EachEntry(), uneven, epsilon=6, mechanism="steps")
    hidden = MECHANISMS["mask-online"].calibrate(TASKS["event-rises"], Fraction(1, 2))
    yield DayGiven.of(hidden, [None] * hidden.body.slots)  # type: ignore[union-attr]
