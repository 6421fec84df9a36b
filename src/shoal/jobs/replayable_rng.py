"""Randomness that a replayed step draws again exactly: a secret key, expanded for one step.

A streaming engine that crashed runs its last batch again, perhaps after its outputs were seen.
Fresh noise would then tell more than once. So the words of a step are a function of a secret key
and of everything the step depends on: the same step draws the same words, and any other step,
also the same one with another reading, draws words that are independent of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core.charge import check_count
from shoal.core.errors import InputError
from shoal.data.write import atomic_write

KEY_BYTES = 32
BLOCK_WORDS = 4  # of 64 bits in one SHA-256


class KeyedRng:
    """HMAC-SHA-256 of (label, 0), (label, 1), … under a key of 256 bits of system randomness.

    Nobody without the key tells the words from random ones, as far as HMAC-SHA-256 is a
    pseudorandom function; so a release drawn from them counts as secure.
    """

    def __init__(self, key: bytes, label: list[Any]) -> None:
        if len(key) != KEY_BYTES:
            raise InputError(f"key has {len(key)} bytes; it must have {KEY_BYTES}")
        text = json.dumps(label, separators=(",", ":")).encode()
        self._key = hmac.digest(key, text, "sha256")
        self._block = 0
        self._left = np.empty(0, dtype=np.uint64)

    @property
    def secure(self) -> bool:
        """True: the key is the operating system's randomness and stays secret."""
        return True

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of this label's stream."""
        check_count(count)
        parts = [self._left]
        held = len(self._left)
        while held < count:
            block = hashlib.sha256(self._key + self._block.to_bytes(8, "big")).digest()
            parts.append(np.frombuffer(block, dtype=">u8").astype(np.uint64))
            self._block += 1
            held += BLOCK_WORDS
        joined = np.concatenate(parts)
        self._left = joined[count:]
        return joined[:count]


def stream_key(path: Path) -> bytes:
    """The key in a file, made when absent; it is as private as the data, and must outlive restarts.

    Losing it is safe but for the steps that are replayed once: they would draw anew. Of two
    programs that begin at once both get the same.
    """
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
        atomic_write(made, new_key(), private=True)
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
        made.unlink()
    return key_of(path.read_text(encoding="ascii"), str(path))


def new_key() -> str:
    """A key as it is stored."""
    return secrets.token_hex(KEY_BYTES) + "\n"


def key_of(text: str, where: str) -> bytes:
    """The key behind a stored text; `where` is for the refusal only."""
    try:
        key = bytes.fromhex(text.strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise InputError(f"{where!r} does not hold a stream's key; was it changed?")
    return key
