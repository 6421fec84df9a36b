"""Limits on spending: what they cover, and the check that a charge keeps within one."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from shoal.core.errors import CannotCompose, InputError, OverBudget
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.ledger.rules import WAYS_OUT, least_total
from shoal.ledger.totals import Conversions, Tally, more, sum_eta

EACH = "*"
UNITS = ("eta", "epsilon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `amount` may be spent on the same data: one subject in one period.

    `unit` is "eta" (entry-level, adds exactly) or "epsilon" (after conversion by the least rule).
    `subject` and `period` name one, or "*" for each one separately. `requester` is one name,
    "*" for each one separately, or None for all requesters together. Every limit that matches a
    charge must hold.
    """

    unit: str
    amount: Fraction
    subject: str = EACH
    period: str = EACH
    requester: str | None = None

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise InputError(f"limit unit is {self.unit!r}; it must be one of {list(UNITS)}")
        if self.amount < 0:
            raise InputError(f"limit amount is {self.amount}; it must be 0 or more")
        if not self.subject:
            raise InputError("limit subject is empty; name one, or '*' for each one")

    @property
    def scope(self) -> tuple[str, str, str, str | None]:
        """What the limit is on; a later limit on the same replaces an earlier one."""
        return self.unit, self.subject, self.period, self.requester

    def matches(self, subject: str, period: str, requester: str) -> bool:
        """Whether a charge with these names comes under this limit."""
        return (
            self.subject in (EACH, subject)
            and self.period in (EACH, period)
            and self.requester in (None, EACH, requester)
        )

    def describe(self) -> str:
        """What the limit is on, in words."""
        subject = "each subject" if self.subject == EACH else f"subject {self.subject!r}"
        period = "each period" if self.period == EACH else f"period {self.period!r}"
        who = {None: "all requesters together", EACH: "each requester"}.get(
            self.requester, f"requester {self.requester!r}"
        )
        return f"{self.unit} of {subject} in {period} for {who}"


def check(limit: Limit, spent: Tally, plan: Plan, conversions: Conversions) -> None:
    """Refuse, with OverBudget, a charge of `plan` that takes the spending above the limit.

    Amounts are compared as exact rationals. CannotCompose when the spending has no total in the
    limit's unit.
    """
    after = _amount(limit, more(spent, plan), conversions)
    if after <= limit.amount:
        return
    before = _amount(limit, spent, conversions) if spent else Fraction(0)
    requested = after - before
    raise OverBudget(
        f"the limit on {limit.describe()} is {significant(limit.amount)}; "
        f"{significant(before)} is spent and {significant(requested)} more is requested, "
        f"{significant(after - limit.amount)} too much; ask for less, or raise the limit",
        spent=str(before),
        requested=str(requested),
        limit=str(limit.amount),
    )


def _amount(limit: Limit, tally: Tally, conversions: Conversions) -> Fraction:
    """What the charges come to in the unit of the limit."""
    if limit.unit == "eta":
        eta = sum_eta(tally)
        if eta is None:
            raise CannotCompose(
                "there is a limit on eta, and a charge has no eta to add",
                ("use mechanisms with additive noise", "limit epsilon instead"),
            )
        return eta
    total = least_total(tally, conversions)
    if total.notion == "delta-privacy" or not total.answers(tally):
        raise CannotCompose(
            f"there is a limit on epsilon, and these charges have a total in {total.notion} only",
            WAYS_OUT,
        )
    return total.amount
