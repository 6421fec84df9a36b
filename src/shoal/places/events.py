"""Events on streams of places: ε at each step so that no output moves the odds of an event too far.

Before a step every output it could have is looked at, under each ε of a fixed descending list; the
first at which the odds of every event stay within bounds is taken, and if there is none the step
is skipped. What is chosen follows from the outputs before. Proof: location_events.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from shoal.core.charge import Rng
from shoal.core.codec import Bools, Floats, Ints, Value
from shoal.core.errors import InputError, PromiseBroken
from shoal.core.plan import Plan
from shoal.core.progress import in_time
from shoal.events.automaton import Automaton, PathLaw, began, beliefs, compile_events, moved, priors
from shoal.events.filter import Held, Program, TrackSums, conditioned, program_of
from shoal.events.secrets import Events
from shoal.noise.graph_exponential import GraphExponential
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.primitives import LatticeEmission
from shoal.places.machine import EVENT_KEPT, LocationMachine, machine_of
from shoal.places.packed import LocationRelease, LocationState, filter_room
from shoal.places.queries import EventWatch
from shoal.places.step import StepNoise

MOST_PRODUCTS = 2 * 10**7  # of points and states: beyond, a parallelogram is bounded like any body
MOST_KEYS = 2**22  # differences of points that a table holds
CHECKS_KEPT = 64  # checks kept, the ones used last
MOST_READY = 1000  # states up to which all checks of a first step are made at once: 80 MB
LOST_TO_UNDERFLOW = 1e-290  # what a sum may lose to products that underflow
ROUNDING = 2.0**-50


@dataclass(frozen=True, slots=True, eq=False)
class Watched(Value):
    """A watch, the beliefs it keeps, and the history they follow from; public.

    `held` is P(automaton, state | outputs) of each pair, `drawn` how many outputs there were,
    `history` the hash of the known start and of all outputs (`StreamStep.after`); empty where a
    version up to 0.2 stored the stream and did not note it: no ledger takes its next output.
    """

    kind = "watched"

    watch: EventWatch
    held: tuple[Held, ...]
    drawn: int = field(default=0, metadata={"later": True})
    history: str = field(default="", metadata={"later": True})


class StepChoice(NamedTuple):
    """Which ε a step takes, and the noise it draws with."""

    epsilon: Fraction
    noise: StepNoise


class Offered(NamedTuple):
    """A step before its draw: the beliefs it begins with, and what it may take (None: skipped)."""

    arrived: tuple[Held, ...]
    choice: StepChoice | None
    read: bool

    @property
    def noise(self) -> StepNoise | None:
        """What an output is drawn from; None where there is none."""
        noise = None if self.choice is None else self.choice.noise
        return noise if noise is not None and noise.count > 1 else None


class EventGuard:
    """What follows from a plan and a watch: filters, weights, machines, checks that are kept."""

    def __init__(self, plan: Plan, watch: EventWatch) -> None:
        """Prepare the belief filters of the events and the machine at every ε that a step may try.

        Refused when the model already decides an event. For small models the checks of the first
        step are computed here already.
        """
        self.machine, self.watch = machine_of(plan), watch
        self.law = watch.law(self.machine.chain)
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
        self.machines = {
            each: _machine_at_epsilon(self.machine, each)
            for each in watch.levels_to_try(self.machine.epsilon)
        }
        self._checks: OrderedDict[int, tuple[StepNoise, Check]] = OrderedDict()
        if len(self.law.states) <= MOST_READY:  # what a first step may try is made before it comes
            for each in self.machines.values():
                self._noise_check(self.machine.noises(self.machine.init(), [each])[0])

    def room(self) -> int:
        """Bytes that the packed beliefs of any slot fit in."""
        return sum(filter_room(*each) for each in self.program.most_numbers())

    def begin(self) -> tuple[Held, ...]:
        """The beliefs before slot 0, or after it when its state is public."""
        held = self.program.begin()
        return held if self.watch.start is None else self.beliefs_before_output(held, 0)

    def beliefs_before_output(self, held: Sequence[Held], slot: int) -> tuple[Held, ...]:
        """The beliefs at a slot before its output: also the beliefs after a slot without one."""
        if slot < self.law.length:
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

    def choose(self, state: LocationState, arrived: Sequence[Held]) -> StepChoice | None:
        """The first ε whose every output keeps all odds within bounds; None: skip the step."""
        machine = self.machine
        noises = (
            StepChoice(each, machine.noises(state, [other])[0])
            for each, other in self.machines.items()
        )
        return self.first_fit(noises, arrived, state.time)

    def first_fit(self, choices: Any, arrived: Sequence[Held], slot: int) -> StepChoice | None:
        """The first of these choices that fits, from the beliefs at `slot`."""
        tables = self._tables(arrived, slot)
        for choice in choices:
            check = self._noise_check(choice.noise)
            if all(check.fits(table) for table in tables):
                found: StepChoice = choice
                return found
        return None

    def offer(self, state: LocationState, held: Sequence[Held], *, read: bool) -> Offered:
        """The beliefs a step begins with and the noise it would draw with; public."""
        arrived = self.beliefs_before_output(held, state.time)
        return Offered(arrived, self.choose(state, arrived) if read else None, read)

    def absorb(
        self, state: LocationState, offered: Offered, z: Any, *, secure: bool = True
    ) -> tuple[LocationState, LocationRelease, tuple[Held, ...]]:
        """State, release and beliefs after a step that drew `z`, None where it drew nothing."""
        arrived, choice, outputs = offered.arrived, offered.choice, []
        if z is not None:
            assert choice is not None  # only what was offered is drawn
            arrived = self.after(arrived, state.time, choice.noise, z)
            outputs.append((self.machines[choice.epsilon], z))
        after, release = self.machine.absorb(state, outputs, secure=secure)
        if offered.read and choice is None:
            release = replace(release, warnings=(*release.warnings, EVENT_KEPT))
        return after, release, arrived

    def step(
        self,
        state: LocationState,
        held: Sequence[Held],
        place: int | None,
        source: Rng,
    ) -> tuple[LocationState, LocationRelease, tuple[Held, ...]]:
        """State, release and beliefs after a step: drawn with the ε all outputs allow, or skipped.

        `place` is None where the step is not read.
        """
        offered, z = self.offer(state, held, read=place is not None), None
        if offered.noise is not None and place is not None:
            z = offered.noise.law.draw(place, source)
        return self.absorb(state, offered, z, secure=source.secure)

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
            # an alarm, far above rounding: `fits` has certified every output, rounding included
            over, under = (side[:, 0] @ likely for side in (table.over, table.under))
            if (over > under * (1 + 1e-9)).any():
                raise PromiseBroken("an output would move the odds of an event beyond its bound")
            conditional = conditioned(one, np.broadcast_to(likely, one.mass.shape))
            found.append(replace(conditional, rounds=conditional.rounds + wide))
        return tuple(found)

    def beliefs(self, held: Sequence[Held], slot: int) -> tuple[float, ...]:
        """P(E | outputs) of each pair, from the beliefs after `slot`."""
        last = min(slot, self.law.length - 1)
        found = []
        for track, one in zip(self.program.tracks, held, strict=True):
            found.append(float((one.mass * track.over[last][0, one.pairs[:, 0]]).sum()))
        return tuple(found)

    def _tables(self, arrived: Sequence[Held], slot: int) -> list[TrackSums]:
        last = min(slot, self.law.length - 1)
        both = zip(self.program.tracks, arrived, strict=True)
        return [self.program.table(track, one, last) for track, one in both]

    def _noise_check(self, noise: StepNoise) -> Check:
        """Return the check of a step's noise; the last CHECKS_KEPT are kept."""
        kept = self._checks.get(id(noise))
        if kept is None or kept[0] is not noise:
            # the noise is kept with its check, so that nothing else gets its id
            kept = self._checks[id(noise)] = noise, check_of(noise)
            if len(self._checks) > CHECKS_KEPT:
                self._checks.popitem(last=False)
        return kept[1]


