"""What an adversary sees, what is believed before and after, and what was learned."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from shoal.attacks.codes import MOST_STEPS, encode_sums, likelihoods_of_summands
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive, Plan, Release
from shoal.core.task import Adversary, Model, Query
from shoal.mechanisms.queries import LinearQuery, linear
from shoal.mechanisms.variables import VariableSum, per_variable
from shoal.noise.laplace import is_zero_sum


class SumSeen(NamedTuple):
    """A release about Σ weights[value of the entry], several numbers at once.

    `weights` (values, numbers) are whole; `log_likelihood` says, up to a constant, how likely the
    released numbers are when the true sums are each of its rows. `states` names the values, for a
    model that lists them in another order; without names they are the model's, in its order.
    """

    weights: Ints
    log_likelihood: Callable[[Ints], Floats]
    states: tuple[str, ...] | None = None

    def weights_of(self, states: tuple[str, ...]) -> Ints:
        """The weights of a model's states, in its order."""
        named = self.states if self.states is not None else states
        if len(self.weights) != len(states) or set(named) != set(states):
            raise InputError(
                f"the release has weights for {len(self.weights)} values"
                f"{'' if self.states is None else f', {list(self.states)}'}; the model has the "
                f"values {list(states)}"
            )
        return self.weights[[named.index(state) for state in states]]


class VariablesSeen(NamedTuple):
    """A release about Σ over variables v of weights[v][value of v]: weights of their own.

    `weights[v]` (values of v, numbers) are whole; `domains[v]` names the values of variable v.
    """

    variables: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    weights: tuple[Ints, ...]
    log_likelihood: Callable[[Ints], Floats]


class EntriesSeen(NamedTuple):
    """Something seen of each entry: log P(what was seen of entry t | its value), (entries, values).

    -inf rules a value out. Rows of zeros carry no information.
    """

    log_likelihood: Floats


Seen = SumSeen | VariablesSeen | EntriesSeen


def laplace_sum(query: LinearQuery, output: Sequence[float], scale: float) -> SumSeen:
    """The release of `output` under Laplace noise of `scale` on each number of `query`.

    Noise that keeps the total has the same density, on fewer outputs, so it serves for that too.
    """
    return _sum_seen(query, _laplace(query, output, scale))


def laplace_variables(query: VariableSum, output: Sequence[float], scale: float) -> VariablesSeen:
    """The same for a sum in which every variable has weights of its own."""
    return _variables_seen(query, _laplace(query, output, scale))


def _sum_seen(query: LinearQuery, law: Callable[[Ints], Floats]) -> SumSeen:
    return SumSeen(np.array(query.multiples(), dtype=np.int64), law, query.states)


def _variables_seen(query: VariableSum, law: Callable[[Ints], Floats]) -> VariablesSeen:
    weights = tuple(np.array(row, dtype=np.int64)[:, None] for row in query.multiples())
    return VariablesSeen(query.variables, query.domains, weights, law)


def _laplace(query: Query, output: Sequence[float], scale: float) -> Callable[[Ints], Floats]:
    """-|sums - output|_1/scale, up to a constant, for rows of sums in lattice steps."""
    if len(output) != len(query.labels):
        raise InputError(f"output has {len(output)} numbers; the query has {len(query.labels)}")
    if not np.isfinite(np.asarray(output, dtype=np.float64)).all():
        raise InputError(f"output is {tuple(output)}; every number must be finite")
    if not (scale > 0 and np.isfinite(scale)):
        raise InputError(f"scale is {scale}; it must be positive and finite")
    steps = float(query.lattice) / scale
    place = np.asarray(output, dtype=np.float64) / float(query.lattice)
    return lambda sums: -steps * np.abs(sums - place).sum(axis=1)


