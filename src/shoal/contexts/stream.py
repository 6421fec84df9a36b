"""One step of a suppression plan by somebody who may not have read every slot.

Proof: mask_missing.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import zip_longest
from typing import Any, NamedTuple

from shoal.contexts.checks.task import days_of, machine_states
from shoal.contexts.day import DayChain
from shoal.contexts.machine import Mask, MaskState
from shoal.contexts.search.gaps import AfterGaps
from shoal.core.charge import Charge, Ledger, Rng, source_for
from shoal.core.errors import InputError, StoredError
from shoal.core.plan import Answer, Fresh, Late, Machine, Outcome, Plan, Release, Repeated, Stream
from shoal.core.stream import Denied, Price, Slot, Step, Stored, look_up, run_batch
from shoal.mechanisms.table import LOSS_TOLERANCE, verify_promise


def advance(plan: Plan, state: MaskState, observed: Any, rng: Rng) -> tuple[MaskState, str | None]:
    """The state after a slot, and the context or None; `observed` is None when it was not read.

    All that runs a plan through a day comes through here. That a slot was not read is taken for
    public: it must not depend on the contexts, given what was shown before.
    """
    if isinstance(plan.body, Mask):
        return plan.body.resume(state, observed, rng, lambda: _model(plan))
    after: tuple[MaskState, str | None] = machine_of(plan).step(state, observed, rng)
    return after


def machine_of(plan: Plan) -> Machine:
    """The machine of a plan; refused when it has none."""
    if not isinstance(plan.body, Machine):
        raise InputError(f"{plan.mechanism} makes single releases; use plan.release(data)")
    return plan.body


def day_of(plan: Plan) -> DayChain:
    """The model of a day; refused when the plan has none."""
    model = plan.task.family[0]
    if not isinstance(model, DayChain):
        raise InputError(f"{plan.mechanism} is not a plan for the contexts of a day")
    return model


@lru_cache(maxsize=8)
def _model(plan: Plan) -> AfterGaps:
    """The day chains of a plan and their secrets, prepared when a first slot is missing."""
    return AfterGaps(days_of(plan.task, plan.guarantee.amount, states=machine_states(plan.body)))


# A context stream through a day: late, missing and repeated readings, new days, one charge a day.
#
# A machine (`shoal.contexts.machine`) knows slots one after the other; this knows the clock.


@dataclass(frozen=True, slots=True, eq=False)
class ContextStream(Stream):
    """One person's stream: all applications see this one, and nothing else about the day.

    `state` is where the day stands, `shown` what the last slot showed (None: nothing), `earlier`
    what those before it did, as far back as the stream remembers. Reading returns the next stream,
    so that it can be stored and taken up again in the middle of a day.
    Days that are named only go forward; those without a name follow each other by themselves.
    The state can tell what was suppressed: keep it as private as the contexts themselves.
    `charged` says whether this stream charged its day to a ledger, before the first slot.
    """

    kind = "context-stream"

    state: MaskState
    day: str = ""
    shown: str | None = None
    earlier: tuple[str | None, ...] = field(default=(), metadata={"later": True})
    charged: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse a stored stream without a plan, or with a context that the plan does not have."""
        if not isinstance(self.plan, Plan):
            raise StoredError("plan of a stored stream is none; was the file changed?")
        state: Any = self.state  # online masks have one of another kind
        known = range(len(machine_states(self.plan.body)))
        if isinstance(state, MaskState) and state.context not in known:
            raise StoredError("a stored day names a context its plan has not; was it changed?")

    @classmethod
    def begin(cls, plan: Plan, day: str = "") -> ContextStream:
        """The stream before the first slot of a day."""
        _check_names(None, day)
        return cls(plan, machine_of(plan).init(), day)

    @property
    def slots(self) -> int:
        """The length of the day."""
        return day_of(self.plan).slots

    def read(
        self,
        context: Any,
        *,
        slot: int | None = None,
        day: str | None = None,
        rng: Rng | None = None,
        ledger: Ledger | None = None,
        subject: str = "",
        requester: str = "",
        covers: tuple[int, int] | None = None,
    ) -> tuple[ContextStream, str | None]:
        """The stream after a reading, and what may be shown: the context, or None.

        Without `slot` it is the next one. `context` is None when there is no reading; slots that
        were left out have none either. They show nothing and tell nothing, provided that whether a
        slot is read does not depend on the contexts given what was shown before. Applications that
        ask when they like get this stream, never more: a slot that is past gives what it showed
        then, whatever is handed in now, and is never drawn again, nor for the first time. A
        context the model does not know is suppressed. Another `day` begins a new one, independent
        of the last; days only go forward (`comes_after`), so that none is ever begun again, however
        long ago it was left. With a ledger every day has a name and is charged before its first
        slot. A day that another stream charged is refused, because two streams of one day tell more
        than either may; so is one whose first slots, read or not, went by without the ledger.
        `covers` is when the day lies, in microseconds since 1970: then days by other clocks that
        share a moment with it count together with it.
        """
        _check_names(slot, day)
        if day is not None and day != self.day:
            if self.state.slot > 0 and not comes_after(day, self.day):
                raise InputError(
                    f"day is {day!r}, which does not come after {self.day!r}; a day that was left "
                    "cannot be begun again, so name days in order, such as '2024-03-05' after "
                    "'2024-03-04'"
                )
            fresh = ContextStream.begin(self.plan, day)
            return fresh.read(
                context,
                slot=slot,
                rng=rng,
                ledger=ledger,
                subject=subject,
                requester=requester,
                covers=covers,
            )
        current = self.state.slot
        wanted = current % self.slots if slot is None else slot
        if not 0 <= wanted < self.slots:
            raise InputError(f"slot is {wanted}; the day has slots 0 to {self.slots - 1}")
        over = current == self.slots
        if (
            slot is not None
            and wanted < current
            and (wanted == current - 1 or not over or self.day)
        ):
            return self, self.shown_at(wanted)
        if slot is not None and over:
            raise InputError(f"slot is {wanted} after the end of the day; name the next day")
        if over and (self.day or ledger is not None):
            raise InputError(f"day {self.day!r} is over; name the next day")
        source, begun = source_for(ledger, rng), current > 0
        if ledger is not None and begun:
            if not self.charged:
                raise _begun_without(self.day, subject)
            check_day_begun(self.plan, ledger, subject=subject, day=self.day, requester=requester)
        names = Slot(
            subject=subject, period=self.day, requester=requester, number=wanted, covers=covers
        )
        today = ContextDay(self.plan, self.state, charged=begun)
        (result,) = run_batch([Step(today, names, context)], ledger, source)
        state, charged = result.after().state, self.charged or ledger is not None
        *earlier, shown = ([] if over else self._outputs()) + list(result.output.shown)
        return ContextStream(self.plan, state, self.day, shown, tuple(earlier), charged), shown

    def take(
        self, context: Any, *, slot: int, day: str | None = None, **options: Any
    ) -> tuple[ContextStream, Outcome]:
        """The stream after a reading that names its slot, and what became of it.

        Day and slot make a retry harmless: a slot of this day that is past gives what it showed
        then, a day that was left is late. `options` as for `read`.
        """
        _check_names(slot, day)
        same = day is None or day == self.day
        last = (self.day, self.state.slot - 1)
        if not same and self.state.slot > 0 and not comes_after(day or "", self.day):
            return self, Late(last)
        if same and 0 <= slot < self.state.slot:
            remembered = self.state.slot - slot <= len(self._outputs())
            return self, Repeated(self.shown_at(slot)) if remembered else Late(last)
        moved, shown = self.read(context, slot=slot, day=day, **options)
        return moved, Fresh(shown)

    def _outputs(self) -> list[str | None]:
        """What the slots up to the last one showed, as far back as the stream remembers."""
        return [*self.earlier, self.shown] if self.state.slot > 0 else []

    def shown_at(self, slot: int) -> str | None:
        """What a slot that is past showed."""
        outputs, back = self._outputs(), self.state.slot - slot
        if back > len(outputs):
            raise InputError(
                f"slot is {slot}, which is past, and this stream was stored without what it "
                f"showed; the next one is {self.state.slot}"
            )
        return outputs[-back]


