"""Events nobody may become surer of: a public filter decides, slot by slot, what may be shown.

The machine, the day as it is believed after its outputs, and the row `mask-online`. Proof:
mask_online.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np

from shoal.chains.events.answers import RISES, EventLaws
from shoal.chains.events.sums import AnswerPair
from shoal.contexts.checks.task import ALONE, BY_THE_CLOCK, in_order, over, rules
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import Mask, set_fields
from shoal.contexts.secrets import CurrentState
from shoal.core.charge import Guarantee, Rng
from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError, Refused
from shoal.core.numbers import significant
from shoal.core.plan import Plan, Proof
from shoal.core.progress import cut_short
from shoal.core.records import Sequences, label
from shoal.core.task import AnswerLaws, Law, Query, Secrets, Task, as_events
from shoal.events.automaton import Automaton, compile_events, law_of
from shoal.events.cuts import future_of, histories, improved
from shoal.events.filter import GRAIN, Held, Program, chances, program_of
from shoal.events.secrets import Events
from shoal.mechanisms.plans import Mechanism

WORD = (1 << 32) - 1  # codes are of 32 bits, and so is the part of a word they are held against


@dataclass(frozen=True, slots=True, eq=False)
class OnlineState(Value):
    """Where a day stands: the next slot, the public belief, and where the memory is.

    `memory` tells about suppressed contexts, so a state is as private as the day itself. The
    belief is what anybody computes who knows the plan and saw the outputs.
    """

    kind = "online-state"

    slot: int
    held: tuple[Held, ...]
    memory: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class OnlineMask(Mask):
    """Shows each context with a probability that no output's belief in an event can exceed.

    The probabilities of a slot are found when it comes (a linear program of a millisecond), from
    the outputs so far, the context, and where the events' automaton stands. `cuts` are what the
    rest of the day is worth, (cuts, automaton, context) for each slot in one row of numbers; none
    when only the slot itself counts. `mixture` weighs the days for an adversary who is not sure
    which of them holds.
    """

    kind = "online-mask"
    can_be_given: ClassVar[bool] = True

    days: tuple[DayChain, ...]
    secrets: Events
    amount: Fraction
    memory_kind: str = "events"
    mixture: tuple[float, ...] = ()
    cuts: tuple[Floats, ...] = field(default=())

    def __post_init__(self) -> None:
        """Refuse days on different contexts or slots, and cuts that are not one array per slot."""
        days = tuple(self.days)
        if not days or len({(day.states, day.slots) for day in days}) != 1:
            raise InputError("days must hold day chains on the same contexts and slots")
        mixture = tuple(float(weight) for weight in self.mixture)
        set_fields(
            self, days=days, mixture=mixture, cuts=tuple(as_read_only(cut) for cut in self.cuts)
        )
        if self.cuts and len(self.cuts) != days[0].slots:
            raise InputError(f"cuts must hold one array for each of {days[0].slots} slots")
        self.remember(days[0].states, {})

    @property
    def states(self) -> tuple[str, ...]:
        return self.days[0].states

    @property
    def slots(self) -> int:
        return self.days[0].slots

    def program(self) -> Program:
        """What the slots are decided with; made once a process."""
        return _program(self)

    def init(self) -> OnlineState:
        return OnlineState(0, self.program().begin())

    def step(self, state: Any, observed: Any, rng: Rng) -> tuple[Any, str | None]:
        """The state after this slot, and the context or None; one word is drawn in any case.

        A reading of None is a slot that was not read: a public step without information. A context
        the model does not know, or calls impossible, is suppressed like any other.
        """
        word = int(rng.words(1)[0]) & WORD
        if state.slot >= self.slots:
            state = self.init()
        program, slot = self.program(), state.slot
        read = observed is not None
        held = program.arrive(state.held, slot, read=read)
        context = self.context_of(observed)
        taken = context if context >= 0 else program.guess(state.held, slot)
        memory = int(program.memory.steps[slot][state.memory, taken])
        if not read:
            return OnlineState(slot + 1, held, memory), None
        codes = program.allowed(held, slot)
        shown = context >= 0 and word > WORD - int(codes[memory, context])
        after = program.after(held, codes, context if shown else None)
        return OnlineState(slot + 1, after, memory), self.states[context] if shown else None

    def shown_chance(self, state: OnlineState, observed: Any) -> float:
        """The probability with which the next slot shows a context that is read there."""
        program, slot, context = self.program(), state.slot, self.context_of(observed)
        held = program.arrive(state.held, slot, read=True)
        memory = int(program.memory.steps[slot][state.memory, context])
        return float(program.allowed(held, slot)[memory, context] * GRAIN)

    def describe(self) -> str:
        """Return in words what the public filter looks at when it decides."""
        sees = {
            "events": "sees the context and how far each event has come",
            "none": "sees the context only",
        }[self.memory_kind]
        ahead = ", looking ahead to the end of the day" if self.cuts else ""
        return (
            f"a public filter decides at every slot with what probability each context may be "
            f"shown; it {sees}{ahead}"
        )


@lru_cache(maxsize=8)
def _program(mask: OnlineMask) -> Program:
    laws = [law_of(day) for day in mask.days]
    program = program_of(
        laws, mask.secrets, mask.amount, memory=mask.memory_kind, mixture=mask.mixture
    )
    return future_of(program, mask.cuts)


# A day as it is believed after a stream has shown it: the law a second release is made under.
#
# Budgets of releases about one event add only if the second is calibrated under the law given the
# first one's outputs. That law is followed here by the stream's own filter, with the sum of a query
# counted along. Proof: ledger/rules.md, section 12.


MOST_MASSES = 2e7  # of one slot (automaton, memory, context, sum): 160 MB
LEAST_LIKELY = 1e-9  # an event less likely than this after the outputs has no law to speak of
UNREAD = "(not read)"


@dataclass(frozen=True, slots=True, eq=False)
class DayGiven(Law):
    """The day of `mask` given all that its stream showed: a context, None, or UNREAD, by slot.

    The mask's filter is public, so anybody can follow this law. `after` is the machine whose
    outputs it is conditioned on; a ledger adds a release made under it to that machine's day.
    """

    kind = "day-given"

    mask: OnlineMask
    outputs: tuple[str | None, ...]
    states: tuple[str, ...]  # in the caller's order; the mask has them by name

    def __post_init__(self) -> None:
        """Refuse outputs that are not those of a whole day under one model, and other states."""
        mask, outputs = self.mask, tuple(self.outputs)
        set_fields(self, states=tuple(self.states), outputs=outputs)
        if sorted(self.states) != sorted(mask.states):
            raise InputError(f"states are {list(self.states)}, and the mask has others")
        if len(mask.days) > 1:
            raise InputError("the stream is for several models; a law given its outputs needs one")
        if len(outputs) != mask.slots:
            raise InputError(
                f"outputs holds {len(outputs)} slots of {mask.slots}; the day must be over: give "
                "what every slot showed, None where nothing"
            )
        unknown = next((o for o in outputs if o not in (*mask.states, None, UNREAD)), None)
        if unknown is not None:
            raise InputError(f"outputs holds {unknown!r}, which is no context of the model")

    @classmethod
    def of(cls, plan: Plan, outputs: Sequence[Any], unread: Sequence[int] = ()) -> Self:
        """The day after the stream of `plan` showed `outputs`, and read no slot of `unread`."""
        if not isinstance(plan.body, OnlineMask):
            raise InputError(
                f"{plan.mechanism} follows no events; a second release is made under what a stream "
                "of mask-online has shown (shoal.mask with shoal.Events)"
            )
        named = [None if output is None else label(output) for output in outputs]
        for slot in unread:
            if not 0 <= slot < len(named) or named[slot] is not None:
                raise InputError(f"unread holds slot {slot}, which is none that showed nothing")
            named[slot] = UNREAD
        return cls(plan.body, tuple(named), plan.task.query.states)

    @property
    def day(self) -> DayChain:
        return self.mask.days[0]

    @property
    def after(self) -> OnlineMask:
        return self.mask

    @property
    def tied(self) -> int:
        return self.mask.slots

    def admit(self, records: Sequences) -> None:
        self.day.admit(records)

    def check_events(self, secrets: Events) -> None:
        """Events of the day, possible after the outputs as before them: odds are bounded."""
        secrets.check((self.day,))

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        """The laws of a sum given each event and all outputs; other secrets have none here."""
        events = as_events(secrets)
        if events is None or not hasattr(query, "multiples"):
            return f"{self.describe()} knows sums given events only"
        return RISES if events.notion != "pufferfish" else _event_laws(self, query, events)

    def describe(self) -> str:
        return f"what is believed of {self.day.describe()} after a stream of it"


@lru_cache(maxsize=16)
def _event_laws(given: DayGiven, query: Any, events: Events) -> EventLaws:
    """The laws of `query` given E and given E' of each pair, under the day given its outputs."""
    weights = np.array(query.multiples(), dtype=np.int64)
    if weights.shape[1] > 1:
        raise Refused("a second release after a stream is of one number; ask for one label")
    path = law_of(given.day)
    named = [query.states.index(name) for name in given.mask.states]
    found = []
    for (event, _), other in zip(events.pairs, events.against(), strict=True):
        automaton = compile_events((event, other), path)
        mass, rounds = _count_events(given, automaton, weights[named, 0])
        sides = [mass[automaton.accept[:, k]].sum(axis=0) for k in (0, 1)]
        if min(side.sum() for side in sides) < LEAST_LIKELY:
            raise Refused("after these outputs an event is all but decided; nothing is released")
        values = np.arange(mass.shape[1])[:, None] + given.tied * int(weights.min())
        above, below = ((side / side.sum())[None] for side in sides)
        found.append(AnswerPair(values, above, below, 2.0 * rounds))
    return EventLaws(tuple(found))


