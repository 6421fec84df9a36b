"""Running totals of a series by the signed k-ary tree: noise that grows with the logarithm of time.

Proof: signed_tree.md. The tree is that of arXiv 2408.07021.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, SupportsIndex

import numpy as np

from shoal.core.charge import Charge, Part, Rng
from shoal.core.codec import Ints, Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import significant, whole
from shoal.core.plan import Answer, Error, Noise, Plan, Release
from shoal.core.records import Sequences
from shoal.core.stream import Price, Slot
from shoal.mechanisms.queries import (
    InSteps,
    LinearQuery,
    Running,
    RunningOutput,
    RunningState,
    RunningStream,
)
from shoal.noise.laplace import digits_of, geometric_batch

MOST_STEPS = 10**7  # of a tree: its errors are averaged step by step
PROPOSALS = 4096  # drawn together, so that one batch is nearly always enough
BRACKETS = 60  # halvings of a bound of an error

Node = tuple[int, int]  # its level, and its index among the nodes of that level
Noises = tuple[int, ...]  # one per label, in lattice steps


def digits(step: int, arity: int, levels: int) -> tuple[int, ...]:
    """The balanced digits of `step` in base `arity`, lowest first, each at most (arity - 1) / 2."""
    half, found = arity // 2, []
    for _ in range(levels):
        digit = (step + half) % arity - half
        found.append(digit)
        step = (step - digit) // arity
    return tuple(found)


def active(step: int, arity: int, levels: int) -> dict[Node, int]:
    """The nodes whose noise a total of so many steps has, and the sign of each.

    A node of level l covers arity^l steps. Whole nodes are added from the top level down, and where
    that goes beyond `step` nodes of lower levels are taken away.
    """
    found: dict[Node, int] = {}
    place = 0  # steps covered so far
    for level, digit in reversed(list(enumerate(digits(step, arity, levels)))):
        size = arity**level
        first = place // size + min(digit, 0)
        for index in range(first, first + abs(digit)):
            found[level, index] = 1 if digit > 0 else -1
        place += digit * size
    return found


@lru_cache(maxsize=64)
def nodes_per_total(arity: int, levels: int, horizon: int) -> float:
    """How many noises a total has on average over the steps up to `horizon`."""
    steps = np.arange(1, horizon + 1)
    total, half = 0, arity // 2
    for _ in range(levels):
        digit = (steps + half) % arity - half
        total += int(np.abs(digit).sum())
        steps = (steps - digit) // arity
    return total / horizon


@lru_cache(maxsize=64)
def best_tree(horizon: int) -> tuple[int, int]:
    """The arity and levels of the least mean square error of a total up to `horizon`."""
    best = (math.inf, 3, 1)
    for levels in range(1, max(2, math.ceil(math.log(2 * horizon + 1, 3))) + 1):
        arity = _least_arity(horizon, levels)
        error = levels**2 * nodes_per_total(arity, levels, horizon)
        best = min(best, (error, arity, levels))
    return best[1], best[2]


def _least_arity(horizon: int, levels: int) -> int:
    """The least odd arity, 3 at least, whose tree of so many levels reaches `horizon`."""
    arity = max(3, math.floor((2 * horizon + 1) ** (1 / levels)) - 2)
    arity += 1 - arity % 2
    while (arity**levels - 1) // 2 < horizon:
        arity += 2
    return int(arity)


@dataclass(frozen=True, slots=True, eq=False)
class Totals(InSteps):
    """The sum of `query` from the first entry on, after each `every` entries of a series.

    Answered by a tree of sums that covers `horizon` steps. An entry is in one node of each of the
    `levels`, so all nodes together move by levels times what one entry moves `query`.
    """

    kind = "totals"

    horizon: int
    arity: int
    levels: int

    def __post_init__(self) -> None:
        """Refuse a tree that does not reach the horizon, and an even arity."""
        InSteps.__post_init__(self)
        object.__setattr__(self, "horizon", whole(self.horizon, "horizon"))
        if self.horizon > MOST_STEPS:
            raise InputError(
                f"horizon is {self.horizon:,} steps; it must be at most {MOST_STEPS:,}"
            )
        odd = type(self.arity) is int and self.arity % 2 == 1 and self.arity >= 3
        if not odd or (self.arity ** whole(self.levels, "levels") - 1) // 2 < self.horizon:
            raise InputError(
                f"arity is {self.arity} and levels {self.levels}; the arity must be odd, and "
                f"(arity^levels - 1) / 2 at least the horizon, {self.horizon}"
            )

    @property
    def lipschitz(self) -> Fraction:
        """What one entry moves all nodes of the tree together, in the l1 norm."""
        return self.levels * self.query.lipschitz

    def moved_by(self, entries: int) -> Fraction:
        """The most `entries` entries move all nodes: each moves one node of each level."""
        return entries * self.lipschitz

    def read(self, data: Any) -> Sequences:
        """`data` as one series of a whole step at least, and of `horizon` steps at most."""
        records = InSteps.read(self, data)
        if records.total // self.every > self.horizon:
            raise DataError(
                f"the data holds more than {self.horizon} steps of {self.every} entries, the "
                "horizon of the totals; give a longer horizon"
            )
        return records

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The totals after each whole step, in multiples of `lattice`."""
        steps = np.array(InSteps.evaluate(self, records), dtype=object)
        return tuple(steps.reshape(-1, len(self.labels)).cumsum(axis=0).ravel().tolist())

    def sampler(self, noise: Noise) -> RunningTotals:
        """What draws it: step by step."""
        return RunningTotals(self, noise)

    def describe(self) -> str:
        return (
            f"after every {self.every} entries, up to {self.horizon:,} times, the total from the "
            f"first entry on: {self.query.describe()}"
        )


