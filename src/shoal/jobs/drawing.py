"""Draw the releases of a census: admit units, compute true answers, charge, and add noise.

Noise for many releases of one plan is drawn in one batch, which is faster. The releases are
independent, so one batch of n·d words serves n releases. The noise has the exact laws of
`noise.laplace`, without rounding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.contexts.day import DayChain
from shoal.core.charge import Charge, Part, Rng, SystemRng, members_of, refuse_seed
from shoal.core.codec import Ints
from shoal.core.errors import BudgetError, DataError, InputError, OverBudget, Refused
from shoal.core.plan import Additive, Answer, Noise, Plan, Release, Sampler
from shoal.core.records import Sequences
from shoal.core.stream import Slot
from shoal.jobs.census import Census
from shoal.jobs.inputs import Layout
from shoal.mechanisms.person import check_persons
from shoal.mechanisms.queries import LinearQuery
from shoal.noise.laplace import (
    LatticeLaplace,
    ZeroSumLaplace,
    digits_of,
    geometric_batch,
    laplace_batch,
)
from shoal.noise.primitives import WIDEST_RATIO, SeededRng

if TYPE_CHECKING:
    from shoal.ledger.store import SqlLedger

DRAWS_AT_A_TIME = 2**16  # draws in one batch, so that their arrays stay in the processor's cache


def draw_many(noise: Noise, count: int, dimension: int, rng: Rng) -> Ints:
    """Return `count` independent draws of a release's noise, one per row, in lattice steps."""
    if isinstance(noise, LatticeLaplace):
        return fitting(noise.draw(count * dimension, rng)).reshape(count, dimension)
    if isinstance(noise, ZeroSumLaplace):
        return _zero_sum(noise, count, rng)
    drawn = [noise.draw(dimension, rng) for _ in range(count)]
    return fitting(np.array(drawn, dtype=object).reshape(count, dimension))


def check_width(noise: Noise) -> None:
    """Refuse noise that 64-bit columns may be unable to hold."""
    if noise.scale / noise.step > WIDEST_RATIO:
        raise Refused(
            f"the noise is {float(noise.scale / noise.step):.3g} lattice steps wide, more than a "
            "table of 64-bit numbers holds; use weights with fewer digits, or plan.release"
        )


def fitting(values: Any) -> Ints:
    """Return `values` as 64-bit integers; refuses a value that does not fit."""
    try:
        return np.asarray(values).astype(np.int64, casting="unsafe", copy=False)
    except OverflowError:
        raise Refused("a value does not fit 64 bits; use weights with fewer digits") from None


