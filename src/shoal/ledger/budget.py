"""A year of releases: what each may spend, how good it is, and how long the rest lasts.

Releases about disjoint parts of one series (its days) touch every entry once, so their entry-level
η does not add; one lift of that η covers all of them, however many there are (rules.md, section
10). What a budget proposes is composed again by the ledger's own rules before anybody sees it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from shoal.core.charge import AsEntryDP, Part
from shoal.core.errors import CannotCompose, InputError, PromiseBroken, Refused, ShoalError
from shoal.core.numbers import Number, positive, significant, whole
from shoal.core.plan import CONFIDENCE, Error, Plan
from shoal.core.registry import Shown
from shoal.core.task import Model, Query, Secrets, Task
from shoal.ledger.rules import compose, total_of_parts
from shoal.ledger.totals import Total, at_most
from shoal.mechanisms import lift
from shoal.mechanisms.choice import as_task
from shoal.mechanisms.plans import least_error_noise, noisy_plan, task_guarantee
from shoal.mechanisms.queries import linear

DAYS = {"hour": Fraction(1, 24), "day": Fraction(1), "week": Fraction(7), "month": Fraction(30),
        "quarter": Fraction(91), "year": Fraction(365)}  # fmt: skip
TOTAL_TOLERANCE = 1e-9  # relative, of the composed total


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Releases at one pace: how many, of how many entries, what each spends, how good it is.

    `eta` is the entry-level loss of one release, `epsilon` what all of them together promise.
    `plan` makes them.
    """

    every: str
    releases: int
    entries: int | None
    eta: Fraction
    epsilon: float
    plan: Plan

    @property
    def error(self) -> Error | None:
        return self.plan.error(CONFIDENCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Shown):
    """What a budget buys over many releases about the parts of one series.

    `paces` are the wish and coarser ones; `added` is the error of the wish if every release
    touched all entries, so that η adds; `left` says what a ledger still allows.
    """

    epsilon: Fraction
    paces: tuple[Pace, ...]
    added: Error | None
    left: Left | None = None

    def __repr__(self) -> str:
        return f"<Budget epsilon = {significant(self.epsilon)}: {_words(self.paces[0])}>"

    @property
    def plan(self) -> Plan:
        """The plan of the pace that was asked for; release each part with it."""
        return self.paces[0].plan

    def describe(self) -> str:
        """The budget in words."""
        wish = self.paces[0]
        lines = [
            f"{wish.releases:,} releases, one every {wish.every}, each of a part of its own: "
            f"entry-level eta = {significant(wish.eta)} each, and together they promise "
            f"{significant(wish.epsilon)} for the whole series.",
            *(_words(pace) for pace in self.paces),
        ]
        if self.added is not None:
            lines.append(f"If every release read all entries instead: {self.added.describe()}.")
        if self.left is not None:
            lines.append(self.left.describe())
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a limit of a ledger still allows one subject, and until when at the pace so far."""

    unit: str
    limit: Fraction | None
    spent: Fraction
    charges: int
    until: datetime | None

    @property
    def amount(self) -> Fraction | None:
        """What is left; None without a limit."""
        return None if self.limit is None else max(self.limit - self.spent, Fraction(0))

    def describe(self) -> str:
        """Return in words what is spent, what is left of the limit, and until when it lasts at this
        pace.
        """
        if not self.charges:
            return "Ledger: this subject has never been charged, and all of its limit is left."
        spent = f"{significant(self.spent)} of {self.unit} is spent in {self.charges:,} charge(s)"
        if self.amount is None:
            return f"Ledger: {spent}; no limit is set (ledger.limit(...))."
        if self.until is None:
            when = "at this pace it is not used up"
        else:
            when = f"at this pace it lasts until {self.until:%Y-%m-%d}"
        return f"Ledger: {spent}; {significant(self.amount)} is left, and {when}."


def budget(
    query: Query,
    secrets: Secrets,
    family: Model | Sequence[Model],
    *,
    epsilon: Number,
    releases: int,
    every: str = "day",
    ledger: Any = None,
    subject: str = "",
    period: str = "",
) -> Budget:
    """What each of `releases` releases may spend when all together promise `epsilon`.

    `query` is what one release asks, of one `every` (its `length` is the entries of one). Every
    release is about a part of the series of its own. Coarser paces ask the same of longer parts.
    With a ledger and a subject also what is left there.
    """
    amount, count = positive(epsilon, "epsilon"), whole(releases, "releases")
    if every not in DAYS:
        raise InputError(f"every is {every!r}; it must be one of {', '.join(DAYS)}")
    task = as_task(query, secrets, family)
    plans = _plans(task, amount, _coarser(every, count, task))
    most = max(plans, key=lambda name: eta_of(plans[name][1]))
    together = _together(plans[most][1], math.ceil(count / plans[most][0]), amount)
    paces = [
        Pace(
            every=name,
            releases=math.ceil(count / factor),
            entries=_entries(task, factor),
            eta=eta_of(plan),
            epsilon=together,
            plan=plan,
        )
        for name, (factor, plan) in plans.items()
    ]
    error = paces[0].error
    return Budget(
        epsilon=amount,
        paces=tuple(paces),
        added=None if error is None else error.times(Fraction(count)),
        left=None if ledger is None else left_of(ledger, subject, period),
    )


def plan_for_parts(task: Task, epsilon: Fraction) -> Plan:
    """The plan of one part of a series when any number of parts together promise `epsilon`."""
    ((_, plan),) = _plans(task, epsilon, [("part", 1)]).values()
    _together(plan, 2, epsilon)
    return plan


def check_parts(plan: Plan, epsilon: Number | None) -> Total:
    """What releases by `plan` about the parts of one series come to, however many there are.

    Refused above `epsilon`, which is what the plan promises for one release unless it is given.
    """
    total = total_of_parts(plan)
    wanted = plan.guarantee.amount if epsilon is None else positive(epsilon, "epsilon")
    if float(total.amount) > float(wanted) * (1 + TOTAL_TOLERANCE):
        most = _ceiling(total.amount)
        raise InputError(
            f"epsilon is {significant(wanted)}, and releases by this plan about the parts of one "
            f"series come to {most:g} together, rounded up; make the plan of a part with "
            f"shoal.budget(query, secrets, family, epsilon={float(wanted):g}, releases=…).plan, or "
            f"allow them with epsilon={most:g}"
        )
    return total


def total_of_parts_or_none(plan: Plan) -> Fraction | None:
    """What releases about the parts of one series come to; None where no theorem adds them."""
    try:
        return total_of_parts(plan).amount
    except CannotCompose:
        return None


def words_of_parts(plan: Plan) -> str:
    """The same in words, for whoever released them."""
    amount = total_of_parts_or_none(plan)
    if amount is None:
        return "no theorem says what releases about all parts of a series come to"
    return (
        f"all parts of a series promise epsilon = {significant(amount)} about any entry of it, "
        "however many there are"
    )


def _ceiling(amount: Fraction) -> float:
    """The least number of four digits that is not below `amount`."""
    power = 3 - math.floor(math.log10(float(amount)))
    return math.ceil(float(amount) * 10.0**power * (1 + 1e-12)) / 10.0**power


def left_of(ledger: Any, subject: str, period: str = "") -> Left:
    """What the limits of `ledger` leave `subject` in `period`, and until when at the pace so far.

    The tightest limit counts, in its own unit. The pace is what was spent after the first charge,
    over the time from there to the last; one charge has none. Releases about new parts of a series
    cost nothing more, so a pace of such releases never ends.
    """
    if not subject:
        raise InputError("subject is empty; say whose budget is asked about")
    totals = {one: ledger.spent(subject, one) for one in (period, None)}
    charges, together = ledger.charges(subject), ledger.together(subject, period)
    found = []
    for limit in ledger.limits():
        if limit.requester is None and limit.matches(subject, together, ""):
            over = None if limit.period is None else period
            mine = [one for one in charges if over is None or one.period in together]
            found.append(_left(ledger, limit, totals[over], mine))
    if not found:
        mine = [one for one in charges if one.period in together]
        found = [_left(ledger, None, totals[period], mine)]
    return min(found, key=lambda one: one.amount if one.amount is not None else math.inf)


def _left(ledger: Any, limit: Any, total: Any, charges: list[Any]) -> Left:
    """Return what is left of a limit, and when it is used up if charges go on at their mean pace.

    `until` is None without a limit, without two charges at different times, or beyond 1e10 seconds.
    """
    unit = "eta" if limit is not None and limit.unit == "eta" else "epsilon"
    spent = Fraction(0)
    if total is not None:
        spent = total.eta if unit == "eta" and total.eta is not None else total.amount
    amount = None if limit is None else limit.amount
    until = None
    own = sorted(charges, key=lambda entry: str(entry.at))
    times = [datetime.fromisoformat(entry.at) for entry in own]
    if amount is not None and len(times) > 1 and times[-1] > times[0]:
        grown = spent - _first(ledger, own[0], unit)
        seconds = (times[-1] - times[0]).total_seconds()
        rest = float((amount - spent) / grown) * seconds if grown > 0 else math.inf
        if 0 <= rest < 1e10:
            until = times[-1] + timedelta(seconds=rest)
    return Left(unit=unit, limit=amount, spent=spent, charges=len(charges), until=until)


def _first(ledger: Any, entry: Any, unit: str) -> Fraction:
    """What one charge comes to by itself; 0 where no rule says, so that the pace is no slower."""
    if unit == "eta":
        return Fraction(entry.eta or 0)
    try:
        return compose([ledger.plan(entry.plan)], parts=[Part.stored(entry.part)]).amount
    except ShoalError:
        return Fraction(0)


def running_eta(charges: Iterable[Any]) -> list[Fraction]:
    """The largest Σ η over any entry after each charge: whole + the largest name + deepest span.

    rules.md, section 10. A charge without η adds nothing.
    """
    whole, names = Fraction(0), {"": Fraction(0)}
    units = {unit: Depths() for unit in (False, True)}  # entries and seconds, which may meet
    found = []
    for entry in charges:
        eta, part = Fraction(entry.eta or 0), Part.stored(entry.part)
        if part.span is not None:
            units[part.seconds].add(part.span, eta)
        elif part.name:
            names[part.name] = names.get(part.name, Fraction(0)) + eta
            names[""] = max(names[""], names[part.name])
        else:
            whole += eta
        found.append(whole + names[""] + sum(unit.deepest for unit in units.values()))
    return found


@dataclass(slots=True)
class Depths:
    """What was charged over each stretch of places: `depths` from each of `starts` on."""

    starts: list[int] = field(default_factory=lambda: [0])
    depths: list[Fraction] = field(default_factory=lambda: [Fraction(0)])
    deepest: Fraction = Fraction(0)

    def add(self, span: tuple[int, int], eta: Fraction) -> None:
        """Charge eta over a span."""
        first, last = (self._cut(at) for at in span)
        for place in range(first, last):
            self.depths[place] += eta
        self.deepest = max(self.deepest, *self.depths[first:last])

    def _cut(self, at: int) -> int:
        """The place of the stretch that begins at `at`, which is made where there is none."""
        place = bisect_left(self.starts, at)
        if place == len(self.starts) or self.starts[place] != at:
            self.starts.insert(place, at)
            self.depths.insert(place, self.depths[place - 1])
        return place


def _coarser(every: str, count: int, task: Task) -> list[tuple[str, int]]:
    """The pace asked for and those that are whole multiples of it, while a release is left."""
    found = [(every, 1)]
    if linear(task.query) is None:
        return found
    for name, days in DAYS.items():
        factor = round(days / DAYS[every])
        if factor > 1 and factor <= count and name != every:
            found.append((name, factor))
    return found


def _plans(
    task: Task, epsilon: Fraction, paces: Sequence[tuple[str, int]]
) -> dict[str, tuple[int, Plan]]:
    """Each pace to how many parts it asks about at once and its plan, all at one η.

    It is the largest η whose plain lift is ε, the lift a ledger takes of a sum of η: it depends on
    the law alone, so it is looked for once. The row by itself also uses how far apart the answers
    of two values are, and may spend more.
    """
    family = tuple(map(_going_on, task.family))
    first = Task(query=task.query, secrets=task.secrets, family=family)
    reason = lift.refuse(first)
    if reason is not None:
        raise Refused(f"no budget over parts: {reason}")
    certificate, eta = lift.certify_eta(first, None, epsilon)
    plans = {}
    for name, factor in paces:
        own = replace(first, query=_longer(task.query, factor))
        noise = least_error_noise(own.query, own.query.lipschitz / eta)
        promise = task_guarantee(own, epsilon)
        plans[name] = (factor, noisy_plan(own, lift.NAME, promise, noise, certificate))
    return plans


def _together(plan: Plan, releases: int, epsilon: Fraction) -> float:
    """What the ledger's rules make of `releases` parts; refused when it is more than ε.

    Asked of the plan with the largest η: the others, rounded otherwise, come to no more.
    """
    total = compose([plan] * releases, parts=[Part(name=str(part)) for part in range(releases)])
    if not float(total.amount) <= float(epsilon) * (1 + TOTAL_TOLERANCE):
        raise PromiseBroken(
            f"{releases} parts at eta = {float(eta_of(plan)):g} come to {float(total.amount):g}, "
            f"more than {float(epsilon):g}; please report this task"
        )
    return float(total.amount)


def _longer(query: Query, factor: int) -> Query:
    """The same question of `factor` parts at once: a mean divides by as many times the entries."""
    whole = linear(query)
    if factor == 1 or whole is None or whole.length is None:
        return query
    weights = tuple(tuple(weight / factor for weight in row) for row in whole.weights)
    return replace(whole, weights=weights, length=whole.length * factor)


def _entries(task: Task, factor: int) -> int | None:
    """Entries of one release: what a mean divides by, or the most the models cover; None if any."""
    length = getattr(task.query, "length", None)
    lengths = [length] if length is not None else [getattr(m, "length", None) for m in task.family]
    known = [one for one in lengths if one is not None]
    return max(known) * factor if len(known) == len(lengths) else None


def _going_on(model: Any) -> Any:
    """The same law without an end: all parts together, and those that come after them."""
    if not hasattr(model, "length") or getattr(model, "homogeneous", True) is False:
        raise Refused(
            f"a budget over parts is for series whose law goes on, and a {type(model).__name__} is "
            "about a fixed number of entries; charge its releases to a ledger one by one"
        )
    return model if model.length is None else at_most(model, None)


def eta_of(plan: Plan) -> Fraction:
    """The entry-level loss of one release of the plan."""
    return min(rule.eta for rule in plan.rules(AsEntryDP))


def _words(pace: Pace) -> str:
    error = pace.error
    off = "no stated error" if error is None else error.describe()
    return f"every {pace.every} ({pace.releases:,} releases, eta {significant(pace.eta)}): {off}."
