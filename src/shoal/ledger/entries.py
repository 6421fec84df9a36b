"""Charges as they lie in the table: what may be stored, how it is packed, and how it is read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection

from shoal.core.charge import EVERYBODY, Charge, StreamStep
from shoal.core.errors import InputError, LedgerError, StoredError
from shoal.core.plan import Answer, Plan, Release
from shoal.core.registry import KINDS, dumps, loads
from shoal.ledger.accounts import EACH, LIFETIME, Account, Kind, Limit, UnreadableCharge
from shoal.ledger.queries import CHANGES, COUNTS, HEADS, OF_KIND, PLAN, Asked, Rows, fetch
from shoal.ledger.schema import Head, entry_hash, now
from shoal.ledger.totals import entry_eta

LONGEST_NAME = 500  # bytes of a name in UTF-8: PostgreSQL indexes some 2,700 of two together
LONGEST_KEY = 2000  # bytes of a key


class Entry(NamedTuple):
    """One stored charge, as it lies in the table; `eta` is an exact rational "p/q"."""

    subject: str
    place: int
    at: str
    plan: str
    period: str
    part: str
    requester: str
    key: str | None
    eta: str | None
    value: str | None
    members: str | None
    house: int
    hash: str


HISTORY = "history"  # of a stored output: its number, the hash before it, its time and ε
NOISE = "noise"  # of a stored step without an eta: what names its law
FAILED_DRAW = "null"  # the value of a charge whose draw failed: it was charged and released nothing
BY_HAND = "a charge was changed by hand; run ledger verify"
_TYPES_OF_ROWS = {str, int, type(None)}


def entry_of(row: Sequence[Any]) -> Entry:
    """A row of the table, refused when it holds what this library never writes."""
    entry = Entry(*row)
    if type(entry.place) is not int or not _TYPES_OF_ROWS.issuperset(map(type, entry)):
        raise LedgerError(BY_HAND)
    return entry


def counted_row(row: Sequence[Any]) -> Sequence[Any]:
    """The names of charges and how many there are, refused in the same way."""
    if {*map(type, row[:5])} != {str}:
        raise LedgerError(BY_HAND)
    return row


def lines(charge: Charge) -> list[str]:
    """The subjects a charge is about: its own, and the members of an aggregate."""
    return [charge.subject, *charge.members]


def times_counted(charge: Charge, subject: str) -> int:
    """How often a charge counts in the account of one of its `lines`, beside that of everybody."""
    return 0 if charge.members == EVERYBODY and subject == charge.subject else 1


def check_names(charge: Charge) -> None:
    """Refuse names that cannot be stored, or that stand for many."""
    named = {"subject": charge.subject, "period": charge.period, "requester": charge.requester}
    for field_name, value in named.items():
        checked_text(value, field_name)
        if value in (EACH, LIFETIME):
            raise InputError(f"{field_name} is {value!r}, which stands for each one; name one")
    checked_text(charge.part.name, "part")
    if charge.key is not None and not checked_text(charge.key, "key", LONGEST_KEY):
        raise InputError("key is empty; leave it out, or give each release its own")
    if charge.members and charge.members != EVERYBODY:
        _check_members(charge)


def _check_members(charge: Charge) -> None:
    """Refuse members that are repeated or empty, '*', the whole lifetime, or the aggregate
    itself.
    """
    names = [checked_text(name, "a member") for name in charge.members]
    wrong = [name for name in names if not name or name in (EACH, LIFETIME, charge.subject)]
    if wrong or len(set(names)) < len(names):
        raise InputError(
            "members hold a name twice, an empty one, '*' or the aggregate itself; name every "
            "subject once, or EVERYBODY alone"
        )


def can_hold(name: str, longest: int = LONGEST_NAME) -> bool:
    """Whether a ledger takes a name of somebody or something, the empty one too."""
    try:
        return checked_text(name, "name", longest) not in (EACH, LIFETIME)
    except InputError:
        return False


def checked_text(value: str, name: str, longest: int = LONGEST_NAME) -> str:
    """`value`, refused unless every database stores, indexes and returns it as it is."""
    if not isinstance(value, str):
        raise InputError(f"{name} is a {type(value).__name__}; it must be text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputError(f"{name} holds half a character; give it as proper text") from None
    if "\0" in value:
        raise InputError(f"{name} holds a NUL character, which databases cut off; leave it out")
    if size > longest:
        raise InputError(f"{name} has {size:,} bytes; it must have at most {longest:,}")
    return value


def checked_release(release: Release, plan: Plan) -> Release:
    """`release`, refused unless it was made by `plan` with randomness nobody can predict."""
    if release.plan != plan.fingerprint:
        raise InputError("the release was made by another plan than the one that is charged")
    if not release.secure:
        raise InputError("the release is seeded; a ledger takes only releases of system randomness")
    return release


def asked_for(charge: Charge) -> tuple[str, ...]:
    """Return what a key stands for: plan, subject, period and part, whenever the period lies."""
    return charge.plan.fingerprint, charge.subject, charge.period, charge.part.within.text


def check_same(stored: Entry, charge: Charge) -> None:
    """Refuse a key that was used for something else, or for a release of other members' data."""
    entries = stored.part.partition(",")[2] if stored.part.startswith("@") else stored.part
    if charge.part.seconds and _meet_in_seconds(entries, charge.part.span):
        entries = charge.part.within.text  # late rows made the part longer; it was released before
    held = {"plan": stored.plan, "subject": stored.subject, "period": stored.period}
    pairs = zip((held | {"part": entries}).items(), asked_for(charge), strict=True)
    different = [name for (name, value), asked in pairs if value != asked]
    if different:
        raise InputError(
            f"key is {charge.key!r}, which was used for a release of another "
            f"{' and '.join(different)}; use a new key for a new release"
        )
    if stored.members != members_hash(charge):
        raise InputError(
            f"members under key {charge.key!r} are {_described(members_hash(charge))}, and its "
            f"stored release was charged to {_described(stored.members)}; a key stands for one "
            "release and its members, so repeat those, or use a new key for a new release"
        )


