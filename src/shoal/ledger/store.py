"""A ledger in a database: charge before anything is drawn, say what was spent, and what may be."""

from __future__ import annotations

import getpass
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import Connection, text

from shoal.core.charge import Charge, Part, Rng
from shoal.core.errors import BudgetError, CannotCompose, InputError, LedgerError
from shoal.core.numbers import Number, exact
from shoal.core.plan import Plan, Release
from shoal.core.registry import Shown
from shoal.core.stream import Transaction
from shoal.ledger.accounts import EACH, LIFETIME, Kind, Limit, tally, together_with
from shoal.ledger.charging import ChargeService, LedgerTransaction, Outcome, Sample
from shoal.ledger.database import Database, connect, newer, prepare
from shoal.ledger.entries import (
    Change,
    Entry,
    as_written,
    checked_text,
    counted_row,
    entry_of,
    load_accounts,
    read_changes,
    read_limits,
    unpack,
)
from shoal.ledger.queries import COUNTED, LOCK_LEDGER, fetch
from shoal.ledger.rules import least_total, parallel, standard_conversions, told
from shoal.ledger.schema import (
    NEWEST,
    NO_LINK,
    Head,
    decree,
    house_head,
    lay_checkpoint,
    version,
)
from shoal.ledger.totals import Conversions, KnownConversions, Tally, Total
from shoal.ledger.verify import Signer, Verdict, verify

T = TypeVar("T")

TIMEOUT = 30.0  # seconds to wait for another writer
PAGE = 1000  # rows fetched at once
LONGEST_AMOUNT = 400  # characters of a number in a limit

_ENTRIES = f"SELECT {', '.join(Entry._fields)} FROM shoal_entries"
Etas = list[tuple[Fraction | None, int]]  # of charges, and how often


def open_ledger(
    where: str | Path,
    *,
    timeout: float = TIMEOUT,
    read_only: bool = False,
    shared: bool = False,
    conversions: Conversions | None = None,
    call_seconds: float | None = None,
) -> SqlLedger:
    """The ledger in a SQLite file, or behind a postgresql:// URL; made when absent.

    A new file can be read and written by its owner alone, unless it is to be `shared`. Opened
    read-only when asked, when the file may not be written, or when it was made by a newer program.
    `conversions` are this library's own unless given. `call_seconds` is the deadline of each call
    to PostgreSQL; without it a connection that stalls is waited for.
    """
    database, obstacle = connect(
        where, timeout=timeout, read_only=read_only, shared=shared, call_seconds=call_seconds
    )
    return SqlLedger(database, obstacle=obstacle, conversions=conversions)


@contextmanager
def ledger_or_nothing(where: str) -> Iterator[SqlLedger]:
    """The ledger, made when absent; a file that was made here and holds nothing goes again.

    Only when the work inside fails: a command that was refused leaves no trace.
    """
    new = "://" not in where and not os.path.exists(where)
    empty = False
    try:
        with open_ledger(where) as ledger:
            try:
                yield ledger
            except BaseException:
                empty = new and not (ledger.accounts() or ledger.limits())
                raise
    finally:
        if empty:
            _remove(Path(where))


def _remove(path: Path) -> None:
    for name in (path, *(path.with_name(path.name + tail) for tail in ("-wal", "-shm"))):
        with suppress(OSError):
            name.unlink()


