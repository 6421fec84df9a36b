"""Find distinguishing events: sets of outputs that one fact makes much likelier than another.

The search uses samples of its own. The samples counted afterwards are fresh, so their confidence
limits are valid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.audit.black_box import BlackBox, FunctionBox, Runner
from shoal.audit.fact_pairs import (
    FEWEST,
    Chain,
    DrawBudget,
    FactLaws,
    FactPair,
    Pool,
    default_budget,
    fact_pairs,
    ladder,
    longest_by_default,
    named_places,
    places,
)
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import significant, whole


def at_least(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson lower limit: below it with probability at most `error`.

    The probability p at which P(Binomial(trials, p) ≥ hits) = error; 0 when nothing was hit.
    """
    from scipy.special import betaincinv

    return 0.0 if hits == 0 else float(betaincinv(hits, trials - hits + 1, error))


def at_most(hits: int, trials: int, error: float) -> float:
    """The Clopper–Pearson upper limit: above it with probability at most `error`."""
    return 1.0 - at_least(trials - hits, trials, error)


def log_ratio_at_least(top: tuple[int, int], bottom: tuple[int, int], error: float) -> float:
    """A lower limit for log p/p' from (hits, trials) of both; wrong with probability ≤ error.

    Each side gets half of the error, so no independence is needed. -inf when `top` has no hits.
    """
    low, high = at_least(*top, error / 2), at_most(*bottom, error / 2)
    return math.log(low / high) if low > 0 else -math.inf


# What is computed of an output before it is looked at: one number, in several ways.


MOST_COORDINATES = 8  # numbers of an output that are also looked at by themselves
FEW_VALUES = 40  # up to so many different values, each gets a bin of its own
PERIOD = 2.0  # remainders by 2 show parities and what stands after the point
NEWTON_STEPS = 25  # of Newton's method
LARGEST_FLOAT = float(np.finfo(np.float64).max)


class Score(NamedTuple):
    """direction·z of an output z, or its remainder by `period`.

    nan where that is no number; infinities, and sums too large for a float, are the largest float.
    """

    direction: Floats
    period: float | None = None

    def of(self, outputs: Floats) -> Floats:
        """The score of each row, added up column by column, so that equal rows score alike."""
        total = np.zeros(len(outputs))
        with np.errstate(over="ignore", invalid="ignore"):
            for weight, column in zip(self.direction.tolist(), outputs.T, strict=True):
                if weight != 0:
                    total = total + weight * column
        bounded = np.clip(total, -LARGEST_FLOAT, LARGEST_FLOAT)
        return bounded if self.period is None else np.asarray(np.mod(bounded, self.period))

    def describe(self, labels: tuple[str, ...]) -> str:
        """The score in words; numbers without a label are counted."""
        names = labels if len(labels) == len(self.direction) else _output_names(len(self.direction))
        if len(self.direction) == 1 and self.direction[0] == 1:
            what = "the output"
        else:
            what = " + ".join(
                name if coefficient == 1 else f"{significant(coefficient)}·{name}"
                for coefficient, name in zip(self.direction.tolist(), names, strict=True)
                if coefficient != 0
            )
        if self.period is None:
            return what
        return f"the remainder of {what} divided by {significant(self.period)}"


def scores(first: Floats, second: Floats) -> list[Score]:
    """What may tell the outputs of two facts apart: the best weighted sum of their numbers, the
    numbers one by one (those that differ most, when there are many), and their remainders."""
    count = first.shape[1]
    tame = [_tame(column) for column in np.vstack([first, second]).T]
    columns = [(column[: len(first)], column[len(first) :]) for column in tame]
    chosen = sorted(range(count), key=lambda i: -_apart(*columns[i]))[:MOST_COORDINATES]
    alone = [Score(row) for row in np.eye(count)[chosen]]
    found = [*alone] if count == 1 else [Score(_direction(columns)), *alone]
    for place, score in zip(chosen, alone, strict=True):
        if len(np.unique(tame[place])) > FEW_VALUES:
            found.append(score._replace(period=PERIOD))
    return found


