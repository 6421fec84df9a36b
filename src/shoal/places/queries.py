"""What is measured of the current state: its coordinates, or any other numbers it stands for.

And the best answer to show, given a belief about the state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from shoal.core.codec import Floats, Ints, Value, locked
from shoal.core.errors import InputError
from shoal.core.numbers import Number, common_step, exact, positive, whole
from shoal.core.records import Sequences, checked_states, label, sequences
from shoal.geometry.span import POINT_LIMIT
from shoal.noise.primitives import snap
from shoal.places.walk import SparseChain

Estimate = Literal["squared", "absolute"]
ESTIMATES: tuple[Estimate, ...] = ("squared", "absolute")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measurement(Value):
    """f: state → R^d on a public lattice: f(state i) = points[i]·step, exactly.

    In a stream it is asked at every step of the state one is in; of a sequence that is released
    once, of its last entry. The table is public, so its rounding to the lattice (`of`) is done
    once, before anything is released, and the sensitivity is that of the rounded answers.
    `estimate` says which expected error the best estimate of a stream minimises: "squared" (it is
    then a mean) or "absolute" (a median).
    Xiao & Xiong 2016, Section 3.3 and Example 3.2.
    """

    states: tuple[str, ...]
    labels: tuple[str, ...]
    points: Ints
    step: Fraction
    unit: str
    estimate: Estimate = "squared"

    def __post_init__(self) -> None:
        states = checked_states(self.states)
        points = np.asarray(self.points)
        if points.dtype.kind not in "iu" or points.shape != (len(states), len(self.labels)):
            raise InputError(
                f"points has shape {points.shape}; {len(states)} states with {len(self.labels)} "
                "numbers each need a row of whole lattice steps per state"
            )
        if self.estimate not in ESTIMATES:
            raise InputError(f"estimate is {self.estimate!r}; it must be one of {list(ESTIMATES)}")
        if not self.labels:
            raise InputError("labels is empty; a measurement needs at least one number")
        if np.abs(points).max() > POINT_LIMIT:
            raise InputError(
                f"points reach {np.abs(points).max()} lattice steps; at most {POINT_LIMIT} are "
                "handled: use a coarser step"
            )
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "labels", tuple(self.labels))
        object.__setattr__(self, "points", locked(points, np.int64))
        object.__setattr__(self, "step", positive(self.step, "step"))

    @property
    def lattice(self) -> Fraction:
        return self.step

    @property
    def dimension(self) -> int:
        """d: how many numbers one answer has."""
        return len(self.labels)

    @property
    def lipschitz(self) -> Fraction:
        """max over pairs of states of the l1 distance between their answers."""
        return self.step * _widest_l1(self.points)

    @property
    def values(self) -> Floats:
        """The answers as floats, one row per state: for estimates and plots, never for noise."""
        return np.asarray(self.points * float(self.step))

    def read(self, data: Any) -> Sequences:
        """`data` as chains of states; the last entry of the last chain is measured."""
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """f of the last entry, in lattice steps."""
        last = next(chain for chain in reversed(records.chains) if len(chain))
        return tuple(int(value) for value in self.points[int(last[-1])])

    def describe(self) -> str:
        return (
            f"{' and '.join(self.labels)} of the current state, in {self.unit} "
            f"(multiples of {self.step})"
        )


def measurement(
    states: Sequence[Any],
    values: Mapping[Any, Sequence[Number]] | Sequence[Sequence[Number]],
    *,
    labels: Sequence[str] = (),
    step: Number | None = None,
    unit: str = "units",
    estimate: Estimate = "squared",
) -> Measurement:
    """f from a row of numbers per state, in the order of `states` or by name.

    Without `step` the lattice is the coarsest that holds every value; with it values are rounded
    to its multiples, once and publicly (to the nearest, ties to even).
    """
    names = tuple(label(state) for state in states)
    rows = _rows(names, values)
    width = len(rows[0]) if rows else 0
    titles = tuple(labels) or tuple(f"f{axis + 1}" for axis in range(width))
    if any(len(row) != len(titles) for row in rows):
        raise InputError(f"values must give each state {len(titles)} numbers, one per label")
    numbers = [
        [exact(v, f"value of {n!r}") for v in row] for n, row in zip(names, rows, strict=True)
    ]
    chosen = (
        common_step(v for row in numbers for v in row) if step is None else positive(step, "step")
    )
    points = np.array([snap(row, chosen) for row in numbers], dtype=object)
    if np.abs(points).max(initial=0) > POINT_LIMIT:
        raise InputError(
            f"values need {np.abs(points).max()} steps of {chosen}; give a coarser step, at most "
            f"{POINT_LIMIT} are handled"
        )
    return Measurement(
        states=names,
        labels=titles,
        points=points.astype(np.int64),
        step=chosen,
        unit=unit,
        estimate=estimate,
    )


def coordinates(
    model: SparseChain, *, parts: int = 1, estimate: Estimate = "squared"
) -> Measurement:
    """Where the current cell of a map lies, in km east and north of its first cell.

    `parts` lattice steps fill the width of a cell: noise is drawn on that lattice.
    """
    if model.grid is None or model.cells is None:
        raise InputError("the model has no grid; give each state its numbers with measurement()")
    fine = whole(parts, "parts")
    return Measurement(
        states=model.states,
        labels=("east", "north"),
        points=model.grid.lattice_of(model.cells) * fine,
        step=model.grid.step_km / fine,
        unit="km",
        estimate=estimate,
    )


def _rows(names: tuple[str, ...], values: Any) -> list[Sequence[Number]]:
    if not isinstance(values, Mapping):
        rows = list(values)
        if len(rows) != len(names):
            raise InputError(f"values has {len(rows)} rows for {len(names)} states; give each one")
        return rows
    table = {label(key): row for key, row in values.items()}
    missing = [name for name in names if name not in table]
    unknown = [name for name in table if name not in names]
    if missing or unknown:
        name = (missing or unknown)[0]
        raise InputError(f"values must name every state once and no other; look at {name!r}")
    return [table[name] for name in names]


def _widest_l1(points: Ints) -> int:
    """max |p - q|_1: over the 2^(d-1) sign patterns, the widest extent."""
    widest = 0
    for pattern in range(2 ** (points.shape[1] - 1)):
        signs = [1 - 2 * ((pattern >> axis) & 1) for axis in range(points.shape[1])]
        heights = points @ np.array(signs, dtype=np.int64)
        widest = max(widest, int(heights.max() - heights.min()))
    return widest


# The best answer to show, given a belief: post-processing, so it costs no privacy.


WEISZFELD_ROUNDS = 50  # of Weiszfeld's iteration
CLOSE = 1e-9  # relative step after which it stops


def remapped(belief: Floats, values: Floats, error: Estimate) -> tuple[Floats, float]:
    """The answer of least expected error under `belief`, and √E|f(s) - answer|².

    Squared error: the mean Σ p(s) f(s). Absolute error E|f(s) - answer|: the geometric median.
    `values` (n, d) are the answers of the states; `belief` sums to 1.
    """
    answer = belief @ values
    if error == "absolute":
        answer = _median(belief, values, answer)
    squares = ((values - answer) ** 2).sum(axis=1)
    return answer, math.sqrt(max(float(belief @ squares), 0.0))


def _median(belief: Floats, values: Floats, start: Floats) -> Floats:
    """argmin over a of Σ p(s) |f(s) - a|: Weiszfeld's iteration, stopped at a state when best.

    A state is the median when the pull of all others, |Σ p(r) (f(r) - f(s))/|f(r) - f(s)||, is at
    most its own mass; so the most probable state's answer is tried first.
    """
    top = values[int(belief.argmax())]
    offsets = values - top
    away = np.sqrt((offsets**2).sum(axis=1))
    at = away == 0
    pull = (belief[~at, None] * offsets[~at] / away[~at, None]).sum(axis=0)
    if math.sqrt(float(pull @ pull)) <= float(belief[at].sum()):
        return np.array(top)
    answer, scale = start, float(away.max())
    for _ in range(WEISZFELD_ROUNDS):
        distance = np.maximum(np.sqrt(((values - answer) ** 2).sum(axis=1)), 1e-12 * scale)
        weights = belief / distance
        moved: Floats = weights @ values / weights.sum()
        if np.abs(moved - answer).max() <= CLOSE * scale:
            return moved
        answer = moved
    return answer