def released(plan: Plan, release: Release) -> SumSeen | VariablesSeen:
    """What a release of an additive plan, or of a table of laws, shows, as it was drawn.

    Refused are values processed since (a raised 0 is not the answer with its noise) and releases of
    another plan, whose noise is another.
    """
    _check_drawn(plan, release)
    body, query = plan.additive, plan.task.query
    table: Any = plan.body  # of laws: it says itself how likely an output is
    law = None
    if body is not None:
        law = _laplace(query, _as_drawn(body, release), float(body.noise.scale))
    elif hasattr(table, "log_likelihood"):
        law = table.log_likelihood(release.answer.multiples)
    alike, named = linear(query), per_variable(query)
    if law is not None and alike is not None:
        return _sum_seen(alike, law)
    if law is not None and named is not None:
        return _variables_seen(named, law)
    raise Refused(
        f"no attack is known on a release by {plan.mechanism} of {query.describe()}; attacks are "
        "for noise on counts, sums, means and histograms of states, and on sums over variables"
    )


def _check_drawn(plan: Plan, release: Release) -> None:
    """Refuse a release of another plan, and one that was processed after it was drawn."""
    if release.plan != plan.fingerprint:
        raise InputError("the release is not of this plan; hand over the plan that made it")
    if release.processed:
        raise InputError(
            f"the release was processed ({', '.join(release.processed)}); attack it as it was drawn"
        )


def _as_drawn(body: Additive, release: Release) -> tuple[float, ...]:
    """The values before they were divided by the number of entries, which an adversary knows."""
    return tuple(float(body.noise.step * multiple) for multiple in release.answer.multiples)


def one_number(plan: Plan, release: Release, label: int) -> SumSeen:
    """One number of a release by itself: less than the adversary sees, cheap for histograms."""
    _check_drawn(plan, release)
    body, query = plan.body, plan.task.query
    assert isinstance(body, Additive)
    assert isinstance(query, LinearQuery)
    weights = np.array(query.multiples(), dtype=np.int64)[:, [label]]
    place = _as_drawn(body, release)[label] / float(query.lattice)
    decay = float(query.lattice / body.noise.scale)
    if not is_zero_sum(body.noise):
        return SumSeen(weights, lambda sums: -decay * np.abs(sums[:, 0] - place), query.states)
    others = body.noise.dimension - 1
    return SumSeen(
        weights,
        lambda sums: _one_bar(decay, others, np.asarray(sums[:, 0] - place)),
        query.states,
    )


def suppressed(
    output: Sequence[str | None], states: Sequence[str], suppression: Mapping[str, float]
) -> EntriesSeen:
    """A stream with gaps: each entry shown as it is, or None.

    `suppression` is the probability with which each state is hidden (0 when not named).
    """
    hidden = np.array([suppression.get(state, 0.0) for state in states], dtype=np.float64)
    if not ((hidden >= 0) & (hidden <= 1)).all():
        raise InputError(f"suppression is {dict(suppression)}; probabilities are in [0, 1]")
    strange = [shown for shown in output if shown is not None and shown not in states]
    if strange:
        raise InputError(f"output shows {strange[0]!r}, which is not one of {list(states)}")
    rows = np.empty((len(output), len(states)))
    for t, shown in enumerate(output):
        rows[t] = hidden if shown is None else (1 - hidden) * (np.array(list(states)) == shown)
    with np.errstate(divide="ignore"):
        return EntriesSeen(np.log(rows))


def _one_bar(decay: float, others: int, gaps: npt.NDArray[Any]) -> Floats:
    """The log-law of one coordinate of noise that adds up to 0, up to a constant.

    e^{-decay·|g|} P(S = -g) with S the sum of the `others`, each a difference of two geometric
    numbers. So S is the difference of two negative binomials b, P(S = k) = Σ_i b(i) b(i + |k|), a
    sum of positive terms: no mass is lost, however far out.
    """
    from scipy.special import gammaln

    far, place = np.unique(np.abs(np.rint(gaps)).astype(np.int64), return_inverse=True)
    terms = int(np.ceil((2 * others + 45) / decay)) + 1  # beyond, all together are below e^-80
    i = np.arange(terms + int(far.max()))
    logs = gammaln(others + i) - gammaln(i + 1.0) - decay * i
    law = np.empty(len(far))
    for row, k in enumerate(far.tolist()):
        pair = logs[:terms] + logs[k : k + terms]
        top = float(pair.max())
        law[row] = top + np.log(np.exp(pair - top).sum())
    return np.asarray(-decay * np.abs(gaps) + law[place.ravel()].reshape(gaps.shape))


