"""The mechanism `share`: one plan for all tracks of a person, made without any track."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from shoal.core.charge import Composition, Guarantee, PerPair, Rng
from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError, ShoalError
from shoal.core.numbers import Number, positive, significant, whole
from shoal.core.plan import Plan, Proof
from shoal.core.task import Model, Task
from shoal.mechanisms.plans import Mechanism
from shoal.share.history import History, Leg, ShareRule, ShownLeg
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads

NAME = "share"
PLANNED_LEGS = 400  # legs a history is planned for unless said otherwise: 200 rides


@dataclass(frozen=True, slots=True, eq=False)
class Tracks(Value):
    """The question what may be shown of rides, `legs` of them planned in all.

    Legs are shown as they were ridden or not at all, so the answer has no number to add noise to.
    """

    kind = "tracks"

    legs: int = PLANNED_LEGS

    states: ClassVar[tuple[str, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "crossing"
    lattice: ClassVar[Fraction] = Fraction(1)
    lipschitz: ClassVar[Fraction] = Fraction(0)
    entry: ClassVar[str] = "a permanent place"

    def __post_init__(self) -> None:
        whole(self.legs, "legs")

    def describe(self) -> str:
        return f"the goal's side of every ride from and to a hidden place, {self.legs} legs planned"

    def read(self, data: Any) -> tuple[Leg, ...]:
        """Return `data` as legs; refuse anything else."""
        legs = tuple(data)
        if not all(isinstance(leg, Leg) for leg in legs):
            raise DataError("tracks are given as shoal.share.Leg values; see legs_of_ride")
        return legs

    def evaluate(self, records: Any) -> tuple[int, ...]:
        """Refuse: legs are cut one after the other, never answered with a number."""
        raise InputError("tracks have no number; cut them with shoal.share.ShareStream")


@dataclass(frozen=True, slots=True, eq=False)
class PermanentPlaces(Value):
    """Several hidden places of one person; each is protected by itself, whatever the others are."""

    kind = "permanent-places"

    places: tuple[PermanentPlace, ...]

    @property
    def notion(self) -> str:
        """Odds between two crossings, whatever the adversary believed before."""
        return "pufferfish"

    @property
    def subject(self) -> str:
        """What is hidden, as a short noun phrase."""
        return "; and by itself ".join(place.subject for place in self.places)

    def describe(self) -> str:
        return "; and by itself ".join(place.describe() for place in self.places)

    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse what any of the places refuses."""
        for place in self.places:
            place.check(family)

    def tied_under(self, model: Model) -> int | None:
        """None: every leg ever published depends on the places."""
        return None


