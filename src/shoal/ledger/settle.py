"""The act of charging: looked up, judged, drawn and stored, for one charge as for many.

A charge is a place in its subject's chain, and the statement that adds it does so only if the
chain still ends where it ended when the charge was judged, the house chain too, and nobody used
the key. So nothing needs to be locked while a charge is judged and drawn; whoever was overtaken
adds nothing, looks again, and after some attempts asks the others to wait.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, TextClause, text

from shoal.core.charge import Charge, OneStream
from shoal.core.errors import BudgetError, InputError, LedgerError
from shoal.core.plan import Plan, Release
from shoal.ledger.accounts import EACH, SPARE, Account, HouseRules, Judge, Kind, Limit
from shoal.ledger.database import WRITE_ATTEMPTS, Database, newer
from shoal.ledger.entries import (
    ADD_PLAN,
    ALL_COUNTS,
    ENDS,
    GLANCE,
    HASH,
    KEYS,
    KNOWN_PLAN,
    VERSION,
    adding,
    asked_for,
    caught_up,
    check_names,
    check_same,
    checked_release,
    continued,
    document_of,
    entry_of,
    heads,
    lines,
    loaded,
    pack,
    read_limits,
    read_signers,
    row_of,
    slices,
    stored_plan,
    times_counted,
    unpack,
)
from shoal.ledger.histories import check_step, other_history, steps_out_of_line, unlike_stored
from shoal.ledger.schema import NEWEST, NO_LINK, Head
from shoal.ledger.totals import Conversions, KnownConversions

KEPT_PLANS = 1024  # stored plans kept built, so that they are not read again for every charge
KEPT_ACCOUNTS = 20_000  # subjects whose state is kept
LOCKED_ONE_BY_ONE = 64  # subjects of one transaction that are worth a lock each
OVERTAKEN = 2  # times that a single charge may be overtaken before it asks others to wait

Settlement = Release | BudgetError
Sample = Callable[[list[int]], Sequence[Release]]
Documents = dict[str, str]  # plans by fingerprint


class LedgerView(NamedTuple):
    """What was seen in one transaction: the house, everybody's charges and those of subjects."""

    house: HouseRules
    everybody: Account
    accounts: dict[str, Account]


class Batch(NamedTuple):
    """Charges that are settled in one transaction, and what was drawn for them by their place."""

    connection: Connection
    charges: Sequence[Charge]
    subjects: list[str]
    sample: Sample
    documents: Documents
    conversions: Conversions
    drawn: dict[int, Release]


@dataclass(slots=True)
class Books:
    """What this process knows of a ledger; each use is checked against the ends of the chains."""

    house: HouseRules | None = None
    everybody: Account = field(default_factory=Account)
    accounts: OrderedDict[str, Account] = field(default_factory=OrderedDict)
    plans: dict[str, Plan] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    crowded: dict[str, int] = field(default_factory=dict)
    confirmed: set[str] = field(default_factory=set)

    def keep(self, subject: str, account: Account) -> None:
        """Remember a subject; those that were not asked for longest are forgotten."""
        if subject == EACH:
            self.everybody = account
            return
        self.accounts[subject] = account
        self.accounts.move_to_end(subject)
        while len(self.accounts) > KEPT_ACCOUNTS:
            self.accounts.popitem(last=False)

    def tries(self, subject: str) -> int:
        """How often a charge should be tried with nothing locked; not where others crowd."""
        waits = self.crowded.pop(subject, 0)
        if waits > 1:
            self.crowded[subject] = waits - 1
            return 0
        return OVERTAKEN

    def crowd(self, subject: str) -> None:
        """Remember that others are quicker about a subject just now."""
        if len(self.crowded) >= KEPT_PLANS:
            self.crowded.clear()
        self.crowded.setdefault(subject, SPARE)

    def forget(self, subjects: Iterable[str]) -> None:
        """Look at the house and at these subjects before they are used again."""
        self.house = None
        for name in subjects:
            self.accounts.pop(name, None)

    def plan(self, connection: Connection, name: str) -> Plan:
        """The stored plan, built once per process."""
        found = self.plans.get(name)
        return self.learn(stored_plan(connection, name)) if found is None else found

    def learn(self, plan: Plan) -> Plan:
        """Keep a plan that somebody built already."""
        if len(self.plans) >= KEPT_PLANS:
            self.plans.clear()
        self.plans[plan.fingerprint] = plan
        return plan


