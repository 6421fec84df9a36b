"""All released numbers as one whole number, a code, to which every entry adds its own."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.core.errors import Refused
from shoal.core.value import Floats, Ints

LARGEST = 2**62  # sums of weights stay below it, so that none wraps around


class Code(NamedTuple):
    """What each value of each entry adds, (entries, values), and what a whole code stands for.

    The numbers are start + lines·(unit·digits + low), the digits being those of the code in the
    bases `shape`, the last one running fastest.
    """

    added: Ints
    shape: tuple[int, ...]
    unit: Ints
    low: Ints
    lines: Ints
    start: Ints

    @property
    def width(self) -> int:
        """How many codes there are."""
        return math.prod(self.shape)

    def numbers(self) -> Ints:
        """The released numbers without noise for every code, (codes, numbers)."""
        digits = np.stack(np.unravel_index(np.arange(self.width), self.shape), axis=1)
        return np.asarray(self.start + (digits * self.unit + self.low) @ self.lines)


def coded(rows: Ints) -> Code:
    """The code of sums to which value x of entry t adds rows[t, x], (entries, values, numbers).

    Where all entries move the numbers along one line (one number always; the bars of a histogram
    over two states), the code counts steps along it, so that it is no wider than need be.
    """
    if int(np.abs(rows).max(initial=0)) * len(rows) * 4 >= LARGEST:
        raise Refused("the weights are too large for an attack; release a coarser sum")
    start = rows[:, 0].sum(axis=0)
    gaps = rows - rows[:, :1]
    lines = _line(gaps)
    if lines is None:
        lines = np.eye(rows.shape[2], dtype=np.int64)
    else:
        place = int(np.flatnonzero(lines[0])[0])
        gaps = gaps[..., [place]] // lines[0, place]
    least = gaps.min(axis=1)
    digits = gaps - least[:, None]
    unit = np.maximum(np.gcd.reduce(digits.reshape(-1, digits.shape[2]), axis=0), 1)
    digits = digits // unit
    shape = tuple(int(top) + 1 for top in digits.max(axis=1).sum(axis=0))
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if math.prod(shape) >= LARGEST:
        raise Refused("the released numbers have too many values together; look at one of them")
    added = digits @ np.array(strides, dtype=np.int64)
    return Code(added, shape, unit, least.sum(axis=0), lines, start)


def _line(gaps: Ints) -> Ints | None:
    """The shortest whole vector all gaps are multiples of, (1, numbers); None if there is none."""
    flat = gaps.reshape(-1, gaps.shape[2])
    moved = flat[flat.any(axis=1)]
    if not len(moved):
        return np.eye(1, gaps.shape[2], dtype=np.int64)
    line = moved[0] // np.gcd.reduce(moved[0])
    place = int(np.flatnonzero(line)[0])
    times = moved[:, place] // line[place]
    return np.asarray(line[None]) if (times[:, None] * line == moved).all() else None


def sum_law(one: Floats, two: Floats) -> Floats:
    """log P(A + B = c) of independent whole numbers from log P(A = a) and log P(B = b).

    Terms are taken relative to the largest of each sum, so that nothing underflows.
    """
    short, long = (one, two) if len(one) <= len(two) else (two, one)
    places = np.flatnonzero(short > -math.inf)
    top = np.full(len(one) + len(two) - 1, -math.inf)
    for place in places:
        within = top[place : place + len(long)]
        np.maximum(within, short[place] + long, out=within)
    base = np.where(top > -math.inf, top, 0.0)
    mass = np.zeros(len(top))
    for place in places:
        end = place + len(long)
        mass[place:end] += np.exp(short[place] + long - base[place:end])
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mass) + base)


def told_by_sum(law: Floats, log_likelihood: Floats) -> Floats:
    """log P(output | A = a) when `log_likelihood` is that given A + B, and `law` is log P(B = b).

    For every a with which a + b is one of its codes, whatever b.
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


def told_about_each(laws: list[Floats], log_likelihood: Floats) -> list[Floats]:
    """log P(output | one of several independent summands), for each of them and its values.

    `laws` are their log-laws, `log_likelihood` that of the output given the sum of all. Half of
    them at a time: what is told about a half is what is told about the sum, the other half
    averaged out.
    """
    if len(laws) == 1:
        return [log_likelihood]
    half = len(laws) // 2
    first, last = laws[:half], laws[half:]
    return [
        *told_about_each(first, told_by_sum(total_law(last), log_likelihood)),
        *told_about_each(last, told_by_sum(total_law(first), log_likelihood)),
    ]


def total_law(laws: list[Floats]) -> Floats:
    """The log-law of the sum of independent whole numbers."""
    if len(laws) == 1:
        return laws[0]
    half = len(laws) // 2
    return sum_law(total_law(laws[:half]), total_law(laws[half:]))


def _log_total(logs: Floats) -> float:
    top = float(logs.max())
    return top if top == -math.inf else top + math.log(float(np.exp(logs - top).sum()))
