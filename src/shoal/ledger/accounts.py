"""What was spent on a subject, what may be, and whether one more charge is allowed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from shoal.core.charge import WHOLE, Charge, Part
from shoal.core.errors import (
    BudgetError,
    CannotCompose,
    InputError,
    LedgerError,
    OverBudget,
    PromiseBroken,
)
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.ledger.periods import part_in_series, periods_together
from shoal.ledger.rules import WAYS_OUT, any_total, least_total
from shoal.ledger.schema import NO_LINK, Head
from shoal.ledger.totals import (
    Conversions,
    NotConverted,
    Tally,
    from_counts,
    hides_whole_series,
    sum_eta,
)
from shoal.mechanisms.table import LOSS_TOLERANCE

EACH = "*"
LIFETIME = "**"  # how a limit over all periods together is stored
UNITS = ("eta", "epsilon")
LARGEST_LIMIT = Fraction(10) ** 300  # of a limit: totals are told as floats
SPARE = 64  # charges of one kind for which room is looked for at once
USUAL = 4  # charges of one kind from which on more of it are expected
NAME_PERIODS = (
    "name a period in every act, the same one for the same data (a charge without a name counts "
    "together with every period of its subject)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """At most `amount` may be spent on the same data: one subject in one period.

    `unit` is "eta" (entry-level, adds exactly) or "epsilon" (after conversion by the least rule).
    `subject` and `period` name one, or "*" for each one separately; the period None is all periods
    together, as if none were independent of another: a cap for a lifetime. `requester` is one
    name, "*" for each one separately, or None for all requesters together. Every limit that
    matches a charge must hold.
    """

    unit: str
    amount: Fraction
    subject: str = EACH
    period: str | None = EACH
    requester: str | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown unit, an amount below 0 or above 1e300, and an empty subject."""
        if self.unit not in UNITS:
            raise InputError(f"limit unit is {self.unit!r}; it must be one of {list(UNITS)}")
        if not 0 <= self.amount <= LARGEST_LIMIT:
            raise InputError(
                f"limit amount is {_short(self.amount)}; it must be 0 or more, and at most 1e300"
            )
        if not self.subject:
            raise InputError("limit subject is empty; name one, or '*' for each one")

    @property
    def scope(self) -> tuple[str, str, str | None, str | None]:
        """What the limit is on; a later limit on the same replaces an earlier one."""
        return self.unit, self.subject, self.period, self.requester

    def matches(self, subject: str, periods: Collection[str], requester: str) -> bool:
        """Whether what is asked about these names comes under this limit.

        `periods` are all that count together with the period that is asked about.
        """
        return (
            self.subject in (EACH, subject)
            and (self.period in (None, EACH) or self.period in periods)
            and self.requester in (None, EACH, requester)
        )

    def describe(self) -> str:
        """What the limit is on, in words."""
        subject = "each subject" if self.subject == EACH else f"subject {self.subject!r}"
        period = {None: "all periods together", EACH: "each period"}.get(
            self.period, f"period {self.period!r}"
        )
        who = {None: "all requesters together", EACH: "each requester"}.get(
            self.requester, f"requester {self.requester!r}"
        )
        return f"{self.unit} of {subject} in {period} for {who}"


class UnreadableCharge(LedgerError):
    """A stored charge this program cannot read: nothing more is released about its subject."""


def _short(amount: Fraction) -> str:
    return str(amount) if -LARGEST_LIMIT < amount < LARGEST_LIMIT else "larger than that"


def check(limit: Limit, spent: Tally, after_it: Tally, conversions: Conversions) -> None:
    """Refuse, with OverBudget, charges that take the spending above the limit.

    Amounts are compared as exact rationals. CannotCompose when the spending has no total in the
    limit's unit.
    """
    after = _amount(limit, after_it, conversions)
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


class Kind(NamedTuple):
    """What charges about one subject may have in common: then they count together."""

    period: str
    requester: str
    plan: str
    part: str

    @classmethod
    def of(cls, charge: Charge) -> Kind:
        """The kind of a charge."""
        return cls(charge.period, charge.requester, charge.plan.fingerprint, charge.part.text)


