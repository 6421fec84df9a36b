"""Daily use: a ledger with the names of a charge filled in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from shoal.core.errors import InputError
from shoal.core.plan import Plan, Release
from shoal.core.rng import Rng

if TYPE_CHECKING:
    from shoal.ledger.store import SqlLedger
    from shoal.ledger.totals import Total


@dataclass
class Session:
    """Releases about one subject, charged to one ledger.

        with shoal.Session("budget.db", subject="user-17", requester="study-4") as session:
            release = session.release(plan, data, key="2024-W07")
            print(session.spent())

    `ledger` is an open ledger, or a path or URL, which the session then opens and closes itself.
    """

    ledger: SqlLedger | str | Path
    subject: str
    period: str = ""
    requester: str = ""
    _open: SqlLedger | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open is not None and self._open is not self.ledger:
            self._open.close()
        self._open = None

    def release(
        self, plan: Plan, data: Any, *, key: str | None = None, rng: Rng | None = None
    ) -> Release:
        """One release of `data`, charged to this session's subject, period and requester."""
        return plan.release(
            data,
            ledger=self._opened(),
            subject=self.subject,
            period=self.period,
            requester=self.requester,
            key=key,
            rng=rng,
        )

    def read(self, stream: Any, observed: Any, **options: Any) -> tuple[Any, Any]:
        """The stream after a reading, charged to this session's names, and what may be shown.

            stream = shoal.ContextStream.begin(plan)
            stream, shown = session.read(stream, "work", day="2024-03-04", slot=36)

        A stream of places is charged at every step, in this session's period; a stream of
        contexts once a day, before the first slot, in a period named after the day (this
        session's period when the reading names none). The options are those of `stream.read`.
        """
        from shoal.contexts.stream import ContextStream
        from shoal.places.stream import LocationStream

        if isinstance(stream, LocationStream):
            options.setdefault("period", self.period)
        elif isinstance(stream, ContextStream):
            options.setdefault("day", stream.day or self.period)
        else:
            raise InputError(
                f"stream is a {type(stream).__name__}, whose steps no ledger charges; begin a "
                "LocationStream or a ContextStream"
            )
        names = {"ledger": self._opened(), "subject": self.subject, "requester": self.requester}
        after: tuple[Any, Any] = stream.read(observed, **names, **options)
        return after

    def spent(self) -> Total | None:
        """What everybody's releases about this subject come to in this period."""
        return self._opened().spent(self.subject, self.period)

    def _opened(self) -> SqlLedger:
        if self._open is None:
            if isinstance(self.ledger, str | Path):
                from shoal.ledger.store import open_ledger

                self._open = open_ledger(self.ledger)
            else:
                self._open = self.ledger
        return self._open
