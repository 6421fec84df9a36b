"""A location stream through time: readings, skipped steps, several questions, one charge a step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shoal.core.charge import (
    Charge,
    Ledger,
    Rng,
    StreamStep,
    SystemRng,
    empty_history,
    output_key,
    source_for,
)
from shoal.core.codec import Floats, unchecked
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
from shoal.events.secrets import Events
from shoal.places.events import Offered, Watched, guard_of, replay
from shoal.places.machine import Draw, LocationMachine, machine_of
from shoal.places.packed import (
    Kept,
    LocationRelease,
    LocationState,
    checked,
    from_bytes,
    mark_of,
    shown_again,
    shown_bytes,
    to_bytes,
)
from shoal.places.rows import watched as with_events
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
        """Before the first step; `start` is a first position that everybody knows already.

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

    def read(self, observed: Any, *, rng: Rng | None = None, **account: Any) -> Step:
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

    def recovered(self, ledger: Ledger, **names: Any) -> Step | None:
        """The stream after a step that was charged under `key` and never told; None: there is none.

        For a stop between charge and storing the stream: the ledger holds the output.
        """

        account = self._account(_StoredOnly(ledger), names)
        anywhere = self.machine.query.states[0]  # nothing is drawn
        try:
            found = self._stepped(anywhere, SystemRng(), account)
        except (_NotStored, BudgetError):
            return None
        return None if found[1].z is None else found

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
        return cls.of(plan, checked(from_bytes(stored), machine_of(plan).runtime.motion.hidden))

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
    ) -> Step:
        """One step at which several measurements are released; their epsilons add.

        `others` are plans on the same chain and policy with other queries or noise. One repair
        serves all, so that whoever protects a state does so in every answer. The release shows
        this stream's own `z`; estimate, warnings and degree of protection are of all together.
        Each charge carries what its own output tells between any two states.
        Xiao & Xiong 2016, Theorem 7.1.
        """
        source, machine = source_for(ledger, rng), machine_of(self.plan)
        account = None if ledger is None else self._account(ledger, names)
        if not others:
            return self._stepped(observed, source, account)
        self._check(others)
        if observed is None or machine.prior(self.state).noise.count < 2:
            return self.skip()
        plans, place = (self.plan, *others), machine.runtime.locator.state_of(observed)
        noises = machine.noises(self.state, [machine_of(plan) for plan in plans])
        outputs = []
        for number, (plan, noise) in enumerate(zip(plans, noises, strict=True)):
            draw = partial(noise.law.draw, place, source)
            if account is None:
                z = draw()
            else:
                part, name = account.part(number), law_name(noise)
                z = part.settle(plan, noise.eta, draw, noise=name)
            outputs.append((machine_of(plan), z))
        return self._moved(*machine.absorb(self.state, outputs, secure=source.secure))

    def _account(self, ledger: Ledger, names: dict[str, Any]) -> StepAccount:
        """Who is charged; a stream that watches events has one output a step, whoever asks.

        Its outputs are charged under keys made of their number: drawn twice, the two would tell
        more of an event than is promised, and no rule of the ledger could add them.
        """
        account = StepAccount(ledger, **names)
        if self.watched is not None and (account.requester or account.key is not None):
            raise InputError(
                "the stream watches events, so a step has one output whoever asks; leave key and "
                "requester out"
            )
        return account

    def _stepped(self, observed: Any, source: Rng, account: StepAccount | None) -> Step:
        """A step with one question; with events at an ε at which no output tells too much."""
        machine = machine_of(self.plan)
        if self.watched is None:
            settle = None if account is None else partial(self._settled, account)
            return self._moved(*machine.step(self.state, observed, source, settle))
        place, z = machine.known(observed), None
        noise, offered = self.offer(read=place is not None)
        at = "" if account is None else account.at
        if noise is not None and place is not None:
            draw = partial(noise.law.draw, place, source)
            if account is None:
                z = draw()
            else:
                step = self.next_output(offered, at)
                z = account.settle(self.plan, noise.eta, draw, step)
        return self.absorb(offered, z, secure=source.secure, at=at)

    def _settled(self, account: StepAccount, eta: Fraction | None, draw: Draw) -> tuple[int, ...]:
        """The output of a step of a stream that watches no events: charged, or stored before."""
        noise = law_name(self.machine.prior(self.state).noise) if eta is None else ""
        return account.settle(self.plan, eta, draw, noise=noise)

    def next_output(self, offered: Offered | None, at: str = "") -> StreamStep | None:
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

    def offer(self, *, read: bool) -> tuple[StepNoise | None, Offered | None]:
        """The noise the next step draws with, None for nothing, and what `absorb` asks; public."""
        if self.watched is not None:
            guard = guard_of(self.plan, self.watched.watch)
            offered = guard.offer(self.state, self.watched.held, read=read)
            return offered.noise, offered
        noise = self.machine.prior(self.state).noise
        return noise if read and noise.count > 1 else None, None

    def absorb(
        self,
        offered: Offered | None,
        z: Sequence[int] | None,
        *,
        secure: bool = True,
        at: str = "",
    ) -> Step:
        """The stream after a step that drew `z`, None for nothing, from what was offered.

        `at` as for `next_output`.
        """
        machine = self.machine
        if self.watched is None or offered is None:
            outputs = () if z is None else ((machine, z),)
            return self._moved(*machine.absorb(self.state, outputs, secure=secure))
        guard, step = guard_of(self.plan, self.watched.watch), self.next_output(offered, at)
        state, release, held = guard.absorb(self.state, offered, z, secure=secure)
        watched = replace(self.watched, held=held)
        if z is not None and step is not None:
            history = step.after(z) if step.before else ""
            watched = replace(watched, drawn=step.number + 1, history=history)
        return self._moved(state, release, watched)

    def _moved(
        self, state: LocationState, release: LocationRelease, watched: Watched | None = None
    ) -> Step:
        moved: LocationStream = unchecked(
            LocationStream, self.plan, state, self.last, release, watched
        )
        return moved, release

    def event_beliefs(self) -> tuple[float, ...]:
        """What somebody who knows the chain and all outputs believes of each event watched."""
        if self.watched is None:
            raise InputError("the stream watches no events; begin it with events and event_epsilon")
        guard = guard_of(self.plan, self.watched.watch)
        if not self.state.time:
            return tuple(guard.priors)
        return guard.beliefs(self.watched.held, self.state.time - 1)

    def skip(self, steps: int = 1) -> Step:
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

    def _check(self, others: Sequence[Plan]) -> None:
        machine = self.machine
        for plan in (self.plan, *others):
            other = machine_of(plan)
            other.refuse_events("a step with several questions")
            if (other.chain, other.places) != (machine.chain, machine.places):
                raise InputError("the plans have different models or policies; one step needs one")


