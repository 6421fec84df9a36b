"""Encryption at rest: AES-GCM, padded to one length, bound to the location of the record.

A sealed state opens only where it was stored: space, stream and step are associated data. A key has
a name, so that old states open while new ones are sealed with the newest key.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from shoal.core.errors import InputError, StoredError

NONCE, TAG, LENGTH = 12, 16, 4  # bytes
KEY = 32  # bytes: AES-256


class Vault:
    """Keys by name; the first one seals."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        """Set up ciphers for `keys`, (name, key) with the newest first; refuse an empty list."""
        if not keys:
            raise InputError("no key for states is given; `shoal serve --init` makes one")
        self._newest = keys[0][0]
        self._keys = {name: AESGCM(key) for name, key in keys}
        # a key of its own for fingerprints: one key does one thing
        self._marks = {name: hmac.digest(key, b"shoal fingerprint", "sha256") for name, key in keys}

    @property
    def newest(self) -> str:
        """The name of the key that seals."""
        return self._newest

    def seal(self, content: bytes, place: str, room: int) -> tuple[str, bytes]:
        """The key's name and `content` sealed, always `room` bytes long inside, or a multiple."""
        whole = len(content).to_bytes(LENGTH, "big") + content
        padded = whole + bytes(-len(whole) % room)
        nonce = os.urandom(NONCE)
        return self._newest, nonce + self._keys[self._newest].encrypt(nonce, padded, place.encode())

    def open(self, name: str, sealed: bytes, place: str) -> bytes:
        """What was sealed; refused when the key is unknown, or it was changed or moved."""
        key = self._keys.get(name)
        if key is None:
            raise _unknown(name)
        try:
            padded = key.decrypt(sealed[:NONCE], sealed[NONCE:], place.encode())
        except (InvalidTag, ValueError):
            raise StoredError(
                "a stored state was changed, or moved from another stream or step; restore it"
            ) from None
        length = int.from_bytes(padded[:LENGTH], "big")
        return padded[LENGTH : LENGTH + length]

    def fingerprint(self, content: bytes, place: str, name: str) -> str:
        """Return the HMAC-SHA256 of `content` at `place`, under the key of that name, as hex.

        `content` cannot be tested without the key. Refused when the key is unknown.
        """
        mark = self._marks.get(name)
        if mark is None:
            raise _unknown(name)
        return hmac.digest(mark, place.encode() + b"\0" + content, "sha256").hex()


def _unknown(name: str) -> StoredError:
    return StoredError(
        f"a stored state was sealed with key {name!r}, which is not given; add it to the list of "
        "keys"
    )


def new_key() -> str:
    """A line for the list of keys: a name, a colon, 256 random bits."""
    return f"{secrets.token_hex(4)}:{base64.urlsafe_b64encode(os.urandom(KEY)).decode()}"


def parse_keys(text: str) -> list[tuple[str, bytes]]:
    """Keys from lines or commas, the newest first."""
    found = []
    for line in text.replace(",", "\n").split():
        name, _, encoded = line.partition(":")
        try:
            key = base64.urlsafe_b64decode(encoded)
        except (binascii.Error, ValueError):
            key = b""
        if not name or len(key) != KEY:
            raise InputError(
                "a key for states is not NAME:BASE64 of 32 bytes; make one with --init"
            )
        found.append((name, key))
    return found


def read_keys(given: str, path: Path) -> list[tuple[str, bytes]]:
    """Keys from the setting, or from the file when the setting is empty."""
    if given:
        return parse_keys(given)
    if not path.exists():
        return []
    if path.stat().st_mode & 0o077:
        raise InputError(f"{path} may be read by others; run: chmod 600 {path}")
    return parse_keys(path.read_text())


def write_key(path: Path) -> None:
    """Put a new key first in the file, which only this user may read; older ones stay."""
    before = path.read_text() if path.exists() else ""
    beside = path.with_name(path.name + ".new")
    beside.touch(mode=0o600)
    beside.write_text(f"{new_key()}\n{before}")
    beside.replace(path)