class SqlLedger(Shown):
    """Charges, limits and plans in a database; implements `shoal.core.charge.Ledger`.

    `obstacle` says why the ledger may not be changed; None when it may.
    """

    def __init__(
        self,
        database: Database,
        *,
        obstacle: str | None = None,
        conversions: Conversions | None = None,
    ) -> None:
        """Prepare the database and the service that charges it; `obstacle` says why it cannot be
        used.
        """
        self.database, self.obstacle = prepare(database, obstacle)
        self._memory = KnownConversions(conversions or standard_conversions())
        self._service = ChargeService(self.database, self._memory)

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """The stored release of this key, or a new one: checked, charged, drawn and committed.

        The limits and the rules decide before `sample` is called; the charge and the value are
        committed together; only then is the value returned. A refusal or a crash before the
        commit leaves neither. Under load `sample` may run again when others came first: the value
        that was committed is the only one anybody sees.
        """
        return _one(self.settle_all([charge], lambda _: [sample()]))

    def settle_all(
        self, charges: Sequence[Charge], sample: Sample, connection: Connection | None = None
    ) -> list[Outcome]:
        """For each charge the stored release of its key, a new one, or the reason it is refused.

        All in one transaction, which commits whole or not at all; a charge that is refused leaves
        the others alone. `sample(places)` draws the releases of the charges at those places. With
        a `connection` (of this ledger's own database) in the transaction it is in: the caller
        stores what belongs to the releases beside them, commits, and only then tells them.
        """
        self._check_open()
        return self._service.settle(charges, sample, connection)

    def transaction(self, connection: Connection) -> LedgerTransaction:
        """Return this ledger inside a transaction that the caller began and commits."""
        self._check_open()
        return self._service.transaction(connection)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of a transaction of this ledger's own, once it is committed.

        `work` runs again when the transaction surely had no effect: only the run that commits
        counts.
        """
        self._check_open()
        return self._service.transact(work)

    def within(self, connection: Connection) -> Within:
        """This ledger inside somebody's transaction: its charges are committed with it."""
        return Within(self, connection)

    def keep(self, plan: Plan) -> None:
        """Store a plan now, so that the first charge of it need not."""
        self._check_open()
        self._service.store_plan(plan)

    def limit(
        self,
        amount: Number,
        *,
        unit: str = "eta",
        subject: str = EACH,
        period: str | None = EACH,
        requester: str | None = None,
        by: str | None = None,
    ) -> Limit:
        """Set a limit, replacing the one on the same scope; spending so far stays as it is.

        The period None is all periods together. Who set it (`by`, else the user) is in the chain.
        """
        if isinstance(amount, str) and len(amount) > LONGEST_AMOUNT:
            raise InputError(f"{unit} limit has {len(amount)} characters; give a number")
        limit = Limit(
            unit=unit,
            amount=exact(amount, f"{unit} limit"),
            subject=checked_text(subject, "subject"),
            period=period if period is None else checked_text(period, "period"),
            requester=requester if requester is None else checked_text(requester, "requester"),
        )
        document = {
            "unit": limit.unit,
            "amount": str(limit.amount),
            "subject": limit.subject,
            "period": LIFETIME if limit.period is None else limit.period,
            "requester": limit.requester,
        }
        self._decree("limit", subject, document, by)
        return limit

    def limits(self) -> tuple[Limit, ...]:
        """The limits in force."""
        return self.database.read(read_limits)

    def trust(self, signer: str, *, trusted: bool = True, by: str | None = None) -> None:
        """Take only plans of named signers from now on, this public key among them; or no more."""
        document = {"key": Signer.checked(signer), "trusted": trusted}
        self._decree("signer", signer, document, by)

    def admit(self, plan: Plan, signer: str, signature: str, *, by: str | None = None) -> None:
        """Let a signed plan be charged; refused unless the signature of its fingerprint holds."""
        if not Signer.holds(signer, signature, plan.fingerprint):
            raise InputError("signature is not that signer's, or of another plan; sign this plan")
        document = {"plan": plan.fingerprint, "key": signer, "signature": signature}
        self._decree("signature", plan.fingerprint, document, by)

    def checkpoint(self, signer: Signer | None = None, *, by: str | None = None) -> Head:
        """One link over the ends of all chains, signed if asked; keep its hash elsewhere.

        `verify` with that hash shows whether anything before it was cut off, of any subject.
        """
        sign = None if signer is None else signer.sign
        return self._in_house(lambda c, last, who: lay_checkpoint(c, last, who, sign), by)

    def changes(self) -> list[Change]:
        """All that was ever done to limits, signers and checkpoints, oldest first."""
        return self.database.read(read_changes)

    def spent(
        self,
        subject: str,
        period: str | None = "",
        *,
        requester: str | None = None,
        whole: bool = False,
    ) -> Total | None:
        """What the charges about a subject come to in a period; None when there are none.

        With period "*": over all its periods, each independent of the others; with None: all
        periods together, as if none were. With a requester: what that requester alone was told.
        Steps of streams in one period also say what they tell between any two sequences, from what
        each was charged with. `whole` says that every release read all entries of the same data,
        never a part of a series: see `compose`.
        """

        def work(connection: Connection) -> tuple[list[Tally], Etas]:
            """Return the tallies of the accounts asked for, and the eta of each step where plans
            have steps.
            """
            found = load_accounts(connection, [subject, EACH])
            counts = found[subject].counts + found[EACH].counts
            each = period == EACH
            plan = partial(self._service.cache.plan, connection)
            asked = _accounts_in(counts, plan) if each else [_account_of(counts, plan, period)]
            tallies = [tally(counts, plan, one, requester) for one in asked]
            steps = not each and any(plan.by_step for plan, _ in tallies[0])
            none: Etas = [(None, 0)]
            etas = _etas(connection, subject, asked[0], requester) if steps else none
            return tallies, etas

        tallies, etas = self.database.read(work)
        conversions = replace(self._memory.computed, whole=whole)
        totals = [least_total(one, conversions) for one in tallies if one]
        if not totals:
            return None
        return parallel(totals) if period == EACH else told(totals[0], tallies[0], etas)

    def totals(
        self,
        subject: str | None = None,
        period: str | None = None,
        requester: str | None = None,
        *,
        after: str = "",
        rows: int | None = None,
    ) -> Iterator[tuple[str, str, Total | CannotCompose]]:
        """Subject, period and total of every account, or of the first `rows` subjects after one.

        Charges are counted by the database; accounts with the same charges are added up once.
        """
        known: dict[Tally, Total | CannotCompose] = {}
        conversions = self._memory.computed
        counted = self.database.read(lambda c: _counted(c, subject, after, rows))
        for name, counts in counted:
            for one in sorted({kind.period for kind in counts}):
                if period not in (None, one):
                    continue
                together = together_with(counts, self.plan, one)
                found = tally(counts, self.plan, together, requester)
                if not found:
                    continue
                if found not in known:
                    known[found] = _total(found, conversions)
                total = self._with_steps(name, together, requester, found, known[found])
                yield name, one, _and_others(total, one, together)

    def _with_steps(
        self,
        subject: str,
        periods: frozenset[str],
        requester: str | None,
        found: Tally,
        total: Total | CannotCompose,
    ) -> Total | CannotCompose:
        """Return the total, with what single steps add to its words where a plan charges by
        step.
        """
        if isinstance(total, CannotCompose) or not any(plan.by_step for plan, _ in found):
            return total
        etas = self.database.read(lambda c: _etas(c, subject, periods, requester))
        return told(total, found, etas)

    def together(self, subject: str, period: str) -> frozenset[str]:
        """Return the periods of a subject that count together with one, itself included.

        Periods that you name are independent of each other: that is what a name claims. One
        without a name may hold the data of any other, and dates lie in their weeks and months.
        """
        found = self.database.read(lambda c: load_accounts(c, [subject, EACH]))
        counts = found[subject].counts + found[EACH].counts
        return together_with(counts, self.plan, period, _asked_about(counts, period))

    def accounts(self) -> list[tuple[str, str]]:
        """Every subject and period with a charge."""
        asked = text("SELECT DISTINCT subject, period FROM shoal_entries ORDER BY subject, period")
        rows = self.database.read(lambda connection: connection.execute(asked).all())
        return [(subject, period) for subject, period in rows]

    def has(self, subject: str, period: str) -> bool:
        """Whether anything was charged about a subject in a period."""
        asked = text(
            "SELECT 1 FROM shoal_entries WHERE subject = :subject AND period = :period LIMIT 1"
        )
        names = {"subject": subject, "period": period}
        return self.database.read(lambda c: c.execute(asked, names).first()) is not None

    def charges(self, subject: str | None = None) -> list[Entry]:
        """All charges, in the order of their writers' clocks; or those about one subject."""
        if subject is None:
            order = lambda entry: (entry.at, entry.subject, entry.place)  # noqa: E731
            return sorted(self.each_charge(), key=order)
        asked = text(f"{_ENTRIES} WHERE subject = :subject ORDER BY place")
        rows = self.database.read(lambda c: c.execute(asked, {"subject": subject}).all())
        return [entry_of(row) for row in rows]

    def each_charge(self) -> Iterator[Entry]:
        """All charges, subject by subject, fetched as they are needed."""
        after = "(subject, place) > (:subject, :place)"
        asked = text(f"{_ENTRIES} WHERE {after} ORDER BY subject, place LIMIT {PAGE}")
        given: dict[str, Any] = {"subject": "", "place": 0}

        def page(connection: Connection) -> Sequence[Any]:
            return connection.execute(asked, given).all()

        while rows := self.database.read(page):
            for row in rows:
                yield entry_of(row)
            given = {"subject": rows[-1].subject, "place": rows[-1].place}

    def release(self, entry: Entry) -> Release:
        """The release that a stored charge paid for."""
        return unpack(entry, self.plan(entry.plan))

    def plan(self, fingerprint: str) -> Plan:
        """A stored plan."""
        books = self._service.cache
        known = books.plans.get(fingerprint)
        return known or self.database.read(lambda c: books.plan(c, fingerprint))

    def head(self, subject: str | None = None) -> Head:
        """The end of the house chain, or of one subject's; see `checkpoint` for all of them."""
        if subject is None:
            return self.database.read(house_head)
        found = self.database.read(lambda connection: load_accounts(connection, [subject]))
        return found[subject].head or NO_LINK

    def verify(self, head: str | None = None, *, signer: str | None = None) -> Verdict:
        """Whether every row is as it was written, and `head` still in a chain.

        With a signer's public key also that the last checkpoint is signed by it.
        """
        return verify(self.database, head, signer)

    def close(self) -> None:
        """Give the connections back; the ledger can be opened again."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _decree(self, kind: str, name: str, document: dict[str, Any], by: str | None) -> None:
        """Add a link to the house chain."""
        if by is not None:
            checked_text(by, "by")
        self._in_house(lambda c, last, who: decree(c, last, kind, name, document, who), by)

    def _in_house(self, work: Callable[[Connection, Head, str], Head], by: str | None) -> Head:
        """What `work` adds after the end of the house chain; nobody else adds to it meanwhile."""
        self._check_open()

        def alone(connection: Connection) -> Head:
            """Do the work while no other process appends to the log of the administration.

            A ledger of a newer version is refused from here on.
            """
            fetch(connection, (LOCK_LEDGER, {}))
            found = version(connection)
            if found > NEWEST:
                self.obstacle = newer(found)
            self._check_open()
            return work(connection, house_head(connection), by or self._user(connection))

        return self.database.write(alone)

    def _user(self, connection: Connection) -> str:
        """Who is at work: the server's user, or this machine's."""
        asked = self.database.dialect.user
        if asked is not None:
            return str(connection.exec_driver_sql(asked).scalar())
        try:
            return getpass.getuser()
        except (KeyError, OSError):
            return f"user {os.getuid()}"

    def _check_open(self) -> None:
        if self.obstacle is not None:
            raise LedgerError(f"the ledger {self.database.name} is read-only: {self.obstacle}")


@dataclass(frozen=True, slots=True)
class Within:
    """A ledger whose charges belong to a transaction of somebody else's."""

    ledger: SqlLedger
    connection: Connection

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """As the ledger's own, but the commit is the caller's: nothing may be told before it."""
        return _one(self.settle_all([charge], lambda _: [sample()]))

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of the caller's transaction."""
        return work(self.ledger.transaction(self.connection))

    def settle_all(self, charges: Sequence[Charge], sample: Sample) -> list[Outcome]:
        """The same for many."""
        return self.ledger.settle_all(charges, sample, self.connection)