def _tame(column: Floats) -> Floats:
    """The numbers of a column within its usual range; what is no number counts as the median."""
    numbers = column[np.isfinite(column)]
    if not numbers.size:
        return np.zeros(len(column))
    low, middle, high = np.quantile(numbers, [0.005, 0.5, 0.995], method="nearest")
    return np.clip(np.where(np.isnan(column), middle, column), low, high)


def _apart(first: Floats, second: Floats) -> float:
    """How far two columns lie apart, in units of their common spread."""
    largest = float(max(np.abs(first).max(), np.abs(second).max())) or 1.0
    first, second = first / largest, second / largest
    spread = float(np.sqrt(first.var() + second.var()))
    gap = abs(float(first.mean() - second.mean()))
    return gap / spread if spread > 0 else 0.0


def _direction(columns: list[tuple[Floats, Floats]]) -> Floats:
    """The score that separates two clouds best: logistic regression on standardised outputs."""
    first, second = (np.stack([pair[i] for pair in columns], axis=1) for i in (0, 1))
    largest = np.maximum(np.abs(np.vstack([first, second])).max(axis=0), 1e-300)
    outputs = np.vstack([first, second]) / largest  # squares of huge numbers are none
    centre, width = outputs.mean(axis=0), outputs.std(axis=0)
    width = np.where(width > 0, width, 1.0)
    features = np.hstack([(outputs - centre) / width, np.ones((len(outputs), 1))])
    target = np.concatenate([np.ones(len(first)), np.zeros(len(second))])
    weights = np.zeros(features.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        slope = features.T @ (target - chance) - 1e-3 * weights
        curve = (features * (chance * (1 - chance))[:, None]).T @ features
        weights = weights + np.linalg.solve(curve + 1e-3 * np.eye(len(weights)), slope)
    direction = weights[:-1] / width / largest
    steepest = np.abs(direction).max()
    return np.asarray(direction / steepest) if steepest > 0 else np.ones(len(columns))


def _output_names(count: int) -> tuple[str, ...]:
    return tuple(f"output {i + 1}" for i in range(count))


TAIL = np.array([0.0002, 0.0005, 0.001, 0.002, 0.005])
QUANTILES = np.concatenate([TAIL, np.arange(0.01, 0.995, 0.02), 1 - TAIL[::-1]])
CAUTION = 3.0  # standard deviations subtracted because the event was selected on the same sample
HOPE = 1e-6  # factor on the limit without caution, used to rank when the cautious limit is <= 0
MOST_BINS = FEW_VALUES
OFTEN = 3  # so many equal outputs form a value with a bin of its own


@dataclass(frozen=True, slots=True, eq=False)
class TellingEvent:
    """{z : the score of z is in one of the half-open intervals}; `nothing` adds the NaN scores.

    `swapped` says that the event is likelier under the second fact.
    """

    score: Score
    intervals: tuple[tuple[float, float], ...]
    nothing: bool
    swapped: bool

    def hits(self, outputs: Floats) -> int:
        """How many outputs are in it."""
        score = self.score.of(outputs)
        inside = np.isnan(score) if self.nothing else np.zeros(len(score), dtype=bool)
        for low, high in self.intervals:
            inside |= (score >= low) & (score < high)
        return int(inside.sum())

    def describe(self, labels: tuple[str, ...], unit: str) -> str:
        """The event in words."""
        words = [_words(*ends, unit) for ends in self.intervals]
        words += ["no number"] if self.nothing else []
        return f"{self.score.describe(labels)} is {' or '.join(words)}"


class Promise(NamedTuple):
    """An event and the lower limit it can be expected to give when tested."""

    expected: float
    event: TellingEvent


class _Trial(NamedTuple):
    """Scores given either fact, and how many new ones will be tested at how many deviations."""

    top: Floats
    bottom: Floats
    tests: int
    spread: float


def best_event(first: Floats, second: Floats, tests: int, *, spread: float = 2.6) -> Promise:
    """The event that should give the largest lower limit on `tests` new outputs of each fact.

    `spread` is how many standard deviations of the test a limit costs. Half-lines are scored on all
    outputs; unions of bins are put together on one half and scored on the other.
    """
    found = []
    for score in scores(first[::2], second[::2]):
        sides = (score.of(first), score.of(second))
        for swapped in (False, True):
            trial = _Trial(*(sides[::-1] if swapped else sides), tests, spread)
            found.append(_best_threshold(trial, score, swapped))
            found.append(_best_bins(trial, score, swapped))
    return max(found, key=lambda promise: promise.expected)


def _best_threshold(trial: _Trial, score: Score, swapped: bool) -> Promise:
    """Return the best event among half-lines of the score, all numbers, and NaN scores."""
    over, under = np.sort(trial.top), np.sort(trial.bottom)  # nan comes last
    counts = [int((~np.isnan(side)).sum()) for side in (over, under)]
    everything = TellingEvent(score, ((-math.inf, math.inf),), True, swapped)
    none = [
        np.array([len(side) - count]) for side, count in zip((over, under), counts, strict=True)
    ]
    found = [
        Promise(0.0, everything),
        Promise(
            float(_expected_bound(none[0], none[1], trial)[0]),
            TellingEvent(score, (), True, swapped),
        ),
    ]
    numbers = np.concatenate([over[: counts[0]], under[: counts[1]]])
    if not numbers.size:
        return max(found, key=lambda promise: promise.expected)
    cuts = np.unique(np.quantile(numbers, QUANTILES, method="inverted_cdf"))
    for above in (True, False):
        hits = [_past_cuts(s[:n], cuts, above) for s, n in zip((over, under), counts, strict=True)]
        value = _expected_bound(hits[0], hits[1], trial)
        place = int(np.argmax(value))
        ends = (float(cuts[place]), math.inf) if above else (-math.inf, float(cuts[place]))
        found.append(Promise(float(value[place]), TellingEvent(score, (ends,), False, swapped)))
    return max(found, key=lambda promise: promise.expected)


def _best_bins(trial: _Trial, score: Score, swapped: bool) -> Promise:
    """The best union of bins, taken in the order of their likelihood ratio; nan is a bin too."""
    top, bottom = trial.top[::2], trial.bottom[::2]
    edges = _edges(np.concatenate([top, bottom]))
    counts = [_count_in_bins(scores, edges) for scores in (top, bottom)]
    ratio = np.log((counts[0] + 0.5) / (counts[1] + 0.5))
    order = np.argsort(-ratio, kind="stable")
    other = trial._replace(top=trial.top[1::2], bottom=trial.bottom[1::2])
    hits = [np.cumsum(_count_in_bins(scores, edges)[order]) for scores in (other.top, other.bottom)]
    value = _expected_bound(hits[0], hits[1], other)
    place = int(np.argmax(value))
    chosen: Ints = np.sort(order[: place + 1])
    nothing = bool(chosen[-1] == len(edges) - 1)
    intervals = _merge_bins(edges, chosen[: len(chosen) - nothing])
    return Promise(float(value[place]), TellingEvent(score, intervals, nothing, swapped))


def _expected_bound(over: Ints, under: Ints, trial: _Trial) -> Floats:
    """Return the lower limit of log p/p' that a test of the event is expected to give.

    p̂ is lowered and p̂' raised by `spread` standard deviations of the test and CAUTION of the
    selection, on the scale of arcsin √p, where a deviation is 1/(2√n). To p' is added what zero
    hits may have missed: about spread²/2 hits. Where the result is not above 0, the limit without
    caution counts, times HOPE.
    """
    cautious = _limit(over, under, trial, CAUTION)
    return np.where(cautious > 0, cautious, HOPE * _limit(over, under, trial, 0.0))


def _limit(over: Ints, under: Ints, trial: _Trial, caution: float) -> Floats:
    """Return lower limits of log p/p' (natural logarithm), one per pair of hit counts.

    `over` and `under` count the hits given the first and the second fact. `caution` is in standard
    deviations. -inf where the limit on p is 0.
    """
    above, below = len(trial.top), len(trial.bottom)
    test = trial.spread / (2 * math.sqrt(trial.tests))
    low = np.arcsin(np.sqrt(over / above)) - caution / (2 * math.sqrt(above)) - test
    high = np.arcsin(np.sqrt(under / below)) + caution / (2 * math.sqrt(below)) + test
    missed = trial.spread**2 / (2 * trial.tests)
    p = np.sin(np.maximum(low, 0.0)) ** 2
    q = np.minimum(np.sin(np.minimum(high, math.pi / 2)) ** 2 + missed, 1.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p / q))


