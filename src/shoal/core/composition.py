"""The rules by which a ledger may add a plan to others about the same data.

A plan carries every rule that is proved for it. The ledger adds charges only by a rule all of
them share, takes the least total, and otherwise says that they cannot be added. A rule `follows`
from another one when whoever may believe that one may believe it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class AsEntryDP(Value):
    """The release is `eta`-DP for one entry, whatever calibrated it.

    The etas of several releases add, adaptively, and their sum is converted once by the lift.
    """

    eta: Fraction

    def __post_init__(self) -> None:
        if self.eta <= 0:
            raise InputError(f"eta is {self.eta}; it must be greater than 0")

    def follows(self, other: Composition) -> bool:
        """From a smaller eta."""
        return isinstance(other, AsEntryDP) and self.eta >= other.eta

    def describe(self) -> str:
        return (
            f"counts as entry-level DP with eta = {significant(self.eta)}; "
            "etas add and are converted once by the lift"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SameQuilts(Value):
    """Releases made from the same quilt sets (same `key`) add by max_i min_Q (|N|·Ση + e).

    Song, Wang & Chaudhuri 2017, Theorem 4.4, with the noise scales known: `eta` is L/scale.
    """

    key: str
    eta: Fraction

    def follows(self, other: Composition) -> bool:
        """From a smaller eta with the same quilts."""
        return isinstance(other, SameQuilts) and self.key == other.key and self.eta >= other.eta

    def describe(self) -> str:
        return "adds to other releases from the same Markov quilts (Theorem 4.4)"


@dataclass(frozen=True, slots=True, eq=False)
class AsGroupDP(Value):
    """The release is `epsilon`-DP for all tied entries together; epsilons add."""

    epsilon: Fraction

    def follows(self, other: Composition) -> bool:
        """From a smaller epsilon."""
        return isinstance(other, AsGroupDP) and self.epsilon >= other.epsilon

    def describe(self) -> str:
        return f"counts as group DP with epsilon = {significant(self.epsilon)}; epsilons add"


@dataclass(frozen=True, slots=True, eq=False)
class PerStep(Value):
    """A stream whose promise holds at each step given the past outputs.

    `eta` bounds what one output tells between any two states, joined or not, at every step of every
    stream; None when no bound is known beforehand. A ledger adds what each step was charged with
    instead: a plan of version 0.1 may say too little here.
    """

    epsilon: Fraction
    eta: Fraction | None = None

    def follows(self, other: Composition) -> bool:
        """From a smaller epsilon, and from a smaller eta when it names one."""
        if not isinstance(other, PerStep) or self.epsilon < other.epsilon:
            return False
        return self.eta is None or (other.eta is not None and self.eta >= other.eta)

    def describe(self) -> str:
        return f"per step, given what was released before: epsilon = {significant(self.epsilon)}"


@dataclass(frozen=True, slots=True, eq=False)
class Alone(Value):
    """No theorem adds this release to another about the same data."""

    reason: str

    def follows(self, other: Composition) -> bool:
        """From the same words: they may say what does not need adding."""
        return self == other

    def describe(self) -> str:
        return f"does not add to any other release about the same data: {self.reason}"


Composition = AsEntryDP | SameQuilts | AsGroupDP | PerStep | Alone
