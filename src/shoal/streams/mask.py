"""A context stream through a day: late, missing and repeated readings, new days, one charge a day.

A machine (`shoal.mechanisms.mask_machine`) knows slots one after the other; this knows the clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shoal.core.errors import InputError
from shoal.core.ledger import Charge, Ledger
from shoal.core.plan import Machine, Plan
from shoal.core.release import Answer, Release
from shoal.core.rng import Rng, SystemRng
from shoal.core.value import Value
from shoal.mechanisms.mask_machine import MaskState
from shoal.models.day import DayChain


@dataclass(frozen=True, slots=True, eq=False)
class ContextStream(Value):
    """One person's stream: all applications see this one, and nothing else about the day.

    `state` is where the day stands, `shown` what the last slot showed (None: suppressed). Reading
    returns the next stream, so that it can be stored and taken up again in the middle of a day.
    The state can tell what was suppressed: keep it as private as the contexts themselves.
    """

    plan: Plan
    state: MaskState
    day: str = ""
    shown: str | None = None

    @classmethod
    def begin(cls, plan: Plan, day: str = "") -> ContextStream:
        """The stream before the first slot of a day."""
        return cls(plan, _machine(plan).init(), day)

    @property
    def slots(self) -> int:
        """The length of the day."""
        model = self.plan.task.family[0]
        if not isinstance(model, DayChain):
            raise InputError(f"{self.plan.mechanism} is not a plan for the contexts of a day")
        return model.slots

    def read(
        self,
        context: Any,
        *,
        slot: int | None = None,
        day: str | None = None,
        rng: Rng | None = None,
    ) -> tuple[ContextStream, str | None]:
        """The stream after a reading, and what may be shown: the context, or None.

        Without `slot` it is the next one. A slot that is asked for again gives what it showed the
        first time: applications that ask when they like get this stream, never more. Slots that
        were left out count as missing readings and are suppressed; so is a context the model does
        not know. Another `day` begins a new one, independent of the last.
        """
        if day is not None and day != self.day:
            return ContextStream.begin(self.plan, day).read(context, slot=slot, rng=rng)
        current = self.state.slot
        wanted = current % self.slots if slot is None else slot
        if not 0 <= wanted < self.slots:
            raise InputError(f"slot is {wanted}; the day has slots 0 to {self.slots - 1}")
        if slot is not None and wanted == current - 1:
            return self, self.shown
        if slot is not None and wanted < current < self.slots:
            raise InputError(f"slot is {wanted}, which is past; the next one is {current}")
        if slot is not None and current == self.slots:
            raise InputError(f"slot is {wanted} after the end of the day; name the next day")
        source = rng if rng is not None else SystemRng()
        machine, state = _machine(self.plan), self.state
        while state.slot % self.slots < wanted:
            state, _ = machine.step(state, None, source)
        state, shown = machine.step(state, context, source)
        return ContextStream(self.plan, state, self.day, shown), shown


def charge_day(
    plan: Plan, ledger: Ledger, *, subject: str, day: str, requester: str = ""
) -> Release:
    """Charges one day of a stream before its first slot; the same day is charged once.

    Beliefs do not add up, so the ledger refuses anything else about the same subject and day.
    """
    if not day:
        raise InputError("day is empty; a ledger needs to know which day is charged")
    charge = Charge(
        plan=plan,
        subject=subject,
        period=day,
        requester=requester,
        key=f"{subject}/{day}/{plan.fingerprint}",
    )
    begun = Release(
        answer=Answer(("day begun",), (1,), Fraction(1), "days"),
        plan=plan.fingerprint,
        mechanism=plan.mechanism,
        guarantee=plan.guarantee,
        error=None,
        secure=True,
    )
    return ledger.settle(charge, lambda: begun)


def _machine(plan: Plan) -> Machine:
    if not isinstance(plan.body, Machine):
        raise InputError(f"{plan.mechanism} makes single releases; use plan.release(data)")
    return plan.body
