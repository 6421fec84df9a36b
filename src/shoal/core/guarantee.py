"""What a plan promises, in one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from shoal.core.codec import Value
from shoal.core.errors import InputError
from shoal.core.numbers import significant

# notion -> the weaker notions it gives for the same amount
NOTIONS: dict[str, tuple[str, ...]] = {
    "entry-dp": (),
    "group": ("entry-dp", "pufferfish", "dependent"),
    "pufferfish": (),
    "dependent": (),
    "policy": (),
    "location-set": (),
    "delta-privacy": (),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guarantee(Value):
    """A notion of privacy, its amount, and what it covers.

    `amount` is epsilon, the largest change of log-odds between two secrets; for "delta-privacy"
    it is delta, the largest rise of a belief. `over` says which secrets and which adversary.
    `proved=False` marks a published claim that is wrong, or that we could not establish;
    `caveat` then says why.
    """

    notion: str
    amount: Fraction
    over: str
    proved: bool = True
    caveat: str = ""

    def __post_init__(self) -> None:
        if self.notion not in NOTIONS:
            raise InputError(f"notion is {self.notion!r}; it must be one of {sorted(NOTIONS)}")
        if self.amount <= 0:
            raise InputError(f"guarantee amount is {self.amount}; it must be greater than 0")
        if not self.proved and not self.caveat:
            raise InputError("a guarantee that is not proved needs a caveat that says why")

    def gives(self, notion: str) -> bool:
        """Whether this promise includes one of `notion` with the same amount."""
        return notion == self.notion or notion in NOTIONS[self.notion]

    def describe(self) -> str:
        """The promise in a sentence."""
        status = "" if self.proved else f" CLAIMED, NOT PROVED: {self.caveat}."
        if self.notion == "delta-privacy":
            return (
                f"no output raises the belief in {self.over} "
                f"by more than {significant(self.amount)}.{status}"
            )
        factor = math.exp(min(float(self.amount), 700.0))
        return (
            f"no output changes the odds between two values of what is protected ({self.over}) "
            f"by more than a factor of {significant(factor)} "
            f"({self.notion}, epsilon = {significant(self.amount)}).{status}"
        )


# The rules by which a ledger may add a plan to others about the same data.
#
# A plan carries every rule that is proved for it. The ledger adds charges only by a rule all of
# them share, takes the least total, and otherwise says that they cannot be added. A rule `follows`
# from another one when whoever may believe that one may believe it too.


class AddingRule(Value):
    """One rule of composition. It follows from none of another kind.

    `promises` are what all steps of one stream keep together, of a rule that says so.
    """

    __slots__ = ()

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        return ()

    def follows(self, other: AddingRule) -> bool:
        """Whether whoever may believe `other` may believe this."""
        return type(other) is type(self) and self._weaker(other)

    def _weaker(self, other: Self) -> bool:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class AsEntryDP(AddingRule):
    """The release is `eta`-DP for one entry, whatever calibrated it.

    The etas of several releases add, adaptively, and their sum is converted once by the lift.
    """

    eta: Fraction

    def __post_init__(self) -> None:
        if self.eta <= 0:
            raise InputError(f"eta is {self.eta}; it must be greater than 0")

    def _weaker(self, other: AsEntryDP) -> bool:
        """From a smaller eta."""
        return self.eta >= other.eta

    def describe(self) -> str:
        return (
            f"counts as entry-level DP with eta = {significant(self.eta)}; "
            "etas add and are converted once by the lift"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SameQuilts(AddingRule):
    """Releases made from the same quilt sets (same `key`) add by max_i min_Q (|N|·Ση + e).

    Song, Wang & Chaudhuri 2017, Theorem 4.4, with the noise scales known: `eta` is L/scale.
    """

    key: str
    eta: Fraction

    def _weaker(self, other: SameQuilts) -> bool:
        """From a smaller eta with the same quilts."""
        return self.key == other.key and self.eta >= other.eta

    def describe(self) -> str:
        return "adds to other releases from the same Markov quilts (Theorem 4.4)"


@dataclass(frozen=True, slots=True, eq=False)
class AsGroupDP(AddingRule):
    """The release is `epsilon`-DP for all tied entries together; epsilons add."""

    epsilon: Fraction

    def _weaker(self, other: AsGroupDP) -> bool:
        """From a smaller epsilon."""
        return self.epsilon >= other.epsilon

    def describe(self) -> str:
        return f"counts as group DP with epsilon = {significant(self.epsilon)}; epsilons add"


@dataclass(frozen=True, slots=True, eq=False)
class PerStep(AddingRule):
    """A stream whose promise holds at each step given the past outputs.

    `eta` bounds what one output tells between any two states, joined or not, at every step of every
    stream; None when no bound is known beforehand. A ledger adds what each step was charged with
    instead: a plan of version 0.1 may say too little here.
    """

    epsilon: Fraction
    eta: Fraction | None = None

    def _weaker(self, other: PerStep) -> bool:
        """From a smaller epsilon, and from a smaller eta when it names one."""
        named = self.eta is None or (other.eta is not None and self.eta >= other.eta)
        return named and self.epsilon >= other.epsilon

    def describe(self) -> str:
        return f"per step, given what was released before: epsilon = {significant(self.epsilon)}"


@dataclass(frozen=True, slots=True, eq=False)
class Alone(AddingRule):
    """No theorem adds this release to another about the same data."""

    reason: str

    def _weaker(self, other: Alone) -> bool:
        """From the same words: they may say what does not need adding."""
        return self == other

    def describe(self) -> str:
        return f"does not add to any other release about the same data: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class OneStream(AddingRule):
    """All outputs of one stream together keep `promises`; nothing else about the same data adds.

    Steps of the plan, each drawn once, are one charge about what is promised, however many.
    """

    promises: tuple[Guarantee, ...] = ()

    def _weaker(self, other: OneStream) -> bool:
        """From the same promises."""
        return self == other

    def describe(self) -> str:
        told = " ".join(promise.describe() for promise in self.promises)
        return f"all steps of one stream together, and nothing beside it: {told}".rstrip(".")


Composition = AsEntryDP | SameQuilts | AsGroupDP | PerStep | Alone | OneStream
