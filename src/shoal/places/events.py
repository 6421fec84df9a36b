"""Events on streams of places: ε at each step so that no output moves the odds of an event too far.

Before a step every output it could have is looked at, under each ε of a fixed descending list; the
first at which the odds of every event stay within bounds is taken, and if there is none the step
is skipped. What is chosen follows from the outputs before. Proof: location_events.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.codec import Bools, Floats, Ints, Value
from shoal.core.errors import InputError, PromiseBroken
from shoal.core.guarantee import Guarantee
from shoal.core.numbers import Number, positive, whole
from shoal.core.plan import Plan
from shoal.events.automaton import compile_events
from shoal.events.bounds import program_of
from shoal.events.event import AtLeast, InOrder, Stay, TimeEvent
from shoal.events.filter import Held, Program, Table, conditioned
from shoal.events.law import PathLaw, law_of, priors
from shoal.events.secrets import Events
from shoal.events.window import SlotClock
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.lattice import LatticeEmission
from shoal.places.machine import LocationMachine, LocationState, machine_of
from shoal.places.step import KeptGraphLaw, StepNoise

# of the plan's ε; finer lists help little: a step between two of these loses a fifth of its ε
SHARES = tuple(Fraction(k, 100) for k in (100, 80, 64, 50, 40, 30, 20, 12, 6, 3))
MOST_PRODUCTS = 2 * 10**7  # of points and states: beyond, a parallelogram is bounded like any body
KEPT = 64  # checks kept, the ones used last
TINY = 1e-290  # what a sum may lose to products that underflow
ROUNDING = 2.0**-50


@dataclass(frozen=True, slots=True, eq=False)
class EventWatch(Value):
    """What a stream promises about events: log-odds move by at most `amounts`, one for each pair.

    `epsilons` are tried in their order, `slots` is how many slots the events are about, the clock
    (minutes of a slot, minute of the week at which slot 0 begins) is for windows by the clock.
    """

    events: Events
    amounts: tuple[Fraction, ...]
    epsilons: tuple[Fraction, ...]
    slots: int
    slot_minutes: int = 0
    start_minute: int = 0
    start: int | None = None

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        """What holds about each pair of events, for all outputs of the stream together."""
        model = "for an adversary who knows the chain, the policy and the list of epsilons"
        return tuple(
            Guarantee(notion="pufferfish", amount=each, over=f"{Events((pair,)).subject}, {model}")
            for each, pair in zip(self.amounts, self.events.pairs, strict=True)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Watched(Value):
    """A watch and the beliefs it keeps: P(automaton, state | outputs) of each pair; public."""

    watch: EventWatch
    held: tuple[Held, ...]


def watch_of(
    plan: Plan,
    events: Events,
    event_epsilon: Number | Sequence[Number],
    *,
    epsilons: Sequence[Number] | None = None,
    slots: int | None = None,
    slot_minutes: int = 0,
    start_minute: int = 0,
    start: Any = None,
) -> EventWatch:
    """The watch over `events`: one amount for all pairs, or one for each.

    `slots` is needed where neither the model nor the windows say how long the events last.
    """
    machine = machine_of(plan)
    if not isinstance(events, Events):
        raise InputError(f"events is a {type(events).__name__}; give shoal.Events.of(...)")
    several = isinstance(event_epsilon, Sequence) and not isinstance(event_epsilon, str)
    given: Any = event_epsilon if several else [event_epsilon] * len(events.pairs)
    if len(given) != len(events.pairs):
        raise InputError(
            f"event_epsilon holds {len(given)} amounts for {len(events.pairs)} events; give one, "
            "or one for each"
        )
    listed = [machine.epsilon * share for share in SHARES] if epsilons is None else epsilons
    tried = tuple(positive(each, "epsilons") for each in listed)
    if list(tried) != sorted(tried, reverse=True) or not tried or tried[0] > machine.epsilon:
        raise InputError(
            f"epsilons is {[float(each) for each in tried]}; they must descend from at most the "
            f"plan's epsilon of {float(machine.epsilon):g}"
        )
    if machine.runtime.motion.memory > 1:
        raise InputError("the chain has a longer memory; events are followed on chains of order 1")
    own: int | None = machine.runtime.motion.length
    last = slots if slots is not None else own if own is not None else horizon(events)
    return EventWatch(
        events,
        tuple(positive(each, "event_epsilon") for each in given),
        tried,
        whole(last, "slots"),
        slot_minutes,
        start_minute,
        None if start is None else machine.runtime.locator.state_of(start),
    )


def horizon(events: Events) -> int:
    """The slots that all windows fit into; refused when one of them is open or by the clock."""

    def last(event: TimeEvent) -> int:
        if event.parts():
            return max(map(last, event.parts()))
        between = event.between if isinstance(event, AtLeast | Stay | InOrder) else None
        if between is None or isinstance(between[1], str):
            raise InputError(
                f"the event '{event.describe()}' has no last slot, and neither has the model; "
                "give slots=, or between=(first, last)"
            )
        return between[1] + 1

    return max(map(last, events.all_events()))


class Choice(NamedTuple):
    """Which ε a step takes, and the noise it draws with."""

    epsilon: Fraction
    noise: StepNoise


class Guard:
    """What follows from a plan and a watch: filters, weights, machines, checks that are kept."""

    def __init__(self, plan: Plan, watch: EventWatch) -> None:
        self.machine, self.watch = machine_of(plan), watch
        self.law = self._law()
        watch.events.check_possible(self.law, watch.events.compiled(self.law))
        programs = [
            program_of([self.law], Events((pair,)), amount, memory="none")
            for pair, amount in zip(watch.events.pairs, watch.amounts, strict=True)
        ]
        tracks = tuple(track for program in programs for track in program.tracks)
        self.program = Program(len(self.law.states), tracks, programs[0].memory)
        self.priors = tuple(
            float(priors(compile_events((event,), self.law), self.law)[0])
            for event, _ in watch.events.pairs
        )
        self.machines = {each: self._at(each) for each in watch.epsilons}
        self._checks: OrderedDict[int, tuple[StepNoise, Check]] = OrderedDict()

    def _law(self) -> PathLaw:
        watch, chain = self.watch, self.machine.chain
        law = law_of(chain, length=watch.slots)
        if watch.start is not None:
            first = np.zeros(len(law.states))
            first[watch.start] = 1.0
            law = replace(law, initial=first)
        if watch.slot_minutes:
            law = replace(law, clock=SlotClock(watch.slot_minutes, watch.start_minute))
        return law

    def _at(self, epsilon: Fraction) -> LocationMachine:
        machine = self.machine
        return machine if epsilon == machine.epsilon else replace(machine, epsilon=epsilon)

    def begin(self) -> tuple[Held, ...]:
        """The beliefs before slot 0, or after it when its state is known to everybody."""
        held = self.program.begin()
        return held if self.watch.start is None else self.arrived(held, 0)

    def arrived(self, held: Sequence[Held], slot: int) -> tuple[Held, ...]:
        """The beliefs at a slot before its output: also the beliefs after a slot without one."""
        if slot < self.watch.slots:
            return self.program.arrive(held, slot, read=True)
        matrix = self.law.matrix(slot - 1)  # events are decided, and beliefs in them still move
        links = matrix > 0
        return tuple(
            Held(
                one.pairs,
                one.mass @ matrix,
                one.support.astype(np.float64) @ links > 0,
                one.lost,
                one.rounds + one.mass.shape[1] + 2,
            )
            for one in held
        )

    def choose(self, state: LocationState, arrived: Sequence[Held]) -> Choice | None:
        """The first ε whose every output keeps all odds within bounds; None: skip the step."""
        machine = self.machine
        noises = (
            Choice(each, machine.noises(state, [other])[0]) for each, other in self.machines.items()
        )
        return self.first_fit(noises, arrived, state.time)

    def first_fit(self, choices: Any, arrived: Sequence[Held], slot: int) -> Choice | None:
        """The first of these choices that fits, from the beliefs at `slot`."""
        tables = self._tables(arrived, slot)
        for choice in choices:
            check = self._check(choice.noise)
            if all(check.fits(table) for table in tables):
                found: Choice = choice
                return found
        return None

    def after(
        self, arrived: Sequence[Held], slot: int, noise: StepNoise, z: Sequence[int]
    ) -> tuple[Held, ...]:
        """The beliefs after an output, which is held to the promise once more."""
        logs = noise.law.log_likelihood(z)
        finite = logs[logs > -np.inf]
        likely = np.exp(np.minimum(logs - finite.max(), 0.0))
        wide = int(4 * (finite.max() - finite.min())) + 8  # roundings of the largest exponent
        found = []
        for table, one in zip(self._tables(arrived, slot), arrived, strict=True):
            over, under = (side[:, 0] @ likely for side in (table.over, table.under))
            if (over > under * (1 + 1e-9)).any():
                raise PromiseBroken("an output would move the odds of an event beyond its bound")
            told = conditioned(one, np.broadcast_to(likely, one.mass.shape))
            found.append(replace(told, rounds=told.rounds + wide))
        return tuple(found)

    def beliefs(self, held: Sequence[Held], slot: int) -> tuple[float, ...]:
        """P(E | outputs) of each pair, from the beliefs after `slot`."""
        last = min(slot, self.watch.slots - 1)
        found = []
        for track, one in zip(self.program.tracks, held, strict=True):
            found.append(float((one.mass * track.over[last][0, one.pairs[:, 0]]).sum()))
        return tuple(found)

    def _tables(self, arrived: Sequence[Held], slot: int) -> list[Table]:
        last = min(slot, self.watch.slots - 1)
        both = zip(self.program.tracks, arrived, strict=True)
        return [self.program.table(track, one, last) for track, one in both]

    def _check(self, noise: StepNoise) -> Check:
        kept = self._checks.get(id(noise))
        if kept is None or kept[0] is not noise:
            # the noise is kept with its check, so that nothing else gets its id
            kept = self._checks[id(noise)] = noise, check_of(noise)
            if len(self._checks) > KEPT:
                self._checks.popitem(last=False)
        return kept[1]


@lru_cache(maxsize=16)
def guard_of(plan: Plan, watch: EventWatch) -> Guard:
    """The guard of a plan and a watch, made once for all streams that have them."""
    return Guard(plan, watch)


# Checks: Σ_s over(s) q(z|s) ≤ Σ_s under(s) q(z|s) for every output z, rounding included.


class Check(Protocol):
    """Decides for a law whether every output keeps the bounds of a table."""

    def fits(self, table: Table) -> bool: ...


def check_of(noise: StepNoise) -> Check:
    """The tightest check there is for a law: exact where outputs can be listed."""
    law = noise.law
    if isinstance(law, KeptGraphLaw):
        return ListedOutputs.of(law)
    assert isinstance(law, LatticeEmission)
    axes = _axes(law)
    if axes is not None:
        return GridOfCorners(*axes)
    return Carried.of(law, noise.answering)


@dataclass(frozen=True, slots=True, eq=False)
class ListedOutputs:
    """Finitely many outputs: `likely` is (states, outputs), each column scaled to at most 1.

    `leads` says which states lead to which outputs at all: no underflow hides one.
    """

    likely: Floats
    leads: Bools
    slack: float

    @classmethod
    def of(cls, law: KeptGraphLaw) -> ListedOutputs:
        outputs = np.unique(law.points[law.law.nodes], axis=0)
        logs = np.stack([law.log_likelihood(z) for z in outputs.tolist()], axis=1)
        logs = logs - logs.max(axis=0)[None, :]
        leads = logs > -np.inf
        widest = float(-logs[leads].min(initial=0.0))
        return cls(np.exp(logs), leads, (4 * widest + 16) * ROUNDING + 4 * law.law.slack)

    def fits(self, table: Table) -> bool:
        over, under = table.over[:, 0] @ self.likely, table.under[:, 0] @ self.likely
        met = self.leads[table.possible[0]].any(axis=0)
        rounded = replace(table, slack=table.slack + self.slack, lost=table.lost + TINY)
        return bool(rounded.keeps(over, under)[:, met].all())


@dataclass(frozen=True, slots=True, eq=False)
class GridOfCorners:
    """Laplace noise along one axis or two: outputs whose coordinates are those of states decide.

    Between two of them the ratio is that of a e^u + b e^-u to c e^u + d e^-u, which is monotone in
    u. `parts` holds e^(-ε|u - u_s|), one row for each coordinate u, for each axis.
    """

    parts: tuple[Floats, ...]
    slack: float

    def fits(self, table: Table) -> bool:
        rounded = replace(table, slack=table.slack + self.slack, lost=table.lost + TINY)
        first, last = self.parts[0], self.parts[-1]
        for over, under in zip(table.over[:, 0], table.under[:, 0], strict=True):
            if len(self.parts) == 1:
                kept = rounded.keeps(first @ over, first @ under)
            else:
                kept = rounded.keeps((first * over) @ last.T, (first * under) @ last.T)
            if not kept.all():
                return False
        return True


def _axes(law: LatticeEmission) -> tuple[tuple[Floats, ...], float] | None:
    """Of K-norm noise whose body is a segment or a parallelogram: α, β with v = αp + βq.

    |v|_K = |α| + |β| for the vertices ±p, ±q, so noise is a product along them. None for others.
    """
    noise = law.noise
    if not isinstance(noise, LatticeKNorm) or noise.body.ambient != noise.body.dimension:
        return None
    vertices, points = noise.body.vertices, law.points
    if len(vertices) != 2 * noise.body.dimension or noise.body.dimension > 2:
        return None
    if noise.body.dimension == 1:
        coordinates = [points[:, 0] / abs(int(vertices[0, 0]))]
    else:
        p = vertices[0]
        q = next(each for each in vertices if p[0] * each[1] != p[1] * each[0])
        area = int(p[0] * q[1] - p[1] * q[0])
        coordinates = [
            (points[:, 0] * q[1] - points[:, 1] * q[0]) / area,
            (points[:, 1] * p[0] - points[:, 0] * p[1]) / area,
        ]
    lines = [np.unique(axis) for axis in coordinates]
    if np.prod([len(line) for line in lines]) * len(points) > MOST_PRODUCTS:
        return None
    rate, slack, parts = float(noise.epsilon), 16.0, []
    for line, axis in zip(lines, coordinates, strict=True):
        apart = rate * np.abs(line[:, None] - axis[None, :])
        slack += 4 * (float(apart.max()) + rate * float(np.abs(axis).max()))
        parts.append(np.exp(-apart))
    return tuple(parts), slack * ROUNDING


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """Any noise that is added: q(z|s) ≤ e^G(s,s') q(z|s'), G from the noise itself.

    If the mass `over` can be carried to places s' so that Σ_s carried(s, s') e^G(s,s') ≤
    under(s'), then Σ over(s) q(z|s) ≤ Σ under(s') q(z|s') for every z. It is carried to the
    nearest places first, those it lies on before all. `places` says where each state's mass lies,
    `first`, `second`, `growth` the pairs of places, the nearest first.
    """

    places: Ints
    count: int
    first: Ints
    second: Ints
    growth: Floats

    @classmethod
    def of(cls, law: LatticeEmission, answering: Ints) -> Carried:
        answers, places = np.unique(answering, return_inverse=True)
        points = law.points[answers]
        first, second = (side.ravel() for side in np.indices((len(points), len(points))))
        shifts, which = np.unique(points[first] - points[second], axis=0, return_inverse=True)
        losses = law.noise.log_ratios(shifts) * shifts.any(axis=1)
        order = np.argsort(losses[which.ravel()], kind="stable")
        with np.errstate(over="ignore"):
            growth = np.exp(losses) * (1 + (losses + 2) * ROUNDING)
        apart = first[order] != second[order]
        order = order[apart & np.isfinite(growth[which.ravel()][order])]
        growing = growth[which.ravel()][order]
        return cls(places.ravel(), len(points), first[order], second[order], growing)

    def fits(self, table: Table) -> bool:
        from shoal.places.kernels.noise import all_carried

        rounds = 8 * (len(self.places) + self.count)
        slack = table.slack + rounds * ROUNDING
        for over, under in zip(table.over[:, 0], table.under[:, 0], strict=True):
            mass = np.bincount(self.places, over, self.count) * (1 + slack) + table.lost
            room = np.bincount(self.places, under, self.count) * (1 - slack) - table.lost
            if not all_carried(mass, np.maximum(room, 0.0), self.first, self.second, self.growth):
                return False
        return True
