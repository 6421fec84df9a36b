"""The machine of location streams: follow the belief, cut and repair the policy, release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from shoal.core.charge import Guarantee, Rng
from shoal.core.codec import Value, unchecked
from shoal.core.errors import InputError
from shoal.core.numbers import positive, significant
from shoal.core.plan import Plan
from shoal.core.task import Model, Secrets
from shoal.noise.knorm import SPARE
from shoal.noise.primitives import Unread
from shoal.places.map import Grid
from shoal.places.packed import LocationRelease, LocationState
from shoal.places.queries import EventWatch, Measurement
from shoal.places.runtime import (
    Belief,
    Bytes,
    Posterior,
    Reached,
    Reading,
    Runtime,
    StepPrior,
    carried,
    seen,
    shown_states,
    single_precision,
)
from shoal.places.step import NOISES, Places, StepNoise
from shoal.places.walk import grid_of

NOTHING_LEFT = (
    "only one state is possible, so there is nothing left to protect and nothing was released"
)
POLICY_SILENT = (
    "no two states that are still possible are joined by the policy: only the repair protects"
)
ON_A_LINE = (
    "all noise lies on a line, so states on parallel lines are told apart with certainty; join "
    "states in more than one direction"
)
FAR_OFF = (
    "the released point lies far from every state believed possible: the model may not describe "
    "this person"
)
EVENT_KEPT = (
    "every output would have told too much about an event, so nothing was released at this step"
)
# noise is this many multiples of 1/ε away with probability below 1e-6 in the plane
NOISE_RARELY_FARTHER = 20.0

Outputs = Sequence[tuple["LocationMachine", Sequence[int]]]
Draw = Callable[[], tuple[int, ...] | None]  # the output of a step; None when there is none
Settle = Callable[[Fraction | None, Draw], tuple[int, ...] | None]  # charges η, then draws
Shaped = tuple[int, bool, float, list[list[int]]]  # of a step's noise |C|, `joined`, η, repairs
Taken = tuple[tuple[int, ...], Posterior, Shaped]  # an output, what it says, and its noise
LikelyStage = tuple[tuple[Any, ...], Shaped]  # (prior, members, answers, vertices) before a draw
_DERIVED: Any = {"stored": False}  # follows from the fields, and is made again on load


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationMachine(Value):
    """Releases a measurement of the current state at every step, ε-indistinguishable by policy.

    `noise` names the law; "k-norm" is the planar isotropic mechanism too, whose transform does not
    change the distribution. `runtime` is what all streams of the machine keep together, `watch`
    what a whole stream promises about events, if it does.
    Xiao & Xiong 2016, Algorithm 2; Xiao 2017, Algorithm 1.
    """

    kind = "location-machine"

    chain: Model
    query: Measurement
    places: Places
    epsilon: Fraction
    noise: str = "k-norm"
    watch: EventWatch | None = field(init=False, repr=False, metadata=_DERIVED)
    runtime: Runtime = field(init=False, repr=False, metadata=_DERIVED)
    _compiled: CompiledSteps | None = field(init=False, repr=False, metadata=_DERIVED)

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise InputError(f"noise is {self.noise!r}; it must be one of {list(NOISES)}")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "watch", self.places.watch)
        runtime = Runtime(self)
        compiled = self.query.dimension == 2 and runtime.motion.memory == 1
        steps = CompiledSteps(runtime) if compiled and self.query.estimate == "squared" else None
        object.__setattr__(self, "runtime", runtime)
        object.__setattr__(self, "_compiled", steps)

    def __reduce__(self) -> tuple[Any, ...]:
        """What other processes need to make the machine again: its fields, not what it keeps."""
        made = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return partial(LocationMachine, **made), ()

    def known(self, observed: Any) -> int | None:
        """The number of the state of a reading, or of a start; None when there is none."""
        return None if observed is None else self.runtime.locator.state_of(observed)

    def refuse_events(self, who: str) -> None:
        """Refuses a policy that watches events, in the name of whoever takes single steps."""
        if self.watch is not None:
            raise InputError(
                f"the policy watches events, which {who} does not follow; read the stream with "
                "shoal.LocationStream or `shoal stream`, or leave the events out"
            )

    def init(self, start: Any = None) -> LocationState:
        """Before the first step; with `start`, after a first step whose state everybody knows."""
        motion = self.runtime.motion
        if start is None:
            belief, time = motion.begin(), 0
        else:
            if motion.memory > 1:
                raise InputError("start is given, but the chain has a longer memory; leave it out")
            belief, time = np.zeros(motion.hidden), 1
            belief[self.runtime.locator.state_of(start)] = 1.0
        support = self.runtime.packed(belief > 0)
        return LocationState(time, single_precision(belief), support, known_start=start is not None)

    def step(
        self, state: LocationState, observed: Reading, rng: Rng, settle: Settle | None = None
    ) -> tuple[LocationState, LocationRelease]:
        """The state after this step, and what may be shown. None observed: a skipped step.

        A pure function of its arguments and the words of `rng`. `settle(eta, draw)` charges the
        step before it draws, in whatever transaction it likes, and returns what was drawn or, of
        a step that was charged before, what was drawn then. Compiled where it can be.
        """
        if self.watch is not None:
            self.refuse_events("a step by itself")
        if observed is None:
            return self.absorb(state, (), secure=rng.secure)
        place = self.runtime.locator.state_of(observed)
        reached = self.runtime.reach(state.time, state.support)
        if settle is None:
            taken, z = self._taken(state, reached, place, rng)
        else:
            taken, z = self._settled(state, reached, place, rng, settle)
        if taken is None or taken[0] != z:  # the plain way, or what an earlier charge drew
            return self.absorb(state, () if z is None else ((self, z),), secure=rng.secure)
        _, found, shaped = taken
        spent, far = self.runtime.promise, found.best < -NOISE_RARELY_FARTHER
        return self._after(state, found, reached.packed, z, shaped, (False, far), spent, rng.secure)

    def _taken(
        self,
        state: LocationState,
        reached: Reached,
        place: int,
        rng: Rng,
        stage: LikelyStage | None = None,
    ) -> tuple[Taken | None, tuple[int, ...] | None]:
        """All that follows from a step's output where compiled code took the step, and the output.

        None where the plain way drew it, with the words that compiled code had read.
        """
        if self._compiled is not None:
            taken, rng = self._compiled.step(state.time, state.belief, reached, place, rng, stage)
            if taken is not None:
                return taken, taken[0]
        return None, self._drawn(state, place, rng)

    def _settled(
        self, state: LocationState, reached: Reached, place: int, rng: Rng, settle: Settle
    ) -> tuple[Taken | None, tuple[int, ...] | None]:
        """The same, charged first. An output of an earlier charge is not what was taken now."""
        stage, taken = None, None
        if reached.noise is None and self._compiled is not None:
            stage = self._compiled.stage(state.time, state.belief, reached)
        if stage is None:
            noise = reached.noise or self.prior(state).noise
            eta, drawn = noise.eta, noise.count > 1
        else:
            eta, drawn = Fraction(stage[1][2]), True  # of two states or more, on no line

        def draw() -> tuple[int, ...] | None:
            nonlocal taken
            taken, z = self._taken(state, reached, place, rng, stage)
            return z

        z = settle(eta, draw) if drawn else None
        return taken, z

    def answer(self, state: LocationState, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        """One output for the state observed; None when only one state is possible."""
        return self._drawn(state, self.runtime.locator.state_of(observed), rng)

    def absorb(
        self, state: LocationState, outputs: Outputs, *, secure: bool = True
    ) -> tuple[LocationState, LocationRelease]:
        """The state after outputs that were drawn, by this machine first: public, no randomness.

        Several machines on the same chain and policy may answer at one step, with noise as in
        `noises`; epsilons add. Xiao & Xiong 2016, Theorem 7.1.
        """
        runtime, prior = self.runtime, self.prior(state)
        machines = [machine for machine, _ in outputs]
        noises = self.noises(state, machines) if outputs else []
        given = [(each, z) for each, (_, z) in zip(noises, outputs, strict=True)]
        found = seen(runtime, self.query, state.time, prior, given)
        packed = prior.packed
        if found.support is not prior.support:
            packed = runtime.packed(found.support)
        shown = noises or [prior.noise]
        eta = sum(each.spread for each in noises)
        shaped = prior.noise.count, prior.noise.joined, eta, shown[0].added
        odd = any(each.tells for each in shown), found.best < -NOISE_RARELY_FARTHER * len(outputs)
        z = tuple(int(k) for k in outputs[0][1]) if outputs else None
        spent = runtime.guarantee(tuple(machine.epsilon for machine in machines))
        return self._after(state, found, packed, z, shaped, odd, spent, secure)

    def noises(self, state: LocationState, machines: Sequence[LocationMachine]) -> list[StepNoise]:
        """The noise of each machine at the next step, when all of them answer, this one first.

        One repair serves all: whoever protects a state protects it in every answer.
        """
        noise = self.prior(state).noise
        if len(machines) == 1:
            return [noise if machines[0] is self else machines[0].runtime.noise(noise.members)]
        questions = [machine.runtime.question for machine in machines]
        return self.runtime.noises(noise.members, questions)

    def prior(self, state: LocationState) -> StepPrior:
        """Belief, support and noise of the next step."""
        return self.runtime.prior(state.time, state.belief, state.support)

    def _drawn(self, state: LocationState, place: int, rng: Rng) -> tuple[int, ...] | None:
        noise = self.prior(state).noise
        return noise.law.draw(place, rng) if noise.count > 1 else None

    def _after(
        self,
        before: LocationState,
        found: Posterior,
        packed: Bytes,
        z: tuple[int, ...] | None,
        shaped: Shaped,
        odd: tuple[bool, bool],
        spent: Guarantee | None,
        secure: bool,
    ) -> tuple[LocationState, LocationRelease]:
        """The state one step on, when the outputs told η between any two states, and the release.

        `odd`: whether outputs rule states out, and whether they lie far from what is believed.
        """
        (count, joined, eta, added), query, names = shaped, self.query, self.query.states
        # the reversed law behind the factor is that of the first law, not of a known start
        known, time = before.known_start, before.time + 1
        factor = 1.0 if known else self.runtime.forgetting.factor(before.time)
        here, path = carried(before.loss_here, factor) + eta, before.loss_path + eta
        after: LocationState = unchecked(
            LocationState, time, found.belief, packed, here, path, known
        )
        release: LocationRelease = unchecked(
            LocationRelease,
            time,
            z,
            query.step,
            query.labels,
            query.unit,
            found.estimate,
            tuple([(names[place], share) for place, share in found.top]),
            found.spread,
            count,
            found.degree,
            tuple([(names[a], names[b]) for a, b in added]),
            spent,
            here,
            path,
            _warnings(count, joined, *odd),
            secure,
        )
        return after, release

    def promise(self, epsilon: Fraction) -> Guarantee:
        """The guarantee of one step at which `epsilon` is spent in all."""
        return step_promise(self.places, epsilon)

    def describe(self) -> str:
        return (
            f"at every step {self.noise} noise at epsilon = {significant(self.epsilon)} on "
            f"{' and '.join(self.query.labels)} ({self.query.unit}), shaped by the policy among "
            f"the states still possible; the estimate is the best under {self.query.estimate} error"
        )


def machine_of(plan: Plan) -> LocationMachine:
    """The machine of a location plan; refused for any other plan."""
    if not isinstance(plan.body, LocationMachine):
        raise InputError(f"{plan.mechanism} is not a plan for a location stream")
    return plan.body


def grid_in_km(plan: Plan) -> Grid | None:
    """The map on which a plan's answers are points in km, so that they have degrees too."""
    machine = plan.body
    if not isinstance(machine, LocationMachine) or machine.query.dimension != 2:
        return None
    return grid_of(machine.chain) if machine.query.unit == "km" else None


