"""Immutable values with an identity made of their content."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.codec import digest, encode

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Value:
    """A frozen dataclass compared and hashed by the fingerprint of its content."""

    __slots__ = ("_fingerprint",)
    _fingerprint: str

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of the canonical JSON of the whole value."""
        try:
            return self._fingerprint
        except AttributeError:
            content = digest(encode(self))
            object.__setattr__(self, "_fingerprint", content)
            return content

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Value):
            return NotImplemented
        return type(self) is type(other) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)


def locked(values: npt.ArrayLike, dtype: type[np.generic] = np.float64) -> npt.NDArray[Any]:
    """A private copy of `values` that nobody can write to."""
    array = np.array(values, dtype=dtype, order="C", copy=True)
    array.setflags(write=False)
    return array