def step_key(subject: str, period: str, plan: Plan, time: int) -> str:
    """The key of a step of a stream that watches no events: sent again it gives what was stored."""
    return json.dumps([subject, period, plan.fingerprint, time], ensure_ascii=False)


class _NotStored(Exception):
    """What a ledger is told that would draw an output it does not hold."""


class _StoredOnly(NamedTuple):
    """A ledger that gives stored outputs again and draws none."""

    ledger: Ledger

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """Return what is stored under the charge's key; raise _NotStored where nothing is."""

        def nothing() -> Release:
            raise _NotStored

        return self.ledger.settle(charge, nothing)


class StepAccount(NamedTuple):
    """Whose steps a ledger charges, under which key, and when a reading was taken (in words)."""

    ledger: Ledger
    subject: str = ""
    period: str = ""
    requester: str = ""
    key: str | None = None
    at: str = ""

    def part(self, number: int) -> StepAccount:
        """The account of the `number`-th output of one step: the first has the key itself."""
        named = self.key is not None and number > 0
        return self._replace(key=f"{self.key}/{number}") if named else self

    def settle(
        self,
        plan: Plan,
        eta: Fraction | None,
        draw: Callable[[], tuple[int, ...] | None],
        step: StreamStep | None = None,
        noise: str = "",
    ) -> tuple[int, ...]:
        """The output of a step of `plan` that tells η: charged, then drawn, or as it was drawn.

        `step` is where the output stands in the history of a stream that watches events, `noise`
        the name of its law (`law_name`).
        """
        charge = Charge(
            plan=plan,
            subject=self.subject,
            period=self.period,
            requester=self.requester,
            key=self.key,
            eta=eta,
            noise=noise,
        )
        if step is not None:
            charge = of_output(charge, step)
        release = self.ledger.settle(charge, lambda: output(plan, draw()))
        return release.answer.multiples


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