@dataclass(slots=True)
class Account:
    """What is known about one subject: the end of its chain, and how often each kind was charged.

    `room` says for how many more charges of the last kind there surely is room under the limits
    of some moment, so that a stream is not judged anew at every step: what is allowed after more
    charges is allowed after fewer, because leaving releases out is post-processing and etas only
    grow.
    """

    head: Head = NO_LINK
    counts: Counter[Kind] = field(default_factory=Counter)
    room: tuple[object, int] = (None, 0)  # (kind, moment), and how many

    def add(self, head: Head, kind: Kind, times: int = 1) -> None:
        """Count charges that are in the chain now; `head` is its end after them."""
        self.head = head
        self.counts[kind] += times
        what, left = self.room
        same = isinstance(what, tuple) and what[0] == kind
        self.room = (what, left - times) if same and left > times else (None, 0)

    def copy(self) -> Account:
        """The same, to be counted on from without changing this one."""
        return Account(self.head, Counter(self.counts), self.room)


class LedgerPolicy(NamedTuple):
    """What the ledger allows at link `seq` of its own chain: limits, signers, signed plans."""

    seq: int
    limits: Mapping[str, Sequence[Limit]]
    signers: frozenset[str]
    signed: frozenset[str]


@dataclass(slots=True)
class Judge:
    """Whether each charge is allowed after those counted: the one decision, however many there are.

    The plan is looked at first: is it what it says, and may it be used here? `confirm_plan` names
    plans that were. The verdict then depends on the charges about the same subject, the kind and
    the limits that match; it is worked out once for all subjects that agree on these. `everybody`
    counts the charges about everybody, which are about every subject too.
    """

    policy: LedgerPolicy
    plan: Callable[[str], Plan]
    conversions: Conversions
    everybody: Account
    confirmed: set[str]
    _known: dict[object, BudgetError | None] = field(default_factory=dict)

    def __call__(self, account: Account, charge: Charge, subject: str) -> BudgetError | None:
        """Why the charge is refused for a subject; None when it is allowed."""
        if charge.plan.fingerprint not in self.confirmed:
            self._confirm(charge.plan)
        if self.policy.signers and charge.plan.fingerprint not in self.policy.signed:
            return BudgetError(
                f"plan {charge.plan.fingerprint[:12]}… is not signed, and this ledger takes only "
                "plans of named signers; sign it with `shoal ledger sign`"
            )
        kind = Kind.of(charge)
        # within a batch ends have no hash yet: what is known there is known of nothing else
        moment = (kind, self.policy.seq, self.everybody.head)
        if account.room[1] > 0 and account.room[0] == moment:
            return None
        limits = (*self.policy.limits.get(EACH, ()), *self.policy.limits.get(subject, ()))
        own = tuple(limit for limit in limits if limit.subject in (EACH, subject))
        key = (frozenset(account.counts.items()), self.everybody.head, kind, own)
        if key not in self._known:
            counts = account.counts + self.everybody.counts
            self._known[key] = self._verdict(counts, charge, own)
            stored = bool(self.everybody.head.hash) or self.everybody.head == NO_LINK
            usual = self._known[key] is None and stored and account.counts[kind] >= USUAL
            if usual and self._has_room(counts, charge, own):
                account.room = (moment, SPARE)
        return self._known[key]

    def _confirm(self, plan: Plan) -> None:
        """Refuse a plan that says of itself what is not so: nothing it says is believed."""
        loss = self.conversions.recheck(plan)
        most = float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE)
        if loss == float("inf") or (plan.guarantee.proved and not loss <= most):
            raise PromiseBroken(
                f"the plan of {plan.mechanism} promises {significant(plan.guarantee.amount)}, and "
                "what it draws, or how it says it adds to others, is something else: it was "
                "changed; calibrate it again"
            )
        self.confirmed.add(plan.fingerprint)

    def _has_room(self, counts: Counter[Kind], charge: Charge, limits: tuple[Limit, ...]) -> bool:
        try:
            return self._verdict(counts, charge, limits, SPARE) is None
        except NotConverted:
            return False  # room is not worth a computation while others wait

    def _verdict(
        self, counts: Counter[Kind], charge: Charge, limits: tuple[Limit, ...], n: int = 1
    ) -> BudgetError | None:
        """Return why `n` charges like this one cannot be added to the account, None when they can.

        `counts` are the charges stored so far. Limits of the requester and of the period are judged
        on their own sums, all others on the subject's.
        """
        unreadable = self._unreadable(counts)
        if unreadable is not None:
            return unreadable
        kind = Kind.of(charge)
        after = Counter(counts)
        after[kind] += n

        def plan(name: str) -> Plan:
            return charge.plan if name == kind.plan else self.plan(name)

        def before_and_after(
            periods: frozenset[str] | None, requester: str | None
        ) -> tuple[Tally, Tally]:
            return tally(counts, plan, periods, requester), tally(after, plan, periods, requester)

        together = together_with(after, plan, charge.period)
        try:
            any_total(before_and_after(together, None)[1], self.conversions)
            for limit in limits:
                periods = self._limited(limit, charge, after, plan, together)
                if periods == frozenset():
                    continue
                own = None if limit.requester is None else charge.requester
                spent, then = before_and_after(periods, own)
                check(limit, spent, then, self.conversions)
        except CannotCompose as refusal:
            return _with_periods(refusal, charge.period, together)
        except BudgetError as refusal:
            return refusal
        return None

    def _limited(
        self,
        limit: Limit,
        charge: Charge,
        after: Mapping[Kind, int],
        plan: Callable[[str], Plan],
        together: frozenset[str],
    ) -> frozenset[str] | None:
        """Return the periods whose charges a limit is about, None for all; empty for no charge.

        A limit on one period is about all that may hold its data, charged under its name or not.
        """
        if limit.requester not in (None, EACH, charge.requester):
            return frozenset()
        if limit.period is None:
            return None
        if limit.period == EACH:
            return together
        about = together_with(after, plan, limit.period, [(limit.period, "")])
        return about if charge.period in about else frozenset()

    def _unreadable(self, counts: Counter[Kind]) -> UnreadableCharge | None:
        """Return why some stored charge cannot be read; None when all can.

        Charges of every period are read, not only those that a total needs: what a charge that
        nobody can read has told is unknown.
        """
        try:
            for name in {kind.plan for kind in counts}:
                self.plan(name)
            for kind in counts:
                _part(kind)
        except UnreadableCharge as error:
            return UnreadableCharge(
                f"a stored charge about this subject cannot be read ({error}), so nothing more is "
                "released about it; use a version of Shoal that reads it, or restore the ledger"
            )
        return None


