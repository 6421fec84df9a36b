"""Keys: who is calling, what they may do, and how keys are made, rotated and revoked.

A key is 256 random bits, shown once and kept as a hash. Its name travels with it, so that one row
is looked up and compared in constant time. Operators and people may sign in elsewhere: a bearer
token of an OpenID provider is taken when its signature, issuer, audience and time are right and it
says which space and who: claims `shoal_space`, and `shoal_kind` "operator" or "person" with
`shoal_person`. Devices and applications keep keys of their own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, insert, select, text, update

from shoal.core.errors import InputError
from shoal.gateway.copies.head import HeadFile, row_mark
from shoal.gateway.problems import Problem, missing, not_understood
from shoal.gateway.settings import Settings
from shoal.gateway.tables import KEYS, PEOPLE, SPACES

OPERATOR, PERSON, DEVICE, APPLICATION = "operator", "person", "device", "application"
KEY_KINDS = (OPERATOR, PERSON, DEVICE, APPLICATION)
# the kinds of callers that may make and revoke each kind of key
MAKERS = {OPERATOR: (OPERATOR,), PERSON: (OPERATOR,), DEVICE: (PERSON,), APPLICATION: (OPERATOR,)}
REMEMBERED = 1.0  # seconds a key that was looked up counts without looking again
USED_EVERY = 60.0  # seconds between two notes that a key was used
PREFIX = "shoal"


class Caller(NamedTuple):
    """The holder of a key: a space, the key's name, its kind, and the person or application."""

    space: str
    key: str
    kind: str
    holder: str

    def must_be(self, *kinds: str) -> None:
        """Refuse a caller whose key is of none of these kinds, with status 403."""
        if self.kind not in kinds:
            raise Problem(403, f"this is for keys of kind {' or '.join(kinds)}, not {self.kind}")

    def owns(self, person: str) -> bool:
        """Whether the key is that person's own."""
        return self.kind == PERSON and self.holder == person


class MadeKey(NamedTuple):
    """A new key: its name, and the text that is shown once."""

    key: str
    token: str


def make_key(
    connection: Connection,
    space: str,
    kind: str,
    holder: str,
    *,
    label: str = "",
    expires: float | None = None,
) -> MadeKey:
    """A new key, stored as a hash."""
    key, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    values: dict[str, Any] = {
        "space": space,
        "key": key,
        "kind": kind,
        "holder": holder,
        "hash": _hash(secret),
    }
    values |= {"label": label, "made": time.time(), "expires": expires}
    connection.execute(insert(KEYS), values)
    return MadeKey(key, f"{PREFIX}_{kind[0]}_{key}_{secret}")


def first_key(connection: Connection, space: str) -> MadeKey:
    """The operator key of a new space; refused for one that is there."""
    if connection.execute(select(SPACES).filter_by(space=space)).first() is not None:
        raise not_understood(f"space {space!r} is there already; name another, or use its keys")
    connection.execute(insert(SPACES), {"space": space, "made": time.time()})
    return make_key(connection, space, OPERATOR, "", label="first")


def ask_for_key(connection: Connection, caller: Caller, asked: dict[str, Any]) -> MadeKey:
    """Make a key for a holder that exists, if the caller may; its text is returned only here."""
    kind = asked["kind"]
    caller.must_be(*MAKERS[kind])
    holder = asked.get("holder") or ""
    if kind == DEVICE:
        if holder not in ("", caller.holder):
            raise missing()
        holder = caller.holder
        check_holder(connection, caller)  # a person who was forgotten a moment ago makes none
    elif kind == OPERATOR and holder:
        raise not_understood("holder is given; an operator key is the space's, leave it out")
    elif kind == PERSON:
        known = select(PEOPLE).filter_by(space=caller.space, person=holder)
        if connection.execute(known).first() is None:
            raise not_understood("holder names nobody of this space; PUT /v1/people/… first")
    elif kind == APPLICATION and not holder:
        raise not_understood("holder is missing; name the application")
    label, expires = asked.get("label") or "", asked.get("expires")
    return make_key(connection, caller.space, kind, holder, label=label, expires=expires)


def keys_of_caller(connection: Connection, caller: Caller) -> list[dict[str, Any]]:
    """The keys a caller may take back, without their secrets."""
    columns = [column for column in KEYS.c if column.name not in ("space", "hash")]
    rows = connection.execute(select(*columns).filter_by(space=caller.space).order_by(KEYS.c.made))
    return [dict(row._mapping) for row in rows if _may_revoke(caller, row.kind, row.holder)]


def revoke(connection: Connection, head: HeadFile, caller: Caller, key: str) -> None:
    """Revoke a key; a missing key and one of another holder give the same error."""
    row = connection.execute(select(KEYS).filter_by(space=caller.space, key=key)).first()
    if row is None or not _may_revoke(caller, row.kind, row.holder):
        raise missing()
    if key == caller.key:
        raise Problem(409, "a key does not take itself back; use another one, made before")
    head.note_withdrawn([row_mark("key", caller.space, key)])
    gone = update(KEYS).filter_by(space=caller.space, key=key).values(revoked=time.time())
    connection.execute(gone)


class KeyRow(NamedTuple):
    """A key as it is stored, as far as a caller is known by it."""

    space: str
    key: str
    kind: str
    holder: str
    hash: str
    expires: float | None
    revoked: float | None


def look_up(connection: Connection, tokens: Sequence[str], now: float) -> list[Caller | Problem]:
    """Return the caller of each key; unknown, expired and revoked keys get the same problem."""
    found = connection.execute(_LOOK_UP, {"keys": [name_of(token) for token in tokens]})
    rows = {row.key: KeyRow(*row) for row in found}
    return [holder_of(rows.get(name_of(token)), token, now) for token in tokens]


