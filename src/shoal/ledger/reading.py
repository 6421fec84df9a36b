"""What a ledger's tables say: charges, tallies, limits and plans, read in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Table,
    Text,
    bindparam,
    func,
    inspect,
    literal_column,
    null,
    select,
    union_all,
)

from shoal.core.errors import LedgerError, StoredError
from shoal.core.plan import Charge, Plan
from shoal.core.registry import loads
from shoal.ledger.limits import Limit
from shoal.ledger.links import NO_LINK, ONE, Head, last_link
from shoal.ledger.schema import CHARGES, LIMITS, PLANS, TABLES, VERSIONS


class Entry(NamedTuple):
    """One stored charge, as it lies in the table; amounts are exact rationals "p/q"."""

    seq: int
    at: str
    plan: str
    subject: str
    period: str
    requester: str
    key: str | None
    notion: str
    amount: str
    eta: str | None
    release: str
    previous: str
    hash: str
    times: int


class Counted(NamedTuple):
    """How often a requester was charged for a plan, about one subject in one period."""

    requester: str
    plan: str
    times: int


class State(NamedTuple):
    """All that a new charge depends on, read in one statement.

    `heads` is the last link of each table; `key` the charge made under the same key; `has_plan`
    whether the plan is stored; `counted` the charges about the same subject in the same period.
    """

    heads: dict[str, Head]
    key: int | None
    has_plan: bool
    counted: tuple[Counted, ...]

    @property
    def head(self) -> Head:
        """The last link of the chain."""
        return max(self.heads.values(), default=NO_LINK)


def _rows(what: str, table: Table, number: Any, *texts: Any) -> Select[Any]:
    """Rows (what, number, text, text) to be put together with others."""
    one, two = (*texts, null(), null())[:2]
    name = literal_column(f"'{what}'", Text)
    return select(name, number.label("number"), one, two).select_from(table)


def _times() -> Any:
    """How often a charge like this one was made: what the last of its kind says."""
    last = CHARGES.alias("last_one")
    alike = [last.c[name] == CHARGES.c[name] for name in ("subject", "period", "requester", "plan")]
    newest = select(last.c.times).where(*alike).order_by(last.c.times.desc()).limit(ONE)
    return newest.scalar_subquery()


# the first of each kind, found in an index that holds nothing else, stands for all of them
_COUNTS = _rows("counted", CHARGES, _times(), CHARGES.c.requester, CHARGES.c.plan).where(
    CHARGES.c.subject == bindparam("subject"),
    CHARGES.c.period == bindparam("period"),
    CHARGES.c.times == ONE,
)
STATE = union_all(
    *(select(last_link(table).subquery()) for table in TABLES),
    _rows("key", CHARGES, CHARGES.c.seq).where(
        CHARGES.c.requester == bindparam("requester"), CHARGES.c.key == bindparam("key")
    ),
    _rows("plan", PLANS, PLANS.c.seq).where(PLANS.c.plan == bindparam("plan")),
    _COUNTS,
)
_LIMITS = select(
    LIMITS.c.unit, LIMITS.c.amount, LIMITS.c.subject, LIMITS.c.period, LIMITS.c.requester
).order_by(LIMITS.c.seq)
_PLAN = select(PLANS.c.document).where(PLANS.c.plan == bindparam("plan"))
_ENTRY = select(CHARGES).where(CHARGES.c.seq == bindparam("seq"))
_ACCOUNTS = (
    select(CHARGES.c.subject, CHARGES.c.period)
    .distinct()
    .order_by(CHARGES.c.subject, CHARGES.c.period)
)


_PERIODS = (
    select(CHARGES.c.period)
    .distinct()
    .where(CHARGES.c.subject == bindparam("subject"))
    .order_by(CHARGES.c.period)
)


def state(connection: Connection, charge: Charge) -> State:
    """All that a charge depends on."""
    return state_of(connection.execute(STATE, names_of(charge)).all())


def names_of(charge: Charge) -> dict[str, str | None]:
    """The parameters of `STATE`."""
    return {
        "subject": charge.subject,
        "period": charge.period,
        "requester": charge.requester,
        "key": charge.key,
        "plan": charge.plan.fingerprint,
    }


def state_of(rows: Iterable[Any]) -> State:
    """The state that the rows of `STATE` tell."""
    heads: dict[str, Head] = {}
    counted: list[Counted] = []
    places: dict[str, int] = {}
    for what, number, one, two in rows:
        if what == "counted":
            counted.append(Counted(one, two, number))
        elif what in ("key", "plan"):
            places[what] = number
        else:
            heads[what] = Head(number, one)
    return State(heads, places.get("key"), "plan" in places, tuple(counted))


def entry(connection: Connection, seq: int) -> Entry:
    """The charge at a place of the chain."""
    return Entry(*connection.execute(_ENTRY, {"seq": seq}).one())


def counts(connection: Connection, subject: str, period: str) -> tuple[Counted, ...]:
    """All charges about one subject in one period, counted by requester and plan."""
    rows = connection.execute(_COUNTS, {"subject": subject, "period": period})
    return tuple(Counted(requester, plan, times) for _, times, requester, plan in rows)


def etas(
    connection: Connection, subject: str, period: str, requester: str | None
) -> list[tuple[Fraction | None, int]]:
    """The etas charged about one subject in one period, by one requester if named; how often."""
    wanted = [CHARGES.c.subject == subject, CHARGES.c.period == period]
    if requester is not None:
        wanted.append(CHARGES.c.requester == requester)
    counted = select(CHARGES.c.eta, func.count()).where(*wanted).group_by(CHARGES.c.eta)
    rows = connection.execute(counted)
    return [(None if eta is None else Fraction(eta), times) for eta, times in rows]


def limits(connection: Connection) -> tuple[Limit, ...]:
    """The limits in force: the last one on each scope."""
    latest: dict[Any, Limit] = {}
    for unit, amount, subject, period, requester in connection.execute(_LIMITS):
        limit = Limit(
            unit=unit,
            amount=Fraction(amount),
            subject=subject,
            period=period,
            requester=requester,
        )
        latest[limit.scope] = limit
    return tuple(latest.values())


def accounts(connection: Connection) -> list[tuple[str, str]]:
    """Every subject and period with a charge."""
    return [(subject, period) for subject, period in connection.execute(_ACCOUNTS)]


def periods(connection: Connection, subject: str) -> list[str]:
    """The periods in which a subject has a charge."""
    return list(connection.execute(_PERIODS, {"subject": subject}).scalars())


def entries(connection: Connection) -> Iterator[Entry]:
    """All charges, in the order they were made."""
    statement = select(CHARGES).order_by(CHARGES.c.seq).execution_options(yield_per=1000)
    for row in connection.execute(statement):
        yield Entry(*row)


def stored_plan(connection: Connection, plan: str) -> Plan:
    """The plan with this fingerprint."""
    row = connection.execute(_PLAN, {"plan": plan}).first()
    if row is None:
        raise LedgerError(f"plan {plan[:12]}… was charged but is not stored; run ledger verify")
    try:
        value = loads(row.document)
    except StoredError as error:
        raise LedgerError(f"the stored plan {plan[:12]}… cannot be used: {error}") from None
    if not isinstance(value, Plan) or value.fingerprint != plan:
        raise LedgerError(f"the stored plan {plan[:12]}… was changed; run ledger verify")
    return value


def version(connection: Connection) -> int:
    """The version of the schema; 0 when there are no tables yet."""
    if not inspect(connection).has_table(VERSIONS.name):
        return 0
    newest = select(VERSIONS.c.version).order_by(VERSIONS.c.seq.desc()).limit(1)
    found = connection.execute(newest).scalar()
    if found is None:
        return 0
    if not found.isdigit():
        raise LedgerError(f"the ledger says its version is {found!r}; was it changed by hand?")
    return int(found)


def tally(counted: Iterable[Counted]) -> Counter[str]:
    """Charges by plan, whoever made them."""
    total: Counter[str] = Counter()
    for row in counted:
        total[row.plan] += row.times
    return total
