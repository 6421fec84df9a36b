"""Audit cases of additive noise, losses of finite tables, and the worst output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import combinations, permutations, product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.audit.result import LOSS_TOLERANCE, Witness
from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Noise
from shoal.core.task import FiniteLaw, Model, Secrets, each_entry
from shoal.core.walk import Coded, by_value, joint_evidence
from shoal.events.pairs import Event, named_pairs
from shoal.mechanisms.mixture import evaluation_slack, smooth_laws
from shoal.mechanisms.queries import LinearQuery
from shoal.mechanisms.variables import VariableSum
from shoal.noise.laplace import is_zero_sum


class Fact(NamedTuple):
    """A name, where it holds (outcomes of the table), and how likely it is.

    `where` are the values of each variable; None for one fact or another.
    """

    name: str
    where: dict[str, tuple[str, ...]] | None
    holds: npt.NDArray[np.bool_]
    probability: float


def table_facts(table: FiniteLaw, secrets: Secrets) -> list[tuple[Fact, Fact]]:
    """The pairs of facts to keep indistinguishable, each once; impossible facts are left out."""
    named = named_pairs(secrets)
    if named is not None:
        pairs = [(_fact_of_event(table, a), _fact_of_event(table, b)) for a, b in named.pairs]
    elif each_entry(secrets):
        pairs = []
        for variable, domain in zip(table.variables, table.domains, strict=True):
            own = [_fact(table, f"{variable} = {v}", {variable: (v,)}) for v in domain]
            pairs += [(a, b) for i, a in enumerate(own) for b in own[i + 1 :]]
    else:
        raise Refused(f"a table has no secrets of the kind {type(secrets).__name__}")
    return [(a, b) for a, b in pairs if a.probability > 0 and b.probability > 0]


def _fact_of_event(table: FiniteLaw, event: Event) -> Fact:
    holds = event.holds(table)
    where = None if event.others else event.mapping()
    return Fact(event.name, where, holds, float(table.probability[holds].sum()))


def _fact(table: FiniteLaw, name: str, where: dict[str, tuple[str, ...]]) -> Fact:
    holds = table.event(where)
    return Fact(name, where, holds, float(table.probability[holds].sum()))


# What was released, in the numbers an audit works with.


WORTH_A_LOOK = 1.01  # an upper bound this close above the promise is worth a second look
WIDEST = 2**40  # lattice steps one entry may add where sums are counted one by one


@dataclass(frozen=True, slots=True, eq=False)
class AuditCase:
    """One member of a family, and noise on a linear query about data it may describe.

    `known` is an upper bound on the loss that is already certified (inf: none), and
    `promised` the claim, which only decides how hard to look. `curve` asks for the densities.
    """

    query: LinearQuery | VariableSum
    noise: Noise
    secrets: Secrets
    model: Model
    index: int = 0
    known: float = math.inf
    promised: float | None = None
    curve: bool = False

    def close(self, upper: float) -> bool:
        """Whether an upper bound is so little above the promise that a second look is worth it."""
        promised = self.promised
        return (
            promised is not None
            and promised * (1 + LOSS_TOLERANCE) < upper <= WORTH_A_LOOK * promised
        )

    @property
    def finer(self) -> int:
        """Outputs to look at between two neighbouring answers, and one more.

        1 for independent noise, whose worst outputs are answers. Noise that keeps a total may be
        worst anywhere on its own lattice.
        """
        zero_sum = is_zero_sum(self.noise)
        return int(self.query.lattice / self.noise.step) if zero_sum else 1

    @property
    def step(self) -> Fraction:
        """The lattice that answers and outputs are counted on."""
        return self.query.lattice / self.finer

    @property
    def wide(self) -> bool:
        """Whether sums of the weights, in lattice steps, would leave the integers of a machine."""
        widest = max(abs(step) for row in self.query.multiples() for step in row)
        return widest * self.finer > WIDEST

    @property
    def weights(self) -> Floats:
        """`multiples` as numbers, however large."""
        rows = [[float(step) for step in row] for row in self.query.multiples()]
        return self.finer * np.array(rows, dtype=np.float64)

    @property
    def multiples(self) -> Ints:
        """What each value of an entry adds, (values, labels), in lattice steps."""
        return self.finer * np.array(self.query.multiples(), dtype=np.int64)

    @property
    def scale(self) -> float:
        """The scale of the noise in lattice steps."""
        return float(self.noise.scale / self.step)

    @property
    def eta(self) -> Fraction:
        """Entry-level DP: Lipschitz constant over scale."""
        return Fraction(self.query.lipschitz / self.noise.scale)

    def output(self, steps: Floats, entries: int) -> tuple[float, ...]:
        """Codes counted from the least possible answer, as answers in the query's own units.

        `steps` are multiples of the lattice above the least answer of `entries` entries.
        """
        least = self.weights.min(axis=0) * entries
        return tuple(float(value) for value in (steps + least) * float(self.step))


def coprime(weights: Ints) -> tuple[Ints, int]:
    """Weights less their least, divided by their greatest common divisor, and that divisor."""
    low: Ints = weights - weights.min()
    divisor = reduce(math.gcd, low.ravel().tolist(), 0) or 1
    return low // divisor, divisor


# The loss of any release with finitely many outputs, about data whose joint law is written out.


class FiniteLoss(NamedTuple):
    """The largest log-ratio over outputs and pairs of secrets, where, and the beliefs in both."""

    value: float
    facts: tuple[str, str] = ("", "")
    output: int = 0
    before: tuple[float, float] = (0.0, 0.0)
    after: tuple[float, float] = (0.0, 0.0)


def finite_loss(table: FiniteLaw, release: npt.ArrayLike, secrets: Secrets) -> FiniteLoss:
    """max over pairs (s, s') and outputs z of log P(z | s) / P(z | s'), by enumeration.

    `release` (…outcomes, outputs) is P(z | outcome): randomised response, several releases at
    once (outputs are then tuples, numbered), anything finite. 0/0 is no constraint, c/0 is
    infinite; secrets of probability 0 are left out.
    """
    law = _checked_release(table, release)
    chances = table.probability.ravel()
    whole = chances @ law
    best = FiniteLoss(0.0)
    for one, two in table_facts(table, secrets):
        joint = [np.where(fact.holds.ravel(), chances, 0.0) @ law for fact in (one, two)]
        for (top, over), (bottom, under) in permutations(zip((one, two), joint, strict=True)):
            with np.errstate(divide="ignore", invalid="ignore"):
                gap = np.log(over / top.probability) - np.log(under / bottom.probability)
            gap = np.where(np.isnan(gap), -math.inf, gap)
            place = int(np.argmax(gap))
            if gap[place] > best.value:
                best = FiniteLoss(
                    float(gap[place]),
                    (top.name, bottom.name),
                    place,
                    (top.probability, bottom.probability),
                    (float(over[place] / whole[place]), float(under[place] / whole[place])),
                )
    return best


def _checked_release(table: FiniteLaw, release: npt.ArrayLike) -> Floats:
    """Return `release` as (outcomes, outputs); refuse rows that are no laws, within 1e-9."""
    law = np.asarray(release, dtype=np.float64)
    if law.shape[:-1] != table.probability.shape:
        raise InputError(
            f"release has shape {law.shape}; it must be {table.probability.shape} and the outputs"
        )
    flat = law.reshape(-1, law.shape[-1])
    if not ((flat >= 0).all() and np.abs(flat.sum(axis=1) - 1).max() <= 1e-9):
        raise InputError("release must hold a law of the outputs for every outcome")
    return flat


# From an output to what an adversary believes: the checkable half of every audit.
#
# The output that tells most of a noisy vector with finitely many answers is a finite maximum.


class VectorPeak(NamedTuple):
    """The largest log-ratio, what rounding may hide, the two secrets, and where (lattice steps)."""

    value: float
    slack: float = 0.0
    pair: tuple[int, int] = (0, 0)
    output: Floats = np.zeros(0)


NOTHING = VectorPeak(-math.inf)


def product_size(answers: Ints) -> int:
    """How many points the grid of support coordinates has."""
    return math.prod(len(np.unique(column)) for column in answers.T)


def product_peak(
    answers: Ints, laws: Floats, decay: float, pairs: Bools | None = None
) -> VectorPeak:
    """The loss of independent Laplace noise on each coordinate, over all outputs.

    max over pairs (s, s') and outputs z of log Σ_c P(c|s) K(z-c) / Σ_c P(c|s') K(z-c), with
    K(v) = exp(-decay·|v|_1), answers (n, labels) in lattice steps and laws (secrets, n) in logs.
    In one coordinate, between two neighbouring answers, both sums have the form A e^w + B e^-w,
    so their ratio is monotone: the supremum is on the grid of the answers' coordinates, whose
    outermost points cover all outputs beyond them. All pairs by default. MATHS section 2.
    """
    axes = [np.unique(column) for column in answers.T]
    place = tuple(
        np.searchsorted(axis, column) for axis, column in zip(axes, answers.T, strict=True)
    )
    grid = np.full((len(laws), *map(len, axes)), -math.inf)
    grid[(slice(None), *place)] = laws
    for number, axis in enumerate(axes, start=1):
        along = np.moveaxis(grid, number, -1)
        grid = np.moveaxis(
            smooth_laws(along, decay * axis.astype(np.float64), logs=True), -1, number
        )
    found = _steepest(grid.reshape(len(laws), -1), pairs)
    if found is None:
        return NOTHING
    value, pair, flat = found
    where = np.unravel_index(flat, grid.shape[1:])
    output = np.array(
        [
            -math.inf if i == 0 else math.inf if i == len(axis) - 1 else float(axis[i])
            for axis, i in zip(axes, where, strict=True)
        ]
    )
    return VectorPeak(value, _slack(answers, grid, decay), pair, output)


def plane_size(answers: Ints) -> int:
    """How many outputs `plane_peak` looks at, before those off the plane are dropped."""
    low, high = _box(answers)
    return math.prod((high - low + 1)[:-1].tolist())


def plane_peak(answers: Ints, laws: Floats, decay: float, pairs: Bools | None = None) -> VectorPeak:
    """The loss of Laplace noise that adds up to 0 over the coordinates, over all its outputs.

    Outputs z are lattice points with the total of the answers. Where z_i is above every answer's
    coordinate i and z_j below every coordinate j, one step of each towards the answers changes all
    densities alike; so it is enough to look at z with no coordinate above all answers, or none
    below: a finite set, and every one of its points is tried.
    """
    low, high = _box(answers)
    total = int(answers[0].sum())
    free = [np.arange(a, b + 1) for a, b in zip(low[:-1], high[:-1], strict=True)]
    points = np.array(list(product(*free)), dtype=np.int64).reshape(-1, len(free))
    last = total - points.sum(axis=1, keepdims=True)
    outputs = np.hstack([points, last])[((last >= low[-1]) & (last <= high[-1]))[:, 0]]
    distance = np.abs(outputs[:, None, :] - answers[None]).sum(axis=2)
    density = np.stack([np.logaddexp.reduce(law - decay * distance, axis=1) for law in laws])
    found = _steepest(density, pairs)
    if found is None:
        return NOTHING
    value, pair, flat = found
    output = outputs[flat].astype(np.float64)
    return VectorPeak(value, _slack(answers, density, decay), pair, output)


def _box(answers: Ints) -> tuple[Ints, Ints]:
    """The least and largest coordinates an output need have, given the total."""
    total = int(answers[0].sum())
    low, high = answers.min(axis=0), answers.max(axis=0)
    return (
        np.minimum(low, total - (high.sum() - high)),
        np.maximum(high, total - (low.sum() - low)),
    )


def _steepest(density: Floats, pairs: Bools | None) -> tuple[float, tuple[int, int], int] | None:
    """The largest difference of two rows of log-densities, and where; impossible rows are -inf."""
    possible = (density > -math.inf).any(axis=1)
    best: tuple[float, tuple[int, int], int] | None = None
    for top in np.flatnonzero(possible).tolist():
        for bottom in np.flatnonzero(possible).tolist():
            if top == bottom or (pairs is not None and not pairs[top, bottom]):
                continue
            gap = density[top] - density[bottom]
            place = int(np.argmax(gap))
            if best is None or gap[place] > best[0]:
                best = (float(gap[place]), (top, bottom), place)
    return best


def _slack(answers: Ints, density: Floats, decay: float) -> float:
    """What rounding can hide: that of one smoothing per coordinate."""
    labels = answers.shape[1]
    span = decay * float(np.ptp(answers, axis=0).max())
    largest = float(np.abs(density[np.isfinite(density)]).max(initial=0.0))
    return float(labels * evaluation_slack(span, len(answers), largest))


WIDEST_ODDS = 60.0  # log-odds between two first states beyond which a start is as good as certain


class Sighting(NamedTuple):
    """An output of a walk of `nodes` nodes, and what it says about one entry.

    `likelihood` is its log-likelihood by code; `output` in lattice steps above the least answer.
    `pair` are the two values, the one it speaks for first (None: find them).
    """

    coded: Coded
    nodes: int
    entry: int
    likelihood: Floats
    output: Floats
    pair: tuple[int, int] | None = None


class LearnedPair(NamedTuple):
    """Log-ratio of two values under an initial law; its true value is >= log_ratio - rounding."""

    log_ratio: float
    pair: tuple[int, int]
    before: tuple[float, float]
    after: tuple[float, float]
    initial: Floats
    rounding: float = 0.0

    @property
    def certain(self) -> float:
        """Return the log-ratio minus its rounding error, a certain lower bound."""
        return max(self.log_ratio - self.rounding, 0.0)


def beliefs(seen: Sighting) -> LearnedPair:
    """The change of the odds that `seen` makes, evaluated from scratch at its one output."""
    coded, walk = seen.coded, seen.coded.walk
    node, shown = walk.place(seen.entry)
    count = len(walk.values)
    joint = by_value(joint_evidence(coded, seen.nodes, node, seen.likelihood), shown, count)
    plain = Coded(walk, np.zeros(count, np.int64))
    prior = by_value(joint_evidence(plain, node + 1, node, np.zeros(1)), shown, count)
    if walk.initial is None:
        found = _worst_start(joint, prior, seen.pair)
    else:
        with np.errstate(invalid="ignore"):
            pair = seen.pair or _widest(joint[0] - prior[0])
        found = _learned_pair(joint[0], prior[0], pair, walk.initial)
    return found._replace(rounding=_rounding(seen, joint, prior))


def witness(setting: AuditCase, seen: Sighting, belief: LearnedPair) -> Witness:
    """The belief in words and numbers, for the report."""
    walk = seen.coded.walk
    entries = seen.nodes + walk.order - 1
    start = ""
    if walk.initial is None:
        start = " that starts in " + _start_words(belief.initial, walk.values)
    return Witness(
        model=setting.index,
        law=f"{setting.model.describe()}{start}, with data of {entries} entries",
        subject=f"entry {seen.entry + 1}",
        facts=tuple(repr(walk.values[v]) for v in belief.pair),  # type: ignore[arg-type]
        labels=setting.query.labels,
        output=setting.output(seen.output, entries),
        unit=setting.query.unit,
        before=belief.before,
        after=belief.after,
        log_ratio=belief.log_ratio,
    )


def laplace_likelihood(width: int, output: int, decay: float) -> Floats:
    """-decay·|output - c| for the codes c = 0 … width-1, the log-density up to a constant."""
    return -decay * np.abs(np.arange(width) - output)


def _rounding(seen: Sighting, joint: Floats, prior: Floats) -> float:
    """What rounding may have added: half a unit in the last place of each sum of logarithms.

    A node takes one sum per state and three more; none of the logarithms that matter is larger
    than those of the result.
    """
    sums = (seen.nodes + 4) * (seen.coded.walk.size + 3)
    deepest = sum(float(np.abs(t[np.isfinite(t)]).max(initial=0.0)) for t in (joint, prior))
    return 2.0**-53 * sums * (1.0 + deepest)


def _learned_pair(
    joint: Floats, prior: Floats, pair: tuple[int, int], initial: Floats
) -> LearnedPair:
    """Return the log-ratio and beliefs of `pair` from log-weights with and without the output."""
    top, bottom = pair
    with np.errstate(invalid="ignore"):
        ratio = _gap(joint[top] - prior[top], joint[bottom] - prior[bottom])
    after = np.exp(joint - np.logaddexp.reduce(joint))
    before = np.exp(prior - np.logaddexp.reduce(prior))
    return LearnedPair(
        ratio,
        pair,
        (float(before[top]), float(before[bottom])),
        (float(after[top]), float(after[bottom])),
        initial,
    )


def _widest(likelihood: Floats) -> tuple[int, int]:
    """Return the values with the largest and least log-ratio; NaN marks impossible values."""
    possible = np.where(np.isnan(likelihood), -math.inf, likelihood)
    against = np.where(np.isnan(likelihood), math.inf, likelihood)
    return int(np.argmax(possible)), int(np.argmin(against))


def _gap(top: float, bottom: float) -> float:
    """Return top - bottom; -inf where the difference is NaN because a value is impossible."""
    gap = float(top - bottom)
    return -math.inf if math.isnan(gap) else gap


def _worst_start(joint: Floats, prior: Floats, pair: tuple[int, int] | None) -> LearnedPair:
    """Return the initial law with the largest log-ratio; one or two first states suffice.

    Rows are first states. Mixtures of two are searched on a fine grid of log-odds, refined.
    """
    size, values = joint.shape
    pairs = [pair] if pair else [(a, b) for a in range(values) for b in range(values) if a != b]
    best: tuple[float, tuple[int, int], Floats] = (-math.inf, pairs[0], np.eye(size)[0])
    for one, two in [*((y, y) for y in range(size)), *combinations(range(size), 2)]:
        for chosen in pairs:
            value, odds = _best_odds(joint[[one, two]], prior[[one, two]], chosen)
            if value > best[0]:
                initial = np.zeros(size)
                initial[one] += 1 / (1 + math.exp(odds))
                initial[two] += 1 / (1 + math.exp(-odds))
                best = (value, chosen, initial)
    _, chosen, initial = best
    with np.errstate(divide="ignore"):
        weight = np.log(initial)[:, None]
    mixed = [np.logaddexp.reduce(weight + table, axis=0) for table in (joint, prior)]
    return _learned_pair(mixed[0], mixed[1], chosen, initial)


def _best_odds(joint: Floats, prior: Floats, pair: tuple[int, int]) -> tuple[float, float]:
    """The largest log-ratio over mixtures of two first states, and the log-odds reaching it."""
    low, high = -WIDEST_ODDS, WIDEST_ODDS
    value, best = -math.inf, 0.0
    for _ in range(6):
        odds = np.linspace(low, high, 241)
        weights = np.stack([-np.logaddexp(0, odds), -np.logaddexp(0, -odds)])[:, :, None]
        mixed = [
            np.logaddexp(weights[0] + table[0], weights[1] + table[1]) for table in (joint, prior)
        ]
        with np.errstate(invalid="ignore"):
            given = mixed[0] - mixed[1]
            ratios = given[:, pair[0]] - given[:, pair[1]]
        ratios = np.where(np.isnan(ratios), -math.inf, ratios)
        place = int(np.argmax(ratios))
        if ratios[place] > value:
            value, best = float(ratios[place]), float(odds[place])
        reach = (high - low) / 100
        low, high = best - reach, best + reach
    return value, best


def _start_words(initial: Floats, values: tuple[str, ...]) -> str:
    """Return the initial law in words: the certain state, or each possible one and its chance."""
    parts = [
        f"{values[state]!r} with probability {initial[state]:.3g}"
        for state in np.flatnonzero(initial > 0)
    ]
    certain: Ints = np.flatnonzero(initial == 1)
    return repr(values[int(certain[0])]) if certain.size else " or ".join(parts)