def _edges(scores: Floats) -> Floats:
    """Bins: one per value when there are few, else equally many outputs in each.

    Values that come again and again among many have a bin of their own.
    """
    numbers = scores[~np.isnan(scores)]
    values, counts = np.unique(numbers, return_counts=True)
    if len(values) <= MOST_BINS:
        inner = values[1:] / 2 + values[:-1] / 2
    else:
        often = values[np.argsort(-counts, kind="stable")][:MOST_BINS]
        often = often[np.sort(counts)[::-1][:MOST_BINS] >= OFTEN]
        parts = np.quantile(numbers, np.linspace(0, 1, MOST_BINS + 1), method="inverted_cdf")
        above = np.nextafter(often[often < LARGEST_FLOAT], math.inf)
        inner = np.unique(np.concatenate([parts[1:-1], often, above]))
    return np.concatenate([[-math.inf], inner, [math.inf]])


def _count_in_bins(scores: Floats, edges: Floats) -> Ints:
    """How many scores are in each bin, and last how many are no numbers."""
    numbers = scores[~np.isnan(scores)]
    place = np.searchsorted(edges, numbers, side="right") - 1
    counts = np.bincount(place, minlength=len(edges) - 1)
    return np.append(counts, len(scores) - len(numbers))


def _merge_bins(edges: Floats, chosen: Ints) -> tuple[tuple[float, float], ...]:
    """Neighbouring bins as one interval."""
    intervals: list[tuple[float, float]] = []
    for place in chosen.tolist():
        low, high = float(edges[place]), float(edges[place + 1])
        if intervals and intervals[-1][1] == low:
            low = intervals.pop()[0]
        intervals.append((low, high))
    return tuple(intervals)


