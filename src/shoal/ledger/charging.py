"""The one way a charge is made: judged under a lock, then stored with its output.

A transaction locks the subjects and reads what is stored about them, Python judges, the caller
draws, and the transaction writes charges and outputs. One charge and a thousand take this path.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Connection

from shoal.core.charge import Charge, OneStream
from shoal.core.errors import BudgetError, InputError, LedgerError, ShoalError
from shoal.core.plan import Plan, Release
from shoal.core.stream import (
    ALLOWED,
    Allowed,
    Denied,
    SameAs,
    Stored,
    Transaction,
    Verdict,
    lost_output,
)
from shoal.ledger.accounts import EACH, Account, Judge, Kind, LedgerPolicy, Limit
from shoal.ledger.cache import LedgerCache, LedgerView
from shoal.ledger.database import WRITE_ATTEMPTS, Database, newer
from shoal.ledger.entries import (
    FAILED_DRAW,
    Entry,
    accounts_of,
    asked_for,
    asked_for_accounts,
    check_names,
    check_same,
    checked_release,
    continued,
    document_of,
    entry_of,
    lines,
    load_accounts,
    members_hash,
    pack,
    read_limits,
    read_signers,
    row_of,
    times_counted,
    unpack,
)
from shoal.ledger.histories import (
    check_step,
    closed_day,
    key_before,
    other_history,
    out_of_line,
    unlike_stored,
)
from shoal.ledger.queries import (
    ADD,
    ADD_PLAN,
    ALL_COUNTS,
    ENDS,
    HASH,
    KEYS,
    LOCK_LEDGER,
    LOCK_SUBJECTS,
    SHARE_LEDGER,
    SINCE,
    SUBJECT_SLOTS,
    VERSION,
    Asked,
    LedgerQuery,
    fetch,
    write,
)
from shoal.ledger.schema import NEWEST, Head
from shoal.ledger.totals import Conversions, KnownConversions

Outcome = Release | BudgetError
Sample = Callable[[list[int]], Sequence[Release]]
Documents = dict[str, str]  # plans by fingerprint
StoredEntries = dict[tuple[str, str], Entry]  # by requester and key
T = TypeVar("T")


class Overtaken(Exception):
    """Another writer used a key or a place that was free a moment ago; nothing was committed."""


class ChargeService:
    """Charges one database, with what the process remembers of it."""

    def __init__(self, database: Database, memory: KnownConversions) -> None:
        self.database = database
        self.memory = memory
        self.cache = LedgerCache()
        self._document = lru_cache(maxsize=8)(document_of)  # kept until it is committed

    def settle(
        self, charges: Sequence[Charge], sample: Sample, connection: Connection | None = None
    ) -> list[Outcome]:
        """Return for each charge the stored release of its key, a new one, or its refusal.

        `sample(positions)` draws the releases of the charges at those positions, once all of them
        are allowed. When it raises, nothing is charged. It may run again after a transaction that
        was not committed: only the values of the run that commits are returned. In the caller's
        transaction of `connection` nothing is charged before the caller commits.
        """

        def settled(transaction: Transaction) -> list[Outcome]:
            """Judge all charges in one transaction, sample those allowed, store them, and return
            outcomes.

            A refusal that is no budget error is raised. Repeated charges share their first outcome.
            """
            verdicts = transaction.charge(charges)
            for verdict in verdicts:
                if isinstance(verdict, Denied) and not isinstance(verdict.reason, BudgetError):
                    raise verdict.reason
            allowed = [at for at, verdict in enumerate(verdicts) if isinstance(verdict, Allowed)]
            drawn = dict(zip(allowed, sample(allowed), strict=True)) if allowed else {}
            transaction.store(drawn)
            outcomes: list[Outcome] = []
            for at, verdict in enumerate(verdicts):
                if isinstance(verdict, SameAs):
                    outcomes.append(outcomes[verdict.position])
                else:
                    outcomes.append(_outcome(verdict, drawn.get(at)))
            return outcomes

        if connection is not None:
            return settled(self.transaction(connection))
        return self.transact(settled)

    def transaction(
        self, connection: Connection, conversions: Conversions | None = None
    ) -> LedgerTransaction:
        """Return the ledger inside a transaction that the caller began and commits."""
        return LedgerTransaction(self, connection, conversions or self.memory.computed)

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of a transaction of the ledger's own, once it is committed.

        `work` runs again when the transaction surely had no effect: after a deadlock, a broken
        connection, or where a conversion was missing, which is computed while nothing is locked.
        """

        def once(conversions: Conversions) -> T:
            """Return what the work returns, in one transaction, and cache the documents that it
            stored.
            """
            made: list[LedgerTransaction] = []

            def inside(connection: Connection) -> T:
                made[:] = [self.transaction(connection, conversions)]
                return work(made[0])

            def is_committed(connection: Connection) -> bool:
                return made[0].is_committed(connection)

            result = self.database.write(inside, is_committed)
            self.cache.stored.update(made[0].documents)
            return result

        for _ in range(WRITE_ATTEMPTS):
            try:
                return self.memory.patiently(once)
            except Overtaken:
                continue
        raise LedgerError(f"the ledger {self.database.name} has too many writers at once; repeat")

    def store_plan(self, plan: Plan) -> None:
        """Store a plan by itself, before anything is charged for it."""
        documents = self.missing_documents([plan])
        if documents:
            self.database.write(lambda connection: write(connection, _adding(documents)))
            self.cache.stored.update(documents)

    def missing_documents(self, plans: Iterable[Plan]) -> Documents:
        """Return the documents of plans that may not be stored yet."""
        named = {plan.fingerprint: plan for plan in plans}
        return {name: self._document(named[name]) for name in named.keys() - self.cache.stored}

    def read_policy(self, connection: Connection, seq: int) -> LedgerPolicy:
        """Return limits and signers; `seq` is the end of the chain that holds them."""
        found = int(fetch(connection, (VERSION, {}))[0][0][0])
        if found > NEWEST:
            raise LedgerError(f"the ledger {self.database.name} is read-only: {newer(found)}")
        limits: dict[str, list[Limit]] = {}
        for limit in read_limits(connection):
            limits.setdefault(limit.subject, []).append(limit)
        return LedgerPolicy(seq, limits, *read_signers(connection))


