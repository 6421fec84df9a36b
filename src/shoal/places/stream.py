"""A location stream through time: readings, skipped steps, several questions, one charge a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shoal.core.codec import Floats, Value
from shoal.core.errors import InputError
from shoal.core.plan import Answer, Charge, Ledger, Plan, Release, source_for
from shoal.core.rng import Rng
from shoal.places.machine import LocationMachine, LocationState
from shoal.places.release import LocationRelease
from shoal.places.rows import machine_of
from shoal.places.step import StepNoise

Step = tuple["LocationStream", LocationRelease]


class Aside(NamedTuple):
    """What only the person may know about a step: it depends on where they are.

    `drifted`: the true state is not among those the step protects, so the nearest one answers.
    `degree`: the degree of protection of the state that answers.
    """

    state: str
    answering: str
    drifted: bool
    degree: int


@dataclass(frozen=True, slots=True, eq=False)
class LocationStream(Value):
    """One person's stream; reading returns the next stream, so it can be stored and taken up again.

    The state is made from what was released, so it is no more private than that.
    """

    plan: Plan
    state: LocationState

    @classmethod
    def begin(cls, plan: Plan, start: Any = None) -> LocationStream:
        """Before the first step; `start` is a first position that everybody knows already."""
        return cls(plan, machine_of(plan).init(start))

    @property
    def machine(self) -> LocationMachine:
        return machine_of(self.plan)

    def read(self, observed: Any, *, rng: Rng | None = None, **account: Any) -> Step:
        """The stream after a reading, and what may be shown.

        `observed` is a state's name or (latitude, longitude); None skips the step. `account` names
        ledger, subject, period, requester and key: the step is then charged first and drawn in
        the same transaction, and the same key gives the stored output again. A step at which only
        one state is possible releases nothing and costs nothing.
        """
        return self.ask(observed, (), rng=rng, **account)

    def ask(
        self,
        observed: Any,
        others: Sequence[Plan],
        *,
        rng: Rng | None = None,
        ledger: Ledger | None = None,
        subject: str = "",
        period: str = "",
        requester: str = "",
        key: str | None = None,
    ) -> Step:
        """One step at which several measurements are released; their epsilons add.

        `others` are plans on the same chain and policy with other queries or noise. One repair
        serves all, so that whoever protects a state does so in every answer. The release shows
        this stream's own `z`; estimate, warnings and degree of protection are of all together.
        Each charge carries what its own output tells between any two states.
        Xiao & Xiong 2016, Theorem 7.1.
        """
        source = source_for(ledger, rng)
        plans = (self.plan, *others)
        self._check(plans)
        if observed is not None and ledger is None and not others:
            return self._after(self.machine.step(self.state, observed, source))
        if observed is None or self.machine.scene(self.state).stage.count < 2:
            return self.skip()
        outputs = []
        stages = self.machine.stages(self.state, [machine_of(plan) for plan in plans])
        for place, (plan, stage) in enumerate(zip(plans, stages, strict=True)):
            draw = partial(self._release, plan, stage, observed, source)
            if ledger is None:
                release = draw()
            else:
                own = None if key is None else f"{key}/{place}" if place else key
                charge = Charge(
                    plan=plan,
                    subject=subject,
                    period=period,
                    requester=requester,
                    key=own,
                    eta=stage.eta,
                )
                release = ledger.settle(charge, draw)
            outputs.append((machine_of(plan), release.answer.multiples))
        return self._after(self.machine.absorb(self.state, outputs, secure=source.secure))

    def skip(self, steps: int = 1) -> Step:
        """The stream after steps at which nothing is released: the belief moves on."""
        if steps < 1:
            raise InputError(f"steps is {steps}; skip at least one")
        state = self.state
        for _ in range(steps):
            state, release = self.machine.absorb(state, ())
        return self._after((state, release))

    def aside(self, observed: Any) -> Aside:
        """For the person alone, before the reading is released: drift and degree of protection."""
        machine = self.machine
        stage = machine.scene(self.state).stage
        place = machine.runtime.atlas.state_of(observed)
        answering = int(stage.answering[place])
        names = machine.query.states
        held = stage.degree(answering)
        return Aside(names[place], names[answering], not stage.members[place], held)

    def _after(self, moved: tuple[LocationState, LocationRelease]) -> Step:
        return replace(self, state=moved[0]), moved[1]

    def _check(self, plans: tuple[Plan, ...]) -> None:
        machine = self.machine
        for plan in plans[1:]:
            other = machine_of(plan)
            if (other.chain, other.places) != (machine.chain, machine.places):
                raise InputError("the plans have different models or policies; one step needs one")

    def _release(self, plan: Plan, stage: StepNoise, observed: Any, rng: Rng) -> Release:
        query, place = machine_of(plan).query, self.machine.runtime.atlas.state_of(observed)
        answer = Answer(query.labels, stage.law.draw(place, rng), query.step, query.unit)
        return plan.released(answer, secure=rng.secure)


def emissions(plan: Plan, outputs: Sequence[Sequence[int] | None], *, start: Any = None) -> Floats:
    """log P(z_t | X_t = s), one row a step, of a stream that released `outputs`; None: skipped.

    Public: the stream is followed again from its outputs alone. What `baum_welch` takes.
    """
    machine = machine_of(plan)
    state = machine.init(start)
    rows = np.zeros((len(outputs), len(machine.query.states)))
    for t, z in enumerate(outputs):
        if z is not None:
            rows[t] = machine.scene(state).stage.law.log_likelihood(z)
        state, _ = machine.absorb(state, () if z is None else ((machine, z),))
    return rows