def _past_cuts(scores: Floats, cuts: Floats, above: bool) -> Ints:
    below = np.searchsorted(scores, cuts, side="left")
    return np.asarray(len(scores) - below if above else below)


def _words(low: float, high: float, unit: str) -> str:
    """Return the half-open interval [low, high) in words, with `unit` after the numbers.

    `low` equal to LARGEST_FLOAT means the value is infinite.
    """
    unit = f" {unit}" if unit else ""
    if low == LARGEST_FLOAT:
        return "infinite"
    if math.isinf(high):
        return "anything" if math.isinf(low) else f"at least {significant(low)}{unit}"
    if math.isinf(low):
        return f"below {significant(high)}{unit}"
    if high == math.nextafter(low, math.inf):
        return f"exactly {significant(low)}{unit}"
    return f"from {significant(low)} to below {significant(high)}{unit}"


# The choice of what to test: rounds of releases with ever fewer pairs of facts.


# share of the draws, and how many pairs of facts go on to it; what is left over tests
PILOT = 0.2
NARROWINGS = ((0.15, 6), (0.15, 2))
TEST = 0.5  # PILOT and both shares of NARROWINGS are the other half
LEAST_TESTS = 1000  # releases given each fact, however long the data


class Rival(NamedTuple):
    """Two facts to tell apart, and what was released so far when either held."""

    contrast: FactPair
    pools: tuple[Pool, Pool]
    outputs: tuple[Floats, Floats]