def name_of(token: str) -> str:
    """The name of the key in a token; "" when it has none."""
    parts = token.split("_", 3)
    return parts[2] if len(parts) == 4 and parts[0] == PREFIX else ""


def holder_of(row: KeyRow | None, token: str, now: float) -> Caller | Problem:
    """Return the caller for a key and its row, or a problem; compares in constant time."""
    stored = row.hash if row is not None else _hash("nobody")
    same = hmac.compare_digest(stored, _hash(token.split("_", 3)[-1]))
    valid = row is not None and same and row.revoked is None
    if row is None or not valid or (row.expires is not None and row.expires <= now):
        return not_valid()
    return Caller(row.space, row.key, row.kind, row.holder)


def not_valid() -> Problem:
    """Return the same problem, status 401, for every kind of invalid key or token."""
    return Problem(401, "the key is missing or not valid", headers={"WWW-Authenticate": "Bearer"})


def check_holder(connection: Connection, caller: Caller) -> None:
    """Refuse the holder of a token whose space or person does not exist, or was forgotten."""
    space = select(SPACES.c.space).filter_by(space=caller.space)
    person = select(PEOPLE.c.person).filter_by(space=caller.space, person=caller.holder)
    wanted = [space, person] if caller.kind == PERSON else [space]
    if any(connection.execute(each).first() is None for each in wanted):
        raise not_valid()


def write_uses(connection: Connection, used: list[tuple[Caller, float]]) -> None:
    """Remember when keys were used last."""
    rows = [{"of_space": who.space, "of_key": who.key, "at": at} for who, at in used]
    connection.execute(_USED, rows)


_LOOK_UP = select(*(KEYS.c[name] for name in KeyRow._fields)).where(
    KEYS.c.key.in_(bindparam("keys", expanding=True))
)
# said to the driver, where that is all a request waits for
ONE_KEY = text(f"SELECT {', '.join(KeyRow._fields)} FROM {KEYS.name} WHERE key = :key")
_OWN: dict[str, Any] = {"space": bindparam("of_space"), "key": bindparam("of_key")}
_USED = update(KEYS).filter_by(**_OWN).values(used=bindparam("at"))


class Remembered:
    """Keys looked up a moment ago, by the hash of their text; and when each was used."""

    def __init__(self, most: int = 10_000) -> None:
        self._known: dict[bytes, tuple[float, Caller]] = {}
        self._noted: dict[str, float] = {}
        self._used: list[tuple[Caller, float]] = []
        self._most = most

    def get(self, token: str) -> Caller | None:
        found = self._known.get(hashlib.sha256(token.encode()).digest())
        return None if found is None or found[0] < time.monotonic() else found[1]

    def put(self, token: str, caller: Caller) -> None:
        """Remember a key, and now and then that it was used."""
        if len(self._known) >= self._most:
            self._known.clear()
        now = time.monotonic()
        digest = hashlib.sha256(token.encode()).digest()
        self._known[digest] = (now + REMEMBERED, caller)
        if now - self._noted.get(caller.key, -USED_EVERY) >= USED_EVERY:
            if len(self._noted) >= self._most:
                self._noted.clear()
            self._noted[caller.key] = now
            self._used.append((caller, time.time()))

    def take_uses(self) -> list[tuple[Caller, float]]:
        """Uses that are not written down yet; they are gone from here."""
        used, self._used = self._used, []
        return used

    def forget(self) -> None:
        """Clear the cache of callers, because a key was revoked."""
        self._known.clear()


def token_of(header: str | None) -> str:
    """The key in an Authorization header: Bearer, or Basic with the key as password."""
    kind, _, rest = (header or "").partition(" ")
    if kind.lower() == "bearer":
        return rest.strip()
    if kind.lower() == "basic":
        return basic(rest)[1]
    return ""


def basic(encoded: str) -> tuple[str, str]:
    """User and password of Basic authentication; empty when they cannot be read."""
    try:
        user, _, password = base64.b64decode(encoded).decode().partition(":")
    except ValueError:
        return "", ""
    return user, password


def _may_revoke(caller: Caller, kind: str, holder: str) -> bool:
    if caller.kind == PERSON:
        return kind == DEVICE and holder == caller.holder
    return caller.kind == OPERATOR


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "EdDSA", "PS256")  # none symmetric
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Provider:
    """The issuer whose tokens count."""

    def __init__(self, settings: Settings) -> None:
        if not (settings.oidc_audience and settings.oidc_jwks):
            raise InputError("oidc_issuer is given; oidc_audience and oidc_jwks are needed too")
        self._issuer, self._audience = settings.oidc_issuer, settings.oidc_audience
        self._jwks = settings.oidc_jwks

    @cached_property
    def _keys(self) -> Any:
        from jwt import PyJWKClient

        return PyJWKClient(self._jwks, cache_keys=True, timeout=5)

    def caller(self, token: str) -> Caller:
        """Return the caller of a token; every invalid token gets the same problem."""
        import jwt

        wrong = not_valid()
        try:
            claims = jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token).key,
                algorithms=list(ALGORITHMS),
                audience=self._audience,
                issuer=self._issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError:
            raise wrong from None
        space, kind = claims.get("shoal_space"), claims.get("shoal_kind")
        person = claims.get("shoal_person", "") if kind == PERSON else ""
        names = [space, person] if kind == PERSON else [space]
        if kind not in (OPERATOR, PERSON):
            raise wrong
        if not all(isinstance(each, str) and NAME.fullmatch(each) for each in names):
            raise wrong
        return Caller(str(space), f"oidc:{claims['sub']}"[:128], kind, person)


def looks_like_token(text: str) -> bool:
    """Whether a bearer text is a signed token, not a key of this service."""
    return text.count(".") == 2 and text.startswith("ey")
