"""A location stream through time: readings, skipped steps, several questions, one charge a step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from shoal.core.charge import (
    Charge,
    Ledger,
    Rng,
    StreamStep,
    empty_history,
    output_key,
    source_for,
)
from shoal.core.codec import Floats, build_unchecked
from shoal.core.errors import BudgetError, InputError, OtherHistory, StoredError
from shoal.core.plan import (
    STREAM,
    Answer,
    Fresh,
    Late,
    Outcome,
    Plan,
    Release,
    Repeated,
    Stream,
)
from shoal.core.stream import Denied, Price, Slot, Step, Stored, look_up, run_batch
from shoal.events.secrets import Events
from shoal.places.events import Offered, Watched, guard_of, replay
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.packed import (
    Kept,
    LocationRelease,
    LocationState,
    from_bytes,
    mark_of,
    refuse_other_size,
    shown_again,
    shown_bytes,
    to_bytes,
)
from shoal.places.rows import add_event_watch as with_events
from shoal.places.runtime import StepPrior
from shoal.places.step import StepNoise

StepPair = tuple["LocationStream", LocationRelease]


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
class LocationStream(Stream):
    """One person's stream; reading returns the next stream, so it can be stored and taken up again.

    The state is made from what was released, so it is no more private than that. `last` is the
    place of the last reading that was taken by its place (`take`), `shown` what the last step
    showed: an output that was lost on its way can be fetched again.
    """

    kind = "location-stream"

    state: LocationState
    last: int | None = field(default=None, metadata={"later": True})
    shown: LocationRelease | None = field(default=None, metadata={"later": True})
    watched: Watched | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse a stored stream without a plan and a state, or with losses that are no numbers."""
        plan: Any = self.plan
        state: Any = self.state
        if not (isinstance(plan, Plan) and isinstance(state, LocationState)):
            raise StoredError("a stored stream of places has no plan or no state; was it changed?")
        losses = (state.loss_here, state.loss_path)
        if type(state.time) is not int or not all(isinstance(one, int | float) for one in losses):
            raise StoredError("a stored stream says where it stands in no numbers; was it changed?")

    @classmethod
    def begin(
        cls,
        plan: Plan,
        start: Any = None,
        *,
        events: Events | None = None,
        event_epsilon: Any = None,
        **watch: Any,
    ) -> LocationStream:
        """Before the first step; `start` is a public first position.

        With `events` no output moves the log-odds of one of them by more than `event_epsilon` (a
        number, or one for each), over the whole stream: each step takes the largest ε of a fixed
        list at which that holds for every output it could have, or is skipped. `watch` may name
        `epsilons` (the list), `slots`, and for windows by the clock `slot_minutes` and
        `start_minute`, counted from Monday 00:00. A plan whose policy is `watching` events needs
        none of these. Proof: location_events.md.
        """
        if (events is None) != (event_epsilon is None) or (watch and events is None):
            raise InputError("events and event_epsilon go together; give both or neither")
        asked = plan if events is None else with_events(plan, events, event_epsilon, **watch)
        machine = machine_of(asked)
        state, wanted = machine.init(start), machine.watch
        if wanted is None:
            return cls(asked, state)
        wanted = replace(wanted, start=machine.known(start))
        held = guard_of(asked, wanted).begin()
        return cls(asked, state, watched=Watched(wanted, held, 0, empty_history(wanted.start)))

    @property
    def machine(self) -> LocationMachine:
        return machine_of(self.plan)

    def read(self, observed: Any, *, rng: Rng | None = None, **account: Any) -> StepPair:
        """The stream after a reading, and what may be shown.

        `observed` is a state's name or (latitude, longitude); None skips the step. `account` names
        ledger, subject, period, requester and key: the step is then charged first and drawn in
        the same transaction, and the same key gives the stored output again. A step at which only
        one state is possible releases nothing and costs nothing.

        A stream that watches events takes neither key nor requester. Begun again with the same
        readings missing it gets its stored outputs and goes on after them; with others it is
        refused (OtherHistory). `at` says when the reading was taken, where steps are counted by
        readings: a step of another reading is then refused too.
        """
        return self.ask(observed, (), rng=rng, **account)

    def take(self, observed: Any, *, at: int, **options: Any) -> tuple[LocationStream, Outcome]:
        """The stream after a reading that has its place in an order, and what became of it.

        `at` grows from reading to reading (a time stamp, a number) and makes a retry harmless: the
        reading taken last gives its output again, an earlier one is late. `options` as for `read`.
        """
        if self.last is not None and at <= self.last:
            again = at == self.last and self.shown is not None
            return self, Repeated(self.shown) if again else Late(self.last)
        if options.get("ledger") is not None and self.watched is not None:
            options = {"at": str(at), **options}
        moved, release = self.read(observed, **options)
        return replace(moved, last=at), Fresh(release)

    def recovered(self, ledger: Ledger, **names: Any) -> StepPair | None:
        """The stream after a step that was charged under `key` and never returned; None: there is
        none.

        For a stop between charge and storing the stream: the ledger holds the output.
        """

        price = self.price(Slot(**names))
        if price.charge is None:
            return None
        verdict = look_up(ledger, price.charge)
        if isinstance(verdict, Denied) and not isinstance(verdict.reason, BudgetError):
            raise verdict.reason
        if not isinstance(verdict, Stored) or verdict.output is None:
            return None
        moved = self.absorb(price, LocationOutput(verdict.output.answer.multiples, True))
        return moved, moved.released()

    def released(self) -> LocationRelease:
        """Return what the last step showed."""
        if self.shown is None:
            raise InputError("the stream has shown nothing yet; read a first step")
        return self.shown

    def to_bytes(self) -> bytes:
        """Where the stream stands, without the plan: some 2 kB where its JSON has 88."""
        shown = b"" if self.shown is None else shown_bytes(self.shown)
        return to_bytes(self.kept()._replace(shown=shown))

    def kept(self) -> Kept:
        """What `to_bytes` packs, without what the last step showed."""
        if self.watched is None:
            return Kept(self.state, self.last)
        own, mark = self.watched, mark_of(self.plan)
        start = own.watch.start
        return Kept(self.state, self.last, b"", own.held, start, mark, own.drawn, own.history)

    @classmethod
    def from_bytes(cls, plan: Plan, stored: bytes) -> LocationStream:
        """The stream of `plan` that `to_bytes` stored; StoredError when it is not one."""
        if stored[: len(STREAM)] == STREAM:
            return super(LocationStream, cls).from_bytes(plan, stored)
        return cls.of(
            plan, refuse_other_size(from_bytes(stored), machine_of(plan).runtime.motion.hidden)
        )

    @classmethod
    def of(cls, plan: Plan, kept: Kept) -> LocationStream:
        """The stream of `plan` that stands where `kept` says; StoredError for another plan's."""
        machine, watched = machine_of(plan), None
        if (machine.watch is not None) != bool(kept.held) or kept.mark not in (b"", mark_of(plan)):
            raise StoredError("the stored stream belongs to another plan; give that plan")
        if machine.watch is not None:
            watch = replace(machine.watch, start=kept.start)
            watched = Watched(watch, kept.held, kept.drawn, kept.history)
        return cls(plan, kept.state, kept.last, shown_again(machine, kept.shown), watched)

    def ask(
        self,
        observed: Any,
        others: Sequence[Plan],
        *,
        rng: Rng | None = None,
        ledger: Ledger | None = None,
        **names: Any,
    ) -> StepPair:
        """One step at which several measurements are released; their epsilons add.

        `others` are plans on the same chain and policy with other queries or noise. One repair
        serves all, so that a state that protects another does so in every answer. The release shows
        this stream's own `z`; estimate, warnings and degree of protection are of all together.
        Each charge carries what its own output tells between any two states.
        Xiao & Xiong 2016, Theorem 7.1.
        """
        source, machine = source_for(ledger, rng), machine_of(self.plan)
        place = machine.known(observed)
        account = {} if ledger is None else names
        slot = Slot(read=place is not None, **account)
        if not others:
            (result,) = run_batch([Step(self, slot, place)], ledger, source)
            moved = result.after()
            return moved, moved.released()
        self._refuse_mixed_plans(others)
        if place is None or machine.prior(self.state).noise.count < 2:
            return self.skip()
        plans = (self.plan, *others)
        noises = machine.noises(self.state, [machine_of(plan) for plan in plans])
        asked = [
            Step(LocationQuestion(plan, noise), slot if number == 0 else _part(slot, number), place)
            for number, (plan, noise) in enumerate(zip(plans, noises, strict=True))
        ]
        answers = [result.after() for result in run_batch(asked, ledger, source)]
        outputs = [(machine_of(one.plan), one.z or ()) for one in answers]
        state, release = machine.absorb(self.state, outputs, secure=source.secure)
        return self._advance_to(state, release, None), release

    def price(self, slot: Slot) -> Price:
        """Return what the next step costs and the noise it draws with: both follow from outputs.

        A stream that watches events has one output a step for all callers. Its outputs are charged
        under keys made of their number: drawn twice, the two would tell more of an event than is
        promised, and no rule of the ledger could add them.
        """
        law = self._law(read=slot.read)
        if law.noise is None or not slot.subject:
            return Price(slot, None, law)
        if self.watched is not None and (slot.requester or slot.key is not None):
            raise InputError(
                "the stream watches events, so a step has one output whoever asks; leave key and "
                "requester out"
            )
        step = self._next_output(law.offered, slot.at)
        charge = _charge(
            self.plan, slot, law.noise.eta, law_name(law.noise) if step is None else ""
        )
        return Price(slot, charge if step is None else of_output(charge, step), law)

    def draw(self, price: Price, reading: int | None, rng: Rng) -> LocationOutput:
        """Return the noisy answer at a state, by its index; nothing where the law is none."""
        noise: StepNoise | None = price.law.noise
        if noise is None or reading is None:
            return LocationOutput(None, rng.secure)
        return LocationOutput(noise.law.draw(reading, rng), rng.secure)

    def absorb(self, price: Price, output: LocationOutput) -> LocationStream:
        """Return the stream after an output: the belief follows it, without randomness."""
        machine, law, (z, secure) = self.machine, price.law, output
        if self.watched is None or law.offered is None:
            outputs = () if z is None else ((machine, z),)
            after = machine.absorb(self.state, outputs, secure=secure, prior=law.prior)
            return self._advance_to(*after, None)
        guard = guard_of(self.plan, self.watched.watch)
        step = self._next_output(law.offered, price.slot.at)
        state, release, held = guard.absorb(self.state, law.offered, z, secure=secure)
        watched = replace(self.watched, held=held)
        if z is not None and step is not None:
            history = step.after(z) if step.before else ""
            watched = replace(watched, drawn=step.number + 1, history=history)
        return self._advance_to(state, release, watched)

    def to_release(self, price: Price, drawn: LocationOutput) -> Release:
        """Return an output as a ledger stores it."""
        return output(self.plan, drawn.z)

    def resume(
        self, price: Price, reading: int | None, stored: Release, rng: Rng
    ) -> LocationOutput:
        """Return the output that a ledger stored of this step."""
        return LocationOutput(stored.answer.multiples, True)

    def _law(self, *, read: bool) -> LocationLaw:
        """Return the noise the next step draws with, None for nothing; public."""
        if self.watched is not None:
            guard = guard_of(self.plan, self.watched.watch)
            offered = guard.offer(self.state, self.watched.held, read=read)
            return LocationLaw(offered.noise, offered, None)
        prior = self.machine.prior(self.state)
        return LocationLaw(prior.noise if read and prior.noise.count > 1 else None, None, prior)

    def _next_output(self, offered: Offered | None, at: str) -> StreamStep | None:
        """Return where the output of an offered step stands in the stream's history.

        `at` is when its reading was taken, in words, where steps are counted by readings. None
        where the stream watches no events. The history of a stream that a version up to 0.2 stored
        is not known, and `before` is then empty, which no ledger takes.
        """
        if self.watched is None or offered is None or offered.choice is None:
            return None
        return StreamStep(
            number=self.watched.drawn,
            before=self.watched.history,
            time=self.state.time,
            epsilon=offered.choice.epsilon,
            at=at,
        )

    def _advance_to(
        self, state: LocationState, release: LocationRelease, watched: Watched | None
    ) -> LocationStream:
        """Return the stream at the next state with its release, without checking them again."""
        moved: LocationStream = build_unchecked(
            LocationStream, self.plan, state, self.last, release, watched
        )
        return moved

    def event_beliefs(self) -> tuple[float, ...]:
        """What somebody who knows the chain and all outputs believes of each event watched."""
        if self.watched is None:
            raise InputError("the stream watches no events; begin it with events and event_epsilon")
        guard = guard_of(self.plan, self.watched.watch)
        if not self.state.time:
            return tuple(guard.priors)
        return guard.beliefs(self.watched.held, self.state.time - 1)

    def skip(self, steps: int = 1) -> StepPair:
        """The stream after steps at which nothing is released: the belief moves on."""
        if steps < 1:
            raise InputError(f"steps is {steps}; skip at least one")
        moved = self
        for _ in range(steps):
            moved, release = moved.read(None)
        return moved, release

    def aside(self, observed: Any) -> Aside:
        """For the person alone, before the reading is released: drift and degree of protection."""
        machine = self.machine
        noise = machine.prior(self.state).noise
        place = machine.runtime.locator.state_of(observed)
        answering = int(noise.answering[place])
        names = machine.query.states
        held = noise.degree(answering)
        return Aside(names[place], names[answering], not noise.members[place], held)

    def _refuse_mixed_plans(self, others: Sequence[Plan]) -> None:
        """Refuse plans of other models or policies, and plans that watch events, in one step."""
        machine = self.machine
        for plan in (self.plan, *others):
            other = machine_of(plan)
            other.refuse_events("a step with several questions")
            if (other.chain, other.places) != (machine.chain, machine.places):
                raise InputError("the plans have different models or policies; one step needs one")