def chosen(
    run: Runner,
    found: list[FactPair],
    budget: DrawBudget,
    spread: float,
    seeds: np.random.SeedSequence,
) -> tuple[Rival, TellingEvent]:
    """Return the pair of facts and the event with the largest expected limit.

    Every round draws more outputs for fewer candidates. A candidate is ranked by the number of
    tests its budget allows, which is smaller for long data.
    """
    pilot, *others = seeds.spawn(1 + len(NARROWINGS))
    ranked = _rank_rivals(_pilot(run, found, budget, pilot), budget, spread)
    done = PILOT
    for (share, kept), own in zip(NARROWINGS, others, strict=True):
        done += share
        rivals = [rival for rival, _ in ranked[:kept]]
        more = _more(run, rivals, budget.part(share), round(done * budget.draws), own)
        ranked = _rank_rivals(more, budget, spread)
    return ranked[0]


def trials(budget: DrawBudget, entries: int) -> int:
    """How many releases given each fact are kept for the test of data of so many entries."""
    part = budget.part(TEST)
    most, by_entries = part.draws // 2, part.entries / 2 / entries
    return most if by_entries >= most else min(most, max(int(by_entries), LEAST_TESTS))


def _rank_rivals(
    rivals: list[Rival], budget: DrawBudget, spread: float
) -> list[tuple[Rival, TellingEvent]]:
    """Every rival with its best event, the one that promises most first."""
    learned = [
        best_event(*rival.outputs, trials(budget, rival.pools[0].entries), spread=spread)
        for rival in rivals
    ]
    order = sorted(range(len(rivals)), key=lambda i: -learned[i].expected)
    return [(rivals[i], learned[i].event) for i in order]


def _pilot(
    run: Runner, found: list[FactPair], budget: DrawBudget, seeds: np.random.SeedSequence
) -> list[Rival]:
    """Every pair of facts, each fact with an equal share of the draws as far as they go."""
    part = budget.part(PILOT)
    pools = [pool for contrast in found for pool in contrast.pools]
    if part.draws // len(pools) < FEWEST:
        raise InputError(
            f"draws leaves {part.draws // len(pools)} for each of {len(pools)} facts in the first "
            f"round; give at least {math.ceil(FEWEST * len(pools) / PILOT):,} draws, or fewer "
            "lengths"
        )
    outputs = iter(_draw_outputs(run, pools, part, part.draws, seeds))
    rivals = []
    for contrast in found:
        own = [next(outputs) for _ in contrast.pools]
        rivals += [
            Rival(contrast, (contrast.pools[one], contrast.pools[two]), (own[one], own[two]))
            for one, two in contrast.pairs
        ]
    return rivals


def _more(
    run: Runner, rivals: list[Rival], part: DrawBudget, until: int, seeds: np.random.SeedSequence
) -> list[Rival]:
    """The same rivals with more outputs."""
    pools = [pool for rival in rivals for pool in rival.pools]
    fresh = iter(_draw_outputs(run, pools, part, until, seeds))
    grown = []
    for rival in rivals:
        both = [np.vstack([known, next(fresh)]) for known in rival.outputs]
        grown.append(rival._replace(outputs=(both[0], both[1])))
    return grown


def _draw_outputs(
    run: Runner, pools: Sequence[Pool], part: DrawBudget, until: int, seeds: np.random.SeedSequence
) -> list[Floats]:
    """What is released given each of some facts, within a part of the budget."""
    counts = part.each([pool.entries for pool in pools])
    sizes = zip(counts, (pool.entries for pool in pools), strict=True)
    run.stage(until, sizes)
    own = seeds.spawn(len(pools))
    return [run.draw(*one) for one in zip(pools, counts, own, strict=True)]


# What a black-box audit looks at: the lengths the caller named, or those the box accepts.


PROBES = 4  # data sets by which a function shows whether it takes a length


