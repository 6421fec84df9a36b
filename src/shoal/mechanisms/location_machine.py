"""The machine of location streams: follow the belief, cut and repair the policy, release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.guarantee import Guarantee
from shoal.core.numbers import positive, significant
from shoal.core.rng import Rng
from shoal.core.task import Model
from shoal.core.value import Value, locked
from shoal.mechanisms.location_leakage import carried
from shoal.mechanisms.location_place import Reading
from shoal.mechanisms.location_release import (
    FAR_OFF,
    NOTHING_LEFT,
    ON_A_LINE,
    POLICY_SILENT,
    LocationRelease,
)
from shoal.mechanisms.location_runtime import Runtime, Scene
from shoal.mechanisms.location_seen import Seen, seen, single_precision
from shoal.mechanisms.location_stage import NOISES, Places, Stage
from shoal.queries.measurement import Measurement

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


class Running(Value):
    """A value that keeps what follows from its fields; not stored, made again on load."""

    __slots__ = ("_runtime",)
    _runtime: Runtime

    @property
    def runtime(self) -> Runtime:
        """What is kept between steps, by all streams of the machine together."""
        return self._runtime


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationMachine(Running):
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
        scene = self.scene(state)
        z = None if observed is None else self._drawn(scene, observed, rng)
        return self._absorbed(state, scene, () if z is None else ((self, z),), rng.secure)

    def answer(self, state: LocationState, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        """One output for the state observed; None when only one state is possible."""
        return self._drawn(self.scene(state), observed, rng)

    def absorb(
        self, state: LocationState, outputs: Outputs, *, secure: bool = True
    ) -> tuple[LocationState, LocationRelease]:
        """The state after outputs that were drawn, by this machine first: public, no randomness.

        Several machines on the same chain and policy may answer at one step; epsilons add.
        Xiao & Xiong 2016, Theorem 7.1.
        """
        return self._absorbed(state, self.scene(state), outputs, secure)

    def scene(self, state: LocationState) -> Scene:
        """Prior, support and stage of the next step."""
        return self.runtime.scene(state.time, state.belief, state.support)

    def _drawn(self, scene: Scene, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        place = self.runtime.atlas.state_of(observed)
        if scene.stage.count < 2:
            return None
        return scene.stage.law.draw(place, rng)

    def _absorbed(
        self, state: LocationState, scene: Scene, outputs: Outputs, secure: bool
    ) -> tuple[LocationState, LocationRelease]:
        runtime, time = self.runtime, state.time
        given = [(self._stage(machine, scene), z) for machine, z in outputs]
        found = seen(runtime, self.query, time, scene, given)
        eta = sum(stage.spread for stage, _ in given)
        # the reversed law behind the factor is that of the first law, not of a known start
        factor = 1.0 if state.known_start else runtime.forgetting.factor(time)
        unchanged = found.support is scene.support
        after = LocationState(
            time + 1,
            found.belief,
            scene.packed if unchanged else runtime.packed(found.support),
            carried(state.about_now, factor) + eta,
            state.about_all + eta,
            state.known_start,
        )
        return after, self._release(after, scene.stage, found, outputs, secure)

    def _stage(self, machine: LocationMachine, scene: Scene) -> Stage:
        """The stage of a machine that answers at this step."""
        return scene.stage if machine is self else machine.runtime.stage(scene.stage.members)

    def _release(
        self, after: LocationState, stage: Stage, found: Seen, outputs: Outputs, secure: bool
    ) -> LocationRelease:
        query = self.query
        names = query.states
        return LocationRelease(
            time=after.time,
            z=tuple(int(k) for k in outputs[0][1]) if outputs else None,
            step=query.step,
            labels=query.labels,
            unit=query.unit,
            estimate=found.estimate,
            likely=tuple((names[place], share) for place, share in found.top),
            spread=found.spread,
            possible=stage.count,
            degree=found.degree,
            added=tuple((names[a], names[b]) for a, b in stage.protected.added),
            guarantee=self.runtime.guarantee(tuple(machine.epsilon for machine, _ in outputs)),
            about_now=after.about_now,
            about_all=after.about_all,
            warnings=_warnings(stage, found.best < -FAR * len(outputs)),
            secure=secure,
        )

    def promise(self, epsilon: Fraction) -> Guarantee:
        """The guarantee of one step at which `epsilon` is spent in all."""
        return Guarantee(
            notion=self.places.notion,
            amount=epsilon,
            over=f"{self.places.subject}, for an adversary who knows the chain and the policy",
        )

    def describe(self) -> str:
        return (
            f"at every step {self.noise} noise at epsilon = {significant(self.epsilon)} on "
            f"{' and '.join(self.query.labels)} ({self.query.unit}), shaped by the policy among "
            f"the states still possible; the estimate is the best under {self.query.estimate} error"
        )


def _made_again(*fields: Any) -> LocationMachine:
    names = ("chain", "query", "places", "epsilon", "noise")
    return LocationMachine(**dict(zip(names, fields, strict=True)))


def _warnings(stage: Stage, far: bool) -> tuple[str, ...]:
    found = []
    if stage.count < 2:
        found.append(NOTHING_LEFT)
    elif not stage.joined:
        found.append(POLICY_SILENT)
    if stage.tells and stage.count > 1:
        found.append(ON_A_LINE)
    if far:
        found.append(FAR_OFF)
    return tuple(found)
