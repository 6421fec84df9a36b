"""Where the random words come from: the operating system, or a seed for tests and demos."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from shoal.core.rng import SystemRng, check_count

__all__ = ["SeededRng", "SystemRng"]


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
        """The next `count` words of the seed's stream."""
        check_count(count)
        return np.asarray(self._stream.random_raw(count), dtype=np.uint64)