@lru_cache(maxsize=64)
def _machine_at_epsilon(machine: LocationMachine, epsilon: Fraction) -> LocationMachine:
    """The machine at another ε, with what it keeps: one for all guards of it."""
    return machine if epsilon == machine.epsilon else replace(machine, epsilon=epsilon)


@lru_cache(maxsize=16)
def guard_of(plan: Plan, watch: EventWatch) -> EventGuard:
    """The guard of a plan and a watch, made once for all streams that have them."""
    return EventGuard(plan, watch)


class ReplayedStep(NamedTuple):
    """A step of a stream that is followed again: its time, noise and output, and who drew it."""

    time: int
    noise: StepNoise
    z: Sequence[int] | None
    used: LocationMachine


def replay(
    plan: Plan, outputs: Sequence[Sequence[int] | None], start: Any = None
) -> Iterator[ReplayedStep]:
    """The steps of a stream that released `outputs`, from these alone; None: a step without one.

    Public. An output is drawn by the plan's own machine, or at the ε that its events allowed.
    """
    machine = machine_of(plan)
    state, guard, held = machine.init(start), None, tuple[Held, ...]()
    if machine.watch is not None:
        guard = guard_of(plan, replace(machine.watch, start=machine.known(start)))
        held = guard.begin()
    for step, z in enumerate(outputs, 1):
        in_time("following a stream from its outputs")
        used = machine
        if guard is not None:
            held = guard.beliefs_before_output(held, state.time)
        if guard is not None and z is not None:
            choice = guard.choose(state, held)
            if choice is None:
                raise InputError(f"outputs holds one at step {step}, at which events allow none")
            held = guard.after(held, state.time, choice.noise, z)
            used = guard.machines[choice.epsilon]
        yield ReplayedStep(state.time, machine.noises(state, [used])[0], z, used)
        state, _ = machine.absorb(state, () if z is None else ((used, z),))