def _count_events(given: DayGiven, automaton: Automaton, weights: Ints) -> tuple[Floats, int]:
    """P(automaton, Σ w(X_t) | outputs), (q, sum from its least), and roundings on the way.

    Forward on (q, m, x, sum): m is the mask's memory, which decides with the context how likely
    each output was. All terms are ≥ 0; every slot is divided by the chance of its output.
    """
    mask, added = given.mask, weights - weights.min()
    program, day, size = mask.program(), given.day, len(weights)
    held, memories, rounds = program.begin(), program.memory, 0
    width = int(added.max()) * given.tied + 1
    if max(automaton.sizes) * max(memories.sizes) * size * width > MOST_MASSES:
        raise Refused(
            "the sum has too many values to be followed after a stream; use small weights"
        )
    mass = np.zeros((1, 1, size, width))
    mass[0, 0, :, 0] = day.initial
    for slot, output in enumerate(given.outputs):
        if slot:
            mass = np.einsum("qmxs,xy->qmys", mass, day.transition[slot - 1])
        guess = program.guess(held, slot) if output == UNREAD else None
        held = program.arrive(held, slot, read=output != UNREAD)
        mass = _advance_masses(mass, automaton, memories, slot, added, guess)
        rounds += 2 * (size + mass.shape[0] * mass.shape[1] + 8)
        if output != UNREAD:
            codes = program.allowed(held, slot)
            context = None if output is None else mask.states.index(output)
            held = program.after(held, codes, context)
            shown = codes * GRAIN
            likely = 1.0 - shown if context is None else shown * (np.arange(size) == context)
            mass = mass * likely[None, :, :, None]
        total = float(mass.sum())
        if not total > 0:
            raise InputError(f"outputs are impossible under the model at slot {slot}")
        mass /= total
    return mass.sum(axis=(1, 2)), rounds + mass.size