def _zero_sum(noise: ZeroSumLaplace, count: int, rng: Rng) -> Ints:
    """Return rows of discrete Laplace draws that sum to zero, by rejection sampling.

    A row is kept with probability exp(-r |last|), which is P(G >= |last|) for a geometric G of the
    same rate r; so G is drawn instead of a coin. Rejected rows are drawn again as a whole.
    """
    rows = np.empty((count, noise.dimension), dtype=np.int64)
    left = np.arange(count)
    digits = digits_of(noise.rate)
    while left.size:
        here = left[: max(1, DRAWS_AT_A_TIME // noise.dimension)]
        size = here.size * (noise.dimension - 1)
        free = fitting(laplace_batch(noise.rate, size, rng)).reshape(here.size, -1)
        last = -free.sum(axis=1)
        words = (rng.words(here.size) >> np.uint64(2)).astype(np.int64)
        kept = fitting(geometric_batch(words, digits, rng)) >= np.abs(last)
        rows[here[kept]] = np.column_stack([free, last])[kept]
        left = np.concatenate([here[~kept], left[here.size :]])
    return rows


# From a census to releases: who is admitted, the true answers, the noise, and the charges.


# models that admit data by the lengths of its chains alone
BY_LENGTH = (MarkovChain, DayChain, AnyInitialLaw, MixingSummary, IntervalChains, OrderChain)
LARGEST_ANSWER = 2**62  # true answers beyond it are not added in 64 bits
OVER_LIMIT = "the ledger's limit does not allow it"
NOT_ADDED = "no theorem adds it to what the ledger already holds"
_encode = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Charging:
    """The ledger of a job, and the names that every charge of the job carries."""

    ledger: SqlLedger
    job: str
    period: str = ""
    requester: str = ""

    def can_name(self, subject: str, period: str, members: Sequence[str] = ()) -> bool:
        """Return whether the ledger can store these names and the key made of them."""
        from shoal.ledger.entries import LONGEST_KEY, can_hold

        people = (subject, *members)
        when = period or self.period
        key = _encode([self.job, subject, when, "f" * 64, 2**63, 2**63])  # of the longest step
        named = all(people) and all(map(can_hold, people)) and can_hold(when)
        return named and can_hold(key, LONGEST_KEY)

    def charge(self, plan: Plan, subject: str, period: str, *step: int) -> Charge:
        """Return one release's charge; its key is (job, subject, period, plan[, chain, step])."""
        when = period or self.period
        key = _encode([self.job, subject, when, plan.fingerprint, *step])
        return Charge(plan=plan, subject=subject, period=when, requester=self.requester, key=key)

    def slot(self, plan: Plan, subject: str, period: str, *step: int) -> Slot:
        """Return what a step of a stream is charged under; its key is that of `charge`."""
        charge = self.charge(plan, subject, period, *step)
        return Slot(
            subject=charge.subject,
            period=charge.period,
            requester=charge.requester,
            key=charge.key,
        )

    def charge_unit(self, plan: Plan, census: Census, unit: int, layout: Layout | None) -> Charge:
        """Return the charge of a unit, as a part of its series where the layout says so."""
        charge = self.charge(plan, census.subjects[unit], census.periods[unit])
        who = "everybody" if layout is not None and layout.members == "everybody" else None
        members = members_of(who, charge.subject, census.members[unit])
        charge = replace(charge, members=members, part=census.period_part(unit))
        if layout is None or layout.periods != "parts":
            return charge
        if layout.every is None:  # a column names the parts
            part = Part(name=census.periods[unit])
        else:
            part = Part(span=census.part(unit).span, seconds=True)
        return replace(charge, period=self.period, part=part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """Releases of one plan: the released units, and one row of lattice multiples for each."""

    plan: Plan
    units: list[int]
    multiples: Ints
    secure: bool


def draw(
    plan: Plan,
    census: Census,
    units: Sequence[int],
    states: tuple[str, ...],
    *,
    seed: int | None = None,
    charging: Charging | None = None,
    layout: Layout | None = None,
) -> tuple[Drawn, dict[int, str]]:
    """Return the releases of `units` under `plan`, and each refused unit with the reason.

    `states` are the states that the census counts. With `charging` every release is charged in
    one transaction before noise is drawn; a key that was used before returns its stored value.
    With a `seed` each unit has its own seeded source, to compare engines. It gives no privacy.
    """
    if not isinstance(plan.body, Sampler):
        raise InputError(f"{plan.mechanism} is a stream plan; a job of it reads a stream")
    refuse_seed(charging is not None and seed is not None)
    body: Any = plan.body
    fast = _by_counts(plan)
    own = OwnStates.of(plan, states)
    refused, records = _split_admitted(plan, census, units, own, fast=fast)
    kept = [unit for unit in units if unit not in refused]
    truths = own.answers(plan, census, kept) if fast else None

    def values(places: Sequence[int]) -> Ints:
        """Return the noisy answers of the admitted units at these positions, in lattice steps.

        The result has one row per unit and one column per label. Without a seed and with known
        true answers, the noise of all units is drawn in one batch from the operating system.
        Refused when a value does not fit in 64 bits.
        """
        chosen = [kept[place] for place in places]
        size = len(plan.task.query.labels)
        if truths is not None and seed is None:
            check_width(body.noise)
            return truths[list(places)] + draw_many(body.noise, len(chosen), size, SystemRng())
        rows: list[Any] = []
        for place, unit in zip(places, chosen, strict=True):
            rng = source_of(seed, plan, census.subjects[unit], census.periods[unit])
            if truths is None:
                rows.append(body.draw(records[unit], rng).multiples)
            else:
                rows.append(truths[place] + fitting(body.noise.draw(size, rng)))
        return fitting(np.array(rows).reshape(len(rows), size))

    if charging is None:
        multiples = values(range(len(kept)))
        return Drawn(plan=plan, units=kept, multiples=multiples, secure=seed is None), refused
    charges = [charging.charge_unit(plan, census, unit, layout) for unit in kept]
    return _charge_and_recall(plan, census, kept, values, charging.ledger, charges, refused)


def _charge_and_recall(
    plan: Plan,
    census: Census,
    kept: list[int],
    values: Any,
    ledger: SqlLedger,
    charges: list[Charge],
    refused: dict[int, str],
) -> tuple[Drawn, dict[int, str]]:
    """Return the releases as the ledger stored them, and all refusals."""
    make = release_maker(plan, secure=True)
    entries = census.rows[np.array(kept, dtype=np.int64)].tolist()
    outcomes = ledger.settle_all(
        charges,
        lambda places: [
            make(row, entries[place])
            for place, row in zip(places, values(places).tolist(), strict=True)
        ],
    )
    good: list[int] = []
    rows: list[tuple[int, ...]] = []
    for unit, outcome in zip(kept, outcomes, strict=True):
        if isinstance(outcome, BudgetError):
            refused[unit] = OVER_LIMIT if isinstance(outcome, OverBudget) else NOT_ADDED
            continue
        good.append(unit)
        rows.append(outcome.answer.multiples)
    multiples = fitting(np.array(rows).reshape(len(rows), len(plan.task.query.labels)))
    return Drawn(plan=plan, units=good, multiples=multiples, secure=True), refused


def release_maker(plan: Plan, *, secure: bool) -> Any:
    """Return a function that makes a release of lattice multiples and a number of entries."""
    assert isinstance(plan.body, Sampler)
    query = plan.task.query
    step = plan.body.noise.step if isinstance(plan.body, Additive) else query.lattice
    whole = plan.released(Answer(query.labels, (), step, query.unit), secure=secure)
    # releases of the same number of entries share all but their values
    counted: dict[int | None, Release] = {None: whole}

    def make(multiples: Sequence[int], entries: int | None = None) -> Release:
        if entries is not None and entries not in counted:
            counted[entries] = whole.over(entries, query)
        like = counted[entries]
        return replace(like, answer=replace(like.answer, multiples=tuple(multiples)))

    return make


def seeded_source(seed: int, plan: Plan, subject: str, period: str) -> SeededRng:
    """Return a seeded source for one release, the same on every engine; for tests only."""
    text = json.dumps([seed, plan.fingerprint, subject, period])
    return SeededRng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))


def source_of(seed: int | None, plan: Plan, subject: str, period: str) -> Rng:
    return SystemRng() if seed is None else seeded_source(seed, plan, subject, period)


def _by_counts(plan: Plan) -> bool:
    """Return whether the plan needs only counts and chain lengths, not the order of entries."""
    return (
        type(plan.body) is Additive  # queries in rounds have a body of their own
        and isinstance(plan.task.query, LinearQuery)
        and all(type(model) in BY_LENGTH for model in plan.task.family)
    )


def _split_admitted(
    plan: Plan, census: Census, units: Sequence[int], own: OwnStates, *, fast: bool
) -> tuple[dict[int, str], dict[int, Any]]:
    """Return the refused units with reasons, and the records of the others.

    There are no records when counts are enough."""
    refused = {unit: census.problems[unit] for unit in units if unit in census.problems}
    refused |= own.outside(census, [unit for unit in units if unit not in refused])
    records: dict[int, Any] = {}
    reasons: dict[tuple[int, ...], str] = {}
    shapes = _shapes(census) if fast else None
    for unit in units:
        if unit in refused:
            continue
        shape = None if shapes is None else tuple(shapes[unit].tolist())
        if shape is not None and shape in reasons:
            reason = reasons[shape]
        else:
            reason, found = _read_unit(plan, census, unit, own, fast=fast)
            if shape is None:
                records[unit] = found
            else:
                reasons[shape] = reason
        if reason:
            refused[unit] = reason
    return refused, records


def _shapes(census: Census) -> Ints:
    """Return per unit the longest and shortest chain, the number of chains, and of entries."""
    lengths, first = census.lengths(), census.first_chain[:-1]
    if not len(first):
        return np.empty((0, 4), dtype=np.int64)
    return np.column_stack(
        [
            np.maximum.reduceat(lengths, first),
            np.minimum.reduceat(lengths, first),
            np.diff(census.first_chain),
            census.rows,
        ]
    )


def _read_unit(
    plan: Plan, census: Census, unit: int, own: OwnStates, *, fast: bool
) -> tuple[str, Any]:
    """Return why the task refuses the unit's data ("" if it does not), and the checked data."""
    try:
        if census.numbers is not None:
            mine = slice(census.bounds[unit], census.bounds[unit + 1])
            return "", plan.task.read(census.numbers[mine])
        found = census.sequences(unit, own.states)
        check_persons(plan.task, {census.subjects[unit]: found.total})
        if fast:  # only the lengths matter, so the states need no recoding
            chains = tuple(np.broadcast_to(np.int64(0), len(chain)) for chain in found.chains)
            return "", plan.task.read(Sequences(own.states, chains))
        return "", plan.task.read(own.recode(found))
    except DataError as error:
        return str(error), None


@dataclass(frozen=True, slots=True)
class OwnStates:
    """A plan's own states among those the census counts (the states of all plans of the job)."""

    states: tuple[str, ...]
    place: Ints  # of each counted state in `states`; -1 when the plan does not know it

    @classmethod
    def of(cls, plan: Plan, counted: tuple[str, ...]) -> OwnStates:
        own = {state: place for place, state in enumerate(plan.task.query.states)}
        return cls(plan.task.query.states, np.array([own.get(name, -1) for name in counted]))

    def outside(self, census: Census, units: Sequence[int]) -> dict[int, str]:
        """Return the units with a state that this plan does not have."""
        foreign = self.place < 0
        if not foreign.any() or not units or census.numbers is not None:
            return {}
        found = census.counts[np.array(units)][:, foreign].any(axis=1)
        reason = "a state the model does not know"
        return dict.fromkeys(np.array(units)[found].tolist(), reason)

    def recode(self, found: Sequences) -> Sequences:
        return Sequences(self.states, tuple(self.place[chain] for chain in found.chains))

    def answers(self, plan: Plan, census: Census, units: Sequence[int]) -> Ints:
        """Return the exact true answers in steps of the noise; refused if 64 bits may overflow."""
        assert isinstance(plan.task.query, LinearQuery)
        assert isinstance(plan.body, Additive)
        ratio = int(plan.task.query.lattice / plan.body.noise.step)
        rows = plan.task.query.multiples()
        weights = [[ratio * value for value in rows[at]] if at >= 0 else None for at in self.place]
        known = [row if row is not None else [0] * len(rows[0]) for row in weights]
        most = max((abs(value) for row in known for value in row), default=0)
        if most * int(census.rows.max(initial=0)) >= LARGEST_ANSWER:
            raise InputError("the weights have too many digits for 64-bit sums; use fewer")
        table = np.array(known, dtype=np.int64).reshape(len(known), -1)
        return census.counts[np.array(units, dtype=np.int64)] @ table
