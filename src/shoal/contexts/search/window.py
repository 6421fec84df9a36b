"""The best policy with a memory of sensitive visits, segment by segment: linear programs.

In masses r(t, j, h) shown and u(t, j, h) suppressed, r + u = Σ u before · moves, the expected
number of releases is linear, and so is every bound: Σ_{h ∋ c} r(t, j, h) ≤ b(c) Σ_h r(t, j, h).
Solved backwards in time this is the optimum over all causal ways to show or suppress, when the
window covers the segment; a shorter window ends in a table without memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.contexts.search.adaptive import releases_backward, value_of_table
from shoal.contexts.search.beliefs import (
    COIN_LEVELS,
    Codes,
    Day,
    Origin,
    computed_limits,
    decoded,
    encoded,
    future_beliefs,
    law_after_release,
    releasable_states,
    upper_bound,
)
from shoal.contexts.search.memory import (
    FineCodes,
    Remembering,
    certify_rise,
    extend_histories,
    fine_decoded,
    fine_encoded,
    history_digits,
    history_value,
)
from shoal.contexts.search.pacing import Effort
from shoal.contexts.search.program import SegmentProgram, SegmentTask
from shoal.core.codec import Bools, Floats, Ints
from shoal.events.filter import maximise

MOST_NODES = 1500  # (slot, history, state) nodes of one program
NODES = (MOST_NODES, 700, 300, 140)  # tried in turn: the first that all segments can have
PER_NODE = 1e-3  # nominal seconds
# parts of each bound given up, one after the other, until the rounded policy keeps its bounds, and
# parts of the policy itself for suppressing everything, which keeps them by more than rounding
MARGINS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
MIXES = (0.0, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
LONGEST_SLOTWISE = 24  # slots of a day whose segments are also decided slot by slot
SLOTWISE_NODES = 800  # (history, state) nodes of such a segment: some tens of milliseconds
SLOTWISE_MARGINS = (1e-7, 1e-4)  # of each bound: above what the solver rounds, over little mass
MAX_RELEASE_CHANCE = 1.0 - 2.0**-12  # silence is always possible, so that what follows it has a law
NEAR_OPTIMUM = 1e-7  # releases: a policy as near to the optimum of its segment is not improved
OPTIMAL = 1e-6  # releases of a day: as near to the optimum is called optimal


@dataclass(frozen=True, slots=True)
class Histories:
    """The policies of all releases that can occur, and the mean number of releases of a day.

    No mechanism whatever shows more than `expected + short` on average: by the duals of the
    programs when each covers its segment, or because no more may be shown at all.
    """

    policies: dict[Origin, Remembering]
    digits: Ints
    expected: float
    short: float

    @property
    def exact(self) -> bool:
        """Whether this is the optimum, to 1e-6 releases."""
        return self.short <= OPTIMAL


def search_windows(
    day: Day,
    delta: float,
    base: dict[Origin, Codes],
    *,
    programs: int,
    nodes: int = MOST_NODES,
    work: float | Effort = np.inf,
) -> Histories:
    """The better of `base` and of the linear program, for each segment, backwards in time.

    `base` gives each release its table without memory, a private one. At most `programs` segments,
    the likeliest ones, get a program, and none once the clock of `work`, if any, has run out.
    """
    effort = Effort.of(work)
    digits = history_digits(day)
    releasable = releasable_states(day, future_beliefs(day))
    all_shown = int(releasable.sum())
    if effort.clock is not None:  # what was not looked at for `base` is not looked at now
        looked = np.zeros_like(releasable)
        for slot, state in base:
            looked[slot, state] |= slot >= 0
        releasable &= looked
    origins = list(releases_backward(releasable))
    likely = sorted(origins, key=lambda o: -day.prior[o] if o[0] >= 0 else -2.0)[:programs]
    chosen = set(likely)
    value = np.zeros((day.slots, day.size))
    short = np.zeros((day.slots, day.size))  # what later releases lack of their optimum
    policies: dict[Origin, Remembering] = {}
    complete = len(chosen) == len(origins) and all_shown == releasable.sum()
    for origin in origins:
        slot = origin[0]
        tail = base.get(origin, np.full((0, day.size), COIN_LEVELS - 1, dtype=np.uint16))
        plan, most = Remembering((), tail), np.inf
        best = value_of_table(day, origin, tail, value)
        timely = origin in chosen and not effort.late()
        window = fitting_window(day, slot, digits, nodes)[0] if timely else 0
        if window == day.slots - 1 - slot:
            most = 0.0  # of the last slot, after which nothing is shown
        if window:
            given = SegmentTask(day, delta, origin, tail, digits, value, releasable)
            found = solve_segment(given, window, effort.seconds())
            most = most + found.most
            if found.plan is not None and found.value > best:
                plan, best = found.plan, found.value
            if most - best > NEAR_OPTIMUM and day.slots <= LONGEST_SLOTWISE:
                other = solve_slotwise(given)
                if other.plan is not None and other.value > best:
                    plan, best = other.plan, other.value
        lack = max(0.0, most - best) + _later_lack(day, origin, short)
        if slot >= 0:
            value[origin], short[origin] = best, lack
        if plan.codes or (plan.tail < COIN_LEVELS - 1).any():
            policies[origin] = plan
    lack = min(lack if complete else np.inf, upper_bound((day,)) - best)
    return Histories(policies, digits, best, lack)


def solve_slotwise(given: SegmentTask) -> SolvedWindow:
    """A policy that shows the most slot by slot: each secret is an event, decided by one filter.

    At every slot after the release r(h, j) is chosen so that no output, shown or silent, leaves a
    belief in a secret since the release above its bound (Theorem 1 of mask_online.md, with the
    visits since the release for a memory, and none after the window). What is rounded is certified
    like any other policy. Reaches further than a program of the whole segment fits.
    """
    window, _ = fitting_window(given.day, given.origin[0], given.digits, SLOTWISE_NODES)
    rows = (int(given.digits.max()) + 1) ** max(window - 1, 0)
    bounds = computed_limits(given.day, given.delta, rows)
    for margin in SLOTWISE_MARGINS:
        plan = _slot_by_slot(given, window, bounds * (1 - margin))
        if plan.codes and (reached := certified_value(given, plan)) is not None:
            return SolvedWindow(plan, reached, np.inf)
    return SolvedWindow(None, -1.0, np.inf)


def certified_value(given: SegmentTask, plan: Remembering) -> float | None:
    """The releases a policy leads to; None where it is not certain to keep its bounds.

    `certified` decides, in directed rounding.
    """
    day, origin, digits = given.day, given.origin, given.digits
    if certify_rise(day, origin, plan, digits)[0] > math.nextafter(given.delta, 0.0):
        return None
    return history_value(day, origin, plan, given.value, digits)


def _slot_by_slot(given: SegmentTask, window: int, bounds: Floats) -> Remembering:
    day, origin, digits = given.day, given.origin, given.digits
    value, releasable = given.value, given.releasable
    slot, ahead = origin[0], future_beliefs(day)
    mass = law_after_release(day, origin)[None, :]
    joint = np.zeros((len(bounds), *mass.shape))  # mass together with each secret visited before
    since = day.when > slot
    codes: list[FineCodes] = []
    tail = np.full((day.slots - 1 - slot, day.size), COIN_LEVELS - 1, dtype=np.uint16)
    for t in range(slot + 1, day.slots):
        with_secret = np.where((day.when < t)[:, None, None], joint, mass * ahead[t].T[:, None, :])
        chance = _release_now(
            mass, with_secret[since], bounds[since], releasable[t], 1.0 + value[t]
        )
        if t - slot <= window:
            codes.append(fine_encoded(1.0 - chance))
            suppression = fine_decoded(codes[-1])
        else:
            tail[t - slot - 1] = encoded(1.0 - chance)[0]
            suppression = decoded(tail[t - slot - 1])[None, :]
        kept, together = mass * suppression, with_secret * suppression
        forget = t - slot >= window
        base = np.zeros_like(digits) if forget else digits
        if forget:
            kept, together = kept.sum(axis=0)[None], together.sum(axis=1)[:, None]
        mass = extend_histories(kept, day.moves[t], base)
        moved = [extend_histories(one, day.moves[t], base) for one in together]
        joint = np.array(moved).reshape(len(bounds), *mass.shape)
        total = mass.sum()
        if not total > 0:
            break
        mass, joint = mass / total, joint / total
    return Remembering(tuple(codes), tail)


def _release_now(
    mass: Floats, with_secret: Floats, bounds: Floats, open_to: Bools, gain: Floats
) -> Floats:
    """r(h, j) of one slot: the most that leaves every belief within its bound; 0 where closed."""
    gaps = with_secret - bounds[:, None, None] * mass
    columns = np.flatnonzero((mass > 0) & open_to)
    size = mass.shape[1]
    own = columns % size
    flat = gaps.reshape(len(gaps), mass.size)[:, columns]
    states = np.unique(own)
    shows = [flat * (own == j) for j in states]
    rows = np.vstack([*shows, -flat]) if len(columns) else np.zeros((0, 0))
    silent = np.maximum(-gaps.sum(axis=(1, 2)), 0.0)
    limits = np.concatenate([np.zeros(len(rows) - len(gaps)), silent]) if len(rows) else silent
    found = np.zeros(mass.size)
    binding = (rows > 0).any(axis=1) if len(rows) else np.zeros(0, dtype=np.bool_)
    if len(columns):
        scales = np.abs(rows[binding]).max(axis=1, initial=0.0)
        worth = (mass * gain).ravel()[columns]
        scaled = rows[binding] / scales[:, None]
        most = np.full(len(columns), MAX_RELEASE_CHANCE)
        found[columns] = maximise(worth, scaled, limits[binding] / scales, most).point
    return np.minimum(found, MAX_RELEASE_CHANCE).reshape(mass.shape)


def _later_lack(day: Day, origin: Origin, short: Floats) -> float:
    """What the releases after one lack together: the next one lacks at most the most of any."""
    slot, law, total = origin[0], law_after_release(day, origin), 0.0
    for t in range(slot + 1, day.slots):
        some = (short[t] > 0) & (law > 0)
        total += float(law[some] @ short[t][some])
        law = law @ day.moves[t]
    return min(total, float(short[slot + 1 :].max(initial=0.0)))


def affordable_programs(day: Day, seconds: float) -> tuple[int, int]:
    """How many programs, and how many nodes each: what fits into some nominal seconds.

    The largest programs that all segments can have; when not even small ones fit, small ones for
    the likeliest segments. A node counts a millisecond, so that equal calls give equal answers.
    """
    digits = history_digits(day)
    releasable = releasable_states(day, future_beliefs(day))
    slots = [-1, *np.argwhere(releasable)[:, 0].tolist()]
    for nodes in NODES:
        sizes = {slot: fitting_window(day, slot, digits, nodes)[1] for slot in set(slots)}
        if sum(PER_NODE * sizes[slot] for slot in slots) <= seconds:
            return len(slots), nodes
    return max(1, int(seconds / (PER_NODE * NODES[-1]))), NODES[-1]


def fitting_window(day: Day, slot: int, digits: Ints, most: int) -> tuple[int, int]:
    """The longest window after `slot` whose program has at most so many nodes, and its nodes."""
    base = int(digits.max()) + 1
    window = nodes = 0
    while window < day.slots - 1 - slot and nodes + base**window * day.size <= most:
        nodes += base**window * day.size
        window += 1
    return window, nodes


@dataclass(frozen=True, slots=True)
class SolvedWindow:
    """A policy, if one passed, the releases it leads to, and what none whatever exceeds."""

    plan: Remembering | None
    value: float
    most: float


def solve_segment(given: SegmentTask, window: int, seconds: float = np.inf) -> SolvedWindow:
    """The best policy of the linear program that, rounded, keeps its bounds for certain.

    More and more of the bounds and of the policy is given up, until one passes and no more than
    that could be gained.
    """
    program = SegmentProgram(given, window, seconds)
    best, most = SolvedWindow(None, -1.0, np.inf), np.inf
    for margin in MARGINS:
        solution = program.solve(margin)
        if solution is None:
            continue
        most = min(most, solution.most)
        for mix in MIXES:
            plan = Remembering(program.tables(solution, margin, mix), given.tail)
            if (reached := certified_value(given, plan)) is not None:
                if reached > best.value:
                    best = SolvedWindow(plan, reached, most)
                break
        if most - best.value <= max(NEAR_OPTIMUM, margin):
            break
    if most == np.inf:  # bounds that are met exactly leave nothing to give up
        exact = program.solve(None)
        most = np.inf if exact is None else exact.most
    return SolvedWindow(best.plan, best.value, most)