def step_key(subject: str, period: str, plan: Plan, time: int) -> str:
    """The key of a step of a stream that watches no events: sent again it gives what was stored."""
    return json.dumps([subject, period, plan.fingerprint, time], ensure_ascii=False)


class LocationOutput(NamedTuple):
    """What one step drew, in lattice steps (None: nothing), and whether it is unpredictable."""

    z: tuple[int, ...] | None
    secure: bool


class LocationLaw(NamedTuple):
    """What is public about a step: its noise (None: nothing is drawn) and where it comes from.

    `offered` is set in a stream that watches events, `prior` in the others.
    """

    noise: StepNoise | None
    offered: Offered | None
    prior: StepPrior | None


@dataclass(frozen=True, slots=True)
class LocationQuestion:
    """One of several measurements that are released at one step, each charged by itself."""

    plan: Plan
    noise: StepNoise
    z: tuple[int, ...] | None = None

    def price(self, slot: Slot) -> Price:
        """Return the charge of this answer: what it tells between any two states."""
        if not slot.subject:
            return Price(slot, None)
        return Price(slot, _charge(self.plan, slot, self.noise.eta, law_name(self.noise)))

    def draw(self, price: Price, reading: int, rng: Rng) -> tuple[int, ...]:
        """Return the noisy answer at a state, by its index."""
        drawn: tuple[int, ...] = self.noise.law.draw(reading, rng)
        return drawn

    def absorb(self, price: Price, output: tuple[int, ...]) -> LocationQuestion:
        """Return the question with its answer."""
        return replace(self, z=output)

    def to_release(self, price: Price, drawn: tuple[int, ...]) -> Release:
        """Return the answer as a ledger stores it."""
        return output(self.plan, drawn)

    def resume(self, price: Price, reading: int, stored: Release, rng: Rng) -> tuple[int, ...]:
        """Return the answer that a ledger stored."""
        return stored.answer.multiples