def event_curve(
    plan: Plan,
    outputs: Sequence[Sequence[int] | None],
    watch: EventWatch,
    start: Any = None,
) -> Floats:
    """P(E | outputs so far) of each event of `watch`, a row for each step and one before all.

    For any plan of places, whether its stream was made for these events or not. Followed by the
    law of (automaton, state) alone, without any bound.
    """
    machine = machine_of(plan)
    law = replace(watch, start=machine.known(start)).law(machine.chain)
    automaton = compile_events([event for event, _ in watch.events.pairs], law)
    ahead = beliefs(automaton, law)
    mass = began(law.initial, automaton)
    rows = [(ahead[0] * mass).sum(axis=(1, 2))]
    for slot, noise, z, _ in replay(plan, outputs, start):
        if slot:
            mass = _onward(mass, law, automaton, slot)
        if z is not None:
            logs = noise.law.log_likelihood(z)
            mass = mass * np.exp(logs - logs[logs > -np.inf].max())
            mass = mass / mass.sum()
        rows.append((ahead[min(slot, law.length - 1)] * mass).sum(axis=(1, 2)))
    return np.array(rows)


def _onward(mass: Floats, law: PathLaw, automaton: Automaton, slot: int) -> Floats:
    """The law of (q, x) at `slot`, from that at the slot before; events stand still at the end."""
    if slot < law.length:
        return moved(mass, law.matrix(slot - 1), automaton, slot)
    return np.asarray(mass @ law.matrix(slot - 1))


# Checks: Σ_s over(s) q(z|s) ≤ Σ_s under(s) q(z|s) for every output z, rounding included.


class Check(Protocol):
    """Decides for a law whether every output keeps the bounds of a table."""

    def fits(self, table: TrackSums) -> bool: ...


def check_of(noise: StepNoise) -> Check:
    """The tightest check there is for a law: exact where outputs can be listed."""
    law = noise.law
    if isinstance(law, GraphExponential):
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
    def of(cls, law: GraphExponential) -> ListedOutputs:
        logs = law.log_likelihoods()
        logs = logs - logs.max(axis=0)[None, :]
        leads = logs > -np.inf
        widest = float(-logs[leads].min(initial=0.0))
        return cls(np.exp(logs), leads, (4 * widest + 16) * ROUNDING + 4 * law.slack)

    def fits(self, table: TrackSums) -> bool:
        """Return whether every output listed keeps the promise for these sums; rounding counts
        against it.
        """
        over, under = table.over[:, 0] @ self.likely, table.under[:, 0] @ self.likely
        met = self.leads[table.possible[0]].any(axis=0)
        rounded = replace(
            table, slack=table.slack + self.slack, lost=table.lost + LOST_TO_UNDERFLOW
        )
        return bool(rounded.keeps(over, under)[:, met].all())