def _one(outcomes: list[Outcome]) -> Release:
    (outcome,) = outcomes
    if isinstance(outcome, BudgetError):
        raise outcome
    return outcome


def _total(tally: Tally, conversions: Conversions) -> Total | CannotCompose:
    try:
        return least_total(tally, conversions)
    except CannotCompose as reason:
        return reason


def _counted(
    connection: Connection, subject: str | None, after: str, rows: int | None
) -> list[tuple[str, Counter[Kind]]]:
    """How often each kind was charged about each subject, in the order of their names."""
    everybody = load_accounts(connection, [EACH])[EACH]
    where = "subject = :subject" if subject is not None else "subject > :after"
    page = "" if rows is None else " LIMIT :rows"
    asked = text(
        f"SELECT subject, {COUNTED} FROM shoal_entries WHERE subject "
        f"IN (SELECT DISTINCT subject FROM shoal_entries WHERE {where} ORDER BY subject{page}) "
        "GROUP BY subject, period, requester, plan, part ORDER BY subject"
    )
    given = {"subject": subject, "after": after, "rows": rows}
    wanted = {name: value for name, value in given.items() if f":{name}" in asked.text}
    found = connection.execute(asked, wanted)
    counted = []
    for name, group in groupby(map(counted_row, found), key=lambda row: row[0]):
        counts = Counter({Kind(*row[1:5]): row[5] for row in group})
        counted.append((name, counts if name == EACH else counts + everybody.counts))
    return counted


