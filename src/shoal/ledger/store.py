"""A ledger in a database: check, charge, sample and store in one transaction, emit after commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from sqlalchemy import Connection

from shoal.core.errors import BudgetError, LedgerError
from shoal.core.numbers import Number, exact
from shoal.core.plan import Charge, Plan, Release
from shoal.core.registry import dumps, loads
from shoal.core.shown import Shown
from shoal.ledger import links, reading
from shoal.ledger.charging import check_names, checked_release, checked_text, fields, repeated
from shoal.ledger.database import Database, connect, newer, prepare
from shoal.ledger.limits import EACH, Limit, check
from shoal.ledger.links import Head
from shoal.ledger.memory import Memory, Missing
from shoal.ledger.reading import Counted, Entry, State
from shoal.ledger.rules import any_total, least_total, parallel, standard_conversions, told
from shoal.ledger.schema import CHARGES, LIMITS, MIGRATIONS, PLANS, VERSIONS, Migration
from shoal.ledger.totals import WHOLE, Conversions, Tally, Total, from_counts, is_step, more
from shoal.ledger.verify import Verdict, verify

KEPT_PLANS = 1024  # stored plans kept built, so that they are not read again for every charge
TIMEOUT = 30.0  # seconds to wait for another writer
CROWD = 64  # charges of one plan by others for which room is made before one is sent off

Etas = list[tuple[Fraction | None, int]]  # of charges, and how often
Limits = dict[str, list[Limit]]  # by subject, so that a charge looks only at those on its own


def open_ledger(
    where: str | Path,
    *,
    timeout: float = TIMEOUT,
    read_only: bool = False,
    conversions: Conversions | None = None,
) -> SqlLedger:
    """The ledger in a SQLite file, or behind a postgresql:// URL; made when absent.

    Opened read-only when asked, when the file may not be written, or when it was made by a newer
    program. `conversions` are this library's own unless given.
    """
    database, obstacle = connect(where, timeout=timeout, read_only=read_only)
    return SqlLedger(database, obstacle=obstacle, conversions=conversions)


class SqlLedger(Shown):
    """Charges, limits and plans in a database; implements `shoal.core.plan.Ledger`.

    `obstacle` says why the ledger may not be changed; None when it may.
    """

    def __init__(
        self,
        database: Database,
        *,
        obstacle: str | None = None,
        conversions: Conversions | None = None,
        migrations: tuple[Migration, ...] = MIGRATIONS,
    ) -> None:
        self.database = database
        self.obstacle = prepare(database, obstacle, migrations)
        self._memory = Memory(conversions or standard_conversions())
        self._plans: dict[str, Plan] = {}
        self._known_limits: tuple[Head | None, Limits] = (None, {})
        self._known_version: Head | None = None
        self._newest = len(migrations)

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """The stored release of this key, or a new one: checked, charged, drawn and committed.

        The limits and the rules decide before `sample` is called; the charge and the value are
        committed together; only then is the value returned. A refusal or a crash before the
        commit leaves neither. Under load `sample` may run again for a transaction that had to
        start again: the value of the one that committed is the only one anybody sees.
        """
        self._check_open()
        check_names(charge)
        quickly = self._settle_quickly(charge, sample)
        if quickly is not None:
            return quickly
        return self._memory.patiently(partial(self._settle, charge, sample))

    def limit(
        self,
        amount: Number,
        *,
        unit: str = "eta",
        subject: str = EACH,
        period: str = EACH,
        requester: str | None = None,
    ) -> Limit:
        """Set a limit, replacing the one on the same scope; spending so far stays as it is."""
        self._check_open()
        limit = Limit(
            unit=unit,
            amount=exact(amount, f"{unit} limit"),
            subject=checked_text(subject, "subject"),
            period=checked_text(period, "period"),
            requester=requester if requester is None else checked_text(requester, "requester"),
        )

        def work(connection: Connection) -> None:
            self.check_version(connection)
            links.append(
                connection,
                LIMITS,
                links.head(connection),
                unit=limit.unit,
                amount=str(limit.amount),
                subject=limit.subject,
                period=limit.period,
                requester=limit.requester,
            )

        self.database.write(work)
        return limit

    def limits(self) -> tuple[Limit, ...]:
        """The limits in force."""
        return self.database.read(reading.limits)

    def spent(
        self,
        subject: str,
        period: str = "",
        *,
        requester: str | None = None,
        whole: bool = False,
    ) -> Total | None:
        """What the charges about a subject come to in a period; None when there are none.

        With period "*": over all its periods, each independent of the others. With a requester:
        what that requester alone was told. Steps of streams in one period also say what they tell
        between any two sequences, from what each was charged with. `whole` says that every release
        read all entries of the same data, never a part of a series: see `compose`.
        """

        def work(connection: Connection) -> tuple[list[Tally], Etas]:
            periods = reading.periods(connection, subject) if period == EACH else [period]
            counts = [reading.counts(connection, subject, one) for one in periods]
            stored = partial(self._plan, connection)
            tallies = [_tally(counted, stored, requester) for counted in counts]
            steps = period != EACH and any(is_step(plan) for plan, _ in tallies[0])
            if not steps:
                return tallies, [(None, 0)]
            return tallies, reading.etas(connection, subject, period, requester)

        tallies, etas = self.database.read(work)
        conversions = replace(self._memory.computed(), whole=whole)
        totals = [least_total(tally, conversions) for tally in tallies if tally]
        if not totals:
            return None
        return parallel(totals) if period == EACH else told(totals[0], tallies[0], etas)

    def accounts(self) -> list[tuple[str, str]]:
        """Every subject and period with a charge."""
        return self.database.read(reading.accounts)

    def charges(self) -> list[Entry]:
        """All charges, in the order they were made."""
        return self.database.read(lambda connection: list(reading.entries(connection)))

    def plan(self, fingerprint: str) -> Plan:
        """A stored plan."""
        return self.database.read(lambda connection: self._plan(connection, fingerprint))

    def head(self) -> Head:
        """The end of the hash chain; keep its hash elsewhere to detect truncation."""
        return self.database.read(links.head)

    def verify(self, head: str | None = None) -> Verdict:
        """Whether every row is as it was written, and `head` still in the chain."""
        return verify(self.database, head)

    def close(self) -> None:
        """Give the connections back; the ledger can be opened again."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def check_version(self, connection: Connection, last: Head | None = None) -> None:
        """Refuse to write to a ledger that a newer program has changed since it was opened here."""
        if last is not None and last == self._known_version:
            return
        found = reading.version(connection)
        if found > self._newest:
            self.obstacle = newer(found, self._newest)
        self._check_open()
        self._known_version = last or self._known_version

    def _settle_quickly(self, charge: Charge, sample: Callable[[], Release]) -> Release | None:
        """The release of a charge that is surely allowed and was sent as one message, or None."""
        messages = self.database.dialect.batch
        if messages is None:
            return None
        from shoal.ledger.postgres import settle_quickly

        return settle_quickly(
            self.database, charge, sample, lambda state: self._spare(state, charge), messages
        )

    def _spare(self, state: State, charge: Charge) -> int | None:
        """For how many more charges of the same plan there is room besides this one; None: unsure.

        What is allowed after more charges is allowed after fewer: leaving releases out is
        post-processing, so their total bounds the rest, and etas only grow.
        """
        last, limits = self._known_limits
        same = (self._known_version, last) == (
            state.heads.get(VERSIONS.name),
            state.heads.get(LIMITS.name),
        )
        plans = {row.plan: self._plans.get(row.plan) for row in state.counted}
        plans[charge.plan.fingerprint] = charge.plan
        if not (same and state.has_plan) or state.key is not None:
            return None
        known = {name: plan for name, plan in plans.items() if plan is not None}
        if len(known) < len(plans):
            return None
        crowd = Counted(charge.requester, charge.plan.fingerprint, CROWD)
        for spare, counted, conversions in (
            (CROWD, (*state.counted, crowd), self._memory.recalled()),
            (0, state.counted, self._memory.computed()),  # nothing is locked: it may take its time
        ):
            try:
                decide(counted, charge, limits, known.__getitem__, conversions)
            except (BudgetError, Missing):
                continue  # a refusal is for the one who holds the lock to say
            return spare
        return None

    def _settle(
        self, charge: Charge, sample: Callable[[], Release], conversions: Conversions
    ) -> Release:
        def work(connection: Connection) -> Release:
            state = reading.state(connection, charge)
            self.check_version(connection, state.heads.get(VERSIONS.name))
            if state.key is not None:
                return repeated(reading.entry(connection, state.key), charge)
            limits = self._limits(connection, state.heads.get(LIMITS.name))
            stored = partial(self._plan, connection)
            decide(state.counted, charge, limits, stored, conversions)
            last = state.head
            if not state.has_plan:
                last = keep_plan(connection, last, charge.plan)
            release = checked_release(sample(), charge.plan)
            links.append(connection, CHARGES, last, **fields(charge, release))
            return release

        return self.database.write(work)

    def _limits(self, connection: Connection, last: Head | None) -> Limits:
        """The limits in force, read again only when one was added since."""
        if self._known_limits[0] != last:
            by_subject: Limits = {}
            for limit in reading.limits(connection):
                by_subject.setdefault(limit.subject, []).append(limit)
            self._known_limits = (last, by_subject)
        return self._known_limits[1]

    def _plan(self, connection: Connection, name: str) -> Plan:
        """The stored plan, built once per program."""
        if name not in self._plans:
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            self._plans[name] = reading.stored_plan(connection, name)
        return self._plans[name]

    def _check_open(self) -> None:
        if self.obstacle is not None:
            raise LedgerError(f"the ledger {self.database.name} is read-only: {self.obstacle}")


def decide(
    counted: Sequence[Counted],
    charge: Charge,
    limits: Limits,
    stored: Callable[[str], Plan],
    conversions: Conversions,
) -> None:
    """Raise unless every rule and every limit allows the charge after those counted."""
    everyone = _tally(counted, stored)
    any_total(more(everyone, charge.plan), conversions)
    for limit in (*limits.get(EACH, ()), *limits.get(charge.subject, ())):
        if limit.matches(charge.subject, charge.period, charge.requester):
            own = limit.requester is not None
            spent = _tally(counted, stored, charge.requester) if own else everyone
            check(limit, spent, charge.plan, conversions)


def _tally(
    counted: Iterable[Counted], stored: Callable[[str], Plan], requester: str | None = None
) -> Tally:
    rows = [row for row in counted if requester in (None, row.requester)]
    return from_counts({(stored(name), WHOLE): n for name, n in reading.tally(rows).items()})


def keep_plan(connection: Connection, last: Head, plan: Plan) -> Head:
    """Store the plan; the head of the chain afterwards."""
    document = dumps(plan, indent=None)
    loads(document)  # a plan that cannot be loaded again could never be added to
    return links.append(connection, PLANS, last, plan=plan.fingerprint, document=document)