@dataclass(frozen=True, slots=True, eq=False)
class ShareMachine(Value):
    """Turns legs into what may be shown of them; its states are histories."""

    kind = "share-machine"

    rule: ShareRule

    def init(self) -> History:
        """Return the history in which nothing was shown."""
        return History(self.rule)

    def step(self, state: History, observed: Leg, rng: Rng) -> tuple[History, ShownLeg]:
        """Return the history after a leg, and what may be shown; no randomness is used."""
        shown = state.cut(observed)
        return state.absorb(shown), shown

    def describe(self) -> str:
        return (
            f"cuts each leg at the last crossing from which it tells too little about the place "
            f"to count, at most {significant(self.rule.cap())} a leg"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareCertificate(Proof):
    """Checked numbers of a plan: laws and crossings covered, and the error of log-likelihoods.

    Every law has u > 0 with W u < u, and every row of sums lies within bounds that were checked
    with directed rounding. `error` is the largest error of a log-likelihood from the zone.
    """

    kind = "share-certificate"

    laws: int
    crossings: int
    candidates: tuple[int, ...]
    error: float

    @property
    def theorem(self) -> str:
        hidden = " and ".join(str(count) for count in self.candidates)
        return (
            f"what is shown beyond a crossing tells of the place through that crossing only (a "
            f"Markov quilt of one crossing); {self.laws} law(s) of routes on {self.crossings:,} "
            f"crossings, {hidden} candidates, log-likelihoods bounded to {self.error:.1g} "
            "(share.md, Theorems 1 to 4)"
        )

    ASSUMED: ClassVar[tuple[str, ...]] = (
        "riders choose routes by one of the listed weights, independently or repeating whole "
        "rides, in either direction; favourite ways out tell more",
        "goals are declared before the ride; their number, dates and choice do not depend on where "
        "in the zone the place is",
        "no track is dropped after its cut was seen, and nothing else published shows the hidden "
        "side of a ride",
        "clock times, altitude and sensor readings are not published",
    )


def refuse(task: Task) -> str | None:
    """Return why the mechanism has nothing to say about a task; None where it serves it."""
    if not isinstance(task.query, Tracks):
        return "the query does not ask for tracks of rides, which this mechanism cuts"
    if not isinstance(task.secrets, PermanentPlace | PermanentPlaces):
        return "the secrets are not permanent places, which this mechanism hides"
    if len(task.family) != 1:
        return "the family holds several maps; put all tastes into the weights of one map"
    return None


def rule_of(task: Task, epsilon: Fraction) -> ShareRule:
    """Return the rule of a task that `refuse` takes."""
    (roads,) = task.family
    if not (isinstance(roads, Roads) and isinstance(task.query, Tracks)):
        raise TypeError("calibrate called on a task that `refuse` refuses")
    places = places_of(task)
    return ShareRule(roads=roads, places=places, epsilon=epsilon, legs=task.query.legs)


def places_of(task: Task) -> tuple[PermanentPlace, ...]:
    """Return the hidden places of a task."""
    assert isinstance(task.secrets, PermanentPlace | PermanentPlaces)
    return task.secrets.places


def certificate_of(rule: ShareRule) -> ShareCertificate:
    """Return the numbers of a rule, after every condition of the proof was checked."""
    tables = [rule.tables(number) for number in range(len(rule.places))]
    return ShareCertificate(
        laws=len(tables[0].states.laws),
        crossings=rule.roads.size,
        candidates=tuple(len(place.zone) for place in rule.places),
        error=max(table.error for table in tables),
    )


def promise(task: Task, epsilon: Fraction) -> Guarantee:
    """Return what a plan of a task promises, for all its legs together."""
    return Guarantee(notion="pufferfish", amount=epsilon, over=task.secrets.describe())


def rules(plan: Plan) -> tuple[Composition, ...]:
    """Return how a plan adds to others: its legs are one history, and nothing beside it adds."""
    task = plan.task
    return _rules(task, promise(task, plan.guarantee.amount))


def _rules(task: Task, promised: Guarantee) -> tuple[Composition, ...]:
    (roads,) = task.family
    return (PerPair((promised,), task.secrets.fingerprint, roads.fingerprint),)


def calibrate(task: Task, epsilon: Fraction) -> Plan:
    """Return the plan that keeps epsilon over all legs together."""
    rule = rule_of(task, epsilon)
    promised = promise(task, epsilon)
    return Plan(
        mechanism=NAME,
        task=task,
        body=ShareMachine(rule),
        cost=0.0,
        guarantee=promised,
        certificate=certificate_of(rule),
        composition=_rules(task, promised),
    )


def loss(plan: Plan) -> float:
    """Return the rule's epsilon where the plan cuts by the rule of its own task, else infinity.

    The conditions of the proof are checked again; nothing is taken from the certificate, whose
    last digits differ between machines. That no pair passes epsilon is checked by
    `History.absorb` for every leg, from all that was shown before it.
    """
    body, amount = plan.body, plan.guarantee.amount
    if not isinstance(body, ShareMachine) or refuse(plan.task) is not None:
        return math.inf
    try:
        same = body.rule == rule_of(plan.task, body.rule.epsilon)
        certificate_of(body.rule)  # refuses a map that misses a condition of the proof
    except (ShoalError, TypeError):
        return math.inf
    stated = plan.guarantee == promise(plan.task, amount) and plan.composition == rules(plan)
    return float(body.rule.epsilon) if same and stated else math.inf


def plan_share(
    roads: Roads,
    places: PermanentPlace | Sequence[PermanentPlace],
    *,
    epsilon: Number = 1,
    legs: int = PLANNED_LEGS,
) -> Plan:
    """Return a plan that hides permanent places over all rides together.

    `epsilon` bounds the log-odds between any two crossings of a zone after all rides, for riders
    of the map's model. `legs` is how many legs are planned; more may follow, at what is left.
    """
    single = isinstance(places, PermanentPlace)
    secrets: Any = places if single else PermanentPlaces(tuple(places))  # type: ignore[arg-type]
    task = Task(query=Tracks(legs), secrets=secrets, family=(roads,))
    return calibrate(task, positive(epsilon, "epsilon"))


def machine_of(plan: Plan) -> ShareMachine:
    """Return the machine of a plan; refused where the plan cuts no tracks."""
    if not isinstance(plan.body, ShareMachine):
        raise InputError(f"the plan of {plan.mechanism} cuts no tracks; make one with plan_share")
    return plan.body


MECHANISM = Mechanism(NAME, refuse, calibrate, loss, promise, rules)
