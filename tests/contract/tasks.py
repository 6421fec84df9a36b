"""Tasks every mechanism is tried on, and the same task with its states renamed.

A new row of the table is covered by those it takes with no new code; a new kind of model or
secrets adds a task here. `OWN` lists for each row the tasks it must make a plan for.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.chains.transitions import Transitions, transitions
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.plan import Plan
from shoal.core.task import EachEntry, Model, Query, Secrets, Task
from shoal.events.event import at_least, visit
from shoal.events.pairs import Event, SecretPairs
from shoal.events.secrets import Events
from shoal.mechanisms.person import EachPerson
from shoal.mechanisms.queries import LinearQuery, count, histogram, mean, weighted_sum
from shoal.mechanisms.table import MECHANISMS
from shoal.mechanisms.variables import VariableSum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.walk import SparseChain
from shoal.records.classifier import linear_classifier
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, friend_field
from shoal.records.kmeans import centroids
from shoal.records.pairwise import Dependence, RecordGroups
from shoal.records.queries import degree_distribution, number_histogram, number_mean
from shoal.records.sources import FriendModel
from shoal.share.place import PermanentPlace
from shoal.share.plan import PermanentPlaces, Tracks
from shoal.share.roads import Roads
from tests.contract.network_tasks import network_tasks, turned_network, turned_variables
from tests.locations import running_task, town_task

TWO = [[0.8, 0.2], [0.3, 0.7]]
QUICK = [[0.6, 0.4], [0.45, 0.55]]  # forgets within a few steps
THREE = [[0.8, 0.1, 0.1], [0.3, 0.5, 0.2], [0.2, 0.3, 0.5]]
SPARSE = [[0.5, 0.5, 0.0], [0.0, 0.4, 0.6], [0.7, 0.0, 0.3]]
WEAK = [[0.36, 0.32, 0.32], [0.33, 0.34, 0.33], [0.31, 0.33, 0.36]]
WEAK_TWO = [[0.55, 0.45], [0.45, 0.55]]
FIVE = (np.full((5, 5), 0.1) + 0.5 * np.eye(5)).tolist()
PER_STEP = [[[0.8, 0.2], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]], [[0.6, 0.4], [0.4, 0.6]]]
FLU = [0.1, 0.15, 0.5, 0.15, 0.1]  # of 0 … 4 members of a clique ill, the members alike
AB, ABC, ABCDE = "ab", "abc", "abcde"
PLACES = ("home", "work", "hospital")


def flu_table() -> JointTable:
    """Four people of one clique, ill or not (Song, Wang & Chaudhuri 2017, Section 3.1)."""
    law = np.zeros((2, 2, 2, 2))
    orders = {0: 1, 1: 4, 2: 6, 3: 4, 4: 1}
    for place in np.ndindex(2, 2, 2, 2):
        law[place] = FLU[sum(place)] / orders[sum(place)]
    return JointTable.of(law, domains=[["well", "ill"]] * 4)


def second_order(length: int | None) -> OrderChain:
    """Two states; the next entry follows the last one more often when the last two agree."""
    rows = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    return OrderChain(
        states=("a", "b"), order=2, conditional=rows, initial=np.full(4, 0.25), length=length
    )


def busier_day() -> DayChain:
    """The same contexts and slots, more often at work: a second chain an adversary may hold."""
    step = [[0.6, 0.35, 0.05], [0.25, 0.7, 0.05], [0.4, 0.2, 0.4]]
    return DayChain.of(step, initial=[0.7, 0.25, 0.05], states=PLACES, slots=4)


def small_town() -> Roads:
    """Two candidates, two gates, and a road that all rides share."""
    pairs = [(0, 2), (1, 3), (0, 3), (2, 4), (3, 4), (4, 5)]
    points = [(52.5, 13.4), (52.501, 13.4), (52.5, 13.41), (52.501, 13.41), (52.5, 13.42)]
    return Roads.of([*points, (52.5, 13.43)], pairs + [(b, a) for a, b in pairs], [0.125] * 12)


def short_day() -> DayChain:
    """Four slots on three contexts: home, work, and now and then the hospital."""
    step = [[0.6, 0.3, 0.1], [0.3, 0.6, 0.1], [0.5, 0.2, 0.3]]
    late = [[0.9, 0.1, 0.0], [0.5, 0.4, 0.1], [0.4, 0.1, 0.5]]
    return DayChain.of([step, late, step], initial=[0.8, 0.15, 0.05], states=PLACES)


def friends() -> Dependence:
    """Seven people on a line of three places: a chain of three friends, a couple, two strangers."""
    places = RecordDomain.points([0, 1, 3], states=ABC)
    return FriendModel(b=0.5, c=2.0).ties(places, 7, [[0, 1], [2, 1], [3, 4]])


def weak_field() -> PairwiseField:
    """Five people, weakly tied in a loop of three and a couple."""
    places = RecordDomain.points([0, 1], states=AB)
    edges = [[0, 1], [1, 2], [2, 0], [3, 4]]
    return friend_field(FriendModel(b=4.0, c=0.5), places, 5, edges)


def weak_tree() -> PairwiseField:
    """Four people, weakly tied in a line: a field that is followed as a network."""
    places = RecordDomain.points([0, 1, 3], states=ABC)
    return friend_field(FriendModel(b=4.0, c=0.5), places, 4, [[0, 1], [1, 2], [2, 3]])


def two_slots() -> DayChain:
    """Two contexts, three slots: the smallest day on which showing late tells about earlier."""
    late = [[[0.1, 0.9], [0.7, 0.3]], [[0.3, 0.7], [0.4, 0.6]]]
    return DayChain.of(late, initial=[0.3, 0.7], states=["clinic", "home"])


def weak_network() -> BayesNet:
    """A cause and two effects that hardly depend on it."""
    row = [[0.55, 0.45], [0.45, 0.55]]
    return BayesNet.of(
        {"cause": [0.5, 0.5], "one": row, "two": row},
        parents={"one": ["cause"], "two": ["cause"]},
        domains=dict.fromkeys(("cause", "one", "two"), tuple(AB)),
    )


def task(query: Query, *family: Model, secrets: Secrets | None = None) -> Task:
    return Task(query=query, secrets=secrets or EachEntry(), family=family)


def chain(transition: Any, states: str, length: int | None, **rest: Any) -> MarkovChain:
    return MarkovChain.of(transition, states=list(states), length=length, **rest)


def _ill(person: str) -> tuple[Event, Event]:
    return (
        Event.of(f"{person} is ill", {person: "ill"}),
        Event.of(f"{person} is well", {person: "well"}),
    )


def _numbers() -> Dependence:
    """Six records in an interval, three of them tied."""
    domain = RecordDomain.interval(0, 1, cells=4)
    return FriendModel(b=0.5, c=1.0).ties(domain, 6, [(0, 1), (1, 2)])


two = chain(TWO, AB, 20)
three = chain(THREE, ABC, 8)
weights = {"a": "0", "b": "1/2", "c": "2"}

TASKS: dict[str, Task] = {
    "count": task(count(AB, "b"), two),
    "count-of-several": task(count(ABC, ["a", "c"]), three),
    "sum": task(weighted_sum(ABC, weights), three),
    "mean": task(mean(ABC, weights, length=8), three),
    "histogram": task(histogram(AB), chain(TWO, AB, 6)),
    "relative-histogram": task(histogram(ABC, relative=True, length=100), chain(THREE, ABC, 5)),
    "five-states": task(count(ABCDE, "c"), chain(FIVE, ABCDE, 30)),
    "long": task(count(AB, "b"), chain(TWO, AB, 1000)),
    "zeros": task(count(ABC, "a"), chain(SPARSE, ABC, 6)),
    "certain-start": task(count(AB, "b"), chain(TWO, AB, 10, initial=[1, 0])),
    "any-length": task(count(AB, "b"), chain(TWO, AB, None)),
    "any-length-sum": task(weighted_sum(ABC, weights), chain(THREE, ABC, None)),
    "any-length-histogram": task(histogram(ABC), chain(THREE, ABC, None)),
    "matrix-per-step": task(count(AB, "b"), chain(PER_STEP, AB, 4, initial=[0.5, 0.5])),
    "any-initial-law": task(count(AB, "b"), AnyInitialLaw.of(TWO, states=AB, length=12)),
    "any-law-any-length": task(count(AB, "b"), AnyInitialLaw.of(QUICK, states=AB)),
    "mixing": task(count(AB, "b"), MixingSummary(pi_min=0.2, gap=0.75, length=100)),
    "mixing-any-length": task(count(AB, "b"), MixingSummary(pi_min=0.3, gap=1.0)),
    "interval": task(count(AB, "b"), IntervalChains.around(0.3, states=AB, length=20)),
    "weak": task(count(AB, "b"), chain([[0.55, 0.45], [0.45, 0.55]], AB, 30)),
    "two-models": task(count(AB, "b"), two, chain([[0.9, 0.1], [0.4, 0.6]], AB, 20)),
    "mixed-family": task(count(AB, "b"), two, AnyInitialLaw.of(TWO, states=AB, length=15)),
    "order-2": task(count(AB, "b"), second_order(8)),
    "order-2-any-length": task(
        count(AB, "b"),
        replace(second_order(None), conditional=np.array([*QUICK, [0.5, 0.5], [0.35, 0.65]])),
    ),
    "table": task(count(["well", "ill"], "ill"), flu_table()),
    "table-histogram": task(histogram(["well", "ill"]), flu_table()),
    "dependence": task(count(ABC, "c"), friends()),
    "dependence-sum": task(weighted_sum(ABC, weights), friends()),
    "pairwise-field": task(count(AB, "b"), weak_field()),
    "weak-field-histogram": task(histogram(AB), weak_field()),
    "weak-tree": task(weighted_sum(ABC, weights), weak_tree()),
    "weak-sum": task(weighted_sum(ABC, weights), chain(WEAK, ABC, 12)),
    "weak-any-length": task(histogram(ABC), chain(WEAK, ABC, None)),
    "weak-network": task(count(AB, "b"), weak_network()),
    "two-contexts": task(
        CurrentState(("clinic", "home")), two_slots(), secrets=SensitiveContexts.of("clinic")
    ),
    "contexts": task(CurrentState(PLACES), short_day(), secrets=SensitiveContexts.of("hospital")),
    "contexts-family": task(
        CurrentState(PLACES),
        short_day(),
        busier_day(),
        secrets=SensitiveContexts.of("hospital"),
    ),
    "event-rises": task(
        CurrentState(PLACES),
        short_day(),
        secrets=Events.of(visit("hospital")).as_rise(lower=True),
    ),
    "event-odds": task(
        CurrentState(PLACES),
        short_day(),
        busier_day(),
        secrets=Events.of((visit("hospital"), visit("work")), visit("home", between=(1, 2))),
    ),
    "event-count": task(
        count(AB, "b"),
        chain(TWO, AB, 8),
        secrets=Events.of(visit("b", between=(2, 4)), at_least("b", 5)),
    ),
    "event-histogram": task(
        histogram(ABC), chain(THREE, ABC, 4), secrets=Events.of(visit("c", between=(1, 2)))
    ),
    "event-families": task(
        count(AB, "b"),
        AnyInitialLaw.of(TWO, states=AB, length=6),
        second_order(6),
        secrets=Events.of((visit("b", between=(0, 1)), ~visit("b"))),
    ),
    "slots": task(
        weighted_sum(ABC, weights),
        three,
        secrets=SecretPairs.of(
            [
                (
                    Event.of("b at 2", {"2": "b"}),
                    Event.of("a at 2", {"2": "a"}) | Event.of("c at 3", {"3": "c"}),
                )
            ]
        ),
    ),
    "transitions": task(transitions(AB), chain(WEAK_TWO, AB, 20)),
    "person": task(weighted_sum(ABC, weights), three, secrets=EachPerson()),
    "person-shares": task(
        histogram(ABC, relative=True, length=80), chain(WEAK, ABC, 8), secrets=EachPerson()
    ),
    "number-mean": task(number_mean(low=0, high=1, records=6), _numbers()),
    "number-histogram": task(number_histogram([0, "0.4", 1]), _numbers()),
    "kmeans": task(centroids("xy", low=0, high=1, clusters=2), RecordGroups(3)),
    "classifier": task(linear_classifier("xy", records=50), RecordGroups(3)),
    "degrees": task(degree_distribution(9, cap=3, level="node"), RecordGroups(3)),
    "policy": running_task(),
    "location-set": running_task(delta=Fraction(1, 5)),
    "map": town_task(3, 3),
    "pairs": task(
        count(["well", "ill"], "ill"),
        flu_table(),
        secrets=SecretPairs.of([_ill("X1"), _ill("X3")]),
    ),
    "rides": Task(query=Tracks(6), secrets=PermanentPlace.of((0, 1)), family=(small_town(),)),
    "rides-of-two-places": Task(
        query=Tracks(6),
        secrets=PermanentPlaces((PermanentPlace.of((0, 1), within=250), PermanentPlace.of((2, 3)))),
        family=(small_town(),),
    ),
    **network_tasks(),
}


EPSILONS = (Fraction(1, 10), Fraction(1, 3), Fraction(7, 10), Fraction(3))  # none but 3 a double
DELTAS = (Fraction(1, 10), Fraction(1, 3), Fraction(7, 10))  # rises of a belief
# refused only once computed: no plan to hold to anything
LATE: dict[str, tuple[str, ...]] = {
    "wasserstein": ("long",),
    "influence-matrix": tuple(
        name for name in TASKS if not name.startswith("weak") and name != "transitions"
    ),
}
OWN: dict[str, tuple[str, ...]] = {
    row: tuple(
        name
        for name in TASKS
        if name not in LATE.get(row, ())
        and not mechanism.retired
        and mechanism.refuse(TASKS[name]) is None
    )
    for row, mechanism in MECHANISMS.items()
}


def amounts(name: str) -> tuple[Fraction, ...]:
    """Budgets to try, from little to much; the second is the usual one."""
    return DELTAS if TASKS[name].secrets.notion == "delta-privacy" else EPSILONS


@functools.cache
def plan_of(row: str, name: str, amount: Fraction | None = None, *, turned: bool = False) -> Plan:
    """The row's plan for a task it takes; each is made once."""
    asked = relabelled(TASKS[name]) if turned else TASKS[name]
    return MECHANISMS[row].calibrate(asked, amount or amounts(name)[1])