class Looked(NamedTuple):
    """The lengths of data looked at, those the box does not take, and what was left out.

    `beyond` is the model's own length where longer data was not looked at, 0 for any length.
    """

    lengths: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    beyond: int | None = None

    def describe(self) -> str:
        """The same in words; none where no lengths were chosen."""
        if not self.lengths:
            return ""
        words = f"data of {_join_words(self.lengths)} entries"
        if self.refused:
            words += f"; the black box takes no data of {_join_words(self.refused)}"
        if self.beyond is not None:
            upper = f"up to {self.beyond:,} entries" if self.beyond else "of any length"
            words += f"; longer data ({upper}) only when its lengths are named"
        return f"{words}."


class Scope(NamedTuple):
    """What to compare, how much may be drawn for it, and what that leaves out."""

    fact_pairs: list[FactPair]
    budget: DrawBudget
    looked: Looked


def named_scope(laws: FactLaws, lengths: Sequence[int], draws: int) -> Scope:
    """Return the scope of the lengths the caller named; every length gets the same draws."""
    wanted = [whole(n, "a length") for n in lengths]
    for chain in laws.chains:
        if all(n < chain.walk.order for n in wanted):
            raise InputError(
                f"lengths is {list(wanted)}; {chain.model.describe()} needs data of "
                f"{chain.walk.order} entries or more"
            )
    found = named_places([chain.walk for chain in laws.chains], wanted)
    return Scope(
        fact_pairs(laws, found),
        DrawBudget(draws),
        Looked(lengths=tuple(sorted({place.entries for place in found}))),
    )


def default_scope(box: BlackBox, laws: FactLaws, draws: int, seed: int) -> Scope:
    """Short lengths and a ladder up to the model's own, as far as the draws and the box go."""
    budget = default_budget(draws)
    longest = longest_by_default(budget)
    refused = _refused_lengths(box, laws.chains, longest, seed)
    others = [pool.entries for contrast in laws.tables for pool in contrast.pools]
    walks = [chain.walk for chain in laws.chains]
    found = places(walks, others, budget.part(PILOT), longest, lambda n: n not in refused)
    lengths = tuple(sorted({place.entries for place in found}))
    looked = Looked(lengths, refused, _beyond(laws.chains, (*lengths, *refused)))
    return Scope(fact_pairs(laws, found), budget, looked)


def _refused_lengths(
    box: BlackBox, chains: Sequence[Chain], longest: int, seed: int
) -> tuple[int, ...]:
    """The lengths of the ladder a function does not take, though it takes others.

    It fails for every probe of such a length. A function that fails for all lengths, or
    only for some data of a length, is refused with its first error.
    """
    if not isinstance(box, FunctionBox):
        return ()
    by_length = {n: chain for chain in chains for n in ladder(chain.walk, longest)}
    failures = {n: _failure(box, by_length[n], n, seed) for n in sorted(by_length)}
    refused = tuple(n for n, failure in failures.items() if failure is not None)
    if refused and len(refused) == len(failures):
        first = failures[refused[0]]
        raise InputError(
            f"{first} (data of {_join_words(refused)} entries was tried; if it takes other "
            "lengths, name them)"
        ) from first
    return refused


def _failure(box: FunctionBox, chain: Chain, entries: int, seed: int) -> InputError | None:
    """What a box says to every probe of a length, or None when it answers."""
    numbers = np.random.SeedSequence([seed, 0, entries])
    rng = np.random.default_rng(numbers)
    paths = chain.route(entries, entries // 2).draw(None, PROBES, rng)
    failures = []
    for path, own in zip(paths, numbers.generate_state(PROBES).tolist(), strict=True):
        try:
            box.draw(path[None], own)
        except InputError as failure:
            failures.append(failure)
    if failures and len(failures) < PROBES:
        raise failures[0]
    return failures[0] if failures else None


def _beyond(chains: Sequence[Chain], lengths: Sequence[int]) -> int | None:
    """The longest data of the chains, 0 for any length, when it is longer than all lengths seen."""
    if any(chain.walk.length is None for chain in chains):
        return 0
    own = max(((c.walk.length or 0) + c.walk.order - 1 for c in chains), default=0)
    return own if own > max(lengths, default=0) else None


def _join_words(lengths: Sequence[int]) -> str:
    words = [f"{n:,}" for n in lengths]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