def _part(slot: Slot, number: int) -> Slot:
    """Return the slot of the `number`-th answer of one step; the first has the key itself."""
    return slot if slot.key is None else replace(slot, key=f"{slot.key}/{number}")


def _charge(plan: Plan, slot: Slot, eta: Fraction | None, noise: str) -> Charge:
    """Return the charge of an output that tells η; `noise` names the law of one without."""
    return Charge(
        plan=plan,
        subject=slot.subject,
        period=slot.period,
        requester=slot.requester,
        key=slot.key,
        part=slot.part,
        eta=eta,
        noise=noise,
    )


def law_name(noise: StepNoise) -> str:
    """Return a hash of what the law of a step without an eta follows from; empty where it has one.

    Such outputs rule states out, so a stored one may be absorbed under its own law only.
    """
    if noise.eta is not None:
        return ""
    content = noise.members.tobytes() + noise.answering.tobytes() + repr(noise.added).encode()
    return hashlib.sha256(content).hexdigest()[:32]


def of_output(charge: Charge, step: StreamStep) -> Charge:
    """Return the charge as that of one output of a stream that watches events: its key is its own.

    Refused (OtherHistory) where a version up to 0.2 stored the stream without its history.
    """
    if not step.before:
        raise OtherHistory(
            f"the stream of {charge.subject!r} was stored by a version up to 0.2, which did not "
            "note which outputs its beliefs of the events follow from",
            ("begin it again in the next period (a new day or week)",),
        )
    key = output_key(charge.subject, charge.period, charge.plan.fingerprint, step.number)
    return replace(charge, key=key, step=step)


def output(plan: Plan, z: Sequence[int] | None) -> Release:
    """The output of a step as a ledger stores it."""
    query = machine_of(plan).query
    multiples = tuple(int(k) for k in z or ())
    return plan.released(Answer(query.labels, multiples, query.step, query.unit), secure=True)


def output_log_likelihoods(
    plan: Plan, outputs: Sequence[Sequence[int] | None], *, start: Any = None
) -> Floats:
    """log P(z_t | X_t = s), one row a step, of a stream that released `outputs`; None: skipped.

    Public: the stream is followed again from its outputs alone. What `baum_welch` takes.
    """
    rows = np.zeros((len(outputs), len(machine_of(plan).query.states)))
    for row, step in zip(rows, replay(plan, outputs, start), strict=True):
        if step.z is not None:
            row[:] = step.noise.law.log_likelihood(step.z)
    return rows