def relabelled(original: Task) -> Task:
    """The same task with its states in reverse order; only the order of writing differs."""
    query = original.query
    if not query.states:  # records of numbers have none
        return original
    if isinstance(query, VariableSum):
        return turned_variables(original)
    turn = list(reversed(range(len(query.states))))
    states = tuple(query.states[i] for i in turn)
    turned: Query
    if isinstance(query, LinearQuery):
        weights = tuple(query.weights[i] for i in turn)
        turned = replace(query, states=states, weights=weights)
    elif isinstance(query, Measurement):
        turned = replace(query, states=states, points=query.points[turn])
    else:
        assert isinstance(query, CurrentState | Transitions)
        turned = replace(query, states=states)
    family = tuple(_turned(model, turn) for model in original.family)
    return Task(query=turned, secrets=_turned_secrets(original.secrets, turn), family=family)


def _turned(model: Model, turn: Sequence[int]) -> Model:
    states = tuple(model.states[i] for i in turn) if model.states else ()
    match model:
        case MarkovChain() | DayChain():
            turned = model.transition[..., turn, :][..., :, turn]
            return replace(
                model, states=states, transition=turned, initial=model.initial[list(turn)]
            )
        case AnyInitialLaw():
            return replace(model, states=states, transition=model.transition[turn][:, turn])
        case OrderChain():
            digits = model.tuples()
            old = [
                int(np.ravel_multi_index([turn[d] for d in row], _shape(model))) for row in digits
            ]
            rows = model.conditional[old][:, turn]
            return replace(model, states=states, conditional=rows, initial=model.initial[old])
        case JointTable():
            law = model.probability[np.ix_(*[list(turn)] * model.probability.ndim)]
            domains = tuple(tuple(domain[i] for i in turn) for domain in model.domains)
            return replace(model, domains=domains, probability=law)
        case IntervalChains():
            low, high = ((bounds[1], bounds[0]) for bounds in (model.low, model.high))
            return replace(model, states=states, low=low, high=high)
        case Dependence():
            at = list(turn)
            domain = replace(
                model.domain, low=model.domain.low[at], high=model.domain.high[at], states=states
            )
            return replace(model, domain=domain, laws=model.laws[:, at][:, :, at])
        case PairwiseField():
            at = list(turn)
            domain = replace(
                model.domain, low=model.domain.low[at], high=model.domain.high[at], states=states
            )
            tables = model.potentials[:, at][:, :, at]
            return replace(model, domain=domain, potentials=tables, own=model.own[:, at])
        case SparseChain():
            matrix = model.matrix().toarray()[turn][:, turn]
            return SparseChain.of(matrix, initial=model.initial[turn], states=states)
        case BayesNet() | Contagion():
            return turned_network(model)
        case MixingSummary():
            return model
    raise TypeError(f"no way is known to rename the states of a {type(model).__name__}")


def _turned_secrets(secrets: Secrets, turn: Sequence[int]) -> Secrets:
    match secrets:
        case PolicyGraph():
            places = np.argsort(turn)
            return replace(
                secrets,
                states=tuple(secrets.states[i] for i in turn),
                edges=places[secrets.edges],
                groups=secrets.groups[list(turn)],
            )
        case LocationSet():
            policy = _turned_secrets(secrets.policy, turn)
            assert isinstance(policy, PolicyGraph)
            return replace(secrets, policy=policy)
    return secrets


def _shape(model: OrderChain) -> tuple[int, ...]:
    return (len(model.states),) * model.order