def _asked_about(counts: Counter[Kind], period: str) -> list[tuple[str, str]]:
    """Return a period without a charge as one more that is looked at; nothing for the others."""
    return [] if any(kind.period == period for kind in counts) else [(period, "")]


def _account_of(
    counts: Counter[Kind], plan: Callable[[str], Plan], period: str | None
) -> frozenset[str] | None:
    """Return the periods that count together with one; None, which is all of them, for None."""
    if period is None:
        return None
    return together_with(counts, plan, period, _asked_about(counts, period))


def _accounts_in(counts: Counter[Kind], plan: Callable[[str], Plan]) -> list[frozenset[str]]:
    """Return the periods in groups that count together, each group once."""
    names = sorted({kind.period for kind in counts})
    return list(dict.fromkeys(together_with(counts, plan, one) for one in names))


def _and_others(
    total: Total | CannotCompose, period: str, together: frozenset[str]
) -> Total | CannotCompose:
    """Return the total of a period, saying which others it counts together with."""
    others = sorted(together - {period})
    if isinstance(total, CannotCompose) or not others:
        return total
    shown = ", ".join(repr(name) for name in others[:3]) + (", …" if len(others) > 3 else "")
    text = f"{total.explanation}; counted together with {len(others)} other period(s) ({shown})"
    return replace(total, explanation=text)