def _meet_in_seconds(stored: str, span: tuple[int, int] | None) -> bool:
    """Whether a stored span shares a second with another; earlier versions stored no unit."""
    first, _, second = stored.removesuffix("s").partition("..")
    if span is None or not (first.isdigit() and second.isdigit()):
        return False
    return int(first) < span[1] and span[0] < int(second)


def _described(members: str | None) -> str:
    """Return stored members in words; of names their number and the start of their hash."""
    if members is None or members == EACH:
        return "everybody" if members else "the subject alone"
    count, _, digest = members.partition(" ")
    return f"{count} subject(s) (hash {digest[:12]}…)"


def row_of(
    charge: Charge, subject: str, value: str | None, last: Head, house: int
) -> dict[str, Any]:
    """The row of a charge after the end of its subject's chain."""
    fields: dict[str, Any] = {
        "subject": subject,
        "place": last.seq + 1,
        "at": now(),
        "plan": charge.plan.fingerprint,
        "period": charge.period,
        "part": charge.part.text,
        "requester": charge.requester,
        "key": charge.key if subject == charge.subject else None,
        "eta": charged_eta(charge),
        "value": value,
        "members": members_hash(charge) if subject == charge.subject else charge_of(charge),
        "house": house,
    }
    fields["hash"] = entry_hash(last.hash, list(fields.values()))
    return fields


def members_hash(charge: Charge) -> str | None:
    """Who is in an aggregate: how many, and a hash of their names in order; "*" is everybody."""
    if not charge.members or charge.members == EVERYBODY:
        return EACH if charge.members else None
    names = json.dumps(sorted(charge.members), ensure_ascii=False)
    return f"{len(charge.members)} {hashlib.sha256(names.encode()).hexdigest()}"


def charge_of(charge: Charge) -> str:
    """How a member's row names the aggregate it is in."""
    return f"of {hashlib.sha256(charge.subject.encode()).hexdigest()}"


def charged_eta(charge: Charge) -> str | None:
    """The eta a charge spends: of a step of a stream what it tells, of others what is drawn.

    What a stream's plan says beforehand counts for nothing: its noise depends on the outputs.
    """
    eta = charge.eta if charge.plan.by_step else entry_eta(charge.plan)
    return None if eta is None else str(eta)


