"""What a plan asks of a ledger: charge, then sample, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from shoal.core.release import Release

if TYPE_CHECKING:
    from shoal.core.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One release about one subject's data, before it is made.

    `key` makes a retry harmless: a second charge with the same key returns the stored release.
    `eta` is for steps of a stream, whose noise follows from the outputs before: what this one
    output tells between any two states, rounded up; None when there is no bound.
    """

    plan: Plan
    subject: str
    period: str = ""
    requester: str = ""
    key: str | None = None
    eta: Fraction | None = None


class Ledger(Protocol):
    """Keeps account of what was spent."""

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """Check and charge, then call `sample`, store its release, commit, and return it.

        Raises before sampling when the charge is refused; then nothing has changed.
        """
        ...
