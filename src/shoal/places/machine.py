"""The machine of location streams: follow the belief, cut and repair the policy, release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Value, locked
from shoal.core.errors import InputError
from shoal.core.guarantee import Guarantee
from shoal.core.numbers import positive, significant
from shoal.core.rng import Rng
from shoal.core.task import Model, Secrets
from shoal.places.live import LiveSteps, StepResult, live_steps
from shoal.places.locate import Reading
from shoal.places.queries import Measurement
from shoal.places.release import (
    FAR_OFF,
    NOTHING_LEFT,
    ON_A_LINE,
    POLICY_SILENT,
    Draft,
    LocationRelease,
)
from shoal.places.runtime import (
    Belief,
    Bytes,
    Posterior,
    Reached,
    Runtime,
    StepPrior,
    carried,
    seen,
    single_precision,
)
from shoal.places.step import NOISES, Places, StepNoise

FAR = 20.0  # noise is this many multiples of 1/ε away with probability below 1e-6 in the plane

Outputs = Sequence[tuple["LocationMachine", Sequence[int]]]


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
    about_now: float = 0.0
    about_all: float = 0.0
    known_start: bool = False

    def __post_init__(self) -> None:
        # arrays that are locked already are shared, not copied: many streams have equal supports
        for name, dtype in (("belief", np.float32), ("support", np.uint8)):
            array = getattr(self, name)
            shared = isinstance(array, np.ndarray) and array.dtype == dtype
            # a view could be unlocked through what it is a view of, and would keep that alive
            if not shared or array.flags.writeable or array.base is not None:
                object.__setattr__(self, name, locked(array, dtype))


def following(
    time: int,
    belief: Belief,
    support: Bytes,
    about_now: float,
    about_all: float,
    known_start: bool,
) -> LocationState:
    """The state of arrays known to be locked and their own: skips the check of the constructor."""
    state, put = object.__new__(LocationState), object.__setattr__
    put(state, "time", time)
    put(state, "belief", belief)
    put(state, "support", support)
    put(state, "about_now", about_now)
    put(state, "about_all", about_all)
    put(state, "known_start", known_start)
    return state


class HasRuntime(Value):
    """A value that keeps what follows from its fields; not stored, made again on load."""

    __slots__ = ("_live", "_runtime")
    _runtime: Runtime
    _live: LiveSteps | None

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
        object.__setattr__(self, "_live", live_steps(self._runtime, self.query))

    def __reduce__(self) -> tuple[Any, ...]:
        """What other processes need to make the machine again: its fields, not what it keeps."""
        return _made_again, (self.chain, self.query, self.places, self.epsilon, self.noise)

    def init(self, start: Any = None) -> LocationState:
        """Before the first step; with `start`, after a first step whose state everybody knows."""
        motion = self.runtime.motion
        if start is None:
            belief, time = motion.begin(), 0
        else:
            if motion.memory > 1:
                raise InputError("start is given, but the chain has a longer memory; leave it out")
            belief, time = np.zeros(motion.hidden), 1
            belief[self.runtime.atlas.state_of(start)] = 1.0
        support = self.runtime.packed(belief > 0)
        return LocationState(time, single_precision(belief), support, known_start=start is not None)

    def step(
        self, state: LocationState, observed: Reading, rng: Rng
    ) -> tuple[LocationState, LocationRelease]:
        """The state after this step, and what may be shown. None observed: a skipped step."""
        secure = rng.secure
        if observed is not None and self._live is not None:
            place = self._runtime.atlas.state_of(observed)
            reached = self._runtime.reach(state.time, state.support)
            told, rng = self._live.step(state.time, state.belief, reached, place, rng)
            if told is not None:
                return self._after(state, reached, told, secure)
        scene = self.scene(state)
        z = None if observed is None else self._drawn(scene, observed, rng)
        return self._absorbed(state, scene, () if z is None else ((self, z),), secure)

    def answer(self, state: LocationState, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        """One output for the state observed; None when only one state is possible."""
        return self._drawn(self.scene(state), observed, rng)

    def absorb(
        self, state: LocationState, outputs: Outputs, *, secure: bool = True
    ) -> tuple[LocationState, LocationRelease]:
        """The state after outputs that were drawn, by this machine first: public, no randomness.

        Several machines on the same chain and policy may answer at one step, with noise as in
        `stages`; epsilons add. Xiao & Xiong 2016, Theorem 7.1.
        """
        return self._absorbed(state, self.scene(state), outputs, secure)

    def stages(self, state: LocationState, machines: Sequence[LocationMachine]) -> list[StepNoise]:
        """The noise of each machine at the next step, when all of them answer, this one first.

        One repair serves all: whoever protects a state protects it in every answer.
        """
        return self._stages(self.scene(state), machines)

    def scene(self, state: LocationState) -> StepPrior:
        """Prior, support and stage of the next step."""
        return self.runtime.scene(state.time, state.belief, state.support)

    def _drawn(self, scene: StepPrior, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        place = self.runtime.atlas.state_of(observed)
        if scene.stage.count < 2:
            return None
        return scene.stage.law.draw(place, rng)

    def _absorbed(
        self, state: LocationState, scene: StepPrior, outputs: Outputs, secure: bool
    ) -> tuple[LocationState, LocationRelease]:
        runtime, stage = self.runtime, scene.stage
        stages = self._stages(scene, [machine for machine, _ in outputs]) if outputs else []
        given = [(each, z) for each, (_, z) in zip(stages, outputs, strict=True)]
        found = seen(runtime, self.query, state.time, scene, given)
        unchanged = found.support is scene.support
        after = self._state(
            state,
            found.belief,
            scene.packed if unchanged else runtime.packed(found.support),
            sum(each.spread for each in stages),
        )
        tells = any(each.tells for each in stages or [stage])
        return after, self._release(
            after,
            found,
            tuple(int(k) for k in outputs[0][1]) if outputs else None,
            stage.count,
            (stages or [stage])[0].added,
            runtime.guarantee(tuple(machine.epsilon for machine, _ in outputs)),
            _warnings(stage.count, stage.joined, tells, found.best < -FAR * len(outputs)),
            secure,
        )

    def _after(
        self, state: LocationState, reached: Reached, told: StepResult, secure: bool
    ) -> tuple[LocationState, LocationRelease]:
        """The same for one output of this machine that compiled code has drawn and absorbed."""
        found, z, count, joined, eta, added = told
        after = self._state(state, found.belief, reached.packed, eta)
        return after, self._release(
            after,
            found,
            z,
            count,
            added,
            self._runtime.promise,
            _warnings(count, joined, False, found.best < -FAR),
            secure,
        )

    def _state(
        self, before: LocationState, belief: Belief, packed: Bytes, eta: float
    ) -> LocationState:
        """The state one step on, when the outputs told η between any two states."""
        # the reversed law behind the factor is that of the first law, not of a known start
        known = before.known_start
        factor = 1.0 if known else self._runtime.forgetting.factor(before.time)
        return following(
            before.time + 1,
            belief,
            packed,
            carried(before.about_now, factor) + eta,
            before.about_all + eta,
            known,
        )

    def _stages(self, scene: StepPrior, machines: Sequence[LocationMachine]) -> list[StepNoise]:
        if len(machines) == 1 and machines[0] is self:
            return [scene.stage]
        questions = [machine.runtime.question for machine in machines]
        return self.runtime.stages(scene.stage.members, questions)

    def _release(
        self,
        after: LocationState,
        found: Posterior,
        z: tuple[int, ...] | None,
        possible: int,
        added: list[list[int]],
        guarantee: Guarantee | None,
        warnings: tuple[str, ...],
        secure: bool,
    ) -> LocationRelease:
        query = self.query
        names = query.states
        release = Draft()
        release.time = after.time
        release.z = z
        release.step = query.step
        release.labels = query.labels
        release.unit = query.unit
        release.estimate = found.estimate
        release.likely = tuple([(names[place], share) for place, share in found.top])
        release.spread = found.spread
        release.possible = possible
        release.degree = found.degree
        release.added = tuple([(names[a], names[b]) for a, b in added])
        release.guarantee = guarantee
        release.about_now = after.about_now
        release.about_all = after.about_all
        release.warnings = warnings
        release.secure = secure
        return release.done()

    def promise(self, epsilon: Fraction) -> Guarantee:
        """The guarantee of one step at which `epsilon` is spent in all."""
        return step_promise(self.places, epsilon)

    def describe(self) -> str:
        return (
            f"at every step {self.noise} noise at epsilon = {significant(self.epsilon)} on "
            f"{' and '.join(self.query.labels)} ({self.query.unit}), shaped by the policy among "
            f"the states still possible; the estimate is the best under {self.query.estimate} error"
        )


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