def _check_names(slot: object, day: object) -> None:
    if slot is not None and (not isinstance(slot, int) or isinstance(slot, bool)):
        raise InputError(f"slot is {slot!r}; it must be a whole number")
    if day is not None and not isinstance(day, str):
        raise InputError(f"day is {day!r}; it must be text, such as '2024-03-04'")


def comes_after(day: str, other: str) -> bool:
    """Whether a stream may leave `other` for `day`: in order of their names, strictly.

    As text, but with numbers in names compared as numbers, so that "day 10" comes after "day 9".
    Dates such as 2024-03-04 come in their order; everything comes after a day without a name. A
    stream that only goes forward needs to remember no day but its own.
    """
    return day_order(day) > day_order(other)


def day_order(day: str) -> tuple[object, ...]:
    """Text and numbers in turns; numbers by how many digits they have, then digit by digit."""
    parts = re.split("([0-9]+)", day)
    digits = [part.lstrip("0") for part in parts[1::2]]
    numbers = [(len(number), number) for number in digits]
    turns = zip_longest(parts[::2], numbers, fillvalue=(-1, ""))
    return tuple(item for pair in turns for item in pair)


def goes_on(stored: Plan, plan: Plan) -> bool:
    """Whether a stream begun with `stored` may go on where `plan` is asked for.

    It is the same plan, or one for the same task, check and promise, and keeps it: a search that a
    time limit ended may end elsewhere the next time, and a day goes on with the plan it began with.
    """
    if stored == plan:
        return True
    same = (stored.task, stored.mechanism, stored.guarantee) == (
        plan.task,
        plan.mechanism,
        plan.guarantee,
    )
    amount = float(stored.guarantee.amount) * (1 + LOSS_TOLERANCE)
    return same and stored.mechanism.startswith("mask-") and verify_promise(stored) <= amount