# The combined likelihood of all releases seen.


class VariableColumns(NamedTuple):
    """Every value any variable may take, and which of them are each variable's own.

    In order of first appearance, as `VariableSum.states`; `places[v]` are columns of a table of
    beliefs.
    """

    values: tuple[str, ...]
    places: tuple[Ints, ...]

    def spread(self, rows: Sequence[Floats], empty: float) -> Floats:
        """A row of numbers per variable as one table, `empty` where a value is not the variable's.

        Each row holds a number for each value of its variable.
        """
        found = np.full((len(rows), len(self.values)), empty)
        for v, row in enumerate(rows):
            found[v, self.places[v]] = row
        return found


def log_likelihood(seen: Sequence[Seen], answers: Ints) -> Floats:
    """log P(released | true numbers), for rows of all numbers side by side as in `added_by`."""
    out = np.zeros(len(answers))
    place = 0
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        weights = one.weights if isinstance(one, SumSeen) else one.weights[0]
        count = weights.shape[1]
        out += one.log_likelihood(answers[:, place : place + count])
        place += count
    return out


def entries_seen(seen: Sequence[Seen], columns: VariableColumns) -> Floats | None:
    """Return the log-likelihood of all outputs about single variables, by column; None if none."""
    logs = [one.log_likelihood for one in seen if isinstance(one, EntriesSeen)]
    shape = (len(columns.places), len(columns.values))
    for rows in logs:
        if not (rows < np.inf).all():
            raise InputError("what was seen of entries holds a likelihood that is no number")
        if len(rows) != shape[0]:
            raise InputError(f"something was seen of a number of entries other than {shape[0]}")
        if rows.shape != shape:
            raise InputError(
                f"what was seen of entries has {rows.shape[1]} columns; there is one for each of "
                f"{list(columns.values)}"
            )
    return np.asarray(np.sum(logs, axis=0)) if logs else None


# Prior and posterior beliefs, the change between them, and adversaries of different knowledge.


class Learned(NamedTuple):
    """The largest change of the odds between two values of an entry, in logs, and where."""

    log_odds: float
    entry: int
    values: tuple[str, str]


class Rise(NamedTuple):
    """The largest log(belief after / belief before), and where."""

    log_ratio: float
    entry: int
    value: str


class Privacy(NamedTuple):
    """How well an adversary does on average over the entries (Shokri et al. 2011).

    `correctness` is the expected distance between what the adversary believes and the truth (what
    users care about), `certainty` the entropy of the belief in bits, `accuracy` how often the best
    guess is the truth.
    """

    correctness: float
    certainty: float
    accuracy: float


