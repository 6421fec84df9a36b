"""The machine of location streams: follow the belief, cut and repair the policy, release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Value, locked, unchecked
from shoal.core.errors import InputError
from shoal.core.face import renamed
from shoal.core.guarantee import Guarantee
from shoal.core.numbers import positive, significant
from shoal.core.plan import Plan
from shoal.core.rng import Rng
from shoal.core.task import Model, Secrets
from shoal.places.queries import Measurement
from shoal.places.runtime import (
    Belief,
    Bytes,
    CompiledSteps,
    Reached,
    Runtime,
    StepPrior,
    StepResult,
    carried,
    compiled_steps,
    seen,
    single_precision,
)
from shoal.places.step import NOISES, Places, StepNoise
from shoal.places.walk import Reading
from shoal.places.watch import EventWatch

# What a location stream shows at a step; everything in it may be published.


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationRelease(Value):
    """One step: the noisy answer, the best estimate, what is believed, and what was promised.

    `z` holds whole lattice steps of `step` (None: nothing was released), `estimate` the answer
    that minimises the expected error given everything released so far; it costs no privacy.
    `likely` are the most probable states, `spread` the root mean square distance of the belief
    from the estimate. `possible` = |C|, `degree` the degree of protection of the most probable
    state, `added` the edges the repair added. `loss_here` bounds the log-ratio that all outputs so
    far give away between two current states, `loss_path` between two whole sequences.
    """

    time: int
    z: tuple[int, ...] | None
    step: Fraction
    labels: tuple[str, ...]
    unit: str
    estimate: tuple[float, ...]
    likely: tuple[tuple[str, float], ...]
    spread: float
    possible: int
    degree: int
    added: tuple[tuple[str, str], ...]
    guarantee: Guarantee | None
    loss_here: float = field(metadata={"stored_as": "about_now"})
    loss_path: float = field(metadata={"stored_as": "about_all"})
    warnings: tuple[str, ...]
    secure: bool

    @property
    def point(self) -> tuple[float, ...] | None:
        """The released point as floats, in the query's unit."""
        return None if self.z is None else tuple(float(k * self.step) for k in self.z)

    @property
    def about_now(self) -> float:
        """`loss_here`, under the name it had in version 0.1."""
        return renamed("LocationRelease.about_now", "loss_here", self.loss_here)

    @property
    def about_all(self) -> float:
        """`loss_path`, under the name it had in version 0.1."""
        return renamed("LocationRelease.about_all", "loss_path", self.loss_path)

    def as_dict(self) -> dict[str, Any]:
        """A line of JSON; infinity is null."""
        return {
            "time": self.time,
            "z": None if self.point is None else list(self.point),
            "estimate": list(self.estimate),
            "unit": self.unit,
            "likely": [[name, round(share, 6)] for name, share in self.likely],
            "spread": self.spread,
            "possible": self.possible,
            "degree_of_protection": self.degree,
            "repaired": [list(pair) for pair in self.added],
            "epsilon": None if self.guarantee is None else float(self.guarantee.amount),
            "loss_here": _finite(self.loss_here),
            "loss_path": _finite(self.loss_path),
            # the names of version 0.1, for one version more
            "about_now": _finite(self.loss_here),
            "about_all": _finite(self.loss_path),
            "warnings": list(self.warnings),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


# The machine of location streams: follow the belief, cut and repair the policy, release.


FAR = 20.0  # noise is this many multiples of 1/ε away with probability below 1e-6 in the plane

Outputs = Sequence[tuple["LocationMachine", Sequence[int]]]
Draw = Callable[[], tuple[int, ...] | None]  # the output of a step; None when there is none
Settle = Callable[[Fraction | None, Draw], tuple[int, ...] | None]  # charges η, then draws


@dataclass(frozen=True, slots=True, eq=False)
class LocationState(Value):
    """Where a stream stands: made from its outputs alone, so as public as they are.

    `belief` is P(hidden state | outputs so far) in single precision: it steers estimates and
    δ-location sets, never the noise a state gets. `support` is the exact set of hidden states
    still possible, eight to a byte. `time` counts the steps taken; `known_start` says that the
    first of them was no output but a state that everybody knew.
    """

    time: int
    belief: npt.NDArray[np.float32]
    support: npt.NDArray[np.uint8]
    loss_here: float = field(default=0.0, metadata={"stored_as": "about_now"})
    loss_path: float = field(default=0.0, metadata={"stored_as": "about_all"})
    known_start: bool = False

    def __post_init__(self) -> None:
        # arrays that are locked already are shared, not copied: many streams have equal supports
        for name, dtype in (("belief", np.float32), ("support", np.uint8)):
            array = getattr(self, name)
            shared = isinstance(array, np.ndarray) and array.dtype == dtype
            # a view could be unlocked through what it is a view of, and would keep that alive
            if not shared or array.flags.writeable or array.base is not None:
                object.__setattr__(self, name, locked(array, dtype))


class HasRuntime(Value):
    """A value that keeps what follows from its fields; not stored, made again on load."""

    __slots__ = ("_compiled", "_runtime")
    _runtime: Runtime
    _compiled: CompiledSteps | None

    @property
    def runtime(self) -> Runtime:
        """What is kept between steps, by all streams of the machine together."""
        return self._runtime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationMachine(HasRuntime):
    """Releases a measurement of the current state at every step, ε-indistinguishable by policy.

    `noise` names the law; "k-norm" is the planar isotropic mechanism too, whose transform does not
    change the distribution.
    Xiao & Xiong 2016, Algorithm 2; Xiao 2017, Algorithm 1.
    """

    chain: Model
    query: Measurement
    places: Places
    epsilon: Fraction
    noise: str = "k-norm"

    def __post_init__(self) -> None:
        if self.noise not in NOISES:
            raise InputError(f"noise is {self.noise!r}; it must be one of {list(NOISES)}")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "_runtime", Runtime(self))
        object.__setattr__(self, "_compiled", compiled_steps(self._runtime, self.query))

    def __reduce__(self) -> tuple[Any, ...]:
        """What other processes need to make the machine again: its fields, not what it keeps."""
        return _made_again, (self.chain, self.query, self.places, self.epsilon, self.noise)

    @property
    def watch(self) -> EventWatch | None:
        """What the whole stream promises about events, if it does."""
        return self.places.watch

    def known(self, observed: Any) -> int | None:
        """The number of the state of a reading, or of a start; None when there is none."""
        return None if observed is None else self._runtime.locator.state_of(observed)

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
        self.refuse_events("a step by itself")
        if observed is None:
            return self.absorb(state, (), secure=rng.secure)
        place = self._runtime.locator.state_of(observed)
        reached = self._runtime.reach(state.time, state.support)
        if settle is None:
            told, z = self._taken(state, reached, place, rng)
        else:
            told, z = self._settled(state, reached, place, rng, settle)
        if told is not None and told.z == z:
            after = self._state(state, told.seen.belief, reached.packed, told.eta)
            return after, self._release(after, told, self._runtime.promise, 1, rng.secure)
        return self.absorb(state, () if z is None else ((self, z),), secure=rng.secure)

    def _taken(
        self, state: LocationState, reached: Reached, place: int, rng: Rng
    ) -> tuple[StepResult | None, tuple[int, ...] | None]:
        """The output of a step, and all that follows from it where compiled code took the step."""
        told = None
        if self._compiled is not None:
            told, rng = self._compiled.step(state.time, state.belief, reached, place, rng)
        return told, self._drawn(state, place, rng) if told is None else told.z

    def _settled(
        self, state: LocationState, reached: Reached, place: int, rng: Rng, settle: Settle
    ) -> tuple[StepResult | None, tuple[int, ...] | None]:
        """The same, charged first. An output of an earlier charge is not what was taken now."""
        noise, told = reached.noise or self.prior(state).noise, None

        def draw() -> tuple[int, ...] | None:
            nonlocal told
            told, z = self._taken(state, reached, place, rng)
            return z

        z = settle(noise.eta, draw) if noise.count > 1 else None
        return told, z

    def answer(self, state: LocationState, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        """One output for the state observed; None when only one state is possible."""
        return self._drawn(state, self._runtime.locator.state_of(observed), rng)

    def absorb(
        self, state: LocationState, outputs: Outputs, *, secure: bool = True
    ) -> tuple[LocationState, LocationRelease]:
        """The state after outputs that were drawn, by this machine first: public, no randomness.

        Several machines on the same chain and policy may answer at one step, with noise as in
        `noises`; epsilons add. Xiao & Xiong 2016, Theorem 7.1.
        """
        runtime, prior = self._runtime, self.prior(state)
        machines = [machine for machine, _ in outputs]
        noises = self.noises(state, machines) if outputs else []
        given = [(each, z) for each, (_, z) in zip(noises, outputs, strict=True)]
        found = seen(runtime, self.query, state.time, prior, given)
        packed = prior.packed
        if found.support is not prior.support:
            packed = runtime.packed(found.support)
        after = self._state(state, found.belief, packed, sum(each.spread for each in noises))
        shown = noises or [prior.noise]
        told = StepResult(
            found,
            tuple(int(k) for k in outputs[0][1]) if outputs else None,
            prior.noise.count,
            prior.noise.joined,
            any(each.tells for each in shown),
            0.0,
            shown[0].added,
        )
        spent = runtime.guarantee(tuple(machine.epsilon for machine in machines))
        return after, self._release(after, told, spent, len(outputs), secure)

    def noises(self, state: LocationState, machines: Sequence[LocationMachine]) -> list[StepNoise]:
        """The noise of each machine at the next step, when all of them answer, this one first.

        One repair serves all: whoever protects a state protects it in every answer.
        """
        noise = self.prior(state).noise
        if len(machines) == 1:
            return [noise if machines[0] is self else machines[0].runtime.noise(noise.members)]
        questions = [machine.runtime.question for machine in machines]
        return self._runtime.noises(noise.members, questions)

    def prior(self, state: LocationState) -> StepPrior:
        """Belief, support and noise of the next step."""
        return self._runtime.prior(state.time, state.belief, state.support)

    def _drawn(self, state: LocationState, place: int, rng: Rng) -> tuple[int, ...] | None:
        noise = self.prior(state).noise
        return noise.law.draw(place, rng) if noise.count > 1 else None

    def _state(
        self, before: LocationState, belief: Belief, packed: Bytes, eta: float
    ) -> LocationState:
        """The state one step on, when the outputs told η between any two states."""
        # the reversed law behind the factor is that of the first law, not of a known start
        known = before.known_start
        factor = 1.0 if known else self._runtime.forgetting.factor(before.time)
        here, path = carried(before.loss_here, factor) + eta, before.loss_path + eta
        after: LocationState = unchecked(
            LocationState, before.time + 1, belief, packed, here, path, known
        )
        return after

    def _release(
        self,
        after: LocationState,
        told: StepResult,
        guarantee: Guarantee | None,
        outputs: int,
        secure: bool,
    ) -> LocationRelease:
        query, found = self.query, told.seen
        names, far = query.states, found.best < -FAR * outputs
        release: LocationRelease = unchecked(
            LocationRelease,
            after.time,
            told.z,
            query.step,
            query.labels,
            query.unit,
            found.estimate,
            tuple([(names[place], share) for place, share in found.top]),
            found.spread,
            told.possible,
            found.degree,
            tuple([(names[a], names[b]) for a, b in told.added]),
            guarantee,
            after.loss_here,
            after.loss_path,
            _warnings(told.possible, told.joined, told.tells, far),
            secure,
        )
        return release

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


def step_promise(places: Secrets, epsilon: Fraction) -> Guarantee:
    """What one step promises about `places` when `epsilon` is spent in all."""
    over = f"{places.subject}, for an adversary who knows the chain and the policy"
    return Guarantee(notion=places.notion, amount=epsilon, over=over)


def _made_again(*fields: Any) -> LocationMachine:
    names = ("chain", "query", "places", "epsilon", "noise")
    return LocationMachine(**dict(zip(names, fields, strict=True)))


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