def _advance_masses(
    mass: Floats, automaton: Automaton, memories: Automaton, slot: int, added: Ints, guess: Any
) -> Floats:
    """The masses with automaton, memory and sum after the context of a slot."""
    shape = automaton.sizes[slot + 1], memories.sizes[slot + 1], *mass.shape[2:]
    found = np.zeros(shape)
    for x, weight in enumerate(added.tolist()):
        column = x if guess is None else guess
        for q, then in enumerate(automaton.steps[slot][:, x].tolist()):
            for m, next_m in enumerate(memories.steps[slot][:, column].tolist()):
                moved = mass[q, m, x, : mass.shape[3] - weight]
                found[then, next_m, x, weight:] += moved
    return found


NAME = "mask-online"
BRANCHES = 1000  # outputs of a day up to which the mean number shown is exact
SAMPLED_SLOTS = 1000  # slots of sampled histories otherwise: a second or two
CUT_ROUNDS = (2, 16)  # fewest and most rounds of cuts
STAGES = 900  # linear programs the cuts of a plan may take, beyond the fewest rounds
# slots of a day that is decided looking ahead; fewer rounds than four add nothing
LONGEST_DAY_AHEAD = 200
SEED = 20120  # histories are drawn from the model, never from data: equal calls give equal plans


@dataclass(frozen=True, slots=True, eq=False)
class OnlineCertificate(Proof):
    """The numbers of an online plan: what it shows on average, and what anything could.

    `releases` is exact when `histories` is 0, and otherwise the mean over that many histories drawn
    from the model, with its standard error `spread`. `most` bounds every causal mechanism.
    """

    kind = "online-certificate"

    releases: float
    spread: float
    histories: int
    most: float
    slots: int
    timed: bool = field(default=False, metadata={"later": True})  # ended by `shoal.time_limit`

    @property
    def share(self) -> float:
        """Of what any causal mechanism could show, at least, up to the error of `releases`."""
        return self.releases / self.most if self.most > 0 else 1.0

    @property
    def theorem(self) -> str:
        """The theorem that is certified, with the mean number of slots shown and its standard
        error.
        """
        about = f" ± {significant(self.spread, 2)}" if self.histories else ""
        return (
            "Theorem 1 of mask_online.md: at every slot, whatever was shown before, every output "
            "that is possible leaves every belief within its bound (certified with rounding); "
            f"{significant(self.releases, 4)}{about} of {self.slots} slots are shown on average, "
            f"{self._beside_the_most()}" + (BY_THE_CLOCK if self.timed else "")
        )

    def _beside_the_most(self) -> str:
        """The mean number shown beside its bound; above the bound it is only by sampling."""
        most = f"(at most {significant(self.most, 4)} on average)"
        if self.releases > self.most:
            return (
                f"which is the most that any causal mechanism could show {most}, as far as "
                "histories drawn from the model can tell"
            )
        return f"{self.share:.1%} of what any causal mechanism could show {most}"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must hold for the promise: about the path, the stream, unread slots and other
        events.
        """
        return (
            "the path follows the chain, from the first slot to the last (other days, or weeks, "
            "are independent of it)",
            "all applications of one person see one and the same stream",
            "whether a slot is read does not depend on the contexts, given what was shown before",
            "nothing is promised about other events, nor about combinations of those named: name "
            "them too",
        )


def refuse(task: Task) -> str | None:
    """For events on day chains of the same contexts and length."""
    if not isinstance(task.secrets, Events):
        return "the secrets are not events (shoal.visit, at_least, stay, sequence)"
    if not isinstance(task.query, CurrentState):
        return "the query asks for a number, and the online check shows contexts or suppresses them"
    days = day_chains(task.family)
    if len(days) < len(task.family):
        return "the models are not all day chains (shoal.DayChain)"
    if len({day.slots for day in days}) > 1:
        return "the day chains of the family have different numbers of slots"
    return None


def calibrate(task: Task, amount: Fraction) -> Plan:
    """The plan of the online check: greedy in each slot, or looking ahead where that shows more.

    The events' `options.ahead` says which; by default both are tried where the day is short enough.
    """
    events = _require_events(task, amount)
    memory, ahead = events.options.memory, events.options.ahead
    mask = OnlineMask(_days(task), events, amount, memory, events.options.mixture)
    cuts, most = _cuts(mask)
    candidates = [mask]
    looking = replace(mask, cuts=cuts)
    if memory == "events" and (ahead or (ahead is None and mask.slots <= LONGEST_DAY_AHEAD)):
        candidates = [looking] if ahead else [mask, looking]
    measured = [(_shown_slots(one), one) for one in candidates]
    (releases, spread, count), best = max(measured, key=lambda pair: pair[0][0])
    certificate = OnlineCertificate(releases, spread, count, most, mask.slots, cut_short())
    return Plan(
        mechanism=NAME,
        task=task,
        body=best,
        cost=-releases,
        guarantee=promise(task, amount),
        certificate=certificate,
        composition=(ALONE,),
    )


def promise(task: Task, amount: Fraction) -> Guarantee:
    """What the online check promises about the events of a task."""
    secrets = task.secrets
    assert isinstance(secrets, Events)
    unsure = ", or is unsure which of them holds as `mixture` says," * bool(secrets.options.mixture)
    return Guarantee(notion=secrets.notion, amount=amount, over=over(task, unsure))


def loss(plan: Plan) -> float:
    """The amount, when the machine is the task's own; infinity when it promises something else.

    Every slot is certified when it comes, so that a plan can be wrong only by being about another
    day, other events, or more than the amount it names; its numbers of releases are words.
    """
    body, certificate, amount = plan.body, plan.certificate, plan.guarantee.amount
    if not isinstance(body, OnlineMask) or not isinstance(certificate, OnlineCertificate):
        return math.inf
    events = _require_events(plan.task, amount)
    said = certificate.releases, certificate.slots, plan.composition
    own = body.days, body.secrets, body.memory_kind, body.mixture
    asked = _days(plan.task), events, events.options.memory, events.options.mixture
    if own != asked or body.amount > amount or said != (-plan.cost, body.slots, (ALONE,)):
        return math.inf
    body.program()  # refuses cuts that do not fit
    return float(body.amount)


def _days(task: Task) -> tuple[DayChain, ...]:
    """The day chains, contexts by name: the order of writing then changes no plan."""
    names = sorted(task.query.states)
    return tuple(in_order(day, names) for day in day_chains(task.family))


def _require_events(task: Task, amount: Fraction) -> Events:
    """Return the events of a task; refuse a delta that is not between 0 and 1, both excluded."""
    secrets = task.secrets
    if not isinstance(secrets, Events):
        raise TypeError("called on a task that `refuse` refuses")
    if secrets.change != "odds" and not 0 < amount < 1:
        raise InputError(
            f"delta is {significant(amount)}; it must be between 0 and 1, both excluded"
        )
    return secrets


def _cuts(mask: OnlineMask) -> tuple[tuple[Any, ...], float]:
    """What the rest of the day is worth at every slot, and the most that can be shown at all."""
    plain = replace(mask, memory_kind="events", mixture=())
    seeing = mask if mask.memory_kind == "events" else plain
    fewest, most = CUT_ROUNDS
    rounds = max(fewest, min(most, STAGES // mask.slots))
    return improved(seeing.program(), rounds)


def _shown_slots(mask: OnlineMask) -> tuple[float, float, int]:
    """The mean number of slots shown, its standard error, and the number of histories; 0: exact."""
    program = mask.program()
    if (mask.days[0].size + 1) ** mask.slots <= BRANCHES:
        return mean_releases(program), 0.0, 0
    rng = np.random.default_rng(SEED)
    count = max(4, min(40, SAMPLED_SLOTS // mask.slots))
    means = [
        sum(float(chance[:-1].sum()) for _, chance, _ in histories(program, rng))
        for _ in range(count)
    ]
    return float(np.mean(means)), float(np.std(means, ddof=1) / math.sqrt(count)), count


def mean_releases(program: Program) -> float:
    """The mean number of slots shown, over every history of outputs."""

    def rest(held: Any, slot: int) -> float:
        """Return the mean number of slots shown from `slot` to the end, given what is known before
        it.
        """
        if slot == program.slots:
            return 0.0
        here = program.arrive(held, slot, read=True)
        codes = program.allowed(here, slot)
        chance = chances(program, here, codes)
        total = float(chance[:-1].sum())
        for output in np.flatnonzero(chance > 0).tolist():
            after = program.after(here, codes, None if output == program.size else output)
            total += float(chance[output]) * rest(after, slot + 1)
        return total

    return rest(program.begin(), 0)


ROW = Mechanism(NAME, refuse, calibrate, loss, promise, rules)