@dataclass(slots=True)
class LedgerTransaction:
    """Charges inside one transaction of the database. Nothing is charged before it commits.

    `charge` judges, then the caller draws, then `store` writes; a transaction may do so again.
    """

    service: ChargeService
    connection: Connection
    conversions: Conversions
    documents: Documents = field(default_factory=dict)  # of plans it stored
    _charges: Sequence[Charge] = ()
    _allowed: list[int] = field(default_factory=list)
    _seen: LedgerView | None = None
    _after: dict[str, Account] = field(default_factory=dict)
    _last: dict[str, Any] | None = None  # the last row it wrote

    def charge(self, charges: Sequence[Charge]) -> list[Verdict]:
        """Lock and read what is stored about the subjects, and return the verdict on each charge.

        Charges about one subject count one after the other, in the order given.
        """
        verdicts: dict[int, Verdict] = {}
        for at, charge in enumerate(charges):
            with _denying(verdicts, at):
                self._check(charge)
        valid = {at: charge for at, charge in enumerate(charges) if at not in verdicts}
        subjects = sorted({name for charge in valid.values() for name in lines(charge)})
        if not subjects:
            return [verdicts[at] for at in range(len(charges))]
        seen, keyed = self._read(list(valid.values()), subjects)
        self._after = {name: account.copy() for name, account in seen.accounts.items()}
        judge = self._judge(seen)
        everyone = _everyone(self.connection) if EACH in self._after else {}
        first: dict[tuple[str, str], int] = {}
        for at, charge in valid.items():
            with _denying(verdicts, at):
                known = self._repeated(charge, keyed, seen) or _same_key(charges, at, first)
                if known is not None:
                    verdicts[at] = known
                    continue
                late = out_of_line(charge, keyed, seen.accounts, seen.everybody)
                refusal = late or self._refusal(charge, judge, everyone)
                verdicts[at] = ALLOWED if refusal is None else Denied(refusal)
            if verdicts[at] is ALLOWED:
                for name in lines(charge):
                    end = Head(self._after[name].head.seq + 1, "")
                    self._after[name].add(end, Kind.of(charge), times_counted(charge, name))
        self._charges, self._seen = charges, seen
        self._allowed = [at for at, verdict in verdicts.items() if verdict is ALLOWED]
        return [verdicts[at] for at in range(len(charges))]

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of this transaction, which the caller commits."""
        return work(self)

    def store(self, outputs: Mapping[int, Release]) -> None:
        """Write the charges that were allowed, each with its output, by position of the charge.

        A charge without an output is stored all the same: its draw failed.
        """
        allowed, self._allowed = sorted(self._allowed), []
        if not allowed or self._seen is None:
            return
        drawn = [(self._charges[at], outputs.get(at)) for at in allowed]
        for charge, output in drawn:
            if output is not None:
                checked_release(output, charge.plan)
        documents = self.service.missing_documents(charge.plan for charge, _ in drawn)
        rows = _rows(drawn, self._seen, self._after)
        statements = [_adding(documents)] if documents else []
        if write(self.connection, *statements, (ADD, rows)) != len(rows):
            raise Overtaken("a key or a place was used meanwhile")
        self.documents |= documents
        self._last = rows[-1]
        for name, account in self._after.items():
            self.service.cache.keep(name, account)

    def is_committed(self, connection: Connection) -> bool:
        """Return whether the transaction was committed, asked on another connection.

        It waits for the locks of the transaction, so that nothing of it is still under way.
        """
        if self._last is None:
            return True
        subjects = [name for charge in self._charges for name in lines(charge)]
        names = {"subject": self._last["subject"], "place": self._last["place"]}
        *_, found = fetch(connection, *_locks(subjects), (HASH, names))
        return [row[0] for row in found] == [self._last["hash"]]

    def _refusal(
        self, charge: Charge, judge: Judge, everyone: Mapping[str, Account]
    ) -> BudgetError | None:
        """Return why the charge is refused about one of its subjects; None where it is allowed."""
        names = lines(charge)
        concerned = {name: self._after[name] for name in names if name != EACH}
        if EACH in names:
            known = {name: account for name, account in self._after.items() if name != EACH}
            concerned = {**everyone, **known, EACH: Account()}
        reasons = (judge(account, charge, name) for name, account in concerned.items())
        return next((reason for reason in reasons if reason is not None), None)

    def _judge(self, seen: LedgerView) -> Judge:
        """Return the judge of new charges, on what was stored and what this transaction adds
        to it.
        """
        cache, everybody = self.service.cache, self._after.get(EACH, seen.everybody)

        def plan(name: str) -> Plan:
            return cache.plan(self.connection, name)

        return Judge(seen.policy, plan, self.conversions, everybody, cache.confirmed)

    def _read(
        self, charges: Sequence[Charge], subjects: list[str]
    ) -> tuple[LedgerView, StoredEntries]:
        """Lock the subjects and read policy, accounts and used keys, in one round trip.

        An account that this process knows is used if its last charge is still there; then only
        later ones are read.
        """
        cache = self.service.cache
        cached = {name: cache.accounts[name] for name in subjects if name in cache.accounts}
        unknown = [name for name in subjects if name not in cached and name != EACH]
        asked: list[Asked] = [*_locks(subjects), (ENDS, {})]
        first = len(asked)
        asked += _asked_for_keys(charges)
        after_keys = len(asked)
        if cached:
            places = [account.head.seq for account in cached.values()]
            asked.append((SINCE, {"subjects": list(cached), "places": places}))
        if unknown:
            asked += asked_for_accounts(unknown)
        found = fetch(self.connection, *asked)
        policy, everybody = self._read_ends(*found[first - 1][0], again=EACH in subjects)
        rows: dict[str, list[Any]] = {name: [] for name in cached}
        for name, *row in found[after_keys] if cached else ():
            rows[name].append(row)
        now = {name: continued(known, rows[name]) for name, known in cached.items()}
        accounts = {name: account for name, account in now.items() if account is not None}
        stale = [name for name in now if name not in accounts]
        accounts |= accounts_of(unknown, *found[-2:]) if unknown else {}
        accounts |= load_accounts(self.connection, stale) if stale else {}
        accounts |= {EACH: everybody} if EACH in subjects else {}
        for name, account in accounts.items():
            cache.keep(name, account)
        entries = [entry_of(row) for part in found[first:after_keys] for row in part]
        keyed = {(entry.requester, str(entry.key)): entry for entry in entries}
        return LedgerView(policy, everybody, accounts), keyed

    def _read_ends(
        self, seq: int, everybody_hash: str, newest: object, *, again: bool
    ) -> tuple[LedgerPolicy, Account]:
        """Return policy and charges about everybody, read again where their chains have moved."""
        if not newest:
            raise InputError(
                "connection is in a transaction that sees one moment only, so charges that others "
                "commit meanwhile would not count; begin it with isolation_level READ COMMITTED"
            )
        cache = self.service.cache
        if cache.policy is None or cache.policy.seq != seq:
            cache.policy = self.service.read_policy(self.connection, seq)
        if everybody_hash != cache.everybody.head.hash:
            cache.everybody = load_accounts(self.connection, [EACH])[EACH]
        return cache.policy, cache.everybody

    def _repeated(self, charge: Charge, keyed: StoredEntries, seen: LedgerView) -> Verdict | None:
        """Return the verdict on a charge whose key was used before; None where it was not.

        The stored output of a step is given only where it would be drawn from the same law and, in
        a stream that watches events, after the same history; others are refused. So is a stream
        whose day is closed: its charge is repeated before it draws another slot.
        """
        entry = None if charge.key is None else keyed.get((charge.requester, charge.key))
        if entry is None:
            return None
        check_same(entry, charge)
        other = unlike_stored(entry, charge) if charge.plan.by_step else None
        counts = self._after[charge.subject].counts + seen.everybody.counts
        refusal = other or closed_day(
            charge, counts, lambda name: self.service.cache.plan(self.connection, name)
        )
        if refusal is not None:
            return Denied(refusal)
        if entry.value == FAILED_DRAW:
            return Stored(None)
        return Stored(unpack(entry, self.service.cache.plan(self.connection, entry.plan)))

    def _check(self, charge: Charge) -> None:
        """Refuse a charge that no ledger can store."""
        check_names(charge)
        if charge.step is not None or charge.plan.rules(OneStream):
            check_step(charge)
        self.service.missing_documents([charge.plan])
        self.service.cache.keep_plan(charge.plan)


@contextmanager
def _denying(verdicts: dict[int, Verdict], at: int) -> Iterator[None]:
    """Turn an error about one charge into its verdict, so that it harms no other one."""
    try:
        yield
    except ShoalError as error:
        verdicts[at] = Denied(error)


def _outcome(verdict: Verdict, drawn: Release | None) -> Outcome:
    """Return the release or the refusal of a charge."""
    if isinstance(verdict, Denied):
        assert isinstance(verdict.reason, BudgetError)  # the others were raised
        return verdict.reason
    release = verdict.output if isinstance(verdict, Stored) else drawn
    if release is None:
        raise lost_output()
    return release


def _locks(subjects: Iterable[str]) -> list[Asked]:
    """Return the statements that hold off the other writers about these subjects."""
    if EACH in subjects:
        return [(LOCK_LEDGER, {})]
    slots = sorted({zlib.crc32(name.encode()) % SUBJECT_SLOTS for name in subjects})
    return [(SHARE_LEDGER, {}), (LOCK_SUBJECTS, {"slots": slots})]


def _asked_for_keys(charges: Sequence[Charge]) -> list[Asked]:
    """Return what reads the stored charges under the keys of these, and those before steps."""
    keys: dict[str, list[str]] = {}
    for charge in charges:
        if charge.key is not None:
            keys.setdefault(charge.requester, []).append(charge.key)
        before = key_before(charge)
        if before is not None:
            keys.setdefault(charge.requester, []).append(before)
    return [(KEYS, {"requester": who, "keys": [*set(own)]}) for who, own in keys.items()]


def _adding(documents: Documents) -> tuple[LedgerQuery, list[dict[str, Any]]]:
    return ADD_PLAN, [{"plan": name, "document": document} for name, document in documents.items()]


def _rows(
    drawn: Iterable[tuple[Charge, Release | None]], seen: LedgerView, after: dict[str, Account]
) -> list[dict[str, Any]]:
    """Return the rows of charges, each after its subject's end then; set the ends in `after`."""
    ends = {name: account.head for name, account in seen.accounts.items()}
    rows = []
    for charge, release in drawn:
        value = (
            FAILED_DRAW
            if release is None
            else pack(charge.plan, release, charge.step, charge.noise)
        )
        for name in lines(charge):
            own = value if name == charge.subject else None
            row = row_of(charge, name, own, ends[name], seen.policy.seq)
            rows.append(row)
            ends[name] = Head(row["place"], row["hash"])
    for name, end in ends.items():
        after[name].head = end
    return rows


def _everyone(connection: Connection) -> dict[str, Account]:
    """Return every subject's account: what is about everybody must be allowed for each."""
    found: dict[str, Account] = {}
    for subject, *kind, times in fetch(connection, (ALL_COUNTS, {}))[0]:
        found.setdefault(subject, Account()).counts[Kind(*kind)] += times
    found.pop(EACH, None)
    return found


def _same_key(
    charges: Sequence[Charge], at: int, first: dict[tuple[str, str], int]
) -> Verdict | None:
    """Return the verdict on a charge that repeats the key of an earlier one; None for another.

    `first` is the position of the first charge of each key, and is added to.
    """
    charge = charges[at]
    if charge.key is None:
        return None
    earlier = first.setdefault((charge.requester, charge.key), at)
    if earlier == at:
        return None
    one, other = ((*asked_for(each), members_hash(each)) for each in (charges[earlier], charge))
    if one != other:
        raise InputError(
            f"key is {charge.key!r} for two different releases; use a new key for a new release"
        )
    same = charges[earlier].step == charge.step
    return SameAs(earlier) if same else Denied(other_history(charge))
