"""Whether a ledger is still what was written: every link of every chain, and what the links say.

Also the keys that sign: checkpoints, so that nobody can make a whole ledger again, and plans, so
that a ledger may take only those of people it knows.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from shoal.core.errors import BudgetError, InputError, StoredError
from shoal.core.plan import Plan
from shoal.core.registry import loads
from shoal.ledger.database import Database
from shoal.ledger.entries import FAILED_DRAW, Entry, unpacked
from shoal.ledger.schema import (
    NO_LINK,
    OLD_TABLES,
    TABLES,
    UNIQUE,
    Head,
    Words,
    checkpoint_text,
    copied,
    entry_hash,
    link_hash,
    merkle_root,
)
from shoal.ledger.totals import entry_eta

NOWHERE = 2**63  # the place of a link whose number is none: after all others
SHOWN = 20  # problems listed; one edit breaks every link after it
FETCHED = 5000  # rows at once
# the public keys of small order, without their highest bit: anybody can sign for them
WEAK = frozenset(
    bytes.fromhex(first + 30 * fill + last)
    for first, fill, last in (
        *((first, "00", "00") for first in ("00", "01")),
        *((first, "ff", "7f") for first in ("ec", "ed", "ee")),
        ("26", "", "e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
        ("c7", "", "176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
    )
)
_PLAIN = re.compile(r"\[-?\d+(,-?\d+)*\]").fullmatch  # the usual value: whole numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `verify` found: no problems, or the first of them.

    `head` is the end of the house chain; `links` counts its links and all charges; `uncovered` are
    the charges after the last checkpoint. `since` is how many links were added after the head that
    was asked for, None when none was: after a link of the house chain those of that chain, after a
    checkpoint also all charges since, after a charge those about the same subject.
    """

    head: Head
    links: int
    charges: int
    uncovered: int
    since: int | None
    problems: tuple[str, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(database: Database, head: str | None = None, signer: str | None = None) -> Verdict:
    """Read the whole ledger again and check every hash, every link and every charge.

    A changed, missing or added row breaks its chain. A cut-off end leaves a whole chain: it shows
    against a later checkpoint, or against `head`, a hash noted earlier and kept elsewhere, which
    must still be there. `signer` is the public key that the last checkpoint must be signed with.
    """

    def work(connection: Connection) -> Verdict:
        return Inspection(connection, database.dialect.words, head, signer).verdict()

    return database.read(work)


@dataclass(slots=True)
class Inspection:
    """One walk through all chains, and what was wrong on the way."""

    connection: Connection
    words: Words
    wanted: str | None
    signer: str | None
    problems: list[str] = field(default_factory=list)
    house: Head = NO_LINK
    links: int = 0
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    ends: dict[str, Head] = field(default_factory=dict)
    since: int | None = None
    plans: dict[str, Plan | None] = field(default_factory=dict)
    etas: dict[str, str | None] = field(default_factory=dict)

    def verdict(self) -> Verdict:
        """All that is to be said."""
        present = {*inspect(self.connection).get_table_names()}
        missing = [table.name for table in TABLES if table.name not in present]
        self.problems.extend(f"table {name} is missing" for name in missing)
        self._look_at_triggers(present)
        old = [name for name in OLD_TABLES if name in present]
        chained = [name for name in ("shoal_versions", "shoal_house", *old) if name in present]
        self._follow_house(chained)
        if not {"shoal_entries", "shoal_documents"} & {*missing}:
            self._follow_subjects()
            if old:
                self._compare_copies()
        if self.wanted is not None and self.since is None:
            self.problems.append(
                f"the head {self.wanted[:12]}… is not in the chain: the end was cut off, or this "
                "is another ledger"
            )
        self._look_at_signature()
        charges = sum(end.seq for end in self.ends.values())
        covered = self.checkpoints[-1]["charges"] if self.checkpoints else 0
        more = len(self.problems) - SHOWN
        shown = self.problems[:SHOWN] + ([f"{more} more problems"] if more > 0 else [])
        return Verdict(
            head=self.house,
            links=self.links + charges,
            charges=charges,
            uncovered=charges - covered,
            since=self.since,
            problems=tuple(shown),
        )

    # The house chain, with the tables of versions 1 and 2 where there are any.

    def _follow_house(self, tables: list[str]) -> None:
        """Check every link of the common log in order, and note what each says and what is
        wrong.
        """
        at = None
        for seq, table, row in merge(*map(self._rows, tables), key=itemgetter(0)):
            self.problems.extend(_broken(self.house, table, row, seq))
            self.house = Head(seq, row["hash"])
            self.links += 1
            if self.house.hash == self.wanted:
                at = self.links
            if table == "shoal_house":
                self._read_house({**row, "seq": seq})
            if table == "shoal_charges" and _unpacked(row["release"], None) is None:
                self.problems.append(f"link {seq} ({table}) does not hold a release of its plan")
        if at is not None:
            self.since = self.links - at

    def _rows(self, table: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        statement = text(f"SELECT * FROM {table} ORDER BY seq")
        rows = self.connection.execute(statement, execution_options={"yield_per": FETCHED})
        for row in rows.mappings():
            seq = row["seq"]
            yield (seq if type(seq) is int else NOWHERE), table, dict(row)

    def _read_house(self, row: dict[str, Any]) -> None:
        """Note a checkpoint, or check the signature of a plan; note a row that says neither
        properly.
        """
        try:
            document = json.loads(row["document"])
            if row["kind"] == "checkpoint":
                numbers = {name: int(document[name]) for name in ("subjects", "charges")}
                self.checkpoints.append({**row, **numbers, "signature": document["signature"]})
            if row["kind"] == "signature" and not Signer.holds(
                document["key"], document["signature"], document["plan"]
            ):
                self.problems.append(f"the signature of a plan in link {row['seq']} is false")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.problems.append(f"link {row['seq']} (shoal_house) does not say what it should")

    # The chains of the subjects.

    def _follow_subjects(self) -> None:
        """Check the chain of every subject, and that each checkpoint covers the heads it was made
        over.
        """
        names = ", ".join(Entry._fields)
        asked = text(f"SELECT {names} FROM shoal_entries ORDER BY subject, place")
        places = [checkpoint["seq"] for checkpoint in self.checkpoints]
        cover: list[dict[str, Head]] = [{} for _ in places]
        rows = self.connection.execute(asked, execution_options={"yield_per": FETCHED})
        last, house, found, at = NO_LINK, 0, None, 0
        subject: Any = None
        for partition in rows.partitions(FETCHED):
            for row in partition:
                if row[0] != subject:
                    last, subject, house = NO_LINK, row[0], 0
                *fields, digest = row
                place, house_now = (n if type(n) is int else NOWHERE for n in (row[1], row[11]))
                if place != last.seq + 1:
                    self._wrong(row, f"follows charge {last.seq}: a row is missing or was added")
                if digest != entry_hash(last.hash, fields):
                    self._wrong(row, "was changed, or does not continue the chain before it")
                self._judge(row, house, house_now)
                house = house_now
                last = Head(place, digest)
                self.ends[subject] = last
                if digest == self.wanted:
                    found, at = subject, place
                for index in range(len(places)):
                    if house < places[index]:
                        cover[index][subject] = last
        if found is not None:
            self.since = self.ends[found].seq - at
        for checkpoint, ends in zip(self.checkpoints, cover, strict=True):
            self._check_cover(checkpoint, ends)

    def _judge(self, row: Any, before: int, house: int) -> None:
        """What is wrong with what a charge says."""
        name = row[3]
        if name not in self.plans:
            self._read_plan(name)
        plan = self.plans[name]
        if plan is None:
            self._wrong(row, "charges a plan that is not stored, or was changed")
            return
        eta, value = row[8], row[9]
        if name in self.etas:
            if eta != self.etas[name]:
                self._wrong(row, "does not charge what its plan costs")
        elif eta is not None and not _is_amount(eta):
            self._wrong(row, "does not charge what its plan costs")
        aside = value == FAILED_DRAW or (value is None and str(row[10]).startswith("of "))
        plain = isinstance(value, str) and _PLAIN(value)
        if not (aside or plain) and _unpacked(value, plan) is None:
            self._wrong(row, "does not hold a release of its plan")
        if not before <= house <= self.house.seq or house == NOWHERE:
            self._wrong(row, "was not decided under the rules of its time")

    def _read_plan(self, name: str) -> None:
        """Load a stored plan into the cache, None where its document was changed or is of another
        plan.

        The eta of plans that do not charge by step is kept beside it.
        """
        asked = text("SELECT document FROM shoal_documents WHERE plan = :plan")
        document = self.connection.execute(asked, {"plan": str(name)}).scalar()
        found = _unpacked(document, None)
        plan = found if isinstance(found, Plan) and found.fingerprint == name else None
        plan = self.plans[name] = plan if plan is not None and _untouched(document) else None
        if plan is not None and not plan.by_step:  # each step of a stream has its own
            own = entry_eta(plan)
            self.etas[name] = None if own is None else str(own)

    def _check_cover(self, checkpoint: dict[str, Any], ends: dict[str, Head]) -> None:
        """Whether a checkpoint is over the charges that were decided before it, all of them."""
        charges = sum(end.seq for end in ends.values())
        said = (checkpoint["name"], checkpoint["subjects"], checkpoint["charges"])
        if (merkle_root(ends), len(ends), charges) != said:
            self.problems.append(
                f"checkpoint {checkpoint['seq']} is not over the charges before it: some were cut "
                "off, added or changed"
            )
        if checkpoint["hash"] == self.wanted and self.since is not None:
            self.since += sum(end.seq for end in self.ends.values()) - charges

    def _look_at_signature(self) -> None:
        """Note false signatures of checkpoints, and a last one not signed by the signer asked
        for.
        """
        for checkpoint in self.checkpoints:
            signature = checkpoint["signature"]
            if signature is not None and not _signed(checkpoint, str(signature), None):
                self.problems.append(f"the signature of checkpoint {checkpoint['seq']} is false")
        if self.signer is not None:
            last = self.checkpoints[-1] if self.checkpoints else None
            if last is None or not _signed(last, str(last["signature"] or ""), self.signer):
                self.problems.append("the last checkpoint is not signed by the signer asked for")

    def _compare_copies(self) -> None:
        """Charges of versions 1 and 2 must be in the chains of their subjects, as they were."""
        ends: dict[str, Head] = {}
        asked = text(
            "SELECT house, hash FROM shoal_entries WHERE subject = :subject AND place = :place"
        )
        for seq, table, row in self._rows("shoal_charges"):
            place = ends.get(row["subject"], NO_LINK).seq + 1
            given = {"subject": row["subject"], "place": place}
            house, digest = self.connection.execute(asked, given).first() or (0, None)
            if digest != copied(row, ends, house if isinstance(house, int) else 0)["hash"]:
                self.problems.append(f"link {seq} ({table}) is not in the chain of its subject")

    def _look_at_triggers(self, present: set[str]) -> None:
        """Triggers against changes that were removed, switched off or hollowed out."""
        from shoal.ledger.engines import trigger_says

        found = self.connection.exec_driver_sql(self.words.triggers).all()
        active = {str(name): str(does) for name, does, _ in found}
        wanted = {table: self.words.protect(table, keys) for table, keys in UNIQUE.items()}
        if "shoal_charges" in present:
            del wanted["shoal_versions"]  # made by another version, in its own words
            wanted |= {table: self.words.frozen(table) for table in OLD_TABLES}
        known = {name for triggers in wanted.values() for name in triggers}
        strange = sorted({str(name) for name, _, table in found if table in wanted} - known)
        if "shoal_charges" in present:  # the old versions' own are on their tables
            strange = [name for name in strange if not name.startswith(OLD_TABLES)]
        self.problems.extend(
            f"trigger or rule {name!r} is none of this library's: it may change what is written"
            for name in strange
        )
        for table, triggers in wanted.items():
            for name, making in triggers.items():
                if name not in active:
                    self.problems.append(f"trigger {name} is missing: {table} can be changed")
                elif active[name] != trigger_says(name, making[-1]):
                    self.problems.append(
                        f"trigger {name} was changed or switched off: {table} can be changed"
                    )

    def _wrong(self, row: Any, told: str) -> None:
        self.problems.append(f"charge {row[1]} about {row[0]!r} {told}")


def _broken(last: Head, table: str, row: dict[str, Any], seq: int) -> Iterator[str]:
    """What is wrong with a link of the house chain itself."""
    where = f"link {row['seq']} ({table})"
    if seq != last.seq + 1:
        yield f"{where} follows link {last.seq}: a row is missing or was added"
    if row["previous"] != last.hash:
        yield f"{where} does not continue the chain before it"
    if row["hash"] != link_hash(table, row):
        yield f"{where} was changed: its hash does not match its content"


def _untouched(document: Any) -> bool:
    """Whether a document that can be loaded is also written as this library writes it."""
    told = json.loads(document)
    return json.dumps(told, ensure_ascii=False) == document and len(told) == 3


def _is_amount(eta: Any) -> bool:
    try:
        return Fraction(eta) >= 0
    except (ValueError, TypeError, ZeroDivisionError):
        return False


def _unpacked(value: Any, plan: Plan | None) -> object:
    """What a stored document, or the value of a plan's charge, stands for; None when nothing."""
    try:
        return loads(value) if plan is None else unpacked(value, plan)
    except (StoredError, BudgetError, TypeError, ValueError, KeyError, ArithmeticError):
        return None


@dataclass(frozen=True, slots=True)
class Signer:
    """An Ed25519 key in a file of its owner's; `public` is what others know it by."""

    public: str
    _key: Any

    @classmethod
    def make(cls, path: str | os.PathLike[str]) -> Signer:
        """A new key in a new file, which nobody else can read from its first byte on."""
        from cryptography.hazmat.primitives import serialization as form

        key = _ed25519().Ed25519PrivateKey.generate()
        raw = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        try:
            place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise InputError(f"{str(path)!r} exists; a key is never replaced") from None
        except OSError as error:
            raise InputError(f"{str(path)!r} cannot be written: {error.strerror}") from None
        with os.fdopen(place, "wb") as stream:
            stream.write(raw)
        return cls(_public(key), key)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Signer:
        """The key in a file that `make` made."""
        kind = _ed25519().Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            key = load_pem_private_key(Path(path).read_bytes(), None)
        except (OSError, ValueError, TypeError):
            key = None
        if not isinstance(key, kind):
            raise InputError(
                f"{str(path)!r} holds no Ed25519 key; make one with `shoal ledger key`"
            )
        return cls(_public(key), key)

    def sign(self, told: str) -> str:
        """The signature of a text, with the key that verifies it: "public:signature" in hex."""
        return f"{self.public}:{self._key.sign(told.encode()).hex()}"

    @staticmethod
    def checked(public: str) -> str:
        """A public key, refused unless it is one."""
        if re.fullmatch("[0-9a-f]{64}", str(public)) is None:
            raise InputError(
                f"signer is {public!r}; it must be the 64 hexadecimal digits of a public key"
            )
        if _weak(public):
            raise InputError(f"signer is {public!r}, a key that anybody can sign for; make another")
        return public

    @staticmethod
    def holds(public: str, signature: str, told: str) -> bool:
        """Whether a signature made by `sign` is of this text, by this key."""
        from cryptography.exceptions import InvalidSignature

        key, _, digits = signature.rpartition(":")
        if _weak(public):
            return False
        try:
            known = _ed25519().Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
            known.verify(bytes.fromhex(digits), told.encode())
        except (ValueError, InvalidSignature):
            return False
        return key in ("", public)


def _signed(checkpoint: dict[str, Any], signature: str, signer: str | None) -> bool:
    told = checkpoint_text(
        checkpoint["previous"], checkpoint["name"], checkpoint["subjects"], checkpoint["charges"]
    )
    return Signer.holds(signer or signature.partition(":")[0], signature, told)


def _weak(public: str) -> bool:
    """Return whether a public key (hexadecimal) is one under which anything verifies; its sign is
    ignored.
    """
    try:
        raw = bytearray.fromhex(public)
    except ValueError:
        return False  # no key at all
    raw[-1:] = bytes(byte & 0x7F for byte in raw[-1:])
    return bytes(raw) in WEAK


def _public(key: Any) -> str:
    return str(key.public_key().public_bytes_raw().hex())


def _ed25519() -> Any:
    """Return the ed25519 module; refused with how to install it when cryptography is missing."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise InputError(
            "signing needs cryptography; install it with: pip install 'shoal[signing]'"
        ) from None
    return ed25519