def pack(plan: Plan, release: Release, step: StreamStep | None = None, noise: str = "") -> str:
    """A release as it is stored: what the plan does not say already.

    Usually the list of its multiples alone; with labels, step, unit or number of entries where
    these are not the query's own; the whole document where anything else differs. `step` and
    `noise` are those of the charge of a step, and are stored beside its multiples.
    """
    answer, usual = release.answer, _usual(plan)
    like = plan.released(answer, secure=True) if answer.entries is None else _like(plan, answer)
    for name in ("mechanism", "guarantee", "error", "secure", "processed", "answer"):
        own, wanted = getattr(release, name), getattr(like, name)
        if own is not wanted and own != wanted:
            if step is not None or noise:
                raise InputError("an output of a stream is stored as the plan draws it; give that")
            return dumps(release, indent=None)
    told: dict[str, Any] = {"multiples": answer.multiples}
    if step is not None:
        told[HISTORY] = [step.number, step.before, step.time, str(step.epsilon), step.at]
    if noise:
        told[NOISE] = noise
    if answer.entries is not None:
        told["entries"] = answer.entries
    else:
        for name in ("labels", "step", "unit"):
            own = getattr(answer, name)
            if own != getattr(usual, name):
                told[name] = str(own) if name == "step" else own
    return _encode(told if len(told) > 1 else answer.multiples)


_encode = json.JSONEncoder(separators=(",", ":")).encode  # made once: json.dumps makes its own


def stored_step(value: str | None) -> StreamStep | None:
    """Where a stored output stands in the history of its stream; None where it does not say.

    Steps that versions up to 0.2 charged do not.
    """
    with as_written("an output of a stream"):
        told = json.loads(value or "null")
        if not isinstance(told, dict) or HISTORY not in told:
            return None
        number, before, time, epsilon, at = told[HISTORY]
        return StreamStep(number=number, before=before, time=time, epsilon=Fraction(epsilon), at=at)


def stored_noise(value: str | None) -> str:
    """The law a step without an eta was drawn from; empty where a version up to 0.2 charged it."""
    with as_written("a step of a stream"):
        told = json.loads(value or "null")
        return str(told.get(NOISE, "")) if isinstance(told, dict) else ""