def step_promise(places: Secrets, epsilon: Fraction) -> Guarantee:
    """What one step promises about `places` when `epsilon` is spent in all."""
    over = f"{places.subject}, for an adversary who knows the chain and the policy"
    return Guarantee(notion=places.notion, amount=epsilon, over=over)


def _warnings(count: int, joined: bool, tells: bool, far: bool) -> tuple[str, ...]:
    if count > 1 and joined and not tells and not far:
        return ()
    found = []
    if count < 2:
        found.append(NOTHING_LEFT)
    elif not joined:
        found.append(POLICY_SILENT)
    if tells and count > 1:
        found.append(ON_A_LINE)
    if far:
        found.append(FAR_OFF)
    return tuple(found)


# The compiled twin of a step: planar K-norm streams in one call, where nothing must be decided
# exactly.


# what `compiled_draws` reads for one draw: a step taken again, the plain way, reads the same
WORDS = 3 * (3 + SPARE)


class CompiledSteps:
    """The steps of one machine that compiled code can take from beginning to end.

    For answers in the plane, estimates of least squared error and chains of memory 1. Nothing is
    kept from one step to the next: a step follows from its arguments alone.
    """

    def __init__(self, runtime: Runtime) -> None:
        from shoal.places import kernels

        self._kernels: Any = kernels
        motion = runtime.motion
        # steps that move alike share their matrix: asked for once
        self._moves = motion.forward[0] if motion.homogeneous else None
        self._motion, self._values = motion, runtime.values
        self._graph, self._rate, self._share = runtime.graph, runtime.rate, runtime.share

    def stage(self, time: int, belief: Belief, reached: Reached) -> LikelyStage | None:
        """What a step on a location set is charged and drawn from; None: go the plain way."""
        moves = self._matrix(time)
        if moves is None or self._graph is None:
            return None
        given = belief, moves.indptr, moves.indices, moves.data
        ready, parts, count, joined, eta, added = self._kernels.likely_stage(
            *given, reached.support, self._share, self._graph, self._rate
        )
        return (parts, (count, joined, eta, added.tolist())) if ready else None

    def step(
        self,
        time: int,
        belief: Belief,
        reached: Reached,
        place: int,
        rng: Rng,
        stage: LikelyStage | None = None,
    ) -> tuple[Taken | None, Rng]:
        """Step `time` of a stream at state `place`, and the source as it is after it.

        None: the step must be taken the plain way, with the source returned, which gives the
        words that were read here once more.
        """
        moves, noise = self._matrix(time), reached.noise
        planar = self._graph if noise is None else noise.planar
        if moves is None or planar is None:
            return None, rng
        words = rng.words(WORDS)
        single = np.empty(len(belief), dtype=np.float32)
        given = belief, moves.indptr, moves.indices, moves.data, self._values
        drawn = self._rate, place, words, single
        if noise is not None:
            shaped = noise.count, noise.joined, noise.spread, noise.added
            told = self._kernels.step_at(*given, *planar, *drawn)
        elif stage is not None:
            parts, shaped = stage
            told = self._kernels.step_from(*parts, self._values, *drawn)
        else:
            edges = np.empty((len(belief), 2), dtype=np.int64)
            count, joined, repairs, eta, told = self._kernels.step_among_likely(
                *given, reached.support, self._share, planar, *drawn, edges
            )
            shaped = count, joined, eta, edges[:repairs].tolist() if repairs else []
        done, x, y, best, east, north, spread, degree, shown = told
        if not done:
            return None, Unread(words, rng)
        single.setflags(write=False)
        top = shown_states(shown, len(belief))
        found = Posterior(single, reached.support, (east, north), spread, top, degree, best)
        return ((x, y), found, shaped), rng

    def _matrix(self, time: int) -> Any:
        return self._moves if time and self._moves is not None else self._motion.matrix(time)
