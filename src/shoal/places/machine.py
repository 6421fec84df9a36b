"""The machine of location streams: follow the belief, cut and repair the policy, release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from shoal.core.charge import Guarantee, Rng
from shoal.core.codec import Value, build_unchecked
from shoal.core.errors import InputError
from shoal.core.numbers import positive, significant
from shoal.core.plan import Plan
from shoal.core.task import Model, Secrets
from shoal.places.map import Grid
from shoal.places.packed import LocationRelease, LocationState
from shoal.places.queries import EventWatch, Measurement
from shoal.places.runtime import (
    Bytes,
    Posterior,
    Reading,
    Runtime,
    StepPrior,
    posterior_after,
    propagate_loss,
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
Shaped = tuple[int, bool, float, list[list[int]]]  # of a step's noise |C|, `joined`, η, repairs
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

    def __post_init__(self) -> None:
        """Refuse an unknown noise or an epsilon not above 0, and build what all steps share."""
        if self.noise not in NOISES:
            raise InputError(f"noise is {self.noise!r}; it must be one of {list(NOISES)}")
        object.__setattr__(self, "epsilon", positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "watch", self.places.watch)
        runtime = Runtime(self)
        object.__setattr__(self, "runtime", runtime)

    def __reduce__(self) -> tuple[Any, ...]:
        """What other processes need to make the machine again: its fields, not what it keeps."""
        made = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        return partial(LocationMachine, **made), ()

    def known(self, observed: Any) -> int | None:
        """The number of the state of a reading, or of a start; None when there is none."""
        return None if observed is None else self.runtime.locator.state_of(observed)

    def refuse_events(self, who: str) -> None:
        """Refuses a policy that watches events, in the caller's name."""
        if self.watch is not None:
            raise InputError(
                f"the policy watches events, which {who} does not follow; read the stream with "
                "shoal.LocationStream or `shoal stream`, or leave the events out"
            )

    def init(self, start: Any = None) -> LocationState:
        """Before the first step; with `start`, after a first step whose state is public."""
        motion = self.runtime.motion
        if start is None:
            belief, time = motion.begin(), 0
        else:
            if motion.memory > 1:
                raise InputError("start is given, but the chain has a longer memory; leave it out")
            belief, time = np.zeros(motion.hidden), 1
            belief[self.runtime.locator.state_of(start)] = 1.0
        support = self.runtime.pack_support(belief > 0)
        return LocationState(time, single_precision(belief), support, known_start=start is not None)

    def step(
        self, state: LocationState, observed: Reading, rng: Rng
    ) -> tuple[LocationState, LocationRelease]:
        """Return the state after this step, and what may be shown; None observed: it is skipped.

        A pure function of its arguments and the words of `rng`. Charged steps go through
        `shoal.core.stream.run_batch`.
        """
        if self.watch is not None:
            self.refuse_events("a step by itself")
        place, prior = self.known(observed), self.prior(state)
        outputs: Outputs = ()
        if place is not None and prior.noise.count > 1:
            outputs = ((self, prior.noise.law.draw(place, rng)),)
        return self.absorb(state, outputs, secure=rng.secure, prior=prior)

    def answer(self, state: LocationState, observed: Reading, rng: Rng) -> tuple[int, ...] | None:
        """One output for the state observed; None when only one state is possible."""
        noise, place = self.prior(state).noise, self.runtime.locator.state_of(observed)
        return noise.law.draw(place, rng) if noise.count > 1 else None

    def absorb(
        self,
        state: LocationState,
        outputs: Outputs,
        *,
        secure: bool = True,
        prior: StepPrior | None = None,
    ) -> tuple[LocationState, LocationRelease]:
        """The state after outputs that were drawn, by this machine first: public, no randomness.

        `prior` is that of the state, if it is known already.

        Several machines on the same chain and policy may answer at one step, with noise as in
        `noises`; epsilons add. Xiao & Xiong 2016, Theorem 7.1.
        """
        runtime, prior = self.runtime, prior or self.prior(state)
        machines = [machine for machine, _ in outputs]
        noises = self.noises(state, machines) if outputs else []
        given = [(each, z) for each, (_, z) in zip(noises, outputs, strict=True)]
        found = posterior_after(runtime, self.query, state.time, prior, given)
        packed = prior.packed
        if found.support is not prior.support:
            packed = runtime.pack_support(found.support)
        shown = noises or [prior.noise]
        eta = sum(each.spread for each in noises)
        shaped = prior.noise.count, prior.noise.joined, eta, shown[0].added
        odd = any(each.tells for each in shown), found.best < -NOISE_RARELY_FARTHER * len(outputs)
        z = tuple(int(k) for k in outputs[0][1]) if outputs else None
        spent = runtime.guarantee(tuple(machine.epsilon for machine in machines))
        return self._next_state(state, found, packed, z, shaped, odd, spent, secure)

    def noises(self, state: LocationState, machines: Sequence[LocationMachine]) -> list[StepNoise]:
        """The noise of each machine at the next step, when all of them answer, this one first.

        One repair serves all: a state that protects another protects it in every answer.
        """
        noise = self.prior(state).noise
        if len(machines) == 1:
            return [noise if machines[0] is self else machines[0].runtime.noise(noise.members)]
        questions = [machine.runtime.question for machine in machines]
        return self.runtime.noises(noise.members, questions)

    def prior(self, state: LocationState) -> StepPrior:
        """Belief, support and noise of the next step."""
        return self.runtime.prior(state.time, state.belief, state.support)

    def _next_state(
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
        """The state one step on, when the outputs reveal η between any two states, and the release.

        `odd`: whether outputs rule states out, and whether they lie far from what is believed.
        """
        (count, joined, eta, added), query, names = shaped, self.query, self.query.states
        # the reversed law behind the factor is that of the first law, not of a known start
        known, time = before.known_start, before.time + 1
        factor = 1.0 if known else self.runtime.forgetting.factor(before.time)
        here, path = propagate_loss(before.loss_here, factor) + eta, before.loss_path + eta
        after: LocationState = build_unchecked(
            LocationState, time, found.belief, packed, here, path, known
        )
        release: LocationRelease = build_unchecked(
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
    """Return the warnings of a step over `count` possible states, none in the ordinary case."""
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
