"""A history of rides that a ledger keeps: each leg is charged, stored, and only then shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from shoal.core.charge import Charge, Ledger, StreamStep, empty_history, output_key
from shoal.core.errors import DataError, InputError, OtherHistory
from shoal.core.plan import Answer, Plan, Release
from shoal.share.history import History, Leg, ShownLeg
from shoal.share.plan import machine_of


class StoredLedger(Ledger, Protocol):
    """A ledger whose stored outputs can be read again."""

    def charges(self, subject: str | None = None) -> list[Any]: ...
    def release(self, entry: Any) -> Release: ...


@dataclass(frozen=True, slots=True)
class ShareStream:
    """Where the one history of a person's rides stands.

    `shown` legs came before; `before` is the hash of the whole history, which the ledger compares
    with its own. Values are never changed: `show` returns the next stream.
    """

    plan: Plan
    history: History
    before: str

    @classmethod
    def begin(cls, plan: Plan) -> ShareStream:
        """Return the stream of a plan before its first leg."""
        return cls(plan, machine_of(plan).init(), empty_history(None))

    @classmethod
    def resume(
        cls,
        plan: Plan,
        ledger: StoredLedger,
        *,
        subject: str,
        period: str = "",
        legs: int | None = None,
    ) -> ShareStream:
        """Return the stream after all legs that a ledger holds, or after the first `legs` of them.

        Charges are added up again from what was shown.

        Refused where the ledger holds legs of another plan about the subject: a history has one
        map, one zone and one epsilon.
        """
        stream = cls.begin(plan)
        for entry in ledger.charges(subject):
            if entry.period != period or stream.legs == legs:
                continue
            if entry.plan != plan.fingerprint:
                raise OtherHistory(
                    f"the rides of {subject!r} were published under another map, zone, epsilon or "
                    "number of legs, and both together would tell more than either promises",
                    ("give the same --roads, --hide, --epsilon and --legs as before",),
                )
            shown = ShownLeg.decoded(ledger.release(entry).answer.multiples)
            stream = stream._after(shown, stream._step())
        return stream

    @property
    def legs(self) -> int:
        """The number of legs shown so far."""
        return len(self.history.shown)

    def show(
        self, leg: Leg, *, ledger: Ledger | None = None, subject: str = "", period: str = ""
    ) -> tuple[ShareStream, ShownLeg]:
        """Return the stream after a leg and what may be published of it.

        With a ledger the leg is charged and stored before it is returned. Without one nobody
        remembers the history: for studies, never for publishing.
        """
        shown, step = self.history.cut(leg), self._step()
        if ledger is None:
            return self._after(shown, step), shown
        if not subject:
            raise InputError("subject is empty; name whose rides these are")
        number = step.number
        charge = Charge(
            plan=self.plan,
            subject=subject,
            period=period,
            key=output_key(subject, period, self.plan.fingerprint, number),
            step=step,
        )
        after = self._after(shown, step)  # refuses a leg that would pass the promise
        stored = ledger.settle(charge, lambda: self._release(shown))
        if tuple(stored.answer.multiples) != shown.encoded:
            raise OtherHistory(
                f"leg {number + 1} of {subject!r} was published before, and it was another ride",
                ("give the tracks in the order in which they were first given",),
            )
        return after, shown

    def show_all(
        self, legs: Sequence[Leg], *, ledger: Ledger | None = None, subject: str = ""
    ) -> Iterator[tuple[ShareStream, ShownLeg]]:
        """Yield the stream and the output after each leg, in order."""
        stream = self
        for leg in legs:
            stream, shown = stream.show(leg, ledger=ledger, subject=subject)
            yield stream, shown

    def _step(self) -> StreamStep:
        number = len(self.history.shown)
        epsilon = self.plan.guarantee.amount
        return StreamStep(number=number, before=self.before, time=number, epsilon=epsilon)

    def _after(self, shown: ShownLeg, step: StreamStep) -> ShareStream:
        before = step.after(shown.encoded)
        return replace(self, history=self.history.absorb(shown), before=before)

    def _release(self, shown: ShownLeg) -> Release:
        numbers = shown.encoded
        if not numbers:
            raise DataError("a leg shows nothing; leave it out of the history")
        query = self.plan.task.query
        labels = tuple(map(str, range(len(numbers))))
        return self.plan.released(Answer(labels, numbers, query.lattice, query.unit), secure=True)