def unpack(entry: Entry, plan: Plan) -> Release:
    """The release of a stored charge."""
    try:
        return unpacked(entry.value or "null", plan)
    except (StoredError, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise LedgerError(
            f"the release of charge {entry.place} about {entry.subject!r} cannot be used: {error}; "
            "run ledger verify"
        ) from None


def unpacked(value: str, plan: Plan) -> Release:
    """The release behind what `pack` made."""
    told = json.loads(value)
    if isinstance(told, dict) and "schema" in told:
        release = loads(value)
        if not isinstance(release, Release):
            raise StoredError("it is no release")
        return release
    fields = told if isinstance(told, dict) else {"multiples": told}
    multiples = fields["multiples"]
    if not all(type(number) is int for number in multiples):
        raise StoredError("its values are no whole numbers")
    usual = _usual(plan)
    answer = Answer(
        tuple(fields.get("labels", usual.labels)),
        tuple(multiples),
        Fraction(fields["step"]) if "step" in fields else usual.step,
        fields.get("unit", usual.unit),
    )
    release = plan.released(answer, secure=True)
    return release.over(fields["entries"], plan.task.query) if "entries" in fields else release


def _usual(plan: Plan) -> Answer:
    """An answer of the plan without values: what its query and its noise say."""
    query = plan.task.query
    step = query.lattice if plan.additive is None else plan.additive.noise.step
    return Answer(query.labels, (), step, query.unit)


def _like(plan: Plan, answer: Answer) -> Release:
    """The plan's own release of these multiples over the number of entries the answer names."""
    drawn = replace(_usual(plan), multiples=answer.multiples)
    return plan.released(drawn, secure=True).over(answer.entries or 1, plan.task.query)


def document_of(plan: Plan) -> str:
    """The plan as a document, refused when no program could build it again."""
    document = dumps(plan, indent=None)
    named: list[Any] = []
    json.loads(document, object_hook=lambda one: named.append(one.get("kind")))
    unknown = sorted({kind for kind in named if isinstance(kind, str)} - KINDS.keys())
    if unknown:
        raise StoredError(f"kind {unknown[0]!r} is not one this program can load")
    return document


@contextmanager
def as_written(what: str) -> Iterator[None]:
    """Turns what a row raises that this library did not write into a sentence."""
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        raise LedgerError(
            f"{what} cannot be read: was it changed by hand? run ledger verify"
        ) from None


class Change(NamedTuple):
    """One link of the house chain: who did what to the rules of the ledger, and when."""

    seq: int
    at: str
    kind: str
    changed_by: str
    document: dict[str, Any]


def read_changes(connection: Connection) -> list[Change]:
    """All that was ever done to limits, signers and checkpoints, oldest first."""
    with as_written("a rule of the ledger"):
        return [_change(*row) for row in fetch(connection, (CHANGES, {}))[0]]


def _change(seq: int, at: str, kind: str, by: str, document: str) -> Change:
    told = json.loads(document)
    if {*map(type, (at, kind, by))} != {str} or not isinstance(told, dict):
        raise TypeError("a row of other making")
    return Change(seq, at, kind, by, told)


def _documents(connection: Connection, kind: str) -> list[str]:
    """Return the documents of one kind in the chain of the ledger's policy, oldest first."""
    return [row[0] for row in fetch(connection, (OF_KIND, {"kind": kind}))[0]]


def read_limits(connection: Connection) -> tuple[Limit, ...]:
    """The limits in force: the last one on each scope."""
    latest: dict[Any, Limit] = {}
    with as_written("a limit of the ledger"):
        for document in _documents(connection, "limit"):
            told = json.loads(document)
            period = None if told["period"] == LIFETIME else told["period"]
            limit = Limit(**{**told, "amount": Fraction(told["amount"]), "period": period})
            latest[limit.scope] = limit
    return tuple(latest.values())


def read_signers(connection: Connection) -> tuple[frozenset[str], frozenset[str]]:
    """The public keys whose plans alone are taken, and the plans they signed.

    A signature counts if it holds, whatever the row around it says.
    """
    trusted: dict[str, bool] = {}
    signed: set[str] = set()
    with as_written("a signer of the ledger"):
        for document in _documents(connection, "signer"):
            told = json.loads(document)
            trusted[told["key"]] = told["trusted"]
        signers = frozenset(key for key, good in trusted.items() if good)
        documents = _documents(connection, "signature") if signers else []
        for told in map(json.loads, documents):
            if told["key"] in signers and _holds(told["key"], told["signature"], told["plan"]):
                signed.add(told["plan"])
    return signers, frozenset(signed)


@lru_cache(maxsize=4096)
def _holds(public: str, signature: str, told: str) -> bool:
    from shoal.ledger.verify import Signer

    return Signer.holds(public, signature, told)


def stored_plan(connection: Connection, plan: str) -> Plan:
    """The plan with this fingerprint."""
    found = fetch(connection, (PLAN, {"plan": plan}))[0]
    if not found:
        raise UnreadableCharge(
            f"plan {plan[:12]}… was charged but is not stored; run ledger verify"
        )
    try:
        value = loads(found[0][0])
    except StoredError as error:
        raise UnreadableCharge(f"the stored plan {plan[:12]}… cannot be used: {error}") from None
    if not isinstance(value, Plan) or value.fingerprint != plan:
        raise UnreadableCharge(f"the stored plan {plan[:12]}… was changed; run ledger verify")
    return value


def continued(known: Account, rows: Sequence[Any]) -> Account | None:
    """An account after rows (place, hash, kind, times) of its chain, the first its known end."""
    if known.head.seq:
        if not rows or Head(*rows[0][:2]) != known.head:
            return None
        rows = rows[1:]
    if not rows:
        return known
    account = known.copy()
    for place, digest, *kind, times in rows:
        account.add(Head(place, digest), Kind(*kind), times)
    return account


def load_accounts(connection: Connection, subjects: Sequence[str]) -> dict[str, Account]:
    """Return what is stored about subjects, counted by the database."""
    return accounts_of(subjects, *fetch(connection, *asked_for_accounts(subjects)))


def asked_for_accounts(subjects: Sequence[str]) -> list[Asked]:
    """Return the statements whose rows `accounts_of` takes."""
    return [(COUNTS, {"subjects": [*subjects]}), (HEADS, {"subjects": [*subjects]})]


def accounts_of(subjects: Iterable[str], counts: Rows, heads: Rows) -> dict[str, Account]:
    """Return accounts from how often each kind was charged and from the ends of the chains."""
    found = {name: Account() for name in subjects}
    for subject, *kind, times in counts:
        found[subject].counts[Kind(*kind)] = times
    for subject, place, digest in heads:
        if type(place) is not int or type(digest) is not str:
            raise LedgerError(
                f"the charges about {subject!r} were changed by hand; run ledger verify"
            )
        found[subject].head = Head(place, digest)
    return found