class DayBegun(InputError):
    """A day that was charged before, so that its first slot may have been shown already."""


class ShownSlots(NamedTuple):
    """The private state after some slots, and what each of them shows."""

    state: Any
    shown: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ContextDay:
    """One day of one person: charged once, before anything of it is read.

    `charged` says that a ledger has it, or that none is to be charged any more. Where events are
    followed the ledger is asked again before each slot, under its lock: a release made under what
    the day had shown (`DayGiven`) ends the day.
    """

    plan: Plan
    state: Any
    charged: bool = False

    def price(self, slot: Slot) -> Price:
        """Return the charge of the day, if it is still to be made or may have been closed."""
        asked = not self.charged or getattr(self.plan.body, "can_be_given", False)
        if not asked or not slot.read or not slot.subject:
            return Price(slot, None)
        names = slot.subject, slot.period, slot.requester, slot.drawer
        return Price(slot, replace(_first_charge(self.plan, *names), part=slot.part))

    def draw(self, price: Price, reading: Any, rng: Rng) -> ShownSlots:
        """Return what the slots up to the one of the reading show; those before it are not read."""
        slots = day_of(self.plan).slots
        state, shown = self.state, []
        first = state.slot % slots
        last = first if price.slot.number is None else price.slot.number
        for number in range(first, last + 1):
            state, context = advance(self.plan, state, reading if number == last else None, rng)
            shown.append(context)
        return ShownSlots(state, tuple(shown))

    def absorb(self, price: Price, output: ShownSlots) -> ContextDay:
        """Return the day after the slots."""
        return ContextDay(self.plan, output.state, self.charged or price.charge is not None)

    def to_release(self, price: Price, output: ShownSlots) -> Release:
        """Return what a ledger stores of a day: that it has begun, and nothing of what it shows."""
        return _beginning(self.plan)

    def resume(self, price: Price, reading: Any, stored: Release, rng: Rng) -> ShownSlots:
        """Go on with a charged day; refuse another beginning, unless the slot names who draws it.

        Who lost the state of a stream cannot begin its day again: what was shown cannot be unshown.
        """
        if not self.charged and not price.slot.drawer:
            raise DayBegun(
                f"day {price.slot.period!r} of subject {price.slot.subject!r} has begun already; "
                "go on from the stored state of that stream, or begin with the next day"
            )
        return self.draw(price, reading, rng)


def check_day_begun(
    plan: Plan, ledger: Ledger, *, subject: str, day: str, requester: str = ""
) -> None:
    """Refuse a day in progress that this ledger does not know."""
    verdict = look_up(ledger, _first_charge(plan, subject, day, requester))
    if isinstance(verdict, Denied):
        raise verdict.reason
    if not isinstance(verdict, Stored):
        raise _begun_without(day, subject)


def _begun_without(day: str, subject: str) -> InputError:
    """Return the refusal of a day whose first slots this stream did not charge to the ledger."""
    return InputError(
        f"day {day!r} of subject {subject!r} was begun without this ledger; go on without it, "
        "or begin the next day with it"
    )


def charge_day(
    plan: Plan,
    ledger: Ledger,
    *,
    subject: str,
    day: str,
    requester: str = "",
    drawer: str = "",
) -> Release:
    """Charges one day of a stream before its first slot; the same day is charged once.

    Beliefs do not add up, so the ledger refuses anything else about the same subject and day. For
    a caller that keeps the state itself; `ContextDay` also refuses a second stream of the day.
    `drawer` names who draws the slots (a query, by its key): the same one may charge its day again
    after a stop, another one is refused (CannotCompose).
    """
    charge = _first_charge(plan, subject, day, requester, drawer)
    return ledger.settle(charge, lambda: _beginning(plan))


def _first_charge(plan: Plan, subject: str, day: str, requester: str, drawer: str = "") -> Charge:
    if not day:
        raise InputError("day is empty; a ledger needs to know which day is charged")
    names = [subject, day, plan.fingerprint, *([drawer] if drawer else [])]
    key = json.dumps(names, ensure_ascii=False)
    return Charge(plan=plan, subject=subject, period=day, requester=requester, key=key)


def _beginning(plan: Plan) -> Release:
    return plan.released(Answer(("day begun",), (1,), Fraction(1), "days"), secure=True)
