"""What every sampler asks of a source of randomness, and the one source for real releases."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shoal.core.codec import Floats


class Rng(Protocol):
    """A source of uniformly random 64-bit words, each used once."""

    @property
    def secure(self) -> bool:
        """True when the words are the operating system's and nobody can predict them."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the stream, independent and uniform on [0, 2^64).

        Asking for a and then for b words gives the same as asking for a + b at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class SystemRng:
    """The operating system's randomness, for every real release.

    It keeps no buffer and no state, so a forked child shares no word with its parent.
    """

    @property
    def secure(self) -> bool:
        """True: nobody can predict these words."""
        return True

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` fresh words from os.urandom, read-only."""
        check_count(count)
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def check_count(count: int) -> None:
    """Refuse a negative number of words."""
    if count < 0:
        raise ValueError(f"count is {count}; it must be 0 or more (ask for the words you need)")


# Random draws from a model, for synthetic data and attacks; private noise lives in `noise`.


def uniforms(count: int, rng: Rng) -> Floats:
    """`count` numbers in [0, 1) on the lattice of 2^-53."""
    return (rng.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def categorical(law: Floats, uniform: float) -> int:
    """The state whose slice of [0, 1) holds `uniform`; never one of probability 0."""
    cumulative = np.cumsum(law)
    chosen = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(chosen, int(np.flatnonzero(law)[-1]))
