"""The checks of single slots: six ways to decide what of a day is released, each a row.

Proofs: mask_simulatable.md, mask_probabilistic.md, mask_hybrid.md, mask_adaptive.md and
mask_optimal.md; mask-sensitive is kept for comparison and proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from shoal.contexts.checks import task as mask_task
from shoal.contexts.day import DayChain, day_chains
from shoal.contexts.machine import HistoryMask, SegmentMask, SimulatableMask, VectorMask
from shoal.contexts.search import limits
from shoal.contexts.search.adaptive import (
    next_releases,
    occurring_segments,
    search_segments,
    simulatable_segments,
)
from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    Codes,
    Day,
    Origin,
    count_breached_secrets,
    encoded,
    jointly_releasable,
    vector_value,
)
from shoal.contexts.search.greedy import Grid, best_vector, restart_orders
from shoal.contexts.search.limits import SPEED, Clock, Effort, SearchEnded
from shoal.contexts.search.pacing import LOOKS, look_costs
from shoal.contexts.search.window import affordable_programs, search_windows
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, PromiseBroken, Refused
from shoal.core.numbers import Number, exact, positive
from shoal.core.plan import Machine, Plan
from shoal.core.task import Task
from shoal.events.secrets import Events, MaskOptions
from shoal.mechanisms.plans import Mechanism
from shoal.mechanisms.table import LOSS_TOLERANCE, MECHANISMS

SENSITIVE, SIMULATABLE, PROBABILISTIC = "mask-sensitive", "mask-simulatable", "mask-probabilistic"
HYBRID, ADAPTIVE, OPTIMAL = "mask-hybrid", "mask-adaptive", "mask-optimal"


SIMULATABLE_REASON = (
    "a slot is shown only when no state it could hold would breach a bound, so the decision "
    "itself tells nothing (Götz, Nath & Gehrke 2012, Theorem 4)"
)
PROBABILISTIC_REASON = (
    "every output (release, suppressed …, release) was checked, and privacy is monotone in the "
    "probabilities (Götz, Nath & Gehrke 2012, Theorems 1 and 2)"
)
ADAPTIVE_REASON = (
    "given a release the future is independent of the past, so each stretch between releases "
    "was made private on its own (mask_adaptive.md)"
)
EXACT = "linear programs over all causal ways to show or suppress, solved for every segment"
PARTLY = (
    "linear programs with a memory of the first slots of a segment, a table without memory after"
)


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """Constants that share the time of a check out over its parts.

    Measured on 60 random dense days (benchmarks/mask.py): one order and one grid release 12 % less
    than all of these, three orders and three grids 4 % less.
    """

    # a finer grid is not better: what one entry takes, others lose
    grid_steps: tuple[int, ...] = (10, 5, 20)
    restarts: int = 6  # orders of entries: likeliest first, forward, backward, three at random
    # least suppression tried in turn, the last always safe
    floors: tuple[float, ...] = (0.0, 2.0**-16, 2.0**-8, 1.0)
    table_share: float = 0.3  # of the simulatable check's time, for its table
    hybrid_vector_share: float = 0.6  # of the hybrid check's time, for the probabilities
    adaptive_vector_share: float = 0.15  # of the adaptive check's time, for the probabilities
    base_share: float = 0.7  # of the optimal check's time, for tables without memory
    programs_share: float = 0.9  # of what is left then, for linear programs


SETTINGS = CheckSettings()


def plan_sensitive(task: Task, delta: Fraction) -> Plan:
    """Plan to suppress sensitive contexts always and nothing else. This is not private.

    What people try first, kept for comparison. Suppression itself tells ("suppressed means
    hospital"), and so do the contexts before and after. The certificate says how far a belief can
    rise and for how many secrets it does. Götz, Nath & Gehrke 2012, Section 1 and Figure 4.
    """
    day, secrets = mask_task.family_days(task)[0], mask_task.day_and_secrets(task)[1]
    days = mask_task.days_of(task, delta, everything=True)
    possible = np.any([measured.possible for measured in days], axis=0)
    suppression = np.where((secrets.shares(day) > 0) | ~possible, 1.0, 0.0)
    breached, measured = max(
        ((count_breached_secrets(one, suppression, float(delta)), one) for one in days),
        key=lambda pair: pair[0],
    )
    return mask_task.mask_plan(
        task,
        SENSITIVE,
        delta,
        VectorMask(day.states, encoded(suppression)),
        min(vector_value(one, suppression) for one in days),
        "none: the sensitive contexts are suppressed and nothing else, which bounds no belief",
        searched=False,
        breached=breached,
        proved=False,
        caveat=f"{breached} of {len(measured.when)} sensitive (slot, context) pairs are breached",
    )


class Checks:
    """The proved checks of one task; what several of them need is computed once."""

    def __init__(self, task: Task, delta: Fraction) -> None:
        self.task, self.delta = task, delta
        self.days, self.contexts = mask_task.days_of(task, delta), mask_task.contexts_of(task)

    def plan(self, name: str, body: Machine, releases: float, reason: str) -> Plan:
        """Return a plan of this task around a machine."""
        return mask_task.mask_plan(self.task, name, self.delta, body, releases, reason)

    def simulatable(self) -> Plan:
        """Return the plan of the simulatable check, which decides before it sees the context.

        The slot of the next release after each release, for every release that can occur; where
        time ran out, what follows is suppressed. `LiveSimulatable` runs the same check without the
        table, for streams that must start at once.
        """

        def release_table() -> Ints:
            table = next_releases(
                self.days, limits.effort_for(SIMULATABLE).part(SETTINGS.table_share)
            )
            table[1:][~jointly_releasable(self.days)] = -1  # contexts that are never released
            return table

        table = limits.compute_once((self.task, self.delta, "next releases"), release_table)
        releases = min(simulatable_segments(one, table).expected for one in self.days)
        body = SimulatableMask(self.contexts, table)
        return self.plan(SIMULATABLE, body, releases, SIMULATABLE_REASON)

    def probabilities(self, effort: Effort) -> Floats:
        """Return the best vector, raised until a second, independent check accepts it.

        The search subtracts: beside a state of mass 1 that is always released, one of mass 1e-300
        is lost to it. Raising probabilities is safe, and a suppression that the likely states share
        hides it.
        """

        def first_kept() -> Floats:
            suppression = search_best_vector(self.days, effort)
            tried = (np.maximum(suppression, floor) for floor in SETTINGS.floors)
            return next(
                p for p in tried if mask_task.vector_keeps_promise(self.task, self.delta, p)
            )

        return limits.compute_once((self.task, self.delta, "vector"), first_kept)

    def probabilistic(self, suppression: Floats) -> Plan:
        """Return the plan that suppresses by these probabilities, one per slot and context."""
        body = VectorMask(self.contexts, encoded(suppression))
        releases = min(vector_value(day, suppression) for day in self.days)
        return self.plan(PROBABILISTIC, body, releases, PROBABILISTIC_REASON)

    def hybrid(self, suppression: Floats, name: str = HYBRID) -> Plan:
        """Return the plan that releases more on average; the simulatable one when they tie.

        Götz, Nath & Gehrke 2012, Section 5.1 and Theorem 5.
        """
        waiting, coins = self.simulatable(), self.probabilistic(suppression)
        return replace(coins if coins.cost < waiting.cost else waiting, mechanism=name)

    def adaptive(self, baseline: Floats | None, effort: Effort) -> Plan:
        """Return the plan of the adaptive check: suppression depends on the last release.

        Backwards in time; never below the hybrid check.
        """
        found = occurring_segments(self.days, self._segments(baseline, effort))
        body = SegmentMask.of(self.contexts, self.days[0].slots, found.hidden)
        return self.plan(ADAPTIVE, body, found.expected, ADAPTIVE_REASON)

    def _segments(self, baseline: Floats | None, effort: Effort) -> dict[Origin, Codes]:
        return limits.compute_once(
            (self.task, self.delta, "segments"),
            lambda: search_segments(self.days, float(self.delta), baseline=baseline, work=effort),
        )

    def optimal(self, baseline: Floats | None, effort: Effort) -> Plan:
        """Return the plan with the better of adaptive and a linear program for each segment.

        The optimum over all mechanisms when every program covers its segment (the certificate says
        so); never below the adaptive check, whose time is taken first. Long days get smaller
        programs, and when time is short only their likeliest releases do.
        """
        (day,) = self.days  # `refuse_families` lets one through
        base = self._segments(baseline, effort.part(SETTINGS.base_share))
        rest = effort.without(LOOKS * look_costs(base, day.slots, day.size).sum()).part(
            SETTINGS.programs_share
        )
        programs, nodes = affordable_programs(day, rest.work / SPEED)
        found = search_windows(
            day, float(self.delta), base, programs=programs, nodes=nodes, work=rest
        )
        body = HistoryMask.of(self.contexts, day.slots, found.policies, found.digits)
        reason = f"{EXACT if found.exact else PARTLY} (mask_optimal.md)"
        return self.plan(OPTIMAL, body, found.expected, reason)


def search_best_vector(days: Sequence[Day], effort: Effort) -> Floats:
    """Return private suppression probabilities on multiples of 1/65536, under each of `days`.

    The best of several greedy searches: orders of coordinates times grids of levels.
    """
    grids = [
        Grid(order, _levels(steps))
        for steps, order in product(SETTINGS.grid_steps, restart_orders(days, SETTINGS.restarts))
    ]
    return best_vector(days, grids, work=effort)


def _levels(steps: int) -> Floats:
    """Return 0, 1/steps, …, 1, rounded up to multiples of 1/65536."""
    return np.ceil(np.arange(steps + 1) / steps * COIN_LEVELS) / COIN_LEVELS


def plan_simulatable(task: Task, delta: Fraction) -> Plan:
    limits.start_turn(SIMULATABLE)  # refused when others used up the time
    return Checks(task, delta).simulatable()


def plan_probabilistic(task: Task, delta: Fraction) -> Plan:
    checks, effort = Checks(task, delta), limits.start_turn(PROBABILISTIC)
    limits.refuse_long_days(PROBABILISTIC, checks.days[0].slots)
    return checks.probabilistic(checks.probabilities(effort))


def plan_hybrid(task: Task, delta: Fraction) -> Plan:
    """Plan by the hybrid check: the better of the simulatable and the probabilistic one."""
    checks, turn = Checks(task, delta), limits.start_turn(HYBRID)
    effort = turn.part(SETTINGS.hybrid_vector_share)
    limits.refuse_long_days(HYBRID, checks.days[0].slots)
    return checks.hybrid(checks.probabilities(effort))


def _plan_by_search(task: Task, delta: Fraction, name: str) -> Plan:
    """Return the adaptive or optimal plan; the hybrid one where that releases more.

    Also when the clock ended the search before there was anything to hand out. The search for a
    family looks at the mean of its members, so the hybrid may be better there too; for one day
    without a clock it was a candidate.
    """
    effort, checks = limits.start_turn(name), Checks(task, delta)
    if name == OPTIMAL:
        limits.refuse_long_days(OPTIMAL, checks.days[0].slots)
    limits.warn_if_slow(checks.days[0].slots, checks.days[0].size, effort)
    find = checks.adaptive if name == ADAPTIVE else checks.optimal
    if checks.days[0].slots > limits.LONG_DAY:  # a vector for so many slots takes too long
        baseline = None
        fallback = replace(checks.simulatable(), mechanism=name)
    else:
        baseline = checks.probabilities(effort.part(SETTINGS.adaptive_vector_share))
        if effort.clock is None and len(checks.days) == 1:
            return find(baseline, effort)
        fallback = checks.hybrid(baseline, name)
    try:
        plan = find(baseline, effort)
    except SearchEnded:
        return fallback
    return fallback if fallback.cost < plan.cost else plan


def _check_mechanism(
    name: str,
    calibrate: Callable[[Task, Fraction], Plan],
    refuse: Callable[[Task], str | None] = mask_task.refuse,
) -> Mechanism:
    """Return the table row of a check, which shares promise, loss and rules with the others."""
    return Mechanism(name, refuse, calibrate, mask_task.loss, mask_task.promise, mask_task.rules)


SENSITIVE_ROW = _check_mechanism(SENSITIVE, plan_sensitive)
SIMULATABLE_ROW = _check_mechanism(SIMULATABLE, plan_simulatable)
PROBABILISTIC_ROW = _check_mechanism(PROBABILISTIC, plan_probabilistic)
HYBRID_ROW = _check_mechanism(HYBRID, plan_hybrid)
ADAPTIVE_ROW = _check_mechanism(ADAPTIVE, partial(_plan_by_search, name=ADAPTIVE))
OPTIMAL_ROW = _check_mechanism(
    OPTIMAL, partial(_plan_by_search, name=OPTIMAL), mask_task.refuse_families
)


def mask(
    day: DayChain | Sequence[DayChain],
    secrets: SensitiveContexts | Events,
    *,
    delta: Number | None = None,
    epsilon: Number | None = None,
    check: str = "best",
    seconds: Number | None = None,
    clock: Clock | None = time.monotonic,
    **events: Any,
) -> Plan:
    """Plan which contexts a stream releases: the most on average, within delta for every belief.

    With several day chains, whichever of them an adversary holds. `check` names a row
    ("mask-adaptive", …) or "best", which tries the proved checks, quickest first, each with its
    share of the budget; of days of more than 288 slots the simulatable and the adaptive one. The
    budget is a count of multiplications: 10^9 for each of `seconds`, 2·10^10 without. Equal calls
    then give equal plans, and a slow machine takes longer. With `seconds`, `clock` guards it too:
    the search ends when they are over, looking at the finished plan included, give or take a tenth
    and one evaluation, so what is released depends on how fast the machine is just then (`timed` in
    the certificate says so). `clock=None` takes the guard away. Compiled loops are loaded first.
    A search of a long day that may take more than 30 s warns (`SlowSearch`). Every plan is private
    however little time there is.

    For events (`shoal.Events.of`) the check is "mask-online"; `epsilon` instead of `delta` bounds
    their odds, both ways, and these may be given too: `lower=True` (beliefs may not fall by more
    than delta either), `memory="none"` (what is released depends on the context alone), `mixture`
    (weights of the chains, for an adversary unsure which of them holds), `ahead` (look ahead to the
    end of the day or not; by default the variant that releases more).
    """
    days = (day,) if isinstance(day, DayChain) else tuple(day)
    if not days:
        raise InputError("day holds no day chain; give at least one")
    query = CurrentState(days[0].states)
    if isinstance(secrets, Events):
        amount, asked = _event_amount(secrets, delta, epsilon, bool(events.pop("lower", False)))
        task = Task(query=query, secrets=_with_options(asked, events), family=days)
        (row,) = _mechanisms_to_try(task, "mask-online" if check == "best" else check)
        return row.calibrate(task, amount)
    if delta is None or epsilon is not None or events:
        given = ["epsilon"] if epsilon is not None else list(events)
        raise InputError(
            f"{given[0]} is for events (shoal.Events.of); sensitive contexts take delta"
            if given
            else "delta is missing; say how much any belief may rise, such as delta=0.1"
        )
    limit = float(positive(seconds, "seconds")) if seconds is not None else limits.SECONDS
    task = Task(query=query, secrets=secrets, family=days)
    named = _mechanisms_to_try(task, check)
    among = [row.name for row in named]
    by_clock = clock if seconds is not None else None
    with limits.time_limit(limit, check, clock=by_clock, among=among):
        plans = list(_plans_in_turn(named, task, exact(delta, "delta")))
    return min(plans, key=lambda plan: plan.cost)


def _with_options(secrets: Events, options: dict[str, Any]) -> Events:
    """Return the events with these options of `mask`; refuse unknown ones."""
    unknown = sorted(set(options) - {"memory", "mixture", "ahead"})
    if unknown:
        raise InputError(f"{unknown[0]} is not an option of mask for events; see shoal.mask")
    return replace(secrets, options=MaskOptions(**options)) if options else secrets


def _event_amount(
    secrets: Events, delta: Number | None, epsilon: Number | None, lower: bool
) -> tuple[Fraction, Events]:
    """Return the amount, and the events bounded by a rise for delta or by odds for epsilon."""
    if (delta is None) == (epsilon is None):
        raise InputError("give delta (a rise of belief) or epsilon (a factor of odds), one of them")
    if epsilon is None:
        both = lower or secrets.change == "rise-and-fall"  # requested in the secrets themselves
        return exact(delta if delta is not None else 0, "delta"), secrets.as_rise(lower=both)
    if lower:
        raise InputError("lower goes with delta; odds are bounded both ways already")
    return positive(epsilon, "epsilon"), replace(secrets, change="odds")


def compare_checks(
    day: DayChain,
    secrets: SensitiveContexts,
    checks: Sequence[str],
    *,
    delta: Number,
    seconds: Number,
    clock: Clock | None = None,
) -> dict[str, Plan]:
    """Return the plans of several checks, each with the share of `seconds` it has in "best".

    What more than one of them needs is found once: the probabilities of the probabilistic check,
    the tables of the adaptive one.
    """
    task = Task(query=CurrentState(day.states), secrets=secrets, family=(day,))
    amount = exact(delta, "delta")
    rows = [row for check in checks for row in _mechanisms_to_try(task, check)]
    with limits.time_limit(seconds, clock=clock):
        return {plan.mechanism: plan for plan in _plans_in_turn(rows, task, amount)}


def _plans_in_turn(rows: Sequence[Mechanism], task: Task, delta: Fraction) -> Iterator[Plan]:
    """Yield the plans of the rows until the time is over; the first row always has its turn.

    A row that breaks its promise is skipped. PromiseBroken is raised when no other row has a plan.
    """
    broken: PromiseBroken | None = None
    found = False
    for row in rows:
        try:
            plan = _recheck(row.calibrate(task, delta))
        except Refused:
            break  # rows that apply refuse only when nothing is left of the time
        except PromiseBroken as why:
            broken = broken or why
            continue
        found = True
        yield plan
    if broken is not None and not found:
        raise broken


def _mechanisms_to_try(task: Task, check: str) -> list[Mechanism]:
    """Return the rows to try: the one that is named, or the proved ones that accept the task."""
    if check == "best":
        long = day_chains(task.family)[0].slots > limits.LONG_DAY
        names = (SIMULATABLE, ADAPTIVE) if long else tuple(limits.WORK_SHARES)
        rows = [MECHANISMS[name] for name in names]
        return [row for row in rows if row.refuse(task) is None]
    known = [name for name in MECHANISMS if name.startswith("mask-")]
    if check not in known:
        listed = ", ".join(map(repr, known[:-1]))
        raise InputError(f"check is {check!r}; it must be 'best', {listed} or {known[-1]!r}")
    reason = MECHANISMS[check].refuse(task)
    if reason is not None:
        raise Refused(f"{check} does not apply: {reason}")
    return [MECHANISMS[check]]


def _recheck(plan: Plan) -> Plan:
    """Return the plan after its promise was evaluated again; raise PromiseBroken if it fails."""
    loss = mask_task.loss(plan)
    if plan.guarantee.proved and not loss <= float(plan.guarantee.amount) * (1 + LOSS_TOLERANCE):
        raise PromiseBroken(
            f"{plan.mechanism} promised {float(plan.guarantee.amount):g} and its own check "
            f"measures {loss:g}; please report this task"
        )
    return plan