class Till:
    """Settles charges in one database, with what the process knows of it."""

    def __init__(self, database: Database, memory: KnownConversions) -> None:
        self.database = database
        self.memory = memory
        self.books = Books()
        # kept while nobody knows whether the plan was committed
        self._document = lru_cache(maxsize=8)(document_of)
        self._add = adding(database.dialect.newest, database.dialect.free)
        self._add_many = adding(database.dialect.newest)

    def settle(
        self, charges: Sequence[Charge], sample: Sample, connection: Connection | None = None
    ) -> list[Settlement]:
        """For each charge the stored release of its key, a new one, or the reason it is refused.

        `sample(places)` draws the releases of the charges at those places, after every one of
        them was allowed. It may be called again when others came first: only the values of the run
        that commits are seen. Charges about the same subject count one after the other, in the
        order given. Inside `connection`'s transaction when one is given: then nothing is charged
        before the caller commits, and nothing may be told.
        """
        for charge in charges:
            check_names(charge)
            if charge.step is not None or charge.plan.rules(OneStream):
                check_step(charge)
            self.books.learn(charge.plan)
        documents = self.documents(charge.plan for charge in charges)
        if connection is not None:
            known = self.memory.computed
            return self._together(connection, charges, sample, documents, known, guess=True)
        if len(charges) == 1 and not charges[0].members and charges[0].step is None:
            for _ in range(self.books.tries(charges[0].subject)):
                outcome = self._alone(charges[0], sample, documents)
                if outcome is not None:
                    return [outcome]
            self.books.crowd(charges[0].subject)

        def work(conversions: Conversions) -> list[Settlement]:
            return self.database.write(
                lambda own: self._together(own, charges, sample, documents, conversions)
            )

        outcomes = self.memory.patiently(work)
        if any(isinstance(outcome, Release) for outcome in outcomes):
            self.books.stored.update(documents)
        return outcomes

    def keep(self, documents: Documents) -> None:
        """Store plans by themselves, before anything is charged for them."""
        if documents:
            self.database.write(lambda connection: _store_plans(connection, documents))
            self.books.stored.update(documents)

    def _alone(self, charge: Charge, sample: Sample, documents: Documents) -> Settlement | None:
        """The outcome of one charge, with nothing locked; None when somebody else came first."""
        seen = self._recalled([charge.subject])
        # a step's key is new nearly always, and adding it finds out; what a day has begun with may
        # not be drawn anew, so other keys are looked up first
        guessed = seen is not None and charge.key is not None and charge.plan.by_step
        if seen is not None and charge.key is not None and not guessed:
            seen = self._glanced(charge, seen)
        if seen is None:
            stored, seen = self.database.read(lambda c: self._look(c, charge))
            if stored is not None:
                return stored
        account = seen.accounts[charge.subject].copy()
        refusal = self._judge(seen, self.memory.computed)(account, charge, charge.subject)
        if refusal is not None:
            return self._confirmed(refusal, charge, seen)
        try:
            (drawn,) = sample([0])
        except Exception:
            # whoever cannot draw may be asking for what was charged and never told
            stored = self.database.read(lambda c: self._look(c, charge))[0] if guessed else None
            if stored is None:
                raise
            return stored
        return self._added(charge, checked_release(drawn, charge.plan), seen, account, documents)

    def _added(
        self,
        charge: Charge,
        release: Release,
        seen: LedgerView,
        account: Account,
        documents: Documents,
    ) -> Release | None:
        """The release, once its charge is in the chain; None when something changed meanwhile."""
        self.keep(documents)
        value = pack(charge.plan, release, charge.step, charge.noise)
        row = row_of(charge, charge.subject, value, account.head, seen.house.seq)
        given = {**row, "previous": account.head.hash, "everybody": seen.everybody.head.hash}
        head = Head(row["place"], row["hash"])
        if not (self.database.write_one(self._add, given) or self._is_there(charge.subject, head)):
            self.books.forget([charge.subject])
            return None
        account.add(head, Kind.of(charge))
        self.books.keep(charge.subject, account)
        return release

    def _glanced(self, charge: Charge, seen: LedgerView) -> LedgerView | None:
        """What is remembered, brought up to date; None when its key was used, or all is new."""
        known = seen.accounts[charge.subject]
        names = {"subject": charge.subject, "place": known.head.seq}
        names |= {"requester": charge.requester, "key": charge.key}
        found: dict[str, list[Any]] = {}
        for what, *row in self.database.glance(GLANCE, names):
            found.setdefault(what, []).append(row)
        ends = (found["house"][0][0], found["everybody"][0][1])
        account = continued(known, sorted(found.get("charge", [])))
        if account is None or "key" in found or ends != (seen.house.seq, seen.everybody.head.hash):
            return None
        return seen._replace(accounts={charge.subject: account})

    def _confirmed(
        self, refusal: BudgetError, charge: Charge, seen: LedgerView
    ) -> Settlement | None:
        """A refusal, if what it rests on is still so."""
        stored, current = self.database.read(lambda c: self._look(c, charge))
        if stored is not None:
            return stored
        heads = [sight.accounts[charge.subject].head for sight in (seen, current)]
        same = heads[0] == heads[1] and seen.everybody.head == current.everybody.head
        return refusal if same and seen.house.seq == current.house.seq else None

    def _look(self, connection: Connection, charge: Charge) -> tuple[Settlement | None, LedgerView]:
        """What is stored under the charge's key, if anything, and all it is to be judged by."""
        seen = self._refreshed(connection, [charge.subject])
        return next((one for _, one in self._repeated(connection, [charge])), None), seen

    def _is_there(self, subject: str, head: Head) -> bool:
        """Whether the row was added all the same: the connection broke before it was heard."""
        asked = {"subject": subject, "place": head.seq}
        found = self.database.read(lambda c: c.execute(HASH, asked).scalar())
        return found is not None and found == head.hash

    def _together(
        self,
        connection: Connection,
        charges: Sequence[Charge],
        sample: Sample,
        documents: Documents,
        conversions: Conversions,
        *,
        guess: bool = False,
    ) -> list[Settlement]:
        """All outcomes, in one transaction; the other writers of a few subjects wait meanwhile.

        With `guess` steps about known subjects are judged by what is remembered, their keys taken
        for new and nobody made to wait: adding them finds out whether all of that is so.
        """
        subjects = sorted({name for charge in charges for name in lines(charge)})
        batch = Batch(connection, charges, subjects, sample, documents, conversions, {})
        stepped = guess and all(c.plan.by_step and c.step is None for c in charges)
        seen = self._recalled(subjects) if stepped else None
        if seen is not None:
            outcomes = self._tried(batch, seen, guessed=True)
            if outcomes is not None:
                return outcomes
        if guess:
            self._check_sight(connection)
        self._lock(connection, subjects)
        for _ in range(WRITE_ATTEMPTS):
            outcomes = self._tried(batch, self._refreshed(connection, subjects), guessed=False)
            if outcomes is not None:
                return outcomes
            self.books.forget(subjects)
        raise LedgerError(f"the ledger {self.database.name} has too many writers at once; repeat")

    def _tried(self, batch: Batch, seen: LedgerView, *, guessed: bool) -> list[Settlement] | None:
        """All outcomes, judged by what was seen; None when that is not, or may not be, so."""
        connection, charges, drawn = batch.connection, batch.charges, batch.drawn
        outcomes: dict[int, Settlement] = {}
        if not guessed:
            outcomes.update(self._repeated(connection, charges))
        fresh, twins = _apart(charges, outcomes)
        if any(charges[place].step is not None for place in fresh):
            known = seen.accounts, seen.everybody
            outcomes.update(steps_out_of_line(connection, charges, fresh, *known))
            fresh = [place for place in fresh if place not in outcomes]
        after = {name: account.copy() for name, account in seen.accounts.items()}
        refused = self._refused(connection, charges, fresh, seen, after, batch.conversions)
        outcomes.update(refused)
        allowed = [place for place in fresh if place not in refused]
        missing = [place for place in allowed if place not in drawn]
        if guessed and (refused or twins):
            return None
        try:
            made = list(zip(missing, batch.sample(missing), strict=True)) if missing else []
        except Exception:
            if guessed:  # whoever cannot draw may be asking for what was charged and never told
                return None
            raise
        drawn.update((at, checked_release(one, charges[at].plan)) for at, one in made)
        if allowed:
            _store_plans(connection, batch.documents)
        rows = list(_rows([(charges[place], drawn[place]) for place in allowed], seen, after))
        # a lock for each of very many subjects would be more than a server holds
        add = self._add if len(batch.subjects) <= LOCKED_ONE_BY_ONE else self._add_many
        if not _all_added(connection, add, rows):
            return None
        for name, account in after.items():
            self.books.keep(name, account)
        outcomes.update((place, drawn[place]) for place in allowed)
        outcomes.update(
            (place, outcomes[first])
            if charges[place].step == charges[first].step
            else (place, other_history(charges[place]))
            for place, first in twins
        )
        return [outcomes[place] for place in range(len(charges))]

    def _recalled(self, subjects: Sequence[str]) -> LedgerView | None:
        """What charges may be judged by without looking; None when that is not enough."""
        house, known = self.books.house, self.books.accounts
        if house is None or not all(name in known for name in subjects):
            return None
        return LedgerView(house, self.books.everybody, {name: known[name] for name in subjects})

    def _check_sight(self, connection: Connection) -> None:
        """Refuse a transaction that would not see what others commit while it lasts."""
        newest = self.database.dialect.newest
        if newest is None or connection.exec_driver_sql(f"SELECT {newest}").scalar():
            return
        raise InputError(
            "connection is in a transaction that sees one moment only, so charges that others "
            "commit meanwhile would not count; begin it with isolation_level READ COMMITTED"
        )

    def _lock(self, connection: Connection, subjects: list[str]) -> None:
        dialect = self.database.dialect
        if EACH in subjects and dialect.words.steady is not None:
            connection.exec_driver_sql(dialect.words.steady)
        elif dialect.lock is not None and len(subjects) <= LOCKED_ONE_BY_ONE:
            connection.execute(text(dialect.lock), [{"subject": name} for name in subjects])

    def _refused(
        self,
        connection: Connection,
        charges: Sequence[Charge],
        fresh: list[int],
        seen: LedgerView,
        after: dict[str, Account],
        conversions: Conversions,
    ) -> dict[int, BudgetError]:
        """The refused charges and why; the allowed ones are counted in `after`."""
        everybody = after.get(EACH, seen.everybody)
        judge = self._judge(seen._replace(everybody=everybody), conversions, connection)
        everyone = _everyone(connection) if EACH in after else {}
        refused: dict[int, BudgetError] = {}
        for place in fresh:
            charge = charges[place]
            names = lines(charge)
            concerned = {name: after[name] for name in names if name != EACH}
            if EACH in names:
                known = {name: account for name, account in after.items() if name != EACH}
                concerned = {**everyone, **known, EACH: Account()}
            told = (judge(account, charge, name) for name, account in concerned.items())
            refusal = next((one for one in told if one is not None), None)
            if refusal is not None:
                refused[place] = refusal
                continue
            for name in names:
                end = Head(after[name].head.seq + 1, "")
                after[name].add(end, Kind.of(charge), times_counted(charge, name))
        return refused

    def _judge(
        self, seen: LedgerView, conversions: Conversions, connection: Connection | None = None
    ) -> Judge:
        def plan(name: str) -> Plan:
            known = self.books.plans.get(name)
            if known is not None:
                return known
            if connection is not None:
                return self.books.plan(connection, name)
            return self.database.read(lambda c: self.books.plan(c, name))

        return Judge(seen.house, plan, conversions, seen.everybody, self.books.confirmed)

    # What is known, and what is stored.

    def _refreshed(self, connection: Connection, subjects: Sequence[str]) -> LedgerView:
        """The books brought up to date: the house, everybody's charges, and these subjects."""
        seq, everybody_hash = connection.execute(ENDS).one()
        house, everybody = self.books.house, self.books.everybody
        if house is None or house.seq != seq:
            house = self.books.house = self._read_house(connection, seq)
        if everybody_hash != everybody.head.hash:
            everybody = self.books.everybody = loaded(connection, [EACH])[EACH]
        seen = {EACH: everybody} if EACH in subjects else {}
        absent = []
        ends = heads(connection, [name for name in subjects if name in self.books.accounts])
        for name in subjects:
            known = self.books.accounts.get(name)
            current = known
            if known is not None and ends.get(name, NO_LINK) != known.head:
                current = caught_up(connection, name, known)
            if name != EACH and current is None:
                absent.append(name)
            elif current is not None:
                seen[name] = current
        seen.update(loaded(connection, absent))
        for name, account in seen.items():
            self.books.keep(name, account)
        return LedgerView(house, everybody, seen)

    def _read_house(self, connection: Connection, seq: int) -> HouseRules:
        found = int(connection.execute(VERSION).scalar_one())
        if found > NEWEST:
            raise LedgerError(f"the ledger {self.database.name} is read-only: {newer(found)}")
        limits: dict[str, list[Limit]] = {}
        for limit in read_limits(connection):
            limits.setdefault(limit.subject, []).append(limit)
        return HouseRules(seq, limits, *read_signers(connection))

    def documents(self, plans: Iterable[Plan]) -> Documents:
        """The documents of plans that may not be stored yet, made before anything is locked."""
        named = {plan.fingerprint: plan for plan in plans}
        return {name: self._document(named[name]) for name in named.keys() - self.books.stored}

    def _repeated(
        self, connection: Connection, charges: Sequence[Charge]
    ) -> Iterator[tuple[int, Settlement]]:
        """The place and release of every charge whose key was used before.

        The stored output of a step is given to who would draw it from the same law, in a stream
        that watches events after the same history; others are refused.
        """
        places: dict[tuple[str, str], list[int]] = {}
        for place, charge in enumerate(charges):
            if charge.key is not None:
                places.setdefault((charge.requester, charge.key), []).append(place)
        for requester in dict.fromkeys(requester for requester, _ in places):
            keys = [key for who, key in places if who == requester]
            for names in slices(keys):
                for row in connection.execute(KEYS, {"requester": requester, "keys": names}).all():
                    entry = entry_of(row)
                    for place in places[requester, str(entry.key)]:
                        check_same(entry, charges[place])
                        stepped = charges[place].plan.by_step
                        other = unlike_stored(entry, charges[place]) if stepped else None
                        plan = self.books.plan(connection, entry.plan)
                        yield place, other or unpack(entry, plan)


