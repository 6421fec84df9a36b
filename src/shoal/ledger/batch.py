"""Many charges in one transaction: each still checked by itself, and a link of the chain by itself.

What one `settle` promises holds for every charge of a batch: the limits and rules decide before
anything is drawn, charge and value are committed together, and only then is a value told. A batch
commits whole or not at all; a charge that is refused leaves the others alone.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from sqlalchemy import Connection, Select, bindparam, func, select

from shoal.core.codec import SCHEMA, encode
from shoal.core.errors import BudgetError, InputError
from shoal.core.plan import Charge, Plan, Release
from shoal.ledger import links, reading
from shoal.ledger.charging import charged_eta, check_names, checked_release, repeated
from shoal.ledger.limits import EACH, Limit, check
from shoal.ledger.links import Head, link_hash
from shoal.ledger.reading import Counted, Entry
from shoal.ledger.rules import any_total
from shoal.ledger.schema import CHARGES, PLANS
from shoal.ledger.store import SqlLedger, keep_plan
from shoal.ledger.totals import WHOLE, Conversions, Tally, from_counts, more

LOOKED_UP = 500  # names per statement: every database takes that many

Outcome = Release | BudgetError
Sample = Callable[[list[int]], Sequence[Release]]


def settle_many(ledger: SqlLedger, charges: Sequence[Charge], sample: Sample) -> list[Outcome]:
    """For each charge the stored release of its key, a new one, or the reason it is refused.

    `sample(places)` draws the releases of the charges at those places, all at once, after every
    one of them was allowed. Under load it may be called again for a transaction that had to start
    again: only the values of the one that committed are seen. Charges about the same subject and
    period count one after the other, in the order given.
    """
    ledger._check_open()
    for charge in charges:
        check_names(charge)
    return ledger._memory.patiently(partial(_settle, ledger, charges, sample))


def _settle(
    ledger: SqlLedger, charges: Sequence[Charge], sample: Sample, conversions: Conversions
) -> list[Outcome]:
    def work(connection: Connection) -> list[Outcome]:
        ledger.check_version(connection)
        outcomes: dict[int, Outcome] = dict(_stored(connection, charges))
        fresh, twins = _apart(charges, outcomes)
        decide = Decisions(ledger, connection, conversions, charges)
        allowed = []
        for place in fresh:
            refusal = decide(charges[place])
            if refusal is None:
                allowed.append(place)
            else:
                outcomes[place] = refusal
        if allowed:
            drawn = _drawn(sample(allowed), [charges[place].plan for place in allowed])
            outcomes.update(zip(allowed, drawn, strict=True))
            _append(connection, [charges[place] for place in allowed], drawn)
        for place, first in twins:
            outcomes[place] = outcomes[first]
        return [outcomes[place] for place in range(len(charges))]

    return ledger.database.write(work)


def _apart(
    charges: Sequence[Charge], outcomes: dict[int, Outcome]
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
        _check_same(charges[earlier], charge)
        twins.append((place, earlier))
    return fresh, twins


def _check_same(first: Charge, second: Charge) -> None:
    names = ("subject", "period")
    same = first.plan.fingerprint == second.plan.fingerprint
    if not same or any(getattr(first, name) != getattr(second, name) for name in names):
        raise InputError(
            f"key is {first.key!r} for two different releases; use a new key for a new release"
        )


def _drawn(releases: Sequence[Release], plans: Sequence[Plan]) -> list[Release]:
    return [checked_release(release, plan) for release, plan in zip(releases, plans, strict=True)]


@dataclass(slots=True)
class Decisions:
    """Whether each charge is allowed, given what is stored and what this batch added so far.

    The verdict depends on the charges about the same subject and period, the plan and the limits
    that match; it is worked out once for all subjects that agree on these.
    """

    ledger: SqlLedger
    connection: Connection
    conversions: Conversions
    charges: Sequence[Charge]
    _counted: dict[tuple[str, str], Counter[tuple[str, str]]] = field(init=False)
    _limits: dict[str, list[Limit]] = field(init=False)
    _known: dict[Any, BudgetError | None] = field(init=False)
    _added: dict[str, Plan] = field(init=False)

    def __post_init__(self) -> None:
        self._counted = defaultdict(Counter)
        self._known = {}
        self._added = {}
        subjects = list(dict.fromkeys(charge.subject for charge in self.charges))
        for names in _slices(subjects):
            for subject, period, requester, plan, times in self.connection.execute(
                _counts(), {"subjects": names}
            ):
                self._counted[subject, period][requester, plan] = times
        self._limits = defaultdict(list)
        for limit in reading.limits(self.connection):
            self._limits[limit.subject].append(limit)

    def __call__(self, charge: Charge) -> BudgetError | None:
        """Why the charge is refused; None when it is allowed, and then counted."""
        counted = self._counted[charge.subject, charge.period]
        limits = tuple(self._matching(charge))
        self._added[charge.plan.fingerprint] = charge.plan
        key = (
            tuple(sorted(counted.items())),
            charge.plan.fingerprint,
            tuple((limit.scope, limit.amount) for limit in limits),
            charge.requester,
        )
        if key not in self._known:
            self._known[key] = self._verdict(charge, counted, limits)
        if self._known[key] is None:
            counted[charge.requester, charge.plan.fingerprint] += 1
        return self._known[key]

    def _matching(self, charge: Charge) -> Iterator[Limit]:
        for limit in (*self._limits.get(EACH, ()), *self._limits.get(charge.subject, ())):
            if limit.matches(charge.subject, charge.period, charge.requester):
                yield limit

    def _verdict(
        self, charge: Charge, counted: Counter[tuple[str, str]], limits: Iterable[Limit]
    ) -> BudgetError | None:
        rows = [Counted(requester, plan, times) for (requester, plan), times in counted.items()]
        everyone = self._tally(rows)
        try:
            any_total(more(everyone, charge.plan), self.conversions)
            for limit in limits:
                together = limit.requester is None
                own = [row for row in rows if together or row.requester == charge.requester]
                check(limit, self._tally(own), charge.plan, self.conversions)
        except BudgetError as refusal:
            return refusal
        return None

    def _tally(self, rows: Iterable[Counted]) -> Tally:
        counts = reading.tally(rows)
        return from_counts({(self._plan(name), WHOLE): n for name, n in counts.items()})

    def _plan(self, name: str) -> Plan:
        added = self._added.get(name)
        return self.ledger._plan(self.connection, name) if added is None else added


def _stored(connection: Connection, charges: Sequence[Charge]) -> Iterator[tuple[int, Release]]:
    """The place and release of every charge whose key was used before."""
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, charge in enumerate(charges):
        if charge.key is not None:
            places[charge.requester, charge.key].append(place)
    for requester in dict.fromkeys(requester for requester, _ in places):
        keys = [key for who, key in places if who == requester]
        for names in _slices(keys):
            asked = {"requester": requester, "keys": names}
            for row in connection.execute(_under_keys(), asked):
                entry = Entry(*row)
                for place in places[requester, str(entry.key)]:
                    yield place, repeated(entry, charges[place])


def _append(connection: Connection, charges: Sequence[Charge], releases: Sequence[Release]) -> None:
    """Add one link per charge after the last one, and plans that are new before them."""
    last = links.head(connection)
    for plan in {charge.plan.fingerprint: charge.plan for charge in charges}.values():
        known = select(PLANS.c.seq).where(PLANS.c.plan == plan.fingerprint)
        if connection.execute(known).first() is None:
            last = keep_plan(connection, last, plan)
    connection.execute(links.insertion(CHARGES), list(_rows(last, charges, releases)))


def _rows(
    last: Head, charges: Sequence[Charge], releases: Sequence[Release]
) -> Iterator[dict[str, Any]]:
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    document = Documents()
    costs = {charge.plan.fingerprint: _cost(charge.plan) for charge in charges}
    for charge, release in zip(charges, releases, strict=True):
        row: dict[str, Any] = {
            "seq": last.seq + 1,
            "at": now,
            "plan": charge.plan.fingerprint,
            "subject": charge.subject,
            "period": charge.period,
            "requester": charge.requester,
            "key": charge.key,
            **costs[charge.plan.fingerprint],
            "eta": charged_eta(charge),
            "release": document(release),
            "previous": last.hash,
        }
        row["hash"] = link_hash(CHARGES.name, row)
        last = Head(row["seq"], row["hash"])
        yield row


def _cost(plan: Plan) -> dict[str, str]:
    return {"notion": plan.guarantee.notion, "amount": str(plan.guarantee.amount)}


class Documents:
    """Stored documents of releases that differ in their multiples only, written quickly.

    Equal to `kinds.dumps(release, indent=None)`: both texts of a release are made once with no
    multiples, and cut where they belong. `"multiples"` with its quotes occurs once, because
    quotes inside a text are escaped.
    """

    def __init__(self) -> None:
        self._cut: dict[Any, tuple[list[str], list[str], Release]] = {}

    def __call__(self, release: Release) -> str:
        answer = release.answer
        key = (
            answer.labels,
            answer.step,
            answer.unit,
            release.plan,
            release.mechanism,
            id(release.guarantee),
            id(release.error),
            release.secure,
            release.processed,
        )
        if key not in self._cut:
            self._cut[key] = (*_cut(release), release)  # kept, so that the ids stay taken
        canonical, plain, _ = self._cut[key]
        compact = ",".join(map(str, answer.multiples))
        fingerprint = _sha(f"{canonical[0]}{compact}{canonical[1]}")
        spaced = ", ".join(map(str, answer.multiples))
        value = f"{plain[0]}{spaced}{plain[1]}"
        return f'{{"schema": "{SCHEMA}", "fingerprint": "{fingerprint}", "value": {value}}}'


def _cut(release: Release) -> tuple[list[str], list[str]]:
    """The canonical text and the plain text of a release, each cut at its multiples."""
    data = encode(release)
    data["answer"]["multiples"] = []
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    plain = json.dumps(data, ensure_ascii=False)
    return _halves(canonical, '"multiples":['), _halves(plain, '"multiples": [')


def _halves(text: str, mark: str) -> list[str]:
    before, _, after = text.partition(f"{mark}]")
    return [f"{before}{mark}", f"]{after}"]


def _sha(canonical: str) -> str:
    return hashlib.sha256(canonical.encode()).hexdigest()


def _slices(names: list[str]) -> Iterator[list[str]]:
    for begin in range(0, len(names), LOOKED_UP):
        yield names[begin : begin + LOOKED_UP]


@cache
def _counts() -> Select[Any]:
    named = (CHARGES.c.subject, CHARGES.c.period, CHARGES.c.requester, CHARGES.c.plan)
    wanted = CHARGES.c.subject.in_(bindparam("subjects", expanding=True))
    return select(*named, func.count()).where(wanted).group_by(*named)


@cache
def _under_keys() -> Select[Any]:
    return select(CHARGES).where(
        CHARGES.c.requester == bindparam("requester"),
        CHARGES.c.key.in_(bindparam("keys", expanding=True)),
    )
