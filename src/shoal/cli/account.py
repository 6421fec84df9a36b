"""How a release is charged: to no ledger, or to one, series by series."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.core.errors import BudgetError, DataError, InputError
from shoal.core.ledger import Ledger
from shoal.core.plan import Plan
from shoal.core.release import Release
from shoal.core.rng import Rng


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A ledger, or none, and what every charge of this command says.

    With a ledger there is always a key: when something fails after a charge, repeating the command
    with it brings the stored releases back and costs nothing more.
    """

    ledger: Ledger | None
    subject: str = ""
    period: str = ""
    requester: str = ""
    key: str = ""

    @classmethod
    def of(cls, url: str | None, *, key: str | None, seeded: bool, **said: str) -> Account:
        """The account the options name; options of a ledger without one are refused."""
        if url is None:
            given = [name for name, value in {**said, "key": key}.items() if value]
            if given:
                raise InputError(f"--{given[0]} is given without --ledger; name the ledger too")
            return cls(ledger=None)
        if seeded:
            raise InputError("--seed is given with --ledger; a ledger takes only real releases")
        from shoal.ledger import open_ledger

        return cls(ledger=open_ledger(url), key=key or secrets.token_hex(8), **said)

    def check(self, names: list[str], *, together: bool) -> None:
        """Refuse, before any charge, a subject that does not fit the series."""
        if self.ledger is None:
            return
        if together and not self.subject:
            raise InputError(
                "a release of all series together needs --subject, under which it is charged"
            )
        if self.subject and len(names) > 1:
            raise InputError(
                f"--subject is {self.subject!r}, but the data holds {len(names)} series; drop it, "
                "and each series is charged under its own name"
            )

    def release(
        self, plan: Plan, name: str, records: Any, rng: Rng | None, *, place: tuple[int, int]
    ) -> Release:
        """One release, charged first; `place` is how many went before it, of how many."""
        if self.ledger is None:
            return plan.release(records, rng=rng)
        done, total = place
        try:
            return plan.release(
                records,
                ledger=self.ledger,
                subject=self.subject or name,
                period=self.period,
                requester=self.requester,
                key=self.key if total == 1 else f"{self.key}/{name}",
            )
        except BudgetError as error:
            before = self._kept(f"{done} series before it") if done else ""
            error.args = (f"series {name!r}: {error}{before}",)
            raise

    def write(self, path: Path, releases: dict[str, Release]) -> None:
        """All releases into one file."""
        from shoal.data.write import write_releases

        try:
            write_releases(path, releases)
        except DataError as error:
            kept = self._kept("the releases") if self.ledger is not None else ""
            raise DataError(f"{error}{kept}") from None

    def _kept(self, what: str) -> str:
        return (
            f"; {what} were charged and are kept in the ledger: repeat the command with "
            f"--key {self.key} and they cost nothing more"
        )