def _etas(
    connection: Connection, subject: str, periods: frozenset[str] | None, requester: str | None
) -> Etas:
    """The etas charged about one subject and about everybody, and how often: in some periods and by
    one requester, where they are named."""
    given = {} if requester is None else {"requester": requester}
    asked = text(
        "SELECT eta, period, count(*) FROM shoal_entries WHERE subject IN (:subject, '*') "
        "AND (members IS NULL OR members <> '*') "
        + "".join(f"AND {name} = :{name} " for name in given)
        + "GROUP BY eta, period"
    )
    found = connection.execute(asked, {"subject": subject, **given})
    rows = [(eta, times) for eta, period, times in found if periods is None or period in periods]
    with as_written(f"an eta charged about {subject!r}"):
        return [(None if eta is None else Fraction(eta), times) for eta, times in rows]


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

    def __exit__(self, *_: object) -> None:
        if self._open is not None and self._open is not self.ledger:
            self._open.close()
        self._open = None

    def release(
        self,
        plan: Plan,
        data: Any,
        *,
        key: str | None = None,
        part: Part | str | tuple[int, int] | None = None,
        rng: Rng | None = None,
    ) -> Release:
        """One release of `data`, charged to this session's subject, period and requester."""
        return plan.release(
            data,
            ledger=self._opened(),
            subject=self.subject,
            period=self.period,
            requester=self.requester,
            key=key,
            part=part,
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
        """Return the ledger; a path is opened at the first call."""
        if self._open is None:
            if isinstance(self.ledger, str | Path):
                self._open = open_ledger(self.ledger)
            else:
                self._open = self.ledger
        return self._open
