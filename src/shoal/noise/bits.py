"""Where the random words come from: the operating system, or a seed for tests and demos."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from shoal.core.rng import Rng, SystemRng, check_count

__all__ = ["SeededRng", "SystemRng", "Unread"]


class SeededRng:
    """A reproducible stream, for tests and demos only: whoever knows the seed removes the noise.

    Philox 4x64 in counter mode under the key SHA-256(seed), whose raw words numpy keeps stable
    between versions. Equal seeds give equal streams.
    """

    def __init__(self, seed: int) -> None:
        digest = hashlib.sha256(str(int(seed)).encode()).digest()
        self._stream = np.random.Philox(key=int.from_bytes(digest[:16], "big"))

    @property
    def secure(self) -> bool:
        """False: a ledger refuses releases drawn from this source."""
        return False

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the seed's stream, read-only."""
        check_count(count)
        words = np.asarray(self._stream.random_raw(count), dtype=np.uint64)
        words.setflags(write=False)  # as the system's are, so that compiled code is made once
        return words


class Unread:
    """A source whose last words were looked at but not used: it gives them first, once.

    For a draw that is begun in compiled code and taken again from its beginning on Python's
    integers: the same words make the same draw. To be used within that draw and then dropped.
    """

    def __init__(self, words: NDArray[np.uint64], rng: Rng) -> None:
        self._left = words
        self._rng = rng

    @property
    def secure(self) -> bool:
        """Whether the source behind it is."""
        return self._rng.secure

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words, read-only: of those given back, then of the source."""
        check_count(count)
        first, self._left = self._left[:count], self._left[count:]
        if len(first) == count:
            return first
        both = np.concatenate([first, self._rng.words(count - len(first))])
        both.setflags(write=False)
        return both
