"""All released numbers as one whole number, a code, to which every entry adds its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.motion import Motion

MOST_STEPS = 2e9  # terms of all convolutions of an attack, about half a minute
LARGEST_SUM = 2**62  # sums of weights stay below it, so that none wraps around


class Code(NamedTuple):
    """What each value of each entry adds, (entries, values), and what a whole code stands for.

    The numbers are start + (unit·digits + low)·lines/over, the digits being those of the code in
    the bases `shape`, the last one running fastest.
    """

    added: Ints
    shape: tuple[int, ...]
    unit: Ints
    low: Ints
    lines: Ints
    over: int
    start: Ints

    @property
    def width(self) -> int:
        """How many codes there are."""
        return math.prod(self.shape)

    def numbers(self) -> Ints:
        """The released numbers without noise for every code, (codes, numbers)."""
        digits = np.stack(np.unravel_index(np.arange(self.width), self.shape), axis=1)
        # codes that no data reaches may be fractions; their values are never used
        return np.asarray(self.start + (digits * self.unit + self.low) @ self.lines // self.over)


def encode_sums(rows: Ints) -> Code:
    """The code of sums to which value x of entry t adds rows[t, x], (entries, values, numbers).

    Only numbers that the others do not determine have a digit: one number always, one bar fewer
    than a histogram has, and of several sums of the same thing one.
    """
    if int(np.abs(rows).max(initial=0)) * len(rows) * 4 >= LARGEST_SUM:
        raise Refused("the weights are too large for an attack; release a coarser sum")
    gaps = rows - rows[:, :1]
    chosen, lines, over = _basis(gaps)
    free = gaps[..., chosen]
    least = free.min(axis=1)
    digits = free - least[:, None]
    unit = np.maximum(np.gcd.reduce(digits.reshape(-1, len(chosen)), axis=0), 1)
    digits = digits // unit
    shape = tuple(int(top) + 1 for top in digits.max(axis=1).sum(axis=0))
    reach = int(np.abs(free).max(initial=0)) * len(rows) * 4 * int(np.abs(lines).sum(axis=0).max())
    if max(math.prod(shape), reach) >= LARGEST_SUM:
        raise Refused("the released numbers have too many values together; look at one of them")
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    added = digits @ np.array(strides, dtype=np.int64)
    start = rows[:, 0].sum(axis=0)
    return Code(added, shape, unit, least.sum(axis=0), lines, over, start)


def _basis(gaps: Ints) -> tuple[list[int], Ints, int]:
    """Numbers that determine all others, and how: gaps = gaps[chosen] @ lines/over, exactly.

    The narrowest independent ones, by elimination on the matrix of inner products, which has the
    same dependences as the numbers themselves. If all gaps are 0, the first number.
    """
    flat = np.unique(gaps.reshape(-1, gaps.shape[2]), axis=0).astype(object)
    rows = [[Fraction(int(x)) for x in row] for row in flat.T @ flat]
    extent = np.ptp(gaps, axis=1).sum(axis=0)
    chosen: list[int] = []
    for j in sorted(range(len(rows)), key=lambda j: (int(extent[j]), j)):
        k = len(chosen)
        pivot = next((r for r in range(k, len(rows)) if rows[r][j]), None)
        if pivot is None:
            continue
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][j] for x in rows[k]]
        for r, row in enumerate(rows):
            if r != k and row[j]:
                rows[r] = [x - row[j] * y for x, y in zip(row, rows[k], strict=True)]
        chosen.append(j)
    lines = rows[: max(len(chosen), 1)]  # all 0 if all gaps are 0
    over = math.lcm(*(x.denominator for row in lines for x in row))
    whole = np.array([[int(x * over) for x in row] for row in lines], dtype=np.int64)
    return chosen or [0], whole, over


def sum_law(one: Floats, two: Floats, *, best: bool = False) -> Floats:
    """log P(A + B = c) of independent whole numbers from log P(A = a) and log P(B = b).

    Terms are taken relative to the largest of each sum, to avoid underflow. With `best`
    it is the largest term itself.
    """
    short, long = (one, two) if len(one) <= len(two) else (two, one)
    places = np.flatnonzero(short > -math.inf)
    top = np.full(len(one) + len(two) - 1, -math.inf)
    for place in places:
        within = top[place : place + len(long)]
        np.maximum(within, short[place] + long, out=within)
    if best:
        return top
    base = np.where(top > -math.inf, top, 0.0)
    mass = np.zeros(len(top))
    for place in places:
        end = place + len(long)
        mass[place:end] += np.exp(short[place] + long - base[place:end])
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mass) + base)


def likelihood_given_rest(law: Floats, log_likelihood: Floats) -> Floats:
    """log P(output | A = a) when `log_likelihood` is that given A + B, and `law` is log P(B = b).

    For every a such that a + b is a valid code for all b.
    """
    count = len(log_likelihood) - len(law) + 1
    if count < len(law):
        rows = (law + log_likelihood[a : a + len(law)] for a in range(count))
        return np.array([_log_total(row) for row in rows])
    places = np.flatnonzero(law > -math.inf)
    top = np.full(count, -math.inf)
    for place in places:
        np.maximum(top, law[place] + log_likelihood[place : place + count], out=top)
    base = np.where(top > -math.inf, top, 0.0)
    mass = np.zeros(count)
    for place in places:
        mass += np.exp(law[place] + log_likelihood[place : place + count] - base)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mass) + base)


def likelihoods_of_summands(laws: list[Floats], log_likelihood: Floats) -> list[Floats]:
    """log P(output | one of several independent summands), for each of them and its values.

    `laws` are their log-laws, `log_likelihood` that of the output given the sum of all. Divide
    and conquer: the likelihood given the sum of one half averages out the other half.
    """
    if len(laws) == 1:
        return [log_likelihood]
    half = len(laws) // 2
    first, last = laws[:half], laws[half:]
    return [
        *likelihoods_of_summands(first, likelihood_given_rest(total_law(last), log_likelihood)),
        *likelihoods_of_summands(last, likelihood_given_rest(total_law(first), log_likelihood)),
    ]


def total_law(laws: list[Floats], *, best: bool = False) -> Floats:
    """The log-law of the sum of independent whole numbers; with `best` of its likeliest parts."""
    if len(laws) == 1:
        return laws[0]
    half = len(laws) // 2
    return sum_law(total_law(laws[:half], best=best), total_law(laws[half:], best=best), best=best)


def best_split(laws: list[Floats], total: int) -> list[int]:
    """The likeliest values of independent whole numbers that add up to `total`."""
    if len(laws) == 1:
        return [total]
    half = len(laws) // 2
    first, last = (total_law(part, best=True) for part in (laws[:half], laws[half:]))
    own = np.arange(max(0, total - len(last) + 1), min(total, len(first) - 1) + 1)
    place = int(own[int(np.argmax(first[own] + last[total - own]))])
    return best_split(laws[:half], place) + best_split(laws[half:], total - place)


def _log_total(logs: Floats) -> float:
    top = float(logs.max())
    return top if top == -math.inf else top + math.log(float(np.exp(logs - top).sum()))


# Beliefs about a hidden Markov chain from all that was seen, in logarithms throughout.
#
# A scaled pass would lose states that look impossible early and turn out to be the truth later, as
# happens when the adversary's chain is not the person's. Sums are formed in plain numbers where
# that is exact enough, which is nearly everywhere, and in logarithms where terms may underflow.


CLEAR = 1e-280  # terms below 1e-308 are lost, which sums above this do not notice


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """log P(hidden state at each step) before any output, before and after its own, after all.

    `evidence` is log P(outputs), up to the constants left out of the likelihoods.
    """

    before: Floats
    predicted: Floats
    filtered: Floats
    smoothed: Floats
    evidence: float


def follow(motion: Motion, begin: Floats, first: int, rows: Floats) -> Followed:
    """The beliefs of an adversary about the hidden states at every step.

    `begin` is the log-law of the hidden state at the start, `first` the time of the first step (1
    after a known start), `rows` (steps, hidden) the log-likelihood of each step's output. With
    α_t = log P(z_1 … z_t, h_t) and β_t = log P(z_{t+1} … | h_t), smoothed is α + β - evidence.
    """
    steps = len(rows)
    before, predicted, filtered = np.empty_like(rows), np.empty_like(rows), np.empty_like(rows)
    law = joint = begin
    for t in range(steps):
        moves = motion.matrix(first + t)
        if moves is not None:
            law, joint = push_through(moves, law), push_through(moves, joint)
        before[t], predicted[t] = law, joint
        joint = joint + rows[t]
        filtered[t] = joint
    evidence = float(total(joint))
    if evidence == -math.inf:
        raise InputError("what was released is impossible under the adversary's model")
    smoothed = _normalise_logs(filtered + later(motion, first, rows))
    return Followed(
        before, _normalise_logs(predicted), _normalise_logs(filtered), smoothed, evidence
    )


def later(motion: Motion, first: int, rows: Floats) -> Floats:
    """β_t(h) = log P(outputs after t | hidden state h at t), (steps, hidden); 0 at the end."""
    found = np.zeros_like(rows)
    transposed, moves = None, None
    for t in range(len(rows) - 2, -1, -1):
        if motion.matrix(first + t + 1) is not transposed:
            transposed = motion.matrix(first + t + 1)
            moves = None if transposed is None else transposed.T.tocsr()
        ahead = rows[t + 1] + found[t + 1]
        found[t] = ahead if moves is None else push_through(moves, ahead)
    return found


def likeliest(motion: Motion, begin: Floats, first: int, rows: Floats) -> Ints:
    """The hidden states of the likeliest whole path given the outputs (Viterbi), ties by index.

    No table of predecessors is kept: on the way back only those of one state are looked at.
    """
    best = np.empty_like(rows)
    table = begin
    matrix, logs = None, np.zeros(0)
    for t in range(len(rows)):
        moves = motion.matrix(first + t)
        if moves is not None:
            if moves is not matrix:
                matrix, logs = moves, np.log(moves.data)
            table = _by_row(np.maximum, moves, logs + table[moves.indices])
        best[t] = table
        table = table + rows[t]
    path = np.empty(len(rows), dtype=np.int64)
    path[-1] = int(np.argmax(table))
    for t in range(len(rows) - 1, 0, -1):
        moves, here = motion.matrix(first + t), int(path[t])
        if moves is None:
            path[t - 1] = here
            continue
        own = slice(int(moves.indptr[here]), int(moves.indptr[here + 1]))
        origins = moves.indices[own]
        chance = np.log(moves.data[own]) + (best[t - 1] + rows[t - 1])[origins]
        path[t - 1] = origins[chance == chance.max()].min()
    return path


def push_through(matrix: Any, logs: Floats) -> Floats:
    """log (matrix e^logs) for a matrix in sparse rows without negative entries.

    -inf where no transition leads; no possible entry is lost to underflow.
    """
    top = logs.max()
    if top == -math.inf:
        return np.full(matrix.shape[0], -math.inf)
    with np.errstate(under="ignore", divide="ignore"):
        sums = matrix @ np.exp(logs - top)
        found: Floats = np.log(sums) + top
    unclear = np.flatnonzero(sums < CLEAR)
    if len(unclear):
        some = matrix[unclear]
        found[unclear] = _by_row(np.logaddexp, some, np.log(some.data) + logs[some.indices])
    return found


def total(logs: Floats) -> Floats:
    """Return log Σ e^logs along the last axis; -inf where all terms are -inf."""
    top = logs.max(axis=-1, keepdims=True)
    safe = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(under="ignore", divide="ignore"):
        found = np.log(np.exp(logs - safe).sum(axis=-1)) + safe[..., 0]
    return np.asarray(found)


def on_states(motion: Motion, first: int, hidden: Floats) -> Floats:
    """Log-laws of the states shown at each step, (steps, states), from those of hidden states."""
    if motion.memory == 1:
        return hidden
    found = np.full((len(hidden), motion.size), -math.inf)
    for t, row in enumerate(hidden):
        np.logaddexp.at(found[t], motion.at(first + t), row)
    return found


def _normalise_logs(logs: Floats) -> Floats:
    """Each row less its total, so that it is the logarithm of a law."""
    return np.asarray(logs - total(logs)[:, None])


def _by_row(combine: np.ufunc, matrix: Any, values: npt.NDArray[Any]) -> Floats:
    """The values of each row of a sparse matrix combined; -inf for rows without any."""
    found = np.full(matrix.shape[0], -math.inf)
    filled = np.diff(matrix.indptr) > 0
    if filled.any():
        found[filled] = combine.reduceat(values, matrix.indptr[:-1][filled])
    return found