@dataclass(frozen=True, slots=True, eq=False)
class GridOfCorners:
    """Laplace noise along one axis or two: outputs whose coordinates are those of states decide.

    Between two of them the ratio is that of a e^u + b e^-u to c e^u + d e^-u, which is monotone in
    u. `parts` holds e^(-ε|u - u_s|), one row for each coordinate u, for each axis.
    """

    parts: tuple[Floats, ...]
    slack: float

    def fits(self, table: TrackSums) -> bool:
        """Return whether every corner of the grid keeps the promise for these sums.

        Rounding and underflow count against it.
        """
        rounded = replace(
            table, slack=table.slack + self.slack, lost=table.lost + LOST_TO_UNDERFLOW
        )
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
        """Return the answers a step can have, with every pair of them and its growth exp(loss).

        The pairs come nearest first, without those of infinite loss. Growths are rounded up.
        """
        answers, places = np.unique(answering, return_inverse=True)
        points = np.ascontiguousarray(law.points[answers], dtype=np.int64)
        stored, width = points.tobytes(), points.shape[1]
        shifts, _ = _shifts(stored, width)
        losses = law.noise.log_ratios(shifts) * shifts.any(axis=1)
        with np.errstate(over="ignore"):
            growth = np.exp(losses) * (1 + (losses + 2) * ROUNDING)
        ranks = np.unique(losses, return_inverse=True)[1].astype(np.uint32)
        first, second, which = _nearest_first(stored, width, ranks.tobytes())
        growing = growth[which]
        near = int(np.isfinite(growing).sum())  # the nearest come first: no pair between is lost
        return cls(places.ravel(), len(points), first[:near], second[:near], growing[:near])

    def fits(self, table: TrackSums) -> bool:
        """Return whether mass at one answer never exceeds what the pairs of answers allow; rounds
        against it.
        """
        from shoal.places.kernels import all_carried

        rounds = 8 * (len(self.places) + self.count)
        slack = table.slack + rounds * ROUNDING
        for over, under in zip(table.over[:, 0], table.under[:, 0], strict=True):
            mass = np.bincount(self.places, over, self.count) * (1 + slack) + table.lost
            room = np.bincount(self.places, under, self.count) * (1 - slack) - table.lost
            if not all_carried(mass, np.maximum(room, 0.0), self.first, self.second, self.growth):
                return False
        return True


@lru_cache(maxsize=16)
def _shifts(stored: bytes, width: int) -> tuple[Ints, Ints]:
    """The different differences of any two points, and which of them each pair has.

    The same for every ε of a constraint, so found once; `stored` are the points' bytes.
    """
    points = np.frombuffer(stored, dtype=np.int64).reshape(-1, width)
    spans = np.ptp(points, axis=0)
    keys = np.zeros((len(points),) * 2, dtype=np.int64)
    for axis, span in enumerate(spans.tolist()):
        keys = keys * (2 * span + 1) + points[:, None, axis] - points[None, :, axis] + span
    most = int(np.prod(2.0 * spans + 1))
    if most <= MOST_KEYS:
        there = np.zeros(most, dtype=np.bool_)
        there[keys.ravel()] = True
        found, which = np.flatnonzero(there), (np.cumsum(there) - 1)[keys.ravel()]
    else:
        found, which = np.unique(keys.ravel(), return_inverse=True)
    shifts = np.empty((len(found), width), dtype=np.int64)
    for axis, span in reversed(list(enumerate(spans.tolist()))):
        found, rest = np.divmod(found, 2 * span + 1)
        shifts[:, axis] = rest - span
    return shifts, np.asarray(which, dtype=np.int32)


@lru_cache(maxsize=8)
def _nearest_first(stored: bytes, width: int, ranked: bytes) -> tuple[Ints, Ints, Ints]:
    """Pairs of different places in the order of their shifts' ranks, and the shift of each.

    ε stretches all losses of a body alike, so that its steps share this order.
    """
    _, which = _shifts(stored, width)
    ranks = np.frombuffer(ranked, dtype=np.uint32)
    small = np.uint16 if int(ranks.max(initial=0)) < 2**16 else np.uint32  # sorted by digits
    count = len(stored) // (8 * width)
    order = np.argsort(ranks.astype(small)[which], kind="stable").astype(np.int32)
    first, second = np.divmod(order, np.int32(count))
    apart = first != second
    return first[apart], second[apart], which[order][apart]