def _with_periods(refusal: CannotCompose, period: str, together: frozenset[str]) -> CannotCompose:
    """Return the refusal, saying which other periods count together with that of the charge."""
    others = sorted(together - {period})
    if not others:
        return refusal
    shown = ", ".join(map(repr, others[:3])) + (", …" if len(others) > 3 else "")
    return CannotCompose(
        f"{refusal.reason}; period {period!r} may hold the same data as {shown}, so they count "
        "together",
        (NAME_PERIODS, *refusal.ways_out),
    )


def together_with(
    counts: Mapping[Kind, int],
    plan: Callable[[str], Plan],
    period: str,
    more: Sequence[tuple[str, str]] = (),
) -> frozenset[str]:
    """Return the periods that count together with one, with the charges there are and `more`.

    `counts` holds all charges about the subject and about everybody; `more` are periods and texts
    of parts. Where a whole series is hidden, no period of it is apart from the others.
    """
    charged = [(kind.period, kind.part) for kind in counts]
    if all(name == period for name, _ in (*charged, *more)):
        return frozenset([period])
    for kind in counts:
        _part(kind)  # refuses what cannot be read
    if any(hides_whole_series(plan(name)) for name in {kind.plan for kind in counts}):
        return frozenset([period, *(name for name, _ in (*charged, *more))])
    return periods_together([*charged, *more], period)


def tally(
    counts: Mapping[Kind, int],
    plan: Callable[[str], Plan],
    periods: frozenset[str] | None = None,
    requester: str | None = None,
) -> Tally:
    """Return the kinds of charges as the rules add them: of some periods and requester, or of all.

    Where several periods count together, each charge reads a part of the subject's series.
    """
    found: Counter[tuple[Plan, Part]] = Counter()
    several = len({kind.period for kind in counts}) > 1
    for kind, times in counts.items():
        if (periods is None or kind.period in periods) and requester in (None, kind.requester):
            found[plan(kind.plan), _part_read(kind, periods, several=several)] += times
    return from_counts(found)


def _part_read(kind: Kind, periods: frozenset[str] | None, *, several: bool) -> Part:
    """Return what a charge reads of the data that these periods hold together.

    Of all periods for a lifetime (None), `several` of which have charges, entries are not compared:
    those of one period are numbered apart from those of another.
    """
    part = _part(kind).within if periods is None else _part(kind)
    if periods is None:
        return part if part.seconds or not several else WHOLE
    return part if len(periods) == 1 else part_in_series(kind.period, part)


def _part(kind: Kind) -> Part:
    """Return the part of a kind of charge; refused where it cannot be read."""
    try:
        return Part.stored(kind.part)
    except (ValueError, TypeError, AttributeError):
        raise UnreadableCharge(
            "a part of a charge cannot be read: was it changed by hand? run ledger verify"
        ) from None
