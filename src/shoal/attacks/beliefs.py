"""What an adversary believes before and after, and the measures of what was learned."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError


class Learned(NamedTuple):
    """The largest change of the odds between two values of an entry, in logs, and where."""

    log_odds: float
    entry: int
    values: tuple[str, str]


class Rise(NamedTuple):
    """The largest log(belief after / belief before), and where."""

    log_ratio: float
    entry: int
    value: str


class Privacy(NamedTuple):
    """How well an adversary does on average over the entries (Shokri et al. 2011).

    `correctness` is the expected distance between what the adversary believes and the truth (what
    users care about), `certainty` the entropy of the belief in bits, `accuracy` how often the best
    guess is the truth.
    """

    correctness: float
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """P(entry = value) before and after, (entries, values), and how likely the output was.

    `log_evidence` is log P(output), up to the constant left out of the likelihood; nan where
    nobody asked. `logs` are the logarithms of both tables, for beliefs too small for a double: a
    value that looks all but excluded is not excluded.
    """

    values: tuple[str, ...]
    before: Floats
    after: Floats
    log_evidence: float = math.nan
    logs: tuple[Floats, Floats] | None = None

    @classmethod
    def from_joint(cls, values: tuple[str, ...], log_before: Floats, log_joint: Floats) -> Self:
        """Beliefs from log P(entry = value) and log P(entry = value, output).

        An error when the output is impossible.
        """
        evidence = np.logaddexp.reduce(log_joint, axis=1, keepdims=True)
        if not (evidence > -math.inf).all():
            raise InputError("what was seen is impossible under the model")
        log_after = log_joint - evidence
        return cls(
            values,
            np.exp(log_before),
            np.exp(log_after),
            float(evidence[0, 0]),
            (log_before, log_after),
        )

    @property
    def guesses(self) -> Ints:
        """The most likely value of each entry, after."""
        return np.asarray(np.argmax(self.after, axis=1), np.int64)

    def largest_change(self) -> Learned:
        """The largest log-odds learned between two values of one entry; 0 when nothing was.

        inf when a value that was possible no longer is.
        """
        gain, possible = self._gains()
        high = np.where(possible, gain, -math.inf)
        low = np.where(possible, gain, math.inf)
        spread = high.max(axis=1) - low.min(axis=1)
        entry = int(np.argmax(spread))
        pair = (int(np.argmax(high[entry])), int(np.argmin(low[entry])))
        return Learned(float(spread[entry]), entry, (self.values[pair[0]], self.values[pair[1]]))

    def largest_rise(self) -> Rise:
        """The belief that grew by the largest factor: posterior over prior, in logs.

        Never more than `largest_change`, because the beliefs in other values cannot all have
        grown as well.
        """
        gain, possible = self._gains()
        high = np.where(possible, gain, -math.inf)
        entry, value = (int(i) for i in np.unravel_index(int(np.argmax(high)), high.shape))
        return Rise(max(float(high[entry, value]), 0.0), entry, self.values[value])

    def expected_errors(self) -> tuple[float, float]:
        """How often the adversary expects the best guess to be wrong, before and after."""
        return (
            float(1 - self.before.max(axis=1).mean()),
            float(1 - self.after.max(axis=1).mean()),
        )

    def entropies(self) -> tuple[float, float]:
        """The mean entropy of the belief about an entry in bits, before and after."""
        return float(entropy(self.before).mean()), float(entropy(self.after).mean())

    def privacy(self, truth: npt.ArrayLike, distance: npt.ArrayLike | None = None) -> Privacy:
        """Measured against the truth (value indices); by default all errors count 1."""
        actual = np.asarray(truth, dtype=np.int64)
        count = len(self.values)
        if actual.shape != (len(self.after),) or not ((actual >= 0) & (actual < count)).all():
            raise InputError(
                f"truth must hold one of the numbers 0 to {count - 1} for each of "
                f"{len(self.after)} entries"
            )
        apart = 1 - np.eye(count) if distance is None else np.asarray(distance, float)
        if apart.shape != (count, count):
            raise InputError(f"distance has shape {apart.shape}; it must be ({count}, {count})")
        return Privacy(
            correctness=float((self.after * apart[:, actual].T).sum(axis=1).mean()),
            certainty=float(entropy(self.after).mean()),
            accuracy=float((self.guesses == actual).mean()),
        )

    def _gains(self) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """log(after / before), and where it is about a value that was possible."""
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = self.logs or (np.log(self.before), np.log(self.after))
            return after - before, before > -math.inf


def entropy(laws: Floats) -> Floats:
    """-Σ p log2 p along the last axis; 0 log 0 is 0."""
    safe = np.where(laws > 0, laws, 1.0)
    return np.asarray(-(safe * np.log2(safe)).sum(axis=-1))
