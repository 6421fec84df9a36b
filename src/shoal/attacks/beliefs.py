"""What adversaries believe before and after, what was learned, and who knows how much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from shoal.attacks.codes import MOST_STEPS, coded, told_about_each
from shoal.attacks.seen import EntriesSeen, Seen, VariableColumns, entries_seen, log_likelihood
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import Adversary, Model


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

    `log_evidence` is log P(output), up to the constant left out of the likelihood; nan where
    nobody asked. `logs` are the logarithms of both tables, for beliefs too small for a double: a
    value that looks all but excluded is not excluded.
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
        """The largest log-odds learned between two values of one entry; 0 when nothing was.

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
    """What somebody who holds `model` believes about every entry after seeing `seen`.

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


# The same release seen by somebody who knows less, as much, or more than the model.
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
    code = coded(rows)
    width = int(code.added.max(axis=1).sum()) + 1
    if 0.5 * float(width) ** 2 > MOST_STEPS:
        raise Refused(f"the released sums have {width} values, too many to be told apart here")
    logs = log_before + likely
    laws = []
    for added, row in zip(code.added, logs, strict=True):
        law = np.full(int(added.max()) + 1, -math.inf)
        np.logaddexp.at(law, added, row)
        laws.append(law)
    told = told_about_each(laws, log_likelihood(seen, code.numbers()[:width]))
    joint = np.array([row[added] for row, added in zip(told, code.added, strict=True)]) + logs
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