@dataclass(frozen=True, slots=True, eq=False)
class Beliefs:
    """P(entry = value) before and after, (entries, values), and how likely the output was.

    `log_evidence` is log P(output), up to the constant left out of the likelihood; nan if
    it was not computed. `logs` are the logarithms of both tables, for beliefs too small for a
    double: a probability that is stored as 0 may still be positive.
    """

    values: tuple[str, ...]
    before: Floats
    after: Floats
    log_evidence: float = math.nan
    logs: tuple[Floats, Floats] | None = None

    @classmethod
    def from_joint(cls, values: tuple[str, ...], log_before: Floats, log_joint: Floats) -> Self:
        """Beliefs from log P(entry = value) and log P(entry = value, output).

        An error when the output is impossible.
        """
        evidence = np.logaddexp.reduce(log_joint, axis=1, keepdims=True)
        if not (evidence > -math.inf).all():
            raise InputError("what was seen is impossible under the model")
        log_after = log_joint - evidence
        return cls(
            values,
            np.exp(log_before),
            np.exp(log_after),
            float(evidence[0, 0]),
            (log_before, log_after),
        )

    @property
    def guesses(self) -> Ints:
        """The most likely value of each entry, after."""
        return np.asarray(np.argmax(self.after, axis=1), np.int64)

    def largest_change(self) -> Learned:
        """Return the largest change of log-odds between two values of one entry; 0 if none.

        inf when a value that was possible no longer is.
        """
        gain, possible = self._gains()
        high = np.where(possible, gain, -math.inf)
        low = np.where(possible, gain, math.inf)
        spread = high.max(axis=1) - low.min(axis=1)
        entry = int(np.argmax(spread))
        pair = (int(np.argmax(high[entry])), int(np.argmin(low[entry])))
        return Learned(float(spread[entry]), entry, (self.values[pair[0]], self.values[pair[1]]))

    def largest_rise(self) -> Rise:
        """The belief that grew by the largest factor: posterior over prior, in logs.

        Never more than `largest_change`, because the beliefs in other values cannot all have
        grown as well.
        """
        gain, possible = self._gains()
        high = np.where(possible, gain, -math.inf)
        entry, value = (int(i) for i in np.unravel_index(int(np.argmax(high)), high.shape))
        return Rise(max(float(high[entry, value]), 0.0), entry, self.values[value])

    def expected_errors(self) -> tuple[float, float]:
        """How often the adversary expects the best guess to be wrong, before and after."""
        return (
            float(1 - self.before.max(axis=1).mean()),
            float(1 - self.after.max(axis=1).mean()),
        )

    def entropies(self) -> tuple[float, float]:
        """The mean entropy of the belief about an entry in bits, before and after."""
        return float(entropy(self.before).mean()), float(entropy(self.after).mean())

    def privacy(self, truth: npt.ArrayLike, distance: npt.ArrayLike | None = None) -> Privacy:
        """Measured against the truth (value indices); by default all errors count 1."""
        actual = np.asarray(truth, dtype=np.int64)
        count = len(self.values)
        if actual.shape != (len(self.after),) or not ((actual >= 0) & (actual < count)).all():
            raise InputError(
                f"truth must hold one of the numbers 0 to {count - 1} for each of "
                f"{len(self.after)} entries"
            )
        apart = 1 - np.eye(count) if distance is None else np.asarray(distance, float)
        if apart.shape != (count, count):
            raise InputError(f"distance has shape {apart.shape}; it must be ({count}, {count})")
        return Privacy(
            correctness=float((self.after * apart[:, actual].T).sum(axis=1).mean()),
            certainty=float(entropy(self.after).mean()),
            accuracy=float((self.guesses == actual).mean()),
        )

    def _gains(self) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """log(after / before), and where it is about a value that was possible."""
        with np.errstate(divide="ignore", invalid="ignore"):
            before, after = self.logs or (np.log(self.before), np.log(self.after))
            return after - before, before > -math.inf


def entropy(laws: Floats) -> Floats:
    """-Σ p log2 p along the last axis; 0 log 0 is 0."""
    safe = np.where(laws > 0, laws, 1.0)
    return np.asarray(-(safe * np.log2(safe)).sum(axis=-1))


def attack(model: Model, seen: Sequence[Seen], entries: int | Sequence[int]) -> Beliefs:
    """Return the beliefs about every entry of an adversary who holds `model` and saw `seen`.

    Exact: forward and backward over states and sums (chains), enumeration (tables), elimination
    (Bayesian networks), or group by group and person by person (contagion). `entries` is the
    length of the data, or the lengths of several chains that are independent of each other and
    follow one another in the result.
    """
    return cast(Beliefs, model.posterior(seen, entries))


def belief_over_time(model: Model, seen: EntriesSeen) -> Floats:
    """P(entry t = value | what was seen of entries up to t), (entries, values): belief as it grows.

    The filter of a hidden Markov model; `attack` also uses what comes later.
    """
    found: Floats = model.adversary(len(seen.log_likelihood)).over_time([seen])
    return found


def most_likely(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int]
) -> tuple[str, ...]:
    """The data that is likeliest as a whole given `seen`.

    Viterbi over states and sums (chains), group by group and person by person (contagion),
    enumeration (tables, and networks with at most 2^24 outcomes). Of several that are equally
    likely it is one.
    """
    found: tuple[str, ...] = model.adversary(entries).likeliest(seen)
    return found


