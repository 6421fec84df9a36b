"""What a plan promises, in one value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.value import Value

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