def totals(query: LinearQuery, every: SupportsIndex, horizon: SupportsIndex) -> Totals:
    """`query` of all entries so far, after each `every` entries, `horizon` times at most."""
    steps = whole(horizon, "horizon")
    if steps > MOST_STEPS:
        raise InputError(f"horizon is {steps:,} steps; it must be at most {MOST_STEPS:,}")
    return Totals(query, whole(every, "every", least=2), steps, *best_tree(steps))


@dataclass(frozen=True, slots=True, eq=False)
class Equation(Value):
    """Signed noises of the `nodes` that are not known apart, which add up to `sums` per label."""

    kind = "totals-equation"

    nodes: tuple[Node, ...]
    signs: tuple[int, ...]
    sums: Noises


@dataclass(frozen=True, slots=True, eq=False)
class TotalsState(RunningState):
    """The open step, the totals before it, and what the outputs say of the tree's noise.

    It follows from the entries and the outputs alone, so a stream that is read again from the
    start, with its stored outputs, is where it was. `noise` is that of the last total; `known` are
    noises of nodes that later totals have too, and `open` what is known of those that are mixed.
    As private as the entries themselves.
    """

    kind = "totals-state"

    origin: int = 0
    steps: int = 0
    total: Noises = ()
    noise: Noises = ()
    known: tuple[tuple[Node, Noises], ...] = ()
    open: tuple[Equation, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class RunningTotals(Running):
    """The noisy total after every step, when its last entry is over."""

    kind = "running-totals"

    query: Totals

    def begin(self, plan: Plan, first: int = 0) -> RunningStream:
        """Return the stream of `plan`, whose totals begin at the entry of that number."""
        return TotalsStream.begin(plan, first)

    def init(self, first: int = 0) -> TotalsState:
        """Before the entry of that number in the series, from which on it is added up."""
        none = (0,) * len(self.query.labels)
        return TotalsState(first, 0, 0, none, origin=first, total=none, noise=none)

    def next_step(self, state: TotalsState, noise: Noises) -> TotalsState:
        """Return the state after the last entry of a step whose total was given this noise."""
        query, steps = self.query, state.steps + 1
        changed = _change(active(state.steps, *self._tree), active(steps, *self._tree))
        nodes = tuple(changed)
        gap = tuple(new - old for new, old in zip(noise, state.noise, strict=True))
        equation = Equation(nodes, tuple(changed[node] for node in nodes), gap)
        known, left = _solve_known(dict(state.known), [*state.open, equation])
        later = {*active(steps, *self._tree), *(node for one in left for node in one.nodes)}
        return TotalsState(
            state.first + query.every,
            0,
            0,
            (0,) * len(query.labels),
            origin=state.origin,
            steps=steps,
            total=tuple(a + b for a, b in zip(state.total, state.sums, strict=True)),
            noise=noise,
            known=tuple(sorted((node, z) for node, z in known.items() if node in later)),
            open=tuple(left),
        )

    def draw_noise(self, state: TotalsState, rng: Rng) -> Noises:
        """Return the noise of the total after the open step, given the noises of all before it."""
        wanted, known = active(state.steps + 1, *self._tree), dict(state.known)
        found = []
        for label in range(len(self.query.labels)):
            values = {node: noises[label] for node, noises in known.items()}
            values |= _draw_mixed(state.open, label, self.noise, rng)
            fresh = [node for node in wanted if node not in values]
            drawn = self.noise.draw(len(fresh), rng)
            values |= {node: int(z) for node, z in zip(fresh, drawn, strict=True)}
            found.append(sum(sign * values[node] for node, sign in wanted.items()))
        return tuple(found)

    def answer_of(self, state: TotalsState, noise: Noises) -> Answer:
        """Return the noisy total after the open step, whose last entry is counted."""
        ratio = self._ratio
        sums = zip(state.total, state.sums, noise, strict=True)
        multiples = tuple(ratio * (total + own) + z for total, own, z in sums)
        return Answer(self.query.labels, multiples, self.noise.step, self.query.unit)

    def noise_of(self, state: TotalsState, answer: Answer) -> Noises:
        """Return the noise of a stored total after the open step, whose last entry is counted."""
        sums = zip(answer.multiples, state.total, state.sums, strict=True)
        return tuple(shown - self._ratio * (total + own) for shown, total, own in sums)

    def step(
        self, state: RunningState, observed: Any, rng: Rng
    ) -> tuple[RunningState, Answer | None]:
        """Return the state after an entry and, where it ends a step, the noisy total."""
        after = self.count(state, observed)
        assert isinstance(after, TotalsState)
        if after.over < self.query.every:
            return after, None
        noise = self.draw_noise(after, rng)
        answer = replace(self.answer_of(after, noise), entries=after.read)
        return self.next_step(after, noise), answer

    def draw(self, records: Sequences, rng: Rng) -> Answer:
        """The noisy totals after all whole steps of a series that is over."""
        truth, size = self.query.evaluate(records), len(self.query.labels)
        steps = [active(step, *self._tree) for step in range(1, len(truth) // size + 1)]
        nodes = list(dict.fromkeys(node for one in steps for node in one))
        drawn = self.noise.draw(len(nodes) * size, rng).reshape(len(nodes), size)
        noise = dict(zip(nodes, drawn, strict=True))
        multiples = tuple(
            self._ratio * truth[at * size + label]
            + sum(sign * int(noise[node][label]) for node, sign in one.items())
            for at, one in enumerate(steps)
            for label in range(size)
        )
        every = self.query.every
        names = tuple(
            f"{name} [0, {step * every})"
            for step in range(1, len(steps) + 1)
            for name in self.query.labels
        )
        return Answer(names, multiples, self.noise.step, self.query.unit)

    def error(self, confidence: float) -> Error:
        """How far a total may be off: root mean square over all steps, and the widest bound."""
        query = self.query
        spread = math.sqrt(nodes_per_total(query.arity, query.levels, query.horizon))
        most = query.levels * (query.arity // 2)
        step = float(self.noise.step)
        rate = step / float(self.noise.scale)
        return Error(
            expected=math.nextafter(spread * math.sqrt(self.noise.variance()), math.inf),  # type: ignore[attr-defined]
            bound=step * _sum_bound(rate, most, confidence),
            confidence=confidence,
            unit=query.unit,
        )

    def describe(self) -> str:
        """Return the noise in words, and how much more a single step is off than without totals."""
        query = self.query
        return (
            f"discrete Laplace noise of scale {significant(self.noise.scale)} {query.unit} on each "
            f"node of a tree of {query.levels} levels, {query.arity} nodes under each; a step read "
            f"off two totals is off {significant(self.step_factor(), 3)} times as much as one "
            "released by itself, without totals"
        )

    def step_factor(self) -> float:
        """How much wider the noise of one step is than that of steps released by themselves."""
        query = self.query
        sampled = range(0, query.horizon, max(1, query.horizon // 1000))
        sizes = [
            sum(c * c for c in _change(active(t, *self._tree), active(t + 1, *self._tree)).values())
            for t in sampled
        ]
        return query.levels * math.sqrt(sum(sizes) / len(sizes))

    @property
    def _tree(self) -> tuple[int, int]:
        return self.query.arity, self.query.levels

    @property
    def _ratio(self) -> int:
        return int(self.query.lattice / self.noise.step)


def _change(before: Mapping[Node, int], after: Mapping[Node, int]) -> dict[Node, int]:
    """The signs of the nodes by which the noise of one total differs from that of another."""
    nodes = dict.fromkeys([*before, *after])
    changes = {node: after.get(node, 0) - before.get(node, 0) for node in nodes}
    return {node: change for node, change in changes.items() if change}


def _solve_known(
    known: dict[Node, Noises], equations: Sequence[Equation]
) -> tuple[dict[Node, Noises], list[Equation]]:
    """Return all noises that follow from the equations, and what is left of the others."""
    left, again = list(equations), True
    while again:
        again = False
        for at, one in enumerate(left):
            parts = list(zip(one.nodes, one.signs, strict=True))
            sums = list(one.sums)
            for node, sign in parts:
                if node in known:
                    sums = [total - sign * z for total, z in zip(sums, known[node], strict=True)]
            rest = [(node, sign) for node, sign in parts if node not in known]
            left[at] = Equation(
                tuple(node for node, _ in rest), tuple(sign for _, sign in rest), tuple(sums)
            )
            if len(rest) == 1:
                ((node, sign),) = rest
                known[node] = tuple(sign * total for total in sums)
                again = True
        left = [one for one in left if len(one.nodes) > 1]
    return known, left


def _heads(equations: Sequence[Equation]) -> Iterator[tuple[Equation, Node]]:
    """Each equation, the newest first, with the node that is solved for: its highest one.

    It is in no newer equation; the other nodes are drawn, or solved for in newer equations.
    """
    for one in reversed(equations):
        yield one, max(one.nodes)


def _draw_mixed(
    equations: Sequence[Equation], label: int, noise: Noise, rng: Rng
) -> dict[Node, int]:
    """Draw the noises of the mixed nodes from their law given the equations, exactly.

    All nodes but one of each equation are drawn from their own law, and that one is solved for. The
    whole is kept with probability exp(-r Σ|solved|), which is what its own law would give it.
    """
    if not equations:
        return {}
    rate = noise.step / noise.scale
    solved = [head for _, head in _heads(equations)]
    free = sorted({node for one in equations for node in one.nodes} - set(solved))
    grid = digits_of(Fraction(rate))
    while True:
        drawn = noise.draw(len(free) * PROPOSALS, rng).reshape(len(free), PROPOSALS)
        values: dict[Node, Ints] = dict(zip(free, drawn, strict=True))
        kept = np.ones(PROPOSALS, dtype=bool)
        for one, head in _heads(equations):
            parts = dict(zip(one.nodes, one.signs, strict=True))
            rest = np.zeros(PROPOSALS, dtype=drawn.dtype)
            for node, sign in parts.items():
                if node != head:
                    rest = rest + sign * values[node]
            values[head] = parts[head] * (one.sums[label] - rest)
            words = (rng.words(PROPOSALS) >> np.uint64(2)).astype(np.int64)
            kept &= geometric_batch(words, grid, rng) >= np.abs(values[head])
        found = np.flatnonzero(kept)
        if found.size:
            return {node: int(row[found[0]]) for node, row in values.items()}


def _sum_bound(rate: float, terms: int, confidence: float) -> float:
    """A bound that the sum of so many signed noises keeps with this probability at least.

    In lattice steps; Chernoff's bound with the moments of the discrete law.
    """
    q = math.exp(-rate)

    def log_tail(bound: float) -> float:
        shares = np.linspace(0, 1, 200)[1:-1] * rate
        moments = (
            2 * math.log1p(-q) - np.log1p(-q * np.exp(shares)) - np.log1p(-q * np.exp(-shares))
        )
        return float((terms * moments - shares * bound).min()) + math.log(2)

    high = 1.0
    while log_tail(high) > math.log(1 - confidence):
        high *= 2
    low = 0.0
    for _ in range(BRACKETS):
        middle = (low + high) / 2
        low, high = (middle, high) if log_tail(middle) > math.log(1 - confidence) else (low, middle)
    return high


@dataclass(frozen=True, slots=True, eq=False)
class TotalsStream(RunningStream):
    """Totals of a series, each charged with the entries of its last step; see `RunningStream`.

    The ledger stores the totals; the noise of the tree follows from them and the entries, so a
    stream that is begun again and reads the same entries goes on where it was.
    """

    kind = "totals-stream"

    def price(self, slot: Slot) -> Price:
        """Return the price of the next entry, under a key that names where the totals begin."""
        body, state = _body(self.plan), _state(self)
        if not slot.read:
            raise InputError("an entry of a total is known to be left out; give it as None instead")
        if state.steps >= body.query.horizon:
            raise InputError(
                f"the series has passed {body.query.horizon:,} steps, the horizon of its totals; "
                "make a plan with a longer one, or begin again"
            )
        found = RunningStream.price(self, slot)
        if found.charge is None:
            return found
        first, every = state.first, body.query.every
        name = [slot.subject, slot.period, self.plan.fingerprint, "totals", state.origin]
        key = json.dumps([*name, first, first + every], ensure_ascii=False)
        charge: Charge = replace(found.charge, key=key, part=Part(span=(first, first + every)))
        return Price(slot, charge)

    def draw(self, price: Price, reading: Any, rng: Rng) -> RunningOutput:
        """Return the step with one more entry, and the noisy total where that is the last one.

        Entries that are publicly not read add nothing, also at the end of a step.
        """
        state, answer = _body(self.plan).step(self.state, reading, rng)
        shown = None if answer is None else self.plan.released(answer, secure=rng.secure)
        return RunningOutput(state, shown)

    def resume(self, price: Price, reading: Any, stored: Release, rng: Rng) -> RunningOutput:
        """Return the stored total of a step; its noise is what it has beyond the entries read."""
        body = _body(self.plan)
        after = body.count(self.state, reading)
        assert isinstance(after, TotalsState)
        answer = replace(stored.answer, entries=after.read)
        state = body.next_step(after, body.noise_of(after, stored.answer))
        return RunningOutput(state, self.plan.released(answer, secure=True))


def _body(plan: Plan) -> RunningTotals:
    assert isinstance(plan.body, RunningTotals)
    return plan.body


def _state(stream: RunningStream) -> TotalsState:
    assert isinstance(stream.state, TotalsState)
    return stream.state