# The same release seen by adversaries who know less, as much, or more than the model.
#
# Xiao 2017, Section 3.5 compares weak, standard and strong adversaries; what each may learn from
# one release is not ordered by how much each knows.


class Knowledge(NamedTuple):
    """Beliefs of three adversaries about every entry, before and after the same release.

    `weak` knows how frequent values are and takes entries for independent, `standard` knows the
    model, `strong` knows the model and every other entry. Each belief of the strong one is about
    an output of its own, so its log_evidence is nan.
    """

    weak: Beliefs
    standard: Beliefs
    strong: Beliefs

    def log_ratios(self) -> tuple[float, float, float]:
        """The largest log(belief after / before) of the weak, standard and strong adversary."""
        weak, standard, strong = (found.largest_rise().log_ratio for found in self)
        return weak, standard, strong

    def log_odds(self) -> tuple[float, float, float]:
        """The largest change of odds, in logs, of the weak, standard and strong adversary."""
        weak, standard, strong = (found.largest_change().log_odds for found in self)
        return weak, standard, strong


def by_knowledge(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int], truth: npt.ArrayLike
) -> Knowledge:
    """What a weak, a standard and a strong adversary believe after `seen`.

    `truth` holds the true values as numbers of columns of the beliefs; the strong adversary knows
    all of them but one. What the strong one learns from sums never exceeds the entry-level η of
    the noise.
    """
    standard = attack(model, seen, entries)
    actual = np.asarray(truth, dtype=np.int64)
    standard.privacy(actual)  # an error when these are no values of the entries
    adversary = model.adversary(entries)
    rows, columns = adversary.added(seen), adversary.columns
    looks = entries_seen(seen, columns)
    likely = np.zeros(standard.after.shape) if looks is None else looks
    assert standard.logs is not None
    weak = _weak(standard.values, standard.logs[0], likely, rows, seen)
    return Knowledge(weak, standard, _strong(adversary, seen, actual, likely, rows, columns))


def _weak(
    values: tuple[str, ...], log_before: Floats, likely: Floats, rows: Ints, seen: Sequence[Seen]
) -> Beliefs:
    """Entries independent of each other, each with the law it has under the model."""
    code = encode_sums(rows)
    width = int(code.added.max(axis=1).sum()) + 1
    if 0.5 * float(width) ** 2 > MOST_STEPS:
        raise Refused(f"the released sums have {width} values, too many to be told apart here")
    logs = log_before + likely
    laws = []
    for added, row in zip(code.added, logs, strict=True):
        law = np.full(int(added.max()) + 1, -math.inf)
        np.logaddexp.at(law, added, row)
        laws.append(law)
    likelihoods = likelihoods_of_summands(laws, log_likelihood(seen, code.numbers()[:width]))
    joint = (
        np.array([row[added] for row, added in zip(likelihoods, code.added, strict=True)]) + logs
    )
    return Beliefs.from_joint(values, log_before, joint)


def _strong(
    adversary: Adversary,
    seen: Sequence[Seen],
    truth: Ints,
    likely: Floats,
    rows: Ints,
    columns: VariableColumns,
) -> Beliefs:
    """Each entry when all others are known: its law given them, times what the output tells."""
    count, values = likely.shape
    whole = rows[np.arange(count), truth].sum(axis=0)
    before, joint = np.empty((count, values)), np.empty((count, values))
    for entry in range(count):
        paths = np.tile(truth, (values, 1))
        paths[:, entry] = np.arange(values)
        logs = adversary.log_probability(paths)
        total = float(np.logaddexp.reduce(logs))
        if total == -math.inf:
            raise InputError("the truth is impossible under the model; nobody could know it")
        answers = whole - rows[entry, truth[entry]] + rows[entry]
        before[entry] = logs - total
        joint[entry] = before[entry] + log_likelihood(seen, answers) + likely[entry]
    found = Beliefs.from_joint(columns.values, before, joint)
    return Beliefs(found.values, found.before, found.after, logs=found.logs)