def _store_plans(connection: Connection, documents: Documents) -> None:
    for name, document in documents.items():
        if connection.execute(KNOWN_PLAN, {"plan": name}).first() is None:
            connection.execute(ADD_PLAN, {"plan": name, "document": document})


def _rows(
    drawn: Iterable[tuple[Charge, Release]], seen: LedgerView, after: dict[str, Account]
) -> Iterator[dict[str, Any]]:
    """The rows of all charges, each after the end its subject has then; `after` gets the ends."""
    ends = {name: account.head for name, account in seen.accounts.items()}
    rows = []
    for charge, release in drawn:
        value = pack(charge.plan, release, charge.step, charge.noise)
        for name in lines(charge):
            own = value if name == charge.subject else None
            row = row_of(charge, name, own, ends[name], seen.house.seq)
            rows.append({**row, "previous": ends[name].hash})
            ends[name] = Head(row["place"], row["hash"])
    everybody = seen.everybody.head.hash
    for row in sorted(rows, key=lambda row: str(row["subject"])):  # so that no two batches wait
        yield {**row, "everybody": everybody}
        everybody = row["hash"] if row["subject"] == EACH else everybody
    for name, end in ends.items():
        after[name].head = end


def _all_added(connection: Connection, add: TextClause, rows: list[dict[str, Any]]) -> bool:
    """Whether all rows were added; if not, none was."""
    if len(rows) < 2:
        return not rows or connection.execute(add, rows[0]).rowcount == 1
    with connection.begin_nested() as point:
        if connection.execute(add, rows).rowcount == len(rows):
            return True
        point.rollback()
    return False


def _everyone(connection: Connection) -> dict[str, Account]:
    """Every subject's account: what is about everybody must be allowed for each."""
    found: dict[str, Account] = {}
    for subject, *kind, times in connection.execute(ALL_COUNTS):
        found.setdefault(subject, Account()).counts[Kind(*kind)] += times
    found.pop(EACH, None)
    return found


def _apart(
    charges: Sequence[Charge], outcomes: dict[int, Settlement]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Places to decide, and places with the place of an earlier charge under the same key."""
    fresh: list[int] = []
    twins: list[tuple[int, int]] = []
    first: dict[tuple[str, str], int] = {}
    for place, charge in enumerate(charges):
        if place in outcomes:
            continue
        earlier = None if charge.key is None else first.get((charge.requester, charge.key))
        if earlier is None:
            fresh.append(place)
            if charge.key is not None:
                first[charge.requester, charge.key] = place
            continue
        if asked_for(charges[earlier]) != asked_for(charge):
            raise InputError(
                f"key is {charge.key!r} for two different releases; use a new key for a new release"
            )
        twins.append((place, earlier))
    return fresh, twins
